//! What a sandbox shows of the machine and what it hides, as plain data.
//!
//! [`plan`] looks at the machine through [`Disk`] alone and changes nothing, so that each rule can be
//! tested by a table. What comes out is a list of mounts in the order in which they are made (a later
//! one covers an earlier one), the environment, and what must not appear in the project.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::environment;
use super::git;
use super::home;
use super::places::{
    CERTIFICATES, HIDDEN_DIRS, HIDDEN_FILES, KERNEL_PATHS, PROTECTED_DIRS, PROTECTED_PATHS,
    RALPH_STATE_PATHS, SHOWN_DIRS,
};
use super::plan_builder::{PathTarget, PlanBuilder, settings_path};
use super::tools;
use ralph_process::trust::AgentWritable;

/// Where ralph itself is inside: it makes the listeners, and the agent's hooks call it.
pub const INSIDE_DIR: &str = "/run/ralph";

/// What there is on the machine.
pub trait Disk {
    /// What is at a path, links followed.
    fn stat(&self, path: &Path) -> Option<PathInfo>;
    /// Where a link points to, if there is one at this path.
    fn read_link(&self, path: &Path) -> Option<PathBuf>;
    /// A small file of text.
    fn read(&self, path: &Path) -> Option<String>;
    /// The names in a directory.
    fn list_names(&self, directory: &Path) -> Vec<OsString>;
    /// Whether this user may read a file, or look for anything in a directory.
    fn is_accessible(&self, path: &Path) -> bool;
    /// The files that services listen on, sockets and named pipes, by their paths without links.
    fn sockets(&self) -> Vec<PathBuf>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    /// Its path without links.
    pub real: PathBuf,
    pub is_dir: bool,
}

/// What a sandbox is made for.
#[derive(Debug, Clone, Default)]
pub struct PlanInputs {
    /// The project, by its path without links.
    pub project: PathBuf,
    pub home: Option<PathBuf>,
    /// Where ralph keeps its own, which is hidden.
    pub ralph_home: PathBuf,
    /// A directory outside of the project that is the sandbox's own: `home`, `tmp` and more are in it.
    pub scratch: PathBuf,
    /// This program.
    pub ralph: PathBuf,
    /// The name of the agent's adapter.
    pub adapter: &'static str,
    /// The agent's program, if it was found.
    pub agent: Option<PathBuf>,
    /// The environment that the agent would have without a sandbox.
    pub env: Vec<(OsString, OsString)>,
    /// Names that the settings set on purpose: they stay, whatever they look like.
    pub kept_variables: Vec<OsString>,
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub network: NetworkMode,
    /// The user that runs this, and its group.
    pub user: (u32, u32),
    /// Directories that agents can write to, besides what this sandbox makes writable.
    pub agent_writable: AgentWritable,
    /// The roots of other projects of ralph inside this one, by their paths without links.
    pub nested_projects: Vec<PathBuf>,
}

/// What of the network is there inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkMode {
    #[default]
    None,
    /// Only our proxy, and these ports of this machine.
    Proxy { ports: Vec<u16> },
    /// All of it.
    Full,
}

/// One thing that is seen inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    ReadOnly {
        from: PathBuf,
        at: PathBuf,
    },
    Writable {
        from: PathBuf,
        at: PathBuf,
    },
    /// An empty directory in the place of what is there.
    EmptyDir {
        at: PathBuf,
    },
    /// An empty file in the place of what is there.
    EmptyFile {
        at: PathBuf,
    },
}

impl Mount {
    pub fn at(&self) -> &Path {
        match self {
            Mount::ReadOnly { at, .. }
            | Mount::Writable { at, .. }
            | Mount::EmptyDir { at }
            | Mount::EmptyFile { at } => at,
        }
    }
}

/// Something in the project that must be as it was when the agent is gone. Mounts protect what is there from
/// being changed, but nothing from being made, and no link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct PathGuard {
    pub path: PathBuf,
    pub was: ExpectedEntry,
}

/// What may be at a path when the agent is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum ExpectedEntry {
    Nothing,
    /// This link.
    Link(PathBuf),
    /// A directory, or nothing. What is in it is guarded by itself, which a link would lead astray.
    Directory,
    /// A file, or nothing.
    File,
}

