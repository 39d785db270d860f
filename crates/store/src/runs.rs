//! The runs of a project: a directory each, under `.ralph/runs`.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use ralph_events::event::{Entry, Event, Outcome};

use super::guardrail_logs;
use super::private_files;
use super::safe_fs;
use ralph_events::journal::{self, Entries};

/// The name of a run: when it began, and something that tells apart two that began together. Names
/// sort by time, to the millisecond: which run is the last one, and which are the oldest, is told by
/// them.
pub fn new_id(now_ms: i64) -> String {
    use std::hash::{BuildHasher, Hasher};
    /// So many names fit into each millisecond of four hexadecimal digits.
    const IDS_PER_MS: u64 = 0x1_0000 / 1000;
    let time = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let millisecond = u64::try_from(time.as_millisecond().rem_euclid(1000)).unwrap_or_default();
    // The standard library's hasher is seeded at random: enough for a name.
    let random = std::hash::RandomState::new().build_hasher().finish() % IDS_PER_MS;
    let suffix = millisecond * IDS_PER_MS + random;
    format!("{}-{suffix:04x}", time.strftime("%Y%m%d-%H%M%S"))
}

/// Whether a word is the name of a run.
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

/// Reads the journal at `path` from the beginning. Nothing but a regular file is opened.
///
/// # Errors
/// It cannot be opened.
pub fn read_journal(path: &Path) -> io::Result<Entries<File>> {
    safe_fs::open_file(path).map(journal::entries)
}

/// How much of a journal is read to find its end: only short events follow the end of a run.
const JOURNAL_TAIL: u64 = 64 * 1024;

/// Whether the run of the journal at `path` has ended and was not started again.
pub fn has_ended(path: &Path) -> bool {
    let Ok(mut file) = safe_fs::open_file(path) else { return false };
    let Ok(length) = file.seek(io::SeekFrom::End(0)) else { return false };
    // The first line of the tail may be torn, and is then skipped.
    if file.seek(io::SeekFrom::Start(length.saturating_sub(JOURNAL_TAIL))).is_err() {
        return false;
    }
    journal::entries(file).fold(false, |ended, entry| match entry.event {
        Event::RunEnded { .. } => true,
        Event::RunStarted { .. } => false,
        _ => ended,
    })
}

/// One run on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    pub id: String,
    pub path: PathBuf,
}

impl RunDir {
    pub fn journal(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Reads its journal from the beginning.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn read_journal(&self) -> io::Result<Entries<File>> {
        read_journal(&self.journal())
    }

    pub fn raw(&self) -> PathBuf {
        self.path.join("raw.ndjson")
    }

    /// How much of its journal is whole lines; nothing of one that cannot be read. It only ever grows, so that two
    /// who find the same have found the same run.
    pub fn journal_size(&self) -> u64 {
        safe_fs::open_file(&self.journal())
            .and_then(|mut file| journal::complete_lines_len(&mut file))
            .unwrap_or_default()
    }

    /// Fails if this directory is a link, or if a link on the way leads out of the project `root`: what is written here
    /// would be elsewhere.
    ///
    /// # Errors
    /// `PermissionDenied`, or what the file system said.
    pub fn refuse_links(&self, root: &Path) -> io::Result<()> {
        if self.path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
            let message = format!("{} is a symbolic link", self.path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        safe_fs::check_inside(root, &self.journal())
    }

    /// Makes its directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self) -> io::Result<()> {
        private_files::create_in_project(&self.path)
    }

    /// Something of it is known, or was. What was cut off before its first word is no run.
    pub fn has_started(&self) -> bool {
        let tells = |meta: std::fs::Metadata| !meta.is_file() || meta.len() > 0;
        self.journal().symlink_metadata().is_ok_and(tells) || self.has_spent() || self.is_running()
    }

    /// What an agent printed is there, or what a guardrail did: there was a journal before that, and it told more.
    pub fn has_spent(&self) -> bool {
        let tells =
            |name: &str| name.ends_with(".ndjson") || guardrail_logs::iteration_of(name).is_some();
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(tells))
    }

