//! `ralph run`: flags and settings become a [`RunSpec`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::agent::{self, Adapter, PromptVia, Request};
use crate::config::settings::SandboxBackend;
use crate::config::{self, Duration, Flag, Loaded, Settings, Sources};
use crate::core::completion::Rule;
use crate::core::event::{Event, Purpose};
use crate::core::rules::{Budget, RateLimit, Retry, RetryScope, Rules};
use crate::core::text;
use crate::error::Error;
use crate::process;
use crate::report::human::Human;
use crate::report::json::Json;
use crate::report::style::{Capabilities, Style};
use crate::report::{Pace, Reporter};
use crate::run::driver;
use crate::run::session::{Keep, Session};
use crate::run::spec::{AgentSpec, GuardrailSpec, PromptSource, RunSpec, ScmSpec};
use crate::state::project::Project;

use super::{LoopArgs, OutputForm, RunArgs};

/// What is read at most of a prompt that has no end, such as a device.
const LARGEST_PIPED_PROMPT: u64 = 64 << 20;

/// Runs the loop. `extra` is for settings that no flag can say.
///
/// # Errors
/// Whatever keeps the run from starting. What happens after that is an event, and an exit code.
pub(super) fn run(project: &Project, args: &RunArgs, extra: Vec<Flag>) -> Result<u8, Error> {
    let prompt = prompt_source(args.prompt.as_deref(), args.prompt_file.as_deref())?;
    let ralph_dir = project.ralph_dir();
    if ralph_dir.metadata().is_ok_and(|meta| !meta.is_dir()) {
        return Err(Error::input(format!("not a directory: {}", ralph_dir.display()))
            .hint("ralph keeps its settings, journal and logs there; move that file away"));
    }
    refuse_hidden_settings(project, &args.common)?;
    let loaded = load(project, &args.common, args.completion_response.as_deref(), extra)?;
    let settings = &loaded.settings;
    refuse_what_is_missing(settings)?;
    let (agent, guarded) = guarded(project, settings, &args.common.agent_command)?;
    let spec = RunSpec {
        command: "run",
        run_id: String::new(),
        directory: project.root().to_owned(),
        ralph_dir: project.ralph_dir(),
        agent,
        prompt,
        iteration_line: settings.include_iteration_count_in_prompt,
        completion: completion_rule(args, settings)?,
        guardrails: guardrails(settings),
        output_truncate_chars: settings.output_truncate_chars as usize,
        scm: scm_spec(settings)?,
        rules: rules(settings),
        notify: settings.notify.command.clone(),
    };
    let unsaved = match &spec.scm {
        Some(scm) => scm.check(project.root())?,
        None => None,
    };
    refuse_unkeepable_budgets(&spec)?;
    if args.common.dry_run {
        return dry_run(&spec, &loaded);
    }
    let mut preface = preface(&spec, &loaded, guarded);
    preface.extend(unsaved.map(|message| Event::Warning { message: message.into() }));
    let style = style(&args.common, settings);
    let reporter = reporter(args.common.output, style, Pace::OfRun);
    carry_out(project, spec, settings, preface, reporter)
}

/// Runs what the spec says, in a project of its own while it lasts.
pub(super) fn carry_out(
    project: &Project,
    mut spec: RunSpec,
    settings: &Settings,
    preface: Vec<Event<'static>>,
    reporter: Box<dyn Reporter>,
) -> Result<u8, Error> {
    let keep = Keep {
        runs: settings.runs.keep as usize,
        raw_bytes: u64::from(settings.runs.max_raw_megabytes) * 1024 * 1024,
    };
    let mut session = Session::open(project, spec.command, keep)?;
    spec.run_id.clone_from(&session.run_id);
    let mut events = std::mem::take(&mut session.preface);
    events.extend(preface);
    let finish = driver::run(&spec, &mut session.world, vec![reporter], &events);
    session.close();
    Ok(finish.exit_code)
}

