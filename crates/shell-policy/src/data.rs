//! The tables of the policy, from `rules.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::rules::{CommandRule, ProtectedPath};
use crate::wrappers::WrapperProgram;

/// Parsed on first use; most texts are borrowed from the embedded file.
pub(crate) static DATA: LazyLock<PolicyData> = LazyLock::new(|| {
    serde_json::from_str(include_str!("rules.json")).expect("a test parses the embedded rules")
});

pub(crate) type Words = Vec<&'static str>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(crate) struct PolicyData {
    pub(crate) commands: CommandRules,
    /// The first entry that fits decides.
    pub(crate) protected_paths: Vec<ProtectedPath>,
    /// Options before or among the operands whose value is the next word.
    pub(crate) option_values: ProgramTable,
    pub(crate) wrappers: Vec<WrapperProgram>,
    /// Tools with the subcommands that take a command: `tool subcommand … command`.
    pub(crate) runners: ProgramTable,
    /// Flags whose value is run as a command.
    pub(crate) command_flags: ProgramTable,
    /// Interpreters with the flags that take code.
    pub(crate) interpreters: ProgramTable,
    /// Flags that turn off the check of a server's certificate.
    pub(crate) insecure_flags: ProgramTable,
    /// Database clients with the flags that take SQL.
    pub(crate) sql_clients: ProgramTable,
    /// Programs that print, copy or send the files that they are given.
    pub(crate) file_readers: Words,
    pub(crate) secret_words: Words,
    /// Last words of names that describe a secret but do not hold it: `TOKEN_LIMIT`.
    pub(crate) secret_metadata_words: Words,
    /// Programs that look up a host name.
    pub(crate) resolvers: Words,
    /// Variables that make programs load or run something, whatever the value.
    pub(crate) hijack_variables: Words,
    /// Variables whose value programs run as a command.
    pub(crate) command_variables: Words,
    /// Variables of make that hold a program.
    pub(crate) make_tool_variables: Words,
    /// Settings that make git run a program.
    pub(crate) git_command_settings: Words,
    pub(crate) git_noninteractive_values: Words,
    pub(crate) powershell_option_values: Words,
    /// Tool inputs that hold paths of files, in any tool.
    pub(crate) tool_file_inputs: Words,
    /// Tool inputs that only tools for files have.
    pub(crate) tool_file_hints: Words,
    /// Words in the names of MCP tools for files.
    pub(crate) tool_file_words: Words,
    /// Words in the names of MCP tools whose paths belong to URLs.
    pub(crate) tool_web_words: Words,
    pub(crate) code_calls: CodeCalls,
}

/// Rules for commands, in the order in which they are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(crate) struct CommandRules {
    files: Vec<CommandRule>,
    network: Vec<CommandRule>,
    secrets: Vec<CommandRule>,
    system: Vec<CommandRule>,
    pub(crate) publishing: Vec<CommandRule>,
    git: Vec<CommandRule>,
    pub(crate) databases: Vec<CommandRule>,
    cloud: Vec<CommandRule>,
}

impl CommandRules {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CommandRule> {
        let Self { files, network, secrets, system, publishing, git, databases, cloud } = self;
        [files, network, secrets, system, publishing, git, databases, cloud].into_iter().flatten()
    }
}

/// Parts of source code that call something, in any language. Some hold quotes, so none is borrowed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeCalls {
    pub(crate) start_process: Vec<String>,
    /// Calls that run the text right after them.
    pub(crate) run_shell: Vec<String>,
    pub(crate) delete: Vec<String>,
    pub(crate) decode: Vec<String>,
    pub(crate) evaluate: Vec<String>,
}

/// Words by program. A key of the JSON object names one or more programs, separated by spaces.
#[derive(Deserialize)]
#[serde(transparent, bound(deserialize = "'de: 'static"))]
pub(crate) struct ProgramTable(BTreeMap<&'static str, Words>);

impl ProgramTable {
    pub(crate) fn get(&self, program: &str) -> Option<&[&'static str]> {
        let names = |programs: &str| programs.split(' ').any(|name| name == program);
        self.0.iter().find_map(|(programs, words)| names(programs).then_some(words.as_slice()))
    }
}
