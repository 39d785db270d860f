//! Tells a signal of the agent from one in an echoed prompt, by the text around it.
//!
//! Compares only letters, in any case: echoes are quoted, numbered, wrapped or JSON.

use std::ops::Range;

use super::lines::{QUOTE_SLACK, strip_quote_marks};

/// Fewer letters beside a match may be chance.
const MIN_CONTEXT_LETTERS: usize = 10;
/// Longest mark that programs put beside a line they repeat.
const MAX_MARK_CHARS: usize = 20;
/// Shorter lines may be marks.
const MIN_LINE_LETTERS: usize = 7;
/// Compared around a match, beside the prompt's longest line.
const CONTEXT: usize = 1024;

/// A match in the prompt.
#[derive(Debug, Clone)]
struct PromptMatch {
    line: String,
    matched_text: String,
    /// The rest of its line, as it is and as letters.
    sides: [String; 2],
    before: String,
    after: String,
    /// The nearest lines that are not blank.
    above: Option<String>,
    below: Option<String>,
    /// More of them, until there are enough letters, and the rest of the line.
    all_before: String,
    all_after: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PromptPattern {
    spots: Vec<PromptMatch>,
    context_chars: usize,
    /// A longer line is more than an echo.
    max_line: usize,
    /// The prompt may dictate the line of the signal, or its end.
    may_dictate: bool,
}

impl PromptPattern {
    /// `find` returns the signals in a line.
    pub(crate) fn new(
        prompt: &str,
        may_dictate: bool,
        find: impl Fn(&str) -> Vec<Range<usize>>,
    ) -> Self {
        let lines: Vec<(&str, String)> = prompt
            .lines()
            .map(|line| (line, letters(line)))
            .filter(|(line, _)| !alphanumerics(line).is_empty())
            .collect();
        let mut spots = Vec::new();
        for (at, (line, _)) in lines.iter().enumerate() {
            for found in find(line) {
                let (before, after) = (letters(&line[..found.start]), letters(&line[found.end..]));
                let mut all_before = before.clone();
                for (_, above) in lines[..at].iter().rev() {
                    all_before.insert_str(0, above);
                    if all_before.len() >= before.len() + MIN_CONTEXT_LETTERS {
                        break;
                    }
                }
                let mut all_after = after.clone();
                for (_, below) in &lines[at + 1..] {
                    all_after.push_str(below);
                    if all_after.len() >= after.len() + MIN_CONTEXT_LETTERS {
                        break;
                    }
                }
                spots.push(PromptMatch {
                    line: alphanumerics(line),
                    matched_text: alphanumerics(&line[found.clone()]),
                    sides: sides(&line[..found.start], &line[found.end..]),
                    before,
                    after,
                    above: at.checked_sub(1).map(|above| lines[above].1.clone()),
                    below: lines.get(at + 1).map(|(_, below)| below.clone()),
                    all_before,
                    all_after,
                });
            }
        }
        let longest = prompt.lines().map(str::len).max().unwrap_or_default();
        let max_line = prompt.len() + prompt.len() / 8 + QUOTE_SLACK;
        PromptPattern { spots, context_chars: CONTEXT + 2 * longest, max_line, may_dictate }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spots.is_empty()
    }

