//! Landlock and seccomp, for machines without namespaces: containers, CI.
//!
//! [`exec_main`] is the inner process, `LandlockSandbox` the outer side.

mod capabilities;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::{FileType, OFlags};
use serde::{Deserialize, Serialize};

use self::capabilities::drop_capabilities;
use super::grants::{DEVICES, Grants, landlock_grants};
use super::{init_process, mounts, seccomp};
use crate::disk::RealDisk;
use crate::home::link_home_entries;
use crate::inner_exec::{self, carry_env};
use crate::permissions::SavedModes;
use crate::plan::{IsolationLayers, NetworkMode, SandboxPlan};
use crate::preparation::{
    PreparedSandbox, StandInProject, env_in_place, failed, prepare_sandbox, start_local_proxy,
};
use crate::probe::SandboxProbe;
use crate::proxy::Proxy;
use crate::restore::SavedPaths;
use crate::scratch::Scratch;
use crate::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, WrappedCommand,
};
use ralph_process::Launch;

/// The internal subcommand.
pub const COMMAND: &str = "__confined";

/// The first versions to restrict files, to allow moves between directories, to restrict
/// connections, and signals.
const ABI_FILES: i32 = 1;
pub(super) const ABI_REFER: i32 = 2;
const ABI_NETWORK: i32 = 4;
const ABI_SCOPES: i32 = 6;

/// Passed in a file that the agent cannot write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LandlockRules {
    grants: Grants,
    /// Ports open for connections; `None` for all.
    ports: Option<Vec<u16>>,
    walls: IsolationLayers,
    project: PathBuf,
}

impl LandlockRules {
    pub fn new(plan: &SandboxPlan, ports: Option<Vec<u16>>) -> LandlockRules {
        let (walls, project) = (plan.isolation, plan.project.clone());
        LandlockRules { grants: landlock_grants(plan, &RealDisk), ports, walls, project }
    }

    pub fn save(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, serde_json::to_vec(self)?)
    }
}

/// The kernel's Landlock version; 0 for none.
pub(super) fn landlock_abi() -> i32 {
    #[expect(unsafe_code, reason = "the crate does not tell the version")]
    // SAFETY: this is a query without effects.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32)
    };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// Confines this process and executes the program. Returns only on failure.
pub fn exec_main(args: &[OsString]) -> u8 {
    let [rules_file, program, args @ ..] = args else {
        return inner_exec::print_failure("internal command of ralph, to set up a sandbox");
    };
    match confine(Path::new(rules_file)) {
        Ok(()) => inner_exec::exec_inside(program, args),
        Err(message) => inner_exec::print_failure(&message),
    }
}

fn confine(rules_file: &Path) -> Result<(), String> {
    let rules = std::fs::read(rules_file)
        .and_then(|bytes| serde_json::from_slice::<LandlockRules>(&bytes).map_err(io::Error::from))
        .map_err(|err| format!("cannot read the sandbox's rules: {err}"))?;
    if rules.walls.descriptors {
        init_process::close_all();
    }
    if rules.walls.capabilities {
        drop_capabilities().map_err(|err| format!("cannot drop capabilities: {err}"))?;
    }
    mounts::open_unlinked(&rules.project, OFlags::PATH)
        .map_err(|err| format!("{}: {err}", rules.project.display()))?;
    restrict(&rules).map_err(|err| format!("Landlock: {err}"))?;
    if rules.walls.calls {
        seccomp::install(&seccomp::without_namespaces(rules.ports.is_none()))
            .map_err(|err| format!("cannot filter system calls: {err}"))?;
    }
    Ok(())
}

