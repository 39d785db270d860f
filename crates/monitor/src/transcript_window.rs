//! The transcript of one run, of which only a part is in memory.
//!
//! A journal is read in pages. Pages are loaded at either end and dropped at the other, so that the whole run can be
//! scrolled through with bounded memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

use memchr::memmem;
use ralph_events::event::{Entry, Event, TodoItem};
use ralph_events::journal;
use ralph_events::json_writer;
use ralph_report::transcript::{Item, Transcript};
use ralph_store::runs::RunDir;
use ralph_store::safe_fs;

use crate::journal_reader::{next_line_start, read_lines};

/// Bytes of the journal in a page.
const PAGE: usize = 256 * 1024;

/// Pages in memory.
const MAX_PAGES: usize = 6;

/// Read at once by a search.
const SEARCH_CHUNK: usize = 4 << 20;

/// Read behind a page to see how its last calls end.
const LOOK_AHEAD: usize = 256 * 1024;

#[derive(Debug)]
pub struct TranscriptWindow {
    run: RunDir,
    directory: String,
    /// In order, without gaps.
    pages: VecDeque<Page>,
    /// The last page ends where the journal ended when it was last read.
    is_at_end: bool,
}

#[derive(Debug)]
struct Page {
    start: u64,
    end: u64,
    transcript: Transcript,
}

/// What [`TranscriptWindow::update`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowUpdate {
    /// Ids of items that are new or changed.
    pub changed: Vec<u64>,
    /// Items dropped at the beginning.
    pub dropped: usize,
    /// There is more behind the window.
    pub has_more: bool,
}

/// Where a search found its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// The position of the line in the journal, which is the id of its item.
    pub position: u64,
    pub iteration: u32,
}

