//! Selects a run's sandbox.

use std::ffi::OsStr;

use crate::config::settings::SandboxNetwork;
use crate::config::{SettingOrigin, Settings};
use ralph_driver::run_spec::{AgentSpec, RunSpec};
use ralph_events::error::Error;
use ralph_events::event::{Event, Isolation};
use ralph_process as process;
use ralph_process::trust;
use ralph_sandbox::backend_memory::BackendRecord;
use ralph_sandbox::selection::{self, RequestedBackend, Selection, SelectionOrigin};
use ralph_sandbox::{Backend, BackendError, SandboxRequest};
use ralph_store::project::Project;

use super::{LaunchAction, LaunchPlan};

pub(super) fn select_sandbox(
    spec: &mut RunSpec,
    project: &Project,
    plan: &LaunchPlan<'_>,
) -> Result<Selection, Error> {
    let settings = plan.settings();
    let requested = selection::requested_backend(
        &settings.sandbox,
        plan.spec.defaults().sandbox,
        selection_origin(plan),
    );
    let memory = BackendRecord::load(plan.origin.root(), &requested)?;
    if !matches!(requested, RequestedBackend::None(_)) && plan.action == LaunchAction::Start {
        // Create ralph's files before the agent can.
        project.prepare_all().map_err(|err| {
            Error::input(format!("cannot write {}: {err}", project.ralph_dir().display()))
                .hint("ralph stores its lock, journal and logs there; make it writable")
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
    let selection = selection::select_backend(&requested, &request, &memory)?;
    if let Selection::Found { sandbox, .. } = &selection
        && spec.agent.interactive
        && sandbox.info().backend == Backend::Docker
    {
        return Err(
            Error::usage("--interactive does not work in Docker's sandbox").hint(screen_hint())
        );
    }
    if plan.action == LaunchAction::Start {
        memory.save(&requested, &selection)?;
    }
    spec.agent.sandboxed = matches!(selection, Selection::Found { .. });
    super::agent::inject_hook(&mut spec.agent, &settings.hooks.allow, project.root());
    spec.isolation = isolation(&selection, &spec.agent, settings);
    Ok(selection)
}

fn isolation(selection: &Selection, agent: &AgentSpec, settings: &Settings) -> Isolation {
    match selection {
        Selection::Found { sandbox, .. } => Isolation::Sandbox {
            backend: sandbox.info().backend.name().to_owned(),
            network: network_name(settings).to_owned(),
        },
        _ if agent.has_hook => Isolation::Hook,
        _ if agent.args.is_some() || agent.adapter.name() == "text" => Isolation::None,
        _ if !agent.autonomous => Isolation::Approval,
        _ if agent.adapter.profile().extras.sandboxes_itself => Isolation::OwnSandbox,
        _ => Isolation::None,
    }
}

fn network_name(settings: &Settings) -> &'static str {
    match settings.sandbox.network {
        SandboxNetwork::Allowlist => "allowlist",
        SandboxNetwork::Full => "full",
        SandboxNetwork::None => "none",
    }
}

/// The sandboxes in which an agent can have a screen.
fn screen_hint() -> String {
    let others = Backend::on_this_system().iter().filter(|backend| **backend != Backend::Docker);
    let flags: String = others.map(|backend| format!("--sandbox={}, ", backend.name())).collect();
    format!("{flags}or drop --interactive")
}

/// A file counts as the user's only if agents can write to no settings file. The settings of a
/// resumed run were saved where agents cannot write.
fn selection_origin(plan: &LaunchPlan<'_>) -> SelectionOrigin {
    let loaded = &plan.spec.settings;
    match loaded.origins.get("sandbox.backend") {
        None | Some(SettingOrigin::Default) => SelectionOrigin::Default,
        Some(SettingOrigin::Environment(_) | SettingOrigin::Flag(_)) => SelectionOrigin::User,
        Some(SettingOrigin::File(name)) => {
            let agent_writable = trust::agent_writable();
            let mut files = loaded.files.iter();
            if plan.resume.is_some() || files.all(|file| agent_writable.is_trusted(file)) {
                SelectionOrigin::User
            } else {
                SelectionOrigin::ProjectFile(name.clone())
            }
        }
    }
}

pub(super) fn sandbox_events(
    selection: &Selection,
    spec: &RunSpec,
    settings: &Settings,
) -> Vec<Event<'static>> {
    match selection {
        Selection::None => Vec::new(),
        Selection::Found { sandbox, passed_over } => {
            let info = sandbox.info();
            let ready = Event::SandboxReady {
                backend: info.backend.name().into(),
                network: network_name(settings).into(),
                guardrails: settings.sandbox.guardrails,
                limits: info.limits.iter().map(|limit| (*limit).into()).collect(),
            };
            let weaker = weaker_backend_warning(info.backend, passed_over);
            let notes = info.notes.iter().cloned().chain(weaker);
            let notes = notes.map(|message| Event::Warning { message: message.into() });
            notes.chain([ready]).collect()
        }
        Selection::Unavailable(failed) => {
            let why: Vec<String> = failed
                .iter()
                .map(|(backend, unusable)| format!("{}: {unusable}", backend.name()))
                .collect();
            let message = format!(
                "no sandbox works here: {} can do anything you can ({})",
                spec.agent.shown_name(),
                why.join("; ")
            );
            vec![Event::Warning { message: message.into() }]
        }
    }
}

fn weaker_backend_warning(
    used: Backend,
    passed_over: &[(Backend, BackendError)],
) -> Option<String> {
    let (_, why) = passed_over.iter().find(|(backend, _)| *backend == Backend::Bwrap)?;
    (used == Backend::Landlock)
        .then(|| format!("using landlock, which isolates less than bwrap: {why}"))
}
