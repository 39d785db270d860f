//! Links that a command line makes before it goes through them, and directories that it makes for
//! itself.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::rules::flag_values;
use super::value::Arg;
use super::walk::Walk;
use super::{Context, lexical};

/// How many links are kept in mind, and may lead to one another.
const MOST: usize = 50;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Links {
    /// By where links are, where they lead.
    links: HashMap<PathBuf, PathBuf>,
    /// Temporary directories that were not there before, in the order in which they were made.
    made: Vec<PathBuf>,
}

impl Links {
    pub(super) fn add(&mut self, at: PathBuf, target: PathBuf) {
        if self.links.len() < MOST {
            self.links.insert(at, target);
        }
    }

    /// What may be the case if either may be: any of the links, but only what was surely made.
    pub(super) fn join(&mut self, other: &Links) {
        for (at, target) in &other.links {
            self.add(at.clone(), target.clone());
        }
        self.made.retain(|path| other.made.contains(path));
    }

    /// Whether a path is a directory that the same command line made, or below one.
    pub(super) fn is_made(&self, path: &Path) -> bool {
        self.made.iter().any(|made| path.starts_with(made))
    }

    pub(super) fn made(&self) -> &[PathBuf] {
        &self.made
    }

    pub(super) fn set_made(&mut self, made: Vec<PathBuf>) {
        self.made = made;
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

impl Walk<'_> {
    /// Keeps in mind the temporary directories that `mkdir` makes: had they been there, it would fail.
    pub(super) fn made(&mut self, args: &[Arg]) {
        let parents = |arg: &Arg| {
            arg.text.starts_with("--p") || (!arg.text.starts_with("--") && arg.text.contains('p'))
        };
        let flags = args.iter().filter(|arg| arg.text.starts_with('-'));
        // Elsewhere, in a container or on another machine, it is another directory.
        if self.contained.is_some() || self.state.cwd.is_none() || flags.into_iter().any(parents) {
            return;
        }
        let operands = args.iter().filter(|arg| !arg.text.starts_with('-'));
        let scene = self.scene(None);
        let places: Vec<PathBuf> = operands.filter_map(|arg| scene.temporary_place(arg)).collect();
        if !places.is_empty() && self.state.links.made.len() + places.len() <= MOST {
            Rc::make_mut(&mut self.state.links).made.extend(places);
        }
    }

    /// Forgets the directories that were made since: that they were is not sure.
    pub(super) fn only_made(&mut self, before: &[PathBuf]) {
        if self.state.links.made() != before {
            Rc::make_mut(&mut self.state.links).set_made(before.to_vec());
        }
    }

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
