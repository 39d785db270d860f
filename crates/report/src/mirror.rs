//! The window of a worker whose agent has a screen of its own: that screen, as it is, and between two
//! agents what is said of the loop.

use rustix::termios::{OptionalActions, Termios};

use super::Reporter;
use super::output::Output;
use super::width;
use crate::worker_lines::Follower;
use ralph_events::event::{Event, Purpose, Stamp, Stream};

/// Has a terminal forget whatever an agent told it that it did not take back: another screen, the
/// mouse, pasting, a hidden cursor, colours, margins.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\
                       \x1b[?1l\x1b>\x1b[<u\x1b[r\x1b[?25h\x1b[0m\x1b[999;1H\r\n";

/// The longest line that is said.
const MAX_LINE: usize = 2_000;

#[derive(Debug)]
pub struct Mirror {
    follower: Follower,
    output: Output,
    prepared: Vec<u8>,
    /// How the terminal was before an agent had it.
    before: Option<Termios>,
}

impl Mirror {
    pub fn new(follower: Follower) -> Self {
        Mirror { follower, output: Output::stdout(), prepared: Vec::new(), before: None }
    }

    fn say(&mut self, line: &str) {
        width::one_line(line, MAX_LINE, "…", &mut self.prepared);
        self.prepared.extend_from_slice(b"\r\n");
    }

    /// From now on keys go to the agent as they are: Ctrl+C, too.
    fn hand_over(&mut self) {
        let terminal = rustix::stdio::stdin();
        if self.before.is_none()
            && let Ok(before) = rustix::termios::tcgetattr(terminal)
        {
            let mut raw = before.clone();
            raw.make_raw();
            // A terminal that cannot be changed shows every key twice, and does no other harm.
            let _ = rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &raw);
            self.before = Some(before);
        }
    }

    fn take_back(&mut self) {
        if let Some(before) = self.before.take() {
            let terminal = rustix::stdio::stdin();
            let _ = rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &before);
            self.prepared.extend_from_slice(RESET);
        }
    }
}

impl Reporter for Mirror {
    fn event(&mut self, at: Stamp, event: &Event<'_>) {
        match event {
            Event::AgentStarted { purpose: Purpose::Work, .. } => self.hand_over(),
            Event::AgentEnded { .. } | Event::RunEnded { .. } => self.take_back(),
            Event::Warning { message } if self.before.is_none() => {
                self.say(&format!("ralph: warning: {message}"));
            }
            _ => {}
        }
        for line in self.follower.take(at, event).said {
            // What is said while an agent has the screen would be in the middle of that.
            if self.before.is_none() {
                self.say(&line);
            }
        }
    }

    fn raw(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Stdout && self.before.is_some() {
            self.prepared.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        self.output.write(&self.prepared);
        self.prepared.clear();
    }

    fn finish(&mut self) {
        self.take_back();
        self.flush();
    }
}
