//! Session logs.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{LONG, wait_until};
use crate::{COMPLETE, log, logs, project};

const DOUBLE: &str =
    "================================================================================";
const SINGLE: &str =
    "--------------------------------------------------------------------------------";

fn header(mode: &str, n: u32) -> String {
    format!("{DOUBLE}\nITERATION {n}\n{DOUBLE}\nMode: {mode}\nStart Time: TIME\n{SINGLE}\n")
}

fn footer(n: u32, rows: &str) -> String {
    format!(
        "{SINGLE}\nITERATION {n} COMPLETE\nEnd Time: TIME\nDuration: TIME\n{rows}\n{DOUBLE}\n\n"
    )
}

fn summary(total: u32, successful: u32, failed: u32, reason: &str, code: u32) -> String {
    format!(
        "{DOUBLE}\nSESSION SUMMARY\n{DOUBLE}\nTotal Iterations: {total}\nSuccessful: {successful}\n\
         Failed: {failed}\nTotal Duration: TIME\nExit Reason: {reason}\nExit Code: {code}\n{DOUBLE}\n"
    )
}

#[test]
fn session_log_has_output_between_header_and_footer() {
    let project = project(&json!({"sessions": [
        [{"print": "one"}, {"stderr": "oops"}, {"raw": "no newline"}],
        [{"print": COMPLETE}],
    ]}));
    project.git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "Start"]);
    project.ralph(["build", "5", "--quiet"]).run().code(0);
    let name = &logs(&project)[0];
    let digits = name.strip_prefix("session-").and_then(|name| name.strip_suffix(".log")).unwrap();
    assert!(digits.len() == 15 && digits.as_bytes()[8] == b'-', "{name}");
    assert_eq!(
        log(&project),
        [
            header("build", 1),
            "one\noops\nno newline\n".to_owned(),
            footer(1, "Status: success"),
            header("build", 2),
            format!("{COMPLETE}\n"),
            footer(2, "Status: complete"),
            summary(2, 2, 0, "complete after 2 iterations", 0)
        ]
        .concat()
    );
}

#[test]
fn session_log_keeps_order_of_both_streams() {
    let project = project(&json!([]));
    project.write(
        "talk.sh",
        "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; echo end",
    );
    let output = project.ralph(["plan", "1", "--output", "plain", "--", "sh", "talk.sh"]).run();
    let expected: String = (0..200).map(|i| format!("out {i}\nerr {i}\n")).collect();
    output.code(0).stdout_has(&format!("{expected}end\n"));
    assert!(log(&project).contains(&format!("{SINGLE}\n{expected}end\n")), "{}", log(&project));
}

#[test]
fn session_log_of_resumed_run_counts_whole_run() {
    let project = project(&json!({"sessions": [
        [{"print": "one"}], [{"exit": 1}], [{"print": "two"}, {"wait_for": "../go"}],
        [{"print": "two again"}], [{"print": COMPLETE}],
    ]}));
    project.write(".ralph/config", "AGENT_CLI=robot\nMAX_RETRIES=0\n");
    project.ralph(["plan"]).run().code(4);
    let running = project.ralph(["resume"]).start();
    wait_until(LONG, || running.stdout().contains("two"));
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    project.ralph(["resume"]).run().code(0);
    let begin = "[ralph] resumed after 1 iteration; the summary covers the whole run\n";
    let logs = logs(&project).into_iter().map(|name| project.read(&format!(".ralph/logs/{name}")));
    let ended = |log: &String| log.starts_with(begin) && log.contains("SESSION SUMMARY");
    let last = logs.into_iter().find(ended).expect("the log of the last session");
    assert!(!last.contains("ITERATION 1\n"), "{last}");
    let counts = "Total Iterations: 3\nSuccessful: 3\nFailed: 0\n";
    assert!(last.contains(counts), "{last}");
}

#[test]
fn session_log_footer_shows_usage_and_retries() {
    let project = project(&json!([]));
    project.install_agent(
        "claude",
        &json!({"sessions": [
            [{"print": "bad start"}, {"exit": 1}],
            [{"claude": "init"}, {"claude": {"text": "Working."}}, {"claude": {"text": COMPLETE}},
             {"claude": {"result": {"total_cost_usd": 0.5, "num_turns": 3}}}],
        ]}),
    );
    project.write(".ralph/config", "AGENT_TYPE=claude\n");
    project.ralph(["plan"]).run().code(0);
    let log = log(&project);
    assert!(log.contains("bad start\n[ralph] failed: "), "{log}");
    assert!(log.contains("; retry 1 of 3\n"), "{log}");
    assert!(log.contains("\"type\":\"result\""), "as it came: {log}");
    let rows = "API Requests: 3\nModel: fake-model\nMessages: 2\nCost: $0.50\nRetries: 1\nStatus: complete";
    assert!(log.contains(&footer(1, rows)), "{log}");
}

#[test]
fn session_log_of_failing_agent_shows_retries() {
    let project = project(&json!([{"exit": 3}]));
    project.write(".ralph/config", "AGENT_CLI=robot\nMAX_RETRIES=1\n");
    project.ralph(["plan"]).run().code(4);
    let log = log(&project);
    let first = "[ralph] failed: exit code 3; retry 1 of 1\n";
    let last = format!("[ralph] failed: exit code 3\n{}", footer(1, "Retries: 1\nStatus: failed"));
    assert!(log.contains(&format!("{first}{last}")), "{log}");
    let reason = "the agent failed 2 times in a row, the last time: exit code 3";
    assert!(log.ends_with(&summary(1, 0, 1, reason, 4)), "{log}");
}

