//! Builds a plan: hides, shows again, protects.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::places::PLACES;
use super::plan::{Disk, ExpectedEntry, Mount, PathGuard, PathInfo, PlanInputs};
use ralph_process::file_names::NameRule;
use ralph_process::trust::AgentWritable;

pub(super) struct PlanBuilder<'d> {
    pub(super) disk: &'d dyn Disk,
    /// The home directory as named, and resolved.
    pub(super) home: Option<(PathBuf, PathBuf)>,
    pub(super) mounts: Vec<Mount>,
    pub(super) hidden: Vec<PathBuf>,
    pub(super) agent_writable: AgentWritable,
    /// An agent could later replace these by a link.
    pub(super) replaceable: BTreeSet<PathBuf>,
    pub(super) skipped: BTreeSet<PathBuf>,
    pub(super) notes: Vec<String>,
}

pub(super) enum PathTarget {
    Missing,
    Inside(PathInfo),
    /// Behind a link out of this directory that an agent may have made.
    Outside {
        dir: PathBuf,
        found: PathInfo,
    },
}

impl PlanBuilder<'_> {
    pub(super) fn names(&self) -> NameRule {
        self.agent_writable.names()
    }

    /// The name that the disk has for an existing path, which is what Seatbelt compares.
    fn stored_path(&self, path: &Path) -> PathBuf {
        let found = self.disk.stat(path).map(|found| found.real);
        let is_same = |real: &PathBuf| self.names().is_same_path(real, path);
        found.filter(is_same).unwrap_or_else(|| path.to_owned())
    }

    pub(super) fn hide(&mut self, dir: &Path) {
        if let Some(found) = self.disk.stat(dir).filter(|found| found.is_dir)
            && self.disk.is_accessible(&found.real)
            && !self.hidden.iter().any(|above| found.real.starts_with(above))
        {
            self.mounts.push(Mount::EmptyDir { at: found.real.clone() });
            self.hidden.push(found.real);
        }
    }

    /// Covers `at` with a scratch directory.
    pub(super) fn replace(&mut self, at: &Path, from: PathBuf) {
        self.mounts.retain(|mount| !mount.at().starts_with(at));
        self.mounts.push(Mount::Writable { from, at: at.to_owned() });
        self.hidden.push(at.to_owned());
    }

    /// Looks up what a plan shows. A link in an agent-writable directory must not lead out of it.
    pub(super) fn resolve_target(&self, path: &Path) -> PathTarget {
        let resolved = self.agent_writable.resolve(path, |path| self.disk.read_link(path));
        let Some(resolved) = resolved else { return PathTarget::Missing };
        let Some(found) = self.disk.stat(&resolved.target) else { return PathTarget::Missing };
        match resolved.escaped_dir() {
            // On a Mac, the name may differ in case only.
            Some(dir) if !found.real.starts_with(dir) => {
                PathTarget::Outside { dir: dir.to_owned(), found }
            }
            // Changed meanwhile.
            _ if !self.names().is_same_path(&found.real, &resolved.target) => PathTarget::Missing,
            _ => PathTarget::Inside(found),
        }
    }

    /// The target, if no agent can change it.
    pub(super) fn trusted_target(&self, path: &Path) -> Option<PathBuf> {
        let resolved = self.agent_writable.resolve(path, |path| self.disk.read_link(path))?;
        resolved.is_trusted().then_some(resolved.target)
    }

    /// Notes links that lead out and does not follow them.
    pub(super) fn find_shown(&mut self, label: &str, path: &Path) -> Option<PathInfo> {
        match self.resolve_target(path) {
            PathTarget::Missing => None,
            PathTarget::Inside(found) => Some(found),
            PathTarget::Outside { found, .. } => {
                self.note_skipped(label, path, &found.real, "readable");
                None
            }
        }
    }

    /// Notes a skipped link once. `key` is the setting that would show it.
    fn note_skipped(&mut self, label: &str, path: &Path, target: &Path, key: &str) {
        let mut path_prefixes: Vec<&Path> = path.ancestors().collect();
        path_prefixes.reverse();
        let link = path_prefixes.into_iter().find_map(|part| match self.resolve_target(part) {
            PathTarget::Outside { dir, .. } => Some((part, dir)),
            PathTarget::Inside(_) | PathTarget::Missing => None,
        });
        let Some((link, dir)) = link else { return };
        if !self.skipped.insert(link.to_owned()) {
            return;
        }
        let it = if link == path { "it".to_owned() } else { link.display().to_string() };
        let is_secret = self.is_secret(target);
        let (path, dir, target) = (path.display(), dir.display(), target.display());
        let advice = if is_secret {
            "which contains secrets; remove this link if you did not create it".to_owned()
        } else {
            format!(
                "if you created this link and the agent needs it, add {target} to \
                     sandbox.{key}"
            )
        };
        let end = if is_secret { ", " } else { "; " };
        self.notes.push(format!(
            "sandbox: skipped {label} {path}: {it} points out of {dir} to {target}{end}{advice}"
        ));
    }

    fn is_secret(&self, path: &Path) -> bool {
        let below = self.home.as_ref().and_then(|(_, home)| path.strip_prefix(home).ok());
        below.is_some_and(|below| {
            let names = self.names();
            let is_about = |secret: &&str| {
                let secret = Path::new(secret);
                names.starts_with(below, secret) || names.starts_with(secret, below)
            };
            PLACES.home_secrets.iter().any(is_about)
        })
    }

    /// Shows an existing path, at its real and its named place.
    pub(super) fn show(&mut self, label: &str, path: &Path, writable: bool) {
        match self.resolve_target(path) {
            PathTarget::Missing => {}
            PathTarget::Inside(found) => {
                for at in self.visible_paths(path, &found.real) {
                    self.mount(found.real.clone(), at, writable);
                }
            }
            PathTarget::Outside { found, .. } => {
                let key = if writable { "writable" } else { "readable" };
                self.note_skipped(label, path, &found.real, key);
            }
        }
    }

    /// Shows a hidden path, but never one that contains hidden directories.
    pub(super) fn show_hidden(&mut self, label: &str, path: &Path) {
        self.show_if_hidden(label, path, false);
    }

    pub(super) fn show_hidden_writable(&mut self, label: &str, path: &Path) {
        self.show_if_hidden(label, path, true);
    }

    fn show_if_hidden(&mut self, label: &str, path: &Path, writable: bool) {
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return;
        }
        let (found, outside) = match self.resolve_target(path) {
            PathTarget::Missing => return,
            PathTarget::Inside(found) => (found, false),
            PathTarget::Outside { found, .. } => (found, true),
        };
        if self.hidden.iter().any(|dir| dir.starts_with(&found.real)) {
            return;
        }
        let mut places = self.visible_paths(path, &found.real);
        places.retain(|at| {
            let is_hidden = self.hidden.iter().any(|dir| at.starts_with(dir));
            // Each mount costs time at every start.
            is_hidden && !self.is_shown(&found.real, at, writable)
        });
        if outside && !places.is_empty() {
            let key = if writable { "writable" } else { "readable" };
            return self.note_skipped(label, path, &found.real, key);
        }
        for at in places {
            self.mount(found.real.clone(), at, writable);
        }
    }

    fn mount(&mut self, from: PathBuf, at: PathBuf, writable: bool) {
        let resolved = self.agent_writable.resolve(&from, |_| None);
        if resolved.is_none_or(|resolved| resolved.visited.iter().any(|dir| *dir != from)) {
            self.replaceable.insert(from.clone());
        }
        self.mounts.push(if writable {
            Mount::Writable { from, at }
        } else {
            Mount::ReadOnly { from, at }
        });
    }

    /// Removes covered mounts: a missing source would keep the sandbox from starting.
    pub(super) fn drop_covered(&mut self) {
        let mut later: Vec<PathBuf> = Vec::new();
        let mut visible = Vec::new();
        for mount in std::mem::take(&mut self.mounts).into_iter().rev() {
            if !later.iter().any(|at| mount.at().starts_with(at)) {
                later.push(mount.at().to_owned());
                visible.push(mount);
            }
        }
        visible.reverse();
        self.mounts = visible;
    }

    pub(super) fn hidden_below(&self, path: &Path, scratch: &Path) -> Option<PathBuf> {
        let real = self.disk.stat(path)?.real;
        let hidden = self.hidden.iter().map(PathBuf::as_path).chain([scratch]);
        hidden.filter(|dir| *dir != real).find(|dir| dir.starts_with(&real)).map(Path::to_owned)
    }

    /// Hides service sockets and named pipes, which can be used on read-only mounts, too. The
    /// settings can name exceptions.
    pub(super) fn hide_sockets(&mut self, inputs: &PlanInputs) {
        let home = self.home.as_ref().map(|(_, home)| home.clone());
        let named = inputs.readable.iter().chain(&inputs.writable);
        let named: Vec<PathBuf> =
            named.map(|path| settings_path(path, &inputs.project, home.as_deref())).collect();
        for socket in self.disk.sockets() {
            if named.contains(&socket) {
                continue;
            }
            self.hide_everywhere(&PathInfo { real: socket, is_dir: false });
        }
    }

    pub(super) fn hide_everywhere(&mut self, found: &PathInfo) {
        let PathInfo { real, is_dir } = found;
        let elsewhere = self.mounts.iter().filter_map(|mount| {
            let below = real.strip_prefix(mount.source()?).ok()?;
            Some(join_below(mount.at(), below))
        });
        let places: BTreeSet<PathBuf> = std::iter::once(real.clone()).chain(elsewhere).collect();
        for at in places {
            if self.source_at(&at).as_ref() == Some(real) {
                self.mounts.push(match is_dir {
                    true => Mount::EmptyDir { at },
                    false => Mount::EmptyFile { at },
                });
            }
        }
    }

    fn source_at(&self, at: &Path) -> Option<PathBuf> {
        match self.mounts.iter().rev().find(|mount| at.starts_with(mount.at())) {
            None => Some(at.to_owned()),
            Some(mount) => Some(join_below(mount.source()?, at.strip_prefix(mount.at()).ok()?)),
        }
    }

    /// Whether the mount of a parent already shows it.
    fn is_shown(&self, from: &Path, at: &Path, writable: bool) -> bool {
        let covering = self.mounts.iter().rev().find(|mount| at.starts_with(mount.at()));
        let (source, source_at) = match covering {
            Some(Mount::Writable { from, at }) => (from, at),
            Some(Mount::ReadOnly { from, at }) if !writable => (from, at),
            _ => return false,
        };
        at.strip_prefix(source_at).is_ok_and(|below| join_below(source, below) == from)
    }

    /// The places where a path must be visible: links in the home directory do not exist in the
    /// scratch home.
    fn visible_paths(&self, path: &Path, real: &Path) -> Vec<PathBuf> {
        let mut places = vec![real.to_owned()];
        if let Some((named, home)) = &self.home
            && let Ok(below) = path.strip_prefix(named).or_else(|_| path.strip_prefix(home))
            && home.join(below) != real
        {
            places.push(home.join(below));
        }
        places
    }

    pub(super) fn is_writable(&self, path: &Path) -> bool {
        self.writable_mount_of(path).is_some()
    }

    fn writable_mount_of(&self, path: &Path) -> Option<&Path> {
        match self.mounts.iter().rev().find(|mount| path.starts_with(mount.at())) {
            Some(Mount::Writable { from, at }) if from == at => Some(at),
            _ => None,
        }
    }

    /// Follows all links, adding a guard for each that the agent could change.
    pub(super) fn follow(&self, path: &Path, guards: &mut Vec<PathGuard>) -> PathBuf {
        let resolved = self.agent_writable.resolve(path, |at| {
            let link = self.disk.read_link(at)?;
            if self.is_writable(at) {
                guards.push(PathGuard { path: at.into(), was: ExpectedEntry::Link(link.clone()) });
            }
            Some(link)
        });
        resolved.map_or_else(|| path.to_owned(), |resolved| resolved.target)
    }

    /// Keeps `dir` and its writable parents in place. A directory that contains mounts can be
    /// renamed, but a mount cannot, so parents of protected files become mounts. Missing ones must
    /// not become links.
    pub(super) fn protect_ancestors(
        &mut self,
        dir: &Path,
        has_protected: bool,
        guards: &mut Vec<PathGuard>,
    ) {
        let Some(top) = self.writable_mount_of(dir).map(Path::to_owned) else { return };
        let mut ancestors: Vec<&Path> = dir.ancestors().take_while(|above| *above != top).collect();
        ancestors.reverse();
        for dir in ancestors {
            if has_protected && self.disk.stat(dir).is_some_and(|found| found.is_dir) {
                let dir = self.stored_path(dir);
                self.mounts.push(Mount::Writable { from: dir.clone(), at: dir });
            }
            guards.push(PathGuard { path: dir.to_owned(), was: ExpectedEntry::Directory });
        }
    }

    /// Protects names in `dir`: by mounts against changes, by guards against creation.
    pub(super) fn protect<'n>(
        &mut self,
        dir: &Path,
        names: impl Iterator<Item = &'n OsStr>,
        guards: &mut Vec<PathGuard>,
    ) {
        let is_link = self.disk.read_link(dir).is_some();
        let dir = if is_link { self.follow(dir, guards) } else { dir.to_owned() };
        let names: Vec<&OsStr> = names.collect();
        if self.is_writable(&dir) {
            let is_there = |name: &&OsStr| {
                let path = dir.join(name);
                self.disk.read_link(&path).is_some() || self.disk.stat(&path).is_some()
            };
            let has_protected = names.iter().any(is_there);
            self.protect_ancestors(&dir, has_protected, guards);
        } else if is_link {
            return;
        } else if self.disk.stat(&dir).is_some_and(|found| found.is_dir) {
            let stored = self.stored_path(&dir);
            self.mounts.push(Mount::Writable { from: stored.clone(), at: stored });
            guards.push(PathGuard { path: dir.clone(), was: ExpectedEntry::Directory });
        }
        for name in names {
            self.protect_one(&dir.join(name), guards);
        }
    }

    pub(super) fn protect_one(&mut self, path: &Path, guards: &mut Vec<PathGuard>) {
        let mut path = path.to_owned();
        if self.disk.read_link(&path).is_some() {
            path = self.follow(&path, guards);
            if !self.is_writable(&path) {
                return;
            }
            if let Some(parent) = path.parent() {
                self.protect_ancestors(parent, true, guards);
            }
        }
        let was = match self.disk.stat(&path) {
            None => ExpectedEntry::Nothing,
            Some(found) => {
                let stored = self.stored_path(&path);
                self.mounts.push(Mount::ReadOnly { from: stored.clone(), at: stored });
                if found.is_dir { ExpectedEntry::Directory } else { ExpectedEntry::File }
            }
        };
        guards.push(PathGuard { path, was });
    }
}

/// Joining an empty path would add a slash.
fn join_below(path: &Path, below: &Path) -> PathBuf {
    path.join(below).components().collect()
}

/// Expands `~/`; relative paths are relative to the project.
pub(super) fn settings_path(path: &Path, project: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => join_below(home, rest),
        _ => {
            // Leading `..` must not pass through links in the project.
            let (mut from, mut path) = (project, path);
            while let Ok(rest) = path.strip_prefix("..") {
                (from, path) = (from.parent().unwrap_or(from), rest);
            }
            join_below(from, path)
        }
    }
}
