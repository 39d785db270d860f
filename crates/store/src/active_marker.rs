//! The file that tells others that a loop works off a task list here: `.ralph-active`.
//!
//! It is a sign, not the lock: it can be read by anybody, and whoever needs to be sure asks the lock.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::safe_fs;
use super::save::save_atomically;

pub const MARKER_FILE: &str = ".ralph-active";

/// What is larger is neither a sign nor a list of names.
const MAX_BYTES: u64 = 16 << 20;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveRecord {
    /// When the loop began, as people and programs read it.
    pub timestamp: String,
    pub pid: u32,
    pub max_iterations: u32,
    /// How the agent is kept in: `direct`, or the sandbox's name.
    pub mode: String,
    pub run_id: String,
    /// Where the documents of the task list are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ralph_dir: Option<PathBuf>,
}

/// The file while a run lasts. It is removed when this is dropped, unless it is another's by then.
#[derive(Debug)]
pub struct ActiveMarker {
    path: PathBuf,
    active: ActiveRecord,
}

impl ActiveMarker {
    /// Puts it up. One that is there is of a run that was cut off, since the lock is ours.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(root: &Path, active: ActiveRecord) -> io::Result<ActiveMarker> {
        let path = root.join(MARKER_FILE);
        let mut text = serde_json::to_string_pretty(&active)?;
        text.push('\n');
        save_atomically(&path, text.as_bytes())?;
        Ok(ActiveMarker { path, active })
    }
}

impl Drop for ActiveMarker {
    fn drop(&mut self) {
        if read(&self.path).is_some_and(|there| there == self.active) {
            // What stays tells of a process that is gone, which its readers can find out.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether there is one.
pub fn exists(root: &Path) -> bool {
    read(&root.join(MARKER_FILE)).is_some()
}

/// Where the documents are of the list that is being worked off, if the sign says so.
pub fn ralph_dir(root: &Path) -> Option<PathBuf> {
    read(&root.join(MARKER_FILE))?.ralph_dir
}

/// Takes one down that a run has left which was cut off: for whoever has made sure that none goes on.
pub fn remove_stale(root: &Path) {
    if exists(root) {
        let _ = std::fs::remove_file(root.join(MARKER_FILE));
    }
}

fn read(path: &Path) -> Option<ActiveRecord> {
    let file = safe_fs::open_file(path).ok()?;
    serde_json::from_slice(&safe_fs::read_limited(file, MAX_BYTES).ok()?).ok()
}

/// The content of `.gitignore` with the sign in it; `None` if it is there already.
///
/// # Errors
/// The file cannot be read.
pub fn gitignore_with_marker(root: &Path) -> io::Result<Option<(PathBuf, Vec<u8>)>> {
    let name = root.join(".gitignore");
    let path = safe_fs::resolve_within(root, &name)?;
    let mut text = match safe_fs::read_within(root, &name, MAX_BYTES) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let is_it = |line: &[u8]| {
        let line = line.trim_ascii();
        line.strip_prefix(b"/").unwrap_or(line) == MARKER_FILE.as_bytes()
    };
    if text.split(|byte| *byte == b'\n').any(is_it) {
        return Ok(None);
    }
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(MARKER_FILE.as_bytes());
    text.push(b'\n');
    Ok(Some((path, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(run: &str) -> ActiveRecord {
        ActiveRecord {
            timestamp: "2026-11-15T20:27:52Z".into(),
            pid: 42,
            max_iterations: 10,
            mode: "direct".into(),
            run_id: run.into(),
            ralph_dir: None,
        }
    }

    #[test]
    fn active_marker_is_removed_only_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MARKER_FILE);
        let first = ActiveMarker::create(dir.path(), active("a")).unwrap();
        let second = ActiveMarker::create(dir.path(), active("b")).unwrap();
        drop(first);
        assert_eq!(read(&path).unwrap().run_id, "b");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn active_marker_is_added_to_gitignore_once() {
        let dir = tempfile::tempdir().unwrap();
        let ignore = dir.path().join(".gitignore");
        for (there, expected) in [
            (None, Some(".ralph-active\n")),
            (Some("target"), Some("target\n.ralph-active\n")),
            (Some("a\r\n/.ralph-active\r\nb"), None),
            (Some("x.ralph-active\n"), Some("x.ralph-active\n.ralph-active\n")),
        ] {
            let _ = std::fs::remove_file(&ignore);
            if let Some(there) = there {
                std::fs::write(&ignore, there).unwrap();
            }
            let text = gitignore_with_marker(dir.path()).unwrap().map(|(_, text)| text);
            assert_eq!(text.as_deref(), expected.map(str::as_bytes), "{there:?}");
        }
    }
}
