//! Concurrent runs, and recovery after a kill.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{LONG, Project, is_alive, wait_until};

const DONE: &str = "<response>DONE</response>";

fn run_id(project: &Project) -> String {
    project.newest_run().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn second_run_is_refused_and_names_first() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"wait_for": "go"}, {"print": DONE}]));
    let first = project.ralph(["run", "-p", "x", "--"]).args(agent.clone()).start();
    project.wait_for_event("agent_started");
    let second = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
    second.code(2).stderr_has("is in use").stderr_has(&first.pid().to_string());
    second.stderr_has(&run_id(&project));
    project.ralph(["runs"]).run().code(0).stdout_has("working");
    project.write("go", "");
    first.wait().code(0);
}

#[test]
fn only_one_of_concurrent_starts_runs() {
    for _ in 0..5 {
        let project = Project::new();
        let agent = project
            .fake_agent(&json!([project.record_step(), {"wait_for": "go"}, {"print": DONE}]));
        let starts: Vec<_> = (0..8)
            .map(|_| project.ralph(["run", "-p", "x", "--"]).args(agent.clone()).start())
            .collect();
        wait_until(LONG, || starts.iter().filter(|run| !is_alive(run.pid())).count() == 7);
        project.write("go", "");
        let mut codes: Vec<_> = starts.into_iter().map(|run| run.wait().status.code()).collect();
        codes.sort_unstable();
        assert_eq!(codes[0], Some(0));
        assert!(codes[1..].iter().all(|code| *code == Some(2)), "{codes:?}");
        assert_eq!(project.agent_starts().len(), 1);
    }
}

#[test]
fn corrupt_lock_file_is_taken_over() {
    for nonsense in [&b"\xff\xfe"[..], b"{\"pid\":", b"", b"7", &[b'x'; 100_000]] {
        let project = Project::new();
        let agent = project.fake_agent(&json!([{"print": DONE}]));
        let run = || project.ralph(["run", "-p", "x", "--"]).args(agent.clone()).run();
        run().code(0);
        let runs = project.path().join(".ralph/runs").read_link().unwrap();
        let lock = runs.with_file_name("lock");
        std::fs::write(&lock, nonsense).unwrap();
        run().code(0);
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), "");
    }
}

fn killed_at(project: &Project, agent: &[String], marker: &str) {
    let run = project.ralph(["run", "-p", "x", "--"]).args(agent).start();
    project.wait_for_file(marker);
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
    let id = run_id(project);
    project.ralph(["runs"]).run().code(0).stdout_has("interrupted");
    std::fs::remove_file(project.path().join(marker)).expect("the marker");
    let next = project.fake_agent(&json!({
        "sessions": [[{"print": DONE}]], "commit_message": [{"print": "Do it"}],
    }));
    project.settings(&json!({}));
    let output = project.ralph(["run", "-p", "x", "--"]).args(next).run();
    output.code(0).stderr_has(&id[id.len() - 4..]).stderr_has("was interrupted in iteration 1");
    assert_eq!(project.processes(), []);
}

#[test]
fn run_killed_with_detached_tool_is_cleaned_up() {
    let project = Project::new();
    let pid_file = project.sibling("stray.pid");
    let agent = project.fake_agent(&json!([
        {"stray": {"pid_file": pid_file}}, {"print": "half"}, {"write": {"path": "at", "text": ""}},
        "hang",
    ]));
    killed_at(&project, &agent, "at");
    let pid: i32 = std::fs::read_to_string(pid_file).unwrap().parse().unwrap();
    assert!(!is_alive(pid));
}

#[test]
fn cut_off_run_survives_pruning() {
    let project = Project::new();
    project.settings(&json!({"runs": {"keep": 1}}));
    let agent = project.fake_agent(&json!([{"print": "half"}, "hang"]));
    let run = project.ralph(["run", "-p", "x", "--"]).args(agent).start();
    project.wait_for_event("text");
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
    let id = run_id(&project);
    let next = project.fake_agent(&json!([{"print": DONE}]));
    let output = project.ralph(["run", "-p", "x", "--"]).args(next.clone()).run();
    output.code(0).stderr_has(&id[id.len() - 4..]).stderr_has("was interrupted in iteration 1");
    project.ralph(["replay", &id]).run().code(0).stdout_has("half");
    // It stays the run to resume until there is a newer one.
    project.ralph(["run", "-p", "x", "--"]).args(next.clone()).run().code(0);
    project.ralph(["replay", &id]).run().code(0);
    let no = project.fake_agent(&json!([{"print": "no"}]));
    project.ralph(["run", "-p", "x", "-n", "1", "--"]).args(no).run().code(1);
    project.ralph(["run", "-p", "x", "--"]).args(next).run().code(0);
    project.ralph(["replay", &id]).run().code(2);
}

