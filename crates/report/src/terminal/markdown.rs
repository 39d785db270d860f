//! The agent's Markdown, rendered line by line.
//!
//! Only marks that this module understands are removed; everything else stays as the agent wrote it. Time is linear in
//! the length of a line.

use std::ops::Range;

use super::pen::StyledLine;
use crate::style::TextRole;

const CODE_INDENT: &str = "    ";

#[derive(Debug, Clone, Copy)]
pub(super) struct Markdown {
    /// Without colour, marks of emphasis stay.
    pub(super) color: bool,
    pub(super) bullet: Option<&'static str>,
    /// The open code block: its mark and the length of the mark.
    fence: Option<(u8, usize)>,
}

impl Markdown {
    pub(super) fn new(color: bool, emoji: bool) -> Self {
        Markdown { color, bullet: emoji.then_some("• "), fence: None }
    }

    /// Returns `None` for a line that only delimits a code block.
    pub(super) fn render(&mut self, line: &str) -> Option<StyledLine> {
        let fence = fence(line);
        match (self.fence, fence) {
            (Some((mark, length)), Some((found, count, "")))
                if found == mark && count >= length =>
            {
                self.fence = None;
                return None;
            }
            (Some(_), _) => {
                let mut code = StyledLine::new(&[CODE_INDENT, line].concat());
                code.base = Some(TextRole::Faint);
                return Some(code);
            }
            (None, Some((mark, count, info))) if mark != b'`' || !info.contains('`') => {
                self.fence = Some((mark, count));
                return None;
            }
            _ => {}
        }
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        if words.starts_with('|') {
            return Some(StyledLine { wraps: false, ..StyledLine::new(line) });
        }
        let mut shown = StyledLine::new(indent);
        if let Some(title) = heading(words).filter(|_| self.color) {
            self.push_inline(title, &mut shown);
            embolden(&mut shown, indent.len(), 0);
            return Some(shown);
        }
        let item = ["- ", "* ", "+ "].iter().find_map(|mark| words.strip_prefix(mark));
        // Three marks are a rule.
        let is_rule = words.bytes().all(|byte| b"-*+ ".contains(&byte));
        match (item, self.bullet) {
            (Some(item), Some(bullet)) if !is_rule => {
                shown.text.push_str(bullet);
                self.push_inline(item, &mut shown);
            }
            _ => self.push_inline(words, &mut shown),
        }
        shown.measure_hang();
        Some(shown)
    }

    fn push_inline(self, words: &str, line: &mut StyledLine) {
        let mut bold = None;
        let mut rest = words;
        while let Some(at) = memchr::memchr3(b'`', b'*', b'[', rest.as_bytes()) {
            line.text.push_str(&rest[..at]);
            let before = words[..words.len() - rest.len() + at].chars().next_back();
            rest = &rest[at..];
            if let Some((code, after)) = code_span(rest) {
                let whole = &rest[..rest.len() - after.len()];
                match self.color {
                    true => line.push(TextRole::Code, code),
                    false => line.text.push_str(whole),
                }
                rest = after;
            } else if let Some((text, url, after)) = link(before, rest) {
                self.push_inline(text, line);
                if text != url {
                    line.text.extend([" (", url, ")"]);
                }
                rest = after;
            } else if let Some(after) = rest.strip_prefix("**").filter(|_| self.color) {
                let next = after.chars().next();
                match bold.take() {
                    Some((start, parts)) if is_bold_end(before, next) => {
                        line.remove_mark(start, parts);
                        embolden(line, start, parts);
                    }
                    open => {
                        bold = open.or_else(|| {
                            is_bold_start(before, next)
                                .then_some((line.text.len(), line.parts.len()))
                        });
                        line.text.push_str("**");
                    }
                }
                rest = after;
            } else {
                // A lone mark; of backticks, all that belong together.
                let length = backticks(rest).max(1);
                line.text.push_str(&rest[..length]);
                rest = &rest[length..];
            }
        }
        line.text.push_str(rest);
    }
}

/// The mark of a code block, its length, and the rest of the line.
fn fence(line: &str) -> Option<(u8, usize, &str)> {
    let words = line.trim();
    let mark = *words.as_bytes().first().filter(|mark| b"`~".contains(mark))?;
    let length = words.bytes().take_while(|byte| *byte == mark).count();
    (length >= 3).then(|| (mark, length, &words[length..]))
}

fn heading(words: &str) -> Option<&str> {
    let title = words.trim_start_matches('#');
    let level = words.len() - title.len();
    title.strip_prefix(' ').filter(|_| (1..=6).contains(&level)).map(str::trim_start)
}

fn backticks(words: &str) -> usize {
    words.bytes().take_while(|byte| *byte == b'`').count()
}

/// The text between two equally long runs of backticks, and what follows.
fn code_span(words: &str) -> Option<(&str, &str)> {
    let length = backticks(words);
    if length == 0 {
        return None;
    }
    let inside = &words[length..];
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'`', &inside.as_bytes()[at..]) {
        at += next;
        let closing = backticks(&inside[at..]);
        if closing == length {
            return Some((&inside[..at], &inside[at + length..]));
        }
        at += closing;
    }
    None
}

