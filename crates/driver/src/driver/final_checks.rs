//! Driver: checks at the end of a run.

use super::Driver;
use crate::world::{RunStep, Uncommitted, World};
use ralph_engine::machine::FinalChecks;
use ralph_git::format_file_list;

/// Larger settings are compared by size and time.
const MAX_SETTINGS_BYTES: u64 = 4 << 20;

impl<W: World> Driver<'_, W> {
    pub(super) fn settings_fingerprints(&mut self) -> Vec<u64> {
        let files = self.spec.settings_files.iter();
        files.map(|(file, _)| self.world.file_fingerprint(file, MAX_SETTINGS_BYTES).0).collect()
    }

    pub(super) fn changed_branch(&mut self) -> Option<String> {
        let first = self.initial_branch.as_ref()?;
        self.world.branch().filter(|now| now != first)
    }

    fn report_uncommitted(&mut self) {
        let Uncommitted { files, submodules } = self.world.uncommitted();
        if let Some(files) = format_file_list(&files) {
            self.recorder.warn(format!("complete, but not committed: {files}"));
        }
        if let Some(submodules) = format_file_list(&submodules) {
            self.recorder.warn(format!(
                "uncommitted changes inside submodules (commit them there): {submodules}"
            ));
        }
    }

    /// Reports changed settings (an agent may weaken the next run's rules) and missing outputs.
    pub(super) fn run_final_checks(&mut self, checks: FinalChecks) {
        if self.world.obstacle(RunStep::UseProject).is_some() {
            // Without the project, nothing can be compared.
            return;
        }
        if let Some(signal) = self.spec.missing_signal.as_ref().filter(|_| checks.missing_signal) {
            self.recorder.warn(format!(
                "the agent was never asked for {signal}, so only the limit could end the run"
            ));
        }
        if let (Some(first), Some(now)) = (self.initial_branch.clone(), self.changed_branch()) {
            self.recorder.warn(format!("the run started on branch {first} and ended on {now}"));
        }
        if checks.uncommitted {
            self.report_uncommitted();
        }
        let now = self.settings_fingerprints();
        let looks = self.initial_settings.iter().zip(now).zip(&self.spec.settings_files);
        let changed = looks.filter(|((then, now), _)| *then != now);
        let changed: Vec<_> = changed.map(|(_, (_, name))| name.as_str()).collect();
        if !changed.is_empty() {
            self.recorder.warn(format!(
                "{} changed during this run; check the changes before the next run uses them",
                changed.join(" and ")
            ));
        }
        if let Some(repository) = self.world.replaced() {
            self.recorder.warn(format!(
                "{} was replaced by another repository during this run; earlier commits are not \
                 in it",
                repository.display()
            ));
        }
        for promised in self.spec.required_outputs.iter().filter(|_| checks.required_outputs) {
            if !self.world.kind(&promised.file).exists() {
                self.recorder.warn(promised.message.clone());
            }
        }
    }
}
