//! Projects and repositories that disappear during a run.

use std::fs;

use serde_json::json;

use crate::support::Project;

const DONE: &str = "<promise>COMPLETE</promise>";

fn move_project_command(project: &Project, more: &str) -> String {
    let (here, away) = (project.path().display(), project.sibling("away"));
    format!("mv '{here}' '{}'{more}", away.display())
}

/// `build` also keeps a session log in the project.
#[test]
fn moved_project_ends_run_and_is_not_recreated() {
    let recreate = |project: &Project| format!(" && mkdir '{}'", project.path().display());
    for is_replaced in [false, true] {
        let project = Project::git();
        project.settings(&json!({"notify": {"command": "cat >>~/told"}}));
        project.write(".ralph/implementation_plan.md", "- [ ] one\n").write("specs/a.md", "a\n");
        project.git_command(["add", "-A"]);
        project.git_command(["commit", "-qm", "first"]);
        let suffix = if is_replaced { recreate(&project) } else { String::new() };
        let agent = project.fake_agent(&json!({"sessions": [
            [project.record_step()],
            [project.record_step(), {"shell": move_project_command(&project, &suffix)}, {"print": DONE}],
            [project.record_step(), {"print": DONE}],
        ]}));
        let output = project.ralph(["build", "-n", "5", "--"]).args(agent).run();
        output.code(2).stdout_lacks("complete").stdout_lacks("put back");
        output.stdout_has("is gone");
        output.stderr_lacks("changed during");
        assert_eq!(output.stdout.contains("another directory has its path now"), is_replaced);
        assert_eq!(project.agent_starts().len(), 2);
        let notification =
            fs::read_to_string(project.home().join("told")).expect("the notification");
        assert!(notification.contains("is gone"), "{notification}");
        if is_replaced {
            assert_eq!(fs::read_dir(project.path()).unwrap().count(), 0, "nothing is put there");
            fs::remove_dir(project.path()).unwrap();
        }
        assert!(!project.path().exists());
        fs::rename(project.sibling("away"), project.path()).unwrap();
        project.ralph(["report"]).run().code(0).stdout_has("is gone");
        project.ralph(["resume"]).run().code(0).stdout_has("checking the work of iteration");
        assert_eq!(project.agent_starts().len(), 2);
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn removed_repository_ends_run_after_iteration() {
    let project = Project::git();
    project.git_command(["commit", "-q", "--allow-empty", "-m", "first"]);
    let aside = project.sibling("git");
    let agent = project.fake_agent(&json!({"sessions": [
        [project.record_step(), {"shell": "git commit -q --allow-empty -m work"}],
        [project.record_step(), {"shell": format!("mv .git '{}'", aside.display())}, {"print": DONE}],
        [project.record_step(), {"print": DONE}],
    ]}));
    let args = ["run", "-n", "5", "-p", "x", "--completion-promise", "COMPLETE", "--"];
    let output = project.ralph(args).args(agent).run();
    output
        .code(2)
        .stdout_lacks("complete")
        .stdout_has("is gone; the agent's work is still in the files");
    assert_eq!(project.agent_starts().len(), 2);
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has("1 commit in a repository that is gone.").stdout_lacks("git log");
    project.ralph(["resume"]).run().code(0).stdout_has("checking the work of iteration");
    assert_eq!(project.agent_starts().len(), 2);
    fs::rename(aside, project.path().join(".git")).unwrap();
    project.ralph(["report"]).run().code(0).stdout_has("git log");
}

#[test]
fn replaced_repository_is_reported() {
    let project = Project::git();
    project.git_command(["commit", "-q", "--allow-empty", "-m", "first"]);
    let agent =
        json!([{"shell": "rm -rf .git; git init -q"}, {"print": "<response>DONE</response>"}]);
    let agent = project.fake_agent(&agent);
    let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
    let warning = "was replaced by another repository during this run";
    output.code(0).stderr_has(warning);
    project.ralph(["report"]).run().code(0).stdout_has(warning);
}
