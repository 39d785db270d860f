//! Whom a child started, and how to signal exactly those.
//!
//! Agents run their tools in sessions of their own and leave daemons whose parents are gone, so
//! neither a process group nor a parent chain tells who belongs to whom. On Linux this process is
//! a "child subreaper": an orphan below it becomes its child, never init's, so that nothing gets
//! lost. What belongs to a child is then, in this order:
//!
//! 1. itself, its session, and what was seen to belong to it before;
//! 2. whatever has a parent, or shares a session, with one of those;
//! 3. an orphan that fits nowhere else, when there is only one child. With several children at
//!    once such an orphan stays with us and is counted to the last of them, so that it outlives
//!    its own child for a while but never us.
//!
//! What was left alone on purpose is remembered and counted to nobody. A daemon that such a process
//! starts later, in a new session and with its parent gone, cannot be told from an orphan of the
//! child that runs then.
//!
//! Where there is no `/proc`, and on other systems, a child's process group is all that can be seen.

#[cfg(target_os = "linux")]
pub(super) mod linux;

use std::collections::HashSet;

use rustix::process::{Pid, Signal};

use ralph_events::event::Leftover;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcessId {
    pub(super) pid: Pid,
    /// Clock ticks after the boot.
    start: u64,
}

/// Something alive that belongs to a child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) identity: ProcessId,
    signal_target: SignalTarget,
}

#[derive(Debug, Clone, Copy)]
enum SignalTarget {
    /// All of the group with this number; nothing more is known.
    Group,
    #[cfg(target_os = "linux")]
    Process {
        stopped: bool,
        /// Its process group, if that group cannot vanish and its number cannot go to another one
        /// before we signal it.
        pinned_group: Option<Pid>,
    },
}

/// What is known of a child and its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    pub(super) main: Pid,
    /// The main process has been waited for, so that its number may be someone else's by now.
    pub(super) reaped: bool,
    /// Seen to belong here. Without it, those whose parents are gone could be lost sight of.
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

/// What a look at the process table found.
#[derive(Debug)]
pub(super) struct TreeScan {
    pub(super) members: Vec<Member>,
    /// There are children of ours that are not this family's, or it cannot be known.
    pub(super) has_other_children: bool,
}

/// All that is below this process.
#[derive(Debug)]
pub(super) struct ProcessForest {
    /// Orphans become our children, so that having no children means that nothing is left.
    pub(super) reaper: bool,
    /// Left alone on purpose, or beyond our reach.
    released: HashSet<ProcessId>,
}

impl ProcessForest {
    pub(super) fn new() -> Self {
        ProcessForest { reaper: become_reaper(), released: HashSet::new() }
    }

    /// From now on these are not ours to end.
    pub(super) fn release(&mut self, members: &[Member]) {
        self.released.extend(members.iter().map(|member| member.identity));
    }

    /// Who of the family at `index` is alive. `families` are all that there are.
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
    /// Asks it to leave. A stopped process is woken, or it could not answer.
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

    /// Its command line, for people.
    fn command(&self) -> String {
        match self.signal_target {
            SignalTarget::Group => format!("process group {}", self.identity.pid.as_raw_pid()),
            #[cfg(target_os = "linux")]
            SignalTarget::Process { .. } => linux::command_line(self.identity.pid),
        }
    }
}

/// Ends all of these at once.
pub(super) fn kill(members: &[Member]) {
    // Groups first: the kernel kills a group in one step that no fork can slip out of, while
    // processes that fork and leave faster than we can look at them would always be one ahead.
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

/// Our own group; `None` if it began outside of our process namespace, where it has no number that we could see.
fn own_group() -> Option<Pid> {
    #[expect(unsafe_code, reason = "rustix takes it for granted that there is one")]
    // SAFETY: it takes nothing, changes nothing and cannot fail.
    let group = unsafe { libc::getpgrp() };
    Pid::from_raw(group)
}

fn signal_group(group: Pid, signal: Signal) {
    if Some(group) != own_group() && !group.is_init() {
        // It may be gone, or not be ours to signal; the next look tells.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}
