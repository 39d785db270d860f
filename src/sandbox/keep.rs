//! Files that are put back as they were, where nothing can keep an agent from changing them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Trace;
use super::aside::set_aside;
use super::plan::{Guard, Was};

/// What is kept of one file or directory at most.
const MAX_FILES: usize = 500;
const MAX_BYTES: usize = 8 << 20;

/// A file or directory as it was: each file below it with its content and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    path: PathBuf,
    files: BTreeMap<PathBuf, (Vec<u8>, u32)>,
}

impl Kept {
    /// Takes what is there. `None` if it is too much to be kept.
    pub(super) fn take(path: &Path) -> Option<Kept> {
        let mut files = BTreeMap::new();
        collect(path, &mut files, &mut 0)?;
        Some(Kept { path: path.to_owned(), files })
    }

    /// Puts it back if it is different now. Where the other one was put.
    pub(super) fn restore(&self) -> Vec<Trace> {
        if Kept::take(&self.path).is_some_and(|now| now == *self) {
            return Vec::new();
        }
        let put = set_aside(&[Guard { path: self.path.clone(), was: Was::Nothing }]);
        let is_dir = self.files.keys().all(|file| *file != self.path);
        if is_dir {
            let _ = fs::create_dir(&self.path);
        }
        for (file, (bytes, mode)) in &self.files {
            if let Some(parent) = file.parent() {
                let _ = fs::create_dir_all(parent);
            }
            if fs::write(file, bytes).is_ok() {
                let _ = fs::set_permissions(file, fs::Permissions::from_mode(*mode));
            }
        }
        put
    }
}

fn collect(
    path: &Path,
    files: &mut BTreeMap<PathBuf, (Vec<u8>, u32)>,
    bytes: &mut usize,
) -> Option<()> {
    let meta = fs::symlink_metadata(path).ok()?;
    if meta.is_dir() {
        for entry in fs::read_dir(path).ok()?.flatten() {
            collect(&entry.path(), files, bytes)?;
        }
        return Some(());
    }
    let content = if meta.is_symlink() {
        fs::read_link(path).ok()?.into_os_string().into_encoded_bytes()
    } else if meta.is_file() {
        fs::read(path).ok()?
    } else {
        return None;
    };
    *bytes += content.len();
    files.insert(path.to_owned(), (content, meta.permissions().mode() & 0o7777));
    (files.len() <= MAX_FILES && *bytes <= MAX_BYTES).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_put_back_and_the_change_aside() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let hooks = dir.join("hooks");
        fs::create_dir(&hooks).unwrap();
        fs::write(hooks.join("mine"), "as it was").unwrap();
        fs::write(dir.join("config"), "as it was").unwrap();
        let kept = [Kept::take(&hooks).unwrap(), Kept::take(&dir.join("config")).unwrap()];
        assert!(kept.iter().all(|kept| kept.restore().is_empty()));
        fs::write(hooks.join("pre-commit"), "evil").unwrap();
        fs::write(dir.join("config"), "evil").unwrap();
        assert_eq!(kept[0].restore(), [Trace::SetAside(dir.join("hooks.from-sandbox"))]);
        assert_eq!(kept[1].restore(), [Trace::SetAside(dir.join("config.from-sandbox"))]);
        assert_eq!(fs::read_to_string(dir.join("config")).unwrap(), "as it was");
        assert_eq!(fs::read_to_string(hooks.join("mine")).unwrap(), "as it was");
        assert!(!hooks.join("pre-commit").exists());
        fs::remove_dir_all(&hooks).unwrap();
        kept[0].restore();
        assert!(hooks.join("mine").exists());
    }
}
