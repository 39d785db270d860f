mod command_lines;

use super::profile::FileExposure;
use super::*;

#[test]
fn adapter_is_selected_by_program_name() {
    for (program, name) in [
        ("claude", "claude"),
        ("/opt/my tools/codex", "codex"),
        ("./amp", "amp"),
        ("opencode", "opencode"),
        ("/usr/local/bin/gemini", "gemini"),
        ("copilot", "copilot"),
        ("cline", "cline"),
        ("qwen", "qwen"),
        ("claude-wrapper", "text"),
        ("", "text"),
        ("/", "text"),
    ] {
        assert_eq!(for_command(program).name(), name, "{program}");
    }
    assert!(by_name("nobody").is_none());
    for (nth, adapter) in all().iter().enumerate() {
        assert!(!all()[..nth].iter().any(|other| other.name() == adapter.name()));
    }
}

#[test]
fn every_profile_is_complete() {
    for adapter in all() {
        let profile = adapter.profile();
        let name = profile.name;
        if name == "text" {
            assert!(profile.hosts.is_empty() && profile.homes.is_empty());
            continue;
        }
        assert!(!profile.hosts.is_empty(), "{name} has no hosts");
        assert!(!profile.key_prefixes.is_empty(), "{name} has no key variables");
        let entries = || profile.homes.iter().flat_map(|home| home.entries);
        let is_credentials = |(_, exposure): &&(_, _)| *exposure == FileExposure::Credentials;
        assert!(entries().any(|entry| is_credentials(&entry)), "{name} has no credentials");
        for (path, _) in entries() {
            assert!(Path::new(path).is_relative() && !path.contains(".."), "{name}: {path}");
        }
        assert!(profile.cost.is_some() || !profile.cost_is_verified, "{name}");
    }
}

#[test]
fn recorded_versions_match_installed_test_agents() {
    let table = include_str!("../../../testing/agents.json");
    let table: serde_json::Value = serde_json::from_str(table).unwrap();
    for adapter in all() {
        let installed = table[adapter.name()]["version"].as_str();
        assert_eq!(adapter.recorded_version(), installed, "{}", adapter.name());
    }
    assert!(table.as_object().unwrap().keys().all(|name| by_name(name).is_some()));
}

