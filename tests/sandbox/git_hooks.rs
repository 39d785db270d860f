//! Git hooks and configuration in the work tree, where an agent can write.

use std::fs;
use std::os::unix::fs::symlink;

use crate::git_links::{DONE, MESSAGE, Scene};

const HOOK: &str =
    "printf '#!/bin/sh\\ntouch \"$HOME/hook-ran\"\\n' > scripts/hook; chmod +x scripts/hook\n";

const NOT_RUN: &str = "agents can change";

fn scene(sandbox: &'static str, prepare: impl Fn(&Scene)) -> Option<Scene> {
    let scene = Scene::new(sandbox, 0)?;
    scene.project.write("scripts/hook", "#!/bin/sh\n").write(".gitconfig", "[commit]\n");
    prepare(&scene);
    scene.project.git_command(["add", "-A"]);
    scene.project.git_command(["commit", "-qm", "Hooks"]);
    Some(scene)
}

fn hooks_path(scene: &Scene) {
    scene.project.git_command(["config", "core.hooksPath", "scripts"]);
}

fn hook_ran(scene: &Scene) -> bool {
    scene.project.home().join("hook-ran").exists()
}

#[test]
fn hooks_in_work_tree_are_not_run_after_sandboxed_agent() {
    let Some(scene) = scene("--sandbox=bwrap", hooks_path) else { return };
    let hook = HOOK.replace("scripts/hook", "scripts/pre-commit");
    let output = scene.run(&format!("{MESSAGE}echo two > file\n{hook}{DONE}")).run();
    output.code(0).stderr_has("git hooks in scripts are disabled");
    assert_eq!(output.stderr.matches(NOT_RUN).count(), 1, "said once: {}", output.stderr);
    assert!(!hook_ran(&scene), "by the commit of the run");
    let output = scene.ralph(&["archive", "--force"]).run();
    output.code(0).stdout_has("Committed as").stderr_has(NOT_RUN);
    assert!(!hook_ran(&scene), "by archive");
}

#[test]
fn hooks_in_work_tree_are_run_without_sandbox() {
    let Some(scene) = scene("--no-sandbox", hooks_path) else { return };
    let hook = HOOK.replace("scripts/hook", "scripts/pre-commit");
    let output = scene.run(&format!("{MESSAGE}echo two > file\n{hook}{DONE}")).run();
    output.code(0).stderr_lacks(NOT_RUN);
    assert!(hook_ran(&scene));
}

#[test]
fn hook_linked_into_work_tree_is_not_run_by_spawn() {
    let link = |scene: &Scene| {
        let hooks = scene.project.path().join(".git/hooks");
        fs::create_dir_all(&hooks).unwrap();
        symlink("../../scripts/hook", hooks.join("post-checkout")).unwrap();
    };
    let Some(scene) = scene("--sandbox=bwrap", link) else { return };
    scene.run(&format!("{MESSAGE}{HOOK}{DONE}")).run().code(0);
    let args = ["spawn", "--name", "b", "--worktree", "-n", "1", "-p", "x", "--", "true"];
    scene.ralph(&args).run().stderr_has(NOT_RUN).stderr_has(".git/hooks/post-checkout");
    assert!(!hook_ran(&scene));
    scene.ralph(&["kill", "b"]).run();
}

#[test]
fn git_config_in_work_tree_is_refused_after_sandboxed_agent() {
    let include = |scene: &Scene| {
        scene.project.git_command(["config", "include.path", "../.gitconfig"]);
    };
    let Some(scene) = scene("--sandbox=bwrap", include) else { return };
    let config =
        "printf '[commit]\\ngpgsign=true\\n[gpg]\\nprogram=scripts/hook\\n' > .gitconfig\n";
    let output = scene.run(&format!("{MESSAGE}echo two > file\n{HOOK}{config}{DONE}")).run();
    output.stdout_has("/project/.gitconfig, which agents can change");
    let output = scene.ralph(&["archive", "--force"]).run();
    output.stderr_has(".gitconfig").stderr_has("move it out of the project");
    assert!(!hook_ran(&scene));
}
