//! Workers with their own git worktree.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, Project, skipped, wait_until};

fn repository() -> Workshop {
    let shop = Workshop { project: Project::git() };
    shop.write("code.txt", "one\n").write(".gitignore", ".env\nbuild/\n");
    shop.git_command(["add", "-A"]);
    shop.git_command(["commit", "--quiet", "-m", "begin"]);
    shop.write("PROMPT.md", "Do the next thing.\n");
    shop
}

fn worktree(shop: &Workshop, name: &str) -> PathBuf {
    shop.sibling("project-worktrees").join(name)
}

fn branches(shop: &Workshop) -> Vec<String> {
    let text = shop.git_command(["branch", "--format=%(refname:short)"]);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn worker_can_have_its_own_worktree_and_branch() {
    let shop = repository();
    shop.settings(&json!({"worker": {"copy": [".env", "config/local", "missing"]}}));
    shop.write(".env", "KEY=1\n").write("config/local/a", "A");
    let agent = shop.fake_agent(&json!([
        shop.record_step(),
        {"shell": "cat .env config/local/a > seen; echo two > code.txt; git commit -qam two"},
    ]));
    shop.spawn(1, &["--worktree", "--wait"])
        .args(&agent)
        .run()
        .code(0)
        .stderr_has("the worktree starts from HEAD, without your uncommitted changes: ")
        .stderr_lacks("PROMPT.md");
    let tree = worktree(&shop, "agent");
    assert_eq!(shop.agent_starts()[0]["cwd"], tree.to_str().unwrap());
    assert_eq!(shop.state().unwrap()["directory"], tree.to_str().unwrap());
    assert_eq!(shop.read("code.txt"), "one\n");
    assert_eq!(std::fs::read_to_string(tree.join("code.txt")).unwrap(), "two\n");
    assert_eq!(std::fs::read_to_string(tree.join("seen")).unwrap(), "KEY=1\nA");
    assert_eq!(branches(&shop), ["agent", "main"]);
    shop.ralph(["logs", "agent"]).run().code(0).stdout_has("iteration limit reached");
    shop.ralph(["report", "agent"]).run().code(0).stdout_has("Command    ralph spawn with");
    shop.ralph(["rm", "--worktree", "agent"])
        .run()
        .code(1)
        .stderr_has("has uncommitted changes: seen")
        .stderr_has("--force");
    assert!(tree.join("seen").exists() && shop.state().is_some());
    std::fs::remove_file(tree.join("seen")).unwrap();
    shop.ralph(["rm", "--worktree", "agent"])
        .run()
        .code(0)
        .stdout_is("kept branch agent\nremoved agent\n");
    assert!(!shop.sibling("project-worktrees").exists());
    assert_eq!(branches(&shop), ["agent", "main"]);
    // An existing branch is used only if it is named.
    shop.spawn(1, &["--worktree"])
        .args(&agent)
        .run()
        .code(1)
        .stderr_has("cannot create a worktree for 'agent': branch 'agent' already exists");
    let nothing = shop.fake_agent(&json!([{"print": "x"}]));
    shop.spawn(1, &["--worktree", "--branch", "agent", "--wait"]).args(&nothing).run().code(0);
    assert_eq!(std::fs::read_to_string(tree.join("code.txt")).unwrap(), "two\n");
}

#[test]
fn branch_without_commits_is_removed_with_worktree() {
    let shop = repository();
    let agent = shop.fake_agent(&json!([{"shell": "echo more > more.txt"}]));
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0).stderr_is("");
    shop.ralph(["rm", "agent", "--worktree", "--force"]).run().code(0).stdout_is("removed agent\n");
    assert!(!worktree(&shop, "agent").exists());
    assert_eq!(branches(&shop), ["main"]);
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0);
    shop.ralph(["rm", "agent"]).run().code(0).stderr_has("kept its worktree: ");
    assert!(worktree(&shop, "agent").exists());
    shop.spawn(1, &["--worktree"])
        .args(&agent)
        .run()
        .code(1)
        .stderr_has("cannot create a worktree for 'agent': worktree already exists: ");
}

#[test]
fn commits_on_no_branch_prevent_worktree_removal() {
    let shop = repository();
    let agent = shop.fake_agent(&json!([
        {"shell": "git checkout -q --detach && echo x > code.txt && git commit -qam x"},
    ]));
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0);
    shop.ralph(["rm", "-w", "agent"]).run().code(1).stderr_has("commits that are on no branch");
    assert!(worktree(&shop, "agent").exists());
}

