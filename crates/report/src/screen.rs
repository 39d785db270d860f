//! The only writer to standard output and standard error.
//!
//! A view collects bytes for both in display order; a flush writes them in as few writes as that order allows. A
//! live area below (an unfinished line and the status line) is erased before and redrawn after.
//!
//! Behind an [`AsyncWriter`] a flush never waits long. If a reader is too slow, the end of the output is kept and
//! the rest is counted; the count is shown where lines are missing.

mod live;

use std::io::Write;
use std::time::Duration;

use self::live::LiveArea;
use super::async_writer::AsyncWriter;
use super::output::{OutputStream, OutputTarget};

/// Formats a notice about omitted lines.
pub type OmittedNotice = fn(lines: u64, out: &mut Vec<u8>);

#[derive(Debug)]
struct Outputs {
    streams: [OutputStream; 2],
    outbox: Option<AsyncWriter>,
    queued: [bool; 2],
}

impl Outputs {
    fn write(&mut self, target: OutputTarget, bytes: &[u8]) {
        match &self.outbox {
            Some(outbox) if self.queued[target as usize] => outbox.push(target, bytes),
            _ => self.streams[target as usize].write(bytes),
        }
    }

    fn is_closed(&self, target: OutputTarget) -> bool {
        match &self.outbox {
            Some(outbox) if self.queued[target as usize] => outbox.is_closed(target),
            _ => self.streams[target as usize].is_closed(),
        }
    }
}

/// Standard output and standard error, in one order.
#[derive(Debug)]
pub struct TerminalOutput {
    outputs: Outputs,
    one_terminal: bool,
    color: bool,
    buffer: Vec<u8>,
    /// Start offsets in `buffer`, by target.
    segments: Vec<(OutputTarget, usize)>,
    live: Option<LiveArea>,
    /// Columns for text; `None` if standard output is no terminal.
    text_width: Option<usize>,
    frame: Vec<u8>,
    scratch: String,
    notice: OmittedNotice,
    /// Omitted lines that are not reported yet.
    omitted_lines: u64,
    /// The last line on standard output is unfinished.
    is_mid_line: bool,
    /// A line that is only displayed; it enters `buffer` when complete.
    unfinished: Vec<u8>,
}

/// For terminals that do not report a width.
const DEFAULT_WIDTH: usize = 80;

/// Bytes of an unfinished line considered for display.
const PARTIAL_LINE_BYTES: usize = 8 * 1024;

/// Output kept for a reader that returns.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// A longer queue gets no status line: only the last one matters.
const QUEUE_FOR_STATUS: usize = 1024;

impl TerminalOutput {
    /// `status` reserves the area below the text if standard error is a terminal.
    pub fn new(out: OutputStream, err: OutputStream, status: bool, color: bool) -> Self {
        let live = (status && err.is_terminal())
            .then(|| LiveArea::new(err.width().unwrap_or(DEFAULT_WIDTH)));
        TerminalOutput {
            text_width: text_width(&out),
            one_terminal: out.is_same_terminal(&err),
            outputs: Outputs { streams: [out, err], outbox: None, queued: [false; 2] },
            color,
            buffer: Vec::new(),
            segments: Vec::new(),
            live,
            frame: Vec::new(),
            scratch: String::new(),
            notice: |_, _| {},
            omitted_lines: 0,
            is_mid_line: false,
            unfinished: Vec::new(),
        }
    }

    /// Makes writes asynchronous: up to `limit` bytes wait for a slow reader, and `notice` reports what was
    /// omitted.
    #[must_use]
    pub fn with_async_writer(mut self, limit: usize, notice: OmittedNotice) -> Self {
        let [out, err] = &self.outputs.streams;
        let queued = [out.can_block(), err.can_block()];
        let writer = |one: &OutputStream, other: &OutputStream| {
            one.unbuffered().or_else(|| other.unbuffered())
        };
        if let (Some(out), Some(err)) = (writer(out, err), writer(err, out))
            && queued != [false; 2]
        {
            let writers: [Box<dyn Write + Send>; 2] = [Box::new(out), Box::new(err)];
            // Without a thread, waiting is better than silence.
            self.outputs.outbox = AsyncWriter::new(limit, writers).ok();
            self.outputs.queued = queued;
        }
        self.notice = notice;
        self
    }

    #[cfg(test)]
    pub(crate) fn fake(
        out: OutputStream,
        err: OutputStream,
        one_terminal: bool,
        width: Option<usize>,
    ) -> Self {
        let mut screen = TerminalOutput::new(out, err, false, false);
        screen.one_terminal = one_terminal;
        screen.live = width.map(LiveArea::new);
        screen
    }

