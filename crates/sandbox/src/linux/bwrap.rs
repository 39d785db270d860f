//! Bubblewrap, with a network that contains only our proxy.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::bwrap_args::{self, InnerCommand, MountMaker};
use super::disk::RealDisk;
use super::hosts::HostAllowList;
use super::landlock;
use super::mounts;
use super::permissions::SavedModes;
use super::plan::{self, INSIDE_DIR, NetworkMode, PlanError, PlanInputs, SandboxPlan};
use super::probe::{self, SandboxProbe};
use super::proxy::{ListenerSetId, Proxy, ProxyRules, Resolver, UpstreamProxies};
use super::quarantine::restore_guards;
use super::scratch::{self, Scratch, ScratchRecord};
use super::settings::SandboxNetwork;
use super::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, WrappedCommand,
    init_process,
};
use ralph_process as process;
use ralph_process::Launch;
use ralph_process::trust;
use ralph_store::project_record;

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

pub(super) struct PreparedSandbox {
    pub(super) scratch: Scratch,
    pub(super) plan: SandboxPlan,
    pub(super) modes: SavedModes,
    pub(super) rules: ProxyRules,
    pub(super) ralph: PathBuf,
}

/// Plans a sandbox for any local backend. A failure is an error, not a reason to try another
/// backend.
pub(super) fn prepare_sandbox(
    request: &SandboxRequest<'_>,
    backend: Backend,
) -> Result<PreparedSandbox, BackendError> {
    if request.project.to_str().is_none() {
        let why = "the project's path is no UTF-8, which a sandbox needs; give its directory another name";
        return Err(BackendError::config_error(why));
    }
    let (base, mut scratch) = new_scratch()?;
    let env = super::agent_environment(request);
    let allow = super::allow_list(request, &env)?;
    let (upstream, problem) = UpstreamProxies::from_env(&env);
    let wanted = plan_inputs(request, &scratch, &base, env, &allow)?;
    let mut plan = make_plan(&wanted)?;
    if let NetworkMode::Proxy { .. } = &plan.network {
        plan.notes.extend(problem);
    }
    let rules = ProxyRules { allow, resolver: Resolver::default(), upstream };
    set_up(&plan).map_err(|err| failed("the sandbox's files cannot be written", &err))?;
    let note = ScratchRecord::new(backend, request.project, &plan);
    scratch.write_record(&note).map_err(|err| failed("the sandbox's note", &err))?;
    Ok(PreparedSandbox { scratch, plan, modes: note.modes, rules, ralph: wanted.ralph })
}

fn new_scratch() -> Result<(PathBuf, Scratch), BackendError> {
    let base = scratch::sandboxes()?;
    let scratch = Scratch::create(&base)
        .map_err(|err| failed(&format!("{} cannot be used", base.display()), &err))?;
    Ok((base, scratch))
}

fn make_plan(inputs: &PlanInputs) -> Result<SandboxPlan, BackendError> {
    plan::build_plan(inputs, &RealDisk)
        .map_err(|(PlanError::Path(why) | PlanError::Setting(why))| BackendError::config_error(why))
}

fn own_program() -> Result<PathBuf, BackendError> {
    std::env::current_exe().map_err(|err| {
        BackendError::config_error(format!("ralph's own program cannot be found: {err}"))
    })
}

pub(super) fn failed(context: &str, err: &io::Error) -> BackendError {
    BackendError::config_error(format!("{context}: {err}"))
}

/// An empty project, to tell whether a backend fails on this machine or only in one project.
/// Nothing in it can be changed by an agent: no settings, environment or home directory.
pub(super) struct StandInProject {
    pub(super) project: PathBuf,
    pub(super) plan: SandboxPlan,
    pub(super) scratch: Scratch,
}

impl StandInProject {
    pub(super) fn create(network: &NetworkMode) -> Result<StandInProject, BackendError> {
        let (base, scratch) = new_scratch()?;
        let project = scratch.path().join("project");
        std::fs::create_dir(&project).map_err(|err| failed("the probe cannot be set up", &err))?;
        let plan = make_plan(&PlanInputs {
            project: project.clone(),
            ralph_home: base.parent().unwrap_or(&base).to_owned(),
            scratch: scratch.path().to_owned(),
            ralph: own_program()?,
            adapter: "text",
            network: network.clone(),
            user: current_user(),
            ..PlanInputs::default()
        })?;
        set_up(&plan).map_err(|err| failed("the probe cannot be set up", &err))?;
        Ok(StandInProject { project, plan, scratch })
    }
}

