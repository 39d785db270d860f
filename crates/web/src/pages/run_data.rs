//! Collects the data of a run's pages.

use std::collections::HashMap;

use ralph_events::run_state::{IterationRecord, RunState};
use ralph_monitor::Monitor;
use ralph_report::check_view::{self, CheckView};
use ralph_report::run_card::RunCard;
use ralph_store::runs::RunDir;

use super::run::Tab;
use super::signs::{self, CheckedIterations};
use crate::app::App;

/// The data of a run's pages.
pub(crate) struct RunData {
    pub card: RunCard,
    pub dir: RunDir,
    /// The story of each iteration.
    pub stories: HashMap<u32, (String, String)>,
    pub checked: CheckedIterations,
    pub tab: TabData,
}

/// The data of one tab.
pub(crate) enum TabData {
    Activity,
    Stories(Box<RunState>),
    Diff(Box<RunState>),
    Checks(Vec<CheckView>),
    Costs,
    Report(Box<RunState>),
}

/// Runs on the monitor's thread.
fn collect(monitor: &mut Monitor, id: &str, tab: Tab, now: i64) -> Option<RunData> {
    let state = monitor.run(id)?;
    let story = |record: &IterationRecord| {
        let story = record.story.as_ref()?;
        Some((record.number, (signs::clean(&story.id), signs::clean(&story.title))))
    };
    let stories = state.iterations.iter().filter_map(story).collect();
    let checked = CheckedIterations::of(state);
    let tab = match tab {
        Tab::Activity => TabData::Activity,
        Tab::Stories => TabData::Stories(Box::new(state.clone())),
        Tab::Diff => TabData::Diff(Box::new(state.clone())),
        Tab::Checks => TabData::Checks(check_view::checks(state)),
        Tab::Costs => TabData::Costs,
        Tab::Report => TabData::Report(Box::new(state.clone())),
    };
    let dir = monitor.run_dir(id)?.clone();
    Some(RunData { card: monitor.card(id, now)?, dir, stories, checked, tab })
}

impl RunData {
    /// `None` if there is no such run.
    pub(crate) async fn load(app: &App, id: &str, tab: Tab) -> Option<RunData> {
        let (id, now_ms) = (id.to_owned(), app.now_ms());
        app.hub.ask(move |monitor| collect(monitor, &id, tab, now_ms)).await?
    }
}
