//! The one place that writes to standard output and standard error.
//!
//! A face collects bytes for both in the order in which they are to appear; a flush writes them in as
//! few writes as that order allows: one, when both are the same terminal. A live area beneath (an
//! unfinished line of the agent's, and the status line) is taken away before and drawn again after.
//!
//! Behind an [`Outbox`] a flush never waits for long. What a reader does not take in time is kept as
//! far as its end is concerned, and the rest is counted; once there is room again, the number is shown
//! where the lines are missing.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::outbox::Outbox;
use super::style::Paint;
use super::visible;
use crate::core::cleaner::Cleaner;

/// Which of the two outputs something goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Out,
    Err,
}

/// Somewhere to write to, and silence once nobody is there any more.
pub struct Output {
    /// `None` after a failed write: a closed pipe or terminal stays closed.
    writer: Option<Box<dyn Write>>,
    fd: Option<BorrowedFd<'static>>,
    /// Why it failed, if not because whoever read it went away.
    failure: Option<io::Error>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gone = self.writer.is_none();
        f.debug_struct("Output").field("fd", &self.fd).field("gone", &gone).finish()
    }
}

impl Output {
    pub fn stdout() -> Self {
        Output::of(rustix::stdio::stdout())
    }

    pub fn stderr() -> Self {
        Output::of(rustix::stdio::stderr())
    }

    fn of(fd: BorrowedFd<'static>) -> Self {
        Output { writer: Some(Box::new(Unbuffered(fd))), fd: Some(fd), failure: None }
    }

    /// Writes to anything that takes bytes.
    pub fn new(writer: impl Write + 'static) -> Self {
        Output { writer: Some(Box::new(writer)), fd: None, failure: None }
    }

    /// Nobody at all.
    pub fn nobody() -> Self {
        Output { writer: None, fd: None, failure: None }
    }

    /// Whether a write may last for as long as a reader likes. Files and `/dev/null` have none.
    fn may_wait(&self) -> bool {
        let Some(fd) = self.fd else { return false };
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => false,
            Ok(FileType::CharacterDevice) => rustix::termios::isatty(fd),
            Ok(_) => true,
            // It is closed, which is told at once.
            Err(_) => false,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.fd.is_some_and(rustix::termios::isatty)
    }

    /// The terminal's width in columns.
    pub fn width(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(self.fd?).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }

    /// Nobody reads this any more.
    pub fn is_gone(&self) -> bool {
        self.writer.is_none()
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(writer) = &mut self.writer
            && !bytes.is_empty()
            && let Err(err) = writer.write_all(bytes).and_then(|()| writer.flush())
        {
            self.writer = None;
            self.failure = Some(err).filter(|err| err.kind() != io::ErrorKind::BrokenPipe);
        }
    }

    fn is_same_terminal(&self, other: &Output) -> bool {
        let device = |output: &Output| {
            let fd = output.fd.filter(|fd| rustix::termios::isatty(fd))?;
            Some(rustix::fs::fstat(fd).ok()?.st_rdev)
        };
        device(self).is_some_and(|own| device(other) == Some(own))
    }
}

/// A descriptor that is written to at once. std's own handle would split the text into lines again.
struct Unbuffered(BorrowedFd<'static>);

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                Err(Errno::INTR) => {}
                // Another program that shares this terminal or pipe has made it non-blocking.
                Err(Errno::AGAIN) => {
                    let fd = self.0.as_fd();
                    match rustix::event::poll(
                        &mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)],
                        None,
                    ) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is drawn beneath the text and taken away again.
