//! Times of day in a zone.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// `None` if the time is out of range.
pub(crate) fn local_time(ms: i64, zone: &TimeZone) -> Option<DateTime> {
    Some(zone.to_datetime(jiff::Timestamp::from_millisecond(ms).ok()?))
}

/// Formats a time like `strftime`; `-` if it is out of range.
pub(crate) fn format_local(ms: i64, zone: &TimeZone, format: &str) -> String {
    local_time(ms, zone).map_or_else(|| "-".to_owned(), |time| time.strftime(format).to_string())
}
