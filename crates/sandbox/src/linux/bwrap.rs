//! Bubblewrap, with a network that contains only our proxy.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::bwrap_args::{self, InnerCommand, MountMaker};
use super::{landlock, mounts};
use crate::inner_exec::carry_env;
use crate::permissions::SavedModes;
use crate::plan::{INSIDE_DIR, NetworkMode, SandboxPlan};
use crate::preparation::{PreparedSandbox, StandInProject, failed, prepare_sandbox};
use crate::probe::SandboxProbe;
use crate::proxy::{ListenerSetId, Proxy};
use crate::quarantine::restore_guards;
use crate::scratch::Scratch;
use crate::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, WrappedCommand,
};
use ralph_process::Launch;
use ralph_process::trust;

#[derive(Debug)]
pub(super) struct BwrapSandbox {
    info: SandboxInfo,
    bwrap: PathBuf,
    mounts_by: MountMaker,
    plan: SandboxPlan,
    modes: SavedModes,
    project: PathBuf,
    /// Paths that mounts protect, with their inodes.
    protected_files: Vec<(PathBuf, Option<FileId>)>,
    proxy: Option<Proxy>,
    listeners: Option<ListenerSetId>,
    /// No longer shown; not yet reported.
    replaced: Vec<PathBuf>,
    used: bool,
    // Last: the fields above may use it when dropped.
    scratch: Scratch,
}

type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

impl BwrapSandbox {
    pub(super) fn prepare(request: &SandboxRequest<'_>) -> Result<BwrapSandbox, BackendError> {
        let hint = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, …";
        let bwrap = find_program("bwrap", hint)?;
        let PreparedSandbox { scratch, mut plan, modes, rules, .. } =
            prepare_sandbox(request, Backend::Bwrap)?;
        let mounts_by =
            find_mounts_by(&bwrap, &plan, request.project, scratch.path()).or_else(|why| {
                let StandInProject { project, plan, scratch } =
                    StandInProject::create(&plan.network)?;
                match find_mounts_by(&bwrap, &plan, &project, scratch.path()) {
                    Ok(_) => Err(why.fails_in_project(Backend::Bwrap, request.project)),
                    Err(why) => Err(why),
                }
            })?;
        let proxy = match &plan.network {
            NetworkMode::Proxy { .. } => {
                Some(Proxy::start(rules).map_err(|err| failed("the proxy", &err))?)
            }
            NetworkMode::None | NetworkMode::Full => None,
        };
        let info = SandboxInfo {
            backend: Backend::Bwrap,
            limits: limits(&plan.network),
            notes: std::mem::take(&mut plan.notes),
            withheld: std::mem::take(&mut plan.withheld),
            writable: plan.writable(scratch.path()),
        };
        Ok(BwrapSandbox {
            info,
            bwrap,
            mounts_by,
            plan,
            modes,
            project: request.project.to_owned(),
            protected_files: Vec::new(),
            proxy,
            listeners: None,
            replaced: Vec::new(),
            used: false,
            scratch,
        })
    }
}

fn find_program(name: &str, hint: &str) -> Result<PathBuf, BackendError> {
    trust::outside_program(OsStr::new(name)).map_err(|err| match err.hint() {
        Some(untrusted) => BackendError::new(err.to_string()).hint(untrusted),
        None => BackendError::new(format!("{name} is not installed")).hint(hint),
    })
}

fn find_mounts_by(
    bwrap: &Path,
    plan: &SandboxPlan,
    project: &Path,
    hidden: &Path,
) -> Result<MountMaker, BackendError> {
    let works = |by| run_probe(bwrap, plan, by, project, hidden).map(|()| by);
    works(MountMaker::Ralph).or_else(|_| works(MountMaker::Bwrap))
}

/// `hidden` must not be visible inside.
fn run_probe(
    bwrap: &Path,
    plan: &SandboxPlan,
    mounts_by: MountMaker,
    project: &Path,
    hidden: &Path,
) -> Result<(), BackendError> {
    let ralph = Path::new(INSIDE_DIR).join("ralph");
    let wrap = |args: &[OsString]| {
        let command = InnerCommand {
            program: ralph.as_os_str(),
            args,
            directory: project,
            socket: None,
            terminal: None,
            term_on_parent_death: false,
        };
        bwrap_args::command_line(bwrap, plan, &command, mounts_by)
    };
    SandboxProbe::prepare(project, hidden, plan.network == NetworkMode::Full)?.run(
        &plan.env,
        wrap,
        |stderr, exit| {
            explain_bwrap_error(stderr.lines().last().unwrap_or_default(), &exit.to_string())
        },
    )
}