    pub(crate) fn is_echo(&self, text: &str, start: usize, end: usize) -> bool {
        let matched_text = alphanumerics(&text[start..end]);
        let may_be = |spot: &PromptMatch| matched_text.contains(&spot.matched_text);
        if !self.spots.iter().any(may_be) {
            return false;
        }
        let from = text.ceil_char_boundary(start.saturating_sub(self.context_chars));
        let to = text.floor_char_boundary(end.saturating_add(self.context_chars).min(text.len()));
        let (before, after) = (&text[from.min(start)..start], &text[end..to.max(end)]);
        let (earlier, begun) = before.rsplit_once('\n').unwrap_or(("", before));
        let (rest, later) = after.split_once('\n').unwrap_or((after, ""));
        if self.may_dictate && begun.len() + rest.len() > self.max_line {
            return false;
        }
        let is_line = |line: &String| line.len() >= MIN_LINE_LETTERS;
        let output = MatchContext {
            matched_text,
            is_one_line: !text[start..end].contains('\n'),
            sides: sides(begun, rest),
            before: letters(before),
            after: letters(after),
            line_before: letters(begun),
            rest: letters(rest),
            above: earlier.lines().rev().map(letters).find(is_line),
            below: later.lines().map(letters).find(is_line),
        };
        self.spots.iter().any(|spot| spot.is_from_prompt(&output, self.may_dictate))
    }
}

struct MatchContext {
    matched_text: String,
    is_one_line: bool,
    sides: [String; 2],
    before: String,
    after: String,
    /// The part on the same line.
    line_before: String,
    rest: String,
    above: Option<String>,
    below: Option<String>,
}

impl PromptMatch {
    fn is_from_prompt(&self, output: &MatchContext, may_dictate: bool) -> bool {
        if self.matched_text != output.matched_text {
            // The pattern takes whole lines: only a long one is clearly an echo.
            return output.is_one_line
                && self.line.len() >= 2 * MIN_CONTEXT_LETTERS
                && output.matched_text.contains(&self.line);
        }
        if self.is_surrounded(&output.before, &output.after) {
            return true;
        }
        let around = self.before.len() + self.after.len();
        let is_whole =
            output.before.ends_with(&self.before) && output.after.starts_with(&self.after);
        if may_dictate {
            let [before, after] = &output.sides;
            let is_part = self.sides[0].ends_with(before) && self.sides[1].starts_with(after);
            if is_part {
                let is_wrapped = is_whole && self.sides[0].len() > before.len();
                return is_wrapped && around >= MIN_CONTEXT_LETTERS
                    || self.has_neighbour(output, MIN_CONTEXT_LETTERS.saturating_sub(around));
            }
        } else if self.before.ends_with(&output.line_before)
            && self.after.starts_with(&output.rest)
            && output.line_before.len() + output.rest.len() >= MIN_CONTEXT_LETTERS
        {
            return true;
        }
        if around >= MIN_CONTEXT_LETTERS && is_whole {
            return true;
        }
        // A log has the same mark on every line, also on blank ones.
        let mark = output.line_before.strip_suffix(&self.before).unwrap_or_default();
        if !mark.is_empty()
            && self.is_surrounded(&output.before.replace(mark, ""), &output.after.replace(mark, ""))
        {
            return true;
        }
        let is_marked = output.line_before.ends_with(&self.before)
            && output.rest.starts_with(&self.after)
            && output.line_before.len() <= self.before.len() + MAX_MARK_CHARS
            && output.rest.len() <= self.after.len() + MAX_MARK_CHARS;
        // Little more than the match is the requested answer, unless neighbours match or it is the whole prompt.
        let is_only_line = self.above.is_none()
            && self.below.is_none()
            && around > 0
            && (!may_dictate || output.sides[0].ends_with(&self.sides[0]));
        is_marked && (is_only_line || self.has_neighbour(output, MIN_LINE_LETTERS))
    }

    /// The lines above or below are those of the prompt.
    fn is_surrounded(&self, before: &str, after: &str) -> bool {
        let least = MIN_CONTEXT_LETTERS;
        let above = self.above.is_some()
            && self.all_before.len() + self.after.len() >= least
            && before.ends_with(&self.all_before);
        let below = self.below.is_some()
            && self.before.len() + self.all_after.len() >= least
            && after.starts_with(&self.all_after);
        above && (after.starts_with(&self.after) || self.after.starts_with(after))
            || below && before.ends_with(&self.before)
    }

    /// A line of at least so many letters, perhaps cut, is above or below both.
    fn has_neighbour(&self, output: &MatchContext, least: usize) -> bool {
        let is_same = |prompt: &Option<String>, output: &Option<String>| {
            prompt.as_ref().zip(output.as_ref()).is_some_and(|(prompt, output)| {
                prompt.len() >= least.max(1)
                    && (output.contains(prompt)
                        || output.len() >= MIN_CONTEXT_LETTERS && prompt.starts_with(output))
            })
        };
        is_same(&self.above, &output.above) || is_same(&self.below, &output.below)
    }
}

/// The text on both sides of a match, without quoting marks and repeated white space.
fn sides(before: &str, after: &str) -> [String; 2] {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    [words(strip_quote_marks(before)), words(after)]
}

/// Numbers and times differ from line to line.
fn letters(text: impl AsRef<str>) -> String {
    alphanumerics(text).replace(|c: char| c.is_ascii_digit(), "")
}

fn alphanumerics(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let mut letters = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            // An escaped line break, as in JSON.
            chars.next_if(|next| matches!(next, 'n' | 't' | 'r'));
        } else if c.is_alphanumeric() {
            letters.extend(c.to_lowercase());
        }
    }
    letters
}

