//! The process table of Linux, `/proc`: who belongs to a child, who carries a mark, and who is gone.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use ralph_events::control_chars::is_invisible;

use super::{Member, ProcessId, ProcessTree, SignalTarget, TreeScan};

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    identity: ProcessId,
    /// 0 for those that have none here.
    parent: i32,
    group: i32,
    session: i32,
    stopped: bool,
    dead: bool,
}

impl Process {
    pub(crate) fn read(pid: Pid) -> Option<Process> {
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Process::parse(pid, &stat)
    }

    /// The second field is the program's name in parentheses, which may itself hold spaces and
    /// parentheses, and bytes that are no text.
    fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
        let name_end = memchr::memrchr(b')', stat)?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
        let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
        let id = |index| i32::try_from(number(index)?).ok();
        let state = *fields.first()?;
        Some(Process {
            identity: ProcessId { pid, start: fields.get(19)?.parse().ok()? },
            parent: id(1)?,
            group: id(2)?,
            session: id(3)?,
            stopped: matches!(state, "T" | "t"),
            // A process whose first thread has left shows as a zombie while others run on.
            dead: matches!(state, "Z" | "X" | "x") && number(17)? <= 1,
        })
    }
}

/// The process table at one moment, or nearly so.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    me: Process,
    alive: Vec<Process>,
}

impl ProcessTable {
    pub(super) fn possible() -> bool {
        Process::read(rustix::process::getpid()).is_some()
    }

