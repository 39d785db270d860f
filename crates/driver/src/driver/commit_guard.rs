//! Checks an agent that was asked for a commit message: it has all permissions and runs after the guardrails.

use std::io;

use super::scm::ends_run;
use super::stall_check::GitStatus;
use super::{ActiveTask, Driver};
use crate::world::World;
use ralph_engine::machine::{CommitGuardResult, Input, ScmStatus, UncheckedChange};
use ralph_events::event::{Exit, FailAction, Feedback};
use ralph_git::ScmSpec;
use ralph_git::commit_guard::{self, StagedChange, StagedSnapshot};

#[derive(Debug)]
pub(super) struct CommitGuardRun {
    pub(super) status: GitStatus,
    pub(super) ended: Option<&'static str>,
    after: bool,
}

impl<W: World> Driver<'_, W> {
    pub(super) fn snapshot_staged(&mut self) {
        self.staged_snapshot = None;
        if let Err(err) = self.spawn_staged_status(false) {
            self.on_scm_status_failed(&err.to_string(), false);
        }
    }

    pub(super) fn compare_staged(&mut self) {
        if !self.spec.scm.as_ref().is_some_and(ScmSpec::is_git) {
            // Other SCM programs cannot be compared.
            return self.queue.push_back(Input::CommitGuardChecked(CommitGuardResult::Same));
        }
        if self.spawn_staged_status(true).is_err() {
            self.describe_change(None);
        }
    }

    fn spawn_staged_status(&mut self, after: bool) -> io::Result<()> {
        let Some(scm) = &self.spec.scm else { return Err(io::ErrorKind::NotFound.into()) };
        let status = self.spawn_git_status(&scm.program, commit_guard::STATUS_ARGS)?;
        self.task = ActiveTask::CommitGuard(CommitGuardRun { status, ended: None, after });
        Ok(())
    }

    pub(super) fn on_staged_status(&mut self, run: &CommitGuardRun, exit: Option<Exit>) {
        let ok = exit.is_some_and(Exit::success);
        let status = run.status.text().filter(|_| ok);
        let now = status.as_deref().and_then(StagedSnapshot::parse);
        match (run.after, now) {
            (false, Some(now)) => {
                let unused = self.unused_commit_message.take();
                let unused = unused.filter(|(_, staged)| staged.commits_same(&now));
                let has_message = unused.is_some();
                if let Some((message, _)) = unused {
                    self.commit_message = Some(message);
                }
                self.warn_nested_repositories(&now);
                self.staged_snapshot = Some(now);
                self.queue.push_back(Input::ScmStatus(ScmStatus::Dirty { has_message }));
            }
            (false, None) => {
                let exit = exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string());
                let why = run.ended.map_or(exit, |why| format!("killed: {why}"));
                self.on_scm_status_failed(&format!("git status: {why}"), ends_run(run.ended));
            }
            (true, now) => match now.zip(self.staged_snapshot.as_ref()) {
                Some((now, before)) => match now.change_since(before) {
                    Some(change) => self.describe_change(Some(change)),
                    None => {
                        self.queue.push_back(Input::CommitGuardChecked(CommitGuardResult::Same))
                    }
                },
                None => self.describe_change(None),
            },
        }
    }

    /// A nested repository is committed only as a reference.
    fn warn_nested_repositories(&mut self, staged: &StagedSnapshot) {
        let modules = self.repository_root().join(".gitmodules");
        let modules = self.world.read(&modules).unwrap_or_default();
        let modules = String::from_utf8_lossy(&modules);
        for name in staged.new_repositories(&modules) {
            let name = name.replace(char::is_control, "?");
            self.recorder.warn_once(format!(
                "{name} is a nested git repository, so its files are not committed. To commit \
                 them, remove {name}/.git and run `git rm --cached {name}`; to keep it separate, \
                 use `git submodule add` or .gitignore"
            ));
        }
    }

    fn describe_change(&mut self, change: Option<StagedChange>) {
        let can_commit = self.spec.scm.as_ref().is_some_and(ScmSpec::commits_index_only);
        let moved = change != Some(StagedChange::Files) || !can_commit;
        let what = match change {
            Some(StagedChange::Files) => "files changed",
            Some(StagedChange::Commit) => "the index or HEAD changed",
            None => "git status failed",
        };
        let follows = if moved {
            "nothing is committed; the checks of the next iteration cover it"
        } else {
            "that change is not committed; the next iteration's guardrails check it (add the \
             agent's private files to .gitignore)"
        };
        let message = format!(
            "{what} while the agent wrote a commit message, after the checks ran: {follows}"
        );
        // An inspection that was ended by a stop says nothing about the agent.
        if !self.machine.is_immediate_stop() {
            self.recorder.warn(message);
        }
        let reason = format!("{what} while the agent wrote a commit message, after the checks ran");
        // The text must not look like a request for a commit message.
        let message = format!(
            "After your work was checked and before it was committed, {what}. That change is \
             unchecked. Review it (`git status`, `git diff`, `git log`), and keep or undo it."
        );
        let feedback = Feedback { action: FailAction::Append, message };
        let unseen = UncheckedChange { reason, feedback };
        let look = if moved {
            CommitGuardResult::Moved(unseen)
        } else {
            CommitGuardResult::ChangedBeside(unseen)
        };
        self.queue.push_back(Input::CommitGuardChecked(look));
    }
}
