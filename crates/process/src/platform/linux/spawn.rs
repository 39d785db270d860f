//! Starts a process on Linux: `clone` with `CLONE_VFORK`, like the C library's `posix_spawn`.
//!
//! `std::process::Command` would fork, because session and parent-death signal need `pre_exec`.
//! That raises the CPU time of an iteration from 1.3 to 1.8 times that of a bare spawn and wait;
//! `cargo bench --bench ralph` allows 1.6 times in elapsed time.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, WaitOptions};

use super::super::super::Launch;
use super::super::super::signals::RUN_SIGNALS;
use super::super::super::spawn::{directory_error, environment, locate, program_error};

/// Linux allows a user 64 MiB of pipe buffers, enough for 200 agents; beyond that, new pipes get
/// two pages.
const PIPE_BYTES: usize = 256 * 1024;

/// A smaller pipe only costs speed.
pub(crate) fn enlarge_pipe(pipe: BorrowedFd<'_>) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

/// Sealed, to keep the agent's children from changing its prompt.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<std::fs::File> {
    use rustix::fs::{MemfdFlags, SealFlags};
    use std::os::unix::fs::FileExt as _;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all_at(bytes, 0)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let _ = rustix::fs::fcntl_add_seals(&file, seals);
    Ok(file)
}

/// Used until `execve`, for system calls only. Freeing 64 KiB would make the allocator trim the
/// heap at each start.
const STACK_BYTES: usize = 32 * 1024;

pub(crate) fn start(launch: &Launch<'_>, stdio: [BorrowedFd<'_>; 3]) -> io::Result<Pid> {
    let env = environment(launch);
    // Searched here, because the child must not allocate.
    let program = c_string(locate(launch, &env)?.as_os_str())?;
    let mut args = vec![c_string(launch.program)?];
    for arg in launch.args {
        args.push(c_string(arg)?);
    }
    let env: Vec<CString> = env
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat())
        .map(CString::from_vec_with_nul)
        .collect::<Result<_, _>>()
        .map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))?;
    let directory = c_string(launch.directory.as_os_str())?;
    let (stdio, _copies) = move_above_stdio(stdio)?;

    let exec = |program: &CString, args: &[CString]| {
        vfork_exec(launch, program, args, &env, &directory, stdio)
    };
    let result = match exec(&program, &args) {
        // A script without `#!`; `execvp` does the same.
        Err((SpawnStep::Exec, err)) if err.raw_os_error() == Some(libc::ENOEXEC) => {
            let shell = c"/bin/sh".to_owned();
            args[0] = program;
            args.insert(0, shell.clone());
            exec(&shell, &args)
        }
        result => result,
    };
    result.map_err(|(step, err)| match step {
        SpawnStep::Directory => directory_error(launch.directory, &err),
        SpawnStep::Exec | SpawnStep::Setup => program_error(launch.program, &err),
    })
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// Moves descriptors out of the way of `dup2` in the child. Rarely needed: Rust's startup fills
/// 0 to 2.
fn move_above_stdio(stdio: [BorrowedFd<'_>; 3]) -> io::Result<([c_int; 3], Vec<OwnedFd>)> {
    let (mut numbers, mut copies) = (stdio.map(|fd| fd.as_raw_fd()), Vec::new());
    for (number, fd) in numbers.iter_mut().zip(stdio) {
        if *number <= 2 {
            let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
            *number = copy.as_raw_fd();
            copies.push(copy);
        }
    }
    Ok((numbers, copies))
}

#[derive(Clone, Copy)]
enum SpawnStep {
    Setup = 1,
    Directory,
    Exec,
}

/// On the stack of the suspended parent.
struct ExecPlan {
    program: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    directory: *const c_char,
    stdio: [c_int; 3],
    parent: libc::pid_t,
    death_signal: c_int,
    inherit: *const c_int,
    inherit_count: usize,
    ignore_term: bool,
    /// Make standard input the controlling terminal.
    terminal: bool,
    failed_step: AtomicI32,
    failed_errno: AtomicI32,
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let mut list: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    list.push(ptr::null());
    list
}

#[expect(
    unsafe_code,
    reason = "there is no safe interface to a process that sets its session and its \
              parent-death signal without a fork; the module's comment has the figures"
)]
fn vfork_exec(
    launch: &Launch<'_>,
    program: &CString,
    args: &[CString],
    env: &[CString],
    directory: &CString,
    stdio: [c_int; 3],
) -> Result<Pid, (SpawnStep, io::Error)> {
    let args = pointers(args);
    let env = pointers(env);
    let inherit: Vec<c_int> = launch.inherit.iter().map(AsRawFd::as_raw_fd).collect();
    let plan = ExecPlan {
        program: program.as_ptr(),
        args: args.as_ptr(),
        env: env.as_ptr(),
        directory: directory.as_ptr(),
        stdio,
        parent: rustix::process::getpid().as_raw_pid(),
        death_signal: if launch.term_on_parent_death { libc::SIGTERM } else { libc::SIGKILL },
        inherit: inherit.as_ptr(),
        inherit_count: inherit.len(),
        ignore_term: launch.ignore_term,
        terminal: launch.takes_terminal(),
        failed_step: AtomicI32::new(0),
        failed_errno: AtomicI32::new(0),
    };
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_BYTES / 16);
    // SAFETY: CLONE_VFORK suspends this thread until the child has called `execve` or exited:
    // `plan`, everything it points to and `stack` stay valid. The child has its own stack, with
    // an aligned top. Signals are blocked, because our handlers must not run in the child,
    // which shares our memory. `child` makes only async-signal-safe calls and never returns.
    let pid = unsafe {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let pid = libc::clone(
            child,
            stack.as_mut_ptr().add(STACK_BYTES / 16).cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const plan).cast_mut().cast(),
        );
        let failure = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        match Pid::from_raw(pid) {
            Some(pid) if pid.as_raw_pid() > 0 => pid,
            _ => return Err((SpawnStep::Setup, failure)),
        }
    };
    let step = match plan.failed_step.load(Ordering::Acquire) {
        0 => return Ok(pid),
        step if step == SpawnStep::Directory as i32 => SpawnStep::Directory,
        step if step == SpawnStep::Exec as i32 => SpawnStep::Exec,
        _ => SpawnStep::Setup,
    };
    let failure = io::Error::from_raw_os_error(plan.failed_errno.load(Ordering::Acquire));
    // It has exited; this only reaps it.
    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
    Err((step, failure))
}

