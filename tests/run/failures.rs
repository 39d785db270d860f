//! Agents that fail, hit limits, are refused, or stay silent.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, wait_until};
use crate::{DONE, no_backoff, prompts, recorded_steps, run, run_with, sessions};

fn failing_claude(fields: &Value) -> Value {
    json!([{"claude": "init"}, {"claude": {"result": fields}}])
}

fn claude_done() -> Value {
    json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}])
}

fn seconds_from_now(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("a time after 1970").as_secs() + seconds
}

#[test]
fn failed_attempt_is_retried_with_same_prompt() {
    let project = Project::new();
    project.settings(&no_backoff());
    let script = sessions([
        json!([project.record_step(), {"print": DONE}, {"exit": 7}]),
        json!([project.record_step(), {"signal": 9}]),
        json!([project.record_step(), {"print": DONE}]),
    ]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output
        .code(0)
        .stdout_has("exit code 7 (failure 1 of 4)")
        .stdout_has("killed by signal 9, not sent by ralph: out of memory? (failure 2 of 4)");
    assert_eq!(prompts(&project), ["do it"; 3]);
    let events = project.events();
    assert_eq!(events.find("run_ended")["iterations"], 1);
    let attempts: Vec<_> = events.all("agent_ended").iter().map(|e| e["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(events.all("agent_ended").iter().all(|event| event["iteration"] == 1));
}

#[test]
fn repeatedly_failing_agent_ends_run() {
    let project = Project::new();
    project.settings(&no_backoff());
    let script = json!([project.record_step(), {"print": DONE}, {"exit": 1}]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(4).stdout_has("the agent failed 4 times in a row, the last time: exit code 1");
    assert_eq!(project.agent_starts().len(), 4, "the first and three more");
    let events = project.events();
    assert_eq!(events.find("run_ended")["outcome"], "agent_failed");
    assert!(!events.has("completion_checked"), "a failed attempt completes nothing");
    assert!(!events.has("guardrail_started"));
}

#[test]
fn retry_count_and_backoff_follow_settings() {
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 0}}));
    run(&project, &["-p", "do it"], &json!([project.record_step(), {"exit": 1}])).run().code(4);
    assert_eq!(project.agent_starts().len(), 1);

    let project = Project::new();
    project
        .settings(&json!({"retry": {"max": 2, "backoffSeconds": 0.2, "backoffCapSeconds": 0.3}}));
    run(&project, &["-p", "do it"], &json!([{"exit": 1}])).run().code(4);
    let events = project.events();
    let delays: Vec<_> = events.all("retrying").iter().map(|e| e["delay_ms"].clone()).collect();
    assert_eq!(delays, [200, 300]);
}

#[test]
fn success_resets_failure_count() {
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 1, "backoffSeconds": 0}}));
    let (fails, works) = (json!([{"exit": 1}]), json!([{"print": "working"}]));
    let script = sessions([
        fails.clone(),
        works.clone(),
        fails.clone(),
        works,
        fails,
        json!([{"print": DONE}]),
    ]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(project.events().find("run_ended")["iterations"], 3);
}

#[test]
fn error_result_with_exit_code_0_is_failure() {
    let project = Project::new();
    project.settings(&no_backoff());
    let error = json!({"is_error": true, "result": format!("API Error: 500 {DONE}")});
    let script = sessions([failing_claude(&error), claude_done()]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("API Error: 500");
    assert_eq!(project.events().find("agent_ended")["class"], "failed");
}

#[test]
fn claude_refused_as_root_is_not_retried() {
    let project = Project::new();
    let stderr_text = "--dangerously-skip-permissions cannot be used with root/sudo privileges";
    let script = json!([{"stderr": stderr_text}, {"exit": 1}]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(4).stdout_has("run ralph as an ordinary user").stdout_has("IS_SANDBOX=1");
    assert_eq!(project.events().all("agent_started").len(), 1);
    project.ralph(["report"]).run().code(0).stdout_lacks("is in the work tree");
}

#[test]
fn stream_without_result_is_failure() {
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 0}}));
    let script = json!([{"claude": "init"}, {"claude": {"text": DONE}}]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(4).stdout_has("the stream ended without a result");
}

#[test]
fn rate_limit_is_waited_out_and_not_counted() {
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 0}, "includeIterationCountInPrompt": true}));
    // Two seconds after the agent reports it, however slow it was.
    let limit = r#"at=$(($(date +%s) + 2)); echo $at >../resets-at
        echo '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected",' '"resetsAt":'$at',"rateLimitType":"five_hour"}}'"#;
    let limited = json!([
        project.record_step(),
        {"shell": limit},
        {"claude": {"result": {"is_error": true, "api_error_status": 429, "result": "You've hit your limit"}}},
    ]);
    let script = sessions([limited, recorded_steps(&project, &claude_done())]);
    let output = run_with("claude", &project, &["-p", "do it", "-n", "1"], &script).run();
    output.code(0).stdout_has("Rate limit reached: resets at ");
    let resets_at: u64 = project.read("../resets-at").trim().parse().unwrap();
    assert!(seconds_from_now(0) >= resets_at, "it did not wait long enough");
    let events = project.events();
    assert_eq!(events.find("agent_ended")["class"], "rate_limited");
    assert_eq!(events.find("waiting")["reason"], "rate_limit");
    assert_eq!(events.find("run_ended")["iterations"], 1);
    assert_eq!(prompts(&project), ["Iteration 1 of 1, 0 remaining.\n\ndo it"; 2]);
}

