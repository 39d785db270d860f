//! Charts as SVG with attributes only: the content policy allows no inline style. Positions across are percentages, so
//! that text keeps its size.

use jiff::tz::TimeZone;
use maud::{Markup, html};
use ralph_events::text;
use ralph_report::overview::Overview;
use ralph_report::run_card::{Bar, RunCard};

use super::signs::{CheckedIterations, bar_class, clock};

/// A value axis with round steps.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    top: f64,
    steps: Vec<f64>,
}

/// At most four lines: 1, 2, 2.5 or 5 times a power of ten.
fn axis(highest: f64) -> Axis {
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let magnitude = 10f64.powf((highest / 4.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = step.into_iter().find(|step| highest / step <= 3.2).unwrap_or(10.0 * magnitude);
    let steps = (0..=3).map(|at| f64::from(at) * step).filter(|it| *it <= highest * 1.02).collect();
    Axis { top: highest * 1.08, steps }
}

/// Minutes get steps of minutes.
fn time_axis(highest_ms: f64) -> Axis {
    const STEPS_S: [f64; 14] = [
        1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0,
    ];
    let highest = (highest_ms / 1000.0).max(1.0);
    let step = STEPS_S
        .into_iter()
        .find(|step| highest / step <= 3.2)
        .unwrap_or_else(|| (highest / 3.0 / 3600.0).ceil() * 3600.0);
    let steps = (0..=3).map(|at| f64::from(at) * step).filter(|it| *it <= highest * 1.02);
    Axis { top: highest * 1080.0, steps: steps.map(|seconds| seconds * 1000.0).collect() }
}

fn dollars(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        whole if whole.fract() == 0.0 => format!("${whole:.0}"),
        _ => format!("${value:.2}"),
    }
}

fn short_duration(ms: f64) -> String {
    match ms / 1000.0 {
        0.0 => "0".to_owned(),
        seconds if seconds < 60.0 => format!("{seconds:.0}s"),
        seconds if seconds < 3600.0 => format!("{:.0}m", seconds / 60.0),
        seconds => format!("{:.0}h", seconds / 3600.0),
    }
}

/// The height of a value on the page, counted from above.
struct Scale {
    base: f64,
    height: f64,
    top: f64,
}

impl Scale {
    fn y(&self, value: f64) -> f64 {
        self.base - self.height * (value / self.top).clamp(0.0, 1.0)
    }
}

fn grid(scale: &Scale, axis: &Axis, label: impl Fn(f64) -> String) -> Markup {
    html! {
        @for step in &axis.steps {
            @let y = scale.y(*step);
            line class="gl" x1="0%" x2="100%" y1=(px(y)) y2=(px(y)) {}
            text x="-8" y=(px(y + 4.0)) text-anchor="end" { (label(*step)) }
        }
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

struct Column {
    value: f64,
    class: &'static str,
    label: Option<String>,
    title: String,
}

/// Vertical bars, with gaps of about their own width.
fn columns(
    columns: &[Column],
    axis: &Axis,
    height: u32,
    label: &str,
    unit: fn(f64) -> String,
) -> Markup {
    let base = f64::from(height) - 20.0;
    let scale = Scale { base, height: base - 12.0, top: axis.top };
    let width = (100.0 / columns.len().max(1) as f64).min(12.0);
    html! {
        svg class="chart" height=(height) role="img" aria-label=(label) {
            (grid(&scale, axis, unit))
            @for (at, column) in columns.iter().enumerate() {
                @let (x, y) = (at as f64 * width, scale.y(column.value));
                @let y = if column.value > 0.0 { y.min(base - 1.0) } else { base };
                rect class=(column.class) x=(percent(x + width * 0.26)) width=(percent(width * 0.48)) y=(px(y)) height=(px(base - y)) {
                    title { (column.title) }
                }
                @if let Some(label) = &column.label {
                    text x=(percent(x + width / 2.0)) y=(height - 5) text-anchor="middle" { (label) }
                }
            }
        }
    }
}

pub(crate) fn cost_per_day(overview: &Overview) -> Markup {
    let days = &overview.cost_per_day;
    let highest = days.iter().max_by(|a, b| a.usd.total_cmp(&b.usd));
    let Some(highest) = highest.filter(|day| day.usd > 0.0) else { return html! {} };
    let label = format!(
        "Cost per day for {} days. Today: {}. Highest: {} on {}.",
        days.len(),
        text::format_dollars(overview.today_usd),
        text::format_dollars(highest.usd),
        highest.name(),
    );
    let last = days.len().saturating_sub(1);
    let bars: Vec<Column> = days
        .iter()
        .enumerate()
        .map(|(at, day)| Column {
            value: day.usd,
            class: if at == last { "n" } else { "p" },
            label: (at == 0 || at == last || at == last / 2).then(|| day.day.to_string()),
            title: format!("{}: {}", day.name(), text::format_dollars(day.usd)),
        })
        .collect();
    html! {
        div class="mon" {
            h2 { "Cost per day" }
            figure { (columns(&bars, &axis(highest.usd), 120, &label, dollars)) }
            details class="plain" id="days" {
                summary { "Show as a table" }
                table class="tbl" {
                    thead { tr { th scope="col" { "Day" } th scope="col" { "Cost" } } }
                    tbody {
                        @for day in days.iter().rev() {
                            tr { td { (day.name()) } td { (text::format_dollars(day.usd)) } }
                        }
                    }
                }
            }
        }
    }
}

/// More iterations than this do not get a number each.
const MAX_NUMBERS: usize = 15;
const MAX_COLUMNS: usize = 120;

fn iteration_columns(
    bars: &[Bar],
    checked: &CheckedIterations,
    value: fn(&Bar) -> f64,
    unit: fn(f64) -> String,
) -> Vec<Column> {
    let bars = &bars[bars.len().saturating_sub(MAX_COLUMNS)..];
    let every = bars.len().div_ceil(MAX_NUMBERS).max(1);
    let column = |(at, bar): (usize, &Bar)| Column {
        value: value(bar),
        class: bar_class(bar.result),
        label: at.is_multiple_of(every).then(|| bar.iteration.to_string()),
        title: format!("iteration {}: {}, {}", bar.iteration, unit(value(bar)), checked.word(bar)),
    };
    bars.iter().enumerate().map(column).collect()
}

pub(crate) fn time_per_iteration(card: &RunCard, checked: &CheckedIterations) -> Markup {
    let Some(longest) = card.bars.iter().max_by_key(|bar| bar.duration_ms) else {
        return html! {};
    };
    let label = format!(
        "Time per iteration. Longest: iteration {}, {}.",
        longest.iteration,
        text::format_duration(longest.duration_ms)
    );
    let exact = |ms: f64| text::format_duration(ms as u64);
    let bars = iteration_columns(&card.bars, checked, |bar| bar.duration_ms as f64, exact);
    columns(&bars, &time_axis(longest.duration_ms as f64), 132, &label, short_duration)
}

fn bar_usd(bar: &Bar) -> f64 {
    bar.cost.usd().unwrap_or(0.0)
}

pub(crate) fn cost_per_iteration(card: &RunCard, checked: &CheckedIterations) -> Markup {
    let highest = card.bars.iter().max_by(|a, b| bar_usd(a).total_cmp(&bar_usd(b)));
    let Some(highest) = highest.filter(|bar| bar_usd(bar) > 0.0) else { return html! {} };
    let label = format!(
        "Cost per iteration. Highest: iteration {}, {}.",
        highest.iteration,
        text::format_dollars(bar_usd(highest))
    );
    let bars = iteration_columns(&card.bars, checked, bar_usd, text::format_dollars);
    columns(&bars, &axis(bar_usd(highest)), 132, &label, dollars)
}

/// The sum after each iteration, against the budget.
pub(crate) fn cumulative(card: &RunCard, now_ms: i64, zone: &TimeZone) -> Markup {
    const HEIGHT: f64 = 190.0;
    let total = card.cost.usd().unwrap_or(0.0);
    let Some(start) = card.started_ms.filter(|_| total > 0.0) else { return html! {} };
    let end = card.ended_ms.unwrap_or(now_ms).max(start + 1);
    // Room for the label of the last point.
    let across = (end - start) as f64 / 0.93;
    let x = |ms: i64| ((ms - start) as f64 / across * 100.0).clamp(0.0, 100.0);
    let highest = card.budget_usd.unwrap_or(0.0).max(total);
    let axis = axis(highest);
    let scale = Scale { base: HEIGHT - 22.0, height: HEIGHT - 40.0, top: axis.top };
    let mut sum = 0.0;
    let mut points = vec![(0.0, 0.0)];
    for bar in &card.bars {
        sum += bar_usd(bar);
        points.push((x(bar.ended_ms.clamp(start, end)), sum));
    }
    points.push((x(end), total));
    let last = x(end);
    let label = match card.budget_usd {
        Some(budget) => format!(
            "Cumulative cost: {} after {}, of a budget of {}.",
            text::format_dollars(total),
            card.elapsed(),
            text::format_dollars(budget)
        ),
        None => {
            format!("Cumulative cost: {} after {}.", text::format_dollars(total), card.elapsed())
        }
    };
    html! {
        svg class="chart" height=(HEIGHT) role="img" aria-label=(label) {
            (grid(&scale, &axis, dollars))
            @if let Some(budget) = card.budget_usd {
                @let y = scale.y(budget);
                line class="cap" x1="0%" x2="100%" y1=(px(y)) y2=(px(y)) {}
                text class="ct" x="100%" y=(px(y - 6.0)) text-anchor="end" { "budget " (text::format_dollars(budget)) }
            }
            @for pair in points.windows(2) {
                @let ((x1, v1), (x2, v2)) = (pair[0], pair[1]);
                @let (y1, y2) = (scale.y(v1), scale.y(v2));
                rect class="ar" x=(percent(x1)) width=(percent((x2 - x1).max(0.0))) y=(px(y1)) height=(px(scale.base - y1)) {}
                line class="st" x1=(percent(x1)) x2=(percent(x2)) y1=(px(y1)) y2=(px(y1)) {}
                line class="st" x1=(percent(x2)) x2=(percent(x2)) y1=(px(y1)) y2=(px(y2)) {}
            }
            circle class="pt" cx=(percent(last)) cy=(px(scale.y(total))) r="4" {}
            text class="bt" x=(percent(last - 1.0)) y=(px(scale.y(total) - 9.0)) text-anchor="end" { (text::format_dollars(total)) }
            text x="0%" y=(HEIGHT - 5.0) text-anchor="start" { (clock(start, zone)) }
            text x=(percent(last / 2.0)) y=(HEIGHT - 5.0) text-anchor="middle" { (clock(start + (end - start) / 2, zone)) }
            text x=(percent(last)) y=(HEIGHT - 5.0) text-anchor="end" { (clock(end, zone)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps_below_the_highest_value() {
        for (highest, expected) in [
            (10.0, vec![0.0, 5.0, 10.0]),
            (31.0, vec![0.0, 10.0, 20.0, 30.0]),
            (0.72, vec![0.0, 0.25, 0.5]),
            (4.37, vec![0.0, 2.0, 4.0]),
            (0.0, vec![0.0, 0.5, 1.0]),
        ] {
            let steps = axis(highest).steps;
            assert_eq!(steps.len(), expected.len(), "{highest}: {steps:?}");
            for (step, expected) in steps.iter().zip(expected) {
                assert!((step - expected).abs() < 1e-9, "{highest}: {steps:?}");
            }
        }
        assert_eq!(time_axis(21.8 * 60_000.0).steps, [0.0, 600_000.0, 1_200_000.0]);
    }
}
