//! The real repository.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_git as git;
use ralph_git::branch::{self, DetachedReason};
use ralph_git::config_trust::{self, ConfigRepository};
use ralph_git::hardening::{self, GitPurpose};
use ralph_git::head_log::{self, LogPosition, NewCommits};
use ralph_git::link_guard::LinkGuard;
use ralph_git::lock_files::{self, LockStatus};
use ralph_process::trust::OutsideCommand;
use ralph_process::{CommandOutput, Launch};
use ralph_report::summary::Summary;
use ralph_report::summary::commit_lookup::annotate_commits;
use ralph_sandbox::Backend;
use ralph_store::project::is_run_time_file;
use ralph_store::{home, project_record};

use super::{ActiveSandbox, RealWorld, Repository, Uncommitted};

/// How long git may take to look up commits.
const COMMIT_LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Submodules that are checked for uncommitted work, at most.
const MAX_SUBMODULES: usize = 20;

impl RealWorld {
    /// Moves new links in the git directories aside after each step from now on.
    pub fn set_link_guard(&mut self, guard: LinkGuard) {
        self.links = Some(guard);
    }

    /// Moves new links in the git directories aside, unless nothing has happened since the last check.
    ///
    /// # Errors As [`LinkGuard::check`].
    pub(super) fn check_links(&mut self) -> io::Result<()> {
        if let Some(guard) = self.links.as_ref().filter(|_| !self.links_checked) {
            let checked = guard.check();
            self.link_error = checked.as_ref().err().map(ToString::to_string);
            self.link_warnings.extend(checked?);
            self.links_checked = true;
        }
        Ok(())
    }

    /// The same before git writes outside the sandbox. Fails if another run's agent could put links back.
    pub(super) fn check_links_before_write(&mut self) -> io::Result<()> {
        let before = self.link_warnings.len();
        self.links_checked = false;
        self.check_links()?;
        if self.link_warnings.len() > before
            && let Some(guard) = &self.links
        {
            let home = home::ralph_home(|name| std::env::var_os(name));
            guard.refuse_other_agents(home.as_deref())?;
        }
        Ok(())
    }

    /// Arguments of an SCM task outside the sandbox. Switches hooks off if sandboxed agents can write them.
    pub(super) fn scm_args_without_agent_hooks(
        &mut self,
        launch: &Launch<'_>,
    ) -> io::Result<Vec<OsString>> {
        let unchanged = Ok(launch.args.to_vec());
        let is_git = Path::new(launch.program).file_name() == Some(OsStr::new("git"));
        let repository = ConfigRepository::find(self.project.root(), None).filter(|_| is_git);
        let Some(repository) = repository else { return unchanged };
        let home = home::ralph_home(|name| std::env::var_os(name));
        let records = home.as_deref().map(project_record::all_records).unwrap_or_default();
        if self.sandbox.is_none() && !repository.last_run_was_sandboxed(&records) {
            return unchanged;
        }
        let words = hardening::git_args(GitPurpose::Write, &[], &config_trust::LIST_CONFIG_ARGS);
        let git = OutsideCommand::find(launch.program, launch.env)?;
        let (program, env, root) = (git.program(), git.env(), self.project.root());
        let output = self.system.run_to_end(program, &words, root, env, COMMIT_LOOKUP_TIMEOUT)?;
        let restriction = repository.restrict_from_output(&output).map_err(|error| {
            let parts: Vec<String> = std::iter::once(error.message).chain(error.hints).collect();
            io::Error::other(parts.join("; "))
        })?;
        if let Some(warning) = restriction.warning.filter(|_| !self.hooks_reported) {
            self.hooks_reported = true;
            self.link_warnings.push(warning);
        }
        let settings = restriction.settings.into_iter();
        let settings = settings.flat_map(|setting| [OsString::from("-c"), setting]);
        Ok(settings.chain(launch.args.iter().cloned()).collect())
    }

    /// Reports commits from now on, and returns the repository's state with the commits since `since`.
    pub fn watch_repository(&mut self, since: LogPosition<'_>) -> Option<NewCommits> {
        let (watch, moved) = head_log::HeadLog::open(self.project.root(), since);
        self.repository = Some(watch);
        if git::is_in_repository(self.project.root()) {
            self.filters_off = self.disabled_filters();
        }
        moved
    }

