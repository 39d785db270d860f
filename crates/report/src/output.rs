//! Standard output and standard error.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::Errno;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputTarget {
    Out,
    Err,
}

/// A writer that becomes silent once it is closed.
pub struct OutputStream {
    /// `None` after a failed write: a closed pipe or terminal stays closed.
    writer: Option<Box<dyn Write>>,
    fd: Option<BorrowedFd<'static>>,
    /// Why it failed, except for a closed reader.
    failure: Option<io::Error>,
}

impl std::fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gone = self.writer.is_none();
        f.debug_struct("Output").field("fd", &self.fd).field("gone", &gone).finish()
    }
}

impl OutputStream {
    pub fn stdout() -> Self {
        OutputStream::of(rustix::stdio::stdout())
    }

    pub fn stderr() -> Self {
        OutputStream::of(rustix::stdio::stderr())
    }

    fn of(fd: BorrowedFd<'static>) -> Self {
        OutputStream { writer: Some(Box::new(Unbuffered(fd))), fd: Some(fd), failure: None }
    }

    pub fn new(writer: impl Write + 'static) -> Self {
        OutputStream { writer: Some(Box::new(writer)), fd: None, failure: None }
    }

    pub fn null() -> Self {
        OutputStream { writer: None, fd: None, failure: None }
    }

    /// Returns whether a write may block. Files and `/dev/null` do not.
    pub(super) fn can_block(&self) -> bool {
        let Some(fd) = self.fd else { return false };
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => false,
            Ok(FileType::CharacterDevice) => rustix::termios::isatty(fd),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.fd.is_some_and(rustix::termios::isatty)
    }

    pub fn width(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(self.fd?).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }

    pub fn is_closed(&self) -> bool {
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

    /// Why a write failed (once), except for a closed reader.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    pub(super) fn unbuffered(&self) -> Option<Unbuffered> {
        self.fd.map(Unbuffered)
    }

    pub(super) fn is_same_terminal(&self, other: &OutputStream) -> bool {
        let device = |output: &OutputStream| {
            let fd = output.fd.filter(|fd| rustix::termios::isatty(fd))?;
            Some(rustix::fs::fstat(fd).ok()?.st_rdev)
        };
        device(self).is_some_and(|own| device(other) == Some(own))
    }
}

/// Writes directly: std's handle would split the text into lines again.
pub(super) struct Unbuffered(BorrowedFd<'static>);

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                Err(Errno::INTR) => {}
                // Another program has made the shared terminal or pipe non-blocking.
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

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Collects writes, so that a test sees what went where and in how many writes.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Sink {
        pub(crate) writes: Rc<RefCell<Vec<String>>>,
        pub(crate) closed: Rc<RefCell<bool>>,
    }

    impl Sink {
        pub(crate) fn output(&self) -> OutputStream {
            OutputStream::new(self.clone())
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
}
