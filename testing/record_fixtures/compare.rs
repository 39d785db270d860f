//! Compares recordings. Everything that differs between runs of one version is removed here, and
//! only here.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use fancy_regex::Regex;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The files of a case by extension. Empty files are left out.
pub(crate) type Recording = BTreeMap<&'static str, String>;

/// Whether a recording differs from the stored one; prints the difference.
pub(crate) fn differs(recording: &Recording, stem: &Path) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let mut differs = false;
    for (extension, text) in recording {
        let path = stem.with_added_extension(extension);
        let old = normalized(&fs::read_to_string(&path).unwrap_or_default())?;
        let new = normalized(text)?;
        if old == new {
            continue;
        }
        differs = true;
        let sides = [("recorded", old), ("new", new)].map(|(name, text)| {
            let path = directory.path().join(name);
            fs::write(&path, text).map(|()| path)
        });
        let [old, new] = sides;
        let name = path.to_string_lossy();
        let labels = [format!("--label={name}"), format!("--label={name} (new)")];
        Command::new("diff").arg("-u").args(labels).arg(old?).arg(new?).status()?;
    }
    Ok(differs)
}

/// A recording without volatile parts, with one member per line.
fn normalized(text: &str) -> Result<String> {
    let volatile = Regex::new(concat!(
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"|\b(msg|toolu|call|req|resp|rs|fc|ctc)_[0-9a-f]{20,}",
        r"|\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d[.\d-]*(Z|\+00:00)",
        r"|cc-socks/\d+|(?<=tasks/)\w+|\b0[0-9a-z]{8}-[0-9a-f]{8}\b",
        // Ids of cline, opencode and gemini; paths inside a single-file program.
        r"|\b(agent|conv)_\d{13}_\w+|\b(ses|prt|msg)_[0-9a-f]{12}\w{14}\b|\b[0-9a-f]{40}\b",
        r"|_\d{13}_\d+\b|(?<=/\$bunfs/)(root|home/user)(?=/)",
        // Task ids of claude; reset times of claude and codex.
        r"|(?<=background with ID: )\w+|\ba[0-9a-f]{16}\b",
        r"|(?<=resets )\d+(:\d\d)?[ap]m|(?<=try again at )[^.]*|(?<=only ~)\d+",
        // gemini's and copilot's random delays.
        r"|(?<=Retrying after )\d+ms|(?<=retry wait time: )[\d.]+",
        // node's sockets and processes.
        r"|\b(local|remote)(Address|Port|Family): \S+|\bbytes(Read|Written): \d+|(?<=\(node:)\d+",
    ))?;
    let mut out = String::new();
    let mut subagent_lines = Vec::new();
    let mut at_once = Vec::new();
    let is_one = serde_json::from_str::<Value>(text).is_ok();
    let lines = if is_one { vec![text] } else { text.lines().collect() };
    for line in lines {
        match serde_json::from_str::<Value>(line) {
            // copilot's progress events are irregular.
            Ok(value) if value["ephemeral"] == true => continue,
            Ok(mut value) => {
                mask_volatile(&mut value);
                // codex runs the commands of a turn in parallel and numbers them as they arrive.
                let is_command = value["item"]["type"] == "command_execution";
                if is_command {
                    value["item"]["id"] = json!("*");
                }
                // cline sets this by elapsed time.
                let is_progress = value["event"]["type"] == "content_update"
                    && value["event"]["update"]["detachable"].is_boolean();
                if is_progress {
                    value["event"]["update"]["detachable"] = json!("*");
                }
                let text = format!("{value:#}");
                let text = volatile.replace_all(&text, "*");
                // copilot's subagent events have no fixed position.
                if value["type"].as_str().is_some_and(|kind| kind.starts_with("subagent.")) {
                    subagent_lines.push(format!("{text}\n"));
                    continue;
                }
                if is_command || is_progress {
                    at_once.push(format!("{text}\n"));
                    continue;
                }
                flush(&mut at_once, &mut out);
                out.push_str(&text);
            }
            // copilot reports unpacking itself only if that takes seconds.
            Err(_) if line.starts_with("Package extraction took ") => continue,
            // gemini reports a slow start.
            Err(_) if line.starts_with("[STARTUP] ") => continue,
            Err(_) => out.push_str(&volatile.replace_all(line, "*")),
        }
        out.push('\n');
    }
    flush(&mut at_once, &mut out);
    flush(&mut subagent_lines, &mut out);
    Ok(out)
}

fn flush(texts: &mut Vec<String>, out: &mut String) {
    texts.sort_unstable();
    out.extend(texts.drain(..));
}

