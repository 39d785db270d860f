//! The ledger of a task list after the project, the home or the machine changed.

use std::path::{Path, PathBuf};

use super::support::Output;
use super::work::*;
use super::*;

const DROPPED: &str = "b (Title of b) was removed, and no story replaces it";

fn project_with_check() -> Project {
    let project = project_with(&[]);
    project.git_init();
    write_list(
        &project,
        &checked_list("test -e made", &[open("a", &json!({})), open("b", &json!({}))]),
    );
    commit_list(&project);
    project
}

fn checked_list(check: &str, stories: &[Value]) -> Value {
    let mut list = list(stories);
    list["verifyCommands"] = json!([check]);
    list
}

fn commit_list(project: &Project) {
    project.git_command(["add", "ralph"]);
    project.git_command(["commit", "--quiet", "-m", "Stories"]);
}

fn drop_story_and_check(project: &Project) {
    let cheated = checked_list("true", &[passing("a")]);
    let sessions = [json!([write_text_step(&format!("{cheated:#}\n")), print_step(PROMISE)])];
    work(project, &["-n", "1"], &sessions).run().code(1);
}

/// Runs `ralph work` with this home and an agent that only claims completion.
fn work_at(project: &Project, directory: &Path, home: &Path) -> Output {
    let command = work(project, &["-n", "1"], &[json!([print_step(PROMISE)])]);
    command.current_dir(directory).env("RALPH_HOME", home).run()
}

fn clone_of(project: &Project) -> PathBuf {
    let clone = project.sibling("clone");
    project.git_command(["clone", "--quiet", ".", clone.to_str().expect("UTF-8")]);
    std::fs::create_dir_all(clone.join(".ralph")).expect("a directory");
    let settings = project.path().join(".ralph/settings.json");
    std::fs::copy(settings, clone.join(".ralph/settings.json")).expect("the settings");
    clone
}

#[test]
fn dropped_story_vetoes_in_moved_project_and_fresh_home() {
    for place in ["moved", "fresh home", "moved, fresh home", "clone", "clone, fresh home"] {
        let project = project_with_check();
        drop_story_and_check(&project);
        let mut directory = project.path().to_owned();
        if place.starts_with("clone") {
            commit_list(&project);
            directory = clone_of(&project);
        } else if place.starts_with("moved") {
            directory = project.sibling("moved");
            std::fs::rename(project.path(), &directory).expect("a move");
        }
        let home = if place.ends_with("fresh home") { "fresh" } else { "home/.ralph" };
        let output = work_at(&project, &directory, &project.sibling(home));
        output.code(1).stderr_has("--accept-list").stdout_has(DROPPED).stdout_has("test -e made");
        if directory != project.path() {
            let _ = std::fs::rename(&directory, project.path());
        }
    }
}

#[test]
fn accepted_list_ignores_history() {
    let project = project_with_check();
    drop_story_and_check(&project);
    let command = work(&project, &["--accept-list"], &[json!([print_step("me?")])]);
    command.env("RALPH_HOME", project.sibling("fresh")).run().success().stdout_has("nothing to do");
    assert_eq!(project.events().find("task_list_accepted")["list"], "ralph/tasks.json");
    let second_run = work_at(&project, project.path(), &project.sibling("fresh"));
    second_run.success().stdout_has("nothing to do");
}

#[test]
fn accepted_list_is_remembered_in_same_home_only() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    project.git_init();
    commit_list(&project);
    write_list(&project, &list(&[passing("a")]));
    let fresh = project.sibling("fresh");
    work_at(&project, project.path(), &fresh).code(1).stdout_has(DROPPED);
    let accept = work(&project, &["--accept-list"], &[json!([print_step("me?")])]);
    accept.env("RALPH_HOME", &fresh).run().success().stdout_has("nothing to do");
    work_at(&project, project.path(), &fresh).success().stdout_has("nothing to do");
    work_at(&project, project.path(), &project.sibling("another")).code(1).stdout_has(DROPPED);
}

#[test]
fn list_history_ends_at_archive() {
    let project = project_with_check();
    let both = checked_list("true", &[passing("a"), passing("b")]);
    write_list(&project, &both);
    commit_list(&project);
    project.ralph(["archive", "--force"]).run().success();
    write_list(&project, &list(&[passing("c")]));
    commit_list(&project);
    let output = work_at(&project, project.path(), &project.sibling("fresh"));
    output.success().stdout_has("nothing to do").stderr_lacks("is gone");
}

#[test]
fn ledger_of_archived_list_is_ignored_in_fresh_home() {
    let project = project_with(&[open("a", &json!({}))]);
    let sessions = [json!([write_stories_step(&[passing("a")]), print_step(PROMISE)])];
    work(&project, &[], &sessions).run().success();
    project.ralph(["archive"]).run().success();
    write_list(&project, &list(&[passing("x")]));
    let output = work_at(&project, project.path(), &project.sibling("fresh"));
    output.success().stdout_has("nothing to do").stderr_lacks("is gone");
}

#[test]
fn verify_commands_added_later_are_run() {
    let project = project_with_check();
    let mut list = checked_list("test -e made", &[passing("a"), passing("b")]);
    list["verifyCommands"] = json!(["test -e made", "touch second"]);
    write_list(&project, &list);
    project.write("made", "");
    let output = work_at(&project, project.path(), &project.sibling("fresh"));
    output.success().stdout_has("nothing to do");
    assert!(project.has("second"));
}

#[test]
fn list_without_record_is_accepted_with_warning() {
    let project = project_with(&[passing("a")]);
    let output = work_at(&project, project.path(), &project.sibling("fresh"));
    output.success().stderr_has("no earlier record of ralph/tasks.json");
}

