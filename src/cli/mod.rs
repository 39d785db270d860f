//! The command line: what can be said, and the help for saying it.
//!
//! Everything here is a definition. Help, man pages, shell completions and the command reference are
//! made from it; a file per command turns what was said into a call.

mod agents;
mod archive;
mod args;
mod demo;
mod doctor;
pub mod init;
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
pub mod settings;
mod swept;
mod tasks;
mod work;
mod worker;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::Sources;
use crate::core::exit;
use crate::error::Error;
use crate::report::style::Capabilities;

use self::args::{CompletionArgs, LoopArgs, OutputForm, Place, PromptArgs};

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
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),

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
    #[command(after_help = INIT_EXAMPLES)]
    Init,

    /// Show the effective settings and where each value came from.
    #[command(after_help = SETTINGS_EXAMPLES)]
    Settings(SettingsArgs),

    /// List the runs of this project.
    #[command(after_help = RUNS_EXAMPLES)]
    Runs(RunsArgs),

    /// Show a past run again.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),

    /// Tell what a run came to: outcome, iterations, cost, commits, guardrails, what is left.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),

    /// Watch a loop at work in a scratch repository: no account, no network, twenty seconds.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),

    /// Check what is installed, and say what to do about what is not.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor,

    /// List the agents that ralph knows: which are installed, and which versions it was tested with.
    #[command(after_help = AGENTS_EXAMPLES)]
    Agents(AgentsArgs),

    /// Try out, look into and tidy up the sandboxes that agents are locked in.
    #[command(after_help = SANDBOX_EXAMPLES, subcommand)]
    Sandbox(SandboxCommand),

    /// Answer one of Claude Code's hooks, whose question is on standard input.
    #[command(after_help = HOOK_EXAMPLES)]
    Hook(HookArgs),

    /// Write the plugin for Claude Code: hooks, a skill for planning, scripts.
    #[command(after_help = PLUGIN_EXAMPLES)]
    Plugin(PluginArgs),

    /// Print a script that completes ralph's commands in your shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),

    /// Write the man pages.
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  Fix the tests with claude, at most five times, with no settings at all:
    ralph run -n 5 -p \"Make the tests pass. Answer <response>DONE</response> when they do.\" -- claude

  With the settings of this project and a prompt that may be edited while it runs:
    ralph run -f PROMPT.md

  See what would be run:
    ralph run -f PROMPT.md --dry-run

Exit codes:
  0 complete   1 limit reached   2 bad usage, settings or input   3 budget used up, stalled
  4 the agent kept failing   5 complete, but an SCM task failed   130 interrupted";
const INIT_EXAMPLES: &str = "Examples:\n  ralph init\n  ralph init -C ../other-project";
const SETTINGS_EXAMPLES: &str = "\
Examples:
  ralph settings
  RALPH_AGENT__MODEL=opus ralph settings
  ralph settings --schema > settings.schema.json";
const RUNS_EXAMPLES: &str = "Examples:\n  ralph runs\n  ralph runs --json | jq .cost_usd";
const REPLAY_EXAMPLES: &str = "\
Examples:
  The last run:
    ralph replay

  Another one, by as much of its name as tells it apart:
    ralph replay 20261115-2027 --output json";
const REPORT_EXAMPLES: &str = "\
Examples:
  The last run, in the terminal:
    ralph report

  A worker, wherever it works:
    ralph report agent

  A page to look at or to send:
    ralph report --format html > report.html";
const DEMO_EXAMPLES: &str = "Examples:\n  ralph demo\n  ralph demo --fast --keep";
const DOCTOR_EXAMPLES: &str = "Examples:\n  ralph doctor";
const AGENTS_EXAMPLES: &str = "\
Examples:
  ralph agents

  Those that are installed in a version that was not tested:
    ralph agents --json | jq -r 'select(.program and (.is_recorded | not)) | .agent'";
const SANDBOX_EXAMPLES: &str = "\
Examples:
  Which sandboxes work here, and what they do not confine:
    ralph sandbox check

  What an agent would see:
    ralph sandbox shell
    ralph sandbox shell -- curl https://example.com";
const HOOK_EXAMPLES: &str = "\
Claude Code calls these by itself: with the plugin (`ralph plugin export`) all of them, and in a run
without a sandbox the first.

Examples:
  What would it say to this command, if a loop's agent used it?
    echo '{\"cwd\": \"'$PWD'\", \"tool_name\": \"Bash\", \"tool_input\": {\"command\": \"rm -rf ~\"}}' |
      RALPH_RUN_ID=try ralph hook pre-tool-use";
const PLUGIN_EXAMPLES: &str = "\
Examples:
  ralph plugin export ~/ralph-plugin
  claude --plugin-dir ~/ralph-plugin";
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ralph completions bash > ~/.local/share/bash-completion/completions/ralph
  ralph completions zsh > \"${fpath[1]}/_ralph\"
  ralph completions fish > ~/.config/fish/completions/ralph.fish";
const MAN_EXAMPLES: &str = "Examples:\n  ralph man ~/.local/share/man/man1";

