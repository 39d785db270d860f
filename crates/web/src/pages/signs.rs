//! Signs and figures that several pages share.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use maud::{Markup, html};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::run_state::{Cost, RunState};
use ralph_events::text;
use ralph_report::run_card::{Bar, BarResult, RunCard};
use ralph_report::state_word::StateWord;

/// A sign of 12 px, drawn because fonts of phones disagree about them. `color` is a class.
pub(crate) fn sign(sign: &str, color: &str) -> Markup {
    let shape = match sign {
        "●" => html! { circle cx="6" cy="6" r="5.5" {} },
        "○" => html! { circle class="ol" cx="6" cy="6" r="4.7" {} },
        "◌" => html! { circle class="ol" cx="6" cy="6" r="4.7" stroke-dasharray="2 1.7" {} },
        "=" => html! { path d="M1.5 1h3v10h-3zM7.5 1h3v10h-3z" {} },
        "✓" => html! { path class="ol" d="M1.5 6.6l3 3L10.5 2.6" {} },
        "✗" => html! { path class="ol" d="M2.2 2.2l7.6 7.6M9.8 2.2L2.2 9.8" {} },
        "■" => html! { path d="M1.5 1.5h9v9h-9z" {} },
        "·" => html! { circle cx="6" cy="6" r="1.3" {} },
        "~" => html! { path class="ol" d="M1 7.2C2.6 3.6 4.6 4 6 6s3.4 2.4 5-1.2" {} },
        other => return html! { span class={ "g " (color) } aria-hidden="true" { (other) } },
    };
    html! {
        span class={ "g " (color) } aria-hidden="true" {
            svg width="12" height="12" viewBox="0 0 12 12" { (shape) }
        }
    }
}

/// The colour class of a run's sign.
pub(crate) fn state_color(state: StateWord) -> &'static str {
    match state {
        StateWord::Asks => "a",
        StateWord::Failed | StateWord::Interrupted => "f",
        StateWord::Working => "w",
        StateWord::Complete => "d",
        StateWord::Waiting | StateWord::Paused | StateWord::Ended => "m",
    }
}

/// `$4.37`, `~$4.37` if it is an estimate; empty if it is unknown.
pub(crate) fn money(cost: &Cost) -> String {
    match (cost.estimated, cost.reported) {
        (Some(usd), _) => format!("~{}", text::format_dollars(usd)),
        (None, Some(usd)) => text::format_dollars(usd),
        (None, None) => String::new(),
    }
}

/// `5 min ago`, which the script keeps current.
pub(crate) fn ago(since_ms: i64, now_ms: i64) -> Markup {
    html! { span data-since=(since_ms) data-unit="ago" { (ago_text(since_ms, now_ms)) } }
}

fn ago_text(since_ms: i64, now_ms: i64) -> String {
    let seconds = u64::try_from((now_ms - since_ms) / 1000).unwrap_or(0);
    match seconds {
        0..60 => "just now".to_owned(),
        60..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// `22:41`.
pub(crate) fn clock(ms: i64, zone: &TimeZone) -> String {
    local(ms, zone, "%H:%M")
}

pub(crate) fn local(ms: i64, zone: &TimeZone, format: &str) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| String::new(),
        |time| time.to_zoned(zone.clone()).strftime(format).to_string(),
    )
}

/// Text of an agent, without control sequences and direction marks.
pub(crate) fn clean(text: &str) -> String {
    strip_control_chars(text)
}

pub(crate) fn bar_class(result: BarResult) -> &'static str {
    match result {
        BarResult::Passed => "p",
        BarResult::Failed => "f",
        BarResult::Interrupted => "i",
        BarResult::Running => "n",
    }
}

/// The iterations in which a check ran to its end, and whether one failed.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckedIterations(HashMap<u32, bool>);

