//! Code of other languages in a command line.
//!
//! It is not parsed. String literals are judged as commands where the code starts a process, and as
//! paths where it deletes, reads or writes.

use super::awk;
use super::data::DATA;
use super::find::report_deletes;
use super::rules::flag_values;
use super::shell::{Octal, decode, find_unescaped, parse};
use super::value::{Argument, KnownOutput, TextOrigin, UNKNOWN};
use super::walk::ShellWalker;
use super::{Family, Tier};

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
                scan_source(walk, argv, &program.text);
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
    let mut found = false;
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text.as_str();
        let next = args.get(at + 1);
        let code = if flags.contains(&text) {
            next.cloned()
        } else {
            flags.iter().find_map(|flag| attached_code(flag, text, next))
        };
        if let Some(code) = code {
            found = true;
            run_code(walk, name, argv, &code.text, code.origin);
        }
    }
    let named = args.iter().any(|arg| !arg.text.starts_with('-'));
    let module = args.iter().any(|arg| arg.text == "-m");
    let from_input = args.iter().any(|arg| arg.text == "-") || !named;
    if let Some(input) = stdin
        && !found
        && !module
        && from_input
        && *input != KnownOutput::file()
    {
        run_code(walk, name, argv, &input.text, input.origin);
    }
    let file = args.iter().find(|arg| !arg.text.starts_with('-')).filter(|_| !found && !module);
    if let Some(written) = file.and_then(|file| walk.file_content(file)) {
        // The warning about inline code asks for a file, so files do not warn.
        match written.origin {
            TextOrigin::Literal | TextOrigin::Computed => scan_source(walk, argv, &written.text),
            TextOrigin::Decoded | TextOrigin::Network => {
                run_code(walk, name, argv, &written.text, written.origin);
            }
        }
    }
    if let Some(process) = args.iter().find_map(|arg| arg.process.clone()) {
        run_code(walk, name, argv, &process.text, process.origin);
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
        for Literal { text, .. } in literals(program) {
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

/// `-cCODE`, `-uc CODE`, `-lane CODE`, `--eval=CODE`.
fn attached_code(flag: &str, text: &str, next: Option<&Argument>) -> Option<Argument> {
    if let Some(long) = flag.strip_prefix("--") {
        let value = text.strip_prefix("--")?.strip_prefix(long)?.strip_prefix('=')?;
        return Some(Argument::known(value));
    }
    let letter = flag.strip_prefix('-').filter(|letter| letter.len() == 1)?;
    let cluster = text.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'))?;
    let (before, after) = cluster.split_once(letter)?;
    if !before.chars().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    if after.is_empty() { next.cloned() } else { Some(Argument::known(after)) }
}

fn run_code(
    walk: &mut ShellWalker<'_>,
    name: &str,
    argv: &[Argument],
    code: &str,
    origin: TextOrigin,
) {
    match origin {
        TextOrigin::Network | TextOrigin::Decoded => {
            walk.deny_untrusted(argv, origin, "write the code itself");
        }
        TextOrigin::Literal | TextOrigin::Computed => walk.report_unknown_code(argv, name),
    }
    scan_source(walk, argv, code);
}

fn scan_source(walk: &mut ShellWalker<'_>, argv: &[Argument], code: &str) {
    let lower = code.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(&word.to_ascii_lowercase()));
    let calls = |names: &[String]| names.iter().any(|name| lower.contains(name));
    let texts = literals(code);
    let connects =
        has(&["socket", "fsockopen", "tcpsocket", "net.connect", "net.socket", "createconnection"]);
    if connects && has(&["dup2", "pty", "/bin/sh", "/bin/bash", "cmd.exe", "exec(", "spawn"]) {
        walk.deny(argv, Family::Remote, "it connects a shell to another machine", "leave it");
    }
    if calls(&DATA.code_calls.decode) && calls(&DATA.code_calls.evaluate) {
        walk.deny(
            argv,
            Family::Obfuscation,
            "it runs what it decodes, so that nobody can see what that is",
            "write the code itself",
        );
    }
    if has(&["os.fork", "fork()", "fork while"]) && has(&["while", "for(;;)", "loop"]) {
        walk.deny(argv, Family::Resources, "it starts itself without end", "leave it");
    }
    if calls(&DATA.code_calls.delete) {
        let paths: Vec<Argument> = match texts.len() {
            0 => vec![Argument::known(UNKNOWN)],
            _ => texts.iter().map(|literal| expand_home(walk, &literal.text)).collect(),
        };
        report_deletes(walk, argv, &paths);
    }
    let writes = has(&[
        "'w", "\"w", "'a'", "\"a\"", "write", "copyfile", "rename", "unlink", "remove(", "copy(",
        "move(",
    ]);
    let mut hits = Vec::new();
    for Literal { text, .. } in &texts {
        if text.len() < 4 || text.len() > 300 || text.contains('\n') {
            continue;
        }
        let path = expand_home(walk, text);
        let command_context = walk.command_context(None);
        hits.extend(command_context.check_read(&path));
        if writes {
            hits.extend(command_context.check_write(&path).filter(|hit| hit.tier == Tier::Deny));
        }
    }
    walk.report_all(argv, hits);
    if calls(&DATA.code_calls.start_process) {
        let mut row: Vec<Argument> = Vec::new();
        let mut listed = false;
        for literal in &texts {
            let (text, called) = (&literal.text, literal.is_call_argument);
            if !literal.joined {
                check_string_list(walk, &mut row, listed);
                listed = literal.is_first_in_brackets || called;
            }
            row.push(Argument::known(text));
            if literal.has_more_arguments && (row.len() > 1 || called) {
                row.push(Argument::known(UNKNOWN));
            }
            // A single word is rarely a command, and prose need not parse.
            let likely = called || text.trim().contains(char::is_whitespace);
            if likely && text.len() <= 2000 && parse(text).error.is_none() {
                walk.with_copied_state(|walk| walk.script(text));
            }
        }
        check_string_list(walk, &mut row, listed);
        for (mark, body) in bracket_quoted_texts(code) {
            match mark {
                "qw" => {
                    let mut words: Vec<Argument> =
                        body.split_whitespace().map(Argument::known).collect();
                    check_string_list(walk, &mut words, true);
                }
                _ if parse(body).error.is_none() => {
                    walk.with_copied_state(|walk| walk.script(body));
                }
                _ => {}
            }
        }
    }
}

/// Texts quoted as in Perl and Ruby: `qw(…)`, `qx{…}`, `%x(…)`.
fn bracket_quoted_texts(code: &str) -> Vec<(&'static str, &str)> {
    const MAX_LITERALS: usize = 50;
    let mut all = Vec::new();
    for mark in ["qw", "qx", "%x"] {
        for rest in code.split(mark).skip(1).take(MAX_LITERALS) {
            let close = match rest.chars().next() {
                Some('(') => ')',
                Some('{') => '}',
                Some('[') => ']',
                Some(c @ ('/' | '|' | '!')) => c,
                _ => continue,
            };
            let body = rest.get(1..).unwrap_or_default();
            if let Some(end) = body.find(close) {
                all.push((mark, body.get(..end).unwrap_or_default()));
            }
        }
    }
    all
}

/// Judges a list of strings as a command: `["rm", "-rf", "/"]`.
fn check_string_list(walk: &mut ShellWalker<'_>, row: &mut Vec<Argument>, listed: bool) {
    let row = std::mem::take(row);
    if row.len() > 1 && listed {
        walk.with_copied_state(|walk| walk.run(&row, None));
    }
}

/// Expands `~`, although most languages leave that to a function.
fn expand_home(walk: &ShellWalker<'_>, text: &str) -> Argument {
    match (text.strip_prefix('~'), walk.context.home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            Argument::known(format!("{}{rest}", home.display()))
        }
        _ => Argument::known(text),
    }
}

