//! Claude Code: `claude -p --output-format stream-json`.

use super::messages::{Dialect, Messages};
use super::structured::Structured;
use super::text::{PlainReader, Words};
use super::{Adapter, Invocation, PromptVia, Reader, Request, failure, messages, sets};
use crate::core::event::{Failure, FailureKind};
use crate::core::text::first_line;

/// The adapter for `claude`.
#[derive(Debug)]
pub(super) struct Claude;

impl Adapter for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn install(&self) -> &'static str {
        "npm install -g @anthropic-ai/claude-code"
    }

    fn recorded(&self) -> Option<&'static str> {
        Some("2.1.325")
    }

    fn invocation(&self, request: &Request<'_>) -> Invocation {
        let mut invocation = Invocation::new(request, PromptVia::Stdin);
        invocation.args(["-p", "--output-format"]);
        if request.stream {
            // Without `--verbose` it refuses to stream.
            invocation.args(["stream-json", "--verbose"]);
        } else {
            invocation.arg("text");
        }
        if request.autonomous && !sets(request.flags, &["--dangerously-skip-permissions"]) {
            invocation.arg("--dangerously-skip-permissions");
        }
        if let Some(model) = request.model {
            invocation.args(["--model", model]);
        }
        for flag in request.flags {
            if flag == NO_AUTO_COMPACT {
                invocation.env.push(("DISABLE_AUTO_COMPACT", "1".into()));
            } else {
                invocation.arg(flag);
            }
        }
        invocation.prompt_after_dashes(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn Reader> {
        if structured {
            Box::new(Structured::new(Messages::new(&DIALECT)))
        } else {
            Box::new(PlainReader::new(explain))
        }
    }

    fn tells_cost(&self) -> bool {
        true
    }
}

/// A flag of older versions, which the program refuses by now; a variable does the same.
const NO_AUTO_COMPACT: &str = "--no-auto-compact";

static DIALECT: Dialect = Dialect {
    echoes_prompt: false,
    explain,
    api_error: None,
    denial: None,
    remedy: None,
    input_includes_cache: false,
};

/// What claude's last words mean when there was no result.
fn explain(words: &Words<'_>) -> Option<Failure> {
    let said = first_line(words.stderr);
    if words.stderr.contains("cannot be used with root/sudo privileges") {
        return Some(failure(
            FailureKind::Usage,
            "claude refuses --dangerously-skip-permissions as root: run ralph as an ordinary user, \
             use --sandbox, or set \"agent\": {\"autonomous\": false}",
        ));
    }
    if let Some(said) = said.filter(|said| said.starts_with("error: ")) {
        return Some(failure(
            FailureKind::Usage,
            format!(
                "claude would not start: {said} (see \"agent\": {{\"flags\"}} in the settings, and claude --help)"
            ),
        ));
    }
    // Its verdict on its own work is a line of its own, on standard output if it was asked for
    // plain text.
    [words.stderr, words.stdout]
        .into_iter()
        .filter_map(|stream| stream.lines().rev().find(|line| !line.trim().is_empty()))
        .find_map(messages::failure_in_words)
}
