//! Qwen Code: `qwen -o stream-json`, whose stream has the shape of claude's.
//!
//! It tells a failed API call as the model's own words, `[API Error: …]`, after whatever the model
//! had said by then, calls that a success and exits with 0.

use super::messages::{Dialect, Messages};
use super::structured::Structured;
use super::text::{PlainReader, Words};
use super::{Adapter, Invocation, PromptVia, Reader, Request, api, failure, sets};
use ralph_events::event::{Exit, Failure, FailureKind};
use ralph_events::text::first_line;

/// The adapter for `qwen`.
#[derive(Debug)]
pub(super) struct Qwen;

impl Adapter for Qwen {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn install(&self) -> &'static str {
        "npm install -g @qwen-code/qwen-code"
    }

    fn recorded(&self) -> Option<&'static str> {
        Some("0.15.10")
    }

    fn invocation(&self, request: &Request<'_>) -> Invocation {
        let mut invocation = Invocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        if !sets(flags, &["-o", "--output-format"]) {
            invocation.args(["-o", if request.stream { "stream-json" } else { "text" }]);
        }
        if request.autonomous && !sets(flags, &["-y", "--yolo", "--approval-mode"]) {
            invocation.arg("--yolo");
        }
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        invocation.prompt_as_option(request);
        invocation
    }

    fn autonomous_on_terminal(&self) -> &'static [&'static str] {
        &["--yolo"]
    }

    fn reader(&self, structured: bool) -> Box<dyn Reader> {
        if structured {
            Box::new(Structured::new(Messages::new(&DIALECT)))
        } else {
            Box::new(PlainReader::new(explain))
        }
    }
}

static DIALECT: Dialect = Dialect {
    echoes_prompt: true,
    explain,
    api_error: Some(api_error),
    denial: Some("Qwen Code requires permission to use "),
    remedy: Some("see `qwen auth`, or check OPENAI_API_KEY"),
    result_is_said: false,
    input_includes_cache: true,
};

const API_ERROR: &str = "[API Error: ";

/// A message that is nothing but such an error is one. One that ends so may be the model's own, but
/// a message that the API has finished has a usage.
fn api_error(text: &str, unused: bool) -> Option<usize> {
    if text.starts_with(API_ERROR) {
        return Some(0);
    }
    let at = text.rfind(API_ERROR)?;
    (unused && text[at..].contains(']')).then_some(at)
}

/// What qwen's last words mean when there was no result.
fn explain(words: &Words<'_>) -> Option<Failure> {
    if words.exit == Some(Exit::Code(53)) {
        return Some(failure(FailureKind::TurnLimit, "qwen ended at its own limit of turns"));
    }
    let said = first_line(words.stderr)?;
    let failure = api::failure(0, said);
    (failure.kind != FailureKind::Other).then_some(failure)
}
