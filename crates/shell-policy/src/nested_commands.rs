//! Commands in flags, variables and makefiles.

use super::awk::call_argument;
use super::data::DATA;
use super::rules::{self, flag_values};
use super::shell::parse;
use super::value::{Argument, KnownOutput, TextOrigin, UNKNOWN};
use super::walk::ShellWalker;

const COMMAND_PREFIXES: &[&str] = &["exec=", "proxycommand", "localcommand", "knownhostscommand"];

pub(super) fn is_command_variable(name: &str) -> bool {
    DATA.command_variables.iter().any(|known| super::value::glob_match(known, name))
}

impl ShellWalker<'_> {
    pub(super) fn check_flag_commands(&mut self, name: &str, argv: &[Argument]) {
        let args = argv.get(1..).unwrap_or_default();
        if ["compgen", "complete"].contains(&name) {
            for words in flag_values(args, &["-W"]) {
                self.run_expansions(argv, &words.text, words.origin);
            }
        }
        let Some(flags) = DATA.command_flags.get(name) else {
            return;
        };
        for value in flag_values(args, flags) {
            let lower = value.text.to_ascii_lowercase();
            let before = COMMAND_PREFIXES.iter().find(|before| lower.starts_with(**before));
            let text = match (before, name) {
                (Some(before), _) => value.text.get(before.len()..).unwrap_or_default(),
                (None, "ssh" | "scp" | "sftp" | "autossh") => continue,
                (None, _) => &value.text,
            };
            let mut text = text.trim_start_matches(['=', ' ']).to_owned();
            if ["mapfile", "readarray"].contains(&name) {
                // The callback gets an index and a line.
                text.push_str(&format!(" 0 {UNKNOWN}"));
            }
            self.run_separately(argv, &text, value.origin);
        }
    }

    /// Runs the substitutions in a text that expands like a here-document.
    pub(super) fn run_expansions(&mut self, argv: &[Argument], text: &str, origin: TextOrigin) {
        if text.contains("$(") || text.contains('`') {
            let script = format!(": <<END_OF_TEXT\n{text}\nEND_OF_TEXT");
            self.run_separately(argv, &script, origin);
        }
    }

    pub(super) fn check_exported_variable(
        &mut self,
        argv: &[Argument],
        name: &str,
        value: Option<&Argument>,
    ) {
        let hit = rules::check_assignment(&self.command_context(None), name, value);
        if let Some(hit) = hit {
            self.report(argv, hit);
        }
        if let Some(value) = value
            && is_command_variable(name)
            && !value.text.trim().is_empty()
        {
            self.run_separately(argv, &value.text, value.origin);
        }
    }

    /// Judges a makefile that the same command line wrote.
    pub(super) fn check_makefile(&mut self, argv: &[Argument], stdin: Option<&KnownOutput>) {
        let args = argv.get(1..).unwrap_or_default();
        for text in flag_values(args, &["--eval", "-E"]) {
            self.check_recipes(argv, &KnownOutput::new(text.text, text.origin));
        }
        for arg in args {
            let Some((name, value)) = arg.text.split_once('=') else { continue };
            let name = name.trim_end_matches([':', '?', '+']);
            let is_shell = value.contains([';', '|', '&', '`']) || value.contains("$(");
            if (is_shell || DATA.make_tool_variables.contains(&name)) && !name.starts_with('-') {
                let script = recipe_as_shell(value);
                if parse(&script).error.is_none() {
                    self.run_separately(argv, &script, arg.origin);
                }
            }
        }
        let mut files = flag_values(args, &["-f", "--file", "--makefile"]);
        if files.is_empty() {
            files.extend(["GNUmakefile", "makefile", "Makefile"].map(Argument::known));
        }
        for file in files {
            let read = self.script_content(&file, stdin);
            if let Some(text) = read.filter(|text| *text != KnownOutput::file()) {
                self.check_recipes(argv, &text);
            }
        }
    }

    fn check_recipes(&mut self, argv: &[Argument], makefile: &KnownOutput) {
        let unknown = makefile.text.contains(UNKNOWN);
        if unknown || makefile.origin > TextOrigin::Computed {
            self.run_separately(argv, &UNKNOWN.to_string(), makefile.origin);
        }
        let text = makefile.text.replace("\\\n", " ");
        for line in text.lines() {
            let recipe = line.strip_prefix('\t').or_else(|| {
                let (rule, recipe) = line.split_once(';')?;
                rule.contains(':').then_some(recipe)
            });
            let computed = line.split("$(shell ").skip(1).map(call_argument);
            for command in recipe.into_iter().chain(computed) {
                let command = recipe_as_shell(command.trim_start_matches(['@', '-', '+', ' ']));
                // Make's expansion may turn it into valid shell.
                let readable = parse(&command).error.is_none();
                let command = if readable { command } else { UNKNOWN.to_string() };
                self.run_separately(argv, &command, makefile.origin);
            }
        }
    }
}

/// Replaces make's variables, which are unknown, and `$$`.
fn recipe_as_shell(recipe: &str) -> String {
    let mut out = String::new();
    let mut rest = recipe;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let tail = rest.get(at + 1..).unwrap_or_default();
        rest = match tail.chars().next() {
            Some('$') => {
                out.push('$');
                tail.get(1..).unwrap_or_default()
            }
            Some(open @ ('(' | '{')) => {
                out.push(UNKNOWN);
                let close = if open == '(' { ')' } else { '}' };
                let end = tail.find(close).map_or(tail.len(), |end| end + 1);
                tail.get(end..).unwrap_or_default()
            }
            Some(c) => {
                out.push(UNKNOWN);
                tail.get(c.len_utf8()..).unwrap_or_default()
            }
            None => "",
        };
    }
    out + rest
}
