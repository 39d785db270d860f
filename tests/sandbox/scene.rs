//! A scene for escapes: a project, a home with secrets, and a victim outside.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ralph_sandbox::disk::RealDisk;
use ralph_sandbox::plan::{self, Mount, NetworkMode, PlanInputs, SandboxPlan};
use ralph_sandbox::platform::bwrap_args::{self, MountMaker};
use ralph_sandbox::platform::landlock::{self, LandlockRules};
use ralph_sandbox::quarantine::restore_guards;

use crate::attacker::{ATTACK, ESCAPED};
use crate::support::skipped;

const RALPH: &str = env!("CARGO_BIN_EXE_ralph");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestBackend {
    Bwrap,
    /// bubblewrap makes the mounts, not ralph.
    BwrapAlone,
    Landlock,
}

impl TestBackend {
    pub(crate) fn works_for(self, scene: &Scene) -> bool {
        let line = scene.line(self, &scene.plan(), OsStr::new("true"), &[]);
        let mut command = as_user(scene.user, line[0].to_str().unwrap());
        let output = command.args(&line[1..]).current_dir(scene.path.join("project")).output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// A user id that owns nothing.
pub(crate) const OTHER_USER: u32 = 54_321;

/// The tester, or a stranger if the tester is root.
pub(crate) fn ordinary_user() -> u32 {
    match rustix::process::getuid().as_raw() {
        0 => OTHER_USER,
        me => me,
    }
}

pub(crate) fn as_root(try_everything: fn(u32)) {
    if rustix::process::getuid().as_raw() != 0 {
        return skipped("escapes as the administrator");
    }
    try_everything(0);
}

/// Not the tester's, which other users may not be able to read.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

pub(crate) struct Scene {
    root: tempfile::TempDir,
    pub(crate) path: PathBuf,
    user: u32,
    victim: Child,
}

impl Scene {
    pub(crate) fn new(user: u32) -> Scene {
        Scene::with(user, false)
    }

    /// `bare`: without the files of git and agents in the project.
    fn with(user: u32, bare: bool) -> Scene {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        for (file, text) in [
            ("project/README.md", "a project"),
            ("project/.git/modules/a/sub/HEAD", ""),
            ("project/.git/modules/a/sub/config", ""),
            ("project/.git/config", "[core]\n"),
            ("project/.git/HEAD", "ref: refs/heads/main\n"),
            ("project/.git/hooks/sample", ""),
            ("project/.ralph/settings.json", "{}"),
            ("home/.ralph/projects/p/runs/1/events.jsonl", ""),
            ("project/.claude/settings.json", "{}"),
            ("project/.codex/config.toml", ""),
            ("home/.ssh/id_ed25519", "secret"),
            ("home/.cargo/credentials.toml", "secret"),
            ("home/.cargo/bin/tool", ""),
            ("outside/file", "as it was"),
            ("scratch/note", ""),
        ] {
            if bare && file.starts_with("project/.") {
                continue;
            }
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

    fn inputs(&self) -> PlanInputs {
        PlanInputs {
            project: self.path.join("project"),
            home: Some(self.path.join("home")),
            ralph_home: self.path.join("scratch"),
            scratch: self.path.join("scratch"),
            ralph: RALPH.into(),
            adapter: "claude",
            env: vec![("PATH".into(), PATH.into())],
            readable: vec![std::env::current_exe().unwrap()],
            network: NetworkMode::None,
            user: (self.user, self.user),
            ..PlanInputs::default()
        }
    }

    pub(crate) fn plan(&self) -> SandboxPlan {
        self.plan_with(|_| {})
    }

    pub(crate) fn plan_with(&self, change: impl FnOnce(&mut PlanInputs)) -> SandboxPlan {
        let mut inputs = self.inputs();
        change(&mut inputs);
        let plan = plan::build_plan(&inputs, &RealDisk).unwrap();
        for dir in &plan.dirs {
            fs::create_dir_all(dir).unwrap();
        }
        for (file, text) in &plan.files {
            fs::write(file, text).unwrap();
        }
        give(&self.path.join("scratch"), self.user);
        plan
    }

    pub(crate) fn line(
        &self,
        cage: TestBackend,
        plan: &SandboxPlan,
        program: &OsStr,
        args: &[OsString],
    ) -> Vec<OsString> {
        let directory = self.path.join("project");
        let (socket, terminal, spare) = (None, None, false);
        match cage {
            TestBackend::Bwrap | TestBackend::BwrapAlone => {
                let command = bwrap_args::InnerCommand {
                    program,
                    args,
                    directory: &directory,
                    socket,
                    terminal,
                    term_on_parent_death: spare,
                };
                let by =
                    if cage == TestBackend::Bwrap { MountMaker::Ralph } else { MountMaker::Bwrap };
                let (first, args) =
                    bwrap_args::command_line(Path::new("/usr/bin/bwrap"), plan, &command, by);
                // Not this test program, but ralph.
                let first = if by == MountMaker::Ralph { RALPH.into() } else { first };
                [first].into_iter().chain(args).collect()
            }
            TestBackend::Landlock => {
                let orders = self.path.join("scratch/orders.json");
                LandlockRules::new(plan, Some(Vec::new())).save(&orders).unwrap();
                let words =
                    [RALPH.as_ref(), landlock::COMMAND.as_ref(), orders.as_os_str(), program];
                words.map(OsStr::to_owned).into_iter().chain(args.iter().cloned()).collect()
            }
        }
    }

    pub(crate) fn check_attack(
        &self,
        cage: TestBackend,
        attack: &Attack,
        weaken: fn(&mut SandboxPlan),
    ) {
        let user = self.user;
        let bare = attack.bare.then(|| Scene::with(user, true));
        let scene = bare.as_ref().unwrap_or(self);
        assert!(!scene.escapes(cage, &scene.plan(), attack), "{cage:?}, {user}: {}", attack.name);
        if attack.only_root && user != 0 {
            return;
        }
        // In another scene, because it does harm, unless its victim is in this one.
        let scene_path = self.path.to_str().unwrap();
        let has_victim_here =
            matches!(attack.how, AttackMethod::Program(text) if text.contains(scene_path));
        let other = (!has_victim_here).then(|| Scene::with(user, attack.bare));
        let scene = other.as_ref().unwrap_or(self);
        let mut weak = scene.plan();
        weaken(&mut weak);
        assert!(
            scene.escapes(cage, &weak, attack),
            "{cage:?}, {user}: it fails even without the wall, so that it proves nothing: {}",
            attack.name
        );
    }

    pub(crate) fn escapes(&self, cage: TestBackend, plan: &SandboxPlan, attack: &Attack) -> bool {
        let output = self.output(cage, plan, &attack.how);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let failed = ["bwrap: ", "ralph: sandbox: "];
        let is_there = !failed.iter().any(|words| stderr.contains(words));
        assert!(is_there, "{}: {stderr}", attack.name);
        restore_guards(&plan.guards);
        match attack.check {
            Check::ExitCode => output.status.code() == Some(ESCAPED),
            Check::Exists(path) => self.path.join(path).exists(),
            Check::Contains(path, text) => self.read(path).contains(text),
            Check::Outside(check) => check(self),
        }
    }

    pub(crate) fn output(
        &self,
        cage: TestBackend,
        plan: &SandboxPlan,
        how: &AttackMethod,
    ) -> Output {
        let program = std::env::current_exe().unwrap();
        let shell = |script: String| ("sh".into(), vec!["-c".into(), script.into()]);
        let (program, args) = match how {
            AttackMethod::Shell(script) => shell(self.fill(script)),
            AttackMethod::ShellProbe(script) => {
                shell(format!("{} && exit {ESCAPED}", self.fill(script)))
            }
            AttackMethod::Program(_) => {
                let args = ["attacker::attack", "--exact", "--nocapture"];
                (program.into_os_string(), args.map(Into::into).to_vec())
            }
        };
        let project = self.path.join("project");
        let mut line = as_user(self.user, "sh");
        line.args(["-c", "exec 9< \"$SECRET_FILE\"; exec \"$@\"", "sh"]);
        line.args(self.line(cage, plan, &program, &args))
            .current_dir(&project)
            .env("HOME", self.path.join("home"))
            .env("SECRET_FILE", self.path.join("home/.ssh/id_ed25519"))
            .stdin(Stdio::null());
        if let AttackMethod::Program(attack) = how {
            line.env(ATTACK, self.fill(attack));
        }
        line.output().unwrap()
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{root}", self.path.to_str().unwrap())
            .replace("{victim}", &self.victim.id().to_string())
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path.join(path)).unwrap_or_default()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = self.root.path();
    }
}

pub(crate) fn give(path: &Path, user: u32) {
    if user != 0 {
        let output =
            Command::new("chown").arg("-R").arg(format!("{user}:{user}")).arg(path).output();
        assert!(output.unwrap().status.success());
        chown(path, Some(user), Some(user)).unwrap();
    }
}

pub(crate) fn as_user(user: u32, program: &str) -> Command {
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

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) how: AttackMethod,
    pub(crate) check: Check,
    pub(crate) weaken: fn(&mut SandboxPlan),
    /// Impossible for an ordinary user even without the protection.
    pub(crate) only_root: bool,
    pub(crate) bare: bool,
}

pub(crate) enum AttackMethod {
    Shell(&'static str),
    /// A script that succeeds if it escapes.
    ShellProbe(&'static str),
    Program(&'static str),
}

/// The sign of an escape.
pub(crate) enum Check {
    ExitCode,
    Exists(&'static str),
    /// A file with this text in it.
    Contains(&'static str, &'static str),
    Outside(fn(&Scene) -> bool),
}

type Weaken = fn(&mut SandboxPlan);

/// A script that succeeds if it escapes.
pub(crate) const fn probe(name: &'static str, script: &'static str, weaken: Weaken) -> Attack {
    Attack::new(name, AttackMethod::ShellProbe(script), Check::ExitCode, weaken)
}

/// A script that changes something outside.
pub(crate) const fn tamper(
    name: &'static str,
    script: &'static str,
    check: Check,
    weaken: Weaken,
) -> Attack {
    Attack::new(name, AttackMethod::Shell(script), check, weaken)
}

/// An attack by this program.
pub(crate) const fn program(name: &'static str, how: &'static str, weaken: Weaken) -> Attack {
    Attack::new(name, AttackMethod::Program(how), Check::ExitCode, weaken)
}

impl Attack {
    const fn new(name: &'static str, how: AttackMethod, check: Check, weaken: Weaken) -> Attack {
        Attack { name, how, check, weaken, only_root: false, bare: false }
    }

    pub(crate) const fn only_root(self) -> Attack {
        Attack { only_root: true, ..self }
    }

    pub(crate) const fn bare(self) -> Attack {
        Attack { bare: true, ..self }
    }
}

pub(crate) fn uncover(plan: &mut SandboxPlan) {
    plan.isolation.files = false;
    plan.mounts.retain(|mount| {
        matches!(mount, Mount::ReadOnly { at, .. } if at.starts_with("/run") || at.starts_with("/etc"))
            || mount.at() == Path::new("/run")
    });
}

pub(crate) fn network_attacks(scene: &Scene) -> Vec<(Attack, Box<dyn Send>)> {
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
    let in_project = scene.path.join("project/service.sock");
    let service = UnixListener::bind(&in_project).unwrap();
    fs::set_permissions(&in_project, fs::Permissions::from_mode(0o777)).unwrap();
    let name = format!("ralph-test-{}", scene.path.display());
    let named = SocketAddr::from_abstract_name(&name).unwrap();
    let named = UnixListener::bind_addr(&named).unwrap();
    let pipe = scene.path.join("home/.cargo/pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).unwrap();
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let memory = SharedMemory::new();
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let open: fn(&mut SandboxPlan) = |plan| plan.isolation.network = false;
    let attack = |name, how: String, weaken, held| (program(name, leak(how), weaken), held);
    let (tcp_address, udp_address) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
    let (socket, in_project) = (socket.display(), in_project.display());
    vec![
        attack(
            "connect to a port of this machine",
            format!("tcp={tcp_address}"),
            open,
            Box::new(tcp) as Box<dyn Send>,
        ),
        attack(
            "ask a name server, or send any other datagram",
            format!("udp={udp_address}"),
            open,
            Box::new(udp),
        ),
        attack(
            "talk to Docker or any other service by its socket",
            format!("unix={socket}"),
            uncover,
            Box::new(unix),
        ),
        attack(
            "talk to a service by a socket in the project",
            format!("unix={in_project}"),
            |plan| plan.mounts.retain(|mount| !mount.at().ends_with("service.sock")),
            Box::new(service),
        ),
        attack(
            "talk to a service by a name without a file",
            format!("abstract={name}"),
            open,
            Box::new(named),
        ),
        attack(
            "write to a named pipe of another process",
            format!("pipe={}", pipe.display()),
            |plan| {
                plan.isolation.pipes = false;
                plan.mounts.retain(|mount| !mount.at().ends_with(".cargo/pipe"));
            },
            Box::new(reader),
        ),
        attack(
            "use the shared memory of another process",
            format!("memory={}", memory.0),
            |plan| plan.isolation.ipc = false,
            Box::new(memory),
        ),
    ]
}

/// World-accessible System V shared memory, removed on drop.
struct SharedMemory(i32);

impl SharedMemory {
    #[expect(unsafe_code, reason = "there is no safe interface to System V shared memory")]
    fn new() -> SharedMemory {
        // SAFETY: takes no pointer.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o666) };
        assert!(id >= 0, "{}", std::io::Error::last_os_error());
        SharedMemory(id)
    }
}

impl Drop for SharedMemory {
    #[expect(unsafe_code, reason = "as above")]
    fn drop(&mut self) {
        // SAFETY: removal reads and writes no memory.
        unsafe {
            libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}
