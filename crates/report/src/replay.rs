use super::{Recorded, Reporter};
use ralph_events::event::Entry;
use ralph_events::json_writer;
use ralph_events::run_state::RunState;

const BATCH: usize = 256;

/// Passes a journal's events to a view, as the run did.
pub fn replay(entries: impl Iterator<Item = Entry<'static>>, reporter: &mut dyn Reporter) {
    let mut run = RunState::live();
    for (number, entry) in entries.enumerate() {
        run.apply(&entry);
        if let Ok(line) = json_writer::compact(&entry) {
            let (at, event, line) = (entry.at, &entry.event, line.as_bytes());
            reporter.event(Recorded { at, event, line, run: &run });
        }
        if (number + 1) % BATCH == 0 {
            reporter.flush();
        }
    }
    reporter.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonReporter;
    use crate::output::tests::Sink;
    use ralph_events::journal;

    #[test]
    fn journal_reader_agrees_with_serde() {
        for line in include_str!("testdata/run.jsonl").lines() {
            let whole: Option<Entry<'static>> = serde_json::from_str(line).ok();
            for end in 0..=line.len() {
                let torn = &line.as_bytes()[..end];
                let expected = if end == line.len() { whole.clone() } else { None };
                assert_eq!(journal::entries(torn).next(), expected, "{torn:?}");
            }
        }
    }

    #[test]
    fn json_replay_equals_journal() {
        let journal = include_str!("testdata/run.jsonl");
        let sink = Sink::default();
        let entries = journal.lines().map(|line| serde_json::from_str(line).unwrap());
        replay(entries, &mut JsonReporter::new(sink.output()));
        assert_eq!(sink.text(), journal);
    }
}