#[test]
fn rate_limit_beyond_allowed_wait_ends_run() {
    let message = format!("Claude AI usage limit reached|{}", seconds_from_now(3600));
    let script = failing_claude(&json!({"is_error": true, "result": message}));
    for (rate_limit, says) in [
        (json!({"wait": false}), "does not allow waiting for rate limits"),
        (json!({"maxWait": "10m"}), "does not allow waiting longer than 10m0s"),
    ] {
        let project = Project::new();
        project.settings(&json!({"rateLimit": rate_limit}));
        let output = run_with("claude", &project, &["-p", "do it"], &script).run();
        output.code(4).stdout_has("usage limit reached").stdout_has(says);
        assert_eq!(project.events().find("run_ended")["outcome"], "agent_failed");
    }
    let project = Project::new();
    let flags = ["-p", "do it", "--max-time", "10m"];
    let output = run_with("claude", &project, &flags, &script).run();
    output.code(3).stdout_has("The rate limit ends at ").stdout_has("the run's time is up in");
    output.stdout_has("ralph resume ");
    assert!(!project.events().has("waiting"));
}

#[test]
fn rate_limit_without_reset_time_backs_off() {
    let project = Project::new();
    project.settings(&json!({"retry": {"max": 0, "backoffSeconds": 0.1}}));
    let limited =
        failing_claude(&json!({"is_error": true, "api_error_status": 429, "result": "slow down"}));
    let overloaded =
        failing_claude(&json!({"is_error": true, "result": "API Error: 529 overloaded_error"}));
    let script = sessions([limited, overloaded, claude_done()]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    let events = project.events();
    let classes: Vec<_> = events.all("agent_ended").iter().map(|e| e["class"].clone()).collect();
    assert_eq!(classes, ["rate_limited", "overloaded", "answered"]);
    assert_eq!(events.find("run_ended")["iterations"], 1);
}

#[test]
fn signal_ends_rate_limit_wait_immediately() {
    let project = Project::new();
    let message = format!("Claude AI usage limit reached|{}", seconds_from_now(3600));
    let script = failing_claude(&json!({"is_error": true, "result": message}));
    let running = run_with("claude", &project, &["-p", "do it"], &script).start();
    wait_until(LONG, || running.stdout().contains("Rate limit reached: resets at"));
    let stopped_at = Instant::now();
    running.signal(Signal::TERM);
    running.wait().code(130).stderr_has("Received signal, shutting down...");
    assert!(stopped_at.elapsed() < Duration::from_secs(20));
}

#[test]
fn limit_messages_in_tool_output_are_ignored() {
    let project = Project::new();
    let script = json!([
        {"claude": {"bash": "echo 'API Error: 429 usage limit reached|1 Invalid API key'"}},
        {"claude": {"text": "The log says: Please run /login. You've hit your limit."}},
        {"claude": {"text": DONE}}, {"claude": {"result": {}}},
    ]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    let script = json!([{"print": "usage limit reached, rate limit, 429"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &script).run().code(0);
}

#[test]
fn refused_credentials_end_run_immediately_with_hint() {
    for (agent, script, says) in [
        (
            "claude",
            failing_claude(
                &json!({"is_error": true, "result": "Invalid API key · Please run /login"}),
            ),
            "Please run /login",
        ),
        (
            "codex",
            json!([{"codex": "init"}, {"codex": {"failed": "unexpected status 401 Unauthorized"}}, {"exit": 1}]),
            "401 Unauthorized",
        ),
    ] {
        let project = Project::new();
        let output = run_with(agent, &project, &["-p", "do it"], &script).run();
        output.code(4).stdout_has(says).stdout_has("Sign in with the agent's own program");
        let events = project.events();
        assert_eq!(events.all("agent_started").len(), 1, "{agent}: trying again does not help");
        assert_eq!(events.find("run_ended")["outcome"], "credentials_refused");
    }
}

#[test]
fn exhausted_context_is_retried() {
    let project = Project::new();
    project.settings(&no_backoff());
    let script = sessions([
        failing_claude(&json!({"is_error": true, "result": "Prompt is too long"})),
        claude_done(),
    ]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(project.events().find("agent_ended")["class"], "context_exhausted");
}

#[test]
fn empty_answer_does_not_complete() {
    let project = Project::new();
    let output = run(&project, &["-p", "do it", "-n", "2"], &json!([])).run();
    output.code(1).stdout_has("[WARN] The agent said nothing");
    let events = project.events();
    assert_eq!(events.all("agent_started").len(), 2);
    assert_eq!(events.find("agent_ended")["class"], "empty");
}

#[test]
fn codex_failures_and_limits_are_classified() {
    let project = Project::new();
    project.settings(&json!({"retry": {"backoffSeconds": 0}, "rateLimit": {"wait": false}}));
    let script = sessions([
        json!([{"codex": "init"}, {"codex": {"failed": "stream disconnected"}}, {"exit": 1}]),
        json!([{"codex": "init"}, {"codex": {"failed": "You've hit your usage limit. Try again in 2 hours."}}, {"exit": 1}]),
    ]);
    run_with("codex", &project, &["-p", "do it"], &script).run().code(4).stdout_has("usage limit");
    let events = project.events();
    let classes: Vec<_> = events.all("agent_ended").iter().map(|e| e["class"].clone()).collect();
    assert_eq!(classes, ["failed", "rate_limited"]);
}

#[test]
fn denied_tools_are_counted() {
    let project = Project::new();
    let script = json!([
        {"claude": {"tool": {"name": "Bash", "input": {"command": "make"}}}},
        {"json": {"type": "system", "subtype": "permission_denied", "tool_use_id": "toolu_1"}},
        {"claude": {"tool_result": {"content": "no permission", "is_error": true}}},
        {"claude": {"text": DONE}}, {"claude": {"result": {}}},
    ]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("Denied").stdout_has("denied: 1");
}
