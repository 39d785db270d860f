//! Scripts of sed: GNU's runs commands by `e`, and writes files by `w`.

use super::Family;
use super::rules::{Hit, flag_values};
use super::value::Arg;
use super::walk::Walk;

/// What a script does beside printing.
#[derive(Debug, PartialEq)]
enum Act {
    /// Runs a command.
    Runs(String),
    /// Runs what it puts together.
    Evaluates,
    Writes(String),
}

/// Judges the scripts of a call of sed, `files` being the texts of those in files.
pub(super) fn sed(walk: &mut Walk<'_>, argv: &[Arg], files: Vec<Arg>) {
    let args = argv.get(1..).unwrap_or_default();
    let mut scripts = flag_values(args, &["-e", "--expression"]);
    if scripts.is_empty() && flag_values(args, &["-f", "--file"]).is_empty() {
        let script = |arg: &&Arg| !arg.text.is_empty() && !arg.text.starts_with('-');
        scripts.extend(args.iter().find(script).cloned());
    }
    for script in scripts.into_iter().chain(files) {
        for act in acts(&script.text) {
            match act {
                Act::Runs(command) => {
                    walk.copied(|walk| walk.run_text(argv, &command, script.origin));
                }
                Act::Evaluates => walk.report(
                    argv,
                    Hit::deny(
                        Family::Obfuscation,
                        "e makes sed run what it puts together",
                        "let sed print, look at it, and run that",
                    ),
                ),
                Act::Writes(file) => {
                    if let Some(hit) = walk.scene(None).writes(&Arg::known(file)) {
                        walk.report(argv, hit);
                    }
                }
            }
        }
    }
}

fn acts(script: &str) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut rest = script;
    loop {
        rest = address(rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']));
        let Some(command) = rest.chars().next() else { return acts };
        rest = rest.get(command.len_utf8()..).unwrap_or_default();
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        match command {
            'e' if line.trim().is_empty() || line.starts_with([';', '}']) => {
                acts.push(Act::Evaluates);
            }
            'e' => {
                acts.push(Act::Runs(line.trim().to_owned()));
                rest = below;
            }
            'w' | 'W' => {
                acts.push(Act::Writes(line.trim().to_owned()));
                rest = below;
            }
            'a' | 'i' | 'c' | 'r' | 'R' | '#' => rest = below,
            's' | 'y' => {
                let Some(mark) = rest.chars().next() else { return acts };
                rest = rest.get(mark.len_utf8()..).unwrap_or_default();
                rest = behind(behind(rest, mark), mark);
                let flags: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() && *c != 'w').collect();
                rest = rest.get(flags.len()..).unwrap_or_default();
                if command == 's' && flags.contains('e') {
                    acts.push(Act::Evaluates);
                }
                if let Some(file) = rest.strip_prefix('w') {
                    let (file, below) = file.split_once('\n').unwrap_or((file, ""));
                    acts.push(Act::Writes(file.trim().to_owned()));
                    rest = below;
                }
            }
            // Labels.
            'b' | 't' | 'T' | ':' => {
                rest = rest.trim_start_matches(|c: char| !";\n}".contains(c));
            }
            _ => {}
        }
    }
}

/// What follows the lines that a command is for: `1,$`, `/x/I,+3!`, `\|x|`.
fn address(text: &str) -> &str {
    let mut rest = text;
    loop {
        let Some(c) = rest.chars().next() else { return rest };
        let tail = rest.get(c.len_utf8()..).unwrap_or_default();
        rest = match c {
            '/' => behind(tail, '/').trim_start_matches(['I', 'M']),
            '\\' => {
                let Some(mark) = tail.chars().next() else { return "" };
                behind(tail.get(mark.len_utf8()..).unwrap_or_default(), mark)
            }
            c if c.is_ascii_digit() || "$,+~! ".contains(c) => tail,
            _ => return rest,
        };
    }
}

/// What follows the next mark that is not escaped.
fn behind(text: &str, mark: char) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == mark {
            return text.get(at + c.len_utf8()..).unwrap_or_default();
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_taken_apart_as_sed_does() {
        let runs = |text: &str| Act::Runs(text.to_owned());
        let writes = |text: &str| Act::Writes(text.to_owned());
        for (script, expected) in [
            ("s/e/e/g;p", vec![]),
            ("s/a;e x/b/", vec![]),
            ("/e x/d", vec![]),
            ("i e x", vec![]),
            ("1e ls", vec![runs("ls")]),
            ("$!{/x/,+2e ls\n}", vec![runs("ls")]),
            ("s|a|b|ge", vec![Act::Evaluates]),
            ("1s/a\\/b/c/e;p", vec![Act::Evaluates]),
            ("e", vec![Act::Evaluates]),
            ("/x/w out", vec![writes("out")]),
            ("s/a/b/gw out\nd", vec![writes("out")]),
            ("y/abc/xye/", vec![]),
            ("s/a", vec![]),
        ] {
            assert_eq!(acts(script), expected, "{script}");
        }
    }
}
