//! Links and temporary directories that a command line creates before it uses them.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::rules::flag_values;
use super::value::Argument;
use super::walk::ShellWalker;
use super::{Context, normalize_path};

const MAX_LINKS: usize = 50;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LinkTable {
    links: HashMap<PathBuf, PathBuf>,
    /// In order of creation.
    pub(super) created_dirs: Vec<PathBuf>,
}

impl LinkTable {
    pub(super) fn add(&mut self, at: PathBuf, target: PathBuf) {
        if self.links.len() < MAX_LINKS {
            self.links.insert(at, target);
        }
    }

    /// Joins two branches: keeps links of either, directories of both.
    pub(super) fn join(&mut self, other: &LinkTable) {
        for (at, target) in &other.links {
            self.add(at.clone(), target.clone());
        }
        self.created_dirs.retain(|path| other.created_dirs.contains(path));
    }

    pub(super) fn is_created(&self, path: &Path) -> bool {
        self.created_dirs.iter().any(|created| path.starts_with(created))
    }

    /// Resolves a path by recorded and existing links.
    pub(super) fn resolve(&self, context: &Context<'_>, path: &Path) -> Option<PathBuf> {
        let mut path = path.to_path_buf();
        for _ in 0..=MAX_LINKS {
            match self.resolve_first_link(&path) {
                Some(next) => path = next,
                None => return (context.resolve)(&path),
            }
        }
        None
    }

    fn resolve_first_link(&self, path: &Path) -> Option<PathBuf> {
        if self.links.is_empty() {
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
            if let Some(target) = self.links.get(&reached) {
                let directory = reached.parent()?.join(target);
                return Some(directory.join(components.as_path()));
            }
        }
        None
    }
}

impl ShellWalker<'_> {
    /// Records temporary directories. Without `-p`, `mkdir` fails if they exist.
    pub(super) fn created_dirs(&mut self, args: &[Argument]) {
        let parents = |arg: &Argument| {
            arg.text.starts_with("--p") || (!arg.text.starts_with("--") && arg.text.contains('p'))
        };
        let flags = args.iter().filter(|arg| arg.text.starts_with('-'));
        // In a container or on another machine it is another directory.
        if self.container.is_some() || self.state.cwd.is_none() || flags.into_iter().any(parents) {
            return;
        }
        let operands = args.iter().filter(|arg| !arg.text.starts_with('-'));
        let command_context = self.command_context(None);
        let places: Vec<PathBuf> =
            operands.filter_map(|arg| command_context.temporary_path(arg)).collect();
        if !places.is_empty() && self.state.links.created_dirs.len() + places.len() <= MAX_LINKS {
            Rc::make_mut(&mut self.state.links).created_dirs.extend(places);
        }
    }

    /// Forgets directories that may not have been created.
    pub(super) fn forget_created_since(&mut self, before: &[PathBuf]) {
        if self.state.links.created_dirs != before {
            Rc::make_mut(&mut self.state.links).created_dirs = before.to_vec();
        }
    }

    /// Records links. Each may also be inside the last operand, if that is a directory.
    pub(super) fn record_links(&mut self, args: &[Argument]) {
        let is_flag = |arg: &&Argument| arg.text.starts_with('-') && arg.text.len() > 1;
        let soft = args.iter().filter(is_flag).any(|arg| {
            arg.text == "--symbolic" || (!arg.text.starts_with("--") && arg.text.contains('s'))
        });
        let operands: Vec<&Argument> = args.iter().filter(|arg| !is_flag(arg)).collect();
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
            for at in [normalize_path(&place), below.and_then(|at| normalize_path(&at))]
                .into_iter()
                .flatten()
            {
                if normalize_path(&cwd.join(target)) != Some(at.clone()) && at != cwd {
                    links.add(at, target.to_path_buf());
                }
            }
        }
    }
}
