//! Runs cut off after their outcome was decided, and damaged journals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, Ralph, wait_until};
use crate::{DONE, run_id};

fn journal(project: &Project) -> PathBuf {
    project.newest_run().join("events.jsonl")
}

fn lines(project: &Project) -> Vec<String> {
    let text = fs::read_to_string(journal(project)).expect("a journal");
    text.split_inclusive('\n').map(str::to_owned).collect()
}

/// Cuts the journal before an event, or `torn` bytes into it.
fn cut_before(project: &Project, kind: &str, torn: usize) {
    let lines = lines(project);
    let is_kind = |line: &String| line.contains(&format!(r#""event":"{kind}""#));
    let at = lines.iter().rposition(is_kind).expect("such an event");
    let text = lines[..at].concat() + &lines[at][..torn];
    fs::write(journal(project), text).expect("it is ours");
}

fn agents(project: &Project) -> usize {
    project.agent_starts().len()
}

fn robot(project: &Project, sessions: &[Value]) {
    let recorded = project.record_sessions(sessions);
    project.install_agent("claude", &json!({"sessions": recorded, "commit_message": []}));
}

fn says(text: &str, cost: f64) -> Value {
    json!([{"claude": {"text": text}}, {"claude": {"result": {"total_cost_usd": cost}}}])
}

#[test]
fn warning_is_not_repeated_on_resume() {
    let project = Project::new();
    project.settings(&json!({"hooks": {"allow": [""]}, "maximumIterations": 1}));
    robot(&project, &[says("no", 0.1), says(DONE, 0.1)]);
    project.ralph(["run", "-p", "do it", "--", "claude"]).run().code(1).stderr_has("hooks.allow");
    project.ralph(["resume", "-n", "2"]).run().code(0).stderr_lacks("hooks.allow");
}

#[test]
fn resume_of_decided_run_starts_no_agent() {
    let failed = json!([{"exit": 7}]);
    let refused = json!([{"claude": {"result": {"is_error": true, "result": "Invalid API key · Please run /login"}}}]);
    let no_scm = json!({"command": "git", "tasks": ["push"]});
    for (settings, sessions, code, last) in [
        (json!({}), [says(DONE, 0.1)], 0, &["run_ended", "iteration_ended"][..]),
        (json!({"scm": no_scm}), [says(DONE, 0.1)], 5, &["run_ended", "iteration_ended"]),
        (json!({"maximumIterations": 2}), [says("no", 0.1)], 1, &["run_ended"]),
        (json!({"budget": {"costUsd": 0.1}}), [says("no", 0.1)], 3, &["run_ended"]),
        (json!({"retry": {"max": 0}}), [failed], 4, &["run_ended", "iteration_ended"]),
        (json!({}), [refused], 4, &["run_ended", "iteration_ended"]),
    ] {
        let project = Project::git();
        project.settings(&settings);
        robot(&project, &sessions);
        project.ralph(["run", "-p", "do it", "--", "claude"]).run().code(code);
        let (agents_before, complete) = (agents(&project), project.events());
        let ended = |events: &crate::support::Events| {
            let ended = events.last("run_ended").clone();
            ["outcome", "message", "iterations", "usage"].map(|key| ended[key].clone())
        };
        for (kind, torn) in last.iter().flat_map(|kind| [(*kind, 0), (*kind, 40)]) {
            cut_before(&project, kind, torn);
            project.ralph(["resume"]).run().code(code);
            assert_eq!(agents(&project), agents_before, "{settings} without {kind}");
            assert_eq!(ended(&project.events()), ended(&complete), "{settings} without {kind}");
        }
    }
}

#[test]
fn resume_with_damaged_journal_warns_and_keeps_spending() {
    let project = Project::new();
    project.settings(&json!({"budget": {"costUsd": 1.0}, "maximumIterations": 3}));
    robot(&project, &[says("no", 0.3)]);
    project.ralph(["run", "-p", "do it", "--", "claude"]).run().code(1);
    let id = run_id(&project);
    let nonsense = |lines: Vec<String>, is_lost: &dyn Fn(&str) -> bool| {
        let line = |line: String| if is_lost(&line) { "\0\0\0\n".to_owned() } else { line };
        fs::write(journal(&project), lines.into_iter().map(line).collect::<String>())
            .expect("ours");
    };
    let journal_lines = lines(&project);
    let of_iterations = |line: &str| {
        ["agent_ended", "iteration_ended", "\"result\"", "\"usage\","]
            .iter()
            .any(|it| line.contains(it))
            && !line.contains("run_ended")
    };
    nonsense(journal_lines.clone(), &of_iterations);
    let lost = journal_lines.iter().filter(|line| of_iterations(line)).count();
    let words = format!("{lost} lines of the journal cannot be read");
    project.ralph(["runs"]).run().code(0).stdout_has("$0.90").stderr_has(&words);
    project.ralph(["runs", "--json"]).run().code(0).stdout_has("\"unreadable_lines\"");
    project.ralph(["replay"]).run().code(0).stderr_has(&words);
    let output = project.ralph(["resume", "-n", "9"]).run();
    output.code(3).stderr_has(&words).stderr_has("more of the budget may be used than");
    assert_eq!(agents(&project), 4, "there was 0.10 left");
    let last: Value = serde_json::from_str(lines(&project).last().expect("a line")).expect("JSON");
    assert_eq!(last["usage"]["cost_usd"], 1.2);
    nonsense(lines(&project), &|_| true);
    let output = project.ralph(["resume", &id, "-n", "20"]).run();
    output.code(2).stderr_has("no readable line in its journal").stderr_has("start over");
    assert_eq!(agents(&project), 4);
}

#[test]
fn resume_after_killed_git_commits() {
    let project = Project::git();
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let work = json!([project.record_step(), {"shell": "echo x >>work"}, {"print": DONE}]);
    let ask = |steps: Value| {
        project.install_agent("robot", &json!({"sessions": [work], "commit_message": steps}));
    };
    let kill_all_at = |run: Ralph, marker: &str| {
        let run = run.start();
        project.wait_for_file(marker);
        // As in a power failure: no process can clean up.
        for signal in [Signal::STOP, Signal::KILL] {
            project.processes().iter().for_each(|process| process.signal(signal));
        }
        let output = run.wait();
        output.killed_by(Signal::KILL);
        // One may have been forking just then.
        wait_until(LONG, || {
            let leftovers = project.processes();
            leftovers.iter().for_each(|process| process.signal(Signal::KILL));
            leftovers.is_empty()
        });
        output
    };
    ask(json!([{"write": {"path": ".ralph/asked", "text": ""}}, "hang"]));
    kill_all_at(project.ralph(["run", "-p", "do it", "--", "robot"]), ".ralph/asked");
    ask(json!([{"print": "More"}]));
    project.git_command(["config", "filter.slow.clean", "sleep 600"]);
    // git would not filter a file unchanged since it was staged.
    project.write(".gitattributes", "work filter=slow\n").write("work", "x, and more\n");
    kill_all_at(project.ralph(["resume"]), ".git/index.lock");
    project.git_command(["config", "--unset", "filter.slow.clean"]);
    let lock = project.path().join(".git/index.lock");
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = fs::File::options().append(true).open(&lock).expect("git has left its lock");
    file.set_modified(an_hour_ago).expect("it is ours");
    drop(file);
    // Killed in a pre-commit hook, with the commit message known.
    let hook = project.path().join(".git/hooks/pre-commit");
    let script = "#!/bin/sh\ntouch .ralph/hooked\nexec sleep 600\n";
    project.write(".git/hooks/pre-commit", script);
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let output = kill_all_at(project.ralph(["resume"]), ".ralph/hooked");
    output.stderr_has(".git/index.lock, a stale git lock");
    fs::remove_file(&hook).expect("it is ours");
    assert!(!lock.exists());
    // No paid answer is requested again. Then killed after the commit.
    ask(json!([{"print": "Other"}]));
    let hook = hook.with_file_name("post-commit");
    project.write(".git/hooks/post-commit", script.replace("hooked", "made"));
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("it is ours");
    kill_all_at(project.ralph(["resume"]), ".ralph/made");
    fs::remove_file(&hook).expect("it is ours");
    project.ralph(["resume"]).run().code(0);
    // The commit belongs to the run even though the run was killed before it could record it.
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has("More").stdout_lacks("not by this run").stdout_lacks("by others");
    assert_eq!(project.git_command(["status", "--porcelain"]), "");
    assert_eq!(project.git_command(["log", "-1", "--format=%s"]).trim(), "More");
    assert_eq!(agents(&project), 1);
}
