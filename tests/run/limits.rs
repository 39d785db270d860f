//! Limits of iterations and budgets.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Project, time_ms};
use crate::{DONE, run, run_with, sessions};

#[test]
fn default_limit_is_ten_iterations() {
    let project = Project::new();
    let output = run(&project, &["-p", "do it"], &json!([{"print": "not yet"}])).run();
    output
        .code(1)
        .stdout_has("Iteration 10/10")
        .stdout_has("Not done: iteration limit reached after 10 iterations");
    assert_eq!(project.events().all("iteration_started").len(), 10);
    let ended = project.events();
    let ended = ended.find("run_ended");
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&json!("limit_reached"), &json!(1)));
    assert_eq!(ended["iterations"], 10);
}

#[test]
fn iteration_limit_has_four_flag_names() {
    for flag in ["-n", "-m", "--max-iterations", "--maximum-iterations"] {
        let project = Project::new();
        run(&project, &["-p", "do it", flag, "2"], &json!([project.record_step()])).run().code(1);
        assert_eq!(project.agent_starts().len(), 2, "{flag}");
    }
}

#[test]
fn invalid_iteration_limit_is_refused() {
    let project = Project::new();
    for limit in ["0", "-1", "x", "1.5", "99999999999999"] {
        let arg = format!("-n={limit}");
        let output = run(&project, &["-p", "do it", &arg], &json!([project.record_step()])).run();
        output.code(2).stderr_has("--max-iterations");
    }
    let output = project.ralph(["run", "-p", "x", "-n", "-3"]).run();
    output.code(2).stderr_has("must be a whole number from 1").stderr_lacks("-- -3");
    project.settings(&json!({"maximumIterations": 0}));
    let output = run(&project, &["-p", "do it"], &json!([project.record_step()])).run();
    output.code(2).stderr_has("maximumIterations").stderr_has(".ralph/settings.json");
    assert_eq!(project.agent_starts().len(), 0);
}

#[test]
fn completion_in_last_iteration_completes() {
    let project = Project::new();
    let script = sessions([json!([]), json!([{"print": DONE}])]);
    run(&project, &["-p", "do it", "-n", "2"], &script).run().code(0);
}

#[test]
fn silent_model_is_reported_once_ended_and_retried() {
    let project = Project::new();
    project.settings(&json!({
        "silentModelMinutes": 0.01, "retry": {"backoffSeconds": 0.01},
        "notify": {"command": "jq -r .event >>told || grep -o model_silent >>told"},
        "agent": {"type": "claude"},
    }));
    let done = json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}]);
    let script =
        sessions([json!([{"hang": null}]), json!([{"claude": "init"}, {"hang": null}]), done]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0).stderr_has("no tool is running: it may have lost its connection");
    let events = project.events();
    assert_eq!(events.all("model_silent").len(), 1);
    assert_eq!(events.find("model_silent")["limit_ms"], 600);
    let ended = events.all("agent_ended");
    let how: Vec<_> = ended.iter().map(|ended| (&ended["ended_by"], &ended["class"])).collect();
    let silent = (&json!("silent_model"), &json!("failed"));
    assert_eq!(how[..2], [silent, silent]);
    assert_eq!(events.last("run_ended")["iterations"], 1, "they are retried");
    assert_eq!(project.read("told").matches("model_silent").count(), 1);
}

