//! The sandbox of a run: which one, and what is said of it.

use std::ffi::OsStr;

use crate::config::settings::SandboxNetwork;
use crate::config::{LoadedSettings, SettingOrigin, Settings};
use ralph_driver::run_spec::RunSpec;
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_process as process;
use ralph_process::trust;
use ralph_sandbox::backend_memory::BackendRecord;
use ralph_sandbox::selection::{self, RequestedBackend, Selection, SelectionOrigin};
use ralph_sandbox::{Backend, BackendError, SandboxRequest};
use ralph_store::project::Project;

use super::LaunchPlan;

/// Finds the sandbox that settings and flags ask for, and tries it out.
///
/// # Errors
/// There is none, and there has to be one.
pub(super) fn select_sandbox(
    spec: &mut RunSpec,
    project: &Project,
    start: &LaunchPlan<'_>,
) -> Result<Selection, Error> {
    let settings = &start.settings.settings;
    let asked = selection::requested_backend(
        &settings.sandbox,
        start.defaults.sandbox,
        selection_origin(start.settings),
    );
    let memory = BackendRecord::load(start.origin.root(), &asked)?;
    if !matches!(asked, RequestedBackend::None(_)) && !start.args.dry_run {
        // What is ours has to be there before the agent is, or it could be there first.
        project.prepare_all().map_err(|err| {
            Error::input(format!("cannot write {}: {err}", project.ralph_dir().display()))
                .hint("ralph keeps its lock, journal and logs there; make it writable")
        })?;
    }
    let agent = &spec.agent;
    let path = agent.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or_else(trust::user_path, |(_, path)| path.clone());
    let program = OsStr::new(&agent.program);
    let request = SandboxRequest {
        project: &spec.directory,
        settings: &settings.sandbox,
        adapter: agent.adapter.name(),
        agent: process::find_program(program, path.as_deref(), &spec.directory),
        env: &agent.env,
    };
    let choice = selection::select_backend(&asked, &request, &memory)?;
    if let Selection::Found { sandbox, .. } = &choice
        && spec.agent.interactive
        && sandbox.backend() == Backend::Docker
    {
        return Err(Error::usage("an agent in Docker's sandbox has no screen of its own")
            .hint("--sandbox=bwrap, --sandbox=landlock, or leave --interactive out"));
    }
    if !start.args.dry_run {
        memory.save(&asked, &choice)?;
    }
    spec.agent.sandboxed = matches!(choice, Selection::Found { .. });
    super::agent::inject_hook(&mut spec.agent, &settings.hooks.allow, project.root());
    Ok(choice)
}

/// Who chose the backend. A file counts as the user's if no agent can write to any of the settings files.
fn selection_origin(loaded: &LoadedSettings) -> SelectionOrigin {
    match loaded.origins.get("sandbox.backend") {
        None | Some(SettingOrigin::Default) => SelectionOrigin::Default,
        Some(SettingOrigin::Environment(_) | SettingOrigin::Flag(_)) => SelectionOrigin::User,
        Some(SettingOrigin::File(name)) => {
            let agent_writable = trust::agent_writable();
            let mut files = loaded.files.iter().filter_map(|file| std::path::absolute(file).ok());
            if files.all(|file| agent_writable.is_trusted(&file)) {
                SelectionOrigin::User
            } else {
                SelectionOrigin::ProjectFile(name.clone())
            }
        }
    }
}

/// What there is to say of it.
pub(super) fn sandbox_events(
    choice: &Selection,
    spec: &RunSpec,
    settings: &Settings,
) -> Vec<Event<'static>> {
    match choice {
        Selection::None => Vec::new(),
        Selection::Found { sandbox, passed_over } => {
            let network = match settings.sandbox.network {
                SandboxNetwork::Allowlist => "allowlist",
                SandboxNetwork::Full => "full",
                SandboxNetwork::None => "none",
            };
            let ready = Event::SandboxReady {
                backend: sandbox.backend().name().into(),
                network: network.into(),
                guardrails: settings.sandbox.guardrails,
                limits: sandbox.limits(),
            };
            let weaker = weaker_backend_warning(sandbox.backend(), passed_over);
            let notes = sandbox.notes().into_iter().chain(weaker);
            let notes = notes.map(|message| Event::Warning { message: message.into() });
            notes.chain([ready]).collect()
        }
        Selection::Unavailable(failed) => {
            let why: Vec<String> = failed
                .iter()
                .map(|(backend, unusable)| format!("{}: {unusable}", backend.name()))
                .collect();
            let message = format!(
                "there is no sandbox that works here, so that {} can do whatever you can ({})",
                spec.agent.shown_name(),
                why.join("; ")
            );
            vec![Event::Warning { message: message.into() }]
        }
    }
}

/// What keeps the tightest sandbox from being the one that is used, if a looser one is.
fn weaker_backend_warning(
    used: Backend,
    passed_over: &[(Backend, BackendError)],
) -> Option<String> {
    let (_, why) = passed_over.iter().find(|(backend, _)| *backend == Backend::Bwrap)?;
    (used == Backend::Landlock)
        .then(|| format!("bwrap, which confines more than landlock, cannot be used: {why}"))
}
