//! Ends a child and everything it started: settle, TERM, KILL.

use super::super::ChildId;
use super::super::tree::{self, Member, TreeScan};
use super::System;
use ralph_events::event::Leftover;

/// Longer than the tail of a pipeline needs.
const SETTLE_MS: u64 = 200;
const LEFTOVER_GRACE_MS: u64 = 2_000;
/// A process stuck in the kernel may never vanish.
const GIVE_UP_MS: u64 = 3_000;
/// The scan intervals after TERM, after TERM without a subreaper (no SIGCHLD for orphans), and
/// after KILL.
const TERM_SCAN_MS: u64 = 250;
const ORPHAN_SCAN_MS: u64 = 25;
const KILL_SCAN_MS: u64 = 10;
/// Empty scans to believe although we have children, if other trees explain those.
const EMPTY_SCANS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildStage {
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

impl System {
    /// Ends a child and its tree: TERM, [`System::grace_ms`], KILL. Overrides `keep_background`.
    pub fn terminate_child(&mut self, child: ChildId) {
        if let Some(index) = self.position(child)
            && matches!(
                self.children[index].stage,
                ChildStage::Running | ChildStage::Settling { .. }
            )
        {
            let now = self.now_ms();
            let grace = self.grace_ms;
            self.terminate(index, now, grace);
        }
    }

    pub fn kill_child(&mut self, child: ChildId) {
        if let Some(index) = self.position(child)
            && !matches!(self.children[index].stage, ChildStage::Killing { .. } | ChildStage::Ended)
        {
            let now = self.now_ms();
            self.kill(index, now, now + GIVE_UP_MS);
        }
    }

    pub(super) fn advance(&mut self, now: u64) {
        let reaped_some = std::mem::take(&mut self.reaped_some);
        for index in 0..self.children.len() {
            self.advance_child(index, now, reaped_some);
        }
    }

    fn advance_child(&mut self, index: usize, now: u64, reaped_some: bool) {
        let child = &self.children[index];
        let reaped = child.tree.reaped;
        if reaped && child.stage != ChildStage::Ended && self.has_no_children && self.forest.reaper
        {
            // The usual case needs no scan: any descendant would be our child by now.
            self.mark_ended(index);
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
            ChildStage::Settling { until } if reaped_some || now >= until => {
                let Some(members) = self.scan_tree(index) else {
                    return;
                };
                let child = &mut self.children[index];
                if now < until {
                    return;
                }
                child.leftovers = members.iter().map(Member::leftover).collect();
                if child.keep_background {
                    self.forest.release(&members);
                    self.mark_ended(index);
                } else {
                    self.terminate(index, now, LEFTOVER_GRACE_MS);
                }
            }
            ChildStage::Terminating { kill_at, look_at } => {
                // Leftovers do not get the child's full grace period.
                let kill_at = if reaped { kill_at.min(now + LEFTOVER_GRACE_MS) } else { kill_at };
                if now >= kill_at {
                    self.kill(index, now, now + GIVE_UP_MS);
                } else if reaped && (reaped_some || now >= look_at) {
                    self.terminate(index, now, kill_at - now);
                }
            }
            ChildStage::Killing { give_up_at, look_at } if reaped_some || now >= look_at => {
                self.kill(index, now, give_up_at)
            }
            _ => {}
        }
    }

    /// `None` if the tree has ended.
    fn scan_tree(&mut self, index: usize) -> Option<Vec<Member>> {
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
        let TreeScan { members, has_other_children: has_others } =
            self.forest.scan(&mut families, position);
        if !members.is_empty() || !self.children[index].tree.reaped {
            self.children[index].empty_scans = 0;
            return Some(members);
        }
        // A scan may miss processes that fork and exit quickly; `waitpid` does not.
        self.reap();
        let child = &mut self.children[index];
        child.empty_scans += 1;
        let certain = !self.forest.reaper || self.has_no_children;
        if certain || (has_others && child.empty_scans >= EMPTY_SCANS) {
            self.mark_ended(index);
            return None;
        }
        Some(members)
    }

    /// Sends TERM once to each member.
    fn terminate(&mut self, index: usize, now: u64, grace_ms: u64) {
        let Some(members) = self.scan_tree(index) else {
            return;
        };
        let interval = if self.forest.reaper { TERM_SCAN_MS } else { ORPHAN_SCAN_MS };
        let child = &mut self.children[index];
        for member in &members {
            if child.terminated.insert(member.identity) {
                member.terminate();
            }
        }
        child.stage = ChildStage::Terminating { kill_at: now + grace_ms, look_at: now + interval };
    }

    fn kill(&mut self, index: usize, now: u64, give_up_at: u64) {
        let Some(members) = self.scan_tree(index) else {
            return;
        };
        tree::kill(&members);
        let child = &mut self.children[index];
        if now < give_up_at {
            child.stage = ChildStage::Killing { give_up_at, look_at: now + KILL_SCAN_MS };
            return;
        }
        if members.is_empty() {
            child.leftovers.push(Leftover {
                pid: child.tree.main.as_raw_pid().unsigned_abs(),
                command: "something that it started and that could not be caught".to_owned(),
                survived: true,
            });
        }
        for member in &members {
            let mut leftover = member.leftover();
            child.leftovers.retain(|other| other.pid != leftover.pid);
            leftover.survived = true;
            child.leftovers.push(leftover);
        }
        self.forest.release(&members);
        self.mark_ended(index);
    }

    fn mark_ended(&mut self, index: usize) {
        let child = &mut self.children[index];
        child.stage = ChildStage::Ended;
        child.input = None;
        for slot in [&mut child.stdout, &mut child.stderr] {
            if let Some(pipe) = slot
                && !pipe.read_only_available()
            {
                *slot = None;
            }
        }
    }

    pub(super) fn next_step_ms(&self) -> Option<u64> {
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
            .min()
    }
}
