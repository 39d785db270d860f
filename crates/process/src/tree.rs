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
//! macOS has no subreaper, but tells which process forked another, even after that one is gone.
//! Descendants of any member ever seen count there, and orphans by the run's variable in
//! their environment.
//!
//! Released processes have no owner. A daemon that one of them starts later cannot be told
//! from an orphan of the current child.
//!
//! Without a process table only the process group is known.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal};

use super::process_table::{
    Process, ProcessId, ProcessSource, ProcessTable, SignalTarget, ancestry, has_variable,
    is_group_alive,
};
use ralph_events::event::Leftover;

#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) identity: ProcessId,
    kind: MemberKind,
}

#[derive(Debug, Clone, Copy)]
enum MemberKind {
    Group,
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
    /// Of the child, where the system names a process's origin.
    start: Option<u64>,
    /// `NAME=value` in the environment of what it starts; for orphans without a subreaper.
    mark: Option<Vec<u8>>,
    /// Those without the mark, so that no environment is read twice.
    unmarked: HashSet<ProcessId>,
    /// Needed for orphans.
    pub(super) known_members: HashSet<ProcessId>,
    /// [`ProcessId::start`] of every member so far, where the system names a process's origin.
    origins: HashSet<u64>,
}

impl ProcessTree {
    pub(super) fn new(main: Pid, start: Option<u64>, mark: Option<Vec<u8>>) -> Self {
        ProcessTree {
            main,
            reaped: false,
            start,
            mark,
            unmarked: HashSet::new(),
            known_members: HashSet::new(),
            origins: start.into_iter().collect(),
        }
    }

    /// Whether the mark is in its environment. `unmarked` are those known from the last scan.
    fn has_marked(
        &mut self,
        source: &mut impl ProcessSource,
        process: &Process,
        unmarked: &HashSet<ProcessId>,
    ) -> bool {
        // Where a process has an origin, its start is a serial number.
        let is_older = process.origin.is_some() && Some(process.identity.start) < self.start;
        let Some(mark) = self.mark.as_ref().filter(|_| !is_older) else { return false };
        if !unmarked.contains(&process.identity) {
            let environment = source.environment(process.identity.pid).unwrap_or_default();
            let is_marked = has_variable(&environment, mark);
            // A program that hides its environment may execute one that does not.
            if is_marked || environment.is_empty() {
                return is_marked;
            }
        }
        self.unmarked.insert(process.identity);
        false
    }
}

#[derive(Debug)]
pub(super) struct TreeScan {
    pub(super) members: Vec<Member>,
    /// We have children outside this tree, or cannot know.
    pub(super) has_other_children: bool,
}

/// The living members of the tree at `index`. `released` are those left running on purpose or not
/// killable.
pub(super) fn scan(
    source: &mut impl ProcessSource,
    families: &mut [&mut ProcessTree],
    index: usize,
    released: &mut HashSet<ProcessId>,
    reaper: bool,
) -> TreeScan {
    if let Some(table) = source.table() {
        return find_members(source, &table, families, index, released, reaper);
    }
    let identity = ProcessId { pid: families[index].main, start: 0 };
    let alive = is_group_alive(identity.pid) && !released.contains(&identity);
    let member = Member { identity, kind: MemberKind::Group };
    TreeScan { members: alive.then_some(member).into_iter().collect(), has_other_children: true }
}

impl Member {
    pub(super) fn of(process: &Process, pinned_group: Option<Pid>) -> Member {
        let kind = MemberKind::Process { stopped: process.stopped, pinned_group };
        Member { identity: process.identity, kind }
    }

    fn target(&self) -> SignalTarget {
        match self.kind {
            MemberKind::Group => SignalTarget::Group(self.identity.pid),
            MemberKind::Process { .. } => SignalTarget::Process(self.identity),
        }
    }

    /// A stopped process also gets CONT, or it could not react.
    pub(super) fn terminate(&self, source: &mut impl ProcessSource) {
        source.signal(self.target(), Signal::TERM);
        if let MemberKind::Group | MemberKind::Process { stopped: true, .. } = self.kind {
            source.signal(self.target(), Signal::CONT);
        }
    }

    pub(super) fn leftover(&self, source: &mut impl ProcessSource) -> Leftover {
        let pid = self.identity.pid;
        let command = match self.kind {
            MemberKind::Group => format!("process group {}", pid.as_raw_pid()),
            MemberKind::Process { .. } => source.command_line(pid),
        };
        Leftover { pid: pid.as_raw_pid().unsigned_abs(), command, survived: false }
    }
}

pub(super) fn kill(source: &mut impl ProcessSource, members: &[Member]) {
    // The kernel kills a group atomically. Processes that fork and exit quickly would always be one
    // ahead.
    let mut groups = HashSet::new();
    for member in members {
        let group = match member.kind {
            MemberKind::Group => Some(member.identity.pid),
            MemberKind::Process { pinned_group, .. } => pinned_group,
        };
        if let Some(group) = group
            && groups.insert(group)
        {
            source.signal(SignalTarget::Group(group), Signal::KILL);
        }
    }
    for member in members {
        if let target @ SignalTarget::Process(_) = member.target() {
            source.signal(target, Signal::KILL);
        }
    }
}

