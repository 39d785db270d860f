//! Command definitions, dispatch and exit codes.
//!
//! Help, man pages, completions and the command reference are generated from these definitions.

pub mod args;
mod parse_error;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::OnceLock;

use clap::builder::styling::{AnsiColor, Reset, Styles};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::{self, Error};
use ralph_events::exit_code;
use ralph_git::link_guard;
use ralph_store::home;

use self::args::{LoopArgs, ProjectArgs};
use crate::commands::mode::ModeArgs;
use crate::launch::LoopCommand;
use crate::{commands, project_dir};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run a coding agent in a loop, each time with a fresh context, until the work is provably done.
#[derive(Debug, Parser)]
#[command(
    name = "ralph",
    version,
    disable_version_flag = true,
    styles = STYLES,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = "Try `ralph demo` first, then `ralph init` in your own project.\n\
                  `ralph COMMAND -h` shows common options, `--help` all of them."
)]
pub struct Cli {
    /// Print the version.
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    pub project: ProjectArgs,

    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run an agent until it reports done and every check passes.
    Run(Box<LoopArgs>),

    /// Compare the specifications with the code and write a plan.
    Plan(Box<commands::mode::ModeArgs>),

    /// Work through the plan, one task per iteration.
    Build(Box<commands::mode::ModeArgs>),

    /// Loop over a prompt file of your own.
    Prompt(Box<commands::prompt::AdHocArgs>),

    /// Work through a task list until every story passes.
    Work(Box<commands::work::WorkArgs>),

    /// Create a task list: requirements, stories, progress, prompt.
    New(commands::new::NewArgs),

    /// Show and edit the stories of a task list.
    Tasks(commands::tasks::TasksArgs),

    /// Archive a finished task list and start fresh.
    Archive(commands::archive::ArchiveArgs),

    /// Start a loop in the background, in a tmux window.
    #[command(mut_arg("background", |arg| arg.hide(true)))]
    Spawn(Box<commands::worker::SpawnArgs>),

    /// List all runs on this machine.
    Ls(commands::worker::LsArgs),

    /// Show the progress of runs.
    Status(commands::worker::StatusArgs),

    /// Pause runs after the current iteration.
    Pause(commands::worker::WorkerSelection),

    /// Continue a paused, stopped or crashed run.
    Resume(commands::resume::ResumeArgs),

    /// Stop runs and everything their agents started.
    Kill(commands::worker::KillArgs),

    /// Give guidance to a run, for its next prompt.
    Tell(commands::steer::TellArgs),

    /// List the open questions of all agents on this machine.
    Questions(commands::steer::QuestionsArgs),

    /// Answer an agent's question.
    Answer(commands::steer::AnswerArgs),

    /// Ask the user, as an agent inside a run.
    Ask(commands::steer::AskArgs),

    /// Show a run's output.
    Logs(commands::worker::LogsArgs),

    /// Open a background run's tmux window.
    Attach(commands::worker::SelectionArgs),

    /// Wait until runs end, and exit with their exit code.
    Wait(commands::worker::WorkerSelection),

    /// Type a line into a background run's window.
    Send(commands::worker::SendArgs),

    /// Remove ended runs from the list.
    Rm(commands::worker::RmArgs),

    /// Watch and steer all runs in the terminal.
    Ui(commands::ui::UiArgs),

    /// Print a starter prompt.
    Template(commands::worker::TemplateArgs),

    /// The command of a worker's window.
    #[command(hide = true)]
    WorkerLoop(commands::worker::SelectionArgs),

    /// Create `.ralph/settings.json`.
    Init(commands::init::InitArgs),

    /// Show the effective settings and where each one comes from.
    Settings(commands::settings::SettingsArgs),

    /// List this project's runs.
    Runs(commands::runs::RunsArgs),

    /// Show a past run's output again.
    Replay(commands::runs::ReplayArgs),

    /// Summarize a run.
    Report(commands::report::ReportArgs),

    /// Show every run in a browser, on this machine or a phone.
    Serve(commands::serve::ServeArgs),

    /// Watch a scripted loop: no account, no network, 20 seconds.
    Demo(commands::demo::DemoArgs),

    /// Check this machine: agents, git, tmux, sandboxes.
    Doctor,

    /// List the supported agents and their installed versions.
    Agents(commands::agents::AgentsArgs),

