//! Gathers what the screen shows: reads journals, task lists, logs and the work tree.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_monitor::diff::{DiffFile, FileDiff, RunDiff};
use ralph_monitor::{
    Hit, Monitor, StoriesError, TranscriptWindow, agent_command, diff, read_check_log,
    read_stories, read_summary,
};
use ralph_report::check_view::{CheckMark, CheckView, checks};
use ralph_report::overview::Overview;
use ralph_report::story_view::stories;
use ralph_report::summary::Summary;
use ralph_report::transcript::{Item, ItemKind};

use crate::data::{CheckOutput, Data, Detail, DiffState, READING_DELAY_MS, RunData};
use crate::model::{Model, Tab};

/// Lines of a log that are read. All of it with `Enter`.
const LOG_LINES: usize = 400;
const WHOLE_LOG_LINES: usize = 20_000;
/// Lines of a failed check in the transcript.
const LOG_PREVIEW: usize = 6;
/// The diff of a working run is not read more often: after an edit, a commit or an iteration, while it is shown, and
/// otherwise.
const CHANGED_DIFF_MS: i64 = 500;
const SHOWN_DIFF_MS: i64 = 2_000;
const DIFF_MS: i64 = 15_000;
const MAX_HITS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) monitor: Monitor,
    overview: Overview,
    now_ms: i64,
    shown: Option<ShownRun>,
    reading_since: HashMap<String, i64>,
}

/// The run that is selected.
#[derive(Debug)]
struct ShownRun {
    id: String,
    window: TranscriptWindow,
    agent_command: Option<String>,
    detail: Detail,
    /// The tab, story, file or check that `detail` was read for.
    read_for: Option<ReadFor>,
    diff_read_ms: i64,
    /// git works on it.
    is_reading_diff: bool,
    is_diff_stale: bool,
    is_file_stale: bool,
    /// The run is known to have changed files since the diff was read.
    has_new_work: bool,
    work: Work,
    is_summary_stale: bool,
    search: Option<RunningSearch>,
}

/// Changes when a run has committed, or has ended an iteration.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    commits: u32,
    iterations: usize,
    has_ended: bool,
}

