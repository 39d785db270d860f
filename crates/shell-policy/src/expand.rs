//! Expansion: braces, tildes, parameters, substitutions, splitting.

use super::braces::{BraceExpansion, expand_braces};
use super::shell::{ParameterOp, Word, WordPart};
use super::state::Value;
use super::value::{
    Argument, KnownOutput, MAX_TEXT, PARENT_PID, TextOrigin, UNKNOWN, UNKNOWN_NAME, glob_match,
    is_known,
};
use super::walk::ShellWalker;

/// The values of a parameter, and where they came from.
type Fields = (Vec<String>, TextOrigin);

impl ShellWalker<'_> {
    pub(super) fn expand_words(&mut self, words: &[Word]) -> Vec<Argument> {
        let mut args = Vec::new();
        for word in words {
            match expand_braces(word) {
                BraceExpansion::Plain => args.extend(self.expand_fields(word, true)),
                BraceExpansion::TooMany => args.push(Argument::known(UNKNOWN)),
                BraceExpansion::TooDeep => self.report_too_complex(),
                BraceExpansion::Words(words) => {
                    for word in &words {
                        args.extend(self.expand_fields(word, true));
                    }
                }
            }
        }
        args
    }

    /// Expands a word without splitting, as in an assignment or a redirection.
    pub(super) fn expand_to_text(&mut self, word: &Word) -> Argument {
        let mut fields = self.expand_fields(word, false).into_iter();
        let Some(mut first) = fields.next() else { return Argument::default() };
        for field in fields {
            first.text.push(' ');
            first.text.push_str(&field.text);
        }
        first
    }

    fn expand_fields(&mut self, word: &Word, split: bool) -> Vec<Argument> {
        let mut fields = FieldBuilder::default();
        for (index, part) in word.parts.iter().enumerate() {
            let added = std::mem::take(&mut fields.bytes_added);
            if !self.expand(added) {
                return Vec::new();
            }
            match part {
                WordPart::Text { text, quoted: true } => fields.push(text, TextOrigin::Literal),
                WordPart::Text { text, quoted: false } => {
                    let last = index + 1 == word.parts.len();
                    let tilde = (index == 0).then(|| self.expand_tildes(text, last)).flatten();
                    if text.contains(['*', '?', '[']) {
                        fields.current().glob = true;
                    }
                    fields.push(tilde.as_deref().unwrap_or(text), TextOrigin::Literal);
                }
                WordPart::Parameter { name, op, quoted } => {
                    let (values, origin) = self.expand_parameter(name, op);
                    let all = name == "@" || name.ends_with("[@]");
                    if *quoted && all {
                        fields.append(&values, origin);
                    } else if *quoted || !split {
                        fields.push(&values.join(" "), origin);
                    } else {
                        let separators = self.field_separators();
                        for (index, value) in values.iter().enumerate() {
                            if index > 0 {
                                fields.end();
                            }
                            fields.split(value, origin, &separators);
                        }
                    }
                }
                WordPart::Command { program, quoted } => {
                    let output = self.substitute(program, None);
                    let text = output.text.trim_end_matches('\n');
                    if *quoted || !split {
                        fields.push(text, output.origin);
                    } else {
                        let separators = self.field_separators();
                        fields.split(text, output.origin, &separators);
                    }
                }
                WordPart::Process { program, reads } => {
                    let input = reads.then(KnownOutput::unknown);
                    let output = self.substitute(program, input.as_ref());
                    fields.push("/dev/fd/63", output.origin);
                    fields.current().process = Some(Box::new(output));
                }
                WordPart::Arithmetic(parts) => {
                    for part in parts {
                        self.expand_fields(&Word { parts: vec![part.clone()] }, false);
                    }
                    fields.push(&UNKNOWN_NAME.to_string(), TextOrigin::Literal);
                }
            }
        }
        self.expand(fields.bytes_added);
        fields.finish()
    }

    fn field_separators(&mut self) -> Vec<char> {
        match self.state.variables.get("IFS") {
            None => vec![' ', '\t', '\n'],
            Some(_) => {
                let (values, _) = self.expand_parameter("IFS", &ParameterOp::Plain);
                values.concat().chars().collect()
            }
        }
    }

    /// Expands tildes at the beginning, or after the `=` of an apparent assignment.
    fn expand_tildes(&mut self, text: &str, last: bool) -> Option<String> {
        if let Some((name, value)) = text.split_once('=')
            && value.starts_with('~')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return self.expand_tilde(value, last).map(|value| format!("{name}={value}"));
        }
        self.expand_tilde(text, last)
    }

    fn expand_tilde(&mut self, text: &str, last: bool) -> Option<String> {
        let rest = text.strip_prefix('~')?;
        let (user, path) = match rest.find('/') {
            Some(at) => (rest.get(..at)?, rest.get(at..)?),
            // `~$user` and `~"x"` are not tildes.
            None if !last => return None,
            None => (rest, ""),
        };
        let place = match user {
            "" => self
                .variable_fields("HOME")
                .map_or_else(|| UNKNOWN.to_string(), |(v, _)| v.join(" ")),
            "+" => self.cwd_text(),
            // Assumes that all homes are in one directory.
            _ if user.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) => {
                match self.context.home.and_then(std::path::Path::parent) {
                    Some(homes) => homes.join(user).to_string_lossy().into_owned(),
                    None => UNKNOWN.to_string(),
                }
            }
            _ => return None,
        };
        Some(place + path)
    }

    pub(super) fn cwd_text(&self) -> String {
        match &self.state.cwd {
            Some(path) => path.to_string_lossy().into_owned(),
            None => UNKNOWN.to_string(),
        }
    }

    fn variable_fields(&mut self, name: &str) -> Option<Fields> {
        if let Some(value) = self.state.variables.get(name) {
            let value = value.clone();
            return Some(match value {
                Value::Unset => (Vec::new(), TextOrigin::Literal),
                Value::Unknown(origin) => (vec![UNKNOWN.to_string()], origin),
                Value::Known(alternatives) => {
                    let choice = self.choose_combination(name, alternatives.len());
                    (
                        alternatives.get(choice).map(|v| v.to_vec()).unwrap_or_default(),
                        TextOrigin::Literal,
                    )
                }
            });
        }
        let one = |text: String| Some((vec![text], TextOrigin::Literal));
        match name {
            "PWD" => one(self.cwd_text()),
            "IFS" => one(" \t\n".to_owned()),
            "PPID" => one(PARENT_PID.to_owned()),
            "BASH" | "SHELL" => one("/bin/bash".to_owned()),
            "HOME" => match self.context.home {
                Some(home) => one(home.to_string_lossy().into_owned()),
                None => one(UNKNOWN.to_string()),
            },
            "RANDOM" | "SECONDS" | "EPOCHSECONDS" | "LINENO" | "UID" | "EUID" | "BASHPID"
            | "HOSTNAME" | "USER" | "LOGNAME" => one(UNKNOWN_NAME.to_string()),
            "CLAUDE_PROJECT_DIR" => one(self.context.project.to_string_lossy().into_owned()),
            _ => (self.context.variable)(name).and_then(one),
        }
    }

    fn expand_parameter(&mut self, name: &str, op: &ParameterOp) -> Fields {
        let base = name.trim_end_matches("[@]").trim_end_matches("[*]").trim_end_matches("[?]");
        let value = match name {
            "@" | "*" => Some((self.state.positional.to_vec(), TextOrigin::Literal)),
            "#" | "?" | "$" | "!" | "-" => {
                Some((vec![UNKNOWN_NAME.to_string()], TextOrigin::Literal))
            }
            "0" => Some((vec![self.state.script_name.clone()], TextOrigin::Literal)),
            _ if name.bytes().all(|b| b.is_ascii_digit()) => {
                let index = name.parse::<usize>().unwrap_or(usize::MAX);
                let value = self.state.positional.get(index.wrapping_sub(1)).cloned();
                Some((value.into_iter().collect(), TextOrigin::Literal))
            }
            _ => {
                let value = self.variable_fields(base);
                match value {
                    // The index is not evaluated, so any element is possible.
                    Some((fields, origin)) if name.ends_with("[?]") && fields.len() > 1 => {
                        let choice = self.choose_combination(&format!("{base}[]"), fields.len());
                        Some((fields.get(choice).cloned().into_iter().collect(), origin))
                    }
                    Some((fields, origin)) if name == base && fields.len() > 1 => {
                        Some((fields.into_iter().take(1).collect(), origin))
                    }
                    other => other,
                }
            }
        };
        match op {
            ParameterOp::Plain => value.unwrap_or_else(unknown),
            ParameterOp::Default { word, assign } => {
                let default = self.expand_to_text(word);
                match value {
                    Some((fields, origin)) if fields.iter().any(|field| !field.is_empty()) => {
                        (fields, origin)
                    }
                    // Unset or unknown: the default is at least a value that the author expects.
                    _ => {
                        if *assign {
                            self.set(base, vec![default.text.clone()]);
                        }
                        (vec![default.text], default.origin)
                    }
                }
            }
            ParameterOp::Alternative(word) => {
                let text = self.expand_to_text(word);
                match value {
                    Some((fields, _)) if fields.iter().all(String::is_empty) => {
                        (Vec::new(), TextOrigin::Literal)
                    }
                    _ => (vec![text.text], text.origin),
                }
            }
            ParameterOp::Required(word) => {
                self.expand_to_text(word);
                value.unwrap_or_else(unknown)
            }
            ParameterOp::Length => (vec![UNKNOWN_NAME.to_string()], TextOrigin::Literal),
            ParameterOp::Indirect => {
                let name = known_fields(value).map(|fields| fields.concat());
                name.and_then(|name| self.variable_fields(&name)).unwrap_or_else(unknown)
            }
            ParameterOp::Other(word) => {
                let operator = self.expand_to_text(word).text;
                if let Some((fields, origin)) = value.filter(|_| operator == "@P") {
                    let argv = [Argument::known(format!("${{{name}@P}}"))];
                    self.run_expansions(&argv, &fields.join(" "), origin);
                }
                unknown()
            }
            ParameterOp::Case { upper, all, pattern } => {
                self.expand_to_text(pattern);
                change_known(value, |fields| {
                    let is_whole = pattern.parts.is_empty();
                    is_whole.then(|| fields.iter().map(|f| change_case(f, *upper, *all)).collect())
                })
            }
            ParameterOp::Substring(word) => {
                let range = self.expand_to_text(word).text;
                change_known(value, |fields| match name {
                    // `${@:2}`
                    "@" | "*" => {
                        let from = range.trim().parse::<usize>().ok()?;
                        Some(fields.into_iter().skip(from.saturating_sub(1)).collect())
                    }
                    _ => substring(&fields.join(" "), &range).map(|text| vec![text]),
                })
            }
            ParameterOp::Strip { suffix, longest, pattern } => {
                let pattern = self.expand_to_text(pattern).text;
                change_known(value, |fields| {
                    Some(fields.iter().map(|f| strip(f, &pattern, *suffix, *longest)).collect())
                })
            }
            ParameterOp::Replace { all, pattern, replacement } => {
                let pattern = self.expand_to_text(pattern).text;
                let replacement = self.expand_to_text(replacement).text;
                let plain = !pattern.is_empty()
                    && !pattern.contains(['*', '?', '[', UNKNOWN, UNKNOWN_NAME])
                    && !pattern.starts_with(['#', '%']);
                let count = if *all { usize::MAX } else { 1 };
                let replace = |field: &String| field.replacen(&pattern, &replacement, count);
                change_known(value, |fields| plain.then(|| fields.iter().map(replace).collect()))
            }
        }
    }
}