    /// Check, inspect and clean up sandboxes.
    #[command(subcommand)]
    Sandbox(commands::sandbox::SandboxCommand),

    /// Answer a Claude Code hook; its input is on standard input.
    Hook(commands::hook::HookArgs),

    /// Export the Claude Code plugin.
    Plugin(commands::plugin::PluginArgs),

    /// Print shell completions.
    Completions(commands::completions::CompletionsArgs),

    /// Write the man pages.
    Man(commands::man::ManArgs),
}

/// The commands as the help lists them.
const COMMAND_GROUPS: [(&str, &[&str]); 8] = [
    ("Loops", &["run", "plan", "build", "prompt", "work"]),
    ("Task lists", &["new", "tasks", "archive"]),
    (
        "Background",
        &[
            "spawn", "ls", "status", "pause", "resume", "kill", "logs", "attach", "send", "wait",
            "rm", "template",
        ],
    ),
    ("Watch", &["ui", "serve"]),
    ("Steer", &["tell", "questions", "answer", "ask"]),
    ("Look back", &["runs", "report", "replay"]),
    ("Set up", &["init", "doctor", "settings", "agents", "sandbox", "plugin"]),
    ("Other", &["demo", "hook", "completions", "man"]),
];

/// Sections with the path of a command in their first line.
const EXAMPLES: &str = include_str!("examples.txt");

pub fn definition() -> clap::Command {
    let command = with_examples(Cli::command(), "ralph");
    let list = grouped_commands(&command);
    let (header, reset) = (STYLES.get_header(), Reset);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\
         {header}Options:{reset}\n{{options}}{{after-help}}"
    ))
}

/// `-h` shows the first example only, so that it fits on one screen.
fn with_examples(command: clap::Command, path: &str) -> clap::Command {
    command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        let command = with_examples(command, &path);
        let mut sections = EXAMPLES.split("\n## ");
        let examples = sections.find_map(|it| it.strip_prefix(&path)?.strip_prefix('\n'));
        let Some(examples) = examples.map(str::trim_end) else { return command };
        match examples.split_once("\n\n") {
            Some((first, _)) => command.after_help(first).after_long_help(examples),
            None => command.after_help(examples),
        }
    })
}

/// clap cannot group subcommands.
fn grouped_commands(cli: &clap::Command) -> String {
    let (header, literal, reset) = (STYLES.get_header(), STYLES.get_literal(), Reset);
    let mut list = String::new();
    for (group, names) in COMMAND_GROUPS {
        list += &format!("{header}{group}:{reset}\n");
        for name in names {
            let command = cli.find_subcommand(name);
            let about = command.and_then(clap::Command::get_about).map(ToString::to_string);
            list += &format!("  {literal}{name:<12}{reset} {}\n", about.unwrap_or_default());
        }
        list.push('\n');
    }
    list
}

pub fn main(mut args: Vec<OsString>) -> u8 {
    if args.get(1).is_some_and(|command| command == "help") {
        args.retain(|arg| arg != "--help" && arg != "-h");
    }
    // Scripts and shell prompts ask for this often: skip the other definitions.
    if let [_, only] = args.as_slice()
        && (only == "--version" || only == "-v")
    {
        return exit_code(print(concat!("ralph ", env!("CARGO_PKG_VERSION"), "\n")));
    }
    let is_worker = is_worker_command(&args);
    let has_prefix = is_worker || command_name(&args).is_some_and(|name| name == "resume");
    let _ = MESSAGE_PREFIX.set(if has_prefix { "ralph: " } else { "" });
    let parsed = definition().try_get_matches_from(&args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(err) if err.use_stderr() && !is_bare_call(&err) => {
            print_error(&parse_error::usage_error(&err, &args));
            return if is_worker { exit_code::INCOMPLETE } else { exit_code::USAGE };
        }
        Err(err) => {
            let printed = handle_write_result(err.print().and_then(|()| io::stdout().flush()));
            let code = u8::try_from(err.exit_code()).unwrap_or(exit_code::USAGE);
            return exit_code(printed.map(|_| code));
        }
    };
    let result = home::refuse_relative(|name| std::env::var_os(name)).and_then(|()| dispatch(cli));
    link_guard::take_warnings().iter().for_each(|message| warn(message));
    exit_code(result.map_err(|error| match error.kind {
        error::ErrorKind::Usage if is_worker => Error { kind: error::ErrorKind::Failed, ..error },
        _ => error,
    }))
}

