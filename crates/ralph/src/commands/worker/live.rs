//! Output that refreshes (`--watch`).

use std::io::IsTerminal as _;

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use ralph_events::error::Error;
use ralph_report::width;

const REFRESH_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Prints a text; with `watch`, again every second: in place on a terminal, elsewhere only if it
/// changed.
pub(super) fn print_live(
    watch: bool,
    render: impl Fn() -> Result<String, Error>,
) -> Result<u8, Error> {
    if !watch {
        return crate::cli::print(&render()?);
    }
    let stdout = std::io::stdout();
    let mut previous = String::new();
    loop {
        let text = render()?;
        let shown = if stdout.is_terminal() {
            let size = rustix::termios::tcgetwinsize(&stdout).ok();
            let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
            let clear = if previous.is_empty() { "\x1b[2J" } else { "" };
            // Clear line by line, to avoid flicker.
            let text =
                fit_to_terminal(&text, size.filter(|(columns, rows)| *columns > 0 && *rows > 0));
            let lines: String = text.lines().map(|line| format!("\x1b[K{line}\n")).collect();
            format!("{clear}\x1b[H{lines}\x1b[J")
        } else if text == previous {
            String::new()
        } else {
            format!("{text}\n")
        };
        if !crate::cli::write_part(&shown)? || !wait_for_refresh(&stdout) {
            return Ok(0);
        }
        previous = text;
    }
}

/// Returns false if the reader is gone.
fn wait_for_refresh(stdout: &std::io::Stdout) -> bool {
    // poll reports hangups even without requested events.
    let mut polled = [PollFd::new(stdout, PollFlags::empty())];
    !matches!(rustix::event::poll(&mut polled, Some(&REFRESH_INTERVAL)), Ok(1..))
}

/// Lines that wrap or scroll would break the update in place.
fn fit_to_terminal(text: &str, size: Option<(usize, usize)>) -> String {
    let Some((columns, rows)) = size else { return text.to_owned() };
    let lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1).max(1);
    let shown = if lines.len() <= room { lines.len() } else { room - 1 };
    let mut fitting = String::new();
    for line in lines.iter().take(shown) {
        let head = width::prefix_within(line, columns);
        if head.len() == line.len() {
            fitting.push_str(line);
        } else {
            fitting.push_str(width::prefix_within(line, columns - 1));
            fitting.push('…');
        }
        fitting.push('\n');
    }
    if lines.len() > shown {
        let more = format!("… and {} more lines", lines.len() - shown);
        fitting.push_str(width::prefix_within(&more, columns));
        fitting.push('\n');
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_list_is_cut_to_screen_size_with_note() {
        let text = "NAME  STATUS\none   running\ntwo   paused\n";
        assert_eq!(fit_to_terminal(text, None), text);
        assert_eq!(fit_to_terminal(text, Some((13, 4))), text, "a row for the cursor");
        assert_eq!(
            fit_to_terminal(text, Some((12, 4))),
            "NAME  STATUS\none   runni…\ntwo   paused\n"
        );
        assert_eq!(fit_to_terminal(text, Some((80, 3))), "NAME  STATUS\n… and 2 more lines\n");
        assert_eq!(fit_to_terminal(text, Some((4, 1))), "… an\n");
        assert_eq!(fit_to_terminal("漢字漢字\n", Some((5, 9))), "漢字…\n");
        for size in [(1, 1), (1, 2), (2, 2)] {
            let fitted = fit_to_terminal("漢字漢字\nab\n\n", Some(size));
            assert!(fitted.lines().all(|line| width::display_width(line) <= size.0), "{size:?}");
        }
    }
}
