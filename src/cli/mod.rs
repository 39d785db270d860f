//! The command line: which commands there are, and the way from what was said to an exit code.
//!
//! Each command has a file with its flags, its examples and what it does. Help, man pages, shell
//! completions and the command reference are made from these definitions.

mod agents;
mod archive;
mod args;
mod demo;
mod doctor;
mod generated;
mod hook;
mod init;
mod launch;
mod modes;
mod new;
mod place;
mod plugin;
mod report;
mod resume;
mod run;
mod runs;
mod sandbox;
mod settings;
mod swept;
mod task_memory;
mod tasks;
mod work;
mod worker;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use ralph_events::control_chars::cleaned;
use ralph_events::error::Error;
use ralph_events::exit_code;
use ralph_git::link_guard;
use ralph_report::style::Capabilities;
use ralph_store::home;

use self::args::{LoopArgs, Place};

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
    pub place: Place,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until it answers with the completion response and all guardrails pass.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::RunArgs>),

    /// Have the agent compare specifications and code, and write the plan.
    #[command(after_help = modes::PLAN_EXAMPLES)]
    Plan(Box<modes::ModeArgs>),

    /// Have the agent work the plan off, one task in each iteration.
    #[command(after_help = modes::BUILD_EXAMPLES)]
    Build(Box<modes::ModeArgs>),

    /// Run a prompt of your own in the same way as plan and build.
    #[command(after_help = modes::PROMPT_EXAMPLES)]
    Prompt(Box<modes::AdHocArgs>),

    /// Work off a task list, one story an iteration, until every story passes.
    #[command(after_help = work::EXAMPLES)]
    Work(Box<work::WorkArgs>),

    /// Write the documents of a task list: requirements, stories, progress, prompt.
    #[command(after_help = new::EXAMPLES)]
    New(new::NewArgs),

    /// Show the stories of the task list, what is next, and change them.
    #[command(after_help = tasks::EXAMPLES)]
    Tasks(tasks::TasksArgs),

    /// Set the documents of finished work aside, begin anew, and commit that.
    #[command(after_help = archive::EXAMPLES)]
    Archive(archive::ArchiveArgs),

    /// Start a worker: a loop in the background, in a tmux window, known by name.
    #[command(after_help = worker::SPAWN_EXAMPLES)]
    Spawn(Box<worker::SpawnArgs>),

    /// List the workers.
    #[command(after_help = worker::LS_EXAMPLES)]
    Ls(worker::LsArgs),

    /// Show how far workers are.
    #[command(after_help = worker::STATUS_EXAMPLES)]
    Status(worker::StatusArgs),

    /// Have workers begin nothing new after what they are doing.
    #[command(after_help = worker::PAUSE_EXAMPLES)]
    Pause(worker::Which),

    /// Go on with a run that was stopped or cut off, or with a paused worker.
    #[command(after_help = resume::EXAMPLES)]
    Resume(resume::ResumeArgs),

    /// End workers and their agents now.
    #[command(after_help = worker::KILL_EXAMPLES)]
    Kill(worker::Which),

    /// Show what a worker has done, and does.
    #[command(after_help = worker::LOGS_EXAMPLES)]
    Logs(worker::LogsArgs),

    /// Show the window of a worker in this terminal.
    #[command(after_help = worker::ATTACH_EXAMPLES)]
    Attach(worker::NameArgs),

    /// Wait for the end of workers, and exit with their code.
    #[command(after_help = worker::WAIT_EXAMPLES)]
    Wait(worker::Which),

    /// Type a line into the window of a worker.
    #[command(after_help = worker::SEND_EXAMPLES)]
    Send(worker::SendArgs),

    /// Forget workers that have come to their end.
    #[command(after_help = worker::RM_EXAMPLES)]
    Rm(worker::RmArgs),

    /// Print a prompt to start from.
    #[command(after_help = worker::TEMPLATE_EXAMPLES)]
    Template(worker::TemplateArgs),

    /// The command of a worker's window.
    #[command(hide = true)]
    WorkerLoop(worker::NameArgs),

    /// Ask a few questions and write `.ralph/settings.json`.
    #[command(after_help = init::EXAMPLES)]
    Init,

    /// Show the effective settings and where each value came from.
    #[command(after_help = settings::EXAMPLES)]
    Settings(settings::SettingsArgs),

    /// List the runs of this project.
    #[command(after_help = runs::RUNS_EXAMPLES)]
    Runs(runs::RunsArgs),

    /// Show a past run again.
    #[command(after_help = runs::REPLAY_EXAMPLES)]
    Replay(runs::ReplayArgs),

    /// Tell what a run came to: outcome, iterations, cost, commits, guardrails, what is left.
    #[command(after_help = report::EXAMPLES)]
    Report(report::ReportArgs),

    /// Watch a loop at work in a scratch repository: no account, no network, twenty seconds.
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::DemoArgs),

    /// Check what is installed, and say what to do about what is not.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor,

    /// List the agents that ralph knows: which are installed, and which versions it was tested with.
    #[command(after_help = agents::EXAMPLES)]
    Agents(agents::AgentsArgs),

    /// Try out, look into and tidy up the sandboxes that agents are locked in.
    #[command(after_help = sandbox::EXAMPLES, subcommand)]
    Sandbox(sandbox::SandboxCommand),

    /// Answer one of Claude Code's hooks, whose question is on standard input.
    #[command(after_help = hook::EXAMPLES)]
    Hook(hook::HookArgs),

    /// Write the plugin for Claude Code: hooks, a skill for planning, scripts.
    #[command(after_help = plugin::EXAMPLES)]
    Plugin(plugin::PluginArgs),

    /// Print a script that completes ralph's commands in your shell.
    #[command(after_help = generated::COMPLETIONS_EXAMPLES)]
    Completions(generated::CompletionsArgs),

    /// Write the man pages.
    #[command(after_help = generated::MAN_EXAMPLES)]
    Man(generated::ManArgs),
}

