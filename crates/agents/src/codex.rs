//! Codex: `codex exec --json`.
//!
//! It reports neither model nor cost. An `error` line is a retry; only `turn.failed` is a failure.
//! The usage of a turn covers the whole thread so far.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Zoned;
use serde::Deserialize;

use super::structured::{LineOutcome, LineParser, StructuredReader};
use super::text::{LastOutput, PlainReader};
use super::tools::{ToolEnd, ToolTracker, key_values, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PREVIEW_CHARS, PromptVia,
    emit_notice, emit_text, emit_thinking, failure, has_option, one_line, reset, start_failure,
};
use crate::json::{RawJson, RawText, ShortStr, TextSize, lenient};
use crate::profile::{
    AgentExtras, AgentHome, AgentProfile, ConfiguredKeys, FileExposure, HomeDir, Recording,
};
use crate::usage::read_inclusive_usage;
use ralph_events::event::{Event, Failure, FailureKind, TodoItem, TodoStatus};

#[derive(Debug)]
pub(super) struct Codex;

const HOME_DIR: HomeDir = HomeDir { moved_by: Some("CODEX_HOME"), path: ".codex" };

static PROFILE: AgentProfile = AgentProfile {
    name: "codex",
    install_command: "npm install -g @openai/codex",
    recording: Recording::Version { product: "codex", version: "0.166.0" },
    tokens: Some("at the end of a turn"),
    cost: None,
    cost_is_verified: false,
    limit_end: Some("yes"),
    interactive_autonomous_flags: &["-s", "workspace-write", "-a", "never"],
    hosts: &["api.openai.com", "auth.openai.com", "chatgpt.com"],
    key_prefixes: &["OPENAI_", "CODEX_", "AZURE_OPENAI_"],
    homes: &[AgentHome {
        dir: HOME_DIR,
        entries: &[
            ("auth.json", FileExposure::Credentials),
            ("config.toml", FileExposure::Config),
            ("AGENTS.md", FileExposure::Config),
            ("prompts", FileExposure::Config),
            ("rules", FileExposure::Config),
            ("skills", FileExposure::Config),
        ],
    }],
    extras: AgentExtras {
        sandboxes_itself: true,
        configured_keys: Some(ConfiguredKeys {
            dir: HOME_DIR,
            file: "config.toml",
            variables: key_variables,
        }),
        ..AgentExtras::NONE
    },
};

impl Adapter for Codex {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        // codex rejects `--full-auto`, whose meaning is the default here, and repeated flags, so
        // the user's replace these.
        let flags: Vec<String> =
            request.flags.iter().filter(|flag| *flag != "--full-auto").cloned().collect();
        invocation.arg("exec");
        if request.stream {
            if !has_option(&flags, &["--json"]) {
                invocation.arg("--json");
            }
        } else {
            invocation.arg("-o");
            invocation.arg(request.side_file);
            invocation.side_file = Some(request.side_file.to_owned());
        }
        // Required outside a git repository.
        if !has_option(&flags, &["--skip-git-repo-check"]) {
            invocation.arg("--skip-git-repo-check");
        }
        if request.autonomous && !has_option(&flags, &SANDBOX_FLAGS) {
            if request.sandboxed {
                invocation.arg("--dangerously-bypass-approvals-and-sandbox");
            } else {
                // The workspace excludes `.git`, but the agent has to commit.
                invocation.args(["-s", "workspace-write"]);
                invocation.args(self.writable_dir_flags(request.git_directories));
            }
        }
        invocation.model(request, &flags, &["-m", "--model"]);
        invocation.args(&flags);
        if invocation.prompt_via == PromptVia::Stdin {
            invocation.arg("-");
        }
        invocation.prompt_after_dashes(request);
        invocation
    }

    fn writable_dir_flags(&self, directories: &[PathBuf]) -> Vec<OsString> {
        directories.iter().flat_map(|path| ["--add-dir".into(), path.into()]).collect()
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        if structured {
            Box::new(StructuredReader::new(CodexParser::default(), explain_failure))
        } else {
            Box::new(PlainReader::with_answer_file(explain_failure))
        }
    }
}

/// The variables in `env_key = "NAME"` of `config.toml`.
fn key_variables(config: &str) -> Vec<String> {
    let values = config.lines().filter_map(|line| {
        let value =
            line.trim().strip_prefix("env_key")?.trim_start().strip_prefix('=')?.trim_start();
        let (value, _) = value.strip_prefix('"')?.split_once('"')?;
        Some(value.to_owned())
    });
    values.collect()
}