#[test]
fn run_killed_during_guardrail_is_cleaned_up() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": ": >at; exec sleep 100"}]}));
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    killed_at(&project, &agent, "at");
}

#[test]
fn run_killed_during_commit_is_cleaned_up() {
    let project = Project::git();
    project.write(".git/hooks/pre-commit", "#!/bin/sh\n: >at; exec sleep 100\n");
    let hook = project.path().join(".git/hooks/pre-commit");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(hook, mode).unwrap();
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let agent = project.fake_agent(&json!({
        "sessions": [[{"write": {"path": "work", "text": "kept"}}, {"print": DONE}]],
        "commit_message": [{"print": "Do it"}],
    }));
    killed_at(&project, &agent, "at");
    assert_eq!(project.read("work"), "kept");
}

#[test]
fn torn_journal_is_read_to_last_whole_line() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"print": "said"}, {"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    let journal = project.newest_run().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    for cut in [text.len() - 1, text.len() - 40, text.len() / 2, 10] {
        std::fs::write(&journal, &text[..cut]).unwrap();
        project.ralph(["runs"]).run().code(0);
        project.ralph(["runs", "--json"]).run().code(0);
        project.ralph(["replay"]).run().code(0).stderr_lacks("panicked");
    }
}

#[test]
fn empty_run_directories_are_harmless_and_pruned() {
    let project = Project::new();
    project.settings(&json!({"runs": {"keep": 2}}));
    std::fs::create_dir_all(project.path().join(".ralph/runs/20200101-000000-aaaa")).unwrap();
    project.write(".ralph/runs/20200102-000000-bbbb/events.jsonl", "");
    project.write(".ralph/runs/20200103-000000-cccc", "a file");
    project.ralph(["runs"]).run().code(0);
    for never in ["20200101", "20200102"] {
        project.ralph(["replay", never]).run().code(2).stderr_has("before it started");
    }
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    for _ in 0..3 {
        project.ralph(["run", "-p", "x", "--"]).args(agent.clone()).run().code(0);
    }
    let remaining = std::fs::read_dir(project.path().join(".ralph/runs")).unwrap().count();
    assert_eq!(remaining, 2, "the oldest go first, whatever they are");
}

