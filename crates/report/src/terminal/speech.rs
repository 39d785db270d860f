//! The agent's streamed text.

use super::markdown::Markdown;
use super::pen::StyledLine;
use super::{Paragraph, RETAINED_CAPACITY, TerminalReporter};
use crate::output::OutputTarget;
use crate::style::{Style, TextRole};
use crate::width;
use ralph_events::control_chars::ControlCharFilter;
use ralph_events::event::{Stamp, Stream};
use ralph_events::text;

pub(super) const MAX_TEXT: usize = 100_000;
pub(super) const MAX_THINKING: usize = 300;
const MIN_FRAGMENT_BYTES: usize = 32 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Agent,
    Subagent,
    Thinking,
    SubagentThinking,
    Output(Stream),
    /// The display filter, with its own colours.
    Filter,
}

#[derive(Debug)]
pub(super) struct TextBlock {
    speaker: Speaker,
    cleaner: ControlCharFilter,
    chars_left: usize,
    omitted: usize,
    open: bool,
    has_output: bool,
    /// The unfinished line, if lines are shown only as a whole.
    line: Option<String>,
    /// When it started.
    at: Stamp,
    markdown: Option<Markdown>,
    /// The last piece was so long that the line may continue.
    pub(super) cut: bool,
}

impl TerminalReporter {
    pub(super) fn write_text(&mut self, at: Stamp, speaker: Speaker, words: &str, joined: bool) {
        let goes_on = joined && self.block.as_ref().is_some_and(|it| it.speaker == speaker);
        if !goes_on {
            let (paragraph, left) = match speaker {
                Speaker::Thinking | Speaker::SubagentThinking => {
                    (Paragraph::Thinking, MAX_THINKING)
                }
                _ => (Paragraph::Text, MAX_TEXT),
            };
            self.paragraph(paragraph);
            self.block = Some(TextBlock {
                speaker,
                cleaner: match speaker {
                    Speaker::Filter if self.style.color => ControlCharFilter::keep_colors(),
                    _ => ControlCharFilter::default(),
                },
                chars_left: left,
                omitted: 0,
                // An empty text is an empty line.
                open: true,
                has_output: false,
                line: self.shows_whole_lines(speaker).then(String::new),
                at,
                markdown: self.markdown(speaker),
                cut: false,
            });
        }
        let Some(mut block) = self.block.take() else {
            return;
        };
        block.cut = words.len() >= MIN_FRAGMENT_BYTES;
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut words = block.cleaner.filter(words, &mut scratch);
        if block.chars_left == 0 {
            block.omitted += words.chars().count();
            words = "";
        } else if words.len() > block.chars_left {
            let shown = text::prefix(words, block.chars_left);
            block.omitted += words[shown.len()..].chars().count();
            words = shown;
        }
        block.chars_left = block.chars_left.saturating_sub(words.chars().count());
        while !words.is_empty() {
            let end = memchr::memchr(b'\n', words.as_bytes());
            let line = &words[..end.unwrap_or(words.len())];
            if let Some(held) = &mut block.line {
                if held.is_empty() {
                    block.at = at;
                }
                held.push_str(line);
                block.open |= !line.is_empty();
            } else if !line.is_empty() {
                if !block.has_output {
                    self.start_text_line(at, speaker);
                    block.has_output = true;
                }
                self.screen.buffer_for(OutputTarget::Out).extend_from_slice(line.as_bytes());
                self.blank = false;
                block.open = true;
            }
            let Some(end) = end else { break };
            self.end_text_line(&mut block);
            words = &words[end + 1..];
        }
        scratch.clear();
        scratch.shrink_to(RETAINED_CAPACITY);
        self.scratch = scratch;
        self.block = Some(block);
    }

    fn shows_whole_lines(&self, speaker: Speaker) -> bool {
        let is_text = !matches!(speaker, Speaker::Output(_) | Speaker::Filter);
        // Fragments must appear at once.
        let can_hold = self.screen.shows_partial_line() || !self.streams_fragments;
        is_text && can_hold && self.screen.text_width().is_some()
    }

    fn markdown(&self, speaker: Speaker) -> Option<Markdown> {
        let Style { emoji, color, .. } = self.style;
        let is_said = matches!(speaker, Speaker::Agent | Speaker::Subagent);
        let renders = is_said && !self.plain_text && (emoji || color);
        renders.then(|| Markdown::new(color, emoji))
    }

    fn show_line(&mut self, block: &mut TextBlock, line: &str) {
        let shown = match &mut block.markdown {
            Some(markdown) => markdown.render(line),
            None => Some(StyledLine::new(line)),
        };
        let Some(mut shown) = shown else { return };
        if block.speaker != Speaker::Agent {
            shown.base = Some(TextRole::Faint);
        }
        let column = self.start_text_line(block.at, block.speaker);
        self.pen(OutputTarget::Out).wrapped(&shown, column).end();
        self.blank = false;
    }

    /// Shows the beginning of a held line below the text.
    pub(super) fn show_partial_text(&mut self) {
        if self.streams_fragments
            && let Some(TextBlock { line: Some(line), .. }) = &self.block
        {
            self.screen.set_partial_line(line.as_bytes());
        }
    }

    /// Returns the columns before the text.
    fn start_text_line(&mut self, at: Stamp, speaker: Speaker) -> usize {
        self.stamp(at, OutputTarget::Out);
        let indent = match speaker {
            Speaker::Subagent | Speaker::SubagentThinking => "  ",
            _ => "",
        };
        let (mark, space) = match speaker {
            Speaker::Thinking | Speaker::SubagentThinking => (self.marks.thinking, " "),
            _ => ("", ""),
        };
        let mut pen = self.pen(OutputTarget::Out);
        pen.text(indent);
        if !matches!(speaker, Speaker::Agent | Speaker::Filter) {
            pen.start_style(TextRole::Faint).text(mark).text(space);
        }
        self.stamp_width() + indent.len() + width::display_width(mark) + space.len()
    }

    fn end_text_line(&mut self, block: &mut TextBlock) {
        block.open = false;
        let held = block.line.as_mut().map(std::mem::take);
        if let Some(line) = held.filter(|line| !line.is_empty()) {
            if self.streams_fragments {
                self.screen.set_partial_line(b"");
            }
            return self.show_line(block, &line);
        }
        let begun = std::mem::take(&mut block.has_output);
        let mut pen = self.pen(OutputTarget::Out);
        if begun && block.speaker != Speaker::Agent {
            pen.plain();
        }
        pen.end();
        self.blank = !begun;
    }

    pub(super) fn end_block(&mut self) {
        let Some(mut block) = self.block.take() else {
            return;
        };
        if block.omitted > 0 {
            let more = self.marks.more;
            let omitted = block.omitted;
            let has_text = block.has_output || block.line.as_ref().is_some_and(|it| !it.is_empty());
            let space = if has_text { " " } else { "" };
            let note = format!("{space}{more} [{omitted} more characters]");
            match &mut block.line {
                Some(line) => line.push_str(&note),
                None => {
                    self.screen.buffer_for(OutputTarget::Out).extend_from_slice(note.as_bytes());
                    block.has_output = true;
                }
            }
            block.open = true;
        }
        if block.open {
            self.end_text_line(&mut block);
        }
    }
}
