//! The agent's todo list.

use crate::json::{RawJson, RawText};
use crate::tools::json_text;
use ralph_events::event::{TodoItem, TodoStatus};

#[derive(Debug)]
pub(super) enum TodoChange {
    /// `TodoWrite`.
    Replace(Vec<TodoItem>),
    /// `TaskCreate`.
    Add(String),
    /// `TaskUpdate`. A `Some(None)` status deletes the task.
    Change { id: String, subject: Option<String>, status: Option<Option<TodoStatus>> },
}

impl TodoChange {
    pub(super) fn from_tool_call(tool: &str, input: RawJson<'_>) -> Option<Self> {
        let subject = || Some(input.member("subject").as_text()?.text().into_owned());
        match tool {
            "TodoWrite" | "todo_write" => TodoChange::replace(input),
            "TaskCreate" => subject().map(TodoChange::Add),
            "TaskUpdate" => Some(TodoChange::Change {
                id: input.member("taskId").non_null().map(id_text)?,
                subject: subject(),
                status: input.member("status").as_text().map(|word| status(&word.text())),
            }),
            _ => None,
        }
    }

    /// Parses `{"todos": [{"content": …, "status": …}]}`.
    pub(super) fn replace(input: RawJson<'_>) -> Option<Self> {
        let mut items = Vec::new();
        for entry in input.member("todos").elements()? {
            let content = entry.member("content").non_null().unwrap_or(entry.member("description"));
            let (text, word) = (content.as_text()?.text(), entry.member("status").text());
            if word != "cancelled" && items.len() < TodoList::MAX {
                let status = status(&word).unwrap_or(TodoStatus::Pending);
                items.push(TodoItem { text: text.into_owned(), status });
            }
        }
        Some(TodoChange::Replace(items))
    }
}

fn id_text(raw: RawJson<'_>) -> String {
    raw.as_text().map_or_else(|| json_text(raw), RawText::text).into_owned()
}

fn status(word: &str) -> Option<TodoStatus> {
    match word {
        "pending" => Some(TodoStatus::Pending),
        "in_progress" => Some(TodoStatus::InProgress),
        "completed" => Some(TodoStatus::Completed),
        _ => None,
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct TodoList(Vec<(String, TodoItem)>);

impl TodoList {
    const MAX: usize = 500;

    /// Returns whether the list changed.
    pub(super) fn apply(&mut self, change: &TodoChange, call: &str) -> bool {
        match change {
            TodoChange::Replace(items) => {
                self.0 = items.iter().map(|item| (String::new(), item.clone())).collect();
                true
            }
            TodoChange::Add(subject) => {
                if self.0.len() >= Self::MAX {
                    return false;
                }
                let item = TodoItem { text: subject.clone(), status: TodoStatus::Pending };
                // A placeholder until `name` sets the id.
                self.0.push((call.to_owned(), item));
                true
            }
            TodoChange::Change { id, subject, status } => {
                let Some(at) = self.0.iter().position(|(known, _)| known == id) else {
                    return false;
                };
                if *status == Some(None) {
                    self.0.remove(at);
                    return true;
                }
                let item = &mut self.0[at].1;
                let before = item.clone();
                if let Some(subject) = subject {
                    item.text.clone_from(subject);
                }
                if let Some(Some(status)) = status {
                    item.status = *status;
                }
                *item != before
            }
        }
    }

    /// Sets the id from a result such as "Task #7 created successfully: …", or else by position.
    pub(super) fn name(&mut self, call: &str, answer: &str) {
        let Some(at) = self.0.iter().position(|(id, _)| id == call && !id.is_empty()) else {
            return;
        };
        let id = answer.split_once('#').and_then(|(_, rest)| rest.split([' ', ':']).next());
        self.0[at].0 = id.map_or_else(|| (at + 1).to_string(), str::to_owned);
    }

    pub(super) fn items(&self) -> Vec<TodoItem> {
        self.0.iter().map(|(_, item)| item.clone()).collect()
    }
}
