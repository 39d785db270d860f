//! Finds the project that a command works on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::loop_file;
use crate::config::{self, Settings};
use crate::workers::registry::Workers;
use crate::workers::store::Worker;
use ralph_events::env_names::RUN_ID;
use ralph_events::error::Error;
use ralph_git as git;
use ralph_process::trust::{self, EscapingLink};
use ralph_sandbox as sandbox;
use ralph_store::home;
use ralph_store::migration::{self, ProjectChange};
use ralph_store::project::Project;
use ralph_store::project_record;
use ralph_store::relocation::DirIdentity;

use super::cli::CliCommand;
use super::cli::args::ProjectArgs;
use super::commands::mode::PROMPTS_DIR;
use super::commands::steer::{AnswerArgs, AskArgs, TellArgs};

pub(super) fn open_project(args: &ProjectArgs) -> Result<Project, Error> {
    super::recover::restore_modes();
    let current = current_dir();
    let path = match (&args.project_dir, current) {
        (Some(path), Ok(current)) => current.join(path),
        (Some(path), Err(_)) => path.clone(),
        (None, Ok(current)) => current,
        (None, Err(err)) => {
            let message = format!("cannot read the current directory: {err}");
            return Err(Error::input(message));
        }
    };
    refuse_link_out(&path)?;
    let path = args.project_dir.as_ref().unwrap_or(&path);
    let root = path
        .canonicalize()
        .map_err(|err| Error::input(format!("cannot use {}: {err}", path.display())))?;
    if root.is_dir() {
        declare_project(&root)
    } else {
        Err(Error::input(format!("not a directory: {}", path.display())))
    }
}

/// As the shell names it (`PWD`), if that is correct: it may contain links.
fn current_dir() -> std::io::Result<PathBuf> {
    let directory = std::env::current_dir()?;
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let pwd = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
    let pwd = pwd.filter(|path| identity(path).is_some_and(|it| identity(&directory) == Some(it)));
    Ok(pwd.unwrap_or(directory))
}

/// Refuses a path through a link in an agent-writable directory: an agent may have planted it to
/// get write access to its target.
pub(super) fn refuse_link_out(path: &Path) -> Result<(), Error> {
    let Some(EscapingLink { link, target, .. }) = trust::find_escaping_link(path) else {
        return Ok(());
    };
    let (link, target) = (link.display(), target.display());
    Err(Error::input(format!("{link} is a link to {target}, and agents can change it"))
        .hint(format!("if you mean that directory, use -C {target}")))
}

/// `root` must be free of links. Declares it untrusted outside the sandbox.
///
/// # Errors
/// A run of version 0.1 is active here.
pub(super) fn declare_project(root: &Path) -> Result<Project, Error> {
    // Without a home there are no runs; commands that start one refuse.
    let home = home::ralph_home(|name| std::env::var_os(name));
    let home = home.unwrap_or_else(|| PathBuf::from("/nonexistent"));
    let project = Project::new(root, &home);
    super::recover::warn_restored(&project.restore_run_access());
    // An agent uses ralph in its own run, and the files are its project's.
    if std::env::var_os(RUN_ID).is_none() {
        report_change(&project, migration::find_runs(&project)?);
    }
    trust::declare_agent_writable(root);
    git::repository_dirs(root).iter().for_each(|dir| trust::declare_agent_writable(dir));
    Ok(project)
}

pub(super) fn report_change(project: &Project, change: Option<ProjectChange>) {
    let Some(change) = change else { return };
    let runs = project.runs_dir();
    super::cli::warn(&match change {
        ProjectChange::Moved { from } => {
            format!("this project was moved from {}; its runs moved with it", from.display())
        }
        ProjectChange::CopyOf(original) => {
            format!("this project is a copy of {}; it starts with no runs", original.display())
        }
        ProjectChange::Migrated { runs: count } => {
            let what = if count == 1 { "run".to_owned() } else { format!("{count} runs") };
            let (root, runs) = (project.root().display(), runs.display());
            format!("moved the {what} of {root} to {runs}; .ralph/runs links there")
        }
    });
}

/// The directories that agents of any project on this machine can write to.
pub(super) fn known_agent_dirs() -> Vec<PathBuf> {
    let mut dirs = sandbox::shared_writable_dirs();
    let home = home::ralph_home(|name| std::env::var_os(name));
    let records = home.as_deref().map(project_record::all_records).unwrap_or_default();
    let path = trust::user_path();
    let path = path.iter().flat_map(std::env::split_paths);
    let path: Vec<PathBuf> = path.filter_map(|dir| dir.canonicalize().ok()).collect();
    dirs.extend(project_record::moved_roots(&records, &path));
    for record in records {
        dirs.push(record.root);
        dirs.extend(record.agent_writable);
    }
    let workers = Workers::open_user_dir().and_then(|workers| workers.all()).unwrap_or_default();
    let worktrees = workers.iter().filter_map(Worker::worktree);
    dirs.extend(worktrees.map(|worktree| worktree.path));
    dirs
}

pub(super) fn declare_agent_writable(settings: &Settings, project: &Project) {
    let dirs = sandbox::writable_dirs(&settings.sandbox, project.root());
    dirs.iter().for_each(|dir| trust::declare_agent_writable(dir));
}

