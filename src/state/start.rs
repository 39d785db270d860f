//! How a run was started: what it takes to go on with it later, beside its journal.
//!
//! Both files are for the user only, since settings may hold keys for the agent's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::runs::RunDir;
use super::save::save_privately;
use super::within::{open_file, whole};

/// A note that is larger is none.
const LARGEST: u64 = 64 << 20;

/// The command line of a run, and where it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartNote {
    /// From the program's name on.
    args: Vec<Word>,
    /// What paths in it are relative to.
    pub directory: PathBuf,
    /// What the agent is asked, if it came by a pipe and cannot be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The values of what its templates name, but for those of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, String>>,
}

/// A word of a command line. JSON has no place for one that is no text, so that it is a list of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Bytes(Vec<u8>),
}

impl StartNote {
    pub fn new(
        args: impl IntoIterator<Item = OsString>,
        directory: PathBuf,
        prompt: Option<String>,
        variables: Option<BTreeMap<String, String>>,
    ) -> Self {
        let word = |arg: OsString| match arg.into_string() {
            Ok(text) => Word::Text(text),
            Err(arg) => Word::Bytes(arg.as_bytes().to_vec()),
        };
        StartNote { args: args.into_iter().map(word).collect(), directory, prompt, variables }
    }

    /// The command line, from the program's name on.
    pub fn args(&self) -> Vec<OsString> {
        let word = |word: &Word| match word {
            Word::Text(text) => OsString::from(text),
            Word::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        };
        self.args.iter().map(word).collect()
    }
}

impl RunDir {
    fn note_path(&self) -> PathBuf {
        self.path.join("start.json")
    }

    /// The settings that the run works by, as a file of settings.
    pub fn settings_path(&self) -> PathBuf {
        self.path.join("settings.json")
    }

    /// Keeps how the run was started. It is there once the settings are.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_start(&self, note: &StartNote, settings: &Value) -> io::Result<()> {
        save_json(&self.note_path(), &serde_json::to_value(note)?)?;
        self.save_settings(settings)
    }

    /// Keeps the settings that the run works by from now on.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save_settings(&self, settings: &Value) -> io::Result<()> {
        save_json(&self.settings_path(), settings)
    }

    /// How the run was started; `None` if nobody noted it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn start(&self) -> io::Result<Option<StartNote>> {
        if !self.settings_path().exists() {
            return Ok(None);
        }
        match open_file(&self.note_path()).and_then(|file| whole(file, LARGEST)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }
}

fn save_json(path: &Path, value: &Value) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    save_privately(path, &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn any_command_line_comes_back_and_nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: "x".to_owned(), path: dir.path().to_owned() };
        assert_eq!(run.start().unwrap(), None);
        let args = ["ralph", "run", "-p", "é\n\"x\""].map(OsString::from).into_iter();
        let args: Vec<OsString> = args.chain([OsString::from_vec(vec![b'/', 0xff])]).collect();
        let note = StartNote::new(
            args.clone(),
            "/somewhere".into(),
            Some("piped".to_owned()),
            Some([("A".to_owned(), "b".to_owned())].into()),
        );
        run.save_start(&note, &json!({"agent": {"env": {"KEY": "secret"}}})).unwrap();
        let found = run.start().unwrap().unwrap();
        assert_eq!((found.args(), &found), (args, &note));
        for path in [run.note_path(), run.settings_path()] {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        std::fs::write(run.note_path(), "{").unwrap();
        assert!(run.start().is_err());
    }
}
