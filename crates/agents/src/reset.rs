//! Parses when a rate limit ends from an agent's message. Without a zone, times are local.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, ToSpan, Unit, Zoned};

/// `You've hit your limit · resets 8:27pm (UTC)`, or the older `Claude AI usage limit
/// reached|1794774472`.
pub(super) fn claude_reset(text: &str, now: &Zoned) -> Option<i64> {
    if let Some((_, seconds)) = text.rsplit_once("limit reached|") {
        let digits = seconds.split(|c: char| !c.is_ascii_digit()).next();
        return digits?.parse().ok();
    }
    parse_time(text.split_once("resets ")?.1, now)
}

/// `try again at Nov 16th, 2026 12:46 AM.`, `try again at 12:46 AM.` or `try again in 2 days 3
/// hours 5 minutes.`
pub(super) fn codex_reset(text: &str, now: &Zoned) -> Option<i64> {
    if let Some((_, rest)) = text.split_once("try again at ") {
        return parse_time(rest, now);
    }
    retry_after_reset(text, now)
}

/// `Suggested retry after 40s.`, `Your quota will reset after 18h20m51s.`, `Please retry in 12.5s`
/// or `try again in 2 hours`.
pub(super) fn retry_after_reset(text: &str, now: &Zoned) -> Option<i64> {
    const PHRASES: [&str; 4] = ["reset after ", "retry after ", "retry in ", "try again in "];
    let rest = PHRASES.iter().find_map(|phrase| text.split_once(phrase))?.1;
    let words: Vec<&str> = rest.split_whitespace().take(6).collect();
    // The longest prefix that is a duration.
    let span = (1..=words.len()).rev().find_map(|count| {
        let text = words[..count].join(" ");
        text.trim_end_matches(|c: char| !c.is_alphanumeric()).parse::<Span>().ok()
    })?;
    let seconds = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).ok()?;
    // Retrying too early hits the limit again. The cast saturates.
    let seconds = seconds.ceil() as i64;
    (seconds > 0).then(|| now.timestamp().as_second().saturating_add(seconds))
}

/// A time without a date may be this old: its minute has often passed when the message is read, and
/// the next one is a day later.
const PAST_RESET_HOURS: i64 = 1;

/// Parses a clock time, perhaps with a date before it and a zone in parentheses after it. Without a
/// date, the next such time, or one that has just passed.
fn parse_time(text: &str, now: &Zoned) -> Option<i64> {
    let mut month = None;
    let mut day = None;
    let mut year = None;
    let mut time = None;
    let mut zone = None;
    for word in text.split_whitespace().take(8) {
        let word = word.trim_end_matches(['.', ',', ';']);
        let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        if let Some(name) = word.strip_prefix('(') {
            zone = TimeZone::get(name.trim_end_matches(')')).ok();
            break;
        } else if let Some(afternoon) = parse_pm(word) {
            // `12:46 AM` or `8pm`.
            let hour = if number.is_empty() { time.take()? } else { parse_clock(number)? };
            time = Some(twelve_hours(hour, afternoon)?);
        } else if number.contains(':') {
            time = Some(parse_clock(number)?);
        } else if let Some(named) = month_number(word) {
            month = Some(named);
        } else if let Ok(number) = number.parse::<i16>() {
            if number > 31 {
                year = Some(number);
            } else {
                day = Some(i8::try_from(number).ok()?);
            }
        } else if word != "at" {
            break;
        }
    }
    let (hour, minute) = time?;
    let time = Time::new(hour, minute, 0, 0).ok()?;
    let zone = zone.unwrap_or_else(|| now.time_zone().clone());
    let here = now.with_time_zone(zone.clone());
    let at = |date: Date| date.to_datetime(time).to_zoned(zone.clone()).ok();
    let date = |year: i16, month, day| Date::new(year, month, day).ok();
    let over = here.checked_sub(PAST_RESET_HOURS.hours()).ok()?;
    let nearest = |dates: [Option<Date>; 3]| {
        dates.into_iter().flatten().filter_map(at).find(|when| *when > over)
    };
    let when = match (month, day, year) {
        (Some(month), Some(day), Some(year)) => at(date(year, month, day)?)?,
        (Some(month), Some(day), None) => {
            nearest([-1, 0, 1].map(|years| date(here.year() + years, month, day)))?
        }
        _ => nearest([-1, 0, 1].map(|days| here.date().checked_add(days.days()).ok()))?,
    };
    Some(when.timestamp().as_second())
}