    pub(crate) fn take() -> Option<ProcessTable> {
        let me = Process::read(rustix::process::getpid())?;
        let mut alive = Vec::new();
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                && let Some(pid) = Pid::from_raw(pid)
                && let Some(process) = Process::read(pid)
                && !process.dead
            {
                alive.push(process);
            }
        }
        // Reading the whole table takes milliseconds. Who forks and leaves within one is not
        // found that way, but its successor is our child, and those are listed at once.
        for pid in child_pids() {
            if alive.iter().all(|process| process.identity.pid != pid)
                && let Some(process) = Process::read(pid)
                && !process.dead
            {
                alive.push(process);
            }
        }
        Some(ProcessTable { me, alive })
    }

    /// Never to be touched, whatever else speaks for it: ourselves, our parent, init, and
    /// everything in our own session, which no child of ours can be in.
    fn is_protected(&self, process: &Process) -> bool {
        let pid = process.identity.pid;
        pid == self.me.identity.pid
            || pid.is_init()
            || pid.as_raw_pid() == self.me.parent
            || process.session == self.me.session
    }

    /// The parent of each process.
    fn parents(&self) -> HashMap<i32, i32> {
        self.alive
            .iter()
            .map(|process| (process.identity.pid.as_raw_pid(), process.parent))
            .collect()
    }

    /// It descends from init without us in between. Where orphans become ours, no descendant
    /// of ours does, so whoever does so in a session with a number we know was given that
    /// number anew. A line that breaks off says nothing: the table changes while it is read.
    fn is_unrelated(&self, process: &Process, parents: &HashMap<i32, i32>) -> bool {
        ancestry(process.identity.pid.as_raw_pid(), parents)
            .take_while(|&pid| pid != self.me.identity.pid.as_raw_pid())
            .any(|pid| parents.get(&pid) == Some(&0))
    }

    pub(super) fn members(
        &self,
        families: &mut [&mut ProcessTree],
        index: usize,
        released: &mut HashSet<ProcessId>,
        reaper: bool,
    ) -> TreeScan {
        let owners = self.find_owners(families, released, reaper);
        let mut members = Vec::new();
        let mut others = false;
        released.clear();
        for family in families.iter_mut() {
            family.known_members.clear();
        }
        for process in &self.alive {
            let identity = process.identity;
            let owner = owners.get(&identity.pid.as_raw_pid());
            match owner {
                None => {}
                Some(ProcessOwner::None) => {
                    released.insert(identity);
                }
                Some(&ProcessOwner::Family(owner)) => {
                    families[owner].known_members.insert(identity);
                }
            }
            // A child of ours stays in the process table until we wait for it, and with it its
            // group. The group is in a session below us, hence all ours.
            let pinned = process.parent == self.me.identity.pid.as_raw_pid();
            if owner != Some(&ProcessOwner::Family(index)) {
                others |= pinned;
                continue;
            }
            members.push(Member {
                identity,
                signal_target: SignalTarget::Process {
                    stopped: process.stopped,
                    pinned_group: pinned.then(|| Pid::from_raw(process.group)).flatten(),
                },
            });
        }
        TreeScan { members, has_other_children: others }
    }

    /// The owner of every process that has one, by process number.
    fn find_owners(
        &self,
        families: &[&mut ProcessTree],
        released: &HashSet<ProcessId>,
        reaper: bool,
    ) -> HashMap<i32, ProcessOwner> {
        let mut owners = HashMap::new();
        let mut sessions = HashMap::new();
        let parents = self.parents();
        let candidates: Vec<&Process> = self
            .alive
            .iter()
            .filter(|process| !self.is_protected(process))
            .filter(|process| !reaper || !self.is_unrelated(process, &parents))
            .collect();
        for process in &candidates {
            let ProcessId { pid, .. } = process.identity;
            let owner = if released.contains(&process.identity) {
                Some(ProcessOwner::None)
            } else {
                families
                    .iter()
                    .position(|family| {
                        (!family.reaped && family.main == pid)
                            || process.session == family.main.as_raw_pid()
                            || family.known_members.contains(&process.identity)
                    })
                    .map(ProcessOwner::Family)
            };
            if let Some(owner) = owner {
                owners.insert(pid.as_raw_pid(), owner);
                sessions.entry(process.session).or_insert(owner);
            }
        }
        self.propagate_owner(&candidates, &mut owners, &mut sessions);
        if families.len() == 1 {
            for process in &candidates {
                let pid = process.identity.pid.as_raw_pid();
                if process.parent == self.me.identity.pid.as_raw_pid() && !owners.contains_key(&pid)
                {
                    owners.insert(pid, ProcessOwner::Family(0));
                    sessions.entry(process.session).or_insert(ProcessOwner::Family(0));
                }
            }
            self.propagate_owner(&candidates, &mut owners, &mut sessions);
        }
        owners
    }

    /// Children and sessions of what is owned are owned too.
    fn propagate_owner(
        &self,
        candidates: &[&Process],
        owners: &mut HashMap<i32, ProcessOwner>,
        sessions: &mut HashMap<i32, ProcessOwner>,
    ) {
        let mut changed = true;
        while changed {
            changed = false;
            for process in candidates {
                let pid = process.identity.pid.as_raw_pid();
                if owners.contains_key(&pid) {
                    continue;
                }
                let owner =
                    sessions.get(&process.session).or_else(|| owners.get(&process.parent)).copied();
                if let Some(owner) = owner {
                    owners.insert(pid, owner);
                    sessions.entry(process.session).or_insert(owner);
                    changed = true;
                }
            }
        }
    }
}

/// Our children; none where the kernel was built without that list.
fn child_pids() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect::<Vec<Pid>>()
        })
        .collect()
}

