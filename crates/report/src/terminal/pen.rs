use std::io::Write as _;

use super::MAX_DETAIL;
use crate::style::TextRole;
use crate::width;

pub(super) struct LineWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) color: bool,
    pub(super) ellipsis: &'static str,
}

impl LineWriter<'_> {
    pub(super) fn text(&mut self, words: &str) -> &mut Self {
        self.out.extend_from_slice(words.as_bytes());
        self
    }

    pub(super) fn paint(&mut self, paint: TextRole, words: &str) -> &mut Self {
        self.start_style(paint).text(words).plain()
    }

    pub(super) fn mark(&mut self, mark: &str, paint: TextRole, words: &str) -> &mut Self {
        self.text(mark).text(" ").paint(paint, words)
    }

    pub(super) fn start_style(&mut self, paint: TextRole) -> &mut Self {
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

    /// Text from outside, cleaned and on one line.
    pub(super) fn untrusted(&mut self, words: &str) -> &mut Self {
        self.untrusted_up_to(words, MAX_DETAIL)
    }

    pub(super) fn untrusted_up_to(&mut self, words: &str, max: usize) -> &mut Self {
        width::push_one_line(words, max, self.ellipsis, self.out);
        self
    }

    pub(super) fn end(&mut self) {
        self.out.push(b'\n');
    }
}
