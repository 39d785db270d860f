//! A parser for bash, with common syntax of zsh and others.
//!
//! Bounded: nesting beyond [`MAX_DEPTH`] and texts beyond [`MAX_SIZE`] are errors, and errors deny.

mod ast;
mod compound;
mod escape;
mod parser;
mod word;

pub(crate) use ast::{
    AssignedValue, Assignment, CompoundCommand, Connector, Heredoc, ListItem, ParameterOp, Program,
    Redirect, RedirectOp, ShellCommand, Simple, Word, WordPart,
};
pub(crate) use escape::{Octal, decode, find_unescaped};
pub(crate) use parser::parse;

pub(crate) const MAX_DEPTH: usize = 60;

/// Twice the limit of Linux for one argument.
pub(crate) const MAX_SIZE: usize = 256 << 10;

#[cfg(test)]
mod tests;
