//! Requests and obstacles of the real world.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ralph_process::FileWatcher;
use ralph_sandbox::SandboxTrace;
use ralph_sandbox::proxy::Refusal;
use ralph_store::dir_identity::DirChange;
use ralph_store::private_files;
use ralph_store::question_spool::QuestionSpool;
use ralph_store::requests::Request;

use super::{Control, ControlSource, QuestionSource, RealWorld, RunStep};

impl RealWorld {
    /// Accepts requests announced at `door`.
    ///
    /// # Errors The pipe cannot be watched.
    pub fn set_control(
        &mut self,
        control: Box<dyn ControlSource>,
        door: OwnedFd,
    ) -> io::Result<()> {
        self.system.set_control_pipe(door)?;
        self.control = Some(control);
        Ok(())
    }

    /// Accepts questions from `ralph ask`.
    ///
    /// # Errors The spool directory cannot be created.
    pub fn set_question_spool(&mut self, spool: QuestionSpool) -> io::Result<()> {
        spool.create()?;
        let mut watcher = FileWatcher::new().ok();
        let watched = watcher.as_mut().map(|watcher| watcher.watch_dir(spool.path()));
        if let (Some(Ok(_)), Some(watcher)) = (watched, &watcher) {
            self.system.set_file_watch(watcher.as_fd().try_clone_to_owned()?);
        }
        self.questions = Some(QuestionSource { spool, watcher });
        Ok(())
    }

    /// Quarantine failures.
    pub(super) fn unresolved_traces(&self) -> impl Iterator<Item = &SandboxTrace> {
        self.sandbox
            .iter()
            .flat_map(|cell| &cell.pending_traces)
            .filter(|trace| trace.is_not_restored())
    }

    /// Why nothing in the project may be read or executed any more.
    pub(super) fn project_obstacle(&self) -> Option<String> {
        let words: Vec<String> = self.unresolved_traces().map(SandboxTrace::to_string).collect();
        let trace = (!words.is_empty()).then(|| words.join("\n"));
        let obstacle = trace.or_else(|| self.link_error.clone());
        let gone = self.project_gone_message().or_else(|| self.repository_gone_message());
        obstacle.or(gone)
    }

    fn project_gone_message(&self) -> Option<String> {
        let path = self.project_dir.path().display();
        let now = match self.project_change {
            DirChange::Unchanged => return None,
            DirChange::Gone => "",
            DirChange::Replaced => " (another directory has its path now)",
        };
        Some(format!(
            "project directory {path} is gone{now}; restore it, or run `ralph resume` from its \
             new path"
        ))
    }
}

impl Control for RealWorld {
    fn requests(&mut self) -> Vec<(u64, Request)> {
        self.control.as_mut().map(|control| control.take()).unwrap_or_default()
    }

    fn questions(&mut self) -> Vec<String> {
        let Some(source) = &mut self.questions else { return Vec::new() };
        if let Some(watcher) = &mut source.watcher {
            watcher.take_changes();
        }
        source.spool.take()
    }

    fn acknowledge_requests(&mut self) {
        if let Some(control) = &mut self.control {
            control.acknowledge();
        }
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        let proxy = self.sandbox.as_mut().and_then(|cell| cell.sandbox.proxy());
        proxy.map(|proxy| proxy.refusals()).unwrap_or_default()
    }

    fn cleanup(&mut self) -> io::Result<Vec<String>> {
        let mut restored = Vec::new();
        // Without a sandbox, or in landlock, an agent can change modes.
        private_files::restore_access(&self.files.dir.path);
        if self.files.is_removed() {
            let message = format!("{} was removed", self.files.dir.journal().display());
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        if self.check_project_in_place().is_err() {
            return Ok(restored);
        }
        let traces = self
            .sandbox
            .iter_mut()
            .flat_map(|cell| cell.pending_traces.extract_if(.., |t| !t.is_not_restored()));
        restored.extend(traces.map(|trace| trace.to_string()));
        // `obstacle` reports the error, if there is one.
        let _ = self.check_links();
        restored.append(&mut self.link_warnings);
        if self.unresolved_traces().next().is_some() {
            return Ok(restored);
        }
        // The next commit must not include run-time files.
        if !self.project.is_prepared() {
            self.project.prepare()?;
        }
        Ok(restored)
    }

    fn obstacle(&mut self, next: RunStep) -> Option<String> {
        match next {
            RunStep::StartAgent => {
                let lost = self.control.as_mut().and_then(|control| control.obstacle());
                lost.or_else(|| {
                    self.check_project_in_place().err().and_then(|_| self.project_gone_message())
                })
            }
            RunStep::UseProject => self.project_obstacle(),
        }
    }
}