/// A process and those above it, as far as they are known.
fn ancestry(pid: i32, parents: &HashMap<i32, i32>) -> impl Iterator<Item = i32> {
    std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
        .take_while(|pid| parents.contains_key(pid))
        // The table is not read in one moment, so that a circle is conceivable.
        .take(parents.len())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessOwner {
    Family(usize),
    /// Left alone on purpose.
    None,
}

/// Signals this very process and none that took over its number.
pub(super) fn signal(identity: ProcessId, signal: Signal) {
    let ProcessId { pid, .. } = identity;
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    // The handle is for whoever has the number now; if it is still the one that was seen, it
    // stays the one.
    if Process::read(pid).is_none_or(|process| process.identity != identity) {
        return;
    }
    // It may have left meanwhile, or not be ours to signal; the next look tells.
    let _ = match handle {
        Ok(handle) => rustix::process::pidfd_send_signal(handle, signal),
        Err(rustix::io::Errno::SRCH) => return,
        // An old kernel, or a filter that does not know the call.
        Err(_) => rustix::process::kill_process(pid, signal),
    };
}

/// The longest command line that is worth showing.
const MAX_COMMAND_CHARS: usize = 200;

pub(super) fn command_line(pid: Pid) -> String {
    let read = |name| std::fs::read(format!("/proc/{}/{name}", pid.as_raw_pid()));
    let mut bytes = read("cmdline").unwrap_or_default();
    while bytes.last().is_some_and(|&byte| byte == 0 || byte == b' ') {
        bytes.pop();
    }
    if bytes.is_empty() {
        bytes = read("comm").unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes)
        .trim()
        .chars()
        .take(MAX_COMMAND_CHARS)
        .map(|c| if is_invisible(c) { ' ' } else { c })
        .collect()
}

/// Every process of this user with `name=value` in its environment and their descendants, apart
/// from this process and those above it.
pub(crate) fn find_by_env(name: &str, value: &str) -> Vec<Member> {
    let Some(snapshot) = ProcessTable::take() else {
        return Vec::new();
    };
    let mark = format!("{name}={value}");
    let user = rustix::process::geteuid().as_raw();
    let parents = snapshot.parents();
    let above_us: Vec<i32> = ancestry(snapshot.me.identity.pid.as_raw_pid(), &parents).collect();
    let own: Vec<&Process> = snapshot
        .alive
        .iter()
        .filter(|process| {
            let pid = process.identity.pid.as_raw_pid();
            !process.identity.pid.is_init()
                && !above_us.contains(&pid)
                && std::fs::metadata(format!("/proc/{pid}"))
                    .is_ok_and(|metadata| metadata.uid() == user)
        })
        .collect();
    let carriers: HashSet<i32> = own
        .iter()
        .map(|process| process.identity.pid.as_raw_pid())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
            })
        })
        .collect();
    own.iter()
        .filter(|process| {
            ancestry(process.identity.pid.as_raw_pid(), &parents)
                .take_while(|pid| !above_us.contains(pid))
                .any(|pid| carriers.contains(&pid))
        })
        .map(|process| Member {
            identity: process.identity,
            signal_target: SignalTarget::Process { stopped: process.stopped, pinned_group: None },
        })
        .collect()
}

