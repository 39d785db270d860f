//! `ralph resume`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Output, Project, Ralph, Running, wait_until};
use crate::{DONE, prompts, run_id};

const COMPLETE: &str = "<promise>COMPLETE</promise>";

fn run(project: &Project, args: &[&str], sessions: &[Value]) -> Ralph {
    script(project, "robot", sessions);
    project.ralph(["run", "-p", "do it"]).args(args).args(["--", "robot"])
}

fn script(project: &Project, agent: &str, sessions: &[Value]) {
    let recorded = project.record_sessions(sessions);
    project.install_agent(agent, &json!({"sessions": recorded}));
}

fn kill_at(project: &Project, run: Ralph, marker: &str) {
    let run = run.start();
    project.wait_for_file(marker);
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
}

fn resume(project: &Project, args: &[&str]) -> Output {
    project.ralph(["resume"]).args(args).run()
}

fn reach(marker: &str) -> Value {
    json!({"write": {"path": marker, "text": ""}})
}

fn iterations(project: &Project) -> Vec<u64> {
    let events = project.events();
    let number = |event: &&Value| event["iteration"].as_u64().expect("a number");
    events.all("iteration_started").iter().map(number).collect()
}

#[test]
fn resume_after_kill_restarts_open_iteration() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "test -e made", "hint": "make it"}]}));
    let sessions = [
        json!([{"print": "one"}]),
        json!([{"print": "two"}, reach("at"), "hang"]),
        json!([{"shell": "touch made"}, {"print": DONE}]),
    ];
    kill_at(&project, run(&project, &["-n", "5"], &sessions), "at");
    let id = run_id(&project);
    resume(&project, &[])
        .code(0)
        .stdout_has(&format!("run {}", &id[id.len() - 4..]))
        .stdout_has("Resumed after a crash: restarting iteration 2.\n")
        .stdout_lacks("Resuming")
        .stdout_has("Iteration 2/5");
    assert_eq!(run_id(&project), id, "one journal");
    assert_eq!(iterations(&project), [1, 2, 2]);
    let events = project.events();
    let continued = events.find("run_continued");
    assert_eq!((&continued["after"], &continued["cut_off"]), (&json!(null), &json!(2)));
    assert_eq!(events.last("run_ended")["iterations"], 2);
    // The second iteration started twice, so its prompt repeats the guardrail's feedback.
    let has_feedback: Vec<bool> =
        prompts(&project).iter().map(|it| it.contains("make it")).collect();
    assert_eq!(has_feedback, [false, true, true]);
    assert_eq!(project.processes(), []);
    resume(&project, &[&id]).code(0).stdout_has("is done: complete after 2 iterations");
    resume(&project, &[]).code(0).stdout_has("nothing to resume");
    project.ralph(["report"]).run().code(0).stdout_has("after a crash; restarted iteration 2");
}

#[test]
fn resume_below_open_iteration_leaves_it_unchecked() {
    let project = Project::new();
    let sessions = [json!([{"print": "one"}]), json!([{"print": "two"}, reach("at"), "hang"])];
    kill_at(&project, run(&project, &["-n", "5"], &sessions), "at");
    resume(&project, &["-n", "1"]).code(1).stdout_lacks("begun again");
    assert_eq!(iterations(&project), [1, 2]);
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has("2 iterations (limit now 1)").stdout_lacks("restarted");
    report.stdout_has("The work of iteration 2 is in the work tree, unchecked");
}

