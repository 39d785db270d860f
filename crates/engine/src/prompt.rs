//! Prompts: the user's text, feedback of failed checks, what a person said meanwhile, the iteration line.

use std::collections::{HashMap, HashSet, VecDeque};

use super::machine::PersonMessages;
use ralph_events::event::{Exit, FailAction, Feedback};
use ralph_events::text;

/// Applies feedback in order: after, before or in place of the text so far. What a person said comes last, the
/// iteration line first.
pub fn compose(
    base: &str,
    feedback: &[Feedback],
    messages: &PersonMessages<'_>,
    iteration: Option<(u32, u32)>,
) -> String {
    // Joined at the end: there may be thousands of long parts.
    let mut parts = VecDeque::from([base]);
    for piece in feedback {
        match piece.action {
            FailAction::Append => parts.push_back(&piece.message),
            FailAction::Prepend => parts.push_front(&piece.message),
            FailAction::Replace => parts = VecDeque::from([piece.message.as_str()]),
        }
    }
    let sections = message_sections(messages);
    parts.extend(sections.iter().map(String::as_str));
    let prompt = parts.make_contiguous().join("\n\n");
    match iteration {
        Some((n, max)) => {
            let left = max.saturating_sub(n);
            format!("Iteration {n} of {max}, {left} remaining.\n\n{prompt}")
        }
        None => prompt,
    }
}

fn message_sections(messages: &PersonMessages<'_>) -> Vec<String> {
    let mut sections = Vec::new();
    if !messages.answers.is_empty() {
        sections.push("## Answers to your questions".to_owned());
        sections.extend(messages.answers.iter().map(|(question, answer)| {
            let quoted: Vec<String> = question.lines().map(|line| format!("> {line}")).collect();
            format!("{}\n\n{}", quoted.join("\n"), answer.trim())
        }));
    }
    if !messages.guidance.is_empty() {
        let heading =
            "## Guidance from the user\n\nIt takes precedence over the instructions above.";
        sections.push(heading.to_owned());
        sections.extend(messages.guidance.iter().map(|text| text.trim().to_owned()));
    }
    sections
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardrailFailure {
    Exit(Option<Exit>),
    TimedOut { limit_ms: u64 },
}

/// Characters of a guardrail's output in the next prompt: the first `head`, and the last `tail` of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    pub head: usize,
    pub tail: usize,
}

/// The captured output of a guardrail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardrailOutput<'a> {
    pub start: &'a str,
    /// The last part after `start`; empty if `start` is everything.
    pub end: &'a str,
}

/// Only the output is ever cut.
pub fn guardrail_message(
    command: &str,
    failure: GuardrailFailure,
    hint: Option<&str>,
    log: &str,
    output: GuardrailOutput<'_>,
    limits: OutputLimits,
) -> String {
    let how = match failure {
        GuardrailFailure::Exit(Some(Exit::Code(code))) => format!("failed with exit code {code}"),
        // The exit code that a shell reports.
        GuardrailFailure::Exit(Some(Exit::Signal(signal))) => {
            format!("failed with exit code {} (signal {signal})", 128 + signal)
        }
        GuardrailFailure::Exit(None) => "could not be run".to_owned(),
        GuardrailFailure::TimedOut { limit_ms } => {
            format!("timed out after {} s", limit_ms as f64 / 1000.0)
        }
    };
    let hint = hint.map(|hint| format!("Hint: {hint}\n")).unwrap_or_default();
    let shown = text::prefix(output.start, limits.head);
    let rest = format!("{}{}", &output.start[shown.len()..], output.end);
    let label = if rest.is_empty() { "Output:" } else { "Output (truncated):" };
    let mut message =
        format!("Guardrail \"{command}\" {how}.\n{hint}Output file: {log}\n{label}\n{shown}");
    if !rest.is_empty() {
        message.push_str("... [truncated]");
        // Most tools print the failure last.
        let end = text::suffix(rest.trim_end(), limits.tail);
        if !end.is_empty() {
            message.push_str(&format!("\nEnd of output:\n{end}"));
        }
    }
    // Parts are separated by one empty line, however many the command printed.
    message.truncate(message.trim_end_matches('\n').len());
    message
}

