//! Events of the run itself: iterations, guardrails, SCM, waits, the end.

use super::words::{
    PROMPT_ECHO_MESSAGE, RunEnding, describe_cause, describe_class, describe_exit,
    describe_outcome, format_figures, format_progress, plural,
};
use super::{MAX_DETAIL, MAX_PROMPT, Paragraph, TerminalReporter};
use crate::run_table::continued_after_text;
use crate::style::TextRole;
use crate::time_text::local_time;
use crate::warning_text::warning_text;
use ralph_events::event::{Class, Event, Leftover, Outcome, Purpose, Stamp, WaitReason};
use ralph_events::run_state::RunState;
use ralph_events::text;

const MAX_PROCESSES: usize = 5;

impl TerminalReporter {
    pub(super) fn run_event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        if self.worker_event(at, event, run) {
            return;
        }
        let marks = self.marks;
        let loud = !self.style.quiet;
        match event {
            Event::RunStarted { .. } if loud => self.run_started(at, event),
            Event::RunContinued { after, iterations, cut_off, unchecked, usage, duration_ms }
                if loud =>
            {
                let mut pen = self.line(at, Paragraph::Run);
                pen.text(marks.run)
                    .text(&format!(" Goes on after {}", continued_after_text(*after)));
                if let Some(iteration) = cut_off {
                    pen.text(&format!(": iteration {iteration} is begun again"));
                }
                if let Some(iteration) = unchecked {
                    pen.text(&format!(
                        ": what the agent of iteration {iteration} did is checked now, without another agent"
                    ));
                }
                pen.text(" ")
                    .text(&format_figures(Some(*iterations), usage, &[], *duration_ms))
                    .end();
            }
            Event::IterationStarted { max_iterations } if loud => {
                let (number, rule) = (format_progress(at.iteration, *max_iterations), marks.rule);
                self.line(at, Paragraph::Iteration)
                    .paint(TextRole::Heading, &format!("{rule} Iteration {number} {rule}"))
                    .end();
            }
            Event::AgentStarted { purpose: Purpose::CommitMessage, .. } if loud => {
                let words = " Asking the agent for a commit message";
                self.line(at, Paragraph::Scm).text(marks.scm).text(words).end();
            }
            Event::AgentEnded { .. } => self.agent_ended(at, event),
            Event::Leftovers { processes, kept } if !processes.is_empty() => {
                self.leftovers(at, processes, *kept);
            }
            Event::SandboxReady { backend, network, guardrails, limits } if loud => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.text(marks.notice).text(" Sandbox: ").untrusted(backend);
                pen.text(", network: ").untrusted(network);
                if !guardrails {
                    pen.text("; guardrails and SCM tasks run outside of it");
                }
                pen.end();
                if self.style.verbose {
                    for limit in limits {
                        self.note(at, "Not confined: ", limit, MAX_PROMPT);
                    }
                }
            }
            Event::NetworkRefused { host, port, reason, allow } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.mark(marks.denied, TextRole::Caution, "Refused");
                pen.text(": ")
                    .untrusted(host)
                    .text(&format!(":{port}, because "))
                    .untrusted(reason);
                pen.text("; to allow it: \"allowedDomains\": [\"")
                    .untrusted(allow)
                    .text("\"]")
                    .end();
            }
            Event::Retrying { class, message, delay_ms, failures, max_failures } => {
                let (word, delay) = match delay_ms {
                    Some(ms) => ("Retrying", format!(" in {}", text::format_duration(*ms))),
                    None => ("Failed", String::new()),
                };
                let mut pen = self.line(at, Paragraph::Run);
                pen.mark(marks.retry, TextRole::Caution, word).text(&delay).text(": ");
                match &**message {
                    "" => pen.text(describe_class(*class)),
                    message => pen.untrusted(message),
                };
                pen.text(&format!(" (failure {failures} of {max_failures})")).end();
            }
            Event::Waiting { reason, until_ms } => self.waiting(at, *reason, *until_ms),
            Event::GuardrailStarted { command, .. } if loud => {
                let mut pen = self.line(at, Paragraph::Guardrail);
                pen.text(marks.guardrail).text(" Guardrail: ").untrusted(command);
                pen.end();
            }
            Event::GuardrailEnded { .. } => self.guardrail_ended(at, event),
            Event::FeedbackSet { parts } if loud => {
                for part in parts {
                    let last = at.iteration >= run.info.max_iterations;
                    let mut pen = self.line(at, Paragraph::Run);
                    pen.mark(marks.retry, TextRole::Caution, "Not done");
                    // After the last iteration nothing follows.
                    if !last {
                        let action = part.action.as_str();
                        pen.text(&format!(": the next iteration is told ({action})"));
                    }
                    pen.end();
                    self.preview_both_ends(at, &part.message);
                }
            }
            Event::ScmStarted { argv, .. } if loud => {
                let command = shell_words::join(argv);
                let mut pen = self.line(at, Paragraph::Scm);
                pen.text(marks.scm).text(" ").untrusted(&command).end();
            }
            Event::ScmEnded { ok, .. } if loud || !ok => self.scm_ended(at, event),
            Event::CompletionChecked { complete: true, found, .. } if loud => {
                // A claim only: gates may still refuse it.
                let mut pen = self.line(at, Paragraph::Run);
                pen.text(marks.notice).text(" The agent says that it is done");
                if let Some(found) = found {
                    pen.text(": ").untrusted(found);
                }
                pen.end();
            }
            Event::Tasks { .. } => self.tasks(at, event),
            Event::TaskListAccepted { list } if loud => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.text(marks.notice).text(" Task list accepted as it is: ").untrusted(list).end();
            }
            Event::Vetoed { reason } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.mark(marks.denied, TextRole::Bad, "Not complete");
                pen.text(": ").untrusted(reason).end();
            }
            Event::Warning { .. }
            | Event::Recovered { .. }
            | Event::Planted { .. }
            | Event::StallWarning { .. }
            | Event::ModelSilent { .. } => {
                self.warn(at, &warning_text(event).unwrap_or_default());
            }
            // Exact text: scripts wait for it.
            Event::StopRequested { now: false, .. } => {
                self.write_stderr(at, "Received signal, shutting down...");
                if loud && !self.idle {
                    let words = "What is running may finish; a second signal ends it now.";
                    self.write_stderr(at, words);
                }
            }
            Event::StopRequested { now: true, signal } => {
                let idle = self.idle;
                let mut pen = self.stderr_line(at);
                pen.text("Received ").untrusted(signal);
                pen.text(if idle { ", shutting down..." } else { ", ending the agent now..." })
                    .end();
            }
            Event::PauseRequested => self.write_stderr(at, "Pausing after what is running..."),
            Event::Paused => self.write_stderr(at, "Paused."),
            Event::DialogOpened { dialog } => {
                self.write_stderr(at, &format!("A dialog waits for a person: {dialog}."));
            }
            Event::Resumed { .. } => self.write_stderr(at, "Resumed."),
            Event::RunEnded { .. } => self.run_ended(at, event, run),
            _ => {}
        }
    }

    /// Prints a worker's exact messages; returns whether nothing else is needed.
    fn worker_event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) -> bool {
        let Some(follower) = &mut self.worker_tracker else { return false };
        let told = follower.apply(at, event, run).messages;
        for line in &told {
            self.line(at, Paragraph::Run).untrusted(line).end();
        }
        let in_other_words = matches!(
            event,
            Event::IterationStarted { .. } | Event::Retrying { .. } | Event::Resumed { .. }
        );
        in_other_words && !told.is_empty()
    }

    fn write_stderr(&mut self, at: Stamp, words: &str) {
        self.stderr_line(at).text(words).end();
    }

    fn run_started(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::RunStarted { run, agent, prompt, completion, max_iterations, .. } = event else {
            return;
        };
        let mark = self.marks.run;
        let mut pen = self.line(at, Paragraph::Run);
        pen.text(mark).text(" ").start_style(TextRole::Heading).text("Run ");
        pen.untrusted(run).plain().text(": ").untrusted(agent);
        if *max_iterations > 0 {
            let s = plural(u64::from(*max_iterations));
            pen.text(&format!(", at most {max_iterations} iteration{s}"));
        }
        if !completion.is_empty() {
            pen.text(", done when ").untrusted(completion);
        }
        pen.end();
        if !prompt.is_empty() {
            self.note(at, "Prompt: ", prompt, MAX_PROMPT);
        }
    }

    /// Task list progress: with the story at the start of an iteration, later only changes.
    fn tasks(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::Tasks { done, total, story, title, problems, unreadable } = event else {
            return;
        };
        if !self.style.quiet {
            let begins = self.last == Some(Paragraph::Iteration);
            // Known problems are not repeated in full.
            let known = begins && *problems == self.task_problems;
            let mark = self.marks.todo;
            let mut pen = self.line(at, Paragraph::Run);
            pen.text(mark).text(" ");
            match total {
                _ if *unreadable => pen.text("Stories: not known while the list cannot be read"),
                0 => pen.text("No stories yet"),
                _ => pen.text(&format!("Stories: {done} of {total} pass")),
            };
            if let Some(story) = story.as_deref().filter(|_| begins && !unreadable) {
                pen.text(", next ").untrusted(story);
                if let Some(title) = title.as_deref().filter(|title| !title.is_empty()) {
                    pen.text(": ").untrusted(title);
                }
            }
            if let Some(first) = problems.first().filter(|_| known) {
                pen.text("; not complete: ").untrusted(first);
                match problems.len() - 1 {
                    0 => {}
                    more => drop(pen.text(&format!("; and {more} more"))),
                }
            }
            pen.end();
        }
        if *problems != self.task_problems {
            self.task_problems.clone_from(problems);
            for problem in problems {
                self.warn(at, problem);
            }
        }
    }

    fn agent_ended(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::AgentEnded {
            purpose,
            exit,
            ended_by,
            class,
            failure,
            duration_ms,
            usage,
            tools,
            tool_errors,
            denied,
            repeats_prompt,
            filter_errors,
            ..
        } = event
        else {
            return;
        };
        let marks = self.marks;
        let answered = *class == Class::Answered;
        if answered && self.style.quiet {
            return;
        }
        let counts = [("tools", *tools), ("errors", *tool_errors), ("denied", *denied)];
        let figures = format_figures(None, usage, &counts, *duration_ms);
        if *purpose == Purpose::CommitMessage && answered {
            let mut pen = self.line(at, Paragraph::Scm);
            pen.text(marks.scm).text(" Commit message written ");
            pen.text(&figures).end();
            return;
        }
        let (mark, paint, words) = match class {
            Class::Answered => (marks.ok, TextRole::Good, "Complete"),
            Class::Limited | Class::Interrupted => {
                (marks.stopped, TextRole::Caution, describe_class(*class))
            }
            // The run decides whether that is a failure.
            Class::Empty if *repeats_prompt => {
                (marks.warning, TextRole::Caution, PROMPT_ECHO_MESSAGE)
            }
            Class::Empty => (marks.warning, TextRole::Caution, describe_class(*class)),
            _ => (marks.error, TextRole::Bad, describe_class(*class)),
        };
        let mut pen = self.line(at, Paragraph::Attempt);
        pen.mark(mark, paint, words);
        if !answered {
            if let Some(failure) = failure
                && !failure.message.is_empty()
            {
                pen.text(": ").untrusted(&failure.message);
            }
            if let Some(exit) = exit.filter(|exit| !exit.success()) {
                pen.text(&format!(" [{exit}]"));
            }
        }
        pen.text(" ").text(&figures).end();
        if let Some(cause) = ended_by {
            self.preview_line(at, "", true, describe_cause(*cause));
        }
        if *filter_errors > 0 {
            let lines = format!("{filter_errors} line{}", plural(*filter_errors));
            let words = format!("The response filter failed for {lines} of its output");
            self.preview_line(at, "", true, &words);
        }
    }

    fn leftovers(&mut self, at: Stamp, processes: &[Leftover], kept: bool) {
        let (survived, ended): (Vec<_>, Vec<_>) =
            processes.iter().cloned().partition(|process| process.survived);
        for (processes, words) in
            [(&ended, if kept { "Left running" } else { "Ended" }), (&survived, "Could not end")]
        {
            if !processes.is_empty() {
                self.write_leftovers(at, processes, words, kept);
            }
        }
    }

    fn write_leftovers(&mut self, at: Stamp, processes: &[Leftover], words: &str, kept: bool) {
        let count = processes.len();
        let what = if count == 1 { "process" } else { "processes" };
        let whose = if kept { "of the agent's" } else { "that the agent had left running" };
        let mut message = format!("{words} {count} {what} {whose}: ");
        let named: Vec<String> = processes
            .iter()
            .take(MAX_PROCESSES)
            .map(|process| {
                let command = text::truncate(&process.command, 80, self.marks.more);
                format!("{} {command}", process.pid)
            })
            .collect();
        message.push_str(&named.join(", "));
        if count > MAX_PROCESSES {
            message.push_str(&format!(" and {} more", count - MAX_PROCESSES));
        }
        self.warn(at, &message);
    }

    fn warn(&mut self, at: Stamp, message: &str) {
        let mark = self.marks.warning;
        let mut pen = self.stderr_line(at);
        pen.paint(TextRole::Caution, mark).text(" ");
        pen.untrusted_up_to(message, 4 * MAX_DETAIL).end();
    }

    fn waiting(&mut self, at: Stamp, reason: WaitReason, until_ms: i64) {
        // The previous event has announced a back-off.
        if reason == WaitReason::Backoff {
            return;
        }
        let until = self.format_time(at, until_ms);
        let left = text::format_duration(u64::try_from(until_ms - at.time_ms).unwrap_or(0));
        let mark = self.marks.wait;
        let mut pen = self.line(at, Paragraph::Run);
        pen.mark(mark, TextRole::Caution, "Rate limit");
        pen.text(&format!(": waiting until {until} ({left})")).end();
    }

    /// Local time, with the date if it is another day.
    fn format_time(&self, at: Stamp, ms: i64) -> String {
        let zone = (self.zone)();
        match (local_time(at.time_ms, &zone), local_time(ms, &zone)) {
            (Some(now), Some(then)) if now.date() == then.date() => {
                then.strftime("%H:%M:%S").to_string()
            }
            (_, Some(then)) => then.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            (_, None) => "an unknown time".to_owned(),
        }
    }

    fn guardrail_ended(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::GuardrailEnded {
            command,
            exit,
            timed_out,
            cut_off,
            passed,
            fail_action,
            log,
            duration_ms,
            ..
        } = event
        else {
            return;
        };
        if self.style.quiet && *passed {
            return;
        }
        let marks = self.marks;
        let (mark, paint, words) = match (passed, timed_out) {
            (true, _) => (marks.ok, TextRole::Good, "Guardrail passed"),
            (false, true) => (marks.error, TextRole::Bad, "Guardrail timed out"),
            _ if *cut_off => (marks.stopped, TextRole::Caution, "Guardrail interrupted"),
            (false, false) => (marks.error, TextRole::Bad, "Guardrail failed"),
        };
        let (exit, time) = (describe_exit(*exit), text::format_duration(*duration_ms));
        let mut pen = self.line(at, Paragraph::Guardrail);
        pen.mark(mark, paint, words).text(": ").untrusted(command);
        pen.text(&format!(" ({exit}, {time}"));
        if !passed && !cut_off {
            pen.text(", fail action: ").text(fail_action.as_str());
        }
        pen.text(")").end();
        // The feedback that follows names the log, too.
        if self.style.quiet && !log.is_empty() {
            self.note(at, "Log: ", log, MAX_DETAIL);
        }
    }

    fn scm_ended(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::ScmEnded { task, ok, detail, duration_ms } = event else {
            return;
        };
        let marks = self.marks;
        let (mark, paint, words) = match ok {
            true => (marks.ok, TextRole::Good, "SCM task done"),
            false => (marks.error, TextRole::Bad, "SCM task failed"),
        };
        let time = text::format_duration(*duration_ms);
        let mut pen = self.line(at, Paragraph::Scm);
        pen.mark(mark, paint, words).text(": ").untrusted(task);
        pen.text(&format!(" ({time})")).end();
        if !detail.is_empty() {
            let size = (detail.lines().count() as u64, detail.chars().count() as u64);
            self.preview(at, "", detail, size);
        }
    }

    fn run_ended(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        let Event::RunEnded {
            outcome,
            message,
            iterations,
            cut_off,
            duration_ms,
            usage,
            tools,
            tool_errors,
            ..
        } = event
        else {
            return;
        };
        let marks = self.marks;
        let (mark, paint) = match outcome {
            Outcome::Complete => (marks.ok, TextRole::Good),
            Outcome::CompleteScmFailed => (marks.warning, TextRole::Caution),
            Outcome::LimitReached | Outcome::Interrupted | Outcome::Budget | Outcome::Stalled => {
                (marks.stopped, TextRole::Caution)
            }
            _ => (marks.error, TextRole::Bad),
        };
        let counts = [("tools", *tools), ("errors", *tool_errors)];
        let mut figures = format_figures(Some(*iterations), usage, &counts, *duration_ms);
        if *cut_off {
            let words = format!("iterations: {iterations}");
            figures = figures.replacen(&words, &format!("{words}, the last not finished"), 1);
        }
        // A budget counts estimates, too, which the reported cost lacks.
        if *outcome == Outcome::Budget && run.cost().estimated.is_some() {
            figures = figures.replacen("cost: ", "cost told: ", 1);
        }
        let last = run.iterations.last();
        let last_class = last.and_then(|last| last.class);
        let met_rate_limit = matches!(last_class, Some(Class::RateLimited | Class::Overloaded));
        let words = match outcome {
            Outcome::AgentFailed if met_rate_limit => "Run stopped by a limit of the agent's",
            outcome => describe_outcome(*outcome),
        };
        let mut pen = self.line(at, Paragraph::End);
        pen.mark(mark, paint, words);
        // These outcomes need no further message.
        let told = matches!(
            outcome,
            Outcome::Complete
                | Outcome::CompleteScmFailed
                | Outcome::LimitReached
                | Outcome::Interrupted
        );
        // The work was complete before the start.
        let was_done = *iterations == 0 && *outcome == Outcome::Complete;
        if (!told || was_done) && !message.is_empty() {
            pen.text(": ").untrusted(message);
        }
        pen.text(" ").text(&figures).end();
        let limit_ends = run.notices.limit_ends_ms.filter(|ms| *ms > at.time_ms);
        let limit_ends = limit_ends.map(|ms| self.format_time(at, ms));
        let ending = RunEnding {
            run: &run.info.run,
            outcome: *outcome,
            budget_used_up: run.end.as_ref().is_some_and(|end| end.used_up.is_some()),
            iterations: *iterations,
            max_iterations: run.info.max_iterations,
            cut_off: *cut_off,
            scm_done: last.map_or(&[], |last| &last.scm_done),
            limit_ends: limit_ends.as_deref(),
        };
        if !self.style.quiet
            && let Some(next) = ending.next_step()
        {
            self.note(at, "Next: ", &next, MAX_DETAIL);
        }
    }
}
