//! Any other program: its output is its text, its exit code its result.

use std::borrow::Cow;

use super::{Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, OutputTail};
use crate::json::utf8;
use crate::profile::{AgentExtras, AgentProfile, MODEL_SERVICE_PREFIXES, Recording};
use ralph_events::event::{Event, Exit, Failure, Stream};
use ralph_events::line_splitter::Line;

#[derive(Debug)]
pub(super) struct TextAdapter;

static PROFILE: AgentProfile = AgentProfile {
    name: "text",
    install_command: "any command that takes a prompt on standard input",
    recording: Recording::Missing { reason: "any other command: every line counts as its answer" },
    tokens: None,
    cost: None,
    cost_is_verified: false,
    limit_end: None,
    interactive_autonomous_flags: &[],
    hosts: &[],
    // The program may call any model service.
    key_prefixes: MODEL_SERVICE_PREFIXES,
    homes: &[],
    extras: AgentExtras {
        // The program may be a wrapper around claude.
        stop_hook: true,
        ..AgentExtras::NONE
    },
};

impl Adapter for TextAdapter {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        AgentInvocation { structured: false, ..AgentInvocation::verbatim(request, request.flags) }
    }

    fn reader(&self, _structured: bool) -> Box<dyn OutputReader> {
        Box::new(PlainReader::new(|_| None))
    }
}

/// Reads plain text, also of known agents that do not stream.
#[derive(Debug)]
pub(super) struct PlainReader {
    /// The answer is in the side file; standard output is only shown.
    answer_in_file: bool,
    stdout: OutputTail,
    stderr: OutputTail,
    explain: ExplainFailure,
}

/// Classifies the failure of a program by its last output.
pub(super) type ExplainFailure = fn(&LastOutput<'_>) -> Option<Failure>;

#[derive(Debug)]
pub(super) struct LastOutput<'a> {
    pub(super) stdout: &'a str,
    pub(super) stderr: &'a str,
    pub(super) exit: Option<Exit>,
}

impl PlainReader {
    pub(super) fn new(explain: ExplainFailure) -> Self {
        PlainReader {
            answer_in_file: false,
            stdout: OutputTail::default(),
            stderr: OutputTail::default(),
            explain,
        }
    }

    pub(super) fn with_answer_file(explain: ExplainFailure) -> Self {
        PlainReader { answer_in_file: true, ..PlainReader::new(explain) }
    }
}

impl OutputReader for PlainReader {
    fn max_line(&self) -> usize {
        64 * 1024
    }

    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        let text = utf8(line.bytes);
        self.stdout.push(&text);
        emit(if self.answer_in_file {
            output_event(Stream::Stdout, text, line.joined)
        } else {
            Event::Text { text, joined: line.joined, subagent: false }
        });
    }

    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        let text = utf8(line.bytes);
        self.stderr.push(&text);
        emit(output_event(Stream::Stderr, text, line.joined));
    }

    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>) {
        emit(Event::Text { text: text.into(), joined: false, subagent: false });
    }

    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>) {
        if !matches!(exit, Some(Exit::Code(code)) if code != 0) {
            return;
        }
        let output = LastOutput { stdout: self.stdout.text(), stderr: self.stderr.text(), exit };
        if let Some(failure) = (self.explain)(&output) {
            emit(Event::Result { failure: Some(failure), usage: None, turns: None });
        }
    }
}

pub(super) fn output_event(stream: Stream, text: Cow<'_, str>, joined: bool) -> Event<'_> {
    Event::Output { stream, text, joined }
}
