//! What is visible inside, on fake machines.

mod agents;
mod links;
pub(crate) mod paper;
mod protected;

use std::ffi::OsStr;

pub(crate) use self::paper::Paper;
use super::*;
use crate::environment;

pub(crate) const MACHINE: &[&str] = &[
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

fn wanted() -> PlanInputs {
    PlanInputs {
        project: "/home/u/src/project".into(),
        home: Some("/home/u".into()),
        ralph_home: "/home/u/.ralph".into(),
        scratch: "/home/u/.ralph/sandboxes/s".into(),
        ralph: "/usr/bin/ralph".into(),
        adapter: "claude",
        env: vec![("PATH".into(), "/usr/bin".into())],
        user: (1001, 1001),
        ..PlanInputs::default()
    }
}

fn plan_of(wanted: &PlanInputs, more: &[&str]) -> SandboxPlan {
    build_plan(wanted, &Paper::new(&[MACHINE, more].concat())).unwrap()
}

/// What the last mount shows at a path: `-` for empty, `w` writable, `r` readable, with the source
/// path.
fn seen(plan: &SandboxPlan, path: &str) -> String {
    let path = Path::new(path);
    let covering = plan.mounts.iter().rev().find(|mount| path.starts_with(mount.at()));
    let place = |from: &Path, at: &Path| {
        let below = path.strip_prefix(at).unwrap();
        // Joining an empty path would add a slash.
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

const SCRATCH: &str = "/home/u/.ralph/sandboxes/s";

#[test]
fn plan_shows_system_and_hides_home() {
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
        // It already has the user.
        ("/etc/passwd", "r /etc/passwd".to_owned()),
        ("/etc/group", format!("r {SCRATCH}/group")),
    ] {
        assert_eq!(seen(&plan, path), expected, "{path}");
    }
}

#[test]
fn plan_hides_sockets_of_services() {
    let mut lines = MACHINE.to_vec();
    lines.extend([
        "/opt/service.sock",
        "/home/u/src/project/dev.sock",
        "/home/u/src/project/wanted.sock",
        "/home/u/tools/tool.sock",
    ]);
    let wanted = PlanInputs {
        readable: vec!["~/tools".into()],
        writable: vec!["wanted.sock".into()],
        ..wanted()
    };
    let plan = build_plan(&wanted, &Paper::new(&lines)).unwrap();
    let hidden: Vec<&str> = plan
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::EmptyFile { at } => at.to_str().filter(|at| at.ends_with(".sock")),
            _ => None,
        })
        .collect();
    let expected = ["/home/u/src/project/dev.sock", "/home/u/tools/tool.sock", "/opt/service.sock"];
    assert_eq!(hidden, expected, "nothing below /run, which is absent");
}

#[test]
fn plan_maps_root_to_ordinary_user() {
    let root = PlanInputs { user: (0, 0), ..wanted() };
    let plan = plan_of(&root, &[]);
    assert_eq!(plan.user, (1000, 1000));
    let (_, passwd) = &plan.files[0];
    assert!(passwd.starts_with("agent:x:1000:1000::/home/u:/bin/sh\n"), "{passwd}");
    assert!(passwd.contains("root:x:0:0"));
    assert_eq!(seen(&plan, "/etc/passwd"), format!("r {SCRATCH}/passwd"));
    assert_eq!(plan_of(&wanted(), &[]).user, (1001, 1001));
}