#[expect(unsafe_code, reason = "the child's side of `vfork_exec`")]
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the `ExecPlan` outlives its use. All calls are async-signal-safe and do not
    // allocate.
    unsafe {
        let plan = &*plan.cast_const().cast::<ExecPlan>();
        let (step, result) = prepare(plan);
        if result >= 0 {
            libc::execve(plan.program, plan.args, plan.env);
        }
        plan.failed_errno.store(*libc::__errno_location(), Ordering::Release);
        plan.failed_step.store(step as i32, Ordering::Release);
        libc::_exit(127)
    }
}

#[expect(unsafe_code, reason = "the child's side of `vfork_exec`")]
unsafe fn prepare(plan: &ExecPlan) -> (SpawnStep, c_int) {
    // SAFETY: as in `child`.
    unsafe {
        if libc::setsid() < 0 {
            return (SpawnStep::Setup, -1);
        }
        reset_signals();
        if plan.ignore_term {
            libc::signal(libc::SIGTERM, libc::SIG_IGN);
        }
        for nth in 0..plan.inherit_count {
            if libc::fcntl(*plan.inherit.add(nth), libc::F_SETFD, 0) < 0 {
                return (SpawnStep::Setup, -1);
            }
        }
        // If ralph died before this call, no signal comes, but the parent has changed.
        libc::prctl(libc::PR_SET_PDEATHSIG, plan.death_signal as libc::c_ulong);
        if libc::getppid() != plan.parent {
            libc::_exit(127);
        }
        for (target, &source) in plan.stdio.iter().enumerate() {
            if libc::dup2(source, target as c_int) < 0 {
                return (SpawnStep::Setup, -1);
            }
        }
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return (SpawnStep::Setup, -1);
        }
        if libc::chdir(plan.directory) < 0 {
            return (SpawnStep::Directory, -1);
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        (SpawnStep::Exec, 0)
    }
}

const TERMINAL_SIGNALS: [c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGHUP];

/// Resets our handlers, and SIGPIPE, which Rust ignores. Signals that our parent ignores
/// (`nohup`) stay ignored.
///
/// `execve` resets handlers too, but until then one would run in the parent's memory.
///
/// Terminal signals pending from before `setsid` are meant for ralph only. Ignoring a pending
/// signal discards it.
#[expect(unsafe_code, reason = "the child's side of `vfork_exec`")]
unsafe fn reset_signals() {
    // SAFETY: as in `child`; all zeroes are the default action.
    unsafe {
        let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let ignore = libc::sigaction { sa_sigaction: libc::SIG_IGN, ..default };
        for &signal in RUN_SIGNALS.iter().chain(&[libc::SIGTSTP, libc::SIGPIPE]) {
            let mut before = default;
            let first = if TERMINAL_SIGNALS.contains(&signal) { &ignore } else { &default };
            if libc::sigaction(signal, first, &raw mut before) != 0 {
                continue;
            }
            let stays = before.sa_sigaction == libc::SIG_IGN && signal != libc::SIGPIPE;
            let last = if stays { &ignore } else { &default };
            if last.sa_sigaction != first.sa_sigaction {
                libc::sigaction(signal, last, ptr::null_mut());
            }
        }
    }
}
