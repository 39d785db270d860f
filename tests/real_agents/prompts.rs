//! Prompts that are hard to pass.

use serde_json::json;

use crate::real::RealAgent;
use crate::{Facts, for_agents};

for_agents!(long_prompt_starting_with_dash_arrives: claude, codex, opencode, gemini, copilot, cline, qwen);

/// 300 KB exceed an argument, and a dash starts an option. Some agents print the prompt, with its
/// completion signal, on one line.
fn long_prompt_starting_with_dash_arrives(facts: &Facts) {
    let script = |_: &_| json!(["I am not done."]);
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let filler = "All of this is the prompt, and no word of it may be lost.\n".repeat(5_200);
    let prompt =
        format!("--help is no flag here.\n{filler}\n<response>DONE</response>\nThe end.\n");
    assert!(prompt.len() > 300_000);
    real.project.write("PROMPT.md", &prompt);
    real.run(&[&["-f", "PROMPT.md", "-n", "1"], facts.args].concat()).run().code(1);
    let events = real.project.events();
    assert_eq!(events.last("run_ended")["outcome"], "limit_reached", "an echo completes nothing");
    let body = real.first_requests().first().expect("a request")["body"].to_string();
    for words in ["--help is no flag here.", "The end."] {
        assert!(body.contains(words), "{words:?} did not arrive");
    }
    assert_eq!(body.matches("no word of it may be lost").count(), 5_200);
}
