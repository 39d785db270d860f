use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;

use super::super::super::spawn::{directory_error, environment, locate, program_error};
use super::super::super::{Launch, file_limit};

/// Pipes grow by themselves.
pub(crate) fn enlarge_pipe(_pipe: BorrowedFd<'_>) {}

/// There are no files in memory.
pub(crate) fn memory_file(_bytes: &[u8]) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `Command` resets signals itself. There is no parent-death signal.
pub(crate) fn start(
    launch: &Launch<'_>,
    [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
) -> io::Result<Pid> {
    let env = environment(launch);
    let mut command = Command::new(locate(launch, &env)?);
    command
        .arg0(launch.program)
        .args(launch.args)
        .current_dir(launch.directory)
        .env_clear()
        .envs(env)
        .stdin(stdin.try_clone_to_owned()?)
        .stdout(stdout.try_clone_to_owned()?)
        .stderr(stderr.try_clone_to_owned()?);
    prepare(&mut command, launch);
    // `System` waits for every child by waitpid.
    let child = command.spawn().map_err(|err| match std::fs::metadata(launch.directory) {
        Err(missing) => directory_error(launch.directory, &missing),
        Ok(_) => program_error(launch.program, &err),
    })?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[expect(
    unsafe_code,
    reason = "only setsid(2), ioctl(2), fcntl(2), signal(3) and setrlimit(2) run in the child, which \
              do not allocate"
)]
fn prepare(command: &mut Command, launch: &Launch<'_>) {
    let (terminal, ignore_term) = (launch.takes_terminal(), launch.ignore_term);
    let inherit: Vec<RawFd> = launch.inherit.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: see the reason above. The descriptors stay open until the child has started.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            if ignore_term {
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
            }
            for &fd in &inherit {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            file_limit::restore();
            Ok(())
        });
    }
}
