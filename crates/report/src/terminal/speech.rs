//! The agent's streamed text.

use std::io::Write as _;

use super::{Paragraph, RETAINED_CAPACITY, TerminalReporter};
use crate::output::OutputTarget;
use crate::style::TextRole;
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
            if !line.is_empty() {
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

    fn start_text_line(&mut self, at: Stamp, speaker: Speaker) {
        self.stamp(at, OutputTarget::Out);
        let thinking = self.marks.thinking;
        let mut pen = self.pen(OutputTarget::Out);
        match speaker {
            Speaker::Agent | Speaker::Filter => {}
            Speaker::Subagent => {
                pen.text("  ").start_style(TextRole::Faint);
            }
            Speaker::Thinking => {
                pen.start_style(TextRole::Faint).text(thinking).text(" ");
            }
            Speaker::SubagentThinking => {
                pen.text("  ").start_style(TextRole::Faint).text(thinking).text(" ");
            }
            Speaker::Output(_) => {
                pen.start_style(TextRole::Faint);
            }
        }
    }

    fn end_text_line(&mut self, block: &mut TextBlock) {
        let begun = std::mem::take(&mut block.has_output);
        block.open = false;
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
            let space = if block.has_output { " " } else { "" };
            let out = self.screen.buffer_for(OutputTarget::Out);
            let _ = write!(out, "{space}{more} [{omitted} more characters]");
            block.has_output = true;
            block.open = true;
        }
        if block.open {
            self.end_text_line(&mut block);
        }
    }
}
