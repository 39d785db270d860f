//! Prepares the streams and the environment of a child.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::process::Pid;

use super::path::locate_program;
use super::{Launch, platform};

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
    platform::enlarge_pipe(stdout.0.as_fd());
    let stderr = if launch.merge_stderr { None } else { Some(create_output_pipe()?) };
    let stderr_writer = stderr.as_ref().unwrap_or(&stdout).1.as_fd();
    let pid = platform::start(launch, [stdin.as_fd(), stdout.1.as_fd(), stderr_writer])?;
    let output_pipe = |(reader, writer)| OutputPipe { reader, writer: Some(writer) };
    Ok(Spawned {
        pid,
        stdout: output_pipe(stdout),
        stderr: stderr.map(output_pipe),
        stdin: stdin_writer,
    })
}

fn spawn_on_terminal(launch: &Launch<'_>, size: super::TerminalSize) -> io::Result<Spawned> {
    let (master, slave) = open_pty()?;
    // macOS refuses it on the other side until this one is open.
    rustix::termios::tcsetwinsize(&slave, size.winsize())?;
    let writer = master.try_clone()?;
    set_nonblocking(master.as_fd())?;
    let pid = platform::start(launch, [slave.as_fd(); 3])?;
    let stdout = OutputPipe { reader: PipeReader::from(master), writer: None };
    Ok(Spawned { pid, stdout, stderr: None, stdin: Some(PipeWriter::from(writer)) })
}

/// Opens both sides of a new terminal: the one of its viewer, and the one of programs.
///
/// # Errors
/// The system has no more terminals.
pub fn open_pty() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    // macOS cannot do it at once.
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    Ok((master, slave))
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
    if let Ok(file) = platform::memory_file(bytes) {
        return Ok(file.into());
    }
    let file = tempfile::tempfile()?;
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

/// Read once, because copying it takes a tenth of ralph's own time in an iteration.
static INHERITED_ENV: LazyLock<Vec<(OsString, OsString)>> =
    LazyLock::new(|| std::env::vars_os().collect());

pub(super) fn environment<'a>(launch: &Launch<'a>) -> Vec<(&'a OsStr, &'a OsStr)> {
    let changed = |name: &OsStr| launch.env.iter().any(|(other, _)| other == name);
    let mut env: Vec<(&OsStr, &OsStr)> = INHERITED_ENV
        .iter()
        .filter(|(name, _)| !changed(name))
        .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
        .collect();
    for (index, (name, value)) in launch.env.iter().enumerate() {
        let overridden = launch.env[index + 1..].iter().any(|(later, _)| later == name);
        if let (Some(value), false) = (value, overridden) {
            env.push((name, value));
        }
    }
    env
}

/// The file to execute.
pub(super) fn locate(launch: &Launch<'_>, env: &[(&OsStr, &OsStr)]) -> io::Result<PathBuf> {
    let path_env = env.iter().find(|(name, _)| *name == "PATH").map(|(_, value)| *value);
    locate_program(launch.program, path_env, launch.directory).map_err(
        |err| match std::fs::metadata(launch.directory) {
            Err(missing) => directory_error(launch.directory, &missing),
            Ok(_) => program_error(launch.program, &err),
        },
    )
}

pub(super) fn directory_error(directory: &Path, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("cannot enter directory {}: {err}", directory.display()))
}

pub(super) fn program_error(program: &OsStr, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("cannot start {}: {err}", program.display()))
}
