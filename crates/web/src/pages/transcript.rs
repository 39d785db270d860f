//! Reads the items of a run's transcript from its journal.

use std::io;

use ralph_events::event::{Entry, TodoItem};
use ralph_monitor::EventReader;
use ralph_report::transcript::{Item, ItemKind, Transcript};
use ralph_store::runs::RunDir;

/// The end of the journal that is read at first.
const TAIL_BYTES: u64 = 2 << 20;
const CHUNK: usize = 256 * 1024;
/// Iterations that a page starts with.
const SHOWN_ITERATIONS: u32 = 2;
/// Items that are kept; older ones are shown by another page.
const MAX_ITEMS: usize = 1000;

/// The end of a transcript, which grows.
#[derive(Debug)]
pub(crate) struct Tail {
    reader: EventReader,
    transcript: Transcript,
}

impl Tail {
    /// Reads the end of the journal.
    pub(crate) fn open(run: &RunDir, directory: &str) -> io::Result<Tail> {
        let size = run.journal().metadata()?.len();
        let mut tail = Tail {
            reader: EventReader::open(run, size.saturating_sub(TAIL_BYTES))?,
            transcript: Transcript::new(directory),
        };
        tail.update()?;
        Ok(tail)
    }

    /// Takes in what was written since. If that fails, the next call tries again.
    pub(crate) fn open_or_update(
        tail: Option<Tail>,
        run: &RunDir,
        directory: &str,
    ) -> Option<Tail> {
        let Some(mut tail) = tail else { return Tail::open(run, directory).ok() };
        let _ = tail.update();
        Some(tail)
    }

    /// Reads the journal from its beginning, and keeps only iterations from `first` on.
    pub(crate) fn open_from(run: &RunDir, directory: &str, first: u32) -> io::Result<Tail> {
        let mut tail =
            Tail { reader: EventReader::open(run, 0)?, transcript: Transcript::new(directory) };
        loop {
            let is_more = tail.read_chunk()?;
            let items = tail.transcript.items();
            let before = items.iter().take_while(|item| item.iteration < first).count();
            tail.transcript.forget(before);
            if !is_more || tail.transcript.items().len() > MAX_ITEMS {
                return Ok(tail);
            }
        }
    }

    fn update(&mut self) -> io::Result<()> {
        while self.read_chunk()? {}
        let extra = self.transcript.items().len().saturating_sub(2 * MAX_ITEMS);
        if extra > 0 {
            self.transcript.forget(extra + MAX_ITEMS);
        }
        Ok(())
    }

    fn read_chunk(&mut self) -> io::Result<bool> {
        let mut start = self.reader.position();
        let lines = self.reader.read(CHUNK)?;
        for line in &lines {
            // A line that cannot be read is left out.
            if let Ok(entry) = serde_json::from_slice::<Entry<'_>>(&line.bytes) {
                self.transcript.apply(start, &entry);
            }
            start = line.end;
        }
        Ok(!lines.is_empty())
    }

    /// The items of the last iterations, at most [`MAX_ITEMS`].
    pub(crate) fn recent(&self) -> &[Item] {
        let items = self.transcript.items();
        let last = items.last().map_or(0, |item| item.iteration);
        let first = last.saturating_sub(SHOWN_ITERATIONS - 1);
        let items = from_iteration(items, first);
        &items[items.len().saturating_sub(MAX_ITEMS)..]
    }

    /// The first items from an iteration on, at most [`MAX_ITEMS`].
    pub(crate) fn from(&self, first: u32) -> &[Item] {
        let items = from_iteration(self.transcript.items(), first);
        &items[..items.len().min(MAX_ITEMS)]
    }

    pub(crate) fn todo(&self) -> &[TodoItem] {
        self.transcript.todo()
    }
}

fn from_iteration(items: &[Item], first: u32) -> &[Item] {
    let start = items.iter().position(|item| item.iteration >= first).unwrap_or(items.len());
    &items[start..]
}

/// The iteration at which the transcript before `items` starts, and its content in words.
pub(crate) fn hidden_before(items: &[Item]) -> Option<(u32, String)> {
    let first = items.first()?;
    let is_whole = matches!(first.kind, ItemKind::Iteration { .. });
    match first.iteration {
        0 => None,
        1 if is_whole => None,
        number if !is_whole => Some((number, format!("the beginning of iteration {number}"))),
        2 => Some((1, "iteration 1".to_owned())),
        number => Some((1, format!("iterations 1 to {}", number - 1))),
    }
}
