//! Questions on their way from the agent to the run: files in the project, the one place that an agent can write to
//! in every sandbox. The agent controls the directory, so nothing in it is trusted.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::{dir_handle, private_files, safe_fs};

/// Far more than a question may have.
const MAX_BYTES: u64 = 64 * 1024;

/// Files taken at a time, and entries looked at: a flood must not hold up the run.
const MAX_TAKEN: usize = 20;
const MAX_LISTED: usize = 1_000;

const EXTENSION: &str = ".txt";

/// The questions directory of one run.
#[derive(Debug, Clone)]
pub struct QuestionSpool {
    root: PathBuf,
    dir: PathBuf,
}

impl QuestionSpool {
    /// `dir` is inside `root`, the project, which is free of links.
    pub fn new(root: &Path, dir: &Path) -> QuestionSpool {
        QuestionSpool { root: root.to_owned(), dir: dir.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub fn create(&self) -> io::Result<()> {
        safe_fs::check_inside(&self.root, &self.dir.join("file"))?;
        private_files::create_in_project(&self.dir)
    }

    /// Takes the questions that are there, oldest first. Links, pipes and devices are removed unread.
    pub fn take(&self) -> Vec<String> {
        self.try_take().unwrap_or_default()
    }

    fn try_take(&self) -> io::Result<Vec<String>> {
        // The run looks here in every iteration. Opening the directory safely takes four times
        // as long, and mere names do no harm.
        if let Ok(entries) = std::fs::read_dir(&self.dir) {
            let mut entries = entries.take(MAX_LISTED).flatten();
            if !entries.any(|entry| is_question(entry.file_name().as_bytes())) {
                return Ok(Vec::new());
            }
        }
        let dir = dir_handle::open_dir(&self.dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let listed =
            dir_handle::opened_up(&dir, || rustix::fs::openat(&dir, ".", flags, Mode::empty()))?;
        let entries = Dir::read_from(&listed)?.take(MAX_LISTED).flatten();
        let names = entries.map(|entry| entry.file_name().to_bytes().to_vec());
        let mut names: Vec<Vec<u8>> = names.filter(|name| is_question(name)).collect();
        names.sort_unstable();
        names.truncate(MAX_TAKEN);
        let take = |name: Vec<u8>| {
            let name = OsString::from(std::ffi::OsStr::from_bytes(&name));
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = rustix::fs::openat(&dir, &name, flags | OFlags::CLOEXEC, Mode::empty());
            let text = file.map_err(io::Error::from).and_then(|file| read(file.into()));
            // One that stays is the same question again.
            let _ = rustix::fs::unlinkat(&dir, &name, AtFlags::empty());
            text.ok()
        };
        Ok(names.into_iter().filter_map(take).collect())
    }

    /// Removes the directory at the end of the run.
    pub fn remove(&self) {
        if safe_fs::check_inside(&self.root, &self.dir.join("file")).is_ok() {
            let _ = std::fs::remove_dir_all(&self.dir);
            // Other runs may use it.
            let _ = self.dir.parent().map(std::fs::remove_dir);
        }
    }
}

/// Leaves a question for the run, from inside the sandbox.
///
/// # Errors
/// `NotFound` if the run does not take questions any more.
pub fn leave(dir: &Path, text: &str) -> io::Result<()> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mark = RandomState::new().build_hasher().finish();
    let name = format!("{:020}-{mark:016x}{EXTENSION}", time.as_nanos());
    let (draft, path) = (dir.join(format!(".{name}")), dir.join(name));
    let mut file =
        private_files::private_open_options().write(true).create_new(true).open(&draft)?;
    file.write_all(text.as_bytes())?;
    // The run wakes up at the renaming.
    std::fs::rename(&draft, &path)
}

fn is_question(name: &[u8]) -> bool {
    !name.starts_with(b".") && name.ends_with(EXTENSION.as_bytes())
}

fn read(file: File) -> io::Result<String> {
    let meta = file.metadata()?;
    // A file with a second name may be any file that the agent cannot read itself.
    if !meta.is_file() || meta.nlink() > 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn spool() -> (tempfile::TempDir, QuestionSpool) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let spool = QuestionSpool::new(&root, &root.join(".ralph/questions/run"));
        spool.create().unwrap();
        (dir, spool)
    }

    #[test]
    fn questions_are_taken_once_and_in_order() {
        let (_dir, spool) = spool();
        for text in ["one?", "two?\ncontext"] {
            leave(spool.path(), text).unwrap();
        }
        std::fs::write(spool.path().join(".draft.txt"), "not yet").unwrap();
        assert_eq!(spool.take(), ["one?", "two?\ncontext"]);
        assert_eq!(spool.take(), [""; 0]);
        spool.remove();
        assert_eq!(leave(spool.path(), "late?").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(spool.take(), [""; 0]);
    }

    #[test]
    fn planted_entries_do_no_harm() {
        let (dir, spool) = spool();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let at = |name: &str| spool.path().join(name);
        symlink(&secret, at("1.txt")).unwrap();
        std::fs::hard_link(&secret, at("2.txt")).unwrap();
        std::fs::create_dir(at("3.txt")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("4.txt")).unwrap();
        std::fs::write(at("5.txt"), b"\xff\0binary").unwrap();
        std::fs::write(at("6.txt"), vec![b'x'; 1 << 20]).unwrap();
        let taken = spool.take();
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(taken[1].len() as u64, MAX_BYTES);
        assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
        // The directory itself becomes a link.
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("1.txt"), "not here").unwrap();
        std::fs::remove_dir_all(spool.path()).unwrap();
        symlink(&elsewhere, spool.path()).unwrap();
        assert_eq!(spool.take(), [""; 0]);
        spool.remove();
        assert!(elsewhere.join("1.txt").exists());
    }

    #[test]
    fn flood_is_taken_in_portions() {
        let (_dir, spool) = spool();
        for n in 0..MAX_TAKEN + 5 {
            leave(spool.path(), &n.to_string()).unwrap();
        }
        assert_eq!(spool.take().len(), MAX_TAKEN);
        assert_eq!(spool.take().len(), 5);
    }
}
