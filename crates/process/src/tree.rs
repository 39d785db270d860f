//! Finds the processes that a child started, and signals exactly those.
//!
//! Agents run tools in new sessions and leave orphaned daemons: neither process groups nor parent
//! links suffice. On Linux, ralph is a child subreaper and adopts every orphan below it. A child
//! owns, in this order:
//!
//! 1. itself, its session, and members seen before;
//! 2. descendants and session members of those;
//! 3. other orphans, if it is the only child.
//!
//! Released processes have no owner. A daemon that one of them starts later cannot be told
//! from an orphan of the current child.
//!
//! Without `/proc` only the process group is known.

#[cfg(target_os = "linux")]
pub(super) mod linux;

use std::collections::HashSet;

use rustix::process::{Pid, Signal};

use ralph_events::event::Leftover;

/// A pid with its start time, to detect reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcessId {
    pub(super) pid: Pid,
    /// Clock ticks since boot.
    start: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) identity: ProcessId,
    signal_target: SignalTarget,
}

#[derive(Debug, Clone, Copy)]
enum SignalTarget {
    Group,
    #[cfg(target_os = "linux")]
    Process {
        stopped: bool,
        /// Its process group, if that number cannot be reused now.
        pinned_group: Option<Pid>,
    },
}

#[derive(Debug)]
pub(super) struct ProcessTree {
    pub(super) main: Pid,
    /// Waited for; its pid may be reused.
    pub(super) reaped: bool,
    /// Needed for orphans.
    #[cfg(target_os = "linux")]
    known_members: HashSet<ProcessId>,
}

impl ProcessTree {
    pub(super) fn new(main: Pid) -> Self {
        ProcessTree {
            main,
            reaped: false,
            #[cfg(target_os = "linux")]
            known_members: HashSet::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct TreeScan {
    pub(super) members: Vec<Member>,
    /// We have children outside this tree, or cannot know.
    pub(super) has_other_children: bool,
}

#[derive(Debug)]
pub(super) struct ProcessForest {
    /// Orphans become our children.
    pub(super) reaper: bool,
    /// Left running on purpose, or not killable.
    released: HashSet<ProcessId>,
}

impl ProcessForest {
    pub(super) fn new() -> Self {
        ProcessForest { reaper: become_reaper(), released: HashSet::new() }
    }

    pub(super) fn release(&mut self, members: &[Member]) {
        self.released.extend(members.iter().map(|member| member.identity));
    }

    /// The living members of the tree at `index`.
    pub(super) fn scan(&mut self, families: &mut [&mut ProcessTree], index: usize) -> TreeScan {
        #[cfg(target_os = "linux")]
        if let Some(snapshot) = linux::ProcessTable::take() {
            return snapshot.members(families, index, &mut self.released, self.reaper);
        }
        let family = &families[index];
        let identity = ProcessId { pid: family.main, start: 0 };
        let alive = rustix::process::test_kill_process_group(family.main)
            != Err(rustix::io::Errno::SRCH)
            && !self.released.contains(&identity);
        let member = Member { identity, signal_target: SignalTarget::Group };
        TreeScan {
            members: alive.then_some(member).into_iter().collect(),
            has_other_children: true,
        }
    }
}

#[cfg(target_os = "linux")]
fn become_reaper() -> bool {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
        && linux::ProcessTable::possible()
}

#[cfg(not(target_os = "linux"))]
fn become_reaper() -> bool {
    false
}

impl Member {
    /// A stopped process also gets CONT, or it could not react.
    pub(super) fn terminate(&self) {
        match self.signal_target {
            SignalTarget::Group => {
                signal_group(self.identity.pid, Signal::TERM);
                signal_group(self.identity.pid, Signal::CONT);
            }
            #[cfg(target_os = "linux")]
            SignalTarget::Process { stopped, .. } => {
                linux::signal(self.identity, Signal::TERM);
                if stopped {
                    linux::signal(self.identity, Signal::CONT);
                }
            }
        }
    }

    pub(super) fn leftover(&self) -> Leftover {
        let pid = self.identity.pid.as_raw_pid().unsigned_abs();
        Leftover { pid, command: self.command(), survived: false }
    }

    fn command(&self) -> String {
        match self.signal_target {
            SignalTarget::Group => format!("process group {}", self.identity.pid.as_raw_pid()),
            #[cfg(target_os = "linux")]
            SignalTarget::Process { .. } => linux::command_line(self.identity.pid),
        }
    }
}

pub(super) fn kill(members: &[Member]) {
    // The kernel kills a group atomically. Processes that fork and exit quickly would always be one
    // ahead.
    let mut groups = HashSet::new();
    for member in members {
        let group = match member.signal_target {
            SignalTarget::Group => Some(member.identity.pid),
            #[cfg(target_os = "linux")]
            SignalTarget::Process { pinned_group, .. } => pinned_group,
        };
        if let Some(group) = group
            && groups.insert(group)
        {
            signal_group(group, Signal::KILL);
        }
    }
    #[cfg(target_os = "linux")]
    for member in members {
        if let SignalTarget::Process { .. } = member.signal_target {
            linux::signal(member.identity, Signal::KILL);
        }
    }
}

/// `None` if it is outside our PID namespace.
fn own_group() -> Option<Pid> {
    #[expect(unsafe_code, reason = "rustix takes it for granted that there is one")]
    // SAFETY: it has no arguments and cannot fail.
    let group = unsafe { libc::getpgrp() };
    Pid::from_raw(group)
}

fn signal_group(group: Pid, signal: Signal) {
    if Some(group) != own_group() && !group.is_init() {
        // Errors (gone, not ours) show in the next scan.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
