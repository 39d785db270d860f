//! The run directories of a project, under `$RALPH_HOME/projects/<project>/runs`.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use ralph_events::event::Outcome;

use super::guardrail_logs;
use super::private_files;
use super::safe_fs;
use super::save::save_without_sync;
use ralph_events::journal::{self, Entries};
use ralph_events::run_state::{RunEnd, RunState};

/// Start time and random digits. Ids sort by time to the millisecond, which decides which run is
/// the last.
pub fn new_id(now_ms: i64) -> String {
    use std::hash::{BuildHasher, Hasher};
    /// Ids per millisecond in four hexadecimal digits.
    const IDS_PER_MS: u64 = 0x1_0000 / 1000;
    let time = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let millisecond = u64::try_from(time.as_millisecond().rem_euclid(1000)).unwrap_or_default();
    let random = std::hash::RandomState::new().build_hasher().finish() % IDS_PER_MS;
    let suffix = millisecond * IDS_PER_MS + random;
    format!("{}-{suffix:04x}", time.strftime("%Y%m%d-%H%M%S"))
}

pub fn is_id(name: &str) -> bool {
    let shape = |c: char| match c {
        '0'..='9' => '0',
        'a'..='f' => 'a',
        other => other,
    };
    name.len() == 20
        && name.char_indices().all(|(i, c)| match i {
            8 | 15 => c == '-',
            0..15 => shape(c) == '0',
            _ => matches!(shape(c), '0' | 'a'),
        })
}

pub fn read_journal(path: &Path) -> io::Result<Entries<File>> {
    safe_fs::open_file(path).map(journal::entries)
}

pub fn has_ended(journal: &Path) -> bool {
    const TAIL_BYTES: u64 = 64 * 1024;
    read_tail(journal, TAIL_BYTES).is_ok_and(|tail| run_end(&tail).is_some())
}

fn read_tail(journal: &Path, length: u64) -> io::Result<Vec<u8>> {
    let mut file = safe_fs::open_file(journal)?;
    let size = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(size.saturating_sub(length)))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of the run. Only short events follow it, so the tail of a journal has it; the fold skips a torn first line.
fn run_end(tail: &[u8]) -> Option<RunEnd> {
    RunState::read(journal::entries(tail)).end
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    pub id: String,
    pub path: PathBuf,
}

/// The characters at the end of a run id that select the run.
const SUFFIX: usize = 4;

/// Whether a text is the id of a run, the beginning of it, or its last four characters.
pub fn is_selected(id: &str, text: &str) -> bool {
    id.starts_with(text) || text.len() == SUFFIX && id.ends_with(text)
}

/// Whether a text can be part of a run id.
pub fn is_id_part(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f' | '-');
    !text.is_empty() && text.chars().all(is_part)
}

