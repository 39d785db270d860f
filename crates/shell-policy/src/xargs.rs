//! `xargs` and `parallel`, which add their input to a command.

use super::rules::valued_options;
use super::value::{Argument, KnownOutput, UNKNOWN};
use super::walk::ShellWalker;
use super::wrappers::skip_options;

impl ShellWalker<'_> {
    pub(super) fn check_xargs(
        &mut self,
        args: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let replace = args.iter().enumerate().find_map(|(at, arg)| {
            let text = arg.text.as_str();
            match text {
                "-I" | "-J" => args.get(at + 1).map(|arg| arg.text.clone()),
                "-i" | "--replace" => Some("{}".to_owned()),
                _ => text.strip_prefix("-I").filter(|_| at == 0).map(str::to_owned),
            }
        });
        let mut command = skip_options(args, valued_options("xargs")).to_vec();
        if command.is_empty() {
            command.push(Argument::known("echo"));
        }
        let line_flags = ["-0", "--null", "-d", "--delimiter", "-L", "-l"];
        let lines = replace.is_some()
            || args.iter().any(|arg| line_flags.iter().any(|flag| arg.text.starts_with(flag)));
        let items = split_items(stdin, lines);
        match replace.filter(|replace| !replace.is_empty()) {
            Some(replace) => {
                let all: Vec<Argument> = match items.len() {
                    0..=20 => items,
                    _ => vec![Argument::known(UNKNOWN)],
                };
                for item in all {
                    self.run(&fill_in(&command, &replace, &item), None);
                }
            }
            None => {
                command.extend(items);
                self.run(&command, None);
            }
        }
        KnownOutput::unknown()
    }

    pub(super) fn check_parallel(
        &mut self,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let valued = ["-j", "--jobs", "-I", "-n", "-N", "--timeout", "--delay", "-S", "--retries"];
        let rest = skip_options(argv.get(1..).unwrap_or_default(), &valued);
        let end = rest.iter().position(|arg| arg.text.starts_with(":::")).unwrap_or(rest.len());
        let (command, values) = rest.split_at(end);
        let values = match values.len() {
            0 => split_items(stdin, true),
            _ => values.get(1..).unwrap_or_default().to_vec(),
        };
        let template = KnownOutput::joined(command).text;
        for value in values.iter().take(20) {
            let text = if template.is_empty() {
                value.text.clone()
            } else if template.contains("{}") {
                template.replace("{}", &value.text)
            } else {
                format!("{template} {}", value.text)
            };
            self.run_separately(argv, &text, value.origin);
        }
        KnownOutput::unknown()
    }
}

/// A command with `item` in place of a placeholder.
pub(super) fn fill_in(command: &[Argument], placeholder: &str, item: &Argument) -> Vec<Argument> {
    let fill_in = |arg: &Argument| match arg.text.contains(placeholder) {
        true => Argument {
            text: arg.text.replace(placeholder, &item.text),
            glob: arg.glob || item.glob,
            origin: arg.origin.max(item.origin),
            process: arg.process.clone(),
        },
        false => arg.clone(),
    };
    command.iter().map(fill_in).collect()
}

/// Splits at newlines or NULs, or at blanks, respecting quotes.
fn split_items(stdin: Option<&KnownOutput>, by_line: bool) -> Vec<Argument> {
    let unknown = || vec![Argument::known(UNKNOWN)];
    let Some(input) = stdin else { return unknown() };
    if input.text.len() > 10_000 {
        return unknown();
    }
    let items: Vec<String> = match by_line {
        true => {
            let lines = input.text.split(['\n', '\0']).map(str::trim);
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        false => shell_words::split(&input.text)
            .unwrap_or_else(|_| input.text.split_whitespace().map(str::to_owned).collect()),
    };
    items
        .into_iter()
        .map(|text| Argument { text, origin: input.origin, ..Argument::default() })
        .collect()
}