impl Work {
    fn of(run: &RunState) -> Work {
        Work {
            commits: run.repository.commit_count,
            iterations: run.iterations.iter().filter(|iteration| iteration.ended).count(),
            has_ended: run.end.is_some(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadFor {
    tab: Tab,
    file: usize,
    check: usize,
    iteration: Option<u32>,
    whole_output: bool,
}

#[derive(Debug)]
struct RunningSearch {
    parts: ralph_monitor::Search,
    hits: Vec<u64>,
}

/// Something to read in the thread for jobs.
#[derive(Debug)]
pub(crate) enum ReadJob {
    Run { id: String, directory: PathBuf, state: Box<RunState> },
    File { id: String, directory: PathBuf, diff: RunDiff, file: DiffFile },
    Summary { id: String, state: Box<RunState>, now_ms: Option<i64> },
}

#[derive(Debug)]
pub(crate) enum ReadResult {
    Run { id: String, result: Result<RunDiff, Error> },
    File { id: String, path: String, result: Result<FileDiff, Error> },
    Summary { id: String, summary: Box<Summary> },
}

impl ReadJob {
    pub(crate) fn run(self) -> ReadResult {
        match self {
            ReadJob::Run { id, directory, state } => {
                ReadResult::Run { id, result: diff::run_diff(&directory, &state) }
            }
            ReadJob::File { id, directory, diff, file } => {
                let result = diff::file_diff(&directory, &diff, &file);
                ReadResult::File { id, path: file.path, result }
            }
            ReadJob::Summary { id, state, now_ms } => {
                let summary = Box::new(read_summary(&state, now_ms));
                ReadResult::Summary { id, summary }
            }
        }
    }
}

impl Source {
    pub(crate) fn new(monitor: Monitor, now_ms: i64) -> Source {
        let overview = monitor.overview(now_ms);
        let reading_since = HashMap::new();
        Source { monitor, overview, now_ms, shown: None, reading_since }
    }

    pub(crate) fn data(&self) -> Data<'_> {
        let run = self.shown.as_ref().and_then(|shown| {
            Some(RunData {
                id: &shown.id,
                state: self.monitor.state(&shown.id)?,
                items: shown.window.items().collect(),
                has_older: !shown.window.is_at_start(),
                has_newer: !shown.window.is_at_end(),
                todo: shown.window.todo(),
                agent_command: shown.agent_command.as_deref(),
                detail: &shown.detail,
            })
        });
        Data {
            overview: &self.overview,
            now_ms: self.now_ms,
            zone: self.monitor.zone(),
            run,
            reading_since: &self.reading_since,
        }
    }

    /// The id of the run with this name, id, beginning of an id, or last four characters of it.
    pub(crate) fn find(&self, wanted: &str) -> Result<String, Error> {
        let named = self
            .overview
            .cards()
            .filter(|card| card.name == wanted)
            .max_by_key(|card| card.started_ms);
        if let Some(card) = named {
            return Ok(card.id.clone());
        }
        let is_wanted =
            |id: &&str| id.starts_with(wanted) || wanted.len() == 4 && id.ends_with(wanted);
        let mut ids = self.monitor.ids().filter(is_wanted);
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id.to_owned()),
            (Some(first), Some(second)) => {
                let message = format!("{wanted:?} matches several runs: {first}, {second}, …");
                Err(Error::usage(message).hint("use more of the id, or a name: ralph ls"))
            }
            (None, _) => Err(Error::usage(format!("no run has the name or id '{wanted}'"))
                .hint("list them: ralph ls")),
        }
    }

    pub(crate) fn set_time(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.refresh_overview();
    }

    fn refresh_overview(&mut self) {
        self.overview = self.monitor.overview(self.now_ms);
        let reading = self.overview.cards().filter(|card| card.reading.is_some());
        let known = std::mem::take(&mut self.reading_since);
        self.reading_since = reading
            .map(|card| (card.id.clone(), known.get(&card.id).copied().unwrap_or(self.now_ms)))
            .collect();
    }

    /// When a journal has been read for so long that the screen says so.
    pub(crate) fn reading_due_ms(&self) -> Option<i64> {
        let since = self.reading_since.values().min()?;
        Some(since + READING_DELAY_MS).filter(|due| *due > self.now_ms)
    }

    /// Takes in changes. Returns how many items the shown transcript has more.
    pub(crate) fn update(&mut self, now_ms: i64) -> usize {
        let changes = self.monitor.update();
        self.set_time(now_ms);
        let Some(shown) = self.shown.as_mut().filter(|shown| changes.runs.contains(&shown.id))
        else {
            return 0;
        };
        shown.read_for = None;
        shown.is_diff_stale = true;
        let before = shown.window.items().next_back().map_or(0, |item| item.id);
        // A journal that is gone keeps what was read of it.
        let changed = shown.window.update().map(|update| update.changed).unwrap_or_default();
        let is_edited = |item: &Item| match &item.kind {
            ItemKind::Tool(tool) => tool.edit.is_some() && tool.ended_ms.is_some(),
            _ => false,
        };
        let work = self.monitor.state(&shown.id).map(Work::of).unwrap_or_default();
        shown.has_new_work |= work != shown.work
            || shown.window.items().any(|item| changed.contains(&item.id) && is_edited(item));
        shown.work = work;
        shown.window.items().rev().take_while(|item| item.id > before).count()
    }

    /// Reads what the model shows. Returns work for the thread.
    pub(crate) fn prepare(&mut self, model: &Model) -> Option<ReadJob> {
        self.open_run(model.shown_run());
        let shown = self.shown.as_mut()?;
        let state = self.monitor.state(&shown.id)?;
        let dir = self.monitor.run_dir(&shown.id)?;
        let wanted = ReadFor {
            tab: model.tab,
            file: model.pages.diff.at,
            check: model.pages.checks.at,
            iteration: model.pages.checks.iteration,
            whole_output: model.pages.checks.whole_output,
        };
        if shown.read_for.as_ref() != Some(&wanted) {
            let is_alive = self.monitor.is_alive(&shown.id);
            let detail = &mut shown.detail;
            match model.tab {
                Tab::Activity => {}
                Tab::Stories => detail.read_stories(state, is_alive),
                Tab::Diff => {}
                Tab::Checks => {
                    detail.checks = checks(state);
                    detail.check_output = check_output(detail, state, dir, &wanted);
                }
                Tab::Report => {
                    shown.is_summary_stale = true;
                    let now_ms = is_alive.then_some(self.now_ms);
                    // Shown until git has answered.
                    detail.summary.get_or_insert_with(|| Summary::of(state, now_ms));
                }
            }
            shown.read_for = Some(wanted);
        }
        shown.read_check_logs(dir);
        if std::mem::take(&mut shown.is_summary_stale) {
            let now_ms = self.monitor.is_alive(&shown.id).then_some(self.now_ms);
            let (id, state) = (shown.id.clone(), Box::new(state.clone()));
            return Some(ReadJob::Summary { id, state, now_ms });
        }
        shown.diff_job(model, state, self.now_ms)
    }

    /// When [`Source::prepare`] has work that no change announces.
    pub(crate) fn next_read_ms(&self, tab: Tab) -> Option<i64> {
        self.shown.as_ref()?.diff_due_ms(tab)
    }

    fn open_run(&mut self, id: Option<&str>) {
        if self.shown.as_ref().map(|shown| shown.id.as_str()) == id {
            return;
        }
        self.shown = id.and_then(|id| {
            let run = self.monitor.run(id)?;
            let (directory, work) = (run.info.directory.clone(), Work::of(run));
            let dir = self.monitor.run_dir(id)?;
            let window = TranscriptWindow::open(dir, &directory).ok()?;
            Some(ShownRun {
                id: id.to_owned(),
                window,
                agent_command: agent_command(dir),
                detail: Detail::default(),
                read_for: None,
                diff_read_ms: 0,
                is_reading_diff: false,
                is_diff_stale: true,
                is_file_stale: false,
                has_new_work: false,
                work,
                is_summary_stale: false,
                search: None,
            })
        });
        if self.shown.is_some() {
            // Reading it may have added a card.
            self.refresh_overview();
        }
    }

    pub(crate) fn take_read(&mut self, result: ReadResult) {
        let Some(shown) = &mut self.shown else { return };
        match result {
            ReadResult::Run { id, result } if id == shown.id => {
                shown.detail.diff = match result {
                    Ok(diff) => DiffState::Ready(diff),
                    Err(err) => DiffState::Failed(err.message),
                };
                (shown.is_reading_diff, shown.is_file_stale) = (false, true);
                shown.diff_read_ms = self.now_ms;
            }
            ReadResult::File { id, path, result } if id == shown.id => {
                shown.detail.file_diff = Some((path, result.map_err(|err| err.message)));
            }
            ReadResult::Summary { id, summary } if id == shown.id => {
                shown.detail.summary = Some(*summary);
            }
            _ => {}
        }
    }

    pub(crate) fn window(&mut self) -> Option<&mut TranscriptWindow> {
        self.shown.as_mut().map(|shown| &mut shown.window)
    }

    pub(crate) fn start_search(&mut self, text: &str) {
        if let Some(shown) = &mut self.shown {
            let parts = shown.window.search(text).ok();
            shown.search = parts.map(|parts| RunningSearch { parts, hits: Vec::new() });
        }
    }

    pub(crate) fn is_searching(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.search.is_some())
    }

