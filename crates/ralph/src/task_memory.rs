//! What ralph knows of a task list before a run: from the last run's ledger, or from git.

use ralph_events::error::Error;
use ralph_events::run_state::{RunState, TaskProgress};
use ralph_git::file_history::{HistoryExtent, file_versions};
use ralph_store::project::Project;
use ralph_store::runs;
use ralph_tasks as task_list;
use ralph_tasks::changes::{self, ListChanges};
use ralph_tasks::documents::{Documents, TASKS, without_placeholder};
use ralph_tasks::ledger::Ledger;
use ralph_tasks::ledger_store::{LastLedger, LastRun, LedgerPaths};
use ralph_tasks::{TaskList, verdict};

use super::commands::tasks;

pub(super) struct TaskMemory {
    pub(super) ledger: Ledger,
    pub(super) changes: ListChanges,
    /// For messages: `run 20261113-202752-0a1b`.
    source: Option<String>,
    pub(super) ledger_problem: Option<String>,
}

/// A task list, and where earlier runs left what they know of it.
pub(super) struct ListHistory<'a> {
    pub(super) project: &'a Project,
    pub(super) documents: &'a Documents,
}

impl ListHistory<'_> {
    pub(super) fn ledger_paths(&self) -> LedgerPaths {
        LedgerPaths::new(self.project, &self.documents.path(TASKS))
    }

    /// Fails if removed stories could go unnoticed. `has_guardrails`: those count as checks.
    pub(super) fn load(&self, has_guardrails: bool) -> Result<(TaskList, TaskMemory), Error> {
        let list = tasks::read_valid(self.documents)?;
        let LastLedger { last, unreadable } = self.ledger_paths().load_last();
        let (name, why) = (self.documents.display_path(TASKS), unreadable.join("; "));
        let lost = (!why.is_empty()).then(|| format!("cannot read the history of {name}: {why}"));
        let memory = match last {
            LastRun::Run(run, ledger) => {
                // A later, unreadable ledger may have known more.
                let ledger = if lost.is_none() { *ledger } else { ledger.reopened() };
                let memory = TaskMemory::from_ledger(&run, ledger, &list, has_guardrails);
                TaskMemory { ledger_problem: lost, ..memory }
            }
            LastRun::Reset if lost.is_none() => TaskMemory::from_list(&list),
            LastRun::Reset | LastRun::Unknown => self.load_history(&list, lost)?,
        };
        Ok((list, memory))
    }

    /// For a resumed run, by its own ledger. A list that is broken in mid-run is left to its agent.
    pub(super) fn load_run(
        &self,
        run: &str,
        has_guardrails: bool,
    ) -> Result<(TaskList, TaskMemory), Error> {
        let Ok(ledger) = self.ledger_paths().read(run) else {
            let list = tasks::read_valid(self.documents)?;
            let lost = format!(
                "this run's record of {} is gone, so stories that its agent removed may go \
                 unnoticed",
                self.documents.display_path(TASKS)
            );
            let memory = self.load_history(&list, Some(lost))?;
            return Ok((list, memory));
        };
        Ok(match tasks::read(self.documents) {
            Ok(list) => {
                let memory = TaskMemory::from_ledger(run, ledger.reopened(), &list, has_guardrails);
                (list, memory)
            }
            Err(_) => {
                let source = Some(format!("run {run}"));
                (
                    ledger.list(),
                    TaskMemory { source, ..TaskMemory::new(ledger, ListChanges::default()) },
                )
            }
        })
    }

    pub(super) fn knows_story(&self, id: &str) -> bool {
        match self.ledger_paths().load_last().last {
            LastRun::Run(_, ledger) => ledger.knows_story(id),
            LastRun::Reset | LastRun::Unknown => false,
        }
    }

    /// Removed, but still owed.
    pub(super) fn missing_story_count(&self, list: &TaskList) -> usize {
        let Some((_, mut ledger, _)) = self.compare_with_last_run(list) else { return 0 };
        let review = ledger.review(&Ok(list.clone()));
        review.progress.map_or(0, |progress| progress.total - list.stories.len())
    }

    /// Reasons to doubt a list whose stories are all marked as passing.
    pub(super) fn completeness_doubts(&self, list: &TaskList) -> Option<String> {
        let (source, mut ledger, list_changes) = self.compare_with_last_run(list)?;
        let mut doubts = list_changes.losses();
        let review = ledger.review(&Ok(list.clone()));
        let vetoes = review.findings.iter().filter(|it| it.vetoes()).map(ToString::to_string);
        doubts.extend(vetoes);
        if !review.unverified.is_empty() {
            doubts
                .push(format!("no check has passed on {}", changes::first_few(&review.unverified)));
        }
        let few = verdict::first_few(&doubts);
        (!few.is_empty()).then(|| format!("according to {source}, {few}"))
    }

    fn compare_with_last_run(&self, list: &TaskList) -> Option<(String, Ledger, ListChanges)> {
        match self.ledger_paths().load_last().last {
            LastRun::Run(run, ledger) => {
                let (ledger, list_changes) = ledger.after_previous_run(list, true);
                Some((format!("run {run}"), ledger, list_changes))
            }
            LastRun::Reset => None,
            LastRun::Unknown => {
                let (versions, _) = committed_versions(self.documents).ok()?;
                let ledger = Ledger::from_versions(list, &versions);
                (!versions.is_empty()).then(|| ("git".to_owned(), ledger, ListChanges::default()))
            }
        }
    }

    /// Rebuilds the memory from git. `lost` says why the ledger is unusable. Fails if the history
    /// is incomplete: a removed story would go unnoticed.
    fn load_history(&self, list: &TaskList, lost: Option<String>) -> Result<TaskMemory, Error> {
        let documents = self.documents;
        let name = documents.display_path(TASKS);
        let unknown = |why: String, hint: &str| {
            let accept = documents.command_line("ralph work --accept-list");
            Error::input(format!("cannot tell whether {name} has lost stories or checks: {why}"))
                .hint(hint)
                .hint(format!("to accept the list: {accept}"))
        };
        let (versions, extent) = committed_versions(documents).map_err(|err| {
            unknown(
                format!("cannot read its history: {}", err.message),
                "check the repository with `git log`",
            )
        })?;
        if extent == HistoryExtent::Truncated {
            let why = "this is a shallow clone with a truncated history".to_owned();
            return Err(unknown(why, "git fetch --unshallow"));
        }
        if let Some(more) =
            journal_mismatch_warning(self.project, list).filter(|_| versions.is_empty())
        {
            return Err(unknown(more, "restore what is missing"));
        }
        let (memory, problem) = if !versions.is_empty() {
            let ledger = Ledger::from_versions(list, &versions);
            let problem = lost.map(|lost| format!("{lost}; using its git history instead"));
            (TaskMemory::new(ledger, ListChanges::default()), problem)
        } else if lost.is_some() {
            let (ledger, list_changes) = Ledger::with_marks_in_doubt(list);
            (TaskMemory::new(ledger, list_changes), lost)
        } else {
            let problem =
                format!("no earlier record of {name}, from a run or in git: accepting it as it is");
            (TaskMemory::from_list(list), Some(problem))
        };
        Ok(TaskMemory { ledger_problem: problem, ..memory })
    }
}

