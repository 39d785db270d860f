//! Ways out of a sandbox. Each is tried as the administrator and as an ordinary user, and each is tried
//! once more with the wall down that is said to stop it: if it fails even then, it proves nothing.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ralph::sandbox::bwrap;
use ralph::sandbox::disk::RealDisk;
use ralph::sandbox::plan::{self, Guard, Mount, Network, Plan, Wanted};
use ralph::sandbox::scratch::set_aside;

use crate::attacker::{ATTACK, ESCAPED};
use crate::support::skipped;

/// Somebody who is not the administrator and owns nothing else.
const STRANGER: u32 = 54_321;

/// Not that of the tester, which another user may not look into.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A project, a home with secrets, and somebody outside to be attacked.
struct Scene {
    root: tempfile::TempDir,
    path: PathBuf,
    user: u32,
    victim: Child,
}

impl Scene {
    fn new(user: u32) -> Scene {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        for (file, text) in [
            ("project/README.md", "a project"),
            ("project/.git/config", "[core]\n"),
            ("project/.git/HEAD", "ref: refs/heads/main\n"),
            ("project/.git/hooks/sample", ""),
            ("project/.ralph/settings.json", "{}"),
            ("project/.ralph/runs/1/events.jsonl", ""),
            ("project/.claude/settings.json", "{}"),
            ("home/.ssh/id_ed25519", "secret"),
            ("home/.cargo/credentials.toml", "secret"),
            ("home/.cargo/bin/tool", ""),
            ("outside/file", "as it was"),
            ("scratch/note", ""),
        ] {
            let file = path.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        give(&path, user);
        let mut victim = as_user(user, "sleep");
        let victim = victim.arg("1000").env("SECRET", "in the environment").spawn().unwrap();
        Scene { root, path, user, victim }
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            project: self.path.join("project"),
            home: Some(self.path.join("home")),
            ralph_home: self.path.join("scratch"),
            scratch: self.path.join("scratch"),
            ralph: env!("CARGO_BIN_EXE_ralph").into(),
            adapter: "claude",
            env: vec![("PATH".into(), PATH.into())],
            readable: vec![std::env::current_exe().unwrap()],
            network: Network::None,
            user: (self.user, self.user),
            ..Wanted::default()
        }
    }

    fn plan(&self) -> Plan {
        let plan = plan::plan(&self.wanted(), &RealDisk).unwrap();
        for dir in &plan.dirs {
            fs::create_dir_all(dir).unwrap();
        }
        for (file, text) in &plan.files {
            fs::write(file, text).unwrap();
        }
        give(&self.path.join("scratch"), self.user);
        plan
    }

    /// Whether `attack` gets out of `plan`.
    fn escapes(&self, plan: &Plan, attack: &Attack) -> bool {
        let program = std::env::current_exe().unwrap();
        let (program, args) = match attack.how {
            How::Shell(script) => ("sh".into(), vec!["-c".into(), self.fill(script).into()]),
            How::Program(_) => {
                let args = ["attacker::attack", "--exact", "--nocapture"];
                (program.into_os_string(), args.map(Into::into).to_vec())
            }
        };
        let project = self.path.join("project");
        let command = bwrap::Command {
            program: &program,
            args: &args,
            directory: &project,
            socket: None,
            terminal: None,
            spare: false,
        };
        let mut line = as_user(self.user, "sh");
        // A file that whoever started ralph had open.
        line.args(["-c", "exec 9< \"$SECRET_FILE\"; exec bwrap \"$@\"", "sh"]);
        line.args(bwrap::arguments(plan, &command))
            .current_dir(&project)
            .env("HOME", self.path.join("home"))
            .env("SECRET_FILE", self.path.join("home/.ssh/id_ed25519"))
            .stdin(Stdio::null());
        if let How::Program(attack) = attack.how {
            line.env(ATTACK, self.fill(attack));
        }
        let output = line.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_there = !said.contains("bwrap: ") && !said.contains("cannot be started inside");
        assert!(is_there, "{}: {said}", attack.name);
        set_aside(&plan.guards);
        match attack.check {
            Check::ItSays => output.status.code() == Some(ESCAPED),
            Check::Outside(check) => check(self),
        }
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{root}", self.path.to_str().unwrap())
            .replace("{victim}", &self.victim.id().to_string())
            .replace("{escaped}", &ESCAPED.to_string())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path.join(path)).unwrap_or_default()
    }

    fn victim_is_alive(&self) -> bool {
        crate::support::is_alive(self.victim.id().try_into().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = self.root.path();
    }
}

fn give(path: &Path, user: u32) {
    if user != 0 {
        let output =
            Command::new("chown").arg("-R").arg(format!("{user}:{user}")).arg(path).output();
        assert!(output.unwrap().status.success());
        chown(path, Some(user), Some(user)).unwrap();
    }
}

