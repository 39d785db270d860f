//! Removes symbolic links that an agent left in the git directories of a project.
//!
//! git follows links in its own directories. `.git/logs/HEAD -> ~/.bashrc` makes it append to that file, and
//! `.git/worktrees -> DIR` makes `git worktree prune` delete what is in `DIR`. git creates no links itself. So a link that
//! was not there when the run started is moved aside before git is called outside the sandbox.
//!
//! The links at the start of a run are kept in memory and in the project's record in `$RALPH_HOME`. If ralph is killed, the
//! next ralph compares with the record.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::process;
use crate::sandbox::aside::{self, FROM_SANDBOX};
use crate::state::home;
use crate::state::project_record::{self, GitBaseline, GitDirs, ProjectHome};

use super::read;

/// Directories nested more deeply than this are an error.
const MAX_DEPTH: usize = 64;

/// The number of links that a message names.
const MAX_NAMED: usize = 5;

/// Links by path, with their targets.
type Links = BTreeMap<PathBuf, PathBuf>;

/// The repositories by the paths that lead to them: the `.git` of a work tree, or a git directory itself.
type Repositories = BTreeMap<PathBuf, GitDirs>;

/// Where git looks for a repository.
#[derive(Debug, Clone, Copy)]
struct Places<'a> {
    /// The directory that git is called in, without links.
    directory: &'a Path,
    /// The repository that is named instead (`--git-dir`).
    git_dir: Option<&'a Path>,
}

/// What one project's run started with: the record's baseline with the project's path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    root: PathBuf,
    git: GitBaseline,
}

impl Known {
    /// Whether a link at `path` had to be there at the start of the run.
    fn covers(&self, path: &Path) -> bool {
        let dirs = self.git.repositories.values();
        path.starts_with(&self.root)
            || self.git.repositories.contains_key(path)
            || dirs
                .flat_map(|dirs| [&dirs.git_dir, &dirs.common_dir])
                .any(|dir| path.starts_with(dir))
    }

    /// Whether it is about one of these repositories.
    fn concerns(&self, repositories: &Repositories) -> bool {
        repositories.iter().any(|(at, dirs)| {
            [at, &dirs.git_dir, &dirs.common_dir].into_iter().any(|path| self.covers(path))
        })
    }

    fn is_new(&self, path: &Path, target: &Path) -> bool {
        self.covers(path) && self.git.links.get(path).is_none_or(|known| known != target)
    }
}

/// Watches the git directories of a project during a run.
#[derive(Debug)]
pub struct LinkGuard {
    known: Known,
    /// Where the baseline is recorded, if it could be.
    record: Option<ProjectHome>,
}

impl LinkGuard {
    /// Takes the baseline of a run in `root` and records it. Links that killed runs left behind are moved aside first.
    /// Returns warnings, too.
    ///
    /// # Errors
    /// The git directories cannot be read, a link cannot be moved, or a repository was replaced.
    pub fn start(home: Option<&Path>, root: &Path) -> io::Result<(LinkGuard, Vec<String>)> {
        let root = root.canonicalize()?;
        let places = Places { directory: &root, git_dir: None };
        let known = open_records(home, &places);
        let mut warnings = set_new_links_aside(&places, &known)?;
        if let Some(home) = home {
            // What cannot be written now is compared with once more.
            known.iter().for_each(|known| drop(forget_killed(home, known)));
        }
        let git = baseline(&root)?;
        let me = std::process::id();
        let record = home.map(|home| ProjectHome::new(home, &root));
        let recorded = record.as_ref().map_or(Ok(()), |record| {
            let updated = record.update(|record| {
                let mut open_runs = record.git.take().unwrap_or_default().open_runs;
                open_runs.retain(|pid| *pid != me && !process::is_gone(*pid));
                open_runs.push(me);
                record.git = Some(GitBaseline { open_runs, ..git.clone() });
            });
            updated.map(drop)
        });
        if let Err(err) = &recorded {
            warnings.push(format!(
                "cannot record the state of the git directories: {err}; if ralph is killed, links that the agent \
                 puts there are not noticed"
            ));
        }
        let record = record.filter(|_| recorded.is_ok());
        Ok((LinkGuard { known: Known { root, git }, record }, warnings))
    }

