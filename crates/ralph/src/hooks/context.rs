//! The context monitor: reports once at each threshold how full the model's context is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use memchr::memmem;
use serde_json::Value;

use ralph_events::text;

/// Percent of the window.
const THRESHOLDS: [u8; 5] = [50, 60, 70, 80, 90];

const DEFAULT_WINDOW: u64 = 200_000;
const LARGE_WINDOW: u64 = 1_000_000;

/// For transcripts without token counts.
const CHARS_PER_TOKEN: u64 = 4;

/// Read more of the end if the last answer is not in it.
const TAIL_SIZES: [u64; 3] = [16 << 10, 512 << 10, 8 << 20];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextUsage {
    tokens: u64,
    window: u64,
}

impl ContextUsage {
    pub(super) fn percent(self) -> u64 {
        self.tokens.saturating_mul(100) / self.window.max(1)
    }

    /// The highest threshold reached that is above `fired`.
    pub(super) fn newly_crossed(self, fired: u8) -> Option<u8> {
        let percent = self.percent();
        let reached = THRESHOLDS.into_iter().rfind(|threshold| u64::from(*threshold) <= percent)?;
        (reached > fired).then_some(reached)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    TaskList,
    Loop,
    Person,
}

/// The text for a threshold: a severity and facts. Models are trained to distrust orders from
/// unknown sources.
pub(super) fn alert(threshold: u8, usage: ContextUsage, audience: Audience) -> String {
    let (severity, room) = match threshold {
        ..70 => ("NOTICE", "The current task has to fit into the rest."),
        70..90 => ("WARNING", "There is room to finish and commit it, not to start another task."),
        90.. => ("CRITICAL", "There is no room for new work, only to wrap up."),
    };
    let consequence = match (audience, severity) {
        (Audience::TaskList, "NOTICE") => {
            " Follow-up work that is added to ralph/tasks.json as a story is picked up by the next \
             iteration."
        }
        (Audience::TaskList, "WARNING") => {
            " The next iteration picks up what remains from the stories in ralph/tasks.json and from \
             the implementation details and insights in ralph/progress.txt."
        }
        (Audience::TaskList, _) => {
            " The next iteration continues from the stories in ralph/tasks.json for what remains, from \
             the implementation details, insights and handoff notes in ralph/progress.txt, and from \
             what is committed; all else is lost when this session ends."
        }
        (Audience::Loop, _) => {
            " The next iteration starts with a fresh context and knows only what is in files and \
             commits."
        }
        (Audience::Person, "NOTICE") => "",
        (Audience::Person, _) => {
            " When it is full, the conversation is summarised, and what is in no file or commit may be \
             lost."
        }
    };
    format!(
        "{severity}: about {}% of the context window is used ({} of {} tokens). {room}{consequence}",
        usage.percent(),
        text::format_count(usage.tokens),
        text::format_count(usage.window)
    )
}

/// Uses the token counts that Claude Code records, or else the file's size.
pub(super) fn context_usage(transcript: &Path, window: Option<u64>) -> io::Result<ContextUsage> {
    // Opening anything else, such as a FIFO, could block.
    let size = match std::fs::metadata(transcript)? {
        meta if meta.is_file() => meta.len(),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let counted = counted_tokens(&mut File::open(transcript)?, size)?;
    let window = window.unwrap_or(match counted {
        Some(tokens) if tokens > DEFAULT_WINDOW => LARGE_WINDOW,
        _ => DEFAULT_WINDOW,
    });
    let tokens = counted.unwrap_or_else(|| (size / CHARS_PER_TOKEN).min(window));
    Ok(ContextUsage { tokens, window })
}

fn counted_tokens(file: &mut (impl Read + Seek), size: u64) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    for tail in TAIL_SIZES {
        let start = size.saturating_sub(tail);
        file.seek(SeekFrom::Start(start))?;
        bytes.clear();
        bytes.reserve(usize::try_from(tail).unwrap_or_default() + 1);
        file.by_ref().take(tail).read_to_end(&mut bytes)?;
        let found = last_usage(&bytes);
        if found.is_some() || start == 0 {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The first line may be incomplete; it does not parse.
fn last_usage(lines: &[u8]) -> Option<u64> {
    let usage = memmem::Finder::new(b"\"usage\"");
    let mut rest = lines;
    while !rest.is_empty() {
        let start = memchr::memrchr(b'\n', rest).map_or(0, |newline| newline + 1);
        let (before, line) = rest.split_at(start);
        if usage.find(line).is_some()
            && let Some(tokens) = usage_of(line)
        {
            return Some(tokens);
        }
        rest = before.strip_suffix(b"\n").unwrap_or(before);
    }
    None
}

fn usage_of(line: &[u8]) -> Option<u64> {
    let line: Value = serde_json::from_slice(line).ok()?;
    // A subagent has its own context.
    if line["type"] != "assistant" || line["isSidechain"] == true {
        return None;
    }
    let counts =
        ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];
    let usage = &line["message"]["usage"];
    let counts = counts.map(|name| usage[name].as_u64().unwrap_or_default());
    let tokens = counts.into_iter().fold(0, u64::saturating_add);
    // Claude Code's own error messages have a usage of zero.
    (tokens > 0).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(tokens: u64) -> ContextUsage {
        ContextUsage { tokens, window: 200_000 }
    }

    fn answer(input: u64, output: u64) -> String {
        format!(
            r#"{{"isSidechain":false,"message":{{"usage":{{"input_tokens":{input},"output_tokens":{output},"cache_read_input_tokens":7,"service_tier":"standard"}}}},"type":"assistant"}}"#
        )
    }

    fn fill_of(content: &[u8]) -> ContextUsage {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        context_usage(file.path(), None).unwrap()
    }

    #[test]
    fn context_alert_reports_highest_new_threshold() {
        for (tokens, fired, expected) in [
            (0, 0, None),
            (99_999, 0, None),
            (100_000, 0, Some(50)),
            (100_000, 50, None),
            (119_999, 50, None),
            (150_000, 0, Some(70)),
            (150_000, 50, Some(70)),
            (150_000, 70, None),
            (180_000, 80, Some(90)),
            (500_000, 0, Some(90)),
            (500_000, 90, None),
            // After compaction.
            (20_000, 90, None),
        ] {
            assert_eq!(of(tokens).newly_crossed(fired), expected, "{tokens} after {fired}");
        }
    }

    #[test]
    fn context_alert_has_severity_and_figures() {
        for (threshold, word) in
            [(50, "NOTICE"), (60, "NOTICE"), (70, "WARNING"), (80, "WARNING"), (90, "CRITICAL")]
        {
            for audience in [Audience::TaskList, Audience::Loop, Audience::Person] {
                let alert = alert(threshold, of(u64::from(threshold) * 2_000), audience);
                assert!(alert.starts_with(&format!("{word}: about {threshold}% of")), "{alert}");
                assert!(alert.contains("of 200K tokens"), "{alert}");
                let names_files = alert.contains("ralph/tasks.json");
                assert_eq!(names_files, audience == Audience::TaskList, "{alert}");
            }
        }
    }

    #[test]
    fn context_fill_prefers_counted_tokens_over_estimate() {
        let filler = format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "x".repeat(300_000));
        let last = answer(1_000, 500);
        for (content, tokens) in [
            (String::new(), 0),
            ("x".repeat(400_000), 100_000),
            // Capped at the window.
            ("x".repeat(1_000_000), 200_000),
            (format!("{last}\n{}\n", "x".repeat(9 << 20)), 200_000),
            (format!("{}\n{last}\n", answer(9_000, 1)), 1_507),
            // Not the last line, far from the end, and without a newline.
            (format!("{last}\n{filler}{filler}"), 1_507),
            (format!("{filler}{last}"), 1_507),
            (
                format!(
                    "{last}\n{}\n{}\n{{\"type\":\"user\",\"message\":{{\"usage\":{{\"input_tokens\":5}}}}}}\n",
                    answer(8, 8).replace("false", "true"),
                    answer(0, 0).replace('7', "0"),
                ),
                1_507,
            ),
        ] {
            let start: String = content.chars().take(80).collect();
            assert_eq!(fill_of(content.as_bytes()), of(tokens), "{start}");
        }
    }

    #[test]
    fn larger_context_window_is_detected_by_counted_tokens() {
        assert_eq!(fill_of(answer(300_000, 0).as_bytes()).window, LARGE_WINDOW);
        assert_eq!(fill_of(&[b'x'; 1_000_000]).window, DEFAULT_WINDOW);
    }

    #[test]
    fn only_end_of_huge_transcript_is_read() {
        struct Counting<T>(T, u64);
        impl<T: Read> Read for Counting<T> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let n = self.0.read(buf)?;
                self.1 += n as u64;
                Ok(n)
            }
        }
        impl<T: Seek> Seek for Counting<T> {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.0.seek(to)
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let size = 100 << 20;
        file.as_file().set_len(size).unwrap();
        let mut counting = Counting(file.reopen().unwrap(), 0);
        assert_eq!(counted_tokens(&mut counting, size).unwrap(), None);
        assert!(counting.1 < 10 << 20, "{} bytes read", counting.1);
    }

    proptest! {
        #[test]
        fn context_fill_never_panics_on_any_transcript(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            fill_of(&bytes);
        }

        #[test]
        fn context_alerts_of_session_only_rise(tokens in proptest::collection::vec(0_u64..400_000, 0..50)) {
            let mut fired = 0;
            let mut told = Vec::new();
            for tokens in tokens {
                if let Some(threshold) = of(tokens).newly_crossed(fired) {
                    told.push(threshold);
                    fired = threshold;
                }
            }
            prop_assert!(told.is_sorted_by(|a, b| a < b));
        }
    }
}
