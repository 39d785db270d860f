//! Agent output is readable only by the user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::Project;
use crate::{DONE, run};

/// The paths below `dir` that other users can read, except `spared` names.
fn readable_by_others(dir: &Path, spared: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (name, meta) = (entry.file_name(), entry.metadata().expect("an entry"));
        if meta.is_symlink() || spared.iter().any(|it| name == **it) {
            continue;
        }
        if meta.permissions().mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", entry.path().display(), meta.permissions().mode()));
        }
        if meta.is_dir() {
            found.extend(readable_by_others(&entry.path(), &[]));
        }
    }
    found
}

const SHARED: [&str; 4] = [".gitignore", "settings.json", "prompts", "implementation_plan.md"];

#[test]
fn run_files_are_private_for_any_umask() {
    let project = Project::git();
    project.settings(&json!({
        "guardrails": [{"command": "echo $((2 * 21)); test -e made", "failAction": "APPEND"}],
        "agent": {"promptVia": "file"},
    }));
    project.write(".ralph/prompts/build.md", "Build.");
    project.write(".ralph/implementation_plan.md", "- [ ] Make it.");
    let dir = project.path().join(".ralph");
    let mode = |path: &Path| path.metadata().expect("a path").permissions().mode() & 0o777;
    let before = mode(&dir);
    let script = json!([{"shell": "ls -la .ralph > seen; touch made"}, {"print": "<promise>COMPLETE</promise>"}]);
    project.install_agent("robot", &script);
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let open = ["-c", "umask 000; exec \"$@\"", "sh", ralph, "build", "--", "robot"];
    project.program("sh", open).run().code(0);
    assert_eq!(readable_by_others(&dir, &SHARED), Vec::<String>::new());
    assert_eq!(readable_by_others(&project.home().join(".ralph"), &[]), Vec::<String>::new());
    assert_eq!(mode(&project.home().join(".ralph")), 0o700);
    assert_eq!(mode(&dir), before, "version control knows this directory");
    assert!(fs::read_dir(dir.join("logs")).expect("logs").count() > 0);
    // The prompt file is removed with its iteration, so the agent lists it.
    let listing = project.read("seen");
    let prompt = listing.lines().find(|line| line.contains("prompt_")).unwrap_or_default();
    assert!(prompt.is_empty() || prompt.starts_with("-rw-------"), "{listing}");
}

#[test]
fn run_tightens_files_of_older_versions() {
    let project = Project::new();
    let script = json!([{"print": DONE}]);
    project.settings(&json!({"guardrails": [{"command": "true", "failAction": "APPEND"}]}));
    run(&project, &["-p", "x"], &script).run().code(0);
    let dir = project.path().join(".ralph");
    let old = ["runs", "logs", "guardrail_001_true.log"];
    fs::create_dir_all(dir.join("logs")).expect("logs");
    for name in old {
        fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).expect("a mode");
    }
    fs::set_permissions(project.home().join(".ralph"), Permissions::from_mode(0o755))
        .expect("a mode");
    run(&project, &["-p", "x"], &script).run().code(0);
    assert_eq!(readable_by_others(&dir, &SHARED), Vec::<String>::new());
    let home = project.home().join(".ralph").metadata().expect("ralph's own directory");
    assert_eq!(home.permissions().mode() & 0o777, 0o700);
}

#[test]
fn custom_ralph_home_keeps_its_mode() {
    let project = Project::new();
    let home = project.sibling("shared");
    fs::create_dir(&home).expect("a directory");
    fs::set_permissions(&home, Permissions::from_mode(0o755)).expect("a mode");
    run(&project, &["-p", "x"], &json!([{"print": DONE}])).env("RALPH_HOME", &home).run().code(0);
    assert_eq!(home.metadata().expect("a directory").permissions().mode() & 0o777, 0o755);
    assert_eq!(readable_by_others(&home, &[]), Vec::<String>::new());
}
