//! An agent that has a screen of its own: when it is ready for the prompt, whether anything changes on
//! the screen, and whether what completes the run stands there.
//!
//! Nothing here looks at a clock: what is to be done when is asked for, and told.

use std::num::NonZeroU16;

use fancy_regex::Regex;

use crate::core::on_screen::{last_lines, said};
use crate::process::Size;

/// How often a screen is looked at that something was written to.
const LOOK_MS: u64 = 2_000;
/// How many lines of it count.
const LINES: usize = 20;
/// An agent that has shown nothing new for so long is ready for its prompt.
const SETTLED_MS: u64 = 1_000;
/// One that has shown nothing at all, too.
const BLANK_MS: u64 = 3_000;
/// And one that never stands still.
const RESTLESS_MS: u64 = 15_000;
/// Between the prompt, once it is there, and Enter: what follows at once would be taken for a part of it.
const ENTER_MS: u64 = 500;
/// Enter is pressed even if the prompt is not seen to arrive.
const UNSEEN_MS: u64 = 5_000;
/// Whether Enter was heeded is looked at after this long.
const HEEDED_MS: u64 = 3_000;
/// So often it is pressed again.
const MORE_ENTERS: u32 = 4;
/// A screen on which so few lines differ is still the one that Enter was pressed on.
const SAME_LINES: usize = 2;
/// How much of what left the screen at its top is kept.
const SCROLLBACK: usize = 1_000;

/// What is to be done about a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Type(Vec<u8>),
    /// Something has changed since the last look.
    Changed,
    /// So it has, and what completes the run stands there.
    Done,
}

/// How far the prompt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typing {
    Waits,
    /// It was typed at this moment.
    Typed(u64),
    /// Enter was pressed, and whether that was heeded is to be looked at.
    Entered {
        look_at: u64,
        more: u32,
    },
    Sent,
}

pub(super) struct Screen {
    parser: vt100::Parser,
    prompt: String,
    pattern: Option<Regex>,
    typing: Typing,
    started_ms: u64,
    last_output_ms: Option<u64>,
    /// When to look, if there is anything new to look at.
    look_at: Option<u64>,
    seen: String,
    found: Option<String>,
    /// All that was there when Enter was pressed.
    entered_on: String,
    /// All that was there at the last look, if it was on the other screen of the terminal, which is gone
    /// when its program is.
    other_screen: Option<String>,
}

impl Screen {
    pub(super) fn new(size: Size, prompt: &str, pattern: Option<Regex>, now_ms: u64) -> Screen {
        let (rows, columns) = dimensions(size);
        Screen {
            parser: vt100::Parser::new(rows, columns, SCROLLBACK),
            prompt: prompt.to_owned(),
            pattern,
            typing: Typing::Waits,
            started_ms: now_ms,
            last_output_ms: None,
            look_at: None,
            seen: String::new(),
            found: None,
            entered_on: String::new(),
            other_screen: None,
        }
    }

    pub(super) fn resize(&mut self, size: Size) {
        let (rows, columns) = dimensions(size);
        self.parser.set_size(rows, columns);
    }

    /// The agent wrote to it.
    pub(super) fn output(&mut self, bytes: &[u8], now_ms: u64) {
        self.parser.process(bytes);
        self.last_output_ms = Some(now_ms);
        if self.found.is_some() {
            // It is given a grace in which nothing may change: whether it did is seen at once.
            self.look_at = Some(now_ms);
        } else {
            self.look_at.get_or_insert(now_ms.saturating_add(LOOK_MS));
        }
    }

