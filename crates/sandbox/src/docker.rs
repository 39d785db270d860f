//! Docker's microVM sandboxes: `sbx`, or the older `docker sandbox`.
//!
//! Each project has one VM, stopped at the end of a run. Written from documentation, tested only
//! with a recording fake.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::disk::RealDisk;
use super::git;
use super::permissions::SavedModes;
use super::probe::SandboxProbe;
use super::scratch::{self, Scratch};
use super::settings::SandboxNetwork;
use super::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, WrappedCommand,
};
use ralph_agents::Adapter;
use ralph_events::env_names;
use ralph_process as process;
use ralph_process::trust;
use ralph_process::{CommandOutput, Launch, System};
use ralph_store::project_record::fnv64;

/// An image may have to be downloaded.
const CREATE_TIMEOUT: Duration = Duration::from_secs(600);
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

const NAME_PREFIX: &str = "ralph-";

#[derive(Debug, Clone, PartialEq, Eq)]
enum DockerCli {
    Sbx(PathBuf),
    Docker(PathBuf),
}

impl DockerCli {
    fn find() -> Result<DockerCli, BackendError> {
        if let Ok(sbx) = trust::outside_program(OsStr::new("sbx")) {
            return Ok(DockerCli::Sbx(sbx));
        }
        let none = || {
            BackendError::new("neither sbx nor docker sandbox is installed")
                .hint("install Docker Desktop, or sbx alone: docs.docker.com/ai/sandboxes")
        };
        let docker = trust::outside_program(OsStr::new("docker")).map_err(|_| none())?;
        let tool = DockerCli::Docker(docker);
        match tool.run_cli(&["version"], QUERY_TIMEOUT) {
            Ok(_) => Ok(tool),
            Err(_) => Err(none()),
        }
    }

    fn program(&self) -> &Path {
        match self {
            DockerCli::Sbx(program) | DockerCli::Docker(program) => program,
        }
    }

    fn args<T: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = T>) -> Vec<OsString> {
        let group = match self {
            DockerCli::Sbx(_) => None,
            DockerCli::Docker(_) => Some("sandbox".into()),
        };
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        group.into_iter().chain(words).collect()
    }

    fn run_cli<T: AsRef<OsStr>>(
        &self,
        args: &[T],
        timeout: Duration,
    ) -> Result<CommandOutput, BackendError> {
        let program = self.program().as_os_str();
        let env = trust::outside_env(&[]);
        let output = process::run_to_end(program, &self.args(args), Path::new("/"), &env, timeout)
            .map_err(|err| BackendError::new(format!("{}: {err}", self.program().display())))?;
        if output.exit.success() {
            return Ok(output);
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let message =
            message.trim().lines().last().unwrap_or("failed without a message").to_owned();
        Err(BackendError::new(format!("{}: {message}", self.program().display())))
    }

    fn create(&self, name: &str, project: &Path, state: &Path) -> Result<(), BackendError> {
        let agent = docker_agent().map(|(_, agent)| agent).unwrap_or_default();
        let words = ["create", "--name", name, agent].map(OsStr::new);
        let dirs = [project.as_os_str(), state.as_os_str()];
        let words: Vec<&OsStr> = words.into_iter().chain(dirs).collect();
        self.run_cli(&words, CREATE_TIMEOUT).map(drop)
    }

    fn names(&self) -> Result<Vec<String>, BackendError> {
        let output = self.run_cli(&["ls", "--json"], QUERY_TIMEOUT)?;
        let listed = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let mut names = Vec::new();
        collect_names(&listed, &mut names);
        Ok(names)
    }
}

/// Collects names at any depth: the JSON layout differs between versions.
fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_names(value, names)),
        Value::Object(fields) => {
            names.extend(fields.get("name").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect_names(value, names));
        }
        _ => {}
    }
}