#[test]
fn plan_shows_tools_and_caches_without_their_secrets() {
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

/// A machine whose tools, and their secrets, are behind links.
pub(crate) fn linked_tools() -> (PlanInputs, Vec<&'static str>) {
    let more = vec![
        "/home/u/.cargo -> dotfiles/cargo",
        "/home/u/dotfiles/cargo/bin/cargo",
        "/home/u/dotfiles/cargo/credentials.toml",
        "/home/u/.config/git -> ../dotfiles/git",
        "/home/u/dotfiles/git/config",
        "/home/u/dotfiles/git/credentials",
        // A secret behind a link into another tool's directory.
        "/home/u/.deno/credentials.json -> ../dotfiles/git/deno-key",
        "/home/u/.deno/bin/deno",
        "/home/u/dotfiles/git/deno-key",
        "/home/u/o -> /mnt/opam",
        "/mnt/opam/config",
        "/mnt/opam/plugins/opam-publish/token",
        "/opt/uv/tools/x",
        "/home/u/.local/share/uv -> /opt/uv",
        "/opt/uv/credentials/tokens.toml",
    ];
    let env = [("PATH", "/usr/bin"), ("OPAMROOT", "/home/u/o")];
    let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
    (PlanInputs { env, ..wanted() }, more)
}

#[test]
fn plan_hides_secret_in_linked_tool_directory() {
    let (wanted, more) = linked_tools();
    let plan = plan_of(&wanted, &more);
    for (path, expected) in [
        ("/home/u/.cargo/bin/cargo", "r /home/u/dotfiles/cargo/bin/cargo"),
        ("/home/u/.cargo/credentials.toml", "-"),
        ("/home/u/dotfiles/cargo/credentials.toml", "-"),
        ("/home/u/.config/git/config", "r /home/u/dotfiles/git/config"),
        ("/home/u/.config/git/credentials", "-"),
        ("/home/u/dotfiles/git/credentials", "-"),
        ("/home/u/.deno/bin/deno", "r /home/u/.deno/bin/deno"),
        ("/home/u/.config/git/deno-key", "-"),
        ("/home/u/dotfiles/git/deno-key", "-"),
        ("/home/u/o/config", "r /mnt/opam/config"),
        ("/home/u/o/plugins/opam-publish/token", "-"),
        ("/mnt/opam/plugins/opam-publish/token", "-"),
        ("/home/u/.local/share/uv/tools/x", "r /opt/uv/tools/x"),
        ("/home/u/.local/share/uv/credentials/tokens.toml", "-"),
        ("/opt/uv/credentials/tokens.toml", "-"),
    ] {
        assert_eq!(seen(&plan, path), *expected, "{path}");
    }
    let readable = vec!["~/.cargo/credentials.toml".into()];
    let plan = plan_of(&PlanInputs { readable, ..wanted }, &more);
    let expected = "r /home/u/dotfiles/cargo/credentials.toml";
    assert_eq!(seen(&plan, "/home/u/.cargo/credentials.toml"), expected, "listed in the settings");
}

#[test]
fn plan_shows_agent_only_its_own_files() {
    let files = [
        "/home/u/.claude/.credentials.json",
        "/home/u/.claude/settings.json",
        "/home/u/.claude/projects/other/transcript",
        "/home/u/.claude.json",
        "/home/u/.codex/auth.json",
    ];
    let plan = plan_of(&wanted(), &files);
    assert_eq!(seen(&plan, files[0]), format!("w {}", files[0]), "tokens are writable");
    assert_eq!(seen(&plan, files[1]), format!("r {}", files[1]));
    assert!(seen(&plan, files[2]).contains(SCRATCH), "other projects stay hidden");
    let copy = (PathBuf::from(files[3]), PathBuf::from(SCRATCH).join("home/.claude.json"));
    assert_eq!(plan.copies, [copy]);
    assert!(seen(&plan, files[4]).contains(SCRATCH));
    let codex = PlanInputs { adapter: "codex", ..wanted() };
    assert_eq!(seen(&plan_of(&codex, &files), files[4]), format!("w {}", files[4]));
    assert!(seen(&plan_of(&codex, &files), files[0]).contains(SCRATCH));
}

#[test]
fn plan_shows_programs_of_path_and_agent() {
    let more = [
        "/home/u/.volta-real/bin/node",
        "/home/u/tools -> /home/u/.volta-real",
        "/home/u/lib/node_modules/@a/claude/cli.js",
        "/home/u/bin/claude -> ../lib/node_modules/@a/claude/cli.js",
        "/opt/bin/",
    ];
    let path = "/home/u/tools/bin:/opt/bin:/home/u:relative:/home/u/bin/../..";
    let wanted = PlanInputs {
        env: vec![("PATH".into(), path.into())],
        agent: Some("/home/u/bin/claude".into()),
        ..wanted()
    };
    let plan = plan_of(&wanted, &more);
    assert_eq!(seen(&plan, "/home/u/tools/bin/node"), "r /home/u/.volta-real/bin/node");
    assert_eq!(seen(&plan, "/home/u/.volta-real/bin/node"), "r /home/u/.volta-real/bin/node");
    let package = "/home/u/lib/node_modules/other";
    assert_eq!(
        seen(&plan, package),
        format!("r {package}"),
        "npm spreads one package over directories"
    );
    assert!(seen(&plan, "/home/u/bin/claude").starts_with("r "));
    assert!(
        seen(&plan, "/home/u/.ssh/id").contains(SCRATCH),
        "a path that contains the home shows nothing"
    );
}

#[test]
fn plan_shows_relocated_tools_with_their_files() {
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
    let plan = plan_of(&PlanInputs { env, ..wanted() }, &[&more[..], &["/mnt/other"]].concat());
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
    // Mounts cost time at every start.
    for place in ["/root/.pyenv/bin", "/root/.pyenv/shims", "/mnt/cargo/bin"] {
        assert!(!plan.mounts.iter().any(|mount| mount.at() == Path::new(place)), "{place}");
    }
    assert_eq!(plan.mounts.iter().filter(|mount| mount.at().ends_with(".rustup")).count(), 1);
}

#[test]
fn plan_adds_readable_and_writable_settings() {
    let wanted = PlanInputs {
        readable: vec!["~/notes".into(), "/home/other".into(), "missing".into()],
        writable: vec!["../sibling".into()],
        ..wanted()
    };
    let plan = plan_of(&wanted, &["/home/u/notes/a", "/home/u/src/sibling/"]);
    assert_eq!(seen(&plan, "/home/u/notes/a"), "r /home/u/notes/a");
    assert_eq!(seen(&plan, "/home/other/x"), "r /home/other/x");
    assert_eq!(seen(&plan, "/home/u/src/sibling/x"), "w /home/u/src/sibling/x");
    assert_eq!(plan.notes, ["sandbox.readable: /home/u/src/project/missing does not exist"]);
}

fn words(refused: PlanError) -> String {
    match refused {
        PlanError::Path(why) => format!("place: {why}"),
        PlanError::Setting(why) => format!("setting: {why}"),
    }
}

#[test]
fn plan_refuses_home_system_and_scratch_as_project() {
    let refused = |project: &str, home: &str| {
        let wanted = PlanInputs { project: project.into(), home: Some(home.into()), ..wanted() };
        build_plan(&wanted, &Paper::new(MACHINE)).map_err(words).unwrap_err()
    };
    assert!(refused("/home/u", "/home/u").contains("is the home directory"));
    assert!(refused("/home", "/home/u").contains("contains the home directory"));
    assert!(refused("/", "/home/u").contains("contains the home directory"));
    assert!(refused("/usr", "/home/u").contains("is a system directory"));
    let inside = PlanInputs { scratch: "/home/u/src/project/.r/s".into(), ..wanted() };
    assert!(
        build_plan(&inside, &Paper::new(MACHINE))
            .map_err(words)
            .unwrap_err()
            .contains("RALPH_HOME")
    );
    for (path, expected) in [
        ("/", "setting: sandbox.readable: / contains /home, "),
        ("/var", "setting: sandbox.readable: /var contains /var/tmp, "),
        ("~", "setting: sandbox.readable: /home/u contains /home/u/.ralph"),
    ] {
        let wanted = PlanInputs { readable: vec![path.into()], ..wanted() };
        let message = build_plan(&wanted, &Paper::new(MACHINE)).map_err(words).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
    let everywhere = PlanInputs { home: Some("/".into()), ..wanted() };
    assert!(
        build_plan(&everywhere, &Paper::new(MACHINE)).is_ok(),
        "a home that is not a directory"
    );
}

#[test]
fn plan_environment_uses_proxy_without_secrets() {
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
    let wanted = PlanInputs {
        env: env.map(|(name, value)| (name.into(), value.into())).to_vec(),
        kept_variables: vec!["MY_KEY".into()],
        network: NetworkMode::Proxy { ports: vec![] },
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
    // Agents get the keys of their own services, and those named in their configuration.
    let config = "/home/u/.codex/config.toml = [model_providers.x]\nenv_key = \"THEIR_KEY\" # x";
    let withheld = |adapter: &'static str| {
        plan_of(&PlanInputs { adapter, ..wanted.clone() }, &[config]).withheld.join(" ")
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
        let names = environment::is_service_url(adapter, name);
        assert_eq!(names, expected, "{adapter} {name}");
    }
}

#[test]
fn plan_passes_git_environment_settings_all_or_none() {
    let withheld = |settings: &[(&str, &str)]| {
        let count = settings.len().to_string();
        let mut env = vec![("GIT_CONFIG_COUNT".to_owned(), count)];
        for (number, (key, value)) in settings.iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{number}"), (*key).to_owned()));
            env.push((format!("GIT_CONFIG_VALUE_{number}"), (*value).to_owned()));
        }
        let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        plan_of(&PlanInputs { env, ..wanted() }, &[]).withheld.join(" ")
    };
    assert_eq!(withheld(&[("safe.directory", "*"), ("user.name", "u")]), "");
    let all =
        "GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_CONFIG_KEY_1 GIT_CONFIG_VALUE_1";
    for secret in [
        ("http.https://example.com/.extraheader", "Authorization: Basic dTpwYXNzd29yZA=="),
        ("url.https://me:abc@example.com/.insteadOf", "https://example.com/"),
        ("x.password", "abc"),
    ] {
        assert_eq!(withheld(&[("safe.directory", "*"), secret]), all, "{secret:?}");
    }
}
