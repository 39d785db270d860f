//! From what was said to a run: every command that loops goes this way.
//!
//! A command loads the settings ([`load`]), finds its prompt and its completion rule, and has a
//! [`Start`] make the [`RunSpec`] of them and carry it out. What a command does differently from the
//! others while nobody says anything is data: its [`Defaults`].

mod active_marker;
mod agent;
mod background;
mod checks;
mod dry_run;
pub(super) mod prompt;
mod reporters;
pub(super) mod rules;
mod sandbox;

use std::path::PathBuf;

use serde_json::json;

use crate::config::settings::{GuardrailSettings, SandboxBackend, ScmSettings};
use crate::config::{self, FlagSetting, LoadedSettings, Settings, Sources, loop_file};
use ralph_driver::driver;
use ralph_driver::notify_command;
use ralph_driver::resume;
use ralph_driver::run_spec::{PromptSource, RunSpec, Variables};
use ralph_driver::session::{self, Retention, RunSession, SessionOptions, StartDetails};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_events::error::Error;
use ralph_events::event::{Event, FailAction};
use ralph_events::exit_code;
use ralph_events::redact;
use ralph_git::environment::refuse_other_repository;
use ralph_git::head_log::LogPosition;
use ralph_report::Backpressure;
use ralph_sandbox::selection::Selection;
use ralph_shell_policy::CommandAllowList;
use ralph_store::home;
use ralph_store::lock::Holder;
use ralph_store::project::Project;
use ralph_store::start_record::StartRecord;

pub(super) use self::background::BackgroundRun;
pub(super) use self::reporters::{reporter, style};
use super::cli::args::LoopArgs;

/// What holds for a command where neither settings nor flags say otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// As it is typed: `run`, `build`, …
    pub(super) command: &'static str,
    pub(super) max_iterations: u32,
    pub(super) exit_at_limit: u8,
    /// How often the agent may fail again after it failed.
    pub(super) retries: u32,
    /// A failure uses up its iteration, rather than that the same one is tried again.
    pub(super) failure_uses_iteration: bool,
    pub(super) exit_at_failure: u8,
    /// An agent that ends well and says nothing has failed.
    pub(super) retry_empty: bool,
    pub(super) inactivity_ms: Option<u64>,
    /// An agent that is ended for its silence has failed.
    pub(super) inactivity_fails: bool,
    /// The agent's program.
    pub(super) agent: Option<&'static str>,
    /// An agent that prints plain text says what it prints on standard error, too.
    pub(super) stderr_counts_as_output: bool,
    /// Something other than guardrails can veto a completion.
    pub(super) gates: bool,
    /// What the agent is locked in.
    pub(super) sandbox: SandboxBackend,
    /// What the agent prints goes to a log in `.ralph/logs`, too.
    pub(super) session_log: bool,
    pub(super) exit_without_prompt: u8,
    /// A prompt file may be empty.
    pub(super) empty_prompt: bool,
    /// `SIGTERM` is a request to pause.
    pub(super) term_pauses: bool,
    /// What completes the run stands once it is said.
    pub(super) completion_is_final: bool,
}

impl Defaults {
    /// Those of `ralph run`, which others differ from.
    pub(super) const RUN: Defaults = Defaults {
        command: "run",
        max_iterations: 10,
        exit_at_limit: exit_code::INCOMPLETE,
        retries: 3,
        failure_uses_iteration: false,
        exit_at_failure: exit_code::AGENT_FAILED,
        retry_empty: false,
        inactivity_ms: None,
        inactivity_fails: true,
        agent: None,
        stderr_counts_as_output: false,
        gates: false,
        sandbox: SandboxBackend::None,
        session_log: false,
        exit_without_prompt: exit_code::USAGE,
        empty_prompt: false,
        term_pauses: false,
        completion_is_final: false,
    };
}

/// Where the settings of a run come from: the project's, one person's, and, with `config`, those of `plan`,
/// `build` and `prompt`.
pub(super) fn settings_files(
    project: &Project,
    args: &LoopArgs,
    config: Option<&PathBuf>,
) -> [PathBuf; 3] {
    let ours = project.ralph_dir();
    let settings = args.settings.clone().unwrap_or_else(|| ours.join(config::FILE));
    let local = settings.with_file_name(config::LOCAL_FILE);
    let config = config.cloned().unwrap_or_else(|| ours.join(loop_file::FILE));
    [settings, local, config]
}

