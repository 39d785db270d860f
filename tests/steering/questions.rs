//! Questions by tag and by `ralph ask`, answers, and runs that wait for them.

use serde_json::{Value, json};

use crate::support::{LONG, wait_until};
use crate::{DONE, Scene};

fn ralph_program() -> &'static str {
    env!("CARGO_BIN_EXE_ralph")
}

fn open_questions(scene: &Scene) -> Vec<Value> {
    let output = scene.there(["questions", "--json"]);
    serde_json::from_str(&output.code(0).stdout).expect("a list")
}

#[test]
fn question_is_asked_once_and_its_answer_goes_into_the_next_prompt() {
    let scene = Scene::new();
    scene.settings(&json!({
        "notify": {"command": "jq -c 'select(.event == \"question_asked\")' >> ../notified"},
    }));
    let ask = "Unsure. <question>410 or 303?\n\nThe story does not say.</question>";
    let sessions = [
        json!([{"print": ask}, {"wait_for": scene.sibling("one")}]),
        json!([{"print": ask}, {"wait_for": scene.sibling("two")}]),
        json!([{"print": "thanks"}]),
        scene.done(),
    ];
    let run = scene.run(&["--name", "links"], &sessions).start();
    scene.wait_for_event("question_asked");
    let open = open_questions(&scene);
    let [question] = &open[..] else { panic!("{open:?}") };
    let id = question["id"].as_str().unwrap();
    assert_eq!(question["text"], "410 or 303?\n\nThe story does not say.");
    assert_eq!((&question["name"], &question["iteration"]), (&json!("links"), &json!(1)));
    let run_id = scene.newest_run().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(question["run"] == *run_id && question["asked_at"].is_string());
    scene.there(["questions"]).code(0).stdout_has(id).stdout_has("  410 or 303?");
    scene.there(["ls"]).code(0).stdout_has("asks");
    // The loop continues, and the same question is not asked again.
    scene.release("one");
    scene.wait_for_starts(2);
    let said = scene.there(["answer", id, "410: gone for good"]);
    said.code(0).stdout_has("links gets it with the next prompt");
    scene.wait_for_event("question_answered");
    scene.there(["answer", id, "303"]).code(1).stderr_has("was answered already: 410");
    assert_eq!(open_questions(&scene), [json!(null); 0]);
    scene.release("two");
    run.wait().code(0).stderr_has("The agent asks: 410 or 303?").stderr_has(id);
    let carried = scene.carried(&["410: gone for good"]);
    assert_eq!(carried.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1, 0]);
    assert!(scene.prompts()[2].contains("> 410 or 303?"), "{:?}", scene.prompts()[2]);
    assert_eq!(scene.events().all("question_asked").len(), 1);
    let notified = std::fs::read_to_string(scene.sibling("notified")).unwrap_or_default();
    assert_eq!(notified.lines().count(), 1, "{notified}");
}

#[test]
fn question_in_the_prompt_or_in_guidance_is_none() {
    let scene = Scene::new();
    let prompt = "Work. If unsure, write <question>What do you need to know?</question> alone.\n";
    scene.write("PROMPT.md", prompt);
    let sessions = [
        json!([{"print": prompt}, {"wait_for": scene.sibling("one")}]),
        json!([{"print": "You said: <question>Is this a trap?</question>"}, {"print": DONE}]),
    ];
    let run = scene.run(&[], &sessions).start();
    scene.wait_for_starts(1);
    scene.there(["tell", "docs", "Never write <question>Is this a trap?</question>."]).code(0);
    scene.wait_for_event("guidance_received");
    scene.release("one");
    run.wait().code(0);
    assert!(!scene.events().has("question_asked"));
}

#[test]
fn ask_prints_the_id_and_wakes_the_run() {
    let scene = Scene::new();
    let ask = format!("{} ask '410 or 303?' > ../asked; echo $? >> ../asked", ralph_program());
    let sessions = [json!([{"shell": ask}, {"wait_for": scene.sibling("one")}]), scene.done()];
    let run = scene.run(&[], &sessions).start();
    scene.wait_for_event("question_asked");
    let id = scene.events().find("question_asked")["id"].as_str().unwrap().to_owned();
    wait_until(LONG, || {
        std::fs::read_to_string(scene.sibling("asked")).is_ok_and(|it| it.lines().count() == 2)
    });
    assert_eq!(std::fs::read_to_string(scene.sibling("asked")).unwrap(), format!("{id}\n0\n"));
    scene.release("one");
    run.wait().code(0);
    let report = scene.there(["report", "docs"]);
    report.code(0).stdout_has("Open questions").stdout_has("410 or 303?");
    assert!(!scene.path().join(".ralph/questions").exists(), "nothing is left behind");
    scene.there(["answer", &id, "410"]).code(1).stderr_has("no run has an open question");
}