/// The definition of the whole command line.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Does what the command line says.
pub fn main(mut args: Vec<OsString>) -> u8 {
    // Whoever asks how to ask for help is to be helped.
    if args.get(1).is_some_and(|command| command == "help") {
        args.retain(|arg| arg != "--help" && arg != "-h");
    }
    // Asked for by scripts and prompts, many times: it need not wait for all the other definitions.
    if let [_, only] = args.as_slice()
        && (only == "--version" || only == "-v")
    {
        return exit_code(print(concat!("ralph ", env!("CARGO_PKG_VERSION"), "\n")));
    }
    let fails_with_1 = is_worker_command(&args);
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) => {
            let code = misunderstood(&err);
            return if fails_with_1 && code == exit_code::INPUT {
                exit_code::NOT_DONE
            } else {
                code
            };
        }
    };
    let result = home::refuse_relative(|name| std::env::var_os(name)).and_then(|()| dispatch(cli));
    link_guard::take_warnings().iter().for_each(|message| warn(message));
    exit_code(result)
}

/// Commands for workers, which exit with 1 where others exit with 2 for a command line that is wrong. `resume`
/// is for every run.
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

/// Help that was asked for, or what is wrong with the command line, which begins as all errors do.
fn misunderstood(err: &clap::Error) -> u8 {
    if err.use_stderr() {
        let text = err.render();
        let color = Capabilities::of_this_process().color_errors;
        let text = if color { text.ansi().to_string() } else { text.to_string() };
        let text = match err.kind() {
            // Help in place of a command is no error of anybody's.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => text,
            _ => text.replacen("error:", "ralph: error:", 1),
        };
        // If nobody reads it, nobody needs it.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    } else if let Err(err) = said(err.print().and_then(|()| io::stdout().flush())) {
        return exit_code(Err(err));
    }
    u8::try_from(err.exit_code()).unwrap_or(exit_code::INPUT)
}

