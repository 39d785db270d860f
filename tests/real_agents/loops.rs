//! A loop from the first iteration to completion.

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::{Facts, for_agents, support};

for_agents!(three_iterations_complete: claude, codex, opencode, gemini, copilot, cline, qwen);

/// claude continues after its result while a background task runs. Its later output and cost count.
#[test]
fn claude_output_after_result_counts() {
    let usage = |at: u64| json!({"in": 4 * at, "out": 3 * at});
    let script = |project: &support::Project| {
        let raw = project.path().join(".ralph/runs/*/raw.ndjson");
        let until_a_result =
            format!("until grep -qs '\"type\":\"result\"' {}; do sleep 0.05; done", raw.display());
        let input = json!({"command": until_a_result, "run_in_background": true});
        json!([
            {"tool": "Bash", "input": input, "usage": usage(1)},
            {"text": "It is under way.", "usage": usage(10)},
            {"text": "Now it is all there.\n<response>DONE</response>", "usage": usage(100)},
        ])
    };
    let Some(real) = RealAgent::new("claude", script) else { return };
    let args = ["-p", "Say <response>DONE</response> when all is done.", "-n", "1"];
    real.run(&[&args, Facts::of("claude").args].concat()).run().code(0);
    let raw = String::from_utf8(real.project.raw()).expect("UTF-8");
    let results = raw.lines().filter(|line| line.contains(r#""type":"result""#)).count();
    assert_eq!(results, 2, "{raw}");
    let events = real.project.events();
    assert_eq!(events.all("agent_ended").len(), 1);
    let used = &events.last("run_ended")["usage"];
    assert_eq!(
        (&used["input_tokens"], &used["output_tokens"]),
        (&json!(444), &json!(333)),
        "{used}"
    );
    assert_eq!(real.project.processes(), []);
}

/// Different numbers for each turn, so that no sum is right by accident.
fn usage(turn: u64) -> Value {
    let at = 10_u64.pow(u32::try_from(turn).expect("a small number"));
    json!({"in": 4 * at, "out": 3 * at, "cache_read": 2 * at, "cache_write": at})
}

fn three_iterations_complete(facts: &Facts) {
    let script = |project: &support::Project| {
        let path = project.path().join("greeting.txt");
        json!({"sessions": [
            [
                {"text": "I write it.", "write": {"path": path, "content": "helo\n"}, "usage": usage(0)},
                {"text": "Somebody should look at it.", "usage": usage(1)},
            ],
            [
                {"sh": "cat old.log; echo hello >greeting.txt && git add greeting.txt && git commit -qm 'Say hello'",
                 "usage": usage(2)},
                {"text": "I mended and committed it. The log says: rate limit exceeded.",
                 "usage": usage(3)},
            ],
            [{"text": "It is all there.\n<response>DONE</response>", "usage": usage(4)}],
        ]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    // Errors in a file that the agent reads are not its own.
    let log = "API Error: 429 rate limit exceeded, resets 3am. Overloaded. 401 Invalid API key.\n";
    project.write(".git/info/exclude", "old.log\n").write("old.log", log);
    let check = "grep -qx hello greeting.txt || { echo \"It says $(cat greeting.txt).\"; exit 1; }";
    project.settings(&json!({"guardrails": [{"command": check, "failAction": "APPEND"}]}));
    let prompt = "Write greeting.txt. When all is done, say <response>DONE</response>.";
    let output = real.run(&[&["-p", prompt, "--max-iterations", "5"], facts.args].concat()).run();
    output.code(0);

    let events = project.events();
    assert_eq!(events.all("iteration_started").len(), 3, "{:?}", events.kinds());
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    let guardrails: Vec<&Value> =
        events.all("guardrail_ended").iter().map(|event| &event["passed"]).collect();
    assert_eq!(guardrails, [false, true, true]);

    let prompts: Vec<String> =
        real.first_requests().iter().map(|r| r["body"].to_string()).collect();
    assert_eq!(prompts.len(), 3, "a conversation for each iteration");
    for (prompt, has_feedback) in prompts.iter().zip([false, true, false]) {
        assert!(prompt.contains("Write greeting.txt."), "{prompt}");
        assert_eq!(prompt.contains("It says helo."), has_feedback, "{prompt}");
    }

    assert_eq!(project.read("greeting.txt"), "hello\n");
    assert_eq!(project.git_command(["log", "--format=%s"]), "Say hello\nBegin\n");

    let used = &events.last("run_ended")["usage"];
    let (input, output, cache_read) = (44_444, 33_333, 22_222);
    let cache_write = if facts.reports_cache_write { 11_111 } else { 0 };
    assert_eq!(used["input_tokens"], input, "{used}");
    assert_eq!(used["output_tokens"], output, "{used}");
    assert_eq!(used["cache_read_tokens"], cache_read, "{used}");
    assert_eq!(used["cache_write_tokens"], cache_write, "{used}");
    match &facts.price {
        None => assert!(used.get("cost_usd").is_none(), "{used}"),
        Some(price) => {
            let cost = f64::from(input) * price.input
                + f64::from(output) * price.output
                + f64::from(cache_read) * price.cache_read
                + f64::from(cache_write) * price.cache_write;
            let cost = cost / 1e6;
            let reported = used["cost_usd"].as_f64().expect("a cost");
            assert!((reported - cost).abs() < 1e-9, "{reported} is not {cost}");
        }
    }
    assert_eq!(project.processes(), []);
    let bytes_left = real.temporary_bytes();
    assert!(
        bytes_left < 5_000_000,
        "{bytes_left} bytes of temporary files, after three iterations"
    );
}
