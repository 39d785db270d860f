//! The command line and settings of a run, from which it can be resumed.
//!
//! Both files are private: settings may hold keys for the agent's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::private_files;
use super::runs::{self, RunDir};
use super::safe_fs::{open_file, read_limited};
use super::save::save_privately;

const MAX_RECORD_BYTES: u64 = 64 << 20;

const STARTS_DIR: &str = "starts";

const MAX_STARTS: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    args: Vec<ArgWord>,
    /// The directory that relative paths in `args` refer to.
    directory: ArgWord,
    /// Set if it was piped in and cannot be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Template variables that do not come from the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<BTreeMap<String, String>>,
}

/// An argument. Arguments that are not UTF-8 are stored as a list of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum ArgWord {
    Text(String),
    Bytes(Vec<u8>),
}

impl ArgWord {
    fn new(word: OsString) -> ArgWord {
        match word.into_string() {
            Ok(text) => ArgWord::Text(text),
            Err(word) => ArgWord::Bytes(word.as_bytes().to_vec()),
        }
    }

    fn get(&self) -> OsString {
        match self {
            ArgWord::Text(text) => OsString::from(text),
            ArgWord::Bytes(bytes) => OsString::from_vec(bytes.clone()),
        }
    }
}

impl StartRecord {
    pub fn new(
        args: impl IntoIterator<Item = OsString>,
        directory: PathBuf,
        prompt: Option<String>,
        variables: Option<BTreeMap<String, String>>,
    ) -> Self {
        let directory = ArgWord::new(directory.into_os_string());
        StartRecord {
            args: args.into_iter().map(ArgWord::new).collect(),
            directory,
            prompt,
            variables,
        }
    }

    pub fn args(&self) -> Vec<OsString> {
        self.args.iter().map(ArgWord::get).collect()
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.get().into()
    }
}

impl RunDir {
    fn record_path(&self) -> PathBuf {
        self.path.join("start.json")
    }

    fn run_settings_path(&self) -> PathBuf {
        self.path.join("settings.json")
    }

    /// The copy in ralph's home, which agents cannot reach.
    fn out_of_reach(&self, home: &Path) -> RunDir {
        RunDir { id: self.id.clone(), path: home.join(STARTS_DIR).join(&self.id) }
    }

    /// Ralph's home if it has the record, else the project.
    fn record_dir(&self, home: Option<&Path>) -> RunDir {
        let out_of_reach = home.map(|home| self.out_of_reach(home));
        out_of_reach
            .filter(|out_of_reach| out_of_reach.run_settings_path().exists())
            .unwrap_or_else(|| self.clone())
    }

    pub fn settings_path(&self, home: Option<&Path>) -> PathBuf {
        self.record_dir(home).run_settings_path()
    }

