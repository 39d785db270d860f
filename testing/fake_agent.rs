//! A fake coding agent for black-box tests, driven by a script (`testing/README.md`).

use std::error::Error;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

/// Keeps a failed test from leaving processes for long.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// Tests may hold standard input open on purpose.
const STDIN_WAIT: Duration = Duration::from_secs(2);

/// Hidden mode for a leftover tool.
const STRAY_MODE: &str = "--be-a-stray-tool";

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Print(String),
    /// Without a newline.
    Raw(String),
    /// Prints bytes given in hexadecimal, for invalid UTF-8.
    Hex(String),
    /// Prints byte by byte with a pause, which splits multi-byte characters over two reads.
    Split(String),
    Stderr(String),
    Json(Value),
    LinesMegabytes(usize),
    LongLineMegabytes(usize),

    /// Prints a line as `claude --output-format stream-json` does.
    Claude(Claude),
    /// Prints a line as `codex exec --json` does.
    Codex(Codex),

    Write(File),
    Append(File),
    /// Writes the file after `-o`, as codex does with its last message.
    Answer(String),
    /// Runs `sh -c` and ignores its exit code.
    Shell(String),
    /// Appends a JSON line to this file: prompt, stdin_eof, argv, env, cwd, pid, start.
    Record(PathBuf),

    SleepMs(u64),
    WaitFor(PathBuf),
    Hang,
    /// TERM, INT and HUP.
    IgnoreSignals,
    Stray(Stray),
    Exit(u8),
    Signal(i32),
}

#[derive(Deserialize)]
struct File {
    path: PathBuf,
    text: String,
}

