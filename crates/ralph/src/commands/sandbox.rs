//! `ralph sandbox`: checks, enters, lists and removes sandboxes.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use clap::Subcommand;
use rustix::termios::{self, OptionalActions};

use crate::config::{self, Settings, Sources};
use crate::{project_dir, recover};
use ralph_agents as agents;
use ralph_events::error::Error;
use ralph_events::event::{Exit, Stream};
use ralph_git::link_guard::{self, LinkGuard};
use ralph_process as process;
use ralph_process::trust;
use ralph_process::{Launch, Occurrence, Signal, System};
use ralph_sandbox as sandbox;
use ralph_sandbox::backend_memory::BackendRecord;
use ralph_sandbox::proxy::{Proxy, Refusal};
use ralph_sandbox::selection::{self, RequestedBackend, Selection, SelectionOrigin};
use ralph_sandbox::{
    Backend, BackendError, Sandbox, SandboxInfo, SandboxRequest, SandboxTrace, docker, scratch,
};
use ralph_store::home::ralph_home;
use ralph_store::project::Project;

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Test which sandboxes work here.
    #[command(after_help = "Examples:\n  ralph sandbox check")]
    Check,

    /// Open a shell inside a sandbox, or run a command there.
    #[command(after_help = "Examples:\n  ralph sandbox shell\n  ralph sandbox shell -- npm test")]
    Shell {
        /// The sandbox to use [default: the first that works].
        #[arg(long, value_name = "BACKEND")]
        sandbox: Option<String>,

        /// The command to run instead of a shell.
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },

    /// List existing sandboxes.
    #[command(after_help = "Examples:\n  ralph sandbox ls")]
    Ls,

    /// Stop a Docker sandbox; the next run starts it again.
    #[command(after_help = "Examples:\n  ralph sandbox stop ralph-shop-1a2b3c4d")]
    Stop {
        /// Its name, as `ralph sandbox ls` tells it.
        name: String,
    },

    /// Remove an unused sandbox.
    #[command(after_help = "Examples:\n  ralph sandbox rm run-Ab3xYz")]
    Rm {
        /// Its name, as `ralph sandbox ls` tells it.
        name: String,
    },
}

const MAX_STDIN: u64 = 64 << 20;

pub fn sandbox(project: &Project, command: &SandboxCommand) -> Result<u8, Error> {
    if matches!(command, SandboxCommand::Check | SandboxCommand::Shell { .. }) {
        recover::remove_planted_files(project.root())?;
    } else {
        recover::clean_best_effort(project.root());
    }
    match command {
        SandboxCommand::Check => check(project),
        SandboxCommand::Shell { sandbox, command } => shell(project, sandbox.as_deref(), command),
        SandboxCommand::Ls => ls(),
        SandboxCommand::Stop { name } => stop(name),
        SandboxCommand::Rm { name } => rm(name),
    }
}

#[derive(Default)]
struct SandboxSetup {
    settings: Settings,
    env: Vec<(OsString, Option<OsString>)>,
}

impl SandboxSetup {
    fn load(project: &Project) -> Result<SandboxSetup, Error> {
        let settings = config::load(&Sources {
            project_dir: project.root().to_owned(),
            env: std::env::vars_os().collect(),
            ..Sources::default()
        })?
        .settings;
        project_dir::declare_agent_writable(&settings, project);
        let agent = &settings.agent;
        let set = agent.env.iter().map(|(name, value)| (name.into(), Some(value.into())));
        let unset = agent.env_exclude.iter().map(|name| (name.into(), None));
        let env = set.chain(unset).collect();
        Ok(SandboxSetup { settings, env })
    }

    fn request<'a>(&'a self, project: &'a Project) -> SandboxRequest<'a> {
        let agent = &self.settings.agent;
        let program = agent.command.as_deref().unwrap_or_default();
        let named = agent.kind.as_deref().and_then(agents::by_name);
        let adapter = named.unwrap_or_else(|| agents::for_command(program));
        let path = trust::user_path();
        let found = process::find_program(OsStr::new(program), path.as_deref(), project.root());
        SandboxRequest {
            project: project.root(),
            settings: &self.settings.sandbox,
            adapter: adapter.name(),
            agent: found,
            env: &self.env,
        }
    }
}

