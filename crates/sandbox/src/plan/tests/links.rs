//! Links of earlier agents do not show their targets.

use super::*;

const SSH: &str = "/home/u/.ssh";

fn shows_ssh(plan: &SandboxPlan) -> bool {
    let is_ssh = |path: &Path| path.starts_with(SSH);
    plan.copies.iter().any(|(from, _)| is_ssh(from))
        || plan.mounts.iter().any(|mount| match mount {
            Mount::ReadOnly { from, .. } | Mount::Writable { from, .. } => is_ssh(from),
            Mount::EmptyDir { .. } | Mount::EmptyFile { .. } => false,
        })
}

fn with_env(name: &str, value: &str) -> PlanInputs {
    PlanInputs { env: vec![(name.into(), value.into())], ..wanted() }
}

#[test]
fn plan_skips_link_out_of_writable_place_with_note() {
    let project = "/home/u/src/project";
    let in_project = |name: &str| format!("{project}/{name}");
    let claude = |dir: &str| with_env("CLAUDE_CONFIG_DIR", dir);
    let npm = vec![
        ("npm_config_cache".into(), "/mnt/npm".into()),
        ("PIP_CACHE_DIR".into(), "/mnt/npm/pip".into()),
    ];
    for (what, wanted, link) in [
        ("PATH entry", with_env("PATH", &in_project("bin")), in_project("bin")),
        ("PATH entry", with_env("PATH", &in_project("venv/bin")), in_project("venv")),
        ("PIP_CACHE_DIR", with_env("PIP_CACHE_DIR", &in_project("pip")), in_project("pip")),
        ("CARGO_HOME", with_env("CARGO_HOME", &in_project("cargo")), in_project("cargo")),
        ("SSL_CERT_FILE", with_env("SSL_CERT_FILE", &in_project("ca/id")), in_project("ca")),
        ("agent file", claude(&in_project("claude")), in_project("claude/settings.json")),
        ("agent file", claude(&in_project("claude")), in_project("claude/.credentials.json")),
        ("agent file", claude(&in_project("claude")), in_project("claude/.claude.json")),
        (
            "agent program",
            PlanInputs { agent: Some(in_project("agent").into()), ..wanted() },
            in_project("agent"),
        ),
        (
            "sandbox.readable",
            PlanInputs { readable: vec!["data".into()], ..wanted() },
            in_project("data"),
        ),
        (
            "sandbox.writable",
            PlanInputs { writable: vec!["data".into()], ..wanted() },
            in_project("data"),
        ),
        // In a writable directory outside the project.
        (
            "PIP_CACHE_DIR",
            with_env("PIP_CACHE_DIR", "/home/u/.npm/pip"),
            "/home/u/.npm/pip".to_owned(),
        ),
        ("PIP_CACHE_DIR", PlanInputs { env: npm, ..wanted() }, "/mnt/npm/pip".to_owned()),
        (
            "sandbox.writable",
            PlanInputs { writable: vec!["/mnt/a/b".into(), "/mnt/a".into()], ..wanted() },
            "/mnt/a/b".to_owned(),
        ),
        (
            "PATH entry",
            PlanInputs {
                agent_writable: AgentWritable::new(["/home/u/src/other".into()]),
                ..with_env("PATH", "/home/u/src/other/bin")
            },
            "/home/u/src/other/bin".to_owned(),
        ),
    ] {
        let file = ["settings.json", ".credentials.json", ".claude.json", "agent"]
            .iter()
            .any(|name| link.ends_with(name));
        let target = if file { format!("{SSH}/id") } else { SSH.to_owned() };
        let line = format!("{link} -> {target}");
        let more = [
            line.as_str(),
            "/home/u/.npm/x",
            "/mnt/npm/x",
            "/mnt/a/x",
            "/home/u/.ssh/registry/x",
            "/home/u/.ssh/bin/x",
        ];
        let plan = plan_of(&wanted, &more);
        assert!(!shows_ssh(&plan), "{line}: {:?}", plan.mounts);
        let [note] = plan.notes.as_slice() else { panic!("{line}: {:?}", plan.notes) };
        assert!(note.starts_with(&format!("sandbox: skipped {what} ")), "{note}");
        assert!(note.contains(&link) && note.contains(" points out of "), "{note}");
        assert!(note.contains(SSH), "{note}");
        assert!(!note.contains(" to sandbox.") && note.contains("contains secrets"), "{note}");
        // With only what the sandbox itself makes writable.
        let mut elsewhere = wanted.clone();
        elsewhere.project = "/home/u/src/third".into();
        elsewhere.agent_writable = AgentWritable::default();
        if link.starts_with(project) && !what.starts_with("sandbox") {
            let more = [&more[..], &["/home/u/src/third/"]].concat();
            assert!(shows_ssh(&plan_of(&elsewhere, &more)), "{line} proves nothing");
        }
    }
}

