//! Variables that load code of the project apply only inside the sandbox.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::json;

use crate::landlock;
use crate::runs::{DONE, bwrap_works, run};
use crate::support::{Project, skipped};

/// Builds a library that appends its loading programs to `loaded`. `None` without a compiler.
fn make_library(project: &Project) -> Option<()> {
    let source = project.sibling("library.c");
    let loaded = project.path().join("loaded");
    let text = format!(
        "#include <fcntl.h>\n#include <unistd.h>\n\
         __attribute__((constructor)) static void loaded(void) {{\n\
         char name[64];\n\
         int from = open(\"/proc/self/comm\", O_RDONLY);\n\
         ssize_t length = read(from, name, sizeof name);\n\
         int to = open(\"{}\", O_CREAT | O_WRONLY | O_APPEND, 0644);\n\
         if (length > 0 && write(to, name, length) == length) close(to);\n\
         close(from);\n}}\n",
        loaded.display()
    );
    fs::write(&source, text).unwrap();
    let library = project.path().join("library.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    if !compiler.status().is_ok_and(|status| status.success()) {
        skipped("there is no C compiler");
        return None;
    }
    Some(())
}

fn preload_from_inside(backend: &str) {
    let project = Project::git();
    if make_library(&project).is_none() {
        return;
    }
    let planted = project.path().join("lib/planted.so");
    fs::create_dir(project.path().join("lib")).unwrap();
    project.settings(&json!({
        "agent": {"env": {"LD_PRELOAD": planted}},
        "scm": {"command": "git", "tasks": ["commit"]},
        "guardrails": [{"command": "true", "failAction": "APPEND"}],
    }));
    let script = format!(
        "case \"$(cat)\" in *\"commit message\"*) echo Made; exit;; esac\n\
         env | grep -e LD_ -e RALPH_ENV > seen\n\
         if test -e lib/planted.so; then {DONE} fi; cp library.so lib/planted.so 2> /dev/null\n"
    );
    let args = [&format!("--sandbox={backend}")[..]];
    run(&project, &args, &script).env("LD_LIBRARY_PATH", "lib").run().code(0);
    let variables = project.read("seen");
    let mut variables: Vec<&str> = variables.lines().collect();
    variables.sort_unstable();
    let preload = format!("LD_PRELOAD={}", planted.display());
    assert_eq!(variables, ["LD_LIBRARY_PATH=lib", &preload], "{backend}");
    let loaded = project.read("loaded");
    let loaded: BTreeSet<&str> = loaded.lines().collect();
    assert!(loaded.contains("sh"), "{backend}: the agent has not loaded it: {loaded:?}");
    let outside = ["bwrap", "exe", "ralph"];
    assert!(!outside.iter().any(|name| loaded.contains(name)), "{backend}: {loaded:?}");
}

#[test]
fn library_planted_in_bwrap_is_not_loaded_outside() {
    if bwrap_works() {
        preload_from_inside("bwrap");
    }
}

#[test]
fn library_planted_in_landlock_is_not_loaded_outside() {
    if landlock::landlock_works(&Project::new()) {
        preload_from_inside("landlock");
    }
}

#[test]
fn outside_programs_get_no_project_code_by_environment() {
    let project = Project::git();
    let project_path = project.path().display().to_string();
    let untrusted = [
        ("LD_LIBRARY_PATH", format!("{project_path}/lib")),
        ("NODE_OPTIONS", format!("--require {project_path}/.pnp.cjs")),
        ("BASH_ENV", "env.sh".to_owned()),
        ("GIT_EXEC_PATH", format!("{project_path}/libexec")),
    ];
    let trusted = [("PYTHONPATH", "/opt/lib"), ("GIT_SSH_COMMAND", "ssh -i /opt/key")];
    project.settings(&json!({"notify": {"command": "env > ../outside"}}));
    project.write("agent.sh", format!("env > agent\n{DONE}"));
    let mut run =
        project.ralph(["run", "-p", "x", "-n", "1", "--no-sandbox", "--", "sh", "agent.sh"]);
    for (name, value) in &untrusted {
        run = run.env(name, value);
    }
    for (name, value) in trusted {
        run = run.env(name, value);
    }
    run.run().code(0);
    let agent = project.read("agent");
    let outside = fs::read_to_string(project.sibling("outside")).unwrap();
    let has = |env: &str, name: &str| env.lines().any(|line| line.starts_with(&format!("{name}=")));
    for (name, _) in &untrusted {
        assert!(has(&agent, name) && !has(&outside, name), "{name}");
    }
    for (name, _) in trusted {
        assert!(has(&agent, name) && has(&outside, name), "{name}");
    }
}
