//! Removes control sequences from text.
//!
//! Agent output is data. An escape sequence in a file it read could move the cursor, set the window title or
//! write to the clipboard, so none reaches the terminal. Searches also ignore colours.

/// The position within an escape sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Ground,
    /// After a carriage return; its meaning depends on the next character.
    Return,
    Escape,
    /// `ESC [` up to its final byte.
    Sequence,
    /// `ESC ]` and its like, up to the terminator.
    Command,
    /// An `ESC` inside such a command: half of its terminator.
    CommandEscape,
}

/// Removes escape sequences, and control characters other than newline and tab. Keeps its position, because a
/// sequence may be split between two pieces of a stream.
#[derive(Debug, Clone, Default)]
pub struct ControlCharFilter {
    state: EscapeState,
    /// Parameters of the current sequence, if colours are kept.
    colors: Option<String>,
}

const MAX_COLOR: usize = 64;

impl ControlCharFilter {
    /// Keeps colours and other text attributes.
    pub fn keep_colors() -> Self {
        ControlCharFilter { colors: Some(String::new()), ..ControlCharFilter::default() }
    }

    /// Returns `text` without control sequences, unchanged if there are none.
    pub fn filter<'t>(&mut self, text: &'t str, scratch: &'t mut String) -> &'t str {
        if self.state == EscapeState::Ground && is_clean(text) {
            return text;
        }
        scratch.clear();
        self.push(text, scratch);
        scratch
    }

    pub fn push(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        loop {
            if self.state == EscapeState::Ground {
                let run = rest.bytes().position(may_need_filtering).unwrap_or(rest.len());
                out.push_str(&rest[..run]);
                rest = &rest[run..];
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return };
            rest = chars.as_str();
            self.state = self.step(c, out);
        }
    }

    fn step(&mut self, c: char, out: &mut String) -> EscapeState {
        self.color(c, out);
        match (self.state, c) {
            // A line end closes any sequence: an unterminated one must not swallow the rest.
            (_, '\n') => {
                out.push('\n');
                EscapeState::Ground
            }
            (EscapeState::Return, '\r') => EscapeState::Return,
            (EscapeState::Return, _) => {
                // Overwritten text stays, separated from what follows.
                out.push(' ');
                ground_state(c, out)
            }
            (EscapeState::Ground, _) => ground_state(c, out),
            (EscapeState::Escape, '[') => EscapeState::Sequence,
            (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => EscapeState::Command,
            (EscapeState::Escape, ' '..='/') => EscapeState::Escape,
            (EscapeState::Escape, '0'..='~') => EscapeState::Ground,
            (EscapeState::Sequence, ' '..='?') => EscapeState::Sequence,
            (EscapeState::Sequence, '@'..='~') => EscapeState::Ground,
            (EscapeState::Command, '\u{7}' | '\u{9c}') | (EscapeState::CommandEscape, '\\') => {
                EscapeState::Ground
            }
            (EscapeState::Command | EscapeState::CommandEscape, '\u{1b}') => {
                EscapeState::CommandEscape
            }
            (EscapeState::Command, _) => EscapeState::Command,
            // Not a sequence: keep the character.
            (EscapeState::Escape | EscapeState::Sequence | EscapeState::CommandEscape, _) => {
                ground_state(c, out)
            }
        }
    }

    fn color(&mut self, c: char, out: &mut String) {
        let Some(parameters) = &mut self.colors else { return };
        match (self.state, c) {
            (EscapeState::Sequence, 'm') => {
                if parameters.chars().all(|c| matches!(c, '0'..='9' | ';' | ':')) {
                    out.extend(["\u{1b}[", parameters, "m"]);
                }
            }
            (EscapeState::Sequence, _) if parameters.len() < MAX_COLOR => parameters.push(c),
            (EscapeState::Sequence, _) => "?".clone_into(parameters),
            _ => parameters.clear(),
        }
    }
}

fn ground_state(c: char, out: &mut String) -> EscapeState {
    match c {
        '\r' => return EscapeState::Return,
        '\u{1b}' => return EscapeState::Escape,
        '\u{9b}' => return EscapeState::Sequence,
        '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return EscapeState::Command,
        '\n' | '\t' => out.push(c),
        '\u{2028}' | '\u{2029}' => out.push(' '),
        _ if is_invisible(c) => {}
        _ => out.push(c),
    }
    EscapeState::Ground
}

/// Returns whether a character acts instead of being visible: control characters, line separators, byte order
/// marks, and direction marks, which can make a line read as something else.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Checked in blocks, which the compiler vectorizes.
fn is_clean(text: &str) -> bool {
    let mut blocks = text.as_bytes().chunks(64);
    blocks.all(|block| !block.iter().fold(false, |any, byte| any | may_need_filtering(*byte)))
}

/// First bytes of characters that need filtering: control characters, C1, direction marks, byte order marks.
fn may_need_filtering(byte: u8) -> bool {
    matches!(byte, 0..=0x08 | 0x0b..=0x1f | 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xef)
}

pub fn strip_control_chars(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    ControlCharFilter::default().push(text, &mut clean);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(text: &str) -> String {
        ControlCharFilter::default().filter(text, &mut String::new()).to_owned()
    }

    #[test]
    fn cleaner_strips_terminal_control_sequences() {
        for (text, expected) in [
            ("plain — text\n\tpath", "plain — text\n\tpath"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[2J\x1b[1;1Hgone", "gone"),
            ("\x1b]0;title\x07after", "after"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ after", "link after"),
            ("\x1b]52;c;AAAA\x1b\\clipboard", "clipboard"),
            ("\x1bPq#0\x1b\\sixel", "sixel"),
            ("\u{9b}31mC1\u{9d}0;t\u{9c}!", "C1!"),
            ("\x1b(Bcharset\x1bcreset\x1b7save", "charsetresetsave"),
            ("bell\x07 back\x08 del\x7f nul\0", "bell back del nul"),
            ("a\r\nb\r\r\nc", "a\nb\nc"),
            ("10%\r20%\r", "10% 20%"),
            ("\x1b]never ended\nnext line", "\nnext line"),
            ("\x1b[12\u{e9}t\u{e9}", "\u{e9}t\u{e9}"),
            ("\x1b", ""),
            ("a\u{202e}cba\u{2069}", "acba"),
            ("one\u{2028}two\u{2029}", "one two "),
            ("\u{feff}a\u{200e}b\u{200f}c\u{61c}", "abc"),
            ("\u{a0}é…٣ｆ", "\u{a0}é…٣ｆ"),
        ] {
            assert_eq!(filter(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cleaner_output_has_no_controls_for_any_chunking(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("\x1b".to_owned()), Just("[".to_owned()), Just("]".to_owned()),
                    Just("\r".to_owned()), Just("\n".to_owned()), Just("\u{9b}".to_owned()),
                    Just("\\".to_owned()), Just("\x07".to_owned()), Just("3m".to_owned()), any::<String>(),
                ],
                0..20,
            ),
        ) {
            let whole = filter(&pieces.concat());
            prop_assert!(!whole.chars().any(|c| is_invisible(c) && c != '\n' && c != '\t'));
            let mut cleaner = ControlCharFilter::default();
            let mut joined = String::new();
            for piece in &pieces {
                joined.push_str(cleaner.filter(piece, &mut String::new()));
            }
            prop_assert_eq!(joined, whole);
        }
    }
}