#[test]
fn silent_model_limit_ignores_running_tool_and_text_agent() {
    let limit = json!({"silentModelMinutes": 0.01, "retry": {"max": 0}});
    let project = Project::new();
    project.settings(&limit);
    let slow = json!([{"sleep_ms": 1200}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &slow).run().code(0);
    let mut settings = limit.clone();
    settings["agent"] = json!({"type": "claude"});
    project.settings(&settings);
    let slow_tool = json!([
        {"claude": {"tool": {"name": "Bash", "input": {"command": "make test"}}}}, {"sleep_ms": 1200},
        {"claude": {"tool_result": {"content": "ok"}}}, {"claude": {"text": DONE}}, {"claude": {"result": {}}},
    ]);
    run(&project, &["-p", "do it"], &slow_tool).run().code(0);
    assert!(!project.events().has("model_silent"));
    let silent = json!([{"claude": "init"}, {"sleep_ms": 1200}, {"claude": {"text": DONE}}]);
    run(&project, &["-p", "do it"], &silent).run().code(4);
}

#[test]
fn cost_budget_ends_run_before_next_iteration() {
    let project = Project::new();
    project.settings(&json!({"budget": {"costUsd": 1.0}}));
    let script = json!([
        project.record_step(), {"claude": {"text": "working"}},
        {"claude": {"result": {"total_cost_usd": 0.6}}},
    ]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(3).stdout_has("budget used up (cost $1.20 of $1.00)");
    assert_eq!(project.agent_starts().len(), 2);
    let events = project.events();
    assert_eq!(events.find("run_ended")["outcome"], "budget");
    assert_eq!(events.find("run_ended")["usage"]["cost_usd"], 1.2);
}

/// As with a proxy, or a model without a known price.
#[test]
fn zero_cost_for_tokens_is_estimated() {
    let project = Project::new();
    project.settings(&json!({"budget": {"costUsd": 4.0}}));
    let result = json!({"total_cost_usd": 0, "usage": {"input_tokens": 500_000}});
    let script = json!([project.record_step(), {"claude": {"text": "working"}}, {"claude": {"result": result}}]);
    let output = run_with("claude", &project, &["-p", "do it", "-n", "5"], &script).run();
    output.code(3).stdout_has("budget used up (cost about $5.00 of $4.00)");
    assert_eq!(output.stderr.matches("claude reports no cost").count(), 1);
    output.stderr_has("--max-tokens");
    assert_eq!(project.agent_starts().len(), 2);
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has("about $5.00 of $4.00 (estimated, the agent reported none)");
    project.settings(&json!({}));
    let output = run_with("claude", &project, &["-p", "do it", "-n", "1"], &script).run();
    output.code(1).stderr_lacks("reports no cost");
}

#[test]
fn completion_counts_though_budget_is_used_up() {
    let project = Project::new();
    project.settings(&json!({"budget": {"costUsd": 0.5}}));
    let script =
        json!([{"claude": {"text": DONE}}, {"claude": {"result": {"total_cost_usd": 0.6}}}]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
}

#[test]
fn token_budget_ends_running_agent() {
    let project = Project::new();
    project.settings(&json!({"budget": {"tokens": 1000}}));
    let script = json!([
        {"json": {"type": "assistant", "message": {
            "id": "m1", "role": "assistant", "content": [{"type": "text", "text": "working"}],
            "usage": {"input_tokens": 900, "output_tokens": 200},
        }}},
        "hang",
    ]);
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(3).stdout_has("1100 of 1000 tokens").stdout_has("Stopped: budget used up\n");
    assert_eq!(project.processes(), []);
}

#[test]
fn time_budget_ends_running_agent() {
    let project = Project::new();
    project.settings(&json!({"budget": {"duration": "1s"}}));
    let output = run(&project, &["-p", "do it"], &json!(["hang"])).run();
    output.code(3).stdout_has("budget used up (");
    assert_eq!(project.processes(), []);
}

#[test]
fn iteration_budget_ends_agent_and_run_continues() {
    let project = Project::new();
    project.settings(&json!({"budget": {"perIteration": {"duration": "1s"}}}));
    // A completion signal before it was killed does not count.
    let script = sessions([json!([{"print": DONE}, "hang"]), json!([{"print": DONE}])]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    let events = project.events();
    assert_eq!(events.find("agent_ended")["ended_by"], "iteration_budget");
    assert_ne!(events.find("run_ended")["iterations"], 1);
}

#[test]
fn inactive_agent_is_ended_and_retried() {
    let project = Project::new();
    project.settings(&crate::no_backoff());
    let script = sessions([json!([{"print": "hm"}, "hang"]), json!([{"print": DONE}])]);
    let output = run(&project, &["-p", "do it", "--inactivity-timeout", "1"], &script).run();
    output.code(0).stdout_has("no output within the inactivity limit");
    let events = project.events();
    assert_eq!(events.find("agent_ended")["ended_by"], "inactivity");
    assert_eq!(events.find("agent_ended")["class"], "timed_out");
    assert_eq!(events.find("run_ended")["iterations"], 1, "the same iteration");
    assert_eq!(project.processes(), []);
}

#[test]
fn printing_agent_is_not_inactive() {
    let project = Project::new();
    // Longer than the limit in total, shorter between two prints.
    let slow = "x".repeat(420);
    let script = json!([{"split": slow}, {"print": DONE}]);
    let started = Instant::now();
    run(&project, &["-p", "do it", "--inactivity-timeout", "2"], &script).run().code(0);
    assert!(started.elapsed() > Duration::from_secs(2), "the test tests nothing");
    assert_eq!(project.events().all("agent_ended").len(), 1);
}

#[test]
fn iteration_timeout_ends_agent_and_retries() {
    let project = Project::new();
    project
        .settings(&json!({"iterationTimeoutSeconds": 1, "retry": {"max": 1, "backoffSeconds": 0}}));
    let script = json!({"sessions": [
        ["ignore_signals", {"print": DONE}, "hang"], [{"print": DONE}, "hang"],
    ]});
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(4).stdout_has("the iteration's time limit");
    assert_eq!(project.events().all("agent_ended").len(), 2);
    assert_eq!(project.processes(), []);
}

#[test]
fn agent_hanging_after_result_is_ended_and_counts() {
    let project = Project::new();
    project.settings(&json!({"resultGraceSeconds": 1}));
    let script = json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}, "hang"]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    let events = project.events();
    let took = time_ms(events.find("agent_ended")) - time_ms(events.find("result"));
    assert!(took < 10_000, "{took} ms: the default of 10 s was used");
    assert_eq!(events.find("agent_ended")["ended_by"], "result_grace");
    assert_eq!(events.find("agent_ended")["class"], "answered");
    assert_eq!(project.processes(), []);
}

#[test]
fn result_survives_shorter_inactivity_limit() {
    let project = Project::new();
    let script = json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}, "hang"]);
    let args = ["-p", "do it", "--inactivity-timeout", "1"];
    run_with("claude", &project, &args, &script).run().code(0);
    assert_eq!(project.events().all("agent_ended").len(), 1);
}

