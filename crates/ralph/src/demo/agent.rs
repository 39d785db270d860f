//! The scripted agent of `ralph demo`.
//!
//! Like any agent, it remembers nothing: its prompt decides what it does.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// About eighteen steps, slow enough to follow.
const STEP_DELAY: Duration = Duration::from_millis(1200);

/// The steps of the two iterations.
#[derive(Deserialize)]
struct Script {
    first: Vec<DemoStep>,
    second: Vec<DemoStep>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DemoStep {
    /// `{case}` is the failing case from the prompt.
    Text(String),
    /// Unless a tool failed.
    Claim(String),
    /// With this many entries done.
    Plan(Vec<String>, usize),
    Read(String),
    Edit(String, String, String),
    Run(String),
}

const SESSION_ID: &str = "00000000-0000-4000-8000-00000000de30";

const COMMIT_MESSAGE: &str = "Turn any title into a clean page name";

/// The delay between two steps in milliseconds.
pub(super) const PACE_FLAG: &str = "--pace";
/// Asks a question in the first iteration.
pub(super) const ASK_FLAG: &str = "--ask";

const ASK_AFTER: usize = 3;
const QUESTION: &str = "<question>Should a page name keep digits?\n\nThe test has no case for \
                        them, and the old script keeps them.</question>";

/// Reads the prompt from standard input. `--fast` skips the delays, claude's `stream-json` selects
/// its stream format; claude's other arguments are ignored. Returns the exit code.
pub fn agent_main(args: &[OsString]) -> u8 {
    let has_arg = |wanted: &str| args.iter().any(|arg| arg == wanted);
    let pace = args.iter().skip_while(|arg| *arg != PACE_FLAG).nth(1);
    let pace = pace.and_then(|pace| pace.to_str()?.parse().ok()).map(Duration::from_millis);
    let mut prompt = Vec::new();
    let result = io::stdin().read_to_end(&mut prompt).and_then(|_| {
        let mut agent = DemoAgent {
            out: io::stdout().lock(),
            directory: &std::env::current_dir()?,
            stream: has_arg("stream-json"),
            pace: if has_arg("--fast") { Duration::ZERO } else { pace.unwrap_or(STEP_DELAY) },
            asks: has_arg(ASK_FLAG),
            messages: 0,
            output_tokens: 0,
            last_text: String::new(),
            tool_failed: false,
        };
        agent.answer(&String::from_utf8_lossy(&prompt))
    });
    match result {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "demo agent: {error}");
            1
        }
    }
}

struct DemoAgent<'a, W> {
    out: W,
    directory: &'a Path,
    stream: bool,
    pace: Duration,
    asks: bool,
    /// Tool ids and costs derive from it.
    messages: u64,
    output_tokens: u64,
    last_text: String,
    tool_failed: bool,
}