    /// When there is something to be done, if nothing happens until then.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let typing = match self.typing {
            Typing::Waits => Some(self.ready_at()),
            Typing::Typed(at) => Some(self.enter_at(at)),
            Typing::Entered { look_at, .. } => Some(look_at),
            Typing::Sent => None,
        };
        typing.into_iter().chain(self.look_at).min()
    }

    fn ready_at(&self) -> u64 {
        match self.last_output_ms {
            None => self.started_ms.saturating_add(BLANK_MS),
            Some(last) => {
                let latest = self.started_ms.saturating_add(RESTLESS_MS);
                last.saturating_add(SETTLED_MS).min(latest)
            }
        }
    }

    /// When to press Enter for what was typed at `typed`: once it is there, and the screen rests.
    fn enter_at(&self, typed: u64) -> u64 {
        let latest = typed.saturating_add(UNSEEN_MS);
        match self.last_output_ms {
            Some(last) if last >= typed => last.saturating_add(ENTER_MS).min(latest),
            _ => latest,
        }
    }

    /// Presses Enter. Where pasting is told from typing, a program may take it for the end of what was
    /// pasted, so that it is looked at whether anything came of it.
    fn enter(&mut self, now_ms: u64, more: u32) -> Step {
        let screen = self.parser.screen();
        self.typing = if screen.bracketed_paste() && more > 0 {
            self.entered_on = screen.contents();
            Typing::Entered { look_at: now_ms.saturating_add(HEEDED_MS), more: more - 1 }
        } else {
            Typing::Sent
        };
        Step::Type(b"\r".to_vec())
    }

    /// What is to be done now.
    pub(super) fn step(&mut self, now_ms: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        match self.typing {
            Typing::Waits if now_ms >= self.ready_at() => {
                steps.push(Step::Type(self.paste()));
                self.typing = Typing::Typed(now_ms);
            }
            Typing::Typed(at) if now_ms >= self.enter_at(at) => {
                steps.push(self.enter(now_ms, MORE_ENTERS));
            }
            Typing::Entered { look_at, more } if now_ms >= look_at => {
                let now = self.parser.screen().contents();
                if differing_lines(&self.entered_on, &now) <= SAME_LINES {
                    steps.push(self.enter(now_ms, more));
                } else {
                    self.typing = Typing::Sent;
                }
            }
            _ => {}
        }
        if self.look_at.is_some_and(|at| now_ms >= at) {
            self.look_at = None;
            steps.extend(self.look());
        }
        steps
    }

    /// The prompt as it is typed. Control characters in it would be keys.
    fn paste(&self) -> Vec<u8> {
        let text: String = self
            .prompt
            .trim_end()
            .chars()
            .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
            .collect();
        if self.parser.screen().bracketed_paste() {
            format!("\x1b[200~{text}\x1b[201~").into_bytes()
        } else {
            text.into_bytes()
        }
    }

    fn look(&mut self) -> Option<Step> {
        let text = self.parser.screen().contents();
        let lines = last_lines(&text, LINES);
        if lines == self.seen {
            return None;
        }
        self.seen = lines;
        self.search(&text);
        self.other_screen = self.parser.screen().alternate_screen().then_some(text);
        Some(if self.found.is_some() { Step::Done } else { Step::Changed })
    }

    /// Before it has the prompt, nothing that is there is an answer.
    fn search(&mut self, text: &str) {
        let has_prompt = matches!(self.typing, Typing::Entered { .. } | Typing::Sent);
        if let (Some(pattern), true, None) = (&self.pattern, has_prompt, &self.found) {
            self.found = said(pattern, text, &self.prompt).map(str::to_owned);
        }
    }

    /// The agent is gone. Gives what it showed last, and what completes the run, if that was there.
    pub(super) fn end(mut self) -> (String, Option<String>) {
        if let Some(text) = self.other_screen.take() {
            self.search(&text);
            return (text.trim_end().to_owned(), self.found);
        }
        self.parser.screen_mut().set_scrollback(SCROLLBACK);
        let mut above = self.parser.screen().scrollback();
        let mut text = String::new();
        let rows = usize::from(self.parser.screen().size().0.get());
        // A window of it at a time: that is how it can be read.
        loop {
            self.parser.screen_mut().set_scrollback(above);
            let part = self.parser.screen().contents();
            if above > rows || above == 0 {
                text.push_str(&part);
            } else {
                let lines: Vec<&str> = part.lines().take(above).collect();
                text.push_str(&lines.join("\n"));
            }
            text.push('\n');
            if above == 0 {
                break;
            }
            above = above.saturating_sub(rows);
        }
        self.search(&text);
        let shown = text.trim_end().to_owned();
        (shown, self.found)
    }

    pub(super) fn shows_anything(&self) -> bool {
        self.last_output_ms.is_some()
    }
}

/// How many lines there are on one screen and not on the other.
fn differing_lines(one: &str, other: &str) -> usize {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (one, mut other) = (lines(one), lines(other));
    let mut differing = 0;
    for line in one {
        match other.iter().position(|there| *there == line) {
            Some(at) => {
                other.swap_remove(at);
            }
            None => differing += 1,
        }
    }
    differing + other.len()
}