/// Waits until none of these is alive or the time is over. Says whether all are gone.
pub(crate) fn wait_until_gone(members: &[Member], deadline_ms: u64) -> bool {
    use super::super::clock;
    loop {
        let alive: Vec<&Member> = members
            .iter()
            .filter(|member| {
                Process::read(member.identity.pid)
                    .is_some_and(|now| now.identity == member.identity && !now.dead)
            })
            .collect();
        let left = deadline_ms.saturating_sub(clock::now_ms());
        if alive.is_empty() || left == 0 {
            return alive.is_empty();
        }
        let handles: Vec<_> = alive
            .iter()
            .filter_map(|member| {
                rustix::process::pidfd_open(member.identity.pid, PidfdFlags::empty()).ok()
            })
            .collect();
        let mut polled: Vec<_> =
            handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
        // Without handles for all of them there is nothing to wait on but the time.
        let timeout = if polled.len() == alive.len() { left } else { left.min(20) };
        let _ = rustix::event::poll(&mut polled, Some(&clock::timespec(timeout * 1_000_000)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn process(number: i32, parent: i32, session: i32) -> Process {
        Process {
            identity: ProcessId { pid: pid(number), start: u64::from(number.unsigned_abs()) },
            parent,
            group: session,
            session,
            stopped: false,
            dead: false,
        }
    }

    #[test]
    fn process_name_cannot_forge_stat_fields() {
        let line = b"42 (evil) S 1 1 1 (\xff) T 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 555 0 0";
        let read = Process::parse(pid(42), line).unwrap();
        assert_eq!((read.parent, read.group, read.session), (7, 8, 9));
        assert!(read.stopped && !read.dead);
        assert_eq!(read.identity.start, 555);
        assert_eq!(Process::parse(pid(42), b"42 (short) S 1"), None);
        assert_eq!(Process::parse(pid(42), b""), None);
    }

    #[test]
    fn zombie_is_dead_unless_its_threads_run() {
        for (threads, dead) in [(1, true), (3, false)] {
            let line = format!("5 (x) Z 1 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 9 0");
            assert_eq!(Process::parse(pid(5), line.as_bytes()).unwrap().dead, dead);
        }
    }

    /// We are 100 in session 50 below 60. Returns the numbers of the family's members.
    fn members(
        alive: &[Process],
        families: &mut [ProcessTree],
        index: usize,
        released: &[i32],
        reaper: bool,
    ) -> Vec<i32> {
        let snapshot = ProcessTable {
            me: process(100, 60, 50),
            alive: [process(1, 0, 1), process(60, 1, 60), process(100, 60, 50)]
                .into_iter()
                .chain(alive.iter().copied())
                .collect(),
        };
        let mut released = alive
            .iter()
            .map(|process| process.identity)
            .filter(|identity| released.contains(&identity.pid.as_raw_pid()))
            .collect();
        let mut families: Vec<&mut ProcessTree> = families.iter_mut().collect();
        let mut found: Vec<i32> = snapshot
            .members(&mut families, index, &mut released, reaper)
            .members
            .iter()
            .map(|member| member.identity.pid.as_raw_pid())
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn single_child_owns_all_descendants_and_orphans() {
        let alive = [
            process(200, 100, 200),
            process(201, 200, 201), // its tool, in a session of its own
            process(202, 201, 201),
            process(203, 100, 203), // an orphan in a session of its own
            process(204, 203, 203),
            process(205, 1, 200), // lost before we were told, but in its session
            process(300, 60, 60), // our parent's other child
            process(301, 1, 301), // a stranger
            process(302, 100, 50), // started by us in our own session
        ];
        let found = |reaper| members(&alive, &mut [ProcessTree::new(pid(200))], 0, &[], reaper);
        assert_eq!(found(false), [200, 201, 202, 203, 204, 205]);
        // Where orphans become ours, one that is init's only looks like ours.
        assert_eq!(found(true), [200, 201, 202, 203, 204]);
    }

    #[test]
    fn reused_pid_of_reaped_child_is_not_owned() {
        let mut family = ProcessTree::new(pid(200));
        family.reaped = true;
        // The number 200 was given to a program of someone else, or even to a session.
        for session in [400, 200] {
            let alive = [process(200, 1, session)];
            let found = members(&alive, std::slice::from_mut(&mut family), 0, &[], true);
            assert_eq!(found, Vec::<i32>::new());
        }
    }

    #[test]
    fn each_of_two_children_owns_only_its_descendants() {
        let alive = [
            process(200, 100, 200),
            process(201, 200, 201),
            process(210, 100, 210),
            process(211, 100, 210),
            process(220, 100, 220), // an orphan of one of the two
        ];
        let mut families = [ProcessTree::new(pid(200)), ProcessTree::new(pid(210))];
        assert_eq!(members(&alive, &mut families, 0, &[], true), [200, 201]);
        assert_eq!(members(&alive, &mut families, 1, &[], true), [210, 211]);
        // What was seen to be a child's stays its own when its parent is gone.
        let orphaned = [process(201, 100, 201), process(210, 100, 210)];
        families[0].reaped = true;
        assert_eq!(members(&orphaned, &mut families, 0, &[], true), [201]);
        assert_eq!(
            members(&alive, &mut [ProcessTree::new(pid(200))], 0, &[], true),
            [200, 201, 210, 211, 220]
        );
    }

    #[test]
    fn released_process_and_its_children_stay_released() {
        let alive = [
            process(150, 100, 150), // left alone
            process(151, 150, 151),
            process(152, 100, 150),
            process(200, 100, 200),
        ];
        let found = members(&alive, &mut [ProcessTree::new(pid(200))], 0, &[150], true);
        assert_eq!(found, [200]);
    }
}
