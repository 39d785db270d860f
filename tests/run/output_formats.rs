//! Output formats, the journal, and replay.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, wait_until};
use crate::{ASKED, DONE, run, run_id, run_with, sessions};

fn full_session() -> Value {
    json!([
        {"claude": "init"},
        {"claude": {"thinking": "hm"}},
        {"claude": {"text": "On it."}},
        {"claude": {"tool": {"name": "Read", "input": {"file_path": "/path/to/file.go"}}}},
        {"claude": {"tool_result": {"content": "package main\n\nfunc main() {}"}}},
        {"claude": {"bash": "echo oops; exit 1"}},
        {"claude": {"todo": [["Read the file", "completed"], ["Edit the code", "in_progress"], ["Run tests", "pending"]]}},
        {"claude": {"text": DONE}},
        {"claude": {"result": {"total_cost_usd": 5.76}}},
    ])
}

#[test]
fn plain_output_shows_tools_todos_checks_and_result() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "true"}]}));
    let output =
        run_with("claude", &project, &["-p", "do it", "--output", "plain"], &full_session()).run();
    output
        .code(0)
        .stdout_has("Iteration 1/10")
        .stdout_has("[TOOL] Read(/path/to/file.go)\n[OK] Result <- Read (3 lines, 28 chars)\n  |  package main\n")
        .stdout_has("[ERR] Error <- Bash (1 line, 4 chars)\n  |  oops\n")
        .stdout_has("[TODO] Todo List\n  [x] Read the file\n  [>] Edit the code <- ACTIVE\n  [ ] Run tests\n  Progress: 1/3 (33%)\n")
        .stdout_has("[OK] Complete (cost: $5.76, tokens: 134 in (30 cached) / 20 out, tools: 2, errors: 1, time: ")
        .stdout_has("[OK] Guardrail passed: true (exit code 0, ")
        .stdout_has("Done after 1 iteration in ");
    assert!(output.stdout.is_ascii(), "{}", output.stdout);
    assert!(!output.stdout.contains('\x1b'));
}

#[test]
fn output_without_terminal_has_no_escape_sequences() {
    let project = Project::new();
    let output =
        run_with("claude", &project, &["-p", "do it"], &full_session()).env("TERM", "xterm").run();
    output.code(0).stdout_has("[OK] Complete");
    assert!(!output.stdout.contains(['\x1b', '\r']) && !output.stderr.contains(['\x1b', '\r']));
}

#[test]
fn json_output_equals_journal() {
    let project = Project::new();
    let output =
        run_with("claude", &project, &["-p", "do it", "--output", "json"], &full_session()).run();
    let journal = std::fs::read_to_string(project.newest_run().join("events.jsonl")).unwrap();
    output.code(0).stdout_is(&journal);
    let events = output.json_lines();
    assert_eq!(events.kinds()[0], "run_started");
    assert_eq!(*events.kinds().last().unwrap(), "run_ended");
    for event in &events.0 {
        let time = event["time"].as_str().expect("a time");
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
        assert!(event["iteration"].is_u64() && event["attempt"].is_u64(), "{event}");
    }
    let text = events.find("text");
    assert_eq!((&text["iteration"], &text["attempt"]), (&json!(1), &json!(1)));
    assert_eq!(events.find("run_started")["iteration"], 0);
}

#[test]
fn raw_agent_output_is_kept_unchanged() {
    let project = Project::new();
    let script = sessions([
        json!([{"hex": "61 ff 00 0d 0a"}, {"split": "é"}, {"raw": "no newline"}]),
        json!([{"print": "two"}, {"stderr": "not this"}, {"print": DONE}]),
    ]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    let mut bytes = b"a\xff\x00\r\n".to_vec();
    bytes.extend("éno newlinetwo\n".as_bytes());
    bytes.extend(format!("{DONE}\n").as_bytes());
    assert_eq!(project.raw(), bytes);
}

#[test]
fn unknown_agent_lines_are_kept_and_shown() {
    let project = Project::new();
    let script = json!([
        {"print": "not JSON at all"}, {"json": {"type": "brand_new", "x": 1}}, {"stderr": "a warning"},
        {"claude": {"text": DONE}}, {"claude": {"result": {}}},
    ]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("not JSON at all").stdout_has("brand_new").stdout_has("a warning");
    assert_eq!(project.events().all("output").len(), 3);
}

#[test]
fn verbose_adds_details_on_stderr() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "exit 0"}]}));
    let prompt = format!("{}END", "x".repeat(200));
    let script = json!([{"print": DONE}]);
    let output = run(&project, &["-V", "-p", &prompt, "-n", "3"], &script).arg("--flag").run();
    output
        .code(0)
        .stderr_has("[ralph] Iteration 1/3 starting\n")
        .stderr_has("[ralph] Agent command: robot --flag\n")
        .stderr_has("[ralph] Prompt (203 bytes): xxx")
        .stderr_lacks("xEND")
        .stderr_has("[ralph] Running guardrail: exit 0\n")
        .stderr_has("[ralph] Guardrail exited with code 0 (")
        .stderr_has("[ralph] Completion check: found \"DONE\", complete\n")
        .stdout_lacks("[ralph]");
    run(&project, &ASKED, &script).run().code(0).stderr_is("");
}

