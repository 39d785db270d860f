//! Errors for people: what failed, why, and what to do.
//!
//! The [`ErrorKind`] decides the exit code.

use std::fmt;

use crate::exit_code;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Unknown or contradictory arguments.
    Usage,
    /// Invalid settings.
    Config,
    /// Other invalid input: a prompt, a plan, the directory.
    Input,
    /// A valid request failed.
    Failed,
    /// A budget or stall detection ended the run.
    Budget,
    /// The agent kept failing, or its credentials were refused.
    Agent,
    /// The work is complete, but an SCM task failed.
    Scm,
    /// A person, a signal or the end of input.
    Interrupted,
}

impl ErrorKind {
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Failed => exit_code::INCOMPLETE,
            ErrorKind::Usage | ErrorKind::Config | ErrorKind::Input => exit_code::USAGE,
            ErrorKind::Budget => exit_code::BUDGET,
            ErrorKind::Agent => exit_code::AGENT_FAILED,
            ErrorKind::Scm => exit_code::SCM_FAILED,
            ErrorKind::Interrupted => exit_code::INTERRUPTED,
        }
    }
}

/// `Display` prints the message after `error: `, then the hints. A line that starts with a space continues the
/// line above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
    pub hints: Vec<String>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hints: Vec::new() }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Usage, message)
    }

    pub fn config(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Config, message)
    }

    pub fn input(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Input, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Failed, message)
    }

    /// Adds a hint, once.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
        self
    }

    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// The message and its hints as lines, with `prefix` before each `error: `.
    pub fn with_prefix(&self, prefix: &str) -> String {
        let problems = self.message.lines().map(|line| match line.starts_with(' ') {
            true => line.to_owned(),
            false => format!("{prefix}error: {line}"),
        });
        let hints = self.hints.iter().map(|hint| format!("hint: {hint}"));
        problems.chain(hints).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_prefix(""))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_message_prefixes_every_problem_and_hints_once() {
        let error = Error::config("a.json: x\n  1 | {\na.json: y")
            .hint("do this")
            .hint("do this")
            .hint("or that");
        assert_eq!(
            error.to_string(),
            "error: a.json: x\n  1 | {\nerror: a.json: y\nhint: do this\nhint: or that"
        );
    }

    #[test]
    fn error_kind_decides_exit_code() {
        for (kind, code) in [
            (ErrorKind::Failed, 1),
            (ErrorKind::Usage, 2),
            (ErrorKind::Config, 2),
            (ErrorKind::Input, 2),
            (ErrorKind::Budget, 3),
            (ErrorKind::Agent, 4),
            (ErrorKind::Scm, 5),
            (ErrorKind::Interrupted, 130),
        ] {
            assert_eq!(Error::new(kind, "").exit_code(), code, "{kind:?}");
        }
    }
}
