use std::collections::BTreeMap;
use std::path::Component;

use super::*;

/// A machine on paper: directories end with a slash, links say where they lead, files have a text.
#[derive(Default)]
struct Paper(BTreeMap<PathBuf, Thing>);

enum Thing {
    Dir,
    Link(PathBuf),
    File(String),
}

impl Paper {
    fn new(lines: &[&str]) -> Paper {
        let mut paper = Paper::default();
        for line in lines {
            let (path, thing) = match (line.split_once(" -> "), line.split_once(" = ")) {
                (Some((path, to)), _) => (path, Thing::Link(to.into())),
                (None, Some((path, text))) => (path, Thing::File(text.to_owned())),
                (None, None) if line.ends_with('/') => (*line, Thing::Dir),
                (None, None) => (*line, Thing::File(String::new())),
            };
            let path = PathBuf::from(path);
            for above in path.ancestors().skip(1) {
                paper.0.entry(above.to_owned()).or_insert(Thing::Dir);
            }
            paper.0.insert(path.components().collect(), thing);
        }
        paper
    }

    /// A path without links, a component at a time.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut real = PathBuf::from("/");
        for part in path.components() {
            match part {
                Component::Normal(name) => real.push(name),
                Component::ParentDir => {
                    real.pop();
                }
                _ => {}
            }
            match self.0.get(&real)? {
                Thing::Link(to) => real = self.resolve(&real.parent()?.join(to))?,
                Thing::Dir | Thing::File(_) => {}
            }
        }
        Some(real)
    }
}

impl Disk for Paper {
    fn find(&self, path: &Path) -> Option<Found> {
        let real = self.resolve(path)?;
        let is_dir = matches!(self.0.get(&real)?, Thing::Dir);
        Some(Found { real, is_dir })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.0.get(path)? {
            Thing::Link(to) => Some(to.clone()),
            Thing::Dir | Thing::File(_) => None,
        }
    }

    fn read(&self, path: &Path) -> Option<String> {
        match self.0.get(&self.resolve(path)?)? {
            Thing::File(text) => Some(text.clone()),
            Thing::Dir | Thing::Link(_) => None,
        }
    }

    fn names(&self, directory: &Path) -> Vec<OsString> {
        let children = self.0.keys().filter(|path| path.parent() == Some(directory));
        children.filter_map(|path| path.file_name()).map(OsString::from).collect()
    }

    /// What has `closed` in its path is not.
    fn is_open(&self, path: &Path) -> bool {
        !path.to_str().unwrap().contains("closed")
    }

    /// What is called so is one.
    fn sockets(&self) -> Vec<PathBuf> {
        let sockets = self.0.keys().filter(|path| path.extension() == Some(OsStr::new("sock")));
        sockets.cloned().collect()
    }
}

const MACHINE: &[&str] = &[
    "/etc/passwd = root:x:0:0::/root:/bin/sh\nu:x:1001:1001::/home/u:/bin/zsh",
    "/etc/group = root:x:0:",
    "/etc/shadow",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_rsa_key.pub",
    "/etc/ssh/closed_key",
    "/home/u/.ssh/id",
    "/home/other/",
    "/root/",
    "/run/docker.sock",
    "/var/run -> /run",
    "/tmp/",
    "/var/tmp/",
    "/usr/bin/",
    "/home/u/.ralph/sandboxes/s/",
    "/home/u/src/project/",
];

fn wanted() -> Wanted {
    Wanted {
        project: "/home/u/src/project".into(),
        home: Some("/home/u".into()),
        ralph_home: "/home/u/.ralph".into(),
        scratch: "/home/u/.ralph/sandboxes/s".into(),
        ralph: "/usr/bin/ralph".into(),
        adapter: "claude",
        env: vec![("PATH".into(), "/usr/bin".into())],
        user: (1001, 1001),
        ..Wanted::default()
    }
}

fn plan_of(wanted: &Wanted, more: &[&str]) -> Plan {
    plan(wanted, &Paper::new(&[MACHINE, more].concat())).unwrap()
}

