//! Commits and pushes.

use serde_json::{Value, json};

use crate::support::{LONG, Project, wait_until};
use crate::{ASKED, DONE, run, run_with, sessions};

fn project(tasks: &[&str]) -> Project {
    let project = Project::git();
    project.settings(&json!({"scm": {"command": "git", "tasks": tasks}}));
    project.write("old.txt", "old\n").write(".gitignore", "*.tmp\n");
    project.write(".ralph/.gitignore", "*\n");
    project.git_command(["add", "-A"]);
    project.git_command(["commit", "--quiet", "-m", "First"]);
    project
}

fn agent_script(steps: &Value, message: &str) -> Value {
    json!({"sessions": [steps], "commit_message": [{"print": message}]})
}

fn subjects(project: &Project) -> Vec<String> {
    project.git_command(["log", "--format=%s"]).lines().map(str::to_owned).collect()
}

fn with_remote(project: &Project) {
    project.git_command(["init", "--quiet", "--bare", "../remote.git"]);
    project.git_command(["remote", "add", "origin", "../remote.git"]);
    project.git_command(["push", "--quiet", "-u", "origin", "main"]);
}

fn pushed(project: &Project) -> String {
    let log = ["--git-dir=../remote.git", "log", "-1", "--format=%s", "main"];
    project.git_command(log).trim_end().to_owned()
}

#[test]
fn scm_without_tasks_warns_unless_explicit() {
    let project = Project::git();
    let script = json!([{"print": DONE}]);
    project.settings(&json!({"scm": {"command": "git"}}));
    run(&project, &["-p", "x"], &script).run().code(0).stderr_has("scm has no tasks");
    project.settings(&json!({"scm": {"command": "git", "tasks": []}}));
    run(&project, &["-p", "x"], &script).run().code(0).stderr_lacks("scm has no tasks");
}

#[test]
fn all_unignored_changes_are_committed_with_agent_message() {
    let project = project(&["commit"]);
    let steps = json!([{"shell": "echo new > new.txt; echo more >> old.txt; touch x.tmp"}, {"print": DONE}]);
    let output =
        run(&project, &["-p", "do it"], &agent_script(&steps, "\n  Add the thing\nand more")).run();
    output.code(0).stdout_has("commit");
    assert_eq!(subjects(&project), ["Add the thing", "First"]);
    assert_eq!(project.git_command(["show", "--format=", "--name-only"]), "new.txt\nold.txt\n");
    assert_eq!(project.git_command(["status", "--porcelain"]), "");
}

