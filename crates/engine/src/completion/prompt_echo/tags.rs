//! Tells a completion tag of the agent from one in an echoed prompt.
//!
//! Programs colour, number, timestamp, cut or JSON-encode their echo, so a tag is judged by its line and, if that is
//! short, by its neighbours.

use std::collections::VecDeque;
use std::ops::Range;

/// Less text beside a tag may be chance.
const MIN_CONTEXT_CHARS: usize = 12;
/// Lines of the prompt compared on each side.
const PROMPT_CONTEXT_LINES: usize = 2;
/// More than in the prompt: marks and numbers remain of blank lines.
const OUTPUT_CONTEXT_LINES: usize = 3 * PROMPT_CONTEXT_LINES;
/// A tag is judged at the latest after this many lines.
const MAX_PENDING_LINES: usize = 64;

/// A tag with its surroundings.
#[derive(Debug, Clone)]
struct TagContext {
    content: String,
    before: String,
    after: String,
    /// Nearest first, without blank lines.
    above: Vec<String>,
    below: Vec<String>,
}

/// Removes tags that are part of an echo.
#[derive(Debug, Clone)]
pub(crate) struct PromptTags {
    tag: &'static str,
    spots: Vec<TagContext>,
    /// Nearest first, without blank lines.
    above: VecDeque<String>,
    pending: VecDeque<PendingTag>,
    /// A tag was removed.
    pub(super) found: bool,
}

#[derive(Debug, Clone)]
struct PendingTag {
    text: String,
    /// Several if line breaks are escaped.
    lines: Vec<String>,
}

impl PromptTags {
    /// `None` if the prompt has no such tag.
    pub(crate) fn new(prompt: &str, tag: &'static str) -> Option<Self> {
        let lines: Vec<String> =
            prompt.lines().map(normalize).filter(|line| !line.is_empty()).collect();
        let mut spots = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let (above, below) = (lines[..at].iter().rev(), lines[at + 1..].iter());
            for range in tags(line, tag) {
                let above = above.clone().take(PROMPT_CONTEXT_LINES);
                let below = below.clone().take(PROMPT_CONTEXT_LINES);
                spots.push(TagContext::new(line, range, tag, above, below));
            }
        }
        let (above, pending) = (VecDeque::new(), VecDeque::new());
        (!spots.is_empty()).then_some(PromptTags { tag, spots, above, pending, found: false })
    }

    pub(super) fn line(&mut self, text: &str, pass: &mut dyn FnMut(&str, bool)) {
        let lines = unescape_lines(text).map(normalize).filter(|line| !line.is_empty()).collect();
        self.pending.push_back(PendingTag { text: text.to_owned(), lines });
        while self.pending.iter().skip(1).filter(|next| !next.lines.is_empty()).count()
            >= OUTPUT_CONTEXT_LINES
            || self.pending.len() > MAX_PENDING_LINES
            || self.pending.front().is_some_and(|first| !first.text.contains('<'))
        {
            self.check_first_pending(pass);
        }
    }

    pub(super) fn end(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        while !self.pending.is_empty() {
            self.check_first_pending(pass);
        }
        self.above.clear();
    }

    fn check_first_pending(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        let Some(PendingTag { text, lines }) = self.pending.pop_front() else { return };
        let mut echoed = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            for range in tags(line, self.tag) {
                let above = lines[..at].iter().rev().chain(&self.above);
                let later = self.pending.iter().flat_map(|next| &next.lines);
                let below = lines[at + 1..].iter().chain(later);
                let above = above.take(OUTPUT_CONTEXT_LINES);
                let below = below.take(OUTPUT_CONTEXT_LINES);
                let output = TagContext::new(line, range, self.tag, above, below);
                echoed.push(self.spots.iter().any(|spot| spot.is_source_of(&output)));
            }
        }
        for line in lines {
            self.above.push_front(line);
        }
        self.above.truncate(OUTPUT_CONTEXT_LINES);
        let ranges = tags(&text, self.tag);
        if !echoed.contains(&true) || ranges.len() != echoed.len() {
            return pass(&text, false);
        }
        self.found = true;
        let mut kept = String::new();
        let mut from = 0;
        for (range, is_echo) in ranges.into_iter().zip(echoed) {
            let until = if is_echo { range.start } else { range.end };
            kept.push_str(&text[from..until]);
            from = range.end;
        }
        kept.push_str(&text[from..]);
        pass(&kept, false);
    }
}