fn prompt_source(text: Option<&str>, file: Option<&Path>) -> Result<PromptSource, Error> {
    match (text, file) {
        (Some(text), None) if text.trim().is_empty() => Err(Error::usage("the prompt is empty")
            .hint("say what the agent is to do: ralph run -p \"Make the tests pass\"")),
        (Some(text), None) => Ok(PromptSource::Text(text.to_owned())),
        (None, Some(path)) => {
            let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
            // A problem that is found now costs nothing.
            let unreadable = |err: &io::Error| match err.kind() {
                io::ErrorKind::NotFound => {
                    Error::input(format!("prompt file not found: {}", path.display()))
                        .hint("write what the agent is to do into it, or use -p \"…\"")
                }
                io::ErrorKind::IsADirectory => {
                    Error::input(format!("the prompt file is a directory: {}", path.display()))
                        .hint("name a file in it")
                }
                _ => Error::input(format!("cannot read prompt file: {}: {err}", path.display())),
            };
            let file = File::open(path).map_err(|err| unreadable(&err))?;
            let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
            let mut bytes = Vec::new();
            let limit = if is_file { u64::MAX } else { LARGEST_PIPED_PROMPT };
            file.take(limit).read_to_end(&mut bytes).map_err(|err| unreadable(&err))?;
            if bytes.trim_ascii().is_empty() {
                return Err(Error::input(format!("the prompt file is empty: {}", path.display()))
                    .hint("write what the agent is to do into it"));
            }
            if !is_file {
                // What comes by a pipe (`-f <(…)`, `-f /dev/stdin`) cannot be read again.
                return Ok(PromptSource::Text(String::from_utf8_lossy(&bytes).into_owned()));
            }
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            Ok(PromptSource::File(path))
        }
        _ => Err(Error::usage("exactly one of --prompt and --prompt-file must be given")
            .hint("ralph run -p \"Make the tests pass\", or ralph run -f PROMPT.md")),
    }
}

/// In a subdirectory the settings of the project, and with them its guardrails, would silently not
/// apply, and a second run could work on the same files.
fn refuse_hidden_settings(project: &Project, args: &LoopArgs) -> Result<(), Error> {
    let settings = |dir: &Path| dir.join(config::DIRECTORY).join(config::FILE);
    let root = project.root();
    if args.settings.is_some() || settings(root).exists() || root.join(".git").exists() {
        return Ok(());
    }
    for above in root.ancestors().skip(1) {
        if settings(above).exists() {
            return Err(Error::input(format!(
                "the settings of this project are not here, but in {}",
                above.display()
            ))
            .hint(format!("run ralph there, or with -C {}", above.display()))
            .hint("for a project of its own in this directory: ralph init"));
        }
        if above.join(".git").exists() {
            break;
        }
    }
    Ok(())
}

/// The settings, with the flags over them.
pub(super) fn load(
    project: &Project,
    args: &LoopArgs,
    completion_response: Option<&str>,
    extra: Vec<Flag>,
) -> Result<Loaded, Error> {
    let mut flags = Vec::new();
    let mut flag = |key, value, name: &str| {
        flags.push(Flag { key, value, name: name.to_owned() });
    };
    if let Some(n) = args.max_iterations {
        flag("maximumIterations", json!(n), "--max-iterations");
    }
    if let Some(text) = completion_response {
        flag("completionResponse", json!(text), "--completion-response");
    }
    let another_agent = match args.agent_command.split_first() {
        Some((program, rest)) => Some((program, rest, "-- COMMAND")),
        None => args.agent.as_ref().map(|program| (program, &[][..], "--agent")),
    };
    if let Some((program, rest, name)) = another_agent {
        flag("agent.command", json!(program), name);
        // What the settings say of another program is not for this one.
        flag("agent.flags", json!(rest), name);
        flag("agent.type", json!(null), name);
        flag("agent.model", json!(null), name);
        flag("agent.promptVia", json!(null), name);
    }
    if let Some(model) = &args.model {
        flag("agent.model", json!(model), "--model");
    }
    if let Some(seconds) = args.inactivity_timeout {
        flag("inactivityTimeoutSeconds", json!(seconds), "--inactivity-timeout");
    }
    if args.no_stream_agent_output {
        flag("streamAgentOutput", json!(false), "--no-stream-agent-output");
    } else if args.stream_agent_output {
        flag("streamAgentOutput", json!(true), "--stream-agent-output");
    }
    flags.extend(extra);
    config::load(&Sources {
        project_dir: project.root().to_owned(),
        settings_path: args.settings.clone(),
        env: std::env::vars_os().collect(),
        flags,
    })
}

