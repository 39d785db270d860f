//! Bubblewrap, with a network that has nothing in it but our proxy.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::bwrap_args::{self, Command, MountsBy};
use super::disk::RealDisk;
use super::hosts::AllowList;
use super::landlock;
use super::mounts;
use super::permissions::SavedModes;
use super::plan::{self, INSIDE_DIR, Network, Plan, Refused, Wanted};
use super::probe::{self, Probe};
use super::proxy::{ListenersId, Proxy, Refusal, Resolver, Rules, Upstream};
use super::quarantine::set_aside;
use super::scratch::{self, Note, Scratch};
use super::settings::SandboxNetwork;
use super::{Backend, Request, Sandbox, Trace, Unusable, Wrapped, init_process};
use ralph_process as process;
use ralph_process::Launch;
use ralph_process::trust;
use ralph_store::project_record;

/// A sandbox of namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    bwrap: PathBuf,
    mounts_by: MountsBy,
    plan: Plan,
    modes: SavedModes,
    project: PathBuf,
    /// What is protected by a mount while something runs, and which file that is.
    covered: Vec<(PathBuf, Option<Identity>)>,
    proxy: Option<Proxy>,
    listeners: Option<ListenersId>,
    /// What is no longer shown, because it was replaced, and has not been reported.
    replaced: Vec<PathBuf>,
    /// Somebody was inside.
    used: bool,
    // Last: what is above may still use it.
    scratch: Scratch,
}

/// Which file something is, whatever it is called.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// What a backend of this machine's own needs before it can be tried.
pub(super) struct Furnished {
    pub(super) scratch: Scratch,
    pub(super) plan: Plan,
    pub(super) modes: SavedModes,
    /// For the proxy.
    pub(super) rules: Rules,
    /// This program, as it is found outside.
    pub(super) ralph: PathBuf,
}

/// Plans the sandbox, and makes its directory with all that belongs there. Nothing in here depends on the backend, so
/// that every failure is an error rather than a reason to try the next one.
pub(super) fn furnish(request: &Request<'_>, backend: Backend) -> Result<Furnished, Unusable> {
    if request.project.to_str().is_none() {
        let why = "the project's path is no UTF-8, which a sandbox needs; give its directory another name";
        return Err(Unusable::mistake(why));
    }
    let (base, mut scratch) = new_scratch()?;
    let env = super::environment_of(request);
    let allow = super::allow_list(request, &env)?;
    let (upstream, problem) = Upstream::from_env(&env);
    let wanted = wanted(request, &scratch, &base, env, &allow)?;
    let mut plan = make_plan(&wanted)?;
    if let Network::Proxy { .. } = &plan.network {
        plan.notes.extend(problem);
    }
    let rules = Rules { allow, resolver: Resolver::default(), upstream };
    set_up(&plan).map_err(|err| failed("the sandbox's files cannot be written", &err))?;
    let note = Note::new(backend, request.project, &plan);
    scratch.write_note(&note).map_err(|err| failed("the sandbox's note", &err))?;
    Ok(Furnished { scratch, plan, modes: note.modes, rules, ralph: wanted.ralph })
}

/// A directory for a sandbox, and the one that it is in.
fn new_scratch() -> Result<(PathBuf, Scratch), Unusable> {
    let base = scratch::sandboxes()?;
    let scratch = Scratch::create(&base)
        .map_err(|err| failed(&format!("{} cannot be used", base.display()), &err))?;
    Ok((base, scratch))
}

fn make_plan(wanted: &Wanted) -> Result<Plan, Unusable> {
    plan::plan(wanted, &RealDisk)
        .map_err(|(Refused::Place(why) | Refused::Setting(why))| Unusable::mistake(why))
}

fn own_program() -> Result<PathBuf, Unusable> {
    std::env::current_exe()
        .map_err(|err| Unusable::mistake(format!("ralph's own program cannot be found: {err}")))
}

pub(super) fn failed(what: &str, err: &io::Error) -> Unusable {
    Unusable::mistake(format!("{what}: {err}"))
}

/// A sandbox around an empty directory of ralph's own. A backend that fails in a project is tried here as well: if it
/// works here, it is the project that it fails in, not the machine. Nothing that an agent can change is part of it:
/// no settings, no environment, nothing of the home.
pub(super) struct StandIn {
    pub(super) project: PathBuf,
    pub(super) plan: Plan,
    pub(super) scratch: Scratch,
}

impl StandIn {
    pub(super) fn create(network: &Network) -> Result<StandIn, Unusable> {
        let (base, scratch) = new_scratch()?;
        let project = scratch.path().join("project");
        std::fs::create_dir(&project).map_err(|err| failed("the probe cannot be set up", &err))?;
        let plan = make_plan(&Wanted {
            project: project.clone(),
            ralph_home: base.parent().unwrap_or(&base).to_owned(),
            scratch: scratch.path().to_owned(),
            ralph: own_program()?,
            adapter: "text",
            network: network.clone(),
            user: user(),
            ..Wanted::default()
        })?;
        set_up(&plan).map_err(|err| failed("the probe cannot be set up", &err))?;
        Ok(StandIn { project, plan, scratch })
    }
}

