//! Commands that must pass before a completion counts.

use serde_json::{Value, json};

use crate::support::Project;
use crate::{ASKED, DONE, prompts, recorded_steps, run, run_id, sessions};

/// An agent that always claims completion, rightly on its second start.
fn fixes_on_second_start(project: &Project) -> Value {
    sessions([
        json!([project.record_step(), {"print": DONE}]),
        json!([project.record_step(), {"shell": "touch fixed"}, {"print": DONE}]),
    ])
}

fn second_prompt(project: &Project, settings: &Value) -> String {
    project.settings(settings);
    run(project, &["-p", "do it"], &fixes_on_second_start(project)).run().code(0);
    prompts(project)[1].clone()
}

#[test]
fn guardrail_failure_is_fed_back_in_documented_format() {
    let project = Project::new();
    let command = "echo out; echo err >&2; test -e fixed || exit 3";
    let hint = "Fix only $(this), {{that}}.";
    let prompt = second_prompt(
        &project,
        &json!({"guardrails": [{"command": command, "failAction": "APPEND", "hint": hint}]}),
    );
    let log = ".ralph/guardrail_001_echo_out_echo_err_2_test_e_fixed_exit_3.log";
    assert_eq!(
        prompt,
        format!(
            "do it\n\nGuardrail \"{command}\" failed with exit code 3.\nHint: {hint}\n\
             Output file: {log}\nOutput:\nout\nerr"
        )
    );
    assert_eq!(project.read(log), "out\nerr\n");
}

#[test]
fn fail_actions_place_feedback_in_order() {
    let guardrail = |name: &str, action: &str| json!({"command": format!("test -e fixed #{name}"), "failAction": action});
    let cases = [
        (vec![guardrail("a", "APPEND")], vec!["do it", "#a"]),
        (vec![guardrail("a", "PREPEND")], vec!["#a", "do it"]),
        (vec![guardrail("a", "REPLACE")], vec!["#a"]),
        (
            vec![guardrail("a", "APPEND"), guardrail("b", "PREPEND"), guardrail("c", "append")],
            vec!["#b", "do it", "#a", "#c"],
        ),
        (
            vec![guardrail("a", "APPEND"), guardrail("b", "REPLACE"), guardrail("c", "APPEND")],
            vec!["#b", "#c"],
        ),
    ];
    for (guardrails, expected) in cases {
        let project = Project::new();
        let prompt = second_prompt(&project, &json!({"guardrails": guardrails}));
        let parts: Vec<&str> = prompt
            .split("\n\n")
            .map(|part| match part.find('#') {
                Some(at) => &part[at..at + 2],
                None => part,
            })
            .collect();
        assert_eq!(parts, expected, "{prompt}");
    }
}

#[test]
fn guardrail_feedback_is_used_for_one_prompt() {
    let project = Project::new();
    project
        .settings(&json!({"guardrails": [{"command": "test -e fixed", "failAction": "APPEND"}]}));
    let script = sessions([
        json!([project.record_step(), {"print": DONE}]),
        json!([project.record_step(), {"shell": "touch fixed"}]),
        json!([project.record_step(), {"print": DONE}]),
    ]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    let prompts = prompts(&project);
    assert!(prompts[1].contains("Guardrail"));
    assert_eq!(prompts[2], "do it");
}

#[test]
fn completion_requires_all_guardrails_to_pass() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [
        {"command": "true", "failAction": "APPEND"},
        {"command": "test -e fixed", "failAction": "APPEND"},
        {"command": "echo always > always", "failAction": "APPEND"},
    ]}));
    let output = run(&project, &["-p", "do it"], &fixes_on_second_start(&project)).run();
    output
        .code(0)
        .stdout_has("Guardrail: test -e fixed")
        .stdout_has("Guardrail failed: test -e fixed (exit code 1")
        .stdout_has("fail action: APPEND")
        .stdout_has("Guardrail passed: test -e fixed (exit code 0");
    let events = project.events();
    assert_eq!(events.all("guardrail_ended").len(), 6, "all run, whatever became of the others");
    assert_eq!(events.all("completion_checked").len(), 1, "not considered after a failure");
    let ended = events.all("iteration_ended");
    assert_eq!(
        (&ended[0]["guardrails_passed"], &ended[0]["complete"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (&ended[1]["guardrails_passed"], &ended[1]["complete"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn failing_guardrail_runs_into_iteration_limit() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "false"}]}));
    run(&project, &["-p", "do it", "-n", "2"], &json!([{"print": DONE}])).run().code(1);
}

