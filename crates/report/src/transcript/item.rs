//! What a transcript consists of.

use serde::Serialize;

use crate::check_view::CheckMark;
use ralph_events::event::FileEdit;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// Unique within the run, and growing: the position of its line in the journal.
    pub id: u64,
    pub time_ms: i64,
    pub iteration: u32,
    pub kind: ItemKind,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ItemKind {
    /// An iteration starts. Its figures are in the run's state.
    Iteration {
        number: u32,
    },
    Text {
        voice: Voice,
        text: String,
        is_cut: bool,
    },
    Tool(ToolItem),
    Check(CheckItem),
    Commit {
        id: String,
        subject: String,
    },
    Question {
        id: String,
        text: String,
        context: String,
        is_answered: bool,
    },
    /// A person's guidance, or the answer to a question.
    You {
        text: String,
        guidance: Option<u64>,
        question: Option<String>,
        every: bool,
        delivered_in: Option<u32>,
        /// Not delivered: the run ended first.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_missed: bool,
    },
    /// Stories that the agent marked although checks failed or were cut off.
    Claim {
        stories: Vec<String>,
        failed: Vec<String>,
    },
    Wait {
        reason: Wait,
        until_ms: i64,
        ended_ms: Option<i64>,
    },
    Notice {
        level: Level,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    Agent,
    Subagent,
    Thinking,
    /// Lines that no adapter understands, or all output of an agent without one.
    Output,
    /// The agent's standard error.
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    RateLimit,
    Backoff,
    Paused,
    Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Info,
    Warning,
    Failure,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolItem {
    /// The agent's id of the call.
    #[serde(skip)]
    pub call: String,
    pub name: String,
    /// Path, command or pattern; may be empty.
    pub subject: String,
    pub status: ToolStatus,
    /// `+14 −3`, `118 lines`, `exit code 101, 6.2s`; empty while it runs.
    pub note: String,
    pub edit: Option<FileEdit>,
    /// The beginning of its output.
    pub preview: String,
    /// Lines in all; `preview` may have fewer.
    pub lines: u64,
    pub ended_ms: Option<i64>,
    pub is_subagent: bool,
    /// It only reads or searches: several in a row can be shown as one.
    pub is_lookup: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Running,
    Done,
    Failed,
    Denied,
    /// The agent ended before the call did.
    Abandoned,
}

impl ToolStatus {
    pub fn sign(self) -> &'static str {
        self.signs().0
    }

    pub fn ascii_sign(self) -> &'static str {
        self.signs().1
    }

    fn signs(self) -> (&'static str, &'static str) {
        match self {
            ToolStatus::Running => ("●", "*"),
            ToolStatus::Done => ("✓", "+"),
            ToolStatus::Failed | ToolStatus::Denied => ("✗", "x"),
            ToolStatus::Abandoned => ("~", "~"),
        }
    }
}

impl ToolItem {
    /// `Bash(cargo test)`.
    pub fn text(&self) -> String {
        match self.subject.as_str() {
            "" => self.name.clone(),
            subject => format!("{}({subject})", self.name),
        }
    }
}

/// A check of an iteration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckItem {
    pub command: String,
    /// `None` while it runs.
    pub mark: Option<CheckMark>,
    /// `3.1s`, `exit code 1, 1m44s`; empty while it runs.
    pub note: String,
    /// The file with its output.
    pub log: String,
}