    #[cfg(test)]
    pub(crate) fn with_text_width(mut self, width: usize) -> Self {
        self.text_width = Some(width);
        self
    }

    pub fn has_status(&self) -> bool {
        self.live.is_some()
    }

    pub fn text_width(&self) -> Option<usize> {
        self.text_width
    }

    /// The width at which lines for `target` wrap; `None` if it is not the terminal.
    pub fn width_of(&self, target: OutputTarget) -> Option<usize> {
        self.text_width.filter(|_| target == OutputTarget::Out || self.one_terminal)
    }

    /// Returns whether [`set_partial_line`](Self::set_partial_line) has an effect.
    pub fn shows_partial_line(&self) -> bool {
        self.live.is_some() && self.one_terminal
    }

    pub fn status_width(&self) -> usize {
        self.live.as_ref().map_or(0, LiveArea::width)
    }

    pub fn is_closed(&self) -> bool {
        self.outputs.is_closed(OutputTarget::Out)
            && (self.one_terminal || self.outputs.is_closed(OutputTarget::Err))
    }

    /// Why standard output could not be written (once): for example a full disk. A closed reader is no error.
    pub fn take_warning(&mut self) -> Option<String> {
        let failure = self.outputs.streams[0].take_failure()?;
        Some(format!("cannot write to standard output: {failure}"))
    }

    pub fn resized(&mut self) {
        self.text_width = text_width(&self.outputs.streams[0]);
        if let (Some(live), Some(width)) = (&mut self.live, self.outputs.streams[1].width()) {
            live.resize(width);
        }
    }

