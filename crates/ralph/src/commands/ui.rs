//! `ralph ui`: every run on this machine in the terminal.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use ralph_events::error::Error;
use ralph_process::trust::outside_program;
use ralph_store::home;

use crate::cli::args::ProjectArgs;
use crate::launcher::RunLauncher;

#[derive(Debug, Args)]
pub struct UiArgs {
    /// Open this run: its name, id, or the beginning of its id.
    pub run: Option<String>,
}

pub fn ui(place: &ProjectArgs, args: &UiArgs) -> Result<u8, Error> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let project = crate::project_dir::open_project(place);
    ralph_tui::run(ralph_tui::Options {
        home: home::require_ralph_home(variable)?,
        directory: project.map_or_else(|_| PathBuf::from("."), |project| project.root().to_owned()),
        run: args.run.clone(),
        launcher: Arc::new(RunLauncher),
        open_report: Arc::new(super::report::open_in_browser),
        editor: trusted(editor(variable)),
    })
}

/// `$VISUAL` and `$EDITOR` may have arguments.
fn editor(variable: impl Fn(&str) -> Option<OsString>) -> Vec<OsString> {
    let set = variable("VISUAL").or_else(|| variable("EDITOR"));
    let words = set.and_then(|set| shell_words::split(set.to_str()?).ok());
    let words = words.filter(|words| !words.is_empty()).unwrap_or_else(|| vec!["vi".to_owned()]);
    words.into_iter().map(OsString::from).collect()
}

/// An agent may have planted a program with the editor's name. Empty if that cannot be excluded.
fn trusted(mut editor: Vec<OsString>) -> Vec<OsString> {
    match editor.first().map(|program| outside_program(program)) {
        Some(Ok(program)) => {
            editor[0] = program.into();
            editor
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editor_is_split_into_words() {
        let editor = |visual: &str, editor_variable: &str| {
            editor(|name| match name {
                "VISUAL" if !visual.is_empty() => Some(visual.into()),
                "EDITOR" if !editor_variable.is_empty() => Some(editor_variable.into()),
                _ => None,
            })
        };
        assert_eq!(editor("code --wait", "nano"), ["code", "--wait"]);
        assert_eq!(editor("", "nano"), ["nano"]);
        assert_eq!(editor("", ""), ["vi"]);
    }
}
