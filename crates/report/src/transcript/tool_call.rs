//! Tool calls: how they start, end and are described.

use super::clean_text::clean;
use super::{ItemKind, MAX_PREVIEW, ToolItem, ToolStatus, Transcript};
use crate::status_line::{one_line, tool_subject};
use crate::terminal::plural;
use ralph_events::event::{Event, Exit, FileEdit, Stamp};
use ralph_events::text;

impl Transcript {
    pub(super) fn tool_started(
        &mut self,
        id: u64,
        at: Stamp,
        event: &Event<'_>,
        changed: &mut Vec<u64>,
    ) {
        let Event::ToolStarted { id: call, name, summary, edit, subagent } = event else { return };
        let name = one_line(name);
        let tool = ToolItem {
            call: call.as_ref().to_owned(),
            subject: tool_subject(summary, &self.directory),
            status: ToolStatus::Running,
            note: String::new(),
            edit: edit.as_deref().map(clean_edit),
            preview: String::new(),
            lines: 0,
            ended_ms: None,
            is_subagent: *subagent,
            is_lookup: is_lookup(&name),
            name,
        };
        self.add_open(id, at, ItemKind::Tool(tool), changed);
    }

    pub(super) fn tool_ended(&mut self, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        let Event::ToolEnded { id: call, failed, denied, lines, preview, .. } = event else {
            return;
        };
        let items = &self.items;
        let started_ms = self.open.iter().find_map(|at| {
            let item = items.get(*at)?;
            matches!(&item.kind, ItemKind::Tool(tool) if tool.call == **call)
                .then_some(item.time_ms)
        });
        let Some(started_ms) = started_ms else { return };
        let took_ms = u64::try_from(at.time_ms - started_ms).unwrap_or(0);
        self.end_open(changed, |kind| {
            let ItemKind::Tool(tool) = kind else { return false };
            if tool.call != **call {
                return false;
            }
            tool.status = match (denied, failed) {
                (true, _) => ToolStatus::Denied,
                (_, true) => ToolStatus::Failed,
                _ => ToolStatus::Done,
            };
            tool.ended_ms = Some(at.time_ms);
            tool.lines = *lines;
            let exit = set_output(tool, preview);
            tool.note = tool_note(tool, exit, took_ms);
            true
        });
    }

    /// Whatever was open has no end in the journal.
    pub(super) fn abandon(&mut self, changed: &mut Vec<u64>) {
        self.end_open(changed, |kind| match kind {
            ItemKind::Tool(tool) => {
                tool.status = ToolStatus::Abandoned;
                tool.note = "not finished".to_owned();
                true
            }
            _ => false,
        });
    }
}

fn clean_edit(edit: &FileEdit) -> FileEdit {
    let side = |text: &str| clean(text, MAX_PREVIEW).0;
    FileEdit { old: side(&edit.old), new: side(&edit.new), ..*edit }
}

/// Sets the output of a call that ended. Returns the exit code that it starts with, which is left out.
fn set_output(tool: &mut ToolItem, preview: &str) -> Option<Exit> {
    let text = clean(preview, MAX_PREVIEW).0;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let code = (tool.status == ToolStatus::Failed)
        .then(|| first.trim().to_ascii_lowercase())
        .and_then(|first| first.strip_prefix("exit code ")?.parse().ok());
    match code {
        Some(code) => {
            tool.preview = rest.to_owned();
            tool.lines = tool.lines.saturating_sub(1);
            Some(Exit::Code(code))
        }
        None => {
            tool.preview = text;
            None
        }
    }
}

fn tool_note(tool: &ToolItem, exit: Option<Exit>, took_ms: u64) -> String {
    match (tool.status, &tool.edit) {
        (ToolStatus::Denied, _) => "denied".to_owned(),
        (ToolStatus::Failed, _) => match exit {
            Some(exit) => exit_note(Some(exit), took_ms),
            None => format!("failed, {}", text::format_duration(took_ms)),
        },
        (_, Some(edit)) => format!("+{} −{}", edit.added, edit.removed),
        (_, None) if tool.is_lookup => format!("{} line{}", tool.lines, plural(tool.lines)),
        _ => text::format_duration(took_ms),
    }
}

/// By name, because adapters report no kind.
fn is_lookup(name: &str) -> bool {
    const WORDS: [&str; 8] = ["read", "grep", "glob", "ls", "list", "search", "find", "view"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name == *word || name.starts_with(&format!("{word}_")))
        || ["websearch", "webfetch", "notebookread", "codebase_search"].contains(&name.as_str())
}

pub(super) fn exit_note(exit: Option<Exit>, took_ms: u64) -> String {
    let took = text::format_duration(took_ms);
    exit.map_or_else(|| took.clone(), |exit| format!("{exit}, {took}"))
}
