//! The command allow list: `hooks.allow`.
//!
//! An entry is a command, `Write(path)` or `Read(path)`. It is compared with one simple command
//! after expansion, never with a whole line, so nothing can hide behind it.

use std::path::Path;

use super::Context;
use super::rules::FileAccess;
use super::shell::{ShellCommand, WordPart, parse};
use super::value::{Argument, UNKNOWN, UNKNOWN_NAME, glob_match};

/// An unusable entry. It allows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAllowEntry {
    pub entry: String,
    pub reason: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandAllowList {
    commands: Vec<Vec<WordPattern>>,
    paths: Vec<(bool, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WordPattern {
    text: String,
    /// Has an unquoted `*`.
    has_wildcard: bool,
}

impl CommandAllowList {
    /// Parses the entries. Returns the unusable ones separately.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> (CommandAllowList, Vec<InvalidAllowEntry>) {
        let mut list = CommandAllowList::default();
        let mut bad = Vec::new();
        for entry in entries {
            if let Some((write, path)) = parse_path_entry(entry) {
                list.paths.push((write, path.to_owned()));
                continue;
            }
            match parse_command_entry(entry) {
                Ok(words) => list.commands.push(words),
                Err(reason) => bad.push(InvalidAllowEntry { entry: entry.to_owned(), reason }),
            }
        }
        (list, bad)
    }

    pub(super) fn covers(&self, argv: &[Argument]) -> bool {
        self.commands.iter().any(|entry| matches_command(entry, argv))
    }

    pub(super) fn allows_path(
        &self,
        access: FileAccess,
        path: &Path,
        context: &Context<'_>,
    ) -> bool {
        let text = path.to_string_lossy();
        if text.contains([UNKNOWN, UNKNOWN_NAME]) || text.split('/').any(|part| part == "..") {
            return false;
        }
        self.paths.iter().any(|(write, pattern)| {
            // Who may write may read.
            if access == FileAccess::Write && !write {
                return false;
            }
            let root = match (pattern.strip_prefix("~/"), context.home) {
                (Some(rest), Some(home)) => home.join(rest),
                (Some(_), None) => return false,
                _ => context.project.join(pattern.strip_prefix("./").unwrap_or(pattern)),
            };
            glob_match(&root.to_string_lossy(), &text)
        })
    }
}

fn parse_path_entry(entry: &str) -> Option<(bool, &str)> {
    let entry = entry.trim();
    let (write, rest) = match (entry.strip_prefix("Write("), entry.strip_prefix("Read(")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return None,
    };
    rest.strip_suffix(')').map(str::trim).filter(|path| !path.is_empty()).map(|path| (write, path))
}

fn parse_command_entry(entry: &str) -> Result<Vec<WordPattern>, &'static str> {
    let program = parse(entry);
    if let Some(error) = program.error {
        return Err(error);
    }
    let simple = match program.list.as_slice() {
        [item] if !item.background => match &item.command {
            ShellCommand::Simple(simple) => simple,
            _ => return Err("not a simple command"),
        },
        [] => return Err("empty"),
        _ => return Err("more than one command"),
    };
    if !simple.redirects.is_empty() {
        return Err("contains a redirection; use Write(path) for the file");
    }
    let mut words = Vec::new();
    for assignment in &simple.assignments {
        let value = match &assignment.value {
            super::shell::AssignedValue::Word(word) => word.literal(),
            super::shell::AssignedValue::Array(_) => None,
        };
        let value = value.ok_or("contains a substitution")?;
        words.push(WordPattern {
            text: format!("{}={value}", assignment.name),
            has_wildcard: false,
        });
    }
    for word in &simple.words {
        let text = word.literal().ok_or("contains a substitution")?;
        let star = word.parts.iter().any(
            |part| matches!(part, WordPart::Text { text, quoted: false } if text.contains('*')),
        );
        words.push(WordPattern { text, has_wildcard: star });
    }
    match words.first() {
        None => Err("empty"),
        Some(first) if first.has_wildcard => Err("the first word must be a program"),
        Some(_) => Ok(words),
    }
}

fn matches_command(entry: &[WordPattern], argv: &[Argument]) -> bool {
    let (entry, open) = match entry {
        [start @ .., last] if last.has_wildcard && last.text == "*" => (start, true),
        _ => (entry, false),
    };
    if argv.len() < entry.len() || (argv.len() > entry.len() && !open) {
        return false;
    }
    entry.iter().zip(argv).enumerate().all(|(at, (pattern, arg))| {
        // A command may name the program by its path.
        let text = match at {
            0 if !pattern.text.contains('/') => arg.text.rsplit('/').next().unwrap_or_default(),
            _ => arg.text.as_str(),
        };
        if !pattern.has_wildcard {
            return text == pattern.text;
        }
        // A star matches only known text that stays in the directory.
        arg.is_known()
            && !text.split('/').any(|part| part == "..")
            && glob_match(&pattern.text, text)
            // `dir/*` does not allow `dir` itself.
            && !pattern.text.strip_suffix('*').is_some_and(|dir| dir.ends_with('/') && dir == text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(entry: &str, argv: &[&str]) -> bool {
        let (list, bad) = CommandAllowList::parse([entry]);
        assert_eq!(bad, [], "{entry}");
        let argv: Vec<Argument> = argv.iter().map(|text| Argument::known(*text)).collect();
        list.covers(&argv)
    }

    #[test]
    fn allow_entry_matches_command_word_by_word() {
        assert!(covers("npx prettier", &["npx", "prettier"]));
        assert!(!covers("npx prettier", &["npx", "prettier", "x"]));
        assert!(covers("npx prettier *", &["npx", "prettier"]));
        assert!(covers("npx prettier *", &["npx", "prettier", "-w", "x"]));
        assert!(!covers("npx prettier *", &["npx", "eslint"]));
        assert!(covers("npx 'prettier' --check", &["npx", "prettier", "--check"]));
        assert!(covers(
            "git push --force origin gh-*",
            &["git", "push", "--force", "origin", "gh-pages"]
        ));
        assert!(!covers(
            "git push --force origin gh-*",
            &["git", "push", "--force", "origin", "main"]
        ));
        assert!(covers("rm -rf /tmp/x/*", &["/bin/rm", "-rf", "/tmp/x/y/z"]));
        assert!(!covers("rm -rf /tmp/x/*", &["rm", "-rf", "/tmp/x/"]));
        assert!(!covers("rm -rf /tmp/x/*", &["rm", "-rf", "/tmp/x/../.."]));
        assert!(!covers("rm -rf /tmp/x/*", &["rm", "-rf", "/tmp/x/\u{f8ff}"]));
        assert!(!covers("rm -rf '*'", &["rm", "-rf", "/"]));
    }

    #[test]
    fn allow_entry_must_be_one_plain_command() {
        for entry in
            ["", "  ", "a; b", "a && b", "a | b", "a &", "a > b", "$x", "`a`", "'a", "* x", "(a)"]
        {
            let (list, bad) = CommandAllowList::parse([entry]);
            assert_eq!(list, CommandAllowList::default(), "{entry}");
            assert_eq!(bad.len(), 1, "{entry}");
        }
    }
}