pub fn log_slug(command: &str) -> String {
    let mut slug = String::new();
    for c in command.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('_') {
            slug.push('_');
        }
    }
    slug.truncate(50);
    let slug = slug.trim_end_matches('_');
    if slug.is_empty() { "guardrail".to_owned() } else { slug.to_owned() }
}

/// One slug per guardrail; equal ones get a number.
pub fn log_slugs<'a>(commands: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    commands
        .into_iter()
        .map(|command| {
            let stem = log_slug(command);
            let mut name = stem.clone();
            let n = numbers.entry(stem.clone()).or_default();
            while !taken.insert(name.clone()) {
                *n += 1;
                name = format!("{stem}_{n}");
            }
            name
        })
        .collect()
}

pub fn log_name(iteration: u32, slug: &str) -> String {
    format!("guardrail_{iteration:03}_{slug}.log")
}

pub const COMMIT_MESSAGE_PROMPT: &str = "Provide a short imperative commit message for the changes. Output only the message, no explanation.";

/// A `<response>` tag, or the first line that is not blank, a fence or an announcement.
pub fn parse_commit_message(answer: &str) -> Option<String> {
    let is_fence = |line: &str| {
        let language = line.strip_prefix("```").or_else(|| line.strip_prefix("~~~"));
        let is_word =
            |text: &str| text.chars().all(|c| c.is_alphanumeric() || "`~+-_.".contains(c));
        language.is_some_and(|language| is_word(language.trim()))
    };
    let lines = answer.lines().map(str::trim).filter(|line| !line.is_empty() && !is_fence(line));
    let message = match super::completion::first_response(answer) {
        Some(content) => content,
        None => {
            let mut lines = lines.peekable();
            let mut line = lines.next()?;
            while line.ends_with(':') && lines.peek().is_some() {
                line = lines.next()?;
            }
            // The closing tag may have been cut.
            line.strip_prefix("<response>").unwrap_or(line).to_owned()
        }
    };
    let message = message.trim();
    if message.is_empty() { None } else { Some(message.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(action: FailAction, message: &str) -> Feedback {
        Feedback { action, message: message.to_owned() }
    }

    #[test]
    fn prompt_applies_feedback_in_order() {
        use FailAction::{Append, Prepend, Replace};
        let cases: [(&[(FailAction, &str)], &str); 6] = [
            (&[], "do it"),
            (&[(Append, "a")], "do it\n\na"),
            (&[(Prepend, "p")], "p\n\ndo it"),
            (&[(Append, "a"), (Prepend, "p"), (Append, "b")], "p\n\ndo it\n\na\n\nb"),
            (&[(Append, "a"), (Replace, "r")], "r"),
            (&[(Append, "a"), (Replace, "r"), (Append, "b")], "r\n\nb"),
        ];
        for (pieces, expected) in cases {
            let feedback: Vec<_> =
                pieces.iter().map(|(action, text)| piece(*action, text)).collect();
            assert_eq!(compose("do it", &feedback, &PersonMessages::default(), None), expected);
        }
    }

    #[test]
    fn prompt_starts_with_iteration_line() {
        let feedback = [piece(FailAction::Prepend, "p")];
        assert_eq!(
            compose("do it", &feedback, &PersonMessages::default(), Some((2, 10))),
            "Iteration 2 of 10, 8 remaining.\n\np\n\ndo it"
        );
    }

    #[test]
    fn replaced_prompt_keeps_what_a_person_said() {
        let feedback = [piece(FailAction::Replace, "r")];
        let messages = PersonMessages {
            guidance: vec!["first\n", "second"],
            answers: vec![("410 or 303?\nContext", "410")],
        };
        assert_eq!(
            compose("do it", &feedback, &messages, Some((1, 2))),
            "Iteration 1 of 2, 1 remaining.\n\nr\n\n## Answers to your questions\n\n> 410 or \
             303?\n> Context\n\n410\n\n## Guidance from the user\n\nIt takes precedence over the \
             instructions above.\n\nfirst\n\nsecond"
        );
    }

    #[test]
    fn guardrail_failure_message_has_documented_format() {
        let exit = GuardrailFailure::Exit(Some(Exit::Code(2)));
        let all = |start| GuardrailOutput { start, end: "" };
        let limits = |head, tail| OutputLimits { head, tail };
        assert_eq!(
            guardrail_message(
                "make test",
                exit,
                Some("no shortcuts"),
                ".ralph/g.log",
                all("boom\n\n"),
                limits(5000, 2000)
            ),
            "Guardrail \"make test\" failed with exit code 2.\nHint: no shortcuts\n\
             Output file: .ralph/g.log\nOutput:\nboom"
        );
        assert_eq!(
            guardrail_message("make", exit, None, "g.log", all("héllo"), limits(2, 0)),
            "Guardrail \"make\" failed with exit code 2.\nOutput file: g.log\n\
             Output (truncated):\nhé... [truncated]"
        );
        let long = GuardrailOutput { start: "ok 1\nok 2\n", end: "ok 9\nassertion failed: é\n\n" };
        assert_eq!(
            guardrail_message("make", exit, None, "g.log", long, limits(4, 19)),
            "Guardrail \"make\" failed with exit code 2.\nOutput file: g.log\n\
             Output (truncated):\nok 1... [truncated]\nEnd of output:\nassertion failed: é"
        );
        assert!(
            guardrail_message(
                "t",
                GuardrailFailure::TimedOut { limit_ms: 3_000 },
                None,
                "l",
                all(""),
                limits(9, 9)
            )
            .contains("timed out after 3 s")
        );
    }

    #[test]
    fn guardrail_log_names_are_readable_and_distinct() {
        assert_eq!(log_slug("./mvnw clean install -T 2C"), "mvnw_clean_install_T_2C");
        assert_eq!(log_slug("[ ! ]"), "guardrail");
        assert_eq!(log_slug(&"x".repeat(80)).len(), 50);
        assert_eq!(
            log_slugs(["make test", "make  test", "make test 1", "make test", "lint"]),
            ["make_test", "make_test_1", "make_test_1_1", "make_test_2", "lint"]
        );
        assert_eq!(log_name(7, "make_test_1"), "guardrail_007_make_test_1.log");
    }

    #[test]
    fn thousands_of_guardrails_are_handled() {
        let slugs = log_slugs(std::iter::repeat_n("make test", 10_000));
        assert_eq!(slugs.last().map(String::as_str), Some("make_test_9999"));
        let feedback = vec![piece(FailAction::Append, &"x".repeat(5_000)); 10_000];
        assert_eq!(
            compose("do it", &feedback, &PersonMessages::default(), None).len(),
            5 + 10_000 * 5_002
        );
    }

    #[test]
    fn commit_message_is_extracted_from_answer() {
        let cases = [
            ("\n  Fix the parser \nmore", Some("Fix the parser")),
            ("Sure!\n<response>Add `$(x)` handling</response>", Some("Add `$(x)` handling")),
            ("<response>  </response>", None),
            ("<response>Fix the parser\n\nIt was", Some("Fix the parser")),
            (" \n\n", None),
            ("```\nAdd it\n```\n", Some("Add it")),
            (" ```text \n\nAdd it\n```", Some("Add it")),
            ("~~~git-commit\nAdd it\n~~~", Some("Add it")),
            ("```\n```", None),
            ("Here is the commit message:\n\nAdd it\n\nand more", Some("Add it")),
            ("Here it is:\n\n```gitcommit\nAdd it\n```", Some("Add it")),
            ("Sure:\nThe message:\n", Some("The message:")),
            ("Fix parser:", Some("Fix parser:")),
            ("```Add it``` works", Some("```Add it``` works")),
            ("`Add it`", Some("`Add it`")),
        ];
        for (answer, expected) in cases {
            assert_eq!(parse_commit_message(answer).as_deref(), expected, "{answer:?}");
        }
    }
}
