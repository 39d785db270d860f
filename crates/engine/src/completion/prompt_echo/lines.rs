//! Removes an echo of the whole prompt.

use std::collections::VecDeque;

/// Removes echoes of the whole prompt, quoted or not: Knuth-Morris-Pratt over lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct EchoFilter {
    /// Without blank lines at its ends.
    lines: Vec<String>,
    /// KMP failure table.
    prefix_table: Vec<usize>,
    /// May be the start of an echo.
    pending_lines: VecDeque<String>,
    /// Long lines arrive in pieces.
    partial_line: Option<String>,
    /// A longer line is not part of an echo.
    longest: usize,
    pub prompt_was_repeated: bool,
}

pub(super) const QUOTE_SLACK: usize = 4 * 1024;

impl EchoFilter {
    /// `None` for a blank prompt.
    pub(crate) fn new(prompt: &str) -> Option<Self> {
        let lines: Vec<&str> = prompt.lines().map(strip_quote_marks).collect();
        let first = lines.iter().position(|line| !line.is_empty())?;
        let last = lines.iter().rposition(|line| !line.is_empty())?;
        let lines: Vec<String> = lines[first..=last].iter().map(|line| (*line).into()).collect();
        let mut prefix_table = vec![0, 0];
        for line in &lines[1..] {
            let mut border = prefix_table[prefix_table.len() - 1];
            while border > 0 && lines[border] != *line {
                border = prefix_table[border];
            }
            prefix_table.push(border + usize::from(lines[border] == *line));
        }
        // The whole prompt may be on one line, with escaped line breaks.
        let longest = prompt.len() + prompt.len() / 8 + QUOTE_SLACK;
        Some(EchoFilter { lines, prefix_table, longest, ..EchoFilter::default() })
    }

    pub(crate) fn filter(&mut self, text: &str, joined: bool, pass: &mut dyn FnMut(&str, bool)) {
        if !joined {
            self.finish_line(pass);
            self.partial_line = Some(text.to_owned());
            return;
        }
        match &mut self.partial_line {
            None => pass(text, true),
            Some(line) => {
                line.push_str(text);
                if line.len() > self.longest {
                    self.finish_line(pass);
                }
            }
        }
    }

    pub(crate) fn finish(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        self.finish_line(pass);
        self.release(0, pass);
    }

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
                    return self.pending_lines.clear();
                }
                Some("") => return self.pending_lines.push_back(text.to_owned()),
                // The prompt may end without a line break: the rest is the agent's.
                Some(rest) if is_last => {
                    self.prompt_was_repeated = true;
                    self.pending_lines.clear();
                    return pass(rest, false);
                }
                _ if matched == 0 => return pass(text, false),
                _ => self.release(self.prefix_table[matched], pass),
            }
        }
    }

    /// Releases all pending lines but the last `keep`.
    fn release(&mut self, keep: usize, pass: &mut dyn FnMut(&str, bool)) {
        while self.pending_lines.len() > keep
            && let Some(line) = self.pending_lines.pop_front()
        {
            pass(&line, false);
        }
    }
}

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
            let Some(mut filter) = EchoFilter::new(&prompt.join("\n")) else { return Ok(()) };
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
