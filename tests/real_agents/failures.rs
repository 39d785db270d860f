//! What ends unattended runs, as the real programs tell it.
//!
//! Programs try again by themselves before they say anything, some of them for minutes and with no
//! way to shorten that: a limit takes opencode, cline and qwen a minute and more, gemini too unless it
//! is the day's. What takes longer than a test may is in `tests/fixtures` instead.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{Events, Output, Project};
use crate::{Facts, for_agents};

const DONE: &str = "<response>DONE</response>";
const PROMPT: &str = "--version: say <response>DONE</response> when you are done with it.";

/// A failure that a service has in store for an agent, and what must become of it.
struct Case {
    agent: &'static str,
    /// What the model service does.
    turns: Value,
    settings: Value,
    flags: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// The classes of all attempts, in order.
    classes: &'static [&'static str],
    exit: i32,
    /// Words that people must be shown.
    says: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            agent: "",
            turns: json!([DONE]),
            settings: json!({"retry": {"max": 0, "backoffSeconds": 0.1}}),
            flags: &[],
            env: &[],
            classes: &["answered"],
            exit: 0,
            says: "",
        }
    }
}

/// Claude tries again ten times unless it is told otherwise.
const IMPATIENT: &[(&str, &str)] = &[("CLAUDE_CODE_MAX_RETRIES", "0")];

impl Case {
    /// Runs it. Nothing comes of it if the agent is not installed.
    fn check(self) -> Option<(RealAgent, Output, Events)> {
        let real = RealAgent::new(self.agent, |_: &Project| self.turns)?;
        real.project.settings(&self.settings);
        let args = [&["-p", PROMPT, "-n", "2"], Facts::of(self.agent).args].concat();
        let mut ralph = real.run_with(&args, self.flags);
        for (name, value) in self.env {
            ralph = ralph.env(name, value);
        }
        let output = ralph.run();
        output.code(self.exit).stdout_has(self.says);
        let events = real.project.events();
        let classes: Vec<&Value> =
            events.all("agent_ended").iter().map(|event| &event["class"]).collect();
        assert_eq!(classes, self.classes, "{}", output.stdout);
        assert_eq!(events.last("run_ended")["iterations"], 1, "nothing of this counts");
        assert_eq!(real.project.processes(), []);
        Some((real, output, events))
    }
}

for_agents!(refused_credentials: claude, codex, opencode, gemini, copilot, cline, qwen);

/// Trying again does not help: the run ends and says what does. The prompt goes by argument here,
/// where its dash makes it an option of an agent that is not told better.
fn refused_credentials(facts: &Facts) {
    let (env, flags, says): (_, &[&str], _) = match facts.name {
        "claude" => (IMPATIENT, &[], "Invalid API key"),
        "codex" => (&[][..], &["-c", "model_providers.mock.stream_max_retries=0"], "401"),
        "opencode" => (&[][..], &[], "opencode auth login"),
        "gemini" => (&[][..], &[], "GEMINI_API_KEY"),
        "copilot" => (&[][..], &[], "COPILOT_PROVIDER_API_KEY"),
        "cline" => (&[][..], &[], "cline auth"),
        _ => (&[][..], &[], "OPENAI_API_KEY"),
    };
    let case = Case {
        agent: facts.name,
        turns: json!([{"fail": 401, "times": -1}]),
        settings: json!({"retry": {"max": 0}, "agent": {"promptVia": "argument"}}),
        env,
        flags,
        classes: &["credentials"],
        exit: 4,
        says,
    };
    let Some((real, output, events)) = case.check() else { return };
    let first = real.first_requests().first().expect("a request")["body"].to_string();
    assert!(first.contains("--version: say <response>"), "the prompt did not arrive");
    output.stdout_has("Next: sign in with the agent's own program");
    assert_eq!(events.last("run_ended")["outcome"], "credentials_refused");
}

fn in_seconds(seconds: u64) -> u64 {
    let later = SystemTime::now() + Duration::from_secs(seconds);
    later.duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// The wait of a run that was at a limit, in milliseconds since the Unix epoch.
fn waited_until(events: &Events) -> i64 {
    let waiting = events.find("waiting");
    assert_eq!(waiting["reason"], "rate_limit", "{waiting}");
    waiting["until_ms"].as_i64().expect("a time")
}

#[test]
fn claude_waits_for_the_end_of_its_subscriptions_limit() {
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
        settings: json!({"retry": {"max": 0}, "agent": {"envExclude": ["ANTHROPIC_API_KEY"]}}),
        env: &[("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-test-token")],
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    let until = waited_until(&events);
    assert!(until >= i64::try_from(resets_at).expect("a time") * 1000, "{until} < {resets_at}");
}

#[test]
fn claude_backs_off_when_a_key_is_at_its_limit() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 429}, DONE]),
        env: IMPATIENT,
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}

