//! A worker's window for an agent with a screen: the screen itself, and messages of the loop between two agents.

use rustix::termios::{OptionalActions, Termios};

use super::output::OutputStream;
use super::width;
use super::{LiveOutput, Recorded, Reporter};
use crate::warning_text::warning_text;
use crate::worker_lines::WorkerTracker;
use ralph_events::event::{Event, Purpose, Stamp, Stream};

/// Undoes an agent's terminal settings: alternate screen, mouse, paste mode, hidden cursor, colours, margins.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\
                       \x1b[?1l\x1b>\x1b[<u\x1b[r\x1b[?25h\x1b[0m\x1b[999;1H\r\n";

const MAX_LINE: usize = 2_000;

#[derive(Debug)]
pub struct PtyMirror {
    follower: WorkerTracker,
    output: OutputStream,
    prepared: Vec<u8>,
    /// Terminal settings before the agent.
    before: Option<Termios>,
}

impl PtyMirror {
    pub fn new(follower: WorkerTracker) -> Self {
        PtyMirror { follower, output: OutputStream::stdout(), prepared: Vec::new(), before: None }
    }

    fn write_line(&mut self, line: &str) {
        width::push_one_line(line, MAX_LINE, "…", &mut self.prepared);
        self.prepared.extend_from_slice(b"\r\n");
    }

    /// Passes every key to the agent, Ctrl+C too.
    fn enter_raw_mode(&mut self) {
        let terminal = rustix::stdio::stdin();
        if self.before.is_none()
            && let Ok(before) = rustix::termios::tcgetattr(terminal)
        {
            let mut raw = before.clone();
            raw.make_raw();
            // Otherwise keys are echoed twice, which does no harm.
            let _ = rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &raw);
            self.before = Some(before);
        }
    }

    fn restore_terminal(&mut self) {
        if let Some(before) = self.before.take() {
            let terminal = rustix::stdio::stdin();
            let _ = rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &before);
            self.prepared.extend_from_slice(RESET);
        }
    }
}

impl Reporter for PtyMirror {
    fn event(&mut self, Recorded { at, event, run, .. }: Recorded<'_>) {
        match event {
            Event::AgentStarted { purpose: Purpose::Work, .. } => self.enter_raw_mode(),
            Event::AgentEnded { .. } | Event::RunEnded { .. } => self.restore_terminal(),
            Event::Warning { .. } | Event::Recovered { .. } | Event::Planted { .. }
                if self.before.is_none() =>
            {
                let message = warning_text(event).unwrap_or_default();
                self.write_line(&format!("ralph: warning: {message}"));
            }
            Event::Note { message, important: true } if self.before.is_none() => {
                self.write_line(&format!("ralph: note: {message}"));
            }
            _ => {}
        }
        for line in self.follower.apply(at, event, run).messages {
            // What is said while an agent has the screen would be in the middle of that.
            if self.before.is_none() {
                self.write_line(&line);
            }
        }
    }

    fn output(&mut self, _at: Stamp, output: LiveOutput<'_>) {
        if let LiveOutput::Raw(Stream::Stdout, bytes) = output
            && self.before.is_some()
        {
            self.prepared.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        self.output.write(&self.prepared);
        self.prepared.clear();
    }

    fn finish(&mut self) {
        self.restore_terminal();
        self.flush();
    }
}