/// What is at a path inside: what the last mount that covers it says. `-` for an empty place, `w` for
/// what can be written, `r` for what can be read, each with the path of this machine that is seen.
fn seen(plan: &Plan, path: &str) -> String {
    let path = Path::new(path);
    let covering = plan.mounts.iter().rev().find(|mount| path.starts_with(mount.at()));
    let place = |from: &Path, at: &Path| {
        let below = path.strip_prefix(at).unwrap();
        // Joining nothing would leave a slash at the end.
        if below == Path::new("") { from.to_owned() } else { from.join(below) }
            .display()
            .to_string()
    };
    match covering {
        None => format!("r {}", path.display()),
        Some(Mount::ReadOnly { from, at }) => format!("r {}", place(from, at)),
        Some(Mount::Writable { from, at }) => format!("w {}", place(from, at)),
        Some(Mount::EmptyDir { .. } | Mount::EmptyFile { .. }) => "-".to_owned(),
    }
}

fn guarded(plan: &Plan) -> Vec<&str> {
    plan.guards.iter().map(|guard| guard.path.to_str().unwrap()).collect()
}

const SCRATCH: &str = "/home/u/.ralph/sandboxes/s";

#[test]
fn what_is_seen_of_the_machine() {
    let plan = plan_of(&wanted(), &[]);
    let scratch = |name: &str| format!("w {SCRATCH}/{name}");
    for (path, expected) in [
        ("/usr/bin/ls", "r /usr/bin/ls".to_owned()),
        ("/etc/hosts", "r /etc/hosts".to_owned()),
        ("/etc/shadow", "-".to_owned()),
        ("/etc/ssh/ssh_host_rsa_key", "-".to_owned()),
        ("/etc/ssh/closed_key", "r /etc/ssh/closed_key".to_owned()),
        ("/etc/ssh/ssh_host_rsa_key.pub", "r /etc/ssh/ssh_host_rsa_key.pub".to_owned()),
        ("/home/u/.ssh/id", scratch("home/.ssh/id")),
        ("/home/u/.ralph/workers", scratch("home/.ralph/workers")),
        ("/home/other/x", "-".to_owned()),
        ("/root/x", "-".to_owned()),
        ("/run/docker.sock", "-".to_owned()),
        ("/run/ralph/ralph", "r /usr/bin/ralph".to_owned()),
        ("/tmp/x", scratch("tmp/x")),
        ("/var/tmp/x", scratch("var-tmp/x")),
        ("/home/u/src/project/x", "w /home/u/src/project/x".to_owned()),
        ("/home/u/src/other", scratch("home/src/other")),
        // The user is in there already.
        ("/etc/passwd", "r /etc/passwd".to_owned()),
        ("/etc/group", format!("r {SCRATCH}/group")),
    ] {
        assert_eq!(seen(&plan, path), expected, "{path}");
    }
}

#[test]
fn sockets_of_services_are_hidden_wherever_they_would_be_seen() {
    let mut lines = MACHINE.to_vec();
    lines.extend([
        "/opt/service.sock",
        "/home/u/src/project/dev.sock",
        "/home/u/src/project/wanted.sock",
        "/home/u/tools/tool.sock",
    ]);
    let wanted = Wanted {
        readable: vec!["~/tools".into()],
        writable: vec!["wanted.sock".into()],
        ..wanted()
    };
    let plan = plan(&wanted, &Paper::new(&lines)).unwrap();
    let hidden: Vec<&str> = plan
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::EmptyFile { at } => at.to_str().filter(|at| at.ends_with(".sock")),
            _ => None,
        })
        .collect();
    let expected = ["/home/u/src/project/dev.sock", "/home/u/tools/tool.sock", "/opt/service.sock"];
    assert_eq!(hidden, expected, "not what is in /run, which is not there at all");
}

#[test]
fn the_administrator_is_somebody_else_inside() {
    let root = Wanted { user: (0, 0), ..wanted() };
    let plan = plan_of(&root, &[]);
    assert_eq!(plan.user, (1000, 1000));
    let (_, passwd) = &plan.files[0];
    assert!(passwd.starts_with("agent:x:1000:1000::/home/u:/bin/sh\n"), "{passwd}");
    assert!(passwd.contains("root:x:0:0"));
    assert_eq!(seen(&plan, "/etc/passwd"), format!("r {SCRATCH}/passwd"));
    assert_eq!(plan_of(&wanted(), &[]).user, (1001, 1001));
}

