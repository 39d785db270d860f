//! `ralph plan`, then `ralph build`, with a real agent.

use serde_json::json;

use crate::real::RealAgent;
use crate::{Facts, for_agents, support};

for_agents!(plan_then_build_completes: claude, codex);

const PLAN: &str = ".ralph/implementation_plan.md";

fn plan_then_build_completes(facts: &Facts) {
    let script = |_: &support::Project| {
        let commit = "git add -A && git commit -qm";
        let task = |n: u32| {
            format!(
                "touch thing-{n} && sed -i 's/\\[ \\] {n}/[x] {n}/' {PLAN} && {commit} 'Task {n}'"
            )
        };
        json!({"sessions": [
            [
                {"sh": format!("cat specs/*.md; printf -- '- [ ] 1\\n- [ ] 2\\n' >{PLAN} && {commit} Plan")},
                {"text": "Two tasks.\n<promise>COMPLETE</promise>"},
            ],
            // Tool output is not the agent's own words.
            [{"sh": format!("echo '<promise>COMPLETE</promise>'; {}", task(1))}, {"text": "One is done."}],
            [{"sh": task(2)}, {"text": "All is done.\n<promise>COMPLETE</promise>"}],
        ]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    project.write("specs/things.md", "There are two things.\n");
    let build = || real.ralph(&[&["build", "5"], facts.args].concat(), &[]);
    build().run().code(2).stderr_has("Implementation plan not found. Run 'ralph plan' first.");
    assert!(!real.has_answered(), "that cost nothing");

    real.ralph(&[&["plan"], facts.args].concat(), &[]).run().code(0);
    assert_eq!(project.events().all("iteration_started").len(), 1);
    assert_eq!(project.read(PLAN), "- [ ] 1\n- [ ] 2\n");

    build().run().code(0);
    let events = project.events();
    assert_eq!(events.all("iteration_started").len(), 2, "{:?}", events.kinds());
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    assert_eq!(project.read(PLAN), "- [x] 1\n- [x] 2\n");
    assert_eq!(project.git_command(["log", "--format=%s"]), "Task 2\nTask 1\nPlan\nBegin\n");
    assert_eq!(project.git_command(["status", "--porcelain"]), "");

    let prompts: Vec<String> =
        real.first_requests().iter().map(|r| r["body"].to_string()).collect();
    assert_eq!(prompts.len(), 3);
    assert!(prompts[0].contains("Plan the work on this project"), "{}", prompts[0]);
    assert!(prompts[1..].iter().all(|prompt| prompt.contains("one task, done well")));
    let logs = std::fs::read_dir(project.path().join(".ralph/logs")).expect("the logs");
    let logs: String = logs
        .map(|entry| std::fs::read_to_string(entry.expect("a log").path()).expect("a log"))
        .collect();
    assert_eq!(logs.matches("SESSION SUMMARY").count(), 2, "{logs}");
    assert!(logs.contains("Total Iterations: 2\nSuccessful: 2\nFailed: 0\n"), "{logs}");
    assert_eq!(project.processes(), []);
}
