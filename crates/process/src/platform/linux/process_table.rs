//! The Linux process table, read from `/proc`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags, Signal};

use super::super::super::process_table::{Process, ProcessId};

pub(crate) fn read_process(pid: Pid) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    parse_stat(pid, &stat)
}

/// The program name may contain spaces, parentheses and invalid UTF-8.
fn parse_stat(pid: Pid, stat: &[u8]) -> Option<Process> {
    let name_end = memchr::memrchr(b')', stat)?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    let id = |index| i32::try_from(number(index)?).ok();
    let state = *fields.first()?;
    Some(Process {
        // Clock ticks since boot.
        identity: ProcessId { pid, start: fields.get(19)?.parse().ok()? },
        parent: id(1)?,
        origin: None,
        group: id(2)?,
        session: id(3)?,
        stopped: matches!(state, "T" | "t"),
        // Other threads may outlive the first one.
        dead: matches!(state, "Z" | "X" | "x") && number(17)? <= 1,
    })
}

/// Orphans below this process become its children. `false` if those could not be seen.
pub(crate) fn become_reaper() -> bool {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
        && read_process(rustix::process::getpid()).is_some()
}

pub(crate) fn all_pids() -> Option<Vec<Pid>> {
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    Some(
        entries
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect(),
    )
}

/// Our children: successors of processes that a scan missed are among them. Empty if the kernel
/// lacks the list.
pub(crate) fn recent_pids() -> Vec<Pid> {
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

/// No process names the one that forked it.
pub(crate) fn start_of_child(_pid: Pid) -> Option<u64> {
    None
}

pub(crate) fn is_own(pid: Pid) -> bool {
    std::fs::metadata(format!("/proc/{}", pid.as_raw_pid()))
        .is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw())
}

/// Variables with a NUL after each.
pub(crate) fn environment(pid: Pid) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).ok()
}

/// Words with a NUL after each, or the program's name.
pub(crate) fn command_line(pid: Pid) -> Vec<u8> {
    let read = |name| std::fs::read(format!("/proc/{}/{name}", pid.as_raw_pid()));
    let line = read("cmdline").unwrap_or_default();
    let is_empty = line.iter().all(|&byte| byte == 0 || byte == b' ');
    if is_empty { read("comm").unwrap_or_default() } else { line }
}

/// Signals this process, but never one that reused its pid.
pub(crate) fn send_signal(identity: ProcessId, signal: Signal) {
    let ProcessId { pid, .. } = identity;
    let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    // The pidfd is of the pid's current owner, which may be another process.
    if read_process(pid).is_none_or(|process| process.identity != identity) {
        return;
    }
    let _ = match handle {
        Ok(handle) => rustix::process::pidfd_send_signal(handle, signal),
        Err(rustix::io::Errno::SRCH) => return,
        // An old kernel, or a seccomp filter.
        Err(_) => rustix::process::kill_process(pid, signal),
    };
}

/// Becomes readable when a process ends.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    pidfds: Vec<OwnedFd>,
    is_complete: bool,
}

impl ProcessWatch {
    pub(crate) fn exits(pids: &[Pid]) -> ProcessWatch {
        let open = |pid: &Pid| rustix::process::pidfd_open(*pid, PidfdFlags::empty()).ok();
        let pidfds: Vec<OwnedFd> = pids.iter().filter_map(open).collect();
        ProcessWatch { is_complete: pidfds.len() == pids.len(), pidfds }
    }

    /// Forks are not reported.
    pub(crate) fn exits_and_forks(pids: &[Pid]) -> ProcessWatch {
        ProcessWatch::exits(pids)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pidfds.iter().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    #[test]
    fn process_name_cannot_forge_stat_fields() {
        let line = b"42 (evil) S 1 1 1 (\xff) T 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 555 0 0";
        let read = parse_stat(pid(42), line).unwrap();
        assert_eq!((read.parent, read.group, read.session), (7, 8, 9));
        assert!(read.stopped && !read.dead);
        assert_eq!(read.identity.start, 555);
        assert_eq!(parse_stat(pid(42), b"42 (short) S 1"), None);
        assert_eq!(parse_stat(pid(42), b""), None);
    }

    #[test]
    fn zombie_is_dead_unless_its_threads_run() {
        for (threads, dead) in [(1, true), (3, false)] {
            let line = format!("5 (x) Z 1 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 9 0");
            assert_eq!(parse_stat(pid(5), line.as_bytes()).unwrap().dead, dead);
        }
    }
}