#[test]
fn untracked_files_are_committed_even_if_hidden_in_status() {
    let project = project(&["commit"]);
    project.git_command(["config", "status.showUntrackedFiles", "no"]);
    let steps = json!([{"shell": "touch new.txt"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &agent_script(&steps, "Add the thing")).run().code(0);
    assert_eq!(project.git_command(["show", "--format=", "--name-only"]), "new.txt\n");
}

/// Commits a submodule `part` with a file `a`.
fn add_submodule(project: &Project) {
    let part =
        "git init -q part && cd part && echo a >a && git add a && git commit -qm Part && cd ..
        git -c protocol.file.allow=always submodule --quiet add ./part part
        git commit -qm 'Add the part'";
    project.program("sh", ["-c", part]).run().success();
}

#[test]
fn uncommitted_submodule_work_is_not_committed() {
    let project = project(&["commit"]);
    add_submodule(&project);
    let dirty = json!([{"shell": "echo b >part/a; touch part/new"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &agent_script(&dirty, "Change the part")).run().code(0);
    assert_eq!(subjects(&project), ["Add the part", "First"]);
    let steps = json!([{"shell": "git -C part commit -qam New"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &agent_script(&steps, "Take the new part")).run().code(0);
    assert_eq!(subjects(&project)[0], "Take the new part");
    // A nested repository committed as a link is reported once.
    let own = "git init -q app && cd app && echo a >a && git add a && git commit -qm App";
    let script = json!({
        "sessions": [[{"shell": own}], [{"shell": "touch new"}, {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    let output = run(&project, &ASKED, &script).run();
    output.code(0).stderr_has("app is a nested git repository, so its files are not committed");
    let warnings = project.events().all("warning").len();
    assert_eq!(warnings, 2, "the repository, once, and the work that is left in the submodule");
}

#[test]
fn commit_message_may_be_in_response_tag() {
    let project = project(&["commit"]);
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    let message = "Here it is:\n<response>Add the thing</response>";
    run(&project, &["-p", "do it"], &agent_script(&steps, message)).run().code(0);
    assert_eq!(subjects(&project)[0], "Add the thing");
}

#[test]
fn commit_message_is_not_passed_through_shell() {
    let project = project(&["commit"]);
    let message = r#"--amend $(touch pwned) `touch pwned` "; touch pwned; '"#;
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &agent_script(&steps, message)).run().code(0);
    assert_eq!(subjects(&project), [message, "First"]);
    assert!(!project.has("pwned"));
}

#[test]
fn commit_message_is_requested_in_mode_of_run() {
    let work =
        json!([{"shell": "touch new"}, {"claude": {"text": DONE}}, {"claude": {"result": {}}}]);
    let ask = "Provide a short imperative commit message for the changes. Output only the message, no explanation.";
    for (mode, answer, flag) in [
        (
            &[][..],
            json!([{"claude": {"text": "Add the thing"}}, {"claude": {"result": {}}}]),
            "stream-json",
        ),
        (&["--no-stream-agent-output"], json!([{"print": "Add the thing"}]), "text"),
    ] {
        let project = project(&["commit"]);
        let mut steps = answer.as_array().unwrap().clone();
        steps.insert(0, project.record_step());
        let work = if mode.is_empty() {
            work.clone()
        } else {
            json!([{"shell": "touch new"}, {"print": DONE}])
        };
        let script = json!({"sessions": [work], "commit_message": steps});
        let args = [&["-p", "do it"][..], mode].concat();
        run_with("claude", &project, &args, &script).run().code(0);
        assert_eq!(subjects(&project)[0], "Add the thing");
        let record = &project.agent_starts()[0];
        assert_eq!(record["prompt"], ask);
        let argv = record["argv"].to_string();
        assert!(argv.contains(&format!(r#""--output-format","{flag}""#)), "{argv}");
    }
}

#[test]
fn codex_commit_message_is_read_from_file_in_plain_mode() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"shell": "touch new"}, {"answer": DONE}]],
        "commit_message": [{"print": "a log of its own"}, {"answer": "Add the thing"}],
    });
    run_with("codex", &project, &["-p", "do it", "--no-stream-agent-output"], &script)
        .run()
        .code(0);
    assert_eq!(subjects(&project)[0], "Add the thing");
}

#[test]
fn every_passing_iteration_is_committed() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"shell": "touch one"}], [{"shell": "touch two"}, {"print": DONE}]],
        "commit_message": [{"print": "Add one"}],
    });
    run(&project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(subjects(&project), ["Add one", "Add one", "First"]);
}

#[test]
fn clean_tree_is_reported_without_asking_for_message() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"print": DONE}]], "commit_message": [project.record_step(), {"print": "Nothing"}],
    });
    run(&project, &["-p", "do it"], &script).run().code(0).stdout_has("nothing to commit");
    assert_eq!(subjects(&project), ["First"]);
    assert_eq!(project.agent_starts().len(), 0);
}

#[test]
fn failing_guardrails_prevent_commit() {
    let project = project(&["commit"]);
    project.settings(&json!({
        "scm": {"command": "git", "tasks": ["commit"]}, "guardrails": [{"command": "false"}],
    }));
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    run(&project, &["-p", "do it", "-n", "1"], &agent_script(&steps, "Add it")).run().code(1);
    assert_eq!(subjects(&project), ["First"]);
    assert!(!project.events().has("scm_started"));
}