/// The user that runs this, and its group.
fn user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Namespaces {
    pub(super) fn prepare(request: &Request<'_>) -> Result<Namespaces, Unusable> {
        let hint = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, …";
        let bwrap = super::find_program("bwrap", hint)?;
        let Furnished { scratch, plan, modes, rules, .. } = furnish(request, Backend::Bwrap)?;
        let mounts_by =
            find_mounts_by(&bwrap, &plan, request.project, scratch.path()).or_else(|why| {
                match StandIn::create(&plan.network)?.probe(&bwrap) {
                    Ok(_) => Err(why.in_project(Backend::Bwrap, request.project)),
                    Err(why) => Err(why),
                }
            })?;
        let proxy = match &plan.network {
            Network::Proxy { .. } => {
                Some(Proxy::start(rules).map_err(|err| failed("the proxy", &err))?)
            }
            Network::None | Network::Full => None,
        };
        Ok(Namespaces {
            bwrap,
            mounts_by,
            plan,
            modes,
            project: request.project.to_owned(),
            covered: Vec::new(),
            proxy,
            listeners: None,
            replaced: Vec::new(),
            used: false,
            scratch,
        })
    }
}

impl StandIn {
    fn probe(&self, bwrap: &Path) -> Result<MountsBy, Unusable> {
        find_mounts_by(bwrap, &self.plan, &self.project, self.scratch.path())
    }
}

/// Finds out by which program the mounts can be made such that the sandbox passes the probe.
fn find_mounts_by(
    bwrap: &Path,
    plan: &Plan,
    project: &Path,
    hidden: &Path,
) -> Result<MountsBy, Unusable> {
    let works = |by| run_probe(bwrap, plan, by, project, hidden).map(|()| by);
    works(MountsBy::Ralph).or_else(|_| works(MountsBy::Bwrap))
}

/// Runs the probe around `project`. `hidden` is a directory that must not be seen inside.
fn run_probe(
    bwrap: &Path,
    plan: &Plan,
    mounts_by: MountsBy,
    project: &Path,
    hidden: &Path,
) -> Result<(), Unusable> {
    let probe = Probe::set_up(project, hidden, plan.network == Network::Full)
        .map_err(|err| failed("the probe cannot be set up", &err))?;
    let args = probe.args().map_err(|err| failed("the probe cannot be set up", &err))?;
    let ralph = Path::new(INSIDE_DIR).join("ralph");
    let command = Command {
        program: ralph.as_os_str(),
        args: &args,
        directory: project,
        socket: None,
        terminal: None,
        spare: false,
    };
    let (program, args) = bwrap_args::line(bwrap, plan, &command, mounts_by);
    let env = init_process::carry_env(&plan.env);
    let output = process::run_to_end(&program, &args, project, &env, probe::PATIENCE)
        .map_err(|err| Unusable::new(format!("bwrap cannot be run: {err}")))?;
    if !output.exit.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        return Err(explain(said, &output.exit.to_string()));
    }
    probe.judge(&output.stdout).map_err(Unusable::new)
}

