//! What Claude Code understands of a hook: one JSON object on standard output and exit code 0, or
//! nothing at all, which lets things go their way.

use serde_json::json;

use ralph_events::json_writer;

/// The longest text that Claude Code hands on to the model, in characters.
const LONGEST: usize = 9_999;

/// What a hook has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Everything goes its way.
    Nothing,
    /// The tool is not to be used. The model is told why.
    Deny(String),
    /// The tool may be used, but model and user are told something.
    Warn(String),
    /// The model is told something after a tool was used.
    Context(String),
    /// The model is not to stop yet. It is told why.
    Block(String),
}

impl Answer {
    /// What goes to standard output.
    pub fn json(&self) -> Option<String> {
        let short = |text: &str| ralph_events::text::truncate(text, LONGEST, "…").into_owned();
        let answer = match self {
            Answer::Nothing => return None,
            Answer::Deny(reason) => json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": short(reason),
            }}),
            // No decision: where a person is asked for permission, that person still is.
            Answer::Warn(text) => json!({
                "systemMessage": short(text),
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "additionalContext": short(text),
                },
            }),
            Answer::Context(text) => json!({"hookSpecificOutput": {
                "hookEventName": "PostToolUse",
                "additionalContext": short(text),
            }}),
            Answer::Block(reason) => json!({"decision": "block", "reason": short(reason)}),
        };
        json_writer::compact(&answer).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_in_answer_are_escaped() {
        let text = "a\u{9b}2J\u{202e}b\u{2028}";
        for answer in
            [Answer::Deny(text.into()), Answer::Warn(text.into()), Answer::Block(text.into())]
        {
            let json = answer.json().unwrap();
            assert!(json.contains(r"a\u009b2J\u202eb\u2028"), "{json}");
        }
    }
}
