//! How a child and all that it started come to their end: left to settle, asked to leave, killed.

use super::super::ChildId;
use super::super::tree::{self, Member, TreeScan};
use super::System;
use ralph_events::event::Leftover;

/// What a child has left behind and is still there after this long is more than the tail of a
/// pipeline that is about to leave anyway.
const SETTLE_MS: u64 = 200;
/// How long what a child left behind has between TERM and KILL.
const LEFTOVER_GRACE_MS: u64 = 2_000;
/// How long a process may take to vanish after KILL. One that hangs in the kernel may never do so.
const GIVE_UP_MS: u64 = 3_000;
/// How often the process table is looked at again between TERM and KILL, for what no signal
/// tells of.
const TERM_SCAN_MS: u64 = 250;
/// The same where orphans do not become our children, so that no signal tells of their end.
const ORPHAN_SCAN_MS: u64 = 25;
/// The same after KILL.
const KILL_SCAN_MS: u64 = 10;
/// So many looks in a row that find nobody are believed although we have children that could be
/// the child's: others are there, which explain it.
const EMPTY_SCANS: u32 = 3;

/// How far the end of a child has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildStage {
    /// It runs, and nobody minds.
    Running,
    /// It has ended by itself, and something of it is still there.
    Settling {
        until: u64,
    },
    /// It and all of its own were asked to leave.
    Terminating {
        kill_at: u64,
        look_at: u64,
    },
    Killing {
        give_up_at: u64,
        look_at: u64,
    },
    /// Nothing of it is left that could be ended.
    Ended,
}

impl System {
    /// Ends a child and all that it started, whether or not it was to keep its background: TERM,
    /// a grace of [`System::grace_ms`], KILL. Its end is told by [`System::wait`]. Once is enough.
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

    /// Ends a child and all that it started by KILL, whatever was tried before.
    pub fn kill_child(&mut self, child: ChildId) {
        if let Some(index) = self.position(child)
            && !matches!(self.children[index].stage, ChildStage::Killing { .. } | ChildStage::Ended)
        {
            let now = self.now_ms();
            self.kill(index, now, now + GIVE_UP_MS);
        }
    }

    /// Brings every child's end as far as it can be brought now.
    pub(super) fn advance(&mut self, now: u64) {
        let news = std::mem::take(&mut self.reaped_some);
        for index in 0..self.children.len() {
            self.advance_child(index, now, news);
        }
    }

    fn advance_child(&mut self, index: usize, now: u64, news: bool) {
        let child = &self.children[index];
        let reaped = child.tree.reaped;
        if reaped && child.stage != ChildStage::Ended && self.has_no_children && self.forest.reaper
        {
            // The usual case, and no look at the process table is needed for it: whatever the
            // child had started would be our child by now, and there is none.
            self.mark_ended(index);
            return;
        }
        match child.stage {
            ChildStage::Running if reaped => {
                let Some(members) = self.scan_tree(index) else {
                    return;
                };
                // With nobody in sight it takes only a second look to be sure.
                let settle = if members.is_empty() { KILL_SCAN_MS } else { SETTLE_MS };
                self.children[index].stage = ChildStage::Settling { until: now + settle };
            }
            ChildStage::Settling { until } if news || now >= until => {
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
                // With the child itself gone, what is left has no one to wait for.
                let kill_at = if reaped { kill_at.min(now + LEFTOVER_GRACE_MS) } else { kill_at };
                if now >= kill_at {
                    self.kill(index, now, now + GIVE_UP_MS);
                } else if reaped && (news || now >= look_at) {
                    self.terminate(index, now, kill_at - now);
                }
            }
            ChildStage::Killing { give_up_at, look_at } if news || now >= look_at => {
                self.kill(index, now, give_up_at)
            }
            _ => {}
        }
    }

    /// Who of a child's own is alive; `None` if nobody is, and the child is over then.
    fn scan_tree(&mut self, index: usize) -> Option<Vec<Member>> {
        // Those that are over own nothing any more: the last that is not gets all orphans.
        let (mut families, mut place) = (Vec::new(), 0);
        for (other, child) in self.children.iter_mut().enumerate() {
            if other == index {
                place = families.len();
            }
            if other == index || child.stage != ChildStage::Ended {
                families.push(&mut child.tree);
            }
        }
        let TreeScan { members, has_other_children: others } =
            self.forest.scan(&mut families, place);
        if !members.is_empty() || !self.children[index].tree.reaped {
            self.children[index].empty_scans = 0;
            return Some(members);
        }
        // The process table is not read in one moment, so that who forks and leaves quickly may be
        // missed. Whether we have children at all is beyond doubt.
        self.reap();
        let child = &mut self.children[index];
        child.empty_scans += 1;
        let certain = !self.forest.reaper || self.has_no_children;
        if certain || (others && child.empty_scans >= EMPTY_SCANS) {
            self.mark_ended(index);
            return None;
        }
        Some(members)
    }

    /// Asks everyone who was not asked yet to leave.
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
            let mut left = member.leftover();
            child.leftovers.retain(|other| other.pid != left.pid);
            left.survived = true;
            child.leftovers.push(left);
        }
        self.forest.release(&members);
        self.mark_ended(index);
    }

    /// Nothing more is to come from this child than what is in the pipes.
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

    /// The next moment at which something is to be done for a child.
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
