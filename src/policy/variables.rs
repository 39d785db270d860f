//! Variables: what is put into them, and what is shown of them.

use std::rc::Rc;

use super::shell::{Assigned, Assignment, ParameterOp, Part, Redirect, RedirectOp, Simple};
use super::state::Value;
use super::value::{Arg, HOLE, MAX_TEXT, Origin};
use super::walk::Walk;

/// How many variables are kept.
const MAX_VARIABLES: usize = 500;

impl Walk<'_> {
    /// `echo $TOKEN`, with nothing that takes what it prints.
    pub(super) fn shows_a_secret(&self, simple: &Simple, argv: &[Arg]) -> bool {
        let prints = argv
            .first()
            .is_some_and(|arg| ["echo", "printf", "print"].contains(&arg.text.as_str()));
        let goes_elsewhere =
            |redirect: &Redirect| matches!(redirect.op, RedirectOp::Write | RedirectOp::Append);
        let secret = |part: &Part| match part {
            Part::Parameter { name, op: ParameterOp::Plain, .. } => {
                super::rules::is_secret_name(name) && !self.state.variables.contains_key(name)
            }
            _ => false,
        };
        prints
            && !simple.redirects.iter().any(goes_elsewhere)
            && simple.words.iter().any(|word| word.parts.iter().any(secret))
    }

    pub(super) fn assignment(&mut self, assignment: &Assignment, argv: &[Arg]) {
        let Assignment { name, append, index, value } = assignment;
        if let Some(index) = index {
            self.text(index);
        }
        let mut fields = match value {
            Assigned::Word(word) => vec![self.text(word)],
            Assigned::Array(words) => self.arguments(words),
        };
        // An entry of the allow list must name the assignment to allow it.
        let text = fields.first().map(|arg| arg.text.as_str()).unwrap_or_default();
        let mut words = vec![Arg::known(format!("{name}={text}"))];
        words.extend_from_slice(argv);
        self.sets(&words, name, fields.first());
        if *append || index.is_some() {
            let known = match self.state.variables.get(name) {
                Some(Value::Known(all)) if all.len() == 1 => all.first().cloned(),
                None | Some(Value::Unset) => Some(Rc::from(Vec::new())),
                _ => None,
            };
            let Some(old) = known else {
                self.set_unknown(name, Origin::Written);
                return;
            };
            let mut old: Vec<Arg> = old.iter().map(Arg::known).collect();
            if index.is_some() || matches!(value, Assigned::Array(_)) {
                old.append(&mut fields);
            } else if let (Some(last), Some(more)) = (old.last_mut(), fields.first()) {
                last.text.push_str(&more.text);
            } else {
                old.append(&mut fields);
            }
            fields = old;
        }
        let origin = fields.iter().map(|field| field.origin).max().unwrap_or_default();
        if fields.iter().any(Arg::is_hole) && origin != Origin::Written {
            self.set_unknown(name, origin);
        } else {
            self.set(name, fields.into_iter().map(|field| field.text).collect());
        }
    }

    pub(super) fn assign(&mut self, name: &str, value: Arg) {
        if value.is_hole() && value.origin != Origin::Written {
            self.set_unknown(name, value.origin);
        } else {
            self.set(name, vec![value.text]);
        }
    }

    pub(super) fn set(&mut self, name: &str, fields: Vec<String>) {
        if self.state.variables.len() >= MAX_VARIABLES {
            self.too_complicated();
            return;
        }
        let fields = match fields.iter().map(String::len).sum::<usize>() > MAX_TEXT {
            true => vec![HOLE.to_string()],
            false => fields,
        };
        self.state.several |= fields.len() > 1;
        self.state.variables.insert(name.to_owned(), Value::Known(vec![Rc::from(fields)]));
    }

    pub(super) fn set_unknown(&mut self, name: &str, origin: Origin) {
        if self.state.variables.len() < MAX_VARIABLES {
            self.state.variables.insert(name.to_owned(), Value::Unknown(origin));
        } else {
            self.too_complicated();
        }
    }
}
