//! Has the agent said that it is done?
//!
//! Three rules, one detector. It is fed what the agent itself *said* in this iteration, piece by
//! piece, and holds only what a match may still need, so that an agent may say any amount.

use std::collections::VecDeque;

use fancy_regex::Regex;

use super::cleaner::{Cleaner, cleaned};
use super::echoed::Echoed;
use super::quoted::Quoted;

/// What completes a run.
#[derive(Debug, Clone)]
pub enum Rule {
    /// The first `<response>…</response>` holds this text, whatever its case.
    Response(String),
    /// Some `<promise>…</promise>` holds exactly this text.
    Promise(String),
    /// This expression matches. `^` and `$` are the beginning and the end of all that was said, or
    /// of a line with `(?m)`. Of an agent that says more than 512 KiB only the latest part is kept,
    /// so that a match of more than 128 KiB may be missed there; none is ever made up.
    Pattern(Regex),
    /// Nothing that is said: the run goes on to its limit.
    Never,
}

impl Rule {
    /// The rule in words, for people and for the journal.
    pub fn describe(&self) -> String {
        match self {
            Rule::Response(text) => format!("<response>{text}</response>"),
            Rule::Promise(text) => format!("<promise>{text}</promise>"),
            Rule::Pattern(regex) => format!("pattern {}", regex.as_str()),
            Rule::Never => String::new(),
        }
    }

    /// Whether a prompt tells the agent how to say that it is done. Of a pattern nobody can know.
    pub fn is_told_in(&self, prompt: &str) -> bool {
        let (mut scanner, expected, folds) = match self {
            Rule::Response(text) => (TagScanner::new("response"), fold(text), true),
            Rule::Promise(text) => (TagScanner::exact("promise"), text.trim().to_owned(), false),
            Rule::Pattern(_) | Rule::Never => return true,
        };
        let mut told = false;
        scanner.push(prompt, false, |content| {
            let content = if folds { fold(content) } else { content.trim().to_owned() };
            told |= content == expected;
        });
        told
    }
}

/// What the detector made of an iteration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub complete: bool,
    /// What was found and compared, if anything was.
    pub found: Option<String>,
    /// The expression took too many steps on what was said, so that nobody knows whether it matches.
    pub gave_up: bool,
}

/// Watches what an agent says for the completion of a run.
#[derive(Debug, Clone)]
pub struct Detector {
    watch: Watch,
    verdict: Verdict,
    /// A colour may change in the middle of what is looked for, and of a piece.
    cleaner: Cleaner,
    echo: Option<EchoFilter>,
    echoed: bool,
    said_anything: bool,
    /// What is not joined is another message.
    messages: bool,
}

#[derive(Debug, Clone)]
enum Watch {
    Response { expected: String, scanner: TagScanner },
    Promise { expected: String, scanner: TagScanner },
    Pattern { regex: Regex, echoed: Echoed, recent: String, is_cut: bool },
    Nothing,
}

/// How much of what was said a pattern can look back over.
const PATTERN_WINDOW: usize = 256 * 1024;
/// How much must follow a match before it counts, until the end is known: what is at the end of what
/// was said so far need not be at the end of it all.
const PATTERN_MARGIN: usize = PATTERN_WINDOW / 2;
/// A tag's content longer than this is no completion text.
const MAX_TAG_CONTENT: usize = 64 * 1024;

impl Detector {
    pub fn new(rule: &Rule) -> Self {
        let watch = match rule {
            Rule::Response(text) => {
                Watch::Response { expected: fold(text), scanner: TagScanner::new("response") }
            }
            Rule::Promise(text) => Watch::Promise {
                expected: text.trim().to_owned(),
                scanner: TagScanner::exact("promise"),
            },
            Rule::Pattern(regex) => Watch::Pattern {
                regex: regex.clone(),
                echoed: Echoed::default(),
                recent: String::new(),
                is_cut: false,
            },
            Rule::Never => Watch::Nothing,
        };
        let verdict = Verdict::default();
        Detector {
            watch,
            verdict,
            cleaner: Cleaner::default(),
            echo: None,
            echoed: false,
            said_anything: false,
            messages: false,
        }
    }

