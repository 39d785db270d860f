//! Where ralph keeps what belongs to no project.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::private;

/// `$RALPH_HOME`, or `.ralph` in the user's home; `None` if there is neither. `variable` looks a
/// variable of the environment up. A relative path is no place that two processes would agree on, so
/// it counts for nothing.
pub fn ralph_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| {
        variable(name).map(PathBuf::from).filter(|path: &PathBuf| Path::is_absolute(path))
    };
    path("RALPH_HOME").or_else(|| path("HOME").map(|home| home.join(".ralph")))
}

/// Takes the access of other users away from ralph's own directory. One that `RALPH_HOME` names may hold other things,
/// so that only what ralph keeps in it is changed.
pub fn tighten(variable: impl Fn(&str) -> Option<OsString>) {
    let Some(home) = ralph_home(&variable) else { return };
    if variable("HOME").is_some_and(|user| home == Path::new(&user).join(".ralph")) {
        private::tighten(&home);
    }
    for name in OWN {
        private::tighten(&home.join(name));
    }
}

/// The directories that ralph keeps in its own.
const OWN: [&str; 8] =
    ["hooks", "in-use", "journals", "projects", "sandboxes", "starts", "tasks", "workers"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_before_the_users_home() {
        for (given, expected) in [
            (&[("RALPH_HOME", "/r"), ("HOME", "/h")][..], Some("/r")),
            (&[("HOME", "/h")], Some("/h/.ralph")),
            (&[("RALPH_HOME", ""), ("HOME", "/h")], Some("/h/.ralph")),
            (&[("RALPH_HOME", "r")], None),
            (&[], None),
        ] {
            let variable = |name: &str| {
                given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            assert_eq!(ralph_home(variable), expected.map(PathBuf::from), "{given:?}");
        }
    }
}
