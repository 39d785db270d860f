//! Decides whether an agent's tool call may run: allow, warn or deny.
//!
//! A pure function of a [`ToolCall`] and a [`Context`]: it parses shell commands, follows what they
//! would run, and applies `rules.json` and `rules/`. It must not access files or processes, or know
//! of runs and agents.
//!
//! A seat belt, not a sandbox: it sees the command, not what the programs do.

#![forbid(unsafe_code)]

mod allow;
mod awk;
mod bombs;
mod braces;
mod code;
mod container;
mod data;
mod expand;
mod family;
mod find;
mod git;
mod known_output;
mod links;
mod message;
mod nested_commands;
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
pub use run::shell_quote;
pub use tool::{ToolCall, is_file_hint, is_known_input, parse_tool_calls};

pub struct Context<'a> {
    /// Absolute path, with links resolved.
    pub project: &'a Path,
    /// Absolute path.
    pub cwd: &'a Path,
    pub home: Option<&'a Path>,
    pub allow: &'a CommandAllowList,
    /// Resolves links in an absolute path as far as it exists. The path may contain `..`, relative
    /// to a link's target. `None` if unknown. [`normalize_path`] follows no links.
    pub resolve: &'a dyn Fn(&Path) -> Option<PathBuf>,
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

/// Removes `.` and `..` without file access.
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

/// Why the policy warns or denies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub family: Family,
    pub subject: String,
    /// A clause, without a full stop.
    pub reason: String,
    /// A clause, without a full stop. Never empty.
    pub suggestion: String,
}

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

    pub fn message(&self) -> Option<String> {
        let (word, finding, end) = match self {
            Verdict::Allow => return None,
            Verdict::Warn(finding) => ("warns about", finding, ""),
            Verdict::Deny(finding) => (
                "blocked",
                finding,
                " A user can allow it with \"hooks.allow\" in .ralph/settings.json.",
            ),
        };
        let Finding { family, subject, reason, suggestion } = finding;
        Some(format!("ralph {word} `{subject}` ({family}): {reason}. Instead: {suggestion}.{end}"))
    }

    /// The stricter verdict; the first if both are equal.
    #[must_use]
    pub fn max_severity(self, other: Verdict) -> Verdict {
        if other.tier() > self.tier() { other } else { self }
    }
}

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
            suggestion: "use the tool's documented arguments".into(),
        }),
    }
}

/// Whether bash accepts a text. `None` for syntax that `bash -n` may judge differently: of zsh or
/// bash 5.3, or checked at run time. For tests with a real bash.
#[doc(hidden)]
pub fn is_valid_bash(command: &str) -> Option<bool> {
    let program = shell::parse(command);
    program.extension.is_none().then_some(program.error.is_none())
}

/// The words of every judged command, or `None` after a parse error. For tests with a real shell.
/// [`is_placeholder`] tells which characters stand for unknown text.
#[doc(hidden)]
pub fn trace(context: &Context<'_>, command: &str) -> Option<Vec<Vec<String>>> {
    walk::trace(context, command)
}

#[doc(hidden)]
pub fn is_placeholder(c: char) -> bool {
    !value::is_known(c.encode_utf8(&mut [0; 4]))
}

fn judge_path(context: &Context<'_>, path: &str, access: rules::FileAccess) -> Verdict {
    let hit = rules::judge_path(context, path, access);
    hit.map_or(Verdict::Allow, |hit| hit.verdict(message::excerpt(path)))
}

/// Judges a tool call by name and input, as Claude Code passes them to hooks.
pub fn judge_tool(context: &Context<'_>, name: &str, input: &serde_json::Value) -> Verdict {
    parse_tool_calls(name, input)
        .iter()
        .fold(Verdict::Allow, |verdict, call| verdict.max_severity(judge(context, call)))
}
