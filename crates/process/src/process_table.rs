//! Facts about processes as the system reports them, and signals to them.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::{clock, platform};
use ralph_events::control_chars::is_invisible;
use ralph_events::event::Exit;

/// Identifies a process even if its pid is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcessId {
    pub(super) pid: Pid,
    /// Differs between processes with the same pid: a start time or a serial number.
    pub(super) start: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) identity: ProcessId,
    pub(super) parent: i32,
    /// [`ProcessId::start`] of the process that forked it. Unlike `parent`, it stays when that
    /// process ends. Linux does not tell.
    pub(super) origin: Option<u64>,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) stopped: bool,
    pub(super) dead: bool,
}

impl Process {
    pub(super) fn pid(&self) -> i32 {
        self.identity.pid.as_raw_pid()
    }
}

#[derive(Debug, Clone)]
pub(super) struct ProcessTable {
    pub(super) me: Process,
    pub(super) alive: Vec<Process>,
}

impl ProcessTable {
    pub(super) fn parents(&self) -> HashMap<i32, i32> {
        self.alive.iter().map(|process| (process.pid(), process.parent)).collect()
    }
}

/// A process and those above it.
pub(super) fn ancestry(pid: i32, parents: &HashMap<i32, i32>) -> impl Iterator<Item = i32> {
    std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
        .take_while(|pid| parents.contains_key(pid))
        // Inconsistent reads could form a cycle.
        .take(parents.len())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalTarget {
    Process(ProcessId),
    Group(Pid),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaped {
    Child(Pid, Option<Exit>),
    NoneYet,
    NoChildren,
}

/// The processes of this machine. Tests have their own.
pub(super) trait ProcessSource {
    /// `None` if the system shows no processes.
    fn table(&mut self) -> Option<ProcessTable>;
    /// [`ProcessId::start`] of a child that was not waited for. Unknown on Linux.
    fn start_of_child(&mut self, pid: Pid) -> Option<u64>;
    fn is_own(&mut self, pid: Pid) -> bool;
    /// Variables with a NUL after each. `None` if it is unreadable, and empty if it is hidden.
    /// Expensive on macOS.
    fn environment(&mut self, pid: Pid) -> Option<Vec<u8>>;
    fn command_line(&mut self, pid: Pid) -> String;
    /// Never reaches another process that reused the pid.
    fn signal(&mut self, target: SignalTarget, signal: Signal);
    fn reap(&mut self) -> Reaped;
    /// Replaces the watched processes. Returns whether every end will wake this process.
    fn watch(&mut self, processes: &[ProcessId]) -> bool;
    fn wait_until_gone(&mut self, processes: &[ProcessId], until_ms: u64) -> bool;
    fn now_ms(&self) -> u64;
}

#[derive(Debug, Default)]
pub(super) struct SystemProcesses {
    watch: Option<platform::ProcessWatch>,
}

impl SystemProcesses {
    /// Readable if a watched process may have ended or forked. Call
    /// [`ProcessForest::note_change`](super::forest::ProcessForest::note_change) then.
    pub(super) fn watch_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.iter().flat_map(platform::ProcessWatch::fds)
    }
}

const MAX_COMMAND_CHARS: usize = 200;
/// For a process whose end the system does not report.
const UNWATCHED_MS: u64 = 20;

impl ProcessSource for SystemProcesses {
    fn table(&mut self) -> Option<ProcessTable> {
        let me = platform::read_process(rustix::process::getpid())?;
        // qemu tells the program that it emulates that it has none.
        let me = Process { session: own_session(), ..me };
        let read = |pid| platform::read_process(pid).filter(|process| !process.dead);
        let mut alive: Vec<Process> = platform::all_pids()?.into_iter().filter_map(read).collect();
        // A scan takes milliseconds and misses processes that fork and exit within one.
        for pid in platform::recent_pids() {
            if alive.iter().all(|process| process.identity.pid != pid) {
                alive.extend(read(pid));
            }
        }
        Some(ProcessTable { me, alive })
    }

    fn start_of_child(&mut self, pid: Pid) -> Option<u64> {
        platform::start_of_child(pid)
    }

    fn is_own(&mut self, pid: Pid) -> bool {
        platform::is_own(pid)
    }

    fn environment(&mut self, pid: Pid) -> Option<Vec<u8>> {
        platform::environment(pid)
    }

    fn command_line(&mut self, pid: Pid) -> String {
        String::from_utf8_lossy(&platform::command_line(pid))
            .trim_end_matches(['\0', ' '])
            .trim()
            .chars()
            .take(MAX_COMMAND_CHARS)
            .map(|c| if is_invisible(c) { ' ' } else { c })
            .collect()
    }

    fn signal(&mut self, target: SignalTarget, signal: Signal) {
        // Errors (gone, not ours) show in the next scan.
        match target {
            SignalTarget::Process(process) => platform::send_signal(process, signal),
            SignalTarget::Group(group) if Some(group) != own_group() && !group.is_init() => {
                let _ = rustix::process::kill_process_group(group, signal);
            }
            SignalTarget::Group(_) => {}
        }
    }

    fn reap(&mut self) -> Reaped {
        match rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::NOHANG)) {
            Ok(Some((pid, status))) => {
                let exit = status
                    .exit_status()
                    .map(Exit::Code)
                    .or_else(|| status.terminating_signal().map(Exit::Signal));
                Reaped::Child(pid, exit)
            }
            Ok(None) => Reaped::NoneYet,
            Err(_) => Reaped::NoChildren,
        }
    }

    fn watch(&mut self, processes: &[ProcessId]) -> bool {
        self.watch = None;
        if processes.is_empty() {
            return true;
        }
        let pids: Vec<Pid> = processes.iter().map(|process| process.pid).collect();
        let watch = platform::ProcessWatch::exits_and_forks(&pids);
        let complete = watch.is_complete();
        self.watch = Some(watch);
        complete
    }

    fn wait_until_gone(&mut self, processes: &[ProcessId], until_ms: u64) -> bool {
        loop {
            let alive: Vec<Pid> = processes
                .iter()
                .filter(|process| {
                    platform::read_process(process.pid)
                        .is_some_and(|now| now.identity == **process && !now.dead)
                })
                .map(|process| process.pid)
                .collect();
            let remaining = until_ms.saturating_sub(clock::now_ms());
            if alive.is_empty() || remaining == 0 {
                return alive.is_empty();
            }
            let watch = platform::ProcessWatch::exits(&alive);
            let mut polled: Vec<_> =
                watch.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let timeout = if watch.is_complete() { remaining } else { remaining.min(UNWATCHED_MS) };
            let _ = rustix::event::poll(&mut polled, Some(&clock::timespec(timeout * 1_000_000)));
        }
    }

    fn now_ms(&self) -> u64 {
        clock::now_ms()
    }
}

/// Whether `NAME=value` is among the variables.
pub(super) fn has_variable(environment: &[u8], variable: &[u8]) -> bool {
    environment.split(|&byte| byte == 0).any(|other| other == variable)
}

pub(super) fn is_group_alive(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group) != Err(Errno::SRCH)
}

/// 0 if it is outside our PID namespace.
fn own_session() -> i32 {
    #[expect(unsafe_code, reason = "rustix takes it for granted that there is one")]
    // SAFETY: the argument is a number, and stands for this process.
    unsafe {
        libc::getsid(0)
    }
}

/// `None` if it is outside our PID namespace.
fn own_group() -> Option<Pid> {
    #[expect(unsafe_code, reason = "rustix takes it for granted that there is one")]
    // SAFETY: it has no arguments and cannot fail.
    let group = unsafe { libc::getpgrp() };
    Pid::from_raw(group)
}
