//! `.ralph-active`, which tells other programs that a loop works on a task list here.
//!
//! It is not a lock: anyone can read or change it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::safe_fs;
use super::save::save_atomically;

pub const MARKER_FILE: &str = ".ralph-active";

const MAX_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveRecord {
    pub timestamp: String,
    pub pid: u32,
    pub max_iterations: u32,
    /// `direct`, or the name of the sandbox.
    pub mode: String,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ralph_dir: Option<PathBuf>,
}

/// Removed when dropped, unless another run has replaced it.
#[derive(Debug)]
pub struct ActiveMarker {
    path: PathBuf,
    active: ActiveRecord,
}

impl ActiveMarker {
    /// Writes the marker. The caller holds the project lock, so an existing marker is stale.
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
        if read(&self.path).is_some_and(|marker| marker == self.active) {
            // Readers can tell by its pid that a leftover marker is stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

pub fn exists(root: &Path) -> bool {
    read(&root.join(MARKER_FILE)).is_some()
}

pub fn ralph_dir(root: &Path) -> Option<PathBuf> {
    read(&root.join(MARKER_FILE))?.ralph_dir
}

/// Removes the marker of a killed run. The caller knows that no run is active.
pub fn remove_stale(root: &Path) {
    if exists(root) {
        let _ = std::fs::remove_file(root.join(MARKER_FILE));
    }
}

fn read(path: &Path) -> Option<ActiveRecord> {
    let file = safe_fs::open_file(path).ok()?;
    serde_json::from_slice(&safe_fs::read_limited(file, MAX_BYTES).ok()?).ok()
}

/// Returns path and new content of `.gitignore`; `None` if it already lists the marker.
pub fn gitignore_with_marker(root: &Path) -> io::Result<Option<(PathBuf, Vec<u8>)>> {
    let name = root.join(".gitignore");
    let path = safe_fs::resolve_within(root, &name)?;
    let mut text = match safe_fs::read_within(root, &name, MAX_BYTES) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let is_marker = |line: &[u8]| {
        let line = line.trim_ascii();
        line.strip_prefix(b"/").unwrap_or(line) == MARKER_FILE.as_bytes()
    };
    if text.split(|byte| *byte == b'\n').any(is_marker) {
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
        for (existing, expected) in [
            (None, Some(".ralph-active\n")),
            (Some("target"), Some("target\n.ralph-active\n")),
            (Some("a\r\n/.ralph-active\r\nb"), None),
            (Some("x.ralph-active\n"), Some("x.ralph-active\n.ralph-active\n")),
        ] {
            let _ = std::fs::remove_file(&ignore);
            if let Some(existing) = existing {
                std::fs::write(&ignore, existing).unwrap();
            }
            let text = gitignore_with_marker(dir.path()).unwrap().map(|(_, text)| text);
            assert_eq!(text.as_deref(), expected.map(str::as_bytes), "{existing:?}");
        }
    }
}
