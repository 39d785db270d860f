//! The iteration bars: height is time, colour the result.

use ralph_report::run_card::{BarResult, RunCard};

use crate::canvas::{Span, span};
use crate::theme::{Role, Theme};

const BLOCKS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The last `count` bars of a run.
pub(crate) fn bars(card: &RunCard, count: usize, theme: Theme) -> Vec<Span> {
    let longest = card.longest_bar_ms();
    let first = card.bars.len().saturating_sub(count);
    let bar = |bar: &ralph_report::run_card::Bar| {
        let role = match bar.result {
            BarResult::Passed => Role::BarPassed,
            BarResult::Failed => Role::BarFailed,
            BarResult::Interrupted => Role::BarPassed,
            BarResult::Running => Role::BarNow,
        };
        if theme.ascii {
            return span(bar.result.ascii(), role);
        }
        span(block(usize::from(bar.eighths(longest))), role)
    };
    card.bars[first..].iter().map(bar).collect()
}

/// A block of so many eighths of a line.
pub(crate) fn block(eighths: usize) -> &'static str {
    BLOCKS[eighths.clamp(1, 8) - 1]
}
