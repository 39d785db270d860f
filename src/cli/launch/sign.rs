//! Telling others that a task list is being worked off.

use crate::core::event::Event;
use crate::run::scm;
use crate::run::spec::RunSpec;
use crate::state::active::{self, Active, Sign};
use crate::state::project::Project;
use crate::state::save::save_atomically;

/// Puts up the sign of a run that works off a task list, and says what there is to say of it. It comes
/// down with the answer.
pub(super) fn put_up(project: &Project, spec: &RunSpec) -> (Option<Sign>, Vec<Event<'static>>) {
    if spec.tasks.is_none() {
        return (None, Vec::new());
    }
    let root = project.root();
    let mut events = Vec::new();
    let mut failed = |what: &str, err: std::io::Error| {
        let message = format!("cannot write {what} in {}: {err}", root.display());
        events.push(Event::Warning { message: message.into() });
    };
    // Whatever commits everything must not commit this.
    if scm::is_unignored(root, active::NAME)
        && let Some((path, text)) = active::ignored(root).ok().flatten()
        && let Err(err) = save_atomically(&path, &text)
    {
        failed(".gitignore", err);
    }
    let now = jiff::Timestamp::now();
    let active = Active {
        timestamp: format!("{now:.0}"),
        pid: std::process::id(),
        max_iterations: spec.rules.max_iterations,
        mode: "direct".to_owned(),
        run_id: spec.run_id.clone(),
    };
    match Sign::put_up(root, active) {
        Ok(sign) => (Some(sign), events),
        Err(err) => {
            failed(active::NAME, err);
            (None, events)
        }
    }
}