    /// Notes that there was something, where nothing else tells it any more.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(super) fn note_spent(&self) -> io::Result<()> {
        safe_fs::open_own(
            private_files::private_open_options().append(true).create(true),
            &self.raw(),
        )
        .map(drop)
    }

    /// Nothing has become of it, and nobody is about to begin it.
    fn never_started(&self) -> bool {
        let is_old = |path: &Path| {
            let age = path.metadata().and_then(|meta| meta.modified()).ok();
            age.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > START_TIMEOUT)
        };
        !self.has_started() && is_old(&self.path)
    }

    /// It has begun, and its journal does not end with the end of a run whose work is complete.
    fn is_left(&self) -> bool {
        if !self.has_started() {
            return false;
        }
        let tail = self.tail().unwrap_or_default();
        let mut is_left = true;
        for entry in journal::entries(&tail[..]) {
            match entry.event {
                Event::RunStarted { .. } => is_left = true,
                Event::RunEnded { outcome, .. } => {
                    is_left = !matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
                }
                _ => {}
            }
        }
        is_left
    }

    /// The end of the run, if somebody was to be told of it and that is not known to have been done.
    pub fn untold_end(&self) -> Option<Entry<'static>> {
        let tail = self.tail().ok()?;
        // Most have none, which is soon found out.
        memchr::memmem::find(&tail, br#","notify":true"#)?;
        let mut untold = None;
        for entry in journal::entries(&tail[..]) {
            match entry.event {
                Event::RunEnded { notify: true, .. } => untold = Some(entry),
                Event::RunStarted { .. } | Event::RunEnded { .. } | Event::Notified { .. } => {
                    untold = None;
                }
                _ => {}
            }
        }
        untold
    }

    /// The end of the journal.
    fn tail(&self) -> io::Result<Vec<u8>> {
        let mut file = safe_fs::open_file(&self.journal())?;
        let size = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What the journal begins with.
    pub fn first_words(&self) -> FirstWords {
        const JOURNAL_PREFIX: &[u8] = br#"{"time":""#;
        let mut file = match safe_fs::open_file(&self.journal()) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return FirstWords::None,
            Err(_) => return FirstWords::Other,
        };
        let mut bytes = Vec::new();
        if (&mut file).take(MAX_PARTIAL_LINE + 1).read_to_end(&mut bytes).is_err() {
            return FirstWords::Other;
        }
        let shorter = bytes.len().min(JOURNAL_PREFIX.len());
        if bytes.trim_ascii().is_empty() {
            FirstWords::None
        } else if bytes[..shorter] == JOURNAL_PREFIX[..shorter]
            && bytes.len() as u64 <= MAX_PARTIAL_LINE
            && !bytes.contains(&b'\n')
            && !bytes.contains(&0)
        {
            FirstWords::Torn
        } else {
            FirstWords::Other
        }
    }

    /// Whether a process is writing this run's journal.
    pub fn is_running(&self) -> bool {
        // A file system without locks tells nothing, and has nothing to protect by them.
        let held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        safe_fs::open_file(&self.journal()).is_ok_and(held)
    }
}

/// A first line that is longer is not one that was just being written.
const MAX_PARTIAL_LINE: u64 = 256 * 1024;

/// How much of a journal is looked at for its end.
const TAIL_BYTES: u64 = 8 * 1024;

/// A run that has written nothing after so long never will.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// What a journal begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstWords {
    /// There is none, or nothing in it.
    None,
    /// The beginning of the first line, and nothing else: whoever wrote it was cut off there.
    Torn,
    /// Lines, or something that cannot be read.
    Other,
}

/// All runs, the oldest first.
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

/// Removes the oldest runs beyond `keep`, but none that is being written, not the one to `spare`, and not the last
/// one that somebody may want to go on with. What was cut off before it began goes, too.
pub fn prune(runs_dir: &Path, keep: usize, spare: Option<&str>) -> io::Result<()> {
    let is_spared = |run: &RunDir| spare == Some(run.id.as_str());
    let (mut runs, never): (Vec<RunDir>, Vec<RunDir>) =
        list(runs_dir)?.into_iter().partition(|run| is_spared(run) || !run.never_started());
    let newer = runs.split_off(runs.len().saturating_sub(keep));
    if let Some(last) = runs.iter().rposition(RunDir::is_left)
        && !newer.iter().any(|run| run.is_left() && !run.is_running())
    {
        runs.remove(last);
    }
    for run in runs.iter().chain(&never) {
        if !is_spared(run) && !run.is_running() {
            // One that cannot be removed must not keep the others.
            let _ = remove(run);
        }
    }
    Ok(())
}

/// Removes a run, with the links to its logs, or the file that has its name.
pub fn remove(run: &RunDir) -> io::Result<()> {
    if let Some(links) = run.path.parent().and_then(Path::parent) {
        for log in run.path.read_dir().into_iter().flatten().flatten() {
            if log
                .file_name()
                .to_str()
                .is_some_and(|name| guardrail_logs::iteration_of(name).is_some())
            {
                guardrail_logs::remove(&log.path(), links);
            }
        }
    }
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
        prune(dir.path(), 2, Some(&ids[2])).unwrap();
        let left: Vec<String> = list(dir.path()).unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(left, [&ids[0], &ids[2], &ids[3], &ids[4]].map(Clone::clone));
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
        let left =
            || -> Vec<String> { list(dir.path()).unwrap().into_iter().map(|run| run.id).collect() };
        // It may be about to begin.
        prune(dir.path(), 5, None).unwrap();
        assert_eq!(left(), ids[1..]);
        let old = std::time::SystemTime::now() - 2 * START_TIMEOUT;
        File::open(&never.path).unwrap().set_modified(old).unwrap();
        prune(dir.path(), 2, None).unwrap();
        assert_eq!(left(), [&ids[1], &ids[3], &ids[4]].map(Clone::clone));
        write(&ids[5], &[started]);
        prune(dir.path(), 2, None).unwrap();
        assert_eq!(left(), ids[4..]);
    }
}
