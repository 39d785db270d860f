//! Command definitions, dispatch and exit codes.
//!
//! Help, man pages, completions and the command reference are generated from these definitions.

pub mod args;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::{self, Error};
use ralph_events::exit_code;
use ralph_git::link_guard;
use ralph_report::style::Capabilities;
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
    after_help = "Start with `ralph demo`, then `ralph init` in a project of your own.\n\
                  `ralph COMMAND --help` has examples."
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
    /// Run the agent until it answers with the completion response and all guardrails pass.
    Run(Box<LoopArgs>),

    /// Have the agent compare specifications and code, and write the plan.
    Plan(Box<commands::mode::ModeArgs>),

    /// Have the agent work the plan off, one task in each iteration.
    Build(Box<commands::mode::ModeArgs>),

    /// Run a prompt of your own in the same way as plan and build.
    Prompt(Box<commands::prompt::AdHocArgs>),

    /// Work off a task list, one story an iteration, until every story passes.
    Work(Box<commands::work::WorkArgs>),

    /// Write the documents of a task list: requirements, stories, progress, prompt.
    New(commands::new::NewArgs),

    /// Show the stories of the task list, what is next, and change them.
    Tasks(commands::tasks::TasksArgs),

    /// Set the documents of finished work aside, begin anew, and commit that.
    Archive(commands::archive::ArchiveArgs),

    /// Start a worker: a loop in the background, in a tmux window, known by name.
    #[command(mut_arg("background", |arg| arg.hide(true)))]
    Spawn(Box<commands::worker::SpawnArgs>),

    /// List the runs on this machine: workers, and runs in terminals.
    Ls(commands::worker::LsArgs),

    /// Show how far runs are.
    Status(commands::worker::StatusArgs),

    /// Pause runs after the current iteration.
    Pause(commands::worker::WorkerSelection),

    /// Continue a run that was paused, stopped or cut off.
    Resume(commands::resume::ResumeArgs),

    /// End runs and their agents now.
    Kill(commands::worker::WorkerSelection),

    /// Show the output of a run.
    Logs(commands::worker::LogsArgs),

    /// Show the window of a worker in this terminal.
    Attach(commands::worker::SelectionArgs),

    /// Wait for the end of runs, and exit with their code.
    Wait(commands::worker::WorkerSelection),

    /// Type a line into the window of a worker.
    Send(commands::worker::SendArgs),

    /// Remove runs that have ended from the list.
    Rm(commands::worker::RmArgs),

    /// Print a prompt to start from.
    Template(commands::worker::TemplateArgs),

    /// The command of a worker's window.
    #[command(hide = true)]
    WorkerLoop(commands::worker::SelectionArgs),

    /// Ask a few questions and write `.ralph/settings.json`.
    Init,

    /// Show the effective settings and where each value came from.
    Settings(commands::settings::SettingsArgs),

    /// List the runs of this project.
    Runs(commands::runs::RunsArgs),

    /// Show a past run again.
    Replay(commands::runs::ReplayArgs),

    /// Tell what a run came to: outcome, iterations, cost, commits, guardrails, what is left.
    Report(commands::report::ReportArgs),

    /// Watch a loop at work in a scratch repository: no account, no network, twenty seconds.
    Demo(commands::demo::DemoArgs),

    /// Check what is installed, and say what to do about what is not.
    #[command(after_help = commands::doctor::EXAMPLES)]
    Doctor,

    /// List the agents that ralph knows: which are installed, and which versions it was tested with.
    Agents(commands::agents::AgentsArgs),

    /// Try out, look into and tidy up the sandboxes that agents are locked in.
    #[command(after_help = commands::sandbox::EXAMPLES, subcommand)]
    Sandbox(commands::sandbox::SandboxCommand),

    /// Answer one of Claude Code's hooks, whose question is on standard input.
    Hook(commands::hook::HookArgs),

    /// Write the plugin for Claude Code: hooks, a skill for planning, scripts.
    Plugin(commands::plugin::PluginArgs),

    /// Print a script that completes ralph's commands in your shell.
    Completions(commands::completions::CompletionsArgs),

    /// Write the man pages.
    Man(commands::man::ManArgs),
}

/// Sections with the path of a command in their first line.
const EXAMPLES: &str = include_str!("examples.txt");

