//! Questions that repeat until the answer is valid.

use std::io;

/// The terminal, or a script in tests.
pub(super) trait Prompter {
    fn prompt_line(&mut self, prompt: &str) -> Result<String, Abort>;

    fn print(&mut self, text: &str) -> Result<(), Abort>;
}

/// Why there are no more answers.
#[derive(Debug)]
pub(super) enum Abort {
    /// `Ctrl+C`, or another terminating signal.
    Interrupted,
    /// `Ctrl+D`, or the terminal is gone.
    EndOfInput,
    Failed(io::Error),
}

/// Repeats the question until `read` accepts the trimmed answer. Its error is shown.
pub(super) fn until_valid<T>(
    ask: &mut dyn Prompter,
    question: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Abort> {
    loop {
        match read(ask.prompt_line(question)?.trim()) {
            Ok(value) => return Ok(value),
            Err(problem) => ask.print(&format!("{problem}\n"))?,
        }
    }
}

/// End of input means no answer.
pub(super) fn optional(ask: &mut dyn Prompter, question: &str) -> Result<Option<String>, Abort> {
    match ask.prompt_line(question) {
        Err(Abort::EndOfInput) => {
            ask.print("\n")?;
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

pub(super) fn or_default(answer: &str, default: &str) -> String {
    match answer.trim() {
        "" => default.to_owned(),
        answer => answer.to_owned(),
    }
}

pub(super) fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

pub(super) fn is_yes_or_no(answer: &str) -> bool {
    is_yes(answer) || matches!(answer.trim().to_ascii_lowercase().as_str(), "n" | "no")
}

pub(super) fn parse_list(answer: &str) -> Vec<String> {
    answer.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
