//! Tool calls from their beginning to their end, for streams that tell both under one id.

use std::borrow::Cow;

use super::Emit;
use super::json::Size;
use super::messages::Recent;
use crate::core::event::{Event, TodoItem};

/// The tool calls of one process.
#[derive(Debug, Default)]
pub(super) struct Tools {
    running: Recent<Call>,
}

#[derive(Debug)]
struct Call {
    name: String,
    summary: String,
    /// The list that it makes the agent's own, once it has succeeded.
    plan: Option<Vec<TodoItem>>,
}

/// How a tool call ended.
#[derive(Debug, Default)]
pub(super) struct End<'a> {
    pub(super) failed: bool,
    pub(super) denied: bool,
    pub(super) size: Size,
    pub(super) preview: Cow<'a, str>,
}

impl Tools {
    /// A call that keeps the agent's list is told as the list, and not before it has succeeded.
    pub(super) fn started(
        &mut self,
        id: &str,
        name: &str,
        summary: String,
        plan: Option<Vec<TodoItem>>,
        subagent: bool,
        emit: &mut Emit<'_>,
    ) {
        // A subagent's list is not the one that the user follows.
        let plan = plan.filter(|_| !subagent);
        if plan.is_none() {
            tell(id, name, &summary, subagent, emit);
        }
        self.running.put(id, Call { name: name.to_owned(), summary, plan });
    }

    pub(super) fn ended(&mut self, id: &str, end: End<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let call = self.running.take(id);
        let name = call.as_ref().map_or("tool", |call| call.name.as_str());
        if let Some(Call { summary, plan: Some(items), .. }) = &call {
            if !end.failed {
                return emit(Event::Todo { items: items.clone() });
            }
            tell(id, name, summary, subagent, emit);
        }
        emit(Event::ToolEnded {
            id: id.into(),
            name: name.into(),
            failed: end.failed,
            denied: end.denied,
            lines: end.size.lines,
            chars: end.size.chars,
            preview: end.preview,
            subagent,
        });
    }
}

fn tell(id: &str, name: &str, summary: &str, subagent: bool, emit: &mut Emit<'_>) {
    emit(Event::ToolStarted {
        id: id.into(),
        name: name.into(),
        summary: summary.into(),
        subagent,
    });
}