    /// For an agent that speaks in messages: no tag begins in one and ends in another.
    #[must_use]
    pub fn of_messages(mut self) -> Self {
        self.messages = true;
        self
    }

    /// For an agent that prints plain text: lines that only repeat the prompt, from its first line to
    /// its last, were not said by the agent, and neither was a tag, or what matches a pattern, that
    /// stands among words of the prompt.
    #[must_use]
    pub fn ignoring_echo_of(mut self, prompt: &str) -> Self {
        let prompt = &cleaned(prompt);
        let quoted = match &mut self.watch {
            Watch::Response { .. } => Quoted::new(prompt, "response"),
            Watch::Promise { .. } => Quoted::new(prompt, "promise"),
            Watch::Pattern { regex, echoed, .. } => {
                *echoed = Echoed::new(prompt, regex);
                None
            }
            Watch::Nothing => None,
        };
        self.echo = EchoFilter::new(prompt).map(|echo| EchoFilter { quoted, ..echo });
        self
    }

    /// Takes what the agent said next. `joined` text goes on without a line break.
    pub fn said(&mut self, text: &str, joined: bool) {
        if !joined {
            self.cleaner = Cleaner::default();
        }
        let mut clean = String::new();
        let text = self.cleaner.clean(text, &mut clean);
        let Some(mut echo) = self.echo.take() else {
            return self.heed(text, joined);
        };
        echo.filter(text, joined, &mut |text, joined| self.heed(text, joined));
        self.echoed |= echo.found;
        self.echo = Some(echo);
    }

    /// What seemed to be said so far was not the agent's word.
    pub fn retract(&mut self) {
        match &mut self.watch {
            Watch::Response { scanner, .. } => *scanner = TagScanner::new("response"),
            Watch::Promise { scanner, .. } => *scanner = TagScanner::exact("promise"),
            Watch::Pattern { recent, is_cut, .. } => {
                recent.clear();
                *is_cut = false;
            }
            Watch::Nothing => {}
        }
        self.cleaner = Cleaner::default();
        self.verdict = Verdict::default();
        self.said_anything = false;
    }

    /// Whether the agent has said anything but white space.
    pub fn said_anything(&self) -> bool {
        self.said_anything
    }

    /// Whether all that was said, to the end, was the prompt.
    pub fn heard_only_echo(&self) -> bool {
        self.echoed && !self.said_anything
    }

    /// The iteration is over: what was it?
    pub fn verdict(&mut self) -> Verdict {
        if let Some(mut echo) = self.echo.take() {
            echo.finish(&mut |text, joined| self.heed(text, joined));
            self.echoed |= echo.found;
        }
        if let Watch::Pattern { regex, echoed, recent, is_cut } = &self.watch {
            note_match(regex, echoed, recent, *is_cut, recent.len(), &mut self.verdict);
        }
        self.verdict.clone()
    }

    fn heed(&mut self, text: &str, joined: bool) {
        if !self.said_anything {
            self.said_anything = !text.trim().is_empty();
        }
        if self.verdict.complete {
            return;
        }
        if self.messages
            && !joined
            && let Watch::Response { scanner, .. } | Watch::Promise { scanner, .. } =
                &mut self.watch
        {
            scanner.pending.clear();
            scanner.inside = false;
        }
        let verdict = &mut self.verdict;
        match &mut self.watch {
            Watch::Nothing => {}
            // The first tag decides, so that nothing is looked at after it.
            Watch::Response { .. } if verdict.found.is_some() => {}
            Watch::Response { expected, scanner } => scanner.push(text, joined, |content| {
                if verdict.found.is_none() {
                    verdict.complete = fold(content) == *expected;
                    verdict.found = Some(content.trim().to_owned());
                }
            }),
            Watch::Promise { expected, scanner } => scanner.push(text, joined, |content| {
                if !verdict.complete {
                    verdict.complete = content.trim() == expected;
                    verdict.found = Some(content.trim().to_owned());
                }
            }),
            Watch::Pattern { regex, echoed, recent, is_cut } => {
                if !joined && !recent.is_empty() {
                    recent.push('\n');
                }
                recent.push_str(text);
                if recent.len() > 2 * PATTERN_WINDOW {
                    let until = recent.len() - PATTERN_MARGIN;
                    note_match(regex, echoed, recent, *is_cut, until, verdict);
                    *is_cut = true;
                    let cut = recent.ceil_char_boundary(recent.len() - PATTERN_WINDOW);
                    recent.drain(..cut);
                }
            }
        }
    }
}

