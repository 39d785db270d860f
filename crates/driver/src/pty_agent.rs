//! An agent with a screen of its own: when it is ready for the prompt, whether the screen changes, and whether it
//! shows the completion signal.
//!
//! Nothing here reads a clock: callers ask for the next check and pass the time.

use std::num::NonZeroU16;

use fancy_regex::Regex;

use crate::screen_text::{
    count_prompt, find_completion, find_dialog, is_any_key_notice, last_lines,
};
use ralph_process::TerminalSize;

/// Interval between searches of a changing screen.
const SEARCH_INTERVAL_MS: u64 = 2_000;
/// Lines at the bottom that are searched.
const SEARCHED_LINES: usize = 20;
/// An agent that reads keys is ready after this long without a change.
const SETTLED_MS: u64 = 1_000;
/// An agent that does not read keys may read lines, or may not be ready yet.
const LINE_READER_READY_MS: u64 = 3_000;
/// A screen that never rests gets the prompt this long after the first output.
const BUSY_SCREEN_READY_MS: u64 = 15_000;
/// Interval between checks for key mode and open dialogs.
const POLL_MS: u64 = 250;
/// Delay between prompt and Enter; an immediate Enter would count as part of the paste.
const ENTER_MS: u64 = 500;
/// A prompt that is not visible by then is typed again. Some agents take keys long before they show them.
const RETYPE_AFTER_MS: u64 = 15_000;
/// A line reader without echo has taken the prompt by then.
const LINE_READER_SENT_MS: u64 = 5_000;
const MAX_TYPING_TRIES: u32 = 3;
/// Delay before checking whether Enter had an effect.
const ENTER_CHECK_MS: u64 = 3_000;
const MAX_ENTER_RETRIES: u32 = 4;
/// With at most this many changed lines, Enter had no effect.
const MAX_CHANGED_LINES: usize = 2;
/// Remembered screens, to tell blinking from work.
const MAX_KNOWN_SCREENS: usize = 64;
/// Lines kept above the screen.
const SCROLLBACK: usize = 1_000;

/// The next step for a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScreenAction {
    Type(Vec<u8>),
    /// The screen changed since the last check.
    Changed,
    /// The screen changed and shows the completion signal.
    Done,
    /// A dialog opened, or was closed.
    Dialog(Option<String>),
    /// The prompt cannot be delivered.
    Unreachable,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PromptDelivery {
    #[default]
    Waiting,
    /// Typed at this time, while the agent did or did not read keys.
    Typed {
        at: u64,
        reads_keys: bool,
    },
    /// Enter was pressed; its effect is not checked yet.
    Entered {
        look_at: u64,
        more: u32,
    },
    Sent,
    Unreachable,
}

#[derive(Default)]
pub(super) struct PtyScreen {
    parser: vt100::Parser,
    prompt: String,
    /// The keystrokes.
    text: String,
    pattern: Option<Regex>,
    delivery: PromptDelivery,
    tries: u32,
    /// Closed notices that covered the screen.
    notices: u32,
    /// Occurrences of the prompt before it was typed.
    prompt_count_before: usize,
    /// Time of the first output.
    drawn_ms: Option<u64>,
    /// Next check for key mode.
    poll_ms: u64,
    /// The open dialog.
    dialog: Option<String>,
    last_output_ms: Option<u64>,
    /// Next search, if there is anything new.
    next_search_ms: Option<u64>,
    last_screen: String,
    /// Screens since the completion signal appeared.
    screens_since_completion: Vec<String>,
    found: Option<String>,
    screen_at_typing: String,
    screen_at_enter: String,
    /// Text of the alternate screen at the last check; it vanishes with its program.
    alternate_screen_text: Option<String>,
}

impl PtyScreen {
    pub(super) fn new(size: TerminalSize, prompt: &str, pattern: Option<Regex>) -> PtyScreen {
        let (rows, columns) = dimensions(size);
        PtyScreen {
            parser: vt100::Parser::new(rows, columns, SCROLLBACK),
            prompt: prompt.to_owned(),
            text: to_keystrokes(prompt),
            pattern,
            ..PtyScreen::default()
        }
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        let (rows, columns) = dimensions(size);
        self.parser.set_size(rows, columns);
    }