#[test]
fn tools_can_be_read_caches_written_and_the_secrets_among_them_are_gone() {
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/.cargo/bin/cargo",
            "/home/u/.cargo/credentials.toml",
            "/home/u/.cargo/registry/x",
            "/home/u/.dotnet/dotnet",
            "/home/u/.dotnet/corefx/cryptography/x509stores/my/key.pfx",
            "/home/u/.local/share/uv/tools/x",
            "/home/u/.local/share/uv/credentials/tokens.toml",
            "/home/u/.npm/x",
            "/home/u/.npmrc",
            "/home/u/.gitconfig",
            "/home/u/.git-credentials",
            "/home/u/.aws/credentials",
        ],
    );
    for (path, expected) in [
        ("/home/u/.cargo/bin/cargo", "r /home/u/.cargo/bin/cargo"),
        ("/home/u/.cargo/credentials.toml", "-"),
        ("/home/u/.cargo/registry/x", "w /home/u/.cargo/registry/x"),
        ("/home/u/.dotnet/dotnet", "r /home/u/.dotnet/dotnet"),
        ("/home/u/.dotnet/corefx/cryptography/x509stores/my/key.pfx", "-"),
        ("/home/u/.local/share/uv/tools/x", "r /home/u/.local/share/uv/tools/x"),
        ("/home/u/.local/share/uv/credentials/tokens.toml", "-"),
        ("/home/u/.npm/x", "w /home/u/.npm/x"),
        ("/home/u/.gitconfig", "r /home/u/.gitconfig"),
        ("/home/u/.npmrc", &format!("w {SCRATCH}/home/.npmrc")),
        ("/home/u/.git-credentials", &format!("w {SCRATCH}/home/.git-credentials")),
        ("/home/u/.aws/credentials", &format!("w {SCRATCH}/home/.aws/credentials")),
    ] {
        assert_eq!(seen(&plan, path), *expected, "{path}");
    }
}

#[test]
fn an_agent_sees_its_own_and_nobody_elses() {
    let files = [
        "/home/u/.claude/.credentials.json",
        "/home/u/.claude/settings.json",
        "/home/u/.claude/projects/other/transcript",
        "/home/u/.claude.json",
        "/home/u/.codex/auth.json",
    ];
    let plan = plan_of(&wanted(), &files);
    assert_eq!(seen(&plan, files[0]), format!("w {}", files[0]), "tokens change");
    assert_eq!(seen(&plan, files[1]), format!("r {}", files[1]));
    assert!(seen(&plan, files[2]).contains(SCRATCH), "other projects are none of its business");
    let copy = (PathBuf::from(files[3]), PathBuf::from(SCRATCH).join("home/.claude.json"));
    assert_eq!(plan.copies, [copy]);
    assert!(seen(&plan, files[4]).contains(SCRATCH));
    let codex = Wanted { adapter: "codex", ..wanted() };
    assert_eq!(seen(&plan_of(&codex, &files), files[4]), format!("w {}", files[4]));
    assert!(seen(&plan_of(&codex, &files), files[0]).contains(SCRATCH));
}

#[test]
fn programs_are_found_where_they_are_called_from() {
    let more = [
        "/home/u/.volta-real/bin/node",
        "/home/u/tools -> /home/u/.volta-real",
        "/home/u/lib/node_modules/@a/claude/cli.js",
        "/home/u/bin/claude -> ../lib/node_modules/@a/claude/cli.js",
        "/opt/bin/",
    ];
    let path = "/home/u/tools/bin:/opt/bin:/home/u:relative:/home/u/bin/../..";
    let wanted = Wanted {
        env: vec![("PATH".into(), path.into())],
        agent: Some("/home/u/bin/claude".into()),
        ..wanted()
    };
    let plan = plan_of(&wanted, &more);
    assert_eq!(seen(&plan, "/home/u/tools/bin/node"), "r /home/u/.volta-real/bin/node");
    assert_eq!(seen(&plan, "/home/u/.volta-real/bin/node"), "r /home/u/.volta-real/bin/node");
    let package = "/home/u/lib/node_modules/other";
    assert_eq!(seen(&plan, package), format!("r {package}"), "npm spreads what belongs together");
    assert!(seen(&plan, "/home/u/bin/claude").starts_with("r "));
    assert!(
        seen(&plan, "/home/u/.ssh/id").contains(SCRATCH),
        "a path that holds it all shows nothing"
    );
}