/// Takes a match that ends at `until` at the latest and is none of the prompt's. What was cut at its
/// beginning is searched from its second character on, because its first is not the beginning of what
/// was said.
fn note_match(
    regex: &Regex,
    echoed: &Echoed,
    recent: &str,
    is_cut: bool,
    until: usize,
    verdict: &mut Verdict,
) {
    if verdict.complete {
        return;
    }
    let mut from = if is_cut { recent.ceil_char_boundary(1) } else { 0 };
    loop {
        let found = match regex.find_from_pos(recent, from) {
            Ok(Some(found)) if found.end() <= until => found,
            Ok(_) => return,
            Err(_) => {
                verdict.gave_up = true;
                return;
            }
        };
        if !echoed.is_at(recent, found.start(), found.end()) {
            verdict.complete = true;
            verdict.found = Some(super::text::head(found.as_str(), 200).to_owned());
            return;
        }
        if found.end() >= recent.len() {
            return;
        }
        let next = found.end().max(found.start() + 1);
        from = recent.ceil_char_boundary(next);
    }
}

/// Compared without case and surrounding white space.
fn fold(text: &str) -> String {
    text.trim().to_lowercase()
}

/// The content of the first `<response>…</response>` in a whole text.
pub fn first_response(text: &str) -> Option<String> {
    let mut found = None;
    TagScanner::new("response").push(text, true, |content| {
        found.get_or_insert_with(|| content.to_owned());
    });
    found
}

/// Finds `<tag>content</tag>`, whatever the case of the tag unless it is to be exact, in text that arrives in pieces. The
/// content is what stands between a closing tag and the last opening one before it: a tag that was
/// only mentioned and never closed does not swallow the one that was meant.
#[derive(Debug, Clone)]
struct TagScanner {
    open: String,
    close: String,
    /// What has not been decided on: after an opening tag its content, else at most a part of one.
    pending: String,
    inside: bool,
    /// The tag counts only as it is written.
    exact: bool,
}

impl TagScanner {
    fn new(tag: &str) -> Self {
        TagScanner {
            open: format!("<{tag}>"),
            close: format!("</{tag}>"),
            pending: String::new(),
            inside: false,
            exact: false,
        }
    }

    fn exact(tag: &str) -> Self {
        TagScanner { exact: true, ..TagScanner::new(tag) }
    }

    fn push(&mut self, text: &str, joined: bool, mut found: impl FnMut(&str)) {
        if !joined && !self.pending.is_empty() {
            self.pending.push('\n');
        }
        // What was there has been searched, but for a tag that may have begun at its end.
        let mut from = self.pending.len().saturating_sub(self.close.len());
        self.pending.push_str(text);
        while let Some((at, is_open)) = self.next_tag(from) {
            if is_open {
                self.pending.drain(..at + self.open.len());
                self.inside = true;
            } else {
                found(&self.pending[..at]);
                self.pending.drain(..at + self.close.len());
                self.inside = false;
            }
            from = 0;
        }
        let keep = if self.inside { MAX_TAG_CONTENT } else { self.close.len() };
        if self.pending.len() > keep {
            // A content that is too long stays too long: its end is kept only to find the tag.
            self.inside = false;
            let cut = self.pending.ceil_char_boundary(self.pending.len() - self.close.len());
            self.pending.drain(..cut);
        }
    }

    /// The next tag that matters, from about `from` on: an opening one, or inside also a closing one.
    fn next_tag(&self, from: usize) -> Option<(usize, bool)> {
        let bytes = self.pending.as_bytes();
        let is = |at: usize, tag: &str| {
            bytes.get(at..at + tag.len()).is_some_and(|bytes| {
                bytes == tag.as_bytes() || !self.exact && bytes.eq_ignore_ascii_case(tag.as_bytes())
            })
        };
        memchr::memchr_iter(b'<', &bytes[from..]).map(|at| from + at).find_map(|at| {
            if is(at, &self.open) {
                Some((at, true))
            } else if self.inside && is(at, &self.close) {
                Some((at, false))
            } else {
                None
            }
        })
    }
}

