//! Links that a command line makes before it goes through them.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::rules::flag_values;
use super::value::Arg;
use super::walk::Walk;
use super::{Context, lexical};

/// How many links are kept in mind, and may lead to one another.
const MOST: usize = 50;

/// By where they are, where they lead.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Links(HashMap<PathBuf, PathBuf>);

impl Links {
    pub(super) fn add(&mut self, at: PathBuf, target: PathBuf) {
        if self.0.len() < MOST {
            self.0.insert(at, target);
        }
    }

    pub(super) fn extend(&mut self, other: &Links) {
        for (at, target) in &other.0 {
            self.add(at.clone(), target.clone());
        }
    }

    /// Where an absolute path leads, by these links and by those that are there already.
    pub(super) fn resolve(&self, context: &Context<'_>, path: &Path) -> Option<PathBuf> {
        let mut path = path.to_path_buf();
        for _ in 0..=MOST {
            match self.follow(&path) {
                Some(next) => path = next,
                None => return (context.resolve)(&path),
            }
        }
        None
    }

    /// The path with the first link in it replaced.
    fn follow(&self, path: &Path) -> Option<PathBuf> {
        if self.0.is_empty() {
            return None;
        }
        let mut reached = PathBuf::new();
        let mut components = path.components();
        while let Some(component) = components.next() {
            match component {
                Component::ParentDir => {
                    reached.pop();
                }
                other => reached.push(other),
            }
            if let Some(target) = self.0.get(&reached) {
                let directory = reached.parent()?.join(target);
                return Some(directory.join(components.as_path()));
            }
        }
        None
    }
}

impl Walk<'_> {
    /// Keeps in mind the links that `ln -s` makes. Whether the last word is a directory that is there, so
    /// that the link is in it, is not known.
    pub(super) fn linked(&mut self, args: &[Arg]) {
        let is_flag = |arg: &&Arg| arg.text.starts_with('-') && arg.text.len() > 1;
        let soft = args.iter().filter(is_flag).any(|arg| {
            arg.text == "--symbolic" || (!arg.text.starts_with("--") && arg.text.contains('s'))
        });
        let operands: Vec<&Arg> = args.iter().filter(|arg| !is_flag(arg)).collect();
        let Some(cwd) = self.state.cwd.clone().filter(|_| soft) else { return };
        let into = flag_values(args, &["-t", "--target-directory"]).into_iter().next();
        let (targets, place) = match (&into, operands.as_slice()) {
            (Some(into), targets) => (targets, into.text.as_str()),
            (None, [_]) => (operands.as_slice(), "."),
            (None, [targets @ .., last]) => (targets, last.text.as_str()),
            (None, []) => return,
        };
        let links = Rc::make_mut(&mut self.state.links);
        let place = cwd.join(place);
        for target in targets.iter().filter(|target| target.is_known()) {
            let target = Path::new(&target.text);
            let below = target.file_name().map(|name| place.join(name));
            for at in [lexical(&place), below.and_then(|at| lexical(&at))].into_iter().flatten() {
                // A link to itself would lead nowhere, and a directory is no link.
                if lexical(&cwd.join(target)) != Some(at.clone()) && at != cwd {
                    links.add(at, target.to_path_buf());
                }
            }
        }
    }
}
