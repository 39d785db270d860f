//! Finds tags in text, whole or arriving in pieces.

use std::ops::Range;

/// Longer content is no completion signal.
const MAX_TAG_CONTENT: usize = 64 * 1024;

/// The opening and the closing tag of one name.
#[derive(Debug, Clone, Default)]
pub(super) struct TagPair {
    open: String,
    close: String,
    /// Case matters.
    pub(super) exact: bool,
}

impl TagPair {
    pub(super) fn new(name: &str, exact: bool) -> Self {
        TagPair { open: format!("<{name}>"), close: format!("</{name}>"), exact }
    }

    /// The first `<tag>content</tag>` from `from` on. It begins at the last opening tag.
    pub(super) fn find(&self, text: &str, mut from: usize) -> Option<Range<usize>> {
        let mut start = None;
        while let Some((tag, is_open)) = self.next(text, from, start.is_some()) {
            from = tag.end;
            match start {
                Some(start) if !is_open => return Some(start..from),
                _ => start = Some(tag.start),
            }
        }
        None
    }

    /// What is between the tags of a text that [`find`](Self::find) found.
    pub(super) fn content<'t>(&self, found: &'t str) -> &'t str {
        &found[self.open.len()..found.len() - self.close.len()]
    }

    /// The next opening tag from about `from`; inside one, also a closing tag. Also returns whether it opens.
    fn next(&self, text: &str, from: usize, inside: bool) -> Option<(Range<usize>, bool)> {
        let bytes = text.as_bytes();
        let tag_at = |at: usize, tag: &str| {
            let found = bytes.get(at..at + tag.len())?;
            let is_tag = found == tag.as_bytes()
                || !self.exact && found.eq_ignore_ascii_case(tag.as_bytes());
            is_tag.then_some(at..at + tag.len())
        };
        memchr::memchr_iter(b'<', &bytes[from..]).map(|at| from + at).find_map(|at| {
            let open = tag_at(at, &self.open).map(|tag| (tag, true));
            let close = || tag_at(at, &self.close).map(|tag| (tag, false));
            if inside { open.or_else(close) } else { open }
        })
    }
}

/// Finds `<tag>content</tag>`. The content starts at the last opening tag, so one that is only mentioned does no
/// harm.
#[derive(Debug, Clone, Default)]
pub(super) struct TagScanner {
    tag: TagPair,
    /// Content of the open tag, or part of a tag.
    pending: String,
    inside: bool,
}

impl TagScanner {
    pub(super) fn new(tag: TagPair) -> Self {
        TagScanner { tag, ..TagScanner::default() }
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
        let tag_len = self.tag.close.len();
        let mut from = self.pending.len().saturating_sub(tag_len);
        self.pending.push_str(text);
        while let Some((tag, is_open)) = self.tag.next(&self.pending, from, self.inside) {
            if !is_open {
                found(&self.pending[..tag.start]);
            }
            self.pending.drain(..tag.end);
            self.inside = is_open;
            from = 0;
        }
        let keep = if self.inside { MAX_TAG_CONTENT } else { tag_len };
        if self.pending.len() > keep {
            // Too long to match: the end is kept only to find the tag.
            self.inside = false;
            let cut = self.pending.ceil_char_boundary(self.pending.len() - tag_len);
            self.pending.drain(..cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_tag_content_is_bounded() {
        let mut scanner = TagScanner::new(TagPair::new("response", false));
        scanner.push("<response>", false, |_| {});
        for _ in 0..10_000 {
            scanner.push(&"é".repeat(100), true, |_| {});
        }
        assert!(scanner.pending.capacity() < 4 * MAX_TAG_CONTENT);
    }
}
