//! Ends a child and everything it started: settle, TERM, KILL.

use std::collections::HashSet;

use rustix::process::Pid;

use super::process_table::{ProcessId, ProcessSource, Reaped};
use super::tree::{self, Member, ProcessTree, TreeScan};
use super::{ChildEnd, ChildId};
use ralph_events::event::{Exit, Leftover};

/// Longer than the tail of a pipeline needs.
const SETTLE_MS: u64 = 200;
const LEFTOVER_GRACE_MS: u64 = 2_000;
/// A process stuck in the kernel may never vanish.
const GIVE_UP_MS: u64 = 3_000;
/// The scan intervals after TERM, after TERM if the end of orphans is not reported, and after KILL.
const TERM_SCAN_MS: u64 = 250;
const ORPHAN_SCAN_MS: u64 = 25;
const KILL_SCAN_MS: u64 = 10;
/// Empty scans to believe although we have children, if other trees explain those, or if we adopt
/// no orphans.
const EMPTY_SCANS: u32 = 3;
/// The least time between two looks for new members. Only without a subreaper.
const LOOK_MS: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildStage {
    Running,
    /// It exited, but part of its tree is alive.
    Settling {
        until: u64,
    },
    Terminating {
        kill_at: u64,
        look_at: u64,
    },
    Killing {
        give_up_at: u64,
        look_at: u64,
    },
    Ended,
}

#[derive(Debug)]
struct TrackedChild {
    id: ChildId,
    tree: ProcessTree,
    exit: Option<Exit>,
    keep_background: bool,
    stage: ChildStage,
    terminated: HashSet<ProcessId>,
    empty_scans: u32,
    leftovers: Vec<Leftover>,
}

impl TrackedChild {
    /// What it leaves behind matters only if that is ended.
    fn needs_looks(&self) -> bool {
        self.stage == ChildStage::Running && !self.keep_background
    }
}

/// The children and the processes below them.
#[derive(Debug)]
pub(super) struct ProcessForest<S> {
    pub(super) source: S,
    /// Orphans become our children.
    reaper: bool,
    children: Vec<TrackedChild>,
    /// Left running on purpose, or not killable.
    released: HashSet<ProcessId>,
    /// `waitpid` reported no child at all.
    has_no_children: bool,
    /// Something ended since the last scan.
    ended_some: bool,
    watched: HashSet<ProcessId>,
    reports_ends: bool,
    looked_at: u64,
    look_pending: bool,
}

impl<S: ProcessSource> ProcessForest<S> {
    pub(super) fn new(source: S, reaper: bool) -> Self {
        ProcessForest {
            source,
            reaper,
            children: Vec::new(),
            released: HashSet::new(),
            has_no_children: false,
            ended_some: false,
            watched: HashSet::new(),
            reports_ends: false,
            looked_at: 0,
            look_pending: false,
        }
    }

    /// `mark` is `NAME=value` in the child's environment, and in no other child's of other runs.
    pub(super) fn add(
        &mut self,
        id: ChildId,
        main: Pid,
        mark: Option<Vec<u8>>,
        keep_background: bool,
    ) {
        let tree = ProcessTree::new(main, self.source.start_of_child(main), mark);
        self.has_no_children = false;
        self.look_pending |= !keep_background;
        self.children.push(TrackedChild {
            id,
            tree,
            exit: None,
            keep_background,
            stage: ChildStage::Running,
            terminated: HashSet::new(),
            empty_scans: 0,
            leftovers: Vec::new(),
        });
    }

    /// TERM, the grace period, KILL.
    pub(super) fn terminate_child(&mut self, id: ChildId, grace_ms: u64) {
        if let Some(index) = self.position(id)
            && matches!(
                self.children[index].stage,
                ChildStage::Running | ChildStage::Settling { .. }
            )
        {
            let now = self.source.now_ms();
            self.terminate(index, now, grace_ms);
        }
    }

    pub(super) fn kill_child(&mut self, id: ChildId) {
        if let Some(index) = self.position(id)
            && !matches!(self.children[index].stage, ChildStage::Killing { .. } | ChildStage::Ended)
        {
            let now = self.source.now_ms();
            self.kill(index, now, now + GIVE_UP_MS);
        }
    }