#[test]
fn report_credits_run_only_with_its_own_commits() {
    let project = Project::git();
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let commit = |subject: &str| {
        project.git_command(["commit", "-q", "--allow-empty", "-m", subject]);
    };
    // In the same second as the start of the run.
    commit("before");
    let side = "git checkout -q -b side; git commit -q --allow-empty -m aside; git checkout -q -";
    let own = "git pack-refs --all; git commit -q --allow-empty -m inside";
    let sessions = [
        json!([{"shell": side}, {"shell": "echo 1 > one"}, {"print": "on it"}]),
        json!([{"print": "Write one"}]),
        json!([{"shell": own}, {"print": "in the journal"}, "hang"]),
        json!([{"shell": "git commit -q --amend --allow-empty -m amended"}, {"print": DONE}]),
    ];
    let run = run(&project, &["-n", "3"], &sessions).start();
    wait_until(LONG, || run.stdout().contains("in the journal"));
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
    commit("by a person");
    resume(&project, &[]).code(0);
    commit("after");
    project.git_command(["branch", "-q", "-D", "side"]);
    let report = project.ralph(["report", "--format", "json"]).run();
    let report: Value = serde_json::from_str(&report.code(0).stdout).unwrap();
    let subjects = |commits: &Value| -> Vec<(String, bool)> {
        let commits = commits.as_array().unwrap().iter();
        commits
            .map(|it| (it["subject"].as_str().unwrap().to_owned(), it["gone"] == json!(true)))
            .collect()
    };
    let own = |subject: &str, gone: bool| (subject.to_owned(), gone);
    let iterations = &report["iterations"];
    assert_eq!(subjects(&iterations[0]["commits"]), [own("aside", true), own("Write one", false)]);
    assert_eq!(subjects(&iterations[1]["commits"]), [own("inside", false), own("amended", false)]);
    assert_eq!(subjects(&report["others"]), [own("by a person", true)]);
}

#[test]
fn resume_keeps_counting_costs_and_failures() {
    let project = Project::new();
    project
        .settings(&json!({"budget": {"costUsd": 1.0}, "retry": {"max": 3, "backoffSeconds": 0}}));
    let used = |cost: f64| json!([{"claude": {"text": "hm"}}, {"claude": {"result": {"total_cost_usd": cost}}}]);
    let sessions = [
        used(0.6),
        json!([{"exit": 7}]),
        json!([{"exit": 7}]),
        json!([reach("at"), "hang"]),
        json!([{"exit": 7}]),
        used(0.5),
        used(100.0),
    ];
    script(&project, "claude", &sessions);
    let run = project.ralph(["run", "-p", "do it", "--", "claude"]);
    kill_at(&project, run, "at");
    let output = resume(&project, &[]);
    output.code(3).stdout_has("failure 3 of 4").stdout_has("cost $1.10 of $1.00");
    output.stdout_has("ralph resume ").stdout_has("--max-cost");
    assert_eq!(project.agent_starts().len(), 6);
    assert_eq!(project.events().last("run_ended")["usage"]["cost_usd"], 1.1);
    resume(&project, &[]).code(2).stderr_has("cost $1.10 of $1.00").stderr_has("--max-cost");
    resume(&project, &["--max-cost", "1"]).code(2);
    resume(&project, &["--max-cost", "5"]).code(3).stdout_has("cost $101.10 of $5.00");
    assert_eq!(project.events().all("run_started").len(), 3, "what is refused leaves no trace");
}

#[test]
fn resume_can_raise_iteration_limit_permanently() {
    let project = Project::new();
    let no = json!([{"print": "no"}]);
    let sessions = [no.clone(), no.clone(), no.clone(), json!([reach("at"), "hang"]), no];
    run(&project, &["-n", "2"], &sessions).run().code(1).stdout_has("ralph resume");
    let id = run_id(&project);
    resume(&project, &[]).code(2).stderr_has("2 of 2 iterations").stderr_has("-n 12");
    resume(&project, &["-n", "2"]).code(2).stderr_has("2 of 2 iterations");
    kill_at(&project, project.ralph(["resume", &id, "-n", "5"]), "at");
    resume(&project, &[]).code(1).stdout_has("Resumed after a crash").stdout_has("Iteration 5/5");
    assert_eq!(iterations(&project), [1, 2, 3, 4, 4, 5]);
    let events = project.events();
    let after: Vec<&Value> =
        events.all("run_continued").iter().map(|event| &event["after"]).collect();
    assert_eq!(after, [&json!("limit_reached"), &json!(null)]);
}

#[test]
fn interrupted_run_can_be_resumed() {
    let project = Project::new();
    let sessions = [json!([reach("at"), {"wait_for": "go"}]), json!([{"print": DONE}])];
    let running = run(&project, &[], &sessions).start();
    project.wait_for_file("at");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal"));
    project.write("go", "");
    running.wait().code(130).stdout_has("ralph resume ");
    resume(&project, &[]).code(0).stdout_has("Resumed after you stopped it");
}

