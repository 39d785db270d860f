//! The rules: `rules.json`, and functions where arguments need interpretation.
//!
//! A rule sees one command after expansion and unwrapping, never the source text.

mod databases;
mod environment;
mod files;
mod git;
mod network;
mod places;
mod protected;
mod publishing;
mod secrets;
mod system;
mod table;

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;

use super::data::DATA;
use super::links::LinkTable;
use super::value::{Argument, KnownOutput, UNKNOWN};
use super::{Context, Family, Finding, Tier, Verdict};

pub(super) use environment::{VariableRule, check_assignment};
pub(super) use network::is_resolver;
pub(super) use places::judge_path;
pub(super) use protected::{FileAccess, ProtectedPath};
pub(super) use secrets::is_secret_name;
pub(super) use system::mounts;
pub(super) use table::{CommandRule, valued_options};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hit {
    pub(super) tier: Tier,
    pub(super) family: Family,
    #[serde(borrow)]
    pub(super) reason: Cow<'static, str>,
    #[serde(borrow)]
    pub(super) suggestion: Cow<'static, str>,
}

impl Hit {
    pub(super) fn verdict(self, subject: String) -> Verdict {
        let finding = Finding {
            family: self.family,
            subject,
            reason: self.reason.into_owned(),
            suggestion: self.suggestion.into_owned(),
        };
        match self.tier {
            Tier::Warn => Verdict::Warn(finding),
            Tier::Deny => Verdict::Deny(finding),
        }
    }

    pub(super) fn new(
        tier: Tier,
        family: Family,
        reason: &'static str,
        suggestion: &'static str,
    ) -> Self {
        Hit { tier, family, reason: reason.into(), suggestion: suggestion.into() }
    }
}

/// The finding of this name in `rules.json`. A test checks the names; an unknown one is denied.
pub(super) fn finding(name: &'static str) -> Hit {
    let unknown = || Hit::new(Tier::Deny, Family::Obfuscation, name, "simplify the command");
    DATA.findings.get(name).cloned().unwrap_or_else(unknown)
}

pub(super) struct CommandContext<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) cwd: Option<&'a Path>,
    pub(super) stdin: Option<&'a KnownOutput>,
    pub(super) links: &'a LinkTable,
}

pub(super) struct CommandInvocation<'a> {
    /// Without its path.
    pub(super) name: &'a str,
    pub(super) args: &'a [Argument],
    pub(super) context: &'a CommandContext<'a>,
}

impl CommandInvocation<'_> {
    pub(super) fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name)
    }

    /// The first operand.
    pub(super) fn subcommand(&self) -> &str {
        self.operands().first().map(|arg| arg.text.as_str()).unwrap_or_default()
    }

    /// Whether a flag is present: `-f`, `-rf`, `--force`, `--force=x`, or an abbreviation.
    pub(super) fn has(&self, flags: &[&str]) -> bool {
        self.options().any(|text| flags.iter().any(|flag| flag_matches(flag, text)))
    }

    fn options(&self) -> impl Iterator<Item = &str> {
        self.args
            .iter()
            .map(|arg| arg.text.as_str())
            .take_while(|text| *text != "--")
            .filter(|text| text.starts_with('-') && text.len() > 1)
    }

    pub(super) fn operands(&self) -> Vec<&Argument> {
        let valued = valued_options(self.name);
        let mut operands = Vec::new();
        let mut args = self.args.iter();
        while let Some(arg) = args.next() {
            let text = arg.text.as_str();
            // `cargo +nightly publish`
            if self.name == "cargo" && operands.is_empty() && text.starts_with('+') {
                continue;
            }
            if text == "--" {
                operands.extend(args);
                break;
            }
            if text.starts_with('-') && text.len() > 1 {
                let searches = || self.is(&["grep", "egrep", "fgrep", "rg"]);
                if valued.contains(&text) || (is_last_of_cluster(text, "-e") && searches()) {
                    args.next();
                }
                continue;
            }
            operands.push(arg);
        }
        operands
    }

    pub(super) fn values(&self, flags: &[&str]) -> Vec<Argument> {
        flag_values(self.args, flags)
    }
}

/// Values of flags: `-o X`, `-oX`, `-vo X`, `--output X`, `--output=X`.
pub(super) fn flag_values(args: &[Argument], flags: &[&str]) -> Vec<Argument> {
    let mut values = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text.as_str();
        for flag in flags {
            let long = flag.starts_with("--");
            if text == *flag || (!long && is_last_of_cluster(text, flag)) {
                values.extend(args.get(at + 1).cloned());
            } else if let Some(value) = text.strip_prefix(flag) {
                let value = match value.strip_prefix('=') {
                    Some(value) if long => value,
                    _ if !long && flag.len() == 2 => value,
                    _ => continue,
                };
                values.push(Argument { text: value.to_owned(), ..arg.clone() });
            }
        }
    }
    values
}

