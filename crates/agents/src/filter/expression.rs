//! Evaluates a jq expression.
//!
//! Nothing here limits time or stack, so only the helper process calls it.

use std::fmt;

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, compile, data};
use jaq_json::Val;

use super::{FilterAnswer, InvalidExpression};

/// One line can yield any number of values.
const MAX_VALUES: usize = 10_000;

type Data = data::JustLut<Val>;

pub struct Expression {
    filter: jaq_core::Filter<Data>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expression").finish_non_exhaustive()
    }
}

impl Expression {
    /// # Errors
    /// The expression is invalid.
    pub fn new(expression: &str) -> Result<Self, InvalidExpression> {
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs::<Data>().chain(jaq_std::funs()).chain(jaq_json::funs());
        // Output of an expression must not bypass ralph's display.
        let funs = funs.map(|(name, args, run)| match name {
            "stderr_empty" => (name, args, jaq_core::Native::new(|_| Box::new(std::iter::empty()))),
            _ => (name, args, run),
        });
        let arena = Arena::default();
        let modules = Loader::new(defs)
            .load(&arena, File { code: expression, path: () })
            .map_err(|errors| load_error(expression, &errors))?;
        let filter = Compiler::default()
            .with_funs(funs)
            .compile(modules)
            .map_err(|errors| compile_error(expression, &errors))?;
        Ok(Expression { filter })
    }

    /// Strings are the agent's text; other values but `null` are reported.
    pub fn evaluate(&self, line: &[u8]) -> FilterAnswer {
        let mut answer = FilterAnswer::default();
        let line = strip_prefix(line);
        let Some(value) = serde_json::from_slice::<Val>(line)
            .ok()
            .or_else(|| serde_json::from_slice(repair_utf8(line).as_bytes()).ok())
        else {
            return answer;
        };
        answer.is_json = true;
        let ctx = Ctx::<Data>::new(&self.filter.lut, Vars::new([]));
        for (nth, result) in self.filter.id.run((ctx, value)).enumerate() {
            if nth == MAX_VALUES {
                let message = format!("more than {MAX_VALUES} values");
                answer.failure = Some(message);
                break;
            }
            match result {
                Ok(Val::Null) => {}
                Ok(Val::TStr(bytes) | Val::BStr(bytes)) => {
                    answer.said.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                Ok(other) => {
                    answer.unsaid.get_or_insert_with(|| kind(&other).to_owned());
                }
                // `halt` ends the line, not the program.
                Err(exception) => {
                    answer.failure = exception.get_err().ok().map(|err| err.to_string());
                    break;
                }
            }
        }
        answer
    }
}

/// Strips blanks and a byte order mark.
pub(super) fn strip_prefix(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start()
}

/// Replaces invalid UTF-8 and lone surrogates by U+FFFD.
fn repair_utf8(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut repaired = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let taken = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(_), _) => {
                repaired.push('\u{fffd}');
                rest = &escape[6..];
                continue;
            }
            // An escaped character does not start another escape.
            (None, _) => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
        };
        repaired.push_str(&escape[..taken]);
        rest = &escape[taken..];
    }
    repaired.push_str(rest);
    repaired
}

fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    (0xD800..0xE000).contains(&code).then_some(code)
}

fn kind(value: &Val) -> &'static str {
    match value {
        Val::Null => "null",
        Val::Bool(_) => "a boolean",
        Val::Num(_) => "a number",
        Val::TStr(_) | Val::BStr(_) => "a string",
        Val::Arr(_) => "an array",
        Val::Obj(_) => "an object",
    }
}

fn load_error(expression: &str, errors: &load::Errors<&str, ()>) -> InvalidExpression {
    let first = errors.first().and_then(|(_, error)| match error {
        load::Error::Io(errors) => {
            let (path, _) = errors.first()?;
            Some(("cannot include other files".to_owned(), *path))
        }
        load::Error::Lex(errors) => {
            let (expected, found) = errors.first()?;
            Some((format!("expected {}", lex_error(expected)), *found))
        }
        load::Error::Parse(errors) => {
            let (expected, found) = errors.first()?;
            Some((format!("expected {}", expected.as_str()), *found))
        }
    });
    invalid_expression(expression, first)
}

fn invalid_expression(expression: &str, found: Option<(String, &str)>) -> InvalidExpression {
    let (message, part) = found.unwrap_or(("syntax error".to_owned(), ""));
    InvalidExpression { message, place: span_of(expression, part) }
}

