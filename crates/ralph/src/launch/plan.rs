//! Builds the [`RunSpec`] from settings, flags and a command's defaults.

use crate::cli::args::LoopArgs;
use crate::config::LoadedSettings;
use crate::project_dir;
use crate::recover::Recovery;
use ralph_driver::run_spec::{PromptSource, RunSpec, Variables};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_events::error::Error;
use ralph_store::project::Project;

use super::settings::named_settings_files;
use super::{Defaults, agent, prompt, rules};

#[derive(Debug)]
pub(crate) struct LaunchPlan<'a> {
    pub(crate) project: &'a Project,
    /// The project whose settings apply: for a worktree, the one it was spawned from.
    pub(crate) origin: &'a Project,
    pub(crate) args: &'a LoopArgs,
    pub(crate) defaults: &'a Defaults,
    pub(crate) settings: LoadedSettings,
    pub(super) recovery: Recovery,
}

impl<'a> LaunchPlan<'a> {
    /// Declares the directories that agents can write to: programs in them are not trusted.
    pub(crate) fn new(
        project: &'a Project,
        args: &'a LoopArgs,
        defaults: &'a Defaults,
        settings: LoadedSettings,
        recovery: Recovery,
    ) -> LaunchPlan<'a> {
        project_dir::declare_agent_writable(&settings.settings, project);
        LaunchPlan { project, origin: project, args, defaults, settings, recovery }
    }

    /// For a worktree.
    pub(crate) fn with_origin(self, origin: &'a Project) -> LaunchPlan<'a> {
        LaunchPlan { origin, ..self }
    }

    pub(crate) fn spec(
        &self,
        prompt: PromptSource,
        completion: CompletionRule,
    ) -> Result<RunSpec, Error> {
        let LaunchPlan { project, args, defaults, .. } = *self;
        let settings = &self.settings.settings;
        Ok(RunSpec {
            command: defaults.command,
            run_id: String::new(),
            directory: project.root().to_owned(),
            ralph_dir: project.ralph_dir(),
            agent: agent::agent_spec(project, &self.settings, args, defaults)?,
            prompt,
            empty_prompt: defaults.empty_prompt,
            variables: None,
            required: Vec::new(),
            required_outputs: Vec::new(),
            settings_files: named_settings_files(project, args, None),
            show_iteration_in_prompt: settings.include_iteration_count_in_prompt,
            completion,
            missing_signal_warning: None,
            guardrails: rules::guardrail_specs(settings),
            guardrail_output: OutputLimits {
                head: settings.output_truncate_chars as usize,
                tail: settings.output_tail_chars as usize,
            },
            scm: rules::scm_spec(settings, project.root())?,
            tasks: None,
            rules: rules::loop_rules(settings, defaults),
            completion_is_final: defaults.completion_is_final,
            resumed: args.resume.as_ref().map(|resume| resume.state.run.clone()),
            journal_bytes: megabytes(settings.runs.max_journal_megabytes),
            notify: settings.notify.command.clone(),
            display_filter: settings
                .agent
                .display_filter
                .clone()
                .filter(|_| args.shows_agent(settings)),
        })
    }

    /// `--print-prompt`; needs no agent.
    pub(crate) fn print_prompt(
        &self,
        source: &PromptSource,
        variables: Option<&Variables>,
    ) -> Result<u8, Error> {
        self.settings.warnings.iter().for_each(|message| crate::cli::warn(message));
        let line = self.settings.settings.include_iteration_count_in_prompt;
        prompt::print_prompt(source, variables, self.max_iterations(), line)
    }

    pub(crate) fn max_iterations(&self) -> u32 {
        self.settings.settings.maximum_iterations.unwrap_or(self.defaults.max_iterations)
    }
}

pub(super) fn megabytes(number: u32) -> u64 {
    u64::from(number) * 1024 * 1024
}
