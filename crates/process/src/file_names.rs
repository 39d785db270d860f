//! How a system compares file names.
//!
//! Volumes of a Mac usually ignore case and the composition of characters: `.GIT` is `.git`, and
//! `é` is `e` with an accent.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Exact,
    /// Without case and composition. On a volume that heeds them, different names count as the same.
    Folded,
}

impl Default for NameRule {
    fn default() -> Self {
        NameRule::NATIVE
    }
}

impl NameRule {
    pub const NATIVE: NameRule = match std::env::consts::OS.as_bytes() {
        b"macos" => NameRule::Folded,
        _ => NameRule::Exact,
    };

    /// Names with the same key are the same name.
    pub fn key(self, name: &OsStr) -> OsString {
        match self {
            NameRule::Exact => name.to_owned(),
            NameRule::Folded => fold(name).into(),
        }
    }

    pub fn is_same(self, a: &OsStr, b: &OsStr) -> bool {
        a == b || self == NameRule::Folded && fold(a) == fold(b)
    }

    pub fn is_same_path(self, a: &Path, b: &Path) -> bool {
        self.starts_with(a, b) && a.components().count() == b.components().count()
    }

    pub fn starts_with(self, path: &Path, base: &Path) -> bool {
        if self == NameRule::Exact {
            return path.starts_with(base);
        }
        let mut parts = path.components();
        base.components().all(|base| {
            let part = parts.next();
            part.is_some_and(|part: Component<'_>| self.is_same(part.as_os_str(), base.as_os_str()))
        })
    }
}

/// Characters with their canonical decomposition, one per line, of Unicode 14. Those of Hangul
/// follow a rule.
static DECOMPOSITIONS: LazyLock<HashMap<char, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("file_names/decompositions.txt").lines();
    lines
        .filter_map(|line| {
            let composed = line.chars().next()?;
            Some((composed, line.get(composed.len_utf8()..)?))
        })
        .collect()
});

fn fold(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Lower case alone would leave the long s and the like.
    let lower = decompose(&name).to_uppercase().to_lowercase();
    let mut chars: Vec<char> = decompose(&lower).chars().collect();
    // The order of marks on one character does not matter.
    for marks in chars.chunk_by_mut(|a, b| is_mark(*a) && is_mark(*b)) {
        marks.sort_unstable();
    }
    chars.into_iter().collect()
}

fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}')
}

fn decompose(text: &str) -> String {
    let mut decomposed = String::new();
    for composed in text.chars() {
        match (DECOMPOSITIONS.get(&composed), hangul(composed)) {
            (Some(parts), _) => decomposed.push_str(parts),
            (None, Some(parts)) => decomposed.extend(parts.into_iter().flatten()),
            (None, None) => decomposed.push(composed),
        }
    }
    decomposed
}

/// The letters of a syllable, by the rule of the Unicode standard.
fn hangul(syllable: char) -> Option<[Option<char>; 3]> {
    const VOWELS: u32 = 21;
    const FINALS: u32 = 28;
    let nth = u32::from(syllable).checked_sub(0xac00).filter(|nth| *nth < 11_172)?;
    let last = nth % FINALS;
    Some([
        char::from_u32(0x1100 + nth / (VOWELS * FINALS)),
        char::from_u32(0x1161 + nth / FINALS % VOWELS),
        char::from_u32(0x11a7 + last).filter(|_| last > 0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_names_ignore_case_and_composition() {
        for (a, b, same) in [
            (".git", ".GIT", true),
            (".ssh", ".SSH", true),
            (".git", ".gits", false),
            ("café", "cafe\u{301}", true),
            ("CAFÉ", "cafe\u{301}", true),
            ("café", "cafe", false),
            ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", true),
            ("한글", "한굴", false),
            ("ệ", "e\u{302}\u{323}", true),
            (".\u{17f}sh", ".ssh", true),
            ("straße", "STRASSE", true),
            ("ΣΑΣ", "σας", true),
            ("ü", "ä", false),
            ("ток", "кот", false),
        ] {
            let (left, right) = (OsStr::new(a), OsStr::new(b));
            assert_eq!(NameRule::Folded.is_same(left, right), same, "{a} {b}");
            assert!(!NameRule::Exact.is_same(left, right), "{a} {b}");
        }
    }

    #[test]
    fn folded_prefix_is_compared_by_components() {
        let starts = |rule: NameRule, path: &str, base: &str| {
            rule.starts_with(Path::new(path), Path::new(base))
        };
        for (path, base, folded, exact) in [
            ("/Users/me/Shop/bin", "/Users/me/shop", true, false),
            ("/Users/me/shop", "/Users/me/shop", true, true),
            ("/Users/me/shopping", "/Users/me/shop", false, false),
            ("/Users/me", "/Users/me/shop", false, false),
            ("/Users/me/caf\u{e9}/x", "/users/me/cafe\u{301}", true, false),
        ] {
            assert_eq!(starts(NameRule::Folded, path, base), folded, "{path} {base}");
            assert_eq!(starts(NameRule::Exact, path, base), exact, "{path} {base}");
        }
    }
}