const VOLATILE: [&str; 12] = [
    "_ms",
    "durationms",
    "resetsat",
    "end_time",
    "_pid",
    "bodybytes",
    "wirebytes",
    "current_tokens",
    "task_id",
    "taskid",
    "agent_id",
    "agentid",
];

/// Replaces volatile values and sorts members.
fn mask_volatile(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                let key = key.to_ascii_lowercase();
                if !value.is_null() && VOLATILE.iter().any(|end| key.ends_with(end)) {
                    *value = json!("*");
                } else if let (Some(text), "aggregated_output") = (value.as_str(), &*key) {
                    // codex reads a command's two streams in random order.
                    let mut lines: Vec<&str> = text.lines().collect();
                    lines.sort_unstable();
                    *value = json!(lines.join("\n"));
                } else {
                    mask_volatile(value);
                }
            }
            object.sort_keys();
        }
        Value::Array(list) => list.iter_mut().for_each(mask_volatile),
        Value::Number(number) if number.as_u64() > Some(1_600_000_000_000) => *value = json!("*"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_the_same_program_are_the_same() {
        let subagent_line =
            json!({"type": "subagent.configured", "timestamp": "2026-11-16T03:00:58.783Z"});
        let runs = ["67c521b5-512b-4209-9daa-96d7f8a4a7ad", "baef59f6-ef57-418e-b748-3da4c437a2e9"]
            .map(|id| {
                let took = id.len() * usize::from(id.as_bytes()[0]);
                let message = json!({"type": "assistant", "id": id, "duration_ms": took});
                let ran = json!({"durationMs": took, "type": "tool", "task_id": &id[..8]});
                (message.to_string(), ran.to_string())
            });
        let [(a_message, a_ran), (b_message, b_ran)] = runs;
        let a = format!("{a_message}\n{subagent_line}\n{a_ran}\nRetrying after 5348ms...\n");
        let b = format!(
            "{b_message}\n{{\"type\":\"x\",\"ephemeral\":true}}\n{b_ran}\nPackage extraction took 5216ms\n\
             Retrying after 731ms...\n{subagent_line}\n"
        );
        assert_eq!(normalized(&a).unwrap(), normalized(&b).unwrap());
    }

    #[test]
    fn commands_that_ran_at_once_have_no_order_but_others_have() {
        let ran = |nth: u8, command: &str, output: &str| {
            let item = json!({"id": format!("item_{nth}"), "type": "command_execution",
                              "command": command, "aggregated_output": output});
            format!("{}\n", json!({"type": "item.completed", "item": item}))
        };
        let turn_end = "{\"type\":\"turn.completed\"}\n";
        let same = |a: &str, b: &str| normalized(a).unwrap() == normalized(b).unwrap();
        let [one, two] = [
            ran(1, "one", "a\nb\n") + &ran(2, "two", ""),
            ran(1, "two", "") + &ran(2, "one", "b\na\n"),
        ];
        assert!(same(&(one.clone() + turn_end), &(two.clone() + turn_end)));
        assert!(!same(&(one + turn_end), &(turn_end.to_owned() + &two)));
    }

    #[test]
    fn when_cline_lets_go_of_a_command_is_no_difference() {
        let update = |chunk: &str, detachable: bool| {
            let update = json!({"stream": "stdout", "chunk": chunk, "detachable": detachable});
            format!("{}\n", json!({"event": {"type": "content_update", "update": update}}))
        };
        let one = update("", false) + &update("", true) + &update("started\n", true);
        let two = update("", false) + &update("started\n", false) + &update("", true);
        assert_eq!(normalized(&one).unwrap(), normalized(&two).unwrap());
        let silent = update("", false) + &update("", true) + &update("", true);
        assert_ne!(normalized(&one).unwrap(), normalized(&silent).unwrap());
    }

    #[test]
    fn what_a_new_version_does_differently_is_seen() {
        let old = r#"{"type":"assistant","task_id":null,"text":"Attempt 1 of 10"}"#;
        for new in [
            r#"{"type":"assistants","task_id":null,"text":"Attempt 1 of 10"}"#,
            r#"{"type":"user","task_id":null,"text":"Attempt 1 of 10"}"#,
            r#"{"type":"assistant","text":"Attempt 1 of 10"}"#,
            r#"{"type":"assistant","task_id":"1","text":"Attempt 1 of 10"}"#,
            r#"{"type":"assistant","task_id":null,"text":"Attempt 2 of 10"}"#,
            "Attempt 1 of 10",
            "",
        ] {
            assert_ne!(normalized(old).unwrap(), normalized(new).unwrap(), "{new}");
        }
    }
}
