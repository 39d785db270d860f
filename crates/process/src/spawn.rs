#[cfg(target_os = "linux")]
mod linux;

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::process::Pid;

use super::Launch;
#[cfg(target_os = "linux")]
use linux::start;

/// Linux allows a user 64 MiB of pipe buffers, enough for 200 agents; beyond that, new pipes get
/// two pages.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) stdout: OutputPipe,
    pub(super) stderr: Option<OutputPipe>,
    pub(super) stdin: Option<PipeWriter>,
}

#[derive(Debug)]
pub(super) struct OutputPipe {
    pub(super) reader: PipeReader,
    /// Held open to avoid a wakeup when the child closes its streams. `None` for a terminal.
    pub(super) writer: Option<PipeWriter>,
}

/// The new session shields the child from the terminal's Ctrl+C, and keeps it from prompting on
/// `/dev/tty`.
pub(super) fn spawn(launch: &Launch<'_>) -> io::Result<Spawned> {
    if let Some(size) = launch.terminal {
        return spawn_on_terminal(launch, size);
    }
    let (stdin, stdin_writer) = if launch.has_stdin_pipe {
        let (reader, writer) = io::pipe()?;
        set_nonblocking(writer.as_fd())?;
        (OwnedFd::from(reader), Some(writer))
    } else {
        (stdin_file(launch.stdin)?, None)
    };
    let stdout = create_output_pipe()?;
    #[cfg(target_os = "linux")]
    // A smaller pipe only costs speed.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout.0, PIPE_BYTES);
    let stderr = if launch.merge_stderr { None } else { Some(create_output_pipe()?) };
    let stderr_writer = stderr.as_ref().unwrap_or(&stdout).1.as_fd();
    let pid = start(launch, [stdin.as_fd(), stdout.1.as_fd(), stderr_writer])?;
    let output_pipe = |(reader, writer)| OutputPipe { reader, writer: Some(writer) };
    Ok(Spawned {
        pid,
        stdout: output_pipe(stdout),
        stderr: stderr.map(output_pipe),
        stdin: stdin_writer,
    })
}

fn spawn_on_terminal(launch: &Launch<'_>, size: super::TerminalSize) -> io::Result<Spawned> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    rustix::termios::tcsetwinsize(&master, size.winsize())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    let writer = master.try_clone()?;
    set_nonblocking(master.as_fd())?;
    let pid = start(launch, [slave.as_fd(); 3])?;
    let stdout = OutputPipe { reader: PipeReader::from(master), writer: None };
    Ok(Spawned { pid, stdout, stderr: None, stdin: Some(PipeWriter::from(writer)) })
}

fn create_output_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    set_nonblocking(reader.as_fd())?;
    Ok((reader, writer))
}

/// Replaces all status flags.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK)?)
}

/// Unlike a pipe, a file needs no feeding while the child runs.
fn stdin_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    if bytes.is_empty() {
        return Ok(std::fs::File::open("/dev/null")?.into());
    }
    #[cfg(target_os = "linux")]
    if let Ok(file) = memory_file(bytes) {
        return Ok(file.into());
    }
    let file = tempfile::tempfile()?;
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

#[cfg(target_os = "linux")]
fn memory_file(bytes: &[u8]) -> io::Result<std::fs::File> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all_at(bytes, 0)?;
    // Sealed, to keep the agent's children from changing its prompt.
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let _ = rustix::fs::fcntl_add_seals(&file, seals);
    Ok(file)
}

fn environment(launch: &Launch<'_>) -> Vec<(OsString, OsString)> {
    let changed = |name: &OsStr| launch.env.iter().any(|(other, _)| other == name);
    let mut env: Vec<_> = std::env::vars_os().filter(|(name, _)| !changed(name)).collect();
    for (index, (name, value)) in launch.env.iter().enumerate() {
        let overridden = launch.env[index + 1..].iter().any(|(later, _)| later == name);
        if let (Some(value), false) = (value, overridden) {
            env.push((name.clone(), value.clone()));
        }
    }
    env
}

fn directory_error(directory: &Path, err: &io::Error) -> io::Error {
    io::Error::new(
        err.kind(),
        format!("the directory {} cannot be entered: {err}", directory.display()),
    )
}

fn program_error(program: &OsStr, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("{} cannot be started: {err}", program.display()))
}

/// `Command` resets signals itself. There is no parent-death signal.
#[cfg(not(target_os = "linux"))]
fn start(launch: &Launch<'_>, [stdin, stdout, stderr]: [BorrowedFd<'_>; 3]) -> io::Result<Pid> {
    use std::os::unix::process::CommandExt;

    let mut command = std::process::Command::new(launch.program);
    command
        .args(launch.args)
        .current_dir(launch.directory)
        .env_clear()
        .envs(environment(launch))
        .stdin(stdin.try_clone_to_owned()?)
        .stdout(stdout.try_clone_to_owned()?)
        .stderr(stderr.try_clone_to_owned()?);
    #[expect(
        unsafe_code,
        reason = "setsid(2) and ioctl(2) alone run in the child, and they are async-signal-safe"
    )]
    // SAFETY: see the reason above.
    unsafe {
        let terminal = launch.takes_terminal();
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            Ok(())
        });
    }
    #[expect(clippy::zombie_processes, reason = "`System` waits for every child by waitpid")]
    let child = command.spawn().map_err(|err| match std::fs::metadata(launch.directory) {
        Err(missing) => directory_error(launch.directory, &missing),
        Ok(_) => program_error(launch.program, &err),
    })?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