impl RunDir {
    pub fn journal(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    pub fn read_journal(&self) -> io::Result<Entries<File>> {
        read_journal(&self.journal())
    }

    /// Reads the journal, and from other files how long the run worked after its last entry.
    pub fn read_state(&self) -> io::Result<RunState> {
        let mut state = self.read_journal().map(RunState::read)?;
        self.add_last_alive(&mut state);
        Ok(state)
    }

    /// Adds the working time after the last entry, by the times of the files that the run wrote.
    pub fn add_last_alive(&self, state: &mut RunState) {
        if state.end.is_none()
            && let Some(time_ms) = self.last_alive_ms(state.clock.last_ms)
        {
            state.alive_at(time_ms);
        }
    }

    /// The state of the run as `ralph ls` shows it.
    pub fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Leaves a sign of life for [`RunDir::read_state`]. Its loss only makes a killed run seem shorter.
    pub fn touch(&self) {
        let file = safe_fs::open_file(&self.state_file());
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    pub fn raw(&self) -> PathBuf {
        self.path.join("raw.ndjson")
    }

    /// What the run was started with, for `ralph resume`.
    pub fn spec(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    /// `None` if there is no spec.
    pub fn read_spec(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.spec()) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Bytes of complete lines; 0 if unreadable. Journals only grow, so equal sizes mean equal
    /// content.
    pub fn journal_size(&self) -> u64 {
        safe_fs::open_file(&self.journal())
            .and_then(|mut file| journal::complete_lines_len(&mut file))
            .unwrap_or_default()
    }

    pub fn create(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.path)
    }

    /// Whether the run got as far as its first line.
    pub fn has_started(&self) -> bool {
        self.journal().metadata().is_ok_and(|meta| meta.len() > 0) || self.is_running()
    }

    /// Whether lists show the run.
    pub fn is_listed(&self) -> bool {
        self.has_started() && !self.unlisted_mark().exists()
    }

    /// Leaves the run out of lists. Its files stay.
    pub fn unlist(&self) -> io::Result<()> {
        save_without_sync(&self.unlisted_mark(), b"")
    }

    fn unlisted_mark(&self) -> PathBuf {
        self.path.join("unlisted")
    }

    /// Whether the run is empty and too old to be starting.
    fn never_started(&self) -> bool {
        let is_old = |path: &Path| {
            let age = path.metadata().and_then(|meta| meta.modified()).ok();
            age.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > START_TIMEOUT)
        };
        !self.has_started() && is_old(&self.path)
    }

    /// Whether the run started and its journal does not end with completed work.
    fn is_resumable(&self) -> bool {
        if !self.has_started() {
            return false;
        }
        let is_complete =
            |end: RunEnd| matches!(end.outcome, Outcome::Complete | Outcome::CompleteScmFailed);
        !run_end(&self.tail()).is_some_and(is_complete)
    }

    /// Whether the run has ended, and the notification that was due is not recorded as sent.
    pub fn has_pending_notification(&self) -> bool {
        let tail = self.tail();
        // Skips parsing for most runs.
        memchr::memmem::find(&tail, br#","notify":true"#).is_some()
            && run_end(&tail).is_some_and(|end| end.notify_pending)
    }

    fn tail(&self) -> Vec<u8> {
        const TAIL_BYTES: u64 = 8 * 1024;
        read_tail(&self.journal(), TAIL_BYTES).unwrap_or_default()
    }

    /// Returns the last time the run was alive, by the files it wrote: agents and guardrails print before an event
    /// says so. `last_ms` is the time of its last event.
    fn last_alive_ms(&self, last_ms: i64) -> Option<i64> {
        let times_are_its_own = modified_ms(&self.journal())
            .is_some_and(|time_ms| time_ms <= last_ms.saturating_add(FOREIGN_WRITE_MS));
        if !times_are_its_own {
            return None;
        }
        // Only files in the run's own directory: those beside it may belong to another run.
        let kept = self.path.read_dir().into_iter().flatten().flatten();
        let logs = kept
            .filter(|it| guardrail_logs::iteration_of(&it.file_name().to_string_lossy()).is_some());
        let files = logs.map(|log| log.path()).chain([self.raw(), self.state_file()]);
        let written = files.filter_map(|path| modified_ms(&path));
        let now_ms = in_ms(SystemTime::now())?;
        written.filter(|time_ms| (last_ms..=now_ms).contains(time_ms)).max()
    }

    pub fn is_running(&self) -> bool {
        // Without locks, nothing counts as running.
        let held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        safe_fs::open_file(&self.journal()).is_ok_and(held)
    }
}

/// A journal modified this much later than its last event was copied or restored, so file times mean nothing.
const FOREIGN_WRITE_MS: i64 = 10_000;

/// Returns the modification time in milliseconds since the Unix epoch.
pub fn modified_ms(path: &Path) -> Option<i64> {
    in_ms(path.symlink_metadata().ok()?.modified().ok()?)
}

fn in_ms(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// A run that is still empty after this time was killed.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// Oldest first.
pub fn list(runs_dir: &Path) -> io::Result<Vec<RunDir>> {
    let mut runs = Vec::new();
    let entries = match std::fs::read_dir(runs_dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(runs),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().filter(|name| is_id(name)) {
            runs.push(RunDir { id: id.to_owned(), path: entry.path() });
        }
    }
    runs.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    Ok(runs)
}

/// Removes the oldest runs beyond `keep`, and those that never started. Keeps running ones,
/// `spare`, and the last resumable one. `ralph_dir` has copies of their guardrail logs.
pub fn prune(
    runs_dir: &Path,
    ralph_dir: &Path,
    keep: usize,
    spare: Option<&str>,
) -> io::Result<()> {
    let is_spared = |run: &RunDir| spare == Some(run.id.as_str());
    let (mut runs, never): (Vec<RunDir>, Vec<RunDir>) =
        list(runs_dir)?.into_iter().partition(|run| is_spared(run) || !run.never_started());
    let newer = runs.split_off(runs.len().saturating_sub(keep));
    if let Some(last) = runs.iter().rposition(RunDir::is_resumable)
        && !newer.iter().any(|run| run.is_resumable() && !run.is_running())
    {
        runs.remove(last);
    }
    for run in runs.iter().chain(&never) {
        if !is_spared(run) && !run.is_running() {
            guardrail_logs::remove_copies(&run.path, ralph_dir, &newer);
            // One failure does not stop the rest.
            let _ = remove(run);
        }
    }
    Ok(())
}

/// Removes a run, or a file with its name.
pub fn remove(run: &RunDir) -> io::Result<()> {
    std::fs::remove_dir_all(&run.path).or_else(|_| std::fs::remove_file(&run.path))
}

#[cfg(test)]
mod tests {
    use super::super::run_files::RunFiles;
    use super::*;

    fn run(runs_dir: &Path, id: &str) -> RunDir {
        RunDir { id: id.to_owned(), path: runs_dir.join(id) }
    }

    #[test]
    fn run_ids_sort_by_millisecond() {
        for ms in [1_794_776_088_194, 1_794_776_088_998, 1_794_776_088_999] {
            let (this, next) = (new_id(ms), new_id(ms + 1));
            assert!(is_id(&this) && this < next, "{this} {next}");
        }
    }

    #[test]
    fn run_ids_sort_by_time_and_differ_from_other_names() {
        let id = new_id(1_794_774_472_123);
        assert!(id.starts_with("20261115-202752-"), "{id}");
        assert!(is_id(&id));
        for other in ["", "20261115-202752", "20261115-202752-xyz1", "notes", ".."] {
            assert!(!is_id(other), "{other}");
        }
    }

    #[test]
    fn pruning_keeps_newest_running_and_spared_runs() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..5).map(|n| new_id(1_000_000 * n)).collect();
        let mut files: Vec<RunFiles> =
            ids.iter().map(|id| RunFiles::create(run(dir.path(), id), 1000).unwrap()).collect();
        files.truncate(1);
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        prune(dir.path(), dir.path(), 2, Some(&ids[2])).unwrap();
        let remaining: Vec<String> =
            list(dir.path()).unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(remaining, [&ids[0], &ids[2], &ids[3], &ids[4]].map(Clone::clone));
        assert!(dir.path().join("mine").exists());
    }

    #[test]
    fn pruning_keeps_last_resumable_run() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..6).map(|n| new_id(1_000_000 * n)).collect();
        let started = r#"{"time":"2026-11-15T20:00:00.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"/p","pid":1,"agent":"a","prompt":"","completion":"","max_iterations":5}"#;
        let ended = |outcome: &str| {
            format!(
                r#"{{"time":"2026-11-15T20:10:00.000Z","iteration":0,"attempt":0,"event":"run_ended","outcome":"{outcome}","exit_code":0,"message":"","iterations":1,"duration_ms":1,"usage":{{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}},"tools":0,"tool_errors":0}}"#
            )
        };
        let write = |id: &str, lines: &[&str]| {
            let run = run(dir.path(), id);
            run.create().unwrap();
            std::fs::write(run.journal(), lines.join("\n") + "\n").unwrap();
        };
        let (complete, interrupted) = (ended("complete"), ended("interrupted"));
        write(&ids[0], &[started]);
        write(&ids[1], &[started, &complete, started, &interrupted]);
        for id in &ids[2..5] {
            write(id, &[started, &interrupted, started, &complete]);
        }
        let never = run(dir.path(), &ids[5]);
        never.create().unwrap();
        let remaining =
            || -> Vec<String> { list(dir.path()).unwrap().into_iter().map(|run| run.id).collect() };
        // It may be about to start.
        prune(dir.path(), dir.path(), 5, None).unwrap();
        assert_eq!(remaining(), ids[1..]);
        let old = std::time::SystemTime::now() - 2 * START_TIMEOUT;
        File::open(&never.path).unwrap().set_modified(old).unwrap();
        prune(dir.path(), dir.path(), 2, None).unwrap();
        assert_eq!(remaining(), [&ids[1], &ids[3], &ids[4]].map(Clone::clone));
        write(&ids[5], &[started]);
        prune(dir.path(), dir.path(), 2, None).unwrap();
        assert_eq!(remaining(), ids[4..]);
    }
}