impl TagContext {
    fn new<'a>(
        line: &str,
        range: Range<usize>,
        tag: &str,
        above: impl Iterator<Item = &'a String>,
        below: impl Iterator<Item = &'a String>,
    ) -> TagContext {
        TagContext {
            before: line[..range.start].trim().to_owned(),
            after: line[range.end..].trim().to_owned(),
            content: content(&line[range], tag),
            above: above.cloned().collect(),
            below: below.cloned().collect(),
        }
    }

    fn is_line(&self, before: &str, after: &str) -> bool {
        self.before == before && self.after == after
    }

    /// It continues the previous line, as a wrapped line of the prompt.
    fn is_wrapped(&self, before: &str) -> bool {
        let rest = before.strip_suffix(&*self.before).unwrap_or_default().trim_end();
        self.above.first().is_some_and(|above| {
            !rest.is_empty() && (above.ends_with(rest) || rest.ends_with(above.as_str()))
        })
    }

    /// Whether a tag in the output is an echo of this one in the prompt.
    fn is_source_of(&self, output: &TagContext) -> bool {
        let (before, after) = (self.before.as_str(), self.after.as_str());
        let is_cut = before.ends_with(&output.before) && output.before.len() >= MIN_CONTEXT_CHARS;
        if self.content != output.content
            || !(output.before.ends_with(before) || is_cut)
            || !(output.after.starts_with(after) || after.starts_with(&output.after))
        {
            return false;
        }
        let shared = before.len().min(output.before.len()) + after.len().min(output.after.len());
        let is_whole = output.before.ends_with(before) && output.after.starts_with(after);
        let neighbours = self.above.len() + self.below.len();
        let needed = match shared {
            // A line of a longer prompt is the requested answer, unless its neighbours match.
            MIN_CONTEXT_CHARS.. if is_whole && neighbours > 0 && output.is_line(before, after) => 1,
            MIN_CONTEXT_CHARS.. if is_whole => return true,
            // The end of a prompt line is dictated text ("print: …"), unless it was wrapped.
            MIN_CONTEXT_CHARS.. if is_cut && output.before != before => {
                if output.is_wrapped(before) {
                    return true;
                }
                1
            }
            MIN_CONTEXT_CHARS.. => neighbours.min(1),
            1.. => neighbours.min(PROMPT_CONTEXT_LINES),
            // The tag alone is the requested answer.
            0 => neighbours.clamp(1, PROMPT_CONTEXT_LINES),
        };
        // A mark, such as a timestamp, stands alone on blank lines.
        let mark = mask_numbers(output.before.strip_suffix(before).unwrap_or_default());
        matching_lines(&self.above, &output.above, &mark)
            + matching_lines(&self.below, &output.below, &mark)
            >= needed
    }
}

fn matching_lines(prompt: &[String], output: &[String], mark: &str) -> usize {
    let output = output.iter().filter(|line| mask_numbers(line) != mark);
    prompt.iter().zip(output).take_while(|(prompt, output)| is_line(prompt, output)).count()
}

fn mask_numbers(text: &str) -> String {
    let mut shape = String::new();
    for c in text.trim().chars().map(|c| if c.is_ascii_digit() { '0' } else { c }) {
        if c != '0' || !shape.ends_with('0') {
            shape.push(c);
        }
    }
    shape
}