#[test]
fn resume_does_not_repeat_finished_iteration() {
    let project = Project::new();
    let slow = |text: &str, n: u8| json!([reach(&format!("at{n}")), {"wait_for": format!("go{n}")}, {"print": text}]);
    let sessions = [slow("not yet", 1), slow(DONE, 2)];
    let running = run(&project, &[], &sessions).start();
    project.wait_for_file("at1");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal"));
    project.write("go1", "");
    running.wait().code(130).stdout_has("ralph resume ").stdout_lacks("not finished");
    let running = project.ralph(["resume"]).start();
    project.wait_for_file("at2");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal"));
    project.write("go2", "");
    running.wait().code(0);
    assert_eq!(iterations(&project), [1, 2]);
    assert_eq!(project.events().last("run_ended")["outcome"], "complete");
}

/// Follows the printed advice: the only allowed iteration restarts and completes.
fn assert_only_iteration_restarts(project: &Project, args: &[&str]) {
    let ended = project.events();
    assert_eq!(ended.last("iteration_ended")["cut_off"], true);
    resume(project, args).code(0).stdout_has("restarting iteration 1");
    let events = project.events();
    assert_eq!(iterations(project), [1, 1]);
    assert_eq!(events.last("run_continued")["cut_off"], 1);
    assert_eq!(events.last("iteration_ended").get("cut_off"), None);
}

#[test]
fn resume_restarts_iteration_stopped_without_answer() {
    let done = json!([{"print": DONE}]);
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "touch checked"}]}));
    let sessions = [json!([reach("at"), {"wait_for": "go"}, {"print": DONE}]), done.clone()];
    let running = run(&project, &["-n", "1"], &sessions).start();
    project.wait_for_file("at");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal"));
    running.signal(Signal::INT);
    running.wait().code(130).stdout_has("ralph resume ");
    assert!(!project.has("checked"));
    let events = project.events();
    let ended = events.last("iteration_ended");
    assert_eq!(ended.get("guardrails_passed"), None, "unknown");
    assert_only_iteration_restarts(&project, &[]);
    let project = Project::new();
    project.settings(&json!({"retry": {"backoffSeconds": 3600, "backoffCapSeconds": 3600}}));
    let running = run(&project, &["-n", "1"], &[json!([{"exit": 3}]), done]).start();
    project.wait_for_event("waiting");
    running.signal(Signal::INT);
    running.wait().code(130);
    assert_only_iteration_restarts(&project, &[]);
}

#[test]
fn resume_restarts_failed_iteration_after_fix() {
    let done = json!([{"print": DONE}]);
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 0}}));
    run(&project, &["-n", "1"], &[json!([{"exit": 3}]), done.clone()])
        .run()
        .code(4)
        .stdout_has("ralph resume ");
    assert_only_iteration_restarts(&project, &[]);

    let project = Project::new();
    // Whether the agent gets anywhere in that time depends on the machine.
    let waits = json!([{"wait_for": "go"}, {"print": DONE}]);
    run(&project, &["-n", "1", "--max-time", "1s"], &[waits]).run().code(3);
    project.write("go", "");
    assert_only_iteration_restarts(&project, &["--max-time", "1h"]);

    let project = Project::new();
    let refused = json!({"is_error": true, "result": "Invalid API key · Please run /login"});
    let says = json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}]);
    script(&project, "claude", &[json!([{"claude": {"result": refused}}]), says]);
    project.ralph(["run", "-p", "do it", "-n", "1", "--", "claude"]).run().code(4);
    assert_only_iteration_restarts(&project, &[]);

    let project = Project::new();
    script(&project, "robot", &[json!([{"shell": "rm PROMPT.md"}]), done]);
    project.write("PROMPT.md", "do it");
    project.ralph(["run", "-f", "PROMPT.md", "-n", "2", "--", "robot"]).run().code(2);
    project.write("PROMPT.md", "do it");
    resume(&project, &[]).code(0).stdout_has("restarting iteration 2");
    assert_eq!(iterations(&project), [1, 2, 2]);
    resume(&project, &["-n", "1"]).code(0);
}

