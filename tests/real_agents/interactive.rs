//! Interactive agents: the prompt arrives, and nothing is typed into dialogs.

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{LONG, wait_until};
use crate::{Facts, for_agents};

const PROMPT: &str = "Say the words All tasks complete\nwhen the work is done.\n";

// Not copilot: it sometimes drops input while it starts, even the second and third time.
for_agents!(first_iteration_works: codex, opencode, gemini, cline, qwen);

/// A first start, in a directory that codex does not trust yet.
fn first_iteration_works(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, |_| json!(["All tasks complete now."])) else {
        return;
    };
    let project = &real.project;
    project.write("PROMPT.md", PROMPT);
    project.settings(&json!({"resultGraceSeconds": 2}));
    let socket = project.sibling("tmux.sock");
    let tmux = |args: &[&str]| real.program("tmux", args).env("TMUX", "").run();
    let socket_name = socket.to_str().expect("UTF-8").to_owned();
    let spawn = [
        "spawn",
        "--name",
        "agent",
        "-f",
        "PROMPT.md",
        "-n",
        "1",
        "--interactive",
        "--done-pattern",
    ];
    let spawn = [&spawn[..], &["All tasks complete"]].concat();
    real.ralph(&spawn, &[]).env("RALPH_TMUX_SOCKET", &socket).run().code(0);
    let state = || -> Value {
        let path = project.home().join(".ralph/workers/agent/state.json");
        std::fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    };
    let dialogs = || {
        let log = project.home().join(".ralph/workers/agent/iterations.log");
        std::fs::read_to_string(log).unwrap_or_default().matches("[WAIT] waiting for you").count()
    };
    let mut answered = 0;
    wait_until(2 * LONG, || {
        if dialogs() > answered {
            answered += 1;
            tmux(&["-S", &socket_name, "send-keys", "-t", "ralph:agent", "Enter"]);
        }
        state()["ended"].is_string()
    });
    let end = state();
    tmux(&["-S", &socket_name, "kill-server"]);
    let shown: Vec<String> = project
        .events()
        .all("output")
        .iter()
        .map(|line| line["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(end["outcome"], "complete", "{}", shown.join("\n"));
    assert_eq!(answered > 0, facts.name == "codex", "a dialog was there");
    assert!(!real.requests().is_empty());
}
