//! The last words of the agent.

use ralph_events::event::{Entry, Event, Purpose};

/// Returns what the agent said after its last tool call, without the completion signal.
pub fn last_answer<'e>(
    entries: impl Iterator<Item = Entry<'e>>,
    completion: &str,
) -> Option<String> {
    let mut answer = String::new();
    // A closed answer is replaced by the next text. Commit messages are no answers.
    let (mut is_closed, mut is_muted) = (false, false);
    for entry in entries {
        match entry.event {
            Event::AgentStarted { purpose, .. } => {
                is_muted = purpose == Purpose::CommitMessage;
                is_closed |= !is_muted;
            }
            Event::ToolStarted { subagent: false, .. } => is_closed = true,
            Event::Retracted { .. } if !is_muted => answer.clear(),
            Event::Text { text, joined, subagent: false } if !is_muted => {
                if std::mem::take(&mut is_closed) {
                    answer.clear();
                } else if !joined {
                    answer.push('\n');
                }
                answer.push_str(&text);
            }
            _ => {}
        }
    }
    if !completion.is_empty() {
        answer = answer.replace(completion, "");
    }
    Some(answer.trim().to_owned()).filter(|answer| !answer.is_empty())
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
            edit: None,
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