#[cfg(test)]
mod tests {
    use crate::completion::{CompletionDetector, CompletionRule};
    use fancy_regex::Regex;

    fn completes(prompt: &str, pattern: &str, output: &str) -> bool {
        let rule = CompletionRule::Pattern(Regex::new(pattern).unwrap());
        let mut detector = CompletionDetector::new(&rule).with_prompt_echo(prompt);
        for line in output.lines() {
            detector.push_text(line, false);
        }
        detector.finish().complete
    }

    const BESIDE: &str = "Fix the bug.\nWhen finished say: All tasks complete\n";
    const ALONE: &str =
        "Take one task of the list.\n\nAll tasks complete\n\nis what to say last.\n";
    const SHORT: &str = "Work, then say: All tasks complete";

    #[test]
    fn echoed_prompt_in_any_format_does_not_match_pattern() {
        type Form = fn(&str) -> String;
        let each = |prompt: &str, change: fn((usize, &str)) -> String| -> String {
            prompt.lines().enumerate().map(change).collect::<Vec<_>>().join("\n")
        };
        let forms: [(&str, Form); 9] = [
            ("as it is", str::to_owned),
            ("JSON", |p| serde_json::json!({"prompt": p}).to_string()),
            ("JSON in JSON", |p| {
                serde_json::json!({"x": serde_json::json!({"prompt": p}).to_string()}).to_string()
            }),
            ("a speaker", |p| format!("User: {p}")),
            ("in a sentence", |p| format!("Prompt: \"{p}\"")),
            ("a trace", |p| format!("+ agent \"{p}\"")),
            ("wrapped", |p| {
                p.replace("finished say", "finished\nsay").replace("then say", "then\nsay")
            }),
            ("its first letter small", |p| {
                p.replace("When", "when").replace("Work", "work").replace("Take", "take")
            }),
            ("its last line only", |p| p.lines().last().unwrap_or_default().to_owned()),
        ];
        for prompt in [BESIDE, ALONE, SHORT] {
            for pattern in ["All tasks complete", "All tasks (?=complete)", "(?m)tasks complete$"] {
                for (name, form) in forms {
                    let shown = form(prompt);
                    assert!(!completes(prompt, pattern, &shown), "{pattern}, {name}: {shown}");
                    let output = format!("{shown}\nI am at it.\nAll tasks complete");
                    assert!(completes(prompt, pattern, &output), "{pattern}, {name}: {output}");
                }
                for shown in [
                    each(prompt, |(at, line)| format!("{:6}\t{line}", at + 1)),
                    each(prompt, |(_, line)| format!("User: {line}")),
                    each(prompt, |(_, line)| format!("> {line}")),
                    each(prompt, |(_, line)| format!("\u{1b}[1m{line}\u{1b}[0m")),
                ] {
                    assert!(!completes(prompt, pattern, &shown), "{pattern}: {shown}");
                }
            }
        }
        assert!(!completes(SHORT, ".*All tasks complete.*", &format!("1 {SHORT}")));
    }

    #[test]
    fn own_answer_matches_pattern_that_prompt_contains() {
        for prompt in [BESIDE, ALONE, SHORT] {
            for output in [
                "All tasks complete",
                "All tasks complete\nBye.",
                "Fixed.\nAll tasks complete.",
                "The bug is fixed. All tasks complete!",
                "**All tasks complete**",
                "I took a task of the list.\n\nAll tasks complete\n\nGood night.",
                "\u{1b}[32mAll \u{1b}[1mtasks\u{1b}[0m complete",
            ] {
                assert!(completes(prompt, "All tasks complete", output), "{prompt}\n-- {output}");
                assert!(
                    completes(prompt, ".*All tasks complete.*", output),
                    "{prompt}\n-- {output}"
                );
            }
        }
        assert!(completes(SHORT, "All tasks complete", &format!("{SHORT}: All tasks complete")));
    }
}
