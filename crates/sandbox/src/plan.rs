//! What a sandbox shows and hides, as plain data.
//!
//! [`build_plan`] reads the machine only through [`Disk`] and changes nothing. Later mounts cover
//! earlier ones.

mod planner;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ralph_process::trust::AgentWritable;

pub use planner::build_plan;

/// Where the agent's hooks find ralph.
pub const INSIDE_DIR: &str = "/run/ralph";

/// Read access to the machine.
pub trait Disk {
    /// Follows links.
    fn stat(&self, path: &Path) -> Option<PathInfo>;
    fn read_link(&self, path: &Path) -> Option<PathBuf>;
    /// A small text file.
    fn read(&self, path: &Path) -> Option<String>;
    fn list_names(&self, directory: &Path) -> Vec<OsString>;
    /// Whether this user can read or enter it.
    fn is_accessible(&self, path: &Path) -> bool;
    /// Sockets and named pipes of services, without links.
    fn sockets(&self) -> Vec<PathBuf>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    pub real: PathBuf,
    pub is_dir: bool,
}

/// The system whose places a plan hides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostSystem {
    #[default]
    Linux,
    MacOs,
}

#[derive(Debug, Clone, Default)]
pub struct PlanInputs {
    /// Without links.
    pub project: PathBuf,
    pub home: Option<PathBuf>,
    pub ralph_home: PathBuf,
    pub scratch: PathBuf,
    pub ralph: PathBuf,
    pub adapter: &'static str,
    pub agent: Option<PathBuf>,
    /// Without a sandbox.
    pub env: Vec<(OsString, OsString)>,
    /// Set by the settings on purpose; never withheld.
    pub kept_variables: Vec<OsString>,
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub network: NetworkMode,
    pub user: (u32, u32),
    pub system: HostSystem,
    pub agent_writable: AgentWritable,
    /// Without links.
    pub nested_projects: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkMode {
    #[default]
    None,
    Proxy {
        ports: Vec<u16>,
    },
    Full,
}

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
    /// Covers what is there.
    EmptyDir {
        at: PathBuf,
    },
    EmptyFile {
        at: PathBuf,
    },
}

impl Mount {
    /// `None` for an empty one.
    pub fn source(&self) -> Option<&Path> {
        match self {
            Mount::ReadOnly { from, .. } | Mount::Writable { from, .. } => Some(from),
            Mount::EmptyDir { .. } | Mount::EmptyFile { .. } => None,
        }
    }

    pub fn at(&self) -> &Path {
        match self {
            Mount::ReadOnly { at, .. }
            | Mount::Writable { at, .. }
            | Mount::EmptyDir { at }
            | Mount::EmptyFile { at } => at,
        }
    }
}

/// A path that must be unchanged when the agent has ended. Mounts protect neither links nor missing
/// files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct PathGuard {
    pub path: PathBuf,
    pub was: ExpectedEntry,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum ExpectedEntry {
    Nothing,
    Link(PathBuf),
    /// Or nothing. A link would mislead the guards of its content.
    Directory,
    /// Or nothing.
    File,
}

/// All are on in every sandbox; tests switch one off to see what it is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IsolationLayers {
    pub files: bool,
    /// No root rights.
    pub users: bool,
    pub capabilities: bool,
    pub processes: bool,
    pub ipc: bool,
    pub network: bool,
    /// The terminal.
    pub session: bool,
    /// Inherited descriptors.
    pub descriptors: bool,
    /// The seccomp filter.
    pub calls: bool,
    /// A read-only mount does not stop writes to them.
    pub pipes: bool,
}

impl IsolationLayers {
    pub const ALL: IsolationLayers = IsolationLayers {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPlan {
    pub mounts: Vec<Mount>,
    /// Covers `/proc` files that root outside could also write inside.
    pub kernel: Vec<Mount>,
    /// Source, and target in the scratch home.
    pub copies: Vec<(PathBuf, PathBuf)>,
    /// Path and content.
    pub files: Vec<(PathBuf, String)>,
    pub dirs: Vec<PathBuf>,
    pub guards: Vec<PathGuard>,
    pub env: Vec<(OsString, Option<OsString>)>,
    pub withheld: Vec<String>,
    pub network: NetworkMode,
    /// The ids inside.
    pub user: (u32, u32),
    pub isolation: IsolationLayers,
    /// For the user.
    pub notes: Vec<String>,
    pub project: PathBuf,
    /// Sources that an agent could replace by a link; see `drop_replaced`.
    pub replaceable_sources: BTreeSet<PathBuf>,
}

impl SandboxPlan {
    /// Removes mounts whose sources became links or are gone.
    pub(super) fn drop_replaced(&mut self, is_there: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let gone: BTreeSet<PathBuf> =
            self.replaceable_sources.extract_if(.., |path| !is_there(path)).collect();
        self.mounts.retain(|mount| mount.source().is_none_or(|from| !gone.contains(from)));
        gone.into_iter().collect()
    }

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

    pub(super) fn protected(&self, project: &Path) -> impl Iterator<Item = &Path> {
        let outside = self.mounts.iter().rposition(|mount| mount.at() == project).unwrap_or(0);
        self.mounts[outside..].iter().filter_map(|mount| match mount {
            Mount::ReadOnly { from, at } if from == at => Some(at.as_path()),
            _ => None,
        })
    }

    pub(super) fn writable(&self, scratch: &Path) -> Vec<PathBuf> {
        let from = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Writable { from, .. } => Some(from.clone()),
            _ => None,
        });
        from.filter(|from| !from.starts_with(scratch)).collect()
    }

    /// Empty directories with mounts inside. They become read-only: otherwise the parents of those
    /// mounts could be exchanged.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The project's location makes hiding impossible.
    Path(String),
    /// A setting would show what must be hidden.
    Setting(String),
}

#[cfg(test)]
pub(crate) mod tests;
