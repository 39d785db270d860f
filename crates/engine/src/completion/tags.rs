//! Finds tags in text that arrives in pieces.

/// Longer content is no completion signal.
const MAX_TAG_CONTENT: usize = 64 * 1024;

/// Finds `<tag>content</tag>`. The content starts at the last opening tag, so one that is only mentioned does no
/// harm.
#[derive(Debug, Clone, Default)]
pub(super) struct TagScanner {
    open: String,
    close: String,
    /// Content of the open tag, or part of a tag.
    pending: String,
    inside: bool,
    /// Case matters.
    exact: bool,
}

impl TagScanner {
    pub(super) fn new(tag: &str, exact: bool) -> Self {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        TagScanner { open, close, exact, ..TagScanner::default() }
    }

    pub(super) fn reset(&mut self) {
        self.pending.clear();
        self.inside = false;
    }

    pub(super) fn push(&mut self, text: &str, joined: bool, mut found: impl FnMut(&str)) {
        if !joined && !self.pending.is_empty() {
            self.pending.push('\n');
        }
        // Already searched, except for a tag that may start at its end.
        let mut from = self.pending.len().saturating_sub(self.close.len());
        self.pending.push_str(text);
        while let Some((at, is_open)) = self.next_tag(from) {
            if is_open {
                self.pending.drain(..at + self.open.len());
                self.inside = true;
            } else {
                found(&self.pending[..at]);
                self.pending.drain(..at + self.close.len());
                self.inside = false;
            }
            from = 0;
        }
        let keep = if self.inside { MAX_TAG_CONTENT } else { self.close.len() };
        if self.pending.len() > keep {
            // Too long to match: the end is kept only to find the tag.
            self.inside = false;
            let cut = self.pending.ceil_char_boundary(self.pending.len() - self.close.len());
            self.pending.drain(..cut);
        }
    }

    /// The next opening tag from about `from`; inside one, also a closing tag.
    fn next_tag(&self, from: usize) -> Option<(usize, bool)> {
        let bytes = self.pending.as_bytes();
        let is = |at: usize, tag: &str| {
            bytes.get(at..at + tag.len()).is_some_and(|bytes| {
                bytes == tag.as_bytes() || !self.exact && bytes.eq_ignore_ascii_case(tag.as_bytes())
            })
        };
        memchr::memchr_iter(b'<', &bytes[from..]).map(|at| from + at).find_map(|at| {
            if is(at, &self.open) {
                Some((at, true))
            } else if self.inside && is(at, &self.close) {
                Some((at, false))
            } else {
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_tag_content_is_bounded() {
        let mut scanner = TagScanner::new("response", false);
        scanner.push("<response>", false, |_| {});
        for _ in 0..10_000 {
            scanner.push(&"é".repeat(100), true, |_| {});
        }
        assert!(scanner.pending.capacity() < 4 * MAX_TAG_CONTENT);
    }
}