pub fn definition() -> clap::Command {
    with_examples(Cli::command(), "ralph")
}

fn with_examples(command: clap::Command, path: &str) -> clap::Command {
    command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        let command = with_examples(command, &path);
        let mut sections = EXAMPLES.split("\n## ");
        let examples = sections.find_map(|it| it.strip_prefix(&path)?.strip_prefix('\n'));
        match examples {
            Some(text) => command.after_help(text.trim_end()),
            None => command,
        }
    })
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
    let fails_with_1 = is_worker_command(&args);
    let parsed = definition().try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(err) => {
            return match print_parse_error(&err) {
                exit_code::USAGE if fails_with_1 => exit_code::INCOMPLETE,
                code => code,
            };
        }
    };
    let result = home::refuse_relative(|name| std::env::var_os(name)).and_then(|()| dispatch(cli));
    link_guard::take_warnings().iter().for_each(|message| warn(message));
    exit_code(result.map_err(|error| match error.kind {
        error::ErrorKind::Usage if fails_with_1 => {
            Error { kind: error::ErrorKind::Failed, ..error }
        }
        _ => error,
    }))
}

/// Commands that exit with 1, not 2, on a bad command line.
const WORKER_COMMANDS: [&str; 11] =
    ["spawn", "ls", "status", "pause", "kill", "rm", "logs", "attach", "wait", "send", "template"];

fn is_worker_command(args: &[OsString]) -> bool {
    let mut words = args.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "-C" || word == "-d" || word == "--project-dir" {
            words.next();
        } else if !word.to_string_lossy().starts_with('-') {
            return WORKER_COMMANDS.iter().any(|command| word == *command);
        }
    }
    false
}

fn print_parse_error(err: &clap::Error) -> u8 {
    if err.use_stderr() {
        let text = err.render();
        let color = Capabilities::for_stdio().color_errors;
        let text = if color { text.ansi().to_string() } else { text.to_string() };
        let text = match err.kind() {
            // Not an error: shown for a bare `ralph`.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => text,
            _ => text.replacen("error:", "ralph: error:", 1),
        };
        let _ = io::stderr().lock().write_all(text.as_bytes());
    } else if let Err(err) = handle_write_result(err.print().and_then(|()| io::stdout().flush())) {
        return exit_code(Err(err));
    }
    u8::try_from(err.exit_code()).unwrap_or(exit_code::USAGE)
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
        CliCommand::Logs(args) => commands::worker::logs(&args),
        CliCommand::Attach(args) => commands::worker::attach(&args),
        CliCommand::Wait(args) => commands::worker::wait(&args),
        CliCommand::Send(args) => commands::worker::send(&args),
        CliCommand::Rm(args) => commands::worker::rm(&args),
        CliCommand::Template(args) => commands::worker::template(project()?.root(), &args),
        CliCommand::WorkerLoop(args) => crate::executors::local::run_in_window(&args.name),
        CliCommand::Init => commands::init::init(&project()?),
        CliCommand::Settings(args) => commands::settings::settings(&cli.project, &args),
        CliCommand::Runs(args) => commands::runs::runs(&own()?, &args),
        CliCommand::Replay(args) => commands::runs::replay(own, &args),
        CliCommand::Report(args) => commands::report::report(own, &args),
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

fn exit_code(result: Result<u8, Error>) -> u8 {
    match result {
        Ok(code) => code,
        Err(error) => {
            print_error(&error);
            error.exit_code()
        }
    }
}

pub fn print_error(error: &Error) {
    let _ =
        io::stderr().write_all(format!("{}\n", strip_control_chars(&error.to_string())).as_bytes());
}

/// Ignores write errors.
pub fn warn(message: &str) {
    let _ = io::stderr()
        .lock()
        .write_all(format!("ralph: warning: {}\n", strip_control_chars(message)).as_bytes());
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

    use super::Cli;
    use ralph_events::event::Outcome;
    use ralph_report::terminal::next_step;

    #[test]
    fn next_step_commands_parse_for_every_outcome() {
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
            let advice = next_step(outcome, "20261115-202752-a1b2").unwrap_or_default();
            for command in advice.split('`').filter(|word| word.starts_with("ralph ")) {
                let parsed = Cli::try_parse_from(command.split(' '));
                assert!(parsed.is_ok(), "{outcome:?}: {advice}");
            }
        }
    }
}
