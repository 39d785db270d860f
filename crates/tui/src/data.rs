//! What the screen shows, gathered by [`app`](crate::app) from the monitor.

use jiff::tz::TimeZone;

use ralph_events::event::TodoItem;
use ralph_events::run_state::RunState;
use ralph_report::check_view::{CheckRun, CheckView};
use ralph_report::overview::{Overview, SectionKind};
use ralph_report::run_card::RunCard;
use ralph_report::story_view::StoryView;
use ralph_report::transcript::Item;

#[derive(Debug)]
pub struct Data {
    pub overview: Overview,
    pub now_ms: i64,
    pub zone: TimeZone,
    /// The run of the preview or the run page.
    pub run: Option<RunData>,
}

/// One run in full.
#[derive(Debug, Default)]
pub struct RunData {
    pub id: String,
    pub state: RunState,
    /// A part of the transcript, oldest first.
    pub items: Vec<Item>,
    /// There are items before these.
    pub has_older: bool,
    /// There are items after these.
    pub has_newer: bool,
    pub todo: Vec<TodoItem>,
    pub stories: Vec<StoryView>,
    /// Why there are no stories.
    pub stories_error: Option<String>,
    pub diff: DiffState,
    pub checks: Vec<CheckView>,
    /// The output of the check on the checks tab.
    pub check_output: Option<CheckOutput>,
    /// The ends of the logs of failed checks in `items`.
    pub check_logs: std::collections::HashMap<String, CheckOutputText>,
    /// The lines of the report.
    pub report: Vec<String>,
}

#[derive(Debug, Default)]
pub enum DiffState {
    #[default]
    Unknown,
    /// git works on it.
    Loading,
    Failed(String),
    Ready(Diff),
}

/// What a run changed.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Diff {
    pub commits: usize,
    pub added: u64,
    pub removed: u64,
    /// Not committed ones first.
    pub files: Vec<DiffFile>,
    /// Files that are not listed.
    pub more: usize,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct DiffFile {
    pub path: String,
    /// `M`, `A`, `D`, `R`.
    pub status: char,
    pub added: u64,
    pub removed: u64,
    pub is_committed: bool,
    pub lines: Vec<DiffLine>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum DiffLine {
    Hunk(String),
    Context { old: u64, new: u64, text: String },
    Removed { old: u64, text: String },
    Added { new: u64, text: String },
    /// A remark: binary, or too large.
    Note(String),
}

#[derive(Debug)]
pub struct CheckOutput {
    pub run: CheckRun,
    pub log: Result<CheckOutputText, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckOutputText {
    /// Lines in all.
    pub total: usize,
    /// The last lines.
    pub lines: Vec<String>,
}

impl Data {
    pub fn card(&self, id: &str) -> Option<&RunCard> {
        self.overview.cards().find(|card| card.id == id)
    }

    /// The data of a run, if it is the one that is loaded.
    pub fn run(&self, id: &str) -> Option<&RunData> {
        self.run.as_ref().filter(|run| run.id == id)
    }

    pub fn has_runs(&self) -> bool {
        self.overview.older > 0
            || self.overview.cards().next().is_some()
            || !self.overview.unreadable.is_empty()
    }

    /// `22:41`.
    pub fn clock(&self, ms: i64) -> String {
        let time = jiff::Timestamp::from_millisecond(ms).ok();
        time.map_or_else(String::new, |time| {
            self.zone.to_datetime(time).strftime("%H:%M").to_string()
        })
    }

    /// `5m ago`.
    pub fn ago(&self, since_ms: i64) -> String {
        let ms = u64::try_from(self.now_ms - since_ms).unwrap_or(0);
        format!("{} ago", ralph_events::text::format_minutes(ms))
    }

    /// The run with the oldest open question.
    pub fn oldest_question(&self) -> Option<&RunCard> {
        let cards = self.overview.section(SectionKind::NeedsYou).iter();
        cards
            .filter(|card| question_of(card).is_some())
            .min_by_key(|card| card.attention.as_ref().map(|attention| attention.since_ms))
    }
}

pub fn question_of(card: &RunCard) -> Option<&str> {
    card.attention.as_ref()?.question_id.as_deref()
}