/// A command as this user, with nothing in its environment but the path.
fn as_user(user: u32, program: &str) -> Command {
    let mut command = if rustix::process::getuid().as_raw() == user {
        Command::new(program)
    } else {
        let mut command = Command::new("setpriv");
        let id = user.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", program]);
        command
    };
    command.env_clear().env("PATH", PATH);
    command
}

struct Attack {
    name: &'static str,
    how: How,
    check: Check,
    /// Takes the wall away.
    weaken: fn(&mut Plan),
    /// An ordinary user could not do it anyway, so that taking the wall away shows nothing.
    only_root: bool,
}

enum How {
    Shell(&'static str),
    Program(&'static str),
}

enum Check {
    /// It ends with the exit code for that.
    ItSays,
    /// It left its mark outside.
    Outside(fn(&Scene) -> bool),
}

const fn attack(name: &'static str, how: How, check: Check, weaken: fn(&mut Plan)) -> Attack {
    Attack { name, how, check, weaken, only_root: false }
}

/// Takes the mounts away that end like this.
fn unmount(plan: &mut Plan, ends: &[&str]) {
    let before = plan.mounts.len();
    plan.mounts.retain(|mount| !ends.iter().any(|end| mount.at().ends_with(end)));
    assert!(plan.mounts.len() < before, "there is no mount at {ends:?}");
}

/// Shows all of the file system, as it is.
fn uncover(plan: &mut Plan) {
    plan.walls.files = false;
    plan.mounts.retain(|mount| {
        matches!(mount, Mount::ReadOnly { at, .. } if at.starts_with("/run") || at.starts_with("/etc"))
            || mount.at() == Path::new("/run")
    });
}

/// Gives the rights of an administrator of the namespaces.
fn empower(plan: &mut Plan) {
    plan.user = (0, 0);
    plan.walls.capabilities = false;
    plan.walls.calls = false;
}

/// Puts it among all other processes, as one of their user. The user namespace alone would stop it, too.
fn share_processes(plan: &mut Plan) {
    plan.walls.processes = false;
    plan.walls.users = false;
    empower(plan);
}

const ATTACKS: &[Attack] = &[
    attack(
        "write outside",
        How::Shell("echo mine > {root}/outside/file"),
        Check::Outside(|scene| scene.read("outside/file") != "as it was"),
        uncover,
    ),
    attack(
        "write through a link",
        How::Shell("ln -s {root}/outside/file link; echo mine > link"),
        Check::Outside(|scene| scene.read("outside/file") != "as it was"),
        uncover,
    ),
    attack(
        "make a secret one's own by a hard link",
        How::Shell("ln {root}/home/.ssh/id_ed25519 stolen && exit {escaped}"),
        Check::ItSays,
        uncover,
    ),
    attack(
        "read a key",
        How::Shell("grep -q secret {root}/home/.ssh/id_ed25519 && exit {escaped}"),
        Check::ItSays,
        uncover,
    ),
    attack(
        "read a key by way of /proc",
        How::Shell("grep -q secret /proc/self/root{root}/home/.ssh/id_ed25519 && exit {escaped}"),
        Check::ItSays,
        uncover,
    ),
    attack(
        "read what cargo publishes with",
        How::Shell("grep -q secret {root}/home/.cargo/credentials.toml && exit {escaped}"),
        Check::ItSays,
        |plan| unmount(plan, &["credentials.toml"]),
    ),
    attack(
        "change a tool",
        How::Shell("echo evil > {root}/home/.cargo/bin/tool"),
        Check::Outside(|scene| scene.read("home/.cargo/bin/tool").contains("evil")),
        |plan| {
            for mount in &mut plan.mounts {
                if let Mount::ReadOnly { from, at } = mount
                    && at.ends_with(".cargo")
                {
                    let (from, at) = (from.clone(), at.clone());
                    *mount = Mount::Writable { from, at };
                }
            }
        },
    ),
    attack(
        "make what cannot be written writable",
        How::Shell("mount -o remount,rw,bind \"$PWD/.git/config\"; echo evil > .git/config"),
        Check::Outside(|scene| scene.read("project/.git/config").contains("evil")),
        empower,
    ),
    attack(
        "take away what covers something",
        How::Shell("umount \"$PWD/.git/config\"; echo evil > .git/config"),
        Check::Outside(|scene| scene.read("project/.git/config").contains("evil")),
        empower,
    ),
    Attack {
        only_root: true,
        ..attack(
            "see what others have in their environment",
            How::Shell("grep -qsa 'SECRET=in the env' /proc/*/environ && exit {escaped}"),
            Check::ItSays,
            share_processes,
        )
    },
    Attack {
        only_root: true,
        ..attack(
            "go through another process to its files",
            How::Shell(
                "grep -qs secret /proc/{victim}/root{root}/home/.ssh/id_ed25519 && exit {escaped}",
            ),
            Check::ItSays,
            share_processes,
        )
    },
    attack(
        "kill a process outside",
        How::Shell("kill -9 {victim}"),
        Check::Outside(|scene| !scene.victim_is_alive()),
        |plan| plan.walls.processes = false,
    ),
    Attack {
        only_root: true,
        ..attack(
            "trace a process outside",
            How::Program("ptrace={victim}"),
            Check::ItSays,
            share_processes,
        )
    },
    attack(
        "plant a hook",
        How::Shell("echo evil > .git/hooks/pre-commit"),
        Check::Outside(|scene| scene.path.join("project/.git/hooks/pre-commit").exists()),
        |plan| unmount(plan, &[".git/hooks"]),
    ),
    attack(
        "change what git executes",
        How::Shell("printf '[core]\\n\\tfsmonitor = evil\\n' > .git/config"),
        Check::Outside(|scene| scene.read("project/.git/config").contains("evil")),
        |plan| unmount(plan, &[".git/config"]),
    ),
    attack(
        "put another repository in the place of this one",
        How::Shell("mv .git old && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit"),
        Check::Outside(|scene| scene.path.join("project/.git/hooks/pre-commit").exists()),
        |plan| unmount(plan, &[".git"]),
    ),
    attack(
        "point a repository at another one",
        How::Shell("mkdir -p evil && echo ../evil > .git/commondir"),
        Check::Outside(|scene| scene.path.join("project/.git/commondir").exists()),
        |plan| plan.guards.clear(),
    ),
    attack(
        "change ralph's settings",
        How::Shell("echo '{\"guardrails\":[]}' > .ralph/settings.json"),
        Check::Outside(|scene| scene.read("project/.ralph/settings.json").contains("guardrails")),
        |plan| unmount(plan, &[".ralph/settings.json"]),
    ),
    attack(
        "make settings for this machine",
        How::Shell("echo '{}' > .ralph/settings.local.json"),
        Check::Outside(|scene| scene.path.join("project/.ralph/settings.local.json").exists()),
        |plan| plan.guards.clear(),
    ),
    attack(
        "change what is on record",
        How::Shell("echo forged > .ralph/runs/1/events.jsonl"),
        Check::Outside(|scene| scene.read("project/.ralph/runs/1/events.jsonl").contains("forged")),
        |plan| unmount(plan, &[".ralph/runs"]),
    ),
    attack(
        "put another directory in the place of ralph's",
        How::Shell("mv .ralph old && mkdir .ralph && echo forged > .ralph/settings.json"),
        Check::Outside(|scene| scene.read("project/.ralph/settings.json").contains("forged")),
        |plan| unmount(plan, &[".ralph"]),
    ),
    attack(
        "change the settings of Claude Code",
        How::Shell("echo '{\"hooks\":{}}' > .claude/settings.json"),
        Check::Outside(|scene| scene.read("project/.claude/settings.json").contains("hooks")),
        |plan| unmount(plan, &[".claude/settings.json"]),
    ),
    attack(
        "read a file that was open already",
        How::Shell("grep -q secret <&9 && exit {escaped}"),
        Check::ItSays,
        |plan| plan.walls.descriptors = false,
    ),
    attack(
        "have a user namespace of one's own",
        How::Shell("unshare --user true && exit {escaped}"),
        Check::ItSays,
        |plan| plan.walls.calls = false,
    ),
    attack("use the user's keyring", How::Program("keyring"), Check::ItSays, |plan| {
        plan.walls.calls = false;
    }),
    Attack {
        only_root: true,
        ..attack("see what passes on the network", How::Program("packet"), Check::ItSays, |plan| {
            plan.walls.users = false;
            empower(plan);
        })
    },
    Attack {
        only_root: true,
        ..attack(
            "read the passwords",
            How::Shell("grep -q root: /etc/shadow && exit {escaped}"),
            Check::ItSays,
            |plan| unmount(plan, &["etc/shadow"]),
        )
    },
];

/// Those whose victim has to be set up first.
fn network_attacks(scene: &Scene) -> Vec<(Attack, Box<dyn Send>)> {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let echo = udp.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 8];
        while let Ok((read, from)) = echo.recv_from(&mut buffer) {
            let _ = echo.send_to(&buffer[..read], from);
        }
    });
    let socket = scene.path.join("home/docker.sock");
    let unix = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let name = format!("ralph-test-{}", scene.path.display());
    let named = SocketAddr::from_abstract_name(&name).unwrap();
    let named = UnixListener::bind_addr(&named).unwrap();
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let open: fn(&mut Plan) = |plan| plan.walls.network = false;
    let program = |text| How::Program(leak(text));
    vec![
        (
            attack(
                "connect to a port of this machine",
                program(format!("tcp={}", tcp.local_addr().unwrap())),
                Check::ItSays,
                open,
            ),
            Box::new(tcp),
        ),
        (
            attack(
                "ask a name server, or send any other datagram",
                program(format!("udp={}", udp.local_addr().unwrap())),
                Check::ItSays,
                open,
            ),
            Box::new(udp),
        ),
        (
            attack(
                "talk to Docker or any other service by its socket",
                program(format!("unix={}", socket.display())),
                Check::ItSays,
                uncover,
            ),
            Box::new(unix),
        ),
        (
            attack(
                "talk to a service by a name without a file",
                program(format!("abstract={name}")),
                Check::ItSays,
                open,
            ),
            Box::new(named),
        ),
    ]
}

