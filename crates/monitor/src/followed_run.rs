//! One run: its state as far as its journal was read, and whether its process is alive.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use ralph_events::journal;
use ralph_events::run_state::RunState;
use ralph_process::WatchId;
use ralph_store::runs::{RunDir, modified_ms};
use ralph_store::safe_fs;

use crate::journal_reader::{next_line_start, read_lines};
use crate::watch_thread::Notifier;

const CHUNK: usize = 1 << 20;

/// Larger journals are read by a thread.
pub(crate) const MAX_JOURNAL_AT_ONCE: u64 = 4 << 20;

/// Read at each end of a journal that a thread reads: of a large one, and of others, of which there may be many.
const LARGE_GLIMPSE: u64 = 64 * 1024;
const GLIMPSE: u64 = 8 * 1024;

#[cfg(test)]
thread_local! {
    /// What happens right after the next journal is read.
    pub(crate) static AFTER_READING: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

#[derive(Debug)]
pub(crate) struct FollowedRun {
    pub(crate) dir: RunDir,
    /// The state directory of its project.
    pub(crate) project: PathBuf,
    pub(crate) fold: Option<Fold>,
    /// Set while a thread reads the journal.
    pub(crate) progress: Option<Arc<AtomicU8>>,
    pub(crate) is_alive: bool,
    pub(crate) is_removed: bool,
    pub(crate) modified_ms: i64,
    pub(crate) size: u64,
    /// From `state.json`, if the journal has none.
    pub(crate) fallback_name: Option<String>,
    /// Of the journal, or of the run directory until there is one.
    pub(crate) watch: Option<WatchId>,
    pub(crate) is_journal_watched: bool,
    /// The process whose end is watched.
    pub(crate) watched_pid: Option<u32>,
}

/// A journal, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub(crate) state: RunState,
    position: u64,
    /// Only the beginning and the end were read.
    is_glimpse: bool,
}

impl FollowedRun {
    pub(crate) fn new(dir: RunDir, project: PathBuf) -> FollowedRun {
        let mut run = FollowedRun {
            dir,
            project,
            fold: None,
            progress: None,
            is_alive: false,
            is_removed: false,
            modified_ms: 0,
            size: 0,
            fallback_name: None,
            watch: None,
            is_journal_watched: false,
            watched_pid: None,
        };
        run.look();
        run
    }

    /// Reads what costs little: size, time and lock.
    pub(crate) fn look(&mut self) {
        let journal = self.dir.journal();
        self.is_removed = !self.dir.path.exists();
        if self.is_removed {
            self.is_alive = false;
            return;
        }
        self.modified_ms = modified_ms(&journal).unwrap_or(self.modified_ms);
        self.size = journal.metadata().map_or(0, |meta| meta.len());
        self.is_alive = self.dir.is_running();
    }

    /// It has written its first line.
    pub(crate) fn has_started(&self) -> bool {
        self.size > 0
    }

    /// Takes the lines that were added to the journal.
    pub(crate) fn read_more(&mut self) {
        if self.progress.is_some() || self.is_removed {
            return;
        }
        let fold = self.fold.get_or_insert_default();
        if self.size < fold.position {
            *fold = Fold::default();
        }
        if let Ok(mut file) = safe_fs::open_file(&self.dir.journal()) {
            let _ = fold.read_to_end(&mut file, |_| {});
        }
        #[cfg(test)]
        AFTER_READING.take().into_iter().for_each(|work| work());
        self.settle();
    }

    /// Fills in what the files around the journal say.
    fn settle(&mut self) {
        let Some(fold) = &mut self.fold else { return };
        if !self.is_alive {
            self.dir.add_last_alive(&mut fold.state);
        }
        if fold.state.info.name.is_empty() && self.fallback_name.is_none() {
            self.fallback_name = name_in_state_file(&self.dir);
        }
    }

    /// Shows the beginning and the end of the journal until a thread has read all of it.
    pub(crate) fn read_in_background(&mut self, reader: &mut BackgroundReader) {
        if self.fold.is_none() {
            self.fold = glimpse(&self.dir).ok();
        }
        self.read_unseen(reader);
    }

    /// Shows nothing until a thread has read the journal.
    pub(crate) fn read_unseen(&mut self, reader: &mut BackgroundReader) {
        if self.progress.is_none() {
            self.progress = Some(reader.read(&self.dir));
        }
    }