const SANDBOX_FLAGS: [&str; 4] =
    ["-s", "--sandbox", "--dangerously-bypass-approvals-and-sandbox", "--yolo"];

#[derive(Debug, Default)]
struct CodexParser {
    tools: ToolTracker,
    todo: Vec<TodoItem>,
}

impl LineParser for CodexParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Ok(line) = serde_json::from_slice::<CodexLine<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        match &*line.kind {
            "thread.started" => {
                emit(Event::Session { id: line.thread_id.map(|id| id.0), model: None })
            }
            "turn.started" => {}
            "item.started" | "item.updated" | "item.completed" => {
                let Some(item) = line.item else {
                    return LineOutcome::Unknown;
                };
                return LineOutcome::parsed_if(self.item(&line.kind, &item, emit));
            }
            "error" => emit_notice(&line.message.unwrap_or_default().text(), emit),
            "turn.completed" => {
                let usage = line.usage.map(read_inclusive_usage);
                emit(Event::Result { failure: None, usage, turns: None });
                return LineOutcome::Result;
            }
            "turn.failed" => {
                let message = line.error.unwrap_or_default().member("message").text();
                let failure = Some(turn_failure(&message, &Zoned::now()));
                emit(Event::Result { failure, usage: None, turns: None });
                return LineOutcome::Result;
            }
            _ => return LineOutcome::Unknown,
        }
        LineOutcome::Parsed
    }
}

impl CodexParser {
    fn item(&mut self, event: &str, item: &ThreadItem<'_>, emit: &mut Emit<'_>) -> bool {
        let completed = event == "item.completed";
        match &*item.kind {
            "agent_message" | "reasoning" if !completed => {}
            "agent_message" => emit_text(item.text.unwrap_or_default().text(), false, emit),
            "reasoning" => emit_thinking(item.text.unwrap_or_default().text(), false, emit),
            "todo_list" => self.todo(item, emit),
            "error" => emit_notice(&item.message.unwrap_or_default().text(), emit),
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search"
            | "collab_tool_call" => match event {
                "item.started" => self.started(item, emit),
                "item.completed" => self.ended(item, emit),
                // Partial output, repeated at the end.
                _ => {}
            },
            _ => return false,
        }
        true
    }

    fn todo(&mut self, item: &ThreadItem<'_>, emit: &mut Emit<'_>) {
        #[derive(Deserialize)]
        struct CodexTodo<'a> {
            #[serde(borrow)]
            text: RawText<'a>,
            completed: Option<bool>,
        }
        let entries: Vec<CodexTodo<'_>> = lenient(item.items);
        let items: Vec<TodoItem> = entries
            .iter()
            .map(|entry| TodoItem {
                text: entry.text.text().into_owned(),
                status: match entry.completed {
                    Some(true) => TodoStatus::Completed,
                    _ => TodoStatus::Pending,
                },
            })
            .collect();
        // Repeated at the end of a turn.
        if items != self.todo {
            self.todo.clone_from(&items);
            emit(Event::Todo { items });
        }
    }

    fn started(&mut self, item: &ThreadItem<'_>, emit: &mut Emit<'_>) {
        self.tools.start(item.id(), &item.name(), item.summary(), None, false, emit);
    }

    fn ended(&mut self, item: &ThreadItem<'_>, emit: &mut Emit<'_>) {
        // An item may end without a start.
        if !self.tools.is_running(item.id()) {
            self.started(item, emit);
        }
        let status = item.status.as_deref().unwrap_or_default();
        let denied = status == "declined";
        let failed = denied || status == "failed" || item.exit_code.unwrap_or(0) != 0;
        let (size, preview) = item.output();
        self.tools.end(item.id(), ToolEnd { failed, denied, size, preview }, false, emit);
    }
}

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    for line in output.stderr.lines() {
        if line.starts_with("error: ") {
            return Some(start_failure("codex", line, "codex exec --help"));
        }
        if line.contains("--skip-git-repo-check was not specified") {
            return Some(failure(
                FailureKind::Usage,
                format!(
                    "codex would not start: {line} (run ralph inside a git repository, or add --skip-git-repo-check to \"agent\": {{\"flags\"}})"
                ),
            ));
        }
        if line.contains("Not logged in") {
            return Some(failure(
                FailureKind::Credentials,
                "codex is not logged in: run `codex login`, or set OPENAI_API_KEY",
            ));
        }
        if let Some(message) = line.strip_prefix("ERROR: ") {
            let failure = turn_failure(message, &Zoned::now());
            if failure.kind != FailureKind::Other {
                return Some(failure);
            }
        }
    }
    None
}