#[test]
fn quiet_prints_only_failures_and_outcome() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "test -e fixed"}]}));
    let script = sessions([
        json!([{"print": "talk"}]),
        json!([{"print": "talk"}, {"shell": "touch fixed"}, {"print": DONE}]),
    ]);
    let output = run(&project, &[&["-q"], &ASKED[..]].concat(), &script).run();
    output.code(0).stdout_lacks("talk").stderr_is("");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(lines[0].starts_with("[ERR] Guardrail failed: test -e fixed"), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("Done after"), "{lines:?}");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn hidden_agent_output_still_completes() {
    let project = Project::new();
    let script = json!([{"print": "talk"}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it", "--no-stream-agent-output"], &script).run();
    output.code(0).stdout_lacks("talk").stdout_has("Iteration 1/10");
    project.settings(&json!({"streamAgentOutput": false}));
    run(&project, &["-p", "do it"], &script).run().code(0).stdout_lacks("talk");
    let output = run(&project, &["-p", "do it", "--stream-agent-output"], &script).run();
    output.code(0).stdout_has("talk");
}

#[test]
fn agent_output_is_shown_as_it_arrives() {
    let project = Project::new();
    let go = project.sibling("go");
    let script = json!([{"print": "first"}, {"wait_for": go}, {"print": DONE}]);
    let running = run(&project, &["-p", "do it"], &script).start();
    crate::support::wait_until(crate::support::LONG, || running.stdout().contains("first\n"));
    std::fs::write(go, "").unwrap();
    running.wait().code(0);
}

#[test]
fn replay_equals_live_output() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "test -e fixed"}]}));
    let script = sessions([
        full_session(),
        json!([{"shell": "touch fixed"}, {"claude": {"text": DONE}}, {"claude": {"result": {}}}]),
    ]);
    let live = run_with("claude", &project, &["-p", "do it", "--output", "plain"], &script).run();
    live.code(0);
    let id = run_id(&project);
    project.ralph(["replay", "--output", "plain"]).run().code(0).stdout_is(&live.stdout);
    project.ralph(["replay", &id[..17], "--output", "plain"]).run().code(0).stdout_is(&live.stdout);
    let journal = std::fs::read_to_string(project.newest_run().join("events.jsonl")).unwrap();
    project.ralph(["replay", &id, "--output", "json"]).run().code(0).stdout_is(&journal);
    project.ralph(["replay", "2001"]).run().code(2).stderr_has("there is no run \"2001\"");
}

#[test]
fn runs_are_listed_in_order_and_old_ones_pruned() {
    let project = Project::new();
    project.ralph(["runs"]).run().code(0).stdout_is("no runs yet\n");
    project.settings(&json!({"runs": {"keep": 3}}));
    let mut ids = Vec::new();
    for number in 1..=5 {
        let cost = json!({"total_cost_usd": f64::from(number)});
        let script = json!([{"claude": {"text": DONE}}, {"claude": {"result": cost}}]);
        run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
        ids.push(run_id(&project));
    }
    let output = project.ralph(["runs", "--json"]).run();
    let listed = output.code(0).json_lines();
    let costs: Vec<&Value> = listed.0.iter().map(|run| &run["cost_usd"]).collect();
    assert_eq!(costs, [3.0, 4.0, 5.0], "{}", output.stdout);
    let output = project.ralph(["runs"]).run();
    output.code(0).stdout_has(&ids[2]).stdout_has("$5.00").stdout_has("complete");
    output.stdout_lacks(&ids[1]);
    project
        .ralph(["replay"])
        .run()
        .code(0)
        .stdout_has(&format!("run {}", &ids[4][ids[4].len() - 4..]));
}

