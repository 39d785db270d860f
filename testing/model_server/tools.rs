//! Maps a script's calls to the tools that an agent offers.

use serde_json::{Map, Value, json};

use super::script::{Call, Step};

#[derive(Debug, Clone)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) schema: Value,
    /// Its input is a text, not an object.
    pub(super) freeform: bool,
    /// The group it is called through, if the protocol has groups.
    pub(super) namespace: Option<String>,
}

impl Tool {
    fn takes(&self, property: &str) -> bool {
        self.schema["properties"].get(property).is_some()
    }

    fn property(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.takes(name))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) freeform: bool,
    pub(super) namespace: Option<String>,
}

const SHELL_TOOLS: [&str; 10] = [
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "shell",
    "run_shell_command",
    "execute_command",
    "run_commands",
    "run_command",
    "local_shell",
];
const WRITE_TOOLS: [&str; 8] = [
    "Write",
    "write",
    "write_file",
    "create_file",
    "write_to_file",
    "create",
    "editor",
    "apply_patch",
];
const PLAN_TOOLS: [&str; 8] = [
    "TodoWrite",
    "TaskCreate",
    "update_plan",
    "todowrite",
    "todo_write",
    "write_todos",
    "update_todo",
    "update_todo_list",
];

/// Without a suitable tool, calls an unknown one, which the agent reports.
pub(super) fn to_tool_call(call: &Call, offered: &[Tool]) -> ToolCall {
    let find = |names: &[&str]| {
        names.iter().find_map(|name| offered.iter().find(|tool| tool.name == *name))
    };
    let (name, input) = match call {
        Call::Exact { tool, input } => (tool.clone(), input.clone()),
        Call::Shell { command, extra } => match find(&SHELL_TOOLS) {
            Some(tool) => (tool.name.clone(), shell_input(tool, command, extra)),
            None if offered.iter().any(|tool| tool.name == "exec" && tool.freeform) => {
                ("exec".to_owned(), Value::String(shell_program(command)))
            }
            None => ("Bash".to_owned(), json!({"command": command})),
        },
        Call::Write { path, content } => match find(&WRITE_TOOLS) {
            Some(tool) => (tool.name.clone(), write_input(tool, path, content)),
            None => ("Write".to_owned(), json!({"file_path": path, "content": content})),
        },
        Call::Plan(steps) => match find(&PLAN_TOOLS) {
            Some(tool) => (tool.name.clone(), plan_input(&tool.name, steps)),
            None => ("TodoWrite".to_owned(), plan_input("TodoWrite", steps)),
        },
    };
    let tool = offered.iter().find(|tool| tool.name == name);
    ToolCall {
        freeform: tool.map_or(input.is_string(), |tool| tool.freeform),
        namespace: tool.and_then(|tool| tool.namespace.clone()),
        name,
        input,
    }
}

fn shell_input(tool: &Tool, command: &str, extra: &Map<String, Value>) -> Value {
    let property = tool.property(&["cmd", "commands", "command"]).unwrap_or("command");
    let wants_list = tool.schema["properties"][property]["type"] == "array";
    let command = match property {
        "commands" => json!([command]),
        "command" if wants_list || tool.name == "local_shell" => json!(["bash", "-lc", command]),
        _ => json!(command),
    };
    let mut input = Map::new();
    input.insert(property.to_owned(), command);
    for (property, value) in [
        ("description", json!("run a command")),
        ("requires_approval", json!(false)),
        ("is_background", json!(false)),
        ("mode", json!("sync")),
    ] {
        if tool.takes(property) {
            input.insert(property.to_owned(), value);
        }
    }
    let required = tool.schema["required"].as_array().into_iter().flatten();
    for property in required.filter_map(Value::as_str) {
        if !input.contains_key(property) {
            let some = match tool.schema["properties"][property]["type"].as_str() {
                Some("boolean") => json!(false),
                Some("integer" | "number") => json!(60),
                Some("array") => json!([]),
                _ => json!("main"),
            };
            input.insert(property.to_owned(), some);
        }
    }
    input.extend(extra.clone());
    Value::Object(input)
}

/// For an agent whose only tool runs JavaScript.
fn shell_program(command: &str) -> String {
    let command = Value::from(command);
    format!(
        "const r = await tools.exec_command({{cmd: {command}, yield_time_ms: 30000}});\ntext(r);\n"
    )
}

fn write_input(tool: &Tool, path: &str, content: &str) -> Value {
    if tool.name == "apply_patch" {
        let patch = patch(path, content);
        return if tool.freeform { Value::String(patch) } else { json!({"input": patch}) };
    }
    let path_property =
        tool.property(&["file_path", "filePath", "absolutePath", "path"]).unwrap_or("path");
    let content_property =
        tool.property(&["content", "file_text", "new_text"]).unwrap_or("content");
    let mut input = Map::new();
    // Tools with several commands need one.
    if tool.takes("command") {
        input.insert("command".to_owned(), json!("create"));
    }
    input.insert(path_property.to_owned(), json!(path));
    input.insert(content_property.to_owned(), json!(content));
    Value::Object(input)
}

/// A new file in codex's patch language.
fn patch(path: &str, content: &str) -> String {
    let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
    format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
}