/// Records where agents of this project can write. Returns a warning on failure.
pub(super) fn record_project(project: &Project, writable: &[PathBuf]) -> Option<String> {
    let root = project.root();
    let outside = git::repository_dirs(root).into_iter().chain(writable.iter().cloned());
    let outside: Vec<PathBuf> = outside.filter(|dir| !dir.starts_with(root)).collect();
    outside.iter().for_each(|dir| trust::declare_agent_writable(dir));
    let updated = project.update_record(|record| {
        record.identity = DirIdentity::read_at(root);
        record.agent_writable.extend(outside);
        record.agent_writable.sort();
        record.agent_writable.dedup();
    });
    let why = updated.err()?;
    Some(format!(
        "cannot record where the agent can write, so other projects are not protected: {why}"
    ))
}

/// With `-C`, files named on the command line are relative to that directory, as with `git -C`.
pub(super) fn resolve_paths_from_project(args: &ProjectArgs, command: &mut CliCommand) {
    let Some(dir) = &args.project_dir else { return };
    let resolve = |path: &mut Option<PathBuf>| {
        if let Some(path) = path.as_mut().filter(|path| *path != Path::new("-")) {
            *path = dir.join(&*path);
        }
    };
    let common = match command {
        CliCommand::Run(args) => args,
        CliCommand::Plan(args) | CliCommand::Build(args) => {
            resolve(&mut args.config);
            &mut args.common
        }
        CliCommand::Prompt(args) => {
            resolve(&mut args.file);
            resolve(&mut args.mode.config);
            &mut args.mode.common
        }
        CliCommand::Work(args) => &mut args.common,
        CliCommand::Spawn(args) => &mut args.common,
        CliCommand::Tell(TellArgs { text, .. })
        | CliCommand::Answer(AnswerArgs { text, .. })
        | CliCommand::Ask(AskArgs { text }) => return resolve(&mut text.file),
        _ => return,
    };
    resolve(&mut common.settings);
    resolve(&mut common.prompt.prompt_file);
}

/// Opens a project for a command that uses its settings, runs or documents. `alone` allows a
/// subdirectory of another project.
pub(super) fn require_project(args: &ProjectArgs, alone: bool) -> Result<Project, Error> {
    let project = open_project(args)?;
    check_ralph_dir(&project)?;
    if !alone {
        check_not_subdirectory(&project)?;
    }
    Ok(project)
}

fn check_ralph_dir(project: &Project) -> Result<(), Error> {
    let ralph_dir = project.ralph_dir();
    if ralph_dir.is_dir() || ralph_dir.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::input(format!("not a directory: {}", ralph_dir.display())).hint(
        "ralph needs a directory of that name for its own files; move the existing file away",
    ))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProjectKind {
    NotAProject,
    HasRuns,
    Configured,
}

impl ProjectKind {
    fn of(dir: &Path) -> ProjectKind {
        let ralph_dir = dir.join(config::DIRECTORY);
        let files =
            [config::FILE, config::LOCAL_FILE, loop_file::FILE].map(|it| ralph_dir.join(it));
        let others = [dir.join(PROMPTS_DIR), dir.join(Project::PLAN_FILE)];
        if files.iter().chain(&others).any(|path| path.exists()) {
            ProjectKind::Configured
        } else if has_runs(dir) && !is_home(&ralph_dir) {
            ProjectKind::HasRuns
        } else {
            ProjectKind::NotAProject
        }
    }
}

/// Also those of version 0.1, before they are moved to ralph's home.
fn has_runs(dir: &Path) -> bool {
    let home = home::ralph_home(|name| std::env::var_os(name));
    home.is_some_and(|home| Project::new(dir, &home).runs_dir().is_dir())
        || dir.join(config::DIRECTORY).join("runs").is_dir()
}

/// `$RALPH_HOME` has runs if the user once tried ralph in the home directory, which is above
/// everything.
fn is_home(ralph_dir: &Path) -> bool {
    home::ralph_home(|name| std::env::var_os(name)).is_some_and(|home| home == ralph_dir)
}

/// In a subdirectory, the project's settings and guardrails would silently not apply, and a second
/// run could change the same files.
fn check_not_subdirectory(project: &Project) -> Result<(), Error> {
    let root = project.root();
    let own_kind = ProjectKind::of(root);
    if own_kind == ProjectKind::Configured || root.join(".git").exists() {
        return Ok(());
    }
    // Runs above count only within the repository: the user may have tried ralph in `/tmp`.
    let in_repository = root.ancestors().any(|dir| dir.join(".git").exists());
    for above in root.ancestors().skip(1) {
        let kind = ProjectKind::of(above);
        if kind > own_kind && (kind == ProjectKind::Configured || in_repository) {
            let (root, above) = (root.display(), above.display());
            return Err(Error::input(format!("{root} is inside the project {above}"))
                .hint(format!("run ralph there, or with -C {above}"))
                .hint("or make this directory its own project: ralph init"));
        }
        if above.join(".git").exists() {
            break;
        }
    }
    Ok(())
}