/// Tries everything as `user`, with all walls up and with the one down.
fn try_everything(user: u32) {
    if rustix::process::getuid().as_raw() != 0 && rustix::process::getuid().as_raw() != user {
        return skipped("escapes as another user need the administrator");
    }
    let scene = Scene::new(user);
    let works = as_user(user, "bwrap")
        .args(["--unshare-all", "--ro-bind", "/", "/", "--", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !works {
        return skipped("bubblewrap does not work here");
    }
    let network = network_attacks(&scene);
    for attack in ATTACKS.iter().chain(network.iter().map(|(attack, _)| attack)) {
        assert!(!scene.escapes(&scene.plan(), attack), "user {user}: {}", attack.name);
        if attack.only_root && user != 0 {
            continue;
        }
        // Each with a scene of its own: this one does harm.
        let other = Scene::new(user);
        let is_here = attack_needs(attack, &scene);
        let scene = if is_here { &scene } else { &other };
        let mut weak = scene.plan();
        (attack.weaken)(&mut weak);
        assert!(
            scene.escapes(&weak, attack),
            "user {user}: it fails even without the wall, so that it proves nothing: {}",
            attack.name
        );
    }
}

/// Whether an attack is on somebody who was set up in this scene.
fn attack_needs(attack: &Attack, scene: &Scene) -> bool {
    let here = scene.path.to_str().unwrap();
    matches!(attack.how, How::Program(text) if text.contains(here))
}

#[test]
fn nobody_gets_out_as_the_administrator() {
    if rustix::process::getuid().as_raw() != 0 {
        return skipped("escapes as the administrator");
    }
    try_everything(0);
}

#[test]
fn nobody_gets_out_as_an_ordinary_user() {
    let me = rustix::process::getuid().as_raw();
    try_everything(if me == 0 { STRANGER } else { me });
}

#[test]
fn what_is_guarded_is_known_before() {
    let scene = Scene::new(rustix::process::getuid().as_raw());
    let guarded: Vec<PathBuf> =
        scene.plan().guards.into_iter().map(|Guard { path, .. }| path).collect();
    for path in [".git/commondir", ".ralph/settings.local.json", ".claude/hooks"] {
        assert!(guarded.contains(&scene.path.join("project").join(path)), "{path}: {guarded:?}");
    }
}

/// Types into the terminal that whoever started it sits at.
#[test]
fn nobody_types_into_the_terminal() {
    let allowed = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    let me = rustix::process::getuid().as_raw();
    let user = if me == 0 { STRANGER } else { me };
    let scene = Scene::new(user);
    let types = |plan: &Plan| {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        if me == 0 {
            chown(&name, Some(user), None).unwrap();
        }
        let side = fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let program = std::env::current_exe().unwrap();
        let args = ["attacker::attack", "--exact", "--nocapture"].map(Into::into);
        let project = scene.path.join("project");
        let command = bwrap::Command {
            program: program.as_os_str(),
            args: &args,
            directory: &project,
            socket: None,
            terminal: None,
            spare: false,
        };
        let mut line = as_user(user, "setsid");
        line.args(["--ctty", "--wait", "bwrap"]).args(bwrap::arguments(plan, &command));
        let output = line.env(ATTACK, "type").stdin(side).output().unwrap();
        drop(terminal);
        output.status.code() == Some(ESCAPED)
    };
    let plan = scene.plan();
    assert!(!types(&plan));
    let mut without_session = plan.clone();
    without_session.walls.session = false;
    assert!(!types(&without_session), "either wall is enough");
    let mut without_filter = plan.clone();
    without_filter.walls.calls = false;
    assert!(!types(&without_filter), "either wall is enough");
    without_filter.walls.session = false;
    if allowed.trim() == "1" {
        assert!(types(&without_filter), "it proves nothing");
    } else {
        skipped("typing into terminals is impossible with this kernel");
    }
}