#[test]
fn resume_uses_settings_from_start() {
    let project = Project::new();
    project.settings(&json!({"agent": {"env": {"TOKEN": "secret"}}, "maximumIterations": 7}));
    let sessions = [json!([reach("at"), "hang"]), json!([{"print": "<response>FIN</response>"}])];
    let run = run(&project, &["-c", "FIN"], &sessions).env("RALPH_AGENT__MODEL", "m");
    kill_at(&project, run, "at");
    let dir = project.newest_run();
    let mode = dir.join("spec.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it may hold keys");
    project.settings(&json!({"agent": {"env": {"TOKEN": "other"}}, "maximumIterations": 3}));
    resume(&project, &["--quiet"])
        .code(0)
        .stderr_has(".ralph/settings.json changed after this run started");
    let events = project.events();
    assert_eq!(events.last("run_started")["max_iterations"], 7);
    let records = project.agent_starts();
    assert_eq!(records[1]["env"]["TOKEN"], "secret");
}

#[test]
fn resume_finds_piped_and_relative_prompt() {
    let project = Project::new();
    let sessions = [json!([reach("at"), "hang"]), json!([{"print": DONE}])];
    script(&project, "robot", &sessions);
    let run = project.ralph(["run", "-f", "/dev/stdin", "--", "robot"]).stdin("by a pipe");
    kill_at(&project, run, "at");
    resume(&project, &[]).code(0);
    assert_eq!(prompts(&project), ["by a pipe", "by a pipe"]);

    let project = Project::new();
    script(&project, "robot", &sessions);
    project.write("PROMPT.md", "by a file").write("sub/PROMPT.md", "not this one");
    let subdir = project.path().join("sub");
    let run = project.ralph(["run", "-C", "..", "-f", "PROMPT.md", "--", "robot"]);
    kill_at(&project, run.current_dir(&subdir), "at");
    project.write("PROMPT.md", "edited since");
    resume(&project, &[]).code(0);
    assert_eq!(prompts(&project), ["by a file", "edited since"]);
}

#[test]
fn every_loop_command_can_be_resumed() {
    for command in
        [&["plan", "3"][..], &["build", "3", "--config", "my.config"], &["prompt", "ask.md", "3"]]
    {
        let project = Project::git();
        project.write("specs/a.md", "x").write(".ralph/implementation_plan.md", "- [ ] x");
        let config = "AGENT_CLI=robot\nWHO=me\nexport SEEN=config\n";
        project.write("my.config", config).write(".ralph/config", config);
        let ask = "${WHO}: say <promise>COMPLETE</promise>.";
        project.write("ask.md", ask);
        for mode in ["plan", "build"] {
            project.write(&format!(".ralph/prompts/{mode}.md"), ask);
        }
        script(
            &project,
            "robot",
            &[
                json!([{"print": "a"}]),
                json!([reach("at"), "hang"]),
                json!([{"shell": "echo $SEEN >seen"}, {"print": COMPLETE}]),
            ],
        );
        kill_at(&project, project.ralph(command), "at");
        // The config of the start counts, whatever has become of the file.
        project.write(".ralph/config", "WHO=$(missing");
        std::fs::remove_file(project.path().join("my.config")).unwrap();
        let output = resume(&project, &[]);
        output.code(0).stdout_has("Iteration 2/3");
        output.stderr_has("it keeps its old settings");
        assert!(prompts(&project)[2].contains("me: say"), "{:?}", prompts(&project));
        assert_eq!(project.read("seen"), "config\n");
        assert_eq!(iterations(&project), [1, 2, 2], "{command:?}");
        assert_eq!(project.events().last("run_started")["command"], command[0]);
    }
}

