//! Which sandbox is used, if any.

use super::backend_memory::BackendMemory;
use super::settings::{self, SandboxBackend};
use super::{Backend, Request, Sandbox, Unusable, prepare, scratch};
use ralph_events::error::Error;

/// What the settings ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// No sandbox.
    None(ChosenBy),
    /// This backend and no other.
    Named(Backend, ChosenBy),
    /// The first of all backends that works. Without `required`, none if none does.
    Any { required: bool },
}

/// Who chose a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenBy {
    /// Nobody: it is the default of the command.
    Default,
    /// The user, by a flag, a variable or a file that no agent can write to.
    User,
    /// This settings file in a project. An agent may have written it.
    ProjectFile(String),
}

/// What is asked for, where `usual` is the default of the command and `by` the origin of `sandbox.backend`.
pub fn asked(settings: &settings::Sandbox, usual: SandboxBackend, by: ChosenBy) -> Asked {
    match settings.backend.unwrap_or(usual) {
        // Whoever requires one and names none means any.
        SandboxBackend::None if settings.required => Asked::Any { required: true },
        SandboxBackend::None => Asked::None(by),
        SandboxBackend::Auto => Asked::Any { required: settings.required },
        SandboxBackend::Bwrap => Asked::Named(Backend::Bwrap, by),
        SandboxBackend::Docker => Asked::Named(Backend::Docker, by),
        SandboxBackend::Landlock => Asked::Named(Backend::Landlock, by),
    }
}

/// What came of looking for a sandbox.
#[derive(Debug)]
pub enum Choice {
    /// Nobody asked for one.
    None,
    Found {
        sandbox: Box<dyn Sandbox>,
        /// Those that come before it, and why they do not work.
        passed_over: Vec<(Backend, Unusable)>,
    },
    /// None works, and the run may go on without.
    Without(Vec<(Backend, Unusable)>),
}

/// Finds the sandbox that was asked for.
///
/// # Errors
/// There is none and there has to be one, it does not work in this project, or it is weaker than the one that the
/// project is remembered to have run in and the user did not ask for it by name.
pub fn choose(
    asked: &Asked,
    request: &Request<'_>,
    memory: &BackendMemory,
) -> Result<Choice, Error> {
    let (backends, required) = match asked {
        Asked::None(_) => {
            memory.refuse_step_down(asked, None, &[])?;
            return Ok(Choice::None);
        }
        Asked::Named(backend, _) => (vec![*backend], true),
        Asked::Any { required } => (Backend::ALL.to_vec(), *required),
    };
    // Every backend needs it.
    scratch::sandboxes()?;
    let mut failed = Vec::new();
    for backend in backends {
        match prepare(backend, request) {
            Ok(sandbox) => {
                memory.refuse_step_down(asked, Some(backend), &failed)?;
                return Ok(Choice::Found { sandbox, passed_over: failed });
            }
            Err(unusable) if unusable.is_mistake => {
                let error = Error::input(unusable.why);
                return Err(unusable.hint.into_iter().fold(error, Error::hint));
            }
            Err(unusable) => failed.push((backend, unusable)),
        }
    }
    if !required {
        memory.refuse_step_down(asked, None, &failed)?;
        return Ok(Choice::Without(failed));
    }
    let error = match failed.as_slice() {
        [(only, unusable)] => {
            let error = Error::input(format!("the sandbox {}: {}", only.name(), unusable.why));
            unusable.hint.iter().fold(error, |error, hint| error.hint(hint.as_str()))
        }
        several => several
            .iter()
            .fold(Error::input("there is no sandbox that works here"), |error, (backend, why)| {
                error.hint(format!("{}: {why}", backend.name()))
            }),
    };
    Err(error.hint("`ralph sandbox check` tells more; --no-sandbox runs without one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_settings_and_flags_ask_for() {
        let all = |required| Asked::Any { required };
        let only = |backend| Asked::Named(backend, ChosenBy::User);
        use SandboxBackend::{Auto, Bwrap, Docker, Landlock, None as No};
        for (backend, required, usual, expected) in [
            (None, false, No, Asked::None(ChosenBy::Default)),
            (None, false, Auto, all(false)),
            (None, true, No, all(true)),
            (Some(No), false, Auto, Asked::None(ChosenBy::User)),
            (Some(No), true, No, all(true)),
            (Some(Auto), false, No, all(false)),
            (Some(Auto), true, No, all(true)),
            (Some(Bwrap), false, No, only(Backend::Bwrap)),
            (Some(Docker), true, No, only(Backend::Docker)),
            (Some(Landlock), false, Auto, only(Backend::Landlock)),
        ] {
            let settings = settings::Sandbox { backend, required, ..Default::default() };
            let by = if backend.is_some() { ChosenBy::User } else { ChosenBy::Default };
            assert_eq!(asked(&settings, usual, by), expected, "{backend:?} {required} {usual:?}");
        }
    }
}