#[test]
fn runs_killed_at_any_moment_finally_complete() {
    let project = Project::git();
    project.settings(&json!({
        "maximumIterations": 1000,
        "guardrails": [{"command": "test -d .git"}],
        "scm": {"command": "git", "tasks": ["commit"]},
    }));
    let agent = project.fake_agent(&json!({
        "sessions": [[{"shell": "for i in 1 2 3; do echo x >>work; done"}, {"print": "more"}]],
        "commit_message": [{"print": "Work"}],
    }));
    let begun = || {
        let runs = std::fs::read_dir(project.path().join(".ralph/runs")).into_iter().flatten();
        let journals = runs.map(|run| run.unwrap().path().join("events.jsonl"));
        journals.filter(|journal| journal.metadata().is_ok_and(|of| of.len() > 0)).count()
    };
    for moment in 0..30_u64 {
        let before = begun();
        let run = project.ralph(["run", "-p", "x", "--"]).args(agent.clone()).start();
        // Start-up time depends on the machine, so every other kill comes after the start.
        if moment % 2 == 1 {
            wait_until(LONG, || begun() > before);
        }
        // Not for synchronization: any moment will do.
        std::thread::sleep(Duration::from_millis((moment * 37) % 150));
        run.signal(Signal::KILL);
        run.wait();
        for entry in std::fs::read_dir(project.path().join(".ralph/runs")).into_iter().flatten() {
            let journal = entry.unwrap().path().join("events.jsonl");
            let text = std::fs::read_to_string(journal).unwrap_or_default();
            let complete = text.rfind('\n').map_or(0, |end| end + 1);
            for line in text[..complete].lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
        // A killed git leaves lock files.
        let script = "find .git -name '*.lock' -delete";
        project.program("sh", ["-c", script]).run().success();
    }
    let agent = project.fake_agent(&json!({
        "sessions": [[{"print": DONE}]], "commit_message": [{"print": "Work"}],
    }));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    assert_eq!(project.processes(), []);
    project.ralph(["runs"]).run().code(0).stdout_has("interrupted").stdout_has("complete");
}

#[test]
fn git_clean_and_stash_by_agent_lose_nothing() {
    let project = Project::git();
    let agent = project.fake_agent(&json!({"sessions": [
        [{"print": "before"}],
        [{"shell": "git clean -fdxq"}, {"print": "cleaned"}],
        [{"shell": "git stash -aq && git stash pop -q >/dev/null"}, {"print": DONE}],
    ]}));
    project.git_command(["commit", "-q", "--allow-empty", "-m", "first"]);
    project.settings(&json!({"guardrails": [{"command": "echo checked"}]}));
    let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
    output.code(0).stderr_lacks("events.jsonl");
    let events = project.events();
    let texts: Vec<_> = events.all("text").iter().map(|event| event["text"].clone()).collect();
    assert_eq!(texts, ["before", "cleaned", DONE]);
    assert!(events.has("run_started") && events.has("run_ended"));
    assert!(project.has(".ralph/guardrail_003_echo_checked.log"));
}

#[test]
fn killed_run_resumes_after_git_clean() {
    let project = Project::git();
    let agent = project.fake_agent(&json!({"sessions": [
        [{"print": "before"}],
        [{"print": "now"}, {"shell": "git clean -fdxq"}, {"print": "cleaned"},
            {"shell": "git add -A"}, {"print": "shown"}, "hang"],
        [{"print": DONE}],
    ]}));
    let run = project.ralph(["run", "-p", "x", "--"]).args(agent).start();
    wait_until(LONG, || run.stdout().contains("shown"));
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
    let journal_texts = || -> String {
        let events = project.events();
        let texts = events.all("text");
        texts.iter().filter_map(|event| event["text"].as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(journal_texts(), "before now cleaned shown");
    assert!(!project.git_command(["ls-files"]).contains("events.jsonl"));
    project.ralph(["report"]).run().code(0).stdout_has(" — interrupted").stdout_has("ralph resume");
    project.ralph(["resume"]).run().code(0);
    assert_eq!(journal_texts(), format!("before now cleaned shown {DONE}"));
    assert_eq!(project.processes(), []);
}

/// Nothing of ralph's is left in the project.
#[test]
fn run_killed_after_git_clean_is_reported_and_resumed() {
    let project = Project::git();
    let cleaned = project.sibling("cleaned");
    let recorded = r#"until grep -q '"now"' .ralph/runs/*/events.jsonl; do sleep 0.01; done"#;
    let clean = format!("{recorded}; git clean -fdxq; touch {}", cleaned.display());
    let agent = project.fake_agent(&json!({"sessions": [
        [{"print": "before"}],
        [{"stray": {"pid_file": project.sibling("stray.pid")}}, {"print": "now"}, {"shell": clean}, "hang"],
        [{"print": DONE}],
    ]}));
    let run = project.ralph(["run", "-p", "x", "-n", "3", "--"]).args(agent).start();
    wait_until(LONG, || cleaned.exists());
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
    assert!(!project.has(".ralph/runs"));
    project.ralph(["report"]).run().code(0).stdout_has(" — interrupted");
    project.ralph(["runs"]).run().code(0).stdout_has("interrupted");
    assert_ne!(project.processes(), []);
    project.ralph(["resume"]).run().code(0).stderr_has("left behind");
    assert_eq!(project.processes(), []);
    let events = project.events();
    let recovered = events.find("recovered");
    assert_eq!(recovered["run"], events.find("run_started")["run"]);
    assert!(
        recovered["processes"][0]["command"].as_str().unwrap().contains("stray"),
        "{recovered}"
    );
    let texts: Vec<_> = events.all("text").iter().map(|event| event["text"].clone()).collect();
    assert_eq!(texts, ["before", "now", DONE]);
}
