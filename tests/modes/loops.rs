//! The three modes from start to end.

use serde_json::{Value, json};

use crate::support::Project;
use crate::{COMPLETE, PLAN, project, prompts};

#[test]
fn plan_writes_plan_and_build_completes_it() {
    let project = Project::git();
    project.write("specs/thing.md", "There is a thing.\n");
    project.install_agent("robot", &json!({"sessions": [
        [project.record_step(), {"write": {"path": PLAN, "text": "- [ ] one\n- [ ] two\n"}},
            {"shell": "git add -A && git commit -qm Plan"}, {"print": COMPLETE}],
        [project.record_step(), {"shell": "sed -i s/.*one/DONE/ .ralph/implementation_plan.md"}, {"print": "More."}],
        [project.record_step(), {"shell": "git add -A && git commit -qm Build"}, {"print": COMPLETE}],
    ]}));
    let build = || project.ralph(["build", "5", "--", "robot"]);
    let output = build().run();
    output.code(2).stderr_has("Implementation plan not found. Run 'ralph plan' first.");
    project.ralph(["plan", "--", "robot"]).run().code(0);
    build().run().code(0);

    let events = project.events();
    assert_eq!(events.find("run_started")["command"], "build");
    assert_eq!(events.find("run_started")["max_iterations"], 5);
    assert_eq!(events.all("iteration_started").len(), 2);
    let prompts = prompts(&project);
    assert!(prompts[0].contains("Plan the work"), "{}", prompts[0]);
    assert!(prompts[0].contains("the specifications in `specs/`"), "{}", prompts[0]);
    assert!(prompts[0].contains("`.ralph/implementation_plan.md`"), "{}", prompts[0]);
    assert!(prompts[1].contains("one task, done well"), "{}", prompts[1]);
    let tracked = project.git_command(["ls-files", ".ralph"]);
    assert!(tracked.contains("implementation_plan.md") && !tracked.contains("logs"), "{tracked}");
    assert_eq!(project.processes(), []);
}

#[test]
fn reached_iteration_limit_exits_0() {
    let project = project(&json!([{"print": "still at it"}]));
    for (args, limit) in [
        (&["plan", "2"][..], 2),
        (&["build", "-n", "3"], 3),
        (&["build", "--maximum-iterations", "1"], 1),
        (&["plan"], 10),
    ] {
        project.ralph(args).run().code(0);
        let events = project.events();
        assert_eq!(events.all("iteration_started").len(), limit, "{args:?}");
        assert_eq!(events.last("run_ended")["outcome"], "limit_reached");
    }
    project.write(".ralph/config", "AGENT_CLI=robot\nMAX_ITERATIONS=2\n");
    project.ralph(["plan"]).run().code(0);
    assert_eq!(project.events().all("iteration_started").len(), 2);
    project.ralph(["plan", "1"]).run().code(0);
    assert_eq!(project.events().all("iteration_started").len(), 1, "what is typed comes first");
}

#[test]
fn prompt_command_uses_own_prompt() {
    let project = project(&json!({"sessions": [[{"print": "no"}], [{"print": COMPLETE}]]}));
    project.write("mine.md", format!("In ${{MODE}} mode. Then say {COMPLETE}.\n"));
    project.ralph(["prompt", "mine.md", "4"]).run().code(0);
    let events = project.events();
    assert_eq!(events.find("run_started")["command"], "prompt");
    assert_eq!(events.all("iteration_started").len(), 2);
    for args in [&["prompt", "-f", "mine.md"][..], &["prompt", "-", "-n", "1"]] {
        project.install_agent("robot", &json!([project.record_step(), {"print": COMPLETE}]));
        project.ralph(args).stdin(format!("In prompt mode. {COMPLETE}")).run().code(0);
    }
    assert!(prompts(&project).iter().all(|prompt| prompt.starts_with("In prompt mode.")));
}

#[test]
fn project_prompts_override_built_in_prompts() {
    let project = project(&json!([project_record(), {"print": COMPLETE}]));
    project.write(".ralph/prompts/plan.md", "My own plan for ${SPECS_DIR}.");
    project.ralph(["plan"]).run().code(0);
    project.ralph(["build"]).run().code(0);
    project.ralph(["plan", "-p", "By hand."]).run().code(0);
    let prompts: Vec<String> = project
        .read("../record.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["prompt"].to_string())
        .collect();
    assert_eq!(prompts[0], "\"My own plan for specs.\"");
    assert!(prompts[1].contains("one task, done well"), "{}", prompts[1]);
    assert_eq!(prompts[2], "\"By hand.\"");
}

fn project_record() -> Value {
    json!({"record": "../record.jsonl"})
}

#[test]
fn removed_plan_ends_build_before_next_agent() {
    let project = project(&json!([{"shell": "rm .ralph/implementation_plan.md"}]));
    let output = project.ralph(["build", "3"]).run();
    output.code(2).stdout_has("Implementation plan not found. Run 'ralph plan' first.");
    assert_eq!(project.events().all("agent_started").len(), 1);
}

#[test]
fn retries_are_counted_per_iteration() {
    let fails = json!([{"exit": 1}]);
    let works = json!([{"print": "ok"}]);
    let project = project(&json!({"sessions": [
        fails, fails, fails, works, fails, fails, fails, works, fails,
    ]}));
    // Twice three failures and a success, then only failures.
    let output = project.ralph(["build"]).run();
    output.code(4).stdout_has("failed 4 times in a row");
    let events = project.events();
    assert_eq!(events.all("agent_started").len(), 12);
    assert_eq!(events.all("iteration_started").len(), 3);

    project.write(".ralph/config", "AGENT_CLI=robot\nMAX_RETRIES=0\n");
    project.ralph(["build"]).run().code(4);
    assert_eq!(project.events().all("agent_started").len(), 1);
}

#[test]
fn guardrails_and_scm_settings_apply_to_build() {
    let project = project(&json!({
        "sessions": [[{"print": COMPLETE}], [{"shell": "touch made"}, {"print": COMPLETE}]],
        "commit_message": [{"print": "Make it"}],
    }));
    project.settings(&json!({
        "guardrails": [{"command": "test -e made", "failAction": "APPEND"}],
        "scm": {"command": "git", "tasks": ["commit"]},
    }));
    project.ralph(["build"]).run().code(0);
    assert_eq!(project.events().all("iteration_started").len(), 2);
    assert_eq!(project.git_command(["log", "--format=%s"]), "Make it\n");
}