/// Whether a one-letter flag ends a cluster: `-qc`.
fn is_last_of_cluster(text: &str, flag: &str) -> bool {
    let letters = text.strip_prefix('-').unwrap_or_default();
    flag.len() == 2
        && (2..=6).contains(&letters.len())
        && letters.bytes().all(|b| b.is_ascii_alphabetic())
        && flag.strip_prefix('-').is_some_and(|letter| letters.ends_with(letter))
}

fn flag_matches(flag: &str, text: &str) -> bool {
    // An unknown part may be empty: `-r$x`.
    let known: String = text.chars().filter(|c| *c != UNKNOWN).collect();
    let text = known.as_str();
    let (option, value) = text.split_once('=').unwrap_or((text, ""));
    if ["false", "no", "0", "none", "off", "never"].contains(&value) {
        return false;
    }
    match flag.strip_prefix("--") {
        Some(_) => option == flag || (option.len() >= 5 && flag.starts_with(option)),
        // Single-dash words, as in Java and Terraform.
        None if flag.len() > 2 => option == flag || option.strip_prefix('-') == Some(flag),
        None => {
            !text.starts_with("--")
                && flag.strip_prefix('-').is_some_and(|letter| {
                    option.contains(letter) && option.chars().skip(1).all(char::is_alphanumeric)
                })
        }
    }
}

pub(super) fn check_all(command: &CommandInvocation<'_>) -> Vec<Hit> {
    let mut hits: Vec<Hit> = DATA.commands.iter().filter_map(|rule| rule.check(command)).collect();
    for function in [
        files::check,
        network::check,
        secrets::check,
        system::check,
        publishing::check,
        git::check,
        databases::check,
    ] {
        function(command, &mut hits);
    }
    if hits.iter().any(|hit| hit.family == Family::Databases) && databases::is_for_tests(command) {
        hits.iter_mut().for_each(|hit| hit.tier = Tier::Warn);
    }
    hits
}

/// Programs that rules name, the worst first.
pub(super) fn programs() -> impl Iterator<Item = &'static str> {
    ["rm", "dd", "sh", "bash", "cat"]
        .into_iter()
        .chain(DATA.commands.iter().flat_map(CommandRule::programs))
}

fn rules_of(family: Family) -> impl Iterator<Item = &'static CommandRule> {
    DATA.commands.iter().filter(move |rule| rule.family == family)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name in a call of `finding`, and no other, is in `rules.json`.
    #[test]
    fn findings_in_code_are_those_of_the_table() {
        let mut used = std::collections::BTreeSet::new();
        let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let code = std::fs::read_to_string(path).unwrap();
                    used.extend(code.split('"').skip(1).filter_map(|text| {
                        DATA.findings.keys().find(|name| **name == text).copied()
                    }));
                    for call in [" finding(\"", "(finding(\""] {
                        for rest in code.split(call).skip(1) {
                            let name = rest.split('"').next().unwrap();
                            assert!(DATA.findings.contains_key(name), "{name}");
                        }
                    }
                }
            }
        }
        assert_eq!(used, DATA.findings.keys().copied().collect());
    }

    #[test]
    fn every_rule_has_reason_and_alternative() {
        for rule in DATA.commands.iter() {
            assert!(!rule.programs.is_empty());
            for text in [rule.reason, rule.suggestion] {
                assert!(!text.is_empty(), "{:?}", rule.programs);
                assert!(!text.ends_with('.'), "not a clause without a full stop: {text}");
            }
        }
    }

    #[test]
    fn flag_spellings_are_matched() {
        for (flag, text, matches) in [
            ("-f", "-f", true),
            ("-f", "-rf", true),
            ("-f", "--force", false),
            ("-f", "-r", false),
            ("-f", "-o=f", false),
            ("--force", "--force", true),
            ("--force", "--forc", true),
            ("--force", "--force=x", true),
            ("--force", "--force=false", false),
            ("--force", "--force-with-lease", false),
            ("--force", "--follow-tags", false),
            ("-auto-approve", "-auto-approve", true),
            ("-auto-approve", "--auto-approve", true),
        ] {
            assert_eq!(flag_matches(flag, text), matches, "{flag} {text}");
        }
    }
}