#[test]
fn plan_follows_user_link_and_link_inside_project() {
    let path = "/home/u/src/project/venv/bin:/home/u/bin";
    let more = [
        "/home/u/src/project/venv -> .venv-3.12",
        "/home/u/src/project/.venv-3.12/bin/python",
        "/home/u/src/project/tools/x",
        "/home/u/bin -> src/project/tools",
        "/home/u/.npm -> /mnt/npm",
        "/mnt/npm/x",
    ];
    let plan = plan_of(&with_env("PATH", path), &more);
    assert_eq!(plan.notes, [] as [&str; 0]);
    assert_eq!(seen(&plan, "/home/u/bin/x"), "r /home/u/src/project/tools/x");
    assert_eq!(seen(&plan, "/home/u/.npm/x"), "w /mnt/npm/x");
    // Sources in the project are not replaceable: they are seen as part of it.
    let replaceable: Vec<&Path> = plan.replaceable_sources.iter().map(PathBuf::as_path).collect();
    assert_eq!(replaceable, [Path::new("/home/u/src/project/tools")]);
    let below = |mount: &&Mount| mount.at().starts_with("/home/u/src/project/.venv-3.12");
    assert_eq!(plan.mounts.iter().find(below), None);
}

#[test]
fn plan_drops_mount_of_replaced_source() {
    let more = ["/home/u/src/project/tools/x", "/home/u/bin -> src/project/tools"];
    let mut plan = plan_of(&with_env("PATH", "/home/u/bin"), &more);
    assert!(plan.drop_replaced(|_| true).is_empty());
    assert_eq!(seen(&plan, "/home/u/bin/x"), "r /home/u/src/project/tools/x");
    let tools = PathBuf::from("/home/u/src/project/tools");
    assert_eq!(plan.drop_replaced(|path| path != tools), [tools]);
    assert!(seen(&plan, "/home/u/bin/x").contains(SCRATCH));
    assert!(plan.drop_replaced(|_| false).is_empty(), "it is reported once");
}

