//! The log of a session for people: the agents' output, iteration by iteration.

use std::fmt::Write as _;
use std::io::Write;

use jiff::tz::TimeZone;

use super::{LiveOutput, Problem, Recorded, Reporter};
use crate::stream_merger::StreamMerger;
use crate::time_text::format_local;
use crate::warning_text::{delivery_text, warning_text};
use ralph_events::attempt::describe_end;
use ralph_events::event::{Class, Event, Purpose, Stamp, Usage, WaitReason};
use ralph_events::run_state::{IterationResults, RunState};
use ralph_events::text;

const DOUBLE: &str =
    "================================================================================";
const SINGLE: &str =
    "--------------------------------------------------------------------------------";

#[derive(Debug)]
pub struct SessionLog<S> {
    sink: S,
    zone: TimeZone,
    pending: Vec<u8>,
    merger: StreamMerger,
    mode: String,
    facts: IterationStats,
    /// Bytes of agents' output that still fit.
    bytes_left: u64,
    /// The first problem with the file, until it is reported.
    warning: Option<String>,
    has_failed: bool,
}

/// Figures for the footer of an iteration.
#[derive(Debug, Default)]
struct IterationStats {
    /// The header, until there is something to write below it.
    header: Option<String>,
    /// An agent was started.
    has_started: bool,
    retries: u32,
    /// Another attempt follows the failed one.
    retry_due: bool,
    /// How the last attempt failed, until it is written.
    failure: Option<String>,
    /// Texts of the agent; only those of a stream are counted.
    messages: u32,
    streams: bool,
    /// Lines on which the response filter failed.
    filter_errors: u64,
}

impl<S: Write> SessionLog<S> {
    /// `room` limits the bytes of agents' output.
    pub fn new(sink: S, zone: TimeZone, room: u64) -> Self {
        SessionLog {
            sink,
            zone,
            pending: Vec::new(),
            merger: StreamMerger::default(),
            mode: String::new(),
            facts: IterationStats::default(),
            bytes_left: room,
            warning: None,
            has_failed: false,
        }
    }

    fn time(&self, ms: i64) -> String {
        format_local(ms, &self.zone, "%Y-%m-%d %H:%M:%S")
    }

    /// Writes a line of ralph's own.
    fn write_note(&mut self, words: &str) {
        self.start_iteration();
        self.end_output();
        self.pending.extend_from_slice(b"[ralph] ");
        self.pending.extend(words.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
        self.pending.push(b'\n');
    }

    fn end_output(&mut self) {
        self.merger.finish(&mut self.pending);
    }

    fn header(&mut self, at: Stamp) {
        self.facts.header = Some(format!(
            "{DOUBLE}\nITERATION {}\n{DOUBLE}\nMode: {}\nStart Time: {}\n{SINGLE}\n",
            at.iteration,
            self.mode,
            self.time(at.time_ms)
        ));
    }

    /// Writes the header before the first line of an iteration.
    fn start_iteration(&mut self) {
        if let Some(header) = self.facts.header.take() {
            self.pending.extend_from_slice(header.as_bytes());
        }
    }

    fn iteration_ended(
        &mut self,
        at: Stamp,
        status: &str,
        duration_ms: u64,
        usage: &Usage,
        run: &RunState,
    ) {
        // No agent was asked.
        let facts = std::mem::take(&mut self.facts);
        if facts.header.is_some() {
            return;
        }
        let failure = match &facts.failure {
            None if !facts.has_started => Some("the agent could not be started"),
            failure => failure.as_deref(),
        };
        if let Some(failure) = failure {
            self.write_note(&format!("failed: {failure}"));
        }
        self.end_output();
        let mut footer = format!(
            "{SINGLE}\nITERATION {} {}\nEnd Time: {}\nDuration: {}\n",
            at.iteration,
            if facts.has_started { "COMPLETE" } else { "NOT STARTED" },
            self.time(at.time_ms),
            text::format_duration(duration_ms)
        );
        let record = run.iterations.last();
        let messages = if facts.streams { facts.messages } else { 0 };
        let count = |n: u64| (n > 0).then(|| n.to_string());
        let rows: [(&str, Option<String>); 6] = [
            ("API Requests", record.and_then(|it| it.turns).map(|n| n.to_string())),
            ("Model", record.and_then(|it| it.model.clone())),
            ("Messages", count(messages.into())),
            ("Cost", usage.cost_usd.map(text::format_dollars)),
            ("Filter Errors", count(facts.filter_errors)),
            ("Retries", count(facts.retries.into())),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                let _ = writeln!(footer, "{name}: {value}");
            }
        }
        let _ = write!(footer, "Status: {status}\n{DOUBLE}\n\n");
        self.pending.extend_from_slice(footer.as_bytes());
    }

