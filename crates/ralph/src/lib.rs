//! The `ralph` program: command line, settings, hooks and workers.
//!
//! It turns a command line into a run and hands that to `ralph-driver`. How a run proceeds is
//! decided in `ralph-engine` and must not depend on anything here.

#![forbid(unsafe_code)]

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

pub fn main() -> u8 {
    let args: Vec<_> = std::env::args_os().collect();
    let name = args.first().and_then(|name| Path::new(name).file_name());
    if name == Some(OsStr::new(demo::AGENT_NAME)) {
        return demo::agent_main(&args[1..]);
    }
    // A hook runs at every tool call: skip clap's definitions.
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
