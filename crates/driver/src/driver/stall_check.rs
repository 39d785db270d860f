//! Fingerprints the repository for stall detection.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use super::{ActiveTask, Driver};
use crate::world::{Part, World};
use ralph_engine::machine::Input;
use ralph_events::event::Exit;
use ralph_git::hardening::{self, GitPurpose};
use ralph_git::status;
use ralph_process::{ChildId, Launch};

/// Longer status output counts as unknown.
const MAX_STATUS_BYTES: usize = 64 << 20;
/// Bytes of changed files that are read; for the rest, size and time count.
const MAX_FINGERPRINT_BYTES: u64 = 64 << 20;
/// File limit for projects without git.
const MAX_FILES: usize = 20_000;

/// A running `git status`.
#[derive(Debug)]
pub(super) struct GitStatus {
    pub(super) child: ChildId,
    output: Vec<u8>,
    is_truncated: bool,
}

impl GitStatus {
    pub(super) fn output(&mut self, bytes: &[u8]) {
        self.is_truncated |= self.output.len() + bytes.len() > MAX_STATUS_BYTES;
        if !self.is_truncated {
            self.output.extend_from_slice(bytes);
        }
    }

    /// `None` if it is too long.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        (!self.is_truncated).then(|| String::from_utf8_lossy(&self.output))
    }
}

impl<W: World> Driver<'_, W> {
    pub(super) fn start_stall_check(&mut self) {
        match self.spawn_git_status(status::PROGRAM, &[]) {
            Ok(look) => self.task = ActiveTask::StallCheck(look),
            Err(_) => self.check_without_git(),
        }
    }

    pub(super) fn spawn_git_status(&mut self, git: &str, more: &[&str]) -> io::Result<GitStatus> {
        let settings = self.world.read_only_git_args();
        let args = hardening::git_args(
            GitPurpose::ReadOnly,
            &settings,
            &[&status::STATUS_ARGS[..], more].concat(),
        );
        let mut env = self.run_variables();
        env.extend(hardening::git_env(GitPurpose::ReadOnly));
        let launch = Launch::plain(&self.spec.directory, OsStr::new(git), &args, &env);
        // Warnings are not status output.
        let launch = Launch { merge_stderr: false, term_on_parent_death: true, ..launch };
        let child = self.world.start(Part::Scm, &launch)?.child;
        Ok(GitStatus { child, output: Vec::new(), is_truncated: false })
    }

    pub(super) fn finish_stall_check(&mut self, look: &GitStatus, exit: Option<Exit>) {
        match exit {
            Some(exit) if exit.success() => {
                let fingerprint = look.text().map(|status| self.fingerprint(&status));
                self.queue.push_back(Input::StallChecked { fingerprint });
            }
            Some(Exit::Code(_)) => self.check_without_git(),
            _ => self.queue.push_back(Input::StallChecked { fingerprint: None }),
        }
    }

    fn check_without_git(&mut self) {
        let fingerprint = self.world.tree_fingerprint(&self.spec.directory, MAX_FILES);
        self.queue.push_back(Input::StallChecked { fingerprint });
    }

    fn fingerprint(&mut self, status: &str) -> u64 {
        let top = self.repository_root();
        let mut hasher = DefaultHasher::new();
        let mut budget = MAX_FINGERPRINT_BYTES;
        let mut file = |path: &Path, hasher: &mut DefaultHasher| {
            let (looks, read) = self.world.file_fingerprint(path, budget);
            budget = budget.saturating_sub(read);
            looks.hash(hasher);
        };
        for said in status::parse_records(status) {
            said.line.hash(&mut hasher);
            if let Some(name) = said.file {
                file(&top.join(name), &mut hasher);
            }
        }
        // It may be in `.gitignore`.
        if let Some(tasks) = &self.spec.tasks {
            file(&tasks.path, &mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn repository_root(&mut self) -> PathBuf {
        let directory = &self.spec.directory;
        let top = directory.ancestors().find(|above| self.world.kind(&above.join(".git")).exists());
        top.unwrap_or(directory).to_owned()
    }
}
