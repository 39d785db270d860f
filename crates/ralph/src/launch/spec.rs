//! What a run is started with, as plain data. It is saved as `spec.json` for `ralph resume`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::cli::args::{BudgetArgs, LoopArgs, OutputMode};
use crate::config::{LoadedSettings, SettingOrigin, display_name};
use crate::workers::worktree::Worktree;
use ralph_driver::run_spec::PromptSource;
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_store::project::Project;
use ralph_store::saved_path::{self, rebase};

use super::rules::completion_rule;
use super::settings::settings_files;
use super::{Defaults, LoopCommand};

/// Settings, flags and the command's prompt are resolved in it; what may differ between two starts,
/// such as the agent's path, is not part of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LaunchSpec {
    pub(crate) command: LoopCommand,
    /// The root of the project.
    #[serde(with = "saved_path")]
    pub(crate) directory: PathBuf,
    #[serde(flatten)]
    pub(crate) settings: LoadedSettings,
    /// Where settings may come from, including files that do not exist.
    #[serde(with = "saved_path::list")]
    pub(crate) settings_files: Vec<PathBuf>,
    pub(crate) prompt: PromptSource,
    pub(crate) completion: CompletionRule,
    /// The arguments after `--`, which are not split further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent_args: Option<Vec<String>>,
    /// The template variables that do not come from the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variables: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_list: Option<TaskListSpec>,
    /// The agent has a screen of its own.
    #[serde(default)]
    pub(crate) interactive: bool,
    /// Where a worker works instead of `directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worktree: Option<Worktree>,
    /// The name that the user gave the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) view: View,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskListSpec {
    /// The directory of the documents.
    #[serde(with = "saved_path")]
    pub(crate) directory: PathBuf,
    /// By `--accept-list`.
    pub(crate) accepted: bool,
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) output: OutputMode,
    pub(crate) verbose: bool,
    pub(crate) quiet: bool,
}

impl LaunchSpec {
    /// `config` is the loop file, if one was named.
    pub(crate) fn new(
        command: LoopCommand,
        project: &Project,
        args: &LoopArgs,
        config: Option<&Path>,
        settings: LoadedSettings,
        prompt: PromptSource,
    ) -> Result<LaunchSpec, Error> {
        let completion = completion_rule(command, &args.completion, &settings.settings)?;
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let files = settings.files.iter().cloned().map(absolute).collect();
        let mut origins = settings.origins;
        origins.retain(|_, origin| *origin != SettingOrigin::Default);
        Ok(LaunchSpec {
            command,
            directory: project.root().to_owned(),
            settings: LoadedSettings { files, origins, ..settings },
            settings_files: settings_files(project, args.settings.as_deref(), config)
                .map(absolute)
                .into(),
            prompt,
            completion,
            agent_args: args.agent_command.split_first().map(|(_, rest)| rest.to_vec()),
            variables: None,
            task_list: None,
            interactive: false,
            worktree: None,
            name: args.run_name().map(str::to_owned),
            view: View {
                output: args.output.mode().unwrap_or_default(),
                verbose: args.verbose,
                quiet: args.quiet,
            },
        })
    }

    pub(crate) fn to_json(&self) -> Result<Vec<u8>, Error> {
        let text = serde_json::to_vec_pretty(self);
        text.map_err(|err| Error::failed(format!("cannot save the settings of the run: {err}")))
    }

    pub(super) fn defaults(&self) -> &'static Defaults {
        self.command.defaults(self.interactive)
    }

    /// Each with the name for messages.
    pub(super) fn named_settings_files(&self, project: &Project) -> Vec<(PathBuf, String)> {
        let mut files = self.settings_files.clone();
        files.iter_mut().for_each(|file| rebase(file, &self.directory, project.root()));
        files.into_iter().map(|file| (file.clone(), display_name(&file))).collect()
    }

    /// Follows a project that was moved, with a warning.
    pub(crate) fn follow_move(&mut self, run: &str, root: &Path) {
        if self.directory == root || self.directory.canonicalize().is_ok_and(|from| from == root) {
            return;
        }
        let from = std::mem::replace(&mut self.directory, root.to_owned());
        let (before, now) = (from.display(), root.display());
        self.settings
            .warnings
            .push(format!("the project has moved since run {run} started: from {before} to {now}"));
        let files = self.settings_files.iter_mut().chain(&mut self.settings.files);
        files.for_each(|file| rebase(file, &from, root));
        if let PromptSource::File(path) | PromptSource::FileOrDefault { path, .. } =
            &mut self.prompt
        {
            rebase(path, &from, root);
        }
        if let Some(list) = &mut self.task_list {
            rebase(&mut list.directory, &from, root);
        }
    }

    /// Warns about settings changed since the spec was saved, which do not apply.
    pub(crate) fn changed_settings_warning(&self, spec_file: &Path) -> Option<String> {
        let time = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
        let saved = time(spec_file)?;
        let has_changed = |path: &&PathBuf| match time(path) {
            Some(changed) => changed > saved,
            None => self.settings.files.contains(path),
        };
        let changed = self.settings_files.iter().filter(has_changed);
        let names: Vec<String> = changed.map(|path| display_name(path)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "{} changed after this run started: it keeps its old settings, new runs use the \
                 new ones",
                names.join(" and ")
            )
        })
    }

    /// Sets the limits that are given.
    pub(crate) fn set_limits(&mut self, max_iterations: Option<u32>, budget: &BudgetArgs) {
        let settings = &mut self.settings.settings;
        settings.maximum_iterations = max_iterations.or(settings.maximum_iterations);
        let limits = &mut settings.budget;
        limits.cost_usd = budget.max_cost.or(limits.cost_usd);
        limits.tokens = budget.max_tokens.or(limits.tokens);
        limits.duration = budget.max_time.or(limits.duration);
    }
}