/// What separates the inside from the outside, each by itself. All of them are up in every sandbox;
/// they are data so that tests can take one away and see what it is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Isolation {
    /// What is not shown as writable cannot be written.
    pub files: bool,
    /// Other users, and with them the rights of the administrator.
    pub users: bool,
    pub capabilities: bool,
    pub processes: bool,
    pub ipc: bool,
    pub network: bool,
    /// The terminal.
    pub session: bool,
    /// Files that were open already.
    pub descriptors: bool,
    /// System calls that agents have no use for.
    pub calls: bool,
    /// Named pipes in what can only be read: a read-only mount does not stop writes to them.
    pub pipes: bool,
}

impl Isolation {
    pub const ALL: Isolation = Isolation {
        files: true,
        users: true,
        capabilities: true,
        processes: true,
        ipc: true,
        network: true,
        session: true,
        descriptors: true,
        calls: true,
        pipes: true,
    };
}

/// A sandbox, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPlan {
    pub mounts: Vec<Mount>,
    /// What covers the parts of `/proc` that only the administrator may write, made when that is there. Whoever is
    /// one outside is one to these files also inside.
    pub kernel: Vec<Mount>,
    /// Files to be copied into the scratch home: from where, to where on this machine.
    pub copies: Vec<(PathBuf, PathBuf)>,
    /// Files to be written before: where on this machine, and what.
    pub files: Vec<(PathBuf, String)>,
    /// Directories to be made before.
    pub dirs: Vec<PathBuf>,
    pub guards: Vec<PathGuard>,
    /// Variables to set or to take away.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Secrets among them that are taken away.
    pub withheld: Vec<String>,
    pub network: NetworkMode,
    /// The user and group that it looks like inside.
    pub user: (u32, u32),
    pub isolation: Isolation,
    /// What the user should know of it.
    pub notes: Vec<String>,
    pub project: PathBuf,
    /// Sources of mounts that an agent could replace by a link later. See [`Plan::drop_replaced`].
    pub replaceable_sources: BTreeSet<PathBuf>,
}

impl SandboxPlan {
    /// Takes out the mounts whose sources have meanwhile been removed or replaced by links. Returns those
    /// sources.
    pub(super) fn drop_replaced(&mut self, is_there: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let gone: BTreeSet<PathBuf> =
            self.replaceable_sources.extract_if(.., |path| !is_there(path)).collect();
        self.mounts.retain(|mount| match mount {
            Mount::ReadOnly { from, .. } | Mount::Writable { from, .. } => !gone.contains(from),
            Mount::EmptyDir { .. } | Mount::EmptyFile { .. } => true,
        });
        gone.into_iter().collect()
    }

    /// The directories outside the project that an agent can write to.
    fn writable_sources(&self, scratch: &Path) -> Vec<PathBuf> {
        let mut sources: Vec<PathBuf> = Vec::new();
        for mount in &self.mounts {
            if let Mount::Writable { from, .. } = mount
                && ![scratch, &self.project].iter().any(|known| from.starts_with(known))
                && !sources.iter().any(|known| from.starts_with(known))
            {
                sources.push(from.clone());
            }
        }
        sources
    }

    /// What of `project` is there and must not be changed.
    pub(super) fn protected(&self, project: &Path) -> impl Iterator<Item = &Path> {
        let outside = self.mounts.iter().rposition(|mount| mount.at() == project).unwrap_or(0);
        self.mounts[outside..].iter().filter_map(|mount| match mount {
            Mount::ReadOnly { from, at } if from == at => Some(at.as_path()),
            _ => None,
        })
    }

