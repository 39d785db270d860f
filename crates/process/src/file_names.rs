//! How a system compares file names.
//!
//! Volumes of a Mac usually ignore case and the composition of characters: `.GIT` is `.git`, and
//! `é` is `e` with an accent.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use unicode_normalization::UnicodeNormalization;

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

fn fold(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Lower case alone would leave the long s and the like.
    let lower = name.nfd().collect::<String>().to_uppercase().to_lowercase();
    lower.nfd().collect()
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
