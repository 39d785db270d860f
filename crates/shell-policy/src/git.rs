//! Commands that git runs: subcommands, settings, aliases.

use std::path::PathBuf;
use std::rc::Rc;

use super::rules::{flag_values, valued_options};
use super::value::{Argument, KnownOutput, TextOrigin};
use super::walk::ShellWalker;
use super::wrappers::{skip_options, split_options};

impl ShellWalker<'_> {
    /// The directory after `-C DIRECTORY`, each relative to the one before.
    pub(super) fn working_directory(&self, args: &[Argument]) -> Option<PathBuf> {
        let (options, _) = split_options(args, valued_options("git"));
        let mut cwd = self.state.cwd.clone();
        for (at, option) in options.iter().enumerate() {
            let text = option.text.as_str();
            let place = match text.strip_prefix("--work-tree=") {
                Some(place) => Argument::known(place),
                None if text == "-C" || text == "--work-tree" => options.get(at + 1)?.clone(),
                None => continue,
            };
            cwd = cwd.filter(|_| place.is_known()).map(|cwd| cwd.join(&place.text));
        }
        cwd
    }

    pub(super) fn check_git(&mut self, argv: &[Argument], stdin: Option<&KnownOutput>) {
        let args = argv.get(1..).unwrap_or_default();
        let rest = skip_options(args, valued_options("git"));
        let words: Vec<&str> = rest.iter().map(|arg| arg.text.as_str()).collect();
        match words.as_slice() {
            ["bisect", "run", ..] => {
                self.run(rest.get(2..).unwrap_or_default(), stdin);
            }
            ["submodule", "foreach", ..] => {
                let command = skip_options(rest.get(2..).unwrap_or_default(), &[]);
                self.run_elsewhere(argv, command);
            }
            ["grep", ..] => self.run_flag_values(argv, rest, &["-O"]),
            ["rebase" | "difftool", ..] => {
                self.run_flag_values(argv, rest, &["-x", "--exec", "--extcmd"]);
            }
            _ => {}
        }
        self.check_git_aliases(argv, rest);
    }

    fn run_flag_values(&mut self, argv: &[Argument], args: &[Argument], flags: &[&str]) {
        for script in flag_values(args, flags) {
            self.run_separately(argv, &script.text, script.origin);
        }
    }

    /// Judges aliases at their definition, and at use with more arguments.
    fn check_git_aliases(&mut self, argv: &[Argument], rest: &[Argument]) {
        let options = argv.get(1..argv.len() - rest.len()).unwrap_or_default();
        let mut settings: Vec<(String, String)> = flag_values(options, &["-c"])
            .iter()
            .filter_map(|arg| arg.text.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let option_count = settings.len();
        if let [config, words @ ..] = rest
            && config.text == "config"
        {
            let words: Vec<&Argument> =
                words.iter().filter(|arg| !arg.text.starts_with('-')).collect();
            settings.extend(words.windows(2).filter_map(|pair| match pair {
                [key, value] => Some((key.text.clone(), value.text.clone())),
                _ => None,
            }));
        }
        let outer = Rc::clone(&self.state.aliases);
        for (number, (key, value)) in settings.into_iter().enumerate() {
            let Some(alias) = key.to_ascii_lowercase().strip_prefix("alias.").map(str::to_owned)
            else {
                continue;
            };
            let text = match value.strip_prefix('!') {
                Some(script) => script.to_owned(),
                None => format!("git {value}"),
            };
            if number >= option_count {
                self.run_separately(argv, &text, TextOrigin::Literal);
            }
            Rc::make_mut(&mut self.state.aliases).insert(format!("git {alias}"), text);
        }
        if let [name, args @ ..] = rest
            && let Some(arg) =
                Some(Argument::known(format!("git {}", name.text.to_ascii_lowercase())))
            && self.state.aliases.contains_key(&arg.text)
        {
            self.run_alias(&arg, args);
        }
        if option_count > 0 {
            self.state.aliases = outer;
        }
    }
}
