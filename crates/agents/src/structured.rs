//! Reads streams of one JSON object per line.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::text::{ExplainFailure, LastOutput, PlainReader, output_event};
use super::{Emit, OutputReader, OutputTail, failure};
use crate::json::utf8;
use ralph_events::event::{Event, Exit, Failure, FailureKind, Stream};
use ralph_events::line_splitter::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineOutcome {
    Parsed,
    Result,
    /// An object with unknown parts; shown as is.
    Unknown,
    /// Not of the known format; no events were emitted.
    Malformed,
}

impl LineOutcome {
    pub(super) fn parsed_if(all: bool) -> Self {
        if all { LineOutcome::Parsed } else { LineOutcome::Unknown }
    }

    fn merge(self, other: LineOutcome) -> Self {
        match (self, other) {
            (LineOutcome::Result, _) | (_, LineOutcome::Result) => LineOutcome::Result,
            (LineOutcome::Parsed, LineOutcome::Parsed) => LineOutcome::Parsed,
            _ => LineOutcome::Unknown,
        }
    }
}

pub(super) trait LineParser {
    fn read(&mut self, line: &[u8], emit: &mut Emit<'_>) -> LineOutcome;
    /// A failure in the stream that no result followed.
    fn pending_failure(&self) -> Option<Failure> {
        None
    }
    /// Returns whether the text was understood.
    fn side_file(&mut self, _text: &str, _emit: &mut Emit<'_>) -> bool {
        false
    }
    /// Returns whether the line was understood.
    fn read_stderr(&mut self, _line: &str, _emit: &mut Emit<'_>) -> bool {
        false
    }
    fn may_run_tool(&self) -> bool {
        false
    }
    /// Corrects the result's failure by the exit code.
    fn revise_failure(&self, _exit: Option<Exit>) -> Option<Failure> {
        None
    }
}

const UNRECOGNIZED_OUTPUT: &str = ", and no line was recognized; if the agent prints plain text, set \
    \"agent\": {\"type\": \"text\"}";

#[derive(Debug)]
pub(super) struct StructuredReader<P> {
    parser: P,
    has_result: bool,
    has_parsed_line: bool,
    /// Lines outside the stream.
    stdout: OutputTail,
    stderr: OutputTail,
    explain: ExplainFailure,
}

/// Reads a stream with `parser`, or plain text.
pub(super) fn stream_or_text<P: LineParser + 'static>(
    structured: bool,
    parser: P,
    explain: ExplainFailure,
) -> Box<dyn OutputReader> {
    if structured {
        Box::new(StructuredReader::new(parser, explain))
    } else {
        Box::new(PlainReader::new(explain))
    }
}

impl<P: LineParser> StructuredReader<P> {
    pub(super) fn new(parser: P, explain: ExplainFailure) -> Self {
        StructuredReader {
            parser,
            has_result: false,
            has_parsed_line: false,
            stdout: OutputTail::default(),
            stderr: OutputTail::default(),
            explain,
        }
    }

    fn read(&mut self, line: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        // Some programs print a byte order mark or indentation.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start();
        if line.is_empty() {
            return LineOutcome::Parsed;
        }
        // `--output-format json` prints one array.
        if line.first() == Some(&b'[')
            && let Ok(entries) = serde_json::from_slice::<Vec<&RawValue>>(line)
            && !entries.is_empty()
            && entries.iter().all(|entry| entry.get().starts_with('{'))
        {
            let all = entries.iter().map(|entry| self.read(entry.get().as_bytes(), emit));
            return all.fold(LineOutcome::Parsed, LineOutcome::merge);
        }
        if line.first() != Some(&b'{') {
            return LineOutcome::Malformed;
        }
        match self.parser.read(line, emit) {
            // Invalid UTF-8 in a text must not cost the line.
            LineOutcome::Malformed => match String::from_utf8_lossy(line) {
                Cow::Owned(repaired) => self.parser.read(repaired.as_bytes(), emit),
                Cow::Borrowed(_) => LineOutcome::Malformed,
            },
            read => read,
        }
    }
}

impl<P: LineParser> OutputReader for StructuredReader<P> {
    fn max_line(&self) -> usize {
        64 * 1024 * 1024
    }

    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        let read =
            if line.is_complete() { self.read(line.bytes, emit) } else { LineOutcome::Malformed };
        match read {
            LineOutcome::Parsed => self.has_parsed_line |= !line.bytes.trim_ascii().is_empty(),
            LineOutcome::Result => (self.has_result, self.has_parsed_line) = (true, true),
            LineOutcome::Unknown => {
                let text = utf8(line.bytes);
                emit(output_event(Stream::Stdout, text, line.joined));
            }
            LineOutcome::Malformed => {
                let text = utf8(line.bytes);
                // A broken JSON line may contain text of a model or tool.
                if line.is_complete() && !text.trim_start().starts_with('{') {
                    self.stdout.push(&text);
                }
                emit(output_event(Stream::Stdout, text, line.joined));
            }
        }
    }

    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        let text = utf8(line.bytes);
        self.stderr.push(&text);
        if !line.is_complete() || !self.parser.read_stderr(&text, emit) {
            emit(output_event(Stream::Stderr, text, line.joined));
        }
    }

    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>) {
        if !self.parser.side_file(text, emit) {
            emit(output_event(Stream::Stdout, text.into(), false));
        }
    }

    fn may_run_tool(&self) -> bool {
        self.parser.may_run_tool()
    }

    fn is_unrecognized(&self) -> bool {
        !self.has_parsed_line
    }

    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>) {
        let failure = if self.has_result {
            self.parser.revise_failure(exit)
        } else if exit.is_some_and(Exit::success) {
            let mut message = "the stream ended without a result".to_owned();
            if self.is_unrecognized() && !self.stdout.text().is_empty() {
                message.push_str(UNRECOGNIZED_OUTPUT);
            }
            Some(failure(FailureKind::Other, message))
        } else {
            let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
            let explain = || (self.explain)(&LastOutput { stdout, stderr, exit });
            self.parser.pending_failure().or_else(explain)
        };
        if failure.is_some() {
            emit(Event::Result { failure, usage: None, turns: None });
        }
    }
}
