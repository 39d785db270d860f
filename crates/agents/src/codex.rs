//! Codex: `codex exec --json`.
//!
//! It reports neither model nor cost. An `error` line is a retry; only `turn.failed` is a failure.
//! The usage of a turn covers the whole thread so far.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

use jiff::Zoned;

use super::structured::{LineOutcome, LineParser, StructuredReader};
use super::text::{LastOutput, PlainReader};
use super::tools::{ToolCall, ToolEnd, ToolTracker, key_values, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PREVIEW_CHARS, PromptVia, api,
    emit_notice, emit_text, emit_thinking, failure, has_option, one_line, reset, start_failure,
};
use crate::json::{RawJson, RawText, TextSize};
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
            invocation.default_args(&flags, &["--json"], &["--json"]);
        } else {
            invocation.arg("-o");
            invocation.arg(request.side_file);
            invocation.side_file = Some(request.side_file.to_owned());
        }
        // Required outside a git repository.
        invocation.default_args(&flags, &["--skip-git-repo-check"], &["--skip-git-repo-check"]);
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
        let Ok(line) = serde_json::from_slice::<RawJson<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        match &*line.member("type").text() {
            "thread.started" => {
                let id = line.member("thread_id").as_text().map(RawText::text);
                emit(Event::Session { id, model: None });
            }
            "turn.started" => {}
            event @ ("item.started" | "item.updated" | "item.completed") => {
                let item = ThreadItem(line.member("item"));
                return LineOutcome::parsed_if(self.item(event, item, emit));
            }
            "error" => emit_notice(&line.member("message").text(), emit),
            "turn.completed" => {
                let usage = line.member("usage").non_null().map(read_inclusive_usage);
                emit(Event::Result { failure: None, usage, turns: None });
                return LineOutcome::Result;
            }
            "turn.failed" => {
                let message = line.member("error").member("message").text();
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
    fn item(&mut self, event: &str, item: ThreadItem<'_>, emit: &mut Emit<'_>) -> bool {
        let completed = event == "item.completed";
        match &*item.text("type") {
            "agent_message" | "reasoning" if !completed => {}
            "agent_message" => emit_text(item.text("text"), false, emit),
            "reasoning" => emit_thinking(item.text("text"), false, emit),
            "todo_list" => self.todo(item, emit),
            "error" => emit_notice(&item.text("message"), emit),
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

    fn todo(&mut self, item: ThreadItem<'_>, emit: &mut Emit<'_>) {
        let entries = item.0.member("items").elements().into_iter().flatten();
        let items: Vec<TodoItem> = entries
            .map(|entry| TodoItem {
                text: entry.member("text").text().into_owned(),
                status: match entry.member("completed").is_true() {
                    true => TodoStatus::Completed,
                    false => TodoStatus::Pending,
                },
            })
            .collect();
        // Repeated at the end of a turn.
        if items != self.todo {
            self.todo.clone_from(&items);
            emit(Event::Todo { items });
        }
    }

    fn started(&mut self, item: ThreadItem<'_>, emit: &mut Emit<'_>) {
        let name = item.name();
        let call = ToolCall { name: &name, summary: item.summary(), ..ToolCall::default() };
        self.tools.start(&item.text("id"), call, false, emit);
    }

    fn ended(&mut self, item: ThreadItem<'_>, emit: &mut Emit<'_>) {
        let id = item.text("id");
        // An item may end without a start.
        if !self.tools.is_running(&id) {
            self.started(item, emit);
        }
        let status = item.text("status");
        let denied = status == "declined";
        let exit_code = item.0.member("exit_code").as_f64().unwrap_or_default();
        let failed = denied || status == "failed" || exit_code != 0.0;
        let (size, preview) = item.output();
        self.tools.end(&id, ToolEnd { failed, denied, size, preview }, false, emit);
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
                    "codex did not start: {line} (run ralph inside a git repository, or add \
                     --skip-git-repo-check to \"agent\": {{\"flags\"}})"
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
    const PHRASES: &[(FailureKind, &str)] = &[
        (FailureKind::RateLimit, "usage limit|429 too many requests|rate limit|quota exceeded"),
        (FailureKind::Overloaded, "at capacity|overloaded|high demand|503 service unavailable"),
        (FailureKind::Credentials, "401 unauthorized|403 forbidden|not logged in|sign in again"),
        (FailureKind::Context, "context window|context_length_exceeded"),
    ];
    let kind = api::kind_by_phrase(PHRASES, &message.to_lowercase());
    let kind = kind.unwrap_or(FailureKind::Other);
    Failure {
        kind,
        message: if message.is_empty() {
            "the turn failed, and codex gave no reason".to_owned()
        } else {
            message.to_owned()
        },
        resets_at: (kind == FailureKind::RateLimit)
            .then(|| reset::codex_reset(message, now))
            .flatten(),
    }
}

#[derive(Clone, Copy)]
struct ThreadItem<'a>(RawJson<'a>);

impl<'a> ThreadItem<'a> {
    fn text(self, name: &str) -> Cow<'a, str> {
        self.0.member(name).text()
    }

    fn name(self) -> Cow<'a, str> {
        let (kind, server, tool) = (self.text("type"), self.text("server"), self.text("tool"));
        match (&*kind, &*server, &*tool) {
            ("command_execution", ..) => "Shell".into(),
            ("file_change", ..) => "Edit".into(),
            ("web_search", ..) => "WebSearch".into(),
            (_, _, "") => kind,
            (_, "", _) => tool,
            (_, server, tool) => format!("{server}.{tool}").into(),
        }
    }

    fn summary(self) -> String {
        if let Some(command) = self.0.member("command").as_text() {
            return one_line(&unwrap_shell(&command.text()));
        }
        if let Some(query) = self.0.member("query").as_text() {
            return one_line(&query.text());
        }
        if let Some(changes) = self.0.member("changes").non_null() {
            let changes = changes.elements().into_iter().flatten();
            let paths: Vec<_> = changes.map(|change| change.member("path").text()).collect();
            return one_line(&paths.join(", "));
        }
        key_values(self.0.member("arguments"))
    }

    fn output(self) -> (TextSize, Cow<'a, str>) {
        let error = self.0.member("error").member("message").as_text();
        match self.0.member("aggregated_output").as_text().or(error) {
            Some(text) => (text.size(), text.prefix(PREVIEW_CHARS)),
            None => tool_output(self.0.member("result")),
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