/// Settings that this version cannot honour are no settings to run with: a sandbox that is not there
/// must not be believed in.
fn refuse_what_is_missing(settings: &Settings) -> Result<(), Error> {
    let sandbox = &settings.sandbox;
    if sandbox.required || sandbox.backend.is_some_and(|backend| backend != SandboxBackend::None) {
        return Err(Error::config("sandbox: this version of ralph has no sandbox")
            .hint("set sandbox.backend to \"none\" and sandbox.required to false to run without"));
    }
    let missing = [
        (settings.agent.response_filter.is_some(), "agent.responseFilter"),
        (settings.agent.display_filter.is_some(), "agent.displayFilter"),
        (settings.stall.iterations > 0, "stall.iterations"),
    ];
    match missing.into_iter().find(|(set, _)| *set) {
        Some((_, key)) => Err(Error::config(format!("{key} is not available in this version"))
            .hint("take it out of the settings")),
        None => Ok(()),
    }
}

/// Whoever sets a budget goes to bed trusting it, so one that nothing would ever be counted against is
/// an error and not a decoration.
fn refuse_unkeepable_budgets(spec: &RunSpec) -> Result<(), Error> {
    let adapter = spec.agent.adapter;
    let (run, iteration) = (&spec.rules.budget, &spec.rules.iteration_budget);
    let cost = run.cost_usd.or(iteration.cost_usd).is_some();
    let tokens = run.tokens.or(iteration.tokens).is_some();
    let streams = spec.agent.stream;
    let (key, what) = if cost && !(streams && adapter.tells_cost()) {
        ("costUsd", "costs")
    } else if tokens && !(streams && adapter.tells_tokens()) {
        ("tokens", "tokens")
    } else {
        return Ok(());
    };
    let error = Error::config(format!(
        "budget: {key} cannot be kept, because {} does not tell its {what}{}",
        if adapter.name() == "text" { &spec.agent.program } else { adapter.name() },
        if streams { "" } else { " in plain mode" }
    ));
    let others = match (key, streams && adapter.tells_tokens()) {
        ("costUsd", true) => "set tokens or duration instead",
        _ => "set duration instead",
    };
    Err(if streams {
        error.hint(others)
    } else {
        error.hint("leave streamAgentOutput on, or set duration instead")
    })
}

fn agent_spec(
    project: &Project,
    settings: &Settings,
    agent_command: &[String],
) -> Result<AgentSpec, Error> {
    let agent = &settings.agent;
    let Some(program) = agent.command.clone().filter(|command| !command.is_empty()) else {
        return Err(no_agent());
    };
    let adapter = match agent.kind {
        None => agent::for_command(&program),
        Some(kind) => agent::by_name(kind.as_str()).ok_or_else(|| {
            let names: Vec<&str> = agent::all().iter().map(|adapter| adapter.name()).collect();
            Error::config(format!("agent.type: there is no adapter for {} yet", kind.as_str()))
                .hint(format!("known are {}", names.join(", ")))
        })?,
    };
    // The agent is looked for where it will be looked for when it is started.
    let path = match agent.env.get("PATH") {
        Some(path) => Some(path.into()),
        None if agent.env_exclude.iter().any(|name| name == "PATH") => None,
        None => std::env::var_os("PATH"),
    };
    if process::find_program(program.as_ref(), path.as_deref(), project.root()).is_none() {
        return Err(not_installed(&program, adapter, project.root()));
    }
    // Words after `--` are arguments already; those of the settings may need splitting.
    let flags = match agent_command.split_first() {
        Some((_, rest)) => rest.to_vec(),
        None => config::agent_args(&agent.flags)
            .map_err(|err| Error::config(format!("agent.flags: {err}")))?,
    };
    let env = agent
        .env
        .iter()
        .map(|(name, value)| (name.into(), Some(value.into())))
        .chain(agent.env_exclude.iter().map(|name| (name.into(), None)))
        .collect();
    Ok(AgentSpec {
        adapter,
        program,
        flags,
        model: agent.model.clone(),
        autonomous: agent.autonomous,
        stream: settings.stream_agent_output,
        prompt_via: agent.prompt_via,
        keep_background: agent.keep_background,
        env,
    })
}

