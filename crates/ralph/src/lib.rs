//! The `ralph` program: command line, settings, hooks and workers.
//!
//! It turns a command line into a run and hands that to `ralph-driver`. How a run proceeds is
//! decided in `ralph-engine` and must not depend on anything here.

#![forbid(unsafe_code)]

mod browser;
pub mod cli;
pub mod commands;
pub mod config;
pub mod demo;
pub mod executors;
pub mod hooks;
pub mod launch;
pub mod launcher;
pub mod platform;
pub mod plugin;
pub mod project_dir;
pub mod recover;
pub mod task_memory;
pub mod workers;

use std::ffi::OsStr;
use std::path::Path;

use ralph_driver::response_filter;

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
    let rest = args.get(2..).unwrap_or_default();
    match args.get(1).and_then(|command| command.to_str()) {
        Some(response_filter::EVALUATE_COMMAND) => response_filter::main(rest),
        Some(command) => {
            ralph_sandbox::inner_main(command, rest).unwrap_or_else(|| cli::main(args))
        }
        None => cli::main(args),
    }
}