#[test]
fn project_in_subdirectory_is_found_in_worktree() {
    let shop = repository();
    shop.write("part/PROMPT.md", "Do it.");
    shop.git_command(["add", "part"]);
    shop.git_command(["commit", "--quiet", "-m", "a part"]);
    let agent = shop.fake_agent(&json!([shop.record_step()]));
    shop.spawn(1, &["-w", "--wait", "-C", "part"]).args(&agent).run().code(0);
    assert_eq!(
        shop.agent_starts()[0]["cwd"],
        worktree(&shop, "agent").join("part").to_str().unwrap()
    );
    shop.write("uncommitted/PROMPT.md", "Do it.");
    shop.spawn_as("new", 1, &["-w", "-C", "uncommitted"])
        .args(&agent)
        .run()
        .code(2)
        .stderr_has("HEAD has no uncommitted");
    assert!(!worktree(&shop, "new").exists());
    assert_eq!(branches(&shop), ["agent", "main"]);
}

#[test]
fn failed_worktree_spawn_names_step_and_leaves_nothing() {
    let shop = repository();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    let spawn = |more: &[&str]| shop.spawn(1, more).args(&agent);
    let nothing_is_left = || {
        assert!(!shop.sibling("project-worktrees").exists());
        assert_eq!(branches(&shop), ["main"]);
        assert!(!shop.file("").exists());
        wait_until(LONG, || shop.windows().is_empty());
    };
    let elsewhere = Workshop::new();
    let output = elsewhere.spawn(1, &["-w"]).args(&agent).run();
    output.code(2).stderr_has("cannot create a worktree for 'agent': not a git repository");
    shop.settings(&json!({"worker": {"copy": ["../secret"]}}));
    spawn(&["-w"]).run().code(2).stderr_has("worker.copy: \"../secret\" is outside the project");
    nothing_is_left();
    shop.settings(&json!({}));
    std::fs::write(shop.sibling("project-worktrees"), "a file").unwrap();
    spawn(&["-w"]).run().code(1).stderr_has("cannot create a worktree for 'agent': git worktree");
    std::fs::remove_file(shop.sibling("project-worktrees")).unwrap();
    nothing_is_left();
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|path| path.exists())
        .unwrap();
    std::os::unix::fs::symlink(git, shop.sibling("bin").join("git")).unwrap();
    spawn(&["-w"])
        .env("PATH", shop.sibling("bin"))
        .run()
        .code(1)
        .stderr_has("cannot open a window for 'agent': tmux was not found");
    nothing_is_left();
    // The loop cannot start: a file is in the place of `.ralph`.
    std::fs::remove_dir_all(shop.path().join(".ralph")).unwrap();
    shop.write(".ralph", "a file");
    shop.git_command(["add", "-A"]);
    shop.git_command(["commit", "--quiet", "-m", "in the way"]);
    std::fs::remove_file(shop.path().join(".ralph")).unwrap();
    spawn(&["-w"]).run().code(2).stderr_has("the loop of 'agent' did not start: ");
    nothing_is_left();
}

#[test]
fn previous_worker_survives_failed_respawn() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    shop.spawn(1, &["--wait"]).args(&agent).run().code(0);
    let output = shop.spawn(7, &["--worktree"]).args(&agent).run();
    output.code(2).stderr_has("not a git repository");
    let state = shop.state().expect("the worker of before");
    assert_eq!((&state["status"], &state["max_iterations"]), (&json!("stopped"), &json!(1)));
    shop.spawn(2, &["--wait"]).args(&agent).run().code(0);
    assert_eq!(shop.state().unwrap()["max_iterations"], 2);
    let leftovers: Vec<_> = std::fs::read_dir(shop.home().join(".ralph/workers"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains("before"))
        .collect();
    assert_eq!(leftovers, [""; 0]);
}