/// The name of a project's VM. It must never change.
fn sandbox_name(project: &Path) -> String {
    let hash = fnv64(project.as_os_str().as_encoded_bytes()) & 0xffff_ffff;
    let base = project.file_name().unwrap_or_default().to_string_lossy();
    let base: String = base.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("{NAME_PREFIX}{}-{hash:08x}", base.to_ascii_lowercase())
}

/// The directory with the agent's login, which outlives the VM.
fn state_dir(base: &Path) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let existing = home.map(|home| home.join(".dclaude_state")).filter(|state| state.is_dir());
    existing.unwrap_or_else(|| base.parent().unwrap_or(base).join("docker"))
}

/// The agent that Docker's VMs are made for, with its name there.
fn docker_agent() -> Option<(&'static dyn Adapter, &'static str)> {
    let named = |adapter: &&'static dyn Adapter| {
        adapter.profile().extras.docker_agent.map(|name| (*adapter, name))
    };
    ralph_agents::all().iter().find_map(named)
}

/// The variables that Docker's own agent gets: ralph's, and git's.
fn own_variables(env: &[(OsString, Option<OsString>)]) -> Vec<(&str, &str)> {
    let is_own = |name: &str| name.starts_with(env_names::PREFIX) || name.starts_with("GIT_");
    env.iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.as_ref()?.to_str()?)))
        .filter(|(name, _)| is_own(name))
        .collect()
}

#[derive(Debug)]
pub(super) struct DockerSandbox {
    tool: DockerCli,
    name: String,
    info: SandboxInfo,
    modes: SavedModes,
}

impl DockerSandbox {
    pub(super) fn prepare(request: &SandboxRequest<'_>) -> Result<DockerSandbox, BackendError> {
        let tool = DockerCli::find()?;
        let name = sandbox_name(request.project);
        let base = scratch::sandboxes()?;
        let state = state_dir(&base);
        std::fs::create_dir_all(&state).map_err(|err| {
            BackendError::config_error(format!("cannot use {}: {err}", state.display()))
        })?;
        let in_project = |why: BackendError| match probe_stand_in(&tool, &base, &state) {
            Ok(()) => why.fails_in_project(Backend::Docker, request.project),
            Err(_) => why,
        };
        if !tool.names()?.contains(&name) {
            tool.create(&name, request.project, &state).map_err(in_project)?;
            if let Err(unusable) = set_up(&tool, &name, &state) {
                // A partial setup would pass for a complete one next time.
                let _ = tool.run_cli(&["rm", "-f", &name], QUERY_TIMEOUT);
                return Err(unusable);
            }
        }
        let mut notes = Vec::new();
        match (&tool, request.settings.network) {
            (DockerCli::Sbx(_), SandboxNetwork::Allowlist) => {
                for entry in &request.settings.allowed_domains {
                    let host =
                        if entry.contains(':') { entry.clone() } else { format!("{entry}:443") };
                    let allow = ["policy", "allow", "network", "--sandbox", &name, &host];
                    if let Err(unusable) = tool.run_cli(&allow, QUERY_TIMEOUT) {
                        notes.push(format!("docker: cannot allow {host}: {}", unusable.reason));
                    }
                }
            }
            (_, SandboxNetwork::Full) => {}
            _ => notes.push(
                "docker: its own policy controls the network, not sandbox.allowedDomains"
                    .to_owned(),
            ),
        }
        run_probe(&tool, &name, request.project, &base).map_err(in_project)?;
        let own = ["", ".ralph", ".ralph/logs"];
        let own = own.map(|name| request.project.join(name).components().collect());
        let modes =
            SavedModes::save(git::git_dirs(&RealDisk, request.project).into_iter().chain(own));
        let info = SandboxInfo {
            backend: Backend::Docker,
            limits: vec![
                "Docker's own policy controls the network",
                "the agent can change files that git and Claude Code execute in the project",
            ],
            notes,
            withheld: Vec::new(),
            writable: Vec::new(),
        };
        Ok(DockerSandbox { tool, name, info, modes })
    }
}

