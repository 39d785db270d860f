//! What ralph knows of each agent: how to start it, and how its output becomes events.
//!
//! An adapter is one file. [`Adapter`] says how a program is started, [`Reader`] turns the lines of
//! one process into [`Event`]s. A reader is made anew for each process and is told everything in
//! order: lines of both streams, then the end.

mod amp;
mod api;
mod claude;
mod cline;
mod codex;
mod copilot;
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
mod tools;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ralph_events::event::{Event, Exit, Failure, FailureKind, Purpose};
use ralph_events::line_splitter::Line;

pub use filter::{InvalidExpression, ResponseFilter};
pub use profile::{AgentProfile, Recording};

/// Every adapter. A new agent is a new file and a line here; the last one takes whatever is left.
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

/// The adapters in the order in which people are told of them.
pub fn all() -> &'static [&'static dyn Adapter] {
    &ADAPTERS
}

/// The adapter that `agent.type` names.
pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// The adapter for a program, by the last part of its path; `text` for one that is not known.
pub fn for_command(program: &str) -> &'static dyn Adapter {
    Path::new(program)
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(by_name)
        .unwrap_or(&text::TextAdapter)
}

/// The profile of the adapter with this name; that of plain text if there is none.
pub fn profile_of(name: &str) -> &'static AgentProfile {
    by_name(name).unwrap_or(&text::TextAdapter).profile()
}

/// What is wanted of an agent.
#[derive(Debug, Clone)]
pub struct AgentRequest<'a> {
    /// The program to run: a name on the PATH or a path.
    pub program: &'a str,
    /// The user's own flags, already split into single arguments.
    pub flags: &'a [String],
    pub model: Option<&'a str>,
    pub purpose: Purpose,
    /// Ask for a machine-readable stream rather than plain text.
    pub stream: bool,
    /// Switch the agent's own approval prompts off.
    pub autonomous: bool,
    /// The agent runs inside a sandbox of ours, so that it needs none of its own.
    pub sandboxed: bool,
    /// Where git writes when the agent commits, as absolute paths.
    pub git_directories: &'a [PathBuf],
    pub prompt_via: Option<PromptVia>,
    pub prompt: &'a str,
    /// Where the prompt is written when it goes by file.
    pub prompt_file: &'a Path,
    /// Where an agent may be told to leave what it does not print: its answer, its account.
    pub side_file: &'a Path,
}

/// How a prompt reaches the agent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PromptVia {
    Stdin,
    Argument,
    File,
}

/// How to start an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInvocation {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// How the prompt goes in. With `Argument` and `File` it, or its file, is among `args` already.
    pub prompt_via: PromptVia,
    /// The output is a machine-readable stream.
    pub structured: bool,
    /// A file that the agent leaves for its reader; see [`Reader::side_file`].
    pub side_file: Option<PathBuf>,
    /// Variables that the agent needs beyond the user's own.
    pub env: Vec<(&'static str, String)>,
}

impl AgentInvocation {
    /// An invocation with nothing in it but what the user wrote: `args` are all arguments.
    pub fn verbatim(request: &AgentRequest<'_>, args: &[String]) -> Self {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.args(args);
        match invocation.prompt_via {
            PromptVia::Stdin => {}
            PromptVia::Argument => invocation.arg(request.prompt),
            PromptVia::File => invocation.arg(request.prompt_file),
        }
        invocation
    }

    /// An invocation as a person would type it, with the agent's `own` flags for working without anybody
    /// to ask; `args`, if given, are all arguments. The prompt is typed.
    pub fn for_terminal(
        request: &AgentRequest<'_>,
        own: &[OsString],
        args: Option<&[String]>,
    ) -> Self {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.prompt_via = PromptVia::Stdin;
        invocation.structured = false;
        match args {
            Some(args) => invocation.args(args),
            None => {
                let options: Vec<&str> = own
                    .iter()
                    .filter_map(|word| word.to_str().filter(|word| word.starts_with('-')))
                    .collect();
                if request.autonomous && !has_option(request.flags, &options) {
                    invocation.args(own);
                }
                invocation.model(request, request.flags, &["-m", "--model"]);
                invocation.args(request.flags);
            }
        }
        invocation
    }