fn restrict(rules: &LandlockRules) -> Result<(), RulesetError> {
    let LandlockRules { grants, ports, walls, .. } = rules;
    let ports = ports.as_ref().filter(|_| walls.network);
    if !walls.files && !walls.ipc && !walls.processes && ports.is_none() {
        return Ok(());
    }
    let all = AccessFs::from_all(ABI::V6);
    let mut ruleset = Ruleset::default();
    if walls.files {
        ruleset = ruleset.handle_access(all)?;
    }
    if ports.is_some() {
        // Listening is allowed: only this machine can connect.
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
    }
    if walls.ipc {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
    }
    if walls.processes {
        ruleset = ruleset.scope(Scope::Signal)?;
    }
    let mut ruleset = ruleset.create()?;
    if walls.files {
        ruleset = ruleset.add_rules(path_beneath_rules(DEVICES, all))?;
        for (paths, access) in [(&grants.read, AccessFs::from_read(ABI::V6)), (&grants.write, all)]
        {
            for path in paths {
                ruleset = allow_path(ruleset, path, access)?;
            }
        }
    }
    for port in ports.into_iter().flatten() {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    ruleset.restrict_self()?;
    Ok(())
}

/// Skips paths that are gone or became links.
fn allow_path(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = mounts::open_unlinked(path, OFlags::PATH) else { return Ok(ruleset) };
    let is_dir = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    let access = if is_dir { access } else { access & AccessFs::from_file(ABI::V6) };
    ruleset.add_rule(PathBeneath::new(file, access))
}

#[derive(Debug)]
pub(super) struct LandlockSandbox {
    info: SandboxInfo,
    ralph: PathBuf,
    rules_file: PathBuf,
    plan: SandboxPlan,
    modes: SavedModes,
    env: Vec<(OsString, Option<OsString>)>,
    saved: SavedPaths,
    proxy: Option<Proxy>,
    version: i32,
    /// No longer shown; not yet reported.
    replaced: Vec<PathBuf>,
    used: bool,
    scratch: Scratch,
}

impl LandlockSandbox {
    pub(super) fn prepare(request: &SandboxRequest<'_>) -> Result<LandlockSandbox, BackendError> {
        let version = landlock_abi();
        if version < ABI_FILES {
            return Err(BackendError::new("this kernel has no Landlock")
                .hint("it needs Linux 5.13 or later with the `landlock` security module"));
        }
        let PreparedSandbox { scratch, mut plan, modes, rules, ralph } =
            prepare_sandbox(request, Backend::Landlock)?;
        let mut proxy = None;
        let mut proxy_port = None;
        let ports = match &plan.network {
            NetworkMode::Proxy { ports: local } => {
                let (serving, port) = start_local_proxy(rules)?;
                (proxy, proxy_port) = (Some(serving), Some(port));
                Some(local.iter().copied().chain([port]).collect())
            }
            NetworkMode::None => Some(Vec::new()),
            NetworkMode::Full => None,
        };
        link_home_entries(&plan, &scratch.path().join("home"));
        let env = env_in_place(&plan, scratch.path(), ralph.parent().unwrap_or(&ralph), proxy_port);
        let rules_file = scratch.path().join("orders.json");
        LandlockRules::new(&plan, ports)
            .save(&rules_file)
            .map_err(|err| failed("cannot write the sandbox's files", &err))?;
        let (saved, too_large) = SavedPaths::capture(&plan, &scratch.restore_file())
            .map_err(|err| failed("cannot write the sandbox's files", &err))?;
        plan.notes.extend(too_large.iter().map(|path| {
            format!("landlock: {} is too large to be restored after a change", path.display())
        }));
        let info = SandboxInfo {
            backend: Backend::Landlock,
            limits: limits(&plan.network, version),
            notes: std::mem::take(&mut plan.notes),
            withheld: std::mem::take(&mut plan.withheld),
            writable: plan.writable(scratch.path()),
        };
        let sandbox = LandlockSandbox {
            info,
            ralph,
            rules_file,
            plan,
            modes,
            env,
            saved,
            proxy,
            version,
            replaced: Vec::new(),
            used: false,
            scratch,
        };
        sandbox.probe(request.project)?;
        Ok(sandbox)
    }

    fn probe(&self, project: &Path) -> Result<(), BackendError> {
        let LandlockSandbox { ralph, rules_file, env, scratch, plan, version, .. } = self;
        let open = plan.network == NetworkMode::Full || *version < ABI_NETWORK;
        let Err(why) = run_probe(ralph, rules_file, env, project, scratch.path(), open) else {
            return Ok(());
        };
        let stand_in = StandInProject::create(&plan.network)?;
        let rules_file = stand_in.scratch.path().join("orders.json");
        let ports = (plan.network != NetworkMode::Full).then(Vec::new);
        LandlockRules::new(&stand_in.plan, ports)
            .save(&rules_file)
            .map_err(|err| failed("cannot set up the probe", &err))?;
        let (env, hidden) = (&stand_in.plan.env, stand_in.scratch.path());
        match run_probe(ralph, &rules_file, env, &stand_in.project, hidden, open) {
            Ok(()) => Err(why.fails_in_project(Backend::Landlock, project)),
            Err(why) => Err(why),
        }
    }
}

/// `hidden` must not be visible inside.
fn run_probe(
    ralph: &Path,
    rules_file: &Path,
    env: &[(OsString, Option<OsString>)],
    project: &Path,
    hidden: &Path,
    open: bool,
) -> Result<(), BackendError> {
    let wrap = |args: &[OsString]| {
        let own = [COMMAND.into(), rules_file.into(), ralph.into()];
        (super::SELF_EXE.into(), own.into_iter().chain(args.iter().cloned()).collect())
    };
    SandboxProbe::prepare(project, hidden, open)?
        .run(env, wrap, |stderr, _| BackendError::new(stderr))
}

fn limits(network: &NetworkMode, version: i32) -> Vec<&'static str> {
    let mut limits = vec![
        "the kernel is shared, so a kernel vulnerability is a way out",
        "the agent can change files that git and Claude Code execute in the project; they are \
         restored after each step",
        "the agent can see names, sizes and times of files outside, and other processes",
        "the agent can change modes, times and attributes of files outside",
        "the agent can change package caches and its own credentials",
        "there are no terminals inside, because the user's terminals would be accessible, too",
    ];
    match network {
        NetworkMode::Full => limits.push("the network is open"),
        _ if version < ABI_NETWORK => {
            limits.push("connections are not restricted (that needs Linux 6.7)")
        }
        NetworkMode::Proxy { ports } => {
            limits.push("hosts that listen on the proxy's port number can be reached directly");
            if !ports.is_empty() {
                limits.push("local ports in allowedDomains can be reached at every address");
            }
        }
        NetworkMode::None => {}
    }
    if *network != NetworkMode::Full {
        limits.push(
            "servers that the agent starts can be reached from the network, unless a firewall \
             prevents it",
        );
    }
    if version < ABI_SCOPES {
        limits.push(
            "the agent can send signals to other processes (preventing that needs Linux 6.12)",
        );
    }
    limits
}

