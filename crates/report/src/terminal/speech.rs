//! The agent's words, which come in pieces.

use std::io::Write as _;

use super::{Human, KEPT, Paragraph};
use crate::output::Target;
use crate::style::Paint;
use ralph_events::control_chars::ControlCharFilter;
use ralph_events::event::{Stamp, Stream};
use ralph_events::text;

/// Characters of one text of the agent's that are shown.
pub(super) const MAX_TEXT: usize = 100_000;
/// Characters of one thought that are shown.
pub(super) const MAX_THOUGHT: usize = 300;
/// A line that is handed on in pieces has pieces of at least this many bytes.
const PIECE: usize = 32 * 1024;

/// What a stretch of streamed text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Agent,
    Subagent,
    Thought,
    SubagentThought,
    Output(Stream),
    /// The user's own filter, in whatever colours it likes.
    Filter,
}

/// A streamed text that may go on.
#[derive(Debug)]
pub(super) struct Block {
    speaker: Speaker,
    cleaner: ControlCharFilter,
    /// Characters that may still be shown, and those that were not.
    left: usize,
    omitted: usize,
    /// The line has not been ended, and something has been written to it.
    open: bool,
    begun: bool,
    /// What was said last was so long that it may be a piece of a line.
    pub(super) cut: bool,
}

impl Human {
    pub(super) fn speak(&mut self, at: Stamp, speaker: Speaker, words: &str, joined: bool) {
        let goes_on = joined && self.block.as_ref().is_some_and(|it| it.speaker == speaker);
        if !goes_on {
            let (paragraph, left) = match speaker {
                Speaker::Thought | Speaker::SubagentThought => (Paragraph::Thought, MAX_THOUGHT),
                _ => (Paragraph::Said, MAX_TEXT),
            };
            self.paragraph(paragraph);
            self.block = Some(Block {
                speaker,
                cleaner: match speaker {
                    Speaker::Filter if self.style.color => ControlCharFilter::keep_colors(),
                    _ => ControlCharFilter::default(),
                },
                left,
                omitted: 0,
                // An empty text is an empty line.
                open: true,
                begun: false,
                cut: false,
            });
        }
        let Some(mut block) = self.block.take() else {
            return;
        };
        block.cut = words.len() >= PIECE;
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut words = block.cleaner.filter(words, &mut scratch);
        if block.left == 0 {
            block.omitted += words.chars().count();
            words = "";
        } else if words.len() > block.left {
            let shown = text::prefix(words, block.left);
            block.omitted += words[shown.len()..].chars().count();
            words = shown;
        }
        block.left = block.left.saturating_sub(words.chars().count());
        while !words.is_empty() {
            let end = memchr::memchr(b'\n', words.as_bytes());
            let line = &words[..end.unwrap_or(words.len())];
            if !line.is_empty() {
                if !block.begun {
                    self.begin_spoken_line(at, speaker);
                    block.begun = true;
                }
                self.screen.to(Target::Out).extend_from_slice(line.as_bytes());
                self.blank = false;
                block.open = true;
            }
            let Some(end) = end else { break };
            self.end_spoken_line(&mut block);
            words = &words[end + 1..];
        }
        scratch.clear();
        scratch.shrink_to(KEPT);
        self.scratch = scratch;
        self.block = Some(block);
    }

    fn begin_spoken_line(&mut self, at: Stamp, speaker: Speaker) {
        self.stamp(at, Target::Out);
        let thinking = self.marks.thinking;
        let mut pen = self.pen(Target::Out);
        match speaker {
            Speaker::Agent | Speaker::Filter => {}
            Speaker::Subagent => {
                pen.say("  ").turn(Paint::Faint);
            }
            Speaker::Thought => {
                pen.turn(Paint::Faint).say(thinking).say(" ");
            }
            Speaker::SubagentThought => {
                pen.say("  ").turn(Paint::Faint).say(thinking).say(" ");
            }
            Speaker::Output(_) => {
                pen.turn(Paint::Faint);
            }
        }
    }

    fn end_spoken_line(&mut self, block: &mut Block) {
        let begun = std::mem::take(&mut block.begun);
        block.open = false;
        let mut pen = self.pen(Target::Out);
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
            let space = if block.begun { " " } else { "" };
            let out = self.screen.to(Target::Out);
            let _ = write!(out, "{space}{more} [{omitted} more characters]");
            block.begun = true;
            block.open = true;
        }
        if block.open {
            self.end_spoken_line(&mut block);
        }
    }
}
