//! Guardrail logs (`guardrail_001_make_test.log`), written to their run directory and to `.ralph`,
//! where a sandboxed agent can read them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::private_files;
use super::runs::RunDir;
use super::save::with_parent_dir;

const MAX_LOGS: usize = 1_000;

/// Oldest first. Keeps the last two iterations, and older ones while there is room.
#[derive(Debug)]
pub struct GuardrailLogs {
    dir: PathBuf,
    /// Name and size.
    logs: VecDeque<(String, u64)>,
    bytes_left: u64,
}

impl GuardrailLogs {
    /// `room` limits the total size.
    pub fn open(dir: &Path, room: u64) -> GuardrailLogs {
        let logs = dir.read_dir().into_iter().flatten().flatten().filter_map(|entry| {
            let name =
                entry.file_name().into_string().ok().filter(|name| iteration_of(name).is_some())?;
            let meta = entry.metadata().ok()?;
            Some((meta.modified().ok()?, name, meta.len()))
        });
        let mut logs: Vec<_> = logs.collect();
        logs.sort_unstable();
        let kept = logs.into_iter().map(|(_, name, size)| (name, size)).collect();
        GuardrailLogs { dir: dir.to_owned(), logs: kept, bytes_left: room }
    }

    /// Creates a log in the run directory, and a copy at `path`: that name is the same in every run.
    pub fn start_log(&mut self, path: &Path) -> io::Result<[File; 2]> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.measure_last();
        self.logs.retain(|(other, _)| *other != name);
        let kept = self.dir.join(&name);
        self.logs.push_back((name, 0));
        self.remove_oldest(path.parent().unwrap_or(path));
        let create = |path: &Path| {
            // Not written through: an agent may have left a link.
            let _ = std::fs::remove_file(path);
            private_files::private_open_options().write(true).create_new(true).open(path)
        };
        Ok([create(&kept)?, with_parent_dir(path, || create(path))?])
    }

    fn measure_last(&mut self) {
        if let Some((name, size)) = self.logs.back_mut() {
            *size = self.dir.join(name).metadata().map_or(0, |meta| meta.len());
        }
    }

    fn remove_oldest(&mut self, copies: &Path) {
        let newest = self.logs.iter().rev().filter_map(|(name, _)| iteration_of(name));
        let mut last_two: Vec<String> = Vec::new();
        for iteration in newest {
            if last_two.len() < 2 && !last_two.iter().any(|seen| seen == iteration) {
                last_two.push(iteration.to_owned());
            }
        }
        let mut size: u64 = self.logs.iter().map(|(_, size)| size).sum();
        while (size > self.bytes_left || self.logs.len() > MAX_LOGS)
            && let Some((name, _)) = self.logs.front()
            && !iteration_of(name)
                .is_some_and(|iteration| last_two.iter().any(|last| last == iteration))
            && let Some((name, log_size)) = self.logs.pop_front()
        {
            size = size.saturating_sub(log_size);
            // Harmless if it fails.
            let _ = std::fs::remove_file(self.dir.join(&name));
            let _ = std::fs::remove_file(copies.join(&name));
        }
    }
}

/// Removes the copies in `copies` of a run's logs, unless a run in `newer` has replaced them.
pub(super) fn remove_copies(run: &Path, copies: &Path, newer: &[RunDir]) {
    for log in run.read_dir().into_iter().flatten().flatten() {
        let name = log.file_name();
        if name.to_str().is_some_and(|name| iteration_of(name).is_some())
            && !newer.iter().any(|run| run.path.join(&name).exists())
        {
            // Harmless if it fails.
            let _ = std::fs::remove_file(copies.join(&name));
        }
    }
}

pub fn iteration_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("guardrail_")?.strip_suffix(".log")?;
    let (iteration, _) = rest.split_once('_')?;
    iteration.bytes().all(|byte| byte.is_ascii_digit()).then_some(iteration)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = dir.read_dir().unwrap().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| iteration_of(name).is_some())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn guardrail_logs_keep_newest_and_last_two_iterations() {
        let ralph = tempfile::tempdir().unwrap();
        let run = ralph.path().join("runs/r");
        std::fs::create_dir_all(&run).unwrap();
        let write = |logs: &mut GuardrailLogs, n: u32, bytes: usize| {
            for slug in ["a", "b"] {
                let path = ralph.path().join(format!("guardrail_{n:03}_{slug}.log"));
                let _ = std::fs::remove_file(&path);
                for mut file in logs.start_log(&path).unwrap() {
                    file.write_all(&vec![b'x'; bytes]).unwrap();
                }
            }
        };
        let mut logs = GuardrailLogs::open(&run, 1_000);
        (1..=20).for_each(|n| write(&mut logs, n, 100));
        let kept = names(&run);
        assert!((10..=11).contains(&kept.len()), "{kept:?}");
        assert_eq!(kept, names(ralph.path()), "a copy of each, and no other");
        assert!(kept.contains(&"guardrail_020_b.log".to_owned()));
        // A resumed run counts existing logs.
        let mut logs = GuardrailLogs::open(&run, 1_000);
        write(&mut logs, 20, 100_000);
        write(&mut logs, 21, 100_000);
        let last = ["020_a", "020_b", "021_a", "021_b"].map(|it| format!("guardrail_{it}.log"));
        assert_eq!(names(&run), last);
        write(&mut logs, 22, 1);
        assert_eq!(names(&run).len(), 4);
        assert_eq!(names(ralph.path()).len(), 4);
        let newer = RunDir { id: String::new(), path: ralph.path().join("runs/newer") };
        std::fs::create_dir(&newer.path).unwrap();
        std::fs::write(newer.path.join("guardrail_022_a.log"), "").unwrap();
        remove_copies(&run, ralph.path(), &[newer]);
        assert_eq!(names(ralph.path()), ["guardrail_022_a.log"]);
    }

    #[test]
    fn guardrail_log_names_are_recognized() {
        assert_eq!(iteration_of("guardrail_007_make_test_1.log"), Some("007"));
        for other in ["events.jsonl", "guardrail_x_y.log", "guardrail_001.log", "guardrail_1_a"] {
            assert_eq!(iteration_of(other), None, "{other}");
        }
    }
}
