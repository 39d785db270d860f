//! `ralph new`: creates the documents of a task list.

use std::path::PathBuf;

use clap::Args;

use ralph_driver::session;
use ralph_events::error::Error;
use ralph_store::project::Project;
use ralph_store::save::{PendingSave, save_all_in_project};
use ralph_store::{active_marker, naming};
use ralph_tasks::documents::{Documents, NewDocuments, PRD, PROGRESS, PROMPT, TASKS};

use crate::recover::recover_project;
use crate::task_memory::ListHistory;

#[derive(Debug, Args)]
pub struct NewArgs {
    /// A name for the work [default: the directory's name].
    pub name: Option<String>,

    /// The name, as an option.
    #[arg(long = "name", value_name = "NAME", hide = true, conflicts_with = "name")]
    pub feature_name: Option<String>,

    /// Overwrite existing documents.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub place: DocumentsArgs,
}

/// Where the documents of a task list are.
#[derive(Debug, Default, Args)]
pub struct DocumentsArgs {
    /// The directory of the task list and its documents [default: ralph].
    #[arg(long, value_name = "PATH", global = true)]
    pub ralph_dir: Option<PathBuf>,
}

impl DocumentsArgs {
    pub(super) fn documents(&self, project: &Project) -> Documents {
        Documents::new(project.root(), self.ralph_dir.as_deref())
    }
}

pub(super) fn today() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d").to_string()
}

pub(super) fn default_name(project: &Project) -> String {
    let name = project.root().file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "project".to_owned())
}

pub(super) const UNNAMED_BRANCH: &str = "ralph/feature-name";

/// Changes nothing on an error.
pub fn new(project: &Project, args: &NewArgs) -> Result<u8, Error> {
    let documents = args.place.documents(project);
    let requested = args.name.as_deref().or(args.feature_name.as_deref());
    if requested.is_some_and(|name| name.trim().is_empty()) {
        return Err(Error::usage("the name is empty").hint("ralph new \"Password reset\""));
    }
    let name = requested.map_or_else(|| default_name(project), |name| name.trim().to_owned());
    let branch = requested.map_or_else(|| UNNAMED_BRANCH.to_owned(), naming::branch_name);
    // No run may be using the documents, nor a killed run's leftovers be writing them.
    recover_project(project)?;
    let _idle = if args.force { session::lock_project_idle(project)? } else { None };
    let home = args.force.then(|| project.ralph_home());
    let _unused = session::lock_task_list_idle(home, &documents.path(TASKS))?;
    if documents.dir().metadata().is_ok_and(|it| !it.is_dir()) {
        let dir = documents.display_dir();
        return Err(Error::input(format!("{dir} is a file, not a directory")).hint(format!(
            "move {dir} away, or use another directory: ralph new --ralph-dir PATH"
        )));
    }
    let fresh =
        documents.initial_documents(NewDocuments { name: &name, branch: &branch, date: &today() });
    let exists = |name: &str| documents.path(name).symlink_metadata().is_ok();
    let existing: Vec<String> = fresh
        .iter()
        .filter(|(name, _)| exists(name))
        .map(|(name, _)| documents.display_path(name))
        .collect();
    if !existing.is_empty() && !args.force {
        let archive = documents.command_line("ralph archive");
        let exist = if existing.len() == 1 { "exists" } else { "exist" };
        return Err(Error::input(format!("{} already {exist}", existing.join(", ")))
            .hint(format!("to archive finished work and start fresh: {archive}"))
            .hint(format!("to overwrite: {} --force", documents.command_line("ralph new"))));
    }
    let mut files = pending_saves(&documents, fresh, args.force);
    let ignore = match active_marker::gitignore_with_marker(project.root()) {
        // A link out of the project, which git does not follow either.
        Err(err) if err.kind() == std::io::ErrorKind::PermissionDenied => {
            let marker = active_marker::MARKER_FILE;
            crate::cli::warn(&format!("cannot add {marker} to .gitignore: {err}"));
            None
        }
        ignored => ignored.map_err(|err| Error::input(format!("cannot read .gitignore: {err}")))?,
    };
    files.extend(ignore.map(|(path, bytes)| PendingSave { path, bytes, replace: true }));
    save_all_in_project(project.root(), &files).map_err(|(path, err)| {
        Error::input(format!("cannot write {}: {err}", path.display())).hint("nothing was written")
    })?;
    reset_ledgers(&ListHistory { project, documents: &documents });
    let [prd, tasks, progress, prompt] =
        [PRD, TASKS, PROGRESS, PROMPT].map(|name| documents.display_path(name));
    let width = progress.chars().count();
    let [show, add, work] =
        ["ralph tasks", "ralph tasks add", "ralph work"].map(|words| documents.command_line(words));
    crate::cli::print(&format!(
        "Created for {name:?}:\n\
         \x20 {prd:<width$}  the requirements\n\
         \x20 {tasks:<width$}  the stories, and which of them pass\n\
         \x20 {progress:<width$}  the agent's notes from each iteration\n\
         \x20 {prompt:<width$}  the prompt of each iteration\n\
         \n\
         Next:\n\
         \x20 1. Describe the work in {prd}.\n\
         \x20 2. Split it into stories in {tasks}, each small enough for one iteration,\n\
         \x20    and list the commands that verify them. `{add}` adds a story,\n\
         \x20    `{show}` lists them. The Claude Code plugin does both steps with you:\n\
         \x20    /ralph:ralph-plan\n\
         \x20 3. Run the loop: {work}\n"
    ))
}

pub(super) fn pending_saves(
    documents: &Documents,
    texts: impl IntoIterator<Item = (&'static str, String)>,
    replace: bool,
) -> Vec<PendingSave> {
    let save = |(name, text): (&str, String)| PendingSave {
        path: documents.path(name),
        bytes: text.into_bytes(),
        replace,
    };
    texts.into_iter().map(save).collect()
}

/// Stops earlier runs' ledgers from being held against a replaced list.
pub(super) fn reset_ledgers(history: &ListHistory<'_>) {
    if let Err(err) = history.ledger_paths().reset() {
        let name = history.documents.display_path(TASKS);
        crate::cli::warn(&format!(
            "cannot reset the history of {name}, so the new list will be \
                                   compared with the old one: {err}"
        ));
    }
}
