//! A jq expression that finds an agent's words in its output: for agents that are not known, and for
//! whoever knows better.
//!
//! The expression is run in this process, on one line at a time.

use std::fmt;
use std::rc::Rc;

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile, data};
use jaq_json::Val;
use unicode_width::UnicodeWidthStr;

use super::json::utf8;
use super::text::output;
use super::{Emit, Reader, failure};
use crate::core::event::{Event, Exit, FailureKind, Stream};
use crate::core::lines::Line;
use crate::core::text;

/// The most values that are taken of one line: an expression may make any number of one.
const MAX_VALUES: usize = 10_000;

type Data = data::JustLut<Val>;

/// An expression that was understood.
#[derive(Clone)]
pub struct ResponseFilter {
    expression: String,
    filter: Rc<jaq_core::Filter<Data>>,
}

impl fmt::Debug for ResponseFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseFilter").field(&self.expression).finish()
    }
}

/// What is wrong with an expression, and which part of it is: a range of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadExpression {
    pub message: String,
    pub place: std::ops::Range<usize>,
}

impl BadExpression {
    /// The line of the expression that is wrong, with the place marked beneath it.
    pub fn marked(&self, expression: &str) -> String {
        let start = expression[..self.place.start].rfind('\n').map_or(0, |at| at + 1);
        let number = expression[..start].matches('\n').count() + 1;
        let line = expression[start..].lines().next().unwrap_or_default();
        // A terminal must neither act upon it nor move the mark.
        let clean = |text: &str| text.replace(char::is_control, " ");
        let (before, after) = line.split_at((self.place.start - start).min(line.len()));
        let wrong = &after[..self.place.len().min(after.len())];
        let gap = " ".repeat(clean(before).width());
        let carets = "^".repeat(clean(wrong).width().max(1));
        let gutter = " ".repeat(number.to_string().len());
        let line = clean(line);
        format!("  {number} | {line}\n  {gutter} | {gap}{carets}")
    }
}

