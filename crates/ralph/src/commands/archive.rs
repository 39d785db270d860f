//! `ralph archive`: archives a finished task list and starts fresh.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use ralph_driver::session;
use ralph_events::error::{Error, ErrorKind};
use ralph_git as git;
use ralph_store::naming;
use ralph_store::project::Project;
use ralph_store::save::save_all_in_project;
use ralph_tasks as tasks;
use ralph_tasks::archive;
use ralph_tasks::documents::{self, Documents, NewDocuments, PRD, PROGRESS, PROMPT, TASKS};
use ralph_tasks::{TaskList, summary};

use super::new::{
    DocumentsArgs, UNNAMED_BRANCH, default_name, pending_saves, reset_ledgers, today,
};
use crate::recover::recover_project;
use crate::task_memory::ListHistory;

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// A name for the archive [default: the branch's name].
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,

    /// Archive unfinished work, too.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub place: DocumentsArgs,
}

/// The prompt stays: it belongs to the project.
const ARCHIVED_DOCUMENTS: [&str; 3] = [PRD, TASKS, PROGRESS];

pub fn archive(project: &Project, args: &ArchiveArgs) -> Result<u8, Error> {
    let documents = args.place.documents(project);
    let (root, dir) = (project.root(), documents.display_dir());
    recover_project(project)?;
    let _idle = session::lock_project_idle(project)?;
    let home = Some(project.ralph_home());
    let _unused = session::lock_task_list_idle(home, &documents.path(TASKS))?;
    // Wait for a pending edit, to have it in the archive.
    let _held = match documents.lock() {
        Err(err) if err.kind() == io::ErrorKind::TimedOut => {
            return Err(Error::input(format!("cannot archive {dir}/: {err}")));
        }
        held => held.ok(),
    };
    let mut files = collect_documents(&documents)?;
    let today = today();
    let content = |wanted| files.iter().find(|(name, _)| *name == wanted).map(|(_, it)| it);
    let list = String::from_utf8_lossy(content(TASKS).map_or(&[], Vec::as_slice));
    let list = documents::without_placeholder(&list).map_or(list, Into::into);
    let list = tasks::parse(list.as_bytes());
    let progress = String::from_utf8_lossy(content(PROGRESS).map_or(&[], Vec::as_slice));
    let history = ListHistory { project, documents: &documents };
    let mut page = summary::render(&list, summary::start_date(&progress), &today);
    let doubts = list.iter().find_map(|it| history.completeness_doubts(it));
    if let Some(doubts) = &doubts {
        page.push_str(&format!("\nNot verified: {doubts}.\n"));
    }
    if let Ok(list) = &list
        && is_unmodified(&documents, &files, list, summary::start_date(&progress))
    {
        let (prd, add) = (documents.display_path(PRD), documents.command_line("ralph tasks add"));
        return Err(Error::input(format!(
            "nothing to archive: {dir}/ is as `ralph new` created it"
        ))
        .hint(format!("start with {prd} and `{add}`")));
    }
    let list = list.ok();
    if !args.force {
        refuse_unfinished(&documents, list.as_ref(), doubts.as_deref())?;
    }
    let label = label(project, args.label.as_deref(), list.as_ref())?;
    files.push(("summary.md", page.into_bytes()));
    let unwritable = |path: &Path, err: &io::Error| {
        Error::input(format!("cannot write {}: {err}", path.display())).hint("nothing was changed")
    };
    let archive_dir = archive::create(root, &format!("{today}-{label}"), &files)
        .map_err(|err| unwritable(&root.join(archive::DIRECTORY), &err))?;
    let reset = write_fresh_documents(project, &documents, &today).map_err(|(path, err)| {
        // Keep only one copy of the documents.
        let _ = std::fs::remove_dir_all(&archive_dir);
        unwritable(&path, &err)
    })?;
    reset_ledgers(&history);
    let shown = archive_dir.strip_prefix(root).unwrap_or(&archive_dir).display().to_string();
    let text = archived_message(&shown, list.as_ref(), doubts.as_deref());
    let archived: Vec<PathBuf> = files.iter().map(|(name, _)| archive_dir.join(name)).collect();
    let paths: Vec<&Path> = archived.iter().chain(&reset).map(PathBuf::as_path).collect();
    commit(root, &paths, &shown, text)
}