impl TranscriptWindow {
    /// Opens the end of a run's transcript. Paths are shown relative to `directory`.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn open(run: &RunDir, directory: &str) -> io::Result<TranscriptWindow> {
        let mut window = TranscriptWindow {
            run: run.clone(),
            directory: directory.to_owned(),
            pages: VecDeque::new(),
            is_at_end: false,
        };
        window.go_to_end()?;
        Ok(window)
    }

    pub fn items(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.pages.iter().flat_map(|page| page.transcript.items())
    }

    /// The agent's own plan, if the last page has it.
    pub fn todo(&self) -> &[TodoItem] {
        self.pages.back().map_or(&[], |page| page.transcript.todo())
    }

    /// The first item of the run is in the window.
    pub fn is_at_start(&self) -> bool {
        self.pages.front().is_none_or(|page| page.start == 0)
    }

    /// New items are added.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    fn file(&self) -> io::Result<File> {
        safe_fs::open_file(&self.run.journal())
    }

    /// # Errors
    /// The journal cannot be read.
    pub fn go_to_end(&mut self) -> io::Result<()> {
        let mut file = self.file()?;
        let size = journal::complete_lines_len(&mut file)?;
        let start = page_before(&mut file, size)?;
        self.pages.clear();
        self.pages.push_back(self.read_page(&mut file, start, size)?);
        self.is_at_end = true;
        // Keeps a page of context above short pages.
        self.load_earlier().map(drop)
    }

    /// # Errors
    /// The journal cannot be read.
    pub fn go_to_start(&mut self) -> io::Result<()> {
        self.go_to(0)
    }

    /// Shows the surroundings of a position: the id of an item, or a hit of a search.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn go_to(&mut self, position: u64) -> io::Result<()> {
        if self.pages.iter().any(|page| (page.start..page.end).contains(&position)) {
            return Ok(());
        }
        let mut file = self.file()?;
        let size = journal::complete_lines_len(&mut file)?;
        let half = PAGE as u64 / 2;
        let start = next_line_start(&mut file, position.saturating_sub(half))?.min(position);
        let page = self.read_page(&mut file, start, size)?;
        self.is_at_end = page.end >= size;
        self.pages.clear();
        self.pages.push_back(page);
        Ok(())
    }

    /// Shows the beginning of an iteration, and returns its position. `None` if there is no such iteration.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn go_to_iteration(&mut self, iteration: u32) -> io::Result<Option<u64>> {
        let mut file = self.file()?;
        let size = journal::complete_lines_len(&mut file)?;
        let (mut low, mut high) = (0, size);
        // Iterations only grow, except for lines that belong to none.
        while low < high {
            let middle = next_line_start(&mut file, low + (high - low) / 2)?;
            match iteration_at(&mut file, middle)? {
                Some((_, found)) if middle < high && found < iteration => low = middle + 1,
                _ => high = low + (high - low) / 2,
            }
        }
        let start = next_line_start(&mut file, low)?;
        let found = iteration_at(&mut file, start)?.filter(|(_, found)| *found == iteration);
        let Some((position, _)) = found else { return Ok(None) };
        self.go_to(position)?;
        Ok(Some(position))
    }

    /// Adds a page before the window, and returns the number of new items. 0 at the start.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn load_earlier(&mut self) -> io::Result<usize> {
        let Some(end) = self.pages.front().map(|page| page.start).filter(|start| *start > 0) else {
            return Ok(0);
        };
        let mut file = self.file()?;
        let start = page_before(&mut file, end)?;
        let page = self.read_page(&mut file, start, end)?;
        let added = page.transcript.items().len();
        self.pages.push_front(page);
        if self.pages.len() > MAX_PAGES {
            self.pages.pop_back();
            self.is_at_end = false;
        }
        Ok(added)
    }

    /// Adds a page behind the window, and returns the number of items dropped at its beginning.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn load_later(&mut self) -> io::Result<usize> {
        let Some(start) = self.pages.back().map(|page| page.end).filter(|_| !self.is_at_end) else {
            return Ok(0);
        };
        let mut file = self.file()?;
        let size = journal::complete_lines_len(&mut file)?;
        let page = self.read_page(&mut file, start, size)?;
        self.is_at_end = page.end >= size;
        self.pages.push_back(page);
        Ok(self.drop_first_pages())
    }

    /// Takes in what was added to the journal. If the end is not in the window, only says that there is more.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn update(&mut self) -> io::Result<WindowUpdate> {
        let mut file = self.file()?;
        let mut update = WindowUpdate::default();
        let Some(mut end) = self.pages.back().map(|page| page.end) else { return Ok(update) };
        if !self.is_at_end {
            update.has_more = file.metadata()?.len() > end;
            return Ok(update);
        }
        loop {
            let lines = read_lines(&mut file, end, PAGE)?;
            if lines.is_empty() {
                break;
            }
            self.start_page_if_full();
            for_each_entry(&lines, end, |position, entry| {
                for page in self.pages.iter_mut().rev().take(2) {
                    update.changed.extend(page.transcript.apply(position, entry));
                }
            });
            end += lines.len() as u64;
            if let Some(last) = self.pages.back_mut() {
                last.end = end;
            }
        }
        update.dropped = self.drop_first_pages();
        Ok(update)
    }

    fn start_page_if_full(&mut self) {
        if let Some(last) = self.pages.back_mut()
            && last.end - last.start >= PAGE as u64
        {
            last.transcript.close();
            let (start, end) = (last.end, last.end);
            self.pages.push_back(Page { start, end, transcript: Transcript::new(&self.directory) });
        }
    }

    fn drop_first_pages(&mut self) -> usize {
        let mut dropped = 0;
        while self.pages.len() > MAX_PAGES {
            dropped += self.pages.pop_front().map_or(0, |page| page.transcript.items().len());
        }
        dropped
    }

    /// Reads a page from `start` on, at most up to `end`.
    fn read_page(&self, file: &mut File, start: u64, end: u64) -> io::Result<Page> {
        let room = usize::try_from(end.saturating_sub(start)).unwrap_or(PAGE).clamp(1, PAGE);
        let lines = read_lines(file, start, room)?;
        let mut transcript = Transcript::new(&self.directory);
        for_each_entry(&lines, start, |position, entry| drop(transcript.apply(position, entry)));
        let page_end = start + lines.len() as u64;
        if page_end < journal::complete_lines_len(file)? {
            transcript.close();
            let ahead = read_lines(file, page_end, LOOK_AHEAD)?;
            for_each_entry(&ahead, page_end, |position, entry| {
                if transcript.has_open_items() {
                    transcript.apply(position, entry);
                }
            });
        }
        Ok(Page { start, end: page_end, transcript })
    }

    /// Searches the whole journal, regardless of case.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn search(&self, text: &str) -> io::Result<Search> {
        Ok(Search { file: self.file()?, position: 0, text: text.to_lowercase() })
    }
}