    /// Moves links aside that were not there at the start. Returns warnings about them.
    ///
    /// # Errors
    /// As [`start`](LinkGuard::start). git must not be called then.
    pub fn check(&self) -> io::Result<Vec<String>> {
        let places = Places { directory: &self.known.root, git_dir: None };
        set_new_links_aside(&places, std::slice::from_ref(&self.known))
    }

    /// Checks for the last time, when nothing of the run is left, and records that. Without this the next ralph
    /// compares with the record.
    ///
    /// # Errors
    /// As [`check`](LinkGuard::check).
    pub fn finish(self) -> io::Result<Vec<String>> {
        let warnings = self.check()?;
        if let Some(record) = self.record {
            let me = std::process::id();
            record.update(|record| {
                if let Some(git) = &mut record.git {
                    git.open_runs.retain(|pid| *pid != me);
                }
            })?;
        }
        Ok(warnings)
    }
}

/// The records of runs that are at work or were killed, as far as they are about the same repositories. Links of a
/// repository without such runs are the user's.
fn open_records(home: Option<&Path>, places: &Places<'_>) -> Vec<Known> {
    let records = home.map(project_record::all_records).unwrap_or_default();
    let known = records.into_iter().filter_map(|record| {
        let git = record.git.filter(|git| !git.open_runs.is_empty())?;
        Some(Known { git, root: record.root })
    });
    let mut known: Vec<Known> = known.collect();
    if !known.is_empty() {
        let repositories = places.repositories();
        known.retain(|known| known.concerns(&repositories));
    }
    known
}

/// Removes killed runs from the record of a project whose repository was just checked.
fn forget_killed(home: &Path, known: &Known) -> io::Result<()> {
    if known.git.open_runs.iter().any(|pid| process::is_gone(*pid)) {
        ProjectHome::new(home, &known.root).update(|record| {
            if let Some(git) = &mut record.git {
                git.open_runs.retain(|pid| !process::is_gone(*pid));
            }
        })?;
    }
    Ok(())
}

/// Checks the repository of `directory`, or the one that is named, before git is called outside a run. Warnings are kept
/// for [`take_warnings`].
///
/// # Errors
/// As [`LinkGuard::check`].
pub(super) fn check_before_git(directory: &Path, git_dir: Option<&Path>) -> io::Result<()> {
    let home = home::ralph_home(|name| std::env::var_os(name));
    let directory = directory.canonicalize()?;
    let places = Places { directory: &directory, git_dir };
    let known = open_records(home.as_deref(), &places);
    keep_warnings(set_new_links_aside(&places, &known)?);
    Ok(())
}

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps warnings of a place that cannot print them.
pub fn keep_warnings(warnings: Vec<String>) {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
}

/// The warnings that nobody has printed yet.
pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The git directories of `root` and all links in them.
fn baseline(root: &Path) -> io::Result<GitBaseline> {
    let repositories = Places { directory: root, git_dir: None }.repositories();
    let mut links = list_entry_links(&repositories);
    links.extend(list_links(&repositories)?);
    Ok(GitBaseline { repositories, links, open_runs: Vec::new() })
}

/// Moves aside what is new by any of the baselines. The links called `.git` come first: what they lead to is no git
/// directory of this project, and is not searched.
fn set_new_links_aside(places: &Places<'_>, known: &[Known]) -> io::Result<Vec<String>> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let mut moved = Vec::new();
    let mut set_aside = |repositories: &Repositories, links: Links| {
        let is_new = |(path, target): &(PathBuf, PathBuf)| {
            known.iter().any(|known| known.is_new(path, target))
        };
        for (path, target) in links.into_iter().filter(is_new) {
            let was = known.iter().find_map(|known| known.git.links.get(&path));
            let to = move_aside(repositories, &path, was).map_err(|err| {
                let (path, target) = (path.display(), target.display());
                let why = aside::describe(err);
                io::Error::other(format!("cannot move the link {path} -> {target} aside: {why}"))
            })?;
            moved.push((path, target, to));
        }
        io::Result::Ok(())
    };
    let repositories = places.repositories();
    set_aside(&repositories, list_entry_links(&repositories))?;
    let repositories = places.repositories();
    refuse_replaced(&repositories, known)?;
    set_aside(&repositories, list_links(&repositories)?)?;
    Ok(warning(&moved).into_iter().collect())
}