/// The agent, and whether it has to ask our hook before it uses a tool. It is made to where it asks nobody
/// else and no sandbox holds it.
fn guarded(
    project: &Project,
    settings: &Settings,
    agent_command: &[String],
) -> Result<(AgentSpec, bool), Error> {
    let mut agent = agent_spec(project, settings, agent_command)?;
    let guarded = agent.autonomous
        && std::env::current_exe()
            .is_ok_and(|ralph| agent.guard(&ralph, &settings.hooks.allow, project.root()));
    Ok((agent, guarded))
}

fn no_agent() -> Error {
    let path = std::env::var_os("PATH");
    let here = PathBuf::from(".");
    let found: Vec<&str> = agent::all()
        .iter()
        .map(|adapter| adapter.name())
        .filter(|name| *name != "text")
        .filter(|name| process::find_program(name.as_ref(), path.as_deref(), &here).is_some())
        .collect();
    let error = Error::usage("no agent is configured");
    match found.first() {
        Some(first) => error
            .hint(format!("found on the PATH: {}", found.join(", ")))
            .hint(format!("name one: ralph run … -- {first}, or run `ralph init`")),
        None => error
            .hint("none of the known agents is on the PATH; `ralph doctor` says how to get one")
            .hint("any command can be an agent: ralph run … -- COMMAND"),
    }
}

fn not_installed(program: &str, adapter: &'static dyn Adapter, dir: &Path) -> Error {
    let error = Error::usage(format!("the agent was not found: {program}"));
    if program.contains('/') {
        match std::fs::metadata(dir.join(program)) {
            Ok(meta) if meta.is_dir() => {
                Error::usage(format!("the agent is a directory: {program}"))
                    .hint("name the program in it")
            }
            Ok(_) => Error::usage(format!("the agent may not be executed: {program}"))
                .hint(format!("chmod +x {}", shell_words::quote(program))),
            Err(_) if program.starts_with("~/") => {
                error.hint("no shell is involved, so ~ means nothing; write the whole path")
            }
            Err(_) => error.hint("there is no file of that name; check the path"),
        }
    } else if adapter.name() == "text" {
        error.hint("no program of that name is on the PATH; check its name, or give its whole path")
    } else {
        error.hint(format!("install it: {}", adapter.install()))
    }
}

fn completion_rule(args: &RunArgs, settings: &Settings) -> Result<Rule, Error> {
    let says_nothing = |flag: &str| {
        Error::usage(format!("{flag} is satisfied by an agent that says nothing"))
            .hint("choose something that the agent says only when it is done")
    };
    if let Some(text) = &args.completion_promise {
        return match text.trim() {
            "" => Err(says_nothing("--completion-promise")),
            _ => Ok(Rule::Promise(text.clone())),
        };
    }
    if let Some(pattern) = &args.done_pattern {
        let regex = fancy_regex::Regex::new(pattern).map_err(|err| {
            Error::usage(format!("--done-pattern: {err}")).hint(format!("in {pattern:?}"))
        })?;
        if regex.is_match("").unwrap_or(false) {
            return Err(says_nothing("--done-pattern"));
        }
        return Ok(Rule::Pattern(regex));
    }
    if settings.completion_response.trim().is_empty() {
        return Err(Error::config("completionResponse is empty")
            .hint("an agent that says nothing would then be done; choose a word"));
    }
    Ok(Rule::Response(settings.completion_response.clone()))
}

