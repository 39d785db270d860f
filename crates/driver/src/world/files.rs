//! Files of the real world.

use std::io::{self, Write};
use std::path::Path;

use ralph_git::work_tree;
use ralph_store::dir_identity::DirChange;
use ralph_store::guardrail_logs::GuardrailLogs;
use ralph_store::log_files::BoundedLog;
use ralph_store::save::{save_atomically, save_privately, with_parent_dir};
use ralph_store::{private_files, safe_fs, user_files};
use ralph_tasks::documents;

use super::{Files, PathKind, RealWorld};

impl RealWorld {
    /// Refuses to write if the project is no longer where the run started.
    pub(super) fn check_project_in_place(&mut self) -> io::Result<()> {
        if self.project_change == DirChange::Unchanged {
            self.project_change = self.project_dir.change();
        }
        match self.project_change {
            DirChange::Unchanged => Ok(()),
            DirChange::Gone => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the project directory is gone"))
            }
            DirChange::Replaced => {
                let message = "the project directory was replaced";
                Err(io::Error::new(io::ErrorKind::NotFound, message))
            }
        }
    }
}

impl Files for RealWorld {
    fn kind(&mut self, path: &Path) -> PathKind {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => PathKind::File,
            Ok(_) => PathKind::Other,
            Err(_) => PathKind::Missing,
        }
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.sandbox {
            // A sandboxed agent must not read files through us.
            Some(_) => safe_fs::read_within(self.project.root(), path, MAX_PROMPT_BYTES),
            None => user_files::read_user_file(path, u64::MAX),
        }
    }

    fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let cell = self.sandbox.as_mut();
        let inside = cell.and_then(|cell| cell.sandbox.read(&mut self.system, path));
        inside.unwrap_or_else(|| documents::read_tasks(self.project.root(), path))
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        // An agent may have left a link there.
        self.remove(path)?;
        with_parent_dir(path, || {
            private_files::private_open_options()
                .write(true)
                .create_new(true)
                .open(path)?
                .write_all(bytes)
        })
    }

    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if !path.starts_with(self.project.root()) {
            private_files::create_dir_all(path.parent().unwrap_or(path))?;
            return save_privately(path, bytes);
        }
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        with_parent_dir(path, || save_atomically(path, bytes))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn open_log(&mut self, path: &Path) -> io::Result<()> {
        self.log = None;
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        let (dir, room) = (&self.files.dir.path, self.max_log);
        let logs = self.logs.get_or_insert_with(|| GuardrailLogs::open(dir, room));
        self.log = Some(BoundedLog::new(logs.start_log(path)?, self.max_log));
        Ok(())
    }

    fn append_log(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.append(bytes))
    }

    fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64) {
        work_tree::file_fingerprint(path, budget)
    }

    fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64> {
        work_tree::tree_fingerprint(path, most)
    }
}

/// A larger file is not a prompt.
const MAX_PROMPT_BYTES: u64 = 64 << 20;