/// A tool that outlives the agent, holds its output open and ignores TERM.
#[derive(Deserialize)]
struct Stray {
    /// Written once the tool is ready.
    pid_file: PathBuf,
    #[serde(default = "yes")]
    setsid: bool,
    /// Has no environment, so no variable identifies it.
    #[serde(default)]
    clean_env: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Claude {
    Init,
    Text(String),
    LongText(usize),
    Thinking(String),
    Tool {
        name: String,
        input: Value,
    },
    ToolResult {
        content: String,
        #[serde(default)]
        is_error: bool,
    },
    /// A complete `Bash` call, really run.
    Bash(String),
    /// Pairs of text and status.
    Todo(Vec<(String, String)>),
    /// Overrides fields of a success.
    Result(serde_json::Map<String, Value>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Codex {
    Init,
    Text(String),
    /// A complete command execution, really run.
    Command(String),
    /// Pairs of text and completion.
    Todo(Vec<(String, bool)>),
    /// Overrides fields of a small usage.
    Result(serde_json::Map<String, Value>),
    Failed(String),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    sessions: Vec<Vec<Step>>,
    #[serde(default)]
    commit_message: Option<Vec<Step>>,
    #[serde(default)]
    stdin: Stdin,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stdin {
    #[default]
    Read,
    Ignore,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let outcome = match args.get(1) {
        Some(mode) if mode == STRAY_MODE => stray_main(&args[2..]),
        _ => Agent::start(args).and_then(|(mut agent, steps)| agent.perform(steps)),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "fake-agent: {error}");
            ExitCode::from(99)
        }
    }
}

struct Agent {
    args: Vec<String>,
    prompt: String,
    stdin_eof: bool,
    /// Counts from 1; 0 for a commit message.
    start: u64,
    calls: u32,
    last_text: String,
}

impl Agent {
    fn start(args: Vec<String>) -> Outcome<(Agent, Vec<Step>)> {
        let path = script_path(&args)?;
        let script = Script::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (prompt, stdin_eof) = match script.stdin {
            Stdin::Read => read_stdin(),
            Stdin::Ignore => (String::new(), false),
        };
        let mut agent =
            Agent { args, prompt, stdin_eof, start: 0, calls: 0, last_text: String::new() };
        let steps = match script.commit_message {
            Some(steps) if agent.wants_commit_message() => steps,
            _ => {
                agent.start = count_start(&path)?;
                let mut sessions = script.sessions;
                let last = sessions.len().checked_sub(1).ok_or("no sessions")?;
                sessions.swap_remove(last.min(usize::try_from(agent.start)? - 1))
            }
        };
        Ok((agent, steps))
    }

    fn wants_commit_message(&self) -> bool {
        let asks = |text: &str| text.contains("Provide a short imperative commit message");
        asks(&self.prompt) || self.args.iter().any(|arg| asks(arg))
    }

    fn perform(&mut self, steps: Vec<Step>) -> Outcome<u8> {
        for step in steps {
            match step {
                Step::Print(text) => print(format!("{text}\n").as_bytes())?,
                Step::Raw(text) => print(text.as_bytes())?,
                Step::Hex(digits) => print(&from_hex(&digits)?)?,
                Step::Split(text) => {
                    for byte in text.as_bytes() {
                        print(&[*byte])?;
                        // Lets the reader read the byte alone; nothing depends on it.
                        sleep(Duration::from_millis(5));
                    }
                }
                Step::Stderr(text) => writeln!(io::stderr(), "{text}")?,
                Step::Json(value) => print_json(&value)?,
                Step::LinesMegabytes(count) => {
                    let line = format!("{}\n", "x".repeat(63));
                    let megabyte = line.repeat(1024 * 1024 / line.len());
                    (0..count).try_for_each(|_| print(megabyte.as_bytes()))?;
                }
                Step::LongLineMegabytes(count) => {
                    let megabyte = vec![b'x'; 1024 * 1024];
                    (0..count).try_for_each(|_| print(&megabyte))?;
                    print(b"\n")?;
                }
                Step::Claude(step) => self.claude(step)?,
                Step::Codex(step) => self.codex(step)?,
                Step::Write(file) => fs::write(file.path, file.text)?,
                Step::Append(file) => append(&file.path, &file.text)?,
                Step::Answer(text) => {
                    let at = self.args.iter().position(|arg| arg == "-o").ok_or("no -o")?;
                    fs::write(self.args.get(at + 1).ok_or("no file after -o")?, text)?;
                }
                Step::Shell(command) => {
                    shell(&command).status()?;
                }
                Step::Record(path) => self.record(&path)?,
                Step::SleepMs(time) => sleep(Duration::from_millis(time)),
                Step::WaitFor(path) => wait_for(&path)?,
                Step::Hang => {
                    sleep(LONGEST_WAIT);
                    return Err("this process was not killed".into());
                }
                Step::IgnoreSignals => ignore_signals()?,
                Step::Stray(stray) => stray.spawn()?,
                Step::Exit(code) => return Ok(code),
                Step::Signal(number) => die_by(number)?,
            }
        }
        Ok(0)
    }

    fn record(&self, path: &Path) -> Outcome<()> {
        let env: serde_json::Map<String, Value> = std::env::vars_os()
            .map(|(name, value)| {
                let value = value.to_string_lossy().into_owned();
                (name.to_string_lossy().into_owned(), value.into())
            })
            .collect();
        let record = json!({
            "prompt": self.prompt,
            "stdin_eof": self.stdin_eof,
            "argv": self.args,
            "env": env,
            "cwd": std::env::current_dir()?.to_string_lossy(),
            "pid": std::process::id(),
            "start": self.start,
        });
        append(path, &format!("{record}\n"))
    }

    fn claude(&mut self, step: Claude) -> Outcome<()> {
        match step {
            Claude::Init => print_json(&json!({
                "type": "system", "subtype": "init",
                "cwd": std::env::current_dir()?.to_string_lossy(),
                "session_id": self.session_id(), "tools": ["Bash", "Edit", "Read", "TodoWrite"],
                "model": "fake-model", "permissionMode": "bypassPermissions",
            })),
            Claude::Text(text) => {
                self.claude_content("assistant", &json!({"type": "text", "text": text}))?;
                self.last_text = text;
                Ok(())
            }
            Claude::LongText(megabytes) => {
                let text = "x".repeat(megabytes * 1024 * 1024);
                self.claude_content("assistant", &json!({"type": "text", "text": text}))
            }
            Claude::Thinking(text) => {
                self.claude_content("assistant", &json!({"type": "thinking", "thinking": text}))
            }
            Claude::Tool { name, input } => {
                self.calls += 1;
                let id = self.tool_id();
                let call = json!({"type": "tool_use", "id": id, "name": name, "input": input});
                self.claude_content("assistant", &call)
            }
            Claude::ToolResult { content, is_error } => {
                let result = json!({
                    "tool_use_id": self.tool_id(), "type": "tool_result",
                    "content": content, "is_error": is_error,
                });
                self.claude_content("user", &result)
            }
            Claude::Bash(command) => {
                let name = "Bash".to_owned();
                let input = json!({"command": command});
                self.claude(Claude::Tool { name, input })?;
                let (content, code) = run(&command)?;
                let is_error = code != Some(0);
                self.claude(Claude::ToolResult { content, is_error })
            }
            Claude::Todo(items) => {
                let todos: Vec<Value> = items
                    .iter()
                    .map(|(text, status)| {
                        json!({"content": text, "status": status, "activeForm": text})
                    })
                    .collect();
                let name = "TodoWrite".to_owned();
                let input = json!({"todos": todos});
                self.claude(Claude::Tool { name, input })?;
                let content = "Todos have been modified successfully.".to_owned();
                let is_error = false;
                self.claude(Claude::ToolResult { content, is_error })
            }
            Claude::Result(fields) => {
                let usual = json!({
                    "type": "result", "subtype": "success", "is_error": false,
                    "session_id": self.session_id(), "num_turns": 1, "result": self.last_text,
                    "total_cost_usd": 0.01, "permission_denials": [],
                    "usage": {
                        "input_tokens": 100, "output_tokens": 20,
                        "cache_read_input_tokens": 30, "cache_creation_input_tokens": 4,
                    },
                });
                print_json(&with_overrides(usual, fields))
            }
        }
    }

    fn claude_content(&self, role: &str, content: &Value) -> Outcome<()> {
        let mut message = json!({"role": role, "content": [content]});
        if role == "assistant" {
            message["id"] = format!("msg_{}", self.calls).into();
            message["model"] = "fake-model".into();
        }
        print_json(&json!({
            "type": role, "message": message, "parent_tool_use_id": null,
            "session_id": self.session_id(),
        }))
    }

    fn codex(&mut self, step: Codex) -> Outcome<()> {
        let item = |kind: &str, fields: Value| {
            let id = format!("item_{}", self.calls);
            print_json(
                &json!({"type": kind, "item": with_overrides(json!({"id": id}), object(fields))}),
            )
        };
        match step {
            Codex::Init => {
                let thread = format!("fake-{}", std::process::id());
                print_json(&json!({"type": "thread.started", "thread_id": thread}))?;
                print_json(&json!({"type": "turn.started"}))
            }
            Codex::Text(text) => {
                item("item.completed", json!({"type": "agent_message", "text": text}))?;
                self.calls += 1;
                Ok(())
            }
            Codex::Command(command) => {
                item(
                    "item.started",
                    json!({
                        "type": "command_execution", "command": command, "aggregated_output": "",
                        "exit_code": null, "status": "in_progress",
                    }),
                )?;
                let (output, code) = run(&command)?;
                let status = if code == Some(0) { "completed" } else { "failed" };
                item(
                    "item.completed",
                    json!({
                        "type": "command_execution", "command": command, "aggregated_output": output,
                        "exit_code": code, "status": status,
                    }),
                )?;
                self.calls += 1;
                Ok(())
            }
            Codex::Todo(items) => {
                let items: Vec<Value> = items
                    .iter()
                    .map(|(text, done)| json!({"text": text, "completed": done}))
                    .collect();
                item("item.updated", json!({"type": "todo_list", "items": items}))
            }
            Codex::Result(fields) => {
                let usage = json!({
                    "input_tokens": 130, "cached_input_tokens": 30, "cache_write_input_tokens": 0,
                    "output_tokens": 20, "reasoning_output_tokens": 0,
                });
                print_json(
                    &json!({"type": "turn.completed", "usage": with_overrides(usage, fields)}),
                )
            }
            Codex::Failed(message) => {
                print_json(&json!({"type": "error", "message": message}))?;
                print_json(&json!({"type": "turn.failed", "error": {"message": message}}))
            }
        }
    }

    fn session_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.start)
    }

