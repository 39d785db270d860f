//! Code of other languages in a command line.
//!
//! Only the shell commands of awk, sed, editors and databases are looked into.

use super::Tier;
use super::awk;
use super::data::DATA;
use super::rules::{Hit, finding, flag_values};
use super::shell::parse;
use super::value::{Argument, KnownOutput, TextOrigin};
use super::walk::ShellWalker;

pub(super) fn check_code(
    walk: &mut ShellWalker<'_>,
    name: &str,
    argv: &[Argument],
    stdin: Option<&KnownOutput>,
) {
    let args = argv.get(1..).unwrap_or_default();
    match name {
        "awk" | "gawk" | "mawk" | "nawk" => {
            let mut programs = script_files(walk, args, stdin);
            programs.extend(args.iter().find(|arg| arg.text.contains('{')).cloned());
            for program in programs {
                awk(walk, argv, &program.text, stdin);
            }
            awk::check_inplace_edits(walk, name, argv);
            return;
        }
        "sed" | "gsed" => {
            let files = script_files(walk, args, stdin);
            super::sed::check_sed(walk, argv, files);
            return;
        }
        "vim" | "vi" | "nvim" | "ex" | "view" | "less" | "man" | "ed" => {
            for arg in args {
                let text = arg.text.trim_start_matches(['-', 'c', '+', ':', ' ']);
                if let Some(script) = text.strip_prefix('!') {
                    walk.run_separately(argv, script, arg.origin);
                }
            }
            return;
        }
        "sqlite3" | "sqlite" | "duckdb" | "psql" | "pgcli" | "mysql" | "mariadb" | "mycli"
        | "gdb" | "lldb" => {
            let input = stdin
                .map(|input| Argument { origin: input.origin, ..Argument::known(&**input.text) });
            for arg in args.iter().chain(&input) {
                for script in shell_escapes(&arg.text) {
                    walk.run_separately(argv, &script, arg.origin);
                }
            }
            return;
        }
        _ => {}
    }
    let Some(flags) = DATA.interpreters.get(name) else {
        return;
    };
    let code = |(at, arg)| code_origin(flags, arg, args.get(at + 1));
    let mut origins: Vec<TextOrigin> = args.iter().enumerate().filter_map(code).collect();
    if origins.is_empty() && !args.iter().any(|arg| arg.text == "-m") {
        let file = args.iter().find(|arg| !arg.text.starts_with('-'));
        let reads_input = file.is_none() || args.iter().any(|arg| arg.text == "-");
        let input = stdin.filter(|input| reads_input && **input != KnownOutput::file());
        origins.extend(input.map(|input| input.origin));
        // The warning about inline code asks for a file, so files do not warn.
        let written = file.and_then(|file| walk.file_content(file)).map(|written| written.origin);
        origins.extend(written.filter(|origin| *origin > TextOrigin::Computed));
    }
    origins.extend(args.iter().find_map(|arg| Some(arg.process.as_ref()?.origin)));
    match origins.into_iter().max() {
        None => {}
        Some(origin @ (TextOrigin::Network | TextOrigin::Decoded)) => {
            walk.deny_untrusted(argv, origin, "decoded_code_run");
        }
        Some(TextOrigin::Literal | TextOrigin::Computed) => {
            let reason = format!("{name} code on a command line is not checked");
            walk.report(argv, Hit { reason: reason.into(), ..finding("inline_code") });
        }
    }
}

