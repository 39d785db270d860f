//! The Linux process table, read from `/proc`.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use ralph_events::control_chars::is_invisible;

use super::{Member, ProcessId, ProcessTree, SignalTarget, TreeScan};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    identity: ProcessId,
    parent: i32,
    group: i32,
    session: i32,
    stopped: bool,
    dead: bool,
}

impl Process {
    fn pid(&self) -> i32 {
        self.identity.pid.as_raw_pid()
    }

    pub(crate) fn read(pid: Pid) -> Option<Process> {
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Process::parse(pid, &stat)
    }

    /// The program name may contain spaces, parentheses and invalid UTF-8.
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
            // Other threads may outlive the first one.
            dead: matches!(state, "Z" | "X" | "x") && number(17)? <= 1,
        })
    }
}

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
        // A scan takes milliseconds and misses processes that fork and exit within one. Their
        // successors are our children.
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

    /// No child of ours can be in our session.
    fn is_protected(&self, process: &Process) -> bool {
        let pid = process.identity.pid;
        pid == self.me.identity.pid
            || pid.is_init()
            || pid.as_raw_pid() == self.me.parent
            || process.session == self.me.session
    }

    fn parents(&self) -> HashMap<i32, i32> {
        self.alive.iter().map(|process| (process.pid(), process.parent)).collect()
    }

    /// Whether it descends from init but not from us. With a subreaper no descendant of ours does:
    /// its session number was reused. A broken chain proves nothing, because the table changes
    /// while it is read.
    fn is_unrelated(&self, process: &Process, parents: &HashMap<i32, i32>) -> bool {
        ancestry(process.pid(), parents)
            .take_while(|&pid| pid != self.me.pid())
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
            let owner = owners.get(&process.pid());
            match owner {
                None => {}
                Some(ProcessOwner::None) => {
                    released.insert(identity);
                }
                Some(&ProcessOwner::Family(owner)) => {
                    families[owner].known_members.insert(identity);
                }
            }
            // Our child keeps its pid and group until reaped.
            let pinned = process.parent == self.me.pid();
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
                let pid = process.pid();
                if process.parent == self.me.pid() && !owners.contains_key(&pid) {
                    owners.insert(pid, ProcessOwner::Family(0));
                    sessions.entry(process.session).or_insert(ProcessOwner::Family(0));
                }
            }
            self.propagate_owner(&candidates, &mut owners, &mut sessions);
        }
        owners
    }

    /// Extends ownership to children and sessions.
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
                let pid = process.pid();
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

/// Empty if the kernel lacks the list.
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

fn ancestry(pid: i32, parents: &HashMap<i32, i32>) -> impl Iterator<Item = i32> {
    std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
        .take_while(|pid| parents.contains_key(pid))
        // Inconsistent reads could form a cycle.
        .take(parents.len())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessOwner {
    Family(usize),
    /// Released.
    None,
}

/// Signals this process, but never one that reused its pid.
pub(super) fn signal(identity: ProcessId, signal: Signal) {
    let ProcessId { pid, .. } = identity;
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    // The pidfd is of the pid's current owner, which may be another process.
    if Process::read(pid).is_none_or(|process| process.identity != identity) {
        return;
    }
    // Errors (gone, not ours) show in the next scan.
    let _ = match handle {
        Ok(handle) => rustix::process::pidfd_send_signal(handle, signal),
        Err(rustix::io::Errno::SRCH) => return,
        // An old kernel, or a seccomp filter.
        Err(_) => rustix::process::kill_process(pid, signal),
    };
}

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

pub(crate) fn find_by_env(name: &str, value: &str) -> Vec<Member> {
    let Some(snapshot) = ProcessTable::take() else {
        return Vec::new();
    };
    let mark = format!("{name}={value}");
    let user = rustix::process::geteuid().as_raw();
    let parents = snapshot.parents();
    let above_us: Vec<i32> = ancestry(snapshot.me.pid(), &parents).collect();
    let own: Vec<&Process> = snapshot
        .alive
        .iter()
        .filter(|process| {
            let pid = process.pid();
            !process.identity.pid.is_init()
                && !above_us.contains(&pid)
                && std::fs::metadata(format!("/proc/{pid}"))
                    .is_ok_and(|metadata| metadata.uid() == user)
        })
        .collect();
    let carriers: HashSet<i32> = own
        .iter()
        .map(|process| process.pid())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
            })
        })
        .collect();
    own.iter()
        .filter(|process| {
            ancestry(process.pid(), &parents)
                .take_while(|pid| !above_us.contains(pid))
                .any(|pid| carriers.contains(&pid))
        })
        .map(|process| Member {
            identity: process.identity,
            signal_target: SignalTarget::Process { stopped: process.stopped, pinned_group: None },
        })
        .collect()
}

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
        let remaining = deadline_ms.saturating_sub(clock::now_ms());
        if alive.is_empty() || remaining == 0 {
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
        let timeout = if polled.len() == alive.len() { remaining } else { remaining.min(20) };
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

    /// ralph is 100 in session 50, child of 60. Returns the pids of the family.
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
        // With a subreaper, a child of init is not ours.
        assert_eq!(found(true), [200, 201, 202, 203, 204]);
    }

    #[test]
    fn reused_pid_of_reaped_child_is_not_owned() {
        let mut family = ProcessTree::new(pid(200));
        family.reaped = true;
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
        // Members stay members when their parent is gone.
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
