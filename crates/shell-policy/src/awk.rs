//! Commands and writes in awk programs.

use std::collections::HashMap;

use super::rules::{CommandInvocation, Hit};
use super::shell::{Octal, decode, find_unescaped};
use super::value::{Argument, UNKNOWN};
use super::walk::ShellWalker;

/// Judges the files of `awk -i inplace`.
pub(super) fn check_inplace_edits(walk: &mut ShellWalker<'_>, name: &str, argv: &[Argument]) {
    let args = argv.get(1..).unwrap_or_default();
    let command_context = walk.command_context(None);
    let command = CommandInvocation { name, args, context: &command_context };
    let included = command.values(&["-i", "--include"]);
    if !included.iter().any(|library| library.text == "inplace") {
        return;
    }
    let program = usize::from(command.values(&["-f", "--file"]).is_empty());
    let files = command.operands().into_iter().skip(program);
    let hits: Vec<Hit> = files.filter_map(|file| command_context.check_write(file)).collect();
    walk.report_all(argv, hits);
}

/// The scripts in `system(…)`, `… | getline` and `print … | "sh"`.
pub(super) fn shell_scripts(program: &str) -> Vec<String> {
    let mut scripts = Vec::new();
    let mut variables = HashMap::new();
    for statement in split_outside_strings(program, |c| ";{}\n".contains(c)) {
        if let Some((_, rest)) = statement.split_once("system(") {
            scripts.push(expression_text(call_argument(rest), &variables));
        }
        let stages = split_outside_strings(statement, |c| c == '|');
        if let [left, right] = stages.as_slice() {
            let right = right.trim_start_matches('&').trim();
            let printed = left.trim_start().strip_prefix("print");
            if right.starts_with("getline") {
                scripts.push(expression_text(left, &variables));
            } else if let Some(printed) = printed {
                let program = expression_text(right, &variables);
                let text = match printed.strip_prefix('f') {
                    Some(format) => expand_printf(&expression_text(format, &variables)),
                    None if printed.trim().is_empty() => UNKNOWN.to_string(),
                    None => expression_text(printed, &variables),
                };
                scripts.push(format!("{program} <<'END OF AWK'\n{text}\nEND OF AWK"));
            }
        }
        if let Some((name, value)) = statement.split_once('=')
            && !value.starts_with('=')
            && name.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            let value = expression_text(value, &variables);
            variables.insert(name.trim().to_owned(), value);
        }
    }
    scripts
}

/// Splits code outside of strings, but not at `||`.
fn split_outside_strings(code: &str, at: impl Fn(char) -> bool) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut before = ' ';
    for (index, c) in code.char_indices() {
        let after = code.get(index + 1..).and_then(|rest| rest.chars().next());
        match c {
            '"' if before != '\\' => quoted = !quoted,
            '|' if before == '|' || after == Some('|') => {}
            _ if !quoted && at(c) => {
                pieces.push(code.get(start..index).unwrap_or_default());
                start = index + 1;
            }
            _ => {}
        }
        before = c;
    }
    pieces.push(code.get(start..).unwrap_or_default());
    pieces
}

/// The text up to the bracket that closes a call.
fn call_argument(rest: &str) -> &str {
    let mut open = 1_usize;
    let mut quoted = false;
    let end = rest.find(|c| {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => open += 1,
            ')' if !quoted => open -= 1,
            _ => {}
        }
        open == 0
    });
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

fn expression_text(expression: &str, variables: &HashMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = expression.trim();
    while let Some(c) = rest.chars().next() {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if let Some(body) = rest.strip_prefix('"') {
            let end = find_unescaped(body, "\"").unwrap_or(body.len());
            out.push_str(&decode(body.get(..end).unwrap_or_default(), Octal::Bare));
            rest = body.get(end + 1..).unwrap_or_default();
        } else if name(c) {
            let end = rest.find(|c| !name(c)).unwrap_or(rest.len());
            let word = rest.get(..end).unwrap_or_default();
            match variables.get(word) {
                Some(value) => out.push_str(value),
                None if word == "sprintf" => {}
                None => out.push(UNKNOWN),
            }
            rest = rest.get(end..).unwrap_or_default();
        } else {
            match c {
                ',' => out.push(' '),
                '$' => {
                    out.push(UNKNOWN);
                    let field = rest.get(1..).unwrap_or_default();
                    rest = field.trim_start_matches(name);
                    continue;
                }
                _ => {}
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

fn expand_printf(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            chars.find(|c| c.is_ascii_alphabetic() || *c == '%');
            out.push(UNKNOWN);
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awk_commands_are_extracted_with_unknown_parts() {
        for (program, expected) in [
            (r#"{ system("ls " $1) }"#, vec![format!("ls {UNKNOWN}")]),
            (r#"{ c = "ls " $NF; system(c) }"#, vec![format!("ls {UNKNOWN}")]),
            (r#"BEGIN { "ls -l" | getline x }"#, vec!["ls -l".to_owned()]),
            (
                r#"{ print "ls " $1 | "sh" }"#,
                vec![format!("sh <<'END OF AWK'\nls {UNKNOWN}\nEND OF AWK")],
            ),
            (r#"{ print | "sh" }"#, vec![format!("sh <<'END OF AWK'\n{UNKNOWN}\nEND OF AWK")]),
            (
                r#"{ printf "ls %s\n", $1 | "sh" }"#,
                vec![format!("sh <<'END OF AWK'\nls {UNKNOWN}\n {UNKNOWN}\nEND OF AWK")],
            ),
            (r#"$1 == "x" || $2 == "y" { print "a|b" }"#, vec![]),
        ] {
            assert_eq!(shell_scripts(program), expected, "{program}");
        }
    }
}
