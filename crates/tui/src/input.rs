//! Turns the bytes of a terminal into keys, pasted text, clicks and answers to queries.

use memchr::memmem;

/// A paste is cut here: the journal bounds a text anyway.
const MAX_PASTE: usize = 1 << 20;
/// No sequence of a terminal is longer, except a paste.
const MAX_SEQUENCE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Alt(char),
    Enter,
    AltEnter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    PageUp,
    PageDown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MouseAction {
    Press,
    WheelUp,
    WheelDown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    Paste(String),
    Mouse {
        action: MouseAction,
        column: u16,
        row: u16,
    },
    /// The background colour of the terminal.
    Background([u8; 3]),
    /// The terminal has answered every query before this one.
    DeviceAttributes,
}

/// Bytes that do not make a whole sequence yet.
#[derive(Debug, Default)]
pub struct InputParser {
    pending: Vec<u8>,
}

enum Parsed {
    /// `None` for a sequence that means nothing here.
    Input(Option<Input>, usize),
    Incomplete,
}

impl InputParser {
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.pending.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        let mut at = 0;
        while at < self.pending.len() {
            match parse(&self.pending[at..]) {
                Parsed::Input(input, length) => {
                    inputs.extend(input);
                    at += length;
                }
                Parsed::Incomplete => break,
            }
        }
        self.pending.drain(..at);
        inputs
    }

    /// Whether the rest of a sequence may still come.
    pub fn is_incomplete(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing more came: a lone `ESC` is the key, anything else is dropped, except a paste.
    pub fn end_of_burst(&mut self) -> Option<Input> {
        if self.pending.starts_with(PASTE_START) {
            return None;
        }
        let is_escape = self.pending == [0x1b];
        self.pending.clear();
        is_escape.then_some(Input::Key(Key::Esc))
    }
}

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

fn parse(bytes: &[u8]) -> Parsed {
    match bytes {
        [0x1b] => Parsed::Incomplete,
        [0x1b, b'[', ..] if bytes.starts_with(PASTE_START) => paste(bytes),
        [0x1b, b'[', rest @ ..] => control_sequence(rest),
        [0x1b, b'O', key, ..] => Parsed::Input(cursor_key(*key, false).map(Input::Key), 3),
        [0x1b, b'O'] => Parsed::Incomplete,
        [0x1b, b']' | b'P' | b'_' | b'^' | b'X', ..] => command_string(bytes),
        [0x1b, 0x1b, ..] => Parsed::Input(Some(Input::Key(Key::Esc)), 1),
        [0x1b, b'\r', ..] => Parsed::Input(Some(Input::Key(Key::AltEnter)), 2),
        [0x1b, rest @ ..] => match character(rest) {
            Parsed::Input(Some(Input::Key(Key::Char(c))), length) => {
                Parsed::Input(Some(Input::Key(Key::Alt(c))), length + 1)
            }
            Parsed::Input(_, length) => Parsed::Input(None, length + 1),
            Parsed::Incomplete => Parsed::Incomplete,
        },
        _ => character(bytes),
    }
}

fn character(bytes: &[u8]) -> Parsed {
    let key = match bytes[0] {
        b'\r' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        0 => Key::Ctrl(' '),
        control @ 1..=0x1a => Key::Ctrl(char::from(control - 1 + b'a')),
        0x1c..=0x1f => return Parsed::Input(None, 1),
        first => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            let Some(encoded) = bytes.get(..length) else { return Parsed::Incomplete };
            let text = std::str::from_utf8(encoded).ok();
            return match text.and_then(|text| text.chars().next()) {
                Some(c) => Parsed::Input(Some(Input::Key(Key::Char(c))), length),
                None => Parsed::Input(None, 1),
            };
        }
    };
    Parsed::Input(Some(Input::Key(key)), 1)
}

fn paste(bytes: &[u8]) -> Parsed {
    let text = &bytes[PASTE_START.len()..];
    let Some(end) = memmem::find(text, PASTE_END) else {
        return Parsed::Incomplete;
    };
    let text = String::from_utf8_lossy(&text[..end.min(MAX_PASTE)]);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    Parsed::Input(Some(Input::Paste(text)), PASTE_START.len() + end + PASTE_END.len())
}