fn refuse_unfinished(
    documents: &Documents,
    list: Option<&TaskList>,
    doubts: Option<&str>,
) -> Result<(), Error> {
    let name = documents.display_path(TASKS);
    let unfinished = match (list, doubts) {
        (Some(list), None) if list.is_complete() => return Ok(()),
        (Some(list), Some(doubts)) if list.is_complete() => doubts.to_owned(),
        (Some(list), _) => {
            format!("{} of {} stories in {name} pass", list.passing_count(), list.stories.len())
        }
        (None, _) => format!("cannot read {name}"),
    };
    let archive = documents.command_line("ralph archive --force");
    Err(Error::input(format!("work is not finished: {unfinished}"))
        .hint(format!("to archive it anyway: {archive}")))
}

fn collect_documents(documents: &Documents) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    let mut files = Vec::new();
    for name in ARCHIVED_DOCUMENTS {
        match documents.read(name) {
            Ok(bytes) => files.push((name, bytes)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => {
                let path = documents.display_path(name);
                return Err(Error::input(format!("cannot read {path}: {err}")));
            }
        }
    }
    if files.is_empty() {
        let dir = documents.display_dir();
        return Err(Error::input(format!("nothing to archive in {dir}/"))
            .hint("create a task list with `ralph new`"));
    }
    Ok(files)
}

fn label(
    project: &Project,
    wanted: Option<&str>,
    list: Option<&TaskList>,
) -> Result<String, Error> {
    match (wanted, list) {
        (Some(label), _) => naming::try_label(label).ok_or_else(|| {
            Error::usage(format!("--label {label:?} needs at least one letter or digit"))
        }),
        (None, Some(list)) if !list.branch_name.trim().is_empty() => {
            Ok(naming::label(&list.branch_name))
        }
        (None, _) => Ok(naming::label(&default_name(project))),
    }
}

fn archived_message(shown: &str, list: Option<&TaskList>, doubts: Option<&str>) -> String {
    let Some(list) = list else {
        return format!("Archived to {shown}. The task list is unreadable.\n");
    };
    let (done, total) = (list.passing_count(), list.stories.len());
    match doubts {
        None => format!("Archived to {shown}: {done} of {total} stories complete.\n"),
        Some(doubts) => format!(
            "Archived to {shown}: {done} of {total} stories marked as complete, but {doubts}.\n"
        ),
    }
}

fn commit(root: &Path, paths: &[&Path], shown: &str, mut text: String) -> Result<u8, Error> {
    match git::commit_paths(root, paths, &format!("chore: archive {shown}")) {
        Ok(git::CommitResult::Created { commit, left_out }) => {
            text.push_str(&format!("Committed as {commit}.\n"));
            let left_out: Vec<String> = left_out
                .iter()
                .map(|path| path.strip_prefix(root).unwrap_or(path).display().to_string())
                .collect();
            if !left_out.is_empty() {
                let files = left_out.join(", ");
                text.push_str(&format!("Not committed, because git ignores it: {files}.\n"));
            }
        }
        Ok(git::CommitResult::NoRepository) => {
            text.push_str("Not committed: this is not a git repository.\n");
        }
        Ok(git::CommitResult::Ignored) => {
            text.push_str("Not committed: git ignores these files.\n");
        }
        Err(err) => {
            crate::cli::print(&text)?;
            let message = err.message.replace('\n', "\n  ");
            let error =
                Error::new(ErrorKind::Scm, format!("archived, but not committed: {message}"));
            let error = err.hints.into_iter().fold(error, Error::hint);
            return Err(
                error.hint(format!("the archive in {shown} is complete; commit it yourself"))
            );
        }
    }
    crate::cli::print(&text)
}

/// Whether the documents are still as `ralph new` wrote them.
fn is_unmodified(
    documents: &Documents,
    files: &[(&str, Vec<u8>)],
    list: &TaskList,
    started: Option<&str>,
) -> bool {
    let (name, branch, date) = (&list.project, &list.branch_name, started.unwrap_or_default());
    let fresh = documents.initial_documents(NewDocuments { name, branch, date });
    let is_fresh = |(name, bytes): &(&str, Vec<u8>)| {
        fresh.iter().any(|(fresh, text)| fresh == name && text.as_bytes() == bytes)
    };
    files.iter().all(is_fresh)
}

/// Returns the paths written.
fn write_fresh_documents(
    project: &Project,
    documents: &Documents,
    today: &str,
) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let name = &default_name(project);
    let new = NewDocuments { name, branch: UNNAMED_BRANCH, date: today };
    let stays = |name: &str| name == PROMPT && documents.path(name).symlink_metadata().is_ok();
    let fresh = documents.initial_documents(new).into_iter().filter(|(name, _)| !stays(name));
    let files = pending_saves(documents, fresh, true);
    save_all_in_project(project.root(), &files)?;
    Ok(files.into_iter().map(|file| file.path).collect())
}
