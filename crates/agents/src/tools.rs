//! Tool calls from start to end, and previews of their input and output.

use std::borrow::Cow;

use super::edit;
use super::todo::{TodoChange, TodoList};
use super::{Emit, PREVIEW_CHARS, SUMMARY_CHARS, one_line};
use crate::json::{RawJson, RawText, TextSize, utf8};
use ralph_events::event::{Event, FileEdit};

#[derive(Debug, Default)]
pub(super) struct ToolTracker {
    running: RecentMap<PendingCall>,
    todo: TodoList,
}

#[derive(Debug)]
struct PendingCall {
    name: String,
    summary: String,
    /// The list before the call, if the call changes it.
    before: Option<TodoList>,
}

#[derive(Debug, Default)]
pub(super) struct ToolCall<'a> {
    pub(super) name: &'a str,
    pub(super) summary: String,
    pub(super) edit: Option<FileEdit>,
    pub(super) change: Option<TodoChange>,
}

impl<'a> ToolCall<'a> {
    pub(super) fn new(name: &'a str, input: RawJson<'_>) -> Self {
        let edit = edit::from_tool_call(name, input);
        ToolCall { name, summary: summary(name, input), edit, change: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct ToolEnd<'a> {
    pub(super) failed: bool,
    pub(super) denied: bool,
    pub(super) size: TextSize,
    pub(super) preview: Cow<'a, str>,
}

impl ToolTracker {
    pub(super) fn is_running(&self, id: &str) -> bool {
        self.running.0.iter().any(|(known, _)| known == id)
    }

    pub(super) fn is_any_running_except(&self, id: Option<&str>) -> bool {
        self.running.0.iter().any(|(known, _)| Some(known.as_str()) != id)
    }

    /// A call that writes the todo list is emitted as that list.
    pub(super) fn start(
        &mut self,
        id: &str,
        call: ToolCall<'_>,
        subagent: bool,
        emit: &mut Emit<'_>,
    ) {
        let ToolCall { name, summary, edit, change } = call;
        // Only the main agent's list is shown.
        let change = change.filter(|_| !subagent);
        let before = change.as_ref().map(|_| self.todo.clone());
        match change {
            // Shown at once, because the result adds nothing.
            Some(change) => {
                if self.todo.apply(&change, id) {
                    emit(Event::Todo { items: self.todo.items() });
                }
            }
            None => emit_started(id, name, &summary, edit, subagent, emit),
        }
        self.running.insert(id, PendingCall { name: name.to_owned(), summary, before });
    }

    pub(super) fn end(&mut self, id: &str, end: ToolEnd<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let call = self.running.remove(id);
        let name = call.as_ref().map_or("tool", |call| call.name.as_str());
        if let Some(PendingCall { summary, before: Some(before), .. }) = &call {
            if !end.failed {
                return self.todo.name(id, &end.preview);
            }
            if self.todo.items() != before.items() {
                self.todo.clone_from(before);
                emit(Event::Todo { items: self.todo.items() });
            }
            // A failed change is shown as a failed tool.
            emit_started(id, name, summary, None, subagent, emit);
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

fn emit_started(
    id: &str,
    name: &str,
    summary: &str,
    edit: Option<FileEdit>,
    subagent: bool,
    emit: &mut Emit<'_>,
) {
    emit(Event::ToolStarted {
        id: id.into(),
        name: name.into(),
        summary: summary.into(),
        edit: edit.map(Box::new),
        subagent,
    });
}

/// The latest values by id. Bounded, because an agent may never end what it starts.
#[derive(Debug)]
pub(super) struct RecentMap<T>(Vec<(String, T)>);

impl<T> Default for RecentMap<T> {
    fn default() -> Self {
        RecentMap(Vec::new())
    }
}

impl<T> RecentMap<T> {
    const MAX: usize = 128;

    pub(super) fn insert(&mut self, id: &str, value: T) {
        if self.0.len() >= Self::MAX {
            self.0.remove(0);
        }
        self.0.push((id.to_owned(), value));
    }

    pub(super) fn get_or_default(&mut self, id: &str) -> &mut T
    where
        T: Default,
    {
        let at = self.0.iter().rposition(|(known, _)| known == id).unwrap_or_else(|| {
            self.insert(id, T::default());
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<T> {
        let at = self.0.iter().rposition(|(known, _)| known == id)?;
        Some(self.0.remove(at).1)
    }
}

pub(super) fn tool_output(raw: RawJson<'_>) -> (TextSize, Cow<'_, str>) {
    if raw.is_null() {
        return (TextSize::default(), Cow::Borrowed(""));
    }
    if let Some(text) = raw.as_text() {
        return (text.size(), text.prefix(PREVIEW_CHARS));
    }
    let mut size = TextSize::default();
    let mut preview = Cow::Borrowed("");
    let mut add = |part: TextSize, head: Cow<'_, str>| {
        size.lines += part.lines;
        size.chars += part.chars;
        let shown = preview.chars().count() + 1;
        if !preview.is_empty() && shown < PREVIEW_CHARS {
            let preview = preview.to_mut();
            preview.push('\n');
            preview.push_str(ralph_events::text::prefix(&head, PREVIEW_CHARS - shown));
        } else if preview.is_empty() {
            preview = Cow::Owned(head.into_owned());
        }
    };
    let listed = raw.for_each_element(|part| {
        let mut kind = RawText::default();
        let mut text = None;
        let object = part.for_each_member(|key, value| match key {
            b"type" => kind = value.as_text().unwrap_or_default(),
            b"text" => text = value.as_text(),
            _ => {}
        });
        match (text, object) {
            (Some(text), _) => add(text.size(), text.prefix(PREVIEW_CHARS)),
            (None, Some(())) => {
                let name = format!("[{}]", kind.text());
                add(TextSize { lines: 1, chars: 0 }, name.into());
            }
            (None, None) => add(json_size(part), json_text(part)),
        }
    });
    if listed.is_none() {
        return (json_size(raw), json_text(raw));
    }
    (size, preview)
}

pub(super) fn json_text(raw: RawJson<'_>) -> Cow<'_, str> {
    let bytes = raw.bytes();
    utf8(&bytes[..bytes.len().min(PREVIEW_CHARS)])
}

fn json_size(raw: RawJson<'_>) -> TextSize {
    TextSize { lines: 1, chars: utf8(raw.bytes()).chars().count() as u64 }
}

fn summary(name: &str, input: RawJson<'_>) -> String {
    let wanted: &[&str] = match name {
        "Read" | "Edit" | "MultiEdit" | "Write" | "NotebookEdit" | "read" | "edit" | "write"
        | "view" | "create" | "read_file" | "write_file" | "replace" | "editor" | "edit_file"
        | "create_file" => &["file_path", "filePath", "notebook_path", "absolute_path", "path"],
        "Bash" | "bash" | "run_shell_command" => &["command", "cmd"],
        "Grep" | "Glob" | "grep" | "glob" | "grep_search" | "search_file_content" => &["pattern"],
        "Task" | "Agent" | "task" | "agent" => &["description"],
        "WebFetch" | "webfetch" | "web_fetch" => &["url", "prompt"],
        "WebSearch" | "websearch" | "google_web_search" => &["query"],
        "TaskCreate" => &["subject"],
        _ => &[],
    };
    let mut found = None;
    let _ = input.for_each_member(|key, value| {
        if found.is_none() && wanted.iter().any(|wanted| wanted.as_bytes() == key) {
            found = value.as_text();
        }
    });
    match found {
        Some(text) => one_line(&text.prefix(SUMMARY_CHARS + 1)),
        None if name == "apply_patch" => {
            edit::patched_files(input).unwrap_or_else(|| key_values(input))
        }
        None => key_values(input),
    }
}

/// Formats input as `key=value, key=value`.
pub(super) fn key_values(input: RawJson<'_>) -> String {
    let mut out = String::new();
    let _ = input.for_each_member(|key, value| {
        if out.len() > 4 * SUMMARY_CHARS {
            return;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(&utf8(key));
        out.push('=');
        match value.as_text() {
            Some(text) => out.push_str(&text.prefix(SUMMARY_CHARS + 1)),
            None => out.push_str(&json_text(value)),
        }
    });
    one_line(&out)
}