/// `ralph` without arguments prints its help, which is not an error.
fn is_bare_call(err: &clap::Error) -> bool {
    err.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Commands that exit with 1, not 2, on a bad command line.
const WORKER_COMMANDS: [&str; 11] =
    ["spawn", "ls", "status", "pause", "kill", "rm", "logs", "attach", "wait", "send", "template"];

fn is_worker_command(args: &[OsString]) -> bool {
    command_name(args).is_some_and(|name| WORKER_COMMANDS.contains(&name.as_str()))
}

/// The first argument that is not an option of `ralph` itself.
fn command_name(args: &[OsString]) -> Option<String> {
    let mut words = args.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "-C" || word == "-d" || word == "--project-dir" {
            words.next();
        } else if !word.to_string_lossy().starts_with('-') {
            return Some(word.to_string_lossy().into_owned());
        }
    }
    None
}

fn dispatch(mut cli: Cli) -> Result<u8, Error> {
    ralph_process::trust::declare_lazily(project_dir::known_agent_dirs);
    project_dir::resolve_paths_from_project(&cli.project, &mut cli.command);
    let project = || project_dir::open_project(&cli.project);
    let own = || project_dir::require_project(&cli.project, false);
    let for_loop =
        |args: &LoopArgs| project_dir::require_project(&cli.project, args.settings.is_some());
    let plan_or_build = |command, args: ModeArgs| {
        commands::mode::plan_or_build(&for_loop(&args.common)?, command, args)
    };
    refuse_steering_inside_run(&cli.command)?;
    match cli.command {
        CliCommand::Run(args) => commands::run::run(&for_loop(&args)?, &args, Vec::new()),
        CliCommand::Plan(args) => plan_or_build(LoopCommand::Plan, *args),
        CliCommand::Build(args) => plan_or_build(LoopCommand::Build, *args),
        CliCommand::Prompt(args) => commands::prompt::prompt(&for_loop(&args.mode.common)?, *args),
        CliCommand::Work(args) => commands::work::work(&for_loop(&args.common)?, &args),
        CliCommand::New(args) => commands::new::new(&own()?, &args),
        CliCommand::Tasks(args) => commands::tasks::tasks(&own()?, &args),
        CliCommand::Archive(args) => commands::archive::archive(&own()?, &args),
        CliCommand::Spawn(args) => commands::worker::spawn(&for_loop(&args.common)?, &args),
        CliCommand::Ls(args) => commands::worker::ls(&args),
        CliCommand::Status(args) => commands::worker::status(&args),
        CliCommand::Pause(args) => commands::worker::pause(&args),
        CliCommand::Resume(args) => commands::resume::resume(&cli.project, &args),
        CliCommand::Kill(args) => commands::worker::kill(&args),
        CliCommand::Tell(args) => commands::steer::tell(&args),
        CliCommand::Questions(args) => commands::steer::questions(&args),
        CliCommand::Answer(args) => commands::steer::answer(&args),
        CliCommand::Ask(args) => commands::steer::ask(&args),
        CliCommand::Logs(args) => commands::worker::logs(&args),
        CliCommand::Attach(args) => commands::worker::attach(&args),
        CliCommand::Wait(args) => commands::worker::wait(&args),
        CliCommand::Send(args) => commands::worker::send(&args),
        CliCommand::Rm(args) => commands::worker::rm(&args),
        CliCommand::Ui(args) => commands::ui::ui(&cli.project, &args),
        CliCommand::Template(args) => commands::worker::template(project()?.root(), &args),
        CliCommand::WorkerLoop(args) => crate::executors::local::run_in_window(&args.name),
        CliCommand::Init(args) => commands::init::init(&project()?, &args),
        CliCommand::Settings(args) => commands::settings::settings(&cli.project, &args),
        CliCommand::Runs(args) => commands::runs::runs(&own()?, &args),
        CliCommand::Replay(args) => commands::runs::replay(own, &args),
        CliCommand::Report(args) => commands::report::report(own, &args),
        CliCommand::Serve(args) => commands::serve::serve(&args),
        CliCommand::Demo(args) => commands::demo::demo(&args),
        CliCommand::Doctor => commands::doctor::doctor(&project()?),
        CliCommand::Agents(args) => commands::agents::agents(&project()?, &args),
        CliCommand::Sandbox(command) => commands::sandbox::sandbox(&project()?, &command),
        CliCommand::Hook(args) => Ok(commands::hook::hook(args)),
        CliCommand::Plugin(args) => commands::plugin::plugin(&args),
        CliCommand::Completions(args) => commands::completions::completions(&args),
        CliCommand::Man(args) => commands::man::man(&args),
    }
}

