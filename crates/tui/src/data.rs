//! The data on the screen, gathered by [`app`](crate::app) from the monitor.

use std::collections::HashMap;

use jiff::tz::TimeZone;

use ralph_events::event::TodoItem;
use ralph_events::run_state::RunState;
use ralph_monitor::CheckLog;
use ralph_monitor::diff::{FileDiff, RunDiff};
use ralph_report::check_view::{CheckRun, CheckView};
use ralph_report::overview::{Overview, SectionKind};
use ralph_report::run_card::RunCard;
use ralph_report::story_view::StoryView;
use ralph_report::summary::Summary;
use ralph_report::transcript::Item;

#[derive(Debug)]
pub struct Data<'a> {
    pub overview: &'a Overview,
    pub now_ms: i64,
    pub zone: &'a TimeZone,
    /// The run of the preview or the run page.
    pub run: Option<RunData<'a>>,
    /// Since when journals are being read, by run.
    pub reading_since: &'a HashMap<String, i64>,
}

/// One run in full. What only one tab shows is there while that tab is.
#[derive(Debug)]
pub struct RunData<'a> {
    pub id: &'a str,
    pub state: &'a RunState,
    /// A part of the transcript, oldest first.
    pub items: Vec<&'a Item>,
    /// There are items before these.
    pub has_older: bool,
    /// There are items after these.
    pub has_newer: bool,
    pub todo: &'a [TodoItem],
    /// As the run was started with, if that is known.
    pub agent_command: Option<&'a str>,
    pub detail: &'a Detail,
}

/// The content of a run's tabs.
#[derive(Debug, Default)]
pub struct Detail {
    pub stories: Vec<StoryView>,
    /// Why there are no stories.
    pub stories_error: Option<String>,
    pub diff: DiffState,
    /// The changes of the file on the diff tab, by its path.
    pub file_diff: Option<(String, Result<FileDiff, String>)>,
    pub checks: Vec<CheckView>,
    /// The output of the check on the checks tab.
    pub check_output: Option<CheckOutput>,
    /// The ends of the logs of failed checks in the transcript.
    pub check_logs: HashMap<String, CheckLog>,
    pub summary: Option<Summary>,
}

#[derive(Debug, Default)]
pub enum DiffState {
    #[default]
    Unknown,
    /// git works on it.
    Loading,
    Failed(String),
    Ready(RunDiff),
}

#[derive(Debug)]
pub struct CheckOutput {
    pub run: CheckRun,
    pub log: Result<CheckLog, String>,
}

/// Most journals are read before a person could read the word.
pub(crate) const READING_DELAY_MS: i64 = 300;

impl Data<'_> {
    /// `reading 40%`, if that takes a while. A journal that waits for others shows what is known of it.
    pub fn reading_text(&self, card: &RunCard) -> Option<String> {
        let since = self.reading_since.get(&card.id)?;
        let percent = card.reading.filter(|percent| *percent > 0)?;
        if self.now_ms - since < READING_DELAY_MS {
            return None;
        }
        Some(format!("reading {percent}%"))
    }

    pub fn card(&self, id: &str) -> Option<&RunCard> {
        self.overview.cards().find(|card| card.id == id)
    }

    /// The data of a run, if it is the one that is loaded.
    pub fn run(&self, id: &str) -> Option<&RunData<'_>> {
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

    /// `12s`, `1m2s`.
    pub fn span(ms: i64) -> String {
        let seconds = u64::try_from(ms / 1000).unwrap_or(0);
        match seconds {
            0..60 => format!("{seconds}s"),
            _ => ralph_events::text::format_duration(seconds * 1000),
        }
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
