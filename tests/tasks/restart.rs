//! `ralph work` after another run: remembered lists and interrupted work.

use rustix::process::Signal;

use super::support::wait_until;
use super::work::*;
use super::*;

fn list_with_checks(commands: &Value, stories: &[Value]) -> Value {
    let mut list = list(stories);
    list["verifyCommands"] = commands.clone();
    list
}

fn write_list_step(list: &Value) -> Value {
    write_text_step(&format!("{list:#}\n"))
}

#[test]
fn finished_list_is_verified_without_agent() {
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&json!(["touch verified"]), &[passing("a")]));
    let output = work(&project, &[], &[json!([print_step("me?")])]).run();
    output.success().stdout_has("Stories: 1 of 1 pass").stdout_has("nothing to do");
    assert!(project.has("verified"));
    assert_eq!(prompts(&project), [""; 0]);
    assert_eq!(project.events().find("run_ended")["iterations"], 0);
    assert!(!project.has(".ralph-active"));
}

#[test]
fn finished_list_is_verified_again_after_cut_off() {
    for signals in [&[Signal::KILL][..], &[Signal::INT, Signal::TERM]] {
        let project = project_with(&[]);
        let check = "touch checked-$$; while [ ! -e go ]; do sleep 0.02; done";
        write_list(&project, &list_with_checks(&json!([check]), &[passing("a")]));
        let running = work(&project, &[], &[json!([print_step("me?")])]).start();
        let is_checked = || {
            let names = std::fs::read_dir(project.path()).unwrap();
            names.flatten().any(|it| it.file_name().to_string_lossy().starts_with("checked-"))
        };
        wait_until(super::support::LONG, is_checked);
        for signal in signals {
            running.signal(*signal);
        }
        let _ = running.wait();
        project.write("go", "");
        let output = project.ralph(["resume"]).run();
        output.success().stdout_has("nothing to do").stderr_lacks("is gone");
        assert_eq!(prompts(&project), [""; 0], "{signals:?}");
        assert!(!project.has(".ralph-active"));
    }
}

#[test]
fn finished_list_without_verify_commands_needs_no_run() {
    let project = project_with(&[passing("a")]);
    project.ralph(["work"]).run().success().stdout_has("nothing to do");
    assert!(!project.has(".ralph/runs"), "no agent is needed for that, and no run");
}

#[test]
fn finished_list_failing_verification_is_worked_on() {
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&json!(["test -e made"]), &[passing("a")]));
    let sessions = [json!([{"shell": "touch made"}, print_step("made it")])];
    work(&project, &[], &sessions)
        .run()
        .success()
        .stdout_has("Not done: every story in ralph/tasks.json passes, but a check failed");
    let prompt = &prompts(&project)[0];
    assert!(prompt.contains("Guardrail \"test -e made\" failed with exit code 1."), "{prompt}");
    assert!(prompt.contains("is marked as passing, but a check fails"), "{prompt}");
}

#[test]
fn story_dropped_in_last_run_is_still_missed() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    let sessions = [json!([write_stories_step(&[passing("a")]), print_step(PROMISE)])];
    work(&project, &["-n", "1"], &sessions).run().code(1);
    let sessions =
        [json!([write_stories_step(&[passing("a"), passing("b")]), print_step("there it is")])];
    let output = work(&project, &[], &sessions).run();
    output
        .success()
        .stdout_has("b (Title of b) was removed, and no story replaces it")
        .stderr_has("to accept it: ralph work --accept-list");
    let prompts = prompts(&project);
    assert!(prompts[1].contains("Story b (Title of b) was removed"), "{prompts:?}");
}