#[test]
fn tools_that_were_moved_or_need_what_is_beside_them_work() {
    let more = [
        "/root/.pyenv/shims/python",
        "/root/.pyenv/bin/pyenv -> ../libexec/pyenv",
        "/root/.pyenv/libexec/pyenv",
        "/root/.pyenv/.git/HEAD",
        "/root/node/bin/npm -> ../lib/cli.js",
        "/root/node/lib/cli.js",
        "/root/work/bin/tool",
        "/root/work/lib/x",
        "/root/work/.git/HEAD",
        "/root/.local/bin/tool",
        "/root/.local/lib/x",
        "/root/.local/share/keyrings/login",
        "/root/bin/tool",
        "/root/lib/x",
        "/root/.ssh/id",
        "/mnt/cargo/bin/cargo",
        "/mnt/cargo/registry/x",
        "/mnt/cargo/credentials.toml",
        "/home/u/.rustup/x",
    ];
    let path = "/mnt/cargo/bin:/root/.pyenv/shims:/root/.pyenv/bin:/root/node/bin:/root/work/bin:\
                /root/.local/bin:/root/bin";
    let env = [("PATH", path), ("CARGO_HOME", "/mnt/cargo"), ("RUSTUP_HOME", "/home/u/.rustup")];
    let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
    let plan = plan_of(&Wanted { env, ..wanted() }, &[&more[..], &["/mnt/other"]].concat());
    for (path, expected) in [
        ("/root/.pyenv/libexec/pyenv", "r"),
        ("/root/node/lib/cli.js", "r"),
        ("/root/work/bin/tool", "r"),
        ("/root/work/lib/x", "-"),
        ("/root/.local/bin/tool", "r"),
        ("/root/.local/share/keyrings/login", "-"),
        ("/root/bin/tool", "r"),
        ("/root/.ssh/id", "-"),
        ("/mnt/cargo/bin/cargo", "r"),
        ("/mnt/cargo/registry/x", "w"),
        ("/mnt/cargo/credentials.toml", "-"),
        ("/mnt/other", "-"),
        ("/home/u/.rustup/x", "r"),
    ] {
        assert!(seen(&plan, path).starts_with(expected), "{path}: {}", seen(&plan, path));
    }
    // Mounts cost time at every start: nothing is shown a second time.
    for place in ["/root/.pyenv/bin", "/root/.pyenv/shims", "/mnt/cargo/bin"] {
        assert!(!plan.mounts.iter().any(|mount| mount.at() == Path::new(place)), "{place}");
    }
    assert_eq!(plan.mounts.iter().filter(|mount| mount.at().ends_with(".rustup")).count(), 1);
}

#[test]
fn what_the_settings_add() {
    let wanted = Wanted {
        readable: vec!["~/notes".into(), "/home/other".into(), "missing".into()],
        writable: vec!["../sibling".into()],
        ..wanted()
    };
    let plan = plan_of(&wanted, &["/home/u/notes/a", "/home/u/src/sibling/"]);
    assert_eq!(seen(&plan, "/home/u/notes/a"), "r /home/u/notes/a");
    assert_eq!(seen(&plan, "/home/other/x"), "r /home/other/x");
    assert_eq!(seen(&plan, "/home/u/src/sibling/x"), "w /home/u/src/sibling/x");
    assert_eq!(plan.notes, ["sandbox.readable: there is no /home/u/src/project/missing"]);
}

#[test]
fn git_can_commit_and_what_it_executes_is_protected() {
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/src/project/.git/config",
            "/home/u/src/project/.git/hooks/",
            "/home/u/src/project/.git/worktrees/x/gitdir",
            "/home/u/src/project/.git/modules/sub/dir/HEAD",
            "/home/u/src/project/.git/modules/sub/dir/config",
        ],
    );
    let git = "/home/u/src/project/.git";
    for (name, expected) in [
        ("index", "w"),
        ("config", "r"),
        ("hooks/pre-commit", "r"),
        ("worktrees/x/gitdir", "r"),
        ("modules/sub/dir/index", "w"),
        ("modules/sub/dir/config", "r"),
    ] {
        assert!(seen(&plan, &format!("{git}/{name}")).starts_with(expected), "{name}");
    }
    let guarded = guarded(&plan);
    for name in ["commondir", "config.worktree", "modules/sub/dir/hooks"] {
        assert!(guarded.contains(&format!("{git}/{name}").as_str()), "{name} in {guarded:?}");
    }
    // Each directory with something protected in it is a mount of its own, or it could be renamed.
    for dir in ["", "/modules", "/modules/sub", "/modules/sub/dir"] {
        assert!(plan.mounts.iter().any(|mount| mount.at() == Path::new(&format!("{git}{dir}"))));
    }
}