/// The library's own message panics for unknown delimiters.
fn lex_error(expected: &load::lex::Expect<&str>) -> String {
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

fn compile_error(expression: &str, errors: &compile::Errors<&str, ()>) -> InvalidExpression {
    let first = errors.iter().flat_map(|(_, errors)| errors).next();
    let message = |name: &str, undefined: &compile::Undefined| match undefined {
        compile::Undefined::Filter(0) => format!("unknown filter {name}"),
        compile::Undefined::Filter(1) => format!("unknown filter {name}with 1 argument"),
        compile::Undefined::Filter(n) => {
            format!("unknown filter {name}with {n} arguments")
        }
        other => format!("unknown {} {name}", other.as_str()),
    };
    invalid_expression(expression, first.map(|(name, kind)| (message(name, kind), *name)))
}

/// The range of `part`, or the expression's end.
fn span_of(expression: &str, part: &str) -> std::ops::Range<usize> {
    let (start, end) = (expression.as_ptr().addr(), expression.as_ptr().addr() + expression.len());
    let at = part.as_ptr().addr();
    if at < start || at + part.len() > end {
        return expression.len()..expression.len();
    }
    at - start..at - start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(expression: &str, line: &str) -> Vec<String> {
        Expression::new(expression).unwrap().evaluate(line.as_bytes()).said
    }

    #[test]
    fn filter_outputs_strings_and_reports_other_values() {
        let line = r#"{"a": [1, "x", null, {"b": "y"}, "z"]}"#;
        assert_eq!(texts(".a[]", line), ["x", "z"]);
        assert_eq!(texts(".a[3].b, .a[0]", line), ["y"]);
        assert_eq!(texts(".missing", line), [""; 0]);
        assert_eq!(texts("empty", line), [""; 0]);
        assert_eq!(texts("halt, .a[1]", line), [""; 0], "it ends the line, not the program");
        assert_eq!(texts("range(infinite) | tostring", line).len(), MAX_VALUES);
        assert_eq!(texts(".a[1] | stderr", line), ["x"], "and prints nothing");
        for (expression, unsaid) in [
            (".a[]", Some("a number")),
            (".", Some("an object")),
            (".a", Some("an array")),
            (".a == 1", Some("a boolean")),
            (".a[1], null", None),
        ] {
            let answer = Expression::new(expression).unwrap().evaluate(line.as_bytes());
            assert_eq!(answer.unsaid.as_deref(), unsaid, "{expression}");
        }
    }

    #[test]
    fn filter_keeps_values_found_before_failure() {
        let answer = Expression::new(".a, .a[]").unwrap().evaluate(br#"{"a": "x"}"#);
        assert_eq!(answer.said, ["x"]);
        assert!(answer.failure.is_some());
    }

    #[test]
    fn filter_replaces_invalid_characters_in_line() {
        let expression = Expression::new(".a").unwrap();
        for (line, expected) in [
            (&br#"{"a": "x\ud83d y"}"#[..], "x\u{fffd} y"),
            (br#"{"a": "x\ude00\ud83d\ude00\\ud83d"}"#, "x\u{fffd}\u{1f600}\\ud83d"),
            (b"{\"a\": \"x\xff\"}", "x\u{fffd}"),
            (b"\xef\xbb\xbf \t{\"a\": \"x\"}", "x"),
        ] {
            assert_eq!(expression.evaluate(line).said, [expected]);
        }
    }

    #[test]
    fn filter_ignores_deeply_nested_and_invalid_json() {
        let expression = Expression::new(".a").unwrap();
        for line in ["[".repeat(100_000), "{\"a\":".repeat(100_000), "not JSON".into()] {
            assert_eq!(expression.evaluate(line.as_bytes()), FilterAnswer::default());
        }
        assert!(expression.evaluate(br#"{"a": "\ud800"}"#).said.len() <= 1);
    }

    #[test]
    fn filter_syntax_error_points_at_position() {
        for (expression, message, marked) in [
            (".a |", "expected term", "  1 | .a |\n    |     ^"),
            (".a | nope", "unknown filter nope", "  1 | .a | nope\n    |      ^^^^"),
            ("f(.; .)", "unknown filter fwith 2 arguments", "  1 | f(.; .)\n    | ^"),
            (".a | $x", "unknown variable $x", "  1 | .a | $x\n    |      ^^"),
            ("[.a", "expected a closing bracket", "  1 | [.a\n    |    ^"),
            ("\"a", "expected a closing quote", "  1 | \"a\n    |   ^"),
            ("é | \u{1b}", "expected token", "  1 | é |  \n    | ^^^^^"),
            (".a\n| b", "unknown filter b", "  2 | | b\n    |   ^"),
            (
                "include \"x\"; .",
                "cannot include other files",
                "  1 | include \"x\"; .\n    |          ^",
            ),
        ] {
            let bad = Expression::new(expression).unwrap_err();
            assert_eq!(
                (bad.message.as_str(), bad.with_marker(expression).as_str()),
                (message, marked)
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn filter_parser_never_panics(text in "[.|\\[\\](){}\"$a-c0 ;:,é\n-]{0,16}") {
            if let Err(bad) = Expression::new(&text) {
                bad.with_marker(&text);
            }
        }
    }
}
