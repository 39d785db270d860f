//! Partly known text: expanded words and command output.

use std::rc::Rc;

/// Stands for unknown text.
pub(super) const UNKNOWN: char = '\u{f8ff}';

/// Stands for an unknown name, number or path: not empty, no leading slash, no `..`.
pub(super) const UNKNOWN_NAME: char = '\u{f8fe}';

/// Output of `mktemp`.
pub(super) const NEW_TEMP_DIR: &str = "/tmp/tmp.\u{f8fe}";

/// The process id of the shell's parent, the agent.
pub(super) const PARENT_PID: &str = "\u{f8fe}ppid";

/// Prefix of process ids; the name by which they were looked up follows.
pub(super) const PID_PREFIX: &str = "\u{f8fe}pid:";

/// Where a text came from, in order of danger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextOrigin {
    /// In the command, or in a variable.
    #[default]
    Literal,
    Computed,
    /// Decoded, decrypted or unpacked.
    Decoded,
    Network,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Argument {
    pub(super) text: String,
    pub(super) glob: bool,
    pub(super) origin: TextOrigin,
    /// The content, for `<(…)`.
    pub(super) process: Option<Box<KnownOutput>>,
}

impl Argument {
    pub(super) fn known(text: impl Into<String>) -> Self {
        Argument { text: text.into(), ..Argument::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        is_known(&self.text)
    }

    pub(super) fn glob_match_of(&self) -> Argument {
        if !self.glob {
            return self.clone();
        }
        let text = self.text.replace(['*', '?', '['], &UNKNOWN_NAME.to_string());
        Argument { text, glob: false, ..self.clone() }
    }

    pub(super) fn is_unknown(&self) -> bool {
        !self.text.is_empty() && self.text.chars().all(|c| c == UNKNOWN)
    }
}

pub(super) fn is_known(text: &str) -> bool {
    !text.contains([UNKNOWN, UNKNOWN_NAME])
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct KnownOutput {
    /// Shared, because it may be a whole file.
    pub(super) text: Rc<String>,
    pub(super) origin: TextOrigin,
}

impl KnownOutput {
    pub(super) fn known(text: impl Into<String>) -> Self {
        KnownOutput::new(text, TextOrigin::Literal)
    }

    pub(super) fn new(text: impl Into<String>, origin: TextOrigin) -> Self {
        KnownOutput { text: Rc::new(text.into()), origin }
    }

    /// Words with spaces between them.
    pub(super) fn joined(words: &[Argument]) -> Self {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let origin = words.iter().map(|word| word.origin).max();
        KnownOutput::new(texts.join(" "), origin.unwrap_or_default())
    }

    /// Printed names, one in each line.
    pub(super) fn lines(names: &[Argument]) -> Self {
        let lines = names.iter().map(|name| format!("{}\n", name.text));
        KnownOutput::new(lines.collect::<String>(), TextOrigin::Computed)
    }

    pub(super) fn unknown() -> Self {
        KnownOutput::unknown_from(TextOrigin::Computed)
    }

    pub(super) fn name() -> Self {
        KnownOutput::known(UNKNOWN_NAME)
    }

    /// Content of a file, which is not judged.
    pub(super) fn file() -> Self {
        KnownOutput::unknown_from(TextOrigin::Literal)
    }

    pub(super) fn unknown_from(origin: TextOrigin) -> Self {
        KnownOutput::new(UNKNOWN, origin)
    }

    /// Appends output. Too long a text becomes unknown.
    pub(super) fn push(&mut self, other: &KnownOutput) {
        self.origin = self.origin.max(other.origin);
        if self.text.len() + other.text.len() > MAX_TEXT {
            self.text = Rc::new(UNKNOWN.to_string());
        } else if self.text.is_empty() {
            self.text = Rc::clone(&other.text);
        } else {
            Rc::make_mut(&mut self.text).push_str(&other.text);
        }
    }
}

pub(super) const MAX_TEXT: usize = 1 << 16;

/// Whether a pattern matches a whole text. Unknown parts match anything.
pub(super) fn glob_match(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // On failure, returns to the last star and extends it.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(&('*' | UNKNOWN | UNKNOWN_NAME)) => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => match_bracket(&pattern, p, text.get(t).copied().unwrap_or_default()),
            Some(c) if Some(c) == text.get(t) => Some(p + 1),
            _ => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((at, taken))) => {
                p = at + 1;
                t = taken + 1;
                star = Some((at, taken + 1));
            }
            (None, None) => return false,
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| matches!(*c, '*' | UNKNOWN | UNKNOWN_NAME))
}

/// Matches `[…]` and returns the index after it.
fn match_bracket(pattern: &[char], at: usize, c: char) -> Option<usize> {
    let rest = pattern.get(at + 1..)?;
    let Some(close) = rest.iter().skip(1).position(|c| *c == ']').map(|close| close + 1) else {
        return (c == '[').then_some(at + 1);
    };
    let mut set = rest.get(..close)?;
    let mut negated = false;
    if let [first, tail @ ..] = set
        && matches!(first, '!' | '^')
    {
        negated = true;
        set = tail;
    }
    let mut found = false;
    let mut i = 0;
    while let Some(&low) = set.get(i) {
        if let (Some('-'), Some(&high)) = (set.get(i + 1), set.get(i + 2)) {
            found |= (low..=high).contains(&c);
            i += 3;
        } else {
            found |= low == c;
            i += 1;
        }
    }
    (found != negated).then_some(at + 1 + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_whole_text() {
        for (pattern, text, matches) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("?m", "rm", true),
            ("r[a-m]", "rm", true),
            ("r[!a-m]", "rm", false),
            ("[", "[", true),
            ("[]]", "]", true),
            ("*a*b*", "xxaxxbxx", true),
            ("a", "ab", false),
        ] {
            assert_eq!(glob_match(pattern, text), matches, "{pattern} {text}");
        }
        assert!(!glob_match(&"*a".repeat(2000), &"a".repeat(1999)));
    }
}
