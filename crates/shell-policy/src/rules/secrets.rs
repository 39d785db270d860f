//! Files that hold secrets, and programs that print them.

use super::{CommandInvocation, Hit, finding};
use crate::data::DATA;
use crate::value::Argument;
use crate::wrappers::split_string;

/// Programs whose first operand is a pattern or a script.
const SCRIPT_FIRST_PROGRAMS: &[&str] = &[
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep", "awk", "gawk", "mawk", "jq", "yq", "tr",
];

const DIRECTORY_READERS: &[&str] = &[
    "tar", "bsdtar", "gtar", "pax", "zip", "7z", "7za", "7zz", "rar", "ditto", "cp", "rsync", "scp",
];

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let named = command.name == "printenv" && !command.operands().is_empty();
    let declares = command.is(&["declare", "typeset", "local", "export", "readonly"]);
    if (named || declares && command.has(&["-p"]))
        && command.operands().iter().any(|arg| is_secret_name(&arg.text))
    {
        hits.push(finding("secret_printed"));
    }
    // With arguments, `env` runs a program.
    if (command.name == "printenv" && !named)
        || command.name == "env"
            && command
                .args
                .iter()
                .all(|arg| arg.text.starts_with('-') && split_string(&arg.text).is_none())
        || (command.is(&["set", "export", "declare"]) && command.args.is_empty())
        || (command.is(&["export", "declare", "typeset"])
            && command
                .args
                .iter()
                .all(|arg| ["-p", "-x", "-px", "-xp"].contains(&arg.text.as_str())))
        || (command.name == "compgen" && command.has(&["-e"]))
    {
        hits.push(finding("environment_printed"));
    }
    if !command.is(&DATA.file_readers) {
        return;
    }
    if command.is(&["docker", "podman", "kubectl"]) && command.subcommand() != "cp" {
        return;
    }
    if command.name == "git" && !is_git_read(command) {
        let operands = command.operands();
        let adds = ["add", "commit", "stage"].contains(&command.subcommand());
        if adds && operands.iter().skip(1).any(|path| command.context.check_read(path).is_some()) {
            hits.push(finding("secrets_committed"));
        }
        return;
    }
    let files;
    let mut operands = command.operands();
    if command.is(&["sed", "gsed", "perl"]) {
        files = super::files::files_after_script(command);
        operands = files.iter().collect();
    }
    // `tar -C DIR NAME` takes DIR/NAME.
    let below: Vec<Argument> = match command.is(&["tar", "bsdtar", "gtar"]) {
        true => below_directories(command, &operands),
        false => Vec::new(),
    };
    operands.extend(&below);
    let scripted = command.has(&["-e", "-f", "--regexp", "--file", "--expression"]);
    if command.is(SCRIPT_FIRST_PROGRAMS) && !scripted && !operands.is_empty() {
        operands.remove(0);
    }
    for operand in operands {
        if is_destination(command, operand) {
            continue;
        }
        // `src:dst`, `HEAD:.env`, `if=file`
        let path = operand.text.rsplit([':', '=']).next().unwrap_or_default();
        let part = || Argument { text: path.to_owned(), ..operand.clone() };
        let found = command.context.check_read(operand);
        hits.extend(found.or_else(|| command.context.check_read(&part())));
        let searches = (command.is(&["grep", "egrep", "fgrep"])
            && command.has(&["-r", "-R", "--recursive"]))
            || (command.name == "rg" && command.has(&["-u", "-.", "--hidden", "--unrestricted"]));
        let hidden = operand.text.contains("/.*/");
        if (command.is(DIRECTORY_READERS) || searches || hidden)
            && let (Some(place), Some(home)) =
                (command.context.locate(operand), command.context.context.home)
            && home.starts_with(&place.base)
            && (place.rest.is_empty() || place.rest.first().is_some_and(|name| name == ".*"))
        {
            hits.push(finding("home_taken"));
        }
    }
    for value in command.values(&["-f", "--file", "--from-file", "--key"]) {
        hits.extend(command.context.check_read(&value));
    }
}

pub(crate) fn is_secret_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let name = name.to_ascii_uppercase();
    if name.rsplit('_').next().is_some_and(|last| DATA.secret_metadata_words.contains(&last)) {
        return false;
    }
    // `TOKENS` alone usually counts tokens of a language model.
    let several = ["API", "AUTH", "ACCESS"].iter().any(|word| name.contains(word));
    DATA.secret_words.iter().any(|word| {
        name.match_indices(word).any(|(at, _)| {
            let mut end = at + word.len();
            if bytes.get(end).is_some_and(|c| c.eq_ignore_ascii_case(&b'S'))
                && (several || *word != "TOKEN")
            {
                end += 1;
            }
            // The word must end: `SECRET_KEY` and `secretKey` match, `SECRETARY` does not.
            match (end.checked_sub(1).and_then(|last| bytes.get(last)), bytes.get(end)) {
                (Some(last), Some(next)) => {
                    !next.is_ascii_alphabetic()
                        || (last.is_ascii_lowercase() && next.is_ascii_uppercase())
                }
                _ => true,
            }
        })
    })
}

fn below_directories(command: &CommandInvocation<'_>, operands: &[&Argument]) -> Vec<Argument> {
    let directories = command.values(&["-C", "--directory", "--cd"]);
    let relative = operands.iter().filter(|operand| !operand.text.starts_with('/'));
    relative
        .flat_map(|operand| {
            directories.iter().map(|directory| Argument {
                text: format!("{}/{}", directory.text.trim_end_matches('/'), operand.text),
                ..(*operand).clone()
            })
        })
        .collect()
}

fn is_destination(command: &CommandInvocation<'_>, operand: &Argument) -> bool {
    command.is(&["cp", "mv", "install", "ln", "rsync", "scp"])
        && command.operands().last().is_some_and(|last| *last == operand)
}

fn is_git_read(command: &CommandInvocation<'_>) -> bool {
    ["show", "diff", "cat-file", "grep", "blame", "hash-object"].contains(&command.subcommand())
}
