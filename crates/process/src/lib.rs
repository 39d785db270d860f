//! Starting programs, hearing from them, and ending them with everything that they started.
//!
//! [`System`] is the only thing in this program that starts processes, and waiting in
//! [`System::wait`] is the only thing that an idle run does: one `poll` over the children's output,
//! the signals and the nearest deadline. Nothing here needs a thread.

mod by_env;
mod clock;
mod holders;
mod input;
mod interrupts;
mod named_pipe;
mod path;
mod pump;
mod replace;
mod run_to_end;
mod signals;
mod spawn;
mod system;
mod tree;
pub mod trust;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::Path;

pub use by_env::{find_by_env, kill_by_env, kill_by_env_unless};
pub use holders::{LockUsers, can_see_all_users, may_be_in_use};
pub use interrupts::Interrupts;
pub use named_pipe::create_named_pipe;
pub use path::find_program;
pub use replace::{exec, has_exited, kill};
pub use run_to_end::{CommandOutput, run_exclusive, run_to_end};
pub use system::System;
pub use watchdog::{arm, disarm};

use ralph_events::event::{Exit, Leftover, Stream};

/// A program to be started.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub directory: &'a Path,
    /// Variables to set (`Some`) or to take away (`None`), over ralph's own environment.
    pub env: &'a [(OsString, Option<OsString>)],
    /// What it reads on standard input; after that, and without it, standard input is at its end.
    pub stdin: &'a [u8],
    /// Standard error goes where standard output goes, in the order it was written.
    pub merge_stderr: bool,
    /// Leave alone what it started and did not end.
    pub keep_background: bool,
    /// If ralph dies, it is asked to leave rather than killed: git then removes its lock files.
    pub term_on_parent_death: bool,
}

impl<'a> Launch<'a> {
    /// A command with nothing to read and one stream to print to, of which nothing is left.
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
        }
    }
}

/// What a program needs that stands around another one, as a sandbox does. Only on Linux is any of it
/// heeded.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaunchExtras<'a> {
    /// Descriptors that it inherits, under the same numbers.
    pub inherit: &'a [BorrowedFd<'a>],
    /// It begins with TERM ignored: what it stands around is asked to leave, and it leaves after that.
    pub ignore_term: bool,
    /// Its standard input is what it is fed, in place of the launch's; see [`System::start_fed`].
    pub has_stdin_pipe: bool,
    /// It has a terminal of this size of its own, which is all its standard streams; what it is fed is
    /// typed there. See [`System::start_on_terminal`].
    pub terminal: Option<TerminalSize>,
    /// That terminal is left for what it stands around, which has a session of its own to take it into.
    pub passes_terminal: bool,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl TerminalSize {
    /// What a terminal has that nobody looks at.
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

/// A child that [`System`] started, for as long as it has not been reported as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildId(pub u64);

/// A request from outside to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    HangUp,
    /// Ctrl+\, which is pressed to be rid of a program.
    Quit,
    /// The limit of this process's computing time is reached; a little later it would be killed.
    CpuLimit,
    /// The terminal's size changed.
    Resize,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildEnd {
    /// `None` if nobody could tell any more.
    pub exit: Option<Exit>,
    /// What it had left running when it ended by itself: ended by now, or left alone with
    /// `keep_background`. One that not even KILL removed says so behind its command.
    pub leftovers: Vec<Leftover>,
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occurrence {
    /// A child printed something; the buffer holds it.
    Output(ChildId, Stream),
    /// A child is gone, with everything that it had started, and all its output has been handed over.
    Ended(ChildId, ChildEnd),
    Signal(Signal),
    /// Somebody knocked: see [`System::listen_at`].
    ControlRequest,
    /// Somebody typed something; the buffer holds it. See [`System::listen_to_keys`].
    KeyInput,
    /// Somebody in this process has rung; see [`System::ring_for`].
    ProxyRefused,
    Deadline,
}