/// The main agent's texts, separated by `|`.
fn agent_text(events: &[Event<'_>]) -> String {
    let mut out = String::new();
    for event in events {
        if let Event::Text { text, joined, subagent: false } = event {
            if !joined && !out.is_empty() {
                out.push('|');
            }
            out.push_str(text);
        }
    }
    out
}

#[test]
fn echoed_prompt_produces_no_events() {
    let prompt = "say <promise>COMPLETE</promise>";
    for (agent, echo) in [
        ("gemini", format!(r#"{{"type":"message","role":"user","content":"{prompt}"}}"#)),
        (
            "copilot",
            format!(
                r#"{{"type":"user.message","data":{{"content":"{prompt}","transformedContent":"{prompt}"}}}}"#
            ),
        ),
        ("qwen", format!(r#"{{"type":"user","message":{{"content":"{prompt}"}}}}"#)),
    ] {
        let events = read(agent, true, &[&echo], &[], 1);
        assert!(events.is_empty(), "{agent}: {events:?}");
    }
}

#[test]
fn gemini_text_deltas_join_until_other_event() {
    let piece = |text: &str| {
        format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#)
    };
    let lines = [
        piece("<prom"),
        piece("ise>"),
        r#"{"type":"tool_use","tool_name":"x","tool_id":"1","parameters":{}}"#.to_owned(),
        r#"{"type":"tool_result","tool_id":"1","status":"success","output":""}"#.to_owned(),
        piece("COM"),
        piece("PLETE"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(agent_text(&read("gemini", true, &lines, &[], 1)), "<promise>|COMPLETE");
}

#[test]
fn gemini_exit_code_maps_to_failure_kind() {
    let result = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: hm]"}}"#;
    for (code, kind) in [
        (173, FailureKind::RateLimit),
        (145, FailureKind::Credentials),
        (147, FailureKind::Credentials),
        (247, FailureKind::Overloaded),
        (17, FailureKind::Overloaded),
        (53, FailureKind::TurnLimit),
        (1, FailureKind::Other),
    ] {
        let events = read("gemini", true, &[result], &[], code);
        assert_eq!(failure_of(&events), Some(kind), "{code}");
    }
    assert_eq!(failure_of(&read("gemini", true, &[], &[], 173)), Some(FailureKind::RateLimit));
    assert_eq!(failure_of(&read("gemini", false, &[], &[], 55)), Some(FailureKind::Usage));
}

#[test]
fn qwen_api_error_is_failure_unless_quoted_by_model() {
    let message = |text: &str, tokens: u32| {
        format!(
            r#"{{"type":"assistant","message":{{"id":"{text}","content":[{{"type":"text","text":"{text}"}}],"usage":{{"input_tokens":{tokens},"output_tokens":{tokens}}}}}}}"#
        )
    };
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"x"}"#;
    for (lines, kind, text) in [
        (vec![message("[API Error: 429 slow down]\\nwait", 0)], Some(FailureKind::RateLimit), ""),
        (vec![message("half [API Error: terminated]", 0)], Some(FailureKind::Other), "half "),
        (vec![message("it said [API Error: 401 no]", 7)], None, "it said [API Error: 401 no]"),
        (vec![message("[API Error: x]", 0), message("done", 7)], None, "done"),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain([result]).collect();
        let events = read("qwen", true, &lines, &[], 0);
        assert_eq!(failure_of(&events), kind, "{lines:?}");
        assert_eq!(agent_text(&events), text, "{lines:?}");
    }
}

#[test]
fn cline_text_is_not_repeated_and_excludes_subagents() {
    let event = |json: &str| format!(r#"{{"type":"agent_event","event":{{{json}}}}}"#);
    let text = |text: &str| {
        event(&format!(r#""type":"content_end","contentType":"text","text":"{text}""#))
    };
    let tool = |kind: &str| {
        event(&format!(
            r#""type":"content_{kind}","contentType":"tool","toolName":"spawn_agent","toolCallId":"1""#
        ))
    };
    let result = |text: &str| {
        format!(r#"{{"type":"run_result","finishReason":"completed","text":"{text}"}}"#)
    };
    let piece =
        event(r#""type":"content_start","contentType":"text","text":"lo","accumulated":"hello""#);
    for (lines, expected) in [
        (vec![piece, text("hello"), result("hello")], "hello"),
        (vec![tool("start"), text("sub"), tool("end"), text("main"), result("main")], "main"),
        // A missing end of a tool must not hide the last text.
        (vec![tool("start"), text("main"), result("main")], "main"),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let events = read("cline", true, &lines, &[], 0);
        assert_eq!(agent_text(&events), expected, "{lines:?}");
        assert!(matches!(events.last(), Some(Event::Result { failure: None, .. })));
    }
}

#[test]
fn opencode_completes_when_step_ends_without_tool_call() {
    let step = |reason: &str| {
        format!(
            r#"{{"type":"step_finish","sessionID":"s","part":{{"reason":"{reason}","cost":0.1,"tokens":{{"input":1,"output":2,"reasoning":3,"cache":{{"read":4,"write":5}}}}}}}}"#
        )
    };
    for (reason, kind, done) in [
        ("stop", None, true),
        ("length", None, true),
        ("content-filter", Some(FailureKind::Refusal), false),
        ("tool-calls", Some(FailureKind::Other), false),
    ] {
        let events = read("opencode", true, &[&step(reason)], &[], 0);
        assert_eq!(failure_of(&events), kind, "{reason}");
        let success = matches!(events.last(), Some(Event::Result { failure: None, .. }));
        assert_eq!(success, done, "{reason}");
    }
    let two = [step("tool-calls"), step("stop")];
    let Some(Event::Result { usage: Some(usage), turns, .. }) =
        read("opencode", true, &[&two[0], &two[1]], &[], 0).pop()
    else {
        panic!("no result");
    };
    assert_eq!((usage.output_tokens, usage.total_tokens(), turns), (10, 30, Some(2)));
    assert_eq!(usage.cost_usd, Some(0.2));
}

#[test]
fn negative_cost_is_ignored() {
    let claude = |cost: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"x","total_cost_usd":{cost}}}"#
        )
    };
    let opencode = |cost: &str| {
        format!(
            r#"{{"type":"step_finish","sessionID":"s","part":{{"reason":"stop","cost":{cost}}}}}"#
        )
    };
    type Line<'a> = &'a dyn Fn(&str) -> String;
    for (agent, line) in [("claude", &claude as Line<'_>), ("opencode", &opencode)] {
        for (costs, counted) in
            [(&["-5"][..], None), (&["0.5", "-5"], Some(0.5)), (&["-1e300", "0.5"], Some(0.5))]
        {
            let lines: Vec<String> = costs.iter().map(|cost| line(cost)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let events = read(agent, true, &lines, &[], 0);
            let usage = events.iter().rev().find_map(|event| match event {
                Event::Result { usage: Some(usage), .. } | Event::Usage(usage) => Some(*usage),
                _ => None,
            });
            let cost = usage.and_then(|usage| usage.cost_usd);
            assert_eq!(cost, counted, "{agent} {costs:?}");
        }
    }
}

/// A program without a price for a model reports 0; free and local models do cost 0.
#[test]
fn zero_cost_counts_only_where_models_can_be_free() {
    let claude = |cost: &str, tokens: u64| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"x","total_cost_usd":{cost},"usage":{{"input_tokens":{tokens}}}}}"#
        )
    };
    let opencode = |cost: &str, tokens: u64| {
        format!(
            r#"{{"type":"step_finish","sessionID":"s","part":{{"reason":"stop","cost":{cost},"tokens":{{"input":{tokens}}}}}}}"#
        )
    };
    let cline = |cost: &str, tokens: u64| {
        format!(
            r#"{{"type":"run_result","finishReason":"completed","iterations":1,"text":"x","usage":{{"inputTokens":{tokens},"totalCost":{cost}}}}}"#
        )
    };
    type Line<'a> = &'a dyn Fn(&str, u64) -> String;
    let (claude, opencode, cline): (Line<'_>, Line<'_>, Line<'_>) = (&claude, &opencode, &cline);
    for (agent, line, cost, tokens, counted) in [
        ("claude", claude, "0", 900_000, None),
        ("claude", claude, "0.0", 1, None),
        ("claude", claude, "0", 0, Some(0.0)),
        ("claude", claude, "0.25", 900_000, Some(0.25)),
        ("opencode", opencode, "0", 900_000, Some(0.0)),
        ("opencode", opencode, "0.25", 900_000, Some(0.25)),
        ("cline", cline, "0", 900_000, None),
        ("cline", cline, "0.25", 900_000, Some(0.25)),
    ] {
        let events = read(agent, true, &[&line(cost, tokens)], &[], 0);
        let usage = events.iter().rev().find_map(|event| match event {
            Event::Result { usage: Some(usage), .. } | Event::Usage(usage) => Some(*usage),
            _ => None,
        });
        let usage = usage.unwrap_or_default();
        assert_eq!(usage.total_tokens(), tokens, "{agent} {cost}");
        assert_eq!(usage.cost_usd, counted, "{agent} {cost} for {tokens} tokens");
    }
}

fn read(
    agent: &str,
    structured: bool,
    stdout: &[&str],
    stderr: &[&str],
    code: i32,
) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    let mut reader = by_name(agent).unwrap().reader(structured);
    let mut emit = |event: Event<'_>| {
        let json = serde_json::to_string(&event).unwrap();
        events.push(serde_json::from_str(&json).unwrap());
    };
    let line = |text: &str| -> Line<'static> {
        Line { bytes: text.to_owned().leak().as_bytes(), joined: false, is_unfinished: false }
    };
    for text in stdout {
        reader.stdout(line(text), &mut emit);
    }
    for text in stderr {
        reader.stderr(line(text), &mut emit);
    }
    reader.finish(Some(Exit::Code(code)), &mut emit);
    events
}

fn failure_of(events: &[Event<'static>]) -> Option<FailureKind> {
    match events.last() {
        Some(Event::Result { failure: Some(failure), .. }) => Some(failure.kind),
        _ => None,
    }
}

#[test]
fn limit_messages_in_tool_output_or_answer_are_ignored() {
    let message = "You've hit your limit · API Error: 429 · Invalid API key · Please run /login";
    let events = read(
        "claude",
        true,
        &[
            &format!(
                r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"{message}"}}]}}}}"#
            ),
            &format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{message}"}}]}}}}"#
            ),
            &format!(
                r#"{{"type":"result","subtype":"success","is_error":false,"result":"{message}"}}"#
            ),
        ],
        &[],
        0,
    );
    assert!(matches!(events.last(), Some(Event::Result { failure: None, .. })), "{events:?}");
    let cut = format!(r#"{{"type":"user","message":{{"content":"{message}"#);
    assert_eq!(failure_of(&read("claude", true, &[&cut], &[], 143)), None);
    assert_eq!(failure_of(&read("claude", false, &[message], &[], 0)), None);
}

