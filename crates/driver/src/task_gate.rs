//! The task list as a gate: read from the work tree, compared with the ledger outside of it.

use std::path::{Path, PathBuf};

use serde_json::json;

use ralph_events::event::Event;
use ralph_tasks as tasks;
use ralph_tasks::ledger::{Ledger, LedgerReview, ListProgress};
use ralph_tasks::verdict::overflowing_stories;
use ralph_tasks::{InvalidTaskList, TaskList, TaskProblem, changes, order};

use ralph_store::project::REMOVED_STORIES_FILE;
use ralph_tasks::ledger_store;

use super::run_spec::{RunSpec, TasksSpec};
use super::world::Files;

/// Problems listed one by one.
const MAX_PROBLEMS: usize = 20;

#[derive(Debug)]
pub(super) struct TaskGate {
    path: PathBuf,
    name: String,
    ledger: Ledger,
    /// The last readable version.
    list: Option<TaskList>,
    /// Doubtful stories that were already reported.
    reported_doubts: Vec<String>,
    progress: ListProgress,
    /// Stories that passed at the last report.
    reported_passing: Vec<String>,
    /// Stories that wait for an answer.
    parked: Vec<String>,
    problems: Vec<String>,
    /// Stories that replace others, at the last check.
    replacements: Vec<String>,
    /// No check was made yet.
    is_new: bool,
    snapshot: LedgerFile,
    /// File that returns removed stories to the agent if there are too many for the prompt, and its display name.
    /// An earlier run may have left one.
    restored_stories_file: (PathBuf, String),
    restored_file_may_exist: bool,
}

#[derive(Debug)]
struct LedgerFile {
    /// `None` if it is not writable.
    path: Option<PathBuf>,
    saved: Option<Ledger>,
}

#[derive(Debug)]
pub(super) struct GateReview {
    pub(super) review: LedgerReview,
    pub(super) has_changes: bool,
    pub(super) warnings: Vec<String>,
}

