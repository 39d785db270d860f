//! Driver: SCM tasks.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use super::{ActiveTask, Driver};
use crate::run_spec::scm_kinds;
use crate::world::{Part, World};
use ralph_engine::machine::{Input, Now, ScmStatus};
use ralph_engine::rules::ScmTaskKind;
use ralph_events::event::{Event, Exit, FailAction, Feedback};
use ralph_events::redact;
use ralph_events::text;
use ralph_git::lock_files::{self, LockStatus, is_lock_error};
use ralph_git::{ScmProcess, ScmSpec, status};
use ralph_process::{ChildId, Launch};

const LOCK_RETRY_MS: u64 = 100;
/// Locks are usually shorter; one that lasts longer is reported.
const LOCK_REPORT_AFTER_MS: u64 = 1_000;
const STALE_LOCK_CHECK_MS: u64 = 1_000;

const OUT_OF_TIME: &str = "the run's time is up";
const TIMED_OUT: &str = "it took longer than scm.timeoutSeconds allows";
const MAX_FEEDBACK_CHARS: usize = 2_000;
const MAX_NAMED_FILES: usize = 5;

impl<W: World> Driver<'_, W> {
    pub(super) fn start_scm_status(&mut self) {
        let Some(look) = self.spec.scm.as_ref().and_then(ScmSpec::status_commands) else {
            return self.queue.push_back(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
        };
        let started = self.world.now().mono_ms;
        self.continue_scm_status(look.into_iter(), started);
    }

    fn continue_scm_status(
        &mut self,
        mut commands: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) {
        let Some(command) = commands.next() else { return };
        match self.start_scm(&command) {
            Ok(child) => {
                self.task =
                    ActiveTask::Scm(ScmProcess::new(child, None, command, commands, started_ms));
            }
            Err(err) => self.on_scm_status_failed(&err.to_string(), false),
        }
    }

    pub(super) fn on_scm_status_failed(&mut self, why: &str, is_last: bool) {
        // Lines below git's reason add nothing.
        let lines = why.lines().filter(|line| !line.starts_with("fatal: adding files failed"));
        let why = lines.collect::<Vec<_>>().join("\n");
        self.skip_commit(format!("staging failed, so nothing was committed: {why}"));
        let told = (!is_last).then(|| commit_failure_feedback("git add -A", &why)).flatten();
        self.queue.push_back(Input::ScmStatus(ScmStatus::Failed(told)));
    }

    fn skip_commit(&mut self, detail: String) {
        let kinds = self.spec.scm.as_ref().map(scm_kinds).unwrap_or_default();
        let commit = kinds.iter().position(|kind| *kind == ScmTaskKind::Commit).unwrap_or(0);
        let task = self.scm_task_name(commit);
        let detail = detail.into();
        self.recorder.record(&Event::ScmEnded { task, ok: false, detail, duration_ms: 0 });
    }

    fn on_conflicts(&mut self, files: &str) {
        self.skip_commit(format!(
            "unresolved merge conflicts, so nothing was committed: {files}; resolve them and run \
             `git add`"
        ));
        let message = format!(
            "Your work could not be committed: these files have unresolved merge conflicts: \
             {files}. Resolve them and run `git add`, or abort the merge, rebase or cherry-pick."
        );
        let told = Feedback { action: FailAction::Append, message };
        self.queue.push_back(Input::ScmStatus(ScmStatus::Failed(Some(told))));
    }

    pub(super) fn run_scm_task(&mut self, index: usize) {
        let Some(scm) = &self.spec.scm else { return };
        let own = format!("ralph: iteration {}", self.machine.iteration());
        let message = self.commit_message.as_deref().unwrap_or(&own);
        let mut rest = scm.commands(index, message).into_iter();
        let Some(first) = rest.next() else {
            return self.queue.push_back(Input::ScmTaskEnded { ok: true, feedback: None });
        };
        let started = self.world.now().mono_ms;
        self.next_scm_command(index, &first, rest, started);
    }

    fn next_scm_command(
        &mut self,
        index: usize,
        command: &[String],
        rest: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) {
        let task = self.scm_task_name(index);
        let program = self.spec.scm.as_ref().map(|scm| scm.program.clone()).unwrap_or_default();
        let mut argv: Vec<String> =
            std::iter::once(program).chain(command.iter().cloned()).collect();
        redact::redact_args(&mut argv);
        self.recorder.record(&Event::ScmStarted { task: task.clone(), argv });
        self.flush();
        match self.start_scm(command) {
            Ok(child) => {
                let command = command.to_vec();
                self.task =
                    ActiveTask::Scm(ScmProcess::new(child, Some(index), command, rest, started_ms));
            }
            Err(err) => {
                let detail = err.to_string().into();
                self.recorder.record(&Event::ScmEnded { task, ok: false, detail, duration_ms: 0 });
                self.queue.push_back(Input::ScmTaskEnded { ok: false, feedback: None });
            }
        }
    }

    fn start_scm(&mut self, command: &[String]) -> io::Result<ChildId> {
        let Some(scm) = &self.spec.scm else { return Err(io::ErrorKind::NotFound.into()) };
        let mut env = self.run_variables();
        // No one can answer a question.
        env.push(("GIT_TERMINAL_PROMPT".into(), Some("0".into())));
        let args: Vec<OsString> = command.iter().map(OsString::from).collect();
        let launch = Launch::plain(&self.spec.directory, OsStr::new(&scm.program), &args, &env);
        let launch = Launch { term_on_parent_death: true, ..launch };
        self.world.start(Part::Scm, &launch).map(|started| started.child)
    }

    pub(super) fn retry_scm_command(&mut self, now: Now) {
        match std::mem::replace(&mut self.task, ActiveTask::None) {
            ActiveTask::ScmRetry(run, at_ms) if now.mono_ms >= at_ms => {
                if let Some(at_ms) = self.stale_lock_retry_at(&run, now) {
                    self.task = ActiveTask::ScmRetry(run, at_ms);
                    return;
                }
                // Those of the git that held the lock.
                self.record_commits(true);
                match self.start_scm(&run.command) {
                    Ok(child) => {
                        let ScmProcess {
                            task, command, remaining_commands: rest, started_ms, ..
                        } = run;
                        let run = ScmProcess::new(child, task, command, rest, started_ms);
                        self.task = ActiveTask::Scm(run);
                    }
                    Err(_) => self.finish_scm(run, None, now),
                }
            }
            other => self.task = other,
        }
    }

    pub(super) fn end_scm(&mut self, timed_out: bool) {
        let at_once = self.machine.is_immediate_stop();
        let why = match timed_out {
            true => TIMED_OUT,
            false if at_once => "the run was stopped",
            false => OUT_OF_TIME,
        };
        match &mut self.task {
            ActiveTask::Scm(run) => {
                run.ended = Some(why);
                self.world.end(run.child, false);
            }
            ActiveTask::CommitGuard(run) => {
                run.ended = Some(why);
                self.world.end(run.status.child, false);
            }
            ActiveTask::StallCheck(look) => self.world.end(look.child, false),
            _ => {}
        }
        self.abandon_scm();
    }

    /// Stops waiting for a lock.
    fn abandon_scm(&mut self) {
        let now = self.take_time();
        match std::mem::replace(&mut self.task, ActiveTask::None) {
            ActiveTask::ScmRetry(run, _) => self.finish_scm(run, None, now),
            other => self.task = other,
        }
    }

    pub(super) fn on_scm_ended(&mut self, mut run: ScmProcess, exit: Option<Exit>, now: Now) {
        let failed = run.ended.is_none() && !exit.is_some_and(Exit::success);
        match failed.then(|| self.lock_retry_at(&mut run, now)).flatten() {
            Some(at_ms) => self.task = ActiveTask::ScmRetry(run, at_ms),
            None => self.finish_scm(run, exit, now),
        }
    }

    /// When to retry a failed command, if the failure is temporary.
    fn lock_retry_at(&mut self, run: &mut ScmProcess, now: Now) -> Option<u64> {
        let soon = now.mono_ms.saturating_add(LOCK_RETRY_MS);
        let lock = lock_files::blocking_lock(&run.output_tail());
        let abandoned = lock.as_deref().map(|lock| self.world.abandoned(lock));
        match lock.zip(abandoned) {
            Some((lock, LockStatus::Stale)) if self.remove_stale_lock(&lock) => {
                return Some(now.mono_ms);
            }
            // After a signal, locks are not awaited.
            Some((lock, LockStatus::MaybeStale(left_ms)))
                if !self.machine.was_signalled()
                    && now.mono_ms.saturating_sub(run.started_ms) >= LOCK_REPORT_AFTER_MS
                    && run.can_wait_for_lock(now.mono_ms) =>
            {
                self.warn_stale_lock(&lock, left_ms);
                run.stale_lock = Some((lock, now.mono_ms.saturating_add(left_ms)));
                return Some(soon);
            }
            _ => {}
        }
        run.can_retry(now.mono_ms).then_some(soon)
    }

    /// When to check a lock again that seems stale but is too new to be removed.
    fn stale_lock_retry_at(&mut self, run: &ScmProcess, now: Now) -> Option<u64> {
        let (lock, until_ms) = run.stale_lock.as_ref()?;
        let goes_on = now.mono_ms < *until_ms
            && !self.machine.was_signalled()
            && self.world.kind(lock).exists();
        goes_on.then(|| now.mono_ms.saturating_add(STALE_LOCK_CHECK_MS).min(*until_ms))
    }

    fn warn_stale_lock(&mut self, lock: &Path, left_ms: u64) {
        self.recorder.warn(format!(
            "{} blocks git, and no process seems to use it; if that stays so, it will be removed \
             in {}",
            lock.display(),
            text::format_duration(left_ms.next_multiple_of(1_000))
        ));
        self.flush();
    }

    /// Removes a lock left by a dead git, and reports it.
    fn remove_stale_lock(&mut self, lock: &Path) -> bool {
        if self.world.remove(lock).is_err() {
            return false;
        }
        self.recorder
            .warn(format!("removed {}, a stale git lock (no process uses it)", lock.display()));
        true
    }

    fn finish_scm(&mut self, mut run: ScmProcess, exit: Option<Exit>, now: Now) {
        let ok = exit.is_some_and(Exit::success);
        let text = run.output_head();
        let Some(index) = run.task else {
            // All but the last must succeed; the exit code of the last is the answer.
            return match (run.remaining_commands.len(), exit) {
                (1.., Some(Exit::Code(0))) if run.command == status::UNMERGED_ARGS => {
                    match status::parse_unmerged(&text).as_slice() {
                        [] => self.continue_scm_status(run.remaining_commands, run.started_ms),
                        files => self.on_conflicts(&first_few(files)),
                    }
                }
                (0, Some(Exit::Code(0))) => {
                    self.queue.push_back(Input::ScmStatus(ScmStatus::Clean))
                }
                (0, Some(Exit::Code(1))) => self.snapshot_staged(),
                (1.., Some(Exit::Code(0))) => {
                    self.continue_scm_status(run.remaining_commands, run.started_ms)
                }
                _ => self.on_scm_status_failed(&run.failure_message(exit), ends_run(run.ended)),
            };
        };
        if ok && let Some(next) = run.remaining_commands.next() {
            return self.next_scm_command(index, &next, run.remaining_commands, run.started_ms);
        }
        let detail = if ok { text } else { run.failure_message(exit) };
        let detail = redact::redact_command(&detail).into_owned();
        let task = self.scm_task_name(index);
        let duration_ms = now.mono_ms.saturating_sub(run.started_ms);
        let mut feedback = None;
        if !ok && self.is_commit(index) {
            self.unused_commit_message =
                self.commit_message.take().zip(self.staged_snapshot.take());
            let program = self.spec.scm.as_ref().map_or("git", |scm| scm.program.as_str());
            // The end of the run explains itself.
            let is_last = ends_run(run.ended);
            feedback =
                commit_failure_feedback(&format!("{program} {task}"), &detail).filter(|_| !is_last);
        }
        self.recorder.record(&Event::ScmEnded { task, ok, detail: detail.into(), duration_ms });
        if ok
            && self.is_commit(index)
            && self.spec.scm.as_ref().is_some_and(ScmSpec::is_git)
            && let Some(no_branch) = self.world.no_branch()
        {
            self.recorder.warn_once(no_branch.advice());
        }
        self.queue.push_back(Input::ScmTaskEnded { ok, feedback });
    }

    fn is_commit(&self, index: usize) -> bool {
        let kinds = self.spec.scm.as_ref().map(scm_kinds).unwrap_or_default();
        kinds.get(index) == Some(&ScmTaskKind::Commit)
    }

    pub(super) fn scm_task_name(&self, index: usize) -> Cow<'static, str> {
        let words = self.spec.scm.as_ref().and_then(|scm| scm.tasks.get(index));
        let words = words.map(|words| words.join(" ")).unwrap_or_default();
        redact::redact_command(&words).into_owned().into()
    }
}

pub(super) fn ends_run(ended: Option<&'static str>) -> bool {
    ended.is_some_and(|why| why != TIMED_OUT)
}

/// Feedback for the next agent, if it can fix the failure.
fn commit_failure_feedback(command: &str, why: &str) -> Option<Feedback> {
    let said = text::suffix(why, MAX_FEEDBACK_CHARS);
    let cut = if said.len() < why.len() { " (last part)" } else { "" };
    let message = format!(
        "Your work passed all checks, but could not be committed: `{command}` failed. Its \
         output{cut}:\n{said}\n\
         Fix the problem. ralph retries the commit after this iteration; do not commit yourself."
    );
    (!is_lock_error(why)).then_some(Feedback { action: FailAction::Append, message })
}

fn first_few(files: &[&str]) -> String {
    let names: Vec<String> = files
        .iter()
        .take(MAX_NAMED_FILES)
        .map(|file| file.replace(char::is_control, "?"))
        .collect();
    let more = if files.len() > MAX_NAMED_FILES { " and more" } else { "" };
    format!("{}{more}", names.join(", "))
}
