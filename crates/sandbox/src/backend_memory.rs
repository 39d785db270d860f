//! Remembers a project's backend: no project silently gets a weaker one.

use std::path::Path;

use super::selection::{RequestedBackend, Selection, SelectionOrigin};
use super::{Backend, BackendError, Strength};
use ralph_events::error::Error;
use ralph_store::home::{ralph_home, require_ralph_home};
use ralph_store::project::Project;

#[derive(Debug, Default)]
pub struct BackendRecord {
    /// `None` without a home directory.
    record: Option<Project>,
    backend: Option<String>,
}

impl BackendRecord {
    /// # Errors
    /// The record cannot be read, or there is no home directory.
    pub fn load(root: &Path, asked: &RequestedBackend) -> Result<BackendRecord, Error> {
        let variable = |name: &str| std::env::var_os(name);
        let home = match asked {
            RequestedBackend::None(_) => ralph_home(variable),
            RequestedBackend::Named(..) | RequestedBackend::Any { .. } => {
                Some(require_ralph_home(variable)?)
            }
        };
        let Some(home) = home else { return Ok(BackendRecord::default()) };
        let record = Project::new(root, &home);
        let backend = record.load_record().map_err(|err| {
            Error::input(format!("cannot read the project's record: {err}")).hint(
                "repair or remove the file; without it, ralph does not know which sandbox \
                       the project used",
            )
        })?;
        Ok(BackendRecord { backend: backend.sandbox, record: Some(record) })
    }

    /// Refuses a weaker backend, unless the user named it.
    ///
    /// # Errors
    /// `found` is weaker.
    pub(super) fn refuse_weaker_backend(
        &self,
        asked: &RequestedBackend,
        found: Option<Backend>,
        failed: &[(Backend, BackendError)],
    ) -> Result<(), Error> {
        let Some(before) = &self.backend else { return Ok(()) };
        let by_file = match asked {
            RequestedBackend::None(SelectionOrigin::ProjectFile(file))
            | RequestedBackend::Named(_, SelectionOrigin::ProjectFile(file)) => Some(file),
            RequestedBackend::None(_) | RequestedBackend::Named(..) => return Ok(()),
            RequestedBackend::Any { .. } => None,
        };
        if found.map_or(Strength::None, Backend::strength) >= strength_of(before) {
            return Ok(());
        }
        let accept = match found {
            Some(found) => format!("accept the weaker one: --sandbox={}", found.name()),
            None => "run without a sandbox: --no-sandbox".to_owned(),
        };
        let (now, hint) = match (by_file, found) {
            (Some(file), found) => {
                let name = found.map_or("no sandbox", Backend::name);
                let hint = format!(
                    "if an agent may have changed the file, fix it; otherwise {accept} (once)"
                );
                (format!("{file} selects {name}, which is weaker"), hint)
            }
            (None, Some(found)) => {
                let now = format!("only {} works now, which is weaker", found.name());
                (now, format!("make {before} work again, or {accept}"))
            }
            (None, None) => (
                "no sandbox works now".to_owned(),
                format!("make {before} work again, or {accept}"),
            ),
        };
        let error =
            Error::input(format!("this project used the sandbox {before} before, but {now}"))
                .hint(hint);
        Err(failed
            .iter()
            .fold(error, |error, (backend, why)| error.hint(format!("{}: {why}", backend.name()))))
    }

    /// Remembers a run's backend. An explicit choice of none is remembered, too; a command's
    /// default of none is not.
    pub fn save(&self, asked: &RequestedBackend, choice: &Selection) -> Result<(), Error> {
        let used = match choice {
            Selection::Found { sandbox, .. } => Some(sandbox.info().backend.name().to_owned()),
            Selection::None if *asked == RequestedBackend::None(SelectionOrigin::Default) => {
                return Ok(());
            }
            Selection::None => None,
            Selection::Unavailable(_) => return Ok(()),
        };
        let Some(record) = self.record.as_ref().filter(|_| used != self.backend) else {
            return Ok(());
        };
        record.update_record(|record| record.sandbox = used).map(drop).map_err(|err| {
            let dir = record.state_dir().display();
            Error::input(format!("cannot write the project's record in {dir}: {err}"))
                .hint("make the directory writable, or set RALPH_HOME to another directory")
        })
    }
}

/// An unknown name, from a newer version, counts as strong.
fn strength_of(name: &str) -> Strength {
    let known = Backend::ALL.into_iter().find(|backend| backend.name() == name);
    known.map_or(Strength::Separate, Backend::strength)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weaker_backend_is_refused_unless_named() {
        let any = RequestedBackend::Any { required: false };
        let file = || SelectionOrigin::ProjectFile(".ralph/settings.json".to_owned());
        let named = |by| RequestedBackend::Named(Backend::Landlock, by);
        let failed = [(Backend::Bwrap, BackendError::new("not installed"))];
        for (before, asked, found, refused) in [
            (None, &any, None, false),
            (None, &any, Some(Backend::Landlock), false),
            (Some("landlock"), &any, Some(Backend::Landlock), false),
            (Some("landlock"), &any, Some(Backend::Bwrap), false),
            (Some("landlock"), &any, None, true),
            (Some("bwrap"), &any, Some(Backend::Docker), false),
            (Some("bwrap"), &any, Some(Backend::Landlock), true),
            (Some("bwrap"), &any, None, true),
            (
                Some("docker"),
                &RequestedBackend::Any { required: true },
                Some(Backend::Landlock),
                true,
            ),
            (Some("docker"), &named(SelectionOrigin::User), Some(Backend::Landlock), false),
            (Some("docker"), &named(file()), Some(Backend::Landlock), true),
            (Some("landlock"), &named(file()), Some(Backend::Landlock), false),
            (None, &named(file()), Some(Backend::Landlock), false),
            (Some("landlock"), &RequestedBackend::None(file()), None, true),
            (None, &RequestedBackend::None(file()), None, false),
            (Some("bwrap"), &RequestedBackend::None(SelectionOrigin::User), None, false),
            (Some("bwrap"), &RequestedBackend::None(SelectionOrigin::Default), None, false),
            (Some("of-a-newer-version"), &any, Some(Backend::Landlock), true),
            (Some("of-a-newer-version"), &any, Some(Backend::Bwrap), false),
        ] {
            let memory = BackendRecord { record: None, backend: before.map(str::to_owned) };
            let result = memory.refuse_weaker_backend(asked, found, &failed);
            assert_eq!(result.is_err(), refused, "{before:?} {asked:?} {found:?}");
            if let Err(error) = result {
                assert_eq!(error.exit_code(), 2);
                let text = error.to_string();
                let ask = found.map_or("--no-sandbox", |_| "--sandbox=landlock");
                assert!(text.contains(ask) && text.contains("bwrap: not installed"), "{text}");
            }
        }
    }
}