    /// The files and directories of this machine that can be written inside, but for those in `scratch`.
    pub(super) fn writable(&self, scratch: &Path) -> Vec<PathBuf> {
        let from = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Writable { from, .. } => Some(from.clone()),
            _ => None,
        });
        from.filter(|from| !from.starts_with(scratch)).collect()
    }

    /// Empty directories that hold other mounts. They are closed when those are there, or the directories on the
    /// way to them could be exchanged. The others may be written for all that it matters: nobody sees it, and it
    /// is gone with the sandbox.
    pub fn closed_dirs(&self) -> impl Iterator<Item = &Path> {
        self.mounts.iter().enumerate().filter_map(|(nth, mount)| {
            let Mount::EmptyDir { at } = mount else { return None };
            let later = &self.mounts[nth + 1..];
            let holds = later.iter().any(|later| later.at().starts_with(at));
            let is_covered = later.iter().any(|later| at.starts_with(later.at()));
            (holds && !is_covered).then_some(at.as_path())
        })
    }
}

/// Why there can be no plan, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// Nothing can be hidden from where the project is.
    Path(String),
    /// A setting would show what has to be hidden.
    Setting(String),
}

/// Plans a sandbox.
///
/// # Errors
/// What is to be shown and what has to be hidden cannot be told apart.
pub fn build_plan(wanted: &PlanInputs, disk: &dyn Disk) -> Result<SandboxPlan, PlanError> {
    let known = wanted.agent_writable.union([wanted.project.clone()]);
    let first = build_plan_with(wanted, disk, known.clone())?;
    // An agent of an earlier run could write there as well, and leave links.
    let writable = first.writable_sources(&wanted.scratch);
    if writable.is_empty() {
        return Ok(first);
    }
    build_plan_with(wanted, disk, known.union(writable))
}