impl CheckedIterations {
    pub(crate) fn of(run: &RunState) -> CheckedIterations {
        let mut checked = HashMap::new();
        for record in &run.iterations {
            for check in record.guardrails.iter().filter(|check| !check.cut_off) {
                *checked.entry(record.number).or_default() |= check.has_failed();
            }
        }
        CheckedIterations(checked)
    }

    /// The result of an iteration. It claims nothing about checks that did not run.
    pub(crate) fn word(&self, bar: &Bar) -> &'static str {
        match (bar.result, self.0.get(&bar.iteration)) {
            (BarResult::Passed, Some(_)) => "all checks passed",
            (BarResult::Passed, None) => "no checks",
            (BarResult::Failed, Some(true)) => "a check failed",
            (BarResult::Failed, _) => "failed",
            (BarResult::Interrupted, _) => "interrupted",
            (BarResult::Running, _) => "running now",
        }
    }

    /// The meaning of the colour of iterations that did not fail.
    pub(crate) fn passed_key(&self, bars: &[Bar]) -> &'static str {
        let mut passed = bars.iter().filter(|bar| bar.result == BarResult::Passed);
        match (self.0.is_empty(), passed.all(|bar| self.0.contains_key(&bar.iteration))) {
            (true, _) => "no checks",
            (false, true) => "checks passed",
            (false, false) => "checks passed, or none ran",
        }
    }
}

const SPARK_BARS: usize = 12;
const SPARK_HEIGHT: u64 = 22;

/// The last iterations of a run as small bars.
pub(crate) fn sparkline(card: &RunCard) -> Markup {
    let shown = &card.bars[card.bars.len().saturating_sub(SPARK_BARS)..];
    let longest = shown.iter().map(|bar| bar.duration_ms).max().unwrap_or(0).max(1);
    let height = |bar: &Bar| (bar.duration_ms * 20 / longest).max(2);
    let path = |result: BarResult| {
        let own = shown.iter().enumerate().filter(|(_, bar)| bar.result == result);
        own.fold(String::new(), |path, (at, bar)| {
            let height = height(bar);
            format!("{path}M{} {SPARK_HEIGHT}v-{height}h6v{height}z", at * 8)
        })
    };
    html! {
        svg class="spark" width="96" height="22" role="img" aria-label=(spark_label(card)) {
            @for result in [BarResult::Passed, BarResult::Failed, BarResult::Interrupted, BarResult::Running] {
                @let path = path(result);
                @if !path.is_empty() { path class=(bar_class(result)) d=(path) {} }
            }
        }
    }
}

fn spark_label(card: &RunCard) -> String {
    let failed = card.bars.iter().filter(|bar| bar.result == BarResult::Failed).count();
    let iterations = plural(card.bars.len(), "iteration");
    match (failed, card.checks) {
        (0, None) => format!("{iterations}, no checks"),
        (0, Some(_)) => format!("{iterations}, none failed"),
        _ => format!("{iterations}, {failed} failed"),
    }
}

pub(crate) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// `1 story`, `2 stories`.
pub(crate) fn plural(count: usize, word: &str) -> String {
    match (count, word.strip_suffix('y')) {
        (1, _) => format!("1 {word}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {word}s"),
    }
}

/// A time that the script keeps counting. `minutes` leaves out seconds.
pub(crate) fn ticking(text: &str, since_ms: Option<i64>, minutes: bool) -> Markup {
    let unit = if minutes { "m" } else { "s" };
    html! {
        @if let Some(since) = since_ms {
            span data-since=(since) data-unit=(unit) { (text) }
        } @else { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_counts_are_words() {
        for (seconds, expected) in
            [(5, "just now"), (300, "5 min ago"), (7200, "2 h ago"), (200_000, "2 days ago")]
        {
            assert_eq!(ago_text(0, seconds * 1000), expected);
        }
        assert_eq!(plural(1, "story"), "1 story");
        assert_eq!(plural(2, "story"), "2 stories");
        assert_eq!(plural(0, "commit"), "0 commits");
    }
}