impl TaskGate {
    pub(super) fn new(spec: &TasksSpec, run: &RunSpec) -> TaskGate {
        let path = spec.snapshots.as_ref().map(|dir| ledger_store::path(dir, &run.run_id));
        let snapshot = LedgerFile { path, saved: None };
        TaskGate {
            path: spec.path.clone(),
            name: spec.name.clone(),
            ledger: spec.ledger.clone(),
            list: Some(spec.list.clone()),
            reported_doubts: spec.ledger.clone().review(&Ok(spec.list.clone())).doubtful,
            progress: ListProgress::of(&spec.list),
            reported_passing: passing(&spec.list),
            parked: Vec::new(),
            problems: Vec::new(),
            replacements: spec.ledger.replacements(&spec.list),
            is_new: true,
            snapshot,
            restored_stories_file: {
                let path = run.ralph_dir.join(REMOVED_STORIES_FILE);
                let shown = path.strip_prefix(&run.directory).unwrap_or(&path);
                let shown = shown.display().to_string();
                (path, shown)
            },
            restored_file_may_exist: true,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn review(&mut self, world: &mut impl Files) -> GateReview {
        let list = read(world, &self.path);
        let mut review = self.ledger.review(&list);
        let unkept = self.write_removed_stories(&mut review, world);
        let replaced = list.as_ref().ok().and_then(|list| self.replacements_message(list));
        self.list = list.ok();
        self.skip_parked(&mut review);
        let more = review.findings.len().saturating_sub(MAX_PROBLEMS);
        let more = (more > 0).then(|| format!("{}: and {more} more", self.name));
        let problems: Vec<String> = review
            .findings
            .iter()
            .take(MAX_PROBLEMS)
            .map(|it| format!("{}: {it}", self.name))
            .chain(more)
            .collect();
        let progress = review.progress.clone().unwrap_or_else(|| self.progress.clone());
        // When an earlier answer is checked, earlier findings were reported before.
        let is_first = std::mem::take(&mut self.is_new);
        let is_news = is_first || progress != self.progress || problems != self.problems;
        self.progress = progress;
        self.problems = problems;
        let warnings = replaced.into_iter().chain(unkept).chain(self.save(world)).collect();
        GateReview { review, has_changes: is_news, warnings }
    }

    /// Sets the stories that wait for an answer: the next review skips them.
    pub(super) fn set_parked(&mut self, parked: Vec<String>) {
        self.parked = parked;
    }

    pub(super) fn parked(&self) -> Vec<&str> {
        self.parked.iter().map(String::as_str).collect()
    }

    /// Id and title of the story to work on.
    pub(super) fn next_story(&self) -> Option<&(String, String)> {
        self.progress.next.as_ref()
    }

    /// Whether a story can start. An unreadable list has to be repaired first.
    pub(super) fn can_start(&self) -> bool {
        self.list.is_none() || self.progress.next.is_some()
    }

    fn skip_parked(&self, review: &mut LedgerReview) {
        if let (Some(progress), Some(list)) = (&mut review.progress, &self.list)
            && !self.parked.is_empty()
        {
            let next = order::next_except(list, &self.parked());
            progress.next = next.map(|story| (story.id.clone(), story.title.clone()));
        }
    }

    /// Writes the removed stories that do not fit into the prompt to a file, and removes the file once they are
    /// back.
    fn write_removed_stories(
        &mut self,
        review: &mut LedgerReview,
        world: &mut impl Files,
    ) -> Option<String> {
        let (path, shown) = &self.restored_stories_file;
        let Some(stories) = overflowing_stories(review) else {
            if std::mem::take(&mut self.restored_file_may_exist) {
                // A remaining file does no harm.
                let _ = world.remove(path);
            }
            return None;
        };
        let mut bytes = serde_json::to_vec_pretty(&json!({"userStories": stories})).ok()?;
        bytes.push(b'\n');
        match world.save(path, &bytes) {
            Ok(()) => {
                self.restored_file_may_exist = true;
                review.removed_stories_file = Some(shown.clone());
                None
            }
            Err(err) => Some(format!(
                "cannot save the stories removed from {} to {shown}: {err}",
                self.name
            )),
        }
    }

    fn replacements_message(&mut self, list: &TaskList) -> Option<String> {
        let now = self.ledger.replacements(list);
        let new = now.iter().filter(|it| !self.replacements.contains(it)).cloned();
        let new: Vec<String> = new.collect();
        self.replacements = now;
        (!new.is_empty()).then(|| format!("{}: {}", self.name, changes::first_few(&new)))
    }

    /// Reports stories that were marked by an interrupted attempt, if that is new.
    pub(super) fn doubts_message(&mut self, review: &LedgerReview) -> Option<String> {
        let new = review.doubtful.iter().filter(|id| !self.reported_doubts.contains(id)).cloned();
        let new: Vec<String> = new.collect();
        self.reported_doubts.clone_from(&review.doubtful);
        (!new.is_empty()).then(|| {
            format!(
                "{}: marked as passing by an interrupted attempt, so the agent is asked to look \
                 again: {}",
                self.name,
                changes::first_few(&new)
            )
        })
    }

    /// Ends an iteration: earlier marks are no longer doubtful, and the checks may have passed on them.
    pub(super) fn iteration_ended(&mut self, checks_passed: bool) {
        if let Some(list) = &self.list {
            self.ledger.iteration_ended(list, checks_passed);
            self.reported_doubts.clear();
        }
    }

    /// Ends the run: later changes are not the agent's.
    pub(super) fn finish(&mut self, world: &mut impl Files) -> Option<String> {
        self.ledger.finish_run(&read(world, &self.path));
        self.save(world)
    }

    pub(super) fn progress(&mut self) -> Event<'static> {
        let passing = self.list.as_ref().map_or_else(|| self.reported_passing.clone(), passing);
        let is_new = |id: &&String| !self.reported_passing.contains(id);
        let marked = passing.iter().filter(is_new).cloned().collect();
        self.reported_passing = passing;
        let (story, title) = self.progress.next.clone().unzip();
        Event::Tasks {
            done: count(self.progress.done),
            total: count(self.progress.total),
            story: story.map(Into::into),
            title: title.map(Into::into),
            problems: self.problems.clone(),
            unreadable: self.list.is_none(),
            marked,
        }
    }

    /// Saves the ledger for later runs. This run uses the one in memory, so a failure is only a warning, once.
    fn save(&mut self, world: &mut impl Files) -> Option<String> {
        if self.snapshot.saved.as_ref() == Some(&self.ledger) {
            return None;
        }
        self.snapshot.saved = Some(self.ledger.clone());
        let (list, name) = (self.path.to_string_lossy(), (&*self.name).into());
        let file = ledger_store::LedgerFileContent { list, name, ledger: &self.ledger };
        let bytes = serde_json::to_vec_pretty(&file).ok()?;
        let path = self.snapshot.path.as_ref()?;
        let err = world.save(path, &bytes).err()?;
        let message =
            format!("cannot save the progress of {} in {}: {err}", self.name, path.display());
        self.snapshot.path = None;
        Some(message)
    }
}

fn passing(list: &TaskList) -> Vec<String> {
    list.stories.iter().filter(|story| story.passes).map(|story| story.id.clone()).collect()
}

fn read(world: &mut impl Files, path: &Path) -> Result<TaskList, InvalidTaskList> {
    let bytes = world.read_tasks(path).map_err(|err| {
        let message = match err.kind() {
            std::io::ErrorKind::NotFound => "the file is missing".to_owned(),
            _ => format!("cannot be read: {err}"),
        };
        let problem = TaskProblem { story: None, field: None, message };
        InvalidTaskList { problems: vec![problem] }
    })?;
    tasks::parse(&bytes)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