/// Fails if a `.git` leads to another directory than at the start of a run.
fn refuse_replaced(found: &Repositories, known: &[Known]) -> io::Result<()> {
    for (dot_git, now) in found {
        let is_in_place = now.git_dir == *dot_git && now.common_dir == *dot_git;
        for known in known {
            let is_same = match known.git.repositories.get(dot_git) {
                // A worktree may have been made anew under another name.
                Some(was) => {
                    let worktrees = was.common_dir.join("worktrees");
                    let is_worktree = |dirs: &GitDirs| dirs.git_dir.starts_with(&worktrees);
                    now.common_dir == was.common_dir
                        && (now.git_dir == was.git_dir || (is_worktree(now) && is_worktree(was)))
                }
                None => is_in_place || !dot_git.starts_with(&known.root),
            };
            if !is_same {
                let (dot_git, now) = (dot_git.display(), now.git_dir.display());
                return Err(io::Error::other(format!(
                    "{dot_git} was replaced since the run started: it leads to {now} now"
                )));
            }
        }
    }
    Ok(())
}

/// Describes what was moved, in one message.
fn warning(moved: &[(PathBuf, PathBuf, PathBuf)]) -> Option<String> {
    if moved.is_empty() {
        return None;
    }
    let shown = |path: &Path| path.to_string_lossy().replace(char::is_control, "?");
    let mut named: Vec<String> = moved
        .iter()
        .take(MAX_NAMED)
        .map(|(path, target, to)| {
            format!("{} -> {} (now {})", shown(path), shown(target), shown(to))
        })
        .collect();
    if moved.len() > MAX_NAMED {
        named.push(format!("{} more", moved.len() - MAX_NAMED));
    }
    Some(format!(
        "symbolic links that were not there when the run started were moved out of the git directory, because git \
         would follow them: {}",
        named.join(", ")
    ))
}

impl Places<'_> {
    /// Finds every `.git` in the directory and above it. git uses the first that it accepts, so all of them count.
    fn repositories(&self) -> Repositories {
        let mut found = Repositories::new();
        let mut add = |at: PathBuf, git_dir: PathBuf| {
            let common = read(&git_dir.join("commondir"));
            let common = common.and_then(|it| git_dir.join(it.trim_end()).canonicalize().ok());
            let common_dir = common.unwrap_or_else(|| git_dir.clone());
            found.insert(at, GitDirs { git_dir, common_dir });
        };
        for top in self.directory.ancestors() {
            let dot_git = top.join(".git");
            let Ok(meta) = dot_git.symlink_metadata() else { continue };
            let git_dir =
                if meta.is_dir() { Some(dot_git.clone()) } else { leads_to(&dot_git, top) };
            // What leads nowhere is still there.
            let git_dir = git_dir.unwrap_or_else(|| dot_git.clone());
            add(dot_git, git_dir);
        }
        if let Some(git_dir) = self.git_dir.and_then(|git_dir| git_dir.canonicalize().ok()) {
            add(git_dir.clone(), git_dir);
        }
        found
    }
}

/// The git directory that a link or a file called `.git` leads to.
fn leads_to(dot_git: &Path, top: &Path) -> Option<PathBuf> {
    let real = dot_git.canonicalize().ok()?;
    if real.is_dir() {
        return Some(real);
    }
    let text = read(&real)?;
    top.join(text.trim_end().strip_prefix("gitdir: ")?).canonicalize().ok()
}

/// Lists the links that are called `.git`.
fn list_entry_links(repositories: &Repositories) -> Links {
    let link = |path: &PathBuf| Some((path.clone(), std::fs::read_link(path).ok()?));
    repositories.keys().filter_map(link).collect()
}

/// Lists the symbolic links in the git directories.
fn list_links(repositories: &Repositories) -> io::Result<Links> {
    let mut links = Links::new();
    for top in top_dirs(repositories) {
        let failed = |err: Errno| {
            let why = aside::describe(err);
            io::Error::other(format!("cannot look for links in {}: {why}", top.display()))
        };
        match aside::open_dir(top) {
            Ok(dir) => walk(&dir, top, 0, &mut links).map_err(failed)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(err) => return Err(failed(err)),
        }
    }
    Ok(links)
}

/// The git directories, without those that are in another one.
fn top_dirs(repositories: &Repositories) -> Vec<&Path> {
    let dirs: BTreeSet<&Path> =
        repositories.values().flat_map(|dirs| [dirs.git_dir.as_path(), &dirs.common_dir]).collect();
    let is_within = |dir: &Path| dirs.iter().any(|other| *other != dir && dir.starts_with(other));
    dirs.iter().copied().filter(|dir| !is_within(dir)).collect()
}