struct Literal {
    text: String,
    /// Only a comma separates it from the literal before: `"rm", ["-rf"`.
    joined: bool,
    is_first_in_brackets: bool,
    /// Passed to a call that starts programs: `system("…`.
    is_call_argument: bool,
    has_more_arguments: bool,
}

fn literals(code: &str) -> Vec<Literal> {
    const MAX_LITERALS: usize = 200;
    let mut all: Vec<Literal> = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '`']) {
        if all.len() >= MAX_LITERALS {
            break;
        }
        let between = rest.get(..at).unwrap_or_default();
        let tail = rest.get(at..).unwrap_or_default();
        let quote = tail.get(..1).unwrap_or("\"");
        let triple = quote.repeat(3);
        let mark = if tail.starts_with(&triple) { triple.as_str() } else { quote };
        let body = tail.get(mark.len()..).unwrap_or_default();
        let Some(end) = find_unescaped(body, mark) else { break };
        let joined = !all.is_empty()
            && between.contains(',')
            && between.chars().all(|c| c.is_whitespace() || ",[".contains(c));
        if let Some(before) = all.last_mut() {
            before.has_more_arguments &= !joined;
        }
        let opens = between.trim_end().ends_with(['(', '[']);
        let before = between.trim_end_matches(['(', '[', ' ']).to_ascii_lowercase();
        let called =
            mark == "`" || DATA.code_calls.run_shell.iter().any(|call| before.ends_with(call));
        rest = body.get(end + mark.len()..).unwrap_or_default();
        let text = decode(body.get(..end).unwrap_or_default(), Octal::Bare);
        all.push(Literal {
            text,
            joined,
            is_first_in_brackets: opens,
            is_call_argument: called,
            has_more_arguments: rest.trim_start().starts_with(','),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_literals_are_found_in_code() {
        let texts = literals(r#"f(["rm", '-r'], """a "b" c""") + "x\x72""#);
        let expected = [("rm", false), ("-r", true), (r#"a "b" c"#, false), ("xr", false)];
        let found: Vec<_> = texts.iter().map(|l| (l.text.as_str(), l.joined)).collect();
        assert_eq!(found, expected);
    }
}
