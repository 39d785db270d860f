use jiff::tz::TimeZone;

use super::CommitSummary;
use crate::time_text::format_local;
use crate::width;
use ralph_events::text;

pub(super) const MAX_FAILURES: usize = 5;

pub(super) fn format_time(ms: i64, zone: &TimeZone) -> String {
    format_local(ms, zone, "%Y-%m-%d %H:%M:%S")
}

pub(super) fn commit_line(commit: &CommitSummary) -> String {
    let gone = if commit.is_unreachable { " (on no branch any more)" } else { "" };
    format!("{} {}{gone}", text::short_commit(&commit.id), commit.subject)
}

/// `1 file`, `2 files`
pub(super) fn count(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// `1,204`
pub(super) fn group_thousands(n: u32) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Starts with a capital and ends with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let text = sanitize(text);
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    let stop = if text.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{}{}{stop}", first.map(String::from).unwrap_or_default(), rest.as_str())
}

/// Breaks a line at spaces; longer words keep their line.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let needed = width::display_width(word) + 1;
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if width::display_width(line) + needed <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns the text on one line, without control sequences.
pub(super) fn sanitize(text: &str) -> String {
    width::one_line(text, 500, "…")
}

/// Returns a line of a program's output, with its indent.
pub(super) fn output_line(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
    format!("{:width$}{}", "", sanitize(line), width = indent.min(20))
}