    pub(super) fn output(&mut self, bytes: &[u8], now_ms: u64) {
        self.parser.process(bytes);
        self.last_output_ms = Some(now_ms);
        if self.drawn_ms.is_none() && !self.parser.screen().contents().trim().is_empty() {
            self.drawn_ms = Some(now_ms);
        }
        if self.found.is_some() {
            // A change during the grace period is noticed at once.
            self.next_search_ms = Some(now_ms);
        } else {
            self.next_search_ms.get_or_insert(now_ms.saturating_add(SEARCH_INTERVAL_MS));
        }
    }

    pub(super) fn next_check_ms(&self) -> Option<u64> {
        let typing = match self.delivery {
            _ if self.dialog.is_some() => Some(self.poll_ms),
            PromptDelivery::Waiting => self.ready_at().map(|at| at.max(self.poll_ms)),
            PromptDelivery::Typed { at, .. } => {
                Some(self.poll_ms.min(at.saturating_add(RETYPE_AFTER_MS)))
            }
            PromptDelivery::Entered { look_at, .. } => Some(look_at),
            PromptDelivery::Sent | PromptDelivery::Unreachable => None,
        };
        typing.into_iter().chain(self.next_search_ms).min()
    }

    /// When an agent that reads keys is ready: it has drawn, and the screen rests. Earlier keys may be lost.
    fn ready_at(&self) -> Option<u64> {
        let latest = self.drawn_ms?.saturating_add(BUSY_SCREEN_READY_MS);
        Some(self.last_output_ms?.saturating_add(SETTLED_MS).min(latest))
    }

    fn is_ready(&self, now_ms: u64, reads_keys: bool) -> bool {
        let rests = self.ready_at().is_some_and(|at| now_ms >= at);
        let reads_lines = self
            .last_output_ms
            .is_some_and(|last| now_ms >= last.saturating_add(LINE_READER_READY_MS));
        rests && (reads_keys || reads_lines)
    }

    fn is_prompt_visible(&self) -> bool {
        let screen = self.parser.screen().contents();
        count_prompt(&screen, &self.text).is_none_or(|shown| shown > self.prompt_count_before)
    }

    /// Checks the progress of a typed prompt.
    fn check_typed(
        &mut self,
        now_ms: u64,
        at: u64,
        typed_for_keys: bool,
        reads_keys: bool,
    ) -> Option<ScreenAction> {
        // A program that starts to read keys discards earlier input.
        let is_lost = reads_keys && !typed_for_keys;
        let late = now_ms >= at.saturating_add(RETYPE_AFTER_MS);
        let rests =
            self.last_output_ms.is_none_or(|last| now_ms >= last.max(at).saturating_add(ENTER_MS));
        if !is_lost && self.is_prompt_visible() && (rests || late) {
            return Some(self.press_enter(now_ms, MAX_ENTER_RETRIES));
        }
        if !is_lost && !reads_keys && now_ms >= at.saturating_add(LINE_READER_SENT_MS) {
            return Some(self.press_enter(now_ms, MAX_ENTER_RETRIES));
        }
        if !is_lost && !late {
            self.poll_ms = now_ms.saturating_add(POLL_MS);
            return None;
        }
        self.retype()
    }

    fn retype(&mut self) -> Option<ScreenAction> {
        if self.tries >= MAX_TYPING_TRIES {
            self.delivery = PromptDelivery::Unreachable;
            return Some(ScreenAction::Unreachable);
        }
        self.delivery = PromptDelivery::Waiting;
        None
    }

    /// Presses Enter. A program with bracketed paste may take it for part of the paste, so its effect is checked.
    fn press_enter(&mut self, now_ms: u64, more: u32) -> ScreenAction {
        let screen = self.parser.screen();
        self.delivery = if screen.bracketed_paste() && more > 0 {
            self.screen_at_enter = screen.contents();
            PromptDelivery::Entered {
                look_at: now_ms.saturating_add(ENTER_CHECK_MS),
                more: more - 1,
            }
        } else {
            PromptDelivery::Sent
        };
        ScreenAction::Type(b"\r".to_vec())
    }

    /// Returns the next steps. `reads_keys` says whether the terminal is in raw mode.
    pub(super) fn next_actions(&mut self, now_ms: u64, reads_keys: bool) -> Vec<ScreenAction> {
        let mut steps = Vec::new();
        let is_due = self.next_check_ms().is_some_and(|at| now_ms >= at);
        if is_due {
            steps.extend(self.check_dialog());
        }
        if self.dialog.is_some() {
            if self.poll_ms <= now_ms {
                self.poll_ms = now_ms.saturating_add(POLL_MS);
                // Waiting for a person is not inactivity.
                steps.push(ScreenAction::Changed);
            }
            if let PromptDelivery::Typed { .. } = self.delivery {
                self.delivery = PromptDelivery::Waiting;
            }
        } else {
            steps.extend(self.advance_delivery(now_ms, reads_keys));
        }
        if self.next_search_ms.is_some_and(|at| now_ms >= at) {
            self.next_search_ms = None;
            steps.extend(self.check_screen());
        }
        steps
    }