    fn summary(&mut self, event: &Event<'_>, results: &IterationResults) {
        let Event::RunEnded { exit_code, message, duration_ms, .. } = event else {
            return;
        };
        self.end_output();
        let interrupted = match results.interrupted {
            0 => String::new(),
            n => format!("Interrupted: {n}\n"),
        };
        let summary = format!(
            "{DOUBLE}\nSESSION SUMMARY\n{DOUBLE}\nTotal Iterations: {}\nSuccessful: {}\n\
             Failed: {}\n{interrupted}Total Duration: {}\nExit Reason: {}\nExit Code: {exit_code}\n{DOUBLE}\n",
            results.total(),
            results.successful,
            results.failed,
            text::format_duration(*duration_ms),
            message.replace('\n', " "),
        );
        self.pending.extend_from_slice(summary.as_bytes());
    }

    fn write_event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        match event {
            Event::RunStarted { command, .. } => {
                self.mode = command.as_ref().to_owned();
                // An iteration without an end in the earlier session starts again.
                self.facts = IterationStats::default();
            }
            Event::RunContinued { iterations, unchecked, .. } => {
                let s = if *iterations == 1 { "" } else { "s" };
                self.write_note(&format!(
                    "resumed after {iterations} iteration{s}; the summary covers the whole run"
                ));
                if let Some(iteration) = *unchecked {
                    self.header(Stamp { iteration, ..at });
                    self.facts.has_started = true;
                    self.write_note("the agent had finished; checking its work now");
                }
            }
            Event::IterationStarted { .. } => self.header(at),
            Event::Text { joined: false, subagent: false, .. } => self.facts.messages += 1,
            Event::Session { .. }
            | Event::Usage(_)
            | Event::ToolStarted { .. }
            | Event::Result { .. } => self.facts.streams = true,
            Event::Prompt { .. } => {
                self.start_iteration();
                self.facts.retries += u32::from(std::mem::take(&mut self.facts.retry_due));
            }
            Event::AgentStarted { purpose: Purpose::Work, .. } => self.facts.has_started = true,
            Event::AgentEnded {
                purpose, class, failure, exit, ended_by, filter_errors, ..
            } => {
                self.end_output();
                self.facts.filter_errors += filter_errors;
                if *purpose == Purpose::Work {
                    self.facts.failure = is_agent_failure(*class).then(|| match failure {
                        Some(failure) if !failure.message.is_empty() => failure.message.clone(),
                        _ => describe_end(*exit, *ended_by),
                    });
                }
            }
            Event::Retrying { message, failures, max_failures, .. } => {
                self.facts.failure = None;
                self.facts.retry_due = true;
                let most = max_failures.saturating_sub(1);
                self.write_note(&format!("failed: {message}; retry {failures} of {most}"));
            }
            Event::Waiting { reason: WaitReason::RateLimit, until_ms } => {
                self.facts.failure = None;
                let until = self.time(*until_ms);
                self.write_note(&format!("rate limit reached, waiting until {until}"));
            }
            Event::Warning { .. } | Event::Recovered { .. } | Event::Planted { .. } => {
                let message = warning_text(event).unwrap_or_default();
                self.write_note(&format!("warning: {message}"));
            }
            Event::GuardrailEnded { command, passed, cut_off, log, .. } => {
                let how = match (passed, cut_off) {
                    (true, _) => "passed",
                    (false, true) => "interrupted",
                    (false, false) => "failed",
                };
                self.write_note(&format!("guardrail {command:?} {how}; output: {log}"));
            }
            Event::ScmEnded { task, ok, detail, .. } => {
                let how = if *ok { "done" } else { "failed" };
                self.write_note(&format!("{task}: {how}: {detail}"));
            }
            Event::Vetoed { reason } => self.write_note(&format!("not complete: {reason}")),
            Event::QuestionAsked { id, text, .. } => {
                self.write_note(&format!("the agent asks ({id}): {text}"));
            }
            Event::QuestionAnswered { id, text } => {
                self.write_note(&format!("you answered {id}: {text}"));
            }
            Event::GuidanceReceived { text, .. } => self.write_note(&format!("you said: {text}")),
            Event::GuidanceCleared => self.write_note("your guidance was dropped"),
            Event::GuidanceDelivered { guidance, answers } => {
                self.write_note(&delivery_text(guidance.len(), answers.len()));
            }
            Event::Parked => self.write_note("waiting for your answer"),
            Event::Unparked => self.write_note("no longer waiting for your answer"),
            Event::StopRequested { signal, .. } => self.write_note(&format!("received {signal}")),
            Event::IterationEnded {
                class,
                guardrails_passed,
                complete,
                cut_off,
                duration_ms,
                usage,
            } => {
                let status = match (status(*class, *guardrails_passed, *complete), cut_off) {
                    // The run ended before its checks were done.
                    ("success", true) => "interrupted",
                    (status, _) => status,
                };
                self.iteration_ended(at, status, *duration_ms, usage, run);
            }
            Event::RunEnded { .. } => self.summary(event, &run.totals.results),
            _ => {}
        }
    }
}

