//! Files, disks, resources, and the arguments that programs write to.

use super::places::DeleteScope;
use super::{CommandInvocation, Hit, finding};
use crate::Family::Secrets;
use crate::data::DATA;
use crate::value::Argument;

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    match command.name {
        "rm" | "grm" | "del" | "rd" | "srm" | "wipe" | "shred" | "gshred" | "rimraf"
        | "del-cli" | "remove-item" => {
            check_remove(command, hits);
        }
        "mv" | "gmv" => check_move(command, hits),
        "rsync" => check_mirror(command, hits),
        "chmod" | "chown" | "chgrp" => check_ownership(command, hits),
        "dd" | "dcfldd" | "ddrescue" => check_raw_device(command, hits),
        "yes" | "cat" | "head" | "fallocate" | "truncate" => check_size(command, hits),
        _ => {}
    }
    if command.is(&["cp", "ln", "install", "mv"]) {
        check_rename(command, hits);
    }
    for written in written_paths(command) {
        hits.extend(command.context.check_write(&written).filter(|hit| {
            // Restricting access to a secret is desirable.
            hit.family != Secrets || !restricts_to_owner(command)
        }));
    }
}

/// Whether others lose all access: `chmod 600`.
fn restricts_to_owner(command: &CommandInvocation<'_>) -> bool {
    command.name == "chmod"
        && command.operands().first().is_some_and(|mode| {
            let mode = mode.text.trim_start_matches('0');
            (mode.len() == 3 && mode.ends_with("00") && mode.bytes().all(|b| b.is_ascii_digit()))
                || ["go-rwx", "og-rwx", "go=", "og=", "u=rw,go=", "u=r,go="].contains(&mode)
        })
}

fn check_remove(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let recursive_tools = ["srm", "wipe", "rd", "rimraf", "del-cli"];
    let recursive = command.has(&["-r", "-R", "--recursive"]) || command.is(&recursive_tools);
    // An unknown argument may be `-rf`: `rm $flags ~`.
    let has_unknown_args = command.args.iter().any(Argument::is_unknown);
    for operand in command.operands() {
        if recursive || (has_unknown_args && is_severe(command.context.delete_scope(operand))) {
            hits.extend(command.context.check_delete(operand));
        } else if operand.text.ends_with(".lock") && operand.text.contains(".git/") {
            hits.push(finding("git_lock_removed"));
        } else if let Some(hit) = command.context.check_bulk_delete(operand) {
            hits.push(hit);
        } else if let Some(hit) = command.context.check_write(operand) {
            hits.push(hit);
        }
    }
}

fn is_severe(scope: DeleteScope) -> bool {
    use DeleteScope::{History, Home, Machine, Project, RalphState};
    matches!(scope, Machine | Home | Project | History | RalphState)
}

/// Judges a move like a deletion of the source.
fn check_move(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let mut operands = command.operands();
    if command.values(&["-t", "--target-directory"]).is_empty() {
        operands.pop();
    }
    for operand in operands {
        if is_severe(command.context.delete_scope(operand)) {
            hits.extend(
                command.context.check_delete(operand).map(|hit| Hit {
                    reason: hit.reason.replace("deletes", "moves").into(),
                    ..hit
                }),
            );
        } else {
            hits.extend(command.context.check_write(operand));
        }
    }
}

/// Judges copies of system programs, which would escape the rules for their names.
fn check_rename(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let [source, target] = operands.as_slice() else { return };
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let (from, to) = (name(&source.text), name(&target.text));
    let system_dirs = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/"];
    if system_dirs.iter().any(|place| source.text.starts_with(place))
        && super::programs().any(|program| program == from)
        && !to.is_empty()
        && to != from
        && !to.starts_with('.')
    {
        hits.push(finding("system_program_renamed"));
    }
}

fn check_mirror(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    if command.args.iter().any(|arg| arg.text.starts_with("--del"))
        && let Some(target) = command.operands().last()
        && !target.text.contains(':')
    {
        hits.extend(command.context.check_delete(target));
    }
    if command.has(&["--remove-source-files"])
        && let Some(source) = command.operands().first()
    {
        hits.extend(command.context.check_delete(source));
    }
}

