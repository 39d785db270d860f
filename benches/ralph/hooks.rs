//! Hook latency, which Claude Code pays at every tool call.

use std::fs::{self, File};
use std::io;
use std::process::Command;

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::bench_dir::{BenchDir, silent};
use crate::sections::compare;
use crate::table::{Table, Target, time};

pub(super) fn hooks(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    let transcript = bench_dir.path("transcript.jsonl");
    fs::write(&transcript, self::transcript())?;
    let long = "let greeting = \"hello\";\n".repeat(100_000 / 23);
    let file = bench_dir.path("file.rs");
    let bash = json!({"command": "cd src && grep -rn TODO . | head -20; git status --short"});
    let write = json!({"file_path": file, "content": long});
    let here_document = json!({"command": format!("cat >file.rs <<'END'\n{long}END\n")});
    for (label, name, tool, input) in [
        ("pre-tool-use, a command", "pre-tool-use", "Bash", bash.clone()),
        ("pre-tool-use, a 100 KB file", "pre-tool-use", "Write", write.clone()),
        ("pre-tool-use, a 100 KB command", "pre-tool-use", "Bash", here_document),
        ("post-tool-use, a command", "post-tool-use", "Bash", bash),
        ("post-tool-use, a 100 KB file", "post-tool-use", "Write", write),
    ] {
        let question = json!({
            "session_id": "a1bc9fe7-202c-4c3f-bdd0-ccf27a028299",
            "transcript_path": transcript,
            "cwd": bench_dir.path(""),
            "hook_event_name": name,
            "tool_name": tool,
            "tool_input": input,
        });
        let times = answered(bench_dir, name, &question)?;
        let label = format!("ralph hook {label}, compared with `true` and a file check");
        table.ratio(&label, times, time, Target::AtMost(2.5));
    }
    Ok(())
}

fn answered(bench_dir: &BenchDir, name: &str, question: &Value) -> io::Result<(f64, f64)> {
    let path = bench_dir.path("question.json");
    fs::write(&path, question.to_string())?;
    let mut floor = silent(Command::new(bench_dir.path("true")));
    let mut hook = bench_dir.ralph();
    hook.args(["hook", name])
        .env("RALPH_RUN_ID", "bench")
        .env("RALPH_HOME", bench_dir.path("home"));
    compare(
        400,
        || {
            floor.stdin(File::open(&path)?).status()?;
            let bytes = fs::read(&path)?;
            serde_json::from_slice::<IgnoredAny>(&bytes).map(drop).map_err(io::Error::from)
        },
        || hook.stdin(File::open(&path)?).status().map(drop),
    )
}

/// A session at 45 % of its context.
fn transcript() -> String {
    let usage = json!({"input_tokens": 90_000, "output_tokens": 12});
    let answer = json!({"type": "assistant", "isSidechain": false, "message": {"usage": usage}});
    let output = json!({"type": "user", "message": {"content": "x".repeat(3_000)}});
    format!("{answer}\n{output}\n").repeat(300)
}
