mod interpreter;

use std::path::{Path, PathBuf};

use self::interpreter::{Rules, Target};
use super::*;
use crate::plan::tests::Paper;
use crate::plan::{HostSystem, PlanInputs, build_plan};
use ralph_process::file_names::NameRule;
use ralph_process::trust::AgentWritable;

const PROXY: u16 = 50_123;

/// A Mac, with a home that is not below the project.
fn machine(home: &str, project: &str) -> Vec<String> {
    let mut lines: Vec<String> = [
        "/tmp -> private/tmp",
        "/var -> private/var",
        "/etc -> private/etc",
        "/private/tmp/",
        "/private/var/tmp/",
        "/private/var/folders/xy/T/",
        "/private/var/run/docker.sock",
        "/private/var/log/",
        "/private/etc/hosts",
        "/private/etc/sudoers",
        "/private/etc/ssh/ssh_host_rsa_key",
        "/Library/Keychains/System.keychain",
        "/Users/other/",
        "/Volumes/Backup/",
        "/usr/bin/git",
        "/opt/homebrew/bin/node",
    ]
    .map(str::to_owned)
    .to_vec();
    for below in [
        ".ssh/id",
        ".cargo/bin/cargo",
        ".cargo/credentials.toml",
        ".cargo/registry/",
        ".npm/",
        "Library/Keychains/login.keychain-db",
        "Library/Caches/go-build/",
        ".ralph/sandboxes/s/",
    ] {
        lines.push(format!("{home}/{below}"));
    }
    for below in [
        ".git/HEAD",
        ".git/config",
        ".git/hooks/",
        ".claude/settings.json",
        ".ralph/config",
        "src/",
    ] {
        lines.push(format!("{project}/{below}"));
    }
    lines
}

struct Scene {
    home: String,
    project: String,
    more: Vec<String>,
    inputs: PlanInputs,
}

impl Scene {
    fn new(home: &str, project: &str) -> Scene {
        let inputs = PlanInputs {
            project: project.into(),
            home: Some(home.into()),
            ralph_home: format!("{home}/.ralph").into(),
            scratch: format!("{home}/.ralph/sandboxes/s").into(),
            ralph: "/opt/homebrew/bin/ralph".into(),
            adapter: "claude",
            env: vec![("PATH".into(), "/usr/bin:/opt/homebrew/bin".into())],
            network: NetworkMode::Proxy { ports: vec![5432] },
            user: (501, 20),
            system: HostSystem::MacOs,
            agent_writable: AgentWritable::default().with_names(NameRule::Folded),
            ..PlanInputs::default()
        };
        Scene { home: home.into(), project: project.into(), more: Vec::new(), inputs }
    }

    fn with(mut self, more: &[&str]) -> Scene {
        self.more.extend(more.iter().map(|line| (*line).to_owned()));
        self
    }

    fn plan(&self) -> SandboxPlan {
        let lines = machine(&self.home, &self.project);
        let lines: Vec<&str> = lines.iter().chain(&self.more).map(String::as_str).collect();
        build_plan(&self.inputs, &Paper::new(&lines).with_names(NameRule::Folded)).unwrap()
    }

    fn profile(&self) -> SeatbeltProfile {
        let scratch = &self.inputs.scratch;
        render(&self.plan(), scratch, &scratch.join("bin"), Some(PROXY))
    }

    /// Paths below the project are relative, those below the home begin with `~/`.
    fn path(&self, path: &str) -> String {
        match path.strip_prefix("~/") {
            Some(below) => format!("{}/{below}", self.home),
            None if path == "~" => self.home.clone(),
            None if path.starts_with('/') => path.to_owned(),
            None => Path::new(&self.project).join(path).to_str().unwrap().to_owned(),
        }
    }
}

fn plain() -> Scene {
    Scene::new("/Users/me", "/Users/me/src/shop")
}