/// Adds the links in a directory and below it, without following any.
fn walk(dir: &OwnedFd, path: &Path, depth: usize, links: &mut Links) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = aside::opened_up(dir, || rustix::fs::openat(dir, ".", flags, Mode::empty()));
    let opened = match opened {
        Ok(opened) => opened,
        // git cannot follow a link in a directory that neither of them can enter.
        Err(Errno::ACCESS)
            if rustix::fs::accessat(dir, ".", Access::EXEC_OK, AtFlags::empty()).is_err() =>
        {
            return Ok(());
        }
        Err(err) => return Err(err),
    };
    let is_objects = path.file_name() == Some(OsStr::new("objects"));
    for entry in Dir::new(opened)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(err) => return Err(err),
            },
            kind => kind,
        };
        match kind {
            // git reads no such name at the top of a git directory: what was moved there stays.
            FileType::Symlink if depth == 0 && was_moved_aside(name) => {}
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => {
                    let target = OsString::from_vec(target.into_bytes());
                    links.insert(path.join(name), target.into());
                }
                Err(Errno::NOENT | Errno::INVAL) => {}
                Err(err) => return Err(err),
            },
            // git replaces loose objects and does not write through them.
            FileType::Directory if is_objects && is_fan_out(name) => {}
            FileType::Directory => match aside::enter(dir, name) {
                Ok(below) => walk(&below, &path.join(name), depth + 1, links)?,
                // Another process has just replaced or removed it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(err) => return Err(err),
            },
            _ => {}
        }
    }
    Ok(())
}