    fn tool_id(&self) -> String {
        format!("toolu_{}", self.calls)
    }
}

impl Script {
    fn read(path: &Path) -> Outcome<Script> {
        let text = fs::read_to_string(path)?;
        let values = serde_json::Deserializer::from_str(&text)
            .into_iter::<Value>()
            .collect::<Result<Vec<Value>, _>>()?;
        let steps = match values.as_slice() {
            [Value::Object(object)] if object.contains_key("sessions") => {
                return Ok(serde_json::from_str(&text)?);
            }
            [list @ Value::Array(_)] => list.clone(),
            _ => Value::Array(values),
        };
        let sessions = vec![serde_json::from_value(steps)?];
        Ok(Script { sessions, ..Script::default() })
    }
}

fn script_path(args: &[String]) -> Outcome<PathBuf> {
    let path = match args.iter().position(|arg| arg == "--script") {
        Some(at) => args.get(at + 1).map(PathBuf::from),
        None => std::env::var_os("FAKE_AGENT_SCRIPT").map(PathBuf::from),
    };
    let path = path.ok_or("no script: use --script PATH or FAKE_AGENT_SCRIPT")?;
    if !path.is_dir() {
        return Ok(path);
    }
    let own_name = Path::new(&args[0]).file_name().unwrap_or_default();
    Ok(path.join(own_name).with_extension("json"))
}

