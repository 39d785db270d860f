//! A plan as a command line of bubblewrap.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::init_process;
use super::mounts;
use super::plan::{INSIDE_DIR, Mount, Network, Plan};

/// What is run inside, and how it is connected to the outside.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    pub program: &'a OsStr,
    pub args: &'a [OsString],
    pub directory: &'a Path,
    /// The descriptor over which listeners are handed out.
    pub socket: Option<i32>,
    /// The descriptor of a terminal of its own.
    pub terminal: Option<i32>,
    /// Let it finish if ralph dies.
    pub spare: bool,
}

/// Who makes the mounts of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountsBy {
    /// This program, around bubblewrap: see [`mounts`].
    Ralph,
    /// Bubblewrap.
    Bwrap,
}

/// The command line for a program inside: the program to start, and its arguments.
pub fn line(
    bwrap: &Path,
    plan: &Plan,
    command: &Command<'_>,
    by: MountsBy,
) -> (OsString, Vec<OsString>) {
    let arguments = arguments(plan, command, by);
    match by {
        MountsBy::Ralph => {
            let mut args = vec![mounts::COMMAND.into()];
            args.extend(mounts::arguments(plan, command.terminal));
            args.push(bwrap.into());
            args.extend(arguments);
            (super::THIS_PROGRAM.into(), args)
        }
        MountsBy::Bwrap => (bwrap.into(), arguments),
    }
}

/// The arguments for `bwrap`.
fn arguments(plan: &Plan, command: &Command<'_>, by: MountsBy) -> Vec<OsString> {
    let mut args = Args(Vec::new());
    let walls = plan.walls;
    for (wall, flag) in [
        (walls.users, "--unshare-user"),
        (walls.processes, "--unshare-pid"),
        (walls.ipc, "--unshare-ipc"),
        (walls.ipc, "--unshare-uts"),
        (walls.ipc, "--unshare-cgroup-try"),
        (walls.network && plan.network != Network::Full, "--unshare-net"),
        (walls.session, "--new-session"),
        (!command.spare, "--die-with-parent"),
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
        MountsBy::Ralph => args.add(["--dev-bind", "/", "/"]),
        MountsBy::Bwrap if walls.files => args.add(["--ro-bind", "/", "/", "--dev", "/dev"]),
        MountsBy::Bwrap => args.add(["--bind", "/", "/", "--dev", "/dev"]),
    }
    if walls.processes {
        args.add(["--proc", "/proc"]);
        // Bubblewrap leaves out what it takes for read-only already, by a question that is not the kernel's.
        plan.kernel.iter().for_each(|mount| args.mount(mount));
    }
    if by == MountsBy::Bwrap {
        plan.mounts.iter().for_each(|mount| args.mount(mount));
    }
    for at in plan.closed().filter(|_| by == MountsBy::Bwrap) {
        args.add([OsStr::new("--remount-ro"), at.as_ref()]);
    }
    args.add([OsStr::new("--chdir"), command.directory.as_ref()]);
    args.add([OsStr::new("--"), Path::new(INSIDE_DIR).join("ralph").as_ref()]);
    let ports = match &plan.network {
        Network::Proxy { ports } => ports.as_slice(),
        Network::None | Network::Full => &[],
    };
    let orders = init_process::Orders {
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
fn writable(plan: &Plan) -> impl Iterator<Item = &Path> {
    let mounts = plan.mounts.iter().filter_map(|mount| match mount {
        Mount::Writable { at, .. } | Mount::EmptyDir { at } => Some(at.as_path()),
        Mount::ReadOnly { .. } | Mount::EmptyFile { .. } => None,
    });
    mounts.chain(["/dev", "/proc"].map(Path::new))
}

struct Args(Vec<OsString>);

impl Args {
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
