//! Escapes from bubblewrap, as root and as an ordinary user. Each is repeated with its protection
//! removed: an attack that fails even then proves nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use ralph_sandbox::plan::{Mount, PathGuard, SandboxPlan};

use crate::attacker::{ATTACK, ESCAPED};
use crate::scene::{
    Attack, Check, Scene, TestBackend, as_root, as_user, network_attacks, ordinary_user, probe,
    program, tamper, uncover,
};
use crate::support::skipped;

fn unmount(plan: &mut SandboxPlan, ends: &[&str]) {
    let before = plan.mounts.len();
    plan.mounts.retain(|mount| !ends.iter().any(|end| mount.at().ends_with(end)));
    assert!(plan.mounts.len() < before, "there is no mount at {ends:?}");
}

fn empower(plan: &mut SandboxPlan) {
    plan.user = (0, 0);
    // Any Landlock rule forbids mounts and access to unconfined processes.
    plan.isolation.pipes = false;
    plan.isolation.capabilities = false;
    plan.isolation.calls = false;
}

/// Shares processes and users: the user namespace alone would stop it, too.
fn share_processes(plan: &mut SandboxPlan) {
    plan.isolation.processes = false;
    share_users(plan);
}

/// Shares processes. A process with fewer capabilities cannot slow down root's.
fn slow_down(plan: &mut SandboxPlan) {
    plan.isolation.processes = false;
    let is_administrator = !plan.kernel.is_empty();
    if is_administrator {
        share_users(plan);
    }
}

fn share_users(plan: &mut SandboxPlan) {
    plan.isolation.users = false;
    empower(plan);
}

/// Attacks on mounts. If ralph made them, bubblewrap's namespaces give no rights over them, not
/// even to their root.
const ON_MOUNTS: [&str; 2] =
    ["make what cannot be written writable", "take away what covers something"];