enum TrialResult {
    /// With its start time in milliseconds.
    Holds(Box<dyn Sandbox>, u128),
    /// The program is installed. The sandbox is not made to find out more: that takes minutes.
    NotTried,
    Unavailable(BackendError),
}

fn try_backend(backend: Backend, request: &SandboxRequest<'_>) -> TrialResult {
    if backend == Backend::Docker && matches!(docker::exists(request.project), Ok(false)) {
        return TrialResult::NotTried;
    }
    let started = Instant::now();
    match sandbox::prepare(backend, request) {
        Ok(sandbox) => TrialResult::Holds(sandbox, started.elapsed().as_millis()),
        Err(unusable) => TrialResult::Unavailable(unusable),
    }
}

/// The sandbox that a run of `agent` would get in this project.
pub(super) fn usable_backend(project: &Project, agent: &str) -> Option<Backend> {
    let setup = SandboxSetup::default();
    let request =
        SandboxRequest { adapter: agents::for_command(agent).name(), ..setup.request(project) };
    let is_usable = |backend: &&Backend| {
        !matches!(try_backend(**backend, &request), TrialResult::Unavailable(_))
    };
    Backend::on_this_system().iter().find(is_usable).copied()
}

pub(super) fn diagnosis(project: &Project) -> (bool, String) {
    let setup = SandboxSetup::load(project).unwrap_or_default();
    let mut failed = Vec::new();
    for backend in Backend::on_this_system().iter().copied() {
        let name = backend.name();
        let usable = match try_backend(backend, &setup.request(project)) {
            TrialResult::Holds(_, ms) => format!("{name} works (tested, {ms} ms)"),
            TrialResult::NotTried => format!("{name} is installed"),
            TrialResult::Unavailable(unusable) => {
                failed.push((backend, unusable));
                continue;
            }
        };
        let best = Backend::on_this_system().first();
        let message = match failed.iter().find(|(better, _)| Some(better) == best) {
            None => format!("{usable}; use it with `ralph run --sandbox`"),
            Some((better, unusable)) => {
                format!("{usable}; {} would isolate more: {unusable}", better.name())
            }
        };
        return (true, message);
    }
    let why: Vec<String> =
        failed.iter().map(|(backend, why)| format!("{}: {why}", backend.name())).collect();
    (false, format!("none works: agents can do anything you can ({})", why.join("; ")))
}

fn check(project: &Project) -> Result<u8, Error> {
    let setup = SandboxSetup::load(project)?;
    let mut usable = 0;
    let mut out = String::new();
    for backend in Backend::on_this_system().iter().copied() {
        let name = backend.name();
        match try_backend(backend, &setup.request(project)) {
            TrialResult::NotTried => {
                usable += 1;
                out.push_str(&format!(
                    "found   {name:<9} a run with --sandbox=docker creates one for this project \
                     and tests it\n"
                ));
            }
            TrialResult::Holds(sandbox, ms) => {
                usable += 1;
                out.push_str(&format!("ok      {name:<9} works (tested, {ms} ms)\n"));
                let SandboxInfo { limits, notes, withheld, .. } = sandbox.info();
                let withheld = (!withheld.is_empty()).then(|| {
                    let withheld = withheld.join(", ");
                    format!("withheld from the agent: {withheld}; pass one with sandbox.env")
                });
                let limits = limits.iter().copied();
                for line in
                    notes.iter().map(String::as_str).chain(limits).chain(withheld.as_deref())
                {
                    out.push_str(&format!("                  - {line}\n"));
                }
            }
            TrialResult::Unavailable(unusable) => {
                out.push_str(&format!("no      {name:<9} {}\n", unusable.reason));
                if let Some(hint) = unusable.hint {
                    out.push_str(&format!("                  {hint}\n"));
                }
            }
        }
    }
    if usable == 0 {
        out.push_str("\nNone works here: agents run as you, with access to all your files.\n");
    }
    crate::cli::print(&out)?;
    Ok(u8::from(usable == 0))
}

