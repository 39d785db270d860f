//! Tables from `rules.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::rules::{CommandRule, Hit, ProtectedPath, VariableRule};
use crate::wrappers::WrapperProgram;

/// Parsed on first use; strings are borrowed from the embedded file.
pub(crate) static DATA: LazyLock<PolicyData> = LazyLock::new(|| {
    serde_json::from_str(include_str!("rules.json")).expect("a test parses the embedded rules")
});

pub(crate) type Words = Vec<&'static str>;

/// The words of a list in one string, separated by commas. Most lists are never split, which makes
/// parsing the file cheap.
pub(crate) fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split(',').map(str::trim_start).filter(|word| !word.is_empty())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(crate) struct PolicyData {
    /// In the order of checking.
    pub(crate) commands: Vec<CommandRule>,
    /// Findings of the rules in code, by name.
    pub(crate) findings: BTreeMap<&'static str, Hit>,
    /// The first matching entry decides.
    pub(crate) protected_paths: Vec<ProtectedPath>,
    /// Options whose value is the next word, by program.
    pub(crate) option_values: ProgramTable,
    pub(crate) wrappers: Vec<WrapperProgram>,
    /// Flags whose value is a command.
    pub(crate) command_flags: ProgramTable,
    /// Flags that take code, by interpreter.
    pub(crate) interpreters: ProgramTable,
    pub(crate) insecure_flags: ProgramTable,
    /// Flags whose value is a file to write.
    pub(crate) written_flags: ProgramTable,
    /// Programs that write all their operands.
    pub(crate) operand_writers: Words,
    /// Flags that take SQL, by client.
    pub(crate) sql_clients: ProgramTable,
    /// Programs that print, copy or send files.
    pub(crate) file_readers: Words,
    pub(crate) secret_words: Words,
    /// Last words of names such as `TOKEN_LIMIT`, which hold no secret.
    pub(crate) secret_metadata_words: Words,
    pub(crate) resolvers: Words,
    /// The first matching entry decides.
    pub(crate) variables: Vec<VariableRule>,
    pub(crate) command_variables: Words,
    /// Variables of make that hold prose, not a command.
    pub(crate) make_text_variables: Words,
    pub(crate) git_command_settings: Words,
    pub(crate) git_noninteractive_values: Words,
    /// Inputs of any tool that hold paths.
    pub(crate) tool_file_inputs: Words,
    /// Inputs that only tools for files have.
    pub(crate) tool_file_hints: Words,
    pub(crate) tool_file_words: Words,
    /// Words in names of MCP tools whose paths belong to URLs.
    pub(crate) tool_web_words: Words,
}

/// Whether a list names a program. A name may end with `*`.
pub(crate) fn names_program(list: &'static str, program: &str) -> bool {
    // Most lists are for other programs, which a search tells faster than a comparison of words.
    (list.contains(program) || list.contains('*'))
        && words(list).any(|name| match name.strip_suffix('*') {
            Some(start) => program.starts_with(start),
            None => name == program,
        })
}

/// A key names one or more programs, separated by spaces.
#[derive(Deserialize)]
#[serde(transparent, bound(deserialize = "'de: 'static"))]
pub(crate) struct ProgramTable(BTreeMap<&'static str, Words>);

impl ProgramTable {
    pub(crate) fn get(&self, program: &str) -> Option<&[&'static str]> {
        let names = |programs: &str| programs.split(' ').any(|name| name == program);
        self.0.iter().find_map(|(programs, words)| names(programs).then_some(words.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_tables_name_each_program_once() {
        for table in [
            &DATA.option_values,
            &DATA.command_flags,
            &DATA.interpreters,
            &DATA.insecure_flags,
            &DATA.written_flags,
            &DATA.sql_clients,
        ] {
            let mut programs: Vec<&str> =
                table.0.keys().flat_map(|programs| programs.split(' ')).collect();
            let count = programs.len();
            programs.sort_unstable();
            programs.dedup();
            assert_eq!(programs.len(), count, "{programs:?}");
        }
    }

    #[test]
    fn wrappers_name_each_program_once() {
        let mut programs: Vec<&str> =
            DATA.wrappers.iter().flat_map(|wrapper| words(wrapper.programs)).collect();
        let count = programs.len();
        programs.sort_unstable();
        programs.dedup();
        assert_eq!(programs.len(), count, "{programs:?}");
    }
}