fn current_user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl BwrapSandbox {
    pub(super) fn prepare(request: &SandboxRequest<'_>) -> Result<BwrapSandbox, BackendError> {
        let hint = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, …";
        let bwrap = super::find_program("bwrap", hint)?;
        let PreparedSandbox { scratch, mut plan, modes, rules, .. } =
            prepare_sandbox(request, Backend::Bwrap)?;
        let mounts_by =
            find_mounts_by(&bwrap, &plan, request.project, scratch.path()).or_else(|why| {
                match StandInProject::create(&plan.network)?.probe(&bwrap) {
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

impl StandInProject {
    fn probe(&self, bwrap: &Path) -> Result<MountMaker, BackendError> {
        find_mounts_by(bwrap, &self.plan, &self.project, self.scratch.path())
    }
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
    let probe = SandboxProbe::set_up(project, hidden, plan.network == NetworkMode::Full)
        .map_err(|err| failed("the probe cannot be set up", &err))?;
    let args = probe.args().map_err(|err| failed("the probe cannot be set up", &err))?;
    let ralph = Path::new(INSIDE_DIR).join("ralph");
    let command = InnerCommand {
        program: ralph.as_os_str(),
        args: &args,
        directory: project,
        socket: None,
        terminal: None,
        term_on_parent_death: false,
    };
    let (program, args) = bwrap_args::command_line(bwrap, plan, &command, mounts_by);
    let env = init_process::carry_env(&plan.env);
    let output = process::run_to_end(&program, &args, project, &env, probe::PROBE_TIMEOUT)
        .map_err(|err| BackendError::new(format!("bwrap cannot be run: {err}")))?;
    if !output.exit.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = stderr.trim().lines().last().unwrap_or_default();
        return Err(explain_bwrap_error(stderr, &output.exit.to_string()));
    }
    probe.evaluate(&output.stdout).map_err(BackendError::new)
}

pub(super) fn plan_inputs(
    request: &SandboxRequest<'_>,
    scratch: &Scratch,
    base: &Path,
    env: Vec<(OsString, OsString)>,
    allow: &HostAllowList,
) -> Result<PlanInputs, BackendError> {
    let network = match request.settings.network {
        SandboxNetwork::Allowlist => NetworkMode::Proxy { ports: allow.local_ports() },
        SandboxNetwork::None => NetworkMode::None,
        SandboxNetwork::Full => NetworkMode::Full,
    };
    if let NetworkMode::Proxy { ports } = &network
        && ports.len() > init_process::MAX_PORTS
    {
        let max = init_process::MAX_PORTS;
        let why = format!("sandbox.allowedDomains: more than {max} ports of this machine");
        return Err(BackendError::config_error(why));
    }
    let paths = |paths: &[String]| paths.iter().map(PathBuf::from).collect();
    Ok(PlanInputs {
        project: request.project.to_owned(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        ralph_home: base.parent().unwrap_or(base).to_owned(),
        scratch: scratch.path().to_owned(),
        ralph: own_program()?,
        adapter: request.adapter,
        agent: request.agent.clone(),
        env,
        kept_variables: {
            let set = request.env.iter().map(|(name, _)| name.clone());
            set.chain(request.settings.env.iter().map(OsString::from)).collect()
        },
        readable: paths(&request.settings.readable),
        writable: paths(&request.settings.writable),
        network,
        user: current_user(),
        agent_writable: trust::agent_writable(),
        nested_projects: nested_projects(base.parent().unwrap_or(base), request.project),
    })
}

fn nested_projects(ralph_home: &Path, project: &Path) -> Vec<PathBuf> {
    let roots = project_record::all_records(ralph_home).into_iter().map(|record| record.root);
    let mut nested: Vec<PathBuf> =
        roots.filter(|root| root != project && root.starts_with(project)).collect();
    nested.sort();
    nested
}

pub(super) fn set_up(plan: &SandboxPlan) -> io::Result<()> {
    for dir in &plan.dirs {
        std::fs::create_dir_all(dir)?;
    }
    for (path, text) in &plan.files {
        std::fs::write(path, text)?;
    }
    for (from, to) in &plan.copies {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut from = File::from(mounts::open_unlinked(from, flags)?);
        let mut options = OpenOptions::new();
        let mut to = options.write(true).create(true).truncate(true).mode(0o600).open(to)?;
        io::copy(&mut from, &mut to)?;
    }
    Ok(())
}

fn explain_bwrap_error(stderr: &str, exit: &str) -> BackendError {
    let why = if stderr.is_empty() { format!("bwrap failed ({exit})") } else { stderr.to_owned() };
    let unusable = BackendError::new(why);
    let denied =
        ["Permission denied", "Operation not permitted"].iter().any(|w| stderr.contains(w));
    if stderr.contains("setting up uid map") || (denied && stderr.contains("RTM_NEWADDR")) {
        return unusable.hint(
            "this system keeps ordinary users from namespaces; on Ubuntu an AppArmor profile for bwrap \
             allows it: /etc/apparmor.d/bwrap",
        );
    }
    if denied
        && (stderr.contains("namespace") || stderr.contains("proc") || stderr.contains("mount"))
    {
        return unusable.hint("inside a container it needs to be allowed to make namespaces");
    }
    unusable
}

fn limits(network: &NetworkMode) -> Vec<&'static str> {
    let mut limits = vec![
        "the kernel is shared: a hole in it is a way out",
        "package caches and the agent's own credentials can be changed",
    ];
    if landlock::landlock_abi() < landlock::ABI_REFER {
        limits.push(
            "named pipes in what can be read can also be written: this kernel cannot prevent that (it needs \
             Linux 5.19 with Landlock)",
        );
    }
    limits.push(match network {
        NetworkMode::Proxy { .. } => "what is sent to an allowed host is not looked at",
        NetworkMode::Full => "the network is open, and with it every service of this machine",
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
        let env = init_process::carry_env(&env);
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
