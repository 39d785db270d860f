//! What ralph knows of each agent: how to start it, and how its output becomes events.
//!
//! An adapter is one file. [`Adapter`] says how a program is started, [`Reader`] turns the lines of
//! one process into [`Event`]s. A reader is made anew for each process and is told everything in
//! order: lines of both streams, then the end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::core::event::{Event, Exit, Purpose};
use crate::core::lines::Line;

/// What is wanted of an agent.
#[derive(Debug, Clone)]
pub struct Request<'a> {
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
    pub prompt_via: Option<PromptVia>,
    pub prompt: &'a str,
    /// Where the prompt is written when it goes by file.
    pub prompt_file: &'a Path,
    /// Where an agent may be told to leave its answer.
    pub answer_file: &'a Path,
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
pub struct Invocation {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// How the prompt goes in. With `Argument` and `File` it, or its file, is among `args` already.
    pub prompt_via: PromptVia,
    /// The output is a machine-readable stream.
    pub structured: bool,
    /// The answer is in this file when the process has ended.
    pub answer_file: Option<PathBuf>,
    /// Variables that the agent needs beyond the user's own.
    pub env: Vec<(&'static str, String)>,
}

/// Takes the events of one agent process.
pub type Emit<'e> = dyn FnMut(Event<'_>) + 'e;

/// Turns the output of one agent process into events. Nothing is dropped: what is not understood
/// becomes [`Event::Output`].
pub trait Reader {
    /// The longest line to be held in memory; a longer one arrives in pieces.
    fn max_line(&self) -> usize;
    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>);
    /// The content of the answer file, if the invocation named one.
    fn answer(&mut self, text: &str, emit: &mut Emit<'_>);
    /// The process is gone. The last chance to say what its output meant.
    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>);
}

/// What ralph knows of one kind of agent.
pub trait Adapter: std::fmt::Debug + Sync {
    /// The adapter's name, as in `agent.type`.
    fn name(&self) -> &'static str;
    /// How to get the program, for people.
    fn install(&self) -> &'static str;
    fn invocation(&self, request: &Request<'_>) -> Invocation;
    /// `structured` is what the invocation said.
    fn reader(&self, structured: bool) -> Box<dyn Reader>;
}