fn dimensions(size: Size) -> (NonZeroU16, NonZeroU16) {
    let or = |told: u16, usual: u16| {
        NonZeroU16::new(told).or(NonZeroU16::new(usual)).unwrap_or(NonZeroU16::MIN)
    };
    (or(size.rows, Size::USUAL.rows), or(size.columns, Size::USUAL.columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(prompt: &str, pattern: &str) -> Screen {
        let size = Size { rows: 10, columns: 40 };
        Screen::new(size, prompt, Some(Regex::new(pattern).unwrap()), 0)
    }

    /// Does what is to be done until `ms`.
    fn until(screen: &mut Screen, ms: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(at) = screen.next_ms().filter(|at| *at <= ms) {
            steps.extend(screen.step(at));
        }
        steps
    }

    #[test]
    fn the_prompt_is_typed_once_the_screen_has_settled() {
        let mut it = screen("Do it.\x1b[201~\n", "done");
        it.output(b"\x1b[?2004hloading", 100);
        it.output(b".", 1_000);
        assert_eq!(until(&mut it, 1_999), []);
        assert_eq!(until(&mut it, 2_000), [Step::Type(b"\x1b[200~Do it.[201~\x1b[201~".to_vec())]);
        assert_eq!(until(&mut it, 2_400), [Step::Changed]);
        // It takes its time to show what was typed.
        it.output(b"\r\n> Do it.", 4_000);
        it.output(b" ", 4_300);
        assert_eq!(until(&mut it, 4_799), []);
        let enter = || Step::Type(b"\r".to_vec());
        assert_eq!(until(&mut it, 4_800), [enter()]);
        // It took that for a part of what was typed, and only some hint has changed.
        it.output(b"\x1b[9;1Hctrl+g", 5_000);
        assert_eq!(until(&mut it, 7_800), [Step::Changed, enter()]);
        it.output(b"\x1b[2J\x1b[HDo it.\r\n\r\nThinking\r\n> ", 8_000);
        assert_eq!(until(&mut it, 30_000), [Step::Changed]);
        assert_eq!(it.next_ms(), None, "a silent screen needs no looks");
    }

    #[test]
    fn what_was_on_the_other_screen_is_not_lost_with_it() {
        let mut it = screen("x", "complete");
        it.typing = Typing::Sent;
        it.output(b"\x1b[?1049hAll is complete", 0);
        assert_eq!(until(&mut it, 2_000), [Step::Done]);
        it.output(b"\x1b[?1049lBye", 2_100);
        let (shown, found) = it.end();
        assert_eq!((shown.as_str(), found.as_deref()), ("All is complete", Some("complete")));
    }

    #[test]
    fn one_that_shows_nothing_and_one_that_never_rests_get_it_too() {
        let mut blank = screen("Do it.", "done");
        assert_eq!(until(&mut blank, 2_999), []);
        assert_eq!(until(&mut blank, 3_000), [Step::Type(b"Do it.".to_vec())]);
        let mut restless = screen("Do it.", "done");
        let mut typed = None;
        for ms in (100..20_000).step_by(100) {
            restless.output(format!("\r{ms}").as_bytes(), ms);
            if restless.step(ms).contains(&Step::Type(b"Do it.".to_vec())) {
                typed.get_or_insert(ms);
            }
        }
        assert_eq!(typed, Some(15_000));
    }

    #[test]
    fn only_what_changes_on_the_screen_is_activity() {
        let mut it = screen("x", "done");
        it.typing = Typing::Sent;
        it.output(b"hello", 0);
        assert_eq!(until(&mut it, 2_000), [Step::Changed]);
        // The same again, in colour, and a cursor that moves about.
        it.output(b"\r\x1b[31mhello\x1b[0m\x1b[5;5H", 3_000);
        assert_eq!(until(&mut it, 9_000), []);
        it.output(b"!", 9_000);
        assert_eq!(until(&mut it, 11_000), [Step::Changed]);
    }

    #[test]
    fn what_completes_the_run_is_found_and_no_echo_is() {
        let mut it = screen("Say done when done.", "done");
        it.output(b"> ", 0);
        until(&mut it, 1_500);
        it.output(b"Say done when done.\r\n", 1_600);
        assert_eq!(until(&mut it, 4_000), [Step::Changed, Step::Type(b"\r".to_vec())]);
        it.output(b"* All is done now\r\n", 4_000);
        assert_eq!(until(&mut it, 6_000), [Step::Done]);
        // Every change begins its grace again, and none waits for the next look to be seen.
        it.output(b"bye\r\n", 6_900);
        assert_eq!(until(&mut it, 6_900), [Step::Done]);
        it.output(b"\x1b[5;5H", 7_000);
        assert_eq!(until(&mut it, 9_000), [], "nothing has changed");
        assert_eq!(it.end().1.as_deref(), Some("done"));
    }

    #[test]
    fn what_has_left_the_screen_is_still_found_at_the_end() {
        let mut it = screen("x", "tasks complete");
        it.typing = Typing::Sent;
        it.output(b"All tasks complete\r\n", 0);
        for line in 0..50 {
            it.output(format!("line {line}\r\n").as_bytes(), 1);
        }
        let (shown, found) = it.end();
        assert_eq!(found.as_deref(), Some("tasks complete"));
        assert_eq!(shown.lines().count(), 51, "{shown}");
        assert!(shown.ends_with("line 48\nline 49"));
    }
}