pub(crate) const ATTACKS: &[Attack] = &[
    tamper(
        "write outside",
        "echo mine > {root}/outside/file",
        Check::Outside(|scene| scene.read("outside/file") != "as it was"),
        uncover,
    ),
    tamper(
        "write through a link",
        "ln -s {root}/outside/file link; echo mine > link",
        Check::Outside(|scene| scene.read("outside/file") != "as it was"),
        uncover,
    ),
    probe(
        "make a secret one's own by a hard link",
        "ln {root}/home/.ssh/id_ed25519 stolen",
        uncover,
    ),
    probe("read a key", "grep -q secret {root}/home/.ssh/id_ed25519", uncover),
    probe(
        "read a key by way of /proc",
        "grep -q secret /proc/self/root{root}/home/.ssh/id_ed25519",
        uncover,
    ),
    probe(
        "read a key by way of the first process",
        "grep -q secret /proc/1/root{root}/home/.ssh/id_ed25519",
        uncover,
    ),
    probe(
        "read what cargo publishes with",
        "grep -q secret {root}/home/.cargo/credentials.toml",
        |plan| unmount(plan, &["credentials.toml"]),
    ),
    tamper(
        "change a tool",
        "echo evil > {root}/home/.cargo/bin/tool",
        Check::Contains("home/.cargo/bin/tool", "evil"),
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
    tamper(
        "make what cannot be written writable",
        "mount -o remount,rw,bind \"$PWD/.git/config\"; echo evil > .git/config",
        Check::Contains("project/.git/config", "evil"),
        empower,
    ),
    tamper(
        "take away what covers something",
        "umount \"$PWD/.git/config\"; echo evil > .git/config",
        Check::Contains("project/.git/config", "evil"),
        empower,
    ),
    probe(
        "see what others have in their environment",
        "grep -qsa 'SECRET=in the env' /proc/*/environ",
        share_processes,
    )
    .only_root(),
    probe(
        "go through another process to its files",
        "grep -qs secret /proc/{victim}/root{root}/home/.ssh/id_ed25519",
        share_processes,
    )
    .only_root(),
    probe(
        "kill a process outside",
        // A killed process does not disappear at once.
        "kill -9 {victim}",
        |plan| plan.isolation.processes = false,
    ),
    program("trace a process outside", "ptrace={victim}", share_processes).only_root(),
    program("limit the files of a process outside", "limit={victim}", |plan| {
        plan.isolation.processes = false
    }),
    program("change the priority of a process outside", "priority={victim}", slow_down),
    program("choose the processor of a process outside", "affinity={victim}", slow_down),
    program("change the scheduler of a process outside", "scheduler={victim}", slow_down),
    program("change the disk priority of a process outside", "disk={victim}", slow_down),
    tamper(
        "plant an MCP server",
        "echo '{}' > .mcp.json",
        Check::Exists("project/.mcp.json"),
        |plan| plan.guards.clear(),
    ),
    tamper(
        "change the configuration of codex",
        "echo evil > .codex/config.toml",
        Check::Contains("project/.codex/config.toml", "evil"),
        |plan| unmount(plan, &[".codex/config.toml"]),
    ),
    tamper(
        "plant a hook",
        "echo evil > .git/hooks/pre-commit",
        Check::Exists("project/.git/hooks/pre-commit"),
        |plan| unmount(plan, &[".git/hooks"]),
    ),
    tamper(
        "change what git executes",
        "printf '[core]\\n\\tfsmonitor = evil\\n' > .git/config",
        Check::Contains("project/.git/config", "evil"),
        |plan| unmount(plan, &[".git/config"]),
    ),
    tamper(
        "put another repository in the place of this one",
        "mv .git old && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
        Check::Exists("project/.git/hooks/pre-commit"),
        |plan| unmount(plan, &[".git"]),
    ),
    tamper(
        "put other submodules in the place of these",
        "cd .git && mv modules old; mkdir -p modules/a/sub && echo evil > modules/a/sub/config",
        Check::Contains("project/.git/modules/a/sub/config", "evil"),
        |plan| {
            unmount(plan, &[".git/modules", "modules/a", "modules/a/sub", "modules/a/sub/config"])
        },
    ),
    tamper(
        "make a repository where there is none",
        "mkdir .git && echo evil > .git/config && chmod 555 . .git",
        Check::Exists("project/.git"),
        |plan| plan.guards.clear(),
    )
    .bare(),
    tamper(
        "make the project itself a repository",
        "mkdir objects refs && echo evil > config && echo 'ref: refs/heads/x' > HEAD",
        Check::Exists("project/HEAD"),
        |plan| plan.guards.clear(),
    )
    .bare(),
    tamper(
        "point a repository at another one",
        "mkdir -p evil && echo ../evil > .git/commondir",
        Check::Exists("project/.git/commondir"),
        |plan| plan.guards.clear(),
    ),
    tamper(
        "change ralph's settings",
        "echo '{\"guardrails\":[]}' > .ralph/settings.json",
        Check::Contains("project/.ralph/settings.json", "guardrails"),
        |plan| unmount(plan, &[".ralph/settings.json"]),
    ),
    tamper(
        "make settings for this machine",
        "echo '{}' > .ralph/settings.local.json",
        Check::Exists("project/.ralph/settings.local.json"),
        |plan| plan.guards.clear(),
    ),
    tamper(
        "make settings where nothing can be renamed, and all names are taken",
        "cd .ralph && echo '{}' > settings.local.json && i=0 && n=settings.local.json.from-sandbox\n\
             : > $n; while [ $i -lt 1000 ]; do i=$((i+1)); : > $n.$i; done; chmod 555 .",
        Check::Exists("project/.ralph/settings.local.json"),
        |plan| plan.guards.clear(),
    ),
    tamper(
        "make a directory of settings by a link",
        "mkdir cfg && echo '{}' > cfg/settings.json && ln -s cfg .claude && ln -s cfg .ralph",
        Check::Outside(|scene| {
            let is_there = |name: &str| scene.path.join("project").join(name).exists();
            is_there(".claude/settings.json") || is_there(".ralph/settings.json")
        }),
        |plan| plan.guards.clear(),
    )
    .bare(),
    tamper(
        "change what is on record",
        "echo forged > {root}/home/.ralph/projects/p/runs/1/events.jsonl",
        Check::Contains("home/.ralph/projects/p/runs/1/events.jsonl", "forged"),
        uncover,
    ),
    tamper(
        "put another directory in the place of ralph's",
        "mv .ralph old && mkdir .ralph && echo forged > .ralph/settings.json",
        Check::Contains("project/.ralph/settings.json", "forged"),
        |plan| unmount(plan, &[".ralph"]),
    ),
    tamper(
        "change the settings of Claude Code",
        "echo '{\"hooks\":{}}' > .claude/settings.json",
        Check::Contains("project/.claude/settings.json", "hooks"),
        |plan| unmount(plan, &[".claude/settings.json"]),
    ),
    probe("read a file that was open already", "grep -q secret <&9", |plan| {
        plan.isolation.descriptors = false
    }),
    probe("have a user namespace of one's own", "unshare --user true", |plan| {
        plan.isolation.calls = false
    }),
    program("use the user's keyring", "keyring", |plan| {
        plan.isolation.calls = false;
    }),
    program("see what passes on the network", "packet", share_users).only_root(),
    program("give the kernel orders", "kernel", |plan| {
        plan.kernel.clear();
    })
    .only_root(),
    tamper(
        "leave a program with its owner's rights",
        "cp /bin/true mine && chmod 4755 mine",
        Check::Outside(|scene| {
            let mine = scene.path.join("project/mine").metadata();
            mine.is_ok_and(|mine| mine.permissions().mode() & 0o4000 != 0)
        }),
        |plan| plan.isolation.calls = false,
    ),
    probe("read the passwords", "grep -q root: /etc/shadow", |plan| unmount(plan, &["etc/shadow"]))
        .only_root(),
];

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
    // An ordinary user may write only about its own namespaces.
    let applies = |attack: &&Attack| user == 0 || attack.name != "give the kernel orders";
    for attack in ATTACKS.iter().chain(network.iter().map(|(attack, _)| attack)).filter(applies) {
        scene.check_attack(TestBackend::BwrapAlone, attack, attack.weaken);
        if !ON_MOUNTS.contains(&attack.name) {
            scene.check_attack(TestBackend::Bwrap, attack, attack.weaken);
            continue;
        }
        let mut powerful = scene.plan();
        empower(&mut powerful);
        assert!(!scene.escapes(TestBackend::Bwrap, &powerful, attack), "{user}: {}", attack.name);
        if user == 0 {
            scene.check_attack(TestBackend::Bwrap, attack, share_users);
        }
    }
}

