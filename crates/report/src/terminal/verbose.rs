//! The `[ralph] …` lines on standard error: what `--verbose` adds.

use super::pen::Pen;
use super::words::of;
use super::{Human, MAX_DETAIL, MAX_PROMPT};
use ralph_events::event::{Event, Exit, Stamp};
use ralph_events::text;

impl Human {
    /// The details that `--verbose` adds.
    pub(super) fn details(&mut self, at: Stamp, event: &Event<'_>) {
        let max = self.max_iterations;
        match event {
            Event::RunStarted { run, version, directory, pid, .. } => {
                let mut pen = self.detail(at);
                pen.say("Run ").quote(run).say(" of ralph ").quote(version).say(" in ");
                pen.quote(directory).say(&format!(" (pid {pid})")).end();
            }
            Event::IterationStarted { max_iterations } => {
                let number = of(at.iteration, *max_iterations);
                self.detail(at).say(&format!("Iteration {number} starting")).end();
            }
            Event::Prompt { bytes, preview, feedback } => {
                let with = if *feedback { ", with feedback" } else { "" };
                let mut pen = self.detail(at);
                pen.say(&format!("Prompt ({bytes} bytes{with}): "));
                pen.quote_up_to(preview, MAX_PROMPT).end();
            }
            Event::AgentStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at).say("Agent command: ").quote_up_to(&command, 4 * MAX_DETAIL).end();
            }
            Event::Session { id, model } => {
                let mut pen = self.detail(at);
                pen.say("Session: ").quote(id.as_deref().unwrap_or("-"));
                if let Some(model) = model {
                    pen.say(", model: ").quote(model);
                }
                pen.end();
            }
            Event::BackgroundTasks { running } => {
                self.detail(at).say(&format!("Background tasks of the agent: {running}")).end();
            }
            Event::AgentEnded { exit, duration_ms, .. } => {
                self.exited(at, "Agent", *exit, *duration_ms)
            }
            Event::GuardrailStarted { command, .. } => {
                self.detail(at).say("Running guardrail: ").quote(command).end();
            }
            Event::GuardrailEnded { exit, duration_ms, .. } => {
                self.exited(at, "Guardrail", *exit, *duration_ms)
            }
            Event::FeedbackSet { parts } => {
                let actions: Vec<_> = parts.iter().map(|part| part.action.as_str()).collect();
                let actions =
                    if actions.is_empty() { "none".to_owned() } else { actions.join(", ") };
                self.detail(at).say("Feedback for the next prompt: ").say(&actions).end();
            }
            Event::ScmStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at).say("SCM command: ").quote(&command).end();
            }
            Event::ScmEnded { task, ok, duration_ms, .. } => {
                let word = if *ok { "done" } else { "failed" };
                let mut pen = self.detail(at);
                pen.say("SCM task ").quote(task);
                pen.say(&format!(" {word} ({})", text::format_duration(*duration_ms))).end();
            }
            Event::CompletionChecked { complete, found, .. } => {
                let mut pen = self.detail(at);
                pen.say("Completion check: ");
                match found {
                    Some(found) => pen.say("found \"").quote(found).say("\", "),
                    None => pen.say("nothing found, "),
                };
                pen.say(if *complete { "complete" } else { "not complete" }).end();
            }
            Event::IterationEnded { duration_ms, .. } => {
                let (number, time) = (of(at.iteration, max), text::format_duration(*duration_ms));
                self.detail(at).say(&format!("Iteration {number} ended ({time})")).end();
            }
            Event::Note { message } => {
                self.detail(at).quote_up_to(message, 4 * MAX_DETAIL).end();
            }
            _ => {}
        }
    }

    fn exited(&mut self, at: Stamp, who: &str, exit: Option<Exit>, duration_ms: u64) {
        let time = text::format_duration(duration_ms);
        let words = match exit {
            Some(Exit::Code(code)) => format!("{who} exited with code {code} ({time})"),
            Some(Exit::Signal(signal)) => format!("{who} was ended by signal {signal} ({time})"),
            None => format!("{who} ended ({time})"),
        };
        self.detail(at).say(&words).end();
    }

    /// Begins a line of details.
    fn detail(&mut self, at: Stamp) -> Pen<'_> {
        let mut pen = self.aside(at);
        pen.say("[ralph] ");
        pen
    }
}