impl DockerSandbox {
    fn query<T: AsRef<OsStr>>(
        &self,
        system: &mut System,
        words: impl IntoIterator<Item = T>,
    ) -> io::Result<CommandOutput> {
        let (program, words) = (self.tool.program().as_os_str(), self.tool.args(words));
        let env = trust::outside_env(&[]);
        system.run_to_end(program, &words, Path::new("/"), &env, QUERY_TIMEOUT)
    }
}

/// `hidden` must not be visible. The VM has its own kernel; that check always passes.
fn run_probe(
    tool: &DockerCli,
    name: &str,
    project: &Path,
    hidden: &Path,
) -> Result<(), BackendError> {
    const PROBE_SCRIPT: &str = "t() { n=$1; shift; if \"$@\" >/dev/null 2>&1; then echo \"$n yes\"; else echo \"$n no\"; fi; }\n\
         t write-project touch \"$1\"\nt read-canary cat \"$2\"\nt connect false\nt order false\n\
         t write-protected false";
    std::fs::create_dir_all(hidden).map_err(|err| probe_error(&err))?;
    let probe = SandboxProbe::prepare(project, hidden, true)?;
    let args = probe.args().map_err(|err| probe_error(&err))?;
    let [_, _, file, canary, ..] = args.as_slice() else {
        return Err(BackendError::config_error("cannot set up the probe"));
    };
    let words = ["exec", name, "sh", "-c", PROBE_SCRIPT, "probe"].map(OsStr::new);
    let words: Vec<&OsStr> = words.into_iter().chain([file.as_os_str(), canary]).collect();
    let output = tool.run_cli(&words, CREATE_TIMEOUT)?;
    probe.evaluate(&output.stdout).map_err(BackendError::new)
}

fn probe_error(err: &io::Error) -> BackendError {
    BackendError::config_error(format!("cannot set up the probe: {err}"))
}

fn probe_stand_in(tool: &DockerCli, base: &Path, state: &Path) -> Result<(), BackendError> {
    let scratch = Scratch::create(base).map_err(|err| probe_error(&err))?;
    let project = scratch.path().join("project");
    std::fs::create_dir(&project).map_err(|err| probe_error(&err))?;
    let name = sandbox_name(&project);
    let probed =
        tool.create(&name, &project, state).and_then(|()| run_probe(tool, &name, &project, base));
    let _ = tool.run_cli(&["rm", "-f", &name], QUERY_TIMEOUT);
    probed
}

fn set_up(tool: &DockerCli, name: &str, state: &Path) -> Result<(), BackendError> {
    let script = include_str!("../../../plugin/sandbox/setup.sh");
    let mut words: Vec<OsString> =
        ["exec", "-u", "root", name, "bash", "-c", script, "setup.sh"].map(Into::into).to_vec();
    words.push(state.into());
    // The VM runs Linux.
    if std::env::consts::OS == "linux"
        && let Ok(ralph) = std::env::current_exe()
        && std::fs::copy(ralph, state.join("ralph")).is_ok()
    {
        words.push(state.join("ralph").into());
    }
    tool.run_cli(&words, CREATE_TIMEOUT).map(drop)
}

