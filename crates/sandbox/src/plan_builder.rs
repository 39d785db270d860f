//! A plan that is being made: what is hidden, what of that is shown again, what is protected.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::places::HOME_SECRETS;
use super::plan::{Disk, ExpectedEntry, Mount, PathGuard, PathInfo, PlanInputs};
use ralph_process::trust::AgentWritable;

/// A plan that is being made.
pub(super) struct PlanBuilder<'d> {
    pub(super) disk: &'d dyn Disk,
    /// The home as it is called, and where it is.
    pub(super) home: Option<(PathBuf, PathBuf)>,
    pub(super) mounts: Vec<Mount>,
    /// What is not seen inside, unless it is shown again.
    pub(super) hidden: Vec<PathBuf>,
    pub(super) agent_writable: AgentWritable,
    /// The sources of mounts that an agent could replace by a link after the plan was made.
    pub(super) replaceable: BTreeSet<PathBuf>,
    /// Links that were not followed.
    pub(super) skipped: BTreeSet<PathBuf>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

/// What a path of the machine leads to.
pub(super) enum PathTarget {
    Missing,
    /// Something that may be shown.
    Inside(PathInfo),
    /// An agent may have made a link on the way: it leads out of this directory, which agents can write to.
    Outside {
        dir: PathBuf,
        found: PathInfo,
    },
}