impl Sandbox for LandlockSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand> {
        if terminal.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "landlock has no terminal; pass a command",
            ));
        }
        self.used = true;
        self.replaced.extend(self.plan.drop_replaced(mounts::is_unlinked));
        let mut args: Vec<OsString> =
            vec![COMMAND.into(), self.rules_file.clone().into(), launch.program.into()];
        args.extend_from_slice(launch.args);
        let mut env = launch.env.to_vec();
        env.extend(self.env.iter().cloned());
        Ok(WrappedCommand {
            program: super::SELF_EXE.into(),
            args,
            env: carry_env(&env),
            socket: None,
            ignore_term: false,
        })
    }

    fn cleanup(&mut self) -> Vec<SandboxTrace> {
        let LandlockSandbox { modes, plan, saved, replaced, .. } = self;
        modes.restore_around(|| {
            let mut traces = saved.restore(&plan.guards);
            traces.extend(replaced.drain(..).map(SandboxTrace::Replaced));
            traces
        })
    }

    fn proxy(&mut self) -> Option<&mut Proxy> {
        self.proxy.as_mut()
    }
}

impl Drop for LandlockSandbox {
    fn drop(&mut self) {
        if self.used && self.cleanup().iter().any(SandboxTrace::is_not_restored) {
            self.scratch.mark_unfinished();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seccomp::{self, SyscallRule};
    use super::*;
    use crate::settings;

    #[test]
    fn kernel_without_landlock_is_a_clear_error() {
        let error = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let missing =
                    SyscallRule::refuse(seccomp::SYS_landlock_create_ruleset, libc::ENOSYS);
                seccomp::install(&[missing]).unwrap();
                let settings = settings::SandboxSettings::default();
                let request = SandboxRequest {
                    project: Path::new("/nonexistent"),
                    settings: &settings,
                    adapter: "claude",
                    agent: None,
                    env: &[],
                };
                LandlockSandbox::prepare(&request).err()
            });
            thread.join().unwrap().unwrap()
        });
        assert_eq!(error.reason, "this kernel has no Landlock");
        assert!(!error.is_config_error && error.hint.is_some(), "another backend may work");
    }
}
