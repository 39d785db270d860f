//! The terminal: raw mode, the alternate screen, and a ratatui backend that writes one frame at once.
//!
//! ratatui's own backends bring an event loop each. Here one `poll(2)` waits for everything, so the
//! backend is only the escape sequences.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{self, OptionalActions, Termios};

use ralph_process::TerminalGuard;

/// Alternate screen, no cursor, bracketed paste, clicks and the wheel. The title stays as it is.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?2004h\x1b[?1000h\x1b[?1006h";
const LEAVE: &str = "\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l";
/// Asks for the background colour, then for something that every terminal answers.
const QUERY_BACKGROUND: &str = "\x1b]11;?\x1b\\\x1b[c";

/// What to restore. Global, because a panic has to find it.
static SAVED: Mutex<Option<Saved>> = Mutex::new(None);

struct Saved {
    settings: Termios,
    /// Restores the rest after `kill -9`.
    guard: Option<TerminalGuard>,
}

/// Restores the terminal when dropped.
#[derive(Debug)]
pub struct AlternateScreen(());

impl AlternateScreen {
    /// # Errors
    /// Standard input or output is no terminal.
    pub fn enter() -> io::Result<AlternateScreen> {
        let settings = termios::tcgetattr(stdin())?;
        let mut raw = settings.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        // A system without a shell has to do without.
        let guard = TerminalGuard::start(LEAVE).ok();
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Saved { settings, guard });
        let screen = AlternateScreen(());
        write_all(ENTER)?;
        Ok(screen)
    }

    pub fn query_background() -> io::Result<()> {
        write_all(QUERY_BACKGROUND)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Makes the terminal usable again. Does nothing the second time.
pub fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Saved { settings, guard }) = saved {
        let _ = write_all(LEAVE);
        let _ = termios::tcsetattr(stdin(), OptionalActions::Drain, &settings);
        if let Some(guard) = guard {
            guard.release();
        }
    }
}

/// Restores the terminal before the message of a panic is printed.
pub fn restore_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        print(panic);
    }));
}

/// Asks the terminal to put `text` on the clipboard (OSC 52).
pub fn copy_to_clipboard(text: &str) -> io::Result<()> {
    write_all(&format!("\x1b]52;c;{}\x07", base64(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, at| {
            bits << 8 | u32::from(group.get(at).copied().unwrap_or_default())
        });
        for at in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or_default();
            out.push(if at <= group.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    out
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Collects a frame and writes it with one call, as a synchronized update.
#[derive(Debug, Default)]
pub struct AnsiBackend {
    frame: String,
}

impl AnsiBackend {
    fn move_to(&mut self, x: u16, y: u16) {
        let _ = write!(self.frame, "\x1b[{};{}H", y + 1, x + 1);
    }

    fn set_style(&mut self, cell: &Cell) {
        self.frame.push_str("\x1b[0");
        let attributes = [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::ITALIC, ";3"),
            (Modifier::UNDERLINED, ";4"),
            (Modifier::REVERSED, ";7"),
        ];
        for (modifier, code) in attributes {
            if cell.modifier.contains(modifier) {
                self.frame.push_str(code);
            }
        }
        self.set_color(cell.fg, 30);
        self.set_color(cell.bg, 40);
        self.frame.push('m');
    }

    fn set_color(&mut self, color: Color, base: u16) {
        let _ = match color {
            Color::Rgb(r, g, b) => write!(self.frame, ";{};2;{r};{g};{b}", base + 8),
            Color::Red => write!(self.frame, ";{}", base + 1),
            Color::Green => write!(self.frame, ";{}", base + 2),
            _ => Ok(()),
        };
    }
}

impl Backend for AnsiBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.move_to(x, y);
            }
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if style != Some(wanted) {
                self.set_style(cell);
                style = Some(wanted);
            }
            self.frame.push_str(cell.symbol());
            // Only plain characters advance by one column for sure.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        self.frame.push_str("\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.frame.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.frame.push_str("\x1b[?25h");
        Ok(())
    }

    /// Never asked for: the whole screen is drawn.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.move_to(x, y);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.frame.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let size = termios::tcgetwinsize(stdout())?;
        Ok(Size::new(size.ws_col, size.ws_row))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let frame = std::mem::take(&mut self.frame);
        write_all(&format!("\x1b[?2026h{frame}\x1b[?2026l"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipboard_text_is_base64() {
        for (text, encoded) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(base64(b"20261116-2050-reset"), "MjAyNjExMTYtMjA1MC1yZXNldA==");
    }

    #[test]
    fn neighbours_share_style_and_move() {
        let mut backend = AnsiBackend::default();
        let mut red = Cell::new("a");
        red.set_fg(Color::Red).modifier = Modifier::BOLD;
        let wide = Cell::new("日");
        backend
            .draw([(0, 0, &red), (1, 0, &red), (2, 0, &wide), (4, 0, &red)].into_iter())
            .unwrap();
        assert_eq!(backend.frame, "\x1b[1;1H\x1b[0;1;31maa\x1b[0m日\x1b[1;5H\x1b[0;1;31ma\x1b[0m");
    }
}