fn refuse_steering_inside_run(command: &CliCommand) -> Result<(), Error> {
    let what = match command {
        CliCommand::Tell(_) => "`ralph tell`",
        CliCommand::Answer(_) => "`ralph answer`",
        CliCommand::Pause(_) => "`ralph pause`",
        CliCommand::Resume(_) => "`ralph resume`",
        CliCommand::Kill(_) => "`ralph kill`",
        CliCommand::Ui(_) => "`ralph ui`",
        CliCommand::Work(args) if args.accept_list => "`--accept-list`",
        _ => return Ok(()),
    };
    commands::steer::refuse_inside_run(what)
}

fn exit_code(result: Result<u8, Error>) -> u8 {
    match result {
        Ok(code) => code,
        Err(error) => {
            print_error(&error);
            error.exit_code()
        }
    }
}

/// Scripts that drive workers match their messages, which have always begun with `ralph: `.
static MESSAGE_PREFIX: OnceLock<&str> = OnceLock::new();

fn message_prefix() -> &'static str {
    MESSAGE_PREFIX.get().copied().unwrap_or_default()
}

pub fn print_error(error: &Error) {
    print_to_stderr(&error.with_prefix(message_prefix()));
}

pub fn warn(message: &str) {
    print_to_stderr(&format!("{}warning: {message}", message_prefix()));
}

pub fn note(message: &str) {
    print_to_stderr(&format!("{}note: {message}", message_prefix()));
}

/// Ignores write errors.
fn print_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{}\n", strip_control_chars(text)).as_bytes());
}

/// A closed pipe is not an error.
pub fn print(text: &str) -> Result<u8, Error> {
    write_part(text).map(|_| 0)
}

/// Prints part of an answer. Returns false if the reader has closed the pipe.
pub fn write_part(text: &str) -> Result<bool, Error> {
    let mut stdout = io::stdout().lock();
    handle_write_result(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

fn handle_write_result(result: io::Result<()>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(true),
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(err) => Err(Error::failed(format!("cannot write to standard output: {err}"))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{COMMAND_GROUPS, Cli, definition};
    use ralph_events::event::{Outcome, RunSetup};
    use ralph_report::next_steps::RunEnding;

    #[test]
    fn next_commands_parse_for_every_outcome() {
        let setup = RunSetup {
            max_cost_usd: Some(2.5),
            max_tokens: Some(1000),
            max_duration_ms: Some(60_000),
            ..RunSetup::default()
        };
        for outcome in [
            Outcome::Complete,
            Outcome::CompleteScmFailed,
            Outcome::LimitReached,
            Outcome::Interrupted,
            Outcome::Budget,
            Outcome::Stalled,
            Outcome::AgentFailed,
            Outcome::CredentialsRefused,
            Outcome::PromptMissing,
            Outcome::InternalError,
        ] {
            let ending = RunEnding {
                run: "a1b2",
                outcome,
                budget_used_up: true,
                iterations: 10,
                max_iterations: 10,
                cut_off: false,
                scm_done: &[],
                limit_ends: None,
                setup: Some(&setup),
            };
            for command in ending.next_steps().commands {
                let parsed = Cli::try_parse_from(command.split(' '));
                assert!(parsed.is_ok(), "{outcome:?}: {command}");
            }
        }
    }

    #[test]
    fn help_lists_every_visible_command_once() {
        let mut listed: Vec<&str> =
            COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let definition = definition();
        let visible = definition.get_subcommands().filter(|command| !command.is_hide_set());
        let mut expected: Vec<&str> = visible.map(clap::Command::get_name).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    #[test]
    fn help_examples_fit_80_columns_and_short_help_one_screen() {
        for mut command in definition().get_subcommands().cloned() {
            let name = command.get_name().to_owned();
            let examples = command.get_after_long_help().or(command.get_after_help());
            let examples = examples.map(ToString::to_string).unwrap_or_default();
            for line in examples.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            let short = command.render_help().to_string();
            assert!(short.lines().count() <= 30, "{name}: {short}");
        }
    }
}
