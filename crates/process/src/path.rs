//! Finds programs as `execvp` does, before anything is started.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The C library's default without a `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file that starting `name` in `dir` would run.
///
/// A name with a slash is a path relative to `dir`. Others are searched in `path_env`, whose
/// relative and empty entries are relative to `dir`, too.
pub fn find_program(name: &OsStr, path_env: Option<&OsStr>, dir: &Path) -> Option<PathBuf> {
    locate_program(name, path_env, dir).ok().filter(|path| check_executable(path).is_ok())
}

/// Like [`find_program`], but with an error that tells "missing" from "not executable". Paths are
/// not checked: executing them tells.
pub(super) fn locate_program(
    name: &OsStr,
    path_env: Option<&OsStr>,
    dir: &Path,
) -> io::Result<PathBuf> {
    if name.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(dir.join(name));
    }
    let path_env = path_env.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut failure = io::ErrorKind::NotFound.into();
    for entry in std::env::split_paths(path_env) {
        let path = std::path::absolute(dir.join(entry).join(name))?;
        match check_executable(&path) {
            Ok(()) => return Ok(path),
            // A file that is not executable does not hide one later in the path.
            Err(err)
                if err.kind() == io::ErrorKind::PermissionDenied
                    && std::fs::metadata(&path).is_ok() =>
            {
                failure = err;
            }
            Err(_) => {}
        }
    }
    Err(failure)
}

fn check_executable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(path: &Path, mode: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn program_lookup_finds_what_exec_would_run() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        file(&dir.join("first/plain"), 0o644);
        file(&dir.join("second/plain"), 0o755);
        file(&dir.join("second/tool"), 0o755);
        file(&dir.join("here"), 0o755);
        file(&dir.join("first/only-plain"), 0o644);
        std::fs::create_dir_all(dir.join("first/tool")).unwrap();
        let absolute = format!("{0}/first:{0}/second", dir.display());

        for (name, path, expected) in [
            ("tool", &*absolute, Some("second/tool")),
            ("plain", &*absolute, Some("second/plain")),
            ("tool", "second", Some("second/tool")),
            ("here", "second:", Some("here")),
            ("here", "second", None),
            ("./here", "", Some("./here")),
            ("second/tool", "", Some("second/tool")),
            ("missing/tool", &*absolute, None),
            ("only-plain", &*absolute, None),
            ("", &*absolute, None),
        ] {
            let found = find_program(OsStr::new(name), Some(OsStr::new(path)), dir);
            assert_eq!(
                found,
                expected.map(|rest| std::path::absolute(dir.join(rest)).unwrap()),
                "{name} in {path}"
            );
        }
        let kind = |name: &str| {
            locate_program(OsStr::new(name), Some(OsStr::new(&absolute)), dir)
                .map_err(|err| err.kind())
        };
        assert_eq!(kind("only-plain"), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(kind("nothing"), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn program_lookup_without_path_uses_default_directories() {
        assert!(find_program(OsStr::new("sh"), None, Path::new("/")).is_some());
    }
}