impl<W: Write> DemoAgent<'_, W> {
    fn answer(&mut self, prompt: &str) -> io::Result<()> {
        self.print(&json!({
            "type": "system", "subtype": "init", "cwd": self.directory.to_string_lossy(),
            "session_id": SESSION_ID, "model": "demo (scripted)", "mcp_servers": [],
            "tools": ["Bash", "Edit", "Read", "TodoWrite"], "permissionMode": "bypassPermissions",
        }))?;
        let case = failing_case(prompt);
        if prompt.contains("Provide a short imperative commit message") {
            self.emit_text(COMMIT_MESSAGE)?;
        } else {
            let Script { first, second } = serde_json::from_str(include_str!("script.json"))?;
            let steps = if case.is_some() { second } else { first };
            if case.is_some() {
                // Time to read the guardrail's output.
                thread::sleep(2 * self.pace);
            }
            for (at, step) in steps.iter().enumerate() {
                if self.asks && case.is_none() && at == ASK_AFTER {
                    self.emit_text(QUESTION)?;
                }
                thread::sleep(self.pace);
                self.perform(step, case.unwrap_or_default())?;
            }
        }
        let usage = usage(self.messages, self.output_tokens);
        self.print(&json!({
            "type": "result", "subtype": "success", "is_error": false, "session_id": SESSION_ID,
            "num_turns": self.messages, "result": self.last_text, "stop_reason": "end_turn",
            "total_cost_usd": cost(&usage), "usage": usage, "permission_denials": [],
        }))
    }

    fn perform(&mut self, step: &DemoStep, case: &str) -> io::Result<()> {
        match step {
            DemoStep::Text(text) => self.emit_text(&text.replace("{case}", case)),
            DemoStep::Claim(_) if self.tool_failed => self
                .emit_text("It still fails, so I am not done. The next iteration will know more."),
            DemoStep::Claim(text) => {
                self.emit_text(&format!("{text}\n\n<response>DONE</response>"))
            }
            DemoStep::Plan(entries, done) => {
                let todos: Vec<Value> = entries
                    .iter()
                    .enumerate()
                    .map(|(at, text)| {
                        let status = match at.cmp(done) {
                            std::cmp::Ordering::Less => "completed",
                            std::cmp::Ordering::Equal => "in_progress",
                            std::cmp::Ordering::Greater => "pending",
                        };
                        json!({"content": text, "status": status, "activeForm": text})
                    })
                    .collect();
                let done = Ok("Todos have been modified successfully.".to_owned());
                self.tool("TodoWrite", &json!({"todos": todos}), |_| done)
            }
            DemoStep::Read(name) => {
                let path = self.directory.join(name);
                self.tool("Read", &json!({"file_path": path}), |_| {
                    fs::read_to_string(&path).map_err(|error| error.to_string())
                })
            }
            DemoStep::Edit(name, old, new) => {
                let path = self.directory.join(name);
                let input = json!({"file_path": path, "old_string": old, "new_string": new});
                self.tool("Edit", &input, |_| {
                    edit(&path, old, new)?;
                    Ok(format!("The file {name} has been updated successfully."))
                })
            }
            DemoStep::Run(command) => {
                self.tool("Bash", &json!({"command": command}), |directory| run(directory, command))
            }
        }
    }

    fn emit_text(&mut self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.last_text);
        if self.stream {
            self.message(&json!({"type": "text", "text": text}))
        } else {
            writeln!(self.out, "{text}")?;
            self.out.flush()
        }
    }

    fn tool(
        &mut self,
        name: &str,
        input: &Value,
        work: impl FnOnce(&Path) -> Result<String, String>,
    ) -> io::Result<()> {
        let id = format!("toolu_demo{:02}", self.messages);
        self.message(&json!({"type": "tool_use", "id": id, "name": name, "input": input}))?;
        let output = work(self.directory);
        let is_error = output.is_err();
        self.tool_failed |= is_error;
        let content = output.unwrap_or_else(|error| error);
        let result = json!({
            "tool_use_id": id, "type": "tool_result", "content": content, "is_error": is_error,
        });
        self.print(&json!({
            "type": "user", "message": {"role": "user", "content": [result]},
            "parent_tool_use_id": null, "session_id": SESSION_ID,
        }))
    }

    fn message(&mut self, content: &Value) -> io::Result<()> {
        let id = format!("msg_demo{:02}", self.messages);
        let output_tokens = content.to_string().len() as u64 / 4;
        self.messages += 1;
        self.output_tokens += output_tokens;
        self.print(&json!({
            "type": "assistant",
            "message": {
                "id": id, "type": "message", "role": "assistant", "model": "demo (scripted)",
                "content": [content], "stop_reason": null, "usage": usage(1, output_tokens),
            },
            "parent_tool_use_id": null, "session_id": SESSION_ID,
        }))
    }

    fn print(&mut self, line: &Value) -> io::Result<()> {
        if self.stream {
            writeln!(self.out, "{line}")?;
            self.out.flush()?;
        }
        Ok(())
    }
}

/// As the test prints it.
fn failing_case(prompt: &str) -> Option<&str> {
    prompt.lines().find_map(|line| line.trim_start().strip_prefix("FAIL "))
}

fn edit(path: &Path, old: &str, new: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    if !text.contains(old) {
        return Err("String to replace not found in file.".to_owned());
    }
    fs::write(path, text.replacen(old, new, 1)).map_err(|error| error.to_string())
}