fn ls() -> Result<u8, Error> {
    let mut out = String::new();
    for listed in scratch::list(&scratch::sandboxes()?) {
        let name = listed.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let note = listed.note.as_ref();
        let backend = note.map_or("?", |note| &note.backend);
        let project = note.map_or("?".into(), |note| note.project.to_string_lossy());
        let state = if listed.in_use {
            format!("in use by {}", note.map_or(0, |note| note.pid))
        } else if note.is_some_and(scratch::ScratchRecord::is_project_missing) {
            "project missing".to_owned()
        } else {
            "left over".to_owned()
        };
        out.push_str(&format!("{name:<12} {backend:<9} {state:<18} {project}\n"));
    }
    for name in docker::list() {
        out.push_str(&format!("{name:<12} docker    kept for its project\n"));
    }
    if out.is_empty() {
        out.push_str("No sandboxes.\n");
    }
    crate::cli::print(&out)
}

fn stop(name: &str) -> Result<u8, Error> {
    if docker::list().iter().any(|known| known == name) {
        return docker::manage(name, false).map(|()| 0).map_err(|err| Error::failed(err.reason));
    }
    Err(Error::input(format!("cannot stop sandbox {name}: not found"))
        .hint("only Docker sandboxes outlive a run; `ralph sandbox ls` lists them"))
}

fn rm(name: &str) -> Result<u8, Error> {
    if docker::list().iter().any(|known| known == name) {
        return docker::manage(name, true).map(|()| 0).map_err(|err| Error::failed(err.reason));
    }
    let all = scratch::list(&scratch::sandboxes()?);
    let Some(listed) = all.iter().find(|listed| listed.path.file_name() == Some(OsStr::new(name)))
    else {
        return Err(Error::input(format!("sandbox not found: {name}"))
            .hint("`ralph sandbox ls` lists them; unused ones are removed automatically"));
    };
    if listed.in_use {
        let pid = listed.note.as_ref().map_or(0, |note| note.pid);
        return Err(Error::input(format!("sandbox {name} is in use (pid {pid})"))
            .hint("it is removed when that process ends"));
    }
    scratch::remove(&listed.path)
        .map_err(|err| Error::failed(format!("cannot remove {}: {err}", listed.path.display())))?;
    Ok(0)
}

fn shell(project: &Project, backend: Option<&str>, command: &[OsString]) -> Result<u8, Error> {
    let setup = SandboxSetup::load(project)?;
    let request = setup.request(project);
    // Create ralph's files first, as a run does: files that appear later are taken for the agent's.
    project.prepare_all().map_err(|err| {
        Error::input(format!("cannot write {}: {err}", project.ralph_dir().display()))
    })?;
    let mut inside = select_sandbox(backend, &request)?;
    if let Some(warning) = project_dir::record_project(project, &inside.info().writable) {
        crate::cli::warn(&warning);
    }
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, args) = command.split_first().unwrap_or((&shell, &[]));
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !terminal && command.is_empty() {
        return Err(Error::usage("a shell needs a terminal")
            .hint("pass a command: ralph sandbox shell -- npm test"));
    }
    let mut stdin = Vec::new();
    if !terminal {
        io::stdin()
            .take(MAX_STDIN)
            .read_to_end(&mut stdin)
            .map_err(|err| Error::input(format!("cannot read standard input: {err}")))?;
    }
    let launch = Launch::plain(project.root(), program, args, &[]);
    let launch = Launch { stdin: &stdin, merge_stderr: false, ..launch };
    let home = ralph_home(|name| std::env::var_os(name));
    let (links, warnings) = LinkGuard::start(home.as_deref(), project.root())
        .map_err(|err| Error::input(err.to_string()).hint(link_guard::hint(&err)))?;
    warnings.iter().for_each(|warning| print_warning(warning));
    let exit = if terminal {
        run_on_terminal(inside.as_mut(), &launch)
    } else {
        run(inside.as_mut(), &launch, None, || {})
    };
    let exit = exit.map_err(|err| Error::failed(format!("sandbox: {err}")))?;
    let (stuck, traces): (Vec<_>, Vec<_>) =
        inside.cleanup().into_iter().partition(SandboxTrace::is_not_restored);
    traces.iter().for_each(|trace| print_warning(&trace.to_string()));
    if let Some(stuck) = stuck.first() {
        return Err(Error::input(stuck.to_string()));
    }
    let warnings = links.finish().map_err(|err| Error::input(err.to_string()))?;
    warnings.iter().for_each(|warning| print_warning(warning));
    Ok(match exit {
        Some(Exit::Code(code)) => u8::try_from(code).unwrap_or(1),
        Some(Exit::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        None => 1,
    })
}