/// The same, each with the name to show for it.
pub(super) fn named_settings_files(
    project: &Project,
    args: &LoopArgs,
    config: Option<&PathBuf>,
) -> Vec<(PathBuf, String)> {
    let files = settings_files(project, args, config).into_iter();
    files.map(|file| (file.clone(), config::display_name(&file))).collect()
}

/// A run that is about to start.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchPlan<'a> {
    pub(super) project: &'a Project,
    /// The project whose settings apply: for a worker in a worktree, the one that it was spawned in.
    pub(super) origin: &'a Project,
    pub(super) args: &'a LoopArgs,
    pub(super) defaults: &'a Defaults,
    pub(super) settings: &'a LoadedSettings,
}

impl LaunchPlan<'_> {
    /// The run as settings, flags and defaults describe it.
    ///
    /// # Errors
    /// There is no agent, or the settings do not fit together.
    pub(super) fn spec(
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

    /// Checks what can be checked before anything is spent; then tells what would be run if only that
    /// was asked for, and else runs it.
    ///
    /// # Errors
    /// Whatever keeps the run from starting. What happens after that is an event, and an exit code.
    pub(super) fn preflight_and_run(&self, spec: RunSpec) -> Result<u8, Error> {
        self.preflight_and_run_as(spec, None)
    }

    /// The same, as a worker.
    ///
    /// # Errors
    /// As above.
    pub(super) fn preflight_and_run_as(
        &self,
        mut spec: RunSpec,
        background: Option<BackgroundRun>,
    ) -> Result<u8, Error> {
        let LaunchPlan { project, args, settings: loaded, .. } = *self;
        if let Some(scm) = &spec.scm {
            scm.preflight(project.root())?;
        }
        // Of a run that goes on it may well be its own work.
        let goes_on = background.as_ref().is_some_and(|background| background.resume.is_some());
        let is_new = args.resume.is_none() && !goes_on;
        let unsaved =
            spec.scm.as_ref().filter(|_| is_new).and_then(|scm| scm.uncommitted(project.root()));
        checks::check_budgets_enforceable(&spec)?;
        let resumed = match &background {
            Some(background) => background.resume.as_ref(),
            None => args.resume.as_ref().map(|resume| &resume.run),
        };
        if let (Some(run), Some(progress)) = (resumed, &spec.progress) {
            checks::check_budget_left(&spec, run, progress)?;
        }
        let choice = sandbox::select_sandbox(&mut spec, project, self)?;
        spec.missing_signal_warning = checks::missing_signal_warning(&spec);
        let mut preface = startup_events(&spec, loaded);
        preface.extend(sandbox::sandbox_events(&choice, &spec, &loaded.settings));
        let left = args.resume.as_ref().map(|resume| &resume.state);
        if let Some(left) = left {
            // What was said when it began need not be said each time that it goes on.
            preface.retain(|event| !left.has_warned(event));
        }
        let damage = left.and_then(|left| left.journal_warning(&spec.rules.budget));
        preface.extend(damage.map(|message| Event::Warning { message: message.into() }));
        let warnings = unsaved.into_iter().chain(active_marker::ignore_marker(project, &spec));
        preface.extend(warnings.map(|message| Event::Warning { message: message.into() }));
        if args.dry_run {
            for event in &preface {
                if let Event::Warning { message } = event {
                    crate::cli::warn(message);
                }
            }
            return dry_run::dry_run(&spec, &choice, loaded);
        }
        self.run(spec, choice, preface, background)
    }

    /// What it takes to go on with this run, should it be cut off.
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
        let here = std::env::current_dir().unwrap_or_else(|_| self.project.root().to_owned());
        let variables = spec.variables.as_ref().and_then(Variables::template_values).cloned();
        let note = StartRecord::new(std::env::args_os(), here, prompt, variables);
        Ok(StartDetails { note, settings })
    }

    /// `--print-prompt`: tells what the agent would be asked, and needs no agent for that.
    ///
    /// # Errors
    /// The prompt cannot be read, or nothing can be printed.
    pub(super) fn print_prompt(
        &self,
        source: &PromptSource,
        variables: Option<&Variables>,
    ) -> Result<u8, Error> {
        self.settings.warnings.iter().for_each(|message| crate::cli::warn(message));
        let line = self.settings.settings.include_iteration_count_in_prompt;
        prompt::print_prompt(source, variables, self.max_iterations(), line)
    }

    /// The limit of iterations.
    pub(super) fn max_iterations(&self) -> u32 {
        self.settings.settings.maximum_iterations.unwrap_or(self.defaults.max_iterations)
    }

    /// Runs what the spec says, in a project of its own while it lasts.
    fn run(
        &self,
        mut spec: RunSpec,
        choice: Selection,
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
        // What a worker is started with is kept with the worker.
        let started = if shared { None } else { Some(self.start_details(&spec)?) };
        let started = started.as_ref();
        let known = args.resume.as_ref().map(|resume| resume.state.journal_size);
        let opening = SessionOptions {
            command: spec.command,
            retention: keep,
            shared,
            resume,
            known_journal_bytes: known,
            started,
        };
        let mut session = RunSession::open(project, opening)?;
        let mode = match &choice {
            Selection::Found { sandbox, .. } => sandbox.backend().name(),
            Selection::None | Selection::Unavailable(_) => active_marker::UNSANDBOXED_MODE,
        };
        let writable = match &choice {
            Selection::Found { sandbox, .. } => sandbox.writable(),
            Selection::None | Selection::Unavailable(_) => Vec::new(),
        };
        let unrecorded = super::project_dir::record_project(project, &writable);
        let unrecorded = unrecorded.map(|message| Event::Warning { message: message.into() });
        if let Selection::Found { sandbox, .. } = choice {
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
        if let Some(moved) = session.world.watch_repository(since) {
            let progress = spec.progress.as_ref();
            let committing = progress.and_then(|progress| progress.pending_commit.as_deref());
            events.splice(0..0, resume::commits_since(moved, committing));
        }
        spec.run_id.clone_from(&session.run_id);
        spec.journal_bytes = spec.journal_bytes.saturating_sub(session.world.journal_size());
        events.extend(preface);
        let list = spec.tasks.as_ref().map(|tasks| {
            let home = home::ralph_home(|name| std::env::var_os(name));
            let (pid, run) = (std::process::id(), spec.run_id.clone());
            let me = Holder { pid, run, command: spec.command.to_owned() };
            session::lock_task_list(home.as_deref(), &tasks.path, &me)
        });
        let list = match list.transpose() {
            Ok(list) => list.flatten(),
            Err(err) => {
                session.discard();
                return Err(err);
            }
        };
        let sign = active_marker::create_marker(project, &spec, mode).unwrap_or_else(|message| {
            events.push(Event::Warning { message: message.into() });
            None
        });
        let finish = driver::run(&spec, &mut session.world, reporters, &events);
        drop(sign);
        drop(list);
        session.close();
        Ok(finish.exit_code)
    }
}