fn turn_failure(message: &str, now: &Zoned) -> Failure {
    // By precedence: usage limits have status 429, too.
    const PHRASES: [(&str, FailureKind); 15] = [
        ("hit your usage limit", FailureKind::RateLimit),
        ("usage limit", FailureKind::RateLimit),
        ("429 too many requests", FailureKind::RateLimit),
        ("rate limit", FailureKind::RateLimit),
        ("quota exceeded", FailureKind::RateLimit),
        ("at capacity", FailureKind::Overloaded),
        ("overloaded", FailureKind::Overloaded),
        ("high demand", FailureKind::Overloaded),
        ("503 service unavailable", FailureKind::Overloaded),
        ("401 unauthorized", FailureKind::Credentials),
        ("403 forbidden", FailureKind::Credentials),
        ("not logged in", FailureKind::Credentials),
        ("sign in again", FailureKind::Credentials),
        ("context window", FailureKind::Context),
        ("context_length_exceeded", FailureKind::Context),
    ];
    let lower = message.to_lowercase();
    let kind = PHRASES
        .iter()
        .find(|(phrase, _)| lower.contains(phrase))
        .map_or(FailureKind::Other, |(_, kind)| *kind);
    Failure {
        kind,
        message: if message.is_empty() {
            "the turn failed, and codex did not say why".to_owned()
        } else {
            message.to_owned()
        },
        resets_at: (kind == FailureKind::RateLimit)
            .then(|| reset::codex_reset(message, now))
            .flatten(),
    }
}

#[derive(Deserialize)]
struct CodexLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: ShortStr<'a>,
    thread_id: Option<ShortStr<'a>>,
    item: Option<ThreadItem<'a>>,
    usage: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
    message: Option<RawText<'a>>,
}

#[derive(Deserialize)]
struct ThreadItem<'a> {
    #[serde(borrow)]
    id: Option<ShortStr<'a>>,
    #[serde(rename = "type")]
    kind: ShortStr<'a>,
    status: Option<ShortStr<'a>>,
    text: Option<RawText<'a>>,
    message: Option<RawText<'a>>,
    command: Option<RawText<'a>>,
    aggregated_output: Option<RawText<'a>>,
    exit_code: Option<i64>,
    changes: Option<RawJson<'a>>,
    items: Option<RawJson<'a>>,
    query: Option<RawText<'a>>,
    server: Option<ShortStr<'a>>,
    tool: Option<ShortStr<'a>>,
    arguments: Option<RawJson<'a>>,
    result: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
}

impl ThreadItem<'_> {
    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    fn name(&self) -> Cow<'_, str> {
        match (&*self.kind, &self.server, &self.tool) {
            ("command_execution", ..) => "Shell".into(),
            ("file_change", ..) => "Edit".into(),
            ("web_search", ..) => "WebSearch".into(),
            (_, Some(server), Some(tool)) => format!("{}.{}", &**server, &**tool).into(),
            (_, None, Some(tool)) => (**tool).into(),
            (kind, ..) => kind.into(),
        }
    }

    fn summary(&self) -> String {
        #[derive(Deserialize)]
        struct FileChange<'a> {
            #[serde(borrow)]
            path: RawText<'a>,
        }
        if let Some(command) = self.command {
            return one_line(&unwrap_shell(&command.text()));
        }
        if let Some(query) = self.query {
            return one_line(&query.text());
        }
        if self.changes.is_some() {
            let changes: Vec<FileChange<'_>> = lenient(self.changes);
            let paths: Vec<_> = changes.iter().map(|change| change.path.text()).collect();
            return one_line(&paths.join(", "));
        }
        key_values(self.arguments)
    }

    fn output(&self) -> (TextSize, Cow<'_, str>) {
        let error = self.error.unwrap_or_default().member("message").as_text();
        match self.aggregated_output.or(error) {
            Some(text) => (text.size(), text.prefix(PREVIEW_CHARS)),
            None => tool_output(self.result),
        }
    }
}

/// `/bin/bash -lc 'echo hi'` becomes `echo hi`.
fn unwrap_shell(command: &str) -> Cow<'_, str> {
    let Ok(words) = shell_words::split(command) else {
        return Cow::Borrowed(command);
    };
    match <[String; 3]>::try_from(words) {
        Ok([shell, flag, script])
            if ["bash", "sh", "zsh"].iter().any(|name| {
                shell == *name || shell.strip_suffix(name).is_some_and(|dir| dir.ends_with('/'))
            }) && ["-lc", "-c"].contains(&flag.as_str()) =>
        {
            Cow::Owned(script)
        }
        _ => Cow::Borrowed(command),
    }
}
