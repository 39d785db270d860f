//! Environment hijack: variables that change what programs load and run.

use serde::Deserialize;

use super::{CommandContext, Hit, finding};
use crate::data::{DATA, words};
use crate::run::program_name;
use crate::value::{Argument, glob_match, is_known};
use crate::{Family, Tier};

/// World-writable directories.
const SHARED_DIRS: &[&str] = &["/tmp", "/var/tmp", "/private/tmp", "/dev/shm"];

/// A rule for variables. `*` and `?` are wildcards in all lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariableRule {
    names: &'static str,
    /// One must match; by default, any value does.
    #[serde(default)]
    values: &'static str,
    /// None may match.
    #[serde(default)]
    unless: &'static str,
    tier: Tier,
    family: Family,
    reason: &'static str,
    suggestion: &'static str,
}

impl VariableRule {
    fn matches(&self, name: &str, value: &str) -> bool {
        let matches = |list, text| words(list).any(|pattern| glob_match(pattern, text));
        matches(self.names, name)
            && (self.values.is_empty() || matches(self.values, value))
            && !matches(self.unless, value)
    }
}

pub(crate) fn check_assignment(
    command_context: &CommandContext<'_>,
    name: &str,
    value: Option<&Argument>,
) -> Option<Hit> {
    let value = value.map(|arg| arg.text.as_str()).unwrap_or_default();
    if let Some(rule) = DATA.variables.iter().find(|rule| rule.matches(name, value)) {
        return Some(Hit::new(rule.tier, rule.family, rule.reason, rule.suggestion));
    }
    let entry_is =
        |bad: fn(&str) -> bool| value.split(':').any(|entry| bad(entry.trim_end_matches('/')));
    Some(finding(match name {
        "PATH" if entry_is(|entry| entry == "." || SHARED_DIRS.contains(&entry)) => {
            "shared_programs"
        }
        "LD_LIBRARY_PATH" | "DYLD_LIBRARY_PATH" | "DYLD_FALLBACK_LIBRARY_PATH"
            if entry_is(|entry| SHARED_DIRS.contains(&entry)) =>
        {
            "shared_libraries"
        }
        // The program sees everything that is sent.
        "GIT_SSH" | "GIT_SSH_COMMAND" => {
            let program = program_name(value.split_whitespace().next().unwrap_or_default());
            if ["ssh", "plink"].contains(&program.as_str()) {
                return None;
            }
            "variable_runs_program"
        }
        _ if name.starts_with("GIT_CONFIG_KEY_") && super::git::runs_command(value) => {
            "variable_for_git"
        }
        "NODE_OPTIONS"
            if value.contains("--inspect") || loads_untrusted_code(command_context, value) =>
        {
            "variable_for_node"
        }
        "RUBYOPT" if loads_untrusted_code(command_context, value) => "variable_for_ruby",
        _ => return None,
    }))
}

/// Whether options load code that is neither a package nor in the project.
fn loads_untrusted_code(command_context: &CommandContext<'_>, options: &str) -> bool {
    options.split_whitespace().any(|word| {
        let value = match word.split_once('=') {
            Some((_, value)) => value,
            None => word.trim_start_matches("-r").trim_start_matches("-I"),
        };
        if value.starts_with('-') {
            return false;
        }
        let address = value.contains(':') && !value.starts_with("node:");
        if value.starts_with('~') {
            return true;
        }
        let path = value.starts_with(['/', '.']) || value.contains("..");
        let inside = || {
            command_context.locate(&Argument::known(value)).is_some_and(|place| {
                !place.is_uncertain && place.base.starts_with(command_context.context.project)
            })
        };
        !is_known(value) || address || (path && !inside())
    })
}
