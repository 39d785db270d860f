//! Rules for commands, as data.

use serde::Deserialize;

use super::{CommandInvocation, Hit};
use crate::data::{DATA, names_program, words};
use crate::value::{Argument, glob_match};
use crate::{Family, Tier};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandRule {
    /// A note for readers of `rules.json`.
    #[serde(default, rename = "comment")]
    _comment: serde::de::IgnoredAny,
    tier: Tier,
    pub(super) family: Family,
    pub(super) programs: &'static str,
    /// Alternatives for the first operands, such as `repo delete`. `*` is a wildcard.
    #[serde(default)]
    subcommands: &'static str,
    /// At least one must be present.
    #[serde(default)]
    flags: &'static str,
    /// Options with a pattern for their value, such as `--pid=host`; one must match. Written in
    /// lower case, which also matches capitals.
    #[serde(default)]
    values: &'static str,
    /// Patterns in lower case; one must match an operand.
    #[serde(default)]
    operands: &'static str,
    /// None may be present.
    #[serde(default)]
    unless: &'static str,
    pub(super) reason: &'static str,
    pub(super) suggestion: &'static str,
}

impl CommandRule {
    pub(super) fn programs(&self) -> impl Iterator<Item = &'static str> {
        words(self.programs)
    }

    pub(super) fn check(&self, command: &CommandInvocation<'_>) -> Option<Hit> {
        if !names_program(self.programs, command.name) {
            return None;
        }
        if !self.subcommands.is_empty() {
            let operands = command.operands();
            let matches = |subcommand: &str| {
                subcommand.split(' ').enumerate().all(|(at, word)| {
                    operands.get(at).is_some_and(|operand| {
                        operand.text == word
                            || (word.contains('*') && glob_match(word, &operand.text))
                    })
                })
            };
            if !words(self.subcommands).any(matches) {
                return None;
            }
        }
        let has_any = |flags| command.has(&words(flags).collect::<Vec<_>>());
        if (!self.flags.is_empty() && !has_any(self.flags)) || has_any(self.unless) {
            return None;
        }
        let matches =
            |pattern: &str, arg: &Argument| glob_match(pattern, &arg.text.to_ascii_lowercase());
        let has_value = |entry: &str| {
            entry.split_once('=').is_some_and(|(flag, pattern)| {
                command.values(&[flag]).iter().any(|value| matches(pattern, value))
            })
        };
        let has_operand =
            |pattern: &str| command.operands().iter().any(|arg| matches(pattern, arg));
        if (!self.values.is_empty() && !words(self.values).any(has_value))
            || (!self.operands.is_empty() && !words(self.operands).any(has_operand))
        {
            return None;
        }
        let has_word = |word: &str| {
            let mut words = command.args.iter().map(|arg| arg.text.as_str());
            words.by_ref().take_while(|text| *text != "--").any(|text| text == word)
        };
        // Programs of these families do not pass `--help` on to another.
        let has_own_help = [Family::Publishing, Family::Cloud, Family::Git].contains(&self.family);
        if has_own_help && has_word("--help") {
            return None;
        }
        // yarn ignores unknown flags.
        if self.family == Family::Publishing && has_word("--dry-run") && command.name != "yarn" {
            return None;
        }
        if let [only] = command.args
            && ["--help", "--version", "-h", "-V", "help", "version"].contains(&only.text.as_str())
        {
            return None;
        }
        Some(Hit::new(self.tier, self.family, self.reason, self.suggestion))
    }
}

pub(crate) fn valued_options(program: &str) -> &'static [&'static str] {
    DATA.option_values.get(program).unwrap_or_default()
}
