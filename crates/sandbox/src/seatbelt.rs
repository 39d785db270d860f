//! Seatbelt, the sandbox of macOS, by `sandbox-exec`.
//!
//! Written from documentation and others' profiles, and never run on a Mac: tests interpret the
//! profile and use a stand-in for the program. So nothing runs in it before the probe has passed.

pub mod profile;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::home::link_home_entries;
use super::inner_exec::{self, carry_env};
use super::permissions::SavedModes;
use super::plan::{ExpectedEntry, NetworkMode, SandboxPlan};
use super::preparation::{
    PreparedSandbox, StandInProject, env_in_place, failed, prepare_sandbox, start_local_proxy,
};
use super::probe::SandboxProbe;
use super::proxy::Proxy;
use super::restore::SavedPaths;
use super::scratch::Scratch;
use super::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, WrappedCommand,
    environment,
};
use ralph_agents::profile::FileExposure;
use ralph_agents::profile_of;
use ralph_events::event::Exit;
use ralph_process::Launch;
use ralph_store::dir_handle::{FileKind, look, open_dir};

/// Always this file: another one of that name on the `PATH` may be an agent's.
pub const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The internal subcommand.
pub const COMMAND: &str = "__seatbelt";

/// `EX_DATAERR`: the profile was not accepted.
const PROFILE_REJECTED: i32 = 65;

const OTHER_CHOICE: &str = "--sandbox=docker is the other sandbox of a Mac";

/// The inner process: takes the terminal, closes descriptors and executes the program. Returns only on
/// failure.
pub fn exec_main(args: &[OsString]) -> u8 {
    let [terminal, program, args @ ..] = args else {
        return inner_exec::print_failure("internal command of ralph, to set up a sandbox");
    };
    if let Some(terminal) = terminal.to_str().and_then(|number| number.parse().ok())
        && let Err(err) = inner_exec::acquire_terminal(terminal)
    {
        return inner_exec::print_failure(&format!("cannot use the terminal: {err}"));
    }
    inner_exec::close_one_by_one();
    inner_exec::exec_inside(program, args)
}

#[derive(Debug)]
pub struct SeatbeltSandbox {
    info: SandboxInfo,
    command: SeatbeltCommand,
    env: Vec<(OsString, Option<OsString>)>,
    modes: SavedModes,
    /// The rules protect them, but were never seen to do so.
    saved: SavedPaths,
    proxy: Option<Proxy>,
    /// No longer shown; not yet reported.
    replaced: Vec<PathBuf>,
    used: bool,
    // Last: the fields above may use it when dropped.
    scratch: Scratch,
}

/// All that decides the command line.
#[derive(Debug)]
struct SeatbeltCommand {
    sandbox_exec: PathBuf,
    ralph: PathBuf,
    plan: SandboxPlan,
    scratch: PathBuf,
    proxy_port: Option<u16>,
}

impl SeatbeltCommand {
    fn arguments(
        &self,
        terminal: Option<i32>,
        program: &OsStr,
        args: &[OsString],
    ) -> Vec<OsString> {
        let tools = tools_dir(&self.scratch);
        let profile = profile::render(&self.plan, &self.scratch, &tools, self.proxy_port);
        let mut words = profile.arguments();
        let terminal = terminal.map_or_else(|| "-".to_owned(), |number| number.to_string());
        words.extend([self.ralph.clone().into(), COMMAND.into(), terminal.into(), program.into()]);
        words.extend_from_slice(args);
        words
    }

    /// A protected file, and one that must not be created.
    fn protected_files(&self) -> Vec<PathBuf> {
        let guards = || self.plan.guards.iter();
        let existing = guards().find(|guard| guard.was == ExpectedEntry::File);
        let missing = guards().find(|guard| {
            let parent = guard.path.parent();
            guard.was == ExpectedEntry::Nothing && parent.is_some_and(Path::is_dir)
        });
        existing.into_iter().chain(missing).map(|guard| guard.path.clone()).collect()
    }