    /// Displays an unfinished line that can be erased again. Text before a carriage return is dropped.
    pub fn set_partial_line(&mut self, line: &[u8]) {
        self.unfinished.clear();
        if self.shows_partial_line() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let window = &line[line.len().saturating_sub(PARTIAL_LINE_BYTES)..];
            let start = memchr::memrchr(b'\r', window).map_or(0, |at| at + 1);
            self.unfinished.extend_from_slice(&window[start..]);
        }
    }

    /// The buffer for `target`. Standard error takes whole lines only.
    pub fn buffer_for(&mut self, target: OutputTarget) -> &mut Vec<u8> {
        if self.segments.last().map(|(last, _)| *last) != Some(target) {
            self.segments.push((target, self.buffer.len()));
        }
        &mut self.buffer
    }

    /// Writes collected output with `status` below it; an empty status removes the area.
    pub fn flush(&mut self, status: &str) {
        if let Some(outbox) = &mut self.outputs.outbox
            && !self.buffer.is_empty()
            && !outbox.has_room(self.buffer.len())
        {
            self.hold_back();
            return;
        }
        self.redraw(status);
    }

    /// The last flush.
    pub fn finish(&mut self) {
        self.redraw("");
    }

    /// Waits a moment for readers; see [`super::Reporter::has_pending_output`].
    pub fn has_pending_output(&mut self, patience: Duration) -> bool {
        self.outputs.outbox.as_mut().is_some_and(|outbox| outbox.has_pending_output(patience))
    }

    fn redraw(&mut self, status: &str) {
        if self.omitted_lines > 0 {
            self.write_omitted_notice();
        }
        let Some(live) = &mut self.live else {
            self.write_all();
            return;
        };
        let holds = self.one_terminal && !status.is_empty();
        let ready = if holds {
            memchr::memrchr(b'\n', &self.buffer).map_or(0, |end| end + 1)
        } else {
            self.buffer.len()
        };
        let open = match &self.buffer[ready..] {
            b"" => self.unfinished.as_slice(),
            open => open,
        };
        live.set_partial_line(open, &mut self.scratch);
        let moves = if self.one_terminal {
            ready > 0
        } else {
            self.segments.iter().any(|(to, _)| *to == OutputTarget::Err)
        };
        let busy = || {
            let outbox = self.outputs.outbox.as_ref();
            outbox.is_some_and(|outbox| outbox.backlog() > QUEUE_FOR_STATUS)
        };
        let changed = live.needs_redraw(status);
        let redraws = moves || changed && (status.is_empty() || !busy());
        if !redraws {
            if !self.one_terminal {
                self.write_all();
            }
            return;
        }
        self.frame.clear();
        live.erase(&mut self.frame);
        if self.one_terminal {
            self.frame.extend_from_slice(&self.buffer[..ready]);
        } else {
            for (target, bytes) in segments(&self.segments, &self.buffer) {
                match target {
                    OutputTarget::Out => self.outputs.write(OutputTarget::Out, bytes),
                    OutputTarget::Err => self.frame.extend_from_slice(bytes),
                }
            }
        }
        live.draw(status, self.color, &mut self.frame);
        let target = if self.one_terminal { OutputTarget::Out } else { OutputTarget::Err };
        self.outputs.write(target, &self.frame);
        self.track_line_end(ready);
        self.buffer.drain(..ready);
        self.segments.clear();
        if !self.buffer.is_empty() {
            self.segments.push((OutputTarget::Out, 0));
        }
        self.trim();
    }

    fn write_all(&mut self) {
        if self.one_terminal {
            self.outputs.write(OutputTarget::Out, &self.buffer);
        } else {
            for (target, bytes) in segments(&self.segments, &self.buffer) {
                self.outputs.write(target, bytes);
            }
        }
        self.track_line_end(self.buffer.len());
        self.buffer.clear();
        self.segments.clear();
        self.trim();
    }

    fn track_line_end(&mut self, written: usize) {
        let last_out = segments(&self.segments, &self.buffer[..written])
            .filter(|(target, _)| self.one_terminal || *target == OutputTarget::Out)
            .filter_map(|(_, bytes)| bytes.last())
            .last();
        if let Some(last) = last_out {
            self.is_mid_line = *last != b'\n';
        }
    }

    /// Handles a full queue: files are written; for readers the last lines are kept and earlier ones counted.
    fn hold_back(&mut self) {
        if self.outputs.queued != [true; 2] {
            let mut kept = Vec::new();
            let mut only = None;
            for (target, bytes) in segments(&self.segments, &self.buffer) {
                if self.outputs.queued[target as usize] {
                    kept.extend_from_slice(bytes);
                    only = Some((target, 0));
                } else {
                    self.outputs.write(target, bytes);
                }
            }
            self.buffer = kept;
            self.segments.clear();
            self.segments.extend(only);
        }
        let Some(excess) = self.buffer.len().checked_sub(MAX_HELD_BYTES) else { return };
        let end = memchr::memchr(b'\n', &self.buffer[excess..]).map(|end| excess + end);
        let Some(end) = end.or_else(|| memchr::memrchr(b'\n', &self.buffer[..excess])) else {
            return;
        };
        let cut = end + 1;
        self.omitted_lines += memchr::memchr_iter(b'\n', &self.buffer[..cut]).count() as u64;
        self.buffer.drain(..cut);
        // The segment at the cut starts there.
        let first = self.segments.iter().rposition(|(_, start)| *start <= cut).unwrap_or(0);
        self.segments.drain(..first);
        for (_, start) in &mut self.segments {
            *start = start.saturating_sub(cut);
        }
        self.trim();
    }

    fn write_omitted_notice(&mut self) {
        let target = if self.outputs.queued[0] { OutputTarget::Out } else { OutputTarget::Err };
        let mut notice = Vec::new();
        if std::mem::take(&mut self.is_mid_line) && target == OutputTarget::Out {
            // The missing end of that line would have reset its colour.
            if self.color {
                notice.extend_from_slice(b"\x1b[0m");
            }
            notice.push(b'\n');
        }
        (self.notice)(std::mem::take(&mut self.omitted_lines), &mut notice);
        for (_, start) in &mut self.segments {
            *start += notice.len();
        }
        self.segments.insert(0, (target, 0));
        self.buffer.splice(..0, notice);
    }

    /// Frees memory after a large burst.
    fn trim(&mut self) {
        const RETAINED_CAPACITY: usize = 256 * 1024;
        self.buffer.shrink_to(RETAINED_CAPACITY);
        self.frame.clear();
        self.frame.shrink_to(RETAINED_CAPACITY);
    }
}

/// The last column stays free: some terminals wrap there.
fn text_width(out: &OutputStream) -> Option<usize> {
    out.width().map(|width| width - 1)
}

/// Segments with their targets; those that start after the end of `buffer` are skipped.
pub(super) fn segments<'b>(
    starts: &'b [(OutputTarget, usize)],
    buffer: &'b [u8],
) -> impl Iterator<Item = (OutputTarget, &'b [u8])> {
    let ends = starts.iter().skip(1).map(|(_, start)| *start);
    starts.iter().zip(ends.chain([buffer.len()])).map_while(|((target, start), end)| {
        Some((*target, buffer.get(*start..end.min(buffer.len()))?))
    })
}

#[cfg(test)]
mod tests;
