//! A line of ours, word by word.

use std::io::Write as _;

use super::MAX_DETAIL;
use crate::style::Paint;
use crate::width;

/// Appends to a line of one of the outputs.
pub(super) struct Pen<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) color: bool,
    pub(super) more: &'static str,
}

impl Pen<'_> {
    /// Our own words.
    pub(super) fn say(&mut self, words: &str) -> &mut Self {
        self.out.extend_from_slice(words.as_bytes());
        self
    }

    pub(super) fn paint(&mut self, paint: Paint, words: &str) -> &mut Self {
        self.turn(paint).say(words).plain()
    }

    /// A sign and the words that it stands for.
    pub(super) fn head(&mut self, mark: &str, paint: Paint, words: &str) -> &mut Self {
        self.say(mark).say(" ").paint(paint, words)
    }

    pub(super) fn turn(&mut self, paint: Paint) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", paint.style().render());
        }
        self
    }

    pub(super) fn plain(&mut self) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", anstyle::Reset.render());
        }
        self
    }

    /// Somebody else's words, clean and on this line.
    pub(super) fn quote(&mut self, words: &str) -> &mut Self {
        self.quote_up_to(words, MAX_DETAIL)
    }

    pub(super) fn quote_up_to(&mut self, words: &str, max: usize) -> &mut Self {
        width::one_line(words, max, self.more, self.out);
        self
    }

    pub(super) fn end(&mut self) {
        self.out.push(b'\n');
    }
}
