//! Steering a run from outside: each action is a request in the run's queue.

use std::io;

use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::event::Outcome;
use ralph_events::run_state::Question;
use ralph_events::text;
use ralph_store::requests::{MAX_TEXT, Request, RequestQueue, SendError};
use ralph_store::runs::{self, RunDir};

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
/// The text is empty or too long, the run has ended, or the request cannot be written.
pub fn tell(run: &RunDir, text: &str, delivery: Delivery) -> Result<Done, Error> {
    let text = clean(text)?;
    let (now, every) = (delivery == Delivery::Now, delivery == Delivery::Every);
    send(run, &Request::Tell { text, now, every })
}

/// Drops guidance that is waiting or repeated.
///
/// # Errors
/// The run has ended, or the request cannot be written.
pub fn clear_guidance(run: &RunDir) -> Result<Done, Error> {
    send(run, &Request::ClearGuidance)
}

/// Answers a question of the agent.
///
/// # Errors
/// As for [`tell`], and if the question is unknown or was answered.
pub fn answer(run: &RunDir, asked: &Question, text: &str) -> Result<Done, Error> {
    let text = clean(text)?;
    let known = asked.answer.as_ref().map(|answer| answer.text.clone());
    if let Some(answer) = known.or_else(|| RequestQueue::of(run).waiting_answer(&asked.id)) {
        let first = text::truncate(&answer, 60, "…");
        return Err(Error::failed(format!("the question was answered already: {first}"))
            .hint("tell the agent what to add"));
    }
    send(run, &Request::Answer { question: asked.id.clone(), text })
}

fn clean(text: &str) -> Result<String, Error> {
    if text.len() > MAX_TEXT {
        let most = MAX_TEXT / 1024;
        return Err(Error::input(format!("the text is longer than {most} KB"))
            .hint("shorten it, or put it into a file of the project and name that file"));
    }
    let text = strip_control_chars(text).trim().to_owned();
    if text.is_empty() {
        return Err(Error::input("the text is empty"));
    }
    Ok(text)
}

/// Pauses the run after the current iteration.
///
/// # Errors
/// The run has ended, or the request cannot be written.
pub fn pause(run: &RunDir) -> Result<Done, Error> {
    check_running(run)?;
    send(run, &Request::Pause)
}

/// Ends the run: now, or after the current iteration.
///
/// # Errors
/// As for [`pause`].
pub fn stop(run: &RunDir, now: bool) -> Result<Done, Error> {
    check_running(run)?;
    send(run, &Request::Stop { now })
}

/// The next process would drop the request.
fn check_running(run: &RunDir) -> Result<(), Error> {
    if run.is_running() {
        return Ok(());
    }
    let is_ended = runs::has_ended(&run.journal());
    let what = if is_ended { "the run has ended" } else { "the run's process is gone" };
    Err(not_running(run, what))
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

fn not_running(run: &RunDir, what: &str) -> Error {
    let is_complete =
        run.read_state().is_ok_and(|state| state.outcome() == Some(Outcome::Complete));
    Error::failed(what.to_owned()).hint(match is_complete {
        true => "it is complete; start a new run".to_owned(),
        false => format!("to continue it: ralph resume {}", run.id),
    })
}

fn send(run: &RunDir, request: &Request) -> Result<Done, Error> {
    match RequestQueue::of(run).send(request) {
        Ok(number) => Ok(Done::Requested(number)),
        Err(SendError::Ended) => Err(not_running(run, "the run has ended")),
        Err(SendError::Io(err)) if err.kind() == io::ErrorKind::NotFound => {
            Err(Error::failed("the files of the run were removed"))
        }
        Err(SendError::Io(err)) => Err(Error::failed(format!("cannot write the request: {err}"))),
    }
}
