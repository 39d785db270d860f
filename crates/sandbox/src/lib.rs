//! Confines an agent with bubblewrap, Seatbelt, Docker or Landlock, behind the trait [`Sandbox`].
//!
//! A backend is used only after a [`probe`]. What is shown and hidden is plain data ([`plan`]). The
//! network is reached only by a [`proxy`] that checks [`hosts`]. This crate knows nothing of runs
//! or the journal.

pub mod backend_memory;
pub mod disk;
pub mod docker;
mod environment;
mod git;
mod home;
pub mod hosts;
mod inner_exec;
pub mod permissions;
mod places;
pub mod plan;
mod plan_builder;
mod preparation;
pub mod probe;
pub mod proxy;
pub mod quarantine;
mod restore;
pub mod scratch;
pub mod seatbelt;
pub mod selection;
pub mod settings;
mod tools;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
pub mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "macos.rs"]
pub mod platform;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_process::{ChildId, Launch, System, TerminalSize};

use hosts::HostAllowList;
use proxy::Proxy;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Bwrap,
    Seatbelt,
    Docker,
    Landlock,
}

impl Backend {
    pub const ALL: [Backend; 4] =
        [Backend::Bwrap, Backend::Seatbelt, Backend::Docker, Backend::Landlock];

    /// Those that this system can have, best first.
    pub fn on_this_system() -> &'static [Backend] {
        platform::BACKENDS
    }

    pub fn name(self) -> &'static str {
        match self {
            Backend::Bwrap => "bwrap",
            Backend::Seatbelt => "seatbelt",
            Backend::Docker => "docker",
            Backend::Landlock => "landlock",
        }
    }

    fn strength(self) -> Strength {
        match self {
            Backend::Bwrap | Backend::Seatbelt | Backend::Docker => Strength::Separate,
            Backend::Landlock => Strength::SameSystem,
        }
    }

    fn not_on_this_system(self) -> BackendError {
        let system = if self == Backend::Seatbelt { "macOS" } else { "Linux" };
        let here = platform::BACKENDS.iter().map(|backend| backend.name()).collect::<Vec<_>>();
        BackendError::new(format!("{} is available only on {system}", self.name()))
            .hint(format!("available on this system: {}", here.join(", ")))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    None,
    /// Processes see the whole machine, with fewer rights.
    SameSystem,
    /// Processes see files, processes and hosts of their own only.
    Separate,
}

#[derive(Debug, Clone)]
pub struct SandboxRequest<'a> {
    /// Without links.
    pub project: &'a Path,
    pub settings: &'a settings::SandboxSettings,
    pub adapter: &'static str,
    pub agent: Option<PathBuf>,
    pub env: &'a [(OsString, Option<OsString>)],
}

#[derive(Debug)]
pub struct WrappedCommand {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Inherited by the child, then closed here.
    pub socket: Option<OwnedFd>,
    /// The wrapper must outlive the program.
    pub ignore_term: bool,
}

impl WrappedCommand {
    pub fn launch<'a>(&'a self, original: &Launch<'a>) -> Launch<'a> {
        Launch {
            program: &self.program,
            args: &self.args,
            env: &self.env,
            ignore_term: self.ignore_term,
            ..original.clone()
        }
    }
}

pub fn start(
    sandbox: &mut dyn Sandbox,
    system: &mut System,
    launch: &Launch<'_>,
    terminal: Option<BorrowedFd<'_>>,
) -> io::Result<(ChildId, u32)> {
    let wrapped = sandbox.wrap(launch, terminal.map(|fd| fd.as_raw_fd()))?;
    let inherit: Vec<BorrowedFd<'_>> =
        wrapped.socket.as_ref().map(AsFd::as_fd).into_iter().chain(terminal).collect();
    system.start(&Launch { inherit: &inherit, ..wrapped.launch(launch) })
}

