//! What Claude Code understands of a hook: one JSON object on standard output and exit code 0, or
//! nothing at all, which lets things go their way.

use serde_json::json;

use ralph_events::json_writer;

/// The longest text that Claude Code hands on to the model, in characters.
const MAX_TEXT_CHARS: usize = 9_999;

/// What a hook has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutput {
    /// Everything goes its way.
    None,
    /// The tool is not to be used. The model is told why.
    Deny(String),
    /// The tool may be used, but model and user are told something.
    Warn(String),
    /// The model is told something after a tool was used.
    Context(String),
    /// The model is not to stop yet. It is told why.
    Block(String),
}

impl HookOutput {
    /// What goes to standard output.
    pub fn json(&self) -> Option<String> {
        let short =
            |text: &str| ralph_events::text::truncate(text, MAX_TEXT_CHARS, "…").into_owned();
        let answer = match self {
            HookOutput::None => return None,
            HookOutput::Deny(reason) => json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": short(reason),
            }}),
            // No decision: where a person is asked for permission, that person still is.
            HookOutput::Warn(text) => json!({
                "systemMessage": short(text),
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "additionalContext": short(text),
                },
            }),
            HookOutput::Context(text) => json!({"hookSpecificOutput": {
                "hookEventName": "PostToolUse",
                "additionalContext": short(text),
            }}),
            HookOutput::Block(reason) => json!({"decision": "block", "reason": short(reason)}),
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
        for answer in [
            HookOutput::Deny(text.into()),
            HookOutput::Warn(text.into()),
            HookOutput::Block(text.into()),
        ] {
            let json = answer.json().unwrap();
            assert!(json.contains(r"a\u009b2J\u202eb\u2028"), "{json}");
        }
    }
}
