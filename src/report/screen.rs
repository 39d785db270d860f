//! The one place that writes to standard output and standard error.
//!
//! A face collects bytes for both in the order in which they are to appear; a flush writes them in as
//! few writes as that order allows: one, when both are the same terminal. A live area beneath (an
//! unfinished line of the agent's, and the status line) is taken away before and drawn again after.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::style::Paint;
use super::visible::{self, Cleaner};

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
        Output { writer: Some(Box::new(Unbuffered(fd))), fd: Some(fd) }
    }

    /// Writes to anything that takes bytes.
    pub fn new(writer: impl Write + 'static) -> Self {
        Output { writer: Some(Box::new(writer)), fd: None }
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
            && writer.write_all(bytes).and_then(|()| writer.flush()).is_err()
        {
            self.writer = None;
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

/// Standard output and standard error, in one order.
#[derive(Debug)]
pub struct Screen {
    out: Output,
    err: Output,
    one_terminal: bool,
    /// The status line may be coloured.
    color: bool,
    buffer: Vec<u8>,
    /// Where in `buffer` a run of bytes for a target begins.
    segments: Vec<(Target, usize)>,
    live: Option<Live>,
    frame: Vec<u8>,
    scratch: String,
}

/// What is assumed of a terminal that does not tell.
const USUAL_WIDTH: usize = 80;

/// How much of an unfinished line is looked at to show its end.
const OPEN_WINDOW: usize = 8 * 1024;

impl Screen {
    /// `status` asks for the area beneath the text, if standard error is a terminal.
    pub fn new(out: Output, err: Output, status: bool, color: bool) -> Self {
        let live = (status && err.is_terminal())
            .then(|| Live { width: err.width().unwrap_or(USUAL_WIDTH), ..Live::default() });
        Screen {
            one_terminal: out.is_same_terminal(&err),
            out,
            err,
            color,
            buffer: Vec::new(),
            segments: Vec::new(),
            live,
            frame: Vec::new(),
            scratch: String::new(),
        }
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
        self.out.is_gone() && (self.one_terminal || self.err.is_gone())
    }

    pub fn resized(&mut self) {
        if let (Some(live), Some(width)) = (&mut self.live, self.err.width()) {
            live.width = width;
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
        live.set_open(&self.buffer[ready..], &mut self.scratch);
        let moves = if self.one_terminal {
            ready > 0
        } else {
            self.segments.iter().any(|(to, _)| *to == Target::Err)
        };
        let redraws = moves || status != live.status || live.now_open != live.open;
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
                    Target::Out => self.out.write(bytes),
                    Target::Err => self.frame.extend_from_slice(bytes),
                }
            }
        }
        live.draw(status, self.color, &mut self.frame);
        if self.one_terminal {
            self.out.write(&self.frame);
        } else {
            self.err.write(&self.frame);
        }
        self.buffer.drain(..ready);
        self.segments.clear();
        if !self.buffer.is_empty() {
            self.segments.push((Target::Out, 0));
        }
        self.trim();
    }

    fn write_all(&mut self) {
        if self.one_terminal {
            self.out.write(&self.buffer);
        } else {
            for (target, bytes) in segments(&self.segments, &self.buffer) {
                match target {
                    Target::Out => self.out.write(bytes),
                    Target::Err => self.err.write(bytes),
                }
            }
        }
        self.buffer.clear();
        self.segments.clear();
        self.trim();
    }

    /// One large burst must not hold its memory for the rest of the night.
    fn trim(&mut self) {
        const KEPT: usize = 256 * 1024;
        self.buffer.shrink_to(KEPT);
        self.frame.clear();
        self.frame.shrink_to(KEPT);
    }
}

/// The runs of bytes, each with its target.
fn segments<'b>(
    starts: &'b [(Target, usize)],
    buffer: &'b [u8],
) -> impl Iterator<Item = (Target, &'b [u8])> {
    let ends = starts.iter().skip(1).map(|(_, start)| *start);
    starts
        .iter()
        .zip(ends.chain([buffer.len()]))
        .map(|((target, start), end)| (*target, &buffer[*start..end]))
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
}