#[test]
fn list_is_remembered_when_named_through_links() {
    // Ways to give the list another name, and the flags to match.
    for (by, args) in [
        ("ln -s ralph r2", &["--ralph-dir", "r2"][..]),
        ("mv ralph r2 && ln -s r2 ralph", &[]),
        ("mv ralph/tasks.json it.json && ln -s ../it.json ralph/tasks.json", &[]),
        ("mkdir r2 && ln -s ../ralph/tasks.json r2/tasks.json", &["--ralph-dir", "r2"]),
    ] {
        let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
        let sessions = [json!([write_stories_step(&[passing("a")]), print_step(PROMISE)])];
        work(&project, &["-n", "1"], &sessions).run().code(1);
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", by]).current_dir(project.path()).status().expect("a shell");
        assert!(done.success());
        let args = [&["-n", "1"], args].concat();
        work(&project, &args, &[json!([print_step(PROMISE)])])
            .run()
            .code(1)
            .stdout_has("b (Title of b) was removed, and no story replaces it");
    }
}

#[test]
fn verify_commands_changed_in_last_run_have_no_effect() {
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&json!(["test -e made"]), &[open("a", &json!({}))]));
    let cheated = list_with_checks(&json!(["true"]), &[passing("a")]);
    let honest = list_with_checks(&json!(["test -e made"]), &[passing("a")]);
    let sessions = [json!([write_list_step(&cheated), print_step(PROMISE)])];
    work(&project, &["-n", "1"], &sessions).run().code(1);
    let sessions = [
        json!([print_step("is it not done?")]),
        json!([{"shell": "touch made"}, write_list_step(&honest), print_step("now it is")]),
    ];
    work(&project, &[], &sessions).run().success();
    let prompts = prompts(&project);
    assert_eq!(prompts.len(), 3);
    for prompt in &prompts[1..] {
        assert!(prompt.contains("Guardrail \"test -e made\" failed"), "{prompts:?}");
    }
    assert!(prompts[1].contains("\"verifyCommands\" was changed"), "{prompts:?}");
}

#[test]
fn removal_between_runs_is_reported_and_does_not_complete() {
    let project = project_with(&[]);
    let check = json!(["true"]);
    let both = [passing("a"), passing("b")];
    let begin = list_with_checks(&check, &[open("a", &json!({})), open("b", &json!({}))]);
    write_list(&project, &begin);
    let done = list_with_checks(&check, &both);
    work(&project, &[], &[json!([write_list_step(&done), print_step(PROMISE)])]).run().success();
    for (reduced, finding) in [
        (list_with_checks(&check, &both[..1]), "story removed: b (Title of b)"),
        (list_with_checks(&json!([]), &both), "verifyCommands: removed `true`"),
    ] {
        write_list(&project, &reduced);
        let output = work(&project, &[], &[json!([print_step("me?")])]).run();
        output.code(2).stderr_has(finding).stderr_has("ralph work --accept-list");
    }
    write_list(&project, &done);
    work(&project, &[], &[json!([])]).run().success().stdout_has("nothing to do");
    write_list(&project, &list_with_checks(&check, &both[..1]));
    work(&project, &["--accept-list"], &[json!([])]).run().success().stdout_has("nothing to do");
    work(&project, &[], &[json!([])]).run().success().stdout_has("nothing to do");
    assert_eq!(prompts(&project).len(), 1);
}

#[test]
fn removal_between_runs_with_open_work_is_accepted() {
    let project = project_with(&[]);
    let (a, b) = (open("a", &json!({})), open("b", &json!({})));
    write_list(&project, &list_with_checks(&json!(["false"]), &[a.clone(), b]));
    work(&project, &["-n", "1"], &[json!([print_step("hm")])]).run().code(1);
    write_list(&project, &list_with_checks(&json!(["true"]), &[a]));
    let done = list_with_checks(&json!(["true"]), &[passing("a")]);
    let output = work(&project, &[], &[json!([write_list_step(&done), print_step("done")])]).run();
    output
        .success()
        .stderr_has("story removed: b (Title of b)")
        .stderr_has("verifyCommands: removed `false`; verifyCommands: added `true`");
    let prompt = &prompts(&project)[1];
    assert!(!prompt.contains("is gone"), "{prompt}");
}

