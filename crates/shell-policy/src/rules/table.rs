//! Rules as data.

use serde::Deserialize;

use super::{CommandInvocation, Hit};
use crate::data::{DATA, Words};
use crate::value::glob_match;
use crate::{Family, Tier};

/// A rule that needs no more than the program, its subcommand and its flags.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandRule {
    /// A note for readers of `rules.json`.
    #[serde(default, rename = "comment")]
    _comment: serde::de::IgnoredAny,
    tier: Tier,
    family: Family,
    pub(super) programs: Words,
    /// The first operands, each entry one way to say it: `repo delete`. A `*` in a word is a pattern.
    #[serde(default)]
    subcommands: Words,
    /// One of these must be there.
    #[serde(default)]
    flags: Words,
    /// None of these may be there.
    #[serde(default)]
    unless: Words,
    pub(super) reason: &'static str,
    pub(super) suggestion: &'static str,
}

impl CommandRule {
    pub(super) fn check(&self, command: &CommandInvocation<'_>) -> Option<Hit> {
        if !self.programs.iter().any(|program| name_matches(program, command.name)) {
            return None;
        }
        if !self.subcommands.is_empty() {
            let operands = command.operands();
            let said = |subcommand: &&str| {
                subcommand.split(' ').enumerate().all(|(at, word)| {
                    operands.get(at).is_some_and(|operand| {
                        operand.text == word
                            || (word.contains('*') && glob_match(word, &operand.text))
                    })
                })
            };
            if !self.subcommands.iter().any(said) {
                return None;
            }
        }
        if (!self.flags.is_empty() && !command.has(&self.flags))
            || (!self.unless.is_empty() && command.has(&self.unless))
        {
            return None;
        }
        let says = |word: &str| {
            let mut words = command.args.iter().map(|arg| arg.text.as_str());
            words.by_ref().take_while(|text| *text != "--").any(|text| text == word)
        };
        // These run nothing that they are given, which could make use of the word itself.
        let asks = [Family::Publishing, Family::Cloud, Family::Git].contains(&self.family);
        if asks && says("--help") {
            return None;
        }
        // yarn passes over flags that it does not know.
        if self.family == Family::Publishing && says("--dry-run") && command.name != "yarn" {
            return None;
        }
        // Asking how it works, or what it is, does nothing.
        if let [only] = command.args
            && ["--help", "--version", "-h", "-V", "help", "version"].contains(&only.text.as_str())
        {
            return None;
        }
        Some(Hit::new(self.tier, self.family, self.reason, self.suggestion))
    }
}

fn name_matches(program: &str, name: &str) -> bool {
    match program.as_bytes() {
        [start @ .., b'*'] => name.as_bytes().starts_with(start),
        whole => whole == name.as_bytes(),
    }
}

/// Options of a program whose value is the next word.
pub(crate) fn valued_options(program: &str) -> &'static [&'static str] {
    DATA.option_values.get(program).unwrap_or_default()
}