fn parse_pm(word: &str) -> Option<bool> {
    let word = word.to_ascii_lowercase();
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    match &word[number.len()..] {
        "am" => Some(false),
        "pm" => Some(true),
        _ => None,
    }
}

fn parse_clock(text: &str) -> Option<(i8, i8)> {
    let (hour, minute) = text.split_once(':').unwrap_or((text, "0"));
    Some((hour.parse().ok()?, minute.parse().ok()?))
}

fn twelve_hours((hour, minute): (i8, i8), afternoon: bool) -> Option<(i8, i8)> {
    (1..=12).contains(&hour).then(|| (hour % 12 + if afternoon { 12 } else { 0 }, minute))
}

fn month_number(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let word = word.to_ascii_lowercase();
    let nth = MONTHS.iter().position(|month| word.starts_with(month))?;
    i8::try_from(nth + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: Option<i64>) -> Option<String> {
        seconds.map(|seconds| {
            let when = jiff::Timestamp::from_second(seconds).unwrap();
            when.to_string()
        })
    }

    #[test]
    fn rate_limit_reset_time_is_parsed_from_message() {
        let now: Zoned = "2026-11-15T18:27:57+01:00[Europe/Vienna]".parse().unwrap();
        for (text, expected) in [
            ("You've hit your limit · resets 8:27pm (UTC)", "2026-11-15T20:27:00Z"),
            ("You've hit your limit · resets 8pm (America/New_York)", "2026-11-16T01:00:00Z"),
            ("You've hit your limit · resets 8pm", "2026-11-15T19:00:00Z"),
            ("limit · resets 6am", "2026-11-16T05:00:00Z"),
            ("limit · resets 6:27pm", "2026-11-15T17:27:00Z"),
            ("limit · resets Nov 15, 6:27pm", "2026-11-15T17:27:00Z"),
            ("limit · resets Nov 14, 6pm", "2027-11-14T17:00:00Z"),
            ("limit · resets Jan 2, 12am", "2027-01-01T23:00:00Z"),
            ("limit · resets Nov 20 at 12:30pm (UTC)", "2026-11-20T12:30:00Z"),
            ("Claude AI usage limit reached|1794774472", "2026-11-15T20:27:52Z"),
        ] {
            assert_eq!(at(claude_reset(text, &now)).as_deref(), Some(expected), "{text}");
        }
        for (text, expected) in [
            ("or try again at Nov 16th, 2026 12:46 AM.", "2026-11-15T23:46:00Z"),
            ("or try again at 7:05 PM.", "2026-11-15T18:05:00Z"),
            ("or try again at 6:27 PM.", "2026-11-15T17:27:00Z"),
            ("or try again in 2 days 3 hours 5 minutes.", "2026-11-17T20:32:57Z"),
        ] {
            assert_eq!(at(codex_reset(text, &now)).as_deref(), Some(expected), "{text}");
        }
        for (text, expected) in [
            ("Suggested retry after 40s.", "2026-11-15T17:28:37Z"),
            ("no capacity. Your quota will reset after 18h20m51s.", "2026-11-16T11:48:48Z"),
            ("Please retry in 12.5s, or not", "2026-11-15T17:28:10Z"),
            ("try again in 2 hours 5 minutes and then some", "2026-11-15T19:32:57Z"),
            ("try again in 1 day.", "2026-11-16T17:27:57Z"),
        ] {
            assert_eq!(at(retry_after_reset(text, &now)).as_deref(), Some(expected), "{text}");
        }
        let midnight: Zoned = "2027-01-01T00:00:02+01:00[Europe/Vienna]".parse().unwrap();
        for text in ["resets 11:59pm", "resets Dec 31, 11:59pm"] {
            assert_eq!(at(claude_reset(text, &midnight)).as_deref(), Some("2026-12-31T22:59:00Z"));
        }
        for text in ["", "retry after ", "retry after a while", "retry in 0s", "retry in -5s"] {
            assert_eq!(retry_after_reset(text, &now), None, "{text}");
        }
        for text in [
            "",
            "resets ",
            "resets soon",
            "resets 25pm",
            "resets Feb 31, 2027 1pm",
            "resets PM",
            "limit reached|x",
            "try again at ",
            "try again in a while",
            "try again in 9999999999999999999 days",
            "try again in 99999999999999999 days",
            "try again in 9223372036854775807 seconds 1 second",
            "resets 99:99",
            "resets (Nowhere/Land)",
        ] {
            assert_eq!(claude_reset(text, &now).or(codex_reset(text, &now)), None, "{text}");
        }
    }
}
