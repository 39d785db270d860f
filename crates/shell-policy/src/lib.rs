//! The blocklist: what an agent's tool call is about to do, and whether it may.
//!
//! A pure decision over plain data. What it needs of the world (where the project is, how links
//! resolve, which variables are set) comes in with a [`Context`]; what it thinks of a
//! [`ToolCall`] goes out as a [`Verdict`].
//!
//! It is a seat belt, not a sandbox: it reads the command that is about to run and cannot see what
//! the programs in it do.

mod allow;
mod awk;
mod bombs;
mod braces;
mod code;
mod container;
mod data;
mod decode;
mod expand;
mod family;
mod find;
mod git;
mod known_output;
mod links;
mod message;
mod nested_commands;
mod powershell;
mod redirects;
mod rules;
mod run;
mod sed;
mod shell;
mod state;
mod tool;
mod value;
mod variables;
mod walk;
mod wrappers;
mod xargs;

use std::fmt;
use std::path::{Component, Path, PathBuf};

pub use allow::{CommandAllowList, InvalidAllowEntry};
pub use family::{Family, Tier};
pub use tool::{ToolCall, is_file_hint, is_known_input, parse_tool_calls};

/// What the decision needs to know of the world.
pub struct Context<'a> {
    /// The root of the project: absolute, links resolved.
    pub project: &'a Path,
    /// Where the tool runs: absolute.
    pub cwd: &'a Path,
    pub home: Option<&'a Path>,
    /// What the project lets through (`hooks.allow`).
    pub allow: &'a CommandAllowList,
    /// Where an absolute path leads, links followed as far as it exists; the rest of the path, which
    /// may not exist yet, is kept. It may hold `..`, which counts from where a link leads.
    /// `None` if that cannot be told. [`lexical`] follows no links.
    pub resolve: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// The value of an environment variable of the tool's process, if it is known.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("project", &self.project)
            .field("cwd", &self.cwd)
            .field("home", &self.home)
            .field("allow", &self.allow)
            .finish_non_exhaustive()
    }
}

/// Takes `.` and `..` out of an absolute path without looking at any file.
pub fn normalize_path(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(out)
}

/// What a rule has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub family: Family,
    /// What it is about: the command, or the path.
    pub subject: String,
    /// Why it is stopped or noted: a clause, without a full stop.
    pub reason: String,
    /// What to do instead: a clause, without a full stop. Never empty.
    pub suggestion: String,
}

/// What is thought of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Warn(Finding),
    Deny(Finding),
}

impl Verdict {
    pub fn tier(&self) -> Option<Tier> {
        match self {
            Verdict::Allow => None,
            Verdict::Warn(_) => Some(Tier::Warn),
            Verdict::Deny(_) => Some(Tier::Deny),
        }
    }

    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Verdict::Allow => None,
            Verdict::Warn(finding) | Verdict::Deny(finding) => Some(finding),
        }
    }

    /// What to tell the agent (and so the person who reads along): what, why, what instead.
    pub fn message(&self) -> Option<String> {
        let (word, finding, end) = match self {
            Verdict::Allow => return None,
            Verdict::Warn(finding) => ("noted", finding, ""),
            Verdict::Deny(finding) => (
                "blocked",
                finding,
                " If it is meant, a person can allow it by an entry of \"hooks.allow\" in .ralph/settings.json.",
            ),
        };
        let Finding { family, subject, reason, suggestion: instead } = finding;
        Some(format!("ralph {word} `{subject}` ({family}): {reason}. Instead: {instead}.{end}"))
    }

    /// The stricter of the two; the first if they are alike.
    #[must_use]
    pub fn max_severity(self, other: Verdict) -> Verdict {
        if other.tier() > self.tier() { other } else { self }
    }
}

/// Judges one thing that a tool is about to do.
pub fn judge(context: &Context<'_>, call: &ToolCall<'_>) -> Verdict {
    match call {
        ToolCall::Shell(command) => walk::judge(context, command),
        ToolCall::Unreadable(command) => walk::judge_unparsable(context, command),
        ToolCall::Write(path) => judge_path(context, path, rules::FileAccess::Write),
        ToolCall::Read(path) => judge_path(context, path, rules::FileAccess::Read),
        ToolCall::Unknown(reason) => Verdict::Deny(Finding {
            family: Family::Obfuscation,
            subject: "tool call".into(),
            reason: (*reason).into(),
            suggestion: "call the tool with the arguments that it documents".into(),
        }),
    }
}

/// Whether a text is valid for bash. `None` if it has a form that `bash -n` may judge otherwise: one of zsh or of
/// bash 5.3, or one that bash reads only when it runs. Tests compare this with a real bash.
#[doc(hidden)]
pub fn is_valid_bash(command: &str) -> Option<bool> {
    let program = shell::parse(command);
    program.extension.is_none().then_some(program.error.is_none())
}

/// The words of every command that is judged in a command line, or `None` if it cannot be read to its end.
/// Tests compare this with what a real shell runs. [`is_unknown`] tells which characters stand for any text.
#[doc(hidden)]
pub fn trace(context: &Context<'_>, command: &str) -> Option<Vec<Vec<String>>> {
    walk::trace(context, command)
}

/// Whether a character of a traced word stands for text that is not known.
#[doc(hidden)]
pub fn is_placeholder(c: char) -> bool {
    !value::is_known(c.encode_utf8(&mut [0; 4]))
}

fn judge_path(context: &Context<'_>, path: &str, access: rules::FileAccess) -> Verdict {
    let Some(hit) = rules::judge_path(context, path, access) else { return Verdict::Allow };
    let finding = Finding {
        family: hit.family,
        subject: message::excerpt(path),
        reason: hit.reason.into_owned(),
        suggestion: hit.suggestion.into_owned(),
    };
    match hit.tier {
        Tier::Warn => Verdict::Warn(finding),
        Tier::Deny => Verdict::Deny(finding),
    }
}

/// Judges a call of a tool by its name and its input, as Claude Code's hooks are told them.
pub fn judge_tool(context: &Context<'_>, name: &str, input: &serde_json::Value) -> Verdict {
    parse_tool_calls(name, input)
        .iter()
        .fold(Verdict::Allow, |verdict, call| verdict.max_severity(judge(context, call)))
}