#[test]
fn resume_reports_torn_last_line_and_loses_nothing() {
    let project = Project::new();
    let sessions =
        [json!([{"print": "one"}]), json!([reach("at"), "hang"]), json!([{"print": DONE}])];
    kill_at(&project, run(&project, &[], &sessions), "at");
    let journal = project.newest_run().join("events.jsonl");
    let mut text = std::fs::read(&journal).unwrap();
    text.extend_from_slice(br#"{"time":"2026-11-15T20:27"#);
    std::fs::write(&journal, text).unwrap();
    resume(&project, &[]).code(0).stderr_has("removed (25 bytes)");
    assert_eq!(iterations(&project), [1, 2, 2], "every line is whole");
}

#[test]
fn resume_reports_why_run_cannot_continue() {
    let project = Project::new();
    resume(&project, &[]).code(2).stderr_has("no runs");
    resume(&project, &["20260101"]).code(2).stderr_has("there is no run \"20260101\"");
    resume(&project, &["missing"]).code(1).stderr_has("run 'missing' not found");
    resume(&project, &["--max-cost", "nan"]).code(2).stderr_has("--max-cost");
    resume(&project, &["--max-time", "soon"]).code(2).stderr_has("--max-time");

    let sessions = [json!([reach("at"), {"wait_for": "go"}]), json!([{"print": "no"}])];
    let running = run(&project, &["-n", "2"], &sessions).start();
    project.wait_for_file("at");
    let id = run_id(&project);
    resume(&project, &[&id])
        .code(2)
        .stderr_has("still active")
        .stderr_has(&running.pid().to_string());
    project.write("go", "");
    running.wait().code(1);

    project.git_init().write("sub/file", "");
    for command in ["resume", "runs"] {
        let below = project.ralph([command]).current_dir(project.path().join("sub")).run();
        below.code(2).stderr_has("is inside the project");
    }

    let spec_file = project.newest_run().join("spec.json");
    let spec = std::fs::read(&spec_file).unwrap();
    std::fs::write(&spec_file, "{").unwrap();
    resume(&project, &["-n", "3"]).code(2).stderr_has("spec.json");
    std::fs::remove_file(&spec_file).unwrap();
    resume(&project, &["-n", "3"]).code(2).stderr_has("there is no record of how it was started");
    // Without a spec and a journal it is not a run.
    std::fs::write(&spec_file, spec).unwrap();
    std::fs::create_dir(project.path().join(".ralph/runs/29991231-235959-ffff")).unwrap();
    resume(&project, &["-n", "3"]).code(1).stdout_has("Iteration 3/3");
}

#[test]
fn resume_of_run_cut_off_before_first_event_starts_it() {
    let project = Project::new();
    run(&project, &[], &[json!([{"print": DONE}])]).run().code(0);
    let dir = project.newest_run();
    let journal = std::fs::read(dir.join("events.jsonl")).unwrap();
    std::fs::write(dir.join("events.jsonl"), "nonsense\n").unwrap();
    resume(&project, &[]).code(2).stderr_has("no readable line in its journal");
    // A run cut off before its first record hides no other run.
    std::fs::write(dir.join("events.jsonl"), journal).unwrap();
    let (none, id) = ("29991231-235959-ffff", run_id(&project));
    std::fs::create_dir(project.path().join(".ralph/runs").join(none)).unwrap();
    project.ralph(["runs"]).run().code(0).stdout_has(&id).stdout_lacks(none);
    project.ralph(["report"]).run().code(0).stdout_has(&id);
    project.ralph(["replay"]).run().code(0).stdout_has("Done after");
    for command in ["report", "replay"] {
        project.ralph([command, none]).run().code(2).stderr_has("interrupted before it started");
    }
    resume(&project, &[none]).code(2).stderr_has("was interrupted before it started");
    resume(&project, &[]).code(0).stdout_has("nothing to resume");
    std::fs::write(dir.join("events.jsonl"), "").unwrap();
    resume(&project, &[]).code(0).stdout_has("Iteration 1/10").stderr_has("and starts now");
    resume(&project, &[&id, none])
        .code(2)
        .stderr_has("is not in the background; such runs are resumed one at a time");
}

#[test]
fn new_run_suggests_resuming_cut_off_run() {
    let project = Project::new();
    let sessions = [json!([reach("at"), "hang"]), json!([{"print": DONE}])];
    kill_at(&project, run(&project, &[], &sessions), "at");
    let id = run_id(&project);
    project
        .ralph(["run", "-p", "x", "--", "robot"])
        .run()
        .code(0)
        .stderr_has(&format!("Continue it with `ralph resume {}`.", &id[id.len() - 4..]));
    resume(&project, &[]).code(0).stdout_has(&id[id.len() - 4..]);
}

fn task_list(stories: &[(&str, bool)], verify: &[&str]) -> String {
    let story = |(id, passes): &(&str, bool)| {
        json!({
            "id": id, "title": format!("Title of {id}"), "description": "",
            "acceptanceCriteria": ["it works"], "priority": 1, "passes": passes,
            "notes": if *passes { "done" } else { "" }, "dependsOn": [],
        })
    };
    let stories: Vec<Value> = stories.iter().map(story).collect();
    json!({
        "project": "Shop", "branchName": "ralph/shop", "description": "Prices.",
        "verifyCommands": verify, "userStories": stories,
    })
    .to_string()
}

#[test]
fn resumed_work_is_judged_by_list_from_start() {
    let check = "test -e made";
    let (both, one) = ([("a", true), ("b", true)], [("a", true)]);
    for (reduced, finding) in [
        (task_list(&both, &["true"]), "\"verifyCommands\" was changed"),
        (task_list(&both, &[]), "\"verifyCommands\" was changed"),
        (task_list(&one, &[check]), "Story b (Title of b) was removed"),
    ] {
        let project = Project::new();
        project.write("ralph/prompt.md", "Work.");
        project.write("ralph/tasks.json", task_list(&[("a", false), ("b", false)], &[check]));
        let promise = json!([{"print": "<promise>COMPLETE</promise>"}]);
        script(&project, "robot", &vec![promise; 2]);
        project.ralph(["work", "--no-sandbox", "-n", "1", "--", "robot"]).run().code(1);
        project.write("ralph/tasks.json", &reduced);
        resume(&project, &["-n", "2"]).code(1).stderr_has("has lost something that");
        assert!(prompts(&project)[1].contains(finding), "{reduced}: {}", prompts(&project)[1]);
        let honest = task_list(&both, &[check]);
        let mend = json!({"write": {"path": "ralph/tasks.json", "text": honest}});
        script(&project, "robot", &[json!([mend, {"shell": "touch made"}, {"print": "ok"}])]);
        resume(&project, &["-n", "3"]).code(0);
    }
}

#[test]
fn work_remembers_task_list_across_kill() {
    let project = Project::new();
    let leave = |stories: &[(&str, bool)], verify: &[&str]| json!({"write": {"path": "ralph/tasks.json", "text": task_list(stories, verify)}});
    let check = "test ! -e red";
    project.write("ralph/prompt.md", "Work.").write("red", "");
    project.write("ralph/tasks.json", task_list(&[("a", false), ("b", false)], &[check]));
    let sessions = [
        json!([{"print": "looked"}]),
        // The agent drops a story and the checks, claims completion, and is killed.
        json!([leave(&[("a", true)], &[]), reach("at"), "hang"]),
        json!([{"print": "<promise>COMPLETE</promise>"}]),
        json!([
            {"shell": "rm red"}, leave(&[("a", true), ("b", true)], &[check]),
            {"print": "<promise>COMPLETE</promise>"},
        ]),
    ];
    script(&project, "robot", &sessions);
    let run = project.ralph(["work", "--no-sandbox", "-n", "5", "--", "robot"]);
    kill_at(&project, run, "at");
    resume(&project, &[]).code(0);
    let sent_prompts = prompts(&project);
    assert!(
        sent_prompts[2].contains("Title of b"),
        "the story that is gone is missed: {}",
        sent_prompts[2]
    );
    let events = project.events();
    let checks: Vec<&Value> =
        events.all("guardrail_ended").iter().map(|event| &event["command"]).collect();
    assert_eq!(checks, [check; 3], "those of the start");
    project.write("ralph/tasks.json", task_list(&[("a", false)], &[]));
    let sessions = [
        json!([{"write": {"path": "ralph/tasks.json", "text": "{\"userSt"}}, reach("at2"), "hang"]),
        json!([leave(&[("a", true)], &[]), {"print": "ok"}]),
    ];
    script(&project, "robot", &sessions);
    kill_at(&project, project.ralph(["work", "--no-sandbox", "--", "robot"]), "at2");
    resume(&project, &[]).code(0);
}

#[test]
fn only_one_of_concurrent_resumes_runs() {
    let project = Project::new();
    let done = json!([{"print": DONE}]);
    let sessions = [json!([reach("at"), "hang"]), done.clone(), done.clone(), done];
    kill_at(&project, run(&project, &["-n", "3"], &sessions), "at");
    let all: Vec<_> = (0..3).map(|_| project.ralph(["resume"]).start()).collect();
    for output in all.into_iter().map(Running::wait) {
        let printed = format!("{}{}", output.stdout, output.stderr);
        let words =
            ["Done after", "is done", "nothing to resume", "still active", "in use", "meanwhile"];
        assert!(words.iter().any(|it| printed.contains(it)), "{printed}");
    }
    assert_eq!(project.agent_starts().len(), 2, "the one that was killed, and one");
    assert_eq!(project.events().all("run_ended").len(), 1);
}

#[test]
fn moved_project_resumes_and_copy_has_no_runs() {
    let project = Project::new();
    let sessions = [
        json!([reach("at"), "hang"]),
        json!([{"print": "not yet"}]),
        json!([{"shell": "pwd >where"}, {"print": DONE}]),
    ];
    script(&project, "robot", &sessions);
    project.write("PROMPT.md", "of the first");
    let run = project.ralph(["run", "-n", "1", "-f", "PROMPT.md", "--", "robot"]);
    kill_at(&project, run, "at");
    let copy = project.sibling("copy");
    let copied = project.command("cp").arg("-a").arg(project.path()).arg(&copy).status();
    assert!(copied.expect("cp").success());
    let in_dir = |dir: &Path, args: &[&str]| project.ralph(args).current_dir(dir).run();
    in_dir(&copy, &["resume"]).code(2).stderr_has("is a copy of").stderr_has("no runs");
    in_dir(&copy, &["runs"]).code(0).stdout_is("no runs yet\n").stderr_is("");
    let moved = project.sibling("moved");
    std::fs::rename(project.path(), &moved).unwrap();
    std::fs::write(moved.join("PROMPT.md"), "of the moved").unwrap();
    let resumed = in_dir(&moved, &["resume"]);
    resumed.code(1).stderr_has("was moved from").stderr_has("the project has moved");
    in_dir(&moved, &["resume", "-n", "2"]).code(0).stderr_lacks("was moved from");
    assert_eq!(prompts(&project), ["of the first", "of the moved", "of the moved"]);
    assert!(moved.join("where").exists());
}

/// The agent replaces `.ralph` by a link.
#[test]
fn resume_with_ralph_directory_behind_link_is_refused() {
    let project = Project::new();
    let sessions = [json!([{"print": "one"}, reach("at"), "hang"]), json!([{"print": DONE}])];
    kill_at(&project, run(&project, &["-n", "5"], &sessions), "at");
    let id = run_id(&project);
    let (real, victim) = (project.path().join(".ralph"), project.sibling("victim"));
    std::fs::rename(&real, &victim).unwrap();
    std::os::unix::fs::symlink(&victim, &real).unwrap();
    let files = || {
        let names = victim.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let before = files();
    for args in [&[id.as_str()][..], &[]] {
        resume(&project, args).code(2).stderr_has("link");
        assert_eq!(files(), before);
    }
}

#[test]
fn run_of_version_0_1_resumes_by_its_start_record() {
    let project = Project::git();
    project.write("ask.md", "${WHO}: say <promise>COMPLETE</promise>.");
    let sessions = [
        json!([{"print": "a"}]),
        json!([reach("at"), "hang"]),
        json!([{"print": "b"}]),
        json!([{"print": COMPLETE}]),
    ];
    script(&project, "robot", &sessions);
    kill_at(&project, project.ralph(["prompt", "ask.md", "3", "--", "robot"]), "at");
    let dir = project.newest_run();
    std::fs::remove_file(dir.join("spec.json")).unwrap();
    let start = include_str!("../support/version_0_1/start.json");
    let start = start.replace("PROJECT", project.path().to_str().unwrap());
    let settings = include_str!("../support/version_0_1/settings.json");
    std::fs::write(dir.join("settings.json"), settings).unwrap();
    std::fs::write(dir.join("start.json"), start.replace("--config", "--odd")).unwrap();
    resume(&project, &[]).code(2).stderr_has("--odd").stderr_has("this version of ralph");
    std::fs::write(dir.join("start.json"), start).unwrap();
    resume(&project, &[])
        .code(0)
        .stdout_has("Iteration 2/3")
        .stderr_lacks("changed after this run started");
    assert!(prompts(&project)[2].contains("me: say"), "{:?}", prompts(&project));
    assert_eq!(iterations(&project), [1, 2, 2, 3]);
    assert!(dir.join("spec.json").exists(), "from now on it is as any other");
}
