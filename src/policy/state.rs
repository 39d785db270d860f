//! What a shell knows while it runs: variables, functions, aliases, where it is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::links::Links;
use super::shell::{Command, Program};
use super::value::{Origin, Output};

/// How many values of a variable are kept apart.
const MAX_ALTERNATIVES: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unset,
    Unknown(Origin),
    /// The values that it may have, each a list of fields: more than one if it was set in one of
    /// several branches, more than one field if it is an array.
    Known(Vec<Rc<[String]>>),
}

impl Value {
    fn join(self, other: Value) -> Value {
        match (self, other) {
            (Value::Known(mut ours), Value::Known(theirs)) => {
                for value in theirs {
                    if !ours.contains(&value) {
                        ours.push(value);
                    }
                }
                if ours.len() > MAX_ALTERNATIVES {
                    return Value::Unknown(Origin::Written);
                }
                Value::Known(ours)
            }
            (Value::Unset, Value::Unset) => Value::Unset,
            (Value::Unset, Value::Known(mut values)) | (Value::Known(mut values), Value::Unset) => {
                let empty: Rc<[String]> = Rc::from(Vec::new());
                if !values.contains(&empty) {
                    values.push(empty);
                }
                Value::Known(values)
            }
            (Value::Unknown(a), Value::Unknown(b)) => Value::Unknown(a.max(b)),
            (Value::Unknown(origin), _) | (_, Value::Unknown(origin)) => Value::Unknown(origin),
        }
    }
}

/// A function's body, with the program that its here-documents are in.
#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) body: Rc<Command>,
    pub(super) program: Rc<Program>,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) variables: HashMap<String, Value>,
    /// Whether a variable has more than one value.
    pub(super) several: bool,
    pub(super) functions: Rc<HashMap<String, Function>>,
    pub(super) aliases: Rc<HashMap<String, String>>,
    /// `None` if it is not known any more.
    pub(super) cwd: Option<PathBuf>,
    /// What was written to files by the same command line, and may be run from there.
    pub(super) files: Rc<HashMap<PathBuf, Output>>,
    /// What was linked by it.
    pub(super) links: Rc<Links>,
    pub(super) positional: Rc<[String]>,
    pub(super) zero: String,
    /// What the shell itself reads since `exec <`.
    pub(super) stdin: Option<Output>,
}

impl State {
    pub(super) fn new(cwd: PathBuf) -> Self {
        State {
            variables: HashMap::new(),
            several: false,
            functions: Rc::default(),
            aliases: Rc::default(),
            files: Rc::default(),
            links: Rc::default(),
            cwd: Some(cwd),
            positional: Rc::from(Vec::new()),
            zero: "bash".to_owned(),
            stdin: None,
        }
    }

    /// What may be the case if either may be.
    pub(super) fn join(&mut self, other: State) {
        for (name, theirs) in other.variables {
            let joined = match self.variables.remove(&name) {
                Some(ours) if ours == theirs => ours,
                Some(ours) => ours.join(theirs),
                // Not set here: what it was from outside is not known to be nothing.
                None => theirs,
            };
            self.variables.insert(name, joined);
        }
        self.several = self
            .variables
            .values()
            .any(|value| matches!(value, Value::Known(all) if all.len() > 1));
        if !Rc::ptr_eq(&self.functions, &other.functions) {
            let ours = Rc::make_mut(&mut self.functions);
            for (name, function) in other.functions.iter() {
                ours.insert(name.clone(), function.clone());
            }
        }
        if !Rc::ptr_eq(&self.aliases, &other.aliases) {
            let ours = Rc::make_mut(&mut self.aliases);
            for (name, alias) in other.aliases.iter() {
                ours.insert(name.clone(), alias.clone());
            }
        }
        if !Rc::ptr_eq(&self.files, &other.files) {
            let ours = Rc::make_mut(&mut self.files);
            for (path, output) in other.files.iter() {
                ours.insert(path.clone(), output.clone());
            }
        }
        if self.links != other.links {
            Rc::make_mut(&mut self.links).join(&other.links);
        }
        if self.cwd != other.cwd {
            self.cwd = None;
        }
    }
}
