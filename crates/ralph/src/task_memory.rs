//! What is known of a task list before a run starts: by the ledger of the last run, or, where there is none, by the
//! history of the file in git.

use ralph_events::error::Error;
use ralph_events::run_state::{RunState, TaskProgress};
use ralph_git::file_history::{HistoryExtent, file_versions};
use ralph_store::project::Project;
use ralph_store::{home, runs};
use ralph_tasks as task_list;
use ralph_tasks::changes::{self, ListChanges};
use ralph_tasks::documents::{Documents, TASKS, without_placeholder};
use ralph_tasks::ledger::Ledger;
use ralph_tasks::ledger_store::{LastLedger, LastRun, LedgerPaths};
use ralph_tasks::{TaskList, verdict};

use super::commands::tasks;

/// The memory of a list.
pub(super) struct TaskMemory {
    pub(super) ledger: Ledger,
    pub(super) changes: ListChanges,
    /// Where it comes from, for people: `run 20261113-202752-0a1b`.
    source: Option<String>,
    /// Says that the ledger cannot be read, or that there is no record at all.
    pub(super) ledger_problem: Option<String>,
}

/// The places of the ledgers for these documents.
pub(super) fn ledger_paths(project: &Project, documents: &Documents) -> LedgerPaths {
    let home = home::ralph_home(|name| std::env::var_os(name));
    LedgerPaths::new(home.as_deref(), project, &documents.path(TASKS))
}

/// Reads the list and recalls what is known of it. `has_guardrails`: those of the settings prove something, too.
///
/// # Errors
/// The list cannot be read, or nothing tells whether an agent took something out of it.
pub(super) fn load_memory(
    project: &Project,
    documents: &Documents,
    places: &LedgerPaths,
    has_guardrails: bool,
) -> Result<(TaskList, TaskMemory), Error> {
    let list = tasks::read_valid(documents)?;
    let LastLedger { last, unreadable } = places.load_last();
    let lost = (!unreadable.is_empty()).then(|| {
        format!(
            "ledgers of {} cannot be read: {}",
            documents.display_path(TASKS),
            unreadable.join("; ")
        )
    });
    let memory = match last {
        LastRun::Run(run, ledger) if lost.is_none() => {
            TaskMemory::from_ledger(&run, *ledger, &list, has_guardrails)
        }
        // A later run may have known more: nothing is forgiven.
        LastRun::Run(run, ledger) => TaskMemory {
            ledger_problem: lost,
            ..TaskMemory::from_ledger(&run, ledger.reopened(), &list, has_guardrails)
        },
        LastRun::Reset if lost.is_none() => TaskMemory::from_list(&list),
        LastRun::Reset | LastRun::Unknown => {
            TaskMemory::from_history(project, documents, &list, lost)?
        }
    };
    Ok((list, memory))
}

/// The same for a run that is resumed, by its own ledger. A list that is broken in the middle of a run is a matter for
/// its agent.
///
/// # Errors
/// As [`recall`].
pub(super) fn load_run_memory(
    project: &Project,
    documents: &Documents,
    places: &LedgerPaths,
    run: &str,
    has_guardrails: bool,
) -> Result<(TaskList, TaskMemory), Error> {
    let Ok(ledger) = places.read(run) else {
        let list = tasks::read_valid(documents)?;
        let lost = format!(
            "what this run remembered of {} is gone, so that a story that its agent has dropped is not \
             missed",
            documents.display_path(TASKS)
        );
        let memory = TaskMemory::from_history(project, documents, &list, Some(lost))?;
        return Ok((list, memory));
    };
    Ok(match tasks::read(documents) {
        Ok(list) => {
            let memory = TaskMemory::from_ledger(run, ledger.reopened(), &list, has_guardrails);
            (list, memory)
        }
        Err(_) => {
            let source = Some(format!("run {run}"));
            (
                ledger.list(),
                TaskMemory {
                    ledger,
                    changes: ListChanges::default(),
                    source,
                    ledger_problem: None,
                },
            )
        }
    })
}

/// Whether a story was in the list when a run last saw it.
pub(super) fn knows_story(project: &Project, documents: &Documents, id: &str) -> bool {
    match ledger_paths(project, documents).load_last().last {
        LastRun::Run(_, ledger) => ledger.knows_story(id),
        LastRun::Reset | LastRun::Unknown => false,
    }
}

/// How many stories are gone from the list that it owes by what is known of it.
pub(super) fn missing_story_count(
    project: &Project,
    documents: &Documents,
    list: &TaskList,
) -> usize {
    let Some((_, mut ledger, _)) = compare_with_last_run(project, documents, list) else {
        return 0;
    };
    let review = ledger.review(&Ok(list.clone()));
    review.progress.map_or(0, |progress| progress.total - list.stories.len())
}

/// What is known that speaks against a list of which every story is marked as passing.
pub(super) fn completeness_doubts(
    project: &Project,
    documents: &Documents,
    list: &TaskList,
) -> Option<String> {
    let (source, mut ledger, since) = compare_with_last_run(project, documents, list)?;
    let mut against = since.losses();
    let review = ledger.review(&Ok(list.clone()));
    let vetoes = review.findings.iter().filter(|it| it.vetoes()).map(ToString::to_string);
    against.extend(vetoes);
    if !review.unverified.is_empty() {
        against.push(format!("no check has passed on {}", changes::first_few(&review.unverified)));
    }
    let few = verdict::first_few(&against);
    (!few.is_empty()).then(|| format!("by what {source} knows, the work is not complete: {few}"))
}