/// `rest` is what follows `ESC [`.
fn control_sequence(rest: &[u8]) -> Parsed {
    let Some(end) = rest.iter().take(MAX_SEQUENCE).position(|byte| (0x40..=0x7e).contains(byte))
    else {
        let is_too_long = rest.len() >= MAX_SEQUENCE;
        return if is_too_long { Parsed::Input(None, rest.len() + 2) } else { Parsed::Incomplete };
    };
    let (parameters, last) = (&rest[..end], rest[end]);
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    let numbers: Vec<u16> = text
        .trim_start_matches(['<', '?'])
        .split(';')
        .map(|number| number.parse().unwrap_or_default())
        .collect();
    // Shift is 1, Alt 2, Ctrl 4, plus one.
    let by_word = numbers.get(1).is_some_and(|modifier| modifier.saturating_sub(1) & 6 != 0);
    let input = match (last, numbers.first().copied().unwrap_or_default()) {
        (b'M' | b'm', _) if text.starts_with('<') => mouse(&numbers, last == b'M'),
        (b'c', _) if text.starts_with('?') => Some(Input::DeviceAttributes),
        (b'Z', _) => Some(Input::Key(Key::BackTab)),
        (b'~', 1 | 7) => Some(Input::Key(Key::Home)),
        (b'~', 3) => Some(Input::Key(Key::Delete)),
        (b'~', 4 | 8) => Some(Input::Key(Key::End)),
        (b'~', 5) => Some(Input::Key(Key::PageUp)),
        (b'~', 6) => Some(Input::Key(Key::PageDown)),
        _ => cursor_key(last, by_word).map(Input::Key),
    };
    Parsed::Input(input, end + 3)
}

fn cursor_key(last: u8, by_word: bool) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' if by_word => Key::WordRight,
        b'D' if by_word => Key::WordLeft,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter,
        _ => return None,
    })
}

fn mouse(numbers: &[u16], pressed: bool) -> Option<Input> {
    let &[button, column, row] = numbers else { return None };
    let action = match button & !0b1_1100 {
        0 if pressed => MouseAction::Press,
        64 => MouseAction::WheelUp,
        65 => MouseAction::WheelDown,
        _ => return None,
    };
    Some(Input::Mouse { action, column: column.saturating_sub(1), row: row.saturating_sub(1) })
}

/// An operating system command and its like, up to `BEL` or `ESC \`.
fn command_string(bytes: &[u8]) -> Parsed {
    let end = bytes.iter().skip(2).take(MAX_SEQUENCE).position(|byte| matches!(byte, 7 | 0x1b));
    match end.map(|at| (at + 2, bytes[at + 2])) {
        Some((end, 7)) => Parsed::Input(background(&bytes[..end]), end + 1),
        Some((end, _)) if end + 1 < bytes.len() => {
            Parsed::Input(background(&bytes[..end]), end + 2)
        }
        None if bytes.len() > MAX_SEQUENCE => Parsed::Input(None, bytes.len()),
        _ => Parsed::Incomplete,
    }
}

