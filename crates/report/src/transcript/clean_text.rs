//! Bounded text without control characters.

use ralph_events::control_chars::strip_control_chars;
use ralph_events::text;

/// Clean text of at most `max` characters, and whether it was cut.
pub(super) fn clean(text: &str, max: usize) -> (String, bool) {
    // Control sequences are longer than what remains of them.
    let window = text::prefix(text, max.saturating_mul(4).saturating_add(64));
    let clean = strip_control_chars(window);
    let kept = text::prefix(&clean, max).trim_end_matches('\n');
    let is_cut = window.len() < text.len() || kept.len() < clean.trim_end_matches('\n').len();
    (kept.to_owned(), is_cut)
}