#[derive(Debug, Default, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// Read settings from this file instead of `.ralph/settings.json`.
    #[arg(long, value_name = "PATH")]
    pub settings: Option<PathBuf>,

    /// Print as JSON.
    #[arg(long, conflicts_with = "schema")]
    pub json: bool,

    /// Print the JSON Schema of the settings file.
    #[arg(long)]
    pub schema: bool,
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run, or the beginning of its name, or a worker, wherever that works; the last run of this project if none
    /// is given.
    pub run: Option<String>,

    /// How to tell it.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    pub format: ReportForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// For the terminal.
    Text,
    Markdown,
    /// A page that needs nothing else, with a chart of time and cost.
    Html,
    /// The facts, for programs.
    Json,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The run, or the beginning of its name, or a worker; the last run if none is given.
    pub run: Option<String>,

    /// Tell what ralph itself did, too.
    #[arg(short = 'V', long)]
    pub verbose: bool,

    /// How to show it.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = OutputForm::Human)]
    pub output: OutputForm,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Do not pause for the one who watches.
    #[arg(long)]
    pub fast: bool,

    /// Keep the scratch repository.
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Try out which sandboxes work here, and say what they do not confine.
    #[command(after_help = "Examples:\n  ralph sandbox check")]
    Check,

    /// Open a shell inside, as an agent would see it, or run a command there.
    #[command(after_help = "Examples:\n  ralph sandbox shell\n  ralph sandbox shell -- npm test")]
    Shell {
        /// The sandbox to use; the first that works if none is named.
        #[arg(long, value_name = "BACKEND")]
        sandbox: Option<String>,

        /// The command to run instead of a shell.
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },

    /// List the sandboxes that are there.
    #[command(after_help = "Examples:\n  ralph sandbox ls")]
    Ls,

    /// Stop a sandbox of Docker; the next run starts it again.
    #[command(after_help = "Examples:\n  ralph sandbox stop ralph-shop-1a2b3c4d")]
    Stop {
        /// Its name, as `ralph sandbox ls` tells it.
        name: String,
    },

    /// Remove a sandbox that nobody uses.
    #[command(after_help = "Examples:\n  ralph sandbox rm run-Ab3xYz")]
    Rm {
        /// Its name, as `ralph sandbox ls` tells it.
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct AgentsArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct HookArgs {
    /// Which one: pre-tool-use, post-tool-use, stop or session-start.
    pub name: String,
}

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Write the plugin to a directory.
    #[command(after_help = PLUGIN_EXAMPLES)]
    Export {
        /// Where to; it is made if it is not there.
        directory: PathBuf,

        /// Overwrite the plugin's files if they are there already.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write them.
    pub directory: PathBuf,
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
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) => return misunderstood(&err),
    };
    exit_code(dispatch(cli))
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
    u8::try_from(err.exit_code()).unwrap_or(exit::INPUT)
}

fn dispatch(mut cli: Cli) -> Result<u8, Error> {
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
        Command::Init => {
            let project_dir = project()?.root().to_owned();
            swept::sweep_aloud(&project_dir)?;
            init::init(&init::InitOptions::new(project_dir))
        }
        Command::Settings(args) => {
            let alone = args.settings.is_some() || args.schema;
            let sources = Sources {
                project_dir: place::own_project(&cli.place, alone)?.root().to_owned(),
                settings_path: args.settings,
                env: std::env::vars_os().collect(),
                ..Sources::default()
            };
            swept::sweep_aloud(&sources.project_dir)?;
            let (schema, json) = (args.schema, args.json);
            let options = settings::SettingsOptions { schema, json, sources };
            settings::settings(&options, &mut io::stdout().lock(), &mut io::stderr().lock())
        }
        Command::Runs(args) => runs::runs(&own()?, &args),
        Command::Replay(args) => runs::replay(own, &args),
        Command::Report(args) => report::report(own, &args),
        Command::Demo(args) => demo::demo(&args),
        Command::Doctor => {
            let project = project()?;
            swept::sweep_and_go_on(project.root());
            doctor::doctor(&project)
        }
        Command::Agents(args) => agents::agents(&project()?, &args),
        Command::Sandbox(command) => sandbox::sandbox(&project()?, &command),
        // Here it comes only with flags before it. The answer's exit code is always 0.
        Command::Hook(args) => {
            crate::hook::main(&[args.name.into()]);
            Ok(0)
        }
        Command::Plugin(args) => plugin::plugin(&args),
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut definition(), "ralph", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man(args) => {
            std::fs::create_dir_all(&args.directory)
                .and_then(|()| clap_mangen::generate_to(definition(), &args.directory))
                .map_err(|err| {
                    Error::input(format!("cannot write to {}: {err}", args.directory.display()))
                })?;
            print(&format!("man pages written to {}\n", args.directory.display()))
        }
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
    let _ = io::stderr().write_all(format!("{error}\n").as_bytes());
}

/// Says what a person has to know beside the answer. If nobody reads it, nobody needs it.
fn warn(message: &str) {
    let _ = io::stderr().lock().write_all(format!("ralph: warning: {message}\n").as_bytes());
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
