//! What runs remember of their task lists: a directory for each list, outside of every work tree, and a
//! file in it for each run.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::core::tasks::ledger::Ledger;
use crate::core::tasks::naming;

use super::project_record::fnv64;
use super::runs::{self, is_id};
use super::save::save_atomically;

/// A file of these.
#[derive(Debug, Serialize)]
pub struct File<'a> {
    /// Which list this is of, for people who look for it.
    pub list: Cow<'a, str>,
    #[serde(flatten)]
    pub ledger: &'a Ledger,
}

/// Where what is remembered of a list is kept: in `home`, by the project's name and by the list's path,
/// since many projects have the same name. A list that is reached by symbolic links is the one that they
/// lead to.
pub fn directory(home: &Path, root: &Path, list: &Path) -> PathBuf {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    named(home, &root, &list.canonicalize().unwrap_or_else(|_| in_real_directory(list)))
}

/// What stands for a list while somebody works it off, whatever project they come from: the directory of
/// the documents itself is locked for each change of a moment, by the agent, too.
pub fn lock_directory(home: &Path, list: &Path) -> PathBuf {
    let list = list.canonicalize().unwrap_or_else(|_| in_real_directory(list));
    home.join("in-use").join(format!("{:016x}", fnv64(list.as_os_str().as_encoded_bytes())))
}

/// Where something may be remembered of a list, the place for what is new first: a name may have become
/// a link since, and what was known under it holds still.
pub fn directories(home: &Path, root: &Path, list: &Path) -> Vec<PathBuf> {
    let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut places = vec![directory(home, root, list)];
    for place in [named(home, &real_root, &in_real_directory(list)), named(home, root, list)] {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The path without links in all but its last name.
fn in_real_directory(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(path.file_name()).map_or_else(|| path.to_owned(), |(parent, name)| parent.join(name))
}

fn named(home: &Path, root: &Path, list: &Path) -> PathBuf {
    let name = root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let path = list.as_os_str().as_encoded_bytes();
    home.join("tasks").join(format!("{}-{:016x}", naming::label(&name), fnv64(path)))
}

/// Why nothing new can be remembered in this place, if that is so.
pub fn unkeepable(directory: &Path) -> Option<io::Error> {
    let there = directory.ancestors().find(|above| above.symlink_metadata().is_ok())?;
    let flags = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let refused =
        |err: io::Error| io::Error::new(err.kind(), format!("{}: {err}", there.display()));
    match there.metadata() {
        Ok(meta) if !meta.is_dir() => Some(refused(io::ErrorKind::NotADirectory.into())),
        Ok(_) => rustix::fs::access(there, flags).err().map(|err| refused(err.into())),
        Err(err) => Some(refused(err)),
    }
}

/// The file of a run.
pub fn path(directory: &Path, run: &str) -> PathBuf {
    directory.join(format!("{run}.json"))
}

/// What a run remembers, in one of these places.
///
/// # Errors
/// It is not there, or cannot be understood.
pub fn read(directories: &[PathBuf], run: &str) -> io::Result<Ledger> {
    let paths = directories.iter().map(|directory| path(directory, run));
    let path = paths.into_iter().find(|path| path.exists()).ok_or(io::ErrorKind::NotFound)?;
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// What the last run remembered, and which run that was. Nothing if the list has begun anew since.
///
/// # Errors
/// It is there and cannot be read.
pub fn last(directories: &[PathBuf]) -> io::Result<Option<(String, Ledger)>> {
    let Some(path) = newest_file(directories) else { return Ok(None) };
    let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ledger: Option<Ledger> = serde_json::from_slice(&std::fs::read(&path)?)?;
    Ok(ledger.map(|ledger| (run, ledger)))
}

/// The file of the last run that there is anything in.
pub fn newest(directories: &[PathBuf]) -> Option<PathBuf> {
    last(directories).ok()??;
    newest_file(directories)
}

/// The file that was begun last, by its name.
fn newest_file(directories: &[PathBuf]) -> Option<PathBuf> {
    let newest = directories.iter().filter_map(|directory| files(directory).pop());
    newest.max_by(|a, b| a.file_name().cmp(&b.file_name()))
}

/// The list begins anew: what comes now is not judged by what was. The files of old runs stay.
///
/// # Errors
/// It cannot be written down.
pub fn begin_anew(directory: &Path) -> io::Result<()> {
    if files(directory).is_empty() {
        return Ok(());
    }
    let name = runs::new_id(jiff::Timestamp::now().as_millisecond());
    save_atomically(&path(directory, &name), b"null\n")
}

/// Removes the oldest ones so that with one more there are no more than `keep`, but never the last. What
/// cannot be removed takes up room and does no other harm.
pub fn prune(directory: &Path, keep: usize) {
    for path in files(directory).iter().rev().skip(keep.saturating_sub(1).max(1)) {
        let _ = std::fs::remove_file(path);
    }
}

/// The files of runs, the oldest first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut ours: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_stem().and_then(|name| name.to_str());
            name.is_some_and(is_id) && path.extension().is_some_and(|it| it == "json")
        })
        .collect();
    // Their names tell when they began.
    ours.sort_unstable();
    ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tasks::parse;

    #[test]
    fn the_newest_stay_and_what_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "20261112-202752-0a1b.json",
            "20261113-202752-0a1b.json",
            "20261114-202752-0a1b.json",
            "mine.json",
        ];
        for name in names {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let there = || names.map(|name| dir.path().join(name).exists());
        prune(dir.path(), 3);
        assert_eq!(there(), [false, true, true, true]);
        prune(dir.path(), 0);
        assert_eq!(
            there(),
            [false, false, true, true],
            "the last is what the next run is judged by"
        );
        prune(&dir.path().join("none"), 2);
    }

    #[test]
    fn the_last_run_is_remembered_until_the_list_begins_anew() {
        let home = tempfile::tempdir().unwrap();
        let list = Path::new("/p/it's mine/ralph/tasks.json");
        let dir = directory(home.path(), Path::new("/p/it's mine"), list);
        assert!(dir.starts_with(home.path().join("tasks")));
        assert_ne!(dir, directory(home.path(), Path::new("/q/it's mine"), Path::new("/q/x")));
        assert!(last(std::slice::from_ref(&dir)).unwrap().is_none());
        begin_anew(&dir).unwrap();
        assert!(!dir.exists(), "there was nothing to forget");
        let ledger = Ledger::new(
            &parse(br#"{"project": "", "branchName": "", "description": "", "userStories": []}"#)
                .unwrap(),
        );
        std::fs::create_dir_all(&dir).unwrap();
        let run = "20261113-202752-0a1b";
        let file =
            serde_json::to_vec(&File { list: list.to_string_lossy(), ledger: &ledger }).unwrap();
        std::fs::write(dir.join(format!("{run}.json")), &file).unwrap();
        assert!(String::from_utf8(file).unwrap().contains("/p/it's mine/ralph/tasks.json"));
        assert_eq!(last(std::slice::from_ref(&dir)).unwrap().unwrap().0, run);
        begin_anew(&dir).unwrap();
        assert!(last(std::slice::from_ref(&dir)).unwrap().is_none());
        std::fs::write(dir.join("20991113-202752-0a1b.json"), "{").unwrap();
        assert!(last(std::slice::from_ref(&dir)).is_err());
    }
}
