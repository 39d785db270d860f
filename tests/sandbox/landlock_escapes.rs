//! Escapes from Landlock: those it stops, tried as in `escapes.rs`, and those it documents as
//! possible.

use std::net::TcpListener;

use ralph_sandbox::plan::SandboxPlan;

use crate::escapes::ATTACKS;
use crate::scene::{
    Attack, Scene, TestBackend, as_root, network_attacks, ordinary_user, probe, program,
};
use crate::support::{Project, skipped};

type Weaken = fn(&mut SandboxPlan);

fn files(plan: &mut SandboxPlan) {
    plan.isolation.files = false;
}

fn calls(plan: &mut SandboxPlan) {
    plan.isolation.calls = false;
}

/// A process with fewer capabilities cannot slow down others either.
fn calls_and_capabilities(plan: &mut SandboxPlan) {
    plan.isolation.calls = false;
    plan.isolation.capabilities = false;
}

/// Removes everything that protects other processes. Any Landlock rule, and fewer capabilities,
/// forbid access to unconfined processes.
fn processes(plan: &mut SandboxPlan) {
    plan.isolation.files = false;
    plan.isolation.network = false;
    plan.isolation.ipc = false;
    plan.isolation.processes = false;
    plan.isolation.capabilities = false;
}

/// What it stops, and the protection to remove.
const STOPPED: &[(&str, Weaken)] = &[
    ("write outside", files),
    ("write through a link", files),
    ("make a secret one's own by a hard link", files),
    ("read a key", files),
    ("read a key by way of /proc", files),
    ("read what cargo publishes with", files),
    ("change a tool", files),
    ("see what others have in their environment", processes),
    ("go through another process to its files", processes),
    ("kill a process outside", |plan| plan.isolation.processes = false),
    ("trace a process outside", processes),
    ("limit the files of a process outside", calls),
    ("change the priority of a process outside", calls_and_capabilities),
    ("choose the processor of a process outside", calls_and_capabilities),
    ("change the scheduler of a process outside", calls_and_capabilities),
    ("change the disk priority of a process outside", calls_and_capabilities),
    ("plant an MCP server", |plan| plan.guards.clear()),
    ("write to a named pipe of another process", files),
    ("use the shared memory of another process", calls),
    ("read a file that was open already", |plan| plan.isolation.descriptors = false),
    ("have a user namespace of one's own", calls),
    ("use the user's keyring", calls),
    ("see what passes on the network", calls_and_capabilities),
    ("read the passwords", files),
    ("connect to a port of this machine", |plan| plan.isolation.network = false),
    ("ask a name server, or send any other datagram", calls),
    ("talk to Docker or any other service by its socket", calls),
    ("talk to a service by a name without a file", |plan| {
        plan.isolation.calls = false;
        plan.isolation.ipc = false;
    }),
];

/// What it cannot stop, and the text that says so.
const NOT_STOPPED: &[(&str, &str)] = &[
    ("plant a hook", "change files that git and Claude Code execute in the project"),
    ("change what git executes", "change files that git and Claude Code execute in the project"),
    (
        "change the settings of Claude Code",
        "change files that git and Claude Code execute in the project",
    ),
    ("see which files there are", "see names, sizes and times of files outside"),
    ("see who else there is", "and other processes"),
    ("change the mode of a file", "change modes, times and attributes of files outside"),
    ("listen on every address", "servers that the agent starts can be reached from the network"),
];

const LOOKS: &[Attack] = &[
    probe("see which files there are", "test -s {root}/home/.ssh/id_ed25519", files),
    probe("see who else there is", "test -d /proc/{victim}", processes),
    probe("change the mode of a file", "chmod 644 {root}/home/.ssh/id_ed25519", files),
    program("listen on every address", "listen", |_| {}),
];

fn try_everything(user: u32) {
    let me = rustix::process::getuid().as_raw();
    if me != 0 && me != user {
        return skipped("escapes as another user need the administrator");
    }
    let scene = Scene::new(user);
    let project = Project::new();
    let check = project.ralph(["sandbox", "check"]).run().stdout;
    let missing = ["connections are not restricted", "send signals to other processes"];
    if !TestBackend::Landlock.works_for(&scene) || missing.iter().any(|limit| check.contains(limit))
    {
        return skipped("Landlock does not work here, or not with connections and signals");
    }
    let network = network_attacks(&scene);
    let all = || ATTACKS.iter().chain(LOOKS).chain(network.iter().map(|(attack, _)| attack));
    let find = |name: &str| all().find(|attack| attack.name == name).unwrap();
    for (name, weaken) in STOPPED {
        scene.check_attack(TestBackend::Landlock, find(name), *weaken);
    }
    for (name, warning) in NOT_STOPPED {
        let scene = Scene::new(user);
        let escapes = scene.escapes(TestBackend::Landlock, &scene.plan(), find(name));
        assert!(escapes, "user {user}: {name} is impossible, which is more than it says");
        assert!(check.contains(warning), "{warning}: {check}");
    }
}

#[test]
fn landlock_escapes_fail_as_administrator() {
    as_root(try_everything);
}

#[test]
fn landlock_escapes_fail_as_ordinary_user() {
    try_everything(ordinary_user());
}

/// Access to one terminal would be access to all, and to passwords typed there.
#[test]
fn landlock_blocks_terminals_of_user() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let project = Project::new();
    if !project.ralph(["sandbox", "check"]).run().stdout.contains("ok      landlock") {
        return skipped("Landlock does not work here");
    }
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let script = format!("(: >> {name}) && touch written; (: < {name}) && touch read; touch tried");
    let tried = || {
        ["tried", "written", "read"]
            .map(|name| std::fs::remove_file(project.path().join(name)).is_ok())
    };
    project.command("sh").args(["-c", &script]).status().unwrap();
    assert_eq!(tried(), [true; 3], "it proves nothing");
    project.ralph(["sandbox", "shell", "--sandbox=landlock", "--", "sh", "-c", &script]).run();
    assert_eq!(tried(), [true, false, false]);
}

/// Landlock confines ports, not addresses.
#[test]
fn landlock_allowed_port_is_open_at_every_address_known_gap() {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for (backend, reached) in [("bwrap", false), ("landlock", true)] {
        let project = Project::new();
        let domains = [format!("localhost:{port}")];
        project.settings(&serde_json::json!({"sandbox": {"allowedDomains": domains}}));
        let check = project.ralph(["sandbox", "check"]).run().stdout;
        if !check.contains(&format!("ok      {backend}"))
            || check.contains("connections are not restricted")
        {
            skipped(&format!("{backend} does not work here"));
            continue;
        }
        let script = format!("exec 3<> /dev/tcp/127.0.0.2/{port} && touch reached; touch tried");
        let sandbox = format!("--sandbox={backend}");
        project.ralph(["sandbox", "shell", &sandbox, "--", "bash", "-c", &script]).run();
        assert!(project.has("tried"), "{backend}");
        assert_eq!(project.has("reached"), reached, "{backend}");
        let warning = "local ports in allowedDomains can be reached at every address";
        assert!(check.contains(warning), "{check}");
    }
}