/// Runs a command as an agent's tool does. Only ralph itself must start programs through `process`;
/// this is the agent, whose children ralph kills with it.
fn run(directory: &Path, command: &str) -> Result<String, String> {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("sh: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

fn usage(messages: u64, output_tokens: u64) -> Value {
    json!({
        "input_tokens": 4 * messages,
        "cache_creation_input_tokens": 150 * messages,
        "cache_read_input_tokens": 3200 * messages,
        "output_tokens": output_tokens,
    })
}

fn cost(usage: &Value) -> f64 {
    const MILLION: f64 = 1_000_000.0;
    let tokens = |name: &str| usage[name].as_f64().unwrap_or(0.0) / MILLION;
    5.0 * tokens("input_tokens")
        + 6.25 * tokens("cache_creation_input_tokens")
        + 0.5 * tokens("cache_read_input_tokens")
        + 25.0 * tokens("output_tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(directory: &Path, stream: bool, prompt: &str) -> String {
        let mut out = Vec::new();
        let mut agent = DemoAgent {
            out: &mut out,
            directory,
            stream,
            pace: Duration::ZERO,
            asks: false,
            messages: 0,
            output_tokens: 0,
            last_text: String::new(),
            tool_failed: false,
        };
        agent.answer(prompt).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn lines(output: &str) -> Vec<Value> {
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn with_feedback(prompt: &str, output: &str) -> String {
        format!(
            "{prompt}\n\nGuardrail \"sh test.sh\" failed with exit code 1.\n\
             Output file: .ralph/guardrail_001_sh_test_sh.log\nOutput (truncated):\n{output}"
        )
    }

    #[test]
    fn demo_test_fails_twice_then_passes() {
        let dir = tempfile::tempdir().unwrap();
        super::super::prepare(dir.path()).unwrap();
        let prompt = fs::read_to_string(dir.path().join(super::super::PROMPT_FILE)).unwrap();
        let test = || run(dir.path(), super::super::TEST_COMMAND);

        let before = test().unwrap_err();
        assert!(before.contains("FAIL 'Hello World'"), "{before}");

        let first = play(dir.path(), true, &prompt);
        assert!(first.contains("<response>DONE</response>"), "it claims too much: {first}");
        let between = test().unwrap_err();
        assert!(between.contains("ok   'Hello World'"), "{between}");
        assert!(between.contains("FAIL '  Rock & Roll!  '"), "{between}");

        let second = play(dir.path(), true, &with_feedback(&prompt, &between));
        let words = &lines(&second)[1]["message"]["content"][0]["text"];
        let words = words.as_str().unwrap();
        assert!(words.contains("'  Rock & Roll!  ': expected 'rock-roll'"), "{words}");
        let after = test().unwrap();
        assert!(!after.contains("FAIL"), "{after}");
        assert!(second.contains("<response>DONE</response>"));
    }

    #[test]
    fn demo_agent_claims_nothing_while_test_fails() {
        let dir = tempfile::tempdir().unwrap();
        super::super::prepare(dir.path()).unwrap();
        fs::write(dir.path().join("slugify.sh"), "echo something else").unwrap();
        let output = play(dir.path(), true, "FAIL 'x': expected 'x', got 'y'");
        assert!(!output.contains("<response>"), "{output}");
        assert!(output.contains("still fails"), "{output}");
    }

    #[test]
    fn demo_agent_stream_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        super::super::prepare(dir.path()).unwrap();
        let lines = lines(&play(dir.path(), true, "Make it pass."));
        assert_eq!(lines[0]["subtype"], "init");
        let mut open = Vec::new();
        let mut todo = Vec::new();
        for content in lines.iter().map(|line| &line["message"]["content"][0]) {
            match content["type"].as_str() {
                Some("tool_use") => open.push(content["id"].clone()),
                Some("tool_result") => {
                    assert_eq!(open.pop().as_ref(), Some(&content["tool_use_id"]));
                    assert_eq!(content["is_error"], false, "{content}");
                }
                _ => {}
            }
            if let Some(todos) = content["input"]["todos"].as_array() {
                todo.push(todos.iter().map(|item| item["status"].clone()).collect::<Vec<_>>());
            }
        }
        assert!(open.is_empty(), "every tool call has its result");
        assert_eq!(todo[0], ["completed", "in_progress", "pending"]);
        assert_eq!(todo[1], ["completed"; 3]);

        let result = lines.last().unwrap();
        assert_eq!(result["type"], "result");
        let told: u64 = lines
            .iter()
            .filter_map(|line| line["message"]["usage"]["output_tokens"].as_u64())
            .sum();
        assert_eq!(result["usage"]["output_tokens"], told);
        let cost = result["total_cost_usd"].as_f64().unwrap();
        assert!((0.001..0.1).contains(&cost), "{cost}");
    }

    #[test]
    fn demo_commit_message_is_one_line_without_changes() {
        let dir = tempfile::tempdir().unwrap();
        let prompt = "Provide a short imperative commit message for the changes. \
                      Output only the message, no explanation.";
        assert_eq!(play(dir.path(), false, prompt), format!("{COMMIT_MESSAGE}\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
