//! Where a loop's prompt comes from.

use std::io::{self, Read};
use std::path::Path;

use crate::cli::args::PromptArgs;
use crate::config;
use ralph_driver::run_spec::{PromptSource, Variables, not_utf8_message};
use ralph_engine::machine::PersonMessages;
use ralph_engine::prompt::compose;
use ralph_events::error::{Error, ErrorKind};
use ralph_store::user_files;

use super::Defaults;

/// For pipes and devices.
const MAX_PIPED_PROMPT_BYTES: u64 = 64 << 20;

/// Checked now, before anything is spent.
pub(crate) fn prompt_source(args: &PromptArgs) -> Result<PromptSource, Error> {
    prompt_source_or_empty(args, false)
}

pub(crate) fn prompt_source_or_empty(
    args: &PromptArgs,
    may_be_empty: bool,
) -> Result<PromptSource, Error> {
    match (args.prompt.as_deref(), args.prompt_file.as_deref()) {
        (Some(text), None) if text.trim().is_empty() => Err(Error::usage("the prompt is empty")
            .hint("describe the work: -p \"Make the tests pass\"")),
        (Some(text), None) => Ok(PromptSource::Text(text.to_owned())),
        (None, Some(path)) => read_file(path, may_be_empty),
        _ => Err(Error::usage("use exactly one of --prompt and --prompt-file")
            .hint("-p \"Make the tests pass\", or -f PROMPT.md")),
    }
}

/// `-` is standard input.
pub(crate) fn prompt_file(path: &Path) -> Result<PromptSource, Error> {
    read_file(path, false)
}

/// For a resumed run: its file may be gone.
pub(super) fn check_again(source: &PromptSource, defaults: &Defaults) -> Result<(), Error> {
    let PromptSource::File(path) = source else { return Ok(()) };
    read_file(path, defaults.is_worker).map(drop).map_err(|err| {
        if defaults.is_worker { Error { kind: ErrorKind::Failed, ..err } } else { err }
    })
}

fn read_file(path: &Path, may_be_empty: bool) -> Result<PromptSource, Error> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let unreadable = |err: &io::Error| match err.kind() {
        io::ErrorKind::NotFound => {
            Error::input(format!("prompt file not found: {}", path.display()))
                .hint("create it and describe the work in it, or use -p \"…\"")
        }
        io::ErrorKind::IsADirectory => {
            Error::input(format!("prompt file is a directory: {}", path.display()))
                .hint("name a file in it")
        }
        io::ErrorKind::InvalidInput => {
            Error::input(format!("cannot read prompt file: {}: {err}", path.display()))
                .hint("write the prompt to a file, or pipe it in with -f -")
        }
        _ => Error::input(format!("cannot read prompt file: {}: {err}", path.display())),
    };
    let file = user_files::open_user_file(path).map_err(|err| unreadable(&err))?;
    // `/dev/stdin` and the like are different in every process.
    let is_lasting = !["/dev", "/proc"].iter().any(|root| path.starts_with(root));
    let is_file = is_lasting && file.metadata().is_ok_and(|meta| meta.is_file());
    let mut bytes = Vec::new();
    let limit = if is_file { u64::MAX } else { MAX_PIPED_PROMPT_BYTES };
    file.take(limit).read_to_end(&mut bytes).map_err(|err| unreadable(&err))?;
    if bytes.trim_ascii().is_empty() && !may_be_empty {
        return Err(Error::input(format!("prompt file is empty: {}", path.display()))
            .hint("describe the work in it"));
    }
    if !is_file {
        // A pipe (`-f <(…)`) cannot be read again.
        return Ok(PromptSource::Text(String::from_utf8_lossy(&bytes).into_owned()));
    }
    Ok(PromptSource::File(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())))
}

pub(crate) fn read_prompt(source: &PromptSource) -> Result<(String, String), Error> {
    match source {
        PromptSource::Text(prompt) => Ok((prompt.clone(), "--prompt".to_owned())),
        PromptSource::TaskList(prompt) => {
            Ok((prompt.clone(), PromptSource::TASK_PROMPT_NAME.to_owned()))
        }
        PromptSource::BuiltIn { name, text } => Ok((text.to_string(), name.to_string())),
        PromptSource::File(path) | PromptSource::FileOrDefault { path, .. } => {
            let bytes = user_files::read_user_file(path, u64::MAX)
                .map_err(|err| Error::input(format!("cannot read {}: {err}", path.display())))?;
            Ok((String::from_utf8_lossy(&bytes).into_owned(), config::display_name(path)))
        }
    }
}

pub(super) fn print_prompt(
    source: &PromptSource,
    variables: Option<&Variables>,
    max_iterations: u32,
    iteration_line: bool,
) -> Result<u8, Error> {
    let (mut prompt, _) = read_prompt(source)?;
    if let PromptSource::File(path) | PromptSource::FileOrDefault { path, .. } = source
        && user_files::read_user_file(path, u64::MAX)
            .is_ok_and(|bytes| std::str::from_utf8(&bytes).is_err())
    {
        crate::cli::warn(&not_utf8_message(path));
    }
    if let Some(variables) = variables {
        let (filled, unknown) = variables.expand(&prompt, 1, max_iterations);
        prompt = filled;
        if let Some(message) = Variables::missing_values_warning(&unknown) {
            crate::cli::warn(&message);
        }
    }
    let line = iteration_line.then_some((1, max_iterations));
    let mut prompt = compose(&prompt, &[], &PersonMessages::default(), line);
    if !prompt.ends_with('\n') {
        prompt.push('\n');
    }
    crate::cli::print(&prompt)
}