/// Leaves out lines that repeat the whole prompt, quoted or not. This is the search of Knuth, Morris
/// and Pratt, with lines for letters: what was held back in vain is let go only as far as it cannot be
/// the beginning of an echo after all.
#[derive(Debug, Clone)]
struct EchoFilter {
    /// The prompt, from its first line that says anything to its last.
    lines: Vec<String>,
    /// For each number of repeated lines, how many of the last of them are the first of the prompt.
    borders: Vec<usize>,
    /// What was said and may be the beginning of an echo.
    held: VecDeque<String>,
    /// The latest line, of which more may come: a long one comes in pieces.
    open: Option<String>,
    /// A line that is longer than this is none of the prompt's, however it is quoted.
    longest: usize,
    /// The whole prompt was repeated.
    found: bool,
    /// Judges the tags of lines that are let go.
    quoted: Option<Quoted>,
}

/// Room for quoting marks around a line of the prompt.
const ECHO_SLACK: usize = 4 * 1024;

impl EchoFilter {
    /// `None` where there is nothing that an echo could be mistaken for.
    fn new(prompt: &str) -> Option<Self> {
        let lines: Vec<&str> = prompt.lines().map(bare).collect();
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
        let longest = prompt.len() + prompt.len() / 8 + ECHO_SLACK;
        Some(EchoFilter {
            lines,
            borders,
            held: VecDeque::new(),
            open: None,
            longest,
            found: false,
            quoted: None,
        })
    }

    fn filter(&mut self, text: &str, joined: bool, pass: &mut dyn FnMut(&str, bool)) {
        if !joined {
            self.end_line(pass);
            self.open = Some(text.to_owned());
            return;
        }
        match &mut self.open {
            None => {
                self.let_go_all(pass);
                pass(text, true);
            }
            Some(line) => {
                line.push_str(text);
                if line.len() > self.longest {
                    self.end_line(pass);
                }
            }
        }
    }

    /// Nothing more is to come.
    fn finish(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        self.end_line(pass);
        self.release(0, pass);
        self.let_go_all(pass);
    }

    /// A line is no part of an echo of the whole prompt.
    fn let_go(&mut self, line: &str, pass: &mut dyn FnMut(&str, bool)) {
        match &mut self.quoted {
            Some(quoted) if line.len() <= self.longest => quoted.line(line, pass),
            _ => {
                self.let_go_all(pass);
                pass(line, false);
            }
        }
    }

    fn let_go_all(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        if let Some(quoted) = &mut self.quoted {
            quoted.end(pass);
        }
    }

    /// The latest line is all there, or long enough to be judged.
    fn end_line(&mut self, pass: &mut dyn FnMut(&str, bool)) {
        if let Some(line) = self.open.take() {
            self.judge(&line, pass);
        }
    }

    fn judge(&mut self, text: &str, pass: &mut dyn FnMut(&str, bool)) {
        let line = bare(text);
        loop {
            let matched = self.held.len();
            let is_last = matched + 1 == self.lines.len();
            match line.strip_prefix(self.lines[matched].as_str()) {
                Some("") if is_last => {
                    self.found = true;
                    self.held.clear();
                    return self.let_go_all(pass);
                }
                Some("") => return self.held.push_back(text.to_owned()),
                // A prompt need not end with a line break: what follows is the agent's.
                Some(rest) if is_last => {
                    self.found = true;
                    self.held.clear();
                    self.let_go_all(pass);
                    return self.let_go(rest, pass);
                }
                _ if matched == 0 => return self.let_go(text, pass),
                _ => self.release(self.borders[matched], pass),
            }
        }
    }

    /// What looked like the beginning of an echo was none, but for its last `keep` lines.
    fn release(&mut self, keep: usize, pass: &mut dyn FnMut(&str, bool)) {
        while self.held.len() > keep
            && let Some(line) = self.held.pop_front()
        {
            self.let_go(&line, pass);
        }
    }
}

