//! What the running iteration still needs, by the average of the finished ones.

use super::{BarResult, RunCard};
use crate::terminal::plural;
use ralph_events::text::format_dollars;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// At least 1.
    pub minutes: u64,
    /// `None` if costs are unknown, or the average is already spent.
    pub usd: Option<f64>,
}

impl RunCard {
    /// Estimates the rest of the running iteration. `None` if nothing runs, nothing has finished, or it already took
    /// longer than the average.
    pub fn stop_estimate(&self) -> Option<Estimate> {
        let running = self.bars.last().filter(|bar| bar.result == BarResult::Running)?;
        let is_finished = |result| matches!(result, BarResult::Passed | BarResult::Failed);
        let finished = || self.bars.iter().filter(|bar| is_finished(bar.result));
        let count = u32::try_from(finished().count()).ok().filter(|count| *count > 0)?;
        let total_ms: u64 = finished().map(|bar| bar.duration_ms).sum();
        let left_ms = (total_ms / u64::from(count)).checked_sub(running.duration_ms)?;
        let total_usd: Option<f64> = finished().map(|bar| bar.cost.usd()).sum();
        let left = |usd: f64| usd / f64::from(count) - running.cost.usd().unwrap_or(0.0);
        let usd = total_usd.map(left).filter(|usd| *usd >= 0.005);
        Some(Estimate { minutes: left_ms.div_ceil(60_000).max(1), usd })
    }
}

impl Estimate {
    /// `4 minutes`.
    pub fn minutes(&self) -> String {
        format!("{} minute{}", self.minutes, plural(self.minutes))
    }
}

/// `4 more minutes and $0.30`.
impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} more minute{}", self.minutes, plural(self.minutes))?;
        self.usd.map_or(Ok(()), |usd| write!(f, " and {}", format_dollars(usd)))
    }
}
