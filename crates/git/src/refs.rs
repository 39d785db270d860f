//! What every name in a repository stands for, as a number that is another when one of them changed: branches,
//! tags, stashes, and what is checked out and staged in other work trees. It is read from git's own files, so that
//! nobody waits for one more process, and what git merely tidies up (`git pack-refs`) changes nothing.
//!
//! Some names are nobody's work: what a `git fetch` in the background knows of other repositories, and what tools
//! keep for themselves. And what another run of ralph does in a work tree of its own is that run's progress, not this one's.

use std::collections::HashSet;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ralph_store::lock;
use ralph_store::project::Project;
use ralph_store::runs::RunDir;
use ralph_store::safe_fs;

use super::{common_of, directory_of, top_of};

/// Names that change by themselves: of other repositories, and of what git and jj remember for their own sake.
const NO_WORK: [&[u8]; 3] = [b"refs/remotes", b"refs/prefetch", b"refs/jj"];

/// How many names there may be in files of their own, and how many work trees.
const MOST_FILES: usize = 20_000;
const MOST_TREES: usize = 1_000;
/// A list of names that is larger is known by its size and time.
const MAX_LIST: u64 = 64 << 20;
/// No name in a file of its own stands for more than this.
const MAX_VALUE: u64 = 4 << 10;

/// What all of it looks like from a project; `None` if there are too many names for anybody to tell.
pub fn fingerprint(project: &Path) -> Option<u64> {
    let Some(own) = directory_of(project) else { return Some(0) };
    let common = common_of(&own);
    let mut print = Print::default();
    print.other_trees(project, &own, &common)?;
    let loose = print.loose(&common)?;
    print.packed(&common.join("packed-refs"), &loose);
    // The other format that git knows: whenever a name changes, so does the list of tables.
    print.add(b"reftable", &value(&common.join("reftable/tables.list")));
    // A stash below the newest is only here.
    let stashes = common.join("logs/refs/stash").symlink_metadata();
    print.add(b"stashes", &stashes.map_or(0, |log| log.len()));
    Some(print.total)
}

#[derive(Debug, Default)]
struct Print {
    /// In any order: a directory has none.
    total: u64,
    /// The branches that other runs are working on.
    of_others: HashSet<Vec<u8>>,
}

impl Print {
    fn add(&mut self, name: &[u8], value: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        (name, value).hash(&mut hasher);
        self.total = self.total.wrapping_add(hasher.finish());
    }

    fn counts(&self, name: &[u8]) -> bool {
        let is_in = |above: &[u8]| {
            name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        !self.of_others.contains(name) && !NO_WORK.iter().any(|above| is_in(above))
    }

    /// What is checked out and staged in the work trees that are not this one. Files that are only changed there
    /// would have to be looked for, by a git in each.
    fn other_trees(&mut self, project: &Path, own: &Path, common: &Path) -> Option<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (own, within) =
            (real(own), top_of(project).and_then(|top| project.strip_prefix(top).ok()));
        let main = common.ends_with(".git").then(|| common.parent()).flatten();
        let mut trees = vec![(OsString::new(), common.to_owned(), main.map(Path::to_owned))];
        for tree in common.join("worktrees").read_dir().into_iter().flatten().flatten() {
            let state = tree.path();
            let top = super::read(&state.join("gitdir"))
                .and_then(|file| Some(state.join(file.trim()).parent()?.to_owned()));
            trees.push((tree.file_name(), state, top));
            if trees.len() > MOST_TREES {
                return None;
            }
        }
        for (name, state, top) in trees {
            if real(&state) == own {
                continue;
            }
            let head = value(&state.join("HEAD"));
            let is_busy = |top: &PathBuf| {
                is_worked_on(top) || within.is_some_and(|within| is_worked_on(&top.join(within)))
            };
            if top.as_ref().is_some_and(is_busy) {
                let branch = head.as_deref().and_then(|head| head.strip_prefix(b"ref: "));
                self.of_others.extend(branch.map(|branch| branch.trim_ascii().to_owned()));
                continue;
            }
            let index = state.join("index").symlink_metadata().ok();
            let index = index.map(|index| (index.len(), index.mtime(), index.mtime_nsec()));
            let heads = (head, value(&state.join("reftable/tables.list")));
            self.add(name.as_bytes(), &(heads, index));
        }
        Some(())
    }

    /// The names that have files of their own; all of them, also those that count for nothing.
    fn loose(&mut self, common: &Path) -> Option<HashSet<Vec<u8>>> {
        let mut names = HashSet::new();
        let mut left = vec![b"refs".to_vec()];
        while let Some(above) = left.pop() {
            let directory = common.join(std::ffi::OsStr::from_bytes(&above));
            for entry in directory.read_dir().into_iter().flatten().flatten() {
                let name = [&above[..], b"/", entry.file_name().as_bytes()].concat();
                let Ok(kind) = entry.file_type() else { continue };
                // A name that somebody is just changing.
                if name.ends_with(b".lock") {
                    continue;
                }
                if kind.is_dir() {
                    if self.counts(&name) {
                        left.push(name);
                    }
                    continue;
                }
                if names.len() >= MOST_FILES {
                    return None;
                }
                if self.counts(&name) {
                    let value = if kind.is_symlink() {
                        entry.path().read_link().ok().map(|to| to.as_os_str().as_bytes().to_owned())
                    } else {
                        value(&entry.path())
                    };
                    self.add(&name, &value.as_deref().map(<[u8]>::trim_ascii));
                }
                names.insert(name);
            }
        }
        Some(names)
    }

    /// The names that are in git's list of them, but for those that have another meaning since.
    fn packed(&mut self, list: &Path, loose: &HashSet<Vec<u8>>) {
        let Ok(file) = safe_fs::open_file(list) else { return };
        let Ok(meta) = file.metadata() else { return };
        let Ok(bytes) = safe_fs::read_limited(file, MAX_LIST) else {
            return self.add(b"packed", &(meta.len(), meta.mtime(), meta.mtime_nsec()));
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(space) = memchr::memchr(b' ', line) else { continue };
            let (id, name) = (&line[..space], &line[space + 1..]);
            if name.starts_with(b"refs/") && !loose.contains(name) && self.counts(name) {
                self.add(name, &Some(id));
            }
        }
    }
}

/// What is in a small file.
fn value(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    safe_fs::open_file(path).ok()?.take(MAX_VALUE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether a run of ralph is at work in a directory.
fn is_worked_on(directory: &Path) -> bool {
    let project = Project::new(directory.to_owned());
    lock::read_holder(&project.lock_path()).is_some_and(|holder| {
        RunDir { path: project.runs_dir().join(&holder.run), id: holder.run }.is_running()
    })
}

#[cfg(test)]
mod tests;
