//! Where an agent is locked in.
//!
//! There are several ways to do that, and one interface to all of them: [`Sandbox`]. Each is used only
//! after it was seen to work ([`probe`]). What is shown and hidden is decided in plain data ([`plan`]);
//! the only way to the network is a proxy of ours ([`proxy`]) that knows which hosts are allowed
//! ([`hosts`]).

pub mod backend_memory;
pub mod disk;
pub mod docker;
mod environment;
mod git;
mod home;
pub mod hosts;
pub mod permissions;
mod places;
pub mod plan;
mod plan_builder;
pub mod probe;
pub mod proxy;
pub mod quarantine;
pub mod scratch;
pub mod selection;
pub mod settings;
mod tools;

#[cfg(target_os = "linux")]
mod bwrap;
#[cfg(target_os = "linux")]
pub mod bwrap_args;
#[cfg(target_os = "linux")]
mod grants;
#[cfg(target_os = "linux")]
pub mod init_process;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
pub mod mounts;
#[cfg(target_os = "linux")]
mod restore;
#[cfg(target_os = "linux")]
mod seccomp;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_process::trust;
use ralph_process::{ChildId, Launch, LaunchExtras, System, TerminalSize};

use hosts::HostAllowList;
use proxy::Refusal;

/// This program, to be started as the first thing around a sandbox: the very file that runs, whatever an agent
/// that works on ralph itself has put at its path meanwhile.
#[cfg(target_os = "linux")]
const SELF_EXE: &str = "/proc/self/exe";

/// The ways to lock an agent in, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Bubblewrap and our proxy.
    Bwrap,
    /// A microVM by Docker.
    Docker,
    /// Landlock and a filter of system calls.
    Landlock,
}

impl Backend {
    pub const ALL: [Backend; 3] = [Backend::Bwrap, Backend::Docker, Backend::Landlock];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Bwrap => "bwrap",
            Backend::Docker => "docker",
            Backend::Landlock => "landlock",
        }
    }

    /// How much it confines, to compare it with others.
    fn strength(self) -> Strength {
        match self {
            Backend::Bwrap | Backend::Docker => Strength::Separate,
            Backend::Landlock => Strength::SameSystem,
        }
    }
}

/// How much a backend confines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    /// Nothing: there is no sandbox.
    None,
    /// Rights are taken away from processes that see the whole machine.
    SameSystem,
    /// A file system, processes and a network of its own.
    Separate,
}

/// What a sandbox is made for.
#[derive(Debug, Clone)]
pub struct SandboxRequest<'a> {
    /// The project, by its path without links.
    pub project: &'a Path,
    pub settings: &'a settings::Sandbox,
    /// The name of the agent's adapter.
    pub adapter: &'static str,
    /// The agent's program, if one was found.
    pub agent: Option<PathBuf>,
    /// What the settings set or take away of the agent's environment.
    pub env: &'a [(OsString, Option<OsString>)],
}

/// What is started instead of what was to be started.
#[derive(Debug)]
pub struct WrappedCommand {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, Option<OsString>)>,
    /// To be inherited, and closed here once it was.
    pub socket: Option<OwnedFd>,
    /// It stands around the program, and outlives its end.
    pub ignore_term: bool,
}

impl WrappedCommand {
    /// The launch of this.
    pub fn launch<'a>(&'a self, original: &Launch<'a>) -> Launch<'a> {
        Launch { program: &self.program, args: &self.args, env: &self.env, ..original.clone() }
    }
}

/// Starts a program inside.
///
/// # Errors
/// What the system said.
pub fn start(
    sandbox: &mut dyn Sandbox,
    system: &mut System,
    launch: &Launch<'_>,
    terminal: Option<BorrowedFd<'_>>,
) -> io::Result<(ChildId, u32)> {
    let wrapped = sandbox.wrap(launch, terminal.map(|fd| fd.as_raw_fd()))?;
    let inherit: Vec<BorrowedFd<'_>> =
        wrapped.socket.as_ref().map(AsFd::as_fd).into_iter().chain(terminal).collect();
    let extras = LaunchExtras {
        inherit: &inherit,
        ignore_term: wrapped.ignore_term,
        ..LaunchExtras::default()
    };
    system.start_with(&wrapped.launch(launch), &extras)
}

