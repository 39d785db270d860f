//! Builds the [`RunSpec`], checks it and starts the driver.

use crate::cli::args::LoopArgs;
use crate::config::{self, LoadedSettings};
use ralph_driver::driver;
use ralph_driver::resume;
use ralph_driver::run_spec::{PromptSource, RunSpec, Variables};
use ralph_driver::session::{self, Retention, RunSession, SessionOptions, StartDetails};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_events::redact;
use ralph_git::head_log::LogPosition;
use ralph_report::Backpressure;
use ralph_sandbox::selection::Selection;
use ralph_shell_policy::CommandAllowList;
use ralph_store::home;
use ralph_store::lock::Holder;
use ralph_store::project::Project;
use ralph_store::start_record::StartRecord;

use super::background::BackgroundRun;
use super::reporters::{reporter, style};
use super::settings::named_settings_files;
use super::{Defaults, active_marker, agent, checks, dry_run, prompt, reporters, rules, sandbox};

#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchPlan<'a> {
    pub(crate) project: &'a Project,
    /// The project whose settings apply: for a worktree, the one it was spawned from.
    pub(crate) origin: &'a Project,
    pub(crate) args: &'a LoopArgs,
    pub(crate) defaults: &'a Defaults,
    pub(crate) settings: &'a LoadedSettings,
}