#[test]
fn a_worktree_shares_what_it_must() {
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/src/project/.git = gitdir: /home/u/main/.git/worktrees/p\n",
            "/home/u/main/.git/worktrees/p/commondir = ../..\n",
            "/home/u/main/.git/worktrees/q/commondir = ../..\n",
            "/home/u/main/.git/config",
            "/home/u/main/file",
        ],
    );
    for (path, expected) in [
        ("/home/u/src/project/.git", "r"),
        ("/home/u/main/.git/objects/x", "w"),
        ("/home/u/main/.git/config", "r"),
        ("/home/u/main/.git/worktrees/p/index", "w"),
        ("/home/u/main/.git/worktrees/p/commondir", "r"),
        ("/home/u/main/.git/worktrees/q/index", "r"),
    ] {
        assert!(seen(&plan, path).starts_with(expected), "{path}: {}", seen(&plan, path));
    }
    assert!(seen(&plan, "/home/u/main/file").contains(SCRATCH), "only what git needs");
}

#[test]
fn a_project_below_the_top_of_its_repository_sees_the_rest_but_cannot_change_it() {
    let plan = plan_of(&wanted(), &["/home/u/src/.git/config", "/home/u/src/other"]);
    assert_eq!(seen(&plan, "/home/u/src/other"), "r /home/u/src/other");
    assert_eq!(seen(&plan, "/home/u/src/.git/index"), "w /home/u/src/.git/index");
    assert_eq!(seen(&plan, "/home/u/src/project/x"), "w /home/u/src/project/x");
    // Dot files under version control must not open the home.
    let plan = plan_of(&wanted(), &["/home/u/.git/config"]);
    assert!(seen(&plan, "/home/u/.ssh/id").contains(SCRATCH));
    assert!(seen(&plan, "/home/u/.git/config").contains(SCRATCH));
}

#[test]
fn what_is_ralphs_and_claudes_is_protected_whether_it_is_there_or_not() {
    let project = "/home/u/src/project";
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/src/project/.ralph/settings.json",
            "/home/u/src/project/.ralph/prompts/build.md",
            "/home/u/src/project/.ralph/implementation_plan.md",
            "/home/u/src/project/.claude/settings.team.json",
            "/home/u/src/project/.claude/hooks -> ../hooks",
        ],
    );
    for (name, expected) in [
        (".ralph/settings.json", "r"),
        (".ralph/prompts/build.md", "r"),
        (".ralph/implementation_plan.md", "w"),
        (".ralph/side_001.txt", "w"),
        (".claude/settings.team.json", "r"),
        (".claude/commands/x.md", "w"),
    ] {
        assert!(seen(&plan, &format!("{project}/{name}")).starts_with(expected), "{name}");
    }
    let guard = |name: &str| plan.guards.iter().find(|guard| guard.path.ends_with(name));
    for name in [".ralph/config", ".ralph/settings.local.json", ".claude/settings.local.json"] {
        assert_eq!(guard(name).unwrap().was, Was::Nothing, "{name}");
    }
    assert_eq!(guard(".claude/hooks").unwrap().was, Was::Link("../hooks".into()));
    // Without a directory there is nothing to mount, but what would be in it is guarded, and so is the way there.
    let plan = plan_of(&wanted(), &[]);
    let guard = |name: &str| plan.guards.iter().position(|guard| guard.path.ends_with(name));
    let (dir, file) = (guard(".claude").unwrap(), guard(".claude/settings.json").unwrap());
    assert_eq!(plan.guards[dir].was, Was::Directory);
    assert!(dir < file, "{:?}", plan.guards);
}

/// What a guard says of a path in the project.
fn was<'p>(plan: &'p Plan, name: &str) -> Option<&'p Was> {
    let path = Path::new("/home/u/src/project").join(name);
    plan.guards.iter().find(|guard| guard.path == path).map(|guard| &guard.was)
}

