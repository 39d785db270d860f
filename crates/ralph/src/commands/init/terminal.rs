//! Line-by-line prompts on a terminal.

use std::io::{self, Read as _, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::ask::{Abort, Prompter};

/// Leaves line editing to the kernel. Signals arrive by a pipe that is polled with the input:
/// `Ctrl+C` interrupts at once.
pub(super) struct TerminalPrompter<'fd, O> {
    input: BorrowedFd<'fd>,
    output: O,
    signals: UnixStream,
    /// Input read beyond the last line.
    pending: Vec<u8>,
}

impl<'fd, O: Write> TerminalPrompter<'fd, O> {
    pub(super) fn new(input: BorrowedFd<'fd>, output: O) -> io::Result<Self> {
        let (signals, sender) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Never unregistered: the process ends with the dialog.
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(TerminalPrompter { input, output, signals, pending: Vec::new() })
    }

    fn read_line(&mut self) -> Result<Vec<u8>, Abort> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.pending) {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                return Ok(line);
            }
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.input, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Abort::Failed(errno.into())),
            }
            let (signalled, readable) =
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if signalled {
                let _ = self.signals.read(&mut [0]);
                return Err(Abort::Interrupted);
            }
            if !readable {
                continue;
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(self.input, &mut buffer) {
                // A hung-up terminal returns EIO.
                Ok(0) | Err(Errno::IO) => return Err(Abort::EndOfInput),
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(Abort::Failed(errno.into())),
            }
        }
    }
}

impl<O: Write> Prompter for TerminalPrompter<'_, O> {
    fn prompt_line(&mut self, prompt: &str) -> Result<String, Abort> {
        loop {
            self.print(prompt)?;
            match String::from_utf8(self.read_line()?) {
                Ok(line) => return Ok(line),
                Err(_) => self.print("That was not valid UTF-8, please type it again.\n")?,
            }
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Abort> {
        let written = self.output.write_all(text.as_bytes());
        written.and_then(|()| self.output.flush()).map_err(Abort::Failed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn init_terminal_reads_lines_across_split_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut screen = Vec::new();
        let mut terminal = TerminalPrompter::new(ours.as_fd(), &mut screen).unwrap();
        theirs.write_all(b"one\ntw\xc3").unwrap();
        assert_eq!(terminal.prompt_line("a: ").unwrap(), "one");
        theirs.write_all(b"\xa9o\n\xff\nthree\nrest").unwrap();
        assert_eq!(terminal.prompt_line("b: ").unwrap(), "twéo");
        assert_eq!(terminal.prompt_line("c: ").unwrap(), "three");
        drop(theirs);
        assert!(matches!(terminal.prompt_line("d: "), Err(Abort::EndOfInput)));
        drop(terminal);
        assert_eq!(
            String::from_utf8(screen).unwrap(),
            "a: b: c: That was not valid UTF-8, please type it again.\nc: d: "
        );
    }

    #[test]
    fn init_terminal_notices_signal_while_waiting() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut terminal = TerminalPrompter::new(ours.as_fd(), io::sink()).unwrap();
        // A real signal would reach every test of this process.
        let (signals, mut sender) = UnixStream::pair().unwrap();
        terminal.signals = signals;
        sender.write_all(b"x").unwrap();
        assert!(matches!(terminal.prompt_line("a: "), Err(Abort::Interrupted)));
        drop(theirs);
    }
}