#[test]
fn plain_text_failure_is_classified_by_last_output() {
    for (agent, stdout, stderr, kind) in [
        (
            "claude",
            "API Error: Request rejected (429) · slow down",
            "",
            Some(FailureKind::RateLimit),
        ),
        ("claude", "Invalid API key · Please run /login", "", Some(FailureKind::Credentials)),
        ("claude", "", "error: unknown option '--x'", Some(FailureKind::Usage)),
        (
            "codex",
            "",
            "ERROR: Selected model is at capacity. Try later.",
            Some(FailureKind::Overloaded),
        ),
        ("codex", "", "ERROR: Quota exceeded. Check your plan.", Some(FailureKind::RateLimit)),
        ("codex", "429 Too Many Requests", "", None),
        ("text", "Invalid API key", "error: unknown option", None),
    ] {
        let events = read(agent, false, &[stdout], &[stderr], 1);
        assert_eq!(failure_of(&events), kind, "{agent} {stdout} {stderr}");
    }
}

#[test]
fn todo_list_is_emitted_at_call_and_reverted_on_error() {
    let call = |id: &str, name: &str, input: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}]}}}}"#
        )
    };
    let done = |id: &str, text: &str, error: bool| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{text}","is_error":{error}}}]}}}}"#
        )
    };
    let lines = [
        call("a", "TaskCreate", r#"{"subject":"Read","description":"d"}"#),
        done("a", "Task #7 created successfully: Read", false),
        call("b", "TaskCreate", r#"{"subject":"Edit","description":"d"}"#),
        done("b", "no", true),
        call("c", "TaskUpdate", r#"{"taskId":"7","status":"in_progress"}"#),
        done("c", "Updated task #7 status", false),
        call("d", "TaskUpdate", r#"{"taskId":"7","status":"deleted"}"#),
        done("d", "Updated task #7", false),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let seen: Vec<String> = read("claude", true, &lines, &[], 1)
        .iter()
        .map(|event| match event {
            Event::Todo { items } => format!("{items:?}"),
            Event::ToolStarted { name, summary, .. } => format!("{name}({summary})"),
            Event::ToolEnded { name, failed, .. } => format!("{name} failed: {failed}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            r#"[TodoItem { text: "Read", status: Pending }]"#,
            r#"[TodoItem { text: "Read", status: Pending }, TodoItem { text: "Edit", status: Pending }]"#,
            r#"[TodoItem { text: "Read", status: Pending }]"#,
            "TaskCreate(Edit)",
            "TaskCreate failed: true",
            r#"[TodoItem { text: "Read", status: InProgress }]"#,
            "[]",
        ]
    );
}

#[test]
fn todo_list_is_emitted_for_call_without_result() {
    let plan = r#"{"todos":[{"content":"Read","status":"pending"}]}"#;
    for (agent, line) in [
        (
            "claude",
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"a","name":"TodoWrite","input":{plan}}}]}}}}"#
            ),
        ),
        (
            "gemini",
            format!(
                r#"{{"type":"tool_use","tool_id":"a","tool_name":"write_todos","parameters":{plan}}}"#
            ),
        ),
    ] {
        let events = read(agent, true, &[&line], &[], 1);
        assert!(matches!(&events[0], Event::Todo { items } if items.len() == 1), "{events:?}");
    }
}

