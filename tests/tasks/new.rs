//! `ralph new`.

use super::*;

const DOCUMENTS: [&str; 4] =
    ["ralph/prd.md", "ralph/tasks.json", "ralph/progress.txt", "ralph/prompt.md"];

#[test]
fn new_writes_documents_and_shows_next_steps() {
    let project = Project::new();
    project.ralph(["new", "Password reset"]).run().success().stdout_has("Next:");
    let list = read_list(&project);
    assert_eq!(list["project"], "Password reset");
    assert_eq!(list["branchName"], "ralph/Password-reset");
    assert!(project.read("ralph/prd.md").starts_with("# PRD: Password reset\n"));
    assert!(project.read("ralph/progress.txt").contains("PRD: Password reset\n"));
    assert!(project.read("ralph/prompt.md").contains("<promise>COMPLETE</promise>"));
    assert_eq!(project.read(".gitignore"), ".ralph-active\n");
}

#[test]
fn new_documents_contain_all_sections_and_rules() {
    let project = Project::new();
    project.ralph(["new"]).run().success();
    let prd = project.read("ralph/prd.md");
    for section in [
        "1. Summary",
        "2. Problem Statement",
        "3. Goals",
        "4. Non-Goals",
        "5. Background & Context",
        "6. Technical Design",
        "6a. Database Changes",
        "6b. API Contracts",
        "6c. Core Logic Changes",
        "6d. Frontend Changes",
        "6e. Infrastructure / Config Changes",
        "7. Constraints",
        "8. Edge Cases & Error Handling",
        "9. Risks & Mitigations",
        "10. Open Questions",
    ] {
        assert!(prd.contains(&format!("# {section}\n")), "{section}");
    }
    let prompt = project.read("ralph/prompt.md");
    for step in ["Orient", "Select & Right-Size", "Implement", "Document Progress"] {
        assert!(prompt.contains(step), "{step}");
    }
    for step in ["Step 5: Consider Memory Updates", "Step 6: Commit & Signal", "Hard rules"] {
        assert!(prompt.contains(step), "{step}");
    }
    for variable in ["$RALPH_ITERATION ", "$RALPH_MAX_ITERATIONS"] {
        assert!(prompt.contains(variable), "{variable}");
    }
}

#[test]
fn new_accepts_any_name_and_makes_valid_branch() {
    for name in [
        "feature-name",
        "a/b",
        "it's \"quoted\" $(touch pwned) `x`",
        "größe 日本 🚀",
        "-- --force",
        "..",
        "line\nbreak",
        "{{DATE}} {{PROJECT_NAME}}",
        &"long ".repeat(100),
    ] {
        let project = Project::git();
        project.ralph(["new", "--", name]).run().success();
        let list = read_list(&project);
        assert_eq!(list["project"], name.trim());
        let branch = list["branchName"].as_str().expect("a branch").to_owned();
        project.git_command(["check-ref-format", "--branch", &branch]);
        assert!(!project.has("pwned"));
    }
    let project = Project::new();
    project.ralph(["new", " "]).run().code(2).stderr_has("the name is empty");
    assert!(!project.has("ralph"));
}

#[test]
fn new_overwrites_only_with_force() {
    let project = Project::new();
    project.write("ralph/prd.md", "mine");
    project.ralph(["new"]).run().code(2).stderr_has("ralph/prd.md already exists");
    assert_eq!(project.read("ralph/prd.md"), "mine");
    for document in &DOCUMENTS[1..] {
        assert!(!project.has(document), "all or nothing: {document}");
    }
    project.ralph(["new", "--force"]).run().success();
    assert!(project.read("ralph/prd.md").starts_with("# PRD: project\n"));
}

#[test]
fn failed_new_leaves_nothing() {
    let project = Project::new();
    // Blocks the last file to be written.
    project.write(".gitignore/full", "");
    project.ralph(["new"]).run().code(2).stderr_has(".gitignore");
    assert!(!project.has("ralph"));
}

#[test]
fn new_uses_other_directory() {
    let project = Project::with_awkward_path();
    project.ralph(["new", "--ralph-dir", "loops/one", "One"]).run().success();
    assert!(project.read("loops/one/prompt.md").contains("`loops/one/progress.txt`"));
    project.ralph(["tasks", "--ralph-dir", "loops/one"]).run().success();
    project.ralph(["tasks"]).run().code(2).stderr_has("task list not found: ralph/tasks.json");
}

#[test]
fn suggested_commands_quote_other_directory() {
    let project = Project::new();
    let new = ["new", "--ralph-dir", "loops/b c", "B"];
    project
        .ralph(["tasks", "--ralph-dir", "loops/b c"])
        .run()
        .code(2)
        .stderr_has("create one with `ralph new --ralph-dir 'loops/b c'`");
    let option = "--ralph-dir 'loops/b c'";
    project.ralph(new).run().success().stdout_has(&format!("ralph work {option}"));
    let prompt = project.read("loops/b c/prompt.md");
    for command in ["tasks next", "tasks set"] {
        assert!(prompt.contains(&format!("ralph {command} {option}")), "{prompt}");
    }
    let output = project.ralph(new).run();
    output.code(2).stderr_has(&format!("start fresh: ralph archive {option}"));
    let project = Project::new();
    project.ralph(["new", "--ralph-dir", "."]).run().success().stdout_has("in prd.md.");
    assert!(project.read("prompt.md").contains("`./progress.txt`"));
}

#[test]
fn user_links_are_followed_and_kept() {
    let project = Project::new();
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, project.path().join(name)).expect("a link");
    };
    let is_link = |name: &str| project.path().join(name).is_symlink();
    project.write("shared/ignore", "target\n").write("ralph/keep", "");
    link("shared/ignore", ".gitignore");
    project.ralph(["new"]).run().success();
    assert!(is_link(".gitignore"));
    assert_eq!(project.read("shared/ignore"), "target\n.ralph-active\n");
    let list = project.read("ralph/tasks.json");
    std::fs::remove_file(project.path().join("ralph/tasks.json")).expect("the list");
    project.write("shared/tasks.json", list);
    link("../shared/tasks.json", "ralph/tasks.json");
    project.ralph(["tasks", "add", "First", "--criterion", "c"]).run().success();
    assert!(is_link("ralph/tasks.json"));
    assert!(project.read("shared/tasks.json").contains("First"));
}

#[test]
fn file_in_place_of_ralph_directory_is_reported() {
    let project = Project::new();
    project.write("ralph", "mine");
    let output = project.ralph(["new"]).run();
    output.code(2).stderr_has("ralph is a file").stderr_has("--ralph-dir");
    assert!(!output.stderr.contains(".ralph-save-"), "{}", output.stderr);
    assert_eq!(project.read("ralph"), "mine");
}
