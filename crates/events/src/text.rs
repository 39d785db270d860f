//! Text helpers.

use std::borrow::Cow;

/// The first `max` characters of `text`, never splitting one.
pub fn prefix(text: &str, max: usize) -> &str {
    let mut rest = text.chars();
    if let Some(last) = max.checked_sub(1) {
        rest.nth(last);
    }
    &text[..text.len() - rest.as_str().len()]
}

/// The last `max` characters of `text`, never splitting one.
pub fn suffix(text: &str, max: usize) -> &str {
    let start = max.checked_sub(1).map_or(Some(text.len()), |last| {
        text.char_indices().nth_back(last).map(|(start, _)| start)
    });
    &text[start.unwrap_or(0)..]
}

/// The first `max` characters, followed by `mark` if anything was cut off.
pub fn truncate<'a>(text: &'a str, max: usize, mark: &str) -> Cow<'a, str> {
    let head = prefix(text, max);
    if head.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(format!("{head}{mark}")) }
}

/// The first line that is not blank, trimmed.
pub fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

/// A duration for people: `850ms`, `4.2s`, `6m7s`, `1h2m`.
pub fn format_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A duration where minutes are enough: `12s`, `22m`, `1h51m`, `2d4h`.
pub fn format_minutes(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        seconds => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A count for people: `950`, `45K`, `1.2M`.
pub fn format_count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format_scaled(n, 1_000, 'K'),
        1_000_000..1_000_000_000 => format_scaled(n, 1_000_000, 'M'),
        _ => format_scaled(n, 1_000_000_000, 'G'),
    }
}

fn format_scaled(n: u64, unit: u64, suffix: char) -> String {
    let tenths = n / (unit / 10);
    if tenths >= 100 || tenths.is_multiple_of(10) {
        format!("{}{suffix}", n / unit)
    } else {
        format!("{}.{}{suffix}", tenths / 10, tenths % 10)
    }
}

/// US dollars; small sums keep enough digits to differ from zero.
pub fn format_dollars(usd: f64) -> String {
    if usd == 0.0 || usd >= 0.01 { format!("${usd:.2}") } else { format!("${usd:.4}") }
}

/// `a, b and 3 more`.
pub fn first_few<T: AsRef<str>>(items: &[T], max: usize) -> String {
    let shown: Vec<&str> = items.iter().take(max).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match items.len().saturating_sub(max) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_counts_characters_and_marks_only_cuts() {
        assert_eq!(truncate("héllo", 2, "…"), "hé…");
        assert_eq!(truncate("héllo", 5, "…"), "héllo");
        assert_eq!(truncate("", 0, "…"), "");
        let long = "aé日😀".repeat(100);
        for max in 0..=400 {
            let end = long.char_indices().nth(max).map_or(long.len(), |(end, _)| end);
            assert_eq!(prefix(&long, max), &long[..end], "{max}");
            let start = long.char_indices().nth(400 - max).map_or(long.len(), |(start, _)| start);
            assert_eq!(suffix(&long, max), &long[start..], "{max}");
        }
        assert_eq!((suffix("é", 2), suffix("", 1)), ("é", ""));
    }

    #[test]
    fn durations_counts_and_costs_are_formatted() {
        for (ms, text) in [(0, "0ms"), (4_250, "4.2s"), (367_000, "6m7s"), (3_720_000, "1h2m")] {
            assert_eq!(format_duration(ms), text);
        }
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1K"),
            (1_234, "1.2K"),
            (45_000, "45K"),
            (1_200_000, "1.2M"),
        ] {
            assert_eq!(format_count(n), text);
        }
        assert_eq!(format_dollars(5.76), "$5.76");
        assert_eq!(format_dollars(0.000_868), "$0.0009");
    }
}
