//! Adapters for coding agents: command line, output as events, and a profile of plain facts.
//!
//! Starts no process and opens no file. Must not know settings, sandboxes or runs; they read an
//! [`AgentProfile`] or call an [`Adapter`].

#![forbid(unsafe_code)]

mod amp;
mod api;
mod claude;
mod cline;
mod codex;
mod copilot;
mod edit;
pub mod filter;
mod gemini;
pub mod json;
mod messages;
mod opencode;
pub mod profile;
mod qwen;
mod reset;
mod structured;
mod text;
mod todo;
mod tools;
mod usage;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ralph_events::event::{Event, Exit, Failure, FailureKind, Purpose};
use ralph_events::line_splitter::Line;

pub use filter::{InvalidExpression, ResponseFilter};
pub use profile::{AgentProfile, Recording};

/// All adapters. The last one takes every unknown program.
static ADAPTERS: [&dyn Adapter; 9] = [
    &claude::Claude,
    &codex::Codex,
    &opencode::Opencode,
    &gemini::Gemini,
    &copilot::Copilot,
    &cline::Cline,
    &qwen::Qwen,
    &amp::Amp,
    &text::TextAdapter,
];

pub fn all() -> &'static [&'static dyn Adapter] {
    &ADAPTERS
}

pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// Returns the adapter for a program by its file name, or the one for plain text.
pub fn for_command(program: &str) -> &'static dyn Adapter {
    Path::new(program)
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(by_name)
        .unwrap_or(&text::TextAdapter)
}

/// Returns the profile of the named adapter, or the one for plain text.
pub fn profile_of(name: &str) -> &'static AgentProfile {
    by_name(name).unwrap_or(&text::TextAdapter).profile()
}

#[derive(Debug, Clone)]
pub struct AgentRequest<'a> {
    /// A name on the `PATH`, or a path.
    pub program: &'a str,
    /// The user's flags, already split into arguments.
    pub flags: &'a [String],
    pub model: Option<&'a str>,
    pub purpose: Purpose,
    pub stream: bool,
    /// Turn off approval prompts.
    pub autonomous: bool,
    /// Runs in a sandbox of ralph's, so the agent needs none of its own.
    pub sandboxed: bool,
    /// Absolute paths that git writes for a commit.
    pub git_directories: &'a [PathBuf],
    pub prompt_via: Option<PromptVia>,
    pub prompt: &'a str,
    pub prompt_file: &'a Path,
    /// A file for an answer or usage that the agent does not print.
    pub side_file: &'a Path,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PromptVia {
    Stdin,
    Argument,
    File,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInvocation {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// `args` already contain the prompt or its path, unless this is `Stdin`.
    pub prompt_via: PromptVia,
    pub structured: bool,
    /// See [`OutputReader::side_file`].
    pub side_file: Option<PathBuf>,
    pub env: Vec<(&'static str, String)>,
}

impl AgentInvocation {
    /// An invocation with only the user's arguments.
    pub fn verbatim(request: &AgentRequest<'_>, args: &[String]) -> Self {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.args(args);
        invocation.args(invocation.prompt_word(request));
        invocation
    }

    /// An interactive invocation, whose prompt is typed later. `args` replace all arguments.
    pub fn for_terminal(
        request: &AgentRequest<'_>,
        autonomous_flags: &[OsString],
        args: Option<&[String]>,
    ) -> Self {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.prompt_via = PromptVia::Stdin;
        invocation.structured = false;
        match args {
            Some(args) => invocation.args(args),
            None => {
                let options: Vec<&str> = autonomous_flags
                    .iter()
                    .filter_map(|word| word.to_str().filter(|word| word.starts_with('-')))
                    .collect();
                if request.autonomous && !has_option(request.flags, &options) {
                    invocation.args(autonomous_flags);
                }
                invocation.model(request, request.flags, &["-m", "--model"]);
                invocation.args(request.flags);
            }
        }
        invocation
    }

    fn new(request: &AgentRequest<'_>, default_via: PromptVia) -> Self {
        AgentInvocation {
            program: request.program.into(),
            args: Vec::new(),
            prompt_via: request.prompt_via.unwrap_or(default_via),
            structured: request.stream,
            side_file: None,
            env: Vec::new(),
        }
    }

    fn arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    fn args<T: Into<OsString>>(&mut self, args: impl IntoIterator<Item = T>) {
        self.args.extend(args.into_iter().map(Into::into));
    }

    /// Adds `words`, unless the user's flags set one of these options.
    fn default_args(&mut self, flags: &[String], options: &[&str], words: &[&str]) {
        if !has_option(flags, options) {
            self.args(words);
        }
    }

    /// Adds the requested model, unless a flag in `names` already selects one.
    fn model(&mut self, request: &AgentRequest<'_>, flags: &[String], names: &[&str]) {
        if let Some(model) = request.model {
            self.default_args(flags, names, &["--model", model]);
        }
    }

    /// The prompt as an argument. These agents cannot read a prompt file, so the argument tells the
    /// model to.
    fn prompt_argument<'a>(&self, request: &AgentRequest<'a>) -> Option<Cow<'a, str>> {
        match self.prompt_via {
            PromptVia::Stdin => None,
            PromptVia::Argument => Some(request.prompt.into()),
            PromptVia::File => {
                let file = request.prompt_file.display();
                Some(format!("Read the file {file} and follow the instructions in it.").into())
            }
        }
    }

    /// Adds the prompt as one word with its option, because it may start with a dash.
    fn prompt_as_option(&mut self, request: &AgentRequest<'_>) {
        if let Some(prompt) = self.prompt_argument(request) {
            self.arg(format!("--prompt={prompt}"));
        }
    }

    /// Appends the prompt after `--`, where it may start with a dash and no variadic flag swallows
    /// it.
    fn prompt_after_dashes(&mut self, request: &AgentRequest<'_>) {
        if let Some(prompt) = self.prompt_word(request) {
            self.args(["--".into(), prompt]);
        }
    }

    /// The prompt, or the path of its file.
    fn prompt_word(&self, request: &AgentRequest<'_>) -> Option<OsString> {
        match self.prompt_via {
            PromptVia::Stdin => None,
            PromptVia::Argument => Some(request.prompt.into()),
            PromptVia::File => Some(request.prompt_file.into()),
        }
    }
}

