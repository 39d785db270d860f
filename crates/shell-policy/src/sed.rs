//! sed scripts. GNU sed runs commands by `e` and writes files by `w`.

use super::rules::{finding, flag_values};
use super::shell::find_unescaped;
use super::value::Argument;
use super::walk::ShellWalker;

#[derive(Debug, PartialEq)]
enum SedEffect {
    RunsCommand(String),
    /// Runs its own output.
    EvaluatesOutput,
    WritesFile(String),
}

/// Judges a call of sed. `files` are the contents of script files.
pub(super) fn check_sed(walk: &mut ShellWalker<'_>, argv: &[Argument], files: Vec<Argument>) {
    let args = argv.get(1..).unwrap_or_default();
    let mut scripts = flag_values(args, &["-e", "--expression"]);
    if scripts.is_empty() && flag_values(args, &["-f", "--file"]).is_empty() {
        let script = |arg: &&Argument| !arg.text.is_empty() && !arg.text.starts_with('-');
        scripts.extend(args.iter().find(script).cloned());
    }
    for script in scripts.into_iter().chain(files) {
        for act in script_effects(&script.text) {
            match act {
                SedEffect::RunsCommand(command) => {
                    walk.run_separately(argv, &command, script.origin);
                }
                SedEffect::EvaluatesOutput => walk.report(argv, finding("sed_evaluates")),
                SedEffect::WritesFile(file) => walk.report_write(argv, &Argument::known(file)),
            }
        }
    }
}

fn script_effects(script: &str) -> Vec<SedEffect> {
    let mut effects = Vec::new();
    let mut rest = script;
    loop {
        rest = after_address(rest.trim_start_matches([' ', '\t', '\n', ';', '{', '}']));
        let Some(command) = rest.chars().next() else { return effects };
        rest = rest.get(command.len_utf8()..).unwrap_or_default();
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        match command {
            'e' if line.trim().is_empty() || line.starts_with([';', '}']) => {
                effects.push(SedEffect::EvaluatesOutput);
            }
            'e' => {
                effects.push(SedEffect::RunsCommand(line.trim().to_owned()));
                rest = below;
            }
            'w' | 'W' => {
                effects.push(SedEffect::WritesFile(line.trim().to_owned()));
                rest = below;
            }
            'a' | 'i' | 'c' | 'r' | 'R' | '#' => rest = below,
            's' | 'y' => {
                let Some(mark) = rest.chars().next() else { return effects };
                rest = rest.get(mark.len_utf8()..).unwrap_or_default();
                rest = after_delimiter(after_delimiter(rest, mark), mark);
                let flags: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() && *c != 'w').collect();
                rest = rest.get(flags.len()..).unwrap_or_default();
                if command == 's' && flags.contains('e') {
                    effects.push(SedEffect::EvaluatesOutput);
                }
                if let Some(file) = rest.strip_prefix('w') {
                    let (file, below) = file.split_once('\n').unwrap_or((file, ""));
                    effects.push(SedEffect::WritesFile(file.trim().to_owned()));
                    rest = below;
                }
            }
            'b' | 't' | 'T' | ':' => {
                rest = rest.trim_start_matches(|c: char| !";\n}".contains(c));
            }
            _ => {}
        }
    }
}

/// Skips an address: `1,$`, `/x/I,+3!`, `\|x|`.
fn after_address(text: &str) -> &str {
    let mut rest = text;
    loop {
        let Some(c) = rest.chars().next() else { return rest };
        let tail = rest.get(c.len_utf8()..).unwrap_or_default();
        rest = match c {
            '/' => after_delimiter(tail, '/').trim_start_matches(['I', 'M']),
            '\\' => {
                let Some(mark) = tail.chars().next() else { return "" };
                after_delimiter(tail.get(mark.len_utf8()..).unwrap_or_default(), mark)
            }
            c if c.is_ascii_digit() || "$,+~! ".contains(c) => tail,
            _ => return rest,
        };
    }
}

fn after_delimiter(text: &str, mark: char) -> &str {
    let mark = mark.to_string();
    let end = find_unescaped(text, &mark);
    end.and_then(|at| text.get(at + mark.len()..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_script_actions_are_extracted() {
        let runs = |text: &str| SedEffect::RunsCommand(text.to_owned());
        let writes = |text: &str| SedEffect::WritesFile(text.to_owned());
        for (script, expected) in [
            ("s/e/e/g;p", vec![]),
            ("s/a;e x/b/", vec![]),
            ("/e x/d", vec![]),
            ("i e x", vec![]),
            ("1e ls", vec![runs("ls")]),
            ("$!{/x/,+2e ls\n}", vec![runs("ls")]),
            ("s|a|b|ge", vec![SedEffect::EvaluatesOutput]),
            ("1s/a\\/b/c/e;p", vec![SedEffect::EvaluatesOutput]),
            ("e", vec![SedEffect::EvaluatesOutput]),
            ("/x/w out", vec![writes("out")]),
            ("s/a/b/gw out\nd", vec![writes("out")]),
            ("y/abc/xye/", vec![]),
            ("s/a", vec![]),
        ] {
            assert_eq!(script_effects(script), expected, "{script}");
        }
    }
}
