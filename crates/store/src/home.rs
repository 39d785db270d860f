//! ralph's own directory, outside all projects.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::private_files;
use ralph_events::env_names::RALPH_HOME;
use ralph_events::error::Error;

/// `$RALPH_HOME`, or `.ralph` in the user's home. Ignores relative paths, which mean another
/// directory in each process.
pub fn ralph_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| {
        variable(name).map(PathBuf::from).filter(|path: &PathBuf| Path::is_absolute(path))
    };
    path(RALPH_HOME).or_else(|| path("HOME").map(|home| home.join(".ralph")))
}

/// Like [`ralph_home`]. Fails without one, or if `RALPH_HOME` is relative.
pub fn require_ralph_home(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    refuse_relative(&variable)?;
    ralph_home(variable).ok_or_else(|| {
        Error::input("no directory for ralph's own files: neither RALPH_HOME nor HOME is set")
            .hint("set HOME, or RALPH_HOME to an absolute path")
    })
}

pub fn refuse_relative(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), Error> {
    let set = variable(RALPH_HOME).filter(|value| !value.is_empty()).map(PathBuf::from);
    match set.filter(|path| !path.is_absolute()) {
        None => Ok(()),
        Some(path) => {
            let message = format!("RALPH_HOME is not an absolute path: {}", path.display());
            Err(Error::input(message).hint("set RALPH_HOME to an absolute path"))
        }
    }
}

/// Removes access of other users. `RALPH_HOME` may hold other things, so only ralph's
/// subdirectories change.
pub fn restrict_access(variable: impl Fn(&str) -> Option<OsString>) {
    let Some(home) = ralph_home(&variable) else { return };
    if variable("HOME").is_some_and(|user| home == Path::new(&user).join(".ralph")) {
        private_files::restrict_access(&home);
    }
    for name in RALPH_DIRS {
        private_files::restrict_access(&home.join(name));
    }
}

/// Restores the user's access to ralph's files, and returns the changed paths. An agent in landlock
/// can change the mode of any file of the user, and ralph cannot restore what it cannot read.
pub fn restore_access(home: &Path) -> Vec<PathBuf> {
    let mut restored = Vec::new();
    // Top down: entries of a closed directory are invisible. One that is only read-only may be meant
    // so by the user.
    let above: Vec<&Path> = home.ancestors().collect();
    for dir in above.into_iter().rev().filter(|dir| private_files::is_closed(dir)) {
        restored.extend(private_files::restore_access(dir));
    }
    for name in RALPH_DIRS {
        let dir = home.join(name);
        restored.extend(private_files::restore_access(&dir));
        if !RECORD_DIRS.contains(&name) {
            continue;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            restored.extend(private_files::restore_access(&entry.path()));
            for file in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                restored.extend(private_files::restore_access(&file.path()));
            }
        }
    }
    restored
}

/// Directories whose content is restored after a killed run.
const RECORD_DIRS: [&str; 2] = ["projects", "sandboxes"];

const RALPH_DIRS: [&str; 8] =
    ["hooks", "in-use", "journals", "projects", "sandboxes", "starts", "tasks", "workers"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn require_ralph_home_without_absolute_path_is_error() {
        for (env, expected) in [
            (&[("RALPH_HOME", "/r")][..], Ok("/r")),
            (&[("RALPH_HOME", ""), ("HOME", "/h")], Ok("/h/.ralph")),
            (&[("RALPH_HOME", "r"), ("HOME", "/h")], Err("RALPH_HOME is not an absolute path: r")),
            (&[("HOME", "h")], Err("neither RALPH_HOME nor HOME is set")),
            (&[], Err("neither RALPH_HOME nor HOME is set")),
        ] {
            let variable = |name: &str| {
                env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            match (require_ralph_home(variable), expected) {
                (Ok(home), Ok(expected)) => assert_eq!(home, Path::new(expected)),
                (Err(error), Err(expected)) => {
                    assert!(error.message.contains(expected), "{error}");
                    assert_eq!(error.exit_code(), 2);
                }
                (home, _) => panic!("{env:?}: {home:?}"),
            }
        }
    }

    #[test]
    fn ralph_home_variable_overrides_user_home() {
        for (env, expected) in [
            (&[("RALPH_HOME", "/r"), ("HOME", "/h")][..], Some("/r")),
            (&[("HOME", "/h")], Some("/h/.ralph")),
            (&[("RALPH_HOME", ""), ("HOME", "/h")], Some("/h/.ralph")),
            (&[("RALPH_HOME", "r")], None),
            (&[], None),
        ] {
            let variable = |name: &str| {
                env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            assert_eq!(ralph_home(variable), expected.map(PathBuf::from), "{env:?}");
        }
    }
}