/// Whether the flags set an option, as `--name`, `--name=value` or `-nvalue`.
fn has_option(flags: &[String], options: &[&str]) -> bool {
    flags.iter().any(|flag| {
        options.iter().any(|option| {
            flag.strip_prefix(option).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('=') || !option.starts_with("--")
            })
        })
    })
}

/// The end of a stream, kept to explain a failure.
#[derive(Debug, Default)]
struct OutputTail(String);

impl OutputTail {
    const MAX: usize = 8 * 1024;

    fn push(&mut self, line: &str) {
        let line = &line[line.ceil_char_boundary(line.len().saturating_sub(Self::MAX))..];
        if self.0.len() + line.len() > 2 * Self::MAX {
            let from = self.0.len().saturating_sub(Self::MAX);
            self.0.drain(..self.0.ceil_char_boundary(from));
        }
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn text(&self) -> &str {
        &self.0
    }
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into(), resets_at: None }
}

/// `help` is the command that lists the agent's flags.
fn start_failure(agent: &str, message: &str, help: &str) -> Failure {
    let message = format!(
        "{agent} did not start: {message} (check \"agent\": {{\"flags\"}} in the settings, and \
         {help})"
    );
    failure(FailureKind::Usage, message)
}

fn with_credentials_hint(mut failure: Failure, remedy: &str) -> Failure {
    if failure.kind == FailureKind::Credentials {
        failure.message = format!("{} ({remedy})", failure.message.trim_end());
    }
    failure
}

/// Limit for tool output in an event.
pub const PREVIEW_CHARS: usize = 2000;

/// Limit for tool input and notices.
pub const SUMMARY_CHARS: usize = 200;

fn one_line(text: &str) -> String {
    let mut out = String::new();
    for (nth, character) in text.trim().chars().enumerate() {
        if nth == SUMMARY_CHARS {
            out.pop();
            out.push('…');
            break;
        }
        out.push(if character.is_control() { ' ' } else { character });
    }
    out
}

pub type Emit<'e> = dyn FnMut(Event<'_>) + 'e;

fn emit_text(text: Cow<'_, str>, subagent: bool, emit: &mut Emit<'_>) {
    if !text.is_empty() {
        emit(Event::Text { text, joined: false, subagent });
    }
}

fn emit_thinking(text: Cow<'_, str>, subagent: bool, emit: &mut Emit<'_>) {
    if !text.is_empty() {
        emit(Event::Thinking { text, joined: false, subagent });
    }
}

fn emit_notice(text: &str, emit: &mut Emit<'_>) {
    emit(Event::Notice { text: one_line(text).into() });
}

/// Turns the output of one process into events. Unknown lines become [`Event::Output`].
pub trait OutputReader {
    /// Longer lines arrive in pieces.
    fn max_line(&self) -> usize;
    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>);
    /// Whether a tool may be running that the stream reports only when it ends.
    fn may_run_tool(&self) -> bool {
        false
    }
    /// Whether no line so far matches the stream's format.
    fn is_unrecognized(&self) -> bool {
        false
    }
    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>);
}

pub fn plain_text_reader() -> Box<dyn OutputReader> {
    text::TextAdapter.reader(false)
}

/// File access for [`Adapter::with_hook`].
pub trait HookFileAccess {
    fn read(&self, path: &Path) -> Option<String>;
    /// Writes a private file for the agent and returns its path.
    fn write(&self, text: &str) -> Option<String>;
}

pub trait Adapter: std::fmt::Debug + Sync {
    fn profile(&self) -> &'static AgentProfile;
    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation;
    /// Flags that let the agent's own sandbox write to these directories, too.
    fn writable_dir_flags(&self, _directories: &[PathBuf]) -> Vec<OsString> {
        Vec::new()
    }
    /// Flags that set variables where its environment is not ralph's to set.
    fn env_flags(&self, _variables: &[(&str, &str)]) -> Vec<OsString> {
        Vec::new()
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader>;
    /// Adds flags that make the agent call `hook` before each tool. Returns `None` if it cannot, or
    /// would not start with these flags anyway.
    fn with_hook(
        &self,
        _flags: &[String],
        _hook: &[&str],
        _files: &dyn HookFileAccess,
    ) -> Option<Vec<String>> {
        None
    }
}

impl dyn Adapter {
    pub fn name(&self) -> &'static str {
        self.profile().name
    }

    pub fn recorded_version(&self) -> Option<&'static str> {
        match self.profile().recording {
            Recording::Version { version, .. } => Some(version),
            Recording::Missing { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