const READS: &str = "file-read-data";
const STATS: &str = "file-read-metadata";
const WRITES: &str = "file-write-data";
const CREATES: &str = "file-write-create";
const RENAMES: &str = "file-write-unlink";
const RUNS: &str = "process-exec";

/// Operation, path, and whether it is allowed, for every project in a home.
const FILES: &[(&str, &str, bool)] = &[
    // The project.
    (READS, "src/main.rs", true),
    (WRITES, "src/main.rs", true),
    (CREATES, "new", true),
    (RENAMES, "src", true),
    (RUNS, "src/test.sh", true),
    // What is executed outside.
    (READS, ".git/config", true),
    (WRITES, ".git/config", false),
    (RENAMES, ".git/config", false),
    (CREATES, ".git/hooks/pre-commit", false),
    (RENAMES, ".git/hooks", false),
    (RENAMES, ".git", false),
    (CREATES, ".git/index.lock", true),
    (RENAMES, ".git/index.lock", true),
    (WRITES, ".claude/settings.json", false),
    (RENAMES, ".claude", false),
    (CREATES, ".claude/agents", true),
    (CREATES, ".mcp.json", false),
    (CREATES, ".opencode/plugin.js", false),
    (CREATES, ".hg", false),
    (WRITES, ".ralph/config", false),
    ("file-write-setugid", "src/main.rs", false),
    // The home.
    (READS, "~", false),
    (STATS, "~", true),
    (READS, "~/.ssh/id", false),
    (STATS, "~/.ssh", false),
    (CREATES, "~/.zshrc", false),
    (RUNS, "~/bin/x", false),
    (READS, "~/Library/Keychains/login.keychain-db", false),
    (READS, "~/.cargo/bin/cargo", true),
    (RUNS, "~/.cargo/bin/cargo", true),
    (WRITES, "~/.cargo/bin/cargo", false),
    (READS, "~/.cargo/credentials.toml", false),
    (CREATES, "~/.cargo/registry/x", true),
    (CREATES, "~/.npm/x", true),
    (RENAMES, "~/.npm", false),
    (CREATES, "~/Library/Caches/go-build/x", true),
    // ralph's own files.
    (READS, "~/.ralph/projects/x", false),
    (READS, "~/.ralph/sandboxes/s/sandbox.json", false),
    (CREATES, "~/.ralph/sandboxes/s/home/x", true),
    (CREATES, "~/.ralph/sandboxes/s/tmp/x", true),
    (READS, "~/.ralph/sandboxes/s/bin/ralph", true),
    (CREATES, "~/.ralph/sandboxes/s/bin/git", false),
    (READS, "~/.ralph/sandboxes/other/home/x", false),
    // The system.
    (READS, "/", true),
    (READS, "/usr/bin/git", true),
    (RUNS, "/usr/bin/git", true),
    (WRITES, "/usr/bin/git", false),
    (READS, "/opt/homebrew/bin/ralph", true),
    (READS, "/private/etc/hosts", true),
    (READS, "/private/etc/sudoers", false),
    (READS, "/private/etc/ssh/ssh_host_rsa_key", false),
    (CREATES, "/private/etc/x", false),
    (READS, "/Library/Keychains/System.keychain", false),
    (READS, "/Users/other/x", false),
    (READS, "/Volumes/Backup/x", false),
    (READS, "/private/tmp/x", false),
    (CREATES, "/private/tmp/x", false),
    (CREATES, "/private/var/tmp/x", false),
    (READS, "/private/var/folders/xy/T/x", false),
    (READS, "/private/var/run/docker.sock", false),
    ("network-outbound", "/private/var/run/docker.sock", false),
    ("network-outbound", "src/dev.sock", false),
    ("network-bind", "~/.ralph/sandboxes/s/tmp/own.sock", true),
    ("network-outbound", "~/.ralph/sandboxes/s/tmp/own.sock", true),
    // Devices.
    (READS, "/dev/urandom", true),
    (WRITES, "/dev/null", true),
    (STATS, "/dev/disk0", true),
    (READS, "/dev/disk0", false),
    (READS, "/dev/ttys003", false),
    (WRITES, "/dev/ttys003", false),
    ("file-ioctl", "/dev/ttys003", true),
    ("file-ioctl", "/dev/disk0", false),
];

