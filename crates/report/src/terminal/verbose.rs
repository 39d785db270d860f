//! The `[ralph] …` lines that `--verbose` adds.

use super::pen::LineWriter;
use super::words::format_progress;
use super::{MAX_DETAIL, MAX_PROMPT, TerminalReporter};
use ralph_events::event::{Event, Exit, Stamp};
use ralph_events::run_state::RunState;
use ralph_events::text;

impl TerminalReporter {
    /// The details that `--verbose` adds.
    pub(super) fn details(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        let max = run.info.max_iterations;
        match event {
            Event::RunStarted { run, version, directory, pid, .. } => {
                let mut pen = self.detail(at);
                pen.text("Run ").untrusted(run).text(" of ralph ").untrusted(version).text(" in ");
                pen.untrusted(directory).text(&format!(" (pid {pid})")).end();
            }
            Event::IterationStarted { max_iterations } => {
                let number = format_progress(at.iteration, *max_iterations);
                self.detail(at).text(&format!("Iteration {number} starting")).end();
            }
            Event::Prompt { bytes, preview, feedback } => {
                let with = if *feedback { ", with feedback" } else { "" };
                let mut pen = self.detail(at);
                pen.text(&format!("Prompt ({bytes} bytes{with}): "));
                pen.untrusted_up_to(preview, MAX_PROMPT).end();
            }
            Event::AgentStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at)
                    .text("Agent command: ")
                    .untrusted_up_to(&command, 4 * MAX_DETAIL)
                    .end();
            }
            Event::Session { id, model } => {
                let mut pen = self.detail(at);
                pen.text("Session: ").untrusted(id.as_deref().unwrap_or("-"));
                if let Some(model) = model {
                    pen.text(", model: ").untrusted(model);
                }
                pen.end();
            }
            Event::BackgroundTasks { running } => {
                self.detail(at).text(&format!("Background tasks of the agent: {running}")).end();
            }
            Event::AgentEnded { exit, duration_ms, .. } => {
                self.exited(at, "Agent", *exit, *duration_ms)
            }
            Event::GuardrailStarted { command, .. } => {
                self.detail(at).text("Running guardrail: ").untrusted(command).end();
            }
            Event::GuardrailEnded { exit, duration_ms, .. } => {
                self.exited(at, "Guardrail", *exit, *duration_ms)
            }
            Event::FeedbackSet { parts } => {
                let actions: Vec<_> = parts.iter().map(|part| part.action.as_str()).collect();
                let actions =
                    if actions.is_empty() { "none".to_owned() } else { actions.join(", ") };
                self.detail(at).text("Feedback for the next prompt: ").text(&actions).end();
            }
            Event::ScmStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at).text("SCM command: ").untrusted(&command).end();
            }
            Event::ScmEnded { task, ok, duration_ms, .. } => {
                let word = if *ok { "done" } else { "failed" };
                let mut pen = self.detail(at);
                pen.text("SCM task ").untrusted(task);
                pen.text(&format!(" {word} ({})", text::format_duration(*duration_ms))).end();
            }
            Event::CompletionChecked { complete, found, .. } => {
                let mut pen = self.detail(at);
                pen.text("Completion check: ");
                match found {
                    Some(found) => pen.text("found \"").untrusted(found).text("\", "),
                    None => pen.text("nothing found, "),
                };
                pen.text(if *complete { "complete" } else { "not complete" }).end();
            }
            Event::IterationEnded { duration_ms, .. } => {
                let (number, time) =
                    (format_progress(at.iteration, max), text::format_duration(*duration_ms));
                self.detail(at).text(&format!("Iteration {number} ended ({time})")).end();
            }
            Event::Note { message, important: false } => {
                self.detail(at).untrusted_up_to(message, 4 * MAX_DETAIL).end();
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
        self.detail(at).text(&words).end();
    }

    fn detail(&mut self, at: Stamp) -> LineWriter<'_> {
        let mut pen = self.stderr_line(at);
        pen.text("[ralph] ");
        pen
    }
}
