//! Runs a coding agent in a loop, each iteration with a fresh context, until the work is provably
//! done.
//!
//! The map of the crate, from the outside in:
//!
//! - [`cli`]: what can be said on the command line; a file per command.
//! - [`config`]: files, environment and flags become settings, and each value's origin is known.
//! - [`workers`]: runs in the background, by name: what is kept of them, and how to ask them for something.
//! - [`tmux`]: the windows that those run in.
//! - [`run`]: the engine. A [`ralph_driver::run_spec::RunSpec`] says what to do, the driver does it.
//! - [`plugin`]: what Claude Code installs.
//! - [`hooks`]: the answers to Claude Code's hooks.
//! - [`agent`]: what is known of each agent: how to start it, how its output becomes events.
//! - [`sandbox`]: where agents are locked in.
//! - [`trust`]: which paths and programs may be used outside the sandbox.
//! - [`process`]: starting programs and ending them with everything that they started.
//! - [`state`]: what is kept on disk: locks, journals, runs.
//! - [`report`]: the faces of a run, all drawn from the same events.
//! - [`policy`]: the blocklist: what a tool call is about to do, and whether it may.
//! - [`core`]: the decisions, in plain data: the loop's machine, events, completion, prompts.
//! - [`env_names`]: the names of environment variables.
//! - [`demo`]: a project and an agent to look at.
//!
//! Each folder may use those below it. `core` uses none.

pub mod cli;
pub mod commands;
pub mod config;
pub mod demo;
pub mod executors;
pub mod hooks;
pub mod launch;
pub mod plugin;
pub mod project_dir;
pub mod recover;
pub mod task_memory;
pub mod workers;

use std::ffi::OsStr;
use std::path::Path;

/// The program, to its exit code.
pub fn main() -> u8 {
    let args: Vec<_> = std::env::args_os().collect();
    let name = args.first().and_then(|name| Path::new(name).file_name());
    if name == Some(OsStr::new(demo::AGENT_NAME)) {
        return demo::agent_main(&args[1..]);
    }
    // Asked at every tool call, so that it does not wait for the definitions of all that can be said.
    if let [_, command, rest @ ..] = args.as_slice()
        && command == "hook"
        && !rest.iter().any(|arg| arg == "--help" || arg == "-h")
    {
        hooks::main(rest);
        return 0;
    }
    #[cfg(target_os = "linux")]
    if args.get(1).is_some_and(|command| command == ralph_sandbox::init_process::COMMAND) {
        return ralph_sandbox::init_process::main(&args[2..]);
    }
    #[cfg(target_os = "linux")]
    if args.get(1).is_some_and(|command| command == ralph_sandbox::mounts::COMMAND) {
        return ralph_sandbox::mounts::main(&args[2..]);
    }
    #[cfg(target_os = "linux")]
    if args.get(1).is_some_and(|command| command == ralph_sandbox::landlock::COMMAND) {
        return ralph_sandbox::landlock::exec_main(&args[2..]);
    }
    if args.get(1).is_some_and(|command| command == ralph_sandbox::probe::COMMAND) {
        return ralph_sandbox::probe::main(&args[2..]);
    }
    if args.get(1).is_some_and(|command| command == ralph_driver::response_filter::EVALUATE_COMMAND)
    {
        return ralph_driver::response_filter::main(&args[2..]);
    }
    cli::main(args)
}