    /// Settings that switch filter drivers off; none if git does not answer, because then it answers no query
    /// either.
    fn disabled_filters(&mut self) -> Vec<OsString> {
        let root = self.project.root().to_owned();
        let output = self.run_git(&root, &hardening::LIST_FILTERS_ARGS);
        output
            .map_or_else(|_| Vec::new(), |output| hardening::disable_filters_config(&output.stdout))
    }

    /// Runs a git query. Nothing that the repository configures is executed.
    fn run_git(&mut self, directory: &Path, words: &[&str]) -> io::Result<CommandOutput> {
        let args = hardening::git_args(GitPurpose::ReadOnly, &self.filters_off, words);
        let env = hardening::git_env(GitPurpose::ReadOnly);
        let git = OutsideCommand::find(OsStr::new("git"), &env)?;
        self.system.run_to_end(git.program(), &args, directory, git.env(), COMMIT_LOOKUP_TIMEOUT)
    }

    fn git_query(&mut self, directory: &Path, words: &[&str]) -> Option<String> {
        let output = self.run_git(directory, words).ok().filter(|output| output.exit.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn status_files(&mut self, directory: &Path, paths: &[&str]) -> Vec<String> {
        let words = ["status", "--porcelain", "-z", "--ignore-submodules=dirty", "--"];
        let status = self.git_query(directory, &[&words[..], paths].concat());
        status.map_or_else(Vec::new, |status| git::status_files(&status))
    }

    pub(super) fn repository_gone_message(&self) -> Option<String> {
        let lost = self.repository.as_ref().and_then(head_log::HeadLog::missing_repository)?;
        Some(format!(
            "the git repository {} is gone; the agent's work is still in the files; restore the \
             repository, or create a new one with `git init`",
            lost.display()
        ))
    }
}

impl Repository for RealWorld {
    fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        // Nothing happens between the end of one agent and the start of the next.
        if self.is_repository_checked || self.unresolved_traces().next().is_some() {
            return None;
        }
        self.is_repository_checked = thorough;
        self.repository.as_mut().and_then(|watch| watch.new_commits(thorough))
    }

    fn abandoned(&mut self, lock: &Path) -> LockStatus {
        // Processes in a Docker sandbox are not visible here.
        let is_elsewhere = |cell: &ActiveSandbox| cell.sandbox.info().backend == Backend::Docker;
        if self.sandbox.as_ref().is_some_and(is_elsewhere) {
            return LockStatus::InUse;
        }
        lock_files::lock_status(lock, self.project.root())
    }

    fn replaced(&mut self) -> Option<PathBuf> {
        self.repository
            .as_ref()
            .and_then(head_log::HeadLog::replaced_repository)
            .map(Path::to_owned)
    }

    fn branch(&mut self) -> Option<String> {
        branch::current_branch(self.project.root())
    }

    fn uncommitted(&mut self) -> Uncommitted {
        let root = self.project.root().to_owned();
        if !git::is_in_repository(&root) || self.check_links().is_err() {
            return Uncommitted::default();
        }
        let files = self.status_files(&root, &["."]);
        let modules = self.git_query(&root, &["ls-files", "--stage", "-z"]).unwrap_or_default();
        let mut submodules = git::parse_submodules(&modules, &root);
        submodules.truncate(MAX_SUBMODULES);
        submodules.retain(|path| !self.status_files(&root.join(path), &[]).is_empty());
        Uncommitted { files, submodules }
    }

    fn no_branch(&mut self) -> Option<DetachedReason> {
        branch::detached_reason(self.project.root()).filter(|_| self.project_obstacle().is_none())
    }

    fn read_only_git_args(&mut self) -> Vec<OsString> {
        self.filters_off.clone()
    }

    fn look_up(&mut self, facts: &mut Summary) {
        if self.check_links().is_err() {
            return;
        }
        let root = self.project.root().to_owned();
        let is_in_repository = ralph_git::is_in_repository(&root);
        annotate_commits(facts, is_in_repository, is_run_time_file, &mut |words| {
            self.git_query(&root, words)
        });
    }
}