#[test]
fn agent_with_background_tasks_outlives_result_grace() {
    let project = Project::new();
    project.settings(&json!({"resultGraceSeconds": 1}));
    let tasks = |tasks: serde_json::Value| json!({"json": {"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}});
    let script = json!([
        tasks(json!([{"task_id": "1"}])),
        {"claude": {"text": "started it"}}, {"claude": {"result": {}}},
        {"sleep_ms": 1500},
        tasks(json!([])),
        {"claude": {"text": DONE}}, {"claude": {"result": {}}},
    ]);
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(project.events().find("agent_ended")["ended_by"], json!(null));
}

#[test]
fn unenforceable_budget_is_refused() {
    let project = Project::new();
    let agent = json!([{"print": DONE}]);
    project.settings(&json!({"budget": {"costUsd": 5}}));
    run_with("codex", &project, &["-p", "do it"], &agent)
        .run()
        .code(2)
        .stderr_has("costUsd has no effect: codex does not report costs")
        .stderr_has("set tokens or duration instead");
    run_with("claude", &project, &["-p", "do it", "--no-stream-agent-output"], &agent)
        .run()
        .code(2)
        .stderr_has("claude does not report costs in plain mode");
    project.settings(&json!({"budget": {"perIteration": {"tokens": 5}}}));
    run(&project, &["-p", "do it"], &agent).run().code(2).stderr_has("set duration instead");
    assert!(!project.has(".ralph/runs"), "nothing was started");
}