/// Plans a sandbox, given the directories that agents can write to.
fn build_plan_with(
    wanted: &PlanInputs,
    disk: &dyn Disk,
    agent_writable: AgentWritable,
) -> Result<SandboxPlan, PlanError> {
    let home = wanted.home.as_deref().and_then(|home| disk.stat(home)).filter(|home| home.is_dir);
    // Users of services have all of the machine for a home, which is none.
    let home = home.map(|home| home.real).filter(|home| home != Path::new("/"));
    refuse_overlaps(wanted, home.as_deref()).map_err(PlanError::Path)?;
    let named_home = wanted.home.clone().zip(home.clone());
    let mut draft = PlanBuilder {
        disk,
        home: named_home,
        mounts: Vec::new(),
        hidden: Vec::new(),
        agent_writable,
        replaceable: BTreeSet::new(),
        skipped: BTreeSet::new(),
        notes: Vec::new(),
    };
    let scratch = |name: &str| wanted.scratch.join(name);

    for dir in HIDDEN_DIRS {
        draft.hide(Path::new(dir));
    }
    draft.hide(&wanted.ralph_home);
    let ssh = Path::new("/etc/ssh");
    let keys =
        disk.list_names(ssh).into_iter().filter(|name| name.as_encoded_bytes().ends_with(b"_key"));
    let files = HIDDEN_FILES.iter().map(PathBuf::from).chain(keys.map(|name| ssh.join(name)));
    let is_secret = |file: &Path| disk.stat(file).is_some_and(|found| !found.is_dir);
    // What this user cannot read needs no mount, which would cost time at every start.
    for file in files.filter(|file| is_secret(file) && disk.is_accessible(file)) {
        draft.mounts.push(Mount::EmptyFile { at: file });
    }
    for path in SHOWN_DIRS {
        draft.show("system directory", Path::new(path), false);
    }
    for (name, place) in [("tmp", "/tmp"), ("var-tmp", "/var/tmp")] {
        if let Some(found) = disk.stat(Path::new(place)) {
            draft.replace(&found.real, scratch(name));
        }
    }
    let mut copies = Vec::new();
    if let Some(home) = &home {
        draft.replace(home, scratch("home"));
        copies = home::show_home(&mut draft, home, &scratch("home"), wanted);
    }
    let variable = |name: &str| environment::get(&wanted.env, name);
    tools::show_tools(&mut draft, home.as_deref(), wanted);
    for name in CERTIFICATES {
        if let Some(path) = variable(name) {
            draft.show_hidden(name, Path::new(path));
        }
    }
    if let Some(agent) = &wanted.agent
        && let Some(found) = draft.find_shown("agent program", agent)
    {
        draft.show_hidden("agent program", package_dir(&found.real));
        draft.show_hidden("agent program", agent);
    }
    // The settings below may show them again.
    tools::hide_secrets(&mut draft, home.as_deref(), wanted);
    for (paths, writable, key) in
        [(&wanted.readable, false, "readable"), (&wanted.writable, true, "writable")]
    {
        for path in paths {
            let path = settings_path(path, &wanted.project, home.as_deref());
            if let PathTarget::Inside(_) = draft.resolve_target(&path)
                && let Some(hidden) = draft.hidden_below(&path, &wanted.scratch)
            {
                return Err(PlanError::Setting(format!(
                    "sandbox.{key}: {} holds {}, which a sandbox has to hide; name what is needed of it",
                    path.display(),
                    hidden.display()
                )));
            }
            if let PathTarget::Missing = draft.resolve_target(&path) {
                draft.notes.push(format!("sandbox.{key}: there is no {}", path.display()));
            }
            draft.show(&format!("sandbox.{key}"), &path, writable);
        }
    }

    let repository = git::find_repository(&mut draft, &wanted.project, home.as_deref());
    if let Some(repository) = &repository
        && repository.top != wanted.project
    {
        draft.show("repository", &repository.top, false);
    }
    draft.show("project", &wanted.project, true);
    let mut guards = Vec::new();
    git::protect_git_entry(&wanted.project, &mut draft, &mut guards);
    if let Some(repository) = &repository {
        git::protect(repository, &mut draft, &mut guards);
    }
    protect_project(&wanted.project, &mut draft, &mut guards);
    for root in &wanted.nested_projects {
        protect_nested(root, home.as_deref(), &mut draft, &mut guards);
    }

    draft.hide_sockets(wanted);

    let inside = Path::new(INSIDE_DIR);
    let ralph = disk.stat(&wanted.ralph).map_or_else(|| wanted.ralph.clone(), |found| found.real);
    draft.mounts.push(Mount::ReadOnly { from: ralph, at: inside.join("ralph") });
    // As the administrator the agent would be able to do more, and some refuse to work for one.
    let user = if wanted.user.0 == 0 { (1000, 1000) } else { wanted.user };
    let mut files = Vec::new();
    for (name, text) in environment::account_files(disk, user, home.as_deref(), variable("USER")) {
        let at = Path::new("/etc").join(name);
        files.push((scratch(name), text));
        draft.mounts.push(Mount::ReadOnly { from: scratch(name), at });
    }
    let (env, withheld) = environment::env_changes(wanted, home.as_deref(), &draft);
    let dirs = ["home", "tmp", "var-tmp"].map(scratch).to_vec();
    draft.drop_covered();
    let PlanBuilder { mounts, mut replaceable, notes, .. } = draft;
    // The agent cannot replace what a mount protects.
    replaceable.retain(|source| {
        mounts.iter().any(|mount| match mount {
            Mount::ReadOnly { from, at } | Mount::Writable { from, at } => {
                from == source && !(from == at && at.starts_with(&wanted.project))
            }
            Mount::EmptyDir { .. } | Mount::EmptyFile { .. } => false,
        })
    });
    let network = wanted.network.clone();
    let kernel = if wanted.user.0 == 0 { kernel(disk) } else { Vec::new() };
    // What something is in comes before it.
    guards.sort();
    guards.dedup();
    let walls = Isolation::ALL;
    Ok(SandboxPlan {
        mounts,
        kernel,
        copies,
        files,
        dirs,
        guards,
        env,
        withheld,
        network,
        user,
        isolation: walls,
        notes,
        project: wanted.project.clone(),
        replaceable_sources: replaceable,
    })
}

fn kernel(disk: &dyn Disk) -> Vec<Mount> {
    let there = KERNEL_PATHS.iter().filter(|(path, _)| disk.stat(Path::new(path)).is_some());
    there
        .map(|(path, is_read)| {
            let at = PathBuf::from(path);
            if *is_read { Mount::ReadOnly { from: at.clone(), at } } else { Mount::EmptyDir { at } }
        })
        .collect()
}