impl LaunchPlan<'_> {
    pub(crate) fn spec(
        &self,
        prompt: PromptSource,
        completion: CompletionRule,
    ) -> Result<RunSpec, Error> {
        let LaunchPlan { project, args, defaults, settings: loaded, .. } = *self;
        let settings = &loaded.settings;
        Ok(RunSpec {
            command: defaults.command,
            run_id: String::new(),
            directory: project.root().to_owned(),
            ralph_dir: project.ralph_dir(),
            agent: agent::agent_spec(project, loaded, args, defaults)?,
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
            progress: args.resume.as_ref().map(|resume| resume.state.progress.clone()),
            journal_bytes: megabytes(settings.runs.max_journal_megabytes),
            notify: settings.notify.command.clone(),
            display_filter: settings
                .agent
                .display_filter
                .clone()
                .filter(|_| args.shows_agent(settings)),
        })
    }

    /// Checks everything, then shows the plan (`--dry-run`) or runs it. Errors come before the
    /// start; later failures are events and an exit code.
    pub(crate) fn preflight_and_run(&self, spec: RunSpec) -> Result<u8, Error> {
        self.preflight_and_run_as(spec, None)
    }

    pub(crate) fn preflight_and_run_as(
        &self,
        mut spec: RunSpec,
        background: Option<BackgroundRun>,
    ) -> Result<u8, Error> {
        let LaunchPlan { project, args, settings: loaded, .. } = *self;
        if let Some(scm) = &spec.scm {
            scm.preflight(project.root())?;
        }
        // Uncommitted changes may be the resumed run's own.
        let is_resumed_worker =
            background.as_ref().is_some_and(|background| background.resume.is_some());
        let is_new = args.resume.is_none() && !is_resumed_worker;
        let uncommitted =
            spec.scm.as_ref().filter(|_| is_new).and_then(|scm| scm.uncommitted(project.root()));
        checks::check_budgets_enforceable(&spec)?;
        let resumed = match &background {
            Some(background) => background.resume.as_ref(),
            None => args.resume.as_ref().map(|resume| &resume.run),
        };
        if let (Some(run), Some(progress)) = (resumed, &spec.progress) {
            checks::check_budget_left(&spec, run, progress)?;
        }
        let selection = sandbox::select_sandbox(&mut spec, project, self)?;
        spec.missing_signal_warning = checks::missing_signal_warning(&spec);
        let mut preface = startup_events(&spec, loaded);
        preface.extend(sandbox::sandbox_events(&selection, &spec, &loaded.settings));
        let resume_state = args.resume.as_ref().map(|resume| &resume.state);
        if let Some(resume_state) = resume_state {
            // Do not repeat warnings on every resume.
            preface.retain(|event| !resume_state.has_warned(event));
        }
        let damage =
            resume_state.and_then(|resume_state| resume_state.journal_warning(&spec.rules.budget));
        preface.extend(damage.map(|message| Event::Warning { message: message.into() }));
        let warnings = uncommitted.into_iter().chain(active_marker::ignore_marker(project, &spec));
        preface.extend(warnings.map(|message| Event::Warning { message: message.into() }));
        if args.dry_run {
            for event in &preface {
                if let Event::Warning { message } = event {
                    crate::cli::warn(message);
                }
            }
            return dry_run::dry_run(&spec, &selection, loaded);
        }
        self.run(spec, selection, preface, background)
    }

    /// For `ralph resume`.
    fn start_details(&self, spec: &RunSpec) -> Result<StartDetails, Error> {
        let settings = serde_json::to_value(&self.settings.settings)
            .map_err(|err| Error::failed(format!("cannot keep the settings: {err}")))?;
        let prompt = match &spec.prompt {
            PromptSource::Text(prompt) => Some(prompt.clone()),
            PromptSource::File(_)
            | PromptSource::FileOrDefault { .. }
            | PromptSource::BuiltIn { .. }
            | PromptSource::TaskList(_) => None,
        };
        let directory = std::env::current_dir().unwrap_or_else(|_| self.project.root().to_owned());
        let variables = spec.variables.as_ref().and_then(Variables::template_values).cloned();
        let record = StartRecord::new(std::env::args_os(), directory, prompt, variables);
        Ok(StartDetails { note: record, settings })
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

    fn run(
        &self,
        mut spec: RunSpec,
        selection: Selection,
        preface: Vec<Event<'static>>,
        background: Option<BackgroundRun>,
    ) -> Result<u8, Error> {
        let LaunchPlan { project, args, defaults, settings: loaded, .. } = *self;
        let settings = &loaded.settings;
        let keep = Retention {
            runs: settings.runs.keep as usize,
            raw_bytes: megabytes(settings.runs.max_raw_megabytes),
        };
        let shared = background.is_some();
        let resume = match &background {
            Some(background) => background.resume.as_deref(),
            None => args.resume.as_ref().map(|resume| resume.run.as_str()),
        };
        // Workers store this in their launch record.
        let started = if shared { None } else { Some(self.start_details(&spec)?) };
        let started = started.as_ref();
        let journal_bytes = args.resume.as_ref().map(|resume| resume.state.journal_size);
        let options = SessionOptions {
            command: spec.command,
            retention: keep,
            shared,
            resume,
            known_journal_bytes: journal_bytes,
            started,
        };
        let mut session = RunSession::open(project, options)?;
        let mode = match &selection {
            Selection::Found { sandbox, .. } => sandbox.backend().name(),
            Selection::None | Selection::Unavailable(_) => active_marker::UNSANDBOXED_MODE,
        };
        let writable = match &selection {
            Selection::Found { sandbox, .. } => sandbox.writable(),
            Selection::None | Selection::Unavailable(_) => Vec::new(),
        };
        let unrecorded = crate::project_dir::record_project(project, &writable);
        let unrecorded = unrecorded.map(|message| Event::Warning { message: message.into() });
        if let Selection::Found { sandbox, .. } = selection {
            session.world.set_sandbox(sandbox, settings.sandbox.guardrails);
        }
        let style = style(args, settings);
        let mut reporters = match background {
            None => vec![reporter(args.output, style, Backpressure::DropWhenSlow)],
            Some(background) => match background.attach(&mut session, args.output, style) {
                Ok(reporters) => reporters,
                Err(err) => {
                    session.close();
                    return Err(err);
                }
            },
        };
        let mut events = std::mem::take(&mut session.preface);
        events.extend(unrecorded);
        if defaults.session_log {
            let before = args.resume.is_some().then_some(&mut session.world);
            match reporters::session_log(project, keep, before) {
                Ok((log, note)) => {
                    reporters.push(log);
                    events.push(note);
                }
                Err(err) => {
                    session.discard();
                    return Err(err);
                }
            }
        }
        let since = spec.progress.as_ref().map_or(LogPosition::Now, |progress| {
            progress.head.as_deref().map_or(LogPosition::Ever, LogPosition::Commit)
        });
        if let Some(commits) = session.world.watch_repository(since) {
            let progress = spec.progress.as_ref();
            let committing = progress.and_then(|progress| progress.pending_commit.as_deref());
            events.splice(0..0, resume::commits_since(commits, committing));
        }
        spec.run_id.clone_from(&session.run_id);
        spec.journal_bytes = spec.journal_bytes.saturating_sub(session.world.journal_size());
        events.extend(preface);
        let list_lock = spec.tasks.as_ref().map(|tasks| {
            let home = home::ralph_home(|name| std::env::var_os(name));
            let (pid, run) = (std::process::id(), spec.run_id.clone());
            let holder = Holder { pid, run, command: spec.command.to_owned() };
            session::lock_task_list(home.as_deref(), &tasks.path, &holder)
        });
        let list_lock = match list_lock.transpose() {
            Ok(list_lock) => list_lock.flatten(),
            Err(err) => {
                session.discard();
                return Err(err);
            }
        };
        let marker = active_marker::create_marker(project, &spec, mode).unwrap_or_else(|message| {
            events.push(Event::Warning { message: message.into() });
            None
        });
        let finish = driver::run(&spec, &mut session.world, reporters, &events);
        drop(marker);
        drop(list_lock);
        session.close();
        Ok(finish.exit_code)
    }
}