#[test]
fn scm_tasks_run_in_order() {
    let project = project(&["commit", "push"]);
    with_remote(&project);
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &agent_script(&steps, "Add it")).run().code(0);
    assert_eq!(pushed(&project), "Add it");
    let events = project.events();
    let tasks: Vec<_> = events.all("scm_ended").iter().map(|e| e["task"].clone()).collect();
    assert_eq!(tasks, ["commit", "push"]);
}

#[test]
fn failed_push_is_reported_and_retried_after_next_iteration() {
    let project = project(&["commit", "push"]);
    with_remote(&project);
    let remote = project.sibling("remote.git");
    let moved_remote = project.sibling("away.git");
    std::fs::rename(&remote, &moved_remote).unwrap();
    let script = json!({
        "sessions": [
            [{"shell": "touch new"}],
            [{"shell": format!("mv '{}' '{}'", moved_remote.display(), remote.display())}, {"print": DONE}],
        ],
        "commit_message": [{"print": "Add it"}],
    });
    let output = run(&project, &["-p", "do it"], &script).run();
    output
        .code(0)
        .stdout_has("SCM task failed: push")
        .stdout_has("does not appear to be a git repository");
    assert_eq!(pushed(&project), "Add it");
}

#[test]
fn completion_with_failed_scm_task_exits_5() {
    let project = project(&["commit", "push"]);
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it"], &agent_script(&steps, "Add it")).run();
    output.code(5).stdout_has("push");
    let events = project.events();
    assert_eq!(events.find("run_ended")["outcome"], "complete_scm_failed");
    assert_eq!(events.last("scm_ended")["ok"], false);
    assert_eq!(subjects(&project)[0], "Add it", "what could be done is done");
}

fn pre_commit_hook(project: &Project, script: &str) {
    project.write(".git/hooks/pre-commit", format!("#!/bin/sh\n{script}\n"));
    project.program("chmod", ["+x", ".git/hooks/pre-commit"]).run().success();
}