/// What must not be inside of each other, or hiding one would hide the other.
fn refuse_overlaps(wanted: &PlanInputs, home: Option<&Path>) -> Result<(), String> {
    let project = &wanted.project;
    if let Some(home) = home
        && home.starts_with(project)
    {
        let what = if home == project { "is" } else { "holds" };
        return Err(format!(
            "the project {what} the home directory, {}, which a sandbox has to hide; \
             work in a directory of its own",
            home.display()
        ));
    }
    if ["/", "/usr", "/etc", "/var", "/tmp", "/proc", "/sys", "/dev", "/run"]
        .iter()
        .any(|system| Path::new(system) == project)
    {
        return Err(format!(
            "{} belongs to the system: a sandbox around it would hold nothing back",
            project.display()
        ));
    }
    if wanted.scratch.starts_with(project) {
        return Err(format!(
            "ralph's own files, in {}, are inside of the project; set RALPH_HOME to another directory",
            wanted.scratch.display()
        ));
    }
    Ok(())
}

/// Protects the files of a project that ralph or another program obeys outside: see [`PROTECTED_DIRS`].
fn protect_project(project: &Path, draft: &mut PlanBuilder<'_>, guards: &mut Vec<PathGuard>) {
    for (dir, names) in PROTECTED_DIRS {
        let dir = project.join(dir);
        // `.clinerules` is a file in some projects, and `.jj/repo` in a second workspace.
        let is_file = |path: &Path| {
            draft.disk.read_link(path).is_none()
                && draft.disk.stat(path).is_some_and(|it| !it.is_dir)
        };
        if is_file(&dir) {
            draft.protect_one(&dir, guards);
            continue;
        }
        if dir.parent().is_some_and(is_file) {
            continue;
        }
        let mut names: BTreeSet<OsString> = names.iter().map(OsString::from).collect();
        names.extend(draft.disk.list_names(&dir).into_iter().filter(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"settings") && name.ends_with(b".json")
        }));
        draft.protect(&dir, names.iter().map(OsString::as_os_str), guards);
    }
    for name in PROTECTED_PATHS {
        draft.protect_one(&project.join(name), guards);
    }
    // Like a new git repository, one of these would bring a configuration with it.
    for name in [".hg", ".jj"] {
        let dir = project.join(name);
        if draft.disk.stat(&dir).is_none() && draft.disk.read_link(&dir).is_none() {
            guards.retain(|guard| !guard.path.starts_with(&dir));
            guards.push(PathGuard { path: dir, was: ExpectedEntry::Nothing });
        }
    }
}

/// Protects another project of ralph that the agent can write to: its next run obeys the settings there.
fn protect_nested(
    root: &Path,
    home: Option<&Path>,
    draft: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    // A link has been put there. What it leads to is not the project that is known.
    let has_links = root.ancestors().any(|dir| draft.disk.read_link(dir).is_some());
    if has_links || !draft.is_writable(root) {
        return;
    }
    let mut nested = Vec::new();
    let is_there = draft.disk.stat(root).is_some_and(|found| found.is_dir);
    draft.protect_ancestors(root, is_there, &mut nested);
    if is_there {
        git::protect_git_entry(root, draft, &mut nested);
        if let Some(repository) = git::find_repository(draft, root, home)
            && repository.is_in(root)
        {
            git::protect(&repository, draft, &mut nested);
        }
    }
    protect_project(root, draft, &mut nested);
    // A run of that project may start meanwhile and create these.
    let created = [&RALPH_STATE_PATHS[..], &[".ralph/.gitignore"]].concat();
    let is_created = |path: &Path| created.iter().any(|name| path == root.join(name));
    nested.retain(|guard| guard.was != ExpectedEntry::Nothing || !is_created(&guard.path));
    guards.append(&mut nested);
}

/// The directory that has to be there for a program to work. What npm installed is spread over all of
/// its directory.
fn package_dir(program: &Path) -> &Path {
    program
        .ancestors()
        .filter(|path| path.file_name() == Some(OsStr::new("node_modules")))
        .last()
        .or_else(|| program.parent())
        .unwrap_or(program)
}

#[cfg(test)]
mod tests;