#[test]
fn guardrail_output_is_truncated_by_characters_but_not_log() {
    let output = "äöü€😀";
    let command = format!("printf '{output}'; test -e fixed");
    for (max, label, excerpt) in [
        (5, "Output:", "äöü€😀"),
        (4, "Output (truncated):", "äöü€... [truncated]\nEnd of output:\n😀"),
        (0, "Output (truncated):", "... [truncated]\nEnd of output:\näöü€😀"),
    ] {
        let project = Project::new();
        let prompt = second_prompt(
            &project,
            &json!({
                "outputTruncateChars": max,
                "guardrails": [{"command": command, "hint": "a hint that is longer than that"}],
            }),
        );
        assert!(prompt.ends_with(&format!("\n{label}\n{excerpt}")), "{prompt}");
        assert!(prompt.contains("Hint: a hint that is longer than that\n"));
        let log = format!(".ralph/{}", logs(&project)[0]);
        assert_eq!(project.read(&log), output);
    }
}

#[test]
fn guardrail_output_is_truncated_at_5000_characters() {
    let project = Project::new();
    let command = "head -c 6000 /dev/zero | tr '\\0' x; test -e fixed";
    let prompt = second_prompt(&project, &json!({"guardrails": [{"command": command}]}));
    let (start, end) = ("x".repeat(5000), "x".repeat(1000));
    let expected = format!("Output (truncated):\n{start}... [truncated]\nEnd of output:\n{end}");
    assert!(prompt.ends_with(&expected), "{prompt}");
}

#[test]
fn end_of_guardrail_output_reaches_prompt_and_screen() {
    let project = Project::new();
    let command = "i=0; while [ $i -lt 600 ]; do echo \"ok test number $i\"; i=$((i+1)); done
        echo 'assertion failed: parse() == None'; test -e fixed";
    project.settings(&json!({"guardrails": [{"command": command}]}));
    let first = recorded_steps(&project, &json!([{"print": DONE}]));
    let second = recorded_steps(&project, &json!([{"shell": "touch fixed"}, {"print": DONE}]));
    let output = run(&project, &["-p", "do it"], &sessions([first, second])).run();
    output.code(0).stdout_has("assertion failed: parse() == None");
    let prompt = &prompts(&project)[1];
    assert!(prompt.contains("ok test number 0\n"), "{prompt}");
    assert!(prompt.ends_with("ok test number 599\nassertion failed: parse() == None"), "{prompt}");
}

#[test]
fn check_flag_adds_guardrail_to_settings() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "touch from-settings"}]}));
    let args = ["-p", "do it", "--check", "test -e made", "--check", "touch 'second check'"];
    let script =
        sessions([json!([{"print": DONE}]), json!([{"shell": "touch made"}, {"print": DONE}])]);
    run(&project, &args, &script).run().code(0);
    assert!(project.has("from-settings") && project.has("second check"));
    assert_eq!(project.events().all("iteration_started").len(), 2);
    run(&project, &["-p", "x", "--check", " "], &script)
        .run()
        .code(2)
        .stderr_has("--check is empty");
}

#[test]
fn run_without_checks_warns_once() {
    let project = Project::new();
    let script = sessions([json!([{"print": "no"}]), json!([{"print": DONE}])]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("checks   none: nothing verifies the agent's claim.");
    let dry = run(&project, &["-p", "do it", "--dry-run"], &script).run();
    dry.code(0).stdout_has("Checks:     none").stderr_has("the prompt never mentions");
    run(&project, &ASKED, &script).run().code(0).stdout_lacks("checks   none");
}

#[test]
fn guardrail_log_keeps_invalid_utf8() {
    let project = Project::new();
    let command = r"printf 'a\377b'; test -e fixed";
    let prompt = second_prompt(&project, &json!({"guardrails": [{"command": command}]}));
    assert!(prompt.ends_with("a\u{fffd}b"), "{prompt}");
    let log = std::fs::read(project.path().join(".ralph").join(&logs(&project)[0])).unwrap();
    assert_eq!(log, b"a\xffb");
}

fn logs(project: &Project) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(project.path().join(".ralph"))
        .expect("the directory of the logs")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("guardrail_"))
        .collect();
    names.sort();
    names
}

