//! How a child and all that it started come to their end: left to settle, asked to leave, killed.

use super::super::ChildId;
use super::super::tree::{self, Look, Member};
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
const TERM_LOOK_MS: u64 = 250;
/// The same where orphans do not become our children, so that no signal tells of their end.
const BLIND_LOOK_MS: u64 = 25;
/// The same after KILL.
const KILL_LOOK_MS: u64 = 10;
/// So many looks in a row that find nobody are believed although we have children that could be
/// the child's: others are there, which explain it.
const EMPTY_LOOKS: u32 = 3;

/// How far the end of a child has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
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
    Over,
}

impl System {
    /// Ends a child and all that it started, whether or not it was to keep its background: TERM,
    /// a grace of [`System::grace_ms`], KILL. Its end is told by [`System::wait`]. Once is enough.
    pub fn end(&mut self, child: ChildId) {
        if let Some(index) = self.position(child)
            && matches!(self.children[index].stage, Stage::Running | Stage::Settling { .. })
        {
            let now = self.now_ms();
            let grace = self.grace_ms;
            self.terminate(index, now, grace);
        }
    }

    /// Ends a child and all that it started by KILL, whatever was tried before.
    pub fn end_now(&mut self, child: ChildId) {
        if let Some(index) = self.position(child)
            && !matches!(self.children[index].stage, Stage::Killing { .. } | Stage::Over)
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
        let reaped = child.family.reaped;
        if reaped && child.stage != Stage::Over && self.childless && self.forest.reaper {
            // The usual case, and no look at the process table is needed for it: whatever the
            // child had started would be our child by now, and there is none.
            self.over(index);
            return;
        }
        match child.stage {
            Stage::Running if reaped => {
                let Some(members) = self.look(index) else {
                    return;
                };
                // With nobody in sight it takes only a second look to be sure.
                let settle = if members.is_empty() { KILL_LOOK_MS } else { SETTLE_MS };
                self.children[index].stage = Stage::Settling { until: now + settle };
            }
            Stage::Settling { until } if news || now >= until => {
                let Some(members) = self.look(index) else {
                    return;
                };
                let child = &mut self.children[index];
                if now < until {
                    return;
                }
                child.leftovers = members.iter().map(Member::leftover).collect();
                if child.keep_background {
                    self.forest.release(&members);
                    self.over(index);
                } else {
                    self.terminate(index, now, LEFTOVER_GRACE_MS);
                }
            }
            Stage::Terminating { kill_at, look_at } => {
                // With the child itself gone, what is left has no one to wait for.
                let kill_at = if reaped { kill_at.min(now + LEFTOVER_GRACE_MS) } else { kill_at };
                if now >= kill_at {
                    self.kill(index, now, now + GIVE_UP_MS);
                } else if reaped && (news || now >= look_at) {
                    self.terminate(index, now, kill_at - now);
                }
            }
            Stage::Killing { give_up_at, look_at } if news || now >= look_at => {
                self.kill(index, now, give_up_at)
            }
            _ => {}
        }
    }

    /// Who of a child's own is alive; `None` if nobody is, and the child is over then.
    fn look(&mut self, index: usize) -> Option<Vec<Member>> {
        // Those that are over own nothing any more: the last that is not gets all orphans.
        let (mut families, mut place) = (Vec::new(), 0);
        for (other, child) in self.children.iter_mut().enumerate() {
            if other == index {
                place = families.len();
            }
            if other == index || child.stage != Stage::Over {
                families.push(&mut child.family);
            }
        }
        let Look { members, others } = self.forest.look(&mut families, place);
        if !members.is_empty() || !self.children[index].family.reaped {
            self.children[index].empty_looks = 0;
            return Some(members);
        }
        // The process table is not read in one moment, so that who forks and leaves quickly may be
        // missed. Whether we have children at all is beyond doubt.
        self.reap();
        let child = &mut self.children[index];
        child.empty_looks += 1;
        let certain = !self.forest.reaper || self.childless;
        if certain || (others && child.empty_looks >= EMPTY_LOOKS) {
            self.over(index);
            return None;
        }
        Some(members)
    }

    /// Asks everyone who was not asked yet to leave.
    fn terminate(&mut self, index: usize, now: u64, grace_ms: u64) {
        let Some(members) = self.look(index) else {
            return;
        };
        let interval = if self.forest.reaper { TERM_LOOK_MS } else { BLIND_LOOK_MS };
        let child = &mut self.children[index];
        for member in &members {
            if child.asked.insert(member.identity) {
                member.terminate();
            }
        }
        child.stage = Stage::Terminating { kill_at: now + grace_ms, look_at: now + interval };
    }

    fn kill(&mut self, index: usize, now: u64, give_up_at: u64) {
        let Some(members) = self.look(index) else {
            return;
        };
        tree::kill(&members);
        let child = &mut self.children[index];
        if now < give_up_at {
            child.stage = Stage::Killing { give_up_at, look_at: now + KILL_LOOK_MS };
            return;
        }
        if members.is_empty() {
            child.leftovers.push(Leftover {
                pid: child.family.main.as_raw_pid().unsigned_abs(),
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
        self.over(index);
    }

    /// Nothing more is to come from this child than what is in the pipes.
    fn over(&mut self, index: usize) {
        let child = &mut self.children[index];
        child.stage = Stage::Over;
        child.input = None;
        for slot in [&mut child.stdout, &mut child.stderr] {
            if let Some(pipe) = slot
                && !pipe.leave_it_at_that()
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
                Stage::Running | Stage::Over => None,
                Stage::Settling { until } => Some(until),
                Stage::Terminating { kill_at, look_at } => {
                    Some(if child.family.reaped { kill_at.min(look_at) } else { kill_at })
                }
                Stage::Killing { look_at, .. } => Some(look_at),
            })
            .min()
    }
}