fn megabytes(number: u32) -> u64 {
    u64::from(number) * 1024 * 1024
}

/// The settings, with the flags over them. `overlay` is what another file says, over the settings
/// files; `extra` is for settings that no flag can say.
///
/// # Errors
/// Whatever is wrong with the settings, or keeps them from being found.
pub(crate) fn load(
    project: &Project,
    args: &LoopArgs,
    overlay: Vec<FlagSetting>,
    extra: Vec<FlagSetting>,
) -> Result<LoadedSettings, Error> {
    load_from_project(project, project, args, overlay, extra)
}

/// The same for a project that goes by the settings of another one: a worktree holds what was committed, and
/// that may be an agent's.
///
/// # Errors
/// As above.
pub(crate) fn load_from_project(
    home: &Project,
    project: &Project,
    args: &LoopArgs,
    overlay: Vec<FlagSetting>,
    extra: Vec<FlagSetting>,
) -> Result<LoadedSettings, Error> {
    refuse_other_repository(project.root(), |name| std::env::var_os(name))?;
    if !args.dry_run && !args.print_prompt {
        session::recover(project, super::cli::warn)?;
    }
    let planted = super::recover::clean_stale_sandboxes(project.root())?;
    let mut flags = Vec::new();
    let mut flag = |key, value, name: &str| {
        flags.push(FlagSetting { key, value, name: name.to_owned() });
    };
    if let Some(n) = args.max_iterations {
        flag("maximumIterations", json!(n), "--max-iterations");
    }
    let budget = &args.budget;
    if let Some(dollars) = budget.max_cost {
        flag("budget.costUsd", json!(dollars), "--max-cost");
    }
    if let Some(tokens) = budget.max_tokens {
        flag("budget.tokens", json!(tokens), "--max-tokens");
    }
    if let Some(time) = &budget.max_time {
        flag("budget.duration", json!(time), "--max-time");
    }
    let another_agent = match args.agent_command.split_first() {
        Some((program, rest)) => Some((program, Some(rest), "-- COMMAND")),
        None => args.agent.as_ref().map(|program| (program, None, "--agent")),
    };
    if let Some((program, rest, name)) = another_agent {
        flag("agent.command", json!(program), name);
        if let Some(rest) = rest {
            // These are all of its arguments, beside those that ralph adds.
            flag("agent.flags", json!(rest), name);
            flag("agent.args", json!(null), name);
        }
    }
    if let Some(model) = &args.model {
        flag("agent.model", json!(model), "--model");
    }
    if let Some(timeout) = args.inactivity_timeout {
        flag("inactivityTimeoutSeconds", json!(timeout.to_string()), "--inactivity-timeout");
    }
    if args.no_stream_agent_output {
        flag("streamAgentOutput", json!(false), "--no-stream-agent-output");
    } else if args.stream_agent_output {
        flag("streamAgentOutput", json!(true), "--stream-agent-output");
    }
    if args.no_sandbox {
        flag("sandbox.backend", json!("none"), "--no-sandbox");
        flag("sandbox.required", json!(false), "--no-sandbox");
    } else if let Some(backend) = &args.sandbox {
        // Without a name it is any, but one there has to be.
        let any = backend.is_empty();
        flag("sandbox.backend", json!(if any { "auto" } else { backend }), "--sandbox");
        if any {
            flag("sandbox.required", json!(true), "--sandbox");
        }
    }
    flags.extend(extra);
    // A run that goes on does so by the settings that it began with, whatever others say now.
    let is_new = args.resume.is_none();
    let env = std::env::vars_os().filter(|_| is_new).collect();
    let overlay = if is_new { overlay } else { Vec::new() };
    let mut loaded = config::load(&Sources {
        project_dir: home.root().to_owned(),
        settings_path: args.settings.clone(),
        env,
        flags,
        overlay,
    })?;
    if is_new {
        apply_check_flags(&mut loaded.settings, args)?;
    }
    if is_new && !args.dry_run && !args.print_prompt {
        notify_command::send_missed(
            project,
            loaded.settings.notify.command.as_deref(),
            super::cli::warn,
        )?;
    }
    super::project_dir::declare_agent_writable(&loaded.settings, project);
    loaded.warnings.extend(planted);
    loaded.warnings.extend(args.resume.iter().flat_map(|resume| resume.warnings.clone()));
    Ok(loaded)
}

