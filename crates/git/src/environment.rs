//! Environment variables that redirect git to another repository.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ralph_events::error::Error;

use super::repository::{canonical_parent, common_dir, git_dir, work_tree_root};

/// Refuses `GIT_DIR` and similar variables that name another repository: every git call of ralph
/// and its agents would go there.
pub fn refuse_other_repository(
    directory: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), Error> {
    let git = git_dir(directory);
    let common = git.as_deref().map(common_dir);
    let expected: [(&str, Option<PathBuf>); 5] = [
        ("GIT_DIR", git.clone()),
        ("GIT_WORK_TREE", work_tree_root(directory).map(Path::to_owned)),
        ("GIT_COMMON_DIR", common.clone()),
        ("GIT_INDEX_FILE", git.map(|git| git.join("index"))),
        ("GIT_OBJECT_DIRECTORY", common.map(|common| common.join("objects"))),
    ];
    for (name, expected) in expected {
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
        // git resolves it against its working directory.
        let named = canonical_path(&directory.join(&value));
        if expected.map(|path| canonical_path(&path)).as_ref() != Some(&named) {
            let (value, directory) = (Path::new(&value).display(), directory.display());
            return Err(Error::input(format!(
                "{name}={value} is not the repository of {directory}: commits would go to the \
                 wrong place"
            ))
            .hint(format!("unset {name}")));
        }
    }
    Ok(())
}

fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| canonical_parent(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_variables_must_name_this_repository() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("project");
        std::fs::create_dir_all(top.join(".git/objects")).unwrap();
        std::fs::create_dir_all(top.join("sub")).unwrap();
        std::fs::create_dir_all(temp.path().join("other/.git")).unwrap();
        for (name, value, accepted) in [
            ("GIT_DIR", ".git", true),
            ("GIT_DIR", "../other/.git", false),
            ("GIT_DIR", "nowhere", false),
            ("GIT_DIR", "", true),
            ("GIT_WORK_TREE", ".", true),
            ("GIT_WORK_TREE", "..", false),
            ("GIT_INDEX_FILE", ".git/index", true),
            ("GIT_INDEX_FILE", ".git/index.other", false),
            ("GIT_OBJECT_DIRECTORY", ".git/objects", true),
            ("GIT_COMMON_DIR", "../other/.git", false),
            ("GIT_AUTHOR_NAME", "me", true),
        ] {
            let variable = |requested: &str| (requested == name).then(|| value.into());
            let result = refuse_other_repository(&top, variable);
            assert_eq!(result.is_ok(), accepted, "{name}={value}");
        }
        let from_sub = |requested: &str| (requested == "GIT_DIR").then(|| "../.git".into());
        assert!(refuse_other_repository(&top.join("sub"), from_sub).is_ok());
        assert!(refuse_other_repository(temp.path(), from_sub).is_err(), "there is no repository");
    }
}