const OTHERS: &[(&str, Target<'static>, bool)] = &[
    ("network-outbound", Target::Remote("localhost:50123"), true),
    ("network-outbound", Target::Remote("localhost:5432"), true),
    ("network-outbound", Target::Remote("localhost:22"), false),
    ("network-outbound", Target::Remote("localhost:501234"), false),
    ("network-outbound", Target::Remote("192.0.2.1:443"), false),
    ("network-bind", Target::Local("localhost:8080"), true),
    ("network-bind", Target::Local("*:8080"), false),
    ("network-inbound", Target::Local("localhost:8080"), true),
    ("mach-lookup", Target::Name("com.apple.trustd.agent"), true),
    ("mach-lookup", Target::Name("com.apple.system.opendirectoryd.libinfo"), true),
    ("mach-lookup", Target::Name("com.apple.SecurityServer"), false),
    ("mach-lookup", Target::Name("com.apple.securityd.xpc"), false),
    ("mach-lookup", Target::Name("com.apple.coreservices.launchservicesd"), false),
    ("mach-lookup", Target::Name("com.apple.cfprefsd.agent"), false),
    ("sysctl-read", Target::Name("hw.ncpu"), true),
    ("sysctl-read", Target::Name("kern.procargs2"), false),
    ("sysctl-write", Target::Name("kern.hostname"), false),
    ("signal", Target::SameSandbox, true),
    ("signal", Target::Nothing, false),
    ("process-info-pidinfo", Target::Nothing, false),
    ("appleevent-send", Target::Nothing, false),
    ("job-creation", Target::Nothing, false),
    // Other ways to give a file a name.
    ("file-link", Target::Nothing, false),
    ("file-clone", Target::Nothing, false),
    ("file-swap", Target::Nothing, false),
];

/// What a profile decides differently than the tables say.
fn mistakes(scene: &Scene, rules: &Rules) -> Vec<String> {
    let files = FILES.iter().filter_map(|(operation, path, expected)| {
        let path = scene.path(path);
        let allowed = rules.allows(operation, Target::Path(&path));
        (allowed != *expected).then(|| format!("{operation} {path}: {allowed}"))
    });
    let others = OTHERS.iter().filter_map(|(operation, target, expected)| {
        let allowed = rules.allows(operation, *target);
        (allowed != *expected).then(|| format!("{operation} {target:?}: {allowed}"))
    });
    files.chain(others).collect()
}

fn no_mistakes() -> Vec<String> {
    Vec::new()
}

#[test]
fn profile_allows_what_plan_allows() {
    for scene in [
        plain(),
        Scene::new("/Users/me", "/Users/me/Library/Mobile Documents/com~apple~CloudDocs/shop"),
        Scene::new("/Users/me", "/Users/me/a b/it's \"so\" (or) not"),
        Scene::new("/Users/me", "/Users/me/colon: é 한글 \\ end"),
        Scene::new("/Volumes/Data/me", "/Volumes/Data/me/shop"),
        Scene::new("/Users/me", "/Volumes/Work/shop"),
        Scene::new("/Users/me", "/private/tmp/shop"),
        Scene::new("/Users/me", "/private/var/folders/xy/T/shop"),
    ] {
        let rules = Rules::parse(&scene.profile());
        assert_eq!(mistakes(&scene, &rules), no_mistakes(), "{}", scene.project);
    }
}

#[test]
fn wrong_order_of_rules_is_a_mistake() {
    let scene = plain();
    let rules = Rules::parse(&scene.profile());
    assert_ne!(mistakes(&scene, &rules.reversed()), no_mistakes());
    // Every rule that hides, shows or protects something of the table has its place.
    let wrong =
        (1..rules.count()).filter(|nth| mistakes(&scene, &rules.with_last(*nth)) != no_mistakes());
    assert!(wrong.count() > 10);
    let profile = scene.profile();
    for (text, path) in [
        ("(allow file-read* file-write* process-exec (subpath", "/Users/me/src/shop"),
        ("(deny file-read* file-write* process-exec (subpath", "/Users/me"),
        ("(deny file-read* file-write* process-exec (subpath", "/Users"),
    ] {
        let param = profile.params.iter().position(|known| known == Path::new(path)).unwrap();
        let rule = format!("{text} (param \"P{param}\")))\n");
        assert!(profile.text.contains(&rule), "{rule}");
        let moved = profile.text.replace(&rule, "") + &rule;
        let rules = Rules::parse(&SeatbeltProfile { text: moved, ..profile.clone() });
        assert_ne!(mistakes(&scene, &rules), no_mistakes(), "{path}");
    }
}

#[test]
fn network_rules_follow_settings() {
    let rules = |network: NetworkMode| {
        let mut scene = plain();
        scene.inputs.network = network;
        let scratch = &scene.inputs.scratch;
        Rules::parse(&render(&scene.plan(), scratch, &scratch.join("bin"), None))
    };
    let (none, full) = (rules(NetworkMode::None), rules(NetworkMode::Full));
    for (operation, target) in [
        ("network-outbound", Target::Remote("localhost:50123")),
        ("network-outbound", Target::Remote("192.0.2.1:443")),
        ("network-bind", Target::Local("localhost:80")),
        ("mach-lookup", Target::Name("com.apple.SystemConfiguration.configd")),
    ] {
        assert!(!none.allows(operation, target), "{operation} {target:?}");
        assert!(full.allows(operation, target), "{operation} {target:?}");
    }
    for (path, expected) in [
        ("/private/var/run/docker.sock", false),
        ("/private/var/run/mDNSResponder", true),
        ("/private/tmp/com.apple.launchd.x/Listeners", false),
        ("/Users/me/.docker/run/docker.sock", false),
        ("/Users/me/.ralph/sandboxes/s/tmp/own.sock", true),
    ] {
        assert_eq!(full.allows("network-outbound", Target::Path(path)), expected, "{path}");
    }
}

#[test]
fn paths_are_never_in_profile_text() {
    let scene = Scene::new("/Users/me", "/Users/me/a b/it's \"so\" (or) not é");
    let profile = scene.profile();
    for path in &profile.params {
        assert!(path.is_absolute());
    }
    let paths: Vec<&str> = profile.text.lines().filter(|line| line.contains("/Users")).collect();
    assert_eq!(paths, [""; 0]);
    let args = profile.arguments();
    assert_eq!(args[0], "-p");
    assert!(args.contains(&"P0=/Users".into()), "{args:?}");
    let project = profile.params.iter().position(|path| *path == scene.inputs.project).unwrap();
    assert_eq!(args[2 + 2 * project], "-D");
    let expected = format!("P{project}=/Users/me/a b/it's \"so\" (or) not é");
    assert_eq!(args[3 + 2 * project], *expected);
}

#[test]
fn links_of_system_are_resolved() {
    for (path, expected) in [
        ("/tmp/x", "/private/tmp/x"),
        ("/var/run", "/private/var/run"),
        ("/etc", "/private/etc"),
        ("/private/tmp", "/private/tmp"),
        ("/etcetera", "/etcetera"),
        ("/Users/me/tmp", "/Users/me/tmp"),
    ] {
        assert_eq!(without_system_links(Path::new(path)), PathBuf::from(expected));
    }
}

/// `rename` needs `file-write-create` for the new name, and so does `symlink`.
#[test]
fn missing_protected_paths_cannot_be_created_in_any_way() {
    let mut scene = plain();
    scene.inputs.project = "/Users/me/src/new".into();
    scene.project = "/Users/me/src/new".into();
    let fresh = ["/Users/me/src/new/.git/HEAD", "/Users/me/src/new/docs/", "/Users/me/.ssh/id"];
    let plan = build_plan(&scene.inputs, &Paper::new(&fresh).with_names(NameRule::Folded)).unwrap();
    let scratch = &scene.inputs.scratch;
    let rules = Rules::parse(&render(&plan, scratch, &scratch.join("bin"), Some(PROXY)));
    let creates = |target: Target<'_>| rules.allows(CREATES, target);
    for name in [".git/hooks", ".git/config", ".mcp.json", ".hg", ".codex/hooks", ".github/hooks"] {
        let path = scene.path(name);
        assert!(!creates(Target::Path(&path)) && !creates(Target::Link(&path)), "{name}");
        let below = scene.path(&format!("{name}/below"));
        assert!(!creates(Target::Path(&below)), "{below}");
    }
    // Their parents may be made, but no links to a directory that has them already.
    for name in [".codex", ".github", ".claude", ".ralph"] {
        let path = scene.path(name);
        assert!(creates(Target::Path(&path)) && !creates(Target::Link(&path)), "{name}");
    }
    assert!(!creates(Target::Link(&scene.path(".git"))) && creates(Target::Link(&scene.path("a"))));
}

/// Seatbelt compares the names that the disk has.
#[test]
fn protected_names_in_other_case_are_protected() {
    let scene = plain().with(&[
        "/Users/me/src/shop/.Codex/CONFIG.toml",
        "/Users/me/src/shop/.gemini/Settings.Extra.JSON",
        "/Users/me/src/shop/.QWEN/",
    ]);
    let rules = Rules::parse(&scene.profile());
    for (operation, path, expected) in [
        (WRITES, ".Codex/CONFIG.toml", false),
        (RENAMES, ".Codex", false),
        (CREATES, ".Codex/notes", true),
        (WRITES, ".gemini/Settings.Extra.JSON", false),
        (CREATES, ".QWEN/notes", true),
    ] {
        let path = scene.path(path);
        assert_eq!(rules.allows(operation, Target::Path(&path)), expected, "{operation} {path}");
    }
}

#[test]
fn paths_in_other_case_show_what_is_there() {
    let mut scene = plain().with(&[
        "/Users/me/go/bin/tool",
        "/Users/me/cafe\u{301}/bin/tool",
        "/Users/me/src/shop/bin/tool",
    ]);
    let path = "/usr/bin:/users/ME/GO/bin:/Users/me/caf\u{e9}/bin:/Users/me/SRC/shop/bin";
    scene.inputs.env = vec![("PATH".into(), path.into())];
    scene.inputs.readable = vec!["~/.CARGO/bin".into()];
    assert_eq!(scene.plan().notes, [""; 0]);
    let rules = Rules::parse(&scene.profile());
    for (path, expected) in [
        ("/Users/me/go/bin/tool", true),
        ("/Users/me/cafe\u{301}/bin/tool", true),
        ("/Users/me/.ssh/id", false),
    ] {
        assert_eq!(rules.allows(READS, Target::Path(path)), expected, "{path}");
    }
    assert_eq!(mistakes(&scene, &rules), no_mistakes());
}

#[test]
fn link_to_secret_in_other_case_gets_no_advice() {
    let scene =
        plain().with(&["/Users/me/.SSH2 -> .ssh", "/Users/me/src/shop/bin -> /Users/me/.SSH"]);
    let mut scene = scene;
    scene.inputs.env = vec![("PATH".into(), "/Users/me/src/shop/bin".into())];
    let plan = scene.plan();
    let skipped = plan.notes.iter().find(|note| note.contains("points out")).unwrap();
    assert!(skipped.contains("which contains secrets"), "{skipped}");
}

#[test]
fn system_directories_are_no_projects() {
    for project in ["/", "/private/tmp", "/Users", "/Volumes", "/Users/me"] {
        let mut scene = plain();
        scene.inputs.project = project.into();
        let lines = machine(&scene.home, &scene.project);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(build_plan(&scene.inputs, &Paper::new(&lines)).is_err(), "{project}");
    }
}

fn check_golden(name: &str, profile: &SeatbeltProfile) {
    let rules = profile.text.strip_prefix(BASE).unwrap();
    let params: Vec<String> = profile
        .params
        .iter()
        .enumerate()
        .map(|(nth, path)| format!("P{nth}={}\n", path.display()))
        .collect();
    let text = format!("{}\n; Parameters.\n{}", rules.trim_start(), params.concat());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seatbelt/testdata").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, golden, "{}", file.display());
}

#[test]
fn golden_profiles_of_paths() {
    check_golden("plain.txt", &plain().profile());
    let odd = Scene::new("/Users/me", "/Users/me/a b/it's \"so\" (or): é");
    check_golden("odd-paths.txt", &odd.profile());
    let worktree = Scene {
        more: vec![
            "/Users/me/src/shop/.git/worktrees/fix/commondir = ../..".into(),
            "/Users/me/src/shop/.git/worktrees/fix/gitdir = /Users/me/src/fix/.git".into(),
            "/Users/me/src/fix/.git = gitdir: /Users/me/src/shop/.git/worktrees/fix".into(),
        ],
        ..plain()
    };
    let mut worktree = worktree;
    worktree.inputs.project = "/Users/me/src/fix".into();
    let profile = worktree.profile();
    check_golden("worktree.txt", &profile);
    let rules = Rules::parse(&profile);
    let git = "/Users/me/src/shop/.git";
    for (operation, below, expected) in [
        (CREATES, "objects/x", true),
        (CREATES, "worktrees/fix/index.lock", true),
        (WRITES, "worktrees/fix/gitdir", false),
        (WRITES, "worktrees/fix/commondir", false),
        (CREATES, "worktrees/other/index", false),
        (CREATES, "hooks/pre-commit", false),
        (WRITES, "config", false),
        (RENAMES, "worktrees/fix", false),
    ] {
        let path = format!("{git}/{below}");
        assert_eq!(rules.allows(operation, Target::Path(&path)), expected, "{operation} {path}");
    }
    assert!(!rules.allows(READS, Target::Path("/Users/me/src/shop/src/main.rs")));
}

#[test]
fn golden_profiles_of_agents() {
    for adapter in ralph_agents::all() {
        let profile = adapter.profile();
        let files = ralph_agents::all().iter().flat_map(|adapter| {
            adapter.profile().homes.iter().flat_map(|home| {
                let dir = Path::new("/Users/me").join(home.dir.path);
                home.entries.iter().map(move |(name, _)| dir.join(name).display().to_string())
            })
        });
        let mut scene = Scene { more: files.collect(), ..plain() };
        scene.inputs.adapter = profile.name;
        let rendered = scene.profile();
        check_golden(&format!("agent-{}.txt", profile.name), &rendered);
        let rules = Rules::parse(&rendered);
        assert_eq!(mistakes(&scene, &rules), no_mistakes(), "{}", profile.name);
        for other in ralph_agents::all() {
            for home in other.profile().homes {
                for (name, exposure) in home.entries {
                    let path = Path::new("/Users/me").join(home.dir.path).join(name);
                    let path = path.to_str().unwrap();
                    let is_own = other.name() == profile.name
                        && *exposure != ralph_agents::profile::FileExposure::Copy;
                    assert_eq!(rules.allows(READS, Target::Path(path)), is_own, "{path}");
                    let writes = rules.allows(WRITES, Target::Path(path));
                    let is_login = *exposure == ralph_agents::profile::FileExposure::Credentials;
                    assert_eq!(writes, is_own && is_login, "{path}");
                }
            }
        }
    }
}
