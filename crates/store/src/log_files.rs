//! Session logs for people: `.ralph/logs/session-YYYYMMDD-HHMMSS.log`, linked to the run directory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;

use super::private_files;
use super::project::Project;
use super::runs::RunDir;
use super::safe_fs;

/// Creates a log in the run directory, and a link to it, which is named by the time. If that is
/// taken, uses the next free second, so names sort in session order. Returns the link.
pub fn create_session_log(
    project: &Project,
    run: &RunDir,
    now: DateTime,
) -> io::Result<(File, PathBuf)> {
    let dir = project.logs_dir();
    safe_fs::check_inside(project.root(), &dir.join("file"))?;
    private_files::create_in_project(&dir)?;
    for offset in 0.. {
        let Ok(time) = now.checked_add(jiff::Span::new().seconds(offset)) else { break };
        let name = format!("session-{}.log", time.strftime("%Y%m%d-%H%M%S"));
        let (log, link) = (run.path.join(&name), dir.join(&name));
        match std::os::unix::fs::symlink(&log, &link) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            linked => {
                linked?;
                let mut options = private_files::private_open_options();
                return Ok((options.append(true).create_new(true).open(&log)?, link));
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Keeps the beginning of endless output, in two files.
#[derive(Debug)]
pub struct BoundedLog {
    files: [File; 2],
    bytes_left: u64,
}

impl BoundedLog {
    pub fn new(files: [File; 2], room: u64) -> Self {
        BoundedLog { files, bytes_left: room }
    }

    /// Appends what fits, then a notice.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes_left == 0 {
            return Ok(());
        }
        let fitting = bytes.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        self.bytes_left -= fitting as u64;
        let notice = if self.bytes_left == 0 { TRUNCATED_NOTICE } else { b"" };
        for file in &mut self.files {
            file.write_all(&bytes[..fitting])?;
            file.write_all(notice)?;
        }
        Ok(())
    }
}

const TRUNCATED_NOTICE: &[u8] =
    b"\n[ralph] log size limit reached (runs.maxRawMegabytes): later output is not logged\n";

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

    fn project() -> (tempfile::TempDir, Project, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new(&dir.path().join("project"), &dir.path().join("home"));
        let run = project.run_dir("20261115-202752-0a1b");
        run.create().unwrap();
        (dir, project, run)
    }

    #[test]
    fn sessions_in_same_second_have_separate_logs() {
        let (_dir, project, run) = project();
        let time = jiff::civil::date(2026, 11, 15).at(20, 27, 52, 0);
        for text in ["one", "two", "three"] {
            let (mut log, link) = create_session_log(&project, &run, time).unwrap();
            log.write_all(text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(link).unwrap(), text);
        }
        let expected = [
            "session-20261115-202752.log",
            "session-20261115-202753.log",
            "session-20261115-202754.log",
        ];
        assert_eq!(names(&project.logs_dir()), expected);
        assert_eq!(names(&run.path), expected);
    }

    #[test]
    fn logs_directory_outside_project_is_refused() {
        let (dir, project, run) = project();
        std::fs::create_dir_all(project.ralph_dir()).unwrap();
        std::os::unix::fs::symlink(dir.path(), project.logs_dir()).unwrap();
        let time = jiff::civil::date(2026, 11, 15).at(20, 27, 52, 0);
        let err = create_session_log(&project, &run, time).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn endless_command_output_is_bounded_in_log() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("log"), dir.path().join("copy"));
        let mut log = BoundedLog::new([&path, &copy].map(|it| File::create(it).unwrap()), 10);
        for _ in 0..100 {
            log.append(b"yes\n").unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, std::fs::read_to_string(&copy).unwrap());
        assert!(text.starts_with("yes\nyes\nye\n[ralph] log size limit reached"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }

    #[test]
    fn old_session_logs_are_removed_and_other_files_kept() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path();
        for day in 1..=4 {
            let log = File::create(logs.join(format!("session-2026110{day}-000000.log"))).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(day);
            log.set_modified(time).unwrap();
        }
        std::fs::write(logs.join("mine.log"), "x").unwrap();
        prune(logs, 2).unwrap();
        let expected = ["mine.log", "session-20261103-000000.log", "session-20261104-000000.log"];
        assert_eq!(names(logs), expected);
    }
}
