//! Tells a pattern match of the agent from one in an echoed prompt, by the text around it.
//!
//! Compares only letters and digits, in any case: echoes are quoted, numbered, wrapped or JSON.

use fancy_regex::Regex;

/// Fewer letters beside a match may be chance.
const MIN_CONTEXT_LETTERS: usize = 10;
/// Longest mark that programs put beside a line they repeat.
const MAX_MARK_CHARS: usize = 12;
/// Compared around a match, beside the prompt's longest line.
const CONTEXT: usize = 1024;

/// A match in the prompt.
#[derive(Debug, Clone)]
struct PromptMatch {
    line: String,
    before: String,
    matched_text: String,
    after: String,
    /// The nearest lines that are not blank.
    above: Option<String>,
    below: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PromptPattern {
    spots: Vec<PromptMatch>,
    context_chars: usize,
}

impl PromptPattern {
    pub(crate) fn new(prompt: &str, regex: &Regex) -> Self {
        let lines: Vec<(&str, String)> = prompt
            .lines()
            .map(|line| (line, alphanumerics(line)))
            .filter(|(_, letters)| !letters.is_empty())
            .collect();
        let mut spots = Vec::new();
        for (at, (line, all)) in lines.iter().enumerate() {
            for found in regex.find_iter(line).map_while(Result::ok) {
                spots.push(PromptMatch {
                    line: all.clone(),
                    before: alphanumerics(&line[..found.start()]),
                    matched_text: alphanumerics(found.as_str()),
                    after: alphanumerics(&line[found.end()..]),
                    above: at.checked_sub(1).map(|above| lines[above].1.clone()),
                    below: lines.get(at + 1).map(|(_, below)| below.clone()),
                });
            }
        }
        let longest = prompt.lines().map(str::len).max().unwrap_or_default();
        PromptPattern { spots, context_chars: CONTEXT + 2 * longest }
    }

    pub(crate) fn is_echo(&self, text: &str, start: usize, end: usize) -> bool {
        if self.spots.is_empty() {
            return false;
        }
        let from = text.ceil_char_boundary(start.saturating_sub(self.context_chars));
        let to = text.floor_char_boundary(end.saturating_add(self.context_chars).min(text.len()));
        let (before, after) = (&text[from.min(start)..start], &text[end..to.max(end)]);
        let (earlier, begun) = before.rsplit_once('\n').unwrap_or(("", before));
        let (rest, later) = after.split_once('\n').unwrap_or((after, ""));
        let output = MatchContext {
            line_text: alphanumerics(&text[start..end]),
            is_one_line: !text[start..end].contains('\n'),
            before: alphanumerics(before),
            after: alphanumerics(after),
            line_before: alphanumerics(begun),
            rest: alphanumerics(rest),
            above: earlier
                .lines()
                .rev()
                .map(alphanumerics)
                .find(|line| line.len() > MAX_MARK_CHARS / 2),
            below: later.lines().map(alphanumerics).find(|line| line.len() > MAX_MARK_CHARS / 2),
        };
        self.spots.iter().any(|spot| spot.is_from_prompt(&output))
    }
}

struct MatchContext {
    line_text: String,
    is_one_line: bool,
    before: String,
    after: String,
    /// The part on the same line.
    line_before: String,
    rest: String,
    above: Option<String>,
    below: Option<String>,
}

impl PromptMatch {
    fn is_from_prompt(&self, output: &MatchContext) -> bool {
        if self.matched_text != output.line_text {
            // The pattern takes whole lines: only a long one is clearly an echo.
            return output.is_one_line
                && self.line.len() >= 2 * MIN_CONTEXT_LETTERS
                && output.line_text.contains(&self.line);
        }
        let is_cut = self.before.ends_with(&output.line_before)
            && self.after.starts_with(&output.rest)
            && output.line_before.len() + output.rest.len() >= MIN_CONTEXT_LETTERS;
        if is_cut {
            return true;
        }
        let around = self.before.len() + self.after.len();
        if around >= MIN_CONTEXT_LETTERS {
            return output.before.ends_with(&self.before) && output.after.starts_with(&self.after);
        }
        let beyond = match (&self.above, &self.below) {
            (Some(above), _) if above.len() >= MIN_CONTEXT_LETTERS => {
                let rest = output.before.strip_suffix(self.before.as_str());
                rest.is_some_and(|rest| rest.ends_with(above))
                    && output.after.starts_with(&self.after)
            }
            (None, Some(below)) if below.len() >= MIN_CONTEXT_LETTERS => {
                let rest = output.after.strip_prefix(self.after.as_str());
                rest.is_some_and(|rest| rest.starts_with(below))
                    && output.before.ends_with(&self.before)
            }
            _ => false,
        };
        if beyond {
            return true;
        }
        let is_marked = output.line_before.ends_with(&self.before)
            && output.rest.starts_with(&self.after)
            && output.line_before.len() <= self.before.len() + MAX_MARK_CHARS
            && output.rest.len() <= self.after.len() + MAX_MARK_CHARS;
        // Little more than the match is the requested answer, unless neighbours match or it is the whole prompt.
        is_marked && self.has_neighbours(output, around > 0)
    }

    fn has_neighbours(&self, output: &MatchContext, without: bool) -> bool {
        let is_there = |prompt: &String, output: &Option<String>| {
            prompt.len() > MAX_MARK_CHARS / 2
                && output.as_ref().is_some_and(|output| output.contains(prompt))
        };
        match (&self.above, &self.below) {
            (Some(above), _) => is_there(above, &output.above),
            (None, Some(below)) => is_there(below, &output.below),
            (None, None) => without,
        }
    }
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