impl<S: Write> Reporter for SessionLog<S> {
    fn event(&mut self, recorded: Recorded<'_>) {
        self.write_event(recorded.at, recorded.event, recorded.run);
    }

    fn output(&mut self, _at: Stamp, output: LiveOutput<'_>) {
        let LiveOutput::Raw(stream, bytes) = output else { return };
        if self.bytes_left == 0 {
            return;
        }
        let fits = bytes.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        self.bytes_left -= fits as u64;
        self.merger.push(stream, &bytes[..fits], &mut self.pending);
        if self.bytes_left == 0 {
            self.write_note(
                "log size limit reached (runs.maxRawMegabytes): agent output is not logged from \
                 here on",
            );
        }
    }

    fn flush(&mut self) {
        let written = self.sink.write_all(&self.pending);
        self.pending.clear();
        if let Err(err) = written
            && !std::mem::replace(&mut self.has_failed, true)
        {
            self.warning = Some(format!("the session log is incomplete: {err}"));
        }
    }

    fn take_problem(&mut self) -> Option<Problem> {
        self.warning.take().map(Problem::Warning)
    }
}

/// The agent caused the failure.
fn is_agent_failure(class: Class) -> bool {
    match class {
        Class::Failed
        | Class::ContextExhausted
        | Class::TimedOut
        | Class::Credentials
        | Class::RateLimited
        | Class::Overloaded => true,
        Class::Answered
        | Class::Empty
        | Class::Limited
        | Class::Interrupted
        | Class::NotStarted => false,
    }
}

fn status(class: Class, guardrails_passed: Option<bool>, complete: bool) -> &'static str {
    match class {
        _ if complete => "complete",
        Class::Answered | Class::Empty | Class::Limited if guardrails_passed == Some(false) => {
            "guardrails failed"
        }
        Class::Limited => "limited",
        Class::Answered | Class::Empty if guardrails_passed.is_none() => "interrupted",
        Class::Answered => "success",
        Class::Empty => "empty",
        Class::Interrupted => "interrupted",
        Class::TimedOut => "timed out",
        Class::NotStarted => "not started",
        Class::RateLimited | Class::Overloaded => "rate limited",
        Class::Credentials => "credentials refused",
        Class::Failed | Class::ContextExhausted => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_log_reports_success_only_for_passed_answer() {
        for (class, guardrails_passed, word) in [
            (Class::Answered, Some(true), "success"),
            (Class::Answered, Some(false), "guardrails failed"),
            (Class::Answered, None, "interrupted"),
            (Class::Empty, Some(true), "empty"),
            (Class::Empty, Some(false), "guardrails failed"),
            (Class::Empty, None, "interrupted"),
            (Class::Limited, Some(true), "limited"),
            (Class::Limited, Some(false), "guardrails failed"),
            (Class::Limited, None, "limited"),
            (Class::TimedOut, Some(true), "timed out"),
            (Class::Failed, None, "failed"),
        ] {
            assert_eq!(status(class, guardrails_passed, false), word, "{class:?}");
        }
    }

    #[test]
    fn session_log_of_checked_iteration_has_start_and_end() {
        let mut log = SessionLog::new(Vec::new(), TimeZone::UTC, 1_000);
        let mut run = RunState::live();
        let mut tell = |iteration, event: Event<'_>| {
            let at = Stamp { time_ms: 0, iteration, attempt: 1 };
            run.apply_event(at, &event);
            log.write_event(at, &event, &run);
        };
        let usage = Usage::default();
        tell(
            0,
            Event::RunContinued {
                after: None,
                iterations: 1,
                cut_off: None,
                unchecked: Some(2),
                usage,
                duration_ms: 1,
            },
        );
        tell(
            2,
            Event::IterationEnded {
                class: Class::Answered,
                guardrails_passed: Some(true),
                complete: true,
                cut_off: false,
                duration_ms: 1,
                usage,
            },
        );
        let said = String::from_utf8_lossy(&log.pending);
        for part in ["resumed after 1 iteration;", "\nITERATION 2\n", "\nITERATION 2 COMPLETE\n"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(said.contains("[ralph] the agent had finished; checking its work now\n"));
        assert!(said.contains("Status: complete") && !said.contains("failed"), "{said}");
    }
}
