//! Which sandbox is used, if any.

use super::{Backend, Request, Sandbox, Unusable, prepare};
use crate::config::settings::{self, SandboxBackend};
use crate::error::Error;

/// What the settings ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    None,
    /// The first of these that works. Without `required`, none if none does.
    FirstOf {
        backends: Vec<Backend>,
        required: bool,
    },
}

/// What is asked for, where `usual` holds for a command that nobody told.
pub fn asked(settings: &settings::Sandbox, usual: SandboxBackend) -> Asked {
    let first_of =
        |backends: &[Backend], required| Asked::FirstOf { backends: backends.to_vec(), required };
    match settings.backend.unwrap_or(usual) {
        // Whoever requires one and names none means any.
        SandboxBackend::None if settings.required => first_of(&Backend::ALL, true),
        SandboxBackend::None => Asked::None,
        SandboxBackend::Auto => first_of(&Backend::ALL, settings.required),
        SandboxBackend::Bwrap => first_of(&[Backend::Bwrap], true),
        SandboxBackend::Docker => first_of(&[Backend::Docker], true),
        SandboxBackend::Landlock => first_of(&[Backend::Landlock], true),
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
/// There is none, and there has to be one.
pub fn choose(asked: &Asked, request: &Request<'_>) -> Result<Choice, Error> {
    let Asked::FirstOf { backends, required } = asked else { return Ok(Choice::None) };
    let mut failed = Vec::new();
    for backend in backends {
        match prepare(*backend, request) {
            Ok(sandbox) => return Ok(Choice::Found { sandbox, passed_over: failed }),
            Err(unusable) if unusable.is_mistake => {
                let error = Error::input(unusable.why);
                return Err(unusable.hint.into_iter().fold(error, Error::hint));
            }
            Err(unusable) => failed.push((*backend, unusable)),
        }
    }
    if !required {
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
        let all = |required| Asked::FirstOf { backends: Backend::ALL.to_vec(), required };
        let only = |backend| Asked::FirstOf { backends: vec![backend], required: true };
        use SandboxBackend::{Auto, Bwrap, Docker, Landlock, None as No};
        for (backend, required, usual, expected) in [
            (None, false, No, Asked::None),
            (None, false, Auto, all(false)),
            (None, true, No, all(true)),
            (Some(No), false, Auto, Asked::None),
            (Some(Auto), false, No, all(false)),
            (Some(Auto), true, No, all(true)),
            (Some(Bwrap), false, No, only(Backend::Bwrap)),
            (Some(Docker), true, No, only(Backend::Docker)),
            (Some(Landlock), false, Auto, only(Backend::Landlock)),
        ] {
            let settings = settings::Sandbox { backend, required, ..Default::default() };
            assert_eq!(asked(&settings, usual), expected, "{backend:?} {required} {usual:?}");
        }
    }
}
