//! Prompts.

use serde_json::json;

use crate::support::Project;
use crate::{DONE, prompts, run, sessions};

#[test]
fn command_line_prompt_is_sent_unchanged_each_time() {
    let project = Project::new();
    let script =
        sessions([json!([project.record_step()]), json!([project.record_step(), {"print": DONE}])]);
    let prompt = "  fix \"it\" $HOME `now`\n\nümlaut  ";
    run(&project, &["-p", prompt], &script).run().code(0);
    assert_eq!(prompts(&project), [prompt, prompt]);
}

#[test]
fn prompt_file_is_reread_for_each_iteration() {
    let project = Project::new();
    project.write("PROMPT.md", "first\n");
    let script = sessions([
        json!([project.record_step(), {"write": {"path": "PROMPT.md", "text": "second"}}]),
        json!([project.record_step(), {"print": DONE}]),
    ]);
    run(&project, &["-f", "PROMPT.md"], &script).run().code(0);
    assert_eq!(prompts(&project), ["first\n", "second"]);
}

#[test]
fn exactly_one_prompt_is_required() {
    let project = Project::new();
    project.write("PROMPT.md", "do it");
    let script = json!([project.record_step(), {"print": DONE}]);
    for (args, says) in [
        (&[][..], "exactly one of --prompt and --prompt-file"),
        (&["-p", "x", "-f", "PROMPT.md"], "cannot be used with"),
        (&["-p", " "], "the prompt is empty"),
        (&["-f", "missing.md"], "prompt file not found: missing.md"),
        (&["-f", "."], "prompt file is a directory"),
    ] {
        let output = run(&project, args, &script).run();
        output.code(2).stderr_has(says).stdout_is("");
        assert!(output.stderr.ends_with('\n'), "an unfinished line: {:?}", output.stderr);
    }
    assert_eq!(project.agent_starts().len(), 0, "nothing may have been started");
    assert!(!project.has(".ralph"), "nor written");
}

#[test]
fn vanished_prompt_file_ends_run() {
    let project = Project::new();
    project.write("PROMPT.md", "do it");
    let script = json!([project.record_step(), {"shell": "rm PROMPT.md"}]);
    let output = run(&project, &["-f", "PROMPT.md"], &script).run();
    output.code(2).stdout_has("prompt file not found").stdout_has("PROMPT.md");
    assert_eq!(project.agent_starts().len(), 1);
    assert_eq!(project.events().find("run_ended")["outcome"], "prompt_lost");
}

#[test]
fn empty_prompt_is_never_sent() {
    let project = Project::new();
    project.write("PROMPT.md", "do it");
    let script = json!([project.record_step(), {"write": {"path": "PROMPT.md", "text": " \n"}}]);
    let output = run(&project, &["-f", "PROMPT.md"], &script).run();
    output.code(2).stdout_has("prompt file is empty: ").stdout_has("PROMPT.md");
    assert_eq!(prompts(&project), ["do it"]);
    run(&project, &["-f", "PROMPT.md"], &script).run().code(2).stderr_has("is empty");
    assert_eq!(prompts(&project), ["do it"]);
}

#[test]
fn prompt_file_with_invalid_utf8_is_sent_with_one_warning() {
    let project = Project::new();
    project.write("PROMPT.md", b"caf\xe9");
    let script =
        sessions([json!([project.record_step()]), json!([project.record_step(), {"print": DONE}])]);
    let output = run(&project, &["-f", "PROMPT.md"], &script).run();
    output.code(0).stderr_has("not UTF-8");
    assert_eq!(output.stderr.matches("not UTF-8").count(), 1);
    assert_eq!(prompts(&project), ["caf\u{fffd}", "caf\u{fffd}"]);
}

#[test]
fn iteration_line_precedes_feedback_and_prompt() {
    let project = Project::new();
    project.settings(&json!({
        "includeIterationCountInPrompt": true,
        "guardrails": [{"command": "test -e fixed", "failAction": "PREPEND"}],
    }));
    let script = sessions([
        json!([project.record_step()]),
        json!([project.record_step(), {"shell": "touch fixed"}, {"print": DONE}]),
    ]);
    run(&project, &["-p", "do it", "-n", "3"], &script).run().code(0);
    let prompts = prompts(&project);
    assert_eq!(prompts[0], "Iteration 1 of 3, 2 remaining.\n\ndo it");
    assert!(
        prompts[1].starts_with("Iteration 2 of 3, 1 remaining.\n\nGuardrail \"test -e fixed\""),
        "{}",
        prompts[1]
    );
    assert!(prompts[1].ends_with("\n\ndo it"), "{}", prompts[1]);
}

#[test]
fn large_prompt_arrives_completely() {
    // The kernel limits an argument to 128 KiB; a pipe holds 64 KiB.
    let project = Project::new();
    project.write("PROMPT.md", "é".repeat(500_000));
    let script = json!([project.record_step(), {"print": DONE}]);
    run(&project, &["-f", "PROMPT.md"], &script).run().code(0);
    let record = &project.agent_starts()[0];
    assert_eq!(record["prompt"].as_str().unwrap().chars().count(), 500_000);
    assert_eq!(record["stdin_eof"], true);
}

#[test]
fn agent_not_reading_prompt_does_not_block_run() {
    let project = Project::new();
    project.write("PROMPT.md", "x".repeat(1_000_000));
    let script = json!({"sessions": [[{"print": DONE}]], "stdin": "ignore"});
    run(&project, &["-f", "PROMPT.md"], &script).run().code(0);
}

#[test]
fn prompt_with_nul_as_argument_is_refused() {
    let project = Project::new();
    project.settings(&json!({"agent": {"promptVia": "argument"}}));
    project.write("p.md", "a\0b");
    let output = run(&project, &["-f", "p.md"], &json!([{"print": DONE}])).run();
    output.code(2).stdout_has("the prompt contains a NUL character").stdout_has("promptVia");
    assert!(!project.events().has("agent_started"));
}