/// Whether this is a directory of loose objects: `objects/ab`.
fn is_fan_out(name: &OsStr) -> bool {
    name.len() == 2 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn was_moved_aside(name: &OsStr) -> bool {
    memchr::memmem::find(name.as_bytes(), FROM_SANDBOX.as_bytes()).is_some()
}

/// Moves a link to the top of its git directory, where git looks at no such name. (In `refs` or `worktrees` git would
/// follow it under any name.) A link that was there with another target is restored. Returns the new path.
fn move_aside(
    repositories: &Repositories,
    path: &Path,
    was: Option<&PathBuf>,
) -> Result<PathBuf, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let top = top_dirs(repositories).into_iter().find(|top| *top != path && path.starts_with(top));
    let top = top.unwrap_or(parent);
    let dir = aside::open_dir(parent)?;
    let to_dir = aside::open_dir(top)?;
    let to = aside::move_aside_into(&dir, name, &to_dir)?;
    if let Some(was) = was {
        aside::opened_up(&dir, || rustix::fs::symlinkat(was, &dir, name))?;
    }
    Ok(top.join(to))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Scene {
        _temp: tempfile::TempDir,
        home: PathBuf,
        root: PathBuf,
        git: PathBuf,
    }

    /// A project with a git directory that has two links.
    fn scene() -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let git = dir.join("project/.git");
        for below in ["objects/info", "objects/ab", "refs/heads", "logs/refs", "modules/a/refs"] {
            fs::create_dir_all(git.join(below)).unwrap();
        }
        symlink("../elsewhere", git.join("kept")).unwrap();
        symlink("../elsewhere", git.join("logs/kept")).unwrap();
        Scene { home: dir.join("home"), root: dir.join("project"), git, _temp: temp }
    }

    impl Scene {
        fn start(&self) -> (LinkGuard, Vec<String>) {
            LinkGuard::start(Some(&self.home), &self.root).unwrap()
        }

        fn plant(&self, name: &str) -> PathBuf {
            symlink("/planted", self.git.join(name)).unwrap();
            self.git.join(name)
        }

        fn open_runs(&self) -> usize {
            project_record::all_records(&self.home)[0].git.as_ref().unwrap().open_runs.len()
        }
    }

    #[test]
    fn new_links_are_moved_to_the_top_of_the_git_directory() {
        let scene = scene();
        let (guard, warnings) = scene.start();
        assert!(warnings.is_empty());
        assert!(guard.check().unwrap().is_empty());
        let names = ["HEAD", "logs/HEAD", "objects/info/x", "refs/heads/main", "modules/a/refs/x"];
        let planted = names.map(|name| scene.plant(name));
        let object = scene.plant("objects/ab/cd");
        let warnings = guard.check().unwrap();
        assert_eq!(warnings.len(), 1, "one warning for all");
        assert!(warnings[0].contains("logs/HEAD -> /planted (now "), "{warnings:?}");
        assert!(planted.iter().all(|path| !path.is_symlink()));
        for name in ["HEAD", "HEAD.1", "x", "x.1", "main"] {
            let (name, number) = name.split_once('.').unwrap_or((name, ""));
            let dot = if number.is_empty() { "" } else { "." };
            let moved = scene.git.join(format!("{name}.from-sandbox{dot}{number}"));
            assert!(moved.is_symlink(), "{}", moved.display());
        }
        assert!(object.is_symlink(), "loose objects are replaced, not followed");
        assert!(guard.check().unwrap().is_empty(), "what was moved stays there");
        assert!(scene.git.join("kept").is_symlink() && scene.git.join("logs/kept").is_symlink());
    }

    #[test]
    fn changed_link_is_restored_and_removed_one_stays_away() {
        let scene = scene();
        let (guard, _) = scene.start();
        fs::remove_file(scene.git.join("kept")).unwrap();
        assert!(guard.check().unwrap().is_empty());
        scene.plant("kept");
        assert_eq!(guard.check().unwrap().len(), 1);
        assert_eq!(fs::read_link(scene.git.join("kept")).unwrap(), Path::new("../elsewhere"));
    }

    #[test]
    fn links_after_a_killed_run_are_moved_and_after_a_finished_one_stay() {
        let scene = scene();
        let (guard, _) = scene.start();
        drop(guard);
        assert_eq!(scene.open_runs(), 1);
        let planted = scene.plant("index");
        let (guard, warnings) = scene.start();
        assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
        assert!(guard.finish().unwrap().is_empty());
        assert_eq!(scene.open_runs(), 0);
        let own = scene.plant("index");
        let (_, warnings) = scene.start();
        assert!(warnings.is_empty() && own.is_symlink(), "{warnings:?}");
    }

    #[test]
    fn replaced_git_directory_is_an_error_and_not_searched() {
        let scene = scene();
        let (guard, _) = scene.start();
        let other = scene.root.join("other");
        fs::rename(&scene.git, &other).unwrap();
        fs::write(&scene.git, "gitdir: other\n").unwrap();
        let error = guard.check().unwrap_err().to_string();
        assert!(error.contains("was replaced since the run started"), "{error}");
        fs::remove_file(&scene.git).unwrap();
        symlink("other", &scene.git).unwrap();
        guard.check().unwrap();
        assert!(!scene.git.is_symlink() && scene.root.join(".git.from-sandbox").is_symlink());
        assert!(other.join("kept").is_symlink());
        fs::rename(&other, &scene.git).unwrap();
        assert!(guard.check().unwrap().is_empty());
    }

    #[test]
    fn links_in_the_common_directory_count_for_every_worktree() {
        let scene = scene();
        let tree = scene.root.with_file_name("tree");
        let own = scene.git.join("worktrees/tree");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let (guard, _) = LinkGuard::start(Some(&scene.home), &tree).unwrap();
        drop(guard);
        let check = |places: &Places<'_>| {
            set_new_links_aside(places, &open_records(Some(&scene.home), places))
        };
        let planted = scene.plant("packed-refs");
        let places = Places { directory: &scene.root, git_dir: None };
        assert_eq!(check(&places).unwrap().len(), 1);
        assert!(!planted.is_symlink());
        // A repository can be named, too.
        let planted = scene.plant("packed-refs");
        let places = Places { directory: Path::new("/"), git_dir: Some(&scene.git) };
        assert_eq!(check(&places).unwrap().len(), 1);
        assert!(!planted.is_symlink());
        // A run in the main worktree settles what was killed in another one.
        let record = ProjectHome::new(&scene.home, &tree);
        let gone = i32::MAX.unsigned_abs();
        record.update(|record| record.git.as_mut().unwrap().open_runs = vec![gone]).unwrap();
        let planted = scene.plant("packed-refs");
        let (guard, warnings) = scene.start();
        assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
        guard.finish().unwrap();
        let own = scene.plant("packed-refs");
        assert!(check(&Places { directory: &scene.root, git_dir: None }).unwrap().is_empty());
        assert!(own.is_symlink());
    }
}