/// What a plan is made from, on this machine.
pub(super) fn wanted(
    request: &Request<'_>,
    scratch: &Scratch,
    base: &Path,
    env: Vec<(OsString, OsString)>,
    allow: &AllowList,
) -> Result<Wanted, Unusable> {
    let network = match request.settings.network {
        SandboxNetwork::Allowlist => Network::Proxy { ports: allow.local_ports() },
        SandboxNetwork::None => Network::None,
        SandboxNetwork::Full => Network::Full,
    };
    if let Network::Proxy { ports } = &network
        && ports.len() > init_process::MAX_PORTS
    {
        let max = init_process::MAX_PORTS;
        let why = format!("sandbox.allowedDomains: more than {max} ports of this machine");
        return Err(Unusable::mistake(why));
    }
    let paths = |paths: &[String]| paths.iter().map(PathBuf::from).collect();
    Ok(Wanted {
        project: request.project.to_owned(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        ralph_home: base.parent().unwrap_or(base).to_owned(),
        scratch: scratch.path().to_owned(),
        ralph: own_program()?,
        adapter: request.adapter,
        agent: request.agent.clone(),
        env,
        env_kept: {
            let set = request.env.iter().map(|(name, _)| name.clone());
            set.chain(request.settings.env.iter().map(OsString::from)).collect()
        },
        readable: paths(&request.settings.readable),
        writable: paths(&request.settings.writable),
        network,
        user: user(),
        agent_writable: trust::agent_writable(),
        nested_projects: nested_projects(base.parent().unwrap_or(base), request.project),
    })
}

/// The roots of the known projects inside `project`.
fn nested_projects(ralph_home: &Path, project: &Path) -> Vec<PathBuf> {
    let roots = project_record::all_records(ralph_home).into_iter().map(|record| record.root);
    let mut nested: Vec<PathBuf> =
        roots.filter(|root| root != project && root.starts_with(project)).collect();
    nested.sort();
    nested
}

/// Makes what the mounts are made of.
pub(super) fn set_up(plan: &Plan) -> io::Result<()> {
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

/// What bubblewrap's own words mean, where that is known.
fn explain(said: &str, exit: &str) -> Unusable {
    let why = if said.is_empty() { format!("bwrap failed ({exit})") } else { said.to_owned() };
    let unusable = Unusable::new(why);
    let denied = ["Permission denied", "Operation not permitted"].iter().any(|w| said.contains(w));
    if said.contains("setting up uid map") || (denied && said.contains("RTM_NEWADDR")) {
        return unusable.hint(
            "this system keeps ordinary users from namespaces; on Ubuntu an AppArmor profile for bwrap \
             allows it: /etc/apparmor.d/bwrap",
        );
    }
    if denied && (said.contains("namespace") || said.contains("proc") || said.contains("mount")) {
        return unusable.hint("inside a container it needs to be allowed to make namespaces");
    }
    unusable
}

impl Sandbox for Namespaces {
    fn backend(&self) -> Backend {
        Backend::Bwrap
    }

    fn writable(&self) -> Vec<PathBuf> {
        self.plan.writable(self.scratch.path())
    }

    fn limits(&self) -> Vec<String> {
        let mut limits = vec![
            "the kernel is shared: a hole in it is a way out".to_owned(),
            "package caches and the agent's own credentials can be changed".to_owned(),
        ];
        if landlock::version() < landlock::MOVES {
            limits.push(
                "named pipes in what can be read can also be written: this kernel cannot prevent that (it needs \
                 Linux 5.19 with Landlock)"
                    .to_owned(),
            );
        }
        limits.push(match self.plan.network {
            Network::Proxy { .. } => "what is sent to an allowed host is not looked at".to_owned(),
            Network::Full => {
                "the network is open, and with it every service of this machine".to_owned()
            }
            Network::None => return limits,
        });
        limits
    }

    fn notes(&self) -> Vec<String> {
        self.plan.notes.clone()
    }

    fn withheld(&self) -> &[String] {
        &self.plan.withheld
    }

    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<Wrapped> {
        self.release();
        self.used = true;
        self.replaced.extend(self.plan.drop_replaced(mounts::is_unlinked));
        let mut socket = None;
        if let (Some(proxy), Network::Proxy { ports }) = (&mut self.proxy, &self.plan.network) {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            self.listeners = Some(proxy.expect(ours, Arc::from(ports.as_slice())));
            socket = Some(theirs);
        }
        self.covered = self
            .plan
            .protected(&self.project)
            .map(|path| (path.to_owned(), identity(path)))
            .collect();
        let command = Command {
            program: launch.program,
            args: launch.args,
            directory: launch.directory,
            socket: socket.as_ref().map(AsRawFd::as_raw_fd),
            terminal,
            spare: launch.term_on_parent_death,
        };
        let (program, args) = bwrap_args::line(&self.bwrap, &self.plan, &command, self.mounts_by);
        let mut env: Vec<(OsString, Option<OsString>)> = launch.env.to_vec();
        env.extend(self.plan.env.iter().cloned());
        let env = init_process::carry_env(&env);
        Ok(Wrapped { program, args, env, socket, ignore_term: true })
    }

    fn ended(&mut self) -> Vec<Trace> {
        self.release();
        let put = self.clean_up();
        // A mount is of a file, and goes with it: whoever writes another one in its place, as git does with
        // its configuration, takes the mount away, in every namespace.
        let exposed = std::mem::take(&mut self.covered)
            .into_iter()
            .filter(|(path, file)| identity(path) != *file)
            .map(|(path, _)| Trace::Exposed(path));
        let replaced = self.replaced.drain(..).map(Trace::Replaced);
        put.into_iter().chain(exposed).chain(replaced).collect()
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        self.proxy.as_ref().map(Proxy::refusals).unwrap_or_default()
    }

    fn take_bell(&mut self) -> Option<PipeReader> {
        self.proxy.as_mut().and_then(Proxy::take_bell)
    }
}

impl Namespaces {
    fn clean_up(&mut self) -> Vec<Trace> {
        self.modes.restore_around(|| set_aside(&self.plan.guards))
    }

    fn release(&mut self) {
        if let (Some(proxy), Some(listeners)) = (&mut self.proxy, self.listeners.take()) {
            proxy.release(listeners);
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if self.used && self.clean_up().iter().any(Trace::is_stuck) {
            self.scratch.leave_unfinished();
        }
    }
}
