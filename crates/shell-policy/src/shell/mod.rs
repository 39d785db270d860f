//! Reads command lines as a shell does: bash first, and what zsh and others do alike.
//!
//! Written for this one purpose, so that it is small, starts at once, and is bounded: nesting
//! deeper than [`MAX_DEPTH`] and texts longer than [`MAX_SIZE`] are errors, and errors deny.

mod ast;
mod compound;
mod escape;
mod parser;
mod word;

pub(crate) use ast::{
    AssignedValue, Assignment, Connector, Heredoc, ListItem, ParameterOp, Program, Redirect,
    RedirectOp, ShellCommand, Simple, Word, WordPart,
};
pub(crate) use escape::{Octal, decode};
pub(crate) use parser::parse;

/// How deep commands may be nested in one another.
pub(crate) const MAX_DEPTH: usize = 60;

/// How many bytes a command line may have: twice what Linux lets a single argument be.
pub(crate) const MAX_SIZE: usize = 256 << 10;

#[cfg(test)]
mod tests;