#[test]
fn plan_mounts_external_git_directory_only_if_linked_back() {
    let other = "/home/u/other/.git";
    let gitdir = "/home/u/other/.git/worktrees/p/gitdir";
    let worktree = "/home/u/src/project/.git = gitdir: /home/u/other/.git/worktrees/p\n";
    let commondir = "/home/u/other/.git/worktrees/p/commondir = ../..\n";
    let plain = "/home/u/src/project/.git = gitdir: /home/u/other/.git\n";
    let module = "/home/u/src/project/.git = gitdir: ../../other/.git/modules/p\n";
    let text = |path: &str, text: &str| format!("{path} = {text}");
    for (lines, expected) in [
        (vec!["/home/u/src/project/.git -> ../../.ssh".to_owned()], false),
        (vec!["/home/u/src/project/.git = gitdir: /home/u/.ssh".to_owned()], false),
        (vec![format!("/home/u/src/project/.git -> {other}")], false),
        (
            vec![plain.to_owned(), text("/home/u/other/.git/config", "[core]\n\tbare = false\n")],
            false,
        ),
        (
            vec![
                plain.to_owned(),
                text("/home/u/other/.git/config", "[core]\n\tworktree = /home/u/src/project\n"),
            ],
            true,
        ),
        (
            vec![
                module.to_owned(),
                text(
                    "/home/u/other/.git/modules/p/config",
                    "[core]\n\tworktree = ../../../../src/project\n",
                ),
            ],
            true,
        ),
        (vec![worktree.to_owned(), commondir.to_owned()], false),
        (
            vec![
                worktree.to_owned(),
                commondir.to_owned(),
                text(gitdir, "/home/u/src/elsewhere/.git\n"),
            ],
            false,
        ),
        (
            vec![
                worktree.to_owned(),
                commondir.to_owned(),
                text(gitdir, "/home/u/src/project/.git\n"),
            ],
            true,
        ),
        // A git directory in the project that names another one as its own.
        (
            vec![
                "/home/u/src/project/.git = gitdir: mine".to_owned(),
                text("/home/u/src/project/mine/commondir", other),
            ],
            false,
        ),
    ] {
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.push("/home/u/other/.git/HEAD");
        let plan = plan_of(&wanted(), &lines);
        assert!(!shows_ssh(&plan), "{lines:?}");
        let shown = seen(&plan, "/home/u/other/.git/objects/x").starts_with("w /home/u/other")
            || seen(&plan, "/home/u/other/.git/modules/p/x").starts_with("w /home/u/other");
        assert_eq!(shown, expected, "{lines:?}: {:?}", plan.mounts);
    }
    let wanted = PlanInputs { writable: vec![other.into()], ..wanted() };
    let plan = plan_of(&wanted, &[plain, "/home/u/other/.git/config"]);
    assert!(seen(&plan, "/home/u/other/.git/config").starts_with("r "));
    assert!(seen(&plan, "/home/u/other/.git/index").starts_with("w /home/u/other"));
}

#[test]
fn plan_does_not_mount_link_in_git_directory() {
    for name in ["worktrees", "modules"] {
        let link = format!("/home/u/src/project/.git/{name} -> {SSH}");
        let more = [link.as_str(), "/home/u/src/project/.git/config", "/home/u/.ssh/a/HEAD"];
        let plan = plan_of(&wanted(), &more);
        assert!(!shows_ssh(&plan), "{:?}", plan.mounts);
        let at = PathBuf::from(format!("/home/u/src/project/.git/{name}"));
        assert!(!plan.mounts.iter().any(|mount| mount.at().starts_with(&at)), "{name}");
    }
}

#[test]
fn plan_ignores_agent_writable_codex_config_for_keys() {
    let env = [("THEIR_KEY", "x"), ("CODEX_HOME", "/home/u/src/project/codex")];
    let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
    let wanted = PlanInputs { adapter: "codex", env, ..wanted() };
    let config = "/home/u/src/project/codex/config.toml = env_key = \"THEIR_KEY\"";
    assert_eq!(plan_of(&wanted, &[config]).withheld, ["THEIR_KEY"]);
    let other = PlanInputs { project: "/home/u/src/other".into(), ..wanted };
    let withheld = plan_of(&other, &[config, "/home/u/src/other/"]).withheld;
    assert_eq!(withheld, [] as [&str; 0]);
}

#[test]
fn plan_advises_about_skipped_link_unless_secret() {
    for (target, advised) in [
        ("/home/u/tools", true),
        ("/mnt/data", true),
        ("/home/u/.ssh", false),
        ("/home/u/.ssh/id", false),
        ("/home/u/.aws", false),
        ("/home/u/.config", false),
    ] {
        let link = format!("/home/u/src/project/bin -> {target}");
        let mut more = vec![link.as_str(), "/home/u/tools/x", "/mnt/data/x", "/home/u/.aws/x"];
        more.push("/home/u/.config/gh/hosts.yml");
        let plan = plan_of(&with_env("PATH", "/home/u/src/project/bin"), &more);
        let note = plan.notes.join("; ");
        let advice = format!("if you created this link and the agent needs it, add {target} to");
        assert!(note.contains(&format!("to {target}")), "{target}: {note}");
        assert_eq!(note.contains(&advice), advised, "{target}: {note}");
        assert_eq!(note.contains("contains secrets"), !advised, "{target}: {note}");
    }
}
