//! Files and directories that only the user can read, because agent output may hold secrets.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const GROUP_AND_OTHERS: u32 = 0o077;

/// Options that create files for the user only, whatever the umask.
pub fn private_open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// `.ralph` itself gets the usual mode: its settings are shared by version control.
pub fn create_in_project(path: &Path) -> io::Result<()> {
    if let Some(shared) = path.ancestors().find(|dir| dir.ends_with(".ralph")) {
        fs::create_dir_all(shared)?;
    }
    create_dir_all(path)
}

/// Removes access that an older version granted. Does not follow links.
pub fn restrict_access(path: &Path) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) {
        restrict_file_access(&file);
    }
}

pub fn restrict_file_access(file: &File) {
    let Ok(meta) = file.metadata() else { return };
    let mode = meta.permissions().mode();
    if (meta.is_file() || meta.is_dir()) && mode & GROUP_AND_OTHERS != 0 {
        // Some file systems have no modes.
        let _ = file.set_permissions(Permissions::from_mode(mode & 0o7777 & !GROUP_AND_OTHERS));
    }
}

/// Whether even the owner has no access.
pub fn is_closed(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & 0o700 == 0)
}

/// Gives the user back access to their own file. Does not follow links. Returns the path if it
/// changed.
pub fn restore_access(path: &Path) -> Option<PathBuf> {
    let meta = path.symlink_metadata().ok()?;
    let needed = match meta.file_type() {
        kind if kind.is_dir() => 0o700,
        kind if kind.is_file() => 0o600,
        _ => return None,
    };
    let mode = meta.permissions().mode() & 0o7777;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if !is_own || mode & needed == needed {
        return None;
    }
    fs::set_permissions(path, Permissions::from_mode(mode | needed)).ok()?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn tighten_changes_files_and_directories_but_not_links() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("other"), "").unwrap();
        std::os::unix::fs::symlink(at("other"), at("link")).unwrap();
        for (name, before, after) in
            [("file", 0o644, 0o600), ("dir", 0o755, 0o700), ("link", 0o644, 0o644)]
        {
            let real = at(if name == "link" { "other" } else { name });
            fs::set_permissions(&real, Permissions::from_mode(before)).unwrap();
            restrict_access(&at(name));
            assert_eq!(mode(&real), after, "{name}");
        }
        restrict_access(&at("missing"));
    }

    #[test]
    fn create_in_project_keeps_mode_of_shared_directory() {
        let temp = tempfile::tempdir().unwrap();
        let run = temp.path().join(".ralph/runs/id");
        create_in_project(&run).unwrap();
        assert_eq!(mode(&run), 0o700);
        assert_eq!(mode(&temp.path().join(".ralph/runs")), 0o700);
        fs::create_dir(temp.path().join("usual")).unwrap();
        assert_eq!(mode(&temp.path().join(".ralph")), mode(&temp.path().join("usual")));
    }

    #[test]
    fn restore_access_opens_only_closed_paths() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("dir")).unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        for name in ["file", "dir"] {
            fs::set_permissions(at(name), Permissions::from_mode(0o000)).unwrap();
        }
        assert_eq!(restore_access(&at("link")), None);
        assert_eq!(restore_access(&at("dir")), Some(at("dir")));
        assert_eq!(restore_access(&at("file")), Some(at("file")));
        assert_eq!((mode(&at("dir")), mode(&at("file"))), (0o700, 0o600));
        fs::set_permissions(at("dir"), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(restore_access(&at("dir")), None);
        assert_eq!(restore_access(&at("nothing")), None);
    }
}