    /// Saves the record; the settings, written last, mark it complete. The copy in `home` is
    /// authoritative, the one in the project is for people and for machines without a home. Returns
    /// a warning if `home` cannot be written.
    pub fn save_start(
        &self,
        note: &StartRecord,
        settings: &Value,
        home: Option<&Path>,
    ) -> io::Result<Option<String>> {
        let save = |run: &RunDir| {
            save_json(&run.record_path(), &serde_json::to_value(note)?)?;
            save_json(&run.run_settings_path(), settings)
        };
        let mut why_not = None;
        if let Some(home) = home {
            let out_of_reach = self.out_of_reach(home);
            let starts = home.join(STARTS_DIR);
            forget_oldest(&starts);
            if let Err(err) =
                private_files::create_dir_all(&out_of_reach.path).and_then(|()| save(&out_of_reach))
            {
                // A partial record is useless.
                let _ = std::fs::remove_dir_all(&out_of_reach.path);
                let _ = std::fs::remove_dir(&starts);
                let is_full =
                    matches!(err.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                why_not = Some(if is_full || starts.is_dir() {
                    home_unwritable_warning(&out_of_reach.path, &err, is_full)
                } else {
                    no_home_warning(home, &err)
                });
            }
        }
        save(self)?;
        Ok(why_not)
    }

    pub fn save_settings(&self, settings: &Value, home: Option<&Path>) -> io::Result<()> {
        if let Some(out_of_reach) = home.map(|home| self.out_of_reach(home))
            && out_of_reach.path.is_dir()
        {
            save_json(&out_of_reach.run_settings_path(), settings)?;
        }
        save_json(&self.run_settings_path(), settings)
    }

    /// `None` if there is no record.
    ///
    /// # Errors
    /// `PermissionDenied` if only the project has a record although `home` has one of every run: an
    /// agent may have forged it.
    pub fn read_start(&self, home: Option<&Path>) -> io::Result<Option<StartRecord>> {
        let source = self.record_dir(home);
        if !source.run_settings_path().exists() {
            return Ok(None);
        }
        if source == *self && home.is_some_and(|home| home.join(STARTS_DIR).is_dir()) {
            let message = "it is told only in the project, where an agent may have written it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let note = source.record_path();
        match open_file(&note).and_then(|file| read_limited(file, MAX_RECORD_BYTES)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }
}

fn home_unwritable_warning(path: &Path, err: &io::Error, is_full: bool) -> String {
    let remedy = if is_full { "make room there" } else { "make it writable" };
    format!(
        "how this run was started cannot be kept in {}: {err}; should it be cut off, `ralph resume` may refuse to \
         go on with it ({remedy}, and start the run again)",
        path.display()
    )
}

/// Without a home, the copy in the project counts.
fn no_home_warning(home: &Path, err: &io::Error) -> String {
    format!(
        "ralph cannot write to its own directory, {}: {err}; what it takes to go on with this run, its journal \
         included, is only in the project, where an agent may change or remove it (make it writable, or name \
         another with RALPH_HOME)",
        home.display()
    )
}

/// Makes room for one more record.
fn forget_oldest(starts: &Path) {
    let mut runs = runs::list(starts).unwrap_or_default();
    runs.truncate((runs.len() + 1).saturating_sub(MAX_STARTS));
    for run in runs {
        // Harmless if it fails.
        let _ = std::fs::remove_dir_all(run.path);
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

    fn example() -> (Vec<OsString>, StartRecord) {
        let args = ["ralph", "run", "-p", "é\n\"x\""].map(OsString::from).into_iter();
        let args: Vec<OsString> = args.chain([OsString::from_vec(vec![b'/', 0xff])]).collect();
        let note = StartRecord::new(
            args.clone(),
            "/somewhere".into(),
            Some("piped".to_owned()),
            Some([("A".to_owned(), "b".to_owned())].into()),
        );
        (args, note)
    }

    #[test]
    fn start_record_round_trips_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: "x".to_owned(), path: dir.path().to_owned() };
        assert_eq!(run.read_start(None).unwrap(), None);
        let (args, note) = example();
        run.save_start(&note, &json!({"agent": {"env": {"KEY": "secret"}}}), None).unwrap();
        let found = run.read_start(None).unwrap().unwrap();
        assert_eq!((found.args(), &found), (args, &note));
        for path in [run.record_path(), run.settings_path(None)] {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        std::fs::write(run.record_path(), "{").unwrap();
        assert!(run.read_start(None).is_err());
    }

    #[test]
    fn start_record_overwritten_by_agent_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let home = Some(dir.path());
        let run = |id: &str| {
            let run = RunDir { id: id.to_owned(), path: dir.path().join("project").join(id) };
            run.create().unwrap();
            run
        };
        let (_, note) = example();
        let began = run("20261115-202752-0a1b");
        began.save_start(&note, &json!({"a": 1}), home).unwrap();
        began.save_settings(&json!({"a": 2}), home).unwrap();
        std::fs::write(began.record_path(), "{}").unwrap();
        std::fs::write(began.run_settings_path(), "{}").unwrap();
        assert_eq!(began.read_start(home).unwrap(), Some(note.clone()));
        let settings = std::fs::read_to_string(began.settings_path(home)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&settings).unwrap(), json!({"a": 2}));
        // A forged run.
        let planted = run("20261115-202752-0a1c");
        planted.save_start(&note, &json!({}), None).unwrap();
        let err = planted.read_start(home).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::PermissionDenied);
        assert!(planted.read_start(None).unwrap().is_some(), "where there is no other place");
    }

    #[test]
    fn unwritable_home_is_reported_and_project_copy_used() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: "20261115-202752-0a1b".to_owned(), path: dir.path().join("run") };
        run.create().unwrap();
        let (_, note) = example();
        let home = dir.path().join("file");
        std::fs::write(&home, "").unwrap();
        let warning = run.save_start(&note, &json!({}), Some(&home)).unwrap().unwrap();
        assert!(
            warning.contains(home.to_str().unwrap()) && warning.contains("RALPH_HOME"),
            "{warning}"
        );
        assert_eq!(run.read_start(Some(&home)).unwrap(), Some(note.clone()));
        assert_eq!(run.save_start(&note, &json!({}), None).unwrap(), None, "there is none");
        assert_eq!(run.save_start(&note, &json!({}), Some(dir.path())).unwrap(), None);
    }

    #[test]
    fn old_start_records_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MAX_STARTS {
            std::fs::create_dir(dir.path().join(format!("20261115-202752-{n:04x}"))).unwrap();
        }
        forget_oldest(dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), MAX_STARTS - 1);
        assert!(!dir.path().join("20261115-202752-0000").exists());
    }
}