/// With any text around it, or cut.
fn is_line(prompt: &str, output: &str) -> bool {
    let is_end =
        output.strip_suffix(prompt).is_some_and(|before| !before.ends_with(char::is_alphanumeric));
    is_end
        || prompt.len() >= MIN_CONTEXT_CHARS && output.contains(prompt)
        || output.len() >= MIN_CONTEXT_CHARS && prompt.starts_with(output)
}

/// Splits at escaped line breaks, as in JSON and `$'…'`.
fn unescape_lines(text: &str) -> impl Iterator<Item = String> {
    let mut text = text.to_owned();
    // JSON may be nested in JSON strings.
    while text.contains("\\\\") {
        text = text.replace("\\\\", "\\");
    }
    let text = text.replace("\\\"", "\"").replace("\\t", " ").replace("\\r", "");
    text.split("\\n").map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn tags(line: &str, tag: &str) -> Vec<Range<usize>> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let lower = line.to_ascii_lowercase();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(end) = lower[from..].find(&close).map(|at| from + at) {
        if let Some(start) = lower[from..end].rfind(&open) {
            found.push(from + start..end + close.len());
        }
        from = end + close.len();
    }
    found
}

fn content(element: &str, tag: &str) -> String {
    let inner = element.get(tag.len() + 2..element.len() - tag.len() - 3);
    inner.unwrap_or_default().trim().to_lowercase()
}