/// The start of the page that ends at `end`.
fn page_before(file: &mut File, end: u64) -> io::Result<u64> {
    let mut length = PAGE as u64;
    loop {
        let start = next_line_start(file, end.saturating_sub(length))?;
        if start < end || end == 0 {
            return Ok(start.min(end));
        }
        // A line that is longer than a page.
        length = length.saturating_mul(2);
        if length >= end {
            return Ok(0);
        }
    }
}

/// The first line at or behind `position` that belongs to an iteration, and its number.
fn iteration_at(file: &mut File, position: u64) -> io::Result<Option<(u64, u32)>> {
    let lines = read_lines(file, position, PAGE)?;
    let mut found = None;
    for_each_entry(&lines, position, |position, entry| {
        if found.is_none() && entry.at.iteration > 0 {
            found = Some((position, entry.at.iteration));
        }
    });
    Ok(found)
}

/// Calls `take` with each readable entry and the position of its line.
fn for_each_entry(lines: &[u8], start: u64, mut take: impl FnMut(u64, &Entry<'_>)) {
    let mut position = start;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if let Some(entry) = journal::entries(line).next() {
            take(position, &entry);
        }
        position += line.len() as u64;
    }
}

/// A search through a journal, a few megabytes per step.
#[derive(Debug)]
pub struct Search {
    file: File,
    position: u64,
    text: String,
}

impl Iterator for Search {
    type Item = Vec<Hit>;

    /// The hits of the next part, in order; `None` behind the last one.
    fn next(&mut self) -> Option<Vec<Hit>> {
        if self.text.is_empty() {
            return None;
        }
        let mut lines = read_lines(&mut self.file, self.position, SEARCH_CHUNK).ok()?;
        if lines.is_empty() {
            return None;
        }
        let start = self.position;
        self.position += lines.len() as u64;
        Some(self.hits(&mut lines, start))
    }
}

impl Search {
    fn hits(&self, lines: &mut [u8], start: u64) -> Vec<Hit> {
        let mut hits = Vec::new();
        let lower = lines.to_ascii_lowercase();
        // As JSON writes it, without the quotes.
        let quoted = json_writer::compact(&self.text).unwrap_or_default().to_lowercase();
        let needle = memmem::Finder::new(quoted.trim_matches('"').as_bytes());
        let mut from = 0;
        while let Some(at) = lower.get(from..).and_then(|rest| needle.find(rest)) {
            let at = from + at;
            let line_start = memchr::memrchr(b'\n', &lines[..at]).map_or(0, |newline| newline + 1);
            let line_end =
                memchr::memchr(b'\n', &lines[at..]).map_or(lines.len(), |end| at + end + 1);
            let line = &lines[line_start..line_end];
            if let Some(entry) = journal::entries(line).next()
                && shown_text(&entry.event).to_lowercase().contains(&self.text)
            {
                let position = start + line_start as u64;
                hits.push(Hit { position, iteration: entry.at.iteration });
            }
            from = line_end;
        }
        hits
    }
}

/// The text of an event that its item shows.
fn shown_text(event: &Event<'_>) -> String {
    match event {
        Event::Text { text, .. }
        | Event::Thinking { text, .. }
        | Event::Output { text, .. }
        | Event::Notice { text }
        | Event::QuestionAsked { text, .. }
        | Event::QuestionAnswered { text, .. }
        | Event::GuidanceReceived { text, .. } => text.to_string(),
        Event::ToolStarted { name, summary, edit, .. } => {
            let edit = edit.as_ref().map(|it| format!("{}\n{}", it.old, it.new));
            format!("{name}({summary})\n{}", edit.unwrap_or_default())
        }
        Event::ToolEnded { preview, .. } => preview.to_string(),
        Event::GuardrailStarted { command, .. } => command.to_string(),
        Event::Repository { commits, .. } => {
            let lines = commits.iter().map(|commit| format!("{} {}\n", commit.id, commit.subject));
            lines.collect()
        }
        Event::Warning { message } => message.to_string(),
        _ => String::new(),
    }
}
