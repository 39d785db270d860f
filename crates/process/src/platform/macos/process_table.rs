//! The macOS process table, from libproc and sysctl.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::event::kqueue::ProcessEvents;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::super::super::process_table::{Process, ProcessId};
use super::super::kern_procargs;
use super::event_queue::EventQueue;

/// From XNU's `proc_info_private.h`. Other programs rely on it, too; without it, start times do.
const PROC_PIDUNIQIDENTIFIERINFO: c_int = 17;

#[repr(C)]
struct UniqueIds {
    executable: [u8; 16],
    /// Never reused until the next boot.
    id: u64,
    /// Of the process that forked it, which stays if that one ends.
    parent_id: u64,
    versions: [i32; 2],
    reserved: [u64; 2],
}

/// `with_zombies` also finds a process that was not waited for.
fn pid_info<T>(pid: Pid, flavor: c_int, with_zombies: bool) -> Option<T> {
    let size = c_int::try_from(size_of::<T>()).ok()?;
    let mut info = MaybeUninit::<T>::zeroed();
    #[expect(unsafe_code, reason = "there is no safe interface to libproc")]
    // SAFETY: the buffer has the given size. Every `T` here is plain numbers, for which all bytes
    // are valid.
    unsafe {
        let buffer = info.as_mut_ptr().cast::<c_void>();
        let written =
            libc::proc_pidinfo(pid.as_raw_pid(), flavor, u64::from(with_zombies), buffer, size);
        (written == size).then(|| info.assume_init())
    }
}

/// The numbers that identify a process and the one that forked it.
fn origin(pid: Pid) -> Option<(u64, Option<u64>)> {
    if let Some(ids) = pid_info::<UniqueIds>(pid, PROC_PIDUNIQIDENTIFIERINFO, true) {
        return Some((ids.id, Some(ids.parent_id)));
    }
    let info: libc::proc_bsdinfo = pid_info(pid, libc::PROC_PIDTBSDINFO, true)?;
    Some((info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec, None))
}

/// Zombies have no such information.
pub(crate) fn read_process(pid: Pid) -> Option<Process> {
    let info: libc::proc_bsdshortinfo = pid_info(pid, libc::PROC_PIDT_SHORTBSDINFO, false)?;
    let (start, origin) = origin(pid)?;
    let number = |id: u32| i32::try_from(id).ok();
    Some(Process {
        identity: ProcessId { pid, start },
        parent: number(info.pbsi_ppid)?,
        origin,
        group: number(info.pbsi_pgid)?,
        // An unknown session is a session of its own.
        session: rustix::process::getsid(Some(pid)).map_or(-pid.as_raw_pid(), Pid::as_raw_pid),
        stopped: info.pbsi_status == libc::SSTOP,
        dead: info.pbsi_status == libc::SZOMB,
    })
}

/// There is no subreaper.
pub(crate) fn become_reaper() -> bool {
    false
}

pub(crate) fn all_pids() -> Option<Vec<Pid>> {
    let mut pids: Vec<libc::pid_t> = vec![0; 1024];
    loop {
        let size = c_int::try_from(size_of_val(pids.as_slice())).ok()?;
        #[expect(unsafe_code, reason = "there is no safe interface to libproc")]
        // SAFETY: the buffer has the given size.
        let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), size) };
        let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
        if count < pids.len() {
            return Some(pids[..count].iter().filter_map(|&pid| Pid::from_raw(pid)).collect());
        }
        pids.resize(2 * pids.len(), 0);
    }
}

/// Those that were forked during a scan.
pub(crate) fn recent_pids() -> Vec<Pid> {
    all_pids().unwrap_or_default()
}

pub(crate) fn start_of_child(pid: Pid) -> Option<u64> {
    origin(pid).map(|(start, _)| start)
}

pub(crate) fn is_own(pid: Pid) -> bool {
    pid_info::<libc::proc_bsdshortinfo>(pid, libc::PROC_PIDT_SHORTBSDINFO, false)
        .is_some_and(|info| info.pbsi_uid == rustix::process::geteuid().as_raw())
}

/// Variables with a NUL after each, as the program was started with. Apple's own programs show
/// none.
pub(crate) fn environment(pid: Pid) -> Option<Vec<u8>> {
    let answer = proc_args(pid)?;
    kern_procargs::parse(&answer).map(|(_, variables)| variables.to_vec())
}

/// Words with a NUL after each, or the program's name.
pub(crate) fn command_line(pid: Pid) -> Vec<u8> {
    let answer = proc_args(pid).unwrap_or_default();
    if let Some((args, _)) = kern_procargs::parse(&answer) {
        return args.to_vec();
    }
    let info: Option<libc::proc_bsdshortinfo> = pid_info(pid, libc::PROC_PIDT_SHORTBSDINFO, false);
    let name = info.map(|info| info.pbsi_comm).unwrap_or_default();
    name.iter().take_while(|&&byte| byte != 0).map(|byte| byte.cast_unsigned()).collect()
}

/// `None` for another user's process.
fn proc_args(pid: Pid) -> Option<Vec<u8>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid.as_raw_pid()];
    let mut ask = |buffer: *mut c_void, size: &mut usize| {
        #[expect(unsafe_code, reason = "there is no safe interface to sysctl")]
        // SAFETY: the name has three parts, and the buffer, if there is one, the given size.
        let result =
            unsafe { libc::sysctl(name.as_mut_ptr(), 3, buffer, size, std::ptr::null_mut(), 0) };
        (result == 0).then_some(())
    };
    let mut size = 0;
    ask(std::ptr::null_mut(), &mut size)?;
    // Leaves out the count at the beginning.
    size += size_of::<c_int>();
    let mut answer = vec![0; size];
    ask(answer.as_mut_ptr().cast(), &mut size)?;
    answer.truncate(size);
    Some(answer)
}

/// Signals this process, but not one that reused its pid.
pub(crate) fn send_signal(identity: ProcessId, signal: Signal) {
    let ProcessId { pid, .. } = identity;
    if read_process(pid).is_some_and(|process| process.identity == identity) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Becomes readable when a process ends.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    events: Option<EventQueue>,
    is_complete: bool,
}

impl ProcessWatch {
    pub(crate) fn exits(pids: &[Pid]) -> ProcessWatch {
        ProcessWatch::new(pids, ProcessEvents::EXIT)
    }

    /// A process that has ended already wakes at once: it may have forked before.
    pub(crate) fn exits_and_forks(pids: &[Pid]) -> ProcessWatch {
        ProcessWatch::new(pids, ProcessEvents::EXIT | ProcessEvents::FORK)
    }

    fn new(pids: &[Pid], flags: ProcessEvents) -> ProcessWatch {
        let Ok(events) = EventQueue::new() else {
            return ProcessWatch { events: None, is_complete: false };
        };
        let watch = |pid: &Pid| match events.watch_process(*pid, flags) {
            Err(Errno::SRCH) if flags.contains(ProcessEvents::FORK) => {
                events.wake();
                true
            }
            result => result.is_ok(),
        };
        // All of them, even if one cannot be watched.
        let watched = pids.iter().filter(|pid| watch(pid)).count();
        ProcessWatch { is_complete: watched == pids.len(), events: Some(events) }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().map(EventQueue::fd)
    }
}