    /// Takes the result of the thread, and what was added since.
    pub(crate) fn finish_reading(&mut self, fold: Fold) {
        self.progress = None;
        self.fold = Some(fold);
        self.look();
        self.read_more();
    }

    /// Percent of the journal that was read, while it is being read.
    pub(crate) fn reading(&self) -> Option<u8> {
        self.progress.as_ref().map(|progress| progress.load(Ordering::Relaxed))
    }
}

impl Fold {
    fn read_to_end(&mut self, file: &mut File, progress: impl Fn(u64)) -> io::Result<()> {
        loop {
            let lines = read_lines(file, self.position, CHUNK)?;
            if lines.is_empty() {
                return Ok(());
            }
            self.position += lines.len() as u64;
            self.state.read_more(journal::entries(&lines[..]));
            progress(self.position);
        }
    }
}

/// The name that `state.json` has, which version 0.1 wrote as well.
fn name_in_state_file(run: &RunDir) -> Option<String> {
    let bytes = safe_fs::read_own(&run.state_file(), 1 << 20).ok()?;
    let state: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(state.get("worker_name")?.as_str()?.to_owned()).filter(|name| !name.is_empty())
}

/// The state after the first and the last lines of a journal.
fn glimpse(run: &RunDir) -> io::Result<Fold> {
    let mut file = safe_fs::open_file(&run.journal())?;
    let size = file.metadata()?.len();
    let mut fold = Fold { is_glimpse: true, ..Fold::default() };
    let length = if size > MAX_JOURNAL_AT_ONCE { LARGE_GLIMPSE } else { GLIMPSE };
    let tail = size.saturating_sub(length);
    let length = usize::try_from(length).unwrap_or(CHUNK);
    let head = read_lines(&mut file, 0, length)?;
    fold.state.read_more(journal::entries(&head[..]));
    let tail_start = next_line_start(&mut file, tail)?;
    if tail_start >= head.len() as u64 {
        let tail = read_lines(&mut file, tail_start, length)?;
        fold.state.read_more(journal::entries(&tail[..]));
    }
    Ok(fold)
}

/// Reads large journals in a thread.
#[derive(Debug)]
pub(crate) struct BackgroundReader {
    notifier: Notifier,
    jobs: Option<Sender<(RunDir, Arc<AtomicU8>)>>,
    results: Option<Receiver<(String, Fold)>>,
}

impl BackgroundReader {
    pub(crate) fn new(notifier: Notifier) -> BackgroundReader {
        BackgroundReader { notifier, jobs: None, results: None }
    }

    /// Returns the percentage that was read, which grows.
    fn read(&mut self, run: &RunDir) -> Arc<AtomicU8> {
        let progress = Arc::new(AtomicU8::new(0));
        if self.jobs.is_none() {
            self.start();
        }
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((run.clone(), Arc::clone(&progress)));
        }
        progress
    }

    fn start(&mut self) {
        let (jobs, waiting) = mpsc::channel::<(RunDir, Arc<AtomicU8>)>();
        let (finished, results) = mpsc::channel();
        let notifier = self.notifier.clone();
        let work = move || {
            for (run, progress) in waiting {
                let fold = read_whole(&run, &progress, &notifier);
                if finished.send((run.id, fold)).is_err() {
                    return;
                }
                notifier.notify();
            }
        };
        // Without a thread, the beginning and the end stay.
        if std::thread::Builder::new().name("journals".to_owned()).spawn(work).is_ok() {
            (self.jobs, self.results) = (Some(jobs), Some(results));
        }
    }

    /// The journals that have been read since the last call.
    pub(crate) fn take_results(&self) -> Vec<(String, Fold)> {
        self.results.as_ref().map_or_else(Vec::new, |results| results.try_iter().collect())
    }
}

fn read_whole(run: &RunDir, progress: &AtomicU8, notifier: &Notifier) -> Fold {
    let mut fold = Fold::default();
    if let Ok(mut file) = safe_fs::open_file(&run.journal()) {
        let size = file.metadata().map_or(0, |meta| meta.len()).max(1);
        let _ = fold.read_to_end(&mut file, |position| {
            let percent = u8::try_from(position.saturating_mul(100) / size).unwrap_or(100);
            if progress.swap(percent, Ordering::Relaxed) != percent {
                notifier.notify();
            }
        });
    }
    fold
}

impl Fold {
    pub(crate) fn is_glimpse(&self) -> bool {
        self.is_glimpse
    }
}
