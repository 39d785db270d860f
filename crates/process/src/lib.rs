//! Starts child processes, waits for them, and ends them with everything they started.
//!
//! Only [`System`] starts processes. An idle run blocks in the one `poll` of [`System::wait`]. This
//! crate knows nothing of agents, runs or settings.

mod by_env;
mod clock;
mod companion;
mod end_signals;
mod file_limit;
pub mod file_names;
mod file_watch;
mod forest;
mod holders;
mod input;
mod interrupts;
mod named_pipe;
mod path;
mod platform;
mod process_table;
mod replace;
mod run_to_end;
mod signals;
mod spawn;
mod system;
mod terminal_guard;
#[cfg(test)]
mod tests;
mod tree;
pub mod trust;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use by_env::{find_by_env, is_in_environment, kill_by_env};
pub use companion::{Companion, run_in_terminal};
pub use end_signals::{EndSignals, TerminalSignals};
pub use file_limit::raise_file_limit;
pub use file_watch::{ExitWatch, FileWatcher, WatchId};
pub use holders::{LockUsers, can_see_all_users, may_be_in_use};
pub use interrupts::Interrupts;
pub use named_pipe::create_named_pipe;
pub use path::find_program;
pub use replace::{exec, has_exited, kill, own_program};
pub use run_to_end::{CommandOutput, run_exclusive, run_to_end};
pub use spawn::open_pty;
pub use system::System;
pub use terminal_guard::{TerminalGuard, suspend_job};
pub use watchdog::{arm, disarm};

use ralph_events::env_names::RUN_ID;
use ralph_events::event::{Exit, Leftover, Stream};

#[derive(Debug, Clone)]
pub struct Launch<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub directory: &'a Path,
    /// `Some` sets a variable, `None` removes it.
    pub env: &'a [(OsString, Option<OsString>)],
    pub stdin: &'a [u8],
    /// One pipe for both streams keeps their order.
    pub merge_stderr: bool,
    pub keep_background: bool,
    /// TERM instead of KILL if ralph dies: git then removes its lock files.
    pub term_on_parent_death: bool,
    /// Takes standard input from [`System::feed`] instead.
    pub has_stdin_pipe: bool,
    /// Reports the screen of a new terminal as output; [`System::feed`] types.
    pub terminal: Option<TerminalSize>,
    /// For a wrapper such as a sandbox: the wrapped program takes the terminal into its session.
    pub passes_terminal: bool,
    /// For a wrapper: the wrapped program gets TERM and exits first.
    pub ignore_term: bool,
    pub inherit: &'a [BorrowedFd<'a>],
}

impl<'a> Launch<'a> {
    pub fn plain(
        directory: &'a Path,
        program: &'a OsStr,
        args: &'a [OsString],
        env: &'a [(OsString, Option<OsString>)],
    ) -> Launch<'a> {
        Launch {
            program,
            args,
            directory,
            env,
            stdin: b"",
            merge_stderr: true,
            keep_background: false,
            term_on_parent_death: false,
            has_stdin_pipe: false,
            terminal: None,
            passes_terminal: false,
            ignore_term: false,
            inherit: &[],
        }
    }

    /// The variable of the run, if this launch sets it. An inherited one is of another run.
    fn mark(&self) -> Option<Vec<u8>> {
        let (_, value) = self.env.iter().rev().find(|(name, _)| name == RUN_ID)?;
        Some([RUN_ID.as_bytes(), b"=", value.as_ref()?.as_bytes()].concat())
    }

    fn takes_terminal(&self) -> bool {
        self.terminal.is_some() && !self.passes_terminal
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl TerminalSize {
    /// For a terminal without a viewer.
    pub const DEFAULT: TerminalSize = TerminalSize { rows: 50, columns: 200 };

    fn winsize(self) -> rustix::termios::Winsize {
        rustix::termios::Winsize {
            ws_row: self.rows,
            ws_col: self.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    HangUp,
    /// Ctrl+\.
    Quit,
    /// The soft limit; at the hard one, the kernel kills.
    CpuLimit,
    Resize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// `None` if `waitpid` did not report it.
    pub exit: Option<Exit>,
    /// Processes that outlived it: ended, or kept with `keep_background`.
    pub leftovers: Vec<Leftover>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occurrence {
    /// `buf` has the output.
    Output(ChildId, Stream),
    /// The whole tree is gone, and all output was handed over.
    Ended(ChildId, ChildEnd),
    Signal(Signal),
    /// See [`System::set_control_pipe`].
    ControlRequest,
    /// `buf` has the keys; see [`System::set_key_input`].
    KeyInput,
    /// See [`System::set_wake_pipe`].
    ProxyRefused,
    /// See [`System::set_file_watch`].
    FilesChanged,
    Deadline,
}