#[test]
fn result_text_counts_where_it_differs_from_last_message() {
    let message = |text: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let result = |text: &str, error: bool| {
        format!(r#"{{"type":"result","subtype":"success","is_error":{error},"result":"{text}"}}"#)
    };
    for agent in ["claude", "amp"] {
        for (lines, expected) in [
            (vec![message("Done."), result("Done.", false)], "Done."),
            (vec![message("Done.\\n"), result("Done.", false)], "Done.\n"),
            (vec![message("So."), result("DONE", false)], "So.|DONE"),
            (vec![result("DONE", false)], "DONE"),
            (vec![result("DONE", false), result("DONE", false)], "DONE"),
            (vec![result("", false)], ""),
            (vec![message("So."), result("API Error: 500", true)], "So."),
            (vec![format!("[{},{}]", message("So."), result("DONE", false))], "So.|DONE"),
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let events = read(agent, true, &lines, &[], 0);
            assert_eq!(agent_text(&events), expected, "{agent} {lines:?}");
            assert!(!events.iter().any(|event| matches!(event, Event::Output { .. })), "{lines:?}");
        }
    }
}

#[test]
fn interruptions_and_errors_in_json_are_notices() {
    for (agent, stdout, stderr, expected) in [
        (
            "copilot",
            r#"{"type":"abort","data":{"reason":"user_initiated"}}"#,
            "",
            "copilot was interrupted: user initiated",
        ),
        ("copilot", r#"{"type":"agent.interrupted","data":{}}"#, "", "copilot was interrupted"),
        (
            "cline",
            "",
            r#"{"ts":"x","type":"error","message":"401 Unauthorized"}"#,
            "401 Unauthorized",
        ),
    ] {
        let events = read(agent, true, &[stdout], &[stderr], 1);
        let notices: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Event::Notice { text } => Some(text.as_ref()),
                _ => None,
            })
            .collect();
        assert_eq!(notices, [expected], "{agent}");
        let is_raw =
            |event: &Event<'_>| matches!(event, Event::Output { text, .. } if !text.is_empty());
        assert!(!events.iter().any(is_raw), "{events:?}");
    }
}

