//! `xargs` and `parallel`: commands that are completed by what is read.

use super::value::{Arg, HOLE, Output};
use super::walk::Walk;
use super::wrappers::skip_options;

impl Walk<'_> {
    pub(super) fn xargs(&mut self, args: &[Arg], stdin: Option<&Output>) -> Output {
        let valued = [
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-s",
            "-E",
            "-a",
            "-J",
            "-R",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--replace",
            "--arg-file",
            "--max-lines",
        ];
        let replace = args.iter().enumerate().find_map(|(at, arg)| {
            let text = arg.text.as_str();
            match text {
                "-I" | "-J" => args.get(at + 1).map(|arg| arg.text.clone()),
                "-i" | "--replace" => Some("{}".to_owned()),
                _ => text.strip_prefix("-I").filter(|_| at == 0).map(str::to_owned),
            }
        });
        let mut command = skip_options(args, &valued).to_vec();
        if command.is_empty() {
            command.push(Arg::known("echo"));
        }
        let whole = ["-0", "--null", "-d", "--delimiter", "-L", "-l"];
        let lines = replace.is_some()
            || args.iter().any(|arg| whole.iter().any(|flag| arg.text.starts_with(flag)));
        let items = items_of(stdin, if lines { Split::Lines } else { Split::Words });
        match replace.filter(|replace| !replace.is_empty()) {
            Some(replace) => {
                let all: Vec<Arg> = match items.len() {
                    0..=20 => items,
                    _ => vec![Arg { text: HOLE.to_string(), ..Arg::default() }],
                };
                for item in all {
                    let command: Vec<Arg> = command
                        .iter()
                        .map(|arg| Arg {
                            text: arg.text.replace(&replace, &item.text),
                            origin: match arg.text.contains(&replace) {
                                true => arg.origin.max(item.origin),
                                false => arg.origin,
                            },
                            ..arg.clone()
                        })
                        .collect();
                    self.run(&command, None);
                }
            }
            None => {
                command.extend(items);
                self.run(&command, None);
            }
        }
        Output::unknown()
    }

    pub(super) fn parallel(&mut self, argv: &[Arg], stdin: Option<&Output>) -> Output {
        let valued = ["-j", "--jobs", "-I", "-n", "-N", "--timeout", "--delay", "-S", "--retries"];
        let rest = skip_options(argv.get(1..).unwrap_or_default(), &valued);
        let end = rest.iter().position(|arg| arg.text.starts_with(":::")).unwrap_or(rest.len());
        let (command, values) = rest.split_at(end);
        let values = match values.len() {
            0 => items_of(stdin, Split::Lines),
            _ => values.get(1..).unwrap_or_default().to_vec(),
        };
        let template = command.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
        for value in values.iter().take(20) {
            let text = if template.is_empty() {
                value.text.clone()
            } else if template.contains("{}") {
                template.replace("{}", &value.text)
            } else {
                format!("{template} {}", value.text)
            };
            self.copied(|walk| walk.run_text(argv, &text, value.origin));
        }
        Output::unknown()
    }
}

/// How xargs takes apart what it reads.
#[derive(Clone, Copy, PartialEq)]
enum Split {
    /// At blanks, quotes heeded.
    Words,
    /// At line ends, or at NULs.
    Lines,
}

/// The words that xargs would add, one for each thing it reads.
fn items_of(stdin: Option<&Output>, split: Split) -> Vec<Arg> {
    let unknown = || vec![Arg { text: HOLE.to_string(), ..Arg::default() }];
    let Some(input) = stdin else { return unknown() };
    if input.text.len() > 10_000 {
        return unknown();
    }
    let items: Vec<String> = match split {
        Split::Lines => {
            let lines = input.text.split(['\n', '\0']).map(str::trim);
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        Split::Words => shell_words::split(&input.text)
            .unwrap_or_else(|_| input.text.split_whitespace().map(str::to_owned).collect()),
    };
    items.into_iter().map(|text| Arg { text, origin: input.origin, ..Arg::default() }).collect()
}
