//! Bubblewrap, with a network that has nothing in it but our proxy.

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::aside::set_aside;
use super::bwrap::{self, Command, MountsBy};
use super::disk::RealDisk;
use super::hosts::AllowList;
use super::plan::{self, INSIDE_DIR, Network, Plan, Refused, Wanted};
use super::probe::{self, Probe};
use super::proxy::{ListenersId, Proxy, Refusal, Resolver, Rules, Upstream};
use super::scratch::{self, Note, Scratch};
use super::{Backend, Request, Sandbox, Trace, Unusable, Wrapped, inside};
use crate::config::settings::SandboxNetwork;
use crate::process::{self, Launch};

/// A sandbox of namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    bwrap: PathBuf,
    mounts_by: MountsBy,
    plan: Plan,
    project: PathBuf,
    /// What is protected by a mount while something runs, and which file that is.
    covered: Vec<(PathBuf, Option<Identity>)>,
    proxy: Option<Proxy>,
    listeners: Option<ListenersId>,
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
    /// For the proxy.
    pub(super) rules: Rules,
    /// This program, as it is found outside.
    pub(super) ralph: PathBuf,
}

/// Plans the sandbox, and makes its directory with all that belongs there.
pub(super) fn furnish(request: &Request<'_>, backend: Backend) -> Result<Furnished, Unusable> {
    if request.project.to_str().is_none() {
        let why = "the project's path is no UTF-8, which a sandbox needs; give its directory another name";
        return Err(Unusable::new(why));
    }
    let base = scratch::sandboxes();
    let mut scratch = Scratch::create(&base)
        .map_err(|err| failed(&format!("{} cannot be used", base.display()), &err))?;
    let env = super::environment_of(request);
    let allow = super::allow_list(request, &env)?;
    let (upstream, problem) = Upstream::from_env(&env);
    let wanted = wanted(request, &scratch, &base, env, &allow)?;
    let mut plan = plan::plan(&wanted, &RealDisk).map_err(|refused| match refused {
        Refused::Place(why) => Unusable::new(why),
        Refused::Setting(why) => Unusable::mistake(why),
    })?;
    if let Network::Proxy { .. } = &plan.network {
        plan.notes.extend(problem);
    }
    let rules = Rules { allow, resolver: Resolver::default(), upstream };
    set_up(&plan).map_err(|err| failed("the sandbox's files cannot be written", &err))?;
    let note = Note::new(backend, request.project, &plan);
    scratch.write_note(&note).map_err(|err| failed("the sandbox's note", &err))?;
    Ok(Furnished { scratch, plan, rules, ralph: wanted.ralph })
}

pub(super) fn failed(what: &str, err: &io::Error) -> Unusable {
    Unusable::new(format!("{what}: {err}"))
}

impl Namespaces {
    pub(super) fn prepare(request: &Request<'_>) -> Result<Namespaces, Unusable> {
        let hint = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, …";
        let bwrap = super::find_program("bwrap", hint)?;
        let Furnished { scratch, plan, rules, .. } = furnish(request, Backend::Bwrap)?;
        let mut sandbox = Namespaces {
            bwrap,
            mounts_by: MountsBy::Ralph,
            plan,
            project: request.project.to_owned(),
            covered: Vec::new(),
            proxy: None,
            listeners: None,
            used: false,
            scratch,
        };
        if sandbox.probe(request.project).is_err() {
            sandbox.mounts_by = MountsBy::Bwrap;
            sandbox.probe(request.project)?;
        }
        if let Network::Proxy { .. } = &sandbox.plan.network {
            let proxy = Proxy::start(rules).map_err(|err| failed("the proxy", &err))?;
            sandbox.proxy = Some(proxy);
        }
        Ok(sandbox)
    }

    fn probe(&self, project: &Path) -> Result<(), Unusable> {
        let full = self.plan.network == Network::Full;
        let probe = Probe::set_up(project, self.scratch.path(), full)
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
        let (program, args) = bwrap::line(&self.bwrap, &self.plan, &command, self.mounts_by);
        let output = process::run_quick(&program, &args, project, &self.plan.env, probe::PATIENCE)
            .map_err(|err| failed("bwrap cannot be run", &err))?;
        if !output.exit.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().lines().last().unwrap_or_default();
            return Err(explain(said, &output.exit.to_string()));
        }
        probe
            .judge(&output.stdout)
            .map_err(|why| Unusable::new(format!("bwrap does not hold: {why}")))
    }
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
        && ports.len() > inside::MAX_PORTS
    {
        let max = inside::MAX_PORTS;
        let why = format!("sandbox.allowedDomains: more than {max} ports of this machine");
        return Err(Unusable::mistake(why));
    }
    let paths = |paths: &[String]| paths.iter().map(PathBuf::from).collect();
    let ralph = std::env::current_exe()
        .map_err(|err| Unusable::new(format!("ralph's own program cannot be found: {err}")))?;
    Ok(Wanted {
        project: request.project.to_owned(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        ralph_home: base.parent().unwrap_or(base).to_owned(),
        scratch: scratch.path().to_owned(),
        ralph,
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
        user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    })
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
        std::fs::copy(from, to)?;
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
            spare: launch.spare,
        };
        let (program, args) = bwrap::line(&self.bwrap, &self.plan, &command, self.mounts_by);
        let mut env: Vec<(OsString, Option<OsString>)> = launch.env.to_vec();
        env.extend(self.plan.env.iter().cloned());
        Ok(Wrapped { program, args, env, socket, ignore_term: true })
    }

    fn ended(&mut self) -> Vec<Trace> {
        self.release();
        let put = set_aside(&self.plan.guards);
        // A mount is of a file, and goes with it: whoever writes another one in its place, as git does with
        // its configuration, takes the mount away, in every namespace.
        let exposed = std::mem::take(&mut self.covered)
            .into_iter()
            .filter(|(path, file)| identity(path) != *file)
            .map(|(path, _)| Trace::Exposed(path));
        put.into_iter().chain(exposed).collect()
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        self.proxy.as_ref().map(Proxy::refusals).unwrap_or_default()
    }

    fn take_bell(&mut self) -> Option<PipeReader> {
        self.proxy.as_mut().and_then(Proxy::take_bell)
    }
}

impl Namespaces {
    fn release(&mut self) {
        if let (Some(proxy), Some(listeners)) = (&mut self.proxy, self.listeners.take()) {
            proxy.release(listeners);
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if self.used && set_aside(&self.plan.guards).iter().any(Trace::is_stuck) {
            self.scratch.leave_unfinished();
        }
    }
}
