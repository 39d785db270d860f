//! Commands and paths in Claude Code's tool calls.

use std::borrow::Cow;

use serde_json::Value;

use super::data::DATA;
use super::run::shell_quote;
use super::shell::parse;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCall<'a> {
    Shell(Cow<'a, str>),
    /// A command that is not valid shell; it may be for another program.
    Unreadable(Cow<'a, str>),
    Write(&'a str),
    /// A path, in which `*` is a wildcard.
    Read(&'a str),
    /// A call that is not understood, and so denied.
    Unknown(&'static str),
}

/// Tools that only read. Any other tool is assumed to write its path.
const READERS: &[&str] = &["Read", "Grep", "Glob", "LS", "NotebookRead", "LSP"];

const WRITERS: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit"];
const SHELLS: &[&str] = &["Bash"];

// Input names below are lower case, without `_` and `-`: see `normalized`.

/// Inputs with paths, unless the tool has nothing to do with files.
const PATH_INPUTS: &[&str] =
    &["path", "paths", "uri", "uris", "source", "destination", "dest", "dst", "directory", "dir"];

/// Inputs with paths in tools for files only.
const FILE_TOOL_PATH_INPUTS: &[&str] = &["to"];

/// Inputs with paths if they are `file:` URLs.
const URL_INPUTS: &[&str] = &["url", "urls"];

const COMMAND_INPUTS: &[&str] =
    &["command", "cmd", "commandline", "cmdline", "shellcommand", "shell", "program", "executable"];

const COMMAND_LISTS: &[&str] = &["commands", "cmds"];

/// Inputs with scripts in any language.
const SCRIPT_INPUTS: &[&str] = &["script"];

const ARGUMENT_INPUTS: &[&str] = &["args", "arguments", "argv"];

const NESTED_INPUTS: &[&str] = &["params", "input", "textdocument", "edits"];

const MAX_NESTED: usize = 5;

/// Whether an input is examined. Others, such as file contents, may be long.
pub fn is_known_input(key: &str) -> bool {
    let key = normalized(key);
    let tables = [
        DATA.tool_file_inputs.as_slice(),
        PATH_INPUTS,
        FILE_TOOL_PATH_INPUTS,
        URL_INPUTS,
        COMMAND_INPUTS,
        COMMAND_LISTS,
        SCRIPT_INPUTS,
        ARGUMENT_INPUTS,
        NESTED_INPUTS,
    ];
    key == "glob" || tables.iter().any(|keys| keys.contains(&key.as_str()))
}

pub fn is_file_hint(key: &str) -> bool {
    DATA.tool_file_hints.contains(&normalized(key).as_str())
}

/// `filePath`, `file_path` and `FILE-PATH` are equal.
fn normalized(key: &str) -> String {
    key.chars().filter(|c| !"_-".contains(*c)).map(|c| c.to_ascii_lowercase()).collect()
}

/// Tools whose `command` is not a shell command and whose `path` is not a file.
const IGNORED_TOOLS: &[&str] = &["Skill", "SlashCommand", "WebFetch", "WebSearch", "TodoWrite"];

const READ_ONLY_VERBS: &[&str] =
    &["read", "get", "list", "search", "find", "view", "stat", "tree", "info"];

type Inputs = serde_json::Map<String, Value>;

/// Lists what a call would do. MCP tools and unknown tools are judged by their input: a `command`
/// runs, a path is written.
pub fn parse_tool_calls<'a>(name: &str, input: &'a Value) -> Vec<ToolCall<'a>> {
    if IGNORED_TOOLS.contains(&name) {
        return Vec::new();
    }
    let mut scopes = Vec::new();
    nested_inputs(input, MAX_NESTED, &mut scopes);
    let mut calls = Vec::new();
    for scope in &scopes {
        collect_commands(name, scope, &mut calls);
    }
    if SHELLS.contains(&name) && input.get("command").and_then(Value::as_str).is_none() {
        calls.push(ToolCall::Unknown("its input has no string \"command\""));
    }
    let reads = READERS.contains(&name) || is_read_only_tool(name);
    let for_files = is_for_files(name, &scopes);
    let mut names_a_file = false;
    for (key, value) in scopes.iter().flat_map(|scope| scope.iter()) {
        let key = normalized(key);
        let is_in = |table: &[&str]| table.contains(&key.as_str());
        let is_path = is_in(&DATA.tool_file_inputs)
            || is_in(PATH_INPUTS) && for_files != Some(false)
            || is_in(FILE_TOOL_PATH_INPUTS) && for_files == Some(true);
        names_a_file |= is_path && value.is_string();
        for text in input_texts(value) {
            let path = match (is_path, is_in(PATH_INPUTS) || is_in(URL_INPUTS)) {
                (true, _) => local_path(text),
                (false, true) => file_url_path(text),
                (false, false) => None,
            };
            calls.extend(path.map(|path| match reads {
                true => ToolCall::Read(path),
                false => ToolCall::Write(path),
            }));
        }
    }
    if let (true, Some(Value::String(pattern))) = (reads, input.get("glob")) {
        calls.push(ToolCall::Read(pattern));
    }
    if !names_a_file && (WRITERS.contains(&name) || name == "Read") {
        return vec![ToolCall::Unknown("its input names no file")];
    }
    calls
}

fn nested_inputs<'a>(value: &'a Value, depth: usize, scopes: &mut Vec<&'a Inputs>) {
    match value {
        Value::Array(values) => {
            for value in values {
                nested_inputs(value, depth, scopes);
            }
        }
        Value::Object(inputs) if depth > 0 => {
            scopes.push(inputs);
            for (key, value) in inputs {
                let key = normalized(key);
                let tables = [
                    NESTED_INPUTS,
                    ARGUMENT_INPUTS,
                    COMMAND_INPUTS,
                    COMMAND_LISTS,
                    DATA.tool_file_inputs.as_slice(),
                    PATH_INPUTS,
                ];
                if tables.iter().any(|keys| keys.contains(&key.as_str())) {
                    nested_inputs(value, depth - 1, scopes);
                }
            }
        }
        _ => {}
    }
}

/// Whether an MCP tool is for files; `None` for other tools.
fn is_for_files(name: &str, scopes: &[&Inputs]) -> Option<bool> {
    let words = name_words(name.strip_prefix("mcp__")?);
    let has = |table: &[&str]| words.iter().any(|word| table.contains(&word.as_str()));
    let hinted = scopes
        .iter()
        .flat_map(|scope| scope.keys())
        .any(|key| is_file_hint(key) || DATA.tool_file_inputs.contains(&normalized(key).as_str()));
    Some(!has(&DATA.tool_web_words) && (hinted || has(&DATA.tool_file_words)))
}

fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if !c.is_ascii_lowercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

fn collect_commands<'a>(name: &str, input: &'a Inputs, calls: &mut Vec<ToolCall<'a>>) {
    let values = |table: &'static [&'static str]| {
        let named = move |key: &str| table.contains(&normalized(key).as_str());
        input.iter().filter(move |(key, _)| named(key)).map(|(_, value)| value)
    };
    let mut lines: Vec<Cow<'a, str>> = Vec::new();
    let args = values(ARGUMENT_INPUTS).next();
    for command in values(COMMAND_INPUTS) {
        let mut line = match command {
            Value::String(command) => Cow::Borrowed(command.as_str()),
            Value::Array(words) => Cow::Owned(quote_command(words)),
            _ => continue,
        };
        match args {
            Some(Value::String(args)) => line = format!("{line} {args}").into(),
            Some(Value::Array(args)) => line = format!("{line} {}", quote_command(args)).into(),
            _ => {}
        }
        lines.push(line);
    }
    // Without a program, the first argument is the program.
    if let Some(Value::Array(words)) = args.filter(|_| lines.is_empty()) {
        lines.push(quote_command(words).into());
    }
    for list in values(COMMAND_LISTS) {
        lines.extend(input_texts(list).map(Cow::Borrowed));
        let lists = list.as_array().into_iter().flatten().filter_map(Value::as_array);
        lines.extend(lists.map(|words| Cow::Owned(quote_command(words))));
    }
    let is_mcp = name.starts_with("mcp__");
    let is_shell = |text: &str| !is_mcp || parse(text).error.is_none();
    calls.extend(lines.into_iter().map(|line| match is_shell(&line) {
        true => ToolCall::Shell(line),
        false => ToolCall::Unreadable(line),
    }));
    let scripts = values(SCRIPT_INPUTS).flat_map(input_texts).filter(|script| is_shell(script));
    calls.extend(scripts.map(|script| ToolCall::Shell(script.into())));
}