    /// `hidden` must not be visible inside.
    fn probe(
        &self,
        env: &[(OsString, Option<OsString>)],
        project: &Path,
        hidden: &Path,
    ) -> Result<(), BackendError> {
        let wrap = |args: &[OsString]| {
            let args = self.arguments(None, self.ralph.as_os_str(), args);
            (self.sandbox_exec.clone().into(), args)
        };
        let explain = |stderr: &str, exit: Exit| {
            let stderr = stderr.lines().last().unwrap_or("no error message");
            BackendError::new(match exit {
                Exit::Code(PROFILE_REJECTED) => {
                    format!("this system rejects the profile: {stderr}")
                }
                _ => format!("sandbox-exec failed ({exit}): {stderr}"),
            })
        };
        SandboxProbe::prepare(project, hidden, self.plan.network == NetworkMode::Full)?
            .with_proxy(self.proxy_port)
            .with_protected(self.protected_files())
            .run(env, wrap, explain)
            .map_err(|why| why.hint(OTHER_CHOICE))
    }
}

impl SeatbeltSandbox {
    /// # Errors
    /// The program is missing, the profile is rejected, or the probe fails.
    pub fn prepare(
        request: &SandboxRequest<'_>,
        sandbox_exec: &Path,
    ) -> Result<SeatbeltSandbox, BackendError> {
        if !sandbox_exec.is_file() {
            let why = format!("{} does not exist", sandbox_exec.display());
            return Err(BackendError::new(why).hint(OTHER_CHOICE));
        }
        let PreparedSandbox { scratch, mut plan, modes, rules, ralph } =
            prepare_sandbox(request, Backend::Seatbelt)?;
        // A link to it may be hidden inside.
        let ralph = ralph.canonicalize().unwrap_or(ralph);
        let (proxy, proxy_port) = match &plan.network {
            NetworkMode::Proxy { .. } => {
                let (proxy, port) = start_local_proxy(rules)?;
                (Some(proxy), Some(port))
            }
            NetworkMode::None | NetworkMode::Full => (None, None),
        };
        link_home_entries(&plan, &scratch.path().join("home"));
        link_ralph(scratch.path(), &ralph)
            .map_err(|err| failed("cannot write the sandbox's files", &err))?;
        let (saved, _) = SavedPaths::capture(&plan, &scratch.restore_file())
            .map_err(|err| failed("cannot write the sandbox's files", &err))?;
        plan.notes.extend(login_note(request.adapter, &super::agent_environment(request), &plan));
        plan.notes.extend(cloud_note(request.project));
        let info = SandboxInfo {
            backend: Backend::Seatbelt,
            limits: limits(&plan.network),
            notes: std::mem::take(&mut plan.notes),
            withheld: std::mem::take(&mut plan.withheld),
            writable: plan.writable(scratch.path()),
        };
        let env = seatbelt_env(request.adapter, &plan, scratch.path(), proxy_port);
        let sandbox_exec = sandbox_exec.to_owned();
        let command = SeatbeltCommand {
            sandbox_exec,
            ralph,
            plan,
            scratch: scratch.path().to_owned(),
            proxy_port,
        };
        let replaced = Vec::new();
        let sandbox = SeatbeltSandbox {
            info,
            command,
            env,
            modes,
            saved,
            proxy,
            replaced,
            used: false,
            scratch,
        };
        sandbox.probe(request.project)?;
        Ok(sandbox)
    }

    fn probe(&self, project: &Path) -> Result<(), BackendError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_dir() && home != Path::new("/"));
        let hidden = home.unwrap_or_else(|| self.scratch.path().to_owned());
        let Err(why) = self.command.probe(&self.env, project, &hidden) else { return Ok(()) };
        let StandInProject { project: empty, plan, scratch } =
            StandInProject::create(&self.command.plan.network)?;
        let SeatbeltCommand { sandbox_exec, ralph, proxy_port, .. } = &self.command;
        let env = env_in_place(&plan, scratch.path(), &tools_dir(scratch.path()), *proxy_port);
        let command = SeatbeltCommand {
            sandbox_exec: sandbox_exec.clone(),
            ralph: ralph.clone(),
            plan,
            scratch: scratch.path().to_owned(),
            proxy_port: *proxy_port,
        };
        match command.probe(&env, &empty, scratch.path()) {
            Ok(()) => Err(why.fails_in_project(Backend::Seatbelt, project)),
            Err(why) => Err(why),
        }
    }
}

fn tools_dir(scratch: &Path) -> PathBuf {
    scratch.join("bin")
}

