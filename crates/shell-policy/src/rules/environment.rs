//! Environment hijack: variables that change what programs load and run.

use super::{CommandContext, Hit};
use crate::Family::{Environment, Publishing};
use crate::Tier;
use crate::data::DATA;
use crate::run::program_name;
use crate::value::{Argument, glob_match, is_known};

const LOADS_SOMETHING: &str = "the variable makes other programs load or run something";
const RUN_UNCHANGED: &str = "run the program as it is, or name what it needs in its own options";

/// World-writable directories.
const SHARED_DIRS: &[&str] = &["/tmp", "/var/tmp", "/private/tmp", "/dev/shm"];

pub(crate) fn check_assignment(
    command_context: &CommandContext<'_>,
    name: &str,
    value: Option<&Argument>,
) -> Option<Hit> {
    let value = value.map(|arg| arg.text.as_str()).unwrap_or_default();
    let is_shared = |entry: &str| SHARED_DIRS.contains(&entry.trim_end_matches('/'));
    let is_hijack = DATA.hijack_variables.iter().any(|known| glob_match(known, name));
    let (tier, reason) = match name {
        // An empty value turns the mechanism off.
        _ if is_hijack && value.is_empty() => return None,
        _ if is_hijack => (Tier::Deny, LOADS_SOMETHING),
        "PATH"
            if value
                .split(':')
                .any(|entry| entry.trim_end_matches('/') == "." || is_shared(entry)) =>
        {
            (Tier::Deny, "programs are looked up where anybody may put one")
        }
        "LD_LIBRARY_PATH" | "DYLD_LIBRARY_PATH" | "DYLD_FALLBACK_LIBRARY_PATH"
            if value.split(':').any(is_shared) =>
        {
            (Tier::Deny, "libraries are looked up where anybody may put one")
        }
        // The program sees everything that is sent.
        "GIT_SSH" | "GIT_SSH_COMMAND" => {
            let program = program_name(value.split_whitespace().next().unwrap_or_default());
            if ["ssh", "plink"].contains(&program.as_str()) {
                return None;
            }
            (Tier::Deny, LOADS_SOMETHING)
        }
        "GIT_CONFIG_PARAMETERS" => (Tier::Deny, "the variable makes git run something"),
        _ if name.starts_with("GIT_CONFIG_KEY_") && super::git::runs_command(value) => {
            (Tier::Deny, "the setting makes git run another program")
        }
        "NODE_OPTIONS"
            if value.contains("--inspect") || loads_untrusted_code(command_context, value) =>
        {
            (Tier::Deny, "the variable makes every node load or run something")
        }
        "RUBYOPT" if loads_untrusted_code(command_context, value) => {
            (Tier::Deny, "the variable makes every ruby load something")
        }
        "JAVA_TOOL_OPTIONS" | "_JAVA_OPTIONS" | "JDK_JAVA_OPTIONS"
            if value.contains("-javaagent") || value.contains("-agent") =>
        {
            (Tier::Deny, "the variable makes every Java program load something")
        }
        _ if skips_certificate_check(name, value) => {
            (Tier::Warn, "who is at the other end is not checked any more")
        }
        "HTTP_PROXY" | "HTTPS_PROXY" | "ALL_PROXY" | "http_proxy" | "https_proxy" | "all_proxy"
            if !value.is_empty()
                && !value.contains("localhost")
                && !value.contains("127.0.0.1") =>
        {
            (Tier::Warn, "everything that is fetched goes through another machine")
        }
        _ if DATA.registry_variables.contains(&name) => {
            return Some(Hit::deny(
                Publishing,
                "packages come from another registry",
                "use the registry that the project is set up for",
            ));
        }
        "HISTFILE" | "HISTSIZE" | "HISTCONTROL" => {
            (Tier::Warn, "it keeps the shell from keeping its history")
        }
        "PS1" | "PS2" | "PS3" | "PS4" if value.contains("$(") || value.contains('`') => {
            (Tier::Deny, "the prompt runs a command, again and again")
        }
        "RALPH_RUN_ID" | "RALPH_HOME" | "CLAUDE_CONFIG_DIR" => {
            (Tier::Deny, "the variable tells the loop's own programs who they are")
        }
        _ => return None,
    };
    Some(Hit::new(tier, Environment, reason, RUN_UNCHANGED))
}

fn skips_certificate_check(name: &str, value: &str) -> bool {
    match name {
        "GOINSECURE" => true,
        "NODE_TLS_REJECT_UNAUTHORIZED" | "PYTHONHTTPSVERIFY" => value == "0",
        "GIT_SSL_NO_VERIFY" => !["", "0", "false"].contains(&value),
        "npm_config_strict_ssl" | "NPM_CONFIG_STRICT_SSL" => value == "false",
        "CURL_CA_BUNDLE" | "REQUESTS_CA_BUNDLE" => value.is_empty(),
        _ => false,
    }
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