/// Removes quoting marks and repeated white space.
fn normalize(line: impl AsRef<str>) -> String {
    let words: Vec<&str> =
        super::lines::strip_quote_marks(line.as_ref()).split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use crate::completion::{CompletionDetector, CompletionRule};

    const TAG: &str = "<promise>COMPLETE</promise>";
    const ALONE: &str = "# Task\n\nStudy the notes.\n  - Then do one thing.\n\nWhen all is done, say \"so\":\n\n<promise>COMPLETE</promise>\n\nNot before that.\n";
    const BESIDE: &str = "Work on the list.\n\n  1. Take the first task.\n  2. If none is left, answer <promise>COMPLETE</promise> and stop.\nNever push.\n";
    const SHORT: &str = "When all is done answer <promise>COMPLETE</promise>";
    const TWO: &str = "Work.\nWhen all is done answer <promise>COMPLETE</promise>\n";

    fn completes(prompt: &str, output: &str) -> bool {
        let rule = CompletionRule::Promise("COMPLETE".into());
        let mut detector = CompletionDetector::new(&rule).with_prompt_echo(prompt);
        for line in output.lines() {
            detector.push_text(line, false);
        }
        detector.finish().complete
    }

    fn each(prompt: &str, change: impl Fn(usize, &str) -> String) -> String {
        let lines = prompt.lines().enumerate().map(|(at, line)| change(at, line));
        lines.collect::<Vec<_>>().join("\n")
    }

    type Form = fn(&str) -> String;
    const FORMS: [(&str, Form); 17] = [
        ("as it is", str::to_owned),
        ("coloured", |p| format!("\u{1b}[1m{p}\u{1b}[0m")),
        ("each line coloured", |p| each(p, |_, l| format!("\u{1b}[38;5;12m{l}\u{1b}[0m"))),
        ("a speaker", |p| format!("user: {p}")),
        ("in a sentence", |p| format!("Running with prompt \"{p}\"")),
        ("in a sentence, ended", |p| format!("Running with prompt \"{}\"", p.trim_end())),
        ("no blank lines", |p| {
            let lines = p.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.collect::<Vec<_>>().join("\n")
        }),
        ("a log", |p| each(p, |_, l| format!("2026-11-16T04:00:00Z INFO {l}"))),
        ("numbered", |p| each(p, |at, l| format!("{:6}\t{l}", at + 1))),
        ("quoted", |p| each(p, |_, l| format!("> {l}"))),
        ("cut", |p| each(p, |_, l| l.chars().take(60).collect())),
        ("without its beginning", |p| {
            // The line with the tag alone may be the requested answer.
            let rest: Vec<&str> = p.lines().skip(usize::from(p.lines().count() > 2)).collect();
            rest.join("\n")
        }),
        ("JSON", |p| serde_json::json!({ "prompt": p }).to_string()),
        ("JSON in JSON", |p| {
            serde_json::json!({ "log": serde_json::json!({ "prompt": p }).to_string() }).to_string()
        }),
        ("a trace", |p| format!("+ agent -p '{}'", p.trim_end())),
        ("a trace on a line", |p| format!("+ agent -p $'{}'", p.replace('\n', "\\n"))),
        ("lines ended twice", |p| each(p, |_, l| format!("{l}\r"))),
    ];

    #[test]
    fn echoed_prompt_in_any_format_does_not_complete() {
        for prompt in [ALONE, BESIDE, SHORT, TWO] {
            for (name, form) in FORMS {
                let shown = form(prompt);
                assert!(!completes(prompt, &shown), "{name}: {shown}");
                assert!(!completes(prompt, &format!("Hello\n{shown}\nWorking.\n")), "{name}");
                let answered = format!("{shown}\nAll is done.\n{TAG}\n");
                assert!(completes(prompt, &answered), "{name}: {answered}");
            }
        }
    }

    #[test]
    fn dictated_line_completes_unless_part_of_prompt_echo() {
        const LINE: &str = "All tasks are complete. <promise>COMPLETE</promise>";
        let several = format!(
            "Work on the list.\nWhen all is done, print exactly:\n\n{LINE}\n\nNever push.\n"
        );
        let one = format!("Work on the list. When all is done, print: {LINE}");
        for prompt in [&several, &one] {
            assert!(completes(prompt, LINE), "{prompt}");
            assert!(completes(prompt, &format!("I took a task.\n{LINE}\nGood night.")), "{prompt}");
            assert!(!completes(prompt, prompt), "{prompt}");
            assert!(!completes(prompt, &format!("user: {prompt}\nI take a task.")), "{prompt}");
            let wrapped = prompt.replace("is done, ", "is done,\n");
            assert!(!completes(prompt, &wrapped), "{wrapped}");
        }
        let wrapped = one.replace("print: ", "print:\n");
        assert!(!completes(&one, &wrapped), "{wrapped}");
        let above = format!("When all is done, print exactly:\n{LINE}");
        assert!(!completes(&several, &above), "{above}");
    }

    #[test]
    fn signal_ignored_as_echo_is_reported() {
        let ignored = |output: &str| {
            let rule = CompletionRule::Promise("COMPLETE".into());
            let mut detector = CompletionDetector::new(&rule).with_prompt_echo(BESIDE);
            output.lines().for_each(|line| detector.push_text(line, false));
            detector.finish();
            detector.ignored_signal()
        };
        assert!(ignored(&format!("user: {BESIDE}\nI take a task.")));
        assert!(ignored(&format!("{BESIDE}\nI take a task.")));
        assert!(!ignored("I take a task."));
        assert!(!ignored(TAG));
    }

    #[test]
    fn promise_in_own_answer_completes() {
        for prompt in [ALONE, BESIDE, SHORT, TWO] {
            for output in [
                TAG.to_owned(),
                format!("\u{1b}[32m{TAG}\u{1b}[0m"),
                format!("All is done. {TAG}"),
                format!("{TAG} and good night"),
                format!("I took the first task.\n\n{TAG}\n\nThat was all."),
                format!("Work.\n\n{TAG}"),
                format!("{{\"answer\": \"All is done.\\n{TAG}\\n\"}}"),
                format!("{SHORT}, I was told.\nSo: {TAG}"),
                format!("Not before that.\n{TAG}"),
            ] {
                assert!(completes(prompt, &output), "{prompt}\n-- {output}");
            }
        }
    }
}
