//! Where the prompt of a loop comes from.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::cli::PromptArgs;
use crate::error::Error;
use crate::run::spec::PromptSource;

/// What is read at most of a prompt that has no end, such as a device.
const LARGEST_PIPED_PROMPT: u64 = 64 << 20;

/// The prompt that `-p` and `-f` give, looked at while that costs nothing.
///
/// # Errors
/// There is not exactly one, or it is empty or cannot be read.
pub(in crate::cli) fn source(args: &PromptArgs) -> Result<PromptSource, Error> {
    match (args.prompt.as_deref(), args.prompt_file.as_deref()) {
        (Some(text), None) if text.trim().is_empty() => Err(Error::usage("the prompt is empty")
            .hint("say what the agent is to do: ralph run -p \"Make the tests pass\"")),
        (Some(text), None) => Ok(PromptSource::Text(text.to_owned())),
        (None, Some(path)) => {
            let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
            // A problem that is found now costs nothing.
            let unreadable = |err: &io::Error| match err.kind() {
                io::ErrorKind::NotFound => {
                    Error::input(format!("prompt file not found: {}", path.display()))
                        .hint("write what the agent is to do into it, or use -p \"…\"")
                }
                io::ErrorKind::IsADirectory => {
                    Error::input(format!("the prompt file is a directory: {}", path.display()))
                        .hint("name a file in it")
                }
                _ => Error::input(format!("cannot read prompt file: {}: {err}", path.display())),
            };
            let file = File::open(path).map_err(|err| unreadable(&err))?;
            let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
            let mut bytes = Vec::new();
            let limit = if is_file { u64::MAX } else { LARGEST_PIPED_PROMPT };
            file.take(limit).read_to_end(&mut bytes).map_err(|err| unreadable(&err))?;
            if bytes.trim_ascii().is_empty() {
                return Err(Error::input(format!("the prompt file is empty: {}", path.display()))
                    .hint("write what the agent is to do into it"));
            }
            if !is_file {
                // What comes by a pipe (`-f <(…)`, `-f /dev/stdin`) cannot be read again.
                return Ok(PromptSource::Text(String::from_utf8_lossy(&bytes).into_owned()));
            }
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            Ok(PromptSource::File(path))
        }
        _ => Err(Error::usage("exactly one of --prompt and --prompt-file must be given")
            .hint("ralph run -p \"Make the tests pass\", or ralph run -f PROMPT.md")),
    }
}