fn select_sandbox(
    name: Option<&str>,
    request: &SandboxRequest<'_>,
) -> Result<Box<dyn Sandbox>, Error> {
    let requested = match name {
        None => RequestedBackend::Any { required: true },
        Some(name) => match Backend::ALL.into_iter().find(|backend| backend.name() == name) {
            Some(backend) => RequestedBackend::Named(backend, SelectionOrigin::User),
            None => {
                let names: Vec<&str> = Backend::ALL.iter().map(|backend| backend.name()).collect();
                return Err(Error::usage(format!("sandbox not found: {name}"))
                    .hint(format!("use one of {}", names.join(", "))));
            }
        },
    };
    let memory = BackendRecord::load(request.project, &requested)?;
    let selection_result = selection::select_backend(&requested, request, &memory)?;
    memory.save(&requested, &selection_result)?;
    match selection_result {
        Selection::Found { sandbox, .. } => Ok(sandbox),
        Selection::None | Selection::Unavailable(_) => Err(Error::input("no sandbox works here")),
    }
}

fn run(
    inside: &mut dyn Sandbox,
    launch: &Launch<'_>,
    terminal: Option<&OwnedFd>,
    mut resized: impl FnMut(),
) -> io::Result<Option<Exit>> {
    let mut system = System::new()?;
    system.set_wake_pipe(inside.proxy().and_then(Proxy::take_wake_pipe));
    let (child, _) = sandbox::start(inside, &mut system, launch, terminal.map(AsFd::as_fd))?;
    let mut buf = Vec::new();
    let mut reported: Vec<Refusal> = Vec::new();
    let mut signals = 0;
    loop {
        let occurrence = system.wait(None, &mut buf);
        for refusal in inside.proxy().map(|proxy| proxy.refusals()).unwrap_or_default() {
            if !reported.contains(&refusal) {
                print_warning(&format!(
                    "blocked {}:{}: {}. To allow it, add {:?} to sandbox.allowedDomains",
                    refusal.host,
                    refusal.port,
                    refusal.reason(),
                    refusal.allow_entry()
                ));
                reported.push(refusal);
            }
        }
        match occurrence {
            Occurrence::Output(_, Stream::Stdout) => {
                let _ = io::stdout().write_all(&buf);
            }
            Occurrence::Output(_, Stream::Stderr) => {
                let _ = io::stderr().write_all(&buf);
            }
            Occurrence::Ended(_, ended) => return Ok(ended.exit),
            Occurrence::Signal(Signal::Resize) => resized(),
            Occurrence::Signal(_) => {
                signals += 1;
                if signals == 1 {
                    system.terminate_child(child);
                } else {
                    system.kill_child(child);
                }
            }
            Occurrence::Deadline
            | Occurrence::ProxyRefused
            | Occurrence::FilesChanged
            | Occurrence::ControlRequest
            | Occurrence::KeyInput => {}
        }
    }
}

fn print_warning(message: &str) {
    let _ = io::stderr().write_all(format!("ralph: sandbox: {message}\r\n").as_bytes());
}

/// Runs a program on a pty of its own: nothing inside can type into the user's terminal.
fn run_on_terminal(inside: &mut dyn Sandbox, launch: &Launch<'_>) -> io::Result<Option<Exit>> {
    let (ours, theirs) = process::open_pty()?;
    let copy_size = {
        let ours = ours.try_clone()?;
        move || {
            if let Ok(size) = termios::tcgetwinsize(io::stdin()) {
                let _ = termios::tcsetwinsize(&ours, size);
            }
        }
    };
    copy_size();
    let before = termios::tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
    // The threads end with the process.
    let (mut keys, mut typed) = (io::stdin(), std::fs::File::from(ours.try_clone()?));
    std::thread::spawn(move || io::copy(&mut keys, &mut typed));
    let mut shown = std::fs::File::from(ours);
    let screen = std::thread::spawn(move || io::copy(&mut shown, &mut io::stdout()));
    let exit = run(inside, launch, Some(&theirs), copy_size);
    drop(theirs);
    // Drain the output: the copy ends when no process has the other side open.
    let _ = screen.join();
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &before)?;
    exit
}