fn unknown() -> Fields {
    (vec![UNKNOWN.to_string()], TextOrigin::Literal)
}

/// Known fields have a literal origin.
fn known_fields(value: Option<Fields>) -> Option<Vec<String>> {
    value.map(|(fields, _)| fields).filter(|fields| fields.iter().all(|field| is_known(field)))
}

fn change_known(
    value: Option<Fields>,
    change: impl FnOnce(Vec<String>) -> Option<Vec<String>>,
) -> Fields {
    let changed = known_fields(value).and_then(change);
    changed.map_or_else(unknown, |fields| (fields, TextOrigin::Literal))
}

#[derive(Default)]
struct FieldBuilder {
    finished: Vec<Argument>,
    open: Option<Argument>,
    bytes_added: usize,
}

impl FieldBuilder {
    fn current(&mut self) -> &mut Argument {
        self.open.get_or_insert_default()
    }

    fn push(&mut self, text: &str, origin: TextOrigin) {
        self.bytes_added += text.len() + 16;
        let current = self.current();
        current.text.push_str(text);
        current.origin = current.origin.max(origin);
        if current.text.len() > super::shell::MAX_SIZE + MAX_TEXT {
            current.text = UNKNOWN.to_string();
        }
    }

    fn end(&mut self) {
        self.finished.extend(self.open.take());
    }