#[test]
fn report_opens_page_in_browser_or_names_its_path() {
    let project = Project::new();
    let script = json!([{"print": "All good."}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    let page = project.newest_run().canonicalize().unwrap().join("report.html");
    let (bin, opened) = (project.sibling("openers"), project.sibling("opened"));
    std::fs::create_dir(&bin).unwrap();
    let report = || project.ralph(["report", "--open"]).env("PATH", &bin).run();
    let path = format!("{}\n", page.display());
    report().code(0).stdout_is(&path).stderr_has("hint: open the file in a browser");
    let opener = bin.join(if std::env::consts::OS == "macos" { "open" } else { "xdg-open" });
    let script = format!("#!/bin/sh\necho \"$1\" > '{}'\n", opened.display());
    std::fs::write(&opener, script).unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    report().code(0).stdout_is(&path).stderr_is("");
    wait_until(LONG, || std::fs::read_to_string(&opened).is_ok_and(|shown| shown == path));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<blockquote><p>All good.</p></blockquote>"), "{page}");
}

#[test]
fn dry_run_starts_and_writes_nothing() {
    let project = Project::new();
    let script = json!([project.record_step()]);
    let output = run(&project, &["-p", "do it", "--dry-run", "-n", "4"], &script).run();
    output
        .code(0)
        .stdout_has("robot")
        .stdout_has("do it")
        .stdout_has("4 iterations")
        .stdout_has(DONE);
    assert_eq!(project.agent_starts().len(), 0);
    assert!(!project.has(".ralph"));
    run(&project, &["-p", "do it", "--dry-run", "-n", "0"], &script).run().code(2);
    output.stdout_has("Budget:     none\n");
    project.settings(&json!({"budget": {"perIteration": {"duration": "45m"}}}));
    let output = run(&project, &["-p", "x", "--dry-run", "--max-time", "90m"], &script).run();
    output.code(0).stdout_has("Budget:     1h30m; 45m0s per iteration\n");
}

#[test]
fn closed_stdout_does_not_stop_run() {
    for form in ["human", "json"] {
        let project = Project::new();
        let go = project.sibling("go");
        let script = json!([{"print": "one"}, {"wait_for": go}, {"print": "x".repeat(100_000)}, {"print": DONE}]);
        project.install_agent("robot", &script);
        let mut child = project
            .command(env!("CARGO_BIN_EXE_ralph"))
            .args(["run", "-p", "do it", "--output", form, "--", "robot"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 4]).unwrap();
        drop(stdout);
        std::fs::write(go, "").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{form}");
        assert_eq!(project.events().find("run_ended")["outcome"], "complete");
    }
}

#[test]
fn cleanup_of_killed_run_is_announced_and_interruptible() {
    let project = Project::new();
    let agent = r#"cat >/dev/null; (trap "" TERM; : >ready; while :; do sleep 0.1; done) & wait"#;
    let running = project.ralph(["run", "-p", "x", "--", "sh", "-c", agent]).start();
    project.wait_for_file("ready");
    running.signal(rustix::process::Signal::KILL);
    drop(running);
    let running = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).start();
    let tells = || running.stderr().contains("note: killing the processes that run ");
    crate::support::wait_until(crate::support::LONG, tells);
    running.signal(rustix::process::Signal::INT);
    running.wait().code(130).stderr_has("nothing was started");
    assert_eq!(project.processes(), []);
}

#[test]
fn cut_off_run_is_reported_by_next_run() {
    let project = Project::new();
    let script = json!([{"print": "here"}, "hang"]);
    let running = run(&project, &["-p", "do it"], &script).start();
    crate::support::wait_until(crate::support::LONG, || running.stdout().contains("here"));
    let id = run_id(&project);
    running.signal(rustix::process::Signal::KILL);
    drop(running);
    let output = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run();
    output.code(0).stderr_has(&format!(
        "note: the last run ({}) was interrupted in iteration 1",
        &id[id.len() - 4..]
    ));
    assert_eq!(project.processes(), [], "what it left running is gone");
    run(&project, &ASKED, &json!([{"print": DONE}])).run().code(0).stderr_is("");
}

#[test]
fn run_survives_agent_deleting_ralph_directory() {
    let project = Project::git();
    project.settings(&json!({
        "guardrails": [{"command": "echo checked"}], "scm": {"command": "git", "tasks": ["commit"]},
    }));
    let script = json!({
        "sessions": [
            [{"shell": "rm -rf .ralph; touch new"}, {"print": "one"}, {"print": "two"}],
            [{"print": DONE}],
        ],
        "commit_message": [{"print": "Add it"}],
    });
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0).stderr_lacks("raw output");
    assert!(String::from_utf8_lossy(&project.raw()).contains("two"));
    let events = project.events();
    assert_eq!(events.kinds()[0], "run_started");
    assert_eq!(events.all("text").len(), 4, "{:?}", events.kinds());
    assert_eq!(events.find("run_ended")["outcome"], "complete");
    assert_eq!(project.read(".ralph/guardrail_001_echo_checked.log"), "checked\n");
    assert_eq!(
        project.git_command(["ls-files"]),
        ".ralph/.gitignore\nnew\n",
        "run-time files are still ignored"
    );
}

