//! Visible but protected: what git executes, files of ralph and Claude, and their parents.

use super::*;

fn guarded(plan: &SandboxPlan) -> Vec<&str> {
    plan.guards.iter().map(|guard| guard.path.to_str().unwrap()).collect()
}

fn was<'p>(plan: &'p SandboxPlan, name: &str) -> Option<&'p ExpectedEntry> {
    let path = Path::new("/home/u/src/project").join(name);
    plan.guards.iter().find(|guard| guard.path == path).map(|guard| &guard.was)
}

#[test]
fn plan_allows_commits_and_protects_git_hooks_and_config() {
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
    // Each is a mount, or it could be renamed.
    for dir in ["", "/modules", "/modules/sub", "/modules/sub/dir"] {
        assert!(plan.mounts.iter().any(|mount| mount.at() == Path::new(&format!("{git}{dir}"))));
    }
}

#[test]
fn plan_shares_common_git_directory_with_worktree() {
    let plan = plan_of(
        &wanted(),
        &[
            "/home/u/src/project/.git = gitdir: /home/u/main/.git/worktrees/p\n",
            "/home/u/main/.git/worktrees/p/commondir = ../..\n",
            "/home/u/main/.git/worktrees/p/gitdir = /home/u/src/project/.git\n",
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
fn plan_shows_rest_of_repository_read_only() {
    let plan = plan_of(&wanted(), &["/home/u/src/.git/config", "/home/u/src/other"]);
    assert_eq!(seen(&plan, "/home/u/src/other"), "r /home/u/src/other");
    assert_eq!(seen(&plan, "/home/u/src/.git/index"), "w /home/u/src/.git/index");
    assert_eq!(seen(&plan, "/home/u/src/project/x"), "w /home/u/src/project/x");
    // Dot files in git must not show the home directory.
    let plan = plan_of(&wanted(), &["/home/u/.git/config"]);
    assert!(seen(&plan, "/home/u/.ssh/id").contains(SCRATCH));
    assert!(seen(&plan, "/home/u/.git/config").contains(SCRATCH));
}

#[test]
fn plan_protects_ralph_and_claude_files_even_if_missing() {
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
        assert_eq!(guard(name).unwrap().was, ExpectedEntry::Nothing, "{name}");
    }
    assert_eq!(guard(".claude/hooks").unwrap().was, ExpectedEntry::Link("../hooks".into()));
    // A missing directory cannot be mounted, but it and its files are guarded.
    let plan = plan_of(&wanted(), &[]);
    let guard = |name: &str| plan.guards.iter().position(|guard| guard.path.ends_with(name));
    let (dir, file) = (guard(".claude").unwrap(), guard(".claude/settings.json").unwrap());
    assert_eq!(plan.guards[dir].was, ExpectedEntry::Directory);
    assert!(dir < file, "{:?}", plan.guards);
}

#[test]
fn plan_protects_writable_targets_of_user_links() {
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
        (".claude", ExpectedEntry::Link("there/cfg".into())),
        ("there", ExpectedEntry::Link("real".into())),
        ("real/cfg/settings.local.json", ExpectedEntry::Nothing),
        ("real", ExpectedEntry::Directory),
        ("shared/deep", ExpectedEntry::Directory),
        (".ralph/config", ExpectedEntry::Link("../to-come/config".into())),
        ("to-come", ExpectedEntry::Directory),
        ("to-come/config", ExpectedEntry::Nothing),
    ] {
        assert_eq!(was(&plan, name), Some(&expected), "{name}: {:?}", plan.guards);
    }
    for name in ["real/cfg/settings.json", "shared/deep/settings.json"] {
        let path = format!("{project}/{name}");
        assert_eq!(seen(&plan, &path), format!("r {path}"));
        for dir in Path::new(&path).ancestors().skip(1).take_while(|dir| *dir != Path::new(project))
        {
            assert!(plan.mounts.iter().any(|mount| mount.at() == dir), "{}", dir.display());
        }
    }
    // Paths outside belong to the user.
    assert!(!guarded(&plan).iter().any(|path| path.starts_with("/home/u/prompts")));
}

#[test]
fn plan_guards_against_new_git_directory() {
    for (more, expected) in [
        (&[][..], Some(ExpectedEntry::Nothing)),
        (&["/home/u/src/.git/config"], Some(ExpectedEntry::Nothing)),
        (&["/home/u/src/project/.git/config"], Some(ExpectedEntry::Directory)),
        (&["/home/u/src/project/.git = nonsense"], Some(ExpectedEntry::File)),
        (&["/home/u/src/project/.git -> gone"], Some(ExpectedEntry::Link("gone".into()))),
        (
            &["/home/u/src/project/.git -> repo", "/home/u/src/project/repo/config"],
            Some(ExpectedEntry::Link("repo".into())),
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
        Some(&ExpectedEntry::Nothing)
    );
}

#[test]
fn plan_makes_too_many_submodules_read_only() {
    let heads: Vec<String> =
        (0..201).map(|nth| format!("/home/u/src/project/.git/modules/m{nth}/HEAD")).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let plan = plan_of(&wanted(), &heads);
    assert!(seen(&plan, "/home/u/src/project/.git/modules/m200/config").starts_with('r'));
    assert!(plan.notes.iter().any(|note| note.contains("too many submodules")), "{:?}", plan.notes);
}

#[test]
fn plan_protects_config_of_other_tools_even_if_missing() {
    let executed = [
        ".amp/settings.json",
        ".clinerules/hooks",
        ".codex/config.toml",
        ".codex/hooks.json",
        ".cursor/mcp.json",
        ".gemini/settings.json",
        ".github/hooks",
        ".hg/hgrc",
        ".jj/repo/config.toml",
        ".jj/repo/store/git_target",
        ".mcp.json",
        ".opencode",
        ".qwen/settings.json",
        "opencode.json",
        "opencode.jsonc",
    ];
    let path = |name: &str| format!("/home/u/src/project/{name}");
    let existing: Vec<String> = executed.iter().map(|name| path(name)).collect();
    let existing: Vec<&str> = existing.iter().map(String::as_str).collect();
    let plan = plan_of(&wanted(), &existing);
    for name in executed {
        assert_eq!(seen(&plan, &path(name)), format!("r {}", path(name)));
        for dir in Path::new(name).ancestors().skip(1).filter(|dir| *dir != Path::new("")) {
            let dir = Path::new("/home/u/src/project").join(dir);
            assert!(plan.mounts.iter().any(|mount| mount.at() == dir), "{}", dir.display());
        }
    }
    for name in [".codex/prompts/x", ".github/workflows/x", ".jj/repo/op_store/x", ".vscode/x"] {
        assert!(seen(&plan, &path(name)).starts_with("w "), "{name}");
    }
    let plan = plan_of(&wanted(), &[]);
    for name in executed.iter().filter(|name| !name.starts_with(".hg") && !name.starts_with(".jj"))
    {
        assert_eq!(was(&plan, name), Some(&ExpectedEntry::Nothing), "{name}");
    }
    for name in [".hg", ".jj"] {
        assert_eq!(was(&plan, name), Some(&ExpectedEntry::Nothing), "{name}");
    }
    // Directories without protected content can be removed.
    let plan = plan_of(&wanted(), &["/home/u/src/project/.github/workflows/x"]);
    assert!(!plan.mounts.iter().any(|mount| mount.at().ends_with(".github")));
    assert_eq!(was(&plan, ".github"), Some(&ExpectedEntry::Directory));
}

#[test]
fn plan_keeps_file_in_place_of_config_directory() {
    let more = ["/home/u/src/project/.clinerules", "/home/u/src/project/.jj/repo = ../../main/.jj"];
    let plan = plan_of(&wanted(), &more);
    for name in [".clinerules", ".jj/repo"] {
        assert_eq!(was(&plan, name), Some(&ExpectedEntry::File), "{:?}", plan.guards);
        assert_eq!(plan.guards.iter().filter(|guard| guard.path.ends_with(name)).count(), 1);
    }
    assert_eq!(was(&plan, ".jj/repo/store"), None);
}

#[test]
fn plan_protects_nested_project() {
    let nested = "/home/u/src/project/packages/app";
    let gone = "/home/u/src/project/gone";
    let linked = "/home/u/src/project/linked";
    let wanted = PlanInputs {
        nested_projects: [gone, linked, nested].map(PathBuf::from).to_vec(),
        ..wanted()
    };
    let lines = [".ralph/settings.json", ".ralph/config", ".git/config", ".git/hooks/", "src/x"]
        .map(|name| format!("{nested}/{name}"));
    let mut more: Vec<&str> = lines.iter().map(String::as_str).collect();
    more.push("/home/u/src/project/linked -> /home/u/.ssh");
    let plan = plan_of(&wanted, &more);
    for (name, expected) in [
        (".ralph/settings.json", "r"),
        (".ralph/config", "r"),
        (".git/config", "r"),
        (".git/hooks/pre-commit", "r"),
        (".git/index", "w"),
        ("src/x", "w"),
    ] {
        let seen = seen(&plan, &format!("{nested}/{name}"));
        assert!(seen.starts_with(expected), "{name}: {seen}");
    }
    for dir in ["/home/u/src/project/packages", nested] {
        assert!(plan.mounts.iter().any(|mount| mount.at() == Path::new(dir)), "{dir}");
    }
    for (name, expected) in [
        ("packages/app", Some(&ExpectedEntry::Directory)),
        ("packages/app/.ralph/settings.local.json", Some(&ExpectedEntry::Nothing)),
        ("packages/app/.claude/settings.json", Some(&ExpectedEntry::Nothing)),
        // A run of that project creates it.
        ("packages/app/.ralph/runs", None),
        ("gone/.ralph/settings.json", Some(&ExpectedEntry::Nothing)),
        ("gone/.git", None),
        ("linked/.ralph/settings.json", None),
    ] {
        assert_eq!(was(&plan, name), expected, "{name}");
    }
}
