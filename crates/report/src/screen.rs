//! The one place that writes to standard output and standard error.
//!
//! A face collects bytes for both in the order in which they are to appear; a flush writes them in as
//! few writes as that order allows: one, when both are the same terminal. A live area beneath (an
//! unfinished line of the agent's, and the status line) is taken away before and drawn again after.
//!
//! Behind an [`Outbox`] a flush never waits for long. What a reader does not take in time is kept as
//! far as its end is concerned, and the rest is counted; once there is room again, the number is shown
//! where the lines are missing.

mod live;

use std::io::Write;
use std::time::Duration;

use self::live::Live;
use super::async_writer::Outbox;
use super::output::{Output, Target};

/// How to tell of lines that were left out, as a line.
pub type Notice = fn(lines: u64, out: &mut Vec<u8>);

/// Both outputs, and the queue before those that somebody reads.
#[derive(Debug)]
struct Outputs {
    out: Output,
    err: Output,
    outbox: Option<Outbox>,
    /// Which of them are behind the queue.
    queued: [bool; 2],
}

impl Outputs {
    fn write(&mut self, target: Target, bytes: &[u8]) {
        match (&self.outbox, target) {
            (Some(outbox), _) if self.queued[target as usize] => outbox.push(target, bytes),
            (_, Target::Out) => self.out.write(bytes),
            (_, Target::Err) => self.err.write(bytes),
        }
    }

    fn is_gone(&self, target: Target) -> bool {
        match (&self.outbox, target) {
            (Some(outbox), _) if self.queued[target as usize] => outbox.is_gone(target),
            (_, Target::Out) => self.out.is_gone(),
            (_, Target::Err) => self.err.is_gone(),
        }
    }
}

/// Standard output and standard error, in one order.
#[derive(Debug)]
pub struct Screen {
    outputs: Outputs,
    one_terminal: bool,
    /// The status line may be coloured.
    color: bool,
    buffer: Vec<u8>,
    /// Where in `buffer` a run of bytes for a target begins.
    segments: Vec<(Target, usize)>,
    live: Option<Live>,
    frame: Vec<u8>,
    scratch: String,
    notice: Notice,
    /// Lines that were left out and not told of.
    missing: u64,
    /// The last line on standard output has no end yet.
    in_line: bool,
    /// A line that is only shown, and will come to `buffer` when it is whole.
    unfinished: Vec<u8>,
}

/// What is assumed of a terminal that does not tell.
const USUAL_WIDTH: usize = 80;

/// How much of an unfinished line is looked at to show its end.
const OPEN_WINDOW: usize = 8 * 1024;

/// How much is kept to be shown first when somebody reads again.
const HELD: usize = 64 * 1024;

/// A status line is not added to a queue that is longer: only the last one matters, and it comes
/// again.
const QUEUE_FOR_STATUS: usize = 1024;

impl Screen {
    /// `status` asks for the area beneath the text, if standard error is a terminal.
    pub fn new(out: Output, err: Output, status: bool, color: bool) -> Self {
        let live =
            (status && err.is_terminal()).then(|| Live::new(err.width().unwrap_or(USUAL_WIDTH)));
        Screen {
            one_terminal: out.is_same_terminal(&err),
            outputs: Outputs { out, err, outbox: None, queued: [false; 2] },
            color,
            buffer: Vec::new(),
            segments: Vec::new(),
            live,
            frame: Vec::new(),
            scratch: String::new(),
            notice: |_, _| {},
            missing: 0,
            in_line: false,
            unfinished: Vec::new(),
        }
    }

    /// From now on nobody who does not read holds anybody up. Up to `limit` bytes wait for them, and
    /// `notice` tells of what was left out then.
    #[must_use]
    pub fn without_waiting(mut self, limit: usize, notice: Notice) -> Self {
        let Outputs { out, err, .. } = &self.outputs;
        let queued = [out.may_wait(), err.may_wait()];
        let writer = |one: &Output, other: &Output| one.unbuffered().or_else(|| other.unbuffered());
        if let (Some(out), Some(err)) = (writer(out, err), writer(err, out))
            && queued != [false; 2]
        {
            let writers: [Box<dyn Write + Send>; 2] = [Box::new(out), Box::new(err)];
            // Without a thread it is better to wait than to say nothing.
            self.outputs.outbox = Outbox::new(limit, writers).ok();
            self.outputs.queued = queued;
        }
        self.notice = notice;
        self
    }

    /// A screen whose outputs are taken for a terminal of this width.
    #[cfg(test)]
    pub(crate) fn fake(out: Output, err: Output, one_terminal: bool, width: Option<usize>) -> Self {
        let mut screen = Screen::new(out, err, false, false);
        screen.one_terminal = one_terminal;
        screen.live = width.map(Live::new);
        screen
    }

    /// There is an area for a status line.
    pub fn has_status(&self) -> bool {
        self.live.is_some()
    }

    /// The columns that a status line may take.
    pub fn room(&self) -> usize {
        self.live.as_ref().map_or(0, Live::room)
    }

    /// Neither output has a reader any more.
    pub fn is_gone(&self) -> bool {
        self.outputs.is_gone(Target::Out)
            && (self.one_terminal || self.outputs.is_gone(Target::Err))
    }

    /// Why standard output could not be written, in words, once: a disk that is full. A reader who went away
    /// has seen enough.
    pub fn trouble(&mut self) -> Option<String> {
        let failure = self.outputs.out.take_failure()?;
        Some(format!("cannot write to standard output: {failure}"))
    }

    pub fn resized(&mut self) {
        if let (Some(live), Some(width)) = (&mut self.live, self.outputs.err.width()) {
            live.resize(width);
        }
    }