    /// Searches the next part. Returns the hits so far, and whether there are more parts.
    pub(crate) fn search_on(&mut self) -> Option<(Vec<u64>, bool)> {
        let search = &mut self.shown.as_mut()?.search;
        let running = search.as_mut()?;
        let part: Option<Vec<Hit>> = running.parts.next();
        let is_running = part.is_some() && running.hits.len() < MAX_HITS;
        running.hits.extend(part.into_iter().flatten().map(|hit| hit.position));
        let hits = running.hits.clone();
        if !is_running {
            *search = None;
        }
        Some((hits, is_running))
    }

    pub(crate) fn end_search(&mut self) {
        if let Some(shown) = &mut self.shown {
            shown.search = None;
        }
    }
}

impl ShownRun {
    /// The logs of failed checks that the transcript shows.
    fn read_check_logs(&mut self, dir: &ralph_store::runs::RunDir) {
        let failed = self.window.items().rev().take(400).filter_map(|item| match &item.kind {
            ItemKind::Check(check) if check.mark == Some(CheckMark::Failed) => Some(&check.log),
            _ => None,
        });
        for log in failed {
            if !self.detail.check_logs.contains_key(log) {
                let lines = read_check_log(dir, log, LOG_PREVIEW).unwrap_or_default();
                self.detail.check_logs.insert(log.clone(), lines);
            }
        }
    }

