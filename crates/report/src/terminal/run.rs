//! Events of the run itself: iterations, guardrails, SCM, waits, the end.

use super::header::short_id;
use super::pen::StyledLine;
use super::words::{
    PROMPT_ECHO_MESSAGE, describe_cause, describe_class, describe_exit, describe_outcome,
    format_effort, format_figures, format_progress, plural,
};
use super::{MAX_DETAIL, MAX_PROMPT, Paragraph, TerminalReporter};
use crate::next_steps::{NextSteps, RunEnding};
use crate::run_table::continued_after_text;
use crate::style::TextRole;
use crate::time_text::local_time;
use crate::warning_text::{delivery_text, undelivered_text, warning_text};
use crate::width;
use crate::worker_lines::KILL_REASON;
use ralph_events::event::{Class, Event, Leftover, Outcome, Purpose, Stamp, WaitReason};
use ralph_events::run_state::RunState;
use ralph_events::text;

const MAX_PROCESSES: usize = 5;
/// Columns shown of an answer or guidance, and lines of a question's context.
const MAX_SAID: usize = 200;
const MAX_CONTEXT_LINES: usize = 10;

impl TerminalReporter {
    pub(super) fn run_event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        if self.worker_event(at, event, run) {
            return;
        }
        let marks = self.marks;
        let loud = !self.style.quiet;
        match event {
            Event::RunStarted { .. } => self.run_started(at, event),
            Event::RunContinued { after, cut_off, unchecked, usage, .. } if loud => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.text(&format!("Resumed after {}", continued_after_text(*after)));
                if let Some(iteration) = cut_off {
                    pen.text(&format!(": restarting iteration {iteration}"));
                }
                if let Some(iteration) = unchecked {
                    pen.text(&format!(": checking the work of iteration {iteration} first"));
                }
                if let Some(dollars) = usage.cost_usd {
                    pen.text(&format!(", {} spent so far", text::format_dollars(dollars)));
                }
                pen.text(".").end();
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
            Event::SandboxReady { guardrails, limits, .. } if loud => {
                if !guardrails {
                    self.warn(at, "checks and SCM tasks run outside the sandbox");
                }
                if self.style.verbose {
                    for limit in limits {
                        self.note(at, "Not confined: ", limit, MAX_PROMPT);
                    }
                }
            }
            Event::NetworkRefused { host, port, reason, allow } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.mark(marks.denied, TextRole::Caution, "Connection refused");
                pen.text(": ").untrusted(host).text(&format!(":{port} (")).untrusted(reason);
                pen.text("). To allow it, add \"").untrusted(allow);
                pen.text("\" to sandbox.allowedDomains.").end();
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
            Event::FeedbackSet { parts } if loud && !parts.is_empty() => {
                for part in parts {
                    self.preview_both_ends(at, &part.message);
                }
                let failed = run.iterations.last().map_or(&[][..], |last| &last.guardrails);
                let failed = failed.iter().filter(|check| check.has_failed());
                let failed: Vec<&str> = failed.map(|check| check.command.as_str()).collect();
                let mut pen = self.line(at, Paragraph::Run);
                pen.paint(TextRole::Caution, "Not done");
                match failed.as_slice() {
                    [] => {}
                    [one] => drop(pen.text(": ").untrusted(one).text(" fails")),
                    several => drop(pen.text(": ").untrusted(&several.join(", ")).text(" fail")),
                }
                // After the last iteration nothing follows.
                let is_last = at.iteration >= run.info.max_iterations;
                pen.text(match (is_last, failed.len()) {
                    (true, _) => ".",
                    (false, 0) => ". The feedback goes into the next prompt.",
                    (false, 1) => ". Its output goes into the next prompt.",
                    (false, _) => ". Their output goes into the next prompt.",
                })
                .end();
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
                pen.text("The agent reports done");
                if let Some(found) = found {
                    pen.text(": ").untrusted(found);
                }
                pen.end();
            }
            Event::Tasks { .. } => self.tasks(at, event),
            Event::TaskListAccepted { list } if loud => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.text("Task list accepted as it is: ").untrusted(list).end();
            }
            Event::Vetoed { reason } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.paint(TextRole::Bad, "Not done").text(": ").untrusted(reason).end();
            }
            Event::Warning { .. }
            | Event::Recovered { .. }
            | Event::Planted { .. }
            | Event::StallWarning { .. }
            | Event::ModelSilent { .. } => {
                self.warn(at, &warning_text(event).unwrap_or_default());
            }
            Event::Note { message, important: true } => {
                let column = self.stamp_width();
                let mut pen = self.stderr_line(at);
                pen.untrusted_wrapped(&format!("note: {message}"), 4 * MAX_DETAIL, column).end();
            }
            Event::QuestionAsked { id, text, .. } => self.question(at, id, text),
            Event::QuestionAnswered { id, text } => {
                let mut pen = self.stderr_line(at);
                pen.text("You answered ").untrusted(id).text(": ");
                pen.untrusted(&width::one_line(text, MAX_SAID, "…")).end();
            }
            Event::GuidanceReceived { text, every, .. } => {
                let mut pen = self.stderr_line(at);
                pen.text(if *every { "You said, for every prompt: " } else { "You said: " });
                pen.untrusted(&width::one_line(text, MAX_SAID, "…")).end();
            }
            Event::GuidanceCleared => self.write_stderr(at, "Your guidance was dropped."),
            Event::GuidanceDelivered { guidance, answers } if loud => {
                let words = delivery_text(guidance.len(), answers.len());
                let words = words.replacen('t', "T", 1) + ".";
                self.line(at, Paragraph::Run).text(&words).end();
            }
            Event::Parked => {
                self.write_stderr(at, "Waiting for your answer. Nothing runs until then.");
            }
            Event::Unparked => self.write_stderr(at, "Continuing."),
            Event::StopRequested { now: false, signal } if signal == KILL_REASON => {
                self.write_stderr(at, "Stopping after this iteration, as requested.");
            }
            // Exact text: scripts wait for it.
            Event::StopRequested { now: false, .. } => {
                self.write_stderr(at, "Received signal, shutting down...");
                if loud && !self.idle {
                    let words = "Finishing the current step. Press Ctrl+C again to stop now.";
                    self.write_stderr(at, words);
                }
            }
            Event::StopRequested { now: true, signal } => {
                let idle = self.idle;
                let mut pen = self.stderr_line(at);
                pen.text("Received ").untrusted(signal);
                pen.text(if idle { ", shutting down..." } else { ", stopping the agent now..." })
                    .end();
            }
            Event::PauseRequested => self.write_stderr(at, "Pausing after the current step..."),
            Event::Paused => self.write_stderr(at, "Paused."),
            Event::DialogOpened { dialog } => {
                self.write_stderr(at, &format!("A dialog waits for you: {dialog}."));
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
            Event::IterationStarted { .. }
                | Event::Retrying { .. }
                | Event::Resumed { .. }
                | Event::QuestionAsked { .. }
                | Event::Parked
                | Event::Unparked
        );
        in_other_words && !told.is_empty()
    }

    fn question(&mut self, at: Stamp, id: &str, text: &str) {
        let mut lines = text.trim().lines();
        let mut pen = self.stderr_line(at);
        pen.text("The agent asks: ").untrusted(lines.next().unwrap_or_default()).end();
        for line in lines.filter(|line| !line.trim().is_empty()).take(MAX_CONTEXT_LINES) {
            self.stderr_line(at).text("  ").untrusted(line).end();
        }
        let mut pen = self.stderr_line(at);
        pen.text("Answer it: ralph answer ").untrusted(id).text(" \"…\"").end();
    }

    fn write_stderr(&mut self, at: Stamp, words: &str) {
        self.stderr_line(at).text(words).end();
    }

    /// Task list progress: with the story at the start of an iteration, later only changes.
    fn tasks(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::Tasks { done, total, story, title, problems, unreadable, .. } = event else {
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
                _ if *unreadable => pen.text("Stories: unknown, the task list cannot be read"),
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
                pen.text("; not done: ").untrusted(first);
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
            [(&ended, if kept { "Left running" } else { "Killed" }), (&survived, "Could not kill")]
        {
            if !processes.is_empty() {
                self.write_leftovers(at, processes, words, kept);
            }
        }
    }

    fn write_leftovers(&mut self, at: Stamp, processes: &[Leftover], words: &str, kept: bool) {
        let count = processes.len();
        let what = if count == 1 { "process" } else { "processes" };
        let whose = if kept { "of the agent" } else { "that the agent left behind" };
        let mut message = format!("{words} {count} {what} {whose} (");
        let named: Vec<String> = processes
            .iter()
            .take(MAX_PROCESSES)
            .map(|process| {
                let command = text::truncate(&process.command, 80, self.marks.more);
                format!("pid {}, `{command}`", process.pid)
            })
            .collect();
        message.push_str(&named.join("; "));
        if count > MAX_PROCESSES {
            message.push_str(&format!("; and {} more", count - MAX_PROCESSES));
        }
        message.push(')');
        self.warn(at, &message);
    }

    pub(super) fn warn(&mut self, at: Stamp, message: &str) {
        let mark = self.marks.warning;
        let column = self.stamp_width() + width::display_width(mark) + 1;
        let mut pen = self.stderr_line(at);
        pen.paint(TextRole::Caution, mark).text(" ");
        pen.untrusted_wrapped(message, 4 * MAX_DETAIL, column).end();
    }

    fn waiting(&mut self, at: Stamp, reason: WaitReason, until_ms: i64) {
        // The previous event has announced a back-off.
        if reason == WaitReason::Backoff {
            return;
        }
        let until = self.format_time(at, until_ms);
        let left = text::format_duration(u64::try_from(until_ms - at.time_ms).unwrap_or(0));
        let mut line = StyledLine::new("");
        line.push(TextRole::Caution, "Rate limit reached");
        line.text.push_str(&format!(
            ": resets at {until} (in {left}). Waiting; this iteration is not counted."
        ));
        let column = self.stamp_width();
        self.line(at, Paragraph::Run).wrapped(&line, column).end();
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
        let Event::RunEnded { outcome, message, iterations, cut_off, duration_ms, .. } = event
        else {
            return;
        };
        let role = match outcome {
            Outcome::Complete => TextRole::Good,
            Outcome::CompleteScmFailed
            | Outcome::LimitReached
            | Outcome::Interrupted
            | Outcome::Budget
            | Outcome::Stalled => TextRole::Caution,
            _ => TextRole::Bad,
        };
        let last = run.iterations.last();
        let last_class = last.and_then(|last| last.class);
        let met_rate_limit = matches!(last_class, Some(Class::RateLimited | Class::Overloaded));
        let used_up = run.end.as_ref().and_then(|end| end.used_up.as_deref());
        let words = match (outcome, used_up) {
            (Outcome::Budget, Some(used_up)) => format!("Stopped: budget used up ({used_up})"),
            (Outcome::AgentFailed, _) if met_rate_limit => {
                "Stopped by the agent's rate limit".to_owned()
            }
            (outcome, _) => describe_outcome(*outcome).to_owned(),
        };
        // The other outcomes speak for themselves, unless the work was complete before the start.
        let is_explained = match outcome {
            Outcome::CompleteScmFailed | Outcome::LimitReached | Outcome::Interrupted => true,
            Outcome::Budget => used_up.is_some(),
            Outcome::Complete => *iterations > 0,
            _ => false,
        };
        let (column, more) = (self.stamp_width(), self.marks.more);
        let mut line = StyledLine::new("");
        line.push(role, &width::one_line(&words, MAX_DETAIL, more));
        if *iterations > 0 {
            line.text.push_str(&format_effort(*iterations, *cut_off, *duration_ms, run.cost()));
        }
        if is_explained || message.is_empty() {
            line.text.push('.');
        } else {
            line.text.push_str(": ");
            line.text.push_str(&width::one_line(message, MAX_DETAIL, more));
        }
        self.line(at, Paragraph::End).wrapped(&line, column).end();
        for said in run.steering.undelivered() {
            let words = undelivered_text(said).replacen('n', "N", 1);
            self.line(at, Paragraph::End).untrusted(&words).end();
        }
        if !self.style.quiet {
            self.closing_rows(at, *outcome, *iterations, *cut_off, run);
        }
    }

    /// The commits, the report and the next commands.
    fn closing_rows(
        &mut self,
        at: Stamp,
        outcome: Outcome,
        iterations: u32,
        cut_off: bool,
        run: &RunState,
    ) {
        let last = run.iterations.last();
        let limit_ends = run.notices.limit_ends_ms.filter(|ms| *ms > at.time_ms);
        let limit_ends = limit_ends.map(|ms| self.format_time(at, ms));
        let ending = RunEnding {
            run: short_id(&run.info.run),
            outcome,
            budget_used_up: run.end.as_ref().is_some_and(|end| end.used_up.is_some()),
            iterations,
            max_iterations: run.info.max_iterations,
            cut_off,
            scm_done: last.map_or(&[], |last| &last.scm_done),
            limit_ends: limit_ends.as_deref(),
            setup: run.info.setup.as_deref(),
        };
        let NextSteps { notes, commands } = ending.next_steps();
        if let Some(commit) = &run.repository.last_commit {
            let count = run.repository.commit_count;
            let label = format!("{count} commit{}", plural(u64::from(count)));
            let id = text::short_commit(&commit.id);
            self.row(at, &label, &format!("{id} {}", commit.subject));
        }
        self.row(at, "report", &format!("ralph report {}", short_id(&run.info.run)));
        for (index, step) in notes.iter().chain(&commands).enumerate() {
            self.row(at, if index == 0 { "next" } else { "" }, step);
        }
    }

    fn row(&mut self, at: Stamp, label: &str, words: &str) {
        let mut pen = self.line(at, Paragraph::End);
        pen.text("  ").paint(TextRole::Faint, &format!("{label:<10}")).text(" ");
        pen.untrusted(words).end();
    }
}