/// A clone made after a story and a check were dropped and committed.
fn damaged_clone(args: &[&str]) -> (Project, PathBuf) {
    let project = project_with_check();
    drop_story_and_check(&project);
    commit_list(&project);
    let clone = project.sibling("clone");
    let url = format!("file://{}", project.path().display());
    let words = [&["clone", "--quiet"], args, &[&url, clone.to_str().expect("UTF-8")]].concat();
    project.git_command(words);
    (project, clone)
}

const NOT_KNOWN: &str = "cannot tell whether ralph/tasks.json has lost stories or checks";

#[test]
fn shallow_clone_is_refused_until_list_is_accepted() {
    let (project, clone) = damaged_clone(&["--depth", "1"]);
    let fresh = project.sibling("fresh");
    let refused = work_at(&project, &clone, &fresh);
    refused.code(2).stderr_has(NOT_KNOWN).stderr_has("git fetch --unshallow");
    let accept = work(&project, &["--accept-list"], &[json!([print_step("me?")])]);
    accept.current_dir(&clone).env("RALPH_HOME", &fresh).run().success();
}

#[test]
fn unreadable_git_history_is_refused() {
    let (project, clone) = damaged_clone(&[]);
    let command = work(&project, &["-n", "1"], &[json!([print_step(PROMISE)])]);
    let refused = command
        .current_dir(&clone)
        .env("RALPH_HOME", project.sibling("fresh"))
        .env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        .run();
    refused.code(2).stderr_has(NOT_KNOWN).stderr_has("dubious ownership");
}

#[test]
fn story_dropped_around_merge_is_missed() {
    let both = checked_list("true", &[open("a", &json!({})), open("b", &json!({}))]);
    let done = checked_list("true", &[passing("a")]);
    for merge in
        ["git merge -q -s ours side", "git merge -q --no-commit side; cp both ralph/tasks.json"]
    {
        let project = project_with(&[]);
        project.git_init();
        write_list(&project, &checked_list("true", &[open("a", &json!({}))]));
        commit_list(&project);
        project.write("both", format!("{both:#}\n"));
        let script = format!(
            "set -e; git switch -qc side; echo x > other; git add other
            if echo '{merge}' | grep -q ours; then cp both ralph/tasks.json; fi
            git commit -qam Side; git switch -q -; echo y > mine; git add mine; git commit -qm Mine
            {merge}; git add ralph; git commit -qm Merge || true"
        );
        project.program("sh", ["-c", &script]).run().success();
        write_list(&project, &done);
        commit_list(&project);
        let output = work_at(&project, project.path(), &project.sibling("fresh"));
        output.code(1).stdout_has(DROPPED);
    }
}

#[test]
fn list_in_renamed_directory_keeps_history() {
    let project = project_with_check();
    drop_story_and_check(&project);
    project.git_command(["mv", "ralph", "loops"]);
    project.git_command(["commit", "--quiet", "-am", "Rename"]);
    let args = ["-n", "1", "--ralph-dir", "loops"];
    work(&project, &args, &[json!([print_step(PROMISE)])]).run().code(1).stdout_has(DROPPED);
}

#[test]
fn older_ledger_is_used_if_newest_is_unreadable() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    let sessions = [json!([write_stories_step(&[passing("a")]), print_step(PROMISE)])];
    for _ in 0..2 {
        work(&project, &["-n", "1"], &sessions).run().code(1);
    }
    std::fs::write(memory(&project), "").expect("the newest ledger");
    let output = work(&project, &["-n", "1"], &[json!([print_step(PROMISE)])]).run();
    output.code(1).stderr_has("cannot read the history").stdout_has(DROPPED);
}

#[test]
fn planted_ledger_does_not_replace_home_ledger() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    let planted = ".ralph/runs/20991231-000000-ffff/ledger.json";
    let make = json!({"shell": "mkdir -p .ralph/runs/20991231-000000-ffff"});
    let reset =
        json!({"write": {"path": planted, "text": r#"{"name":"ralph/tasks.json","reset":true}"#}});
    let sessions = [json!([write_stories_step(&[passing("a")]), make, reset, print_step(PROMISE)])];
    work(&project, &["-n", "1"], &sessions).run().code(1);
    let output = work(&project, &["-n", "1"], &[json!([print_step(PROMISE)])]).run();
    output.code(1).stdout_has(DROPPED);
}

#[test]
fn work_is_refused_if_only_journal_knows_more_stories() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    let sessions = [json!([write_stories_step(&[passing("a")]), print_step(PROMISE)])];
    work(&project, &["-n", "1"], &sessions).run().code(1);
    std::fs::remove_file(memory(&project)).expect("the ledger");
    let output = work(&project, &["-n", "1"], &[json!([print_step(PROMISE)])]).run();
    output.code(2).stderr_has(NOT_KNOWN).stderr_has("according to the journal of run");
}

#[test]
fn archive_and_tasks_use_history_of_clone() {
    let (project, clone) = damaged_clone(&[]);
    let ralph = |args: &[&str]| {
        project.ralph(args).current_dir(&clone).env("RALPH_HOME", project.sibling("fresh")).run()
    };
    ralph(&["tasks"]).success().stdout_has("1 of 2");
    ralph(&["archive"]).code(2).stderr_has("not finished").stderr_has("--force");
}

#[test]
fn new_force_before_any_run_starts_new_list() {
    let project = project_with_check();
    project.ralph(["new", "--force", "Other"]).run().success();
    write_list(&project, &list(&[passing("x")]));
    let output = work(&project, &["-n", "1"], &[json!([print_step("me?")])]).run();
    output.success().stdout_has("nothing to do").stderr_lacks("is gone");
}
