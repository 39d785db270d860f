//! Decides which paths and programs may be used outside the sandbox.
//!
//! An agent can write to its project and to a few directories besides (package caches, `sandbox.writable`). Whatever
//! lies there may be the agent's: a program on the `PATH`, a link to `~/.ssh`. ralph therefore asks here before it
//! executes, mounts or follows anything.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::RwLock;

use crate::process;

/// The `PATH` that remains when no directory of the user's is trusted.
const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// The number of links after which a path counts as unresolvable, as in the kernel.
const MAX_LINKS: usize = 40;

/// A set of directories that agents can write to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentWritable {
    dirs: BTreeSet<PathBuf>,
}

/// The result of following every link of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The path without links. Its last parts need not exist.
    pub target: PathBuf,
    /// The agent-writable directories that the path, one of its links or its target lies in.
    pub passed: Vec<PathBuf>,
}

impl Resolved {
    /// Whether no agent can change what this path leads to.
    pub fn is_trusted(&self) -> bool {
        self.passed.is_empty()
    }

    /// The first agent-writable directory that a link leads out of.
    pub fn escapes(&self) -> Option<&Path> {
        self.passed.iter().find(|dir| !self.target.starts_with(dir)).map(PathBuf::as_path)
    }
}

impl AgentWritable {
    /// `dirs` are absolute paths without links.
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        AgentWritable { dirs: dirs.into_iter().collect() }
    }

    /// Adds a directory. Links on the way to it are resolved; a relative path is ignored.
    pub fn add(&mut self, dir: &Path) {
        if dir.is_absolute() {
            self.dirs.insert(dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
        }
    }

    /// Follows an absolute path, reading links with `read_link`. `None` for a relative path or a link cycle.
    pub fn resolve(
        &self,
        path: &Path,
        read_link: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<Resolved> {
        if !path.is_absolute() {
            return None;
        }
        let parts = |path: &Path| {
            path.components().map(|part| part.as_os_str().to_owned()).rev().collect::<Vec<_>>()
        };
        let (mut rest, mut target, mut links) = (parts(path), PathBuf::from("/"), 0);
        let mut passed = BTreeSet::new();
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => target.push(name),
                Some(Component::ParentDir) => {
                    target.pop();
                }
                Some(Component::RootDir) => target = PathBuf::from("/"),
                Some(Component::CurDir | Component::Prefix(_)) | None => {}
            }
            passed.extend(self.dirs.iter().filter(|dir| target.starts_with(dir)).cloned());
            if let Some(link) = read_link(&target) {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                rest.extend(parts(&link));
                target.pop();
            }
        }
        Some(Resolved { target, passed: passed.into_iter().collect() })
    }

    /// Whether no agent can change what is at an absolute path, or where it leads.
    pub fn is_trusted(&self, path: &Path) -> bool {
        let resolved = self.resolve(path, |path| std::fs::read_link(path).ok());
        resolved.is_some_and(|resolved| resolved.is_trusted())
    }

    /// The trusted directories of a `PATH`, in their order.
    pub fn trusted_path(&self, path: Option<&OsStr>) -> OsString {
        let dirs = path.map(std::env::split_paths).into_iter().flatten();
        let trusted: Vec<PathBuf> = dirs.filter(|dir| self.is_trusted(dir)).collect();
        match std::env::join_paths(&trusted) {
            Ok(path) if !trusted.is_empty() => path,
            _ => SYSTEM_PATH.into(),
        }
    }

    /// Finds a program by its name in the trusted directories of a `PATH`. The file itself must be trusted, too: a
    /// link from `~/bin` into the project is not.
    pub fn find_program(&self, name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
        std::env::split_paths(&self.trusted_path(path)).find_map(|dir| {
            let only = std::env::join_paths([dir]).ok()?;
            let found = process::find_program(name, Some(&only), Path::new("/"))?;
            self.is_trusted(&found).then_some(found)
        })
    }
}

static AGENT_WRITABLE: RwLock<AgentWritable> = RwLock::new(AgentWritable { dirs: BTreeSet::new() });

/// Declares a directory that agents of this machine can write to, for the rest of this process.
pub fn declare_agent_writable(dir: &Path) {
    AGENT_WRITABLE.write().unwrap_or_else(std::sync::PoisonError::into_inner).add(dir);
}

/// The directories that were declared so far.
pub fn agent_writable() -> AgentWritable {
    AGENT_WRITABLE.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn resolve_reports_every_writable_directory_on_the_way() {
        let links: BTreeMap<&str, &str> = [
            ("/p/.venv", "/home/me/.ssh"),
            ("/p/bin", "tools/bin"),
            ("/home/me/bin", "/p/bin"),
            ("/usr/lib64", "lib"),
            ("/loop", "/loop"),
            ("/p/up", "../etc"),
        ]
        .into();
        let read_link = |path: &Path| links.get(path.to_str()?).map(PathBuf::from);
        let writable = AgentWritable::new(["/p".into(), "/cache".into()]);
        for (path, target, passed, escapes) in [
            ("/usr/bin/git", "/usr/bin/git", &[][..], None),
            ("/usr/lib64/x", "/usr/lib/x", &[], None),
            ("/p/src", "/p/src", &["/p"], None),
            ("/p/bin/git", "/p/tools/bin/git", &["/p"], None),
            ("/p/.venv/bin", "/home/me/.ssh/bin", &["/p"], Some("/p")),
            ("/home/me/bin/git", "/p/tools/bin/git", &["/p"], None),
            ("/p/up/passwd", "/etc/passwd", &["/p"], Some("/p")),
            ("/p/../etc", "/etc", &["/p"], Some("/p")),
            ("/project", "/project", &[], None),
        ] {
            let resolved = writable.resolve(Path::new(path), read_link).unwrap();
            assert_eq!(resolved.target, Path::new(target), "{path}");
            assert_eq!(resolved.passed, passed.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert_eq!(resolved.escapes(), escapes.map(Path::new), "{path}");
            assert_eq!(resolved.is_trusted(), passed.is_empty(), "{path}");
        }
        assert_eq!(writable.resolve(Path::new("/loop/x"), read_link), None);
        assert_eq!(writable.resolve(Path::new("bin"), read_link), None);
    }

    #[test]
    fn find_program_skips_directories_and_links_of_the_project() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let program = |path: &Path| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(&root.join("project/bin/tool"));
        program(&root.join("system/tool"));
        std::fs::create_dir(root.join("mine")).unwrap();
        symlink(root.join("project/bin/tool"), root.join("mine/tool")).unwrap();
        symlink(root.join("system"), root.join("project/linked")).unwrap();
        let mut writable = AgentWritable::default();
        writable.add(&root.join("project"));
        let dirs = ["project/bin", "project/linked", "mine", "system"].map(|dir| root.join(dir));
        let path = std::env::join_paths(dirs).unwrap();
        let found = writable.find_program("tool".as_ref(), Some(&path));
        assert_eq!(found, Some(root.join("system/tool")));
        let expected = std::env::join_paths(["mine", "system"].map(|dir| root.join(dir))).unwrap();
        assert_eq!(writable.trusted_path(Some(&path)), expected);
        let relative = writable.trusted_path(Some(OsStr::new("bin::.")));
        assert_eq!(relative, SYSTEM_PATH, "relative entries are the project's");
        assert_eq!(writable.trusted_path(None), SYSTEM_PATH);
    }
}
