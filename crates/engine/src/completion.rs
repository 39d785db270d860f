//! Has the agent said that it is done?
//!
//! Three rules, one detector. It is fed what the agent itself *said* in this iteration, piece by
//! piece, and holds only what a match may still need, so that an agent may say any amount.

mod prompt_echo;
mod tags;

use fancy_regex::Regex;

use self::prompt_echo::lines::EchoFilter;
use self::prompt_echo::pattern::Echoed;
use self::prompt_echo::tags::Quoted;
use self::tags::TagScanner;
use ralph_events::control_chars::{ControlCharFilter, strip_control_chars};

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
    /// Whether a prompt tells the agent how to signal that it is done. Errs on the side of yes.
    pub fn is_mentioned_in(&self, prompt: &str) -> bool {
        let names = |tag: &str, text: &str| {
            let prompt = prompt.to_lowercase();
            prompt.contains(&format!("<{tag}"))
                || (prompt.contains(tag) && prompt.contains(&text.trim().to_lowercase()))
        };
        match self {
            Rule::Response(text) => names("response", text),
            Rule::Promise(text) => names("promise", text),
            Rule::Pattern(regex) => {
                let is_word = |word: &&str| word.len() > 2;
                let mut words =
                    regex.as_str().split(|c: char| !c.is_alphanumeric()).filter(is_word);
                // An error of the expression, such as too much backtracking, says nothing about the prompt.
                regex.is_match(prompt).unwrap_or(true) || words.all(|word| prompt.contains(word))
            }
            Rule::Never => true,
        }
    }

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
    cleaner: ControlCharFilter,
    echo: Option<EchoFilter>,
    echoed: bool,
    /// A signal that stands in an echo of the prompt was not taken for the agent's.
    ignored_signal: bool,
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
            cleaner: ControlCharFilter::default(),
            echo: None,
            echoed: false,
            ignored_signal: false,
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
        let prompt = &strip_control_chars(prompt);
        let quoted = match &mut self.watch {
            Watch::Response { .. } => Quoted::new(prompt, "response"),
            Watch::Promise { .. } => Quoted::new(prompt, "promise"),
            Watch::Pattern { regex, echoed, .. } => {
                *echoed = Echoed::new(prompt, regex);
                None
            }
            Watch::Nothing => None,
        };
        self.echo = EchoFilter::new(prompt, quoted);
        self
    }

    /// Takes what the agent said next. `joined` text goes on without a line break.
    pub fn said(&mut self, text: &str, joined: bool) {
        if !joined {
            self.cleaner = ControlCharFilter::default();
        }
        let mut clean = String::new();
        let text = self.cleaner.filter(text, &mut clean);
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
        self.cleaner = ControlCharFilter::default();
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

    /// Whether a completion signal was found and not counted, because it stands in an echo of the prompt.
    pub fn ignored_signal(&self) -> bool {
        self.ignored_signal
    }

    /// The iteration is over: what was it?
    pub fn verdict(&mut self) -> Verdict {
        if let Some(mut echo) = self.echo.take() {
            echo.finish(&mut |text, joined| self.heed(text, joined));
            self.echoed |= echo.found;
            self.ignored_signal |= echo.found_tag();
        }
        if let Watch::Pattern { regex, echoed, recent, is_cut } = &self.watch {
            self.ignored_signal |=
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
            scanner.begin_anew();
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
                    self.ignored_signal |=
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
/// was said. Returns whether a match was left out because it is the prompt's.
fn note_match(
    regex: &Regex,
    echoed: &Echoed,
    recent: &str,
    is_cut: bool,
    until: usize,
    verdict: &mut Verdict,
) -> bool {
    let mut is_ignored = false;
    if verdict.complete {
        return is_ignored;
    }
    let mut from = if is_cut { recent.ceil_char_boundary(1) } else { 0 };
    loop {
        let found = match regex.find_from_pos(recent, from) {
            Ok(Some(found)) if found.end() <= until => found,
            Ok(_) => return is_ignored,
            Err(_) => {
                verdict.gave_up = true;
                return is_ignored;
            }
        };
        if !echoed.is_at(recent, found.start(), found.end()) {
            verdict.complete = true;
            verdict.found = Some(ralph_events::text::prefix(found.as_str(), 200).to_owned());
            return is_ignored;
        }
        is_ignored = true;
        if found.end() >= recent.len() {
            return is_ignored;
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

#[cfg(test)]
mod tests;