    /// Whether the whole tree is gone, or given up.
    pub(super) fn has_ended(&self, id: ChildId) -> bool {
        self.position(id).is_none_or(|index| self.children[index].stage == ChildStage::Ended)
    }

    pub(super) fn remove(&mut self, id: ChildId) -> ChildEnd {
        let child = self.position(id).map(|index| self.children.remove(index));
        child.map_or(ChildEnd { exit: None, leftovers: Vec::new() }, |child| ChildEnd {
            exit: child.exit,
            leftovers: child.leftovers,
        })
    }

    fn position(&self, id: ChildId) -> Option<usize> {
        self.children.iter().position(|child| child.id == id)
    }

    /// Waits for every child that has exited.
    pub(super) fn reap(&mut self) {
        loop {
            match self.source.reap() {
                Reaped::Child(pid, exit) => self.reaped(pid, exit),
                Reaped::NoneYet => return,
                Reaped::NoChildren => {
                    self.has_no_children = true;
                    return;
                }
            }
        }
    }

    fn reaped(&mut self, pid: Pid, exit: Option<Exit>) {
        self.ended_some = true;
        let child =
            self.children.iter_mut().find(|child| child.tree.main == pid && !child.tree.reaped);
        if let Some(child) = child {
            child.tree.reaped = true;
            child.exit = exit;
        }
    }

    /// A watched process has ended or forked.
    pub(super) fn note_change(&mut self) {
        self.ended_some = true;
        self.look_pending = true;
        self.watched.clear();
        self.source.watch(&[]);
    }

    pub(super) fn advance(&mut self, now: u64) {
        let ended_some = std::mem::take(&mut self.ended_some);
        for index in 0..self.children.len() {
            self.advance_child(index, now, ended_some);
        }
        self.look(now);
    }

    /// Remembers the members of running trees. With a subreaper none is lost.
    fn look(&mut self, now: u64) {
        if self.reaper || !self.look_pending || now < self.looked_at + LOOK_MS {
            return;
        }
        self.look_pending = false;
        self.looked_at = now;
        if let Some(index) = self.children.iter().position(TrackedChild::needs_looks) {
            self.scan(index);
            self.watch_members();
        }
    }

    fn advance_child(&mut self, index: usize, now: u64, ended_some: bool) {
        let child = &self.children[index];
        let reaped = child.tree.reaped;
        if reaped && child.stage != ChildStage::Ended && self.has_no_children && self.reaper {
            // The usual case needs no scan: any descendant would be our child by now.
            self.children[index].stage = ChildStage::Ended;
            return;
        }
        match child.stage {
            ChildStage::Running if reaped => {
                let Some(members) = self.scan_tree(index) else {
                    return;
                };
                let settle = if members.is_empty() { KILL_SCAN_MS } else { SETTLE_MS };
                self.children[index].stage = ChildStage::Settling { until: now + settle };
            }
            ChildStage::Settling { until } if ended_some || now >= until => {
                let Some(members) = self.scan_tree(index) else {
                    return;
                };
                if now < until {
                    return;
                }
                let leftovers = self.leftovers(&members);
                let child = &mut self.children[index];
                child.leftovers = leftovers;
                if child.keep_background {
                    child.stage = ChildStage::Ended;
                    self.release(&members);
                } else {
                    self.terminate(index, now, LEFTOVER_GRACE_MS);
                }
            }
            ChildStage::Terminating { kill_at, look_at } => {
                // Leftovers do not get the child's full grace period.
                let kill_at = if reaped { kill_at.min(now + LEFTOVER_GRACE_MS) } else { kill_at };
                if now >= kill_at {
                    self.kill(index, now, now + GIVE_UP_MS);
                } else if reaped && (ended_some || now >= look_at) {
                    self.terminate(index, now, kill_at - now);
                }
            }
            ChildStage::Killing { give_up_at, look_at } if ended_some || now >= look_at => {
                self.kill(index, now, give_up_at)
            }
            _ => {}
        }
    }

    fn leftovers(&mut self, members: &[Member]) -> Vec<Leftover> {
        members.iter().map(|member| member.leftover(&mut self.source)).collect()
    }

    fn release(&mut self, members: &[Member]) {
        self.released.extend(members.iter().map(|member| member.identity));
    }