fn check_ownership(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let Some((mode, paths)) = operands.split_first() else { return };
    if command.name == "chmod" {
        let mode = mode.text.as_str();
        let numeric = mode.bytes().all(|b| b.is_ascii_digit());
        let special = numeric && mode.len() == 4 && !mode.starts_with(['0', '1']);
        // `-s` and `u-x` look like options, `u+s` does not.
        let symbolic = !numeric
            && mode.split(',').any(|part| {
                part.split_once(['+', '='])
                    .is_some_and(|(who, change)| change.contains('s') && !who.contains('o'))
            });
        if special || symbolic {
            hits.push(finding("set_user_id"));
        } else if mode == "777" || mode == "0777" || mode == "a+rwx" || mode == "666" {
            hits.push(finding("world_writable"));
        }
    }
    let recursive = command.has(&["-R", "--recursive"]);
    if recursive && command.name == "chmod" && locks_out_owner(&mode.text, command) {
        hits.push(finding("locked_out"));
    }
    for path in paths {
        let scope = command.context.delete_scope(path);
        if recursive
            && !matches!(scope, DeleteScope::Inside | DeleteScope::Project | DeleteScope::New)
        {
            hits.push(finding("rights_outside"));
        }
    }
}

fn locks_out_owner(mode: &str, command: &CommandInvocation<'_>) -> bool {
    if mode.bytes().all(|b| b.is_ascii_digit()) {
        let owner = mode.bytes().rev().nth(2).unwrap_or(b'0');
        return owner < b'4' || !matches!(owner, b'5' | b'7');
    }
    // `-rwx` looks like an option, and `-R` is one.
    let dashed = command.args.iter().map(|arg| arg.text.as_str()).find(|text| {
        text.strip_prefix('-').is_some_and(|letters| {
            !letters.is_empty() && letters.chars().all(|c| "rwx".contains(c))
        })
    });
    dashed.unwrap_or(mode).split(',').any(|part| {
        let Some(at) = part.find(['-', '=']) else { return false };
        let (who, change) = part.split_at(at);
        let owner = who.is_empty() || who.contains(['a', 'u']);
        let grants = change.contains('X') || change.contains('+');
        owner
            && !grants
            && match change.strip_prefix('-') {
                Some(taken) => taken.contains(['r', 'x']),
                None => !(change.contains('r') && change.contains('x')),
            }
    })
}

fn check_raw_device(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let value = |key: &str| {
        command.args.iter().find_map(|arg| {
            arg.text.strip_prefix(key).map(|text| Argument { text: text.to_owned(), ..arg.clone() })
        })
    };
    let (input, output) = (value("if="), value("of="));
    if let Some(output) = &output {
        hits.extend(command.context.check_write(output));
    }
    if let Some(input) = &input {
        hits.extend(command.context.check_read(input));
        let endless = ["/dev/zero", "/dev/urandom", "/dev/random"].contains(&input.text.as_str());
        let is_discarded = output.as_ref().is_none_or(|output| output.text == "/dev/null");
        if endless && !is_discarded && value("count=").is_none() {
            hits.push(finding("endless_copy"));
        }
    }
}

fn check_size(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let sizes = match command.name {
        "head" => command.values(&["-c", "--bytes"]),
        "fallocate" => command.values(&["-l", "--length"]),
        "truncate" => command.values(&["-s", "--size"]),
        _ => return,
    };
    for size in sizes {
        let digits = size.text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = size.text.get(digits.len()..).and_then(|unit| unit.chars().next());
        let scale: u64 = match unit.map(|c| c.to_ascii_lowercase()) {
            Some('k') => 1 << 10,
            Some('m') => 1 << 20,
            Some('g') => 1 << 30,
            Some('t') => 1 << 40,
            Some('p' | 'e') => 1 << 50,
            _ => 1,
        };
        if digits.parse::<u64>().is_ok_and(|n| n.saturating_mul(scale) >= 20 << 30) {
            hits.push(finding("huge_file"));
        }
    }
}