fn quote_command(words: &[Value]) -> String {
    let words = words.iter().map(|word| match word.as_str() {
        Some(text) => shell_quote(text),
        None => shell_quote(&word.to_string()),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn input_texts(value: &Value) -> impl Iterator<Item = &str> {
    let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    all.iter().filter_map(Value::as_str)
}

fn local_path(text: &str) -> Option<&str> {
    let is_scheme = |scheme: &str| scheme.bytes().all(|b| b.is_ascii_alphanumeric());
    match text.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => file_url_path(text),
        _ => Some(file_url_path(text).unwrap_or(text)),
    }
}

/// The path in `file:///path`, `file://host/path` or `file:/path`.
fn file_url_path(text: &str) -> Option<&str> {
    let scheme = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"))?;
    let rest = text.get(scheme.len()..)?;
    match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').and_then(|at| rest.get(at..)),
        None => rest.starts_with('/').then_some(rest),
    }
}

/// Whether the name of an MCP tool says that it only reads: `mcp__files__read_file`.
fn is_read_only_tool(name: &str) -> bool {
    let Some(tool) = name.strip_prefix("mcp__").and_then(|rest| rest.split("__").last()) else {
        return false;
    };
    // `read_file`, `read-file`, `readFile`
    let first = tool.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
    READ_ONLY_VERBS.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::ToolCall::{Read, Shell, Unknown, Unreadable, Write};
    use super::*;
    use serde_json::json;

    #[test]
    fn tool_calls_are_extracted_from_input() {
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
            assert_eq!(parse_tool_calls(name, input), *calls, "{name} {input}");
        }
    }

    #[test]
    fn mcp_commands_are_found_in_other_and_nested_keys() {
        for input in [
            json!({"commands": [{"command": "ls -l"}]}),
            json!({"commands": [{"Command": "ls -l", "cwd": "/"}]}),
            json!({"params": {"cmdline": "ls -l"}}),
            json!({"input": {"arguments": {"shell": "ls -l"}}}),
            json!({"CMD": "ls -l"}),
            json!({"Shell-Command": "ls -l"}),
            json!({"script": "ls -l"}),
        ] {
            assert_eq!(
                parse_tool_calls("mcp__box__exec", &input),
                [Shell("ls -l".into())],
                "{input}"
            );
        }
        for input in [
            json!({"commands": [["ls", "-l"]]}),
            json!({"argv": ["ls", "-l"]}),
            json!({"arguments": {"argv": ["ls", "-l"]}}),
        ] {
            assert_eq!(
                parse_tool_calls("mcp__box__exec", &input),
                [Shell("'ls' '-l'".into())],
                "{input}"
            );
        }
        for input in
            [json!({"program": "ls", "args": ["-l"]}), json!({"executable": "ls", "Args": ["-l"]})]
        {
            assert_eq!(
                parse_tool_calls("mcp__box__exec", &input),
                [Shell("ls '-l'".into())],
                "{input}"
            );
        }
    }

    #[test]
    fn mcp_text_in_other_language_is_not_parsed_as_shell() {
        let script = json!({"script": "document.querySelector('a').click()"});
        assert_eq!(parse_tool_calls("mcp__browser__run", &script), []);
        let script = json!({"script": "import os\nprint(os.getcwd())"});
        assert_eq!(parse_tool_calls("mcp__python__run", &script), []);
        let command = json!({"command": "G1 X10 (move)"});
        let call = Unreadable("G1 X10 (move)".into());
        assert_eq!(parse_tool_calls("mcp__printer__send", &command), [call]);
        let command = json!({"command": "ls )"});
        assert_eq!(parse_tool_calls("Bash", &command), [Shell("ls )".into())]);
    }

    #[test]
    fn mcp_paths_are_found_in_other_and_nested_keys() {
        for input in [
            json!({"files": [{"path": "/a"}]}),
            json!({"edits": [{"file_path": "/a"}]}),
            json!({"textDocument": {"uri": "file:///a"}}),
            json!({"params": {"outputPath": "/a"}}),
            json!({"dest": "/a"}),
            json!({"dst": "/a"}),
            json!({"to": "/a"}),
            json!({"destination_path": "/a"}),
            json!({"PATH": "/a"}),
            json!({"uri": "FILE:///a"}),
            json!({"uri": "file:/a"}),
            json!({"url": "file://localhost/a"}),
        ] {
            assert_eq!(parse_tool_calls("mcp__ide__save", &input), [Write("/a")], "{input}");
        }
    }

    #[test]
    fn mcp_path_of_non_file_tool_is_ignored() {
        for (name, input) in [
            ("mcp__http__delete", json!({"path": "/users/1"})),
            ("mcp__router__add", json!({"path": "/etc/hosts"})),
            ("mcp__browser__navigate", json!({"path": "/", "to": "/home"})),
            ("mcp__mail__send", json!({"to": "someone", "source": "/news"})),
        ] {
            assert_eq!(parse_tool_calls(name, &input), [], "{name} {input}");
        }
        let address = json!({"url": "file:///a"});
        assert_eq!(parse_tool_calls("mcp__browser__navigate", &address), [Write("/a")]);
        let hinted = json!({"path": "/a", "content": null});
        assert_eq!(parse_tool_calls("mcp__x__put", &hinted), [Write("/a")]);
    }

    #[test]
    fn malformed_tool_call_is_unclear() {
        for (name, input) in [
            ("Bash", json!({})),
            ("Bash", json!({"command": 7})),
            ("Bash", json!(null)),
            ("Write", json!({"content": "x"})),
            ("Edit", json!({"file_path": ["/a"]})),
            ("Read", json!("x")),
        ] {
            let calls = parse_tool_calls(name, &input);
            assert!(matches!(calls[..], [Unknown(_)]), "{name} {input}: {calls:?}");
        }
    }
}