    fn scan(&mut self, index: usize) -> TreeScan {
        // Ended trees own nothing: the last running one gets all orphans.
        let (mut families, mut position) = (Vec::new(), 0);
        for (other, child) in self.children.iter_mut().enumerate() {
            if other == index {
                position = families.len();
            }
            if other == index || child.stage != ChildStage::Ended {
                families.push(&mut child.tree);
            }
        }
        tree::scan(&mut self.source, &mut families, position, &mut self.released, self.reaper)
    }

    /// `None` if the tree has ended.
    fn scan_tree(&mut self, index: usize) -> Option<Vec<Member>> {
        loop {
            let TreeScan { members, has_other_children: has_others } = self.scan(index);
            self.watch_members();
            if !members.is_empty() || !self.children[index].tree.reaped {
                self.children[index].empty_scans = 0;
                return Some(members);
            }
            // A scan may miss processes that fork and exit quickly; `waitpid` does not.
            self.reap();
            let child = &mut self.children[index];
            child.empty_scans += 1;
            let is_believed = child.empty_scans >= EMPTY_SCANS;
            let has_ended = if self.reaper {
                self.has_no_children || (is_believed && has_others)
            } else {
                is_believed || child.keep_background
            };
            if has_ended {
                child.stage = ChildStage::Ended;
                return None;
            }
            if self.reaper {
                return Some(members);
            }
        }
    }

    /// Without a subreaper, no SIGCHLD tells of the end of an orphan.
    fn watch_members(&mut self) {
        if self.reaper {
            return;
        }
        let active = self.children.iter().filter(|child| child.stage != ChildStage::Ended);
        let wanted: HashSet<ProcessId> =
            active.flat_map(|child| &child.tree.known_members).copied().collect();
        if wanted != self.watched {
            self.reports_ends = self.source.watch(&Vec::from_iter(wanted.iter().copied()));
            self.watched = wanted;
        }
    }

    /// Sends TERM once to each member.
    fn terminate(&mut self, index: usize, now: u64, grace_ms: u64) {
        let Some(members) = self.scan_tree(index) else {
            return;
        };
        let is_woken = self.reaper || self.reports_ends;
        let interval = if is_woken { TERM_SCAN_MS } else { ORPHAN_SCAN_MS };
        let child = &mut self.children[index];
        for member in &members {
            if child.terminated.insert(member.identity) {
                member.terminate(&mut self.source);
            }
        }
        child.stage = ChildStage::Terminating { kill_at: now + grace_ms, look_at: now + interval };
    }

    fn kill(&mut self, index: usize, now: u64, give_up_at: u64) {
        let Some(members) = self.scan_tree(index) else {
            return;
        };
        tree::kill(&mut self.source, &members);
        let child = &mut self.children[index];
        if now < give_up_at {
            child.stage = ChildStage::Killing { give_up_at, look_at: now + KILL_SCAN_MS };
            return;
        }
        child.stage = ChildStage::Ended;
        if members.is_empty() {
            child.leftovers.push(Leftover {
                pid: child.tree.main.as_raw_pid().unsigned_abs(),
                command: "unknown process that could not be killed".to_owned(),
                survived: true,
            });
        }
        for mut leftover in self.leftovers(&members) {
            let leftovers = &mut self.children[index].leftovers;
            leftovers.retain(|other| other.pid != leftover.pid);
            leftover.survived = true;
            leftovers.push(leftover);
        }
        self.release(&members);
    }

    pub(super) fn next_step_ms(&self) -> Option<u64> {
        let looks = !self.reaper
            && self.look_pending
            && self.children.iter().any(TrackedChild::needs_looks);
        self.children
            .iter()
            .filter_map(|child| match child.stage {
                ChildStage::Running | ChildStage::Ended => None,
                ChildStage::Settling { until } => Some(until),
                ChildStage::Terminating { kill_at, look_at } => {
                    Some(if child.tree.reaped { kill_at.min(look_at) } else { kill_at })
                }
                ChildStage::Killing { look_at, .. } => Some(look_at),
            })
            .chain(looks.then_some(self.looked_at + LOOK_MS))
            .min()
    }
}

#[cfg(test)]
mod tests;
