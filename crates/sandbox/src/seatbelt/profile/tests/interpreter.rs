//! Decides what a profile allows, as the system does: the last rule that matches holds.

use std::path::{Path, PathBuf};

use super::super::SeatbeltProfile;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expr {
    Word(String),
    Text(String),
    List(Vec<Expr>),
}

/// What a process asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    Path(&'a str),
    /// A symbolic link at this path.
    Link(&'a str),
    /// Host and port of the other side.
    Remote(&'a str),
    /// Host and port of this side.
    Local(&'a str),
    Name(&'a str),
    SameSandbox,
    Nothing,
}

#[derive(Debug, Clone)]
pub(super) struct Rules {
    rules: Vec<Vec<Expr>>,
    params: Vec<PathBuf>,
}

impl Rules {
    pub(super) fn parse(profile: &SeatbeltProfile) -> Rules {
        let mut tokens = tokens(&profile.text).into_iter();
        let mut rules = Vec::new();
        while let Some(token) = tokens.next() {
            assert_eq!(token, "(", "a rule begins with a parenthesis");
            let Expr::List(rule) = list(&mut tokens) else { unreachable!() };
            rules.push(rule);
        }
        assert_eq!(rules.remove(0), [Expr::Word("version".into()), Expr::Word("1".into())]);
        Rules { rules, params: profile.params.clone() }
    }

    pub(super) fn count(&self) -> usize {
        self.rules.len()
    }

    /// Moves a rule to the end, where it wins over all others.
    pub(super) fn with_last(&self, nth: usize) -> Rules {
        let mut rules = self.clone();
        let rule = rules.rules.remove(nth);
        rules.rules.push(rule);
        rules
    }

    pub(super) fn reversed(&self) -> Rules {
        // A default that comes last would deny everything.
        let mut rules = self.clone();
        rules.rules[1..].reverse();
        rules
    }

    pub(super) fn allows(&self, operation: &str, target: Target<'_>) -> bool {
        let matching = self.rules.iter().rev().find(|rule| self.matches(rule, operation, target));
        match matching.map(|rule| &rule[0]) {
            Some(Expr::Word(action)) if action == "allow" => true,
            Some(Expr::Word(action)) if action == "deny" => false,
            other => panic!("{other:?}"),
        }
    }

    fn matches(&self, rule: &[Expr], operation: &str, target: Target<'_>) -> bool {
        let (mut named, mut filters) = (false, Vec::new());
        for part in &rule[1..] {
            match part {
                Expr::Word(word) => named |= is_operation(word, operation),
                Expr::List(filter) => filters.push(filter),
                Expr::Text(text) => panic!("{text}"),
            }
        }
        let mut filters = filters.iter().peekable();
        named && (filters.peek().is_none() || filters.any(|filter| self.filter(filter, target)))
    }

    fn filter(&self, filter: &[Expr], target: Target<'_>) -> bool {
        let Expr::Word(kind) = &filter[0] else { panic!("{filter:?}") };
        let path = match target {
            Target::Path(path) | Target::Link(path) => Some(Path::new(path)),
            _ => None,
        };
        match (kind.as_str(), path, target) {
            ("literal", Some(path), _) => path == self.path(&filter[1]),
            ("subpath", Some(path), _) => path.starts_with(self.path(&filter[1])),
            ("regex", Some(path), _) => {
                assert_eq!(filter[1], Expr::Text("^/dev/ttys[0-9]+$".into()), "the only one");
                let number = path.to_str().and_then(|path| path.strip_prefix("/dev/ttys"));
                number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            }
            ("require-all", ..) => filter[1..].iter().all(|part| match part {
                Expr::List(part) => self.filter(part, target),
                other => panic!("{other:?}"),
            }),
            ("remote", _, Target::Remote(address)) | ("local", _, Target::Local(address)) => {
                let [_, Expr::Word(ip), Expr::Text(pattern)] = filter else { panic!() };
                let any_port = pattern.strip_suffix('*');
                ip == "ip" && any_port.map_or(pattern == address, |host| address.starts_with(host))
            }
            ("global-name" | "sysctl-name" | "ipc-posix-name", _, Target::Name(name)) => {
                filter[1] == Expr::Text(name.to_owned())
            }
            ("sysctl-name-prefix", _, Target::Name(name)) => {
                matches!(&filter[1], Expr::Text(prefix) if name.starts_with(prefix.as_str()))
            }
            ("vnode-type", _, target) => {
                assert_eq!(filter[1], Expr::Word("SYMLINK".into()), "the only one");
                matches!(target, Target::Link(_))
            }
            ("target", _, target) => {
                assert_eq!(filter[1], Expr::Word("same-sandbox".into()));
                matches!(target, Target::SameSandbox)
            }
            // Given by the system to terminals that were made inside.
            ("extension" | "iokit-registry-entry-class" | "ipc-posix-name-regex", ..) => false,
            (
                "literal" | "subpath" | "regex" | "remote" | "local" | "global-name"
                | "sysctl-name" | "sysctl-name-prefix" | "ipc-posix-name",
                ..,
            ) => false,
            (unknown, ..) => panic!("{unknown}"),
        }
    }

    fn path(&self, value: &Expr) -> &Path {
        match value {
            Expr::Text(text) => leak(text),
            Expr::List(parts) => {
                let [Expr::Word(word), Expr::Text(name)] = parts.as_slice() else { panic!() };
                assert_eq!(word, "param");
                &self.params[name.strip_prefix('P').unwrap().parse::<usize>().unwrap()]
            }
            Expr::Word(word) => panic!("{word}"),
        }
    }
}

fn leak(text: &str) -> &'static Path {
    Path::new(Box::leak(text.to_owned().into_boxed_str()))
}

/// `file-read*` stands for all that begin with `file-read`; `default` for everything.
fn is_operation(named: &str, operation: &str) -> bool {
    match named.strip_suffix('*') {
        Some(prefix) => operation.starts_with(prefix),
        None => named == operation || named == "default",
    }
}

fn list(tokens: &mut impl Iterator<Item = String>) -> Expr {
    let mut parts = Vec::new();
    loop {
        let token = tokens.next().expect("a closing parenthesis");
        parts.push(match token.as_str() {
            "(" => list(tokens),
            ")" => return Expr::List(parts),
            text if text.starts_with('"') => Expr::Text(text[1..].to_owned()),
            word => Expr::Word(word.to_owned()),
        });
    }
}

/// Texts keep their opening quote.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ';' => while chars.next().is_some_and(|c| c != '\n') {},
            '(' | ')' => tokens.push(c.to_string()),
            '"' => {
                let mut token = String::from('"');
                loop {
                    match chars.next().expect("a closing quote") {
                        '"' => break,
                        '\\' => panic!("the profile has no escapes: paths are parameters"),
                        c => token.push(c),
                    }
                }
                tokens.push(token);
            }
            c if c.is_whitespace() => {}
            // The mark of a regular expression.
            '#' => {}
            c => {
                let mut token = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\"".contains(*c)) {
                    token.push(c);
                }
                tokens.push(token);
            }
        }
    }
    tokens
}