#[test]
fn claude_backs_off_when_its_service_has_no_capacity() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 529}, DONE]),
        env: IMPATIENT,
        classes: &["overloaded", "answered"],
        ..Case::default()
    };
    case.check();
}

#[test]
fn claude_tells_of_a_prompt_that_is_too_long() {
    let message = "prompt is too long: 210000 tokens > 200000 maximum";
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 400, "message": message, "times": -1}]),
        classes: &["context_exhausted"],
        exit: 4,
        says: "Prompt is too long",
        ..Case::default()
    };
    case.check();
}

#[test]
fn claude_ends_at_its_own_limit_of_turns_and_the_loop_goes_on() {
    let real = RealAgent::new(
        "claude",
        |_: &Project| json!({"sessions": [[{"sh": "true", "times": -1}], [DONE]]}),
    );
    let Some(real) = real else { return };
    let output = real.run_with(&["-p", PROMPT, "-n", "2"], &["--max-turns", "1"]).run();
    output.code(0);
    let events = real.project.events();
    let classes: Vec<&Value> = events.all("agent_ended").iter().map(|e| &e["class"]).collect();
    assert_eq!(classes, ["limited", "answered"]);
}

#[test]
fn codex_waits_when_its_account_is_at_its_limit() {
    // It tells the minute, so that the reset is often over by then, and a back-off is all there is.
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
fn codex_tells_of_a_context_that_is_full() {
    let message = "Your input exceeds the context window of this model.";
    let case = Case {
        agent: "codex",
        turns: json!([{"fail": "sse_error", "code": "context_length_exceeded", "message": message,
                       "times": -1}]),
        flags: &["-c", "model_providers.mock.stream_max_retries=0"],
        classes: &["context_exhausted"],
        exit: 4,
        says: "context window",
        ..Case::default()
    };
    case.check();
}

#[test]
fn gemini_backs_off_when_its_quota_is_used_up() {
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
fn copilot_backs_off_at_a_limit() {
    let case = Case {
        agent: "copilot",
        turns: json!([{"fail": 429, "retry_after": 1, "times": 6}, DONE]),
        classes: &["rate_limited", "answered"],
        ..Case::default()
    };
    let Some((_, _, events)) = case.check() else { return };
    waited_until(&events);
}

#[test]
fn copilot_tells_of_a_prompt_that_is_too_long() {
    let case = Case {
        agent: "copilot",
        turns: json!([{"fail": 400, "code": "context_length_exceeded", "times": -1,
                       "message": "This model's maximum context length is 128000 tokens."}]),
        classes: &["context_exhausted"],
        exit: 4,
        ..Case::default()
    };
    case.check();
}

// The others are silent for longer while they start; `processes::hung` is about those.
for_agents!(silent_service: claude, codex);

/// A service that never answers: the agents would wait for minutes, and then try again.
fn silent_service(facts: &Facts) {
    let turns = json!([{"fail": "hang"}, DONE]);
    let Some(real) = RealAgent::new(facts.name, |_: &Project| turns) else { return };
    real.project.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let args = ["-p", PROMPT, "-n", "1", "--inactivity-timeout", "4"];
    real.run(&[&args, facts.args].concat()).run().code(0).stdout_has("The agent timed out");
    let events = real.project.events();
    assert_eq!(events.find("agent_ended")["class"], "timed_out");
    assert_eq!(events.last("agent_ended")["class"], "answered", "it was tried again");
    assert_eq!(real.project.processes(), []);
}

for_agents!(cut_stream: claude, codex, gemini, copilot, qwen);

/// Whoever notices a connection that breaks in the middle of an answer, the agent or ralph, half an
/// answer completes nothing, and the iteration is tried again.
fn cut_stream(facts: &Facts) {
    let turns =
        json!([{"fail": "cut", "text": format!("{DONE} or rather not."), "after": 5}, DONE]);
    let Some(real) = RealAgent::new(facts.name, |_: &Project| turns) else { return };
    real.project.settings(&json!({"retry": {"max": 1, "backoffSeconds": 0}}));
    real.run(&[&["-p", PROMPT, "-n", "2"], facts.args].concat()).run().code(0);
    let events = real.project.events();
    assert_eq!(events.last("run_ended")["iterations"], 1);
    let asked = real.requests().iter().filter(|request| request["kind"] == "main").count();
    assert_eq!(asked, 2, "the answer that counts came after the cut");
    assert_eq!(real.project.processes(), []);
}
