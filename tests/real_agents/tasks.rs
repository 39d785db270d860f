//! Real agents that work on a task list, and cheat.

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::{Facts, for_agents, support};

for_agents!(false_completion_claims_are_vetoed: claude, codex);

fn story(id: &str, passes: bool) -> Value {
    let notes = if passes { "done" } else { "" };
    json!({
        "id": id, "title": format!("Title of {id}"), "acceptanceCriteria": ["it works"],
        "priority": 1, "passes": passes, "notes": notes,
    })
}

fn list(verify: &str, stories: &[Value]) -> String {
    let list = json!({
        "project": "Greeting", "branchName": "ralph/greeting", "description": "",
        "verifyCommands": [verify], "userStories": stories,
    });
    format!("{list:#}\n")
}

fn false_completion_claims_are_vetoed(facts: &Facts) {
    const VERIFY: &str = "test -e first";
    let (first, second) = (story("US-001", false), story("US-002", false));
    let script = |project: &support::Project| {
        let path = project.path().join("ralph/tasks.json");
        let write = |content: String| json!({"write": {"path": path, "content": content}});
        let one = list(VERIFY, &[story("US-001", true), second.clone()]);
        let dropped = list("true", &[story("US-001", true)]);
        let both = list(VERIFY, &[story("US-001", true), story("US-002", true)]);
        json!({"sessions": [
            [{"sh": "touch first"}, write(one), {"text": "Done. <promise>COMPLETE</promise>"}],
            [write(dropped), {"text": "Now, surely. <promise>COMPLETE</promise>"}],
            [write("{ \"userStories\": [".to_owned()), {"text": "Hm."}],
            [write(both), {"text": "All of them pass."}],
        ]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    project.write("ralph/tasks.json", list(VERIFY, &[first, second.clone()]));
    project.write("ralph/prompt.md", "This is $RALPH_ITERATION of $RALPH_MAX_ITERATIONS.\n");
    real.ralph(&[&["work", "-n", "6", "--no-sandbox"], facts.args].concat(), &[]).run().code(0);

    let events = project.events();
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    assert_eq!(events.all("vetoed").len(), 2, "{:?}", events.kinds());
    let prompts: Vec<String> =
        real.first_requests().iter().map(|r| r["body"].to_string()).collect();
    assert_eq!(prompts.len(), 4, "a conversation for each iteration");
    let findings = [
        "This is 1 of 6.",
        "1 of 2 stories does not pass yet: US-002",
        "Story US-002 (Title of US-002) was removed",
        "is not valid JSON",
    ];
    for (prompt, findings) in prompts.iter().zip(findings) {
        assert!(prompt.contains(findings), "{findings}: {prompt}");
    }
    assert!(prompts[2].contains("verifyCommands"), "{}", prompts[2]);
    assert!(!project.has(".ralph-active"));
    assert_eq!(project.processes(), []);
}

for_agents!(work_commits_in_root_subdirectory_and_worktree: codex, opencode, gemini, copilot, cline, qwen);

fn work_commits_in_root_subdirectory_and_worktree(facts: &Facts) {
    let open = list("true", &["US-001", "US-002"].map(|id| story(id, false)));
    let one = list("true", &[story("US-001", true), story("US-002", false)]);
    let both = list("true", &["US-001", "US-002"].map(|id| story(id, true)));
    let script = |_: &support::Project| {
        let work = |id: &str| json!({"sh": format!("mv {id} ralph/tasks.json && git add ralph && git commit -qm {id}")});
        let session = json!([work("US-001"), work("US-002"), {"text": "Both pass."}]);
        json!({"sessions": [session, session, session]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    let identity = "[user]\nname = Ann\nemail = ann@example.com\n";
    std::fs::write(project.home().join(".gitconfig"), identity).expect("git's configuration");
    project.git_command(["worktree", "add", "--quiet", "../tree"]);
    let places = [project.path().to_owned(), project.path().join("sub"), project.sibling("tree")];
    for place in &places {
        std::fs::create_dir_all(place.join("ralph")).expect("a directory");
        std::fs::create_dir_all(place.join(".ralph")).expect("a directory");
        std::fs::write(place.join(".ralph/settings.json"), "{}").expect("settings");
        for (file, list) in [("ralph/tasks.json", &open), ("US-001", &one), ("US-002", &both)] {
            std::fs::write(place.join(file), list).expect("a task list");
        }
        let flags = ["work", "-n", "1", "--no-sandbox", "-C", place.to_str().expect("UTF-8")];
        let output = real.ralph(&[&flags, facts.args].concat(), &[]).without_git_identity().run();
        output.code(0);
        let log = ["log", "-2", "--format=%s by %an <%ae>"];
        let log = [&["-C", place.to_str().expect("UTF-8")], &log[..]].concat();
        assert_eq!(
            project.git_command(log),
            "US-002 by Ann <ann@example.com>\nUS-001 by Ann <ann@example.com>\n",
            "{}: {}",
            place.display(),
            output.stdout
        );
    }
    assert_eq!(project.processes(), []);
}

for_agents!(stories_marked_before_kill_are_checked_again: claude);

fn stories_marked_before_kill_are_checked_again(facts: &Facts) {
    let stories = [story("US-001", true), story("US-002", true)];
    let script = |project: &support::Project| {
        let path = project.path().join("ralph/tasks.json");
        let marked = json!({"write": {"path": path, "content": list("true", &stories)}});
        json!({"sessions": [
            [marked, {"sh": "touch marked; sleep 1000"}, {"text": "<promise>COMPLETE</promise>"}],
            [{"text": "They do pass."}],
        ]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    project
        .write("ralph/tasks.json", list("true", &["US-001", "US-002"].map(|id| story(id, false))));
    let work = || real.ralph(&[&["work", "-n", "3", "--no-sandbox"], facts.args].concat(), &[]);
    let running = work().start();
    project.wait_for_file("marked");
    running.signal(rustix::process::Signal::KILL);
    running.wait().killed_by(rustix::process::Signal::KILL);
    assert!(project.has(".ralph-active"));
    work().run().code(0).stderr_has("so the agent must verify it: US-001, US-002");
    let requests = real.first_requests();
    let prompt = requests.last().expect("a request")["body"].to_string();
    assert!(prompt.contains("Before anything else, verify them"), "{prompt}");
    assert!(!project.has(".ralph-active"));
    assert_eq!(project.processes(), []);
}