    fn advance_delivery(&mut self, now_ms: u64, reads_keys: bool) -> Option<ScreenAction> {
        match self.delivery {
            PromptDelivery::Waiting
                if self.is_ready(now_ms, reads_keys)
                    && self.notices < MAX_TYPING_TRIES
                    && is_any_key_notice(&self.parser.screen().contents()) =>
            {
                self.notices += 1;
                self.poll_ms = now_ms.saturating_add(SETTLED_MS);
                Some(ScreenAction::Type(b"\x1b".to_vec()))
            }
            PromptDelivery::Waiting if self.is_ready(now_ms, reads_keys) => {
                let screen = self.parser.screen().contents();
                self.prompt_count_before = count_prompt(&screen, &self.text).unwrap_or(0);
                self.screen_at_typing = screen;
                self.tries += 1;
                self.delivery = PromptDelivery::Typed { at: now_ms, reads_keys };
                self.poll_ms = now_ms.saturating_add(POLL_MS);
                Some(ScreenAction::Type(self.paste()))
            }
            PromptDelivery::Waiting => {
                self.poll_ms = now_ms.saturating_add(POLL_MS);
                None
            }
            PromptDelivery::Typed { at, reads_keys: then } => {
                self.check_typed(now_ms, at, then, reads_keys)
            }
            PromptDelivery::Entered { look_at, more } if now_ms >= look_at => {
                let now = self.parser.screen().contents();
                if differing_lines(&self.screen_at_enter, &now) <= MAX_CHANGED_LINES {
                    return Some(self.press_enter(now_ms, more));
                }
                let is_as_before =
                    differing_lines(&self.screen_at_typing, &now) <= MAX_CHANGED_LINES;
                if is_as_before && !self.is_prompt_visible() {
                    // The prompt was dropped.
                    return self.retype();
                }
                self.delivery = PromptDelivery::Sent;
                None
            }
            PromptDelivery::Entered { .. } | PromptDelivery::Sent | PromptDelivery::Unreachable => {
                None
            }
        }
    }

    fn check_dialog(&mut self) -> Option<ScreenAction> {
        let found = find_dialog(&self.parser.screen().contents());
        if found == self.dialog {
            return None;
        }
        self.dialog.clone_from(&found);
        Some(ScreenAction::Dialog(found))
    }

    pub(super) fn is_prompt_sent(&self) -> bool {
        matches!(self.delivery, PromptDelivery::Entered { .. } | PromptDelivery::Sent)
    }

    fn paste(&self) -> Vec<u8> {
        let text = &self.text;
        if self.parser.screen().bracketed_paste() {
            format!("\x1b[200~{text}\x1b[201~").into_bytes()
        } else {
            text.clone().into_bytes()
        }
    }

    fn check_screen(&mut self) -> Option<ScreenAction> {
        let text = self.parser.screen().contents();
        let lines = last_lines(&text, SEARCHED_LINES);
        // A finished screen may blink for ever: only a new screen counts as a change.
        if lines == self.last_screen
            || self.found.is_some() && self.screens_since_completion.contains(&lines)
        {
            return None;
        }
        self.search_completion(&text);
        if self.found.is_some() && self.screens_since_completion.len() < MAX_KNOWN_SCREENS {
            self.screens_since_completion.push(lines.clone());
        }
        self.last_screen = lines;
        self.alternate_screen_text = self.parser.screen().alternate_screen().then_some(text);
        Some(if self.found.is_some() { ScreenAction::Done } else { ScreenAction::Changed })
    }

    /// Before the prompt is sent, nothing on the screen is an answer.
    fn search_completion(&mut self, text: &str) {
        let has_prompt = self.is_prompt_sent();
        if let (Some(pattern), true, None) = (&self.pattern, has_prompt, &self.found) {
            self.found = find_completion(pattern, text, &self.prompt).map(str::to_owned);
        }
    }