fn explain_bwrap_error(stderr: &str, exit: &str) -> BackendError {
    let why = if stderr.is_empty() { format!("bwrap failed ({exit})") } else { stderr.to_owned() };
    let unusable = BackendError::new(why);
    let denied =
        ["Permission denied", "Operation not permitted"].iter().any(|w| stderr.contains(w));
    if stderr.contains("setting up uid map") || (denied && stderr.contains("RTM_NEWADDR")) {
        return unusable.hint(
            "this system does not let ordinary users create namespaces; on Ubuntu, an AppArmor \
             profile for bwrap allows it: /etc/apparmor.d/bwrap",
        );
    }
    if denied
        && (stderr.contains("namespace") || stderr.contains("proc") || stderr.contains("mount"))
    {
        return unusable.hint("in a container, allow the creation of namespaces");
    }
    unusable
}

fn limits(network: &NetworkMode) -> Vec<&'static str> {
    let mut limits = vec![
        "the kernel is shared, so a kernel vulnerability is a way out",
        "the agent can change package caches and its own credentials",
    ];
    if landlock::landlock_abi() < landlock::ABI_REFER {
        limits.push(
            "named pipes in readable directories can also be written (preventing that needs Linux \
             5.19 with Landlock)",
        );
    }
    limits.push(match network {
        NetworkMode::Proxy { .. } => "data sent to allowed hosts is not inspected",
        NetworkMode::Full => "the network is open, including every service on this machine",
        NetworkMode::None => return limits,
    });
    limits
}

impl Sandbox for BwrapSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand> {
        self.release();
        self.used = true;
        self.replaced.extend(self.plan.drop_replaced(mounts::is_unlinked));
        let mut socket = None;
        if let (Some(proxy), NetworkMode::Proxy { ports }) = (&mut self.proxy, &self.plan.network) {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            self.listeners = Some(proxy.expect_listeners(ours, Arc::from(ports.as_slice())));
            socket = Some(theirs);
        }
        self.protected_files = self
            .plan
            .protected(&self.project)
            .map(|path| (path.to_owned(), file_id(path)))
            .collect();
        let command = InnerCommand {
            program: launch.program,
            args: launch.args,
            directory: launch.directory,
            socket: socket.as_ref().map(AsRawFd::as_raw_fd),
            terminal,
            term_on_parent_death: launch.term_on_parent_death,
        };
        let (program, args) =
            bwrap_args::command_line(&self.bwrap, &self.plan, &command, self.mounts_by);
        let mut env: Vec<(OsString, Option<OsString>)> = launch.env.to_vec();
        env.extend(self.plan.env.iter().cloned());
        let env = carry_env(&env);
        Ok(WrappedCommand { program, args, env, socket, ignore_term: true })
    }

    fn cleanup(&mut self) -> Vec<SandboxTrace> {
        self.release();
        let put = self.clean_up();
        // Writing a new file in place of a mounted one, as git does with `config`, removes the
        // mount in every namespace.
        let exposed = std::mem::take(&mut self.protected_files)
            .into_iter()
            .filter(|(path, file)| file_id(path) != *file)
            .map(|(path, _)| SandboxTrace::Exposed(path));
        let replaced = self.replaced.drain(..).map(SandboxTrace::Replaced);
        put.into_iter().chain(exposed).chain(replaced).collect()
    }

    fn proxy(&mut self) -> Option<&mut Proxy> {
        self.proxy.as_mut()
    }
}

impl BwrapSandbox {
    fn clean_up(&mut self) -> Vec<SandboxTrace> {
        self.modes.restore_around(|| restore_guards(&self.plan.guards))
    }

    fn release(&mut self) {
        if let (Some(proxy), Some(listeners)) = (&mut self.proxy, self.listeners.take()) {
            proxy.release(listeners);
        }
    }
}

impl Drop for BwrapSandbox {
    fn drop(&mut self) {
        if self.used && self.clean_up().iter().any(SandboxTrace::is_not_restored) {
            self.scratch.mark_unfinished();
        }
    }
}
