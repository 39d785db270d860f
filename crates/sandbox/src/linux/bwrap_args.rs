//! Converts a plan to bubblewrap's command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::init_process;
use super::mounts;
use crate::plan::{INSIDE_DIR, Mount, NetworkMode, SandboxPlan};

#[derive(Debug, Clone, Copy)]
pub struct InnerCommand<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub directory: &'a Path,
    /// The socket for passing listeners out.
    pub socket: Option<i32>,
    pub terminal: Option<i32>,
    pub term_on_parent_death: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMaker {
    /// See [`mounts`].
    Ralph,
    Bwrap,
}

/// Returns the program to start and its arguments.
pub fn command_line(
    bwrap: &Path,
    plan: &SandboxPlan,
    command: &InnerCommand<'_>,
    by: MountMaker,
) -> (OsString, Vec<OsString>) {
    let arguments = arguments(plan, command, by);
    match by {
        MountMaker::Ralph => {
            let mut args = vec![mounts::COMMAND.into()];
            args.extend(mounts::arguments(plan, command.terminal));
            args.push(bwrap.into());
            args.extend(arguments);
            (super::SELF_EXE.into(), args)
        }
        MountMaker::Bwrap => (bwrap.into(), arguments),
    }
}

fn arguments(plan: &SandboxPlan, command: &InnerCommand<'_>, by: MountMaker) -> Vec<OsString> {
    let mut args = ArgList(Vec::new());
    let isolation = plan.isolation;
    for (wall, flag) in [
        (isolation.users, "--unshare-user"),
        (isolation.processes, "--unshare-pid"),
        (isolation.ipc, "--unshare-ipc"),
        (isolation.ipc, "--unshare-uts"),
        (isolation.ipc, "--unshare-cgroup-try"),
        (isolation.network && plan.network != NetworkMode::Full, "--unshare-net"),
        (isolation.session, "--new-session"),
        (!command.term_on_parent_death, "--die-with-parent"),
    ] {
        if wall {
            args.add([flag]);
        }
    }
    if isolation.users {
        let (user, group) = plan.user;
        args.add(["--uid", &user.to_string(), "--gid", &group.to_string()]);
    }
    if isolation.capabilities {
        args.add(["--cap-drop", "ALL"]);
    } else {
        args.add(["--cap-add", "ALL"]);
    }
    match by {
        MountMaker::Ralph => args.add(["--dev-bind", "/", "/"]),
        MountMaker::Bwrap if isolation.files => args.add(["--ro-bind", "/", "/", "--dev", "/dev"]),
        MountMaker::Bwrap => args.add(["--bind", "/", "/", "--dev", "/dev"]),
    }
    if isolation.processes {
        args.add(["--proc", "/proc"]);
        // Mounted always: bubblewrap skips paths that it wrongly takes for read-only.
        plan.kernel.iter().for_each(|mount| args.mount(mount));
    }
    if by == MountMaker::Bwrap {
        plan.mounts.iter().for_each(|mount| args.mount(mount));
    }
    for at in plan.closed_dirs().filter(|_| by == MountMaker::Bwrap) {
        args.add([OsStr::new("--remount-ro"), at.as_ref()]);
    }
    args.add([OsStr::new("--chdir"), command.directory.as_ref()]);
    args.add([OsStr::new("--"), Path::new(INSIDE_DIR).join("ralph").as_ref()]);
    let ports = match &plan.network {
        NetworkMode::Proxy { ports } => ports.as_slice(),
        NetworkMode::None | NetworkMode::Full => &[],
    };
    let init_args = init_process::InitArgs {
        socket: command.socket,
        terminal: command.terminal,
        ports: ports.to_vec(),
        close: isolation.descriptors,
        filter: isolation.calls,
        writable: (isolation.files && isolation.pipes).then(|| writable(plan).count()),
    };
    args.add([OsString::from(init_process::COMMAND), init_args.to_argument()]);
    if init_args.writable.is_some() {
        args.add(writable(plan));
    }
    args.add([command.program]);
    args.add(command.args);
    args.0
}

fn writable(plan: &SandboxPlan) -> impl Iterator<Item = &Path> {
    let mounts = plan.mounts.iter().filter_map(|mount| match mount {
        Mount::Writable { at, .. } | Mount::EmptyDir { at } => Some(at.as_path()),
        Mount::ReadOnly { .. } | Mount::EmptyFile { .. } => None,
    });
    mounts.chain(["/dev", "/proc"].map(Path::new))
}

struct ArgList(Vec<OsString>);

impl ArgList {
    fn add<T: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = T>) {
        self.0.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    }

    fn mount(&mut self, mount: &Mount) {
        match mount {
            Mount::ReadOnly { from, at } => {
                self.add([OsStr::new("--ro-bind"), from.as_ref(), at.as_ref()]);
            }
            Mount::Writable { from, at } => {
                self.add([OsStr::new("--bind"), from.as_ref(), at.as_ref()]);
            }
            Mount::EmptyDir { at } => self.add([OsStr::new("--tmpfs"), at.as_ref()]),
            Mount::EmptyFile { at } => {
                self.add([OsStr::new("--ro-bind"), OsStr::new("/dev/null"), at.as_ref()]);
            }
        }
    }
}