    /// Returns the last screen and the completion signal, after the agent has exited.
    pub(super) fn finish(mut self) -> (String, Option<String>) {
        if let Some(text) = self.alternate_screen_text.take() {
            self.search_completion(&text);
            return (text.trim_end().to_owned(), self.found);
        }
        self.parser.screen_mut().set_scrollback(SCROLLBACK);
        let mut above = self.parser.screen().scrollback();
        let mut text = String::new();
        let rows = usize::from(self.parser.screen().size().0.get());
        // Scrollback is read one window at a time.
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
        self.search_completion(&text);
        let shown = text.trim_end().to_owned();
        (shown, self.found)
    }

    pub(super) fn shows_anything(&self) -> bool {
        self.last_output_ms.is_some()
    }

    pub(super) fn undelivered_reason(&self) -> Option<String> {
        if self.is_prompt_sent() {
            return None;
        }
        Some(match (&self.dialog, self.drawn_ms, self.delivery) {
            (Some(dialog), ..) => {
                format!("the prompt was not typed: a dialog waits for you ({dialog})")
            }
            (None, None, _) => "the prompt was not typed: the agent showed nothing".to_owned(),
            (None, Some(_), PromptDelivery::Waiting) => {
                "the prompt was not typed: the agent was not ready".to_owned()
            }
            (None, Some(_), _) => {
                "the prompt was typed but did not appear on the agent's screen".to_owned()
            }
        })
    }
}

/// Removes control characters from a prompt: they would be keys.
fn to_keystrokes(prompt: &str) -> String {
    let is_text = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    prompt.trim_end().chars().filter(is_text).collect()
}

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

