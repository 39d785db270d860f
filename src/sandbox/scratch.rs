//! The directory of one sandbox, outside of the project: its home, its temporary files, and a note of
//! what must not appear in the project.
//!
//! A lock on the note tells whether the sandbox is still in use. What a killed ralph left behind is
//! cleaned up by the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Backend;
use super::plan::{Guard, Plan};
use crate::state::home::ralph_home;

const NOTE: &str = "sandbox.json";

/// What is written down of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub backend: String,
    pub project: PathBuf,
    pub pid: u32,
    /// What must be as it was: a path, and the link that was there.
    pub guards: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Note {
    pub(super) fn new(backend: Backend, project: &Path, plan: &Plan) -> Note {
        Note {
            backend: backend.name().to_owned(),
            project: project.to_owned(),
            pid: std::process::id(),
            guards: plan.guards.iter().map(|g| (g.path.clone(), g.link.clone())).collect(),
        }
    }
}

/// The directory of a sandbox, until this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    note: File,
}

/// A sandbox that is or was there.
#[derive(Debug)]
pub struct Listed {
    pub path: PathBuf,
    pub note: Option<Note>,
    /// Whoever made it is still there.
    pub in_use: bool,
}

/// Where the directories of sandboxes are.
pub fn sandboxes() -> PathBuf {
    let home = ralph_home(|name| std::env::var_os(name)).unwrap_or_else(|| {
        let user = rustix::process::getuid().as_raw();
        std::env::temp_dir().join(format!("ralph-{user}"))
    });
    home.join("sandboxes")
}

impl Scratch {
    /// Makes a directory that only this user can enter.
    ///
    /// # Errors
    /// What the file system said.
    pub fn create(base: &Path) -> io::Result<Scratch> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
        let base = base.canonicalize()?;
        let dir = tempfile::Builder::new()
            .prefix("run-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(base)?;
        let mut options = OpenOptions::new();
        let note = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.path().join(NOTE))?;
        note.lock()?;
        Ok(Scratch { path: dir.keep(), note })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// What the file system said.
    pub fn write_note(&mut self, note: &Note) -> io::Result<()> {
        self.note.write_all(&serde_json::to_vec(note)?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next one.
        let _ = remove(&self.path);
    }
}

/// All sandboxes of this user.
pub fn list(base: &Path) -> Vec<Listed> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut listed: Vec<Listed> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .map(|path| {
            let file = File::open(path.join(NOTE));
            let in_use = file.as_ref().is_ok_and(|file| file.try_lock_shared().is_err());
            let note = file.ok().and_then(|file| {
                let mut text = String::new();
                file.take(1 << 20).read_to_string(&mut text).ok()?;
                serde_json::from_str(&text).ok()
            });
            Listed { path, note, in_use }
        })
        .collect();
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    listed
}

/// Removes what killed ones left behind, and takes away what their agents had planted. What was taken
/// away.
pub fn sweep(base: &Path) -> Vec<PathBuf> {
    let mut planted = Vec::new();
    for left in list(base).into_iter().filter(|listed| !listed.in_use) {
        let guards = left.note.into_iter().flat_map(|note| note.guards);
        let guards: Vec<Guard> = guards.map(|(path, link)| Guard { path, link }).collect();
        planted.extend(set_aside(&guards));
        let _ = remove(&left.path);
    }
    planted
}

/// Removes a directory, also if what is in it was made hard to remove.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(path);
            fs::remove_dir_all(path)
        }
    }
}