fn guardrails(settings: &Settings) -> Vec<GuardrailSpec> {
    settings
        .guardrails
        .iter()
        .map(|guardrail| GuardrailSpec {
            command: guardrail.command.clone(),
            fail_action: guardrail.fail_action,
            hint: guardrail.hint.clone(),
            timeout_ms: guardrail.timeout_seconds.and_then(Duration::limit).map(millis),
        })
        .collect()
}

fn scm_spec(settings: &Settings) -> Result<Option<ScmSpec>, Error> {
    let Some(scm) = &settings.scm else { return Ok(None) };
    let tasks = scm
        .tasks
        .iter()
        .map(|task| {
            shell_words::split(task)
                .map_err(|err| Error::config(format!("scm.tasks: {task:?}: {err}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let tasks: Vec<Vec<String>> = tasks.into_iter().filter(|words| !words.is_empty()).collect();
    if tasks.is_empty() {
        Ok(None)
    } else {
        Ok(Some(ScmSpec { program: scm.command.clone(), tasks }))
    }
}

/// Settings keep a duration within a hundred years.
fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn rules(settings: &Settings) -> Rules {
    let limit = |limit: Duration| limit.limit().map(millis);
    let budget = &settings.budget;
    let per_iteration = &budget.per_iteration;
    Rules {
        max_iterations: settings.maximum_iterations(),
        exit_at_limit: 1,
        retry: Retry {
            scope: RetryScope::SameIteration { retries: settings.retry.max.unwrap_or(3) },
            backoff_ms: millis(settings.retry.backoff_seconds.get()),
            backoff_cap_ms: millis(settings.retry.backoff_cap_seconds.get()),
            exit_code: 4,
        },
        retry_empty: false,
        inactivity_ms: settings.inactivity_timeout_seconds.and_then(limit),
        inactivity_fails: true,
        iteration_timeout_ms: limit(settings.iteration_timeout_seconds),
        result_grace_ms: Some(millis(settings.result_grace_seconds.get())),
        rate_limit: RateLimit {
            wait: settings.rate_limit.wait,
            max_wait_ms: millis(settings.rate_limit.max_wait.get()),
        },
        budget: Budget {
            cost_usd: budget.cost_usd,
            tokens: budget.tokens,
            duration_ms: budget.duration.and_then(limit),
        },
        iteration_budget: Budget {
            cost_usd: per_iteration.cost_usd,
            tokens: per_iteration.tokens,
            duration_ms: per_iteration.duration.and_then(limit),
        },
        guardrails: Vec::new(),
        scm: Vec::new(),
        gates: false,
    }
}

/// The settings that somebody made, in one line, with secrets left out.
fn merged(loaded: &Loaded) -> String {
    let Ok(mut document) = serde_json::to_value(&loaded.settings) else { return String::new() };
    config::secret::redact(&mut document);
    let made: Vec<String> = config::leaves(&document)
        .into_iter()
        .filter(|(key, _)| loaded.is_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if made.is_empty() { "all defaults".to_owned() } else { made.join(" ") }
}

/// What there is to say before the first iteration.
fn preface(spec: &RunSpec, loaded: &Loaded, guarded: bool) -> Vec<Event<'static>> {
    let note = |message: String| Event::Note { message: message.into() };
    let warning = |message: String| Event::Warning { message: message.into() };
    let mut events: Vec<_> = loaded
        .files
        .iter()
        .map(|path| note(format!("Loading settings from {}", config::display_name(path))))
        .collect();
    events.extend(loaded.warnings.iter().cloned().map(warning));
    events.push(note(format!("Settings: {}", merged(loaded))));
    let adapter = spec.agent.adapter;
    if spec.agent.autonomous && adapter.name() != "text" && !adapter.confines_itself() {
        events.push(warning(format!(
            "{} runs with its own approval prompts switched off and without a sandbox{}",
            adapter.name(),
            if guarded { "; ralph's hook keeps it from the worst commands only" } else { "" }
        )));
    }
    events
}

pub(super) fn style(args: &LoopArgs, settings: &Settings) -> Style {
    let display = &settings.display;
    let base = match args.output {
        OutputForm::Human => Capabilities::of_this_process(),
        OutputForm::Plain | OutputForm::Json => Capabilities::NONE,
    };
    let human = args.output == OutputForm::Human;
    Style {
        emoji: if human { display.emoji.unwrap_or(base.emoji) } else { false },
        color: if human { display.color.unwrap_or(base.color) } else { false },
        color_errors: if human { display.color.unwrap_or(base.color_errors) } else { false },
        timestamps: display.timestamps,
        max_output_lines: display.max_output_lines as usize,
        max_output_chars: display.max_output_chars as usize,
        verbose: args.verbose,
        quiet: args.quiet,
        show_stream: settings.stream_agent_output,
        status: base.status,
    }
}

pub(super) fn reporter(form: OutputForm, style: Style, pace: Pace) -> Box<dyn Reporter> {
    match form {
        OutputForm::Json => Box::new(Json::stdio(pace)),
        OutputForm::Human | OutputForm::Plain => Box::new(Human::stdio(style, pace)),
    }
}

fn dry_run(spec: &RunSpec, loaded: &Loaded) -> Result<u8, Error> {
    let agent = &spec.agent;
    let (prompt, source) = match &spec.prompt {
        PromptSource::Text(prompt) => (prompt.clone(), "--prompt".to_owned()),
        PromptSource::File(path) => {
            let bytes = std::fs::read(path)
                .map_err(|err| Error::input(format!("cannot read {}: {err}", path.display())))?;
            (String::from_utf8_lossy(&bytes).into_owned(), config::display_name(path))
        }
    };
    let invocation = agent.adapter.invocation(&Request {
        program: &agent.program,
        flags: &agent.flags,
        model: agent.model.as_deref(),
        purpose: Purpose::Work,
        stream: agent.stream,
        autonomous: agent.autonomous,
        sandboxed: false,
        prompt_via: agent.prompt_via,
        prompt: "<prompt>",
        prompt_file: Path::new(".ralph/prompt_001.txt"),
        side_file: Path::new(".ralph/side_001.txt"),
    });
    let mut argv: Vec<String> = std::iter::once(&invocation.program)
        .chain(&invocation.args)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    config::secret::redact_args(&mut argv);
    let via = match invocation.prompt_via {
        PromptVia::Stdin => "on its standard input",
        PromptVia::Argument => "as an argument",
        PromptVia::File => "in a file",
    };
    let files: Vec<String> = loaded.files.iter().map(|path| config::display_name(path)).collect();
    let mut rows = vec![
        ("Directory", spec.directory.display().to_string()),
        ("Settings", if files.is_empty() { "defaults".to_owned() } else { files.join(", ") }),
        ("Agent", format!("{} (adapter {})", shell_words::join(argv), agent.adapter.name())),
        (
            "Prompt",
            format!("{} bytes from {source}, {via}: {}", prompt.len(), {
                let first = text::first_line(&prompt).unwrap_or("");
                text::truncate(first, 100, "…").into_owned()
            }),
        ),
        ("Complete", format!("when it says {}", spec.completion.describe())),
        ("Limit", format!("{} iterations", spec.rules.max_iterations)),
    ];
    for guardrail in &spec.guardrails {
        let action = guardrail.fail_action.as_str();
        rows.push(("Guardrail", format!("{} (if it fails: {action})", guardrail.command)));
    }
    if let Some(scm) = &spec.scm {
        let tasks: Vec<String> =
            scm.tasks.iter().map(|task| format!("{} {}", scm.program, task.join(" "))).collect();
        rows.push(("SCM", tasks.join(", ")));
    }
    let mut text = String::new();
    for (name, value) in rows {
        text.push_str(&format!("{:<11} {value}\n", format!("{name}:")));
    }
    text.push_str("\nNothing was run.\n");
    super::print(&text)
}
