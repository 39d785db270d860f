//! What Claude Code's tools are about to do, from their names and inputs.

use serde_json::Value;

/// One thing that a tool is about to do. A tool that does nothing of interest does none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCall<'a> {
    /// Runs a command line.
    Shell(&'a str),
    /// Writes, moves or deletes a file.
    Write(&'a str),
    /// Reads a file, or searches below a directory. A star stands for anything.
    Read(&'a str),
    /// It cannot be told, for this reason: which is no reason to let it through.
    Unclear(&'static str),
}

/// Tools whose one path is only read. Any other tool that names a path is taken to write it.
const READERS: &[&str] = &["Read", "Grep", "Glob", "LS", "NotebookRead", "LSP"];

/// Tools that must name a path, or a command: without, the call is not understood.
const WRITERS: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit"];
const SHELLS: &[&str] = &["Bash"];

/// Inputs that hold a path, in any tool.
const PATHS: &[&str] =
    &["file_path", "notebook_path", "path", "filename", "source", "destination", "target_file"];

/// Whether an input of this name is looked at. The others may be long: what is written to a file, for one.
pub fn is_looked_at(key: &str) -> bool {
    PATHS.contains(&key) || ["command", "glob", "paths"].contains(&key)
}

/// Tools whose inputs look like ours but are not: their `command` is not run by a shell, their
/// `path` is not a file.
const HARMLESS: &[&str] = &["Skill", "SlashCommand", "WebFetch", "WebSearch", "TodoWrite"];

/// Names of tools from elsewhere (MCP servers) that only look.
const LOOKING: &[&str] = &["read", "get", "list", "search", "find", "view", "stat", "tree", "info"];

/// What a call of the tool `name` would do. Tools of MCP servers, and those that are not known yet,
/// are judged by what their input holds: a `command` is run, a path is written.
pub fn calls_of<'a>(name: &str, input: &'a Value) -> Vec<ToolCall<'a>> {
    if HARMLESS.contains(&name) {
        return Vec::new();
    }
    let mut calls = Vec::new();
    match input.get("command") {
        Some(Value::String(command)) => calls.push(ToolCall::Shell(command)),
        None if !SHELLS.contains(&name) => {}
        Some(_) if !SHELLS.contains(&name) => {}
        _ => calls.push(ToolCall::Unclear("its input has no text named \"command\"")),
    }
    let reads = READERS.contains(&name) || is_looking(name);
    for path in PATHS.iter().filter_map(|key| input.get(key)).filter_map(Value::as_str) {
        calls.push(if reads { ToolCall::Read(path) } else { ToolCall::Write(path) });
    }
    // A search may also be pointed at files by their names.
    if let (true, Some(Value::String(pattern))) = (reads, input.get("glob")) {
        calls.push(ToolCall::Read(pattern));
    }
    for path in input.get("paths").and_then(Value::as_array).into_iter().flatten() {
        if let Some(path) = path.as_str() {
            calls.push(if reads { ToolCall::Read(path) } else { ToolCall::Write(path) });
        }
    }
    if calls.is_empty() && (WRITERS.contains(&name) || name == "Read") {
        calls.push(ToolCall::Unclear("its input names no file"));
    }
    calls
}

/// Whether the name of an MCP server's tool (`mcp__files__read_file`) says that it only looks.
fn is_looking(name: &str) -> bool {
    let Some(tool) = name.strip_prefix("mcp__").and_then(|rest| rest.split("__").last()) else {
        return false;
    };
    let first = tool.split(['_', '-']).next().unwrap_or_default();
    LOOKING.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::ToolCall::{Read, Shell, Unclear, Write};
    use super::*;
    use serde_json::json;

    #[test]
    fn what_tools_do_is_read_from_their_input() {
        let cases: &[(&str, Value, &[ToolCall<'_>])] = &[
            ("Bash", json!({"command": "ls", "description": "d"}), &[Shell("ls")]),
            ("Monitor", json!({"command": "tail -f x"}), &[Shell("tail -f x")]),
            ("Write", json!({"file_path": "/a", "content": "rm -rf /"}), &[Write("/a")]),
            ("Edit", json!({"file_path": "/a", "old_string": "x"}), &[Write("/a")]),
            ("MultiEdit", json!({"file_path": "/a", "edits": []}), &[Write("/a")]),
            ("NotebookEdit", json!({"notebook_path": "/a.ipynb"}), &[Write("/a.ipynb")]),
            ("Read", json!({"file_path": "/a"}), &[Read("/a")]),
            ("Grep", json!({"pattern": "x", "path": "/a"}), &[Read("/a")]),
            ("Grep", json!({"pattern": "x"}), &[]),
            ("Grep", json!({"pattern": "x", "glob": ".env*"}), &[Read(".env*")]),
            ("Glob", json!({"pattern": "*"}), &[]),
            ("WebFetch", json!({"url": "https://example.org", "prompt": "?"}), &[]),
            ("Skill", json!({"command": "sudo"}), &[]),
            ("Task", json!({"prompt": "rm -rf /", "description": "d"}), &[]),
            ("mcp__files__read_file", json!({"path": "/a"}), &[Read("/a")]),
            ("mcp__files__read_many", json!({"paths": ["/a", "/b"]}), &[Read("/a"), Read("/b")]),
            ("mcp__files__write_file", json!({"path": "/a"}), &[Write("/a")]),
            (
                "mcp__files__move_file",
                json!({"source": "/a", "destination": "/b"}),
                &[Write("/a"), Write("/b")],
            ),
            ("mcp__box__exec", json!({"command": "ls"}), &[Shell("ls")]),
            ("NotKnownYet", json!({"command": "ls"}), &[Shell("ls")]),
        ];
        for (name, input, calls) in cases {
            assert_eq!(calls_of(name, input), *calls, "{name} {input}");
        }
    }

    #[test]
    fn a_call_that_is_not_understood_is_said_to_be_so() {
        for (name, input) in [
            ("Bash", json!({})),
            ("Bash", json!({"command": 7})),
            ("Bash", json!(null)),
            ("Write", json!({"content": "x"})),
            ("Edit", json!({"file_path": ["/a"]})),
            ("Read", json!("x")),
        ] {
            let calls = calls_of(name, &input);
            assert!(matches!(calls[..], [Unclear(_)]), "{name} {input}: {calls:?}");
        }
    }
}