/// `[text](url)` as text, URL and what follows. Index expressions are not links.
fn link(before: Option<char>, words: &str) -> Option<(&str, &str, &str)> {
    if before.is_some_and(|c| c.is_alphanumeric() || "_)]".contains(c)) {
        return None;
    }
    let inside = words.strip_prefix('[')?;
    let end = inside.find(['[', ']'])?;
    let target = inside[end..].strip_prefix("](")?;
    let length = target.find(|c: char| c.is_whitespace() || "()[".contains(c))?;
    let after = target[length..].strip_prefix(')')?;
    (end > 0 && length > 0).then(|| (&inside[..end], &target[..length], after))
}

/// Stricter than the standard, so that powers (`x**2`) and globs (`src/**/*.rs`) stay.
fn is_bold_start(before: Option<char>, after: Option<char>) -> bool {
    before.is_none_or(|c| c.is_whitespace() || "([{\"'“‘|>".contains(c))
        && after.is_some_and(|c| !c.is_whitespace())
}

fn is_bold_end(before: Option<char>, after: Option<char>) -> bool {
    before.is_some_and(|c| !c.is_whitespace())
        && after.is_none_or(|c| c.is_whitespace() || ".,;:!?)]}\"'”’|<…—".contains(c))
}

/// Makes everything from `start` on bold; `first` is the first part after it.
fn embolden(line: &mut StyledLine, start: usize, first: usize) {
    let inner = line.parts.split_off(first);
    let mut at = start;
    let bold = |range: Range<usize>, parts: &mut Vec<_>| {
        if !range.is_empty() {
            parts.push((range, TextRole::Heading));
        }
    };
    for (range, role) in inner {
        bold(at..range.start, &mut line.parts);
        at = range.end;
        line.parts.push((range, role));
    }
    bold(at..line.text.len(), &mut line.parts);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows of a text; `<b>` and `<c>` for bold and code.
    fn render(text: &str, color: bool) -> String {
        let mut markdown = Markdown::new(color, color);
        let mut out = String::new();
        for line in text.lines().filter_map(|line| markdown.render(line)) {
            let mut at = 0;
            for (range, role) in &line.parts {
                let tag = if *role == TextRole::Code { 'c' } else { 'b' };
                out.push_str(&line.text[at..range.start]);
                out.push_str(&format!("<{tag}>{}</{tag}>", &line.text[range.clone()]));
                at = range.end;
            }
            out.extend([&line.text[at..], "\n"]);
        }
        out
    }

    #[test]
    fn markdown_is_rendered_lightly() {
        for (text, expected) in [
            ("## A `b` title", "<b>A </b><c>b</c><b> title</b>\n"),
            ("#include <x>\n#! a", "#include <x>\n#! a\n"),
            ("a **bold** word, **b `c` d**.", "a <b>bold</b> word, <b>b </b><c>c</c><b> d</b>.\n"),
            ("- one\n  * two\n1. three", "• one\n  • two\n1. three\n"),
            ("- - -\n---\n***", "- - -\n---\n***\n"),
            (
                "See [the docs](https://x.y/z) and [a.rs](a.rs).",
                "See the docs (https://x.y/z) and a.rs.\n",
            ),
            ("[`f`](u)", "<c>f</c> (u)\n"),
            ("``a ` b`` c", "<c>a ` b</c> c\n"),
            ("| a | **b** |\n|---|---|", "| a | **b** |\n|---|---|\n"),
            ("```rust\nlet a = `b`;\n```\n`c`", "    let a = `b`;\n<c>c</c>\n"),
            ("````\n```x\n```\n````\nafter", "    ```x\n    ```\nafter\n"),
            ("~~~\n```\n~~~", "    ```\n"),
            // Not markup.
            ("x**2 + y**2, 2 ** 3 ** 4, a/**/b/**/c", "x**2 + y**2, 2 ** 3 ** 4, a/**/b/**/c\n"),
            ("**open and `open and [open](", "**open and `open and [open](\n"),
            ("a[i](x) [x](y z) [](u) [a]() *i*", "a[i](x) [x](y z) [](u) [a]() *i*\n"),
            ("**a `b** c`", "**a <c>b** c</c>\n"),
            ("<response>DONE</response>", "<response>DONE</response>\n"),
        ] {
            assert_eq!(render(text, true), expected, "{text}");
        }
        let plain = "# A\n- **b** `c`\n";
        assert_eq!(render(plain, false), plain, "nothing else would show it");
    }

    proptest! {
        #[test]
        fn markdown_keeps_order_of_all_but_marks(
            text in "([a-z é日\n]|\\*\\*|`|```|\\[a\\]\\(b\\)|[\\[\\]()#|~*-]){0,60}",
        ) {
            let mut markdown = Markdown::new(true, false);
            let mut shown = String::new();
            for line in text.lines() {
                if let Some(line) = markdown.render(line) {
                    let mut at = 0;
                    for (range, _) in &line.parts {
                        prop_assert!(at <= range.start && range.start < range.end);
                        prop_assert!(line.text.get(range.clone()).is_some());
                        at = range.end;
                    }
                    shown.push_str(&line.text);
                }
            }
            let words = |text: &str| -> String {
                text.chars().filter(|c| c.is_alphabetic()).collect()
            };
            // The text after a fence names a language.
            if !text.contains("``") && !text.contains("~~~") {
                prop_assert_eq!(words(&shown), words(&text));
            }
        }
    }

    #[test]
    fn hostile_lines_take_linear_time() {
        for piece in ["**a", "`a``", "[", "[a](", "**a `", "**a** ", "![[**`"] {
            let line = piece.repeat(200_000 / piece.len());
            assert!(Markdown::new(true, true).render(&line).is_some());
        }
    }
}
