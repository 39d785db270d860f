//! Restores the permissions of guarded paths after an agent has ended. `chmod 0 .` would lock out
//! ralph, git and the next sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::plan::{ExpectedEntry, SandboxPlan};
use super::{SandboxTrace, platform};
use ralph_store::dir_handle::{describe, open_dir};
use ralph_store::home;
use ralph_store::project::Project;
use ralph_store::relocation::Relocation;

/// With setuid, setgid and sticky.
const MODE_BITS: u32 = 0o7777;
/// The file type, in the same number on every system.
const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR_FILE: u32 = 0o100_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedModes {
    /// Sorted by path: parents must be restored first.
    modes: Vec<SavedMode>,
    /// Restorations are reported once.
    #[serde(skip)]
    reported: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SavedMode {
    path: PathBuf,
    is_dir: bool,
    mode: u32,
}

impl SavedModes {
    /// Ignores links and missing paths.
    pub fn save(paths: impl IntoIterator<Item = PathBuf>) -> SavedModes {
        let mut modes: Vec<SavedMode> = paths.into_iter().filter_map(SavedMode::save).collect();
        modes.sort();
        modes.dedup();
        SavedModes { modes, reported: false }
    }

    /// The modes of the project root, of everything guarded, and of the project's state.
    pub(super) fn for_plan(project: &Path, plan: &SandboxPlan) -> SavedModes {
        let guards = plan.guards.iter();
        let guarded = guards
            .filter(|guard| matches!(guard.was, ExpectedEntry::Directory | ExpectedEntry::File));
        let guarded = guarded.map(|guard| guard.path.clone()).chain([project.to_owned()]);
        let home = home::ralph_home(|name| std::env::var_os(name));
        let state = home.map(|home| Project::new(project, &home));
        let state = state
            .into_iter()
            .flat_map(|project| [project.state_dir().to_owned(), project.runs_dir()]);
        SavedModes::save(guarded.chain(state))
    }

    pub(super) fn relocated(&self, moved: &Relocation) -> SavedModes {
        let modes = self.modes.iter();
        let modes = modes.map(|it| SavedMode { path: moved.apply(&it.path), ..it.clone() });
        SavedModes { modes: modes.collect(), reported: self.reported }
    }

    pub(super) fn restore(&mut self) -> Vec<SandboxTrace> {
        let (mut restored, mut traces) = (Vec::new(), Vec::new());
        for saved in &self.modes {
            match saved.restore() {
                Ok(false) => {}
                Ok(true) => restored.push(saved.path.clone()),
                Err(err) => {
                    traces.push(SandboxTrace::NotRestored(saved.path.clone(), describe(err)))
                }
            }
        }
        if !restored.is_empty() && !self.reported {
            self.reported = true;
            traces.insert(0, SandboxTrace::ModesRestored(restored));
        }
        traces
    }

    /// Restores before and after `clean_up`, which needs the directories and may bring some back.
    pub(super) fn restore_around(
        &mut self,
        clean_up: impl FnOnce() -> Vec<SandboxTrace>,
    ) -> Vec<SandboxTrace> {
        let mut traces = self.restore();
        traces.retain(|trace| !trace.is_not_restored());
        traces.extend(clean_up());
        traces.extend(self.restore());
        traces
    }
}

impl SavedMode {
    fn save(path: PathBuf) -> Option<SavedMode> {
        let meta = fs::symlink_metadata(&path).ok()?;
        let mode = meta.permissions().mode() & MODE_BITS;
        (meta.is_dir() || meta.is_file()).then_some(SavedMode { path, is_dir: meta.is_dir(), mode })
    }

    /// Returns whether the mode was changed. Follows no link.
    fn restore(&self) -> Result<bool, Errno> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(false);
        };
        let dir = match open_dir(parent) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            dir => dir?,
        };
        let expected = if self.is_dir { DIRECTORY } else { REGULAR_FILE };
        let differs = |found: u32| found & TYPE_BITS == expected && found & MODE_BITS != self.mode;
        platform::restore_mode(&dir, name, platform::mode_from(self.mode), differs)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & MODE_BITS
    }

    #[test]
    fn restore_after_chmod_resets_modes_and_reports_once() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap().join("project");
        let (inner, file) = (root.join(".ralph"), root.join(".ralph/lock"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(&file, "").unwrap();
        set_mode(&root, 0o2755);
        set_mode(&inner, 0o750);
        set_mode(&file, 0o640);
        let paths = [file.clone(), inner.clone(), root.clone(), root.join("absent")];
        let mut saved = SavedModes::save(paths);
        assert_eq!(saved.restore(), []);
        for path in [&file, &inner, &root] {
            set_mode(path, 0);
        }
        let text = serde_json::to_string(&saved).unwrap();
        let expected = vec![root.clone(), inner.clone(), file.clone()];
        assert_eq!(saved.restore(), [SandboxTrace::ModesRestored(expected)]);
        assert_eq!([&root, &inner, &file].map(|path| mode(path)), [0o2755, 0o750, 0o640]);
        set_mode(&root, 0o777);
        assert_eq!(saved.restore(), [], "reported before");
        assert_eq!(mode(&root), 0o2755);
        set_mode(&root, 0o555);
        let mut reloaded: SavedModes = serde_json::from_str(&text).unwrap();
        assert_eq!(reloaded.restore(), [SandboxTrace::ModesRestored(vec![root.clone()])]);
    }

    #[test]
    fn restore_around_covers_directories_brought_back() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap().join(".git");
        fs::create_dir(&dir).unwrap();
        set_mode(&dir, 0o755);
        let mut saved = SavedModes::save([dir.clone()]);
        fs::rename(&dir, dir.with_extension("old")).unwrap();
        set_mode(&dir.with_extension("old"), 0);
        let traces = saved.restore_around(|| {
            fs::rename(dir.with_extension("old"), &dir).unwrap();
            vec![SandboxTrace::Restored(dir.clone())]
        });
        assert_eq!(
            traces,
            [SandboxTrace::Restored(dir.clone()), SandboxTrace::ModesRestored(vec![dir.clone()])]
        );
        assert_eq!(mode(&dir), 0o755);
    }

    #[test]
    fn restore_does_not_follow_links() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (ours, users) = (root.join("ours"), root.join("users"));
        fs::create_dir_all(ours.join("below")).unwrap();
        fs::create_dir_all(users.join("below")).unwrap();
        let mut saved = SavedModes::save([ours.clone(), ours.join("below")]);
        fs::remove_dir_all(&ours).unwrap();
        symlink(&users, &ours).unwrap();
        set_mode(&users, 0o700);
        set_mode(&users.join("below"), 0o700);
        assert_eq!(saved.restore(), []);
        assert_eq!(mode(&users), 0o700);
        assert_eq!(mode(&users.join("below")), 0o700);
    }
}