#[test]
fn commit_refused_by_hook_is_fed_back() {
    let project = project(&["commit", "push"]);
    pre_commit_hook(&project, "echo 'no secrets, please' >&2; exit 1");
    let steps = json!([{"shell": "touch new"}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it"], &agent_script(&steps, "Add it")).run();
    output.code(5).stdout_has("no secrets, please");
    assert_eq!(subjects(&project), ["First"]);
    assert_eq!(project.events().all("scm_ended").len(), 1, "nothing is pushed after that");

    // The prompt reports the failure until the hook passes. The message is generated once for the
    // same work.
    let project = self::project(&["commit"]);
    pre_commit_hook(&project, "seq 9999; echo 'new is ugly' >&2; test -e pretty");
    let requests_file = project.sibling("asked");
    let count = json!({"shell": format!("echo x >> '{}'", requests_file.display())});
    let with_record = |steps: &[Value]| {
        let steps: Vec<Value> = [project.record_step()].iter().chain(steps).cloned().collect();
        json!(steps)
    };
    let script = json!({
        "sessions": [
            with_record(&[json!({"shell": "touch new"})]), with_record(&[json!({"print": "hm"})]),
            with_record(&[json!({"shell": "touch pretty"}), json!({"print": DONE})]),
        ],
        "commit_message": [count, {"print": "Add it"}],
    });
    run(&project, &["-p", "do it"], &script).run().code(0);
    let prompts = project.agent_starts();
    assert_eq!(prompts[0]["prompt"], "do it");
    for with_record in &prompts[1..] {
        let prompt = with_record["prompt"].as_str().unwrap();
        assert!(prompt.contains("`git commit` failed") && prompt.len() < 3_000, "{prompt}");
        assert!(prompt.contains("9999\nnew is ugly\n") && !prompt.contains("\n1000\n"), "{prompt}");
    }
    assert_eq!(
        std::fs::read_to_string(&requests_file).unwrap(),
        "x\nx\n",
        "the second had the same to commit"
    );
    assert_eq!(subjects(&project), ["Add it", "First"]);
}

#[test]
fn hanging_commit_hook_is_ended_by_timeout() {
    let project = project(&["commit"]);
    project.settings(&json!({
        "scm": {"command": "git", "tasks": ["commit"], "timeoutSeconds": 1},
    }));
    pre_commit_hook(&project, "echo linting; sleep 1000");
    let script = json!({
        "sessions": [[{"shell": "touch new"}], [project.record_step(), {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    let output = run(&project, &["-p", "do it"], &script).run();
    let why = "stopped: it took longer than scm.timeoutSeconds allows; its output: linting";
    output.code(5).stdout_has("SCM task failed: commit").stdout_has(why);
    let prompt = project.agent_starts()[0]["prompt"].to_string();
    assert!(prompt.contains(why), "{prompt}");
}

#[test]
fn staging_failure_fails_commit_task() {
    let project = project(&["commit"]);
    let nested = json!({"shell": "mkdir part && cd part && git init -q && touch code"});
    let script = json!({
        "sessions": [[nested, {"print": "hm"}], [project.record_step(), {"print": DONE}]],
        "commit_message": [{"print": "Asked for nothing"}],
    });
    let output = run(&project, &["-p", "do it"], &script).run();
    output
        .code(5)
        .stdout_has("SCM task failed: commit")
        .stdout_has("does not have a commit checked out");
    let prompt = project.agent_starts()[0]["prompt"].to_string();
    assert!(prompt.contains("`git add -A` failed") && prompt.contains("part"), "{prompt}");
    let report = project.ralph(["report"]).run();
    report
        .code(0)
        .stdout_has("commit failed in 2 iterations")
        .stdout_has("SCM task not done: commit: staging failed");
}

#[test]
fn missing_commit_message_is_replaced_by_default() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"shell": "touch new"}, {"print": DONE}]], "commit_message": [{"print": " "}],
    });
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0).stderr_has("gave no commit message");
    assert_eq!(subjects(&project), ["ralph: iteration 1", "First"]);
    assert_eq!(project.git_command(["status", "--porcelain"]), "");

    // An endless commit message, with a budget for the iteration or the run.
    for budget in [
        json!({"perIteration": {"tokens": 60_000}}),
        json!({"tokens": 60_000}),
        json!({"perIteration": {"duration": "2s"}}),
    ] {
        let project = self::project(&["commit"]);
        let mut settings: Value =
            serde_json::from_str(&project.read(".ralph/settings.json")).unwrap();
        settings["budget"] = budget;
        project.settings(&settings);
        let thinks = json!({"json": {
            "type": "assistant", "parent_tool_use_id": null, "session_id": "s",
            "message": {
                "id": "m", "role": "assistant", "content": [{"type": "text", "text": "hm"}],
                "usage": {"input_tokens": 60_000, "output_tokens": 10_000},
            },
        }});
        let script = json!({
            "sessions": [[{"shell": "touch new"}, {"claude": {"text": "on it"}}, {"claude": {"result": {}}}]],
            "commit_message": [thinks, "hang"],
        });
        project.install_agent("claude", &script);
        project.ralph(["run", "-p", "do it", "-n", "1", "--", "claude"]).run();
        assert_eq!(subjects(&project), ["ralph: iteration 1", "First"]);
    }
}

#[test]
fn commit_message_does_not_complete_run() {
    let project = project(&["commit"]);
    let steps = json!([{"shell": "touch new-$RALPH_ITERATION"}, {"print": "not yet"}]);
    run(&project, &["-p", "do it", "-n", "2"], &agent_script(&steps, DONE)).run().code(1);
}