fn plan_input(tool: &str, steps: &[Step]) -> Value {
    let list = |entry: &dyn Fn(usize, &Step) -> Value| -> Value {
        steps.iter().enumerate().map(|(nth, step)| entry(nth + 1, step)).collect()
    };
    match tool {
        "update_plan" => {
            json!({"plan": list(&|_, Step(text, status)| json!({"step": text, "status": status}))})
        }
        "TodoWrite" => json!({"todos": list(&|_, Step(text, status)| {
            json!({"content": text, "status": status, "activeForm": text})
        })}),
        "TaskCreate" => {
            let text = steps.first().map_or("", |Step(text, _)| text);
            json!({"subject": text, "description": text, "activeForm": text})
        }
        "todowrite" => json!({"todos": list(&|nth, Step(text, status)| {
            json!({"id": nth.to_string(), "content": text, "status": status, "priority": "high"})
        })}),
        "todo_write" => json!({"todos": list(&|nth, Step(text, status)| {
            json!({"id": nth.to_string(), "content": text, "status": status})
        })}),
        "write_todos" => json!({"todos": list(&|_, Step(text, status)| {
            json!({"description": text, "status": status})
        })}),
        _ => {
            let line = |Step(text, status): &Step| {
                format!("- [{}] {text}\n", if status == "completed" { "x" } else { " " })
            };
            json!({"todos": steps.iter().map(line).collect::<String>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, properties: &Value) -> Tool {
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        let schema = json!({"properties": properties, "required": required});
        Tool { name: name.to_owned(), schema, freeform: false, namespace: None }
    }

    fn freeform(name: &str) -> Tool {
        Tool { freeform: true, ..tool(name, &json!({})) }
    }

    fn input(call: &Call, offered: Tool) -> Value {
        let name = offered.name.clone();
        let call = to_tool_call(call, &[tool("Other", &json!({})), offered]);
        assert_eq!(call.name, name);
        call.input
    }

    #[test]
    fn a_command_is_said_in_the_words_of_every_shell_tool() {
        let text = json!({"type": "string"});
        let list = json!({"type": "array"});
        let call = Call::Shell { command: "ls".to_owned(), extra: Map::new() };
        for (offered, expected) in [
            (
                tool("Bash", &json!({"command": text, "description": text})),
                json!({"command": "ls", "description": "run a command"}),
            ),
            (tool("exec_command", &json!({"cmd": text})), json!({"cmd": "ls"})),
            (tool("shell", &json!({"command": list})), json!({"command": ["bash", "-lc", "ls"]})),
            (tool("run_commands", &json!({"commands": list})), json!({"commands": ["ls"]})),
            (
                tool(
                    "bash",
                    &json!({"command": text, "sessionId": text, "n": {"type": "integer"}}),
                ),
                json!({"command": "ls", "sessionId": "main", "n": 60}),
            ),
        ] {
            assert_eq!(input(&call, offered), expected);
        }
        let program = input(&call, freeform("exec"));
        assert!(program.as_str().unwrap().contains("exec_command({cmd: \"ls\""), "{program}");
        assert_eq!(to_tool_call(&call, &[]).name, "Bash", "for an agent without tools");
    }

    #[test]
    fn a_file_is_written_in_the_words_of_every_file_tool() {
        let call = Call::Write { path: "a".to_owned(), content: "b\nc\n".to_owned() };
        let patch = "*** Begin Patch\n*** Add File: a\n+b\n+c\n*** End Patch\n";
        for (offered, expected) in [
            (
                tool("Write", &json!({"file_path": {}, "content": {}})),
                json!({"file_path": "a", "content": "b\nc\n"}),
            ),
            (
                tool("create", &json!({"path": {}, "file_text": {}})),
                json!({"path": "a", "file_text": "b\nc\n"}),
            ),
            (
                tool("editor", &json!({"command": {}, "path": {}, "file_text": {}})),
                json!({"command": "create", "path": "a", "file_text": "b\nc\n"}),
            ),
            (freeform("apply_patch"), json!(patch)),
            (tool("apply_patch", &json!({"input": {}})), json!({"input": patch})),
        ] {
            assert_eq!(input(&call, offered), expected);
        }
    }

    #[test]
    fn a_plan_is_said_in_the_words_of_every_plan_tool() {
        let step = |text: &str, status: &str| Step(text.to_owned(), status.to_owned());
        let call = Call::Plan(vec![step("a", "completed"), step("b", "pending")]);
        for (name, expected) in [
            (
                "update_plan",
                json!({"plan": [{"step": "a", "status": "completed"}, {"step": "b", "status": "pending"}]}),
            ),
            (
                "TodoWrite",
                json!({"todos": [
                    {"content": "a", "status": "completed", "activeForm": "a"},
                    {"content": "b", "status": "pending", "activeForm": "b"},
                ]}),
            ),
            ("TaskCreate", json!({"subject": "a", "description": "a", "activeForm": "a"})),
            ("update_todo_list", json!({"todos": "- [x] a\n- [ ] b\n"})),
        ] {
            assert_eq!(input(&call, tool(name, &json!({}))), expected);
        }
    }

    #[test]
    fn an_exact_call_is_not_changed() {
        let call = Call::Exact { tool: "Bash".to_owned(), input: json!({"command": 7}) };
        assert_eq!(input(&call, tool("Bash", &json!({"other": {}}))), json!({"command": 7}));
    }
}