impl ResponseFilter {
    /// # Errors
    /// The first thing that is wrong with the expression.
    pub fn new(expression: &str) -> Result<Self, BadExpression> {
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs::<Data>().chain(jaq_std::funs()).chain(jaq_json::funs());
        // What an expression prints would go to the terminal past everything that keeps it in order.
        let funs = funs.map(|(name, args, run)| match name {
            "stderr_empty" => (name, args, jaq_core::Native::new(|_| Box::new(std::iter::empty()))),
            _ => (name, args, run),
        });
        let arena = Arena::default();
        let modules = Loader::new(defs)
            .load(&arena, File { code: expression, path: () })
            .map_err(|errors| not_loaded(expression, &errors))?;
        let filter = Compiler::default()
            .with_funs(funs)
            .compile(modules)
            .map_err(|errors| not_compiled(expression, &errors))?;
        Ok(ResponseFilter { expression: expression.to_owned(), filter: Rc::new(filter) })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The texts that the expression makes of a value (strings as they are, anything else as JSON, and
    /// `null` is none), and what went wrong then, if something did.
    fn texts(&self, value: Val) -> (Vec<String>, Option<String>) {
        let ctx = Ctx::<Data>::new(&self.filter.lut, Vars::new([]));
        let mut texts = Vec::new();
        for result in self.filter.id.run((ctx, value)).take(MAX_VALUES) {
            match result {
                Ok(Val::Null) => {}
                Ok(Val::TStr(bytes) | Val::BStr(bytes)) => {
                    texts.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                Ok(other) => texts.push(other.to_string()),
                // What is no error is `halt`, which ends the line, and not the program.
                Err(exception) => {
                    return (texts, exception.get_err().ok().map(|err| err.to_string()));
                }
            }
        }
        (texts, None)
    }
}

fn not_loaded(expression: &str, errors: &load::Errors<&str, ()>) -> BadExpression {
    let end = expression.len()..expression.len();
    let Some((_, error)) = errors.first() else {
        return BadExpression { message: "it is not understood".to_owned(), place: end };
    };
    let (message, part) = match error {
        load::Error::Io(errors) => match errors.first() {
            Some((path, _)) => ("other files cannot be included here".to_owned(), *path),
            None => ("other files cannot be included here".to_owned(), ""),
        },
        load::Error::Lex(errors) => match errors.first() {
            Some((expected, found)) => (format!("expected {}", lexed(expected)), *found),
            None => (String::new(), ""),
        },
        load::Error::Parse(errors) => match errors.first() {
            Some((expected, found)) => (format!("expected {}", expected.as_str()), *found),
            None => (String::new(), ""),
        },
    };
    BadExpression { message, place: place(expression, part) }
}

/// The library's own words for it panic for delimiters that it does not know.
fn lexed(expected: &load::lex::Expect<&str>) -> String {
    match expected {
        load::lex::Expect::Delim(open) => match *open {
            "(" => "a closing parenthesis".to_owned(),
            "[" => "a closing bracket".to_owned(),
            "{" => "a closing brace".to_owned(),
            "\"" => "a closing quote".to_owned(),
            other => format!("the end of {other}"),
        },
        other => other.as_str().to_owned(),
    }
}

fn not_compiled(expression: &str, errors: &compile::Errors<&str, ()>) -> BadExpression {
    let first = errors.iter().flat_map(|(_, errors)| errors).next();
    let Some((name, undefined)) = first else {
        let end = expression.len()..expression.len();
        return BadExpression { message: "it is not understood".to_owned(), place: end };
    };
    let message = match undefined {
        compile::Undefined::Filter(0) => format!("there is no filter {name}"),
        compile::Undefined::Filter(n) => {
            format!(
                "there is no filter {name} that takes {n} argument{}",
                if *n == 1 { "" } else { "s" }
            )
        }
        other => format!("there is no {} {name}", other.as_str()),
    };
    BadExpression { message, place: place(expression, name) }
}

/// Where a part of the expression stands in it; its end for what is not a part of it.
fn place(expression: &str, part: &str) -> std::ops::Range<usize> {
    let (start, end) = (expression.as_ptr().addr(), expression.as_ptr().addr() + expression.len());
    let at = part.as_ptr().addr();
    if at < start || at + part.len() > end {
        return expression.len()..expression.len();
    }
    at - start..at - start + part.len()
}

/// Reads an agent with another reader, but takes for the agent's words only what the expression finds.
pub(super) struct Filtered {
    inner: Box<dyn Reader>,
    filter: ResponseFilter,
    /// The other reader takes anything for an answer, so that what is no stream must be told here.
    stands_alone: bool,
    warned: bool,
    /// Lines that are JSON, and lines that are not.
    streamed: bool,
    printed: bool,
}

impl Filtered {
    pub(super) fn new(inner: Box<dyn Reader>, filter: ResponseFilter, stands_alone: bool) -> Self {
        Filtered { inner, filter, stands_alone, warned: false, streamed: false, printed: false }
    }

    /// The agent's words in a line, if it is one of the stream.
    fn words(&mut self, line: Line<'_>, emit: &mut Emit<'_>) -> Vec<String> {
        if !line.is_whole() || !matches!(line.bytes.first(), Some(b'{' | b'[')) {
            return Vec::new();
        }
        let Ok(value) = serde_json::from_slice::<Val>(line.bytes) else { return Vec::new() };
        self.streamed = true;
        let (words, failure) = self.filter.texts(value);
        if let Some(message) = failure
            && !std::mem::replace(&mut self.warned, true)
        {
            let message = text::truncate(&message, 200, "…");
            let line = utf8(line.bytes);
            let line = text::truncate(&line, 100, "…");
            let message = format!("the response filter fails: {message}, for the line {line}");
            emit(Event::Warning { message: message.into() });
        }
        words
    }
}

impl Reader for Filtered {
    fn max_line(&self) -> usize {
        64 * 1024 * 1024
    }

    fn stdout(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        let words = self.words(line, emit);
        self.printed |= !line.bytes.trim_ascii().is_empty();
        self.inner.stdout(line, &mut |event| match event {
            // What the expression does not find is kept, but nobody said it.
            Event::Text { text, joined, .. } => {
                if words.is_empty() {
                    emit(output(Stream::Stdout, text, joined));
                }
            }
            other => emit(other),
        });
        for text in words {
            emit(Event::Text { text: text.into(), joined: false, subagent: false });
        }
    }

    fn stderr(&mut self, line: Line<'_>, emit: &mut Emit<'_>) {
        self.inner.stderr(line, emit);
    }

    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>) {
        self.inner.side_file(text, emit);
    }

    fn finish(&mut self, exit: Option<Exit>, emit: &mut Emit<'_>) {
        self.inner.finish(exit, emit);
        if self.stands_alone && self.printed && !self.streamed {
            let failure = failure(FailureKind::Other, "it printed no JSON, though it was to");
            emit(Event::Result { failure: Some(failure), usage: None, turns: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::by_name;
    use crate::core::lines::LineSplitter;

    /// What a filter makes of the lines of an agent: what was said, what was kept, what was warned of.
    fn read(
        adapter: &str,
        expression: &str,
        lines: &str,
    ) -> (Vec<String>, Vec<String>, Vec<String>) {
        let filter = ResponseFilter::new(expression).unwrap();
        let structured = adapter != "text";
        let mut reader = Filtered::new(by_name(adapter).unwrap().reader(structured), filter, true);
        let (mut said, mut kept, mut warned) = (Vec::new(), Vec::new(), Vec::new());
        let mut emit = |event: Event<'_>| match event {
            Event::Text { text, .. } => said.push(text.into_owned()),
            Event::Output { text, .. } => kept.push(text.into_owned()),
            Event::Warning { message } => warned.push(message.into_owned()),
            _ => {}
        };
        let mut splitter = LineSplitter::new(reader.max_line());
        splitter.push(lines.as_bytes(), |line| reader.stdout(line, &mut emit));
        splitter.finish(|line| reader.stdout(line, &mut emit));
        (said, kept, warned)
    }

    const ASSISTANT: &str =
        r#"select(.type == "assistant") | .message.content[]? | select(.type == "text") | .text"#;

    #[test]
    fn only_what_the_expression_finds_is_said() {
        let lines = concat!(
            r#"{"type":"user","message":{"content":[{"type":"text","text":"the prompt"}]}}"#,
            "\n",
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a\nb"},{"type":"tool_use"},{"type":"text","text":"c"}]}}"#,
            "\nnot JSON\n{\"broken\": \n",
        );
        let (said, kept, warned) = read("text", ASSISTANT, lines);
        assert_eq!(said, ["a\nb", "c"]);
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert!(kept[0].contains("the prompt"));
        assert_eq!(kept[1..], ["not JSON", "{\"broken\": "]);
        assert_eq!(warned, [""; 0]);
    }

    #[test]
    fn a_known_agents_own_words_are_judged_by_the_expression_too() {
        let lines = concat!(
            r#"{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"yes"}]},"who":"a"}"#,
            "\n",
            r#"{"type":"assistant","message":{"id":"2","content":[{"type":"text","text":"no"}]},"who":"b"}"#,
            "\n",
        );
        let (said, kept, _) =
            read("claude", r#"select(.who == "a") | .message.content[].text"#, lines);
        assert_eq!(said, ["yes"]);
        assert!(kept.contains(&"no".to_owned()), "{kept:?}");
    }

    #[test]
    fn values_that_are_no_strings() {
        let lines = "{\"a\": [1, \"x\", null, {\"b\": 2}]}\n";
        assert_eq!(read("text", ".a[]", lines).0, ["1", "x", r#"{"b":2}"#]);
        assert_eq!(read("text", ".missing", lines).0, [""; 0]);
        assert_eq!(read("text", "empty", lines).0, [""; 0]);
        assert_eq!(read("text", "halt, 1", lines).0, [""; 0], "it ends the line, not the program");
        assert_eq!(read("text", "range(infinite) | tostring", lines).0.len(), MAX_VALUES);
        assert_eq!(read("text", ".a[1] | stderr", lines).0, ["x"], "and prints nothing");
    }

    #[test]
    fn what_fails_is_said_once_and_what_came_before_counts() {
        let (said, _, warned) = read("text", ".a, .a[]", "{\"a\": 1}\n{\"a\": 2}\n");
        assert_eq!(said, ["1", "2"]);
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("{\"a\": 1}"), "{warned:?}");
    }

    #[test]
    fn deep_and_broken_lines_harm_nobody() {
        for line in ["[".repeat(100_000), "{\"a\":".repeat(100_000), "{\"a\": \"\\ud800\"}".into()]
        {
            let (said, kept, _) = read("text", ".a", &line);
            assert_eq!(said.len() + kept.len(), 1);
        }
    }

    #[test]
    fn a_bad_expression_is_marked_at_its_place() {
        for (expression, message, marked) in [
            (".a |", "expected term", "  1 | .a |\n    |     ^"),
            (".a | nope", "there is no filter nope", "  1 | .a | nope\n    |      ^^^^"),
            ("f(.; .)", "there is no filter f that takes 2 arguments", "  1 | f(.; .)\n    | ^"),
            (".a | $x", "there is no variable $x", "  1 | .a | $x\n    |      ^^"),
            ("[.a", "expected a closing bracket", "  1 | [.a\n    |    ^"),
            ("\"a", "expected a closing quote", "  1 | \"a\n    |   ^"),
            ("é | \u{1b}", "expected token", "  1 | é |  \n    | ^^^^^"),
            (".a\n| b", "there is no filter b", "  2 | | b\n    |   ^"),
            (
                "include \"x\"; .",
                "other files cannot be included here",
                "  1 | include \"x\"; .\n    |          ^",
            ),
        ] {
            let bad = ResponseFilter::new(expression).unwrap_err();
            assert_eq!((bad.message.as_str(), bad.marked(expression).as_str()), (message, marked));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_expression_is_taken_or_refused(text in "[.|\\[\\](){}\"$a-c0 ;:,é\n-]{0,16}") {
            if let Err(bad) = ResponseFilter::new(&text) {
                bad.marked(&text);
            }
        }
    }
}