impl Sandbox for DockerSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn wrap(&mut self, launch: &Launch<'_>, terminal: Option<i32>) -> io::Result<WrappedCommand> {
        if terminal.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "open a shell with {} exec -it {} bash",
                    self.tool.program().display(),
                    self.name
                ),
            ));
        }
        let name = Path::new(launch.program).file_name();
        let mut args = self.tool.args::<&str>([]);
        let own_agent = docker_agent().map(|(adapter, _)| adapter);
        if let Some(adapter) = own_agent.filter(|own| name == Some(OsStr::new(own.name()))) {
            // Docker's own agent gets credentials from Docker, but `run` has no option for variables.
            match &self.tool {
                DockerCli::Sbx(_) => {
                    args.extend(["run", "--name", &self.name, "--"].map(Into::into))
                }
                DockerCli::Docker(_) => args.extend(["run", &self.name, "--"].map(Into::into)),
            }
            args.extend(adapter.env_flags(&own_variables(launch.env)));
        } else {
            args.extend(["exec", "-i", "-w"].map(Into::into));
            args.push(launch.directory.into());
            // The VM inherits no environment.
            for (variable, value) in launch.env {
                if let Some(value) = value {
                    let mut word = variable.clone();
                    word.push("=");
                    word.push(value);
                    args.extend(["-e".into(), word]);
                }
            }
            args.push(OsString::from(&self.name));
            // Paths of programs differ inside.
            args.push(name.unwrap_or(launch.program).to_owned());
        }
        args.extend_from_slice(launch.args);
        let program = self.tool.program().into();
        // The client runs outside and starts helpers.
        let env = trust::outside_env(launch.env);
        Ok(WrappedCommand { program, args, env, socket: None, ignore_term: false })
    }

    fn cleanup(&mut self) -> Vec<SandboxTrace> {
        self.modes.restore()
    }

    fn read(&mut self, system: &mut System, path: &Path) -> Option<io::Result<Vec<u8>>> {
        // Writes inside show outside only after a delay.
        let words = ["exec", &self.name, "cat", "--"].map(OsStr::new);
        let output = self.query(system, words.into_iter().chain([path.as_os_str()]));
        Some(output.and_then(|output| match output.exit.success() {
            true => Ok(output.stdout),
            false => {
                let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let is_missing = message.contains("No such file");
                let kind = if is_missing { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
                Err(io::Error::new(kind, message))
            }
        }))
    }

    fn rest(&mut self, system: &mut System) {
        // The shared directory may be cached; a restarted VM sees outside changes.
        let _ = self.query(system, ["stop", &self.name]);
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        // A running VM keeps its memory.
        let _ = self.tool.run_cli(&["stop", &self.name], QUERY_TIMEOUT);
    }
}

/// Whether a project has a VM.
///
/// # Errors
/// There is no Docker program.
pub fn exists(project: &Path) -> Result<bool, BackendError> {
    Ok(DockerCli::find()?.names()?.contains(&sandbox_name(project)))
}

pub fn list() -> Vec<String> {
    let names = DockerCli::find().and_then(|tool| tool.names());
    names.unwrap_or_default().into_iter().filter(|name| name.starts_with(NAME_PREFIX)).collect()
}

pub fn manage(name: &str, remove: bool) -> Result<(), BackendError> {
    let tool = DockerCli::find()?;
    let words: &[&str] = if remove { &["rm", "-f", name] } else { &["stop", name] };
    tool.run_cli(words, CREATE_TIMEOUT).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn docker_name_of_project_is_valid_and_stable() {
        let name = sandbox_name(Path::new("/home/u/My Project!"));
        assert!(name.starts_with("ralph-myproject-"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
        assert_ne!(name, sandbox_name(Path::new("/home/v/My Project!")));
        assert_eq!(name, "ralph-myproject-a14cfba4", "a changed name would lose the VM");
    }

    #[test]
    fn claude_in_docker_gets_only_ralph_variables() {
        let env = [("RALPH_RUN_ID", Some("r1")), ("SECRET", Some("s")), ("RALPH_X", None)];
        let env = env.map(|(name, value)| (name.into(), value.map(Into::into)));
        let (claude, _) = docker_agent().unwrap();
        let settings = r#"{"env":{"RALPH_RUN_ID":"r1"}}"#;
        assert_eq!(claude.env_flags(&own_variables(&env)), ["--settings", settings]);
        assert_eq!(claude.env_flags(&own_variables(&env[1..])), [""; 0]);
    }

    #[test]
    fn docker_names_are_found_in_every_list_format() {
        for listed in [
            json!([{"name": "a"}, {"name": "b", "status": "running"}]),
            json!({"sandboxes": [{"name": "a"}, {"name": "b"}]}),
            json!({"vms": [{"vm": {"name": "a"}}, {"name": "b"}]}),
        ] {
            let mut names = Vec::new();
            collect_names(&listed, &mut names);
            assert_eq!(names, ["a", "b"], "{listed}");
        }
    }
}