#[test]
fn where_links_of_the_user_lead_is_protected_as_far_as_an_agent_can_write_there() {
    let project = "/home/u/src/project";
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/src/project/.claude -> there/cfg",
            "/home/u/src/project/there -> real",
            "/home/u/src/project/real/cfg/settings.json",
            "/home/u/src/project/.ralph/settings.json -> ../shared/deep/settings.json",
            "/home/u/src/project/shared/deep/settings.json",
            "/home/u/src/project/.ralph/config -> ../to-come/config",
            "/home/u/src/project/.ralph/prompts -> /home/u/prompts",
            "/home/u/prompts/x",
        ],
    );
    for (name, expected) in [
        (".claude", Was::Link("there/cfg".into())),
        ("there", Was::Link("real".into())),
        ("real/cfg/settings.local.json", Was::Nothing),
        ("real", Was::Directory),
        ("shared/deep", Was::Directory),
        (".ralph/config", Was::Link("../to-come/config".into())),
        ("to-come", Was::Directory),
        ("to-come/config", Was::Nothing),
    ] {
        assert_eq!(was(&plan, name), Some(&expected), "{name}: {:?}", plan.guards);
    }
    for name in ["real/cfg/settings.json", "shared/deep/settings.json"] {
        let path = format!("{project}/{name}");
        assert_eq!(seen(&plan, &path), format!("r {path}"));
        // Nothing on the way can be renamed.
        for dir in Path::new(&path).ancestors().skip(1).take_while(|dir| *dir != Path::new(project))
        {
            assert!(plan.mounts.iter().any(|mount| mount.at() == dir), "{}", dir.display());
        }
    }
    // What is outside is the user's, whatever becomes of it.
    assert!(!guarded(&plan).iter().any(|path| path.starts_with("/home/u/prompts")));
}

#[test]
fn no_repository_appears_where_there_is_none() {
    for (more, expected) in [
        (&[][..], Some(Was::Nothing)),
        (&["/home/u/src/.git/config"], Some(Was::Nothing)),
        (&["/home/u/src/project/.git/config"], Some(Was::Directory)),
        (&["/home/u/src/project/.git = nonsense"], Some(Was::File)),
        (&["/home/u/src/project/.git -> gone"], Some(Was::Link("gone".into()))),
        (
            &["/home/u/src/project/.git -> repo", "/home/u/src/project/repo/config"],
            Some(Was::Link("repo".into())),
        ),
    ] {
        let plan = plan_of(&wanted(), more);
        assert_eq!(was(&plan, ".git"), expected.as_ref(), "{more:?}: {:?}", plan.guards);
        let bare = was(&plan, "HEAD").is_some();
        assert_eq!(
            bare,
            !plan.mounts.iter().any(|mount| {
                mount.at().starts_with("/home/u/src/project/.git") || mount.at().ends_with("repo")
            })
        );
    }
    let nonsense = plan_of(&wanted(), &["/home/u/src/project/.git = nonsense"]);
    assert!(seen(&nonsense, "/home/u/src/project/.git").starts_with('r'));
    assert_eq!(
        was(&plan_of(&wanted(), &["/home/u/src/project/.git -> gone"]), "gone"),
        Some(&Was::Nothing)
    );
}

#[test]
fn submodules_that_are_too_many_cannot_be_changed_at_all() {
    let heads: Vec<String> =
        (0..201).map(|nth| format!("/home/u/src/project/.git/modules/m{nth}/HEAD")).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let plan = plan_of(&wanted(), &heads);
    assert!(seen(&plan, "/home/u/src/project/.git/modules/m200/config").starts_with('r'));
    assert!(plan.notes.iter().any(|note| note.contains("too many submodules")), "{:?}", plan.notes);
}

fn words(refused: Refused) -> String {
    match refused {
        Refused::Place(why) => format!("place: {why}"),
        Refused::Setting(why) => format!("setting: {why}"),
    }
}