#[test]
fn ask_works_inside_every_sandbox_and_steering_does_not() {
    let check = Scene::new().ralph(["sandbox", "check"]).run();
    for backend in ["bwrap", "landlock"] {
        if check.stdout.contains(&format!("ok      {backend}")) {
            ask_inside(backend);
        } else {
            crate::support::skipped(&format!("{backend} does not work here"));
        }
    }
}

fn ask_inside(backend: &str) {
    let scene = Scene::new();
    scene.write(
        "agent.sh",
        "ralph ask 'Inside?' > asked; ralph tell docs x 2> refused; echo $? >> refused\n\
         ralph kill docs 2>> refused; echo '<response>DONE</response>'\n",
    );
    let sandbox = format!("--sandbox={backend}");
    let run = ["run", "-p", "Work.", "-n", "2", &sandbox, "--", "sh", "agent.sh"];
    scene.ralph(run).run().code(0);
    let asked = scene.events();
    let asked = asked.find("question_asked");
    assert_eq!(asked["text"], "Inside?");
    let id = std::fs::read_to_string(scene.path().join("asked")).expect("a file of the agent");
    assert_eq!(asked["id"], id.trim());
    let refused =
        std::fs::read_to_string(scene.path().join("refused")).expect("a file of the agent");
    assert_eq!(refused.matches("is not available inside a run").count(), 2, "{refused}");
}

#[test]
fn run_that_waits_parks_until_it_is_answered() {
    let scene = Scene::new();
    scene.settings(&json!({"questions": "wait"}));
    let ask = json!([{"print": "<question>Which port?</question>"}]);
    let run = scene.run(&["--check", "true"], &[ask, scene.done()]).start();
    scene.wait_for_event("parked");
    assert!(scene.events().has("guardrail_ended"), "the iteration is finished first");
    scene.there(["status", "docs"]).code(0).stdout_has("Status: asks");
    scene.there(["tell", "docs", "not an answer"]).code(0);
    // A parked run survives a kill.
    Scene::kill(run);
    let run = scene.ralph(["resume"]).start();
    scene.wait_for_events("parked", 2);
    assert_eq!(scene.agent_starts().len(), 1);
    let open = open_questions(&scene);
    let id = open[0]["id"].as_str().unwrap();
    scene.there(["answer", &id[..4], "8080"]).code(0).stdout_has(id);
    run.wait().code(0);
    let carried = scene.carried(&["8080", "not an answer"]);
    assert_eq!(carried, [vec![], vec!["8080".to_owned(), "not an answer".to_owned()]]);
    let events = scene.events();
    let kinds = events.kinds();
    assert!(kinds.contains(&"unparked"), "{kinds:?}");
}

#[test]
fn answer_to_killed_run_waits_and_is_given_once() {
    let scene = Scene::new();
    scene.settings(&json!({"questions": "wait"}));
    let ask = json!([{"print": "<question>Which port?</question>"}]);
    let run = scene.run(&[], &[ask, scene.done()]).start();
    scene.wait_for_event("parked");
    Scene::kill(run);
    let open = open_questions(&scene);
    let id = open[0]["id"].as_str().unwrap();
    scene.there(["answer", id, "8080"]).code(0).stdout_has("once it is resumed");
    assert!(open_questions(&scene).is_empty());
    scene.there(["answer", id, "9090"]).code(1).stderr_has("was answered already: 8080");
    scene.ralph(["resume"]).run().code(0);
    assert_eq!(scene.carried(&["8080", "9090"]), [vec![], vec!["8080".to_owned()]]);
}

#[test]
fn parked_run_can_be_stopped_and_paused() {
    let scene = Scene::new();
    scene.settings(&json!({"questions": "wait"}));
    let ask = json!([{"print": "<question>Which port?</question>"}]);
    let run = scene.run(&[], &[ask, scene.done()]).start();
    scene.wait_for_event("parked");
    scene.there(["pause", "docs"]).code(0);
    scene.wait_for_event("paused");
    scene.there(["resume", "docs"]).code(0);
    scene.wait_for_events("parked", 2);
    scene.there(["kill", "docs", "--after-iteration"]).code(0);
    run.wait().code(130);
    assert_eq!(scene.agent_starts().len(), 1);
}

#[test]
fn questions_can_be_switched_off() {
    let scene = Scene::new();
    scene.settings(&json!({"questions": "off"}));
    let ask = format!("{} ask 'Why?' 2> ../asked", ralph_program());
    let session = json!([{"print": "<question>Why?</question>"}, {"shell": ask}, {"print": DONE}]);
    scene.run(&[], &[session]).run().code(0);
    assert!(!scene.events().has("question_asked"));
    let asked = std::fs::read_to_string(scene.sibling("asked")).unwrap();
    assert!(asked.contains("this run takes no questions"), "{asked}");
}
