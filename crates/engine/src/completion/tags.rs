//! Tags in text that arrives in pieces.

/// A tag's content longer than this is no completion text.
const MAX_TAG_CONTENT: usize = 64 * 1024;

/// Finds `<tag>content</tag>`, whatever the case of the tag unless it is to be exact, in text that arrives in pieces. The
/// content is what stands between a closing tag and the last opening one before it: a tag that was
/// only mentioned and never closed does not swallow the one that was meant.
#[derive(Debug, Clone)]
pub(super) struct TagScanner {
    open: String,
    close: String,
    /// What has not been decided on: after an opening tag its content, else at most a part of one.
    pending: String,
    inside: bool,
    /// The tag counts only as it is written.
    exact: bool,
}

impl TagScanner {
    pub(super) fn new(tag: &str) -> Self {
        TagScanner {
            open: format!("<{tag}>"),
            close: format!("</{tag}>"),
            pending: String::new(),
            inside: false,
            exact: false,
        }
    }

    pub(super) fn exact(tag: &str) -> Self {
        TagScanner { exact: true, ..TagScanner::new(tag) }
    }

    /// What was said so far is no part of a tag that ends later.
    pub(super) fn reset(&mut self) {
        self.pending.clear();
        self.inside = false;
    }

    pub(super) fn push(&mut self, text: &str, joined: bool, mut found: impl FnMut(&str)) {
        if !joined && !self.pending.is_empty() {
            self.pending.push('\n');
        }
        // What was there has been searched, but for a tag that may have begun at its end.
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
            // A content that is too long stays too long: its end is kept only to find the tag.
            self.inside = false;
            let cut = self.pending.ceil_char_boundary(self.pending.len() - self.close.len());
            self.pending.drain(..cut);
        }
    }

    /// The next tag that matters, from about `from` on: an opening one, or inside also a closing one.
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
        let mut scanner = TagScanner::new("response");
        scanner.push("<response>", false, |_| {});
        for _ in 0..10_000 {
            scanner.push(&"é".repeat(100), true, |_| {});
        }
        assert!(scanner.pending.capacity() < 4 * MAX_TAG_CONTENT);
    }
}
