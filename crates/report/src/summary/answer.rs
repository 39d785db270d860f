//! The last words of the agent.

use ralph_events::event::{Entry, Event, Purpose};
use ralph_events::text;

/// Bounds the memory: the end of a text counts.
const MAX_BYTES: usize = 64 * 1024;

/// Collects what the agent said after its last tool call.
#[derive(Debug, Default)]
struct LastAnswer {
    text: String,
    /// The next text starts anew.
    is_closed: bool,
    /// The agent writes a commit message.
    is_muted: bool,
}

/// Returns the last words of the agent in the entries of a journal, without the completion signal.
pub fn last_answer<'e>(
    entries: impl Iterator<Item = Entry<'e>>,
    completion: &str,
) -> Option<String> {
    let mut answer = LastAnswer::default();
    entries.for_each(|entry| answer.apply(&entry.event));
    let mut text = answer.text;
    if !completion.is_empty() {
        text = text.replace(completion, "");
    }
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

impl LastAnswer {
    fn apply(&mut self, event: &Event<'_>) {
        match event {
            Event::AgentStarted { purpose, .. } => {
                self.is_muted = *purpose == Purpose::CommitMessage;
                self.is_closed |= !self.is_muted;
            }
            Event::ToolStarted { subagent: false, .. } => self.is_closed = true,
            Event::Retracted { .. } if !self.is_muted => self.text.clear(),
            Event::Text { text, joined, subagent: false } if !self.is_muted => {
                if std::mem::take(&mut self.is_closed) {
                    self.text.clear();
                } else if !joined && !self.text.is_empty() {
                    self.text.push('\n');
                }
                self.text.push_str(text);
                if self.text.len() > 2 * MAX_BYTES {
                    self.text = text::suffix(&self.text, MAX_BYTES / 4).to_owned();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_events::event::Stamp;

    #[test]
    fn last_answer_is_text_after_last_tool_without_signal() {
        let text = |text: &'static str, joined, subagent| Event::Text {
            text: text.into(),
            joined,
            subagent,
        };
        let tool = |subagent| Event::ToolStarted {
            id: "t".into(),
            name: "Bash".into(),
            summary: "".into(),
            subagent,
        };
        let started = |purpose| Event::AgentStarted { purpose, pid: 1, argv: Vec::new() };
        let answer = |events: Vec<Event<'static>>| {
            let at = Stamp { time_ms: 1, iteration: 1, attempt: 1 };
            let entries = events.into_iter().map(|event| Entry { at, event });
            last_answer(entries, "<response>DONE</response>")
        };
        let first = || vec![started(Purpose::Work), text("I look.", false, false), tool(false)];
        assert_eq!(answer(first()).as_deref(), Some("I look."));
        let rest = vec![
            text("All", false, false),
            text(" pass.", true, false),
            tool(true),
            text("aside", false, true),
            text("<response>DONE</response>", false, false),
            started(Purpose::CommitMessage),
            text("Fix it", false, false),
        ];
        assert_eq!(answer([first(), rest].concat()).as_deref(), Some("All pass."));
        let retracted = Event::Retracted { reason: "a summary".into() };
        assert_eq!(answer(vec![text("no", false, false), retracted]), None);
    }
}
