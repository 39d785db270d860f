//! Whether the terminal can be used, its background colour, and reading from it.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::stdin;
use rustix::time::Timespec;

use ralph_events::error::Error;

use crate::input::{Input, InputParser};
use crate::terminal::AlternateScreen;
use crate::theme::Capabilities;

/// Terminals answer within a few milliseconds, or not at all.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) fn check_terminal() -> Result<Capabilities, Error> {
    let var = |name: &str| std::env::var(name).ok();
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::usage("ralph ui needs a terminal")
            .hint("for programs: ralph ls --json, or ralph status --json"));
    }
    match var("TERM").filter(|term| !term.is_empty()) {
        Some(term) if term != "dumb" => Ok(Capabilities::detect(var)),
        term => {
            let term = term.unwrap_or_default();
            Err(Error::usage(format!("ralph ui cannot draw on this terminal (TERM={term})"))
                .hint("without a screen: ralph ls --watch"))
        }
    }
}

/// Returns the background colour, and keys that were pressed meanwhile.
pub(super) fn ask_background(input: &mut InputParser) -> io::Result<(Option<[u8; 3]>, Vec<Input>)> {
    AlternateScreen::query_background()?;
    let deadline = Instant::now() + BACKGROUND_TIMEOUT;
    let (mut background, mut keys) = (None, Vec::new());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_for_input(left)? {
            return Ok((background, keys));
        }
        for input in read_inputs(input)?.unwrap_or_default() {
            match input {
                Input::Background(color) => background = Some(color),
                // Every terminal answers this, after the colour.
                Input::DeviceAttributes => return Ok((background, keys)),
                input => keys.push(input),
            }
        }
    }
}

pub(super) fn wait_for_input(timeout: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    Ok(rustix::io::retry_on_intr(|| poll(&mut polled, timeout.as_ref()))? > 0)
}

/// Reads once. `None` at the end of input.
pub(super) fn read_inputs(parser: &mut InputParser) -> io::Result<Option<Vec<Input>>> {
    let mut bytes = [0; 16 * 1024];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut bytes))?;
    Ok((count > 0).then(|| parser.push(&bytes[..count])))
}
