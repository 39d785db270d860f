//! A plan as a command line of bubblewrap.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::inside;
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

/// The arguments for `bwrap`.
pub fn arguments(plan: &Plan, command: &Command<'_>) -> Vec<OsString> {
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
    args.add([if walls.files { "--ro-bind" } else { "--bind" }, "/", "/", "--dev", "/dev"]);
    if walls.processes {
        args.add(["--proc", "/proc"]);
    }
    for mount in &plan.mounts {
        match mount {
            Mount::ReadOnly { from, at } => {
                args.add([OsStr::new("--ro-bind"), from.as_ref(), at.as_ref()]);
            }
            Mount::Writable { from, at } => {
                args.add([OsStr::new("--bind"), from.as_ref(), at.as_ref()]);
            }
            Mount::EmptyDir { at } => args.add([OsStr::new("--tmpfs"), at.as_ref()]),
            Mount::EmptyFile { at } => {
                args.add([OsStr::new("--ro-bind"), OsStr::new("/dev/null"), at.as_ref()]);
            }
        }
    }
    // What holds other mounts is closed, or its directories could be exchanged; only now, since those are
    // made in it. The others may be written for all that it matters: nobody sees it, and it is gone with
    // the sandbox. (Every mount but an empty directory makes bubblewrap read the list of all mounts again.)
    for (nth, mount) in plan.mounts.iter().enumerate() {
        let later = &plan.mounts[nth + 1..];
        if let Mount::EmptyDir { at } = mount
            && later.iter().any(|later| later.at().starts_with(at))
            && !later.iter().any(|later| at.starts_with(later.at()))
        {
            args.add([OsStr::new("--remount-ro"), at.as_ref()]);
        }
    }
    args.add([OsStr::new("--chdir"), command.directory.as_ref()]);
    args.add([OsStr::new("--"), Path::new(INSIDE_DIR).join("ralph").as_ref()]);
    let ports = match &plan.network {
        Network::Proxy { ports } => ports.as_slice(),
        Network::None | Network::Full => &[],
    };
    let orders = inside::Orders {
        socket: command.socket,
        terminal: command.terminal,
        ports: ports.to_vec(),
        close: walls.descriptors,
        filter: walls.calls,
    };
    args.add([OsString::from(inside::COMMAND), orders.to_argument()]);
    args.add([command.program]);
    args.add(command.args);
    args.0
}

struct Args(Vec<OsString>);

impl Args {
    fn add<T: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = T>) {
        self.0.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    }
}