    /// The beginning of an invocation: nothing but the program, and the prompt by `usual` unless the
    /// user chose another way.
    fn new(request: &AgentRequest<'_>, usual: PromptVia) -> Self {
        AgentInvocation {
            program: request.program.into(),
            args: Vec::new(),
            prompt_via: request.prompt_via.unwrap_or(usual),
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

    /// Asks for the model that is wanted, unless one of `names` among the user's flags does already.
    fn model(&mut self, request: &AgentRequest<'_>, flags: &[String], names: &[&str]) {
        if let Some(model) = request.model
            && !has_option(flags, names)
        {
            self.args(["--model", model]);
        }
    }

    /// The prompt as an argument, if it goes that way. None of the agents that this is for reads a
    /// prompt from a file by itself, so that it is told to.
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

    /// The same as one option, for programs that take a prompt beginning with a dash in no other way.
    fn prompt_as_option(&mut self, request: &AgentRequest<'_>) {
        if let Some(prompt) = self.prompt_argument(request) {
            self.arg(format!("--prompt={prompt}"));
        }
    }

    /// Ends the arguments with the prompt, if it goes that way. After `--`, a prompt may begin with
    /// a dash, and a flag that takes any number of values cannot swallow it.
    fn prompt_after_dashes(&mut self, request: &AgentRequest<'_>) {
        match self.prompt_via {
            PromptVia::Stdin => {}
            PromptVia::Argument => self.args(["--", request.prompt]),
            PromptVia::File => {
                self.arg("--");
                self.arg(request.prompt_file);
            }
        }
    }
}

/// Whether the user's flags set one of `options`, as `--name`, `--name=value` or, for a short one,
/// `-nvalue`.
fn has_option(flags: &[String], options: &[&str]) -> bool {
    flags.iter().any(|flag| {
        options.iter().any(|option| {
            flag.strip_prefix(option).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('=') || !option.starts_with("--")
            })
        })
    })
}

/// The last words on a stream, for when they are the only explanation of a failure.
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

/// Says what to do about credentials that were refused; waiting does not mend them.
fn with_credentials_hint(mut failure: Failure, remedy: &str) -> Failure {
    if failure.kind == FailureKind::Credentials {
        failure.message = format!("{} ({remedy})", failure.message.trim_end());
    }
    failure
}

/// How much of a tool's output an event carries.
pub const PREVIEW_CHARS: usize = 2000;

/// How much of a tool's input, or of a notice, an event carries.
pub const SUMMARY_CHARS: usize = 200;

/// A text in one line, at most [`SUMMARY_CHARS`] long.
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

/// Takes the events of one agent process.
pub type Emit<'e> = dyn FnMut(Event<'_>) + 'e;

/// Turns the output of one agent process into events. Nothing is dropped: what is not understood
/// becomes [`Event::Output`].
pub trait OutputReader {
    /// The longest line to be held in memory; a longer one arrives in pieces.
    fn max_line(&self) -> usize;
    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    /// The content of the side file, if the invocation named one and the agent wrote it.
    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>);
    /// Whether a tool may be running of which the stream tells nothing before its end.
    fn may_run_tool(&self) -> bool {
        false
    }
    /// No line that was printed so far belongs to the stream that the agent is known for.
    fn is_unrecognized(&self) -> bool {
        false
    }
    /// The process is gone. The last chance to say what its output meant.
    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>);
}

/// Reads plain text of which nothing else is known.
pub fn plain_text_reader() -> Box<dyn OutputReader> {
    text::TextAdapter.reader(false)
}

/// The files that [`Adapter::guarded`] needs.
pub trait HookFileAccess {
    /// The content of a file that a flag names.
    fn read(&self, path: &Path) -> Option<String>;
    /// Puts a text that nobody else is to see where the agent can read it, and tells the path.
    fn write(&self, text: &str) -> Option<String>;
}

/// One kind of agent: how it is started, and how its output is read.
pub trait Adapter: std::fmt::Debug + Sync {
    fn profile(&self) -> &'static AgentProfile;
    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation;
    /// Flags that make the agent's own sandbox allow writes to these directories, too.
    fn writable_dir_flags(&self, _directories: &[PathBuf]) -> Vec<OsString> {
        Vec::new()
    }
    /// `structured` is [`AgentInvocation::structured`].
    fn reader(&self, structured: bool) -> Box<dyn OutputReader>;
    /// Adds to the user's flags what makes the agent ask `hook`, a command line, before it uses a tool.
    /// `None` if the agent has no such hook, or if it would not start with these flags anyway.
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
    /// The adapter's name, as in `agent.type`.
    pub fn name(&self) -> &'static str {
        self.profile().name
    }

    pub fn install_command(&self) -> &'static str {
        self.profile().install_command
    }

    /// The version whose streams are recorded and which the tests run.
    pub fn recorded_version(&self) -> Option<&'static str> {
        match self.profile().recording {
            Recording::Version { version, .. } => Some(version),
            Recording::Missing { .. } => None,
        }
    }

    /// Flags that turn off approval prompts in an interactive session.
    pub fn interactive_autonomous_flags(&self) -> &'static [&'static str] {
        self.profile().interactive_autonomous_flags
    }

    /// A text event may continue in the next one, in the middle of a line.
    pub fn streams_text(&self) -> bool {
        self.profile().streams_text
    }

    /// A cost budget can rely on the stream.
    pub fn reports_cost(&self) -> bool {
        self.profile().cost_is_verified
    }

    pub fn reports_tokens(&self) -> bool {
        self.profile().tokens.is_some()
    }

    /// Confines itself to the project when it runs outside a sandbox of ralph's.
    pub fn sandboxes_itself(&self) -> bool {
        self.profile().sandboxes_itself
    }
}

#[cfg(test)]
mod tests;
