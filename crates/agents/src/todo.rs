//! The agent's todo list.

use serde::Deserialize;

use crate::json::{RawJson, RawText, ShortStr};
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
    pub(super) fn from_tool_call(tool: &str, input: Option<RawJson<'_>>) -> Option<Self> {
        #[derive(Deserialize)]
        struct TodoTask<'a> {
            #[serde(borrow, rename = "taskId")]
            id: Option<RawJson<'a>>,
            subject: Option<RawText<'a>>,
            status: Option<ShortStr<'a>>,
        }
        let input = input?;
        match tool {
            "TodoWrite" | "todo_write" => TodoChange::replace(input),
            "TaskCreate" => {
                let task: TodoTask<'_> = serde_json::from_slice(input.bytes()).ok()?;
                Some(TodoChange::Add(task.subject?.text().into_owned()))
            }
            "TaskUpdate" => {
                let task: TodoTask<'_> = serde_json::from_slice(input.bytes()).ok()?;
                Some(TodoChange::Change {
                    id: task.id.map(id_text)?,
                    subject: task.subject.map(|subject| subject.text().into_owned()),
                    status: task.status.as_deref().map(status),
                })
            }
            _ => None,
        }
    }

    /// Parses `{"todos": [{"content": …, "status": …}]}`.
    pub(super) fn replace(input: RawJson<'_>) -> Option<Self> {
        #[derive(Deserialize)]
        struct TodoWrite<'a> {
            #[serde(borrow)]
            todos: Vec<TodoInput<'a>>,
        }
        #[derive(Deserialize)]
        struct TodoInput<'a> {
            #[serde(borrow, alias = "description")]
            content: RawText<'a>,
            status: Option<ShortStr<'a>>,
        }
        let write: TodoWrite<'_> = serde_json::from_slice(input.bytes()).ok()?;
        let todos = write.todos.into_iter();
        let open = todos.filter(|entry| entry.status.as_deref() != Some("cancelled"));
        let item = |entry: TodoInput<'_>| TodoItem {
            text: entry.content.text().into_owned(),
            status: status(entry.status.as_deref().unwrap_or_default())
                .unwrap_or(TodoStatus::Pending),
        };
        Some(TodoChange::Replace(open.take(TodoList::MAX).map(item).collect()))
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
