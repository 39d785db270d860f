//! Limits of services, models and agents, as real agents report them.
//!
//! Agents retry silently, some for minutes; the service or their settings make them quick. qwen
//! heeds neither if a whole request is refused (100 seconds at best, recorded in `tests/fixtures`),
//! so it is refused in the middle of a stream.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::case::{Case, DONE, NO_RETRIES, PROMPT};
use crate::real::RealAgent;
use crate::support::{Events, Project};
use crate::{Facts, for_agents};

/// Settings without retries.
const GEMINI_ONCE: &[(&str, &str)] = &[(
    ".gemini/settings.json",
    r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1}}"#,
)];
const QWEN_ONCE: &[(&str, &str)] = &[(
    ".qwen/settings.json",
    r#"{"memory": {"enableManagedAutoMemory": false}, "model": {"generationConfig": {"maxRetries": 0}}}"#,
)];
const CODEX_ONCE: &[&str] = &[
    "-c",
    "model_providers.mock.request_max_retries=0",
    "-c",
    "model_providers.mock.stream_max_retries=0",
];

fn failure_case(agent: &'static str, turn: &Value, class: &'static [&'static str]) -> Case {
    Case {
        agent,
        turns: json!([turn]),
        settings: json!({
            "retry": {"max": 0}, "rateLimit": {"wait": false}, "resultGraceSeconds": 1,
        }),
        flags: if agent == "codex" { CODEX_ONCE } else { &[] },
        env: if agent == "claude" { NO_RETRIES } else { &[] },
        files: match agent {
            "gemini" => GEMINI_ONCE,
            "qwen" => QWEN_ONCE,
            _ => &[],
        },
        classes: class,
        exit: 4,
        ..Case::default()
    }
}

/// A service that refuses every request and asks for an immediate retry.
fn refusal(agent: &str, status: u16, message: &str) -> Value {
    if agent == "qwen" {
        return json!({"fail": "sse_error", "code": status, "message": message, "after": 0, "times": -1});
    }
    json!({"fail": status, "message": message, "headers": {"retry-after-ms": "20"}, "times": -1})
}

for_agents!(rate_limit_is_classified: opencode, gemini, cline, qwen);

fn rate_limit_is_classified(facts: &Facts) {
    let message = "Too many requests: the rate limit of your key is used up.";
    let turn = refusal(facts.name, 429, message);
    let case = Case { says: "rate limit", ..failure_case(facts.name, &turn, &["rate_limited"]) };
    let Some((_, _, events)) = case.check() else { return };
    assert_eq!(events.last("run_ended")["outcome"], "agent_failed");
}

for_agents!(overload_is_classified: claude, codex, opencode, gemini, copilot, cline, qwen);

fn overload_is_classified(facts: &Facts) {
    let status = if facts.name == "claude" { 529 } else { 503 };
    let turn = refusal(facts.name, status, "Service unavailable");
    failure_case(facts.name, &turn, &["overloaded"]).check();
}

#[test]
fn claude_backs_off_when_overloaded() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 529}, DONE]),
        env: NO_RETRIES,
        classes: &["overloaded", "answered"],
        ..Case::default()
    };
    case.check();
}

for_agents!(full_context_is_classified: claude, codex, opencode, gemini, copilot, cline, qwen);

/// opencode would summarize and retry forever.
fn full_context_is_classified(facts: &Facts) {
    let (turn, says) = match facts.name {
        "claude" => {
            let message = "prompt is too long: 210000 tokens > 200000 maximum";
            (json!({"fail": 400, "message": message, "times": -1}), "Prompt is too long")
        }
        "gemini" => {
            let message = "The input token count (1048577) exceeds the maximum number of tokens.";
            (json!({"fail": 400, "message": message, "times": -1}), "input token count")
        }
        "codex" => {
            let message = "Your input exceeds the context window of this model.";
            let code = "context_length_exceeded";
            let turn = json!({"fail": "sse_error", "code": code, "message": message, "times": -1});
            (turn, "context window")
        }
        _ => {
            let message = "This model's maximum context length is 128000 tokens.";
            let code = "context_length_exceeded";
            (json!({"fail": 400, "code": code, "message": message, "times": -1}), "context")
        }
    };
    let case = failure_case(facts.name, &turn, &["context_exhausted"]);
    Case { says, ..case }.check();
}

/// A conversation summary looks like an answer and may quote the prompt.
#[test]
fn opencode_compaction_summary_does_not_complete() {
    let script = |_: &Project| {
        json!({
            "turns": [{"sh": "true", "usage": {"in": 199_000, "out": 5}}, "I go on."],
            "side": format!("A summary: the user wants to be told {DONE}."),
        })
    };
    let Some(real) = RealAgent::new("opencode", script) else { return };
    real.run(&["-p", PROMPT, "-n", "1"]).run().code(1).stdout_has("context was compacted");
    let events = real.project.events();
    assert_eq!(events.find("agent_ended")["class"], "answered");
    assert_eq!(events.last("run_ended")["outcome"], "limit_reached");
}

// The others report it as an empty answer.
for_agents!(refused_answer_is_classified: claude, opencode, gemini, copilot);

fn refused_answer_is_classified(facts: &Facts) {
    let stop = match facts.name {
        "claude" => "refusal",
        "gemini" => "SAFETY",
        _ => "content_filter",
    };
    let turn = json!({"text": "", "stop": stop, "times": -1});
    let Some((_, _, events)) = failure_case(facts.name, &turn, &["failed"]).check() else { return };
    assert_eq!(events.find("agent_ended")["failure"]["kind"], "refusal");
}

// gemini does not offer such tools then, and codex does not report its sandbox's refusals.
for_agents!(denied_tool_is_counted: claude, opencode, copilot, cline, qwen);

