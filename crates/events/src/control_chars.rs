//! Text with nothing in it that steers a terminal.
//!
//! What an agent prints is data. An escape sequence in a file that it read could move the cursor,
//! recolour the screen, set the window's title or write to the clipboard, so none reaches the terminal.
//! And what is looked for in a text is found in it however it is coloured.

/// Where in an escape sequence the text so far ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Ground,
    /// After a carriage return, of which only the next character tells what it means.
    Return,
    Escape,
    /// `ESC [` up to its final byte.
    Sequence,
    /// `ESC ]` and its like, up to the terminator.
    Command,
    /// An `ESC` inside of such a command: half of its terminator.
    CommandEscape,
}

/// Takes out of a text what would steer a terminal: escape sequences as a whole, and all control
/// characters but newline and tab. It remembers where it was, because a sequence may be split over
/// two pieces of a stream.
#[derive(Debug, Clone, Default)]
pub struct ControlCharFilter {
    state: EscapeState,
    /// The parameters of the sequence so far, if those that only set colours are let through.
    colors: Option<String>,
}

/// Longer parameters than any colour has.
const MAX_COLOR: usize = 64;

impl ControlCharFilter {
    /// The same, but colours and other looks of characters stay.
    pub fn keep_colors() -> Self {
        ControlCharFilter { colors: Some(String::new()), ..ControlCharFilter::default() }
    }

    /// The clean form of `text`, which is `text` itself in the usual case that it was clean.
    pub fn filter<'t>(&mut self, text: &'t str, scratch: &'t mut String) -> &'t str {
        if self.state == EscapeState::Ground && is_clean(text) {
            return text;
        }
        scratch.clear();
        self.push(text, scratch);
        scratch
    }

    /// Appends the clean form of `text` to `out`.
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
            // Whatever was going on, it is over at the end of a line: a sequence that never ends must
            // not swallow the rest of the text.
            (_, '\n') => {
                out.push('\n');
                EscapeState::Ground
            }
            (EscapeState::Return, '\r') => EscapeState::Return,
            (EscapeState::Return, _) => {
                // Text that would have been written over is kept, but told from what follows.
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
            // Not a sequence after all: the character stands for itself.
            (EscapeState::Escape | EscapeState::Sequence | EscapeState::CommandEscape, _) => {
                ground_state(c, out)
            }
        }
    }

    /// Lets a sequence through that only sets colours.
    fn color(&mut self, c: char, out: &mut String) {
        let Some(parameters) = &mut self.colors else { return };
        match (self.state, c) {
            (EscapeState::Sequence, 'm') => {
                if parameters.chars().all(|c| matches!(c, '0'..='9' | ';' | ':')) {
                    out.extend(["\u{1b}[", parameters, "m"]);
                }
            }
            // One that is longer than any colour is none.
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

/// Whether a character acts instead of being seen: a control character, a separator of lines, a byte order mark, or
/// a mark of direction, which makes the rest of the line read as what it is not.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Whether nothing is to be taken out of a text. Asked by blocks, which the compiler turns into vector instructions.
fn is_clean(text: &str) -> bool {
    let mut blocks = text.as_bytes().chunks(64);
    blocks.all(|block| !block.iter().fold(false, |any, byte| any | may_need_filtering(*byte)))
}

/// Bytes that may begin something that is not shown as it is: control characters, and the first bytes
/// of the UTF-8 forms of C1, of the marks of direction and of the byte order mark.
fn may_need_filtering(byte: u8) -> bool {
    matches!(byte, 0..=0x08 | 0x0b..=0x1f | 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xef)
}

/// The clean form of a whole text.
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
