//! A plan as a command line of bubblewrap.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::init_process;
use super::mounts;
use super::plan::{INSIDE_DIR, Mount, NetworkMode, SandboxPlan};

/// What is run inside, and how it is connected to the outside.
#[derive(Debug, Clone, Copy)]
pub struct InnerCommand<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub directory: &'a Path,
    /// The descriptor over which listeners are handed out.
    pub socket: Option<i32>,
    /// The descriptor of a terminal of its own.
    pub terminal: Option<i32>,
    /// Let it finish if ralph dies.
    pub term_on_parent_death: bool,
}

/// Who makes the mounts of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMaker {
    /// This program, around bubblewrap: see [`mounts`].
    Ralph,
    /// Bubblewrap.
    Bwrap,
}

/// The command line for a program inside: the program to start, and its arguments.
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

/// The arguments for `bwrap`.
fn arguments(plan: &SandboxPlan, command: &InnerCommand<'_>, by: MountMaker) -> Vec<OsString> {
    let mut args = ArgList(Vec::new());
    let walls = plan.isolation;
    for (wall, flag) in [
        (walls.users, "--unshare-user"),
        (walls.processes, "--unshare-pid"),
        (walls.ipc, "--unshare-ipc"),
        (walls.ipc, "--unshare-uts"),
        (walls.ipc, "--unshare-cgroup-try"),
        (walls.network && plan.network != NetworkMode::Full, "--unshare-net"),
        (walls.session, "--new-session"),
        (!command.term_on_parent_death, "--die-with-parent"),
    ] {
        if wall {
            args.add([flag]);
        }
    }
    if walls.users {
        let (user, group) = plan.user;
        args.add(["--uid", &user.to_string(), "--gid", &group.to_string()]);
    }
    if walls.capabilities {
        args.add(["--cap-drop", "ALL"]);
    } else {
        args.add(["--cap-add", "ALL"]);
    }
    match by {
        MountMaker::Ralph => args.add(["--dev-bind", "/", "/"]),
        MountMaker::Bwrap if walls.files => args.add(["--ro-bind", "/", "/", "--dev", "/dev"]),
        MountMaker::Bwrap => args.add(["--bind", "/", "/", "--dev", "/dev"]),
    }
    if walls.processes {
        args.add(["--proc", "/proc"]);
        // Bubblewrap leaves out what it takes for read-only already, by a question that is not the kernel's.
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
    let orders = init_process::InitArgs {
        socket: command.socket,
        terminal: command.terminal,
        ports: ports.to_vec(),
        close: walls.descriptors,
        filter: walls.calls,
        writable: (walls.files && walls.pipes).then(|| writable(plan).count()),
    };
    args.add([OsString::from(init_process::COMMAND), orders.to_argument()]);
    if orders.writable.is_some() {
        args.add(writable(plan));
    }
    args.add([command.program]);
    args.add(command.args);
    args.0
}

/// The places inside that can be written.
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
