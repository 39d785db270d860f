//! The text and the id of a question.

use crate::control_chars::strip_control_chars;

/// In characters.
pub const MAX_QUESTION: usize = 4_000;

const CUT_MARK: &str = "… [cut]";

/// Returns the text as it is recorded, or `None` if nothing is asked.
pub fn bounded(text: &str) -> Option<String> {
    let text = strip_control_chars(text);
    let text = text.trim();
    let end = text.char_indices().nth(MAX_QUESTION).map(|(end, _)| end);
    let bounded = match end {
        Some(end) => format!("{}{CUT_MARK}", &text[..end]),
        None => text.to_owned(),
    };
    bounded.chars().any(char::is_alphanumeric).then_some(bounded)
}

/// Returns the id of a bounded question. The same question has the same id in a run, however its lines are wrapped.
pub fn id(run: &str, text: &str) -> String {
    let words = [run].into_iter().chain(text.split_whitespace());
    let bytes = words.flat_map(|word| word.bytes().chain([b' ']));
    // FNV-1a, folded.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    });
    format!("q{:06x}", (hash ^ (hash >> 24) ^ (hash >> 48)) & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_id_ignores_case_and_line_breaks_but_not_the_run() {
        let one = id("r1", "410 or 303?\n\nThe story does not say.");
        assert_eq!(one, id("r1", " 410 OR 303?  The story\ndoes not say. "));
        assert_ne!(one, id("r2", "410 or 303?\n\nThe story does not say."));
        assert_ne!(one, id("r1", "410 or 304?"));
        assert!(one.len() == 7 && one.starts_with('q'), "{one}");
    }

    #[test]
    fn question_is_bounded_and_needs_words() {
        let long = bounded(&"é".repeat(MAX_QUESTION + 1)).unwrap();
        assert_eq!(long.chars().count(), MAX_QUESTION + CUT_MARK.chars().count());
        assert_eq!(bounded(&long.repeat(9)).unwrap().chars().count(), long.chars().count());
        assert_eq!(bounded(" \u{1b}[31mWhy?\u{1b}[0m\n").as_deref(), Some("Why?"));
        for nothing in ["", " \n", "…", "...", "?"] {
            assert_eq!(bounded(nothing), None, "{nothing:?}");
        }
    }
}
