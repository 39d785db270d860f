//! The memory of a task list: what a run knows of stories and checks after the project, the home or the machine changed.

use std::path::{Path, PathBuf};

use super::support::Output;
use super::work::*;
use super::*;

const DROPPED: &str = "b (Title of b) is gone, and no story replaces it";

/// A git project whose committed list has two open stories and a check that fails.
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

/// Lets an agent drop story b and weaken the check. The run fails, as it should.
fn drop_story_and_check(project: &Project) {
    let cheated = checked_list("true", &[passing("a")]);
    let sessions = [json!([leave_text(&format!("{cheated:#}\n")), say(PROMISE)])];
    work(project, &["-n", "1"], &sessions).run().code(1);
}

/// Starts `ralph work` at `directory` with this home and an agent that only claims to be done.
fn work_at(project: &Project, directory: &Path, home: &Path) -> Output {
    let command = work(project, &["-n", "1"], &[json!([say(PROMISE)])]);
    command.current_dir(directory).env("RALPH_HOME", home).run()
}

fn clone_of(project: &Project) -> PathBuf {
    let clone = project.beside("clone");
    project.git_command(["clone", "--quiet", ".", clone.to_str().expect("UTF-8")]);
    std::fs::create_dir_all(clone.join(".ralph")).expect("a directory");
    let settings = project.path().join(".ralph/settings.json");
    std::fs::copy(settings, clone.join(".ralph/settings.json")).expect("the settings");
    clone
}

#[test]
fn dropped_story_and_check_veto_in_moved_project_and_fresh_home() {
    for place in ["moved", "fresh home", "moved, fresh home", "clone", "clone, fresh home"] {
        let project = project_with_check();
        drop_story_and_check(&project);
        let mut directory = project.path().to_owned();
        if place.starts_with("clone") {
            commit_list(&project);
            directory = clone_of(&project);
        } else if place.starts_with("moved") {
            directory = project.beside("moved");
            std::fs::rename(project.path(), &directory).expect("a move");
        }
        let home = if place.ends_with("fresh home") { "fresh" } else { "home/.ralph" };
        let output = work_at(&project, &directory, &project.beside(home));
        output.code(1).stderr_has("--accept-list").stdout_has(DROPPED).stdout_has("test -e made");
        if directory != project.path() {
            let _ = std::fs::rename(&directory, project.path());
        }
    }
}

#[test]
fn dropped_story_vetoes_after_home_was_full() {
    let project = project_with(&[]);
    // The run before the full disk leaves a ledger that does not know story b.
    write_list(&project, &checked_list("true", &[open("a", &json!({}))]));
    let done = checked_list("true", &[passing("a")]);
    let sessions = [json!([leave_text(&format!("{done:#}\n")), say(PROMISE)])];
    work(&project, &[], &sessions).run().success();
    let both = checked_list("true", &[passing("a"), open("b", &json!({}))]);
    write_list(&project, &both);
    let sessions = [json!([leave_text(&format!("{done:#}\n")), say(PROMISE)])];
    let full = work(&project, &["-n", "1"], &sessions).env("RALPH_HOME", "/dev/null/home").run();
    full.code(1);
    let output = work_at(&project, project.path(), &project.home().join(".ralph"));
    output.code(1).stdout_has(DROPPED);
}

#[test]
fn accepted_list_is_worked_on_without_history() {
    let project = project_with_check();
    drop_story_and_check(&project);
    let command = work(&project, &["--accept-list"], &[json!([say("me?")])]);
    command.env("RALPH_HOME", project.beside("fresh")).run().success().stdout_has("nothing to do");
    assert_eq!(project.events().find("task_list_accepted")["list"], "ralph/tasks.json");
    // It holds from then on in the same home, and nowhere else.
    let again = work_at(&project, project.path(), &project.beside("fresh"));
    again.success().stdout_has("nothing to do");
}

#[test]
fn accepted_list_with_nothing_to_do_is_remembered_in_that_home() {
    let project = project_with(&[open("a", &json!({})), open("b", &json!({}))]);
    project.git_init();
    commit_list(&project);
    write_list(&project, &list(&[passing("a")]));
    let fresh = project.beside("fresh");
    work_at(&project, project.path(), &fresh).code(1).stdout_has(DROPPED);
    let accept = work(&project, &["--accept-list"], &[json!([say("me?")])]);
    accept.env("RALPH_HOME", &fresh).run().success().stdout_has("nothing to do");
    work_at(&project, project.path(), &fresh).success().stdout_has("nothing to do");
    work_at(&project, project.path(), &project.beside("another")).code(1).stdout_has(DROPPED);
}

#[test]
fn history_ends_where_archive_began_a_new_list() {
    let project = project_with_check();
    let both = checked_list("true", &[passing("a"), passing("b")]);
    write_list(&project, &both);
    commit_list(&project);
    project.ralph(["archive"]).run().success();
    write_list(&project, &list(&[passing("c")]));
    commit_list(&project);
    let output = work_at(&project, project.path(), &project.beside("fresh"));
    output.success().stdout_has("nothing to do").stderr_lacks("is gone");
}

#[test]
fn ledger_of_archived_list_does_not_judge_the_next_in_fresh_home() {
    let project = project_with(&[open("a", &json!({}))]);
    let sessions = [json!([leave(&[passing("a")]), say(PROMISE)])];
    work(&project, &[], &sessions).run().success();
    project.ralph(["archive"]).run().success();
    write_list(&project, &list(&[passing("x")]));
    let output = work_at(&project, project.path(), &project.beside("fresh"));
    output.success().stdout_has("nothing to do").stderr_lacks("is gone");
}

#[test]
fn commands_added_since_the_oldest_version_are_run_too() {
    let project = project_with_check();
    let mut list = checked_list("test -e made", &[passing("a"), passing("b")]);
    list["verifyCommands"] = json!(["test -e made", "touch second"]);
    write_list(&project, &list);
    project.write("made", "");
    let output = work_at(&project, project.path(), &project.beside("fresh"));
    output.success().stdout_has("nothing to do");
    assert!(project.has("second"));
}

#[test]
fn list_without_any_record_is_taken_and_said_so() {
    let project = project_with(&[passing("a")]);
    let output = work_at(&project, project.path(), &project.beside("fresh"));
    output.success().stderr_has("no earlier record of ralph/tasks.json");
}