impl TaskMemory {
    fn new(ledger: Ledger, changes: ListChanges) -> TaskMemory {
        TaskMemory { ledger, changes, source: None, ledger_problem: None }
    }

    pub(super) fn from_list(list: &TaskList) -> TaskMemory {
        TaskMemory::new(Ledger::new(list), ListChanges::default())
    }

    fn from_ledger(run: &str, ledger: Ledger, list: &TaskList, has_guardrails: bool) -> TaskMemory {
        let has_checks = has_guardrails || !ledger.verify_commands().is_empty();
        let (ledger, list_changes) = ledger.after_previous_run(list, has_checks);
        let source = Some(format!("run {run}"));
        TaskMemory { source, ..TaskMemory::new(ledger, list_changes) }
    }

    pub(super) fn source(&self) -> &str {
        self.source.as_deref().unwrap_or_default()
    }

    pub(super) fn warnings(
        &self,
        documents: &Documents,
        is_clean: bool,
        is_checked: bool,
    ) -> Vec<String> {
        let name = documents.display_path(TASKS);
        let source = self.source();
        let judged = (!is_clean).then(|| {
            let accept = documents.command_line("ralph work --accept-list");
            match self.source {
                Some(_) => format!(
                    "{name} has lost something that {source} knew, and is checked against that; \
                     to accept it: {accept}"
                ),
                None => format!(
                    "{name} lacks stories or checks from its git history; to accept it: {accept}"
                ),
            }
        });
        let changed = self.changes.messages();
        let changed = (!changed.is_empty())
            .then(|| format!("{name} has changed since {source}: {}", changed.join("; ")));
        let doubtful = &self.changes.unverified;
        let doubtful = (!doubtful.is_empty() && !is_checked).then(|| {
            format!(
                "{name}: marked as passing by an iteration that was interrupted or failed its \
                 checks, so the agent must verify it: {}",
                changes::first_few(doubtful)
            )
        });
        self.ledger_problem.iter().cloned().chain(judged).chain(changed).chain(doubtful).collect()
    }
}

/// The committed versions, newest first, back to the file's creation or to the template that `ralph
/// archive` and `ralph new --force` write.
fn committed_versions(documents: &Documents) -> Result<(Vec<TaskList>, HistoryExtent), Error> {
    let path = documents.path(TASKS);
    let path = path.canonicalize().unwrap_or(path);
    let mut versions = Vec::new();
    let extent = file_versions(&path, |text| {
        let is_template = without_placeholder(text).is_some();
        if !is_template && let Ok(list) = task_list::parse(text.as_bytes()) {
            versions.push(list);
        }
        !is_template
    })?;
    Ok((versions, extent))
}

fn journal_mismatch_warning(project: &Project, list: &TaskList) -> Option<String> {
    let runs = runs::list(&project.runs_dir()).ok()?;
    runs.iter().rev().find_map(|run| {
        let TaskProgress { total, problems, .. } = RunState::read(run.read_journal().ok()?).tasks?;
        let is_more = total as usize > list.stories.len();
        let why = match problems.first() {
            Some(problem) => problem.clone(),
            None => format!("the list had {total} stories"),
        };
        (is_more || !problems.is_empty())
            .then(|| format!("according to the journal of run {}, {why}", run.id))
    })
}
