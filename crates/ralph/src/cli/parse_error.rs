//! Turns a rejected command line into an error with a hint that can be typed.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{COMMAND_GROUPS, command_name};
use ralph_agents as agents;
use ralph_events::error::Error;

/// Commands that take a prompt and, after `--`, an agent.
const LOOP_COMMANDS: [&str; 6] = ["run", "plan", "build", "prompt", "work", "spawn"];

/// Typos of more letters than this are not guessed.
const MAX_TYPO_DISTANCE: usize = 2;

pub(super) fn usage_error(parsed: &clap::Error, args: &[OsString]) -> Error {
    let rendered = parsed.render().to_string();
    let (message, _) = rendered.split_once("\n\n").unwrap_or((&rendered, ""));
    let error = Error::usage(message.trim_start_matches("error: ").trim_end());
    let invalid = |kind| match parsed.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match parsed.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = invalid(ContextKind::InvalidSubcommand).unwrap_or_default();
            let error = Error::usage(format!("unknown command `{typed}`"));
            match similar_command(typed) {
                Some(name) => error.hint(format!("did you mean `ralph {name}`?")),
                None => error.hint("`ralph --help` lists the commands"),
            }
        }
        ErrorKind::UnknownArgument => {
            let typed = invalid(ContextKind::InvalidArg).unwrap_or_default();
            let error = Error::usage(format!("unexpected argument `{typed}`"));
            let similar = invalid(ContextKind::SuggestedArg);
            match similar.map(|flag| format!("did you mean `{flag}`?")) {
                Some(hint) => error.hint(hint),
                None => error.hint(misplaced_argument_hint(typed, args)),
            }
        }
        _ => tips(&rendered).fold(error, Error::hint).hint(help_hint(args)),
    }
}

fn tips(rendered: &str) -> impl Iterator<Item = &str> {
    rendered.lines().filter_map(|line| line.trim_start().strip_prefix("tip: "))
}

fn help_hint(args: &[OsString]) -> String {
    match command_name(args) {
        Some(command) => format!("see `ralph {command} --help`"),
        None => "see `ralph --help`".to_owned(),
    }
}

fn similar_command(typed: &str) -> Option<&'static str> {
    let names = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
    names
        .map(|name| (strsim::osa_distance(typed, name), name))
        .filter(|(distance, name)| *distance <= MAX_TYPO_DISTANCE && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// People forget `-p` before a prompt and `--` before an agent.
fn misplaced_argument_hint(typed: &str, args: &[OsString]) -> String {
    let Some(command) = command_name(args).filter(|name| LOOP_COMMANDS.contains(&name.as_str()))
    else {
        return help_hint(args);
    };
    let is_given = |names: [&str; 2]| args.iter().any(|arg| names.iter().any(|name| arg == name));
    let has_prompt = is_given(["-p", "--prompt"]) || is_given(["-f", "--prompt-file"]);
    let takes_prompt = command == "run" || command == "spawn";
    let is_agent = agents::all().iter().any(|adapter| adapter.name() == typed);
    if typed.starts_with('-') {
        return help_hint(args);
    }
    let (flag, what) = match takes_prompt && !has_prompt && !is_agent {
        true => ("-p", "a prompt"),
        false => ("--", "the agent's command"),
    };
    format!("put {flag} before {what}: `{}`", with_word_before(typed, flag, args))
}

/// The command line with `word` before the argument `typed`.
fn with_word_before(typed: &str, word: &str, args: &[OsString]) -> String {
    let mut line = "ralph".to_owned();
    for arg in args.iter().skip(1).map(|arg| arg.to_string_lossy()) {
        if arg == typed {
            line += &format!(" {word}");
        }
        line += &format!(" {}", quoted(&arg));
    }
    line
}

fn quoted(word: &str) -> String {
    if word.contains('"') || !word.contains(char::is_whitespace) {
        shell_words::quote(word).into_owned()
    } else {
        format!("\"{word}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition;

    fn message(line: &[&str]) -> String {
        let args: Vec<OsString> = line.iter().map(Into::into).collect();
        usage_error(&definition().try_get_matches_from(&args).unwrap_err(), &args).to_string()
    }

    #[test]
    fn parse_error_names_the_missing_word() {
        for (line, expected) in [
            (
                &["ralph", "rnu"][..],
                "error: unknown command `rnu`\nhint: did you mean `ralph run`?",
            ),
            (
                &["ralph", "frobnicate"],
                "error: unknown command `frobnicate`\nhint: `ralph --help` lists the commands",
            ),
            (
                &["ralph", "run", "Fix it"],
                "error: unexpected argument `Fix it`\n\
                 hint: put -p before a prompt: `ralph run -p \"Fix it\"`",
            ),
            (
                &["ralph", "run", "-p", "hi", "claude"],
                "error: unexpected argument `claude`\n\
                 hint: put -- before the agent's command: `ralph run -p hi -- claude`",
            ),
            (
                &["ralph", "-C", "x", "work", "codex"],
                "error: unexpected argument `codex`\n\
                 hint: put -- before the agent's command: `ralph -C x work -- codex`",
            ),
            (
                &["ralph", "run", "--promt", "x"],
                "error: unexpected argument `--promt`\nhint: did you mean `--prompt`?",
            ),
            (
                &["ralph", "report", "a", "b"],
                "error: unexpected argument `b`\nhint: see `ralph report --help`",
            ),
            (
                &["ralph", "run", "--max-cost", "x"],
                "error: invalid value 'x' for '--max-cost <USD>': must be a number above 0\n\
                 hint: see `ralph run --help`",
            ),
        ] {
            assert_eq!(message(line), expected);
        }
    }
}