/// Counts this start. Each appends one byte atomically; the position after it is the number.
fn count_start(script: &Path) -> Outcome<u64> {
    let mut name = script.as_os_str().to_owned();
    name.push(".count");
    let mut counter = fs::OpenOptions::new().create(true).append(true).open(name)?;
    counter.write_all(b".")?;
    Ok(counter.stream_position()?)
}

/// Standard input may stay open forever.
fn read_stdin() -> (String, bool) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let (at_end, ended) = mpsc::channel();
    let shared = Arc::clone(&received);
    std::thread::spawn(move || {
        let mut chunk = [0; 64 * 1024];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut chunk) {
            let mut received = shared.lock().unwrap_or_else(PoisonError::into_inner);
            received.extend_from_slice(&chunk[..count]);
        }
        let _ = at_end.send(());
    });
    let eof = ended.recv_timeout(STDIN_WAIT).is_ok();
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    (String::from_utf8_lossy(&received).into_owned(), eof)
}

impl Stray {
    fn spawn(self) -> Outcome<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(STRAY_MODE).arg(&self.pid_file).arg(self.setsid.to_string());
        if self.clean_env {
            command.env_clear();
        }
        command.stdin(Stdio::null()).spawn()?;
        wait_for(&self.pid_file)
    }
}

fn stray_main(args: &[String]) -> Outcome<u8> {
    let [pid_file, setsid] = args else {
        return Err("a stray tool needs a PID file".into());
    };
    ignore_signals()?;
    if setsid == "true" {
        rustix::process::setsid()?;
    }
    // Renamed into place, so that the file is complete once it exists.
    let unfinished = format!("{pid_file}.new");
    fs::write(&unfinished, std::process::id().to_string())?;
    fs::rename(unfinished, pid_file)?;
    sleep(LONGEST_WAIT);
    Ok(0)
}

fn ignore_signals() -> Outcome<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn die_by(number: i32) -> Outcome<()> {
    let signal = rustix::process::Signal::from_named_raw(number)
        .ok_or_else(|| format!("unknown signal {number}"))?;
    rustix::process::kill_process(rustix::process::getpid(), signal)?;
    sleep(Duration::from_secs(5));
    Err(format!("signal {number} did not end this process").into())
}

fn wait_for(path: &Path) -> Outcome<()> {
    let end = Instant::now() + LONGEST_WAIT;
    while !path.exists() {
        if Instant::now() > end {
            return Err(format!("{} did not appear", path.display()).into());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    shell
}

fn run(command: &str) -> Outcome<(String, Option<i32>)> {
    let output = shell(command).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8_lossy(&text).trim_end().to_owned(), output.status.code()))
}

fn print(bytes: &[u8]) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    Ok(stdout.flush()?)
}

fn print_json(value: &Value) -> Outcome<()> {
    print(format!("{value}\n").as_bytes())
}

fn append(path: &Path, text: &str) -> Outcome<()> {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn from_hex(digits: &str) -> Outcome<Vec<u8>> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    digits.chunks(2).map(byte).collect()
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    }
}

fn with_overrides(value: Value, fields: serde_json::Map<String, Value>) -> Value {
    let mut base = object(value);
    base.extend(fields);
    Value::Object(base)
}