#[test]
fn ctrl_c_during_worktree_spawn_leaves_nothing() {
    let shop = repository();
    // git hangs while it creates the worktree.
    shop.write(
        ".git/hooks/post-checkout",
        format!(
            "#!/bin/sh\ntouch {0}\nwhile :; do sleep 1; done\n",
            shop.sibling("checking-out").display()
        ),
    );
    let hook = shop.path().join(".git/hooks/post-checkout");
    std::fs::set_permissions(hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    let terminal = shop.spawn(1, &["-w"]).args(&agent).in_tmux();
    wait_until(LONG, || shop.sibling("checking-out").exists());
    terminal.send_keys(["C-c"]);
    assert_eq!(terminal.wait_for_exit(LONG), 130);
    let screen = terminal.scrollback();
    assert!(
        screen.contains("cannot create a worktree for 'agent': git worktree: interrupted"),
        "{screen}"
    );
    assert!(!shop.sibling("project-worktrees").exists());
    assert_eq!(branches(&shop), ["main"]);
    assert!(!shop.file("").exists());
}

#[test]
fn twenty_workers_in_one_repository_finish() {
    let shop = repository();
    shop.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    shop.git_command(["add", "-A"]);
    shop.git_command(["commit", "--quiet", "-m", "settings"]);
    let agent = shop.fake_agent(&json!([
        {"shell": "echo $RALPH_RUN_ID > part-$RALPH_ITERATION.txt"},
        {"print": "Add a part"},
    ]));
    let names: Vec<String> = (1..=20).map(|n| format!("w{n}")).collect();
    let spawned: Vec<_> = names
        .iter()
        .map(|name| {
            let spawn = shop.spawn_as(name, 2, &["--worktree", "--wait"]);
            spawn.args(&agent).deadline(LONG * 5).start()
        })
        .collect();
    for worker in spawned {
        worker.wait().code(0).stderr_is("");
    }
    for name in &names {
        let directory = worktree(&shop, name);
        assert!(directory.join("part-1.txt").exists() && directory.join("part-2.txt").exists());
        let log = shop.git_command(["log", "--format=%s", &format!("main..{name}")]);
        assert_eq!(log.lines().count(), 2, "{name}: {log}");
    }
    shop.ralph(["rm", "--all", "--worktree"]).deadline(LONG * 2).run().code(0);
    assert!(!shop.sibling("project-worktrees").exists());
}

#[test]
fn worktree_uses_settings_of_spawning_project() {
    let shop = repository();
    shop.settings(&json!({"guardrails": [{"command": "touch mine"}]}));
    // An agent can commit other settings even if its own are protected, and a nested repository.
    let evil = json!({"guardrails": [{"command": "touch evil"}]});
    let evil_file = shop.sibling("evil.json");
    std::fs::write(&evil_file, evil.to_string()).unwrap();
    let blob = shop.git_command(["hash-object", "-w", evil_file.to_str().unwrap()]);
    let entry = format!("100644,{},.ralph/settings.json", blob.trim());
    shop.git_command(["update-index", "--add", "--cacheinfo", &entry]);
    shop.git_command(["commit", "--quiet", "-m", "work"]);
    let secret = shop.sibling("secret");
    std::fs::write(&secret, "KEY").unwrap();
    std::os::unix::fs::symlink(&secret, shop.path().join(".env")).unwrap();
    let canary = shop.sibling("canary");
    let agent = shop.fake_agent(&json!([{"shell": format!(
        "git init -q lib && cd lib && git commit -q --allow-empty -m x && cd .. && git add lib &&\n\
         git -C lib config core.fsmonitor 'touch {}; false' && git commit -qm lib",
        canary.display()
    )}]));
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0);
    let tree = worktree(&shop, "agent");
    assert!(tree.join("mine").exists());
    assert!(!tree.join("evil").exists());
    // A link is copied as a link.
    assert_eq!(std::fs::read_link(tree.join(".env")).unwrap(), secret.canonicalize().unwrap());
    std::fs::remove_file(tree.join("mine")).unwrap();
    // The state of the other repository is unknown unless git runs in it.
    let rm = || shop.ralph(["rm", "--worktree", "agent"]);
    rm().run().code(1).stderr_has("contains a submodule, which is not checked for changes: lib");
    rm().arg("--force").run().code(0);
    assert!(!canary.exists());
}

/// The commands that the report suggests work where the user is.
#[test]
fn worker_with_exhausted_budget_resumes_with_larger_one() {
    let shop = repository();
    let cost = json!({"claude": {"result": {"total_cost_usd": 0.6}}});
    shop.install_agent(
        "claude",
        &json!([shop.record_step(), {"claude": {"text": "working"}}, cost]),
    );
    let spawn = shop.spawn(9, &["--worktree", "--no-sandbox", "--max-cost", "1", "--wait"]);
    spawn.arg("claude").run().code(3);
    assert_eq!(shop.agent_starts().len(), 2);
    let run = shop.state().unwrap()["run_id"].as_str().unwrap().to_owned();
    let output = shop.ralph(["report", &run]).run();
    output
        .code(0)
        .stdout_has("cost $1.20 of $1.00")
        .stdout_has(&format!("  ralph resume {} --max-cost 2", &run[run.len() - 4..]));
    for name in ["agent", &run] {
        shop.ralph(["replay", name]).run().code(0).stdout_has("cost $1.20 of $1.00");
        let resume = |more: &[&str]| shop.ralph(["resume", name]).args(more).run();
        resume(&[]).code(2).stderr_has("is used up: cost $1.20 of $1.00").stderr_has("--max-cost");
        resume(&["--max-cost", "1.1"]).code(2).stderr_has("cost $1.20 of $1.10");
        resume(&["--dry-run"]).code(2);
    }
    assert_eq!(shop.agent_starts().len(), 2);
    shop.ralph(["resume", &run, "--max-cost", "2"]).run().code(0).stdout_has("resumed");
    shop.ralph(["wait", "agent"]).run().code(3);
    assert_eq!(shop.agent_starts().len(), 4, "$2.40");
    let refused = shop.ralph(["resume", "agent"]).run();
    refused.code(2).stderr_has("cost $2.40 of $2.00");
    shop.ralph(["resume", "agent", "--max-cost", "3", "-n", "5"]).run().code(0);
    shop.ralph(["wait", "agent"]).run().code(3);
    assert_eq!(shop.agent_starts().len(), 5);
}