fn dimensions(size: TerminalSize) -> (NonZeroU16, NonZeroU16) {
    let or = |told: u16, usual: u16| {
        NonZeroU16::new(told).or(NonZeroU16::new(usual)).unwrap_or(NonZeroU16::MIN)
    };
    (or(size.rows, TerminalSize::DEFAULT.rows), or(size.columns, TerminalSize::DEFAULT.columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(prompt: &str, pattern: &str) -> PtyScreen {
        let size = TerminalSize { rows: 10, columns: 40 };
        PtyScreen::new(size, prompt, Some(Regex::new(pattern).unwrap()))
    }

    /// Takes all steps until `ms`, for an agent that reads keys.
    fn until(screen: &mut PtyScreen, ms: u64) -> Vec<ScreenAction> {
        until_with(screen, ms, true)
    }

    fn until_with(screen: &mut PtyScreen, ms: u64, reads_keys: bool) -> Vec<ScreenAction> {
        let mut steps = Vec::new();
        while let Some(at) = screen.next_check_ms().filter(|at| *at <= ms) {
            steps.extend(screen.next_actions(at, reads_keys));
        }
        steps
    }

    fn press_enter() -> ScreenAction {
        ScreenAction::Type(b"\r".to_vec())
    }

    const MENU: &[u8] = "Do you trust this folder?\r\n\u{276f} 1. Yes\r\n  2. No\r\n".as_bytes();

    #[test]
    fn prompt_is_typed_after_screen_settles() {
        let mut it = screen("Do it.\x1b[201~\n", "done");
        it.output(b"\x1b[?2004hloading", 100);
        it.output(b".", 1_000);
        assert_eq!(until(&mut it, 1_999), []);
        assert_eq!(
            until(&mut it, 2_000),
            [ScreenAction::Type(b"\x1b[200~Do it.[201~\x1b[201~".to_vec())]
        );
        assert_eq!(until(&mut it, 2_400), [ScreenAction::Changed]);
        // It takes its time to show what was typed.
        it.output(b"\r\n> Do it.[201~", 4_000);
        it.output(b" ", 4_300);
        assert_eq!(until(&mut it, 4_799), []);
        assert_eq!(until(&mut it, 4_900), [press_enter()]);
        // It took that for a part of what was typed, and only some hint has changed.
        it.output(b"\x1b[9;1Hctrl+g", 5_000);
        assert_eq!(until(&mut it, 7_900), [ScreenAction::Changed, press_enter()]);
        it.output(b"\x1b[2J\x1b[HDo it.\r\n\r\nThinking\r\n> ", 8_000);
        assert_eq!(until(&mut it, 30_000), [ScreenAction::Changed]);
        assert_eq!(it.next_check_ms(), None, "a silent screen needs no looks");
    }

    #[test]
    fn text_on_alternate_screen_is_kept() {
        let mut it = screen("x", "complete");
        it.delivery = PromptDelivery::Sent;
        it.output(b"\x1b[?1049hAll is complete", 0);
        assert_eq!(until(&mut it, 2_000), [ScreenAction::Done]);
        it.output(b"\x1b[?1049lBye", 2_100);
        let (shown, found) = it.finish();
        assert_eq!((shown.as_str(), found.as_deref()), ("All is complete", Some("complete")));
    }

    #[test]
    fn prompt_waits_for_drawn_screen_and_key_input() {
        let typed = || ScreenAction::Type(b"Do it.".to_vec());
        let mut blank = screen("Do it.", "done");
        blank.output(b"\x1b[?25l\x1b[2J", 0);
        assert_eq!(until(&mut blank, 100_000), [], "nothing is drawn");
        assert!(blank.undelivered_reason().unwrap().ends_with("the agent showed nothing"));
        // It draws, and still reads lines: what is typed now would be thrown away.
        let mut it = screen("Do it.", "done");
        it.output(b"loading", 0);
        assert_eq!(until_with(&mut it, 2_500, false), [ScreenAction::Changed]);
        assert_eq!(until(&mut it, 2_750), [typed()]);
        // One that never reads keys reads lines.
        let mut lines = screen("Do it.", "done");
        lines.output(b"> ", 0);
        assert_eq!(until_with(&mut lines, 3_000, false), [ScreenAction::Changed, typed()]);
        assert_eq!(until_with(&mut lines, 8_000, false), [press_enter()], "it does not show them");
        assert_eq!(lines.undelivered_reason(), None);
        let mut restless = screen("Do it.", "done");
        let mut typed_at = None;
        for ms in (100..20_000).step_by(100) {
            restless.output(format!("\r{ms}").as_bytes(), ms);
            if restless.next_actions(ms, true).contains(&typed()) {
                typed_at.get_or_insert(ms);
            }
        }
        assert_eq!(typed_at, Some(15_100));
    }

    #[test]
    fn missing_prompt_is_typed_again_then_given_up() {
        let typed = || ScreenAction::Type(b"Do it.".to_vec());
        let mut it = screen("Do it.", "done");
        it.output(b"Press any key", 0);
        assert_eq!(until(&mut it, 10_000), [typed(), ScreenAction::Changed]);
        // The first paste closed something, and is gone.
        it.output(b"\x1b[2J\x1b[H> ", 10_000);
        assert_eq!(until(&mut it, 16_500), [ScreenAction::Changed, typed()]);
        it.output(b"Do it.", 16_600);
        assert_eq!(until(&mut it, 18_000), [press_enter()]);
        assert_eq!(it.undelivered_reason(), None);
        let mut deaf = screen("Do it.", "done");
        deaf.output(b"x", 0);
        let steps = until(&mut deaf, 100_000);
        assert_eq!(
            steps,
            [typed(), ScreenAction::Changed, typed(), typed(), ScreenAction::Unreachable]
        );
        assert!(deaf.undelivered_reason().unwrap().contains("did not appear"));
        // What was typed before the agent read keys, and echoed by the terminal, is lost.
        let mut late = screen("Do it.", "done");
        late.output(b"> ", 0);
        assert_eq!(until_with(&mut late, 3_000, false), [ScreenAction::Changed, typed()]);
        late.output(b"Do it.", 3_001);
        let steps = until(&mut late, 4_500);
        assert_eq!(steps, [typed()]);
    }

    #[test]
    fn prompt_dropped_at_enter_is_typed_again() {
        let mut it = screen("Do it.\nNow.\nAll of it.", "done");
        let typed = ScreenAction::Type(b"\x1b[200~Do it.\nNow.\nAll of it.\x1b[201~".to_vec());
        it.output(b"\x1b[?2004hWelcome\r\n> ", 0);
        assert!(until(&mut it, 1_000).contains(&typed));
        it.output(b"Do it.\r\n  Now.\r\n  All of it.", 1_000);
        assert!(until(&mut it, 2_500).contains(&press_enter()));
        it.output(b"\x1b[2J\x1b[HWelcome\r\n> ", 2_600);
        let steps = until(&mut it, 8_000);
        assert!(steps.contains(&typed), "{steps:?}");
    }

    #[test]
    fn notice_is_closed_before_prompt_is_typed() {
        let mut it = screen("Do it.", "done");
        it.output(b"News!\r\nPress Enter to open, any other\r\nkey to close", 0);
        assert_eq!(until(&mut it, 1_500), [ScreenAction::Type(b"\x1b".to_vec())]);
        it.output(b"\x1b[2J\x1b[H> ", 1_600);
        let steps = until(&mut it, 2_600);
        assert_eq!(steps.last(), Some(&ScreenAction::Type(b"Do it.".to_vec())), "{steps:?}");
    }

    #[test]
    fn blinking_screen_counts_as_idle_after_completion() {
        let mut it = screen("x", "complete");
        it.delivery = PromptDelivery::Sent;
        it.output(b"All complete\r\n(o)", 0);
        assert_eq!(until(&mut it, 2_000), [ScreenAction::Done]);
        it.output(b"\r(-)", 3_000);
        assert_eq!(until(&mut it, 3_000), [ScreenAction::Done]);
        for ms in (4_000..20_000).step_by(500) {
            it.output(if ms % 1_000 == 0 { b"\r(o)" } else { b"\r(-)" }, ms);
            assert_eq!(until(&mut it, ms), [], "{ms}");
        }
        it.output(b" one thing more", 20_000);
        assert_eq!(until(&mut it, 20_000), [ScreenAction::Done]);
    }

    #[test]
    fn dialog_receives_no_typed_input() {
        let mut it = screen("Do it.", "done");
        it.output(MENU, 0);
        let steps = until(&mut it, 200_000);
        assert_eq!(steps[0], ScreenAction::Dialog(Some("trust this folder".to_owned())));
        assert!(
            steps[1..].iter().all(|step| *step == ScreenAction::Changed),
            "no inactivity, no keys"
        );
        assert!(it.undelivered_reason().unwrap().contains("waits for you (trust this folder)"));
        it.output(b"\x1b[2J\x1b[H> ", 200_000);
        let steps = until(&mut it, 202_000);
        assert_eq!(steps[0], ScreenAction::Dialog(None));
        assert!(steps.contains(&ScreenAction::Type(b"Do it.".to_vec())), "{steps:?}");
        // One that comes later gets no Enter either.
        it.output(b"Do it.", 202_000);
        it.output(b"\x1b[2J\x1b[H", 202_100);
        it.output(MENU, 202_100);
        let steps = until(&mut it, 260_000);
        assert!(!steps.iter().any(|step| matches!(step, ScreenAction::Type(_))), "{steps:?}");
    }

    #[test]
    fn only_visible_screen_changes_count_as_activity() {
        let mut it = screen("x", "done");
        it.delivery = PromptDelivery::Sent;
        it.output(b"hello", 0);
        assert_eq!(until(&mut it, 2_000), [ScreenAction::Changed]);
        // The same again, in colour, and a cursor that moves about.
        it.output(b"\r\x1b[31mhello\x1b[0m\x1b[5;5H", 3_000);
        assert_eq!(until(&mut it, 9_000), []);
        it.output(b"!", 9_000);
        assert_eq!(until(&mut it, 11_000), [ScreenAction::Changed]);
    }

    #[test]
    fn completion_is_found_on_screen_but_not_in_prompt_echo() {
        let mut it = screen("Say done when done.", "done");
        it.output(b"> ", 0);
        until(&mut it, 1_500);
        it.output(b"Say done when done.\r\n", 1_600);
        let steps = until(&mut it, 4_000);
        assert_eq!(steps, [ScreenAction::Changed, press_enter()]);
        it.output(b"* All is done now\r\n", 4_000);
        assert_eq!(until(&mut it, 6_000), [ScreenAction::Done]);
        // Every change begins its grace again, and none waits for the next look to be seen.
        it.output(b"bye\r\n", 6_900);
        assert_eq!(until(&mut it, 6_900), [ScreenAction::Done]);
        it.output(b"\x1b[5;5H", 7_000);
        assert_eq!(until(&mut it, 9_000), [], "nothing has changed");
        assert_eq!(it.finish().1.as_deref(), Some("done"));
    }

    #[test]
    fn completion_scrolled_off_screen_is_found_at_end() {
        let mut it = screen("x", "tasks complete");
        it.delivery = PromptDelivery::Sent;
        it.output(b"All tasks complete\r\n", 0);
        for line in 0..50 {
            it.output(format!("line {line}\r\n").as_bytes(), 1);
        }
        let (shown, found) = it.finish();
        assert_eq!(found.as_deref(), Some("tasks complete"));
        assert_eq!(shown.lines().count(), 51, "{shown}");
        assert!(shown.ends_with("line 48\nline 49"));
    }
}