/// What the last run knows of the list, or else git, and what became of the list since.
fn compare_with_last_run(
    project: &Project,
    documents: &Documents,
    list: &TaskList,
) -> Option<(String, Ledger, ListChanges)> {
    match ledger_paths(project, documents).load_last().last {
        LastRun::Run(run, ledger) => {
            let (ledger, since) = ledger.after_previous_run(list, true);
            Some((format!("run {run}"), ledger, since))
        }
        LastRun::Reset => None,
        LastRun::Unknown => {
            let (versions, _) = committed_versions(documents).ok()?;
            let ledger = Ledger::from_versions(list, &versions);
            (!versions.is_empty()).then(|| ("git".to_owned(), ledger, ListChanges::default()))
        }
    }
}

impl TaskMemory {
    /// Knows the list as it is and nothing else.
    pub(super) fn from_list(list: &TaskList) -> TaskMemory {
        TaskMemory {
            ledger: Ledger::new(list),
            changes: ListChanges::default(),
            source: None,
            ledger_problem: None,
        }
    }

    /// Rebuilds the memory from git. `lost` says why the ledger of the last run cannot be used.
    ///
    /// # Errors
    /// The history cannot be read, or not to its beginning: a story may have been dropped, and nothing would tell.
    fn from_history(
        project: &Project,
        documents: &Documents,
        list: &TaskList,
        lost: Option<String>,
    ) -> Result<TaskMemory, Error> {
        let name = documents.display_path(TASKS);
        let unknown = |why: String, hint: &str| {
            let accept = documents.command_line("ralph work --accept-list");
            Error::input(format!("whether {name} has lost stories or checks is not known: {why}"))
                .hint(hint)
                .hint(format!("`{accept}` takes the list as it is"))
        };
        let (versions, reach) = committed_versions(documents).map_err(|err| {
            unknown(
                format!("its history cannot be read: {}", err.message),
                "see what git says there",
            )
        })?;
        if reach == HistoryExtent::Truncated {
            let why = "this is a shallow clone, and its history is cut off".to_owned();
            return Err(unknown(why, "get all of it: git fetch --unshallow"));
        }
        if let Some(more) = journal_mismatch_warning(project, list).filter(|_| versions.is_empty())
        {
            return Err(unknown(more, "put back what is missing"));
        }
        if !versions.is_empty() {
            let ledger = Ledger::from_versions(list, &versions);
            let lost = lost.map(|lost| format!("{lost}; its history in git is used instead"));
            return Ok(TaskMemory {
                ledger,
                changes: ListChanges::default(),
                source: None,
                ledger_problem: lost,
            });
        }
        Ok(match lost {
            Some(lost) => {
                let (ledger, since) = Ledger::with_marks_in_doubt(list);
                TaskMemory { ledger, changes: since, source: None, ledger_problem: Some(lost) }
            }
            None => {
                let message = format!(
                    "no earlier record of {name}: no run has left one, and git has no version of it. \
                     It is taken as it is"
                );
                TaskMemory { ledger_problem: Some(message), ..TaskMemory::from_list(list) }
            }
        })
    }

    /// What a run knew, and what became of the list since.
    fn from_ledger(run: &str, ledger: Ledger, list: &TaskList, has_guardrails: bool) -> TaskMemory {
        let has_checks = has_guardrails || !ledger.verify_commands().is_empty();
        let (ledger, since) = ledger.after_previous_run(list, has_checks);
        TaskMemory {
            ledger,
            changes: since,
            source: Some(format!("run {run}")),
            ledger_problem: None,
        }
    }

    pub(super) fn source(&self) -> &str {
        self.source.as_deref().unwrap_or_default()
    }

    /// The warnings before a run begins.
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
                    "{name} is judged by what {source} knew of it, and has lost some of that; `{accept}` takes \
                     it as it is"
                ),
                None => format!(
                    "{name} lacks stories or checks that its history in git has; `{accept}` takes it as it is"
                ),
            }
        });
        let changed = self.changes.messages();
        let changed = (!changed.is_empty())
            .then(|| format!("{name} is not as {source} left it: {}", changed.join("; ")));
        let doubtful = &self.changes.unverified;
        let doubtful = (!doubtful.is_empty() && !is_checked).then(|| {
            format!(
                "{name}: marked as passing by an iteration that nothing stands behind, so that the agent \
                 is asked to look again: {}",
                changes::first_few(doubtful)
            )
        });
        self.ledger_problem.iter().cloned().chain(judged).chain(changed).chain(doubtful).collect()
    }
}

/// The committed versions of the list, the newest first, back to where the present list began: the file's creation, or
/// the template that `ralph archive` and `ralph new --force` write.
fn committed_versions(documents: &Documents) -> Result<(Vec<TaskList>, HistoryExtent), Error> {
    let path = documents.path(TASKS);
    let path = path.canonicalize().unwrap_or(path);
    let mut versions = Vec::new();
    let reach = file_versions(&path, |text| {
        let is_template = without_placeholder(text).is_some();
        if !is_template && let Ok(list) = task_list::parse(text.as_bytes()) {
            versions.push(list);
        }
        !is_template
    })?;
    Ok((versions, reach))
}

/// Says if the journal of the last `ralph work` knew more stories than the list has, or found something missing.
fn journal_mismatch_warning(project: &Project, list: &TaskList) -> Option<String> {
    let runs = runs::list(&project.runs_dir()).ok()?;
    runs.iter().rev().find_map(|run| {
        let TaskProgress { total, problems, .. } = RunState::read(run.read_journal().ok()?).tasks?;
        let is_more = total as usize > list.stories.len();
        let why = match problems.first() {
            Some(problem) => problem.clone(),
            None => format!("it saw {total} stories"),
        };
        (is_more || !problems.is_empty())
            .then(|| format!("by the journal of run {}, {why}", run.id))
    })
}