    /// Adds fields without splitting: `"$@"`.
    fn append(&mut self, values: &[String], origin: TextOrigin) {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.end();
            }
            self.push(value, origin);
        }
    }

    fn split(&mut self, text: &str, origin: TextOrigin, separators: &[char]) {
        for (index, piece) in text.split(|c| separators.contains(&c)).enumerate() {
            if index > 0 {
                self.end();
            }
            if !piece.is_empty() {
                self.push(piece, origin);
                self.current().glob |= piece.contains(['*', '?', '[']);
            }
        }
    }

    fn finish(mut self) -> Vec<Argument> {
        self.end();
        self.finished
    }
}

fn change_case(text: &str, upper: bool, all: bool) -> String {
    let change = |c: char| if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    let mut first = true;
    text.chars().map(|c| if std::mem::take(&mut first) || all { change(c) } else { c }).collect()
}

fn substring(text: &str, range: &str) -> Option<String> {
    let (offset, length) = match range.split_once(':') {
        Some((offset, length)) => (offset, Some(length.trim().parse::<i64>().ok()?)),
        None => (range, None),
    };
    let chars: Vec<char> = text.chars().collect();
    let size = i64::try_from(chars.len()).ok()?;
    let offset = offset.trim().parse::<i64>().ok()?;
    let from = if offset < 0 { (size + offset).max(0) } else { offset.min(size) };
    let to = match length {
        None => size,
        Some(length) if length < 0 => (size + length).max(from),
        Some(length) => from.saturating_add(length).min(size),
    };
    Some(chars.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)?.iter().collect())
}

fn strip(text: &str, pattern: &str, suffix: bool, longest: bool) -> String {
    if text.len() > 4096 {
        return UNKNOWN.to_string();
    }
    let mut cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    // From shortest to longest, or the reverse.
    if suffix != longest {
        cuts.reverse();
    }
    for cut in cuts {
        let (head, tail) = text.split_at(cut);
        let (piece, remaining) = if suffix { (tail, head) } else { (head, tail) };
        if glob_match(pattern, piece) {
            return remaining.to_owned();
        }
    }
    text.to_owned()
}
