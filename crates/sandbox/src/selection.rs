//! Selects the sandbox backend.

use super::backend_memory::BackendRecord;
use super::settings::{self, SandboxBackend};
use super::{Backend, BackendError, Sandbox, SandboxRequest, prepare, scratch};
use ralph_events::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedBackend {
    None(SelectionOrigin),
    Named(Backend, SelectionOrigin),
    /// The first that works. Without `required`, possibly none.
    Any {
        required: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectionOrigin {
    Default,
    /// A flag, a variable, or a file that no agent can write.
    User,
    /// A settings file in the project. An agent may have written it.
    ProjectFile(String),
}

pub fn requested_backend(
    settings: &settings::SandboxSettings,
    default: SandboxBackend,
    origin: SelectionOrigin,
) -> RequestedBackend {
    match settings.backend.unwrap_or(default) {
        // `required` without a name means any.
        SandboxBackend::None if settings.required => RequestedBackend::Any { required: true },
        SandboxBackend::None => RequestedBackend::None(origin),
        SandboxBackend::Auto => RequestedBackend::Any { required: settings.required },
        SandboxBackend::Bwrap => RequestedBackend::Named(Backend::Bwrap, origin),
        SandboxBackend::Seatbelt => RequestedBackend::Named(Backend::Seatbelt, origin),
        SandboxBackend::Docker => RequestedBackend::Named(Backend::Docker, origin),
        SandboxBackend::Landlock => RequestedBackend::Named(Backend::Landlock, origin),
    }
}

#[derive(Debug)]
pub enum Selection {
    None,
    Found {
        sandbox: Box<dyn Sandbox>,
        /// Stronger backends, and why they do not work.
        passed_over: Vec<(Backend, BackendError)>,
    },
    Unavailable(Vec<(Backend, BackendError)>),
}

/// # Errors
/// A required one is missing, it fails in this project, or it is weaker than the remembered one and
/// the user did not name it.
pub fn select_backend(
    requested: &RequestedBackend,
    request: &SandboxRequest<'_>,
    memory: &BackendRecord,
) -> Result<Selection, Error> {
    let (backends, required) = match requested {
        RequestedBackend::None(_) => {
            memory.refuse_weaker_backend(requested, None, &[])?;
            return Ok(Selection::None);
        }
        RequestedBackend::Named(backend, _) => (vec![*backend], true),
        RequestedBackend::Any { required } => (Backend::on_this_system().to_vec(), *required),
    };
    // Every backend needs it.
    scratch::sandboxes()?;
    let mut failed = Vec::new();
    for backend in backends {
        match prepare(backend, request) {
            Ok(sandbox) => {
                memory.refuse_weaker_backend(requested, Some(backend), &failed)?;
                return Ok(Selection::Found { sandbox, passed_over: failed });
            }
            Err(unusable) if unusable.is_config_error => {
                let error = Error::input(unusable.reason);
                return Err(unusable.hint.into_iter().fold(error, Error::hint));
            }
            Err(unusable) => failed.push((backend, unusable)),
        }
    }
    if !required {
        memory.refuse_weaker_backend(requested, None, &failed)?;
        return Ok(Selection::Unavailable(failed));
    }
    let error = match failed.as_slice() {
        [(only, unusable)] => {
            let error = Error::input(format!("sandbox {}: {}", only.name(), unusable.reason));
            unusable.hint.iter().fold(error, |error, hint| error.hint(hint.as_str()))
        }
        several => several
            .iter()
            .fold(Error::input("no sandbox works on this machine"), |error, (backend, why)| {
                error.hint(format!("{}: {why}", backend.name()))
            }),
    };
    Err(error.hint("run `ralph sandbox check` for details, or use --no-sandbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_choice_follows_settings_and_flags() {
        let all = |required| RequestedBackend::Any { required };
        let only = |backend| RequestedBackend::Named(backend, SelectionOrigin::User);
        use SandboxBackend::{Auto, Bwrap, Docker, Landlock, None as No, Seatbelt};
        for (backend, required, usual, expected) in [
            (None, false, No, RequestedBackend::None(SelectionOrigin::Default)),
            (None, false, Auto, all(false)),
            (None, true, No, all(true)),
            (Some(No), false, Auto, RequestedBackend::None(SelectionOrigin::User)),
            (Some(No), true, No, all(true)),
            (Some(Auto), false, No, all(false)),
            (Some(Auto), true, No, all(true)),
            (Some(Bwrap), false, No, only(Backend::Bwrap)),
            (Some(Docker), true, No, only(Backend::Docker)),
            (Some(Seatbelt), false, No, only(Backend::Seatbelt)),
            (Some(Landlock), false, Auto, only(Backend::Landlock)),
        ] {
            let settings = settings::SandboxSettings { backend, required, ..Default::default() };
            let by =
                if backend.is_some() { SelectionOrigin::User } else { SelectionOrigin::Default };
            assert_eq!(
                requested_backend(&settings, usual, by),
                expected,
                "{backend:?} {required} {usual:?}"
            );
        }
    }
}
