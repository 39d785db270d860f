//! `ralph archive`.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn project() -> Project {
    let project = Project::git();
    project.ralph(["new", "Shop"]).run().success();
    write_list(&project, &list(&[passing("US-001"), open("US-002", &json!({}))]));
    let progress = project.read("ralph/progress.txt");
    let (head, tail) = progress.split_once("Started: ").expect("a date");
    let date = tail.lines().next().expect("a line");
    project
        .write("ralph/progress.txt", format!("{head}Started: 2020-01-02{}", &tail[date.len()..]));
    commit_all(&project);
    project
}

fn commit_all(project: &Project) {
    project.git_command(["add", "-A"]);
    project.git_command(["commit", "-qm", "before"]);
}

fn begin(project: &Project) {
    project.ralph(["tasks", "add", "First", "--criterion", "c"]).run().success();
}

fn archives(project: &Project) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(project.path().join("ralph-archive"))
        .expect("archives")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .map(|name| name[11..].to_owned())
        .collect();
    names.sort();
    names
}

fn archived(project: &Project, file: &str) -> String {
    let all = std::fs::read_dir(project.path().join("ralph-archive")).expect("archives");
    let first = all.map(|entry| entry.expect("an entry").path()).min().expect("an archive");
    std::fs::read_to_string(first.join(file)).expect("a file of the archive")
}

#[test]
fn archive_saves_documents_with_summary_and_resets() {
    let project = project();
    project.write("ralph/prompt.md", "my own prompt");
    commit_all(&project);
    let before = project.read("ralph/tasks.json");
    project.ralph(["archive", "--force"]).run().success().stdout_has("1 of 2 stories complete");
    assert_eq!(archives(&project), ["shop"]);
    assert_eq!(archived(&project, "tasks.json"), before);
    let summary = archived(&project, "summary.md");
    assert!(summary.contains("Stories: 1 of 2 complete\n- Dates: 2020-01-02 to 20"), "{summary}");
    assert!(archived(&project, "prd.md").starts_with("# PRD: Shop"));
    assert!(project.read("ralph/prd.md").starts_with("# PRD: project"));
    assert_eq!(read_list(&project)["branchName"], "ralph/feature-name");
    assert_eq!(project.read("ralph/prompt.md"), "my own prompt", "it is the project's");
    assert_eq!(project.git_command(["status", "--porcelain"]), "");
}

#[test]
fn archive_commit_contains_only_archive_and_reset() {
    let project = project();
    project.write("staged", "1").write("new", "1").write("ralph/mine.md", "1");
    project.git_command(["add", "staged"]);
    project.write("staged", "2");
    project.ralph(["archive", "--force", "--label", "First *"]).run().success();
    let files = project.git_command(["show", "--name-only", "--format=", "HEAD"]);
    for file in files.lines() {
        let ours = ["ralph/prd.md", "ralph/tasks.json", "ralph/progress.txt"].contains(&file);
        assert!(ours || file.starts_with("ralph-archive/"), "{files}");
    }
    assert_eq!(files.lines().count(), 7);
    assert_eq!(
        project.git_command(["status", "--porcelain"]),
        "AM staged\n?? new\n?? ralph/mine.md\n"
    );
    assert_eq!(project.git_command(["show", ":staged"]), "1");
}

#[test]
fn archives_of_same_day_and_label_are_numbered() {
    let project = project();
    for _ in 0..3 {
        begin(&project);
        project.ralph(["archive", "--force", "--label", "../a/b"]).run().success();
    }
    assert_eq!(archives(&project), ["a-b", "a-b-2", "a-b-3"]);
}

#[test]
fn archive_works_without_repository() {
    let project = Project::new();
    project.ralph(["new", "Shop"]).run().success();
    begin(&project);
    project.ralph(["archive", "--force"]).run().success().stdout_has("not a git repository");
    assert_eq!(archives(&project), ["Shop"]);
}

#[test]
fn archive_can_be_first_commit() {
    let project = Project::git();
    project.ralph(["new", "Shop"]).run().success();
    begin(&project);
    project.ralph(["archive", "--force"]).run().success().stdout_has("Committed as");
}