#[test]
fn plain_text_from_known_agent_fails_with_hint() {
    let failed = |lines: &[&str]| match read("claude", true, lines, &[], 0).pop() {
        Some(Event::Result { failure: Some(failure), .. }) => failure.message,
        other => panic!("{other:?}"),
    };
    let hint = r#"set "agent": {"type": "text"}"#;
    assert!(failed(&["All is done."]).contains(hint));
    let session = r#"{"type":"system","subtype":"init","session_id":"x","model":"m"}"#;
    assert!(!failed(&[session, "All is done."]).contains(hint));
    assert!(!failed(&[]).contains(hint));
}

#[test]
fn model_is_read_from_message_without_session_event() {
    let message = r#"{"type":"assistant","message":{"id":"1","model":"opus","content":[]}}"#;
    let of_program =
        r#"{"type":"assistant","message":{"id":"2","model":"<synthetic>","content":[]}}"#;
    let of_subagent = r#"{"type":"assistant","parent_tool_use_id":"t","message":{"id":"3","model":"haiku","content":[]}}"#;
    let init = r#"{"type":"system","subtype":"init","session_id":"s","model":"opus[1m]"}"#;
    for (lines, expected) in [
        (&[of_program, of_subagent, message, message][..], &["opus"][..]),
        (&[init, message], &["opus[1m]"]),
        (&[message, init], &["opus", "opus[1m]"]),
    ] {
        let events = read("claude", true, lines, &[], 0);
        let models: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Event::Session { model, .. } => model.as_deref(),
                _ => None,
            })
            .collect();
        assert_eq!(models, expected, "{lines:?}");
    }
}

#[test]
fn unknown_line_is_passed_through_as_output() {
    for line in [
        "plain words",
        "{",
        "[1,2]",
        "\"text\"",
        "7",
        r#"{"no":"type"}"#,
        r#"{"type":"news"}"#,
        r#"{"type":"assistant"}"#,
        r#"{"type":"system","subtype":"of tomorrow"}"#,
        r#"{"type":"result","is_error":"maybe"}"#,
    ] {
        for agent in all().iter().map(|adapter| adapter.name()).filter(|name| *name != "text") {
            let events = read(agent, true, &[line], &[], 1);
            assert!(
                matches!(&events[..], [Event::Output { text, .. }] if text == line),
                "{agent}: {events:?}"
            );
        }
    }
}

#[test]
fn output_tail_keeps_only_the_end() {
    let mut tail = OutputTail::default();
    for _ in 0..100 {
        tail.push(&"é".repeat(5000));
    }
    tail.push("the end");
    assert!(tail.text().len() <= 3 * OutputTail::MAX && tail.text().ends_with("the end\n"));
}
