//! The prompt that a program repeats, as a whole.

use std::collections::VecDeque;

use super::tags::PromptTags;

/// Leaves out lines that repeat the whole prompt, quoted or not. This is the search of Knuth, Morris
/// and Pratt, with lines for letters: what was held back in vain is let go only as far as it cannot be
/// the beginning of an echo after all.
#[derive(Debug, Clone)]
pub(crate) struct EchoFilter {
    /// The prompt, from its first line that says anything to its last.
    lines: Vec<String>,
    /// For each number of repeated lines, how many of the last of them are the first of the prompt.
    prefix_table: Vec<usize>,
    /// What was said and may be the beginning of an echo.
    pending_lines: VecDeque<String>,
    /// The latest line, of which more may come: a long one comes in pieces.
    partial_line: Option<String>,
    /// A line that is longer than this is none of the prompt's, however it is quoted.
    longest: usize,
    /// The whole prompt was repeated.
    pub prompt_was_repeated: bool,
    /// Judges the tags of lines that are let go.
    quoted: Option<PromptTags>,
}

/// Room for quoting marks around a line of the prompt.
const QUOTE_SLACK: usize = 4 * 1024;

impl EchoFilter {
    /// `None` where there is nothing that an echo could be mistaken for.
    pub(crate) fn new(prompt: &str, quoted: Option<PromptTags>) -> Option<Self> {
        let lines: Vec<&str> = prompt.lines().map(strip_quote_marks).collect();
        let first = lines.iter().position(|line| !line.is_empty())?;
        let last = lines.iter().rposition(|line| !line.is_empty())?;
        let lines: Vec<String> = lines[first..=last].iter().map(|line| (*line).into()).collect();
        let mut borders = vec![0, 0];
        for line in &lines[1..] {
            let mut border = borders[borders.len() - 1];
            while border > 0 && lines[border] != *line {
                border = borders[border];
            }
            borders.push(border + usize::from(lines[border] == *line));
        }
        // All of it may come on one line, with its breaks spelt out.
        let longest = prompt.len() + prompt.len() / 8 + QUOTE_SLACK;
        Some(EchoFilter {
            lines,
            prefix_table: borders,
            pending_lines: VecDeque::new(),
            partial_line: None,
            longest,
            prompt_was_repeated: false,
            quoted,
        })
    }

    /// A tag of the prompt was left out.
    pub(crate) fn removed_tag(&self) -> bool {
        self.quoted.as_ref().is_some_and(|quoted| quoted.found || self.prompt_was_repeated)
    }

    pub(crate) fn filter(&mut self, text: &str, joined: bool, pass: &mut dyn FnMut(&str, bool)) {
        if !joined {
            self.finish_line(pass);
            self.partial_line = Some(text.to_owned());
            return;
        }
        match &mut self.partial_line {
            None => {
                self.release_all(pass);
                pass(text, true);
            }
            Some(line) => {
                line.push_str(text);
                if line.len() > self.longest {
                    self.finish_line(pass);
                }
            }
        }
    }

    /// Nothing more is to come.
    pub(crate) fn finish(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        self.finish_line(pass);
        self.release(0, pass);
        self.release_all(pass);
    }

    /// A line is no part of an echo of the whole prompt.
    fn release_line(&mut self, line: &str, pass: &mut dyn FnMut(&str, bool)) {
        match &mut self.quoted {
            Some(quoted) if line.len() <= self.longest => quoted.line(line, pass),
            _ => {
                self.release_all(pass);
                pass(line, false);
            }
        }
    }

    fn release_all(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        if let Some(quoted) = &mut self.quoted {
            quoted.end(pass);
        }
    }

    /// The latest line is all there, or long enough to be judged.
    fn finish_line(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        if let Some(line) = self.partial_line.take() {
            self.match_line(&line, pass);
        }
    }

    fn match_line(&mut self, text: &str, pass: &mut dyn FnMut(&str, bool)) {
        let line = strip_quote_marks(text);
        loop {
            let matched = self.pending_lines.len();
            let is_last = matched + 1 == self.lines.len();
            match line.strip_prefix(self.lines[matched].as_str()) {
                Some("") if is_last => {
                    self.prompt_was_repeated = true;
                    self.pending_lines.clear();
                    return self.release_all(pass);
                }
                Some("") => return self.pending_lines.push_back(text.to_owned()),
                // A prompt need not end with a line break: what follows is the agent's.
                Some(rest) if is_last => {
                    self.prompt_was_repeated = true;
                    self.pending_lines.clear();
                    self.release_all(pass);
                    return self.release_line(rest, pass);
                }
                _ if matched == 0 => return self.release_line(text, pass),
                _ => self.release(self.prefix_table[matched], pass),
            }
        }
    }

    /// What looked like the beginning of an echo was none, but for its last `keep` lines.
    fn release(&mut self, keep: usize, pass: &mut dyn FnMut(&str, bool)) {
        while self.pending_lines.len() > keep
            && let Some(line) = self.pending_lines.pop_front()
        {
            self.release_line(&line, pass);
        }
    }
}

/// A line without what may be put before it to quote it, and without the space around it.
pub(super) fn strip_quote_marks(line: &str) -> &str {
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '>' | '|' | '│' | '┃' | '▌');
    line.trim_start_matches(is_mark).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn echo_filter_removes_exactly_the_echoed_prompt(
            prompt in proptest::collection::vec("A|B|", 1..6),
            said in proptest::collection::vec("A|B|", 0..30),
        ) {
            let Some(mut filter) = EchoFilter::new(&prompt.join("\n"), None) else { return Ok(()) };
            let length = filter.lines.len();
            let mut passed = Vec::new();
            let mut pass = |text: &str, _| passed.push(text.to_owned());
            for line in &said {
                filter.filter(line, false, &mut pass);
            }
            filter.finish(&mut pass);
            let mut expected = Vec::new();
            let mut rest = &said[..];
            while let Some(line) = rest.first() {
                let is_echo = rest.starts_with(&filter.lines);
                if !is_echo {
                    expected.push(line.clone());
                }
                rest = &rest[if is_echo { length } else { 1 }..];
            }
            prop_assert_eq!(passed, expected);
        }
    }
}