#[test]
fn escapes_fail_as_administrator() {
    as_root(try_everything);
}

#[test]
fn escapes_fail_as_ordinary_user() {
    try_everything(ordinary_user());
}

#[test]
fn plan_lists_guarded_paths() {
    let scene = Scene::new(rustix::process::getuid().as_raw());
    let guarded: Vec<PathBuf> =
        scene.plan().guards.into_iter().map(|PathGuard { path, .. }| path).collect();
    for path in [".git/commondir", ".ralph/settings.local.json", ".claude/hooks"] {
        assert!(guarded.contains(&scene.path.join("project").join(path)), "{path}: {guarded:?}");
    }
}

#[test]
fn typing_into_terminal_is_blocked() {
    let allowed = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    let me = rustix::process::getuid().as_raw();
    let user = ordinary_user();
    let scene = Scene::new(user);
    let types = |cage: TestBackend, plan: &SandboxPlan| {
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
        let mut line = as_user(user, "setsid");
        line.args(["--ctty", "--wait"]).args(scene.line(cage, plan, program.as_os_str(), &args));
        let output = line
            .current_dir(scene.path.join("project"))
            .env(ATTACK, "type")
            .stdin(side)
            .output()
            .unwrap();
        drop(terminal);
        output.status.code() == Some(ESCAPED)
    };
    let plan = scene.plan();
    assert!(!types(TestBackend::Bwrap, &plan));
    let has_landlock = TestBackend::Landlock.works_for(&scene);
    assert!(!has_landlock || !types(TestBackend::Landlock, &plan));
    let mut without_session = plan.clone();
    without_session.isolation.session = false;
    assert!(!types(TestBackend::Bwrap, &without_session), "either wall is enough");
    let mut without_filter = plan.clone();
    without_filter.isolation.calls = false;
    assert!(!types(TestBackend::Bwrap, &without_filter), "either wall is enough");
    without_filter.isolation.session = false;
    if allowed.trim() == "1" {
        assert!(types(TestBackend::Bwrap, &without_filter), "it proves nothing");
        let only_filter = types(TestBackend::Landlock, &without_filter);
        assert!(!has_landlock || only_filter, "it proves nothing");
    } else {
        skipped("typing into terminals is impossible with this kernel");
    }
}

/// A read-only mount does not stop writes to a named pipe. No process has this one open, so it is
/// not hidden.
#[test]
fn named_pipe_outside_writable_places_cannot_be_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let pipe = dir.path().canonicalize().unwrap().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).unwrap();
    if ["/home", "/root", "/tmp", "/var/tmp"].iter().any(|hidden| pipe.starts_with(hidden)) {
        return skipped("what is built here is hidden in a sandbox");
    }
    let scene = Scene::new(ordinary_user());
    for cage in [TestBackend::Bwrap, TestBackend::BwrapAlone, TestBackend::Landlock] {
        if !cage.works_for(&scene) {
            skipped(&format!("{cage:?} does not work here"));
            continue;
        }
        let how: &'static str = Box::leak(format!("pipe={}", pipe.display()).into_boxed_str());
        let attack = program("write to a pipe", how, |_| {});
        assert!(!scene.escapes(cage, &scene.plan(), &attack), "{cage:?}");
        let mut weak = scene.plan();
        if cage == TestBackend::Landlock {
            weak.isolation.files = false;
        } else {
            weak.isolation.pipes = false;
        }
        assert!(scene.escapes(cage, &weak, &attack), "{cage:?}: it proves nothing");
    }
}