#[test]
fn places_around_which_no_sandbox_can_be() {
    let refused = |project: &str, home: &str| {
        let wanted = Wanted { project: project.into(), home: Some(home.into()), ..wanted() };
        plan(&wanted, &Paper::new(MACHINE)).map_err(words).unwrap_err()
    };
    assert!(refused("/home/u", "/home/u").contains("is the home directory"));
    assert!(refused("/home", "/home/u").contains("holds the home directory"));
    assert!(refused("/", "/home/u").contains("holds the home directory"));
    assert!(refused("/usr", "/home/u").contains("belongs to the system"));
    let inside = Wanted { scratch: "/home/u/src/project/.r/s".into(), ..wanted() };
    assert!(plan(&inside, &Paper::new(MACHINE)).map_err(words).unwrap_err().contains("RALPH_HOME"));
    for (path, expected) in [
        ("/", "setting: sandbox.readable: / holds /home, "),
        ("/var", "setting: sandbox.readable: /var holds /var/tmp, "),
        ("~", "setting: sandbox.readable: /home/u holds /home/u/.ralph"),
    ] {
        let wanted = Wanted { readable: vec![path.into()], ..wanted() };
        let said = plan(&wanted, &Paper::new(MACHINE)).map_err(words).unwrap_err();
        assert!(said.starts_with(expected), "{said}");
    }
    let everywhere = Wanted { home: Some("/".into()), ..wanted() };
    assert!(plan(&everywhere, &Paper::new(MACHINE)).is_ok(), "a home that is none");
}

#[test]
fn the_environment_leads_to_the_proxy_and_has_no_secrets_in_it() {
    let env = [
        ("PATH", "/usr/bin"),
        ("LANG", "C"),
        ("GITHUB_TOKEN", "x"),
        ("AWS_PROFILE", "x"),
        ("ANTHROPIC_API_KEY", "x"),
        ("MY_KEY", "x"),
        ("OPENAI_API_KEY", "x"),
        ("THEIR_KEY", "x"),
        ("SSH_AUTH_SOCK", "x"),
        ("HTTPS_PROXY", "http://u:p@old"),
        ("DATABASE_URL", "postgres://u:p@db/shop"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example.com/x"),
        ("TEST_DATABASE_URL", "postgres://localhost/shop"),
        ("ANTHROPIC_BASE_URL", "https://u:p@models.example.com"),
    ];
    let wanted = Wanted {
        env: env.map(|(name, value)| (name.into(), value.into())).to_vec(),
        env_kept: vec!["MY_KEY".into()],
        network: Network::Proxy { ports: vec![] },
        ..wanted()
    };
    let plan = plan_of(&wanted, &[]);
    let change = |name: &str| {
        let last = plan.env.iter().rev().find(|(other, _)| other == name);
        last.map(|(_, value)| value.as_ref().map(|value| value.to_str().unwrap()))
    };
    for (name, expected) in [
        ("LANG", None),
        ("ANTHROPIC_API_KEY", None),
        ("MY_KEY", None),
        ("GITHUB_TOKEN", Some(None)),
        ("AWS_PROFILE", Some(None)),
        ("DATABASE_URL", Some(None)),
        ("SLACK_WEBHOOK_URL", Some(None)),
        ("TEST_DATABASE_URL", None),
        ("ANTHROPIC_BASE_URL", None),
        ("SSH_AUTH_SOCK", Some(None)),
        ("HTTPS_PROXY", Some(Some("http://127.0.0.1:3128"))),
        ("PATH", Some(Some("/usr/bin:/run/ralph"))),
        ("TMPDIR", Some(Some("/tmp"))),
    ] {
        assert_eq!(change(name), expected, "{name}");
    }
    // Each agent has the keys of its own services, and of what its own configuration names.
    let config = "/home/u/.codex/config.toml = [model_providers.x]\nenv_key = \"THEIR_KEY\" # x";
    let withheld = |adapter: &'static str| {
        plan_of(&Wanted { adapter, ..wanted.clone() }, &[config]).withheld.join(" ")
    };
    let urls = "DATABASE_URL SLACK_WEBHOOK_URL";
    assert_eq!(
        withheld("claude"),
        format!("GITHUB_TOKEN AWS_PROFILE OPENAI_API_KEY THEIR_KEY {urls}")
    );
    assert_eq!(
        withheld("codex"),
        format!("GITHUB_TOKEN AWS_PROFILE ANTHROPIC_API_KEY {urls} ANTHROPIC_BASE_URL")
    );
    assert_eq!(withheld("opencode"), format!("GITHUB_TOKEN AWS_PROFILE THEIR_KEY {urls}"));
    for (adapter, name, expected) in [
        ("claude", "ANTHROPIC_BASE_URL", true),
        ("claude", "OPENAI_BASE_URL", false),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", true),
        ("text", "OPENAI_API_BASE", true),
        ("text", "SENTRY_API_URL", false),
        ("claude", "ANTHROPIC_API_KEY", false),
    ] {
        let names = environment::names_a_service(adapter, name);
        assert_eq!(names, expected, "{adapter} {name}");
    }
}