/// The same on a terminal of its own, of this size; see [`System::start_on_terminal`].
///
/// # Errors
/// What the system said, or this sandbox has no terminals.
pub fn start_on_terminal(
    sandbox: &mut dyn Sandbox,
    system: &mut System,
    launch: &Launch<'_>,
    size: TerminalSize,
) -> io::Result<(ChildId, u32)> {
    let hands_terminal_on = match sandbox.backend() {
        // bubblewrap begins a session of its own, which has none.
        Backend::Bwrap => true,
        Backend::Landlock => false,
        Backend::Docker => {
            let message = "an agent in Docker has no screen of its own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    };
    let standard_input = hands_terminal_on.then_some(0);
    let wrapped = sandbox.wrap(launch, standard_input)?;
    let inherit: Vec<BorrowedFd<'_>> =
        wrapped.socket.as_ref().map(AsFd::as_fd).into_iter().collect();
    let extras = LaunchExtras {
        inherit: &inherit,
        ignore_term: wrapped.ignore_term,
        terminal: Some(size),
        passes_terminal: hands_terminal_on,
        ..LaunchExtras::default()
    };
    system.start_with(&wrapped.launch(launch), &extras)
}

/// What was found in the project when an agent was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxTrace {
    /// Something that would be executed outside was made; it is here now.
    Quarantined(PathBuf),
    /// The same of a repository, which somebody may have wanted.
    RepositoryRemoved(PathBuf),
    /// What is here was exchanged from outside meanwhile, and with that it was no longer protected.
    Exposed(PathBuf),
    /// What was here had been removed, and is here again.
    Restored(PathBuf),
    /// The permissions of these paths were changed, and have been restored.
    ModesRestored(Vec<PathBuf>),
    /// What is here was replaced by a link, or removed, and is no longer shown inside.
    Replaced(PathBuf),
    /// What is here is not as it was and cannot be put right, for this reason. Nothing may go on as if it were.
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
                "something was made that may not be made inside a sandbox, because it would be executed \
                 outside; it is now {}",
                path.display()
            ),
            SandboxTrace::RepositoryRemoved(path) => write!(
                f,
                "a repository was made where there was none, which is not to be inside a sandbox, because git \
                 outside would execute what it says; it is now {}. If there is to be one, run `git init` first",
                path.display()
            ),
            SandboxTrace::Exposed(path) => write!(
                f,
                "{} was exchanged from outside of the sandbox while something ran in it, which took its \
                 protection away; see whether all that is in it is yours",
                path.display()
            ),
            SandboxTrace::Restored(path) => write!(
                f,
                "{} was removed inside a sandbox; it is there again, as it was",
                path.display()
            ),
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
                "{} was made or changed inside a sandbox, would be executed outside, and cannot be put right: \
                 {why}; see to it by hand, and let nothing use it before",
                path.display()
            ),
        }
    }
}

