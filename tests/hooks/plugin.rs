//! The plugin: scripts and manifest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::recorded_input;
use crate::support::{Output, Project};

fn source() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("plugin")
}

fn install_echo_program(project: &Project, name: &str) {
    let path = project.sibling("bin").join(name);
    fs::write(&path, "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\n").expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
}

fn script(project: &Project, name: &str, args: &[&str]) -> Output {
    project.program(source().join("scripts").join(name), args).run()
}

#[test]
fn plugin_scripts_pass_flags_to_ralph() {
    let project = Project::new();
    install_echo_program(&project, "ralph");
    for (name, args, expected) in [
        ("ralph.sh", &[][..], "<work>"),
        ("ralph.sh", &["-n", "3", "-m", "opus"], "<work><--max-iterations><3><--model><opus>"),
        (
            "ralph.sh",
            &["--max-iterations=3", "--model=a b", "--ralph-dir", "r", "-d", "p q", "--sandbox"],
            "<work><--max-iterations><3><--model><a b><--ralph-dir><r><--project-dir><p q><--sandbox>",
        ),
        (
            "ralph.sh",
            &["--project-dir", "p", "--no-sandbox"],
            "<work><--project-dir><p><--no-sandbox>",
        ),
        ("ralph-init.sh", &[], "<new>"),
        (
            "ralph-init.sh",
            &["--project-dir", "p q", "--name", "login"],
            "<new><--project-dir><p q><--name><login>",
        ),
        (
            "ralph-archive.sh",
            &["--label=v 1", "--project-dir=p"],
            "<archive><--label><v 1><--project-dir><p>",
        ),
    ] {
        script(&project, name, args).code(0).stdout_is(expected).stderr_is("");
    }
    for name in ["ralph.sh", "ralph-init.sh", "ralph-archive.sh"] {
        script(&project, name, &["--help"])
            .code(0)
            .stdout_has("Usage: ")
            .stdout_has("--project-dir");
        script(&project, name, &["--nonsense"]).code(2).stderr_has("unknown option: --nonsense");
        script(&project, name, &["--project-dir"]).code(2).stderr_has("needs a value");
    }
}

fn bare_path(project: &Project) -> PathBuf {
    let bare = project.sibling("bare");
    fs::create_dir(&bare).expect("a directory");
    for program in ["sh", "bash", "env", "cat"] {
        let found = project.command("sh").args(["-c", &format!("command -v {program}")]).output();
        let path = String::from_utf8(found.expect("sh").stdout).expect("UTF-8");
        std::os::unix::fs::symlink(path.trim(), bare.join(program)).expect("a link");
    }
    bare
}

#[test]
fn missing_ralph_warns_in_hooks_and_fails_scripts() {
    let project = Project::new();
    let bare = bare_path(&project);
    for name in ["session-start", "pre-tool-use", "post-tool-use", "stop"] {
        let hook = source().join("hooks/ralph-hook.sh");
        let ralph = project.program("sh", [hook.as_os_str(), name.as_ref()]);
        let output = ralph.env("PATH", &bare).env("RALPH_RUN_ID", "x").stdin("{").run();
        output.code(0).stdout_is("").stderr_has("ralph is not on the PATH");
    }
    let work = project.program(source().join("scripts/ralph.sh"), [""; 0]).env("PATH", &bare).run();
    work.code(127).stderr_has("not on the PATH");
}

#[test]
fn every_plugin_hook_exists() {
    let hooks = fs::read_to_string(source().join("hooks/hooks.json")).expect("hooks");
    let hooks: serde_json::Value = serde_json::from_str(&hooks).expect("JSON");
    let project = Project::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ralph"), project.sibling("bin").join("ralph"))
        .expect("a link");
    let events = hooks["hooks"].as_object().expect("events");
    assert_eq!(events.len(), 4);
    for (event, entries) in events {
        let hook = &entries[0]["hooks"][0];
        let program = hook["command"].as_str().expect("a program");
        let args = hook["args"].as_array().expect("arguments").iter().map(|arg| {
            let arg = arg.as_str().expect("an argument");
            arg.replace("${CLAUDE_PLUGIN_ROOT}", source().to_str().expect("UTF-8"))
        });
        let input = recorded_input(&project, event).to_string();
        project.program(program, args).stdin(input).run().assert_silent();
    }
}

#[test]
fn sandbox_setup_script_is_repeatable() {
    let project = Project::new();
    let home = project.sibling("sandbox-home");
    let state = project.sibling("state");
    let bin = project.sibling("bin");
    fs::create_dir_all(home.join(".claude")).expect("a directory");
    fs::create_dir(&state).expect("a directory");
    fs::write(state.join(".claude.json"), "").expect("a file");
    let user = project.command("id").arg("-un").output().expect("id").stdout;
    let user = String::from_utf8(user).expect("UTF-8");
    let set_up = || {
        let script = fs::read(source().join("sandbox/setup.sh")).expect("the script");
        let ralph = Path::new(env!("CARGO_BIN_EXE_ralph"));
        project
            .program("bash", ["-s", "--"])
            .args([&state, &ralph.to_owned()])
            .env("SANDBOX_HOME", &home)
            .env("SANDBOX_USER", user.trim())
            .env("SANDBOX_BIN", &bin)
            .stdin(script)
            .run()
    };
    set_up().code(0).stderr_is("");
    fs::write(home.join(".claude/credentials"), "kept").expect("by the link");
    set_up().code(0).stderr_is("");
    assert_eq!(fs::read_to_string(state.join(".claude/credentials")).expect("kept"), "kept");
    assert_eq!(fs::read_to_string(home.join(".claude.json")).expect("JSON"), "{}\n");
    let config = fs::read_to_string(home.join(".gitconfig")).expect("git's configuration");
    assert_eq!(config.matches("ralph@localhost").count(), 1, "{config}");
    project.program(bin.join("ralph"), ["--version"]).run().code(0);
    assert!(!project.home().join(".gitconfig").exists());
}

#[test]
fn plugin_export_is_complete_or_nothing() {
    let project = Project::new();
    let export = |args: &[&str]| project.ralph(["plugin", "export"]).args(args).run();
    export(&["out"]).code(0).stdout_has("claude --plugin-dir out");
    assert!(project.has("out/.claude-plugin/plugin.json"));
    let script = project.path().join("out/scripts/ralph.sh");
    assert_eq!(script.metadata().expect("the script").permissions().mode() & 0o111, 0o111);
    export(&["out"]).code(2).stderr_has("already exists").stderr_has("--force");
    project.write("out/skills/ralph-plan/SKILL.md", "mine").write("out/own.txt", "mine");
    export(&["out", "--force"]).code(0);
    assert!(project.read("out/skills/ralph-plan/SKILL.md").starts_with("---\nname: ralph-plan"));
    assert_eq!(project.read("out/own.txt"), "mine");
    export(&["out/own.txt"]).code(2).stderr_has("not a directory");
    export(&[]).code(2);
}