/// Adds the guardrails of `--check` and the SCM task of `--commit` to those of the settings.
fn apply_check_flags(settings: &mut Settings, args: &LoopArgs) -> Result<(), Error> {
    for command in &args.check {
        if command.trim().is_empty() {
            return Err(Error::usage("--check is empty").hint("--check \"make test\""));
        }
        if !settings.guardrails.iter().any(|guardrail| guardrail.command == *command) {
            settings.guardrails.push(GuardrailSettings {
                command: command.clone(),
                fail_action: FailAction::Append,
                hint: None,
                timeout_seconds: None,
            });
        }
    }
    if args.commit {
        let tasks = &mut settings.scm.get_or_insert_with(ScmSettings::default).tasks;
        let commits = |task: &String| task.split_whitespace().next() == Some("commit");
        if !tasks.iter().any(commits) {
            tasks.insert(0, "commit".to_owned());
        }
    }
    Ok(())
}

/// Cleans up after a run that was cut off. That is said at once: what is wrong with this start may keep it
/// from ever becoming a run.
///
/// # Errors
/// Somebody asked to stop meanwhile, or something that an agent planted is still there.
pub(crate) fn recover(project: &Project) -> Result<(), Error> {
    refuse_other_repository(project.root(), |name| std::env::var_os(name))?;
    session::recover(project, super::cli::warn)?;
    super::recover::remove_planted_files(project.root())
}

/// The settings that somebody made, in one line, with secrets left out.
fn effective_settings_line(loaded: &LoadedSettings) -> String {
    let Ok(mut document) = serde_json::to_value(&loaded.settings) else { return String::new() };
    redact::redact(&mut document);
    let made: Vec<String> = config::leaf_values(&document)
        .into_iter()
        .filter(|(key, _)| loaded.is_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if made.is_empty() { "all defaults".to_owned() } else { made.join(" ") }
}

/// What there is to say before the first iteration.
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