/// A place that an agent cannot get out of.
pub trait Sandbox: fmt::Debug {
    fn backend(&self) -> Backend;
    /// What it does not confine, for people.
    fn limits(&self) -> Vec<String>;
    /// What of this project or machine the user should know.
    fn notes(&self) -> Vec<String>;
    /// The variables that look like secrets and are kept from the agent.
    fn withheld(&self) -> &[String] {
        &[]
    }
    /// Files and directories outside the project that programs inside can write to.
    fn writable(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Puts a program inside. `terminal` is the descriptor of one that it is to have, inherited as well.
    ///
    /// # Errors
    /// What the system said.
    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand>;
    /// What was put inside last is gone. What there is to say of what it left.
    fn cleanup(&mut self) -> Vec<SandboxTrace>;
    /// Reads a file that the agent may just have written, where it is not the same file out here. `None` where it is.
    fn read(&mut self, system: &mut System, path: &Path) -> Option<io::Result<Vec<u8>>> {
        let _ = (system, path);
        None
    }
    /// Nothing will be put inside for a while, and the user may change files meanwhile.
    fn rest(&mut self, system: &mut System) {
        let _ = system;
    }
    /// Hosts that were refused since this was last asked.
    fn refusals(&mut self) -> Vec<Refusal>;
    /// Something to read is in here when there are refusals. To be asked for once.
    fn take_wake_pipe(&mut self) -> Option<PipeReader>;
}

/// Why a backend cannot be used, and what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendError {
    /// It is for the user to correct, and nobody may go on without a sandbox because of it.
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

    /// The same failure for a backend that works elsewhere on this machine: an error, since an agent may have caused
    /// it in order to run without a sandbox.
    fn fails_in_project(self, backend: Backend, project: &Path) -> BackendError {
        let (name, shown) = (backend.name(), project.display());
        let hint = self.hint.unwrap_or_else(|| {
            format!(
                "check the owner and the permissions of the project: ls -ld {shown}; \
                 --no-sandbox runs without a sandbox"
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

/// Makes a sandbox and sees whether it holds.
///
/// # Errors
/// It cannot be made here, or does not hold.
pub fn prepare(
    backend: Backend,
    request: &SandboxRequest<'_>,
) -> Result<Box<dyn Sandbox>, BackendError> {
    match backend {
        #[cfg(target_os = "linux")]
        Backend::Bwrap => Ok(Box::new(bwrap::BwrapSandbox::prepare(request)?)),
        #[cfg(not(target_os = "linux"))]
        Backend::Bwrap => {
            let _ = request;
            Err(BackendError::new("there are no namespaces on this system"))
        }
        #[cfg(target_os = "linux")]
        Backend::Landlock => Ok(Box::new(landlock::LandlockSandbox::prepare(request)?)),
        #[cfg(not(target_os = "linux"))]
        Backend::Landlock => Err(BackendError::new("there is no Landlock on this system")),
        Backend::Docker => Ok(Box::new(docker::DockerSandbox::prepare(request)?)),
    }
}

/// The hosts that the settings, the agent and its environment allow.
///
/// # Errors
/// An entry of the settings makes no sense.
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

/// The environment that an agent has without a sandbox.
fn agent_environment(request: &SandboxRequest<'_>) -> Vec<(OsString, OsString)> {
    let changed = |name: &OsStr| request.env.iter().any(|(other, _)| other == name);
    let mut env: Vec<_> = std::env::vars_os().filter(|(name, _)| !changed(name)).collect();
    env.extend(request.env.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))));
    env
}

/// The directories that the agents of all projects can write to: package caches, and the scratch directories.
pub fn shared_writable_dirs() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let caches = home.iter().flat_map(|home| home::CACHE_DIRS.iter().map(|cache| home.join(cache)));
    caches.chain(scratch::sandboxes().ok()).collect()
}

/// The directories that `sandbox.writable` lets agents of this project write to.
pub fn writable_dirs(settings: &settings::Sandbox, project: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let absolute =
        |path: &String| plan_builder::settings_path(Path::new(path), project, home.as_deref());
    settings.writable.iter().map(absolute).collect()
}

/// Finds a program that makes a sandbox. `hint` says how to install it.
fn find_program(name: &str, hint: &str) -> Result<PathBuf, BackendError> {
    trust::outside_program(OsStr::new(name)).map_err(|err| match err.hint() {
        Some(untrusted) => BackendError::new(err.to_string()).hint(untrusted),
        None => BackendError::new(format!("{name} is not installed")).hint(hint),
    })
}