/// Like [`start`], on a new terminal.
///
/// # Errors
/// The system's error, or the backend has no terminals.
pub fn start_on_terminal(
    sandbox: &mut dyn Sandbox,
    system: &mut System,
    launch: &Launch<'_>,
    size: TerminalSize,
) -> io::Result<(ChildId, u32)> {
    let passes_terminal = match sandbox.info().backend {
        // bubblewrap starts its own session, without a terminal.
        Backend::Bwrap => true,
        Backend::Landlock | Backend::Seatbelt => false,
        Backend::Docker => {
            let message = "interactive agents do not work in Docker";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    };
    let standard_input = passes_terminal.then_some(0);
    let wrapped = sandbox.wrap(launch, standard_input)?;
    let inherit: Vec<BorrowedFd<'_>> =
        wrapped.socket.as_ref().map(AsFd::as_fd).into_iter().collect();
    let launch = wrapped.launch(launch);
    system.start(&Launch { inherit: &inherit, terminal: Some(size), passes_terminal, ..launch })
}

/// A change that was found, and mostly repaired, after an agent has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxTrace {
    /// A new file that would have been executed outside; renamed to this path.
    Quarantined(PathBuf),
    /// Like `Quarantined`, for a git repository, which the user may want.
    RepositoryRemoved(PathBuf),
    /// Replaced from outside meanwhile, which removed its protection.
    Exposed(PathBuf),
    Restored(PathBuf),
    ModesRestored(Vec<PathBuf>),
    /// Became a link, or was removed; no longer shown inside.
    Replaced(PathBuf),
    /// Cannot be repaired, for this reason. The run must stop.
    NotRestored(PathBuf, String),
}

impl SandboxTrace {
    pub fn is_not_restored(&self) -> bool {
        matches!(self, SandboxTrace::NotRestored(..))
    }
}

impl fmt::Display for SandboxTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SandboxTrace::Quarantined(path) => write!(
                f,
                "the agent created something that would be executed outside the sandbox; it was \
                 renamed to {}",
                path.display()
            ),
            SandboxTrace::RepositoryRemoved(path) => write!(
                f,
                "the agent created a git repository here; it was renamed to {}, because its \
                 configuration would be executed outside the sandbox. If you want a repository, \
                 run `git init` first",
                path.display()
            ),
            SandboxTrace::Exposed(path) => write!(
                f,
                "{} was replaced from outside the sandbox during a step and lost its protection; \
                 check its contents",
                path.display()
            ),
            SandboxTrace::Restored(path) => {
                write!(f, "{} was removed inside the sandbox and has been restored", path.display())
            }
            SandboxTrace::ModesRestored(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "permissions were changed inside the sandbox and have been restored: {}",
                    paths.join(", ")
                )
            }
            SandboxTrace::Replaced(path) => write!(
                f,
                "sandbox: {} was removed or replaced by a link during the run; the agent no longer sees it",
                path.display()
            ),
            SandboxTrace::NotRestored(path, why) => write!(
                f,
                "{} was changed inside the sandbox, would be executed outside, and cannot be \
                 restored: {why}; fix it by hand before anything uses it",
                path.display()
            ),
        }
    }
}

#[derive(Debug)]
pub struct SandboxInfo {
    pub backend: Backend,
    /// Limits of the backend, for the user.
    pub limits: Vec<&'static str>,
    /// Warnings about this project or machine.
    pub notes: Vec<String>,
    /// The names of secret variables that the agent does not get.
    pub withheld: Vec<String>,
    /// Writable paths outside the scratch directory.
    pub writable: Vec<PathBuf>,
}