#[test]
fn session_log_shows_guardrail_failure_and_limit() {
    let project = project(&json!([{"print": "x"}]));
    project.settings(&json!({"guardrails": [{"command": "false", "failAction": "APPEND"}]}));
    project.ralph(["plan", "1"]).run().code(0);
    let log = log(&project);
    assert!(log.contains("[ralph] check \"false\" failed"), "{log}");
    assert!(log.contains("Status: checks failed\n"), "{log}");
    let reason = "the limit of 1 iteration was reached without completion";
    assert!(log.ends_with(&summary(1, 0, 1, reason, 0)), "{log}");
}

#[test]
fn session_log_of_interrupted_run_has_summary() {
    for signals in [1, 2] {
        let project = project(&json!([{"print": "begun"}, {"wait_for": "../go"}]));
        let running = project.ralph(["plan", "1"]).start();
        wait_until(LONG, || running.stdout().contains("begun"));
        running.signal(Signal::INT);
        project.wait_for_event("stop_requested");
        if signals == 2 {
            running.signal(Signal::INT);
        } else {
            project.write("../go", "");
        }
        let output = running.wait();
        output.code(130).stdout_has("ralph resume ");
        let more = output.stdout.contains(" -n ");
        assert_eq!(more, signals == 1, "the only one is done, or begun again");
        let log = log(&project);
        assert!(log.contains("begun\n[ralph] received SIGINT\n"), "{log}");
        assert!(log.contains("ITERATION 1 COMPLETE\n"), "{log}");
        assert!(log.contains("Exit Reason: interrupted\nExit Code: 130\n"), "{log}");
        assert!(log.ends_with(&format!("{DOUBLE}\n")), "{log}");
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn session_log_counts_only_attempts_before_interrupt() {
    let project = project(&json!([{"exit": 3}]));
    project.settings(&json!({"retry": {"backoffSeconds": 3600, "backoffCapSeconds": 3600}}));
    let running = project.ralph(["plan"]).start();
    project.wait_for_event("waiting");
    running.signal(Signal::INT);
    let output = running.wait();
    output.code(130).stderr_has("Received signal, shutting down...").stderr_lacks("may finish");
    let log = log(&project);
    let end = format!("[ralph] received SIGINT\n{}", footer(1, "Status: interrupted"));
    assert!(log.contains("[ralph] failed: exit code 3; retry 1 of 3\n"), "{log}");
    assert!(log.contains(&end), "{log}");
    let footer_text =
        summary(1, 0, 0, "interrupted", 130).replace("Failed: 0", "Failed: 0\nInterrupted: 1");
    assert!(log.ends_with(&footer_text), "{log}");
}

#[test]
fn session_log_skips_iteration_that_cannot_start() {
    let project = project(&json!([{"shell": "rm -v .ralph/implementation_plan.md"}]));
    project.ralph(["build", "3"]).run().code(2);
    let log = log(&project);
    assert!(!log.contains("ITERATION 2"), "{log}");
    let reason = "Implementation plan not found. Run 'ralph plan' first.";
    assert!(log.ends_with(&summary(1, 1, 0, reason, 2)), "{log}");
}

#[test]
fn session_log_marks_iteration_not_started() {
    let project = project(&json!([]));
    project.write("mine", "#!/bin/sh\nrm mine\n");
    project.command("chmod").args(["+x", "mine"]).status().unwrap();
    project.write(".ralph/config", "AGENT_CLI=./mine\nMAX_RETRIES=1\n");
    project.ralph(["plan"]).run().code(4);
    let log = log(&project);
    assert!(log.contains("[ralph] failed: cannot start ./mine"), "{log}");
    let not_started = "[ralph] failed: the agent could not be started\n";
    assert!(log.contains(&format!("{not_started}{SINGLE}\nITERATION 2 NOT STARTED\n")), "{log}");
    assert!(log.contains("Retries: 1\nStatus: not started\n"), "{log}");
    assert!(log.contains("Status: empty\n"), "{log}");
    assert!(log.contains("Total Iterations: 2\nSuccessful: 0\nFailed: 2\n"), "{log}");
}

#[test]
fn sessions_in_same_second_have_separate_logs() {
    let project = project(&json!([{"print": COMPLETE}]));
    for _ in 0..4 {
        project.ralph(["plan", "--quiet"]).run().code(0);
    }
    assert_eq!(logs(&project).len(), 4, "{:?}", logs(&project));
}

#[test]
fn session_log_removed_by_agent_is_complete() {
    let project = project(&json!({"sessions": [
        [{"print": "before"}, {"shell": "rm -r .ralph/logs"}, {"print": "after"}], [{"print": COMPLETE}],
    ]}));
    project.ralph(["plan"]).run().code(0);
    // Only the link is gone.
    let run = project.newest_run();
    let logs = run.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let log = logs.into_iter().find(|path| path.extension().is_some_and(|it| it == "log"));
    let log = std::fs::read_to_string(log.expect("a log")).unwrap();
    assert!(log.contains("before\nafter\n") && log.contains("SESSION SUMMARY"), "{log}");
}

#[test]
fn session_logs_are_kept_by_mode_commands_and_pruned() {
    let project = project(&json!([{"print": COMPLETE}]));
    project.settings(&json!({"runs": {"keep": 2}}));
    project.ralph(["run", "-p", "x", "-n", "1", "--", "robot"]).run().code(1);
    assert_eq!(logs(&project), [""; 0]);
    for _ in 0..4 {
        project.ralph(["plan"]).run().code(0);
    }
    assert_eq!(logs(&project).len(), 2);
}
