//! Commands in flags and variables.

use super::data::DATA;
use super::rules::{self, flag_values};
use super::shell::parse;
use super::value::{Argument, KnownOutput, TextOrigin, UNKNOWN, glob_match, is_known};
use super::walk::ShellWalker;

const COMMAND_PREFIXES: &[&str] = &["exec=", "proxycommand", "localcommand", "knownhostscommand"];

pub(super) fn is_command_variable(name: &str) -> bool {
    DATA.command_variables.iter().any(|known| glob_match(known, name))
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

    /// Judges the values of make's variables as commands: a recipe may run them. A makefile that the
    /// command line itself writes counts as unknown text.
    pub(super) fn check_make(&mut self, argv: &[Argument], stdin: Option<&KnownOutput>) {
        let args = argv.get(1..).unwrap_or_default();
        for arg in args {
            let (name, value) = arg.text.split_once('=').unwrap_or_default();
            let name = name.trim_end_matches([':', '?', '+']);
            let is_text = || DATA.make_text_variables.iter().any(|text| glob_match(text, name));
            // One word is a path or a name, an expansion in front belongs to a list of options.
            let is_command = value.split_once(' ').is_some_and(|(program, _)| {
                is_known(program) && !program.contains('$') && !name.starts_with('-') && !is_text()
            });
            let is_script = is_command || value.contains([';', '|', '&', '`']);
            if is_script && parse(value).error.is_none() {
                self.run_separately(argv, value, arg.origin);
            }
        }
        let mut files = flag_values(args, &["-f", "--file", "--makefile"]);
        if files.is_empty() {
            files.extend(["GNUmakefile", "makefile", "Makefile"].map(Argument::known));
        }
        for file in files {
            let read = self.script_content(&file, stdin);
            if let Some(text) = read.filter(|text| *text != KnownOutput::file()) {
                self.run_separately(argv, &UNKNOWN.to_string(), text.origin);
            }
        }
    }
}