fn written_paths(command: &CommandInvocation<'_>) -> Vec<Argument> {
    let operands = || command.operands().into_iter().cloned().collect::<Vec<_>>();
    match command.name {
        name if DATA.operand_writers.contains(&name) => operands(),
        "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => {
            operands().into_iter().skip(1).collect()
        }
        "cp" | "gcp" | "mv" | "gmv" | "install" | "ln" | "rsync" => {
            let mut targets = command.values(&["-t", "--target-directory"]);
            let mut sources = operands();
            if targets.is_empty() {
                targets.extend(sources.pop().filter(|arg| !is_remote(&arg.text)));
            }
            if let Some(directory) =
                targets.first().filter(|arg| command.context.holds_protected(arg))
            {
                let directory = directory.text.trim_end_matches('/').to_owned();
                targets.extend(sources.iter().filter_map(|source| {
                    let name = source.text.rsplit('/').next().filter(|name| !name.is_empty())?;
                    Some(Argument { text: format!("{directory}/{name}"), ..source.clone() })
                }));
            }
            targets
        }
        "sed" | "gsed" | "perl" | "ruby" if is_in_place(command) => files_after_script(command),
        // Packing only reads.
        "tar" | "bsdtar" if !is_extract(command) => Vec::new(),
        "tar" | "bsdtar" => command.values(&["-C", "--directory"]),
        "patch" => {
            let mut paths = command.values(&["-d", "--directory", "-o", "--output"]);
            paths.extend(operands().into_iter().take(1));
            paths
        }
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" if command.subcommand() == "cp" => {
            operands().pop().into_iter().filter(|arg| !is_remote(&arg.text)).collect()
        }
        "git" => {
            let mut paths = command.values(&["--output", "--output-directory"]);
            let operands = command.operands();
            if let [sub, ..] = operands.as_slice()
                && ["archive", "format-patch"].contains(&sub.text.as_str())
            {
                paths.extend(command.values(&["-o"]));
            }
            if let [sub, second, target, ..] = operands.as_slice()
                && (sub.text == "clone" || (sub.text == "bundle" && second.text == "create"))
            {
                paths.push((*target).clone());
            }
            paths
        }
        "cpio" if command.has(&["-i", "--extract"]) => command.values(&["-D", "--directory"]),
        name => match DATA.written_flags.get(name) {
            Some(flags) => command.values(flags),
            None => edited_paths(command),
        },
    }
}

fn edited_paths(command: &CommandInvocation<'_>) -> Vec<Argument> {
    let short = match command.name {
        "yq" | "clang-format" | "autopep8" | "autoflake" | "jaq" | "astyle" | "tidy" => "-i",
        "gofmt" | "goimports" | "gofumpt" | "shfmt" => "-w",
        _ => "",
    };
    let is_edit = |text: &str| {
        ["--write", "--in-place", "--inplace", "--fix"].contains(&text)
            || text.starts_with("--in-place=")
            || (!short.is_empty() && text == short)
    };
    if !command.args.iter().any(|arg| is_edit(&arg.text)) {
        return Vec::new();
    }
    // The word after another option is likely its value.
    let mut before = "";
    let mut files = Vec::new();
    for arg in command.args {
        let value = before.starts_with('-') && !is_edit(before) && before != "--";
        if !arg.text.starts_with('-') && !value {
            files.push(arg.clone());
        }
        before = &arg.text;
    }
    files
}

/// `tar -xf`, `tar xf`, `tar --extract`.
fn is_extract(command: &CommandInvocation<'_>) -> bool {
    let old = command.args.first().is_some_and(|arg| {
        arg.text.contains('x') && arg.text.bytes().all(|b| b.is_ascii_alphabetic())
    });
    old || command.has(&["-x", "--extract", "--get"])
}

/// The file operands of sed, perl and ruby. `-i` takes a suffix from the same word.
pub(super) fn files_after_script(command: &CommandInvocation<'_>) -> Vec<Argument> {
    let (scripts, valued) = match command.name {
        "sed" | "gsed" => ("ef", "l"),
        _ => ("eE", "IrCMm"),
    };
    let mut scripted = false;
    let mut files = Vec::new();
    let mut args = command.args.iter();
    while let Some(arg) = args.next() {
        let text = arg.text.as_str();
        if text == "--" {
            files.extend(args.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').unwrap_or((long, ""));
            if ["expression", "file", "line-length"].contains(&name) {
                scripted |= name != "line-length";
                if value.is_empty() {
                    args.next();
                }
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            if let Some(at) = letters.find(|c: char| {
                c == 'i' || scripts.contains(c) || valued.contains(c) || !c.is_ascii_alphanumeric()
            }) {
                let letter = letters.chars().nth(at).unwrap_or('i');
                scripted |= scripts.contains(letter);
                if letter != 'i' && letter.is_ascii_alphabetic() && at + 1 == letters.len() {
                    args.next();
                }
            }
        } else {
            files.push(arg.clone());
        }
    }
    // BSD sed takes `-i ''` for "no backup".
    files.retain(|file| !file.text.is_empty());
    if !scripted && !files.is_empty() {
        files.remove(0);
    }
    files
}

fn is_in_place(command: &CommandInvocation<'_>) -> bool {
    command.args.iter().any(|arg| {
        arg.text.starts_with("--in-place")
            || (arg.text.starts_with('-')
                && !arg.text.starts_with("--")
                && arg.text.split('.').next().is_some_and(|flags| flags.contains('i')))
    })
}

pub(super) fn is_remote(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
}