/// `ESC ] 11 ; rgb:RRRR/GGGG/BBBB`, with one to four digits for each colour.
fn background(answer: &[u8]) -> Option<Input> {
    let text = std::str::from_utf8(answer).ok()?.strip_prefix("\x1b]11;")?;
    let (_, colors) = text.split_once(':')?;
    let mut channels = colors.split('/').map(|digits| {
        let value = u32::from_str_radix(digits, 16).ok()?;
        let most = 16u32.checked_pow(u32::try_from(digits.len()).ok()?)?.checked_sub(1)?;
        u8::try_from(value.checked_mul(255)?.checked_div(most)?).ok()
    });
    let mut next = || channels.next().flatten();
    Some(Input::Background([next()?, next()?, next()?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut parser = InputParser::default();
        let mut inputs = parser.push(bytes);
        inputs.extend(parser.end_of_burst());
        inputs
            .into_iter()
            .map(|input| match input {
                Input::Key(key) => key,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn keys_of_common_terminals_are_known() {
        let rows: &[(&[u8], &[Key])] = &[
            (b"q", &[Key::Char('q')]),
            (b"\r", &[Key::Enter]),
            (b"\n", &[Key::Ctrl('j')]),
            (b"\x03", &[Key::Ctrl('c')]),
            (b"\x1b", &[Key::Esc]),
            (b"\x1b\x1b", &[Key::Esc, Key::Esc]),
            (b"\x1b\r", &[Key::AltEnter]),
            (b"\x1bf", &[Key::Alt('f')]),
            (b"\x1b[A\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b[1;5D\x1b[1;2C", &[Key::WordLeft, Key::Right]),
            (b"\x1b[5~\x1b[6~\x1b[1~\x1b[F", &[Key::PageUp, Key::PageDown, Key::Home, Key::End]),
            (b"\x1b[Z\t\x7f\x1b[3~", &[Key::BackTab, Key::Tab, Key::Backspace, Key::Delete]),
            ("日ä".as_bytes(), &[Key::Char('日'), Key::Char('ä')]),
            // Function keys and broken UTF-8 mean nothing.
            (b"\x1b[15~\x1bOPx\xff\xfe", &[Key::Char('x')]),
        ];
        for (bytes, expected) in rows {
            assert_eq!(keys(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn sequence_split_between_reads_is_one_key() {
        let mut parser = InputParser::default();
        assert_eq!(parser.push(b"\x1b"), []);
        assert!(parser.is_incomplete());
        assert_eq!(parser.push(b"["), []);
        assert_eq!(parser.push(b"Aj"), [Input::Key(Key::Up), Input::Key(Key::Char('j'))]);
        assert!(!parser.is_incomplete());
        assert_eq!(parser.push(&"é".as_bytes()[..1]), []);
        assert_eq!(parser.push(&"é".as_bytes()[1..]), [Input::Key(Key::Char('é'))]);
    }

    #[test]
    fn paste_is_one_text_whatever_it_contains() {
        let mut parser = InputParser::default();
        assert_eq!(parser.push(b"\x1b[200~q\r\n\x1b[Ax\ry"), []);
        assert_eq!(parser.end_of_burst(), None);
        let inputs = parser.push(b"\x1b[201~z");
        assert_eq!(inputs, [Input::Paste("q\n\x1b[Ax\ny".to_owned()), Input::Key(Key::Char('z'))]);
    }

    #[test]
    fn answers_of_the_terminal_are_no_keys() {
        let mut parser = InputParser::default();
        assert_eq!(
            parser.push(b"\x1b]11;rgb:ffff/8080/0000\x1b\\\x1b[?62;4c\x1b]11;rgb:0/f/8\x07"),
            [
                Input::Background([255, 128, 0]),
                Input::DeviceAttributes,
                Input::Background([0, 255, 136]),
            ]
        );
        assert_eq!(parser.push(b"\x1bP1$r0m\x1b\\\x1b]52;c;eA==\x07"), []);
        assert!(!parser.is_incomplete());
    }

    #[test]
    fn mouse_reports_press_and_wheel_only() {
        let mut parser = InputParser::default();
        let mouse = |action, column, row| Input::Mouse { action, column, row };
        assert_eq!(
            parser.push(b"\x1b[<0;10;3M\x1b[<0;10;3m\x1b[<64;1;1M\x1b[<65;2;2M\x1b[<35;9;9M"),
            [
                mouse(MouseAction::Press, 9, 2),
                mouse(MouseAction::WheelUp, 0, 0),
                mouse(MouseAction::WheelDown, 1, 1),
            ]
        );
    }

    #[test]
    fn endless_sequence_is_dropped() {
        let mut parser = InputParser::default();
        let mut bytes = b"\x1b[".to_vec();
        bytes.extend(std::iter::repeat_n(b'1', 4096));
        assert_eq!(parser.push(&bytes), []);
        assert!(!parser.is_incomplete());
    }
}