#[test]
fn other_scm_gets_documented_arguments() {
    let project = Project::new();
    project.settings(&json!({"scm": {"command": "hg", "tasks": ["commit", "push -f 'a b'"]}}));
    project.install_agent("hg", &json!([project.record_step()]));
    let script = json!({"sessions": [[{"print": DONE}]], "commit_message": [{"print": "Add it"}]});
    run(&project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(crate::argv(&project), [vec!["commit", "-am", "Add it"], vec!["push", "-f", "a b"]]);
}

#[test]
fn scm_without_repository_is_refused_before_start() {
    let project = Project::new();
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let script = json!([project.record_step()]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(2).stderr_has("not a git repository").stderr_has("git init");
    project.settings(&json!({"scm": {"command": "no-such-scm", "tasks": ["commit"]}}));
    run(&project, &["-p", "do it"], &script).run().code(2).stderr_has("no-such-scm");
    assert_eq!(project.agent_starts().len(), 0);
}

#[test]
fn runtime_files_never_show_in_git() {
    let project = Project::git();
    project
        .settings(&json!({"guardrails": [{"command": "echo hi"}], "agent": {"promptVia": "file"}}));
    project.write(".ralph/settings.local.json", "{}");
    project.git_command(["add", "."]);
    let before = project.git_command(["status", "--porcelain"]);
    assert!(before.contains("settings.local.json"), "the test tests nothing");
    project.git_command(["rm", "--quiet", "-r", "--cached", "."]);
    let script = sessions([json!([]), json!([{"print": DONE}])]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    project.git_command(["add", "."]);
    assert_eq!(
        project.git_command(["status", "--porcelain"]),
        "A  .ralph/.gitignore\nA  .ralph/settings.json\n"
    );
    std::fs::remove_file(project.path().join(".ralph/.gitignore")).unwrap();
    run(&project, &["-p", "do it"], &script).run().code(0);
    assert!(project.has(".ralph/.gitignore"));
}

#[test]
fn commits_made_by_agent_are_pushed() {
    let project = project(&["commit", "push"]);
    with_remote(&project);
    let commit = "touch new; git add new; git commit --quiet -m 'By the agent'";
    let steps = json!([{"shell": commit}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it"], &agent_script(&steps, "not asked for")).run();
    output.code(0).stdout_has("nothing to commit");
    assert_eq!(pushed(&project), "By the agent");
}

#[test]
fn commit_message_cost_is_counted() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[
            {"shell": "touch new"}, {"claude": {"text": DONE}},
            {"claude": {"result": {"total_cost_usd": 0.5, "modelUsage": null}}},
        ]],
        "commit_message": [
            {"claude": {"text": "I will look at the changes."}}, {"claude": {"bash": "git status"}},
            {"claude": {"text": "Add the thing"}},
            {"claude": {"result": {"total_cost_usd": 0.25, "modelUsage": null}}},
        ],
    });
    run_with("claude", &project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(subjects(&project)[0], "Add the thing");
    assert_eq!(project.events().find("run_ended")["usage"]["cost_usd"], 0.75);
}

#[test]
fn unresolved_conflicts_are_not_committed() {
    let project = project(&["commit"]);
    let other = "git checkout -q -b other; echo theirs >old.txt; git commit -qam Theirs
        git checkout -q main; echo ours >old.txt; git commit -qam Ours";
    project.program("sh", ["-c", other]).run().success();
    let before = ["Ours", "First"];
    project.write("part/.ralph/settings.json", project.read(".ralph/settings.json"));
    project.git_command(["config", "core.excludesFile", ".git/info/exclude"]);
    project.write(".git/info/exclude", "part\n");
    let merge = json!({"shell": "git merge other; touch $(git rev-parse --show-toplevel)/new"});
    let script = json!({
        "sessions": [[merge, {"print": DONE}]],
        "commit_message": [project.record_step(), {"print": "Asked for nothing"}],
    });
    let output = run(&project, &["-p", "do it", "-C", "part"], &script).run();
    output.code(5).stdout_has("unresolved merge conflicts, so nothing was committed: old.txt; ");
    assert_eq!(subjects(&project), before);
    assert_eq!(project.git_command(["status", "--porcelain"]), "UU old.txt\n?? new\n");
    project.git_command(["merge", "--abort"]);

    let mut second_session = vec![project.record_step()];
    second_session.push(json!({"shell": "echo both >old.txt; git add old.txt"}));
    second_session.push(json!({"print": DONE}));
    let script = json!({
        "sessions": [[merge, {"print": "not yet"}], second_session],
        "commit_message": [{"print": "Merge theirs"}],
    });
    run(&project, &["-p", "do it"], &script).run().code(0);
    let prompt = project.agent_starts()[0]["prompt"].to_string();
    assert!(prompt.contains("unresolved merge conflicts: old.txt. Resolve them"), "{prompt}");
    assert_eq!(subjects(&project)[0], "Merge theirs");
    assert_eq!(project.git_command(["show", "HEAD:old.txt"]), "both\n");
}

#[test]
fn only_checked_changes_are_committed() {
    // Asked for a message, the agent edits, commits, hides staged changes, or changes the commit.
    let broken = "echo broken > new.txt; touch sneaked";
    let commits = format!("{broken}; git add -A; git commit -qm Mine");
    for (meddling, warning, committed, last) in [
        (broken, "files changed", "Fix it", 1),
        (&commits, "the index or HEAD changed", "Mine", 1),
        ("git commit -qm Mine", "the index or HEAD changed", "Mine", 0),
        ("git stash -qu", "the index or HEAD changed", "First", 1),
    ] {
        let project = project(&["commit"]);
        project.settings(&json!({
            "scm": {"command": "git", "tasks": ["commit"]},
            "guardrails": [{"command": "grep -q fixed new.txt"}],
        }));
        let work = json!([project.record_step(), {"shell": "[ -e new.txt ] || echo fixed > new.txt"}, {"print": DONE}]);
        let looks = json!([project.record_step(), {"print": DONE}]);
        let script = json!({
            "sessions": [work, looks], "commit_message": [{"shell": meddling}, {"print": "Fix it"}],
        });
        let output = run(&project, &["-p", "do it", "-n", "2"], &script).run();
        let warning = format!("{warning} while the agent wrote a commit message");
        output.code(last).stderr_has(&warning).stdout_has(&format!("Not done: {warning}"));
        let events = project.events();
        assert!(events.all("scm_ended").iter().all(|task| task["ok"] == true), "{meddling}");
        assert_eq!(events.all("iteration_ended")[0]["complete"], false, "{meddling}");
        assert_eq!(subjects(&project)[0], committed, "{meddling}");
        if committed == "Fix it" {
            assert_eq!(project.git_command(["show", "HEAD:new.txt"]), "fixed\n");
            assert!(!project.git_command(["ls-files"]).contains("sneaked"));
        }
        let prompt = project.agent_starts()[1]["prompt"].to_string();
        assert!(prompt.contains("That change is unchecked"), "{meddling}: {prompt}");
        let report = project.ralph(["report"]).run();
        report.code(0).stdout_has(&warning).stdout_has(&format!("not done: {warning}"));
    }

    // A commit of more than the index would include unchecked changes.
    let project = project(&["commit -a"]);
    let steps = json!([{"shell": "echo more >> old.txt"}, {"print": DONE}]);
    let message = json!([{"shell": "echo unseen >> old.txt"}, {"print": "Fix it"}]);
    let script = json!({"sessions": [steps], "commit_message": message});
    run(&project, &["-p", "do it", "-n", "1"], &script).run().code(1);
    assert_eq!(subjects(&project), ["First"]);
}

#[test]
fn agent_changing_files_for_message_ends_with_default() {
    let project = project(&["commit"]);
    let log = json!({"shell": "echo called >> agent.log"});
    let script = json!({
        "sessions": [[{"shell": "touch new.txt"}, log, {"print": DONE}]],
        "commit_message": [log, {"print": "Fix it"}],
    });
    let output = run(&project, &["-p", "do it", "-n", "3"], &script).run();
    output.code(0).stderr_has("changed files when it was last asked for a commit message");
    assert_eq!((subjects(&project)[1].as_str(), subjects(&project).len()), ("Fix it", 3));
    assert_eq!(project.git_command(["status", "--porcelain"]), "");
}

#[test]
fn commits_on_no_branch_are_reported() {
    let project = project(&["commit"]);
    let twice = json!({
        "sessions": [[{"shell": "touch one"}], [{"shell": "touch two"}, {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    let reported = |project: &Project| {
        let report = project.ralph(["report"]).run();
        report.code(0).stdout.clone()
    };
    project.git_command(["checkout", "--quiet", "--detach"]);
    run(&project, &ASKED, &twice).run().code(0).stderr_has("HEAD is detached, so");
    let warnings = project.events().all("warning").len();
    assert_eq!(warnings, 1, "once is enough");
    let line = reported(&project);
    assert!(line.contains(" on no branch, ") && line.contains("git branch NAME "), "{line}");
    project.git_command(["switch", "--quiet", "-c", "kept"]);
    assert!(!reported(&project).contains("commits on no branch"), "{}", reported(&project));

    let rebase = "touch one; git add one; git commit -qm One; \
                  GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i HEAD~1; touch three";
    let steps = json!([{"shell": rebase}, {"print": DONE}]);
    project.git_command(["reset", "--quiet", "--hard", "main"]);
    let output = run(&project, &["-p", "do it"], &agent_script(&steps, "Add it")).run();
    output
        .code(0)
        .stderr_has("a rebase of kept is in progress, so")
        .stderr_has("git rebase --abort");
}

#[test]
fn existing_uncommitted_changes_are_reported() {
    let project = project(&["commit"]);
    project.write("mine.txt", "not the agent's\n");
    let output =
        run(&project, &["-p", "do it"], &agent_script(&json!([{"print": DONE}]), "Do it")).run();
    output
        .code(0)
        .stderr_has("your uncommitted changes will be included in ralph's commits: mine.txt");
}

#[test]
fn files_of_init_are_named_apart_from_users_changes() {
    let project = Project::git();
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let script = agent_script(&json!([{"print": DONE}]), "Do it");
    let output = run(&project, &["-p", "do it"], &script).run();
    output
        .code(0)
        .stderr_lacks("your uncommitted changes")
        .stderr_has("note: the first commit will include ralph's settings: .ralph/settings.json");
}

#[test]
fn git_lock_of_other_process_is_waited_for() {
    let project = project(&["commit"]);
    let trace = project.sibling("trace");
    let script = agent_script(
        &json!([{"shell": "touch new; touch .git/index.lock"}, {"print": DONE}]),
        "New",
    );
    let running = run(&project, &["-p", "do it"], &script).env("GIT_TRACE", &trace).start();
    let tries = || {
        let trace_text = std::fs::read_to_string(&trace).unwrap_or_default();
        trace_text.lines().filter(|line| line.ends_with("built-in: git add -A")).count()
    };
    wait_until(LONG, || tries() >= 2);
    std::fs::remove_file(project.path().join(".git/index.lock")).unwrap();
    running.wait().code(0).stderr_lacks("lock");
    assert_eq!(subjects(&project), ["New", "First"]);
}

#[test]
fn commit_flag_commits_without_settings() {
    let project = Project::git();
    project.git_command(["commit", "--quiet", "--allow-empty", "-m", "First"]);
    let script = json!({
        "sessions": [[{"shell": "touch made"}, {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    run(&project, &["-p", "do it", "--commit"], &script).run().code(0);
    assert_eq!(subjects(&project), ["Add it", "First"]);
}

#[test]
fn repeated_warning_is_shown_once_and_counted() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"shell": "date +%N > new.txt"}]],
        "commit_message": [{"exit": 1}],
    });
    let output = run(&project, &[&ASKED[..], &["-n", "4"]].concat(), &script).run();
    output.code(1);
    let warning = "committing with a default message";
    assert_eq!(output.stderr.matches(warning).count(), 2, "{}", output.stderr);
    output.stderr_has(&format!("{warning} (4 times in this run)"));
}

#[test]
fn project_in_subdirectory_commits_only_its_files() {
    let top = Project::git();
    top.write("app/.ralph/settings.json", r#"{"scm": {"tasks": ["commit"]}}"#)
        .write("app/old.txt", "a");
    top.git_command(["add", "."]);
    top.git_command(["commit", "--quiet", "-m", "First"]);
    top.write("id_rsa", "key").write("other/file.txt", "staged").write("app/mine.txt", "before");
    top.git_command(["add", "other"]);
    let script = json!({
        "sessions": [[{"shell": "rm old.txt; touch new.txt"}, {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    let app = top.path().join("app");
    let output = run(&top, &ASKED, &script).current_dir(&app).run();
    output
        .code(0)
        .stderr_has("will be included in ralph's commits: app/mine.txt")
        .stderr_lacks("id_rsa");
    let committed = top.git_command(["show", "--name-only", "--format=%s", "HEAD"]);
    assert!(committed.starts_with("Add it\n"), "{committed}");
    assert!(committed.contains("app/new.txt") && committed.contains("app/mine.txt"), "{committed}");
    assert!(committed.contains("app/old.txt"), "{committed}");
    assert!(!committed.contains("id_rsa") && !committed.contains("other/"), "{committed}");
    let status = top.git_command(["status", "--porcelain"]);
    assert_eq!(status, "A  other/file.txt\n?? id_rsa\n", "what was staged stays staged");
}

#[test]
fn scm_paths_limit_the_commit() {
    let project = Project::git();
    project.settings(&json!({"scm": {"tasks": ["commit"], "paths": ["src", ":!src/*.key"]}}));
    project.git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "First"]);
    let steps = json!([{"shell": "mkdir src; touch src/a src/b.key beside"}, {"print": DONE}]);
    run(&project, &ASKED, &agent_script(&steps, "Add it")).run().code(0);
    let committed = project.git_command(["show", "--name-only", "--format=", "HEAD"]);
    assert_eq!(committed, "src/a\n");
}

#[test]
fn start_names_every_uncommitted_file_to_be_committed() {
    let project = project(&["commit"]);
    project.write("a.txt", "").write("dir/b.txt", "").write("dir/c.txt", "");
    let steps = json!([{"print": DONE}]);
    let output = run(&project, &ASKED, &agent_script(&steps, "Add it")).run();
    output.code(0).stderr_has("included in ralph's commits: a.txt, dir/b.txt, dir/c.txt");
}

#[test]
fn complete_run_names_uncommitted_files() {
    let project = Project::git();
    project.git_command(["commit", "--quiet", "--allow-empty", "-m", "First"]);
    let script = json!([{"shell": "touch 'a file' b"}, {"print": DONE}]);
    let output = run(&project, &ASKED, &script).run();
    output.code(0).stderr_has("complete, but not committed: a file, b");
    let script = json!([{"print": "no"}]);
    run(&project, &[&ASKED[..], &["-n", "1"]].concat(), &script)
        .run()
        .code(1)
        .stderr_lacks("not committed");
}

#[test]
fn uncommitted_work_in_submodule_is_named() {
    let project = project(&["commit"]);
    add_submodule(&project);
    let steps = json!([{"shell": "echo b >part/a"}, {"print": DONE}]);
    let output = run(&project, &ASKED, &agent_script(&steps, "Change the part")).run();
    output
        .code(0)
        .stderr_has("uncommitted changes inside submodules")
        .stderr_has("(commit them there): part");
}

#[test]
fn run_ending_on_other_branch_is_reported() {
    let project = project(&["commit"]);
    let script = json!({
        "sessions": [[{"shell": "git switch -qc experiment; touch new"}, {"print": DONE}]],
        "commit_message": [{"print": "Add it"}],
    });
    let first = project.git_command(["branch", "--show-current"]);
    let first = first.trim();
    let output = run(&project, &ASKED, &script).run();
    let message = format!("the run started on branch {first} and ended on experiment");
    output.code(0).stderr_has(&message);
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has(&format!("experiment (started on {first})"));
}

#[test]
fn git_variable_naming_other_repository_is_refused() {
    let (project, other) = (project(&["commit"]), Project::git());
    let script = json!([{"shell": "touch new"}, {"print": DONE}]);
    let elsewhere = other.path().join(".git");
    let output = run(&project, &ASKED, &script).env("GIT_DIR", &elsewhere).run();
    output.code(2).stderr_has("is not the repository of").stderr_has("unset GIT_DIR");
    assert!(!project.has("new"));
    run(&project, &ASKED, &script).env("GIT_DIR", project.path().join(".git")).run().code(0);
}
