//! What agents of runs that were cut off have planted is taken away before anything of a project is read.

use crate::error::Error;
use crate::sandbox::{Trace, scratch};

/// Puts right what sandboxes that nobody uses any more have left in projects. What there is to say of it.
///
/// # Errors
/// Something is still there that would be executed.
pub(super) fn sweep() -> Result<Vec<String>, Error> {
    let (said, stuck) = look();
    let Some(stuck) = stuck else { return Ok(said) };
    said.iter().for_each(|message| super::warn(message));
    Err(Error::input(stuck).hint(
        "once it is right, ralph goes on; `ralph sandbox rm NAME` forgets the sandbox that left it \
         (`ralph sandbox ls`)",
    ))
}

/// The same, said at once.
///
/// # Errors
/// As [`sweep`].
pub(super) fn sweep_aloud() -> Result<(), Error> {
    sweep()?.iter().for_each(|message| super::warn(message));
    Ok(())
}

/// The same for a command that reads nothing of a project: whatever is left is only said.
pub(super) fn sweep_and_go_on() {
    let (said, stuck) = look();
    said.iter().chain(&stuck).for_each(|message| super::warn(message));
}

/// What there is to say, and what cannot be put right.
fn look() -> (Vec<String>, Option<String>) {
    let traces = scratch::sweep(&scratch::sandboxes());
    let (stuck, right): (Vec<Trace>, Vec<Trace>) = traces.into_iter().partition(Trace::is_stuck);
    let said = right.iter().map(|trace| format!("left by a run that was cut off: {trace}"));
    let stuck: Vec<String> = stuck.iter().map(Trace::to_string).collect();
    (said.collect(), (!stuck.is_empty()).then(|| stuck.join("\n")))
}