    /// When the diff has to be read again.
    fn diff_due_ms(&self, tab: Tab) -> Option<i64> {
        let interval = match tab {
            _ if self.has_new_work => CHANGED_DIFF_MS,
            Tab::Diff => SHOWN_DIFF_MS,
            _ => DIFF_MS,
        };
        let is_due = self.is_diff_stale && !self.is_reading_diff;
        is_due.then_some(self.diff_read_ms + interval)
    }

    fn diff_job(&mut self, model: &Model, state: &RunState, now_ms: i64) -> Option<ReadJob> {
        let directory = PathBuf::from(&state.info.directory);
        let id = self.id.clone();
        if self.diff_due_ms(model.tab).is_some_and(|due| due <= now_ms) {
            if matches!(self.detail.diff, DiffState::Unknown) {
                self.detail.diff = DiffState::Loading;
            }
            (self.is_reading_diff, self.is_diff_stale, self.has_new_work) = (true, false, false);
            return Some(ReadJob::Run { id, directory, state: Box::new(state.clone()) });
        }
        let DiffState::Ready(diff) = &self.detail.diff else { return None };
        if model.tab != Tab::Diff {
            return None;
        }
        let file = diff.files.get(model.pages.diff.at.min(diff.files.len().checked_sub(1)?))?;
        let is_known = self.detail.file_diff.as_ref().is_some_and(|(path, _)| *path == file.path);
        if is_known && !std::mem::take(&mut self.is_file_stale) {
            return None;
        }
        if !is_known {
            // Asked for once. Known changes stay until the new ones are read.
            self.detail.file_diff = Some((file.path.clone(), Err("reading".to_owned())));
            self.is_file_stale = false;
        }
        Some(ReadJob::File { id, directory, diff: diff.clone(), file: file.clone() })
    }
}

impl Detail {
    fn read_stories(&mut self, state: &RunState, is_alive: bool) {
        self.stories_error = None;
        match read_stories(Path::new(&state.info.directory)) {
            Ok(list) => self.stories = stories(&list, state, is_alive),
            Err(error) => {
                self.stories.clear();
                self.stories_error = Some(match error {
                    StoriesError::None => "This run has no task list.".to_owned(),
                    StoriesError::Unreadable(reason) => {
                        format!("The task list cannot be read: {reason}")
                    }
                });
            }
        }
    }
}

/// The output of the chosen check: of the chosen iteration, of a current failure, or of the last one.
fn check_output(
    detail: &Detail,
    state: &RunState,
    dir: &ralph_store::runs::RunDir,
    wanted: &ReadFor,
) -> Option<CheckOutput> {
    let check = detail.checks.get(wanted.check.min(detail.checks.len().checked_sub(1)?))?;
    let mut runs = CheckView::runs_of(state, &check.command);
    let run = match wanted.iteration {
        Some(iteration) => runs.iter().position(|run| run.iteration == iteration),
        None => None,
    };
    let run = match run {
        Some(at) => runs.swap_remove(at),
        None => check.last_failure.clone().or_else(|| check.latest.clone())?,
    };
    let lines = if wanted.whole_output { WHOLE_LOG_LINES } else { LOG_LINES };
    let log = read_check_log(dir, &run.log, lines)
        .map_err(|err| format!("The log cannot be read: {err}"));
    Some(CheckOutput { run, log })
}