/// A new worktree must not get around the project's sandbox record.
#[test]
fn worktree_worker_uses_sandbox_record_of_its_project() {
    let shop = repository();
    let check = shop.ralph(["sandbox", "check"]).run();
    if !check.stdout.contains("ok      landlock") {
        return skipped("Landlock does not work here");
    }
    let spawn = shop.spawn(1, &["--worktree", "--sandbox=landlock", "--wait"]);
    spawn.args(["sh", "-c", "true"]).run().code(0);
    let records = ralph_store::project_record::all_records(&shop.home().join(".ralph"));
    for record in records {
        let expected = (record.root == shop.path()).then_some("landlock");
        assert_eq!(record.sandbox.as_deref(), expected, "{record:?}");
    }
}

#[test]
fn worktree_spawn_deletes_nothing_through_planted_links() {
    let shop = repository();
    let victim = shop.sibling("victim");
    std::fs::create_dir_all(victim.join("entry")).unwrap();
    std::fs::write(victim.join("entry/file"), "mine").unwrap();
    let plant = format!("ln -s {} .git/worktrees; touch planted; sleep 1000", victim.display());
    let run = ["run", "--no-sandbox", "-p", "x", "-n", "1", "--", "sh", "-c", &plant];
    let running = shop.ralph(run).start();
    shop.wait_for_file("planted");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    let spawn = |name: &str, branch: &str| {
        shop.spawn_as(name, 1, &["--worktree", "--branch", branch, "--wait"]).args(&agent).run()
    };
    spawn("one", "new").code(0).stderr_has("in the git directory were moved away");
    spawn("two", "no branch").code(1);
    std::fs::remove_dir_all(worktree(&shop, "one")).unwrap();
    shop.ralph(["rm", "--worktree", "one"]).run().code(0);
    assert_eq!(std::fs::read_to_string(victim.join("entry/file")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
}

#[test]
fn rm_worktree_removes_only_its_own_entry() {
    let shop = repository();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0);
    let other = shop.sibling("other");
    shop.git_command(["worktree", "add", "-q", other.to_str().unwrap()]);
    // Both were deleted behind git's back; the other may be on an unmounted disk.
    std::fs::remove_dir_all(&other).unwrap();
    std::fs::remove_dir_all(worktree(&shop, "agent")).unwrap();
    shop.ralph(["rm", "--worktree", "agent"]).run().code(0);
    assert!(shop.has(".git/worktrees/other") && !shop.has(".git/worktrees/agent"));
}

#[test]
fn rm_worktree_refuses_link_in_its_place() {
    let shop = repository();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run().code(0);
    let (there, victim) = (worktree(&shop, "agent"), shop.sibling("victim"));
    std::fs::rename(&there, &victim).unwrap();
    std::os::unix::fs::symlink(&victim, &there).unwrap();
    let output = shop.ralph(["rm", "--worktree", "--force", "agent"]).run();
    output.code(1).stderr_has(": not a directory");
    assert!(victim.join("code.txt").exists());
}

#[test]
fn spawn_worktree_reports_empty_submodules() {
    let shop = repository();
    let part =
        "git init -q part && cd part && echo a >a && git add a && git commit -qm Part && cd ..
        git -c protocol.file.allow=always submodule --quiet add ./part part
        git commit -qm 'Add the part'";
    shop.program("sh", ["-c", part]).run().success();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    let output = shop.spawn(1, &["--worktree", "--wait"]).args(&agent).run();
    output.code(0).stderr_has("submodules are empty in the worktree: part");
}
