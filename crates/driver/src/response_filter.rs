//! This program as the evaluator of one jq expression: it answers each line with a line.
//!
//! It limits its own resources; the caller ends it when it takes too long.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use ralph_agents::filter::expression::Expression;
use ralph_agents::filter::{FilterAnswer, InvalidExpression, ResponseFilter};
use ralph_events::exit_code;
use ralph_process as process;

pub const EVALUATE_COMMAND: &str = "__filter";
const CHECK_COMMAND: &str = "check";
const SERVE: &str = "serve";

/// Memory limit of an expression.
const MAX_MEMORY: u64 = 2 << 30;
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Usual answers take a fraction of a millisecond.
const ANSWER_TIMEOUT_MS: u64 = 3_000;
/// Additional time for long lines.
const BYTES_PER_MS: u64 = 2_000;

pub fn main(args: &[OsString]) -> u8 {
    let [mode, expression] = args else { return exit_code::USAGE };
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let memory = Rlimit { current: Some(MAX_MEMORY), maximum: Some(MAX_MEMORY) };
    // Without a limit, the caller still ends what takes too long.
    let _ = setrlimit(Resource::Core, none);
    let _ = setrlimit(Resource::As, memory);
    let expression = expression.to_string_lossy();
    let (stdin, stdout) = (io::stdin().lock(), io::stdout().lock());
    let served = match Expression::new(&expression) {
        Ok(expression) if mode == SERVE => serve(&expression, stdin, stdout),
        Ok(_) => Ok(()),
        Err(bad) => write_answer(&bad, stdout),
    };
    // The caller is gone.
    if served.is_ok() { exit_code::SUCCESS } else { exit_code::INCOMPLETE }
}

fn serve(
    expression: &Expression,
    mut questions: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    while questions.read_until(b'\n', &mut line)? > 0 {
        write_answer(&expression.evaluate(&line), &mut answers)?;
        line.clear();
    }
    Ok(())
}

fn write_answer(answer: &impl serde::Serialize, mut answers: impl Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    answers.write_all(&line)?;
    answers.flush()
}

/// Checks an expression in a child process: deep nesting can overflow any stack.
///
/// # Errors What is wrong with it.
pub fn check(expression: &str, directory: &Path) -> Result<ResponseFilter, InvalidExpression> {
    let bad = |message: String| InvalidExpression { message, place: 0..expression.len() };
    let args = [EVALUATE_COMMAND.into(), CHECK_COMMAND.into(), expression.into()];
    let program = process::own_program().map_err(|err| bad(format!("cannot be checked: {err}")))?;
    let output = process::run_to_end(program.as_os_str(), &args, directory, &[], CHECK_TIMEOUT)
        .map_err(|err| match err.kind() {
            io::ErrorKind::TimedOut => bad("takes too long to parse".to_owned()),
            io::ErrorKind::ArgumentListTooLong => bad("is too long".to_owned()),
            _ => bad(format!("cannot be checked: {err}")),
        })?;
    if !output.exit.success() {
        return Err(bad(format!("cannot be parsed ({}): is it nested too deeply?", output.exit)));
    }
    match serde_json::from_slice(&output.stdout) {
        Ok(bad) => Err(bad),
        Err(_) => Ok(ResponseFilter::of_checked(expression)),
    }
}

/// The evaluator's command line.
///
/// # Errors The path of this program is unknown.
pub fn command(filter: &ResponseFilter) -> io::Result<(PathBuf, [OsString; 3])> {
    Ok((
        process::own_program()?,
        [EVALUATE_COMMAND.into(), SERVE.into(), filter.expression().into()],
    ))
}

pub fn answer_timeout_ms(question: &[u8]) -> u64 {
    ANSWER_TIMEOUT_MS.saturating_add(question.len() as u64 / BYTES_PER_MS)
}

/// Parses the evaluator's answer.
///
/// # Errors Why there is none, as the end of a sentence about the filter.
pub fn parse_answer(printed: io::Result<Vec<u8>>) -> Result<FilterAnswer, String> {
    match printed {
        Ok(line) => {
            serde_json::from_slice(&line).map_err(|err| format!("returned no answer ({err})"))
        }
        Err(err) => Err(match err.kind() {
            io::ErrorKind::TimedOut => format!("took longer than {} s", ANSWER_TIMEOUT_MS / 1000),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                format!("needed too much stack or more than {} GiB", MAX_MEMORY >> 30)
            }
            _ => format!("returned no answer ({err})"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_helper_answers_each_line_with_one_line() {
        let expression = Expression::new(".a").unwrap();
        let questions = "{\"a\": \"two\\nlines\"}\n[]\nno JSON\n{\"a\": \"last\"}";
        let mut answers = Vec::new();
        serve(&expression, questions.as_bytes(), &mut answers).unwrap();
        let answers: Vec<FilterAnswer> = answers
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| parse_answer(Ok(line.to_vec())).unwrap())
            .collect();
        assert_eq!(answers.len(), 4);
        assert_eq!(answers[0].said, ["two\nlines"]);
        assert!(answers[1].failure.is_some() && answers[1].is_json);
        assert_eq!(answers[2], FilterAnswer::default());
        assert_eq!(answers[3].said, ["last"]);
    }

    #[test]
    fn filter_helper_timeout_grows_with_line_length() {
        assert_eq!(answer_timeout_ms(b"{}"), 3_000);
        assert!(answer_timeout_ms(&vec![0; 64 << 20]) > 30_000);
    }
}
