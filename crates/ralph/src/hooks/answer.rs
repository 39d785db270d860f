//! The output of a hook: one JSON object, or nothing, which changes nothing.

use serde_json::json;

use ralph_events::json_writer;

/// Claude Code passes no more to the model.
const MAX_TEXT_CHARS: usize = 9_999;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutput {
    None,
    /// Denies the tool call and tells the model why.
    Deny(String),
    /// Allows the call; tells model and user.
    Warn(String),
    Context(String),
    /// Keeps the model from stopping and tells it why.
    Block(String),
}

impl HookOutput {
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
            // No decision: a user who is asked for permission is still asked.
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