fn megabytes(number: u32) -> u64 {
    u64::from(number) * 1024 * 1024
}

fn effective_settings_line(loaded: &LoadedSettings) -> String {
    let Ok(mut document) = serde_json::to_value(&loaded.settings) else { return String::new() };
    redact::redact(&mut document);
    let changed: Vec<String> = config::leaf_values(&document)
        .into_iter()
        .filter(|(key, _)| loaded.is_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if changed.is_empty() { "all defaults".to_owned() } else { changed.join(" ") }
}

/// Warnings and notes for the start of the journal.
fn startup_events(spec: &RunSpec, loaded: &LoadedSettings) -> Vec<Event<'static>> {
    let note = |message: String| Event::Note { message: message.into() };
    let warning = |message: String| Event::Warning { message: message.into() };
    let mut events: Vec<_> = loaded
        .files
        .iter()
        .map(|path| note(format!("Loading settings from {}", config::display_name(path))))
        .collect();
    events.extend(loaded.warnings.iter().cloned().map(warning));
    events.push(note(format!("Settings: {}", effective_settings_line(loaded))));
    if let Some(tasks) = spec.tasks.as_ref().filter(|tasks| tasks.accepted) {
        events.push(Event::TaskListAccepted { list: tasks.name.clone().into() });
    }
    events.extend(agent::agent_warnings(&spec.agent).map(warning));
    let (_, unusable) =
        CommandAllowList::parse(loaded.settings.hooks.allow.iter().map(String::as_str));
    events.extend(unusable.into_iter().map(|bad| {
        warning(format!("hooks.allow: {:?} lets nothing through: {}", bad.entry, bad.reason))
    }));
    if loaded.settings.scm.is_some() && spec.scm.is_none() && !loaded.is_set("scm.tasks") {
        let message = "scm has no tasks, so that nothing is committed; \
                       \"scm\": {\"tasks\": [\"commit\"]} commits each iteration that passes";
        events.push(warning(message.to_owned()));
    }
    events.extend(spec.missing_signal_warning.clone().map(warning));
    if spec.command == Defaults::RUN.command && spec.guardrails.is_empty() && spec.tasks.is_none() {
        let message =
            "no checks: the agent's word is all there is. Add one with --check \"make test\"";
        events.push(warning(message.to_owned()));
    }
    let adapter = spec.agent.adapter;
    if spec.agent.autonomous
        && !spec.agent.sandboxed
        && spec.agent.args.is_none()
        && adapter.name() != "text"
        && !adapter.sandboxes_itself()
    {
        events.push(warning(format!(
            "{} runs with its own approval prompts switched off and without a sandbox{}",
            adapter.name(),
            if spec.agent.has_hook { "; a hook keeps it from the worst commands only" } else { "" }
        )));
    }
    events
}
