//! Keeps git from running hooks and reading configuration that agents can write.
//!
//! The sandbox protects `.git/config` and `.git/hooks`, but they can lead into the work tree:
//! `core.hooksPath=.husky`, `include.path=../.gitconfig`,
//! `.git/hooks/pre-commit -> ../../scripts/check`. When git writes outside the sandbox, such hooks
//! are disabled, and such configuration is an error: too many keys can name a program.
//!
//! An agent without a sandbox has the user's rights anyway, so this applies to sandboxed projects.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_process::CommandOutput;
use ralph_process::trust::{self, AgentWritable};
use ralph_store::project_record::ProjectRecord;

use super::repository::{self, common_dir, work_tree_root};

/// Lists the configuration with the file of each value.
pub const LIST_CONFIG_ARGS: [&str; 4] = ["config", "--list", "-z", "--show-origin"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRepository {
    /// git's relative paths start here.
    pub(crate) top: PathBuf,
    /// Shared by all worktrees; without links.
    pub(crate) common_dir: PathBuf,
}

impl ConfigRepository {
    pub fn find(directory: &Path, git_dir: Option<&Path>) -> Option<ConfigRepository> {
        let (top, git_dir) = match git_dir {
            Some(git_dir) => (directory.to_owned(), git_dir.to_owned()),
            None => (work_tree_root(directory)?.to_owned(), repository::git_dir(directory)?),
        };
        let common_dir = common_dir(&git_dir).canonicalize().ok()?;
        Some(ConfigRepository { top: top.canonicalize().ok()?, common_dir })
    }

    pub fn last_run_was_sandboxed(&self, records: &[ProjectRecord]) -> bool {
        let is_here = |record: &ProjectRecord| {
            let git = record.git.iter().flat_map(|git| git.repositories.values());
            git.into_iter().any(|dirs| dirs.common_dir == self.common_dir)
        };
        records.iter().any(|record| record.sandbox.is_some() && is_here(record))
    }

    /// Parses the output of [`LIST_CONFIG_ARGS`]. Fails if agents can write a configuration file.
    pub fn restrict_from_output(&self, output: &CommandOutput) -> Result<ConfigRestriction, Error> {
        if !output.exit.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::failed(format!("cannot read git's configuration: {why}")));
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        self.restrict(&output.stdout, &trust::agent_writable(), home.as_deref())
    }

    fn restrict(
        &self,
        list: &[u8],
        writable: &AgentWritable,
        home: Option<&Path>,
    ) -> Result<ConfigRestriction, Error> {
        let entries = self.parse(list);
        // The file of an `include` may appear later.
        let included = entries.iter().filter(|entry| is_include(&entry.key)).filter_map(|entry| {
            let path = expand_home(&entry.value, home);
            Some(entry.origin.as_deref()?.parent()?.join(path))
        });
        let files = entries.iter().filter_map(|entry| entry.origin.clone()).chain(included);
        for file in files {
            if !self.is_protected(&file, writable) && !writable.is_trusted(&file) {
                let resolved = writable.resolve(&file, |path| std::fs::read_link(path).ok());
                let file = resolved.map_or(file, |resolved| resolved.target);
                return Err(Error::failed(format!(
                    "git's configuration includes {}, which agents can change",
                    file.display()
                ))
                .hint("move it out of the project, and check it before you run git yourself"));
            }
        }
        let path = entries.iter().rfind(|entry| entry.key == "core.hookspath");
        let own = self.common_dir.join("hooks");
        let hooks = path.map_or(own.clone(), |path| self.top.join(expand_home(&path.value, home)));
        let is_trusted = hooks == own || writable.is_trusted(&hooks);
        let untrusted = if is_trusted { untrusted_hook(&hooks, writable) } else { Some(hooks) };
        let Some(untrusted) = untrusted else { return Ok(ConfigRestriction::default()) };
        let shown = untrusted.strip_prefix(&self.top).unwrap_or(&untrusted).display();
        let warning = match is_trusted {
            true => format!(
                "git hooks are disabled: {shown} points to a file that agents can \
                             change"
            ),
            false => format!("git hooks in {shown} are disabled: agents can change them"),
        };
        let settings = vec!["core.hooksPath=/dev/null".into()];
        Ok(ConfigRestriction { settings, warning: Some(warning) })
    }

    /// Whether the sandbox protects this configuration file.
    fn is_protected(&self, file: &Path, writable: &AgentWritable) -> bool {
        let Some(dir) = file.parent().and_then(|dir| dir.canonicalize().ok()) else { return false };
        let worktrees = self.common_dir.join("worktrees");
        let name = file.file_name();
        let leads_to_trusted =
            std::fs::read_link(file).map_or(true, |target| writable.is_trusted(&dir.join(target)));
        let is_config = name == Some(OsStr::new("config")) && dir == self.common_dir;
        let is_own = name == Some(OsStr::new("config.worktree"))
            && (dir == self.common_dir || dir.parent() == Some(&worktrees));
        leads_to_trusted && (is_config || is_own)
    }

    fn parse(&self, list: &[u8]) -> Vec<GitConfigEntry> {
        let mut fields = list.split(|byte| *byte == 0);
        let mut entries = Vec::new();
        while let (Some(origin), Some(entry)) = (fields.next(), fields.next()) {
            let origin = origin.strip_prefix(b"file:");
            let origin = origin.map(|path| self.top.join(OsStr::from_bytes(path)));
            let end = entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len());
            let (key, value) = entry.split_at(end);
            let value = OsStr::from_bytes(value.strip_prefix(b"\n").unwrap_or(value)).to_owned();
            entries.push(GitConfigEntry {
                origin,
                key: String::from_utf8_lossy(key).into_owned(),
                value,
            });
        }
        entries
    }
}

