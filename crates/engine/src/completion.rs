//! Detects the completion signal in an agent's words, which arrive in pieces. Keeps only what a match may need.

mod prompt_echo;
mod questions;
mod tags;

use std::ops::Range;

use fancy_regex::Regex;
use serde::{Deserialize, Serialize};

use self::prompt_echo::lines::EchoFilter;
use self::prompt_echo::pattern::PromptPattern;
use self::tags::{TagPair, TagScanner};
pub use questions::QuestionDetector;
use ralph_events::control_chars::{ControlCharFilter, strip_control_chars};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionRule {
    /// The first `<response>…</response>` has this text, in any case.
    Response(String),
    /// Any `<promise>…</promise>` has exactly this text.
    Promise(String),
    /// `^` and `$` match at the ends of the text, or of lines with `(?m)`. Beyond 512 KiB only the latest part is
    /// kept: matches over 128 KiB may be missed.
    Pattern(#[serde(with = "regex_text")] Regex),
    Never,
}

mod regex_text {
    use fancy_regex::Regex;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(
        regex: &Regex,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(regex.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Regex, D::Error> {
        Regex::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl CompletionRule {
    /// Whether the prompt may name the signal. Errs towards yes.
    pub fn is_mentioned_in(&self, prompt: &str) -> bool {
        let names = |tag: &str, text: &str| {
            let prompt = prompt.to_lowercase();
            prompt.contains(&format!("<{tag}"))
                || (prompt.contains(tag) && prompt.contains(&text.trim().to_lowercase()))
        };
        match self {
            CompletionRule::Response(text) => names("response", text),
            CompletionRule::Promise(text) => names("promise", text),
            CompletionRule::Pattern(regex) => {
                let is_word = |word: &&str| word.len() > 2;
                let mut words =
                    regex.as_str().split(|c: char| !c.is_alphanumeric()).filter(is_word);
                // A regex error, such as too much backtracking, says nothing about the prompt.
                regex.is_match(prompt).unwrap_or(true) || words.all(|word| prompt.contains(word))
            }
            CompletionRule::Never => true,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            CompletionRule::Response(text) => format!("<response>{text}</response>"),
            CompletionRule::Promise(text) => format!("<promise>{text}</promise>"),
            CompletionRule::Pattern(regex) => format!("the pattern \"{}\"", regex.as_str()),
            CompletionRule::Never => String::new(),
        }
    }

    /// Whether the prompt contains the signal. Unknown for patterns, so true.
    pub fn is_requested_by(&self, prompt: &str) -> bool {
        let Some(signal) = TagSignal::new(self) else { return true };
        let mut found = false;
        signal.scanner().push(prompt, false, |content| found |= signal.matches(content));
        found
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionResult {
    pub complete: bool,
    /// The text that was compared.
    pub signal: Option<String>,
    /// The regex exceeded its step limit, so a match is unknown.
    pub pattern_too_slow: bool,
}

#[derive(Debug, Clone, Default)]
pub struct CompletionDetector {
    matcher: SignalMatcher,
    verdict: CompletionResult,
    /// Kept between pieces: a colour may change within the signal.
    cleaner: ControlCharFilter,
    echo: Option<EchoFilter>,
    prompt_was_echoed: bool,
    /// A signal was ignored because it is part of a prompt echo.
    ignored_signal: bool,
    has_output: bool,
    /// Text that is not joined is a new message.
    messages: bool,
}

#[derive(Debug, Clone, Default)]
enum SignalMatcher {
    Tag {
        signal: TagSignal,
        scanner: TagScanner,
    },
    /// Text is kept, to recognize signals that are part of an echo.
    Recent {
        signal: CompletionSignal,
        echoed: PromptPattern,
        recent: String,
        is_cut: bool,
    },
    #[default]
    Nothing,
}

#[derive(Debug, Clone)]
enum CompletionSignal {
    Pattern(Regex),
    Tag(TagSignal),
}

impl CompletionSignal {
    /// The next one from `from` on; the error says that the search took too long.
    fn find(&self, text: &str, from: usize) -> Result<Option<Range<usize>>, ()> {
        match self {
            CompletionSignal::Pattern(regex) => {
                let found = regex.find_from_pos(text, from).map_err(drop)?;
                Ok(found.map(|found| found.range()))
            }
            CompletionSignal::Tag(signal) => Ok(signal.tag.find(text, from)),
        }
    }

    fn find_all(&self, line: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while from <= line.len()
            && let Ok(Some(next)) = self.find(line, from)
        {
            from = line.ceil_char_boundary(next.end.max(next.start + 1));
            found.push(next);
        }
        found
    }
}

impl SignalMatcher {
    fn recent(signal: CompletionSignal, echoed: PromptPattern) -> SignalMatcher {
        SignalMatcher::Recent { signal, echoed, recent: String::new(), is_cut: false }
    }
}

/// A signal in a tag.
#[derive(Debug, Clone)]
struct TagSignal {
    /// If case matters, any tag can match. Otherwise the first one decides.
    tag: TagPair,
    expected: String,
}

impl TagSignal {
    fn new(rule: &CompletionRule) -> Option<TagSignal> {
        let (tag, text, exact) = match rule {
            CompletionRule::Response(text) => ("response", text, false),
            CompletionRule::Promise(text) => ("promise", text, true),
            CompletionRule::Pattern(_) | CompletionRule::Never => return None,
        };
        Some(TagSignal { tag: TagPair::new(tag, exact), expected: normalize(text, exact) })
    }

    fn scanner(&self) -> TagScanner {
        TagScanner::new(self.tag.clone())
    }

    fn matches(&self, content: &str) -> bool {
        normalize(content, self.tag.exact) == self.expected
    }

    fn record(&self, content: &str, verdict: &mut CompletionResult) {
        if !verdict.complete && (self.tag.exact || verdict.signal.is_none()) {
            verdict.complete = self.matches(content);
            verdict.signal = Some(content.trim().to_owned());
        }
    }
}

fn normalize(text: &str, exact: bool) -> String {
    if exact { text.trim().to_owned() } else { text.trim().to_lowercase() }
}

const PATTERN_WINDOW: usize = 256 * 1024;
/// Text that must follow a match before it counts, because `$` would match too early.
const PATTERN_MARGIN: usize = PATTERN_WINDOW / 2;

impl CompletionDetector {
    pub fn new(rule: &CompletionRule) -> Self {
        let matcher = match (rule, TagSignal::new(rule)) {
            (_, Some(signal)) => SignalMatcher::Tag { scanner: signal.scanner(), signal },
            (CompletionRule::Pattern(regex), None) => SignalMatcher::recent(
                CompletionSignal::Pattern(regex.clone()),
                PromptPattern::default(),
            ),
            _ => SignalMatcher::Nothing,
        };
        CompletionDetector { matcher, ..CompletionDetector::default() }
    }

    /// For agents with messages: a tag never spans two of them.
    #[must_use]
    pub fn for_messages(mut self) -> Self {
        self.messages = true;
        self
    }

    /// For plain-text agents: ignores echoes of the prompt and signals among its words.
    #[must_use]
    pub fn with_prompt_echo(mut self, prompt: &str) -> Self {
        let prompt = &strip_control_chars(prompt);
        let signal = match &self.matcher {
            SignalMatcher::Tag { signal, .. } => CompletionSignal::Tag(signal.clone()),
            SignalMatcher::Recent { signal, .. } => signal.clone(),
            SignalMatcher::Nothing => return self.with_echo_filter(prompt),
        };
        let is_tag = matches!(signal, CompletionSignal::Tag(..));
        let echoed = PromptPattern::new(prompt, is_tag, |line| signal.find_all(line));
        if !echoed.is_empty() {
            self.matcher = SignalMatcher::recent(signal, echoed);
        }
        self.with_echo_filter(prompt)
    }

    fn with_echo_filter(mut self, prompt: &str) -> Self {
        self.echo = EchoFilter::new(prompt);
        self
    }

    /// `joined` text continues the line.
    pub fn push_text(&mut self, text: &str, joined: bool) {
        if !joined {
            self.cleaner = ControlCharFilter::default();
        }
        let mut clean = String::new();
        let text = self.cleaner.filter(text, &mut clean);
        let Some(mut echo) = self.echo.take() else {
            return self.scan(text, joined);
        };
        echo.filter(text, joined, &mut |text, joined| self.scan(text, joined));
        self.prompt_was_echoed |= echo.prompt_was_repeated;
        self.echo = Some(echo);
    }

    /// Discards the text so far: it was not the agent's.
    pub fn retract(&mut self) {
        match &mut self.matcher {
            SignalMatcher::Tag { scanner, .. } => scanner.reset(),
            SignalMatcher::Recent { recent, is_cut, .. } => {
                recent.clear();
                *is_cut = false;
            }
            SignalMatcher::Nothing => {}
        }
        self.cleaner = ControlCharFilter::default();
        self.verdict = CompletionResult::default();
        self.has_output = false;
    }

    pub fn has_output(&self) -> bool {
        self.has_output
    }

    /// Whether the whole output was the prompt.
    pub fn is_only_echo(&self) -> bool {
        self.prompt_was_echoed && !self.has_output
    }

    pub fn ignored_signal(&self) -> bool {
        self.ignored_signal
    }

    pub fn finish(&mut self) -> CompletionResult {
        if let Some(mut echo) = self.echo.take() {
            echo.finish(&mut |text, joined| self.scan(text, joined));
            self.prompt_was_echoed |= echo.prompt_was_repeated;
        }
        if let SignalMatcher::Recent { signal, echoed, recent, is_cut } = &self.matcher {
            self.ignored_signal |= self.prompt_was_echoed && !echoed.is_empty();
            self.ignored_signal |=
                record_match(signal, echoed, recent, *is_cut, recent.len(), &mut self.verdict);
        }
        self.verdict.clone()
    }

    fn scan(&mut self, text: &str, joined: bool) {
        if !self.has_output {
            self.has_output = !text.trim().is_empty();
        }
        if self.verdict.complete {
            return;
        }
        let verdict = &mut self.verdict;
        match &mut self.matcher {
            SignalMatcher::Nothing => {}
            SignalMatcher::Tag { signal, scanner } => {
                if self.messages && !joined {
                    scanner.reset();
                }
                scanner.push(text, joined, |content| signal.record(content, verdict));
            }
            SignalMatcher::Recent { signal, echoed, recent, is_cut } => {
                if !joined && !recent.is_empty() {
                    recent.push('\n');
                }
                recent.push_str(text);
                if recent.len() > 2 * PATTERN_WINDOW {
                    let until = recent.len() - PATTERN_MARGIN;
                    self.ignored_signal |=
                        record_match(signal, echoed, recent, *is_cut, until, verdict);
                    *is_cut = true;
                    let cut = recent.ceil_char_boundary(recent.len() - PATTERN_WINDOW);
                    recent.drain(..cut);
                }
            }
        }
    }
}

/// Records a match that ends by `until` and is no echo. Cut text is searched from its second character: the first is
/// not the start of the output. Returns whether an echo was ignored.
fn record_match(
    signal: &CompletionSignal,
    echoed: &PromptPattern,
    recent: &str,
    is_cut: bool,
    until: usize,
    verdict: &mut CompletionResult,
) -> bool {
    let mut is_ignored = false;
    let mut from = if is_cut { recent.ceil_char_boundary(1) } else { 0 };
    while from <= recent.len() && !verdict.complete {
        let found = match signal.find(recent, from) {
            Ok(Some(found)) if found.end <= until => found,
            Ok(_) => return is_ignored,
            Err(()) => {
                verdict.pattern_too_slow = true;
                return is_ignored;
            }
        };
        let text = &recent[found.clone()];
        match signal {
            _ if echoed.is_echo(recent, found.start, found.end) => is_ignored = true,
            CompletionSignal::Pattern(_) => {
                verdict.complete = true;
                verdict.signal = Some(ralph_events::text::prefix(text, 200).to_owned());
            }
            CompletionSignal::Tag(signal) => signal.record(signal.tag.content(text), verdict),
        }
        from = recent.ceil_char_boundary(found.end.max(found.start + 1));
    }
    is_ignored
}

pub fn first_response(text: &str) -> Option<String> {
    let mut found = None;
    TagScanner::new(TagPair::new("response", false)).push(text, true, |content| {
        found.get_or_insert_with(|| content.to_owned());
    });
    found
}

#[cfg(test)]
mod tests;