fn denied_tool_is_counted(facts: &Facts) {
    let turns = json!([{"text": "I try.", "sh": "touch made"}, "I could not."]);
    let Some(real) = RealAgent::new(facts.name, |_: &Project| turns) else { return };
    real.project.settings(&json!({"agent": {"autonomous": false}, "retry": {"max": 0}}));
    // opencode asks only if configured, and stops when denied.
    let (env, exit) = match facts.name {
        "opencode" => (r#"{"bash": "ask"}"#, 4),
        _ => ("{}", 1),
    };
    let args = [&["-p", PROMPT, "-n", "1"], facts.args].concat();
    let output = real.run(&args).env("OPENCODE_PERMISSION", env).run();
    output.code(exit).stdout_has("Denied").stdout_has("denied: 1");
    assert_eq!(real.project.events().find("agent_ended")["denied"], 1);
    assert!(!real.project.path().join("made").exists());
}

for_agents!(turn_limit_of_agent_ends_iteration_only: claude, gemini, qwen);

fn turn_limit_of_agent_ends_iteration_only(facts: &Facts) {
    let (flags, file): (&[&str], _) = match facts.name {
        "claude" => (&["--max-turns", "1"], None),
        "qwen" => (&["--max-session-turns", "1"], None),
        _ => (
            &[],
            Some(
                r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}, "model": {"maxSessionTurns": 1}}"#,
            ),
        ),
    };
    let script = |_: &Project| json!({"sessions": [[{"sh": "true", "times": -1}], [DONE]]});
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    if let Some(text) = file {
        std::fs::write(real.project.home().join(".gemini/settings.json"), text).expect("a file");
    }
    let args = [&["-p", PROMPT, "-n", "2"], facts.args].concat();
    real.run_with(&args, flags).run().code(0).stdout_has("stopped by a limit");
    assert_eq!(classes(&real.project.events()), ["limited", "answered"]);
}

#[test]
fn claude_budget_limit_ends_iteration_only() {
    let script = |_: &Project| {
        let work = json!({"sh": "true", "usage": {"in": 100_000, "out": 1_000}, "times": -1});
        json!({"sessions": [[work], [{"text": DONE, "usage": {}}]]})
    };
    let Some(real) = RealAgent::new("claude", script) else { return };
    let args = [&["-p", PROMPT, "-n", "2"], Facts::of("claude").args].concat();
    real.run_with(&args, &["--max-budget-usd", "0.1"]).run().code(0).stdout_has("maximum budget");
    let events = real.project.events();
    assert_eq!(classes(&events), ["limited", "answered"]);
    let cost = events.last("run_ended")["usage"]["cost_usd"].as_f64().expect("a cost");
    assert!((cost - 0.42).abs() < 1e-9, "{cost}: what it cost until then counts");
}

fn classes(events: &Events) -> Vec<Value> {
    events.all("agent_ended").iter().map(|event| event["class"].clone()).collect()
}

fn in_seconds(seconds: u64) -> u64 {
    let later = SystemTime::now() + Duration::from_secs(seconds);
    later.duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs()
}

fn waited_until(events: &Events) -> i64 {
    let waiting = events.find("waiting");
    assert_eq!(waiting["reason"], "rate_limit", "{waiting}");
    waiting["until_ms"].as_i64().expect("a time")
}

#[test]
fn claude_waits_for_subscription_reset() {
    let resets_at = in_seconds(6);
    let limited = json!({
        "fail": 429, "message": "This request would exceed your account's rate limit.",
        "headers": {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": resets_at.to_string(),
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-overage-status": "rejected",
        },
    });
    let case = Case {
        agent: "claude",
        turns: json!([limited, DONE]),
        settings: json!({
            "retry": {"max": 0}, "agent": {"envExclude": ["ANTHROPIC_API_KEY"]},
            "notify": {"command": "cat >>../told.jsonl"},
        }),
        env: &[("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-test-token")],
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((real, _, events)) = case.check() else { return };
    let until = waited_until(&events);
    let notifications =
        std::fs::read_to_string(real.project.sibling("told.jsonl")).expect("the notification");
    let notifications: Vec<Value> =
        notifications.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(
        (&notifications[0]["event"], &notifications[0]["until_ms"]),
        (&json!("waiting"), &json!(until))
    );
    assert_eq!(notifications[1]["event"], "run_ended");
    assert!(until >= i64::try_from(resets_at).expect("a time") * 1000, "{until} < {resets_at}");
}

#[test]
fn claude_backs_off_at_key_rate_limit() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 429}, DONE]),
        env: NO_RETRIES,
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}

#[test]
fn codex_waits_at_account_limit() {
    // codex reports the minute, so the reset is often past and only a back-off remains.
    let body = json!({"error": {
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": in_seconds(1), "resets_in_seconds": 1,
    }});
    let case = Case {
        agent: "codex",
        turns: json!([{"fail": 429, "body": body}, DONE]),
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}

#[test]
fn gemini_backs_off_at_quota() {
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_requests",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel",
        }],
    }]);
    let body = json!({"error": {
        "code": 429, "status": "RESOURCE_EXHAUSTED", "details": details,
        "message": "You exceeded your current quota, please check your plan and billing details.",
    }});
    let case = Case {
        agent: "gemini",
        turns: json!([{"fail": 429, "body": body}, DONE]),
        classes: &["rate_limited", "answered"],
        says: "daily quota",
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}

#[test]
fn copilot_backs_off_at_rate_limit() {
    let case = Case {
        agent: "copilot",
        turns: json!([{"fail": 429, "retry_after": 1, "times": 6}, DONE]),
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}
