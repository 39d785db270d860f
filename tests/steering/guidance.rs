//! `ralph tell` and `ralph kill --after-iteration`.

use serde_json::json;

use crate::Scene;

#[test]
fn guidance_goes_into_the_next_prompt_once_and_in_order() {
    let scene = Scene::new();
    let sessions = [scene.until("one"), scene.until("two"), scene.done()];
    let run = scene.run(&[], &sessions).start();
    scene.wait_for_starts(1);
    let said = scene.there(["tell", "docs", "First: mind the gap."]);
    said.code(0).stdout_is("run 'docs' carries your guidance in the next prompt, if there is one; --now does not wait\n");
    scene.write("more.md", "Second: from a file.\n");
    let file = scene.path().join("more.md");
    scene.there(["tell", "docs", "-f", file.to_str().unwrap()]).code(0);
    scene.ralph(["tell", "docs", "-"]).stdin("Third: from a pipe.\n").run().code(0);
    scene.wait_for_events("guidance_received", 3);
    scene.release("one");
    scene.wait_for_starts(2);
    scene.release("two");
    run.wait()
        .code(0)
        .stderr_has("You said: First: mind the gap.")
        .stdout_has("The prompt carries 3");
    let texts = ["First: mind the gap.", "Second: from a file.", "Third: from a pipe."];
    assert_eq!(scene.carried(&texts), [vec![], texts.map(str::to_owned).to_vec(), vec![]]);
    assert!(scene.prompts()[1].contains("## Guidance from the user"));
    let delivered = scene.events();
    let delivered = delivered.find("guidance_delivered");
    assert_eq!((&delivered["iteration"], &delivered["guidance"]), (&json!(2), &json!([1, 2, 3])));
    assert_eq!(scene.events().find("run_started")["name"], "docs");
    let report = scene.there(["report", "docs"]);
    report.code(0).stdout_has("iteration 2: First: mind the gap.");
    // A finished run refuses it.
    let late = scene.there(["tell", "docs", "too late"]);
    late.code(1)
        .stderr_has("has ended: complete (complete after 3 iterations)")
        .stderr_has("hint: it is complete; start a new run");
}

#[test]
fn guidance_without_a_further_prompt_is_reported_as_not_delivered() {
    let scene = Scene::new();
    let session = json!([{"wait_for": scene.sibling("one")}, {"print": crate::DONE}]);
    let run = scene.run(&[], &[session]).start();
    scene.wait_for_starts(1);
    scene.there(["tell", "docs", "Mind the gap."]).code(0);
    scene.wait_for_events("guidance_received", 1);
    scene.there(["report", "docs"]).code(0).stdout_has("waits for the next prompt: Mind the gap.");
    scene.release("one");
    run.wait().code(0).stdout_has("Not delivered: \"Mind the gap.\"");
    let report = scene.there(["report", "docs"]);
    report.code(0).stdout_has("not delivered: the run ended first: Mind the gap.");
}

#[test]
fn immediate_guidance_restarts_the_iteration_without_using_one_up() {
    let scene = Scene::new();
    let run = scene.run(&[], &[scene.until("never"), scene.done()]).start();
    scene.wait_for_starts(1);
    let id = scene.newest_run().file_name().unwrap().to_str().unwrap().to_owned();
    scene.there(["tell", &id[16..], "--now", "Stop: keep the API."]).code(0);
    run.wait().code(0);
    assert_eq!(scene.carried(&["keep the API"]), [vec![], vec!["keep the API".to_owned()]]);
    let events = scene.events();
    assert_eq!(events.find("agent_ended")["ended_by"], "guidance");
    assert!(!events.has("retrying"), "not a failure");
    assert_eq!(events.last("run_ended")["iterations"], 1);
}

#[test]
fn repeated_guidance_ends_with_clear() {
    let scene = Scene::new();
    let sessions =
        [scene.until("one"), json!([{"print": "quick"}]), scene.until("three"), scene.done()];
    let run = scene.run(&[], &sessions).start();
    scene.wait_for_starts(1);
    scene.there(["tell", "docs", "--clear"]).code(0).stdout_is("there was no guidance to drop\n");
    scene.there(["tell", "docs", "--every", "Always mind."]).code(0);
    scene.wait_for_events("guidance_received", 1);
    scene.release("one");
    scene.wait_for_starts(3);
    scene.there(["tell", "docs", "--clear"]).code(0).stdout_has("dropped the guidance");
    scene.wait_for_events("guidance_cleared", 1);
    scene.release("three");
    run.wait().code(0);
    let always = vec!["Always mind.".to_owned()];
    assert_eq!(scene.carried(&["Always mind."]), [vec![], always.clone(), always, vec![]]);
}

