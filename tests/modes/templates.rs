//! Variables in prompts.

use serde_json::json;

use crate::{COMPLETE, project, prompts};

#[test]
fn template_variables_come_from_run_config_and_environment() {
    let project = project(&json!([]));
    let record = project.record_step();
    project.install_agent(
        "robot",
        &json!({"sessions": [
            [record, {"print": "no"}], [record, {"print": COMPLETE}],
        ]}),
    );
    project.write(".ralph/config", "AGENT_CLI=robot\nMINE='a b'\nBOTH=config\nMODE=config\n");
    let template = "${MODE} $ITERATION of ${MAX_ITERATIONS}: [$MINE] [$BOTH] [$THEIRS] [$NOBODY]\n";
    project.write("p.md", format!("{template}{COMPLETE}"));
    let output = project
        .ralph(["prompt", "p.md", "3"])
        .env("THEIRS", "environment")
        .env("BOTH", "environment")
        .run();
    output.code(0).stderr_has("${NOBODY}");
    assert_eq!(output.stderr.matches("NOBODY").count(), 1, "once: {}", output.stderr);
    assert_eq!(
        prompts(&project),
        [1, 2].map(|n| format!("prompt {n} of 3: [a b] [config] [environment] []\n{COMPLETE}"))
    );
}

#[test]
fn template_values_are_not_expanded_again() {
    let project = project(&json!([]));
    project.write(".ralph/config", "AGENT_CLI=robot\nSELF='${SELF} $MODE'\n");
    project.write("p.md", "$ 5$ $$ ${} ${A:-b} $(date) `x` ${SELF}\n");
    project
        .ralph(["prompt", "p.md", "--print-prompt"])
        .run()
        .code(0)
        .stdout_is("$ 5$ $$ ${} ${A:-b} $(date) `x` ${SELF} $MODE\n");
}

#[test]
fn print_prompt_works_without_agent_or_repository() {
    let project = crate::support::Project::new();
    project.write("p.md", "Do $WHAT in ${MODE}.");
    let output = project.ralph(["prompt", "p.md", "--print-prompt"]).run();
    output.code(0).stdout_is("Do  in prompt.\n").stderr_has("${WHAT}");
    project.settings(&json!({"includeIterationCountInPrompt": true}));
    let output = project.ralph(["plan", "4", "--print-prompt"]).run();
    output.code(0).stdout_has("Iteration 1 of 4, 3 remaining.\n\nPlan the work");
    let output = project.ralph(["build", "--print-prompt"]).run();
    output.code(0).stdout_has(COMPLETE);
    output.stderr_has("warning: specs directory not found: specs");
    let output = project.ralph(["run", "-p", "$HOME", "--print-prompt"]).run();
    output.code(0).stdout_is("Iteration 1 of 10, 9 remaining.\n\n$HOME\n");
    assert!(!project.has(".ralph/runs"));
}

#[test]
fn template_is_reread_for_each_iteration() {
    let project = project(&json!([]));
    let next = format!("echo 'Second. {COMPLETE}' >p.md");
    project.install_agent(
        "robot",
        &json!({"sessions": [
            [project.record_step(), {"shell": next}, {"print": "no"}],
            [project.record_step(), {"print": COMPLETE}],
        ]}),
    );
    project.write("p.md", format!("First. {COMPLETE}"));
    project.ralph(["prompt", "p.md"]).run().code(0);
    assert!(prompts(&project)[1].starts_with("Second."), "{:?}", prompts(&project));
}

#[test]
fn print_prompt_works_for_work_command() {
    let project = crate::support::Project::new();
    project.ralph(["new", "Thing"]).run().code(0);
    project.ralph(["tasks", "add", "Do it", "--criterion", "It is done"]).run().code(0);
    project.write("ralph/prompt.md", "Iteration $RALPH_ITERATION of ${RALPH_MAX_ITERATIONS}.\n");
    let output = project.ralph(["work", "-n", "7", "--print-prompt"]).run();
    output.code(0).stdout_is("Iteration 1 of 7.\n");
    assert!(!project.has(".ralph/runs"));
}
