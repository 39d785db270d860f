//! What every local backend needs before it starts: a scratch directory, a plan, proxy rules.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::disk::RealDisk;
use super::hosts::HostAllowList;
use super::permissions::SavedModes;
use super::plan::{self, INSIDE_DIR, NetworkMode, PlanError, PlanInputs, SandboxPlan};
use super::proxy::{self, Proxy, ProxyRules, Resolver, UpstreamProxies};
use super::scratch::{self, Scratch, ScratchRecord};
use super::settings::SandboxNetwork;
use super::{Backend, BackendError, SandboxRequest, platform};
use ralph_process::trust;
use ralph_store::project_record;

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
        let why = "the project's path is not valid UTF-8, which a sandbox needs; rename the \
                   directory";
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
    set_up(&plan).map_err(|err| failed("cannot write the sandbox's files", &err))?;
    let note = ScratchRecord::new(backend, request.project, &plan);
    scratch.write_record(&note).map_err(|err| failed("cannot write the sandbox's record", &err))?;
    Ok(PreparedSandbox { scratch, plan, modes: note.modes, rules, ralph: wanted.ralph })
}

fn new_scratch() -> Result<(PathBuf, Scratch), BackendError> {
    let base = scratch::sandboxes()?;
    let scratch = Scratch::create(&base)
        .map_err(|err| failed(&format!("cannot use {}", base.display()), &err))?;
    Ok((base, scratch))
}

fn make_plan(inputs: &PlanInputs) -> Result<SandboxPlan, BackendError> {
    plan::build_plan(inputs, &RealDisk)
        .map_err(|(PlanError::Path(why) | PlanError::Setting(why))| BackendError::config_error(why))
}

fn own_program() -> Result<PathBuf, BackendError> {
    std::env::current_exe().map_err(|err| {
        BackendError::config_error(format!("cannot find ralph's own program: {err}"))
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
        std::fs::create_dir(&project).map_err(|err| failed("cannot set up the probe", &err))?;
        let plan = make_plan(&PlanInputs {
            project: project.clone(),
            ralph_home: base.parent().unwrap_or(&base).to_owned(),
            scratch: scratch.path().to_owned(),
            ralph: own_program()?,
            adapter: "text",
            network: network.clone(),
            user: current_user(),
            system: platform::HOST_SYSTEM,
            ..PlanInputs::default()
        })?;
        set_up(&plan).map_err(|err| failed("cannot set up the probe", &err))?;
        Ok(StandInProject { project, plan, scratch })
    }
}

fn current_user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
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
        && ports.len() > proxy::MAX_LOCAL_PORTS
    {
        let max = proxy::MAX_LOCAL_PORTS;
        let why = format!("sandbox.allowedDomains: more than {max} local ports");
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
        system: platform::HOST_SYSTEM,
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
        let mut from = platform::open_unlinked_file(from)?;
        let mut options = OpenOptions::new();
        let mut to = options.write(true).create(true).truncate(true).mode(0o600).open(to)?;
        io::copy(&mut from, &mut to)?;
    }
    Ok(())
}

/// Starts a proxy on a free port of this machine, for backends without a network of their own.
pub(super) fn start_local_proxy(rules: ProxyRules) -> Result<(Proxy, u16), BackendError> {
    let start = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let mut proxy = Proxy::start(rules)?;
        proxy.serve(listener.into());
        Ok((proxy, port))
    };
    start().map_err(|err| failed("the proxy", &err))
}

/// The environment for backends that show nothing at other paths or ports than it has.
pub(super) fn env_in_place(
    plan: &SandboxPlan,
    scratch: &Path,
    ralph_dir: &Path,
    proxy_port: Option<u16>,
) -> Vec<(OsString, Option<OsString>)> {
    let mut env = plan.env.clone();
    for value in env.iter_mut().filter(|(name, _)| name == "PATH").filter_map(|(_, v)| v.as_mut()) {
        let dirs = std::env::split_paths(&*value).map(|dir| match dir == Path::new(INSIDE_DIR) {
            true => ralph_dir.to_owned(),
            false => dir,
        });
        if let Ok(path) = std::env::join_paths(dirs.collect::<Vec<_>>()) {
            *value = path;
        }
    }
    let usual = OsString::from(format!("http://127.0.0.1:{}", proxy::PORT));
    for value in env.iter_mut().filter_map(|(_, value)| value.as_mut()) {
        if let Some(port) = proxy_port
            && *value == usual
        {
            *value = format!("http://127.0.0.1:{port}").into();
        }
    }
    env.push(("HOME".into(), Some(scratch.join("home").into())));
    env.push(("TMPDIR".into(), Some(scratch.join("tmp").into())));
    env
}