struct GitConfigEntry {
    /// `None` for the command line and the environment.
    origin: Option<PathBuf>,
    key: String,
    value: OsString,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigRestriction {
    /// For `-c`.
    pub settings: Vec<OsString>,
    pub warning: Option<String>,
}

fn is_include(key: &str) -> bool {
    key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path"))
}

fn expand_home(value: &OsStr, home: Option<&Path>) -> PathBuf {
    match (value.as_bytes().strip_prefix(b"~/"), home) {
        (Some(below), Some(home)) => home.join(OsStr::from_bytes(below)),
        _ => PathBuf::from(value),
    }
}

/// A link to another hook beside it is fine.
fn untrusted_hook(hooks: &Path, writable: &AgentWritable) -> Option<PathBuf> {
    let entries = std::fs::read_dir(hooks).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find(|path| {
        std::fs::read_link(path).is_ok_and(|target| {
            target.components().count() > 1 && !writable.is_trusted(&hooks.join(target))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn repository() -> (tempfile::TempDir, ConfigRepository, AgentWritable) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let top = dir.join("p");
        fs::create_dir_all(top.join(".git/hooks")).unwrap();
        fs::create_dir_all(dir.join("home/hooks")).unwrap();
        let writable = AgentWritable::new([top.clone()]);
        (temp, ConfigRepository { common_dir: top.join(".git"), top }, writable)
    }

    fn restrict(
        (temp, repository, writable): &(tempfile::TempDir, ConfigRepository, AgentWritable),
        list: &str,
    ) -> Result<ConfigRestriction, Error> {
        let home = temp.path().canonicalize().unwrap().join("home");
        repository.restrict(list.replace('|', "\0").as_bytes(), writable, Some(&home))
    }

    #[test]
    fn hooks_path_in_work_tree_is_disabled() {
        let scene = repository();
        let warning = |path: &str| {
            let list = format!("file:.git/config|core.hookspath\n{path}|");
            let restriction = restrict(&scene, &list).unwrap();
            assert_eq!(restriction.settings.is_empty(), restriction.warning.is_none());
            restriction.warning
        };
        let expected = "git hooks in .husky are disabled: agents can change them";
        assert_eq!(warning(".husky").as_deref(), Some(expected));
        assert_eq!(warning(".git/hooks"), None, "protected by the sandbox");
        assert_eq!(warning("~/hooks"), None);
        symlink(scene.1.top.join("x"), scene.0.path().join("home/linked")).unwrap();
        assert!(warning("~/linked").is_some());
    }

    #[test]
    fn hook_linked_into_work_tree_is_disabled() {
        let scene = repository();
        let hooks = scene.1.common_dir.join("hooks");
        fs::write(hooks.join("run"), "").unwrap();
        symlink("run", hooks.join("pre-commit")).unwrap();
        assert_eq!(restrict(&scene, "").unwrap(), ConfigRestriction::default());
        symlink("../../scripts/hook", hooks.join("post-checkout")).unwrap();
        let warning = restrict(&scene, "").unwrap().warning.unwrap();
        assert!(warning.contains(".git/hooks/post-checkout"), "{warning}");
    }

    #[test]
    fn git_config_in_work_tree_is_error_naming_it() {
        let scene = repository();
        for list in [
            "file:.git/../.gitconfig|user.name\nme|",
            "file:.git/config|include.path\n../.gitconfig|",
            "file:.git/config|includeif.onbranch:x.path\n../.gitconfig|",
        ] {
            let error = restrict(&scene, list).unwrap_err();
            assert!(error.message.contains(".gitconfig"), "{list}: {error}");
        }
        let fine = "file:.git/config|include.path\n~/shared|command line:|a.b\nc|";
        assert!(restrict(&scene, fine).is_ok());
    }
}