#[test]
fn agent_output_cannot_control_terminal() {
    let project = Project::new();
    let script = json!([{"print": "a\u{1b}[2J\u{1b}]0;title\u{7}b\rc"}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0);
    let control = output.stdout.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{:?}", output.stdout);
}

#[test]
fn display_settings_change_output() {
    let project = Project::new();
    project.settings(&json!({"display": {
        "emoji": true, "color": true, "timestamps": true, "maxOutputLines": 1,
    }}));
    let script = json!([
        {"claude": {"bash": "printf 'one\\ntwo\\nthree'"}}, {"claude": {"text": DONE}},
        {"claude": {"result": {}}},
    ]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("✅").stdout_has("\x1b[32m").stdout_has("2 more lines");
    let stamped = |line: &str| {
        let bytes = line.as_bytes();
        line.starts_with('[') && bytes.get(3) == Some(&b':') && bytes.get(9) == Some(&b']')
    };
    let lines = output.stdout.lines().filter(|line| !line.is_empty());
    assert!(lines.clone().all(stamped), "{:?}", lines.collect::<Vec<_>>());
    let output = run_with("claude", &project, &["-p", "x", "--output", "plain"], &script).run();
    assert!(output.stdout.is_ascii() && !output.stdout.contains('\x1b'), "{}", output.stdout);
}

#[test]
fn version_help_and_usage_errors_are_shown() {
    let project = Project::new();
    for flag in ["--version", "-v"] {
        let version = concat!("ralph ", env!("CARGO_PKG_VERSION"), "\n");
        project.ralph([flag]).run().code(0).stdout_is(version);
    }
    let output = project.ralph(["run", "--help"]).run();
    output.code(0).stdout_has("Examples:").stdout_has("Exit codes:");
    project.ralph(["run", "-p", "x", "--no-such-flag"]).run().code(2).stderr_has("--no-such-flag");
    project.ralph(["run", "-p", "x", "-q", "-V"]).run().code(2);
    project.ralph([""; 0]).run().code(2).stderr_has("Usage: ralph");
    project.ralph(["run", "-C", "nowhere", "-p", "x"]).run().code(2).stderr_has("nowhere");
}

#[test]
fn notify_command_receives_run_end() {
    let project = Project::new();
    let command =
        "cat > told.json; echo $RALPH_RUN_ID > run; tail -n 1 .ralph/runs/*/events.jsonl > last";
    project.settings(&json!({"notify": {"command": command}}));
    run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run().code(0);
    assert!(project.read("told.json").ends_with("}\n"), "for `read` and its like");
    let mut payload: serde_json::Value = serde_json::from_str(&project.read("told.json")).unwrap();
    let report = payload.as_object_mut().and_then(|payload| payload.remove("report")).unwrap();
    assert_eq!((&report["outcome"], &report["asked"]), (&json!("complete"), &json!("do it")));
    assert_eq!(report["iterations"].as_array().map(Vec::len), Some(1));
    let last: serde_json::Value = serde_json::from_str(&project.read("last")).unwrap();
    assert_eq!(last, payload, "the journal knows already");
    assert_eq!((&payload["event"], &payload["outcome"]), (&json!("run_ended"), &json!("complete")));
    let run = project.newest_run();
    assert_eq!(project.read("run").trim(), run.file_name().unwrap().to_str().unwrap());
}

#[test]
fn failing_notify_command_only_warns() {
    let project = Project::new();
    project.settings(&json!({"notify": {"command": "echo no such host >&2; exit 3"}}));
    let output = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run();
    output.code(0).stderr_has("notify.command failed: exit code 3: no such host");
    let run = run(&project, &["-p", "do it"], &json!([{"print": DONE}]));
    project.settings(&json!({"notify": {"command": "touch told; sleep 600"}}));
    let running = run.start();
    project.wait_for_file("told");
    running.signal(Signal::INT);
    let output = running.wait();
    output.code(0).stderr_has("notify.command failed: killed, because ralph received a signal");
}

/// Killed between the journal's last entry and the notification.
#[test]
fn missed_notification_is_sent_once_by_next_command() {
    let project = Project::new();
    let command = "if test -e kill; then rm kill; kill -9 $PPID; sleep 600; fi; cat >> told.jsonl";
    project.settings(&json!({"notify": {"command": command}}));
    let notifications = || -> Vec<serde_json::Value> {
        let notifications =
            std::fs::read_to_string(project.path().join("told.jsonl")).unwrap_or_default();
        notifications.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let killed = |prompt: &str| {
        project.write("kill", "");
        let output = run(&project, &["-p", prompt], &json!([{"print": DONE}])).run();
        assert_eq!(output.status.code(), None, "{}", output.stderr);
        let run = project.newest_run();
        run.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let id = killed("one");
    assert!(notifications().is_empty());
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has(" — complete").stdout_has("notify.command did not run");
    report.stdout_has(&format!("ralph resume {}", &id[id.len() - 4..]));
    let resumed = project.ralph(["resume", &id]).run();
    resumed.code(0).stdout_has(&format!("run {id} is done: complete"));
    resumed.stderr_has("ran notify.command now").stderr_lacks("cut off");
    assert_eq!(project.processes(), [], "a second notification would still run");
    let late = notifications();
    assert_eq!(late.len(), 1);
    assert_eq!((&late[0]["event"], &late[0]["late"]), (&json!("run_ended"), &json!(true)));
    assert_eq!(
        (&late[0]["report"]["asked"], &late[0]["report"]["run"]),
        (&json!("one"), &json!(id))
    );
    assert_eq!(late[0]["report"].get("untold"), None);
    assert_eq!(project.events().last("notified")["ok"], true);
    project.ralph(["resume", &id]).run().code(0).stderr_is("");
    project.ralph(["report"]).run().code(0).stdout_lacks("notify.command");
    let id = killed("two");
    let next = run(&project, &["-p", "three"], &json!([{"print": DONE}])).run();
    next.code(0).stderr_has(&format!("run {id} ended (complete after 1 iteration)"));
    next.stderr_lacks("cut off");
    let prompts: Vec<_> = notifications()
        .iter()
        .map(|notifications| notifications["report"]["asked"].clone())
        .collect();
    assert_eq!(prompts, ["one", "two", "three"]);
    assert_eq!(project.processes(), []);
}

#[test]
fn missed_notification_is_sent_despite_broken_settings() {
    let project = Project::new();
    let command = "if test -e kill; then rm kill; kill -9 $PPID; sleep 600; fi; cat >> told.jsonl";
    project.settings(&json!({"notify": {"command": command}}));
    project.write("kill", "");
    run(&project, &["-p", "one"], &json!([{"print": DONE}])).run();
    project.write(".ralph/settings.json", "{");
    let notified = "ran notify.command now";
    let dry = run(&project, &["-p", "two", "--dry-run"], &json!([])).run();
    dry.code(2).stderr_lacks(notified);
    let failed = run(&project, &["-p", "two"], &json!([])).run();
    failed.code(2).stderr_has(notified).stderr_has("settings.json");
    let notifications = std::fs::read_to_string(project.path().join("told.jsonl")).unwrap();
    assert_eq!(notifications.lines().count(), 1);
    run(&project, &["-p", "two"], &json!([])).run().code(2).stderr_lacks(notified);
}