pub trait Sandbox: fmt::Debug {
    fn info(&self) -> &SandboxInfo;
    /// Returns the command that starts a program inside. `terminal` is an inherited descriptor.
    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand>;
    /// Called when the last program has ended; returns what it found.
    fn cleanup(&mut self) -> Vec<SandboxTrace>;
    /// Reads a file as the agent sees it. `None` if files are shared.
    fn read(&mut self, system: &mut System, path: &Path) -> Option<io::Result<Vec<u8>>> {
        let _ = (system, path);
        None
    }
    /// Called before a pause, in which the user may change files.
    fn rest(&mut self, system: &mut System) {
        let _ = system;
    }
    fn proxy(&mut self) -> Option<&mut Proxy> {
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendError {
    /// The user must fix it; never fall back to no sandbox.
    pub is_config_error: bool,
    pub reason: String,
    pub hint: Option<String>,
}

impl BackendError {
    fn new(why: impl Into<String>) -> BackendError {
        BackendError { reason: why.into(), hint: None, is_config_error: false }
    }

    fn config_error(why: impl Into<String>) -> BackendError {
        BackendError { is_config_error: true, ..BackendError::new(why) }
    }

    #[must_use]
    fn hint(mut self, hint: impl Into<String>) -> BackendError {
        self.hint = Some(hint.into());
        self
    }

    /// Turns the failure of a backend that works elsewhere on this machine into an error: an agent
    /// may have caused it to run without a sandbox.
    fn fails_in_project(self, backend: Backend, project: &Path) -> BackendError {
        let (name, shown) = (backend.name(), project.display());
        let hint = self.hint.unwrap_or_else(|| {
            format!(
                "check the owner and permissions of the project (ls -ld {shown}), or use \
                 --no-sandbox"
            )
        });
        let why = format!("{name} works on this machine, but not in {shown}: {}", self.reason);
        BackendError::config_error(why).hint(hint)
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> BackendError {
        let hint = (!error.hints.is_empty()).then(|| error.hints.join("; "));
        BackendError { hint, ..BackendError::config_error(error.message) }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Creates and probes a sandbox.
pub fn prepare(
    backend: Backend,
    request: &SandboxRequest<'_>,
) -> Result<Box<dyn Sandbox>, BackendError> {
    platform::prepare(backend, request)
}

/// Runs ralph as a part of a sandbox; `None` if `command` is not an internal one.
pub fn inner_main(command: &str, args: &[OsString]) -> Option<u8> {
    match command {
        probe::COMMAND => Some(probe::main(args)),
        _ => platform::inner_main(command, args),
    }
}

/// # Errors
/// A setting is invalid.
pub fn allow_list(
    request: &SandboxRequest<'_>,
    env: &[(OsString, OsString)],
) -> Result<HostAllowList, BackendError> {
    let mut allow = HostAllowList::for_agent(request.adapter);
    let entries = request.settings.allowed_domains.iter();
    let wrong: Vec<String> =
        entries.filter_map(|entry| allow.add(entry).err()).map(|bad| bad.to_string()).collect();
    if !wrong.is_empty() {
        let why = format!("sandbox.allowedDomains: {}", wrong.join("; "));
        return Err(BackendError::config_error(why).hint(format!(
            "write \"api.example.com\", \"*.example.com\", \"localhost:8080\", or one of {}",
            hosts::group_names().join(", ")
        )));
    }
    for (name, value) in env {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && environment::is_service_url(request.adapter, name)
        {
            allow.add_url(value);
        }
    }
    Ok(allow)
}

/// The agent's environment without a sandbox.
fn agent_environment(request: &SandboxRequest<'_>) -> Vec<(OsString, OsString)> {
    let changed = |name: &OsStr| request.env.iter().any(|(other, _)| other == name);
    let mut env: Vec<_> = std::env::vars_os().filter(|(name, _)| !changed(name)).collect();
    env.extend(request.env.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))));
    env
}

/// Package caches and scratch directories, shared by all projects.
pub fn shared_writable_dirs() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let caches =
        home.iter().flat_map(|home| places::PLACES.cache_dirs.iter().map(|cache| home.join(cache)));
    caches.chain(scratch::sandboxes().ok()).collect()
}

/// The directories of `sandbox.writable`.
pub fn writable_dirs(settings: &settings::SandboxSettings, project: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let absolute =
        |path: &String| plan_builder::settings_path(Path::new(path), project, home.as_deref());
    settings.writable.iter().map(absolute).collect()
}
