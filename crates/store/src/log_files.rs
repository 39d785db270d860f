//! Session logs for people: `.ralph/logs/session-YYYYMMDD-HHMMSS.log`.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;

use super::dir_identity::DirHandle;
use super::private_files;
use super::project::Project;
use super::safe_fs::{self, is_same_file};

#[derive(Debug)]
pub struct LogFile {
    /// Not created again for a log.
    project: DirHandle,
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Names the log by the time. If that is taken, uses the next free second, so names sort in
    /// session order.
    pub fn create(project: &Project, now: DateTime) -> io::Result<LogFile> {
        let dir = project.logs_dir();
        private_files::create_in_project(&dir)?;
        for offset in 0.. {
            let Ok(time) = now.checked_add(jiff::Span::new().seconds(offset)) else { break };
            let path = dir.join(format!("session-{}.log", time.strftime("%Y%m%d-%H%M%S")));
            match new_file(&path) {
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    return Ok(LogFile {
                        project: DirHandle::new(project.root()),
                        file: file?,
                        path,
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Restores a removed log (`git clean -fdx`). Refuses a directory that has become a link out of
    /// the project.
    pub fn restore(&mut self) -> io::Result<()> {
        if is_same_file(&self.file, &self.path) {
            return Ok(());
        }
        if !self.project.is_unchanged() {
            // The run reports this itself.
            return Ok(());
        }
        safe_fs::check_inside(self.project.path(), &self.path)?;
        if let Some(dir) = self.path.parent() {
            private_files::create_in_project(dir)?;
        }
        let mut copy = new_file(&self.path)?;
        self.file.rewind()?;
        io::copy(&mut self.file, &mut copy)?;
        self.file = copy;
        Ok(())
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    private_files::private_open_options().read(true).append(true).create_new(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the beginning of endless output.
#[derive(Debug)]
pub struct BoundedLog {
    file: File,
    bytes_left: u64,
}

impl BoundedLog {
    pub fn new(file: File, room: u64) -> Self {
        BoundedLog { file, bytes_left: room }
    }

    /// Appends what fits, then a notice.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes_left == 0 {
            return Ok(());
        }
        let fitting = bytes.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        self.file.write_all(&bytes[..fitting])?;
        self.bytes_left -= fitting as u64;
        if self.bytes_left == 0 {
            self.file.write_all(TRUNCATED_NOTICE)?;
        }
        Ok(())
    }
}

const TRUNCATED_NOTICE: &[u8] =
    b"\n[ralph] this log is full (runs.maxRawMegabytes): what was printed after this is left out\n";

pub fn prune(dir: &Path, keep: usize) -> io::Result<()> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_log = name.to_str().is_some_and(|name| {
            name.starts_with("session-")
                && Path::new(name).extension().is_some_and(|it| it == "log")
        });
        if is_log {
            // By modification time: numbers after equal names do not sort.
            let time = entry.metadata().and_then(|meta| meta.modified());
            logs.push((time.unwrap_or(std::time::UNIX_EPOCH), name));
        }
    }
    logs.sort_unstable();
    for (_, name) in &logs[..logs.len().saturating_sub(keep)] {
        // One failure does not stop the rest.
        let _ = std::fs::remove_file(dir.join(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn project() -> (tempfile::TempDir, Project) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new(dir.path().join("project"));
        (dir, project)
    }

    fn time() -> DateTime {
        jiff::civil::date(2026, 11, 15).at(20, 27, 52, 0)
    }

    #[test]
    fn sessions_in_same_second_have_separate_logs() {
        let (_dir, project) = project();
        for _ in 0..3 {
            LogFile::create(&project, time()).unwrap().write_all(b"x").unwrap();
        }
        let expected = [
            "session-20261115-202752.log",
            "session-20261115-202753.log",
            "session-20261115-202754.log",
        ];
        assert_eq!(names(&project.logs_dir()), expected);
    }

    #[test]
    fn removed_session_log_is_restored_completely() {
        let (dir, project) = project();
        let logs = project.logs_dir();
        let mut log = LogFile::create(&project, time()).unwrap();
        log.write_all(b"one\n").unwrap();
        std::fs::remove_dir_all(&logs).unwrap();
        log.write_all(b"two\n").unwrap();
        log.restore().unwrap();
        log.restore().unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "one\ntwo\nthree\n");
        // Links left by an agent are not followed.
        std::fs::remove_dir_all(&logs).unwrap();
        std::os::unix::fs::symlink(dir.path(), &logs).unwrap();
        assert_eq!(log.restore().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(names(dir.path()), ["project"]);
    }

    #[test]
    fn endless_command_output_is_bounded_in_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = BoundedLog::new(new_file(&path).unwrap(), 10);
        for _ in 0..100 {
            log.append(b"yes\n").unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("yes\nyes\nye\n[ralph] this log is full"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn old_session_logs_are_removed_and_other_files_kept() {
        let (_dir, project) = project();
        let logs = &project.logs_dir();
        for day in 1..=4 {
            let now = jiff::civil::date(2026, 11, day).at(0, 0, 0, 0);
            let log = LogFile::create(&project, now).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(day as u64);
            log.file.set_modified(time).unwrap();
        }
        std::fs::write(logs.join("mine.log"), "x").unwrap();
        prune(logs, 2).unwrap();
        let expected = ["mine.log", "session-20261103-000000.log", "session-20261104-000000.log"];
        assert_eq!(names(logs), expected);
    }
}