/// Shell escapes of database clients and debuggers: `system ls`, `\! ls`, `.shell ls`, `\o |ls`,
/// `COPY t FROM PROGRAM 'ls'`.
fn shell_escapes(text: &str) -> Vec<String> {
    const COMMANDS: &[&str] = &["system ", ".system ", ".sys ", ".shell ", ".sh ", "shell ", "!"];
    const OUTPUT_TO_COMMAND: &[&str] =
        &["\\o ", "\\g ", "\\w ", ".once ", ".output ", ".import ", ".read "];
    let mut scripts = Vec::new();
    // `--execute=system ls`, `-esystem ls`
    let text = match text.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => value,
        _ => text.strip_prefix("-e").or_else(|| text.strip_prefix("-c")).unwrap_or(text),
    };
    for line in text.lines() {
        if let Some((_, script)) = line.split_once("\\!") {
            scripts.push(script.to_owned());
        }
        for statement in line.split(';').map(str::trim_start) {
            let lower = statement.to_ascii_lowercase();
            let at = |start: &&&str| lower.starts_with(**start);
            if let Some(start) = COMMANDS.iter().find(at) {
                let from = line.find(statement).unwrap_or_default() + start.len();
                scripts.push(line.get(from..).unwrap_or_default().to_owned());
            }
        }
        let lower = line.to_ascii_lowercase();
        let piped =
            OUTPUT_TO_COMMAND.iter().find_map(|pipe| lower.find(pipe).map(|at| at + pipe.len()));
        if let Some(target) = piped.and_then(|at| line.get(at..)) {
            let target = target.trim_start().trim_start_matches('"');
            scripts.extend(target.strip_prefix('|').map(|script| script.replace('"', " ")));
        }
        for (at, word) in lower.match_indices("program") {
            let rest = line.get(at + word.len()..).unwrap_or_default().trim_start();
            let quoted = rest.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
            scripts.extend(quoted.map(|(script, _)| script.to_owned()));
        }
    }
    scripts
}

/// The scripts that awk and sed read by `-f`.
fn script_files(
    walk: &ShellWalker<'_>,
    args: &[Argument],
    stdin: Option<&KnownOutput>,
) -> Vec<Argument> {
    let files = flag_values(args, &["-f", "--file"]);
    let read = files.iter().filter_map(|file| walk.script_content(file, stdin));
    read.map(|script| Argument { origin: script.origin, ..Argument::known(&*script.text) })
        .collect()
}

/// Judges files written by `>`, and commands built from input or `-v`.
fn awk(walk: &mut ShellWalker<'_>, argv: &[Argument], program: &str, stdin: Option<&KnownOutput>) {
    // `system($0)`, `print | "sh"` run the input.
    let plain: String = program.chars().filter(|c| !c.is_whitespace()).collect();
    let runs_input =
        ["system($", "print|\"sh\"", "print|\"bash\"", "print$0|\"sh\"", "print$0|\"bash\""]
            .iter()
            .any(|call| plain.contains(call));
    if let Some(input) = stdin.filter(|input| runs_input && **input != KnownOutput::file()) {
        walk.run_separately(argv, &input.text, input.origin);
    }
    for script in awk::shell_scripts(program) {
        walk.run_separately(argv, &script, TextOrigin::Computed);
    }
    if program.contains('>') {
        for text in program.split('"').skip(1).step_by(2) {
            let hit = walk.command_context(None).check_write(&Argument::known(text));
            if let Some(hit) = hit.filter(|hit| hit.tier == Tier::Deny) {
                walk.report(argv, hit);
            }
        }
    }
    if program.contains("system") || program.contains("getline") || program.contains('|') {
        for value in flag_values(argv, &["-v", "--assign"]) {
            let script = value.text.split_once('=').map(|(_, script)| script.to_owned());
            if let Some(script) = script.filter(|script| parse(script).error.is_none()) {
                walk.run_separately(argv, &script, value.origin);
            }
        }
    }
}

/// The origin of code in `-c CODE`, `-cCODE`, `-uc CODE`, `-lane CODE`, `--eval=CODE`.
fn code_origin(flags: &[&str], arg: &Argument, next: Option<&Argument>) -> Option<TextOrigin> {
    let following = next.map(|code| code.origin);
    flags.iter().find_map(|flag| {
        let rest = arg.text.strip_prefix('-')?;
        let name = flag.strip_prefix('-')?;
        if arg.text == *flag {
            return following;
        }
        if name.starts_with('-') {
            return rest.strip_prefix(name)?.starts_with('=').then_some(arg.origin);
        }
        let (before, code) = rest.split_once(name).filter(|_| name.len() == 1)?;
        let is_cluster = before.chars().all(|c| c.is_ascii_alphanumeric());
        (if code.is_empty() { following } else { Some(arg.origin) }).filter(|_| is_cluster)
    })
}