#[test]
fn guardrail_logs_are_named_by_iteration_and_command() {
    let project = Project::new();
    let long = format!("true {}", "x".repeat(80));
    project.settings(&json!({"guardrails": [
        {"command": "./check -T 2C || true"},
        {"command": "./check  -T  2C ;true"},
        {"command": "true"},
        {"command": long},
    ]}));
    let script = sessions([json!([]), json!([{"print": DONE}])]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    let cut = format!("true_{}", "x".repeat(45));
    let mut expected = Vec::new();
    for iteration in ["001", "002"] {
        for slug in ["check_T_2C_true", "check_T_2C_true_1", "true", &cut] {
            expected.push(format!("guardrail_{iteration}_{slug}.log"));
        }
    }
    assert_eq!(logs(&project), expected);
}

#[test]
fn guardrail_log_keeps_order_of_both_streams() {
    let project = Project::new();
    let command = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 0";
    project.settings(&json!({"guardrails": [{"command": command}]}));
    run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run().code(0);
    let log = project.read(&format!(".ralph/{}", logs(&project)[0]));
    assert_eq!(log, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
}

#[test]
fn guardrail_gets_run_variables_and_empty_stdin() {
    let project = Project::new();
    let command = "echo $RALPH_ITERATION/$RALPH_MAX_ITERATIONS $RALPH_RUN_ID >> seen; pwd >> seen; cat >> seen";
    project.settings(&json!({"guardrails": [{"command": command}]}));
    let output = run(&project, &["-p", "do it", "-n", "7"], &json!([{"print": DONE}]))
        .stdin("not for guardrails")
        .run();
    output.code(0);
    let id = run_id(&project);
    assert_eq!(project.read("seen"), format!("1/7 {id}\n{}\n", project.path().display()));
}

#[test]
fn guardrail_timeout_kills_process_tree_and_fails() {
    let project = Project::new();
    let command = "test -e fixed || { sleep 100 & sleep 100; }";
    project.settings(&json!({"guardrails": [{"command": command, "timeoutSeconds": 1}]}));
    let output = run(&project, &["-p", "do it"], &fixes_on_second_start(&project)).run();
    output.code(0).stdout_has("Guardrail timed out");
    assert!(prompts(&project)[1].contains("timed out after 1 s"), "{:?}", prompts(&project));
    assert_eq!(project.processes(), []);
}

#[test]
fn processes_left_by_guardrail_are_ended() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "sleep 100 >/dev/null 2>&1 &"}]}));
    let output = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run();
    output.code(0).stderr_has("sleep 100");
    assert_eq!(project.processes(), []);
}

#[test]
fn guardrail_killed_by_signal_has_failed() {
    let project = Project::new();
    let command = "test -e fixed || kill -9 $$";
    let prompt = second_prompt(&project, &json!({"guardrails": [{"command": command}]}));
    assert!(prompt.contains("failed with exit code 137 (signal 9)"), "{prompt}");
}

#[test]
fn guardrail_gets_variables_withheld_from_agent() {
    let project = Project::new();
    project.settings(&json!({
        "agent": {"env": {"AGENT_ONLY": "1"}, "envExclude": ["TOKEN"]},
        "guardrails": [{"command": "test \"$TOKEN\" = secret && test -z \"$AGENT_ONLY\""}],
    }));
    run(&project, &["-p", "do it"], &json!([{"print": DONE}])).env("TOKEN", "secret").run().code(0);
}

#[test]
fn each_run_keeps_its_own_guardrail_logs() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "cat said"}]}));
    let mut runs = Vec::new();
    for text in ["first", "second"] {
        project.write("said", text);
        run(&project, &["-p", "do it"], &json!([{"print": DONE}])).run().code(0);
        runs.push(project.newest_run());
    }
    let log = "guardrail_001_cat_said.log";
    assert_eq!(std::fs::read_to_string(runs[0].join(log)).unwrap(), "first");
    assert_eq!(std::fs::read_to_string(runs[1].join(log)).unwrap(), "second");
    assert_eq!(project.read(&format!(".ralph/{log}")), "second");
}