/// A line without what may be put before it to quote it, and without the space around it.
pub(super) fn bare(line: &str) -> &str {
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '>' | '|' | '│' | '┃' | '▌');
    line.trim_start_matches(is_mark).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response() -> Rule {
        Rule::Response("DONE".into())
    }

    fn promise() -> Rule {
        Rule::Promise("COMPLETE".into())
    }

    fn judge(rule: &Rule, texts: &[&str]) -> Verdict {
        let mut detector = Detector::new(rule);
        for text in texts {
            detector.said(text, false);
        }
        detector.verdict()
    }

    #[test]
    fn no_tag_is_put_together_from_messages() {
        for (rule, tag) in [(promise(), "promise"), (Rule::Response("COMPLETE".into()), "response")]
        {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            for (said, complete) in [
                (&[(&*open, false), ("COMPLETE", false), (&*close, false)][..], false),
                (&[(&*open, false), ("COMPLETE", true), (&*close, true)], true),
                (&[(&*format!("{open}\nCOMPLETE\n{close}"), false)], true),
                (&[("<", false), (&*format!("{}COMPLETE{close}", &open[1..]), false)], false),
            ] {
                let mut detector = Detector::new(&rule).of_messages();
                said.iter().for_each(|(text, joined)| detector.said(text, *joined));
                assert_eq!(detector.verdict().complete, complete, "{said:?}");
            }
        }
    }

    #[test]
    fn colours_hide_nothing_however_they_arrive() {
        let pattern = Rule::Pattern(Regex::new("(?m)^all done$").unwrap());
        for (rule, said, complete) in [
            (&pattern, "so\n\x1b[0mall \x1b[1mdone\x1b[0m\r\nbye", true),
            (&pattern, "so\n\x1b]0;all done\nbye", false),
            (&pattern, "\x1b]a title that never ends\nall done", true),
            (&promise(), "\x1b[33m<promise>\x1b[0mCOMPLETE\x1b[33m</promise>\x1b[0m", true),
            (&promise(), "<promise>COMPLETE\x1b]0;</promise>\n", false),
        ] {
            for prompt in [None, Some("Work."), Some("Say \x1b[1m<promise>X</promise>.")] {
                let whole = &[said][..];
                let chars: Vec<String> = said.chars().map(String::from).collect();
                let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
                for pieces in [whole, &chars] {
                    let mut detector = Detector::new(rule);
                    if let Some(prompt) = prompt {
                        detector = detector.ignoring_echo_of(prompt);
                    }
                    for (nth, piece) in pieces.iter().enumerate() {
                        detector.said(piece, nth > 0);
                    }
                    assert_eq!(detector.verdict().complete, complete, "{pieces:?} {prompt:?}");
                }
            }
        }
    }

    #[test]
    fn an_answer_that_is_only_the_prompt_is_known_as_such() {
        let prompt = "Do it.\n\nThen say <promise>COMPLETE</promise>";
        for (said, expected) in [
            (&["Do it.", "", "Then say <promise>COMPLETE</promise>"][..], true),
            (&["> Do it.", ">", "> Then say <promise>COMPLETE</promise>", ""], true),
            (&["Do it.", "", "Then say <promise>COMPLETE</promise>", "Working."], false),
            (&["Do it."], false),
            (&["Working."], false),
            (&[], false),
        ] {
            let mut detector = Detector::new(&promise()).ignoring_echo_of(prompt);
            for text in said {
                detector.said(text, false);
            }
            assert!(!detector.verdict().complete, "{said:?}");
            assert_eq!(detector.heard_only_echo(), expected, "{said:?}");
        }
    }

    #[test]
    fn the_first_response_decides() {
        let cases: [(&[&str], bool, Option<&str>); 12] = [
            (&["<response>DONE</response>"], true, Some("DONE")),
            (&["<RESPONSE> done\n</Response>"], true, Some("done")),
            (&["<response>", "DONE", "</response>"], true, Some("DONE")),
            (&["all <response>DONE</response> ok"], true, Some("DONE")),
            (&["<response>no</response><response>DONE</response>"], false, Some("no")),
            (&["<response>DONE</response><response>no</response>"], true, Some("DONE")),
            (&["<response>not DONE yet</response>"], false, Some("not DONE yet")),
            (&["I will say <response> later", "<response>DONE</response>"], true, Some("DONE")),
            (&["undone", "DONE"], false, None),
            (&["<response>DONE"], false, None),
            (&["DONE</response>"], false, None),
            (&[], false, None),
        ];
        for (texts, complete, found) in cases {
            let verdict = judge(&response(), texts);
            assert_eq!(
                (verdict.complete, verdict.found.as_deref()),
                (complete, found),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn what_is_retracted_was_never_said() {
        let pattern = Rule::Pattern(Regex::new("DONE$").unwrap());
        for (rule, said) in [
            (response(), "<response>DONE</response>"),
            (promise(), "<promise>COMPLETE</promise>"),
            (pattern, "I am DONE"),
        ] {
            let mut detector = Detector::new(&rule);
            // The half of a tag is forgotten, too.
            detector.said(&format!("{said} <response><promise>"), false);
            detector.retract();
            assert!(!detector.said_anything());
            assert_eq!(detector.verdict(), Verdict::default(), "{said}");
            detector.said(said, false);
            assert!(detector.verdict().complete, "{said}");
        }
    }

    #[test]
    fn any_promise_may_complete() {
        for (text, complete) in [
            ("<promise>COMPLETE</promise>", true),
            ("<promise> COMPLETE\n</promise>", true),
            ("<promise>no</promise> <promise>COMPLETE</promise>", true),
            ("<promise>complete</promise>", false),
            ("<PROMISE>COMPLETE</PROMISE>", false),
            ("<promise>COMPLETE</Promise>", false),
            ("<promise>COMPLETELY</promise>", false),
            ("COMPLETE", false),
        ] {
            assert_eq!(judge(&promise(), &[text]).complete, complete, "{text:?}");
        }
    }

    #[test]
    fn a_prompt_tells_how_to_be_done_or_does_not() {
        for (rule, prompt, told) in [
            (promise(), "Say <promise>COMPLETE</promise>.", true),
            (promise(), "First <promise>X</promise>, then <promise> COMPLETE </promise>", true),
            (promise(), "Say <promise>complete</promise>.", false),
            (promise(), "Say COMPLETE.", false),
            (response(), "<response>NO</response> or <Response>done</Response>", true),
            (response(), "<promise>DONE</promise>", false),
            (Rule::Pattern(Regex::new("x").unwrap()), "", true),
        ] {
            assert_eq!(rule.is_told_in(prompt), told, "{prompt}");
        }
    }

    #[test]
    fn patterns_see_lines_together_and_know_look_around() {
        let rule = Rule::Pattern(Regex::new(r"(?s)plan.*100%(?! left)").unwrap());
        assert!(judge(&rule, &["the plan", "is 100% done"]).complete);
        assert!(!judge(&rule, &["the plan", "is 100% left"]).complete);
    }

    #[test]
    fn an_expression_that_never_comes_to_an_end_is_given_up() {
        let costly = "(?<!x)(a+)+b|never";
        let regex = fancy_regex::RegexBuilder::new(costly).backtrack_limit(100).build().unwrap();
        let verdict = judge(&Rule::Pattern(regex), &[&"a".repeat(200), "done"]);
        assert!(verdict.gave_up && !verdict.complete);
        let regex = Regex::new("(?<!x)a+b|done").unwrap();
        assert!(!judge(&Rule::Pattern(regex), &[&"a".repeat(200), "done"]).gave_up);
    }

    #[test]
    fn a_pattern_is_found_however_much_follows() {
        let rule = Rule::Pattern(Regex::new("All tasks complete").unwrap());
        let mut detector = Detector::new(&rule);
        detector.said("All tasks complete", false);
        for _ in 0..100_000 {
            detector.said("and more, and é more", false);
        }
        assert!(detector.verdict().complete);
    }

    #[test]
    fn the_beginning_and_the_end_stay_where_they_are_however_much_is_said() {
        // Lines of 16 bytes, of which each is the first or the last of what is looked at once.
        let line = "line number XXX";
        for (pattern, last, complete) in [
            (r"^line number", "", true),
            // That would be everything, which is not kept.
            (r"\A(?s).*number XXX\nEND", "END", false),
            (r"^(?:END|number XXX|XXX)", "END", false),
            (r"XXX$", "END", false),
            (r"XXX\z", "END", false),
            (r"XXX(?!\n)", "END", false),
            (r"(?m)^XXX$", "END", false),
            (r"END$", "END", true),
            (r"(?m)^END$", "END", true),
            (r"(?m)^line number XXX$", "END", true),
        ] {
            let mut detector = Detector::new(&Rule::Pattern(Regex::new(pattern).unwrap()));
            for _ in 0..100_000 {
                detector.said(line, false);
            }
            detector.said(last, false);
            assert_eq!(detector.verdict().complete, complete, "{pattern}");
        }
    }

    #[test]
    fn a_match_is_found_wherever_the_window_is_cut() {
        let rule = Rule::Pattern(Regex::new("All tasks complete").unwrap());
        for before in (2 * PATTERN_WINDOW - 40)..(2 * PATTERN_WINDOW + 4) {
            for before in [before, before - PATTERN_WINDOW, before - PATTERN_MARGIN] {
                let mut detector = Detector::new(&rule);
                detector.said(&"x".repeat(before), true);
                detector.said("All tasks complete", true);
                for _ in 0..6 {
                    detector.said(&"x".repeat(PATTERN_MARGIN - 7), true);
                }
                assert!(detector.verdict().complete, "{before}");
            }
        }
    }

    #[test]
    fn endless_content_is_not_kept() {
        let mut detector = Detector::new(&response());
        detector.said("<response>", false);
        for _ in 0..10_000 {
            detector.said("é".repeat(100).as_str(), true);
        }
        let Watch::Response { scanner, .. } = &detector.watch else { panic!("a response rule") };
        assert!(scanner.pending.capacity() < 4 * MAX_TAG_CONTENT);
        detector.said("</response><response>DONE</response>", true);
        assert!(
            detector.verdict().complete,
            "what is no completion text does not stand in the way"
        );
    }

    #[test]
    fn an_echoed_prompt_completes_nothing() {
        let prompt = "Fix it.\nThen say\n<response>DONE</response>\n";
        let judge = |lines: &[&str]| {
            let mut detector = Detector::new(&response()).ignoring_echo_of(prompt);
            for line in lines {
                detector.said(line, false);
            }
            detector.verdict().complete
        };
        let echo = ["Fix it.", "Then say", "<response>DONE</response>"];
        assert!(!judge(&echo));
        assert!(!judge(&[&["> "], &echo[..], &["working"]].concat()));
        assert!(judge(&[&echo[..], &["working", "<response>DONE</response>"]].concat()));
        assert!(judge(&["<response>DONE</response>"]), "the answer alone is the agent's own");
        assert!(
            judge(&["Then say", "<response>DONE</response>"]),
            "a part of the prompt is no echo"
        );
        assert!(judge(&["Fix it.", "Fix it.", "<response>DONE</response>"]));
        // A prompt without a line break at its end, and what comes next on its last line.
        assert!(!judge(&["Fix it.", "Then say", "<response>DONE</response>I will."]));
        assert!(judge(&[
            "Fix it.",
            "Then say",
            "<response>DONE</response><response>DONE</response>"
        ]));
        let tag = "<response>DONE</response>";
        let plain = "Fix it.\n\nThen say\n<response>DONE</response>";
        let rows: [(&str, &[&str], bool); 12] = [
            // Blank lines around the prompt, which an echo need not have, or an echo has more of.
            ("\n \nSay\n<response>DONE</response>\n\n\n", &["Say", tag], false),
            ("\nSay\n<response>DONE</response>\n", &["", "Say", tag, "", ""], false),
            ("\nSay\n<response>DONE</response>\n", &["Say", tag, "", tag], true),
            // Quoted, each line by the same mark or by any.
            (plain, &["> Fix it.", ">", "> Then say", "> <response>DONE</response>"], false),
            (plain, &["│ Fix it.", "│", "│ Then say", "│ <response>DONE</response>"], false),
            (plain, &["  Fix it.", "", "  Then say", "  <response>DONE</response>  "], false),
            (
                plain,
                &["> Fix it.", ">", "> Then say", "> done", "  <response>DONE</response>"],
                true,
            ),
            // A prompt that is a quotation itself.
            ("> Say\n> <response>DONE</response>", &["Say", tag], false),
            // Its first lines come again: the echo begins later than it seemed to.
            ("A\nA\n<response>DONE</response>", &["A", "A", "A", tag], false),
            ("A\nB\nA\n<response>DONE</response>", &["A", "B", "A", "B", "A", tag], false),
            ("A\nA\n<response>DONE</response>", &["A", "A", "A", tag, "A", tag], true),
            ("A\nA\n<response>DONE</response>", &["A", tag], true),
        ];
        for (prompt, lines, complete) in rows {
            let mut detector = Detector::new(&response()).ignoring_echo_of(prompt);
            for line in lines {
                detector.said(line, false);
            }
            assert_eq!(detector.verdict().complete, complete, "{prompt:?}: {lines:?}");
        }
        let one_line = "Say <response>DONE</response> when done";
        for (line, complete) in [
            (one_line.to_owned(), false),
            (format!("{one_line}: working"), false),
            (format!("{one_line}<response>DONE</response>"), true),
        ] {
            let mut detector = Detector::new(&response()).ignoring_echo_of(one_line);
            detector.said(&line, false);
            assert_eq!(detector.verdict().complete, complete, "{line}");
        }
    }

    #[test]
    fn a_long_line_of_the_prompt_is_known_again_though_it_comes_in_pieces() {
        let long = format!("{} <response>DONE</response>", "x".repeat(200_000));
        let prompt = format!("First.\n{long}\nLast: <response>DONE</response>");
        let echo = |detector: &mut Detector, quote: &str| {
            for line in prompt.lines() {
                let line = format!("{quote}{line}");
                let (head, rest) = line.split_at(line.len().min(64 * 1024));
                detector.said(head, false);
                for piece in rest.as_bytes().chunks(64 * 1024) {
                    detector.said(std::str::from_utf8(piece).unwrap(), true);
                }
            }
        };
        for (quote, said, complete) in [
            ("", "working", false),
            ("> ", "working", false),
            ("", "<response>DONE</response>", true),
            ("", &*format!("{long}{long}"), true),
        ] {
            let mut detector = Detector::new(&response()).ignoring_echo_of(&prompt);
            echo(&mut detector, quote);
            detector.said(said, false);
            assert_eq!(detector.verdict().complete, complete, "{quote} {}", said.len());
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in "(<response>|</response>|<resp|onse>|DONE|x|é| |\n|<){0,12}",
            cuts in proptest::collection::vec(0usize..80, 0..6),
        ) {
            for rule in [response(), Rule::Promise("DONE".into())] {
                let whole = judge(&rule, &[&text]);
                let mut detector = Detector::new(&rule);
                let mut cuts: Vec<usize> =
                    cuts.iter().map(|cut| text.floor_char_boundary(*cut)).collect();
                cuts.sort_unstable();
                let mut from = 0;
                for cut in cuts {
                    detector.said(&text[from..cut], true);
                    from = cut;
                }
                detector.said(&text[from..], true);
                prop_assert_eq!(detector.verdict(), whole);
            }
        }

        #[test]
        fn an_echo_and_nothing_else_is_left_out(
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

        #[test]
        fn agrees_with_the_plain_definition(
            text in "(<response>|</response>|DONE|x|é| |\n|<){0,12}",
        ) {
            // The content holds no opening tag: that is what "innermost" means.
            let plain = Regex::new(r"(?is)<response>((?:(?!<response>).)*?)</response>").unwrap();
            let expected = plain
                .captures(text.as_str())
                .unwrap()
                .map(|found| found.get(1).unwrap().as_str().trim().to_owned());
            prop_assert_eq!(judge(&response(), &[&text]).found, expected);
        }
    }
}