#[test]
fn untouched_templates_are_not_archived() {
    let project = Project::git();
    project.ralph(["new", "Shop \"1\""]).run().success();
    let nothing = "ralph/ is as `ralph new` created it";
    project.ralph(["archive", "--force"]).run().code(2).stderr_has(nothing);
    assert!(!project.has("ralph-archive"));
    begin(&project);
    project.ralph(["archive", "--force"]).run().success();
    project.ralph(["archive", "--force"]).run().code(2).stderr_has(nothing);
    // A change in any document is worth archiving.
    project.write("ralph/progress.txt", project.read("ralph/progress.txt") + "Learned: x\n");
    project.ralph(["archive", "--force"]).run().success();
}

#[test]
fn archive_label_needs_letter_or_digit() {
    let project = project();
    for label in ["", " ", "!!!", "../.."] {
        project
            .ralph(["archive", "--force", "--label", label])
            .run()
            .code(2)
            .stderr_has("at least one letter or digit");
    }
    assert!(!project.has("ralph-archive"));
}

#[test]
fn archive_ignored_by_git_is_reported() {
    let project = project();
    project.write(".gitignore", "ralph-archive/\n");
    commit_all(&project);
    let output = project.ralph(["archive", "--force"]).run();
    output
        .success()
        .stdout_has("Committed as")
        .stdout_has("because git ignores it: ralph-archive/");
    let files = project.git_command(["show", "--name-only", "--format=", "HEAD"]);
    assert!(files.contains("ralph/tasks.json") && !files.contains("ralph-archive"), "{files}");
}

#[test]
fn documents_ignored_by_git_are_archived_uncommitted() {
    let project = Project::git();
    project.ralph(["new", "Shop"]).run().success();
    begin(&project);
    project.write(".gitignore", "ralph*\n");
    commit_all(&project);
    project.ralph(["archive", "--force"]).run().success().stdout_has("git ignores these files");
}

#[test]
fn unreadable_list_is_archived_unchanged() {
    let project = project();
    project.write("ralph/tasks.json", "{ broken");
    project.ralph(["archive", "--force"]).run().success();
    assert_eq!(archived(&project, "tasks.json"), "{ broken");
    assert!(archived(&project, "summary.md").contains("could not be read"));
}

#[test]
fn refused_archive_commit_loses_nothing_and_is_reported() {
    let project = project();
    let hook = project.path().join(".git/hooks/pre-commit");
    project.write(".git/hooks/pre-commit", "#!/bin/sh\necho not on my watch >&2\nexit 1\n");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("the hook");
    // Staged changes to a document survive, whatever happens to the commit.
    project.write("ralph/prd.md", "staged");
    project.git_command(["add", "ralph/prd.md"]);
    project
        .ralph(["archive", "--force"])
        .run()
        .code(5)
        .stderr_has("not on my watch")
        .stderr_has("commit it");
    assert_eq!(archives(&project), ["shop"]);
    assert_eq!(project.git_command(["diff", "--cached", "--name-only"]), "ralph/prd.md\n");
    assert_eq!(project.git_command(["show", ":ralph/prd.md"]), "staged");
}

#[test]
fn archive_without_documents_is_refused() {
    let project = Project::git();
    project.ralph(["archive", "--force"]).run().code(2).stderr_has("nothing to archive in ralph/");
    assert!(!project.has("ralph-archive"));
}

#[test]
fn archive_commit_refused_by_silent_hook_is_reported() {
    let project = project();
    let hook = project.path().join(".git/hooks/pre-commit");
    project.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("the hook");
    project
        .ralph(["archive", "--force"])
        .run()
        .code(5)
        .stderr_has("git commit: exit code 1")
        .stderr_has("a git hook");
}

#[test]
fn archive_of_unfinished_work_needs_force() {
    let project = Project::git();
    write_list(&project, &list(&[passing("a"), open("b", &json!({}))]));
    let refused = project.ralph(["archive"]).run();
    refused.code(2).stderr_has("work is not finished: 1 of 2 stories").stderr_has("--force");
    assert_eq!(read_list(&project)["userStories"][1]["id"], "b");
    project.ralph(["archive", "--force"]).run().success().stdout_has("1 of 2 stories complete");
}
