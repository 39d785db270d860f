//! What a person should know besides the figures: warnings, refusals, an agent's last words.

use serde::Serialize;

use crate::event::{Leftover, StallReason, Stream};
use crate::text;

/// Different entries that a list keeps; further ones are only counted.
const MAX_LISTED: usize = 50;
/// Characters kept of a line on standard error.
const MAX_STDERR: usize = 500;

/// Warnings and refusals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Notices {
    pub warnings: Listed<Warning>,
    /// How many of the listed warnings came before the first iteration.
    pub early_warnings: usize,
    /// Tool calls and network connections that were refused.
    pub denied: Listed<String>,
    pub last_words: LastWords,
    /// When the rate limit ends that the last agent met.
    pub limit_ends_ms: Option<i64>,
    /// The sandbox backend.
    pub sandbox: Option<String>,
}

/// A warning. The readers turn figures into words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    Message {
        message: String,
    },
    /// What a killed run had left running was ended.
    Recovered {
        run: String,
        processes: Vec<Leftover>,
    },
    /// What the agent of a killed run had planted was moved aside.
    Planted {
        message: String,
    },
    /// The loop makes no progress.
    Stalling {
        reason: StallReason,
        iterations: u32,
        limit: Option<u32>,
    },
    /// The agent is silent while none of its tools runs.
    ModelSilent {
        silent_ms: u64,
        limit_ms: u64,
    },
}

/// The first different entries of a list, and how many there were in all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    pub total: u32,
    pub first: Vec<Repeated<T>>,
}

/// An entry, and how often it occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repeated<T> {
    #[serde(rename = "text")]
    pub item: T,
    pub times: u32,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Listed { total: 0, first: Vec::new() }
    }
}

impl<T: PartialEq> Listed<T> {
    pub fn push(&mut self, item: T) {
        self.total = self.total.saturating_add(1);
        if let Some(known) = self.first.iter_mut().find(|known| known.item == item) {
            known.times = known.times.saturating_add(1);
        } else if self.first.len() < MAX_LISTED {
            self.first.push(Repeated { item, times: 1 });
        }
    }

    /// Returns how many are not in the list.
    pub fn omitted_count(&self) -> u32 {
        let listed = self.first.iter().fold(0_u32, |sum, entry| sum.saturating_add(entry.times));
        self.total.saturating_sub(listed)
    }
}

impl Notices {
    pub(super) fn warn(&mut self, warning: Warning, before_work: bool) {
        self.warnings.push(warning);
        if before_work {
            self.early_warnings = self.warnings.first.len();
        }
    }

    pub(super) fn agent_started(&mut self) {
        self.limit_ends_ms = None;
        self.last_words = LastWords::default();
    }
}

/// The last line of standard error that explains something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct LastWords {
    pub line: String,
    /// The line is a message, not part of a stack trace.
    #[serde(skip)]
    is_message: bool,
    /// The unfinished line is ignored.
    #[serde(skip)]
    skipping: bool,
}

impl LastWords {
    /// Takes in output of the agent. `joined` text continues the line before it.
    pub(super) fn hear(&mut self, stream: Stream, text: &str, joined: bool) {
        if stream != Stream::Stderr || text.trim().is_empty() {
            return;
        }
        if !joined {
            // The tail of a stack trace, or a closing brace, explains less than the message before it.
            let is_message =
                !text.starts_with(char::is_whitespace) && text.chars().any(char::is_alphanumeric);
            self.skipping = !is_message && self.is_message;
            if !self.skipping {
                self.is_message = is_message;
                self.line.clear();
            }
        }
        if !self.skipping && self.line.len() < MAX_STDERR {
            self.line.push_str(text::prefix(text.trim_end(), MAX_STDERR));
        }
    }
}