/// Hooks of the agent call ralph by its name.
fn link_ralph(scratch: &Path, ralph: &Path) -> io::Result<()> {
    std::fs::create_dir(tools_dir(scratch))?;
    std::os::unix::fs::symlink(ralph, tools_dir(scratch).join("ralph"))
}

fn seatbelt_env(
    adapter: &str,
    plan: &SandboxPlan,
    scratch: &Path,
    proxy_port: Option<u16>,
) -> Vec<(OsString, Option<OsString>)> {
    let mut env = env_in_place(plan, scratch, &tools_dir(scratch), proxy_port);
    // Seatbelt cannot be nested.
    let switch = profile_of(adapter).extras.sandbox_switch;
    env.extend(switch.map(|name| (name.into(), Some("false".into()))));
    env
}

/// Names the variables that an agent needs whose login a sandbox cannot show.
fn login_note(adapter: &str, env: &[(OsString, OsString)], plan: &SandboxPlan) -> Option<String> {
    let profile = profile_of(adapter);
    let variables = profile.extras.keychain_substitutes;
    let is_set = |name: &str| environment::get(env, name).is_some_and(|value| !value.is_empty());
    let uses_cloud = profile.extras.cloud_keys.iter().any(|cloud| is_set(cloud.switch));
    let entries = || profile.homes.iter().flat_map(|home| home.entries);
    let is_login = |at: &Path| {
        entries().any(|(name, kind)| *kind == FileExposure::Credentials && at.ends_with(name))
    };
    let has_file = plan.mounts.iter().any(|mount| is_login(mount.at()));
    if variables.is_empty() || variables.iter().any(|name| is_set(name)) || uses_cloud || has_file {
        return None;
    }
    Some(format!(
        "seatbelt: {adapter} keeps its login in the keychain, which is not available in the \
         sandbox; set {}",
        variables.join(" or ")
    ))
}

fn cloud_note(project: &Path) -> Option<String> {
    let mut parts = project.components();
    parts.any(|part| part.as_os_str() == "Mobile Documents").then(|| {
        "seatbelt: the project is in iCloud Drive; files that are not downloaded yet are not \
         available in the sandbox"
            .to_owned()
    })
}

fn limits(network: &NetworkMode) -> Vec<&'static str> {
    let mut limits = vec![
        "the kernel is shared, so a kernel vulnerability is a way out",
        "it was developed without a Mac; only the probe verifies it",
        "the agent can change package caches and its own credentials",
        "/tmp is not available: temporary files go to TMPDIR",
        "set-user-ID programs, such as ps and sudo, do not start",
    ];
    match network {
        NetworkMode::Proxy { .. } => limits.extend([
            "data sent to allowed hosts is not inspected",
            "a server in the sandbox can be reached there only if allowedDomains lists its port",
        ]),
        NetworkMode::Full => {
            limits.push("the network is open, including every service on this machine")
        }
        NetworkMode::None => {}
    }
    limits
}

/// Whether it is there, and neither it nor a directory above is a link.
fn is_unlinked(path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return true };
    let found = open_dir(parent).and_then(|dir| look(&dir, name));
    matches!(found, Ok(FileKind::Directory | FileKind::File | FileKind::Other))
}

impl Sandbox for SeatbeltSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand> {
        self.used = true;
        self.replaced.extend(self.command.plan.drop_replaced(is_unlinked));
        let args = self.command.arguments(terminal, launch.program, launch.args);
        let mut env = launch.env.to_vec();
        env.extend(self.env.iter().cloned());
        let program = self.command.sandbox_exec.clone().into();
        Ok(WrappedCommand { program, args, env: carry_env(&env), socket: None, ignore_term: false })
    }

    fn cleanup(&mut self) -> Vec<SandboxTrace> {
        let SeatbeltSandbox { modes, saved, command, replaced, .. } = self;
        modes.restore_around(|| {
            let mut traces = saved.restore(&command.plan.guards);
            traces.extend(replaced.drain(..).map(SandboxTrace::Replaced));
            traces
        })
    }

    fn proxy(&mut self) -> Option<&mut Proxy> {
        self.proxy.as_mut()
    }
}

impl Drop for SeatbeltSandbox {
    fn drop(&mut self) {
        if self.used && self.cleanup().iter().any(SandboxTrace::is_not_restored) {
            self.scratch.mark_unfinished();
        }
    }
}

#[cfg(test)]
mod tests;
