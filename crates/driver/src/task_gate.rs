//! The task list of a run as a gate: read from the work tree, judged by what is remembered outside of it.

use std::path::{Path, PathBuf};

use serde_json::json;

use ralph_events::event::Event;
use ralph_tasks as tasks;
use ralph_tasks::ledger::{Ledger, LedgerReview, TaskProgress};
use ralph_tasks::verdict::overflowing_stories;
use ralph_tasks::{InvalidTaskList, TaskList, TaskProblem, changes};

use ralph_store::project::REMOVED_STORIES_FILE;
use ralph_tasks::ledger_store;

use super::run_spec::{RunSpec, TasksSpec};
use super::world::World;

/// How many problems are told of one by one.
const MAX_PROBLEMS: usize = 20;

/// What a run knows of its task list.
#[derive(Debug)]
pub(super) struct TaskGate {
    path: PathBuf,
    name: String,
    ledger: Ledger,
    /// The list as it was last seen, if it could be read.
    list: Option<TaskList>,
    /// Stories that somebody has to look at first, as far as that was told.
    reported_doubts: Vec<String>,
    progress: TaskProgress,
    problems: Vec<String>,
    /// Which stories stand for others, by the last look.
    replacements: Vec<String>,
    /// Nobody has looked yet.
    is_new: bool,
    snapshot: LedgerFile,
    /// Where stories are given back to the agent that are too many to be told of, and the name by which
    /// it finds the file. There may be one that a run before left.
    restored_stories_file: (PathBuf, String),
    restored_file_may_exist: bool,
}

/// The ledger on disk.
#[derive(Debug)]
struct LedgerFile {
    /// In `$RALPH_HOME`. `None` if there is no such place, or it cannot be written.
    home: Option<PathBuf>,
    /// In the run directory.
    in_run: PathBuf,
    /// The revision that was saved last.
    saved: Option<u64>,
}

/// A look at the list.
#[derive(Debug)]
pub(super) struct GateReview {
    pub(super) review: LedgerReview,
    /// Something is other than at the last look.
    pub(super) has_changes: bool,
    pub(super) warnings: Vec<String>,
}

impl TaskGate {
    pub(super) fn new(spec: &TasksSpec, run: &RunSpec) -> TaskGate {
        let home = spec.snapshots.as_ref().map(|dir| ledger_store::path(dir, &run.run_id));
        let in_run = ledger_store::run_ledger_path(&run.ralph_dir.join("runs").join(&run.run_id));
        let snapshot = LedgerFile { home, in_run, saved: None };
        TaskGate {
            path: spec.path.clone(),
            name: spec.name.clone(),
            ledger: spec.ledger.clone(),
            list: Some(spec.list.clone()),
            reported_doubts: spec.ledger.clone().review(&Ok(spec.list.clone())).doubtful,
            progress: TaskProgress::of(&spec.list),
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

    pub(super) fn review(&mut self, world: &mut impl World) -> GateReview {
        let list = read(world, &self.path);
        let mut review = self.ledger.review(&list);
        let unkept = self.write_removed_stories(&mut review, world);
        let replaced = list.as_ref().ok().and_then(|list| self.replacements_message(list));
        self.list = list.ok();
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
        // Where an answer that came before this process is checked, what was told then was told before it.
        let is_first = std::mem::take(&mut self.is_new);
        let is_news = is_first || progress != self.progress || problems != self.problems;
        self.progress = progress;
        self.problems = problems;
        let warnings = replaced.into_iter().chain(unkept).chain(self.save(world)).collect();
        GateReview { review, has_changes: is_news, warnings }
    }

    /// Puts the stories that are too many to be told of where the agent finds them, and takes them away
    /// once it has them again.
    fn write_removed_stories(
        &mut self,
        review: &mut LedgerReview,
        world: &mut impl World,
    ) -> Option<String> {
        let (path, shown) = &self.restored_stories_file;
        let Some(stories) = overflowing_stories(review) else {
            if std::mem::take(&mut self.restored_file_may_exist) {
                // One that stays does no harm.
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
                "the stories that {} has lost cannot be given back to the agent in {shown}: {err}",
                self.name
            )),
        }
    }

    /// What an agent has put in the place of what, for whoever reads about it in the morning.
    fn replacements_message(&mut self, list: &TaskList) -> Option<String> {
        let now = self.ledger.replacements(list);
        let new = now.iter().filter(|it| !self.replacements.contains(it)).cloned();
        let new: Vec<String> = new.collect();
        self.replacements = now;
        (!new.is_empty()).then(|| format!("{}: {}", self.name, changes::first_few(&new)))
    }

    /// Which stories pass by the word of an attempt that did not come to its end, if that is news.
    pub(super) fn doubts_message(&mut self, review: &LedgerReview) -> Option<String> {
        let new = review.doubtful.iter().filter(|id| !self.reported_doubts.contains(id)).cloned();
        let new: Vec<String> = new.collect();
        self.reported_doubts.clone_from(&review.doubtful);
        (!new.is_empty()).then(|| {
            format!(
                "{}: marked as passing by an attempt that did not come to its end, so that the agent is \
                 asked to look again: {}",
                self.name,
                changes::first_few(&new)
            )
        })
    }

    /// An iteration came to its end, and with it the doubt about what others had marked before it; the
    /// checks may have passed on the work that the list tells of.
    pub(super) fn iteration_ended(&mut self, checks_passed: bool) {
        if let Some(list) = &self.list {
            self.ledger.iteration_ended(list, checks_passed);
            self.reported_doubts.clear();
        }
    }

    /// The run is over. What is different from now on was not done by its agents.
    pub(super) fn finish(&mut self, world: &mut impl World) -> Option<String> {
        self.ledger.finish_run(&read(world, &self.path));
        self.save(world)
    }

    /// How far the work is, by the last look.
    pub(super) fn progress(&self) -> Event<'static> {
        let (story, title) = self.progress.next.clone().unzip();
        Event::Tasks {
            done: count(self.progress.done),
            total: count(self.progress.total),
            story: story.map(Into::into),
            title: title.map(Into::into),
            problems: self.problems.clone(),
            unreadable: self.list.is_none(),
        }
    }

    /// Saves the ledger for later runs. This run uses the one in memory, so a failure is only a warning, once.
    fn save(&mut self, world: &mut impl World) -> Option<String> {
        let revision = Some(self.ledger.revision());
        if self.snapshot.saved == revision {
            return None;
        }
        self.snapshot.saved = revision;
        let (list, name) = (self.path.to_string_lossy(), (&*self.name).into());
        let file = ledger_store::LedgerFileContent { list, name, ledger: &self.ledger };
        let bytes = serde_json::to_vec_pretty(&file).ok()?;
        // The copy for a project that moves, and for a home that is full or fresh.
        let _ = world.save(&self.snapshot.in_run, &bytes);
        let path = self.snapshot.home.as_ref()?;
        let err = world.save(path, &bytes).err()?;
        let message = format!(
            "what is remembered of {} cannot be kept in {}: {err}",
            self.name,
            path.display()
        );
        self.snapshot.home = None;
        Some(message)
    }
}

fn read(world: &mut impl World, path: &Path) -> Result<TaskList, InvalidTaskList> {
    let bytes = world.read_tasks(path).map_err(|err| {
        let message = match err.kind() {
            std::io::ErrorKind::NotFound => "the file is gone".to_owned(),
            _ => format!("cannot be read: {err}"),
        };
        let problem = TaskProblem { story: None, field: None, message };
        InvalidTaskList { problems: vec![problem], is_truncated: false }
    })?;
    tasks::parse(&bytes)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
