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

impl From<io::Error> for Abort {
    fn from(error: io::Error) -> Self {
        Abort::Failed(error)
    }
}

pub(super) fn required(
    ask: &mut dyn Prompter,
    prompt: &str,
    otherwise: &str,
) -> Result<String, Abort> {
    loop {
        let answer = ask.prompt_line(prompt)?;
        if !answer.trim().is_empty() {
            return Ok(answer.trim().to_owned());
        }
        ask.print(otherwise)?;
    }
}

pub(super) fn positive_integer(
    ask: &mut dyn Prompter,
    prompt: &str,
    default: u32,
) -> Result<u32, Abort> {
    loop {
        let answer = ask.prompt_line(prompt)?;
        let answer = answer.trim();
        if answer.is_empty() {
            return Ok(default);
        }
        match answer.parse() {
            Ok(number) if number > 0 => return Ok(number),
            _ => ask.print("Please enter a positive integer.\n")?,
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

pub(super) fn parse_list(answer: &str) -> Vec<String> {
    answer.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