#[derive(Debug, Default)]
struct Live {
    width: usize,
    /// As drawn: the unfinished line, and the status line; both empty when nothing is drawn.
    open: String,
    status: String,
    /// The unfinished line as it is now.
    now_open: String,
}

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
        let live = (status && err.is_terminal())
            .then(|| Live { width: err.width().unwrap_or(USUAL_WIDTH), ..Live::default() });
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
        if let (Some(out), Some(err)) = (out.fd.or(err.fd), err.fd.or(out.fd))
            && queued != [false; 2]
        {
            let writers: [Box<dyn Write + Send>; 2] =
                [Box::new(Unbuffered(out)), Box::new(Unbuffered(err))];
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
        screen.live = width.map(|width| Live { width, ..Live::default() });
        screen
    }

    /// There is an area for a status line.
    pub fn has_status(&self) -> bool {
        self.live.is_some()
    }

    /// The columns that a status line may take; the last is left free, so that nothing ever wraps.
    pub fn room(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.width.saturating_sub(1))
    }

    /// Neither output has a reader any more.
    pub fn is_gone(&self) -> bool {
        self.outputs.is_gone(Target::Out)
            && (self.one_terminal || self.outputs.is_gone(Target::Err))
    }

    /// Why standard output could not be written, in words, once: a disk that is full. A reader who went away
    /// has seen enough.
    pub fn trouble(&mut self) -> Option<String> {
        let failure = self.outputs.out.failure.take()?;
        Some(format!("cannot write to standard output: {failure}"))
    }

    pub fn resized(&mut self) {
        if let (Some(live), Some(width)) = (&mut self.live, self.outputs.err.width()) {
            live.width = width;
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
        let changed = status != live.status || live.now_open != live.open;
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

impl Live {
    /// Takes the end of the unfinished line, as much of it as fits.
    fn set_open(&mut self, held: &[u8], scratch: &mut String) {
        self.now_open.clear();
        if held.is_empty() {
            return;
        }
        let window = &held[held.len().saturating_sub(OPEN_WINDOW)..];
        scratch.clear();
        Cleaner::default().push(&String::from_utf8_lossy(window), scratch);
        let shown = visible::tail(scratch, self.width.saturating_sub(1));
        // A tab may take more columns than the one it was counted for.
        self.now_open.extend(shown.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }

    fn erase(&self, frame: &mut Vec<u8>) {
        if self.status.is_empty() {
            return;
        }
        frame.push(b'\r');
        if !self.open.is_empty() {
            // It may have been wrapped since, by a terminal that was made narrower.
            let rows = visible::columns(&self.open).div_ceil(self.width.max(1)).max(1);
            let _ = write!(frame, "\x1b[{rows}A");
        }
        frame.extend_from_slice(b"\x1b[J");
    }

    /// Draws both lines and leaves the cursor at the beginning of the second, where anything that is
    /// printed by others, or after a sudden end, overwrites it.
    fn draw(&mut self, status: &str, color: bool, frame: &mut Vec<u8>) {
        self.open.clear();
        self.status.clear();
        if status.is_empty() {
            return;
        }
        std::mem::swap(&mut self.open, &mut self.now_open);
        self.status.push_str(status);
        if !self.open.is_empty() {
            frame.extend_from_slice(self.open.as_bytes());
            frame.push(b'\n');
        }
        if color {
            let style = Paint::Faint.style();
            let _ = write!(frame, "{}{status}{}\r", style.render(), style.render_reset());
        } else {
            let _ = write!(frame, "{status}\r");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::outbox::tests::Reader;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Collects writes, so that a test sees what went where and in how many writes.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Sink {
        pub(crate) writes: Rc<RefCell<Vec<String>>>,
        pub(crate) closed: Rc<RefCell<bool>>,
    }

    impl Sink {
        pub(crate) fn output(&self) -> Output {
            Output::new(self.clone())
        }

        pub(crate) fn text(&self) -> String {
            self.writes.borrow().concat()
        }

        pub(crate) fn take(&self) -> Vec<String> {
            self.writes.take()
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if *self.closed.borrow() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let text = std::str::from_utf8(bytes).unwrap().to_owned();
            self.writes.borrow_mut().push(text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(one_terminal: bool, width: Option<usize>) -> (Screen, Sink, Sink) {
        let (out, err) = (Sink::default(), Sink::default());
        let screen = Screen::fake(out.output(), err.output(), one_terminal, width);
        (screen, out, err)
    }

    #[test]
    fn each_output_gets_its_own_in_as_few_writes_as_the_order_allows() {
        let (mut screen, out, err) = screen(false, None);
        screen.to(Target::Out).extend(b"a\n");
        screen.to(Target::Out).extend(b"b\n");
        screen.to(Target::Err).extend(b"warning\n");
        screen.to(Target::Out).extend(b"c");
        screen.flush("");
        screen.flush("");
        assert_eq!(out.take(), ["a\nb\n", "c"]);
        assert_eq!(err.take(), ["warning\n"]);
    }

    #[test]
    fn the_status_line_is_taken_away_before_text_and_drawn_again_after_in_one_write() {
        let (mut screen, out, err) = screen(true, Some(20));
        screen.to(Target::Out).extend(b"a\n");
        screen.flush("st");
        assert_eq!(out.take(), ["a\nst\r"]);
        screen.flush("st");
        assert_eq!(out.take(), [""; 0], "nothing changed");
        screen.to(Target::Err).extend(b"w\n");
        screen.flush("st2");
        assert_eq!(out.take(), ["\r\x1b[Jw\nst2\r"]);
        screen.flush("");
        screen.flush("");
        assert_eq!(out.take(), ["\r\x1b[J"]);
        assert_eq!(err.take(), [""; 0]);
    }

    #[test]
    fn an_unfinished_line_is_shown_above_the_status_line_until_it_is_finished() {
        let (mut screen, out, _) = screen(true, Some(11));
        screen.to(Target::Out).extend(b"one\nunfin");
        screen.flush("st");
        assert_eq!(out.take(), ["one\nunfin\nst\r"]);
        screen.to(Target::Out).extend("ished\tlong 日".as_bytes());
        screen.flush("st");
        assert_eq!(out.take(), ["\r\x1b[1A\x1b[Jed long 日\nst\r"]);
        // Made narrower, the line that was drawn takes two rows.
        screen.live.as_mut().unwrap().width = 6;
        screen.to(Target::Out).extend(b"\n");
        screen.flush("st");
        assert_eq!(out.take(), ["\r\x1b[2A\x1b[Junfinished\tlong 日\nst\r"]);
    }

    #[test]
    fn a_line_that_is_only_shown_goes_when_the_whole_one_comes() {
        let (mut screen, out, _) = screen(true, Some(20));
        screen.set_unfinished(b"Working... ");
        screen.flush("st");
        assert_eq!(out.take(), ["Working... \nst\r"]);
        screen.flush("st");
        assert_eq!(out.take(), [""; 0], "nothing changed");
        screen.set_unfinished(b"Working... \r10%\r20%\r");
        screen.flush("st");
        assert_eq!(out.take(), ["\r\x1b[1A\x1b[J20%\nst\r"]);
        screen.to(Target::Out).extend(b"Working... done\n");
        screen.set_unfinished(b"");
        screen.flush("st");
        assert_eq!(out.take(), ["\r\x1b[1A\x1b[JWorking... done\nst\r"]);
        // Nothing is shown that could not be taken back.
        screen.set_unfinished(b"more");
        screen.flush("");
        assert_eq!(out.take(), ["\r\x1b[J"]);
        let (mut screen, out, _) = self::screen(false, Some(20));
        screen.set_unfinished(b"more");
        screen.flush("st");
        assert_eq!(out.take(), [""; 0]);
    }

    #[test]
    fn an_unfinished_line_is_written_at_once_when_nothing_is_drawn_beneath() {
        let (mut screen, out, _) = screen(true, Some(11));
        screen.to(Target::Out).extend(b"unfin");
        screen.flush("");
        assert_eq!(out.take(), ["unfin"]);
    }

    #[test]
    fn output_into_a_file_leaves_the_status_line_of_the_terminal_alone() {
        let (mut screen, out, err) = screen(false, Some(20));
        screen.to(Target::Out).extend(b"a");
        screen.flush("st");
        assert_eq!((out.take(), err.take()), (vec!["a".into()], vec!["st\r".into()]));
        screen.to(Target::Out).extend(b"b\n");
        screen.flush("st");
        assert_eq!((out.take(), err.take()), (vec!["b\n".into()], vec![]));
        screen.to(Target::Err).extend(b"w\n");
        screen.flush("st");
        assert_eq!(err.take(), ["\r\x1b[Jw\nst\r"]);
    }

    #[test]
    fn a_reader_that_is_gone_is_written_to_no_more() {
        let (mut screen, out, err) = screen(false, None);
        *out.closed.borrow_mut() = true;
        screen.to(Target::Out).extend(b"a\n");
        screen.to(Target::Err).extend(b"w\n");
        screen.flush("");
        assert_eq!(err.text(), "w\n");
        assert!(!screen.is_gone());
        *err.closed.borrow_mut() = true;
        screen.to(Target::Err).extend(b"w\n");
        screen.flush("");
        assert!(screen.is_gone());
    }

    fn stuck(one_terminal: bool, width: Option<usize>, limit: usize) -> (Screen, Reader) {
        let (mut screen, ..) = screen(one_terminal, width);
        let (reader, writers) = Reader::new();
        screen.outputs.outbox = Outbox::new(limit, writers).ok();
        screen.outputs.queued = [true; 2];
        screen.notice = |lines, out| drop(writeln!(out, "({lines} missing)"));
        (screen, reader)
    }

    /// Reads all that there is.
    fn drain(screen: &mut Screen, reader: &Reader) -> String {
        let backlog = screen.outputs.outbox.as_ref().unwrap().backlog();
        let text = reader.take(backlog).into_iter().map(|(_, text)| text).collect();
        while screen.lags(Duration::from_secs(30)) {}
        text
    }

    #[test]
    fn a_reader_that_stands_still_is_told_how_much_it_missed_and_gets_the_last_of_it() {
        let (mut screen, reader) = stuck(false, None, 100_000);
        let mut number = 0;
        let mut say = |screen: &mut Screen, flushes: usize| {
            for _ in 0..flushes {
                for _ in 0..100 {
                    let target = if number % 7 == 0 { Target::Err } else { Target::Out };
                    writeln!(screen.to(target), "{number:09}").unwrap();
                    number += 1;
                }
                screen.flush("");
                assert!(screen.buffer.len() <= HELD);
            }
            number
        };
        say(&mut screen, 500);
        let first = drain(&mut screen, &reader);
        assert_eq!(first.len(), 100_000, "no more than the limit is kept");
        let said = say(&mut screen, 1);
        let second = drain(&mut screen, &reader);
        let lines: Vec<&str> = first.lines().chain(second.lines()).collect();
        let notice = lines.iter().position(|line| line.starts_with('(')).unwrap();
        let missing: u64 = lines[notice][1..].split(' ').next().unwrap().parse().unwrap();
        let shown = |line: &&str| line.parse::<u64>().unwrap();
        let before: Vec<u64> = lines[..notice].iter().map(shown).collect();
        let after: Vec<u64> = lines[notice + 1..].iter().map(shown).collect();
        assert_eq!(before, (0..10_000).collect::<Vec<_>>());
        assert_eq!(after, (10_000 + missing..said).collect::<Vec<_>>());
        assert_eq!(screen.missing, 0);
    }

    #[test]
    fn a_line_whose_end_is_missing_is_ended() {
        let (mut screen, reader) = stuck(false, None, 10);
        screen.to(Target::Out).extend(b"broken off");
        screen.flush("");
        screen.to(Target::Out).extend([b'x'; HELD]);
        screen.to(Target::Out).extend(b"\nshown\n");
        screen.flush("");
        assert_eq!(drain(&mut screen, &reader), "broken off");
        screen.flush("");
        assert_eq!(drain(&mut screen, &reader), "\n(1 missing)\nshown\n");
    }

    #[test]
    fn the_last_words_are_there_for_somebody_who_reads_late() {
        let (mut screen, reader) = stuck(false, None, 10);
        screen.to(Target::Out).extend(b"0123456789\n");
        screen.flush("");
        screen.to(Target::Out).extend(b"the end\n");
        screen.flush("");
        screen.finish();
        assert_eq!(drain(&mut screen, &reader), "0123456789\nthe end\n");
    }

    #[test]
    fn status_lines_do_not_queue_up() {
        let (mut screen, reader) = stuck(true, Some(40), 1 << 20);
        for second in 0..10_000 {
            screen.flush(&format!("{second} s"));
        }
        assert!(screen.outputs.outbox.as_ref().unwrap().backlog() < 2 * QUEUE_FOR_STATUS);
        drain(&mut screen, &reader);
        screen.flush("the last");
        assert_eq!(drain(&mut screen, &reader), "\r\x1b[Jthe last\r");
        screen.finish();
        assert_eq!(drain(&mut screen, &reader), "\r\x1b[J");
    }

    #[test]
    fn what_is_drawn_is_what_was_taken() {
        let (mut screen, reader) = stuck(true, Some(40), 20);
        screen.to(Target::Out).extend(b"0123456789\n");
        screen.flush("first");
        screen.to(Target::Out).extend(b"0123456789\n");
        screen.flush("second");
        assert_eq!(drain(&mut screen, &reader), "0123456789\nfirst\r");
        screen.flush("third");
        assert_eq!(drain(&mut screen, &reader), "\r\x1b[J0123456789\nthird\r");
    }

    #[test]
    fn a_file_gets_everything_though_a_terminal_takes_nothing() {
        let (mut screen, _reader) = stuck(false, None, 10);
        let file = Sink::default();
        screen.outputs.out = file.output();
        screen.outputs.queued = [false, true];
        for _ in 0..3 {
            screen.to(Target::Err).extend(b"warning: much\n");
            screen.to(Target::Out).extend(b"a\n");
            screen.flush("");
        }
        assert_eq!(file.text(), "a\na\na\n");
        assert_eq!(screen.buffer, b"warning: much\nwarning: much\n");
        assert_eq!(screen.segments, [(Target::Err, 0)]);
    }
}