impl PlanBuilder<'_> {
    pub(super) fn hide(&mut self, dir: &Path) {
        if let Some(found) = self.disk.stat(dir).filter(|found| found.is_dir)
            && self.disk.is_accessible(&found.real)
            && !self.hidden.iter().any(|above| found.real.starts_with(above))
        {
            self.mounts.push(Mount::EmptyDir { at: found.real.clone() });
            self.hidden.push(found.real);
        }
    }

    /// Puts a directory of ours in the place of what is there.
    pub(super) fn replace(&mut self, at: &Path, from: PathBuf) {
        self.mounts.retain(|mount| !mount.at().starts_with(at));
        self.mounts.push(Mount::Writable { from, at: at.to_owned() });
        self.hidden.push(at.to_owned());
    }

    /// Follows a path, and decides whether what it leads to may be shown: everything that a plan shows is looked up
    /// here. A link in a directory that agents can write to must not lead out of it.
    pub(super) fn resolve_target(&self, path: &Path) -> PathTarget {
        let resolved = self.agent_writable.resolve(path, |path| self.disk.read_link(path));
        let Some(resolved) = resolved else { return PathTarget::Missing };
        let Some(found) = self.disk.stat(&resolved.target) else { return PathTarget::Missing };
        match resolved.escaped_dir() {
            Some(dir) => PathTarget::Outside { dir: dir.to_owned(), found },
            // Something else by now.
            None if found.real != resolved.target => PathTarget::Missing,
            None => PathTarget::Inside(found),
        }
    }

    /// Returns what a path leads to, if no agent can change that.
    pub(super) fn trusted_target(&self, path: &Path) -> Option<PathBuf> {
        let resolved = self.agent_writable.resolve(path, |path| self.disk.read_link(path))?;
        resolved.is_trusted().then_some(resolved.target)
    }

    /// Looks up a path that `what` names. A link that leads out is noted and not followed.
    pub(super) fn find_shown(&mut self, what: &str, path: &Path) -> Option<PathInfo> {
        match self.resolve_target(path) {
            PathTarget::Missing => None,
            PathTarget::Inside(found) => Some(found),
            PathTarget::Outside { found, .. } => {
                self.note_skipped(what, path, &found.real, "readable");
                None
            }
        }
    }

    /// Notes that a path is not shown, once for each link. `key` is the setting that shows its target all the same.
    fn note_skipped(&mut self, what: &str, path: &Path, target: &Path, key: &str) {
        let mut way: Vec<&Path> = path.ancestors().collect();
        way.reverse();
        let link = way.into_iter().find_map(|part| match self.resolve_target(part) {
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
            "which holds secrets; if you did not make this link, remove it".to_owned()
        } else {
            format!("if you made this link and the agent needs it, add {target} to sandbox.{key}")
        };
        let end = if is_secret { ", " } else { "; " };
        self.notes.push(format!(
            "sandbox: skipped {what} {path}: {it} leads out of {dir} to {target}{end}{advice}"
        ));
    }

    /// Whether something in the home directory holds keys or passwords, or is among them.
    fn is_secret(&self, path: &Path) -> bool {
        let below = self.home.as_ref().and_then(|(_, home)| path.strip_prefix(home).ok());
        below.is_some_and(|below| {
            let is_about =
                |secret: &&str| below.starts_with(secret) || Path::new(secret).starts_with(below);
            HOME_SECRETS.iter().any(is_about)
        })
    }

    /// Shows what is there, if it is: where it is, and where it is called so. `what` names the path for the user.
    pub(super) fn show(&mut self, what: &str, path: &Path, writable: bool) {
        match self.resolve_target(path) {
            PathTarget::Missing => {}
            PathTarget::Inside(found) => {
                for at in self.visible_paths(path, &found.real) {
                    self.mount(found.real.clone(), at, writable);
                }
            }
            PathTarget::Outside { found, .. } => {
                let key = if writable { "writable" } else { "readable" };
                self.note_skipped(what, path, &found.real, key);
            }
        }
    }

    /// Shows what would be hidden otherwise, to be read. Never something that what is hidden is in:
    /// that would show it all.
    pub(super) fn show_hidden(&mut self, what: &str, path: &Path) {
        self.show_if_hidden(what, path, false);
    }

    /// The same, to be written.
    pub(super) fn show_hidden_writable(&mut self, what: &str, path: &Path) {
        self.show_if_hidden(what, path, true);
    }

    fn show_if_hidden(&mut self, what: &str, path: &Path, writable: bool) {
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
            // Each mount takes its time at every start, so that none is made for what is shown already.
            is_hidden && !self.is_shown(&found.real, at, writable)
        });
        if outside && !places.is_empty() {
            let key = if writable { "writable" } else { "readable" };
            return self.note_skipped(what, path, &found.real, key);
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

    /// Takes out the mounts that a later one covers: they cannot be seen, but a source that an agent has removed
    /// would keep the sandbox from starting.
    pub(super) fn drop_covered(&mut self) {
        let mut later: Vec<PathBuf> = Vec::new();
        let mut kept = Vec::new();
        for mount in std::mem::take(&mut self.mounts).into_iter().rev() {
            if !later.iter().any(|at| mount.at().starts_with(at)) {
                later.push(mount.at().to_owned());
                kept.push(mount);
            }
        }
        kept.reverse();
        self.mounts = kept;
    }

    /// What has to be hidden and is inside of this.
    pub(super) fn hidden_below(&self, path: &Path, scratch: &Path) -> Option<PathBuf> {
        let real = self.disk.stat(path)?.real;
        let hidden = self.hidden.iter().map(PathBuf::as_path).chain([scratch]);
        hidden.filter(|dir| *dir != real).find(|dir| dir.starts_with(&real)).map(Path::to_owned)
    }

    /// Hides the sockets and named pipes that services of this machine listen on, wherever they are seen inside: to
    /// use one, its mount need not be writable. One that the settings name is wanted.
    pub(super) fn hide_sockets(&mut self, wanted: &PlanInputs) {
        let home = self.home.as_ref().map(|(_, home)| home.clone());
        let named = wanted.readable.iter().chain(&wanted.writable);
        let named: Vec<PathBuf> =
            named.map(|path| settings_path(path, &wanted.project, home.as_deref())).collect();
        for socket in self.disk.sockets() {
            if named.contains(&socket) {
                continue;
            }
            self.hide_everywhere(&PathInfo { real: socket, is_dir: false });
        }
    }

    /// Hides something of the machine at every place inside where it is seen.
    pub(super) fn hide_everywhere(&mut self, found: &PathInfo) {
        let PathInfo { real, is_dir } = found;
        let elsewhere = self.mounts.iter().filter_map(|mount| match mount {
            Mount::ReadOnly { from, at } | Mount::Writable { from, at } => {
                let below = real.strip_prefix(from).ok()?;
                Some(if below == Path::new("") { at.clone() } else { at.join(below) })
            }
            Mount::EmptyDir { .. } | Mount::EmptyFile { .. } => None,
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

    /// What of the machine is seen at a place.
    fn source_at(&self, at: &Path) -> Option<PathBuf> {
        match self.mounts.iter().rev().find(|mount| at.starts_with(mount.at())) {
            None => Some(at.to_owned()),
            Some(Mount::ReadOnly { from, at: whole } | Mount::Writable { from, at: whole }) => {
                let below = at.strip_prefix(whole).ok()?;
                Some(if below == Path::new("") { from.clone() } else { from.join(below) })
            }
            Some(Mount::EmptyDir { .. } | Mount::EmptyFile { .. }) => None,
        }
    }

    /// Whether `from` is what is seen at this place already, by a mount of something that it is in, and can be
    /// written if it has to be.
    fn is_shown(&self, from: &Path, at: &Path, writable: bool) -> bool {
        let covering = self.mounts.iter().rev().find(|mount| at.starts_with(mount.at()));
        let (whole, whole_at) = match covering {
            Some(Mount::Writable { from, at }) => (from, at),
            Some(Mount::ReadOnly { from, at }) if !writable => (from, at),
            _ => return false,
        };
        at.strip_prefix(whole_at).is_ok_and(|below| {
            if below == Path::new("") { whole == from } else { whole.join(below) == from }
        })
    }

    /// Where something has to be seen: a link that leads to it is not there in the scratch home.
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

    /// Whether the agent can write at this path of the machine.
    pub(super) fn is_writable(&self, path: &Path) -> bool {
        self.writable_mount_of(path).is_some()
    }

    /// The mount by which the agent can write at this path of the machine.
    fn writable_mount_of(&self, path: &Path) -> Option<&Path> {
        match self.mounts.iter().rev().find(|mount| path.starts_with(mount.at())) {
            Some(Mount::Writable { from, at }) if from == at => Some(at),
            _ => None,
        }
    }

    /// Follows the links at and on the way to `path`. Where they lead, whether or not there is anything, and a
    /// guard for each that the agent could change.
    pub(super) fn follow(&self, path: &Path, guards: &mut Vec<PathGuard>) -> PathBuf {
        const MAX_LINKS: usize = 40;
        let parts = |path: &Path| {
            path.components().map(|part| part.as_os_str().to_owned()).rev().collect::<Vec<_>>()
        };
        let (mut rest, mut at, mut links) = (parts(path), PathBuf::from("/"), 0);
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::ParentDir) => {
                    at.pop();
                }
                Some(Component::Normal(name)) => at.push(name),
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::CurDir | Component::Prefix(_)) | None => {}
            }
            if links < MAX_LINKS
                && let Some(link) = self.disk.read_link(&at)
            {
                links += 1;
                rest.extend(parts(&link));
                if self.is_writable(&at) {
                    guards.push(PathGuard { path: at.clone(), was: ExpectedEntry::Link(link) });
                }
                at.pop();
            }
        }
        at
    }

    /// Sees to it that `dir` and each directory on the way to it, in what the agent can write, stays what it is:
    /// they become mounts of their own if they hold something to protect, because a directory that holds mounts can be
    /// renamed and another put in its place, while one that is a mount cannot. One that is not there must not become
    /// a link.
    pub(super) fn protect_ancestors(
        &mut self,
        dir: &Path,
        holds_something: bool,
        guards: &mut Vec<PathGuard>,
    ) {
        let Some(top) = self.writable_mount_of(dir).map(Path::to_owned) else { return };
        let mut way: Vec<&Path> = dir.ancestors().take_while(|above| *above != top).collect();
        way.reverse();
        for dir in way {
            if holds_something && self.disk.stat(dir).is_some_and(|found| found.is_dir) {
                self.mounts.push(Mount::Writable { from: dir.to_owned(), at: dir.to_owned() });
            }
            guards.push(PathGuard { path: dir.to_owned(), was: ExpectedEntry::Directory });
        }
    }

    /// Protects what is in `dir` under these names: against being changed by mounts, against being made
    /// by guards.
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
            let holds_something = names.iter().any(is_there);
            self.protect_ancestors(&dir, holds_something, guards);
        } else if is_link {
            // The agent cannot write there.
            return;
        } else if self.disk.stat(&dir).is_some_and(|found| found.is_dir) {
            self.mounts.push(Mount::Writable { from: dir.clone(), at: dir.clone() });
            guards.push(PathGuard { path: dir.clone(), was: ExpectedEntry::Directory });
        }
        for name in names {
            self.protect_one(&dir.join(name), guards);
        }
    }

    /// The same for one path in a directory that is held.
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
                self.mounts.push(Mount::ReadOnly { from: path.clone(), at: path.clone() });
                if found.is_dir { ExpectedEntry::Directory } else { ExpectedEntry::File }
            }
        };
        guards.push(PathGuard { path, was });
    }
}

/// A path of the settings: `~/` is the home, and what is relative is in the project.
pub(super) fn settings_path(path: &Path, project: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest).components().collect(),
        _ => {
            // `..` in front is that of the project, and passes through nothing in it.
            let (mut from, mut path) = (project, path);
            while let Ok(rest) = path.strip_prefix("..") {
                (from, path) = (from.parent().unwrap_or(from), rest);
            }
            // Joining nothing would leave a slash at the end.
            from.join(path).components().collect()
        }
    }
}