#[test]
fn new_list_is_not_judged_by_old_one() {
    let project = project_with(&[open("a", &json!({}))]);
    work(&project, &[], &[json!([write_stories_step(&[passing("a")]), print_step("ok")])])
        .run()
        .success();
    project.ralph(["archive", "--force"]).run().success();
    write_list(&project, &list(&[passing("x")]));
    work(&project, &[], &[json!([])]).run().success().stdout_has("nothing to do");
    write_list(&project, &list(&[open("x", &json!({}))]));
    work(&project, &[], &[json!([write_stories_step(&[passing("x")]), print_step("ok")])])
        .run()
        .success();
    project.ralph(["new", "--force"]).run().success();
    write_list(&project, &list(&[passing("y")]));
    work(&project, &[], &[json!([])]).run().success().stdout_has("nothing to do");
}

#[test]
fn missing_list_at_start_names_where_stories_are_kept() {
    let project = project_with(&[open("a", &json!({}))]);
    let sessions = [json!([{"shell": "rm ralph/tasks.json"}, print_step(PROMISE)])];
    work(&project, &["-n", "1"], &sessions).run().code(1);
    let ledger = memory(&project);
    let output = work(&project, &[], &[json!([])]).run();
    output.code(2).stderr_has("task list not found").stderr_has(&ledger.to_string_lossy());
}

#[test]
fn unreadable_ledger_is_reported_and_work_rechecked() {
    let project = project_with(&[open("a", &json!({}))]);
    let done = [json!([write_stories_step(&[passing("a")]), print_step("ok")])];
    work(&project, &[], &done).run().success();
    std::fs::write(memory(&project), "{").expect("the memory");
    let output = work(&project, &[], &done).run();
    output.success().stderr_has("cannot read the history of ralph/tasks.json");
    assert!(prompts(&project)[1].contains("Before anything else, verify them"));
}

fn kill_during_session(project: &Project, steps: &[Value]) {
    let mut session = steps.to_vec();
    session.extend([json!({"shell": "touch there"})]);
    session.extend(waiting_session(project).as_array().expect("steps").iter().cloned());
    let running = work(project, &[], &[json!(session)]).start();
    wait_until(super::support::LONG, || project.has("there"));
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    assert!(project.has(".ralph-active"));
}

#[test]
fn story_marked_by_killed_run_is_checked_again() {
    for commands in [json!([]), json!(["true"])] {
        let project = project_with(&[]);
        write_list(&project, &list_with_checks(&commands, &[open("a", &json!({}))]));
        let done = list_with_checks(&commands, &[passing("a")]);
        kill_during_session(&project, &[write_list_step(&done)]);
        let output = work(&project, &[], &[json!([print_step("it does pass")])]).run();
        output
            .success()
            .stderr_has("was interrupted in iteration 1")
            .stderr_has("marked as passing by an");
        let prompts = prompts(&project);
        assert_eq!(prompts.len(), 2);
        assert!(prompts[1].contains("that was interrupted"), "{prompts:?}");
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn story_marked_by_failed_attempt_is_checked_again() {
    let commands = json!(["true"]);
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&commands, &[open("a", &json!({}))]));
    let done = list_with_checks(&commands, &[passing("a")]);
    let dies = json!([write_list_step(&done), {"signal": 9}]);
    // Too many failures end the run, which does not mean that the work is done.
    work(&project, &[], std::slice::from_ref(&dies))
        .run()
        .code(4)
        .stderr_has("by an interrupted attempt, so the agent is asked to look again: a");
    let output = work(&project, &[], &[dies, json!([print_step("it does pass")])]).run();
    output.success().stderr_has("so the agent must verify it: a");
    let prompts = prompts(&project);
    assert_eq!(prompts.len(), 6);
    assert!(!prompts[0].contains("was interrupted"), "{prompts:?}");
    for prompt in &prompts[1..] {
        assert!(prompt.contains("by an iteration that was interrupted"), "{prompts:?}");
    }
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&commands, &[open("a", &json!({}))]));
    let mut session = vec![write_list_step(&done), json!({"shell": "touch there"})];
    session.extend(waiting_session(&project).as_array().expect("steps").iter().cloned());
    let running = work(&project, &[], &[json!(session)]).start();
    wait_until(super::support::LONG, || project.has("there"));
    running.signal(Signal::TERM);
    project.wait_for_event("stop_requested");
    running.signal(Signal::TERM);
    running.wait().code(130);
    work(&project, &[], &[json!([print_step("it does pass")])]).run().success();
    assert_eq!(project.agent_starts().len(), 2);
}

