//! A fingerprint of all refs, and of `HEAD` and index in other work trees. Reading files is faster
//! than git. `git pack-refs` does not change it.
//!
//! Ignores refs that change without anyone's work (a background `git fetch`), and the work of other
//! ralph runs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ralph_store::lock;
use ralph_store::project::Project;
use ralph_store::safe_fs;

use super::repository::{common_dir, git_dir, read_git_file, work_tree_root};

/// Remote-tracking refs, and refs that git and jj keep for themselves.
const IGNORED_REFS: [&[u8]; 3] = [b"refs/remotes", b"refs/prefetch", b"refs/jj"];

const MAX_REF_FILES: usize = 20_000;
const MAX_WORKTREES: usize = 1_000;
/// A larger file counts by size and time.
const MAX_LIST: u64 = 64 << 20;
const MAX_VALUE: u64 = 4 << 10;

/// `None` if there are too many refs.
pub fn fingerprint(project: &Path, ralph_home: &Path) -> Option<u64> {
    let Some(own) = git_dir(project) else { return Some(0) };
    let common = common_dir(&own);
    let mut refs = RefsHash::default();
    refs.hash_other_worktrees(project, &own, &common, ralph_home)?;
    let loose = refs.hash_loose_refs(&common)?;
    refs.hash_packed_refs(&common.join("packed-refs"), &loose);
    // The reftable format: the list of tables changes with every ref.
    refs.add(b"reftable", &read_small_file(&common.join("reftable/tables.list")));
    // Only the log has the older stashes.
    let stashes = common.join("logs/refs/stash").symlink_metadata();
    refs.add(b"stashes", &stashes.map_or(0, |log| log.len()));
    Some(refs.total)
}

#[derive(Debug, Default)]
struct RefsHash {
    /// A sum, because directories have no order.
    total: u64,
    other_run_branches: HashSet<Vec<u8>>,
}

impl RefsHash {
    fn add(&mut self, name: &[u8], value: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        (name, value).hash(&mut hasher);
        self.total = self.total.wrapping_add(hasher.finish());
    }

    fn is_relevant(&self, name: &[u8]) -> bool {
        let is_under = |prefix: &[u8]| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        !self.other_run_branches.contains(name)
            && !IGNORED_REFS.iter().any(|prefix| is_under(prefix))
    }

    /// `HEAD` and index of the other work trees. Unstaged changes there would need a git call in
    /// each.
    fn hash_other_worktrees(
        &mut self,
        project: &Path,
        own: &Path,
        common: &Path,
        ralph_home: &Path,
    ) -> Option<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (own, subdir) =
            (real(own), work_tree_root(project).and_then(|top| project.strip_prefix(top).ok()));
        let main = common.ends_with(".git").then(|| common.parent()).flatten();
        let mut trees = vec![(OsString::new(), common.to_owned(), main.map(Path::to_owned))];
        for tree in common.join("worktrees").read_dir().into_iter().flatten().flatten() {
            let state = tree.path();
            let top = read_git_file(&state.join("gitdir"))
                .and_then(|file| Some(state.join(file.trim()).parent()?.to_owned()));
            trees.push((tree.file_name(), state, top));
            if trees.len() > MAX_WORKTREES {
                return None;
            }
        }
        for (name, state, top) in trees {
            if real(&state) == own {
                continue;
            }
            let head = read_small_file(&state.join("HEAD"));
            let is_busy = |top: &PathBuf| {
                has_running_run(top, ralph_home)
                    || subdir.is_some_and(|subdir| has_running_run(&top.join(subdir), ralph_home))
            };
            if top.as_ref().is_some_and(is_busy) {
                let branch = head.as_deref().and_then(|head| head.strip_prefix(b"ref: "));
                self.other_run_branches.extend(branch.map(|branch| branch.trim_ascii().to_owned()));
                continue;
            }
            let index = state.join("index").symlink_metadata().ok();
            let index = index.map(|index| (index.len(), index.mtime(), index.mtime_nsec()));
            let heads = (head, read_small_file(&state.join("reftable/tables.list")));
            self.add(name.as_bytes(), &(heads, index));
        }
        Some(())
    }

    /// Returns the names of all loose refs, ignored ones too.
    fn hash_loose_refs(&mut self, common: &Path) -> Option<HashSet<Vec<u8>>> {
        let mut names = HashSet::new();
        let mut queue = vec![b"refs".to_vec()];
        while let Some(parent) = queue.pop() {
            let directory = common.join(std::ffi::OsStr::from_bytes(&parent));
            for entry in directory.read_dir().into_iter().flatten().flatten() {
                let name = [&parent[..], b"/", entry.file_name().as_bytes()].concat();
                let Ok(kind) = entry.file_type() else { continue };
                // A ref that is being changed.
                if name.ends_with(b".lock") {
                    continue;
                }
                if kind.is_dir() {
                    if self.is_relevant(&name) {
                        queue.push(name);
                    }
                    continue;
                }
                if names.len() >= MAX_REF_FILES {
                    return None;
                }
                if self.is_relevant(&name) {
                    let value = if kind.is_symlink() {
                        entry.path().read_link().ok().map(|to| to.as_os_str().as_bytes().to_owned())
                    } else {
                        read_small_file(&entry.path())
                    };
                    self.add(&name, &value.as_deref().map(<[u8]>::trim_ascii));
                }
                names.insert(name);
            }
        }
        Some(names)
    }

    /// Loose refs override packed ones.
    fn hash_packed_refs(&mut self, list: &Path, loose: &HashSet<Vec<u8>>) {
        let Ok(file) = safe_fs::open_file(list) else { return };
        let Ok(meta) = file.metadata() else { return };
        let Ok(bytes) = safe_fs::read_limited(file, MAX_LIST) else {
            return self.add(b"packed", &(meta.len(), meta.mtime(), meta.mtime_nsec()));
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(space) = memchr::memchr(b' ', line) else { continue };
            let (id, name) = (&line[..space], &line[space + 1..]);
            if name.starts_with(b"refs/") && !loose.contains(name) && self.is_relevant(name) {
                self.add(name, &Some(id));
            }
        }
    }
}

fn read_small_file(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    safe_fs::open_file(path).ok()?.take(MAX_VALUE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn has_running_run(directory: &Path, ralph_home: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let project = Project::new(&directory, ralph_home);
    lock::read_holder(&project.lock_path())
        .is_some_and(|holder| project.run_dir(&holder.run).is_running())
}

#[cfg(test)]
mod tests;