    /// Shows a line that is not whole yet, where it can be taken back. What a carriage return would have
    /// written over is not part of it.
    pub fn set_unfinished(&mut self, line: &[u8]) {
        self.unfinished.clear();
        if self.live.is_some() && self.one_terminal {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let window = &line[line.len().saturating_sub(OPEN_WINDOW)..];
            let start = memchr::memrchr(b'\r', window).map_or(0, |at| at + 1);
            self.unfinished.extend_from_slice(&window[start..]);
        }
    }

    /// Where bytes for `target` are to be appended. Lines for standard error are whole lines.
    pub fn to(&mut self, target: Target) -> &mut Vec<u8> {
        if self.segments.last().map(|(last, _)| *last) != Some(target) {
            self.segments.push((target, self.buffer.len()));
        }
        &mut self.buffer
    }

    /// Writes what was collected, with `status` beneath it; an empty one takes the area away.
    pub fn flush(&mut self, status: &str) {
        if let Some(outbox) = &mut self.outputs.outbox
            && !self.buffer.is_empty()
            && !outbox.has_room(self.buffer.len())
        {
            self.hold();
            return;
        }
        self.show(status);
    }

    /// The same for the last time: there will be no later flush for what cannot be taken now.
    pub fn finish(&mut self) {
        self.show("");
    }

    /// Waits a moment for everything to be read; see [`super::Reporter::lags`].
    pub fn lags(&mut self, patience: Duration) -> bool {
        self.outputs.outbox.as_mut().is_some_and(|outbox| outbox.lags(patience))
    }

    fn show(&mut self, status: &str) {
        if self.missing > 0 {
            self.tell_of_missing();
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
        live.set_open(open, &mut self.scratch);
        let moves = if self.one_terminal {
            ready > 0
        } else {
            self.segments.iter().any(|(to, _)| *to == Target::Err)
        };
        let busy = || {
            let outbox = self.outputs.outbox.as_ref();
            outbox.is_some_and(|outbox| outbox.backlog() > QUEUE_FOR_STATUS)
        };
        let changed = live.is_outdated(status);
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
                    Target::Out => self.outputs.write(Target::Out, bytes),
                    Target::Err => self.frame.extend_from_slice(bytes),
                }
            }
        }
        live.draw(status, self.color, &mut self.frame);
        let target = if self.one_terminal { Target::Out } else { Target::Err };
        self.outputs.write(target, &self.frame);
        self.note_end(ready);
        self.buffer.drain(..ready);
        self.segments.clear();
        if !self.buffer.is_empty() {
            self.segments.push((Target::Out, 0));
        }
        self.trim();
    }

    fn write_all(&mut self) {
        if self.one_terminal {
            self.outputs.write(Target::Out, &self.buffer);
        } else {
            for (target, bytes) in segments(&self.segments, &self.buffer) {
                self.outputs.write(target, bytes);
            }
        }
        self.note_end(self.buffer.len());
        self.buffer.clear();
        self.segments.clear();
        self.trim();
    }

    /// Remembers whether the last line on standard output is a whole one.
    fn note_end(&mut self, written: usize) {
        let last_out = segments(&self.segments, &self.buffer[..written])
            .filter(|(target, _)| self.one_terminal || *target == Target::Out)
            .filter_map(|(_, bytes)| bytes.last())
            .last();
        if let Some(last) = last_out {
            self.in_line = *last != b'\n';
        }
    }

    /// There is no room for what was collected. What nobody has to read is written; of the rest the
    /// last lines are kept, and those before them are counted.
    fn hold(&mut self) {
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
        let Some(excess) = self.buffer.len().checked_sub(HELD) else { return };
        let end = memchr::memchr(b'\n', &self.buffer[excess..]).map(|end| excess + end);
        let Some(end) = end.or_else(|| memchr::memrchr(b'\n', &self.buffer[..excess])) else {
            return;
        };
        let cut = end + 1;
        self.missing += memchr::memchr_iter(b'\n', &self.buffer[..cut]).count() as u64;
        self.buffer.drain(..cut);
        // The run of bytes that was cut through begins at the cut.
        let first = self.segments.iter().rposition(|(_, start)| *start <= cut).unwrap_or(0);
        self.segments.drain(..first);
        for (_, start) in &mut self.segments {
            *start = start.saturating_sub(cut);
        }
        self.trim();
    }

    /// Puts the notice before what was kept.
    fn tell_of_missing(&mut self) {
        let target = if self.outputs.queued[0] { Target::Out } else { Target::Err };
        let mut notice = Vec::new();
        if std::mem::take(&mut self.in_line) && target == Target::Out {
            // The end of that line is among what is missing, and with it the end of its colour.
            if self.color {
                notice.extend_from_slice(b"\x1b[0m");
            }
            notice.push(b'\n');
        }
        (self.notice)(std::mem::take(&mut self.missing), &mut notice);
        for (_, start) in &mut self.segments {
            *start += notice.len();
        }
        self.segments.insert(0, (target, 0));
        self.buffer.splice(..0, notice);
    }

    /// One large burst must not hold its memory for the rest of the night.
    fn trim(&mut self) {
        const KEPT: usize = 256 * 1024;
        self.buffer.shrink_to(KEPT);
        self.frame.clear();
        self.frame.shrink_to(KEPT);
    }
}

/// The runs of bytes, each with its target. Those that begin after the end of `buffer` are left out.
pub(super) fn segments<'b>(
    starts: &'b [(Target, usize)],
    buffer: &'b [u8],
) -> impl Iterator<Item = (Target, &'b [u8])> {
    let ends = starts.iter().skip(1).map(|(_, start)| *start);
    starts.iter().zip(ends.chain([buffer.len()])).map_while(|((target, start), end)| {
        Some((*target, buffer.get(*start..end.min(buffer.len()))?))
    })
}

#[cfg(test)]
mod tests;
