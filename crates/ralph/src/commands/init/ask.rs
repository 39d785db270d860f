//! Somebody who answers questions, and the ways to ask until there is an answer that makes sense.

use std::io;

use rustix::io::Errno;

/// Somebody who answers questions.
pub(super) trait Prompter {
    /// Shows the prompt and gives the line that was answered, without its end.
    ///
    /// # Errors
    /// There will be no answer.
    fn prompt_line(&mut self, prompt: &str) -> Result<String, Abort>;

    /// Shows text that asks nothing.
    ///
    /// # Errors
    /// There is nobody to show it to.
    fn print(&mut self, text: &str) -> Result<(), Abort>;
}

/// Why there will be no more answers.
#[derive(Debug)]
pub(super) enum Abort {
    /// `Ctrl+C`, or another signal that ends a program.
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

impl From<Errno> for Abort {
    fn from(errno: Errno) -> Self {
        Abort::Failed(errno.into())
    }
}

/// Asks until the answer is not blank.
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

/// Asks until the answer is blank or a whole number from 1.
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

/// Asks for more than is needed: who has no more to say takes the default.
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

/// The items of a comma-separated list, trimmed, without empty ones.
pub(super) fn parse_list(answer: &str) -> Vec<String> {
    answer.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
