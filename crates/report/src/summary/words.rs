use jiff::tz::TimeZone;

use super::CommitSummary;
use crate::time_text::format_local;
use crate::width;

pub(super) const MAX_FAILURES: usize = 5;

pub(super) fn format_time(ms: i64, zone: &TimeZone) -> String {
    format_local(ms, zone, "%Y-%m-%d %H:%M:%S")
}

pub(super) fn commit_line(commit: &CommitSummary) -> String {
    let gone = if commit.is_unreachable { " (on no branch any more)" } else { "" };
    format!("{} {}{gone}", short_commit_id(&commit.id), commit.subject)
}

pub(super) fn short_commit_id(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Returns the text on one line, without control sequences.
pub(super) fn sanitize(text: &str) -> String {
    width::one_line(text, 300, "…")
}
