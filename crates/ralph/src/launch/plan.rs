//! Builds the [`RunSpec`] from what a run is started with.

use crate::config::Settings;
use crate::project_dir;
use crate::recover::Recovery;
use ralph_driver::resume::ResumeState;
use ralph_driver::run_spec::{RunSpec, Variables};
use ralph_engine::prompt::OutputLimits;
use ralph_events::error::Error;
use ralph_events::event::Isolation;
use ralph_store::project::Project;
use ralph_store::runs::RunDir;

use super::{LaunchSpec, View, Window, agent, prompt, rules};

#[derive(Debug)]
pub(crate) struct LaunchPlan<'a> {
    pub(crate) project: &'a Project,
    /// The project whose settings apply: for a worktree, the one it was spawned from.
    pub(crate) origin: &'a Project,
    pub(crate) spec: LaunchSpec,
    pub(crate) view: View,
    pub(crate) action: LaunchAction,
    pub(crate) resume: Option<ResumedRun>,
    /// The window that this process runs in, if it has one.
    pub(crate) window: Option<Window>,
    pub(super) recovery: Recovery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchAction {
    Start,
    StartInBackground,
    DryRun,
    PrintPrompt,
}

#[derive(Debug)]
pub(crate) struct ResumedRun {
    pub(crate) dir: RunDir,
    pub(crate) state: ResumeState,
}

impl<'a> LaunchPlan<'a> {
    /// Declares the directories that agents can write to: programs in them are not trusted.
    pub(crate) fn new(
        project: &'a Project,
        spec: LaunchSpec,
        action: LaunchAction,
        recovery: Recovery,
    ) -> LaunchPlan<'a> {
        project_dir::declare_agent_writable(&spec.settings.settings, project);
        let view = spec.view;
        let (origin, resume, window) = (project, None, None);
        LaunchPlan { project, origin, spec, view, action, resume, window, recovery }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.spec.settings.settings
    }

    /// Only pending checks remain, so neither agent nor prompt is needed.
    pub(crate) fn needs_only_checks(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.state.run.resume.needs_only_checks())
    }

    pub(crate) fn run_spec(&self) -> Result<RunSpec, Error> {
        let LaunchPlan { project, spec, .. } = self;
        let (settings, defaults) = (self.settings(), spec.defaults());
        if self.resume.is_some() && !self.needs_only_checks() {
            prompt::check_again(&spec.prompt, defaults)?;
        }
        let resumed = self.resume.as_ref().map(|resume| resume.state.run.clone());
        Ok(RunSpec {
            command: spec.command.name(),
            run_id: String::new(),
            name: None,
            directory: project.root().to_owned(),
            ralph_dir: project.ralph_dir(),
            agent: agent::agent_spec(self)?,
            isolation: Isolation::default(),
            prompt: spec.prompt.clone(),
            empty_prompt: defaults.is_worker,
            variables: None,
            required: Vec::new(),
            required_outputs: Vec::new(),
            settings_files: spec.named_settings_files(project),
            show_iteration_in_prompt: settings.include_iteration_count_in_prompt,
            completion: spec.completion.clone(),
            missing_signal_warning: None,
            guardrails: rules::guardrail_specs(settings),
            guardrail_output: OutputLimits {
                head: settings.output_truncate_chars as usize,
                tail: settings.output_tail_chars as usize,
            },
            scm: rules::scm_spec(settings, project.root())?,
            tasks: None,
            rules: rules::loop_rules(settings, defaults),
            completion_is_final: defaults.is_worker,
            resumed: resumed.or_else(|| self.window.as_ref()?.progress()),
            journal_bytes: megabytes(settings.runs.max_journal_megabytes),
            notify: settings.notify.command.clone(),
            questions_dir: None,
            display_filter: settings
                .agent
                .display_filter
                .clone()
                .filter(|_| self.view.shows_agent(settings)),
        })
    }

    /// `--print-prompt`; needs no agent.
    pub(crate) fn print_prompt(&self, variables: Option<&Variables>) -> Result<u8, Error> {
        self.spec.settings.warnings.iter().for_each(|message| crate::cli::warn(message));
        let line = self.settings().include_iteration_count_in_prompt;
        prompt::print_prompt(&self.spec.prompt, variables, self.max_iterations(), line)
    }

    pub(crate) fn max_iterations(&self) -> u32 {
        self.settings().maximum_iterations.unwrap_or(self.spec.defaults().max_iterations)
    }
}

pub(super) fn megabytes(number: u32) -> u64 {
    u64::from(number) * 1024 * 1024
}