#[test]
fn killed_run_keeps_guidance_and_accepts_more() {
    let scene = Scene::new();
    // Killed between request and delivery, then between delivery and the end of the iteration.
    let sessions = [scene.until("a"), scene.until("b"), scene.until("c"), scene.done()];
    let run = scene.run(&[], &sessions).start();
    scene.wait_for_starts(1);
    scene.there(["tell", "docs", "first text"]).code(0);
    scene.wait_for_events("guidance_received", 1);
    Scene::kill(run);
    let report = scene.there(["report", "docs"]);
    report.code(0).stdout_has("goes into the next prompt on resume: first text");
    let said = scene.there(["tell", "docs", "second text"]);
    said.code(0).stdout_has("once it is resumed: ralph resume docs");
    let run = scene.ralph(["resume"]).start();
    scene.wait_for_events("guidance_delivered", 1);
    scene.wait_for_starts(2);
    Scene::kill(run);
    let run = scene.ralph(["resume"]).start();
    scene.wait_for_starts(3);
    scene.release("c");
    run.wait().code(0);
    let both = vec!["first text".to_owned(), "second text".to_owned()];
    let carried = scene.carried(&["first text", "second text"]);
    assert_eq!(carried, [vec![], both.clone(), both, vec![]]);
    assert_eq!(scene.events().all("guidance_received").len(), 2, "none is taken twice");
}

#[test]
fn bad_text_and_missing_run_are_clear_errors() {
    let scene = Scene::new();
    let run = scene.run(&[], &[scene.until("one"), scene.done()]).start();
    scene.wait_for_starts(1);
    scene.write("big.txt", "x".repeat(1 << 20));
    let big = scene.path().join("big.txt");
    let big = big.to_str().unwrap();
    for (args, error) in [
        (&["tell", "docs"][..], "no text given"),
        (&["tell", "docs", " \n"], "the text is empty"),
        (&["tell", "docs", "-f", big], "is longer than 64 KB"),
        (&["tell", "docs", "-f", "/nowhere"], "cannot read /nowhere"),
        (&["tell", "docs", "--clear", "text"], "cannot be used with"),
        (&["tell", "nobody", "text"], "'nobody' not found"),
        (&["answer", "q000000", "text"], "no run has an open question q000000"),
        (&["ask", "Why?"], "works only inside a run"),
    ] {
        let output = scene.there(args);
        output.stderr_has(error);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}");
    }
    scene.release("one");
    run.wait().code(0);
    assert!(!scene.events().has("guidance_received"));
}

#[test]
fn agent_cannot_steer_itself() {
    let scene = Scene::new();
    let run = scene.run(&[], &[scene.until("one"), scene.done()]).start();
    scene.wait_for_starts(1);
    for args in [
        &["tell", "docs", "continue"][..],
        &["answer", "q123456", "yes"],
        &["pause", "docs"],
        &["resume", "docs"],
        &["kill", "docs"],
        &["work", "--accept-list"],
    ] {
        let output = scene.ralph(args).env("RALPH_RUN_ID", "20261115-202752-0000").run();
        output.code(1).stderr_has("is not available inside a run").stderr_has("hint: ");
    }
    scene.release("one");
    run.wait().code(0);
}

#[test]
fn stop_after_iteration_finishes_checks_and_commit() {
    let scene = Scene::new();
    let more = ["--check", "echo checked >> ../checks"];
    let run = scene.run(&more, &[scene.until("one"), scene.done()]).start();
    scene.wait_for_starts(1);
    let said = scene.there(["kill", "docs", "--after-iteration"]);
    said.code(0).stdout_is("docs stops after the current iteration\n");
    scene.wait_for_event("stop_requested");
    let stops = || scene.there(["ls"]).code(0).stdout.contains(" stopping ");
    crate::support::wait_until(crate::support::LONG, stops);
    scene.release("one");
    run.wait().code(130).stderr_has("Stopping after this iteration, as requested.");
    assert_eq!(scene.agent_starts().len(), 1);
    let events = scene.events();
    let end = events.last("iteration_ended");
    assert_eq!((&end["cut_off"], &end["guardrails_passed"]), (&json!(null), &json!(true)));
    scene.there(["kill", "docs", "--after-iteration"]).code(1).stderr_has("is not running");
}