fn find_members(
    source: &mut impl ProcessSource,
    table: &ProcessTable,
    families: &mut [&mut ProcessTree],
    index: usize,
    released: &mut HashSet<ProcessId>,
    reaper: bool,
) -> TreeScan {
    let owners = find_owners(source, table, families, released, reaper);
    let mut members = Vec::new();
    let mut others = false;
    released.clear();
    for family in families.iter_mut() {
        family.known_members.clear();
    }
    for process in &table.alive {
        let identity = process.identity;
        let owner = owners.get(&process.pid());
        match owner {
            None => {}
            Some(ProcessOwner::None) => {
                released.insert(identity);
            }
            Some(&ProcessOwner::Family(owner)) => {
                families[owner].known_members.insert(identity);
                if process.origin.is_some() {
                    families[owner].origins.insert(identity.start);
                }
            }
        }
        // Our child keeps its pid and group until reaped.
        let pinned = process.parent == table.me.pid();
        if owner == Some(&ProcessOwner::Family(index)) {
            let group = pinned.then(|| Pid::from_raw(process.group)).flatten();
            members.push(Member::of(process, group));
        } else {
            others |= pinned;
        }
    }
    TreeScan { members, has_other_children: others }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessOwner {
    Family(usize),
    /// Released.
    None,
}

#[derive(Debug, Default)]
struct Owners {
    by_pid: HashMap<i32, ProcessOwner>,
    by_session: HashMap<i32, ProcessOwner>,
    by_origin: HashMap<u64, ProcessOwner>,
}

impl Owners {
    fn insert(&mut self, process: &Process, owner: ProcessOwner) {
        self.by_pid.insert(process.pid(), owner);
        self.by_session.entry(process.session).or_insert(owner);
        self.by_origin.entry(process.identity.start).or_insert(owner);
    }

    /// Extends ownership to children and sessions.
    fn propagate(&mut self, candidates: &[&Process]) {
        let mut changed = true;
        while changed {
            changed = false;
            for process in candidates {
                if self.by_pid.contains_key(&process.pid()) {
                    continue;
                }
                let owner = self
                    .by_session
                    .get(&process.session)
                    .or_else(|| self.by_pid.get(&process.parent))
                    .or_else(|| self.by_origin.get(&process.origin?))
                    .copied();
                if let Some(owner) = owner {
                    self.insert(process, owner);
                    changed = true;
                }
            }
        }
    }
}

fn find_owners(
    source: &mut impl ProcessSource,
    table: &ProcessTable,
    families: &mut [&mut ProcessTree],
    released: &HashSet<ProcessId>,
    reaper: bool,
) -> HashMap<i32, ProcessOwner> {
    let parents = table.parents();
    let candidates: Vec<&Process> = table
        .alive
        .iter()
        .filter(|process| !is_protected(table, process))
        .filter(|process| !reaper || !is_unrelated(table, process, &parents))
        .collect();
    let mut owners = Owners::default();
    for (index, family) in families.iter().enumerate() {
        let origins = family.origins.iter().map(|&start| (start, ProcessOwner::Family(index)));
        owners.by_origin.extend(origins);
    }
    for process in &candidates {
        if released.contains(&process.identity) {
            owners.insert(process, ProcessOwner::None);
        } else if let Some(index) =
            families.iter().position(|family| is_known(table, family, process, reaper))
        {
            owners.insert(process, ProcessOwner::Family(index));
        }
    }
    owners.propagate(&candidates);
    if let [family] = families {
        let above_us: HashSet<i32> = ancestry(table.me.pid(), &parents).collect();
        let unmarked = std::mem::take(&mut family.unmarked);
        for process in &candidates {
            if owners.by_pid.contains_key(&process.pid()) {
                continue;
            }
            let may_be_orphan = !reaper && !above_us.contains(&process.pid());
            if process.parent == table.me.pid()
                || (may_be_orphan && family.has_marked(source, process, &unmarked))
            {
                owners.insert(process, ProcessOwner::Family(0));
            }
        }
        owners.propagate(&candidates);
    }
    owners.by_pid
}

/// Whether it is the child itself, in its session, or a member seen before.
fn is_known(table: &ProcessTable, family: &ProcessTree, process: &Process, reaper: bool) -> bool {
    // A living process with the pid of a reaped child is a stranger, and so is its session.
    let is_reused = || {
        let same_pid = |other: &Process| other.identity.pid == family.main;
        !reaper && family.reaped && table.alive.iter().any(same_pid)
    };
    (!family.reaped && family.main == process.identity.pid)
        || family.known_members.contains(&process.identity)
        || (process.session == family.main.as_raw_pid() && !is_reused())
}

/// No child of ours can be in our session.
fn is_protected(table: &ProcessTable, process: &Process) -> bool {
    let pid = process.identity.pid;
    pid == table.me.identity.pid
        || pid.is_init()
        || process.pid() == table.me.parent
        || process.session == table.me.session
}

/// Whether it descends from init but not from us. With a subreaper no descendant of ours does:
/// its session number was reused. A broken chain proves nothing, because the table changes
/// while it is read.
fn is_unrelated(table: &ProcessTable, process: &Process, parents: &HashMap<i32, i32>) -> bool {
    ancestry(process.pid(), parents)
        .take_while(|&pid| pid != table.me.pid())
        .any(|pid| parents.get(&pid) == Some(&0))
}

#[cfg(test)]
mod tests;
