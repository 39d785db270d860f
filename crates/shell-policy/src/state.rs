//! What a shell knows while it runs: variables, functions, aliases, where it is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::links::LinkTable;
use super::shell::{Program, ShellCommand};
use super::value::{KnownOutput, TextOrigin};

/// How many values of a variable are kept apart.
const MAX_ALTERNATIVES: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unset,
    Unknown(TextOrigin),
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

/// A function, which may have been defined in one of several branches.
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

/// A function's body, with the program that its here-documents are in.
#[derive(Debug, Clone)]
pub(super) struct FunctionBody {
    pub(super) body: Rc<ShellCommand>,
    pub(super) program: Rc<Program>,
}

/// The value outside a function of a variable that is local to it.
#[derive(Debug, Clone)]
pub(super) struct LocalVariable {
    outer: Option<Value>,
    /// Whether it is local whichever branches were taken.
    is_certain: bool,
}

#[derive(Debug, Clone)]
pub(super) struct ShellState {
    pub(super) variables: HashMap<String, Value>,
    /// Whether a variable has more than one value.
    pub(super) may_vary: bool,
    /// The local variables of the current function; `None` outside of functions.
    pub(super) locals: Option<HashMap<String, LocalVariable>>,
    pub(super) functions: Rc<HashMap<String, Function>>,
    pub(super) aliases: Rc<HashMap<String, String>>,
    /// `None` if it is not known any more.
    pub(super) cwd: Option<PathBuf>,
    /// What was written to files by the same command line, and may be run from there.
    pub(super) files: Rc<HashMap<PathBuf, KnownOutput>>,
    /// What was linked by it.
    pub(super) links: Rc<LinkTable>,
    pub(super) positional: Rc<[String]>,
    pub(super) script_name: String,
    /// What the shell itself reads since `exec <`.
    pub(super) stdin: Option<KnownOutput>,
}

impl ShellState {
    pub(super) fn new(cwd: PathBuf) -> Self {
        ShellState {
            variables: HashMap::new(),
            may_vary: false,
            locals: None,
            functions: Rc::default(),
            aliases: Rc::default(),
            files: Rc::default(),
            links: Rc::default(),
            cwd: Some(cwd),
            positional: Rc::from(Vec::new()),
            script_name: "bash".to_owned(),
            stdin: None,
        }
    }

    fn count_alternatives(&mut self) {
        self.may_vary = self
            .variables
            .values()
            .any(|value| matches!(value, Value::Known(all) if all.len() > 1));
    }

    /// Makes a variable local to the current function, if there is one.
    pub(super) fn declare_local(&mut self, name: &str) {
        let Some(locals) = &mut self.locals else { return };
        let outer = || LocalVariable { outer: self.variables.get(name).cloned(), is_certain: true };
        locals.entry(name.to_owned()).or_insert_with(outer).is_certain = true;
    }

    /// Gives the local variables of a function their outer values again.
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

    /// Takes away a function, or what a name stands for if that is no variable.
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

    /// What may be the case if either may be.
    pub(super) fn join(&mut self, other: ShellState) {
        for (name, theirs) in other.variables {
            let joined = match self.variables.remove(&name) {
                Some(ours) if ours == theirs => ours,
                Some(ours) => ours.join(theirs),
                // Not set here: what it was from outside is not known to be nothing.
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
