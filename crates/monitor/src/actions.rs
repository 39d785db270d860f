//! Steering a run from outside: each action is a request in the run's queue.

use ralph_events::error::Error;
use ralph_store::requests::{Request, RequestQueue, SendError};
use ralph_store::runs::RunDir;

use crate::Launcher;

/// When guidance reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// With the next prompt.
    Next,
    /// Ends the agent and restarts the iteration.
    Now,
    /// With every prompt from now on.
    Every,
}

/// What an action has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The request with this number waits for the run.
    Requested(u64),
    /// The run was started again in the background.
    Resumed,
}

/// Gives the agent guidance.
///
/// # Errors
/// The text is empty, the run has ended, or the request cannot be written.
pub fn tell(run: &RunDir, text: &str, delivery: Delivery) -> Result<Done, Error> {
    let _ = (run, text, delivery);
    Err(Error::failed("guidance is not supported yet"))
}

/// Answers a question of the agent.
///
/// # Errors
/// As for [`tell`].
pub fn answer(run: &RunDir, question: &str, text: &str) -> Result<Done, Error> {
    let _ = (run, question, text);
    Err(Error::failed("answers are not supported yet"))
}

/// Pauses the run after the current iteration.
///
/// # Errors
/// The run has ended, or the request cannot be written.
pub fn pause(run: &RunDir) -> Result<Done, Error> {
    send(run, &Request::Pause)
}

/// Ends the run: now, or after the current iteration.
///
/// # Errors
/// As for [`pause`].
pub fn stop(run: &RunDir, now: bool) -> Result<Done, Error> {
    let _ = now;
    send(run, &Request::Stop)
}

/// Continues a run that is paused, or starts one again whose process is gone.
///
/// # Errors
/// The request cannot be written, or the run cannot be started.
pub fn resume(run: &RunDir, launcher: &dyn Launcher) -> Result<Done, Error> {
    if !run.is_running() {
        launcher.resume(&run.id)?;
        return Ok(Done::Resumed);
    }
    send(run, &Request::Resume { max_iterations: None })
}

fn send(run: &RunDir, request: &Request) -> Result<Done, Error> {
    match RequestQueue::of(run).send(request) {
        Ok(number) => Ok(Done::Requested(number)),
        Err(SendError::Ended) => {
            let resume = format!("ralph resume {}", run.id);
            Err(Error::failed("the run has ended").hint(format!("to continue it: {resume}")))
        }
        Err(SendError::Io(err)) => Err(Error::failed(format!("cannot write the request: {err}"))),
    }
}
