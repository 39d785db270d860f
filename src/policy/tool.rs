//! What Claude Code's tools are about to do, from their names and inputs.

use std::borrow::Cow;

use serde_json::Value;

use super::run::quote;

/// One thing that a tool is about to do. A tool that does nothing of interest does none of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCall<'a> {
    /// Runs a command line.
    Shell(Cow<'a, str>),
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

/// Inputs that hold a path or a list of paths, in any tool.
const PATHS: &[&str] = &[
    "file_path",
    "filePath",
    "filepath",
    "notebook_path",
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "fileName",
    "file_name",
    "uri",
    "uris",
    "source",
    "destination",
    "target_file",
    "targetFile",
    "old_path",
    "oldPath",
    "new_path",
    "newPath",
    "absolute_path",
    "absolutePath",
    "relative_path",
    "relativePath",
    "directory",
    "dir",
];

/// Inputs that hold a command line, or the words of one.
const COMMANDS: &[&str] =
    &["command", "cmd", "command_line", "commandLine", "shell_command", "shellCommand"];

/// Inputs that hold several command lines, or a script of them.
const SCRIPTS: &[&str] = &["commands", "cmds", "script"];

/// Inputs that hold the arguments of a command.
const ARGUMENTS: &[&str] = &["args", "arguments", "argv"];

/// Whether an input of this name is looked at. The others may be long: what is written to a file, for one.
pub fn is_looked_at(key: &str) -> bool {
    key == "glob" || [PATHS, COMMANDS, SCRIPTS, ARGUMENTS].iter().any(|keys| keys.contains(&key))
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
    let mut calls = commands_of(input);
    if SHELLS.contains(&name) && input.get("command").and_then(Value::as_str).is_none() {
        calls.push(ToolCall::Unclear("its input has no text named \"command\""));
    }
    let reads = READERS.contains(&name) || is_looking(name);
    for path in texts_of(input, PATHS).filter_map(local_path) {
        calls.push(if reads { ToolCall::Read(path) } else { ToolCall::Write(path) });
    }
    // A search may also be pointed at files by their names.
    if let (true, Some(Value::String(pattern))) = (reads, input.get("glob")) {
        calls.push(ToolCall::Read(pattern));
    }
    let names_a_file = PATHS.iter().any(|key| input.get(key).is_some_and(Value::is_string));
    if !names_a_file && (WRITERS.contains(&name) || name == "Read") {
        return vec![ToolCall::Unclear("its input names no file")];
    }
    calls
}

/// The commands that an input holds, in one of the ways in which tools take them.
fn commands_of(input: &Value) -> Vec<ToolCall<'_>> {
    let mut calls = Vec::new();
    let args = ARGUMENTS.iter().find_map(|key| input.get(key));
    for command in COMMANDS.iter().filter_map(|key| input.get(key)) {
        let mut line = match command {
            Value::String(command) => Cow::Borrowed(command.as_str()),
            Value::Array(words) => Cow::Owned(quoted(words)),
            _ => continue,
        };
        match args {
            Some(Value::String(args)) => line = format!("{line} {args}").into(),
            Some(Value::Array(args)) => line = format!("{line} {}", quoted(args)).into(),
            _ => {}
        }
        calls.push(ToolCall::Shell(line));
    }
    calls.extend(texts_of(input, SCRIPTS).map(|script| ToolCall::Shell(script.into())));
    calls
}

/// A command line of which a shell makes these words.
fn quoted(words: &[Value]) -> String {
    let words = words.iter().map(|word| match word.as_str() {
        Some(text) => quote(text),
        None => quote(&word.to_string()),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The texts of some inputs, each of which may be a list of them.
fn texts_of<'a>(input: &'a Value, keys: &'a [&str]) -> impl Iterator<Item = &'a str> {
    keys.iter().filter_map(|key| input.get(key)).flat_map(|value| {
        let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        all.iter().filter_map(Value::as_str)
    })
}

/// The path in a text, which may be an address.
fn local_path(text: &str) -> Option<&str> {
    match text.split_once("://") {
        Some(("file", path)) => Some(path.strip_prefix("localhost").unwrap_or(path)),
        Some((scheme, _)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => None,
        _ => Some(text),
    }
}

/// Whether the name of an MCP server's tool (`mcp__files__read_file`) says that it only looks.
fn is_looking(name: &str) -> bool {
    let Some(tool) = name.strip_prefix("mcp__").and_then(|rest| rest.split("__").last()) else {
        return false;
    };
    // `read_file`, `read-file`, `readFile`
    let first = tool.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
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
            ("Bash", json!({"command": "ls", "description": "d"}), &[Shell("ls".into())]),
            ("Monitor", json!({"command": "tail -f x"}), &[Shell("tail -f x".into())]),
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
            ("mcp__box__exec", json!({"command": "ls"}), &[Shell("ls".into())]),
            ("mcp__box__exec", json!({"cmd": "ls"}), &[Shell("ls".into())]),
            ("mcp__box__exec", json!({"cmd": ["ls", "a b"]}), &[Shell("'ls' 'a b'".into())]),
            (
                "mcp__box__exec",
                json!({"commands": ["ls", "pwd"]}),
                &[Shell("ls".into()), Shell("pwd".into())],
            ),
            ("mcp__box__exec", json!({"commands": "ls"}), &[Shell("ls".into())]),
            (
                "mcp__box__exec",
                json!({"command": "bash", "args": ["-c", "ls; pwd"]}),
                &[Shell("bash '-c' 'ls; pwd'".into())],
            ),
            (
                "mcp__box__exec",
                json!({"command": "ls", "args": "-l /a"}),
                &[Shell("ls -l /a".into())],
            ),
            ("mcp__ide__save", json!({"filePath": "/a"}), &[Write("/a")]),
            ("mcp__ide__save", json!({"uri": "file:///a"}), &[Write("/a")]),
            ("mcp__ide__save", json!({"uri": "/a"}), &[Write("/a")]),
            ("mcp__ide__readFile", json!({"filePath": "/a"}), &[Read("/a")]),
            ("mcp__web__get", json!({"uri": "https://example.org/a"}), &[]),
            ("mcp__db__query", json!({"uri": "postgres://localhost/a"}), &[]),
            ("NotKnownYet", json!({"command": "ls"}), &[Shell("ls".into())]),
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