fn dispatch(mut cli: Cli) -> Result<u8, Error> {
    ralph_process::trust::declare_lazily(place::known_agent_dirs);
    place::name_from_there(&cli.place, &mut cli.command);
    let project = || place::project(&cli.place);
    let own = || place::own_project(&cli.place, false);
    let for_loop = |args: &LoopArgs| place::own_project(&cli.place, args.settings.is_some());
    match cli.command {
        Command::Run(args) => run::run(&for_loop(&args.common)?, &args, Vec::new()),
        Command::Plan(args) => modes::plan(&for_loop(&args.common)?, *args),
        Command::Build(args) => modes::build(&for_loop(&args.common)?, *args),
        Command::Prompt(args) => modes::prompt(&for_loop(&args.mode.common)?, *args),
        Command::Work(args) => work::work(&for_loop(&args.common)?, &args),
        Command::New(args) => new::new(&own()?, &args),
        Command::Tasks(args) => tasks::tasks(&own()?, &args),
        Command::Archive(args) => archive::archive(&own()?, &args),
        Command::Spawn(args) => worker::spawn(&for_loop(&args.common)?, &args),
        Command::Ls(args) => worker::ls(&args),
        Command::Status(args) => worker::status(&args),
        Command::Pause(args) => worker::pause(&args),
        Command::Resume(args) => resume::resume(&cli.place, args),
        Command::Kill(args) => worker::kill(&args),
        Command::Logs(args) => worker::logs(&args),
        Command::Attach(args) => worker::attach(&args),
        Command::Wait(args) => worker::wait(&args),
        Command::Send(args) => worker::send(&args),
        Command::Rm(args) => worker::rm(&args),
        Command::Template(args) => worker::template(project()?.root(), &args),
        Command::WorkerLoop(args) => worker::run_loop(&args.name),
        Command::Init => init::init(&project()?),
        Command::Settings(args) => settings::settings(&cli.place, args),
        Command::Runs(args) => runs::runs(&own()?, &args),
        Command::Replay(args) => runs::replay(own, &args),
        Command::Report(args) => report::report(own, &args),
        Command::Demo(args) => demo::demo(&args),
        Command::Doctor => doctor::doctor(&project()?),
        Command::Agents(args) => agents::agents(&project()?, &args),
        Command::Sandbox(command) => sandbox::sandbox(&project()?, &command),
        Command::Hook(args) => Ok(hook::hook(args)),
        Command::Plugin(args) => plugin::plugin(&args),
        Command::Completions(args) => generated::completions(&args),
        Command::Man(args) => generated::man(&args),
    }
}

fn exit_code(result: Result<u8, Error>) -> u8 {
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            error.exit_code()
        }
    }
}

fn complain(error: &Error) {
    let _ = io::stderr().write_all(format!("{}\n", cleaned(&error.to_string())).as_bytes());
}

/// Says what a person has to know beside the answer. If nobody reads it, nobody needs it.
fn warn(message: &str) {
    let _ =
        io::stderr().lock().write_all(format!("ralph: warning: {}\n", cleaned(message)).as_bytes());
}

/// Prints an answer. A reader that went away has seen enough.
fn print(text: &str) -> Result<u8, Error> {
    say(text).map(|_| 0)
}

/// Prints a part of an answer, and tells whether anybody is there to read the rest.
fn say(text: &str) -> Result<bool, Error> {
    let mut stdout = io::stdout().lock();
    said(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// What is to be made of an attempt to write to standard output.
fn said(written: io::Result<()>) -> Result<bool, Error> {
    match written {
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
    fn commands_in_advice_after_a_run_can_be_parsed() {
        for outcome in [
            Outcome::Complete,
            Outcome::CompleteScmFailed,
            Outcome::LimitReached,
            Outcome::Interrupted,
            Outcome::Budget,
            Outcome::Stalled,
            Outcome::AgentFailed,
            Outcome::CredentialsRefused,
            Outcome::PromptLost,
            Outcome::Broken,
        ] {
            let advice = next_step(outcome, "20261115-202752-a1b2").unwrap_or_default();
            for command in advice.split('`').filter(|word| word.starts_with("ralph ")) {
                let parsed = Cli::try_parse_from(command.split(' '));
                assert!(parsed.is_ok(), "{outcome:?}: {advice}");
            }
        }
    }
}
