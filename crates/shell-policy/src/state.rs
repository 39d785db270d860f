//! State of a shell: variables, functions, aliases, working directory.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::PathBuf;
use std::rc::Rc;

use super::links::LinkTable;
use super::shell::{Program, ShellCommand};
use super::value::{KnownOutput, TextOrigin};

const MAX_ALTERNATIVES: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unset,
    Unknown(TextOrigin),
    /// Several values after branches, several fields for an array.
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
                    return Value::Unknown(TextOrigin::Literal);
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

#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) bodies: Vec<FunctionBody>,
    pub(super) may_be_unset: bool,
}

impl Function {
    fn join(&mut self, other: &Function) {
        for body in &other.bodies {
            if !self.bodies.iter().any(|known| Rc::ptr_eq(&known.body, &body.body)) {
                self.bodies.push(body.clone());
            }
        }
        self.may_be_unset |= other.may_be_unset;
    }
}

#[derive(Debug, Clone)]
pub(super) struct FunctionBody {
    pub(super) body: Rc<ShellCommand>,
    pub(super) program: Rc<Program>,
}

/// The outer value of a local variable.
#[derive(Debug, Clone)]
pub(super) struct LocalVariable {
    outer: Option<Value>,
    /// Whether it is local in every branch.
    is_certain: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ShellState {
    pub(super) variables: HashMap<String, Value>,
    pub(super) may_vary: bool,
    /// Locals of the current function; `None` outside of functions.
    pub(super) locals: Option<HashMap<String, LocalVariable>>,
    pub(super) functions: Rc<HashMap<String, Function>>,
    pub(super) aliases: Rc<HashMap<String, String>>,
    /// `None` if unknown.
    pub(super) cwd: Option<PathBuf>,
    /// Contents of files that the same command line wrote.
    pub(super) files: Rc<HashMap<PathBuf, KnownOutput>>,
    pub(super) links: Rc<LinkTable>,
    pub(super) positional: Rc<[String]>,
    pub(super) script_name: String,
    /// Input of the shell itself since `exec <`.
    pub(super) stdin: Option<KnownOutput>,
}

impl ShellState {
    pub(super) fn new(cwd: PathBuf) -> Self {
        ShellState { cwd: Some(cwd), script_name: "bash".to_owned(), ..ShellState::default() }
    }

    fn count_alternatives(&mut self) {
        self.may_vary = self
            .variables
            .values()
            .any(|value| matches!(value, Value::Known(all) if all.len() > 1));
    }

    pub(super) fn declare_local(&mut self, name: &str) {
        let Some(locals) = &mut self.locals else { return };
        let outer = || LocalVariable { outer: self.variables.get(name).cloned(), is_certain: true };
        locals.entry(name.to_owned()).or_insert_with(outer).is_certain = true;
    }

    pub(super) fn leave_function(&mut self, outer: Option<HashMap<String, LocalVariable>>) {
        for (name, local) in std::mem::replace(&mut self.locals, outer).unwrap_or_default() {
            let inner = self.variables.remove(&name).filter(|_| !local.is_certain);
            let value = match (inner, local.outer) {
                (Some(inner), Some(outer)) => Some(inner.join(outer)),
                (inner, outer) => outer.or(inner),
            };
            if let Some(value) = value {
                self.variables.insert(name, value);
            }
        }
        self.count_alternatives();
    }

    /// `unset -f name`, or `unset name` without such a variable.
    pub(super) fn unset_function(&mut self, name: &str, certain: bool) {
        if !self.functions.contains_key(name) {
            return;
        }
        let functions = Rc::make_mut(&mut self.functions);
        if certain {
            functions.remove(name);
        } else if let Some(function) = functions.get_mut(name) {
            function.may_be_unset = true;
        }
    }

    /// Joins the states of two branches.
    pub(super) fn join(&mut self, other: ShellState) {
        for (name, theirs) in other.variables {
            let joined = match self.variables.remove(&name) {
                Some(ours) if ours == theirs => ours,
                Some(ours) => ours.join(theirs),
                // Not set in this branch, but perhaps in the environment.
                None => theirs,
            };
            self.variables.insert(name, joined);
        }
        self.count_alternatives();
        if let (Some(ours), Some(theirs)) = (&mut self.locals, other.locals) {
            for (name, local) in ours.iter_mut() {
                local.is_certain &= theirs.get(name).is_some_and(|local| local.is_certain);
            }
            for (name, local) in theirs {
                ours.entry(name).or_insert(LocalVariable { is_certain: false, ..local });
            }
        }
        if !Rc::ptr_eq(&self.functions, &other.functions) {
            let ours = Rc::make_mut(&mut self.functions);
            for (name, function) in ours.iter_mut() {
                function.may_be_unset |= !other.functions.contains_key(name);
            }
            for (name, theirs) in other.functions.iter() {
                match ours.get_mut(name) {
                    Some(function) => function.join(theirs),
                    None => {
                        let function = Function { may_be_unset: true, ..theirs.clone() };
                        ours.insert(name.clone(), function);
                    }
                }
            }
        }
        add_all(&mut self.aliases, &other.aliases);
        add_all(&mut self.files, &other.files);
        if self.links != other.links {
            Rc::make_mut(&mut self.links).join(&other.links);
        }
        if self.cwd != other.cwd {
            self.cwd = None;
        }
    }
}

fn add_all<K: Clone + Eq + Hash, V: Clone>(
    ours: &mut Rc<HashMap<K, V>>,
    theirs: &Rc<HashMap<K, V>>,
) {
    if !Rc::ptr_eq(ours, theirs) {
        let theirs = theirs.iter().map(|(key, value)| (key.clone(), value.clone()));
        Rc::make_mut(ours).extend(theirs);
    }
}