/// Makes directories below `path` such that they can be emptied.
fn open_up(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // Not through links: this is about the directory's own.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Puts everything that is guarded back as it was: what appeared is renamed, a link that was changed is
/// made again. Where things were put.
pub fn set_aside(guards: &[Guard]) -> Vec<PathBuf> {
    let mut moved = Vec::new();
    for guard in guards {
        let is_as_it_was = match (&guard.link, fs::symlink_metadata(&guard.path)) {
            (None, Err(_)) => true,
            (Some(link), Ok(_)) => fs::read_link(&guard.path).is_ok_and(|now| now == *link),
            (None, Ok(_)) | (Some(_), Err(_)) => false,
        };
        let Some(parent) = guard.path.parent() else { continue };
        // Never through a link on the way: the agent may have put one there, and what is behind it is
        // the user's.
        if is_as_it_was || parent.canonicalize().ok().as_deref() != Some(parent) {
            continue;
        }
        if fs::symlink_metadata(&guard.path).is_ok()
            && let Some(to) = free_name(&guard.path)
            && fs::rename(&guard.path, &to).is_ok()
        {
            moved.push(to);
        }
        if let Some(link) = &guard.link {
            let _ = std::os::unix::fs::symlink(link, &guard.path);
        }
    }
    moved
}

fn free_name(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    (0..1000)
        .map(|nth| match nth {
            0 => path.with_file_name(format!("{name}.from-sandbox")),
            _ => path.with_file_name(format!("{name}.from-sandbox.{nth}")),
        })
        .find(|path| fs::symlink_metadata(path).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(path: &Path, link: Option<&str>) -> Guard {
        Guard { path: path.to_owned(), link: link.map(PathBuf::from) }
    }

    #[test]
    fn what_appears_where_nothing_was_is_put_aside() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let guards = [guard(&dir.join("hooks"), None), guard(&dir.join("absent"), None)];
        for nth in ["", ".1"] {
            fs::create_dir(dir.join("hooks")).unwrap();
            let put = dir.join(format!("hooks.from-sandbox{nth}"));
            assert_eq!(set_aside(&guards), std::slice::from_ref(&put));
            assert!(put.is_dir() && !dir.join("hooks").exists());
        }
        assert!(set_aside(&guards).is_empty());
    }

    #[test]
    fn a_link_that_was_changed_is_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let guards = [guard(&dir.join("hooks"), Some("../theirs"))];
        let link = |to: &str| std::os::unix::fs::symlink(to, dir.join("hooks")).unwrap();
        link("../theirs");
        assert!(set_aside(&guards).is_empty());
        fs::remove_file(dir.join("hooks")).unwrap();
        link("elsewhere");
        assert_eq!(set_aside(&guards).len(), 1);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
        fs::remove_file(dir.join("hooks")).unwrap();
        set_aside(&guards);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
    }

    #[test]
    fn a_link_on_the_way_leads_nobody_to_the_users_own_files() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        fs::create_dir(dir.join("home")).unwrap();
        fs::write(dir.join("home/settings.json"), "mine").unwrap();
        std::os::unix::fs::symlink(dir.join("home"), dir.join(".claude")).unwrap();
        assert!(set_aside(&[guard(&dir.join(".claude/settings.json"), None)]).is_empty());
        assert_eq!(fs::read_to_string(dir.join("home/settings.json")).unwrap(), "mine");
    }

    #[test]
    fn what_a_killed_one_left_is_swept_and_what_is_in_use_stays() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let planted = base.join("config");
        let note = Note {
            backend: "bwrap".into(),
            project: base.clone(),
            pid: 1,
            guards: vec![(planted.clone(), None)],
        };
        let mut used = Scratch::create(&base).unwrap();
        used.write_note(&note).unwrap();
        let mut killed = Scratch::create(&base).unwrap();
        killed.write_note(&note).unwrap();
        let hard = killed.path().join("home/hard");
        fs::create_dir_all(&hard).unwrap();
        fs::write(hard.join("file"), "").unwrap();
        fs::set_permissions(&hard, fs::Permissions::from_mode(0o000)).unwrap();
        let left = killed.path().to_owned();
        // What a kill does: the lock is gone, the directory is not.
        let Scratch { note: file, .. } = &killed;
        file.unlock().unwrap();
        fs::write(&planted, "").unwrap();
        assert_eq!(list(&base).iter().filter(|listed| listed.in_use).count(), 1);
        assert_eq!(sweep(&base), [base.join("config.from-sandbox")]);
        assert!(!left.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