#[test]
fn story_dropped_by_killed_run_is_missed() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    kill_during_session(&project, &[write_stories_step(&[passing("a")])]);
    let sessions = [json!([write_stories_step(&[passing("a"), passing("b")]), print_step("back")])];
    work(&project, &[], &sessions).run().success();
    assert!(prompts(&project)[1].contains("Story b (Title of b) was removed"));
}

#[test]
fn failed_start_cleans_up_after_killed_run() {
    let usage = json!({"maximumIterations": "many"}).to_string();
    for (case, path, text) in [
        ("a broken list", "ralph/tasks.json", "{"),
        ("nothing to do", "ralph/tasks.json", &list(&[passing("a")]).to_string()),
        ("wrong settings", ".ralph/settings.json", &usage),
    ] {
        let project = project_with(&[open("a", &json!({}))]);
        let pid_file = project.sibling("stray.pid");
        kill_during_session(&project, &[json!({"stray": {"pid_file": pid_file}})]);
        assert_ne!(project.processes(), [], "{case}");
        project.write(path, text);
        let output = work(&project, &["--accept-list"], &[json!([])]).run();
        output.stderr_has(" left behind (");
        assert!(!project.has(".ralph-active"), "{case}");
        assert_eq!(project.processes(), [], "{case}");
    }
}

#[test]
fn tasks_and_archive_report_findings_of_last_run() {
    let project = project_with(&[]);
    let begin =
        list_with_checks(&json!(["false"]), &[open("a", &json!({})), open("b", &json!({}))]);
    write_list(&project, &begin);
    let reduced = list_with_checks(&json!(["false"]), &[passing("a")]);
    work(&project, &["-n", "1"], &[json!([write_list_step(&reduced), print_step(PROMISE)])])
        .run()
        .code(1);
    let findings = ["b (Title of b) was removed", "no check has passed on a"];
    let next = project.ralph(["tasks", "next"]).run();
    let list = project.ralph(["tasks"]).run();
    let archive = project.ralph(["archive", "--force"]).run();
    list.stdout_has("1 of 2 stories pass");
    for words in findings {
        next.success().stdout_has(words);
        list.success().stderr_has(words);
        archive.success().stdout_has(words);
    }
    assert!(!next.stdout.contains("every story passes"), "{}", next.stdout);
}

#[test]
fn work_without_verify_commands_warns_once() {
    let project = project_with(&[open("a", &json!({}))]);
    let done = [json!([write_stories_step(&[passing("a")]), print_step("ok")])];
    let output = work(&project, &[], &done).run();
    output.success();
    assert_eq!(output.stderr.matches("nothing verifies the work").count(), 1);
    project.ralph(["tasks", "next"]).run().success().stdout_has("every story passes");
    let project = project_with(&[]);
    write_list(&project, &list_with_checks(&json!(["true"]), &[open("a", &json!({}))]));
    let done = list_with_checks(&json!(["true"]), &[passing("a")]);
    let output = work(&project, &[], &[json!([write_list_step(&done), print_step("ok")])]).run();
    output.success();
    assert!(!output.stderr.contains("nothing verifies"), "{}", output.stderr);
}
