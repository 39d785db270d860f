//! Driver: the journal, and what happens if it cannot be written.

use std::io;

use super::{ActiveTask, Driver};
use crate::recorder::WriteResult;
use crate::world::{RunStep, World};
use ralph_engine::machine::{Input, Now};
use ralph_git::head_log::NewCommits;
use ralph_report::Problem;

impl<W: World> Driver<'_, W> {
    pub(super) fn take_time(&mut self) -> Now {
        let now = self.world.now();
        self.recorder.at.time_ms = now.wall_ms;
        now
    }

    pub(super) fn flush(&mut self) {
        self.record_commits(false);
        // With no child running, the reserved space stays free.
        let is_idle = matches!(self.task, ActiveTask::None | ActiveTask::ScmRetry(..));
        match self.recorder.flush(self.world, is_idle) {
            Ok(WriteResult::Normal) => {}
            Ok(WriteResult::UsedReserve(_)) if self.end_recorded => {}
            Ok(WriteResult::UsedReserve(err)) | Err(err) => self.fail("the journal", &err),
        }
        for problem in self.recorder.take_problems() {
            match problem {
                // After the end, the journal has the outcome already.
                Problem::Failure(message) if !self.end_recorded => {
                    self.queue.push_back(Input::InternalError { message });
                }
                Problem::Warning(message) | Problem::Failure(message) => {
                    self.recorder.warn(message);
                }
            }
        }
    }

    /// At once, so that commits are recorded before what follows from them.
    pub(super) fn record_commits(&mut self, thorough: bool) {
        if let Some(NewCommits { head, commits }) = self.world.new_commits(thorough) {
            let job_runs = self.running_child().is_some();
            self.step(Input::CommitsFound { head, commits, job_runs });
        }
    }

    /// Restores ralph's files after agents and guardrails.
    pub(super) fn cleanup(&mut self) {
        match self.world.cleanup() {
            Ok(restored) => {
                self.raw_log_failed &= restored.is_empty();
                for message in restored {
                    self.recorder.warn(message);
                }
            }
            Err(err) => self.fail("the journal", &err),
        }
        self.stop_if_obstructed();
    }

    pub(super) fn stop_if_obstructed(&mut self) {
        if let Some(message) = self.world.obstacle(RunStep::UseProject)
            && !std::mem::replace(&mut self.journal_failed, true)
        {
            self.queue.push_back(Input::InternalError { message });
        }
    }

    pub(super) fn fail(&mut self, what: &str, err: &io::Error) {
        if !std::mem::replace(&mut self.journal_failed, true) {
            let message = format!(
                "cannot write {what} in {}: {err}; check free space and permissions",
                self.spec.ralph_dir.display()
            );
            self.queue.push_back(Input::InternalError { message });
        }
    }
}
