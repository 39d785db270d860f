//! Where ralph keeps what belongs to no project.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `$RALPH_HOME`, or `.ralph` in the user's home; `None` if there is neither. `variable` looks a
/// variable of the environment up. A relative path is no place that two processes would agree on, so
/// it counts for nothing.
pub fn ralph_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| {
        variable(name).map(PathBuf::from).filter(|path: &PathBuf| Path::is_absolute(path))
    };
    path("RALPH_HOME").or_else(|| path("HOME").map(|home| home.join(".ralph")))
}

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
