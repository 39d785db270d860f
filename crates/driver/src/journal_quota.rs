//! How much agent output goes into the journal.
//!
//! A flooding agent must not fill the disk. A run has a quota for agent output; an iteration may use a quarter of
//! the rest, and always a minimum, so that one flood does not silence all later ones. Omitted output is counted,
//! and its end is kept.
//!
//! Events that decide something are never omitted: ralph's own, and usage.

use std::borrow::Cow;
use std::collections::VecDeque;

use ralph_events::event::{Event, Usage};

const MIN_ITERATION_BYTES: u64 = 4 * 1024;
/// The end of omitted output that is kept.
const TAIL_BYTES: u64 = 4 * 1024;
/// The longest recorded agent event. Escaped JSON is up to six times as long, and readers refuse longer lines
/// (`events::journal::MAX_LINE`).
pub const MAX_EVENT: u64 = 8 * 1024 * 1024;
/// Approximate size of an event without its text.
const EVENT_OVERHEAD: u64 = 32;

#[derive(Debug, Default)]
pub struct JournalQuota {
    /// What is left for the run.
    run: u64,
    /// The limit of the iteration, and what it has used. Events that reports need may use as much again.
    iteration: u64,
    spent: u64,
    omitted: Omitted,
    tail: VecDeque<Event<'static>>,
    tail_bytes: u64,
    /// Highest recorded usage of the running agent.
    used: Usage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    pub events: u64,
    pub bytes: u64,
}

impl Omitted {
    fn event(self) -> Event<'static> {
        Event::OutputOmitted { events: self.events, bytes: self.bytes }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum QuotaDecision {
    /// Recorded. `agents`: report its size with `record_bytes`.
    Keep { agents: bool },
    /// Omitted, perhaps with an event that says so.
    Omit(Option<Box<Event<'static>>>),
}

enum EventClass {
    /// ralph's own, or an event that decides something.
    Ralph,
    Agent,
    /// Needed by reports.
    Required,
    Usage(Usage),
}

impl JournalQuota {
    pub fn new(run: u64) -> Self {
        JournalQuota { run, iteration: iteration_share(run), ..JournalQuota::default() }
    }

    pub fn decide(&mut self, event: &Event<'_>) -> QuotaDecision {
        let limit = match kind(event) {
            EventClass::Ralph => {
                match event {
                    Event::IterationStarted { .. } => {
                        (self.iteration, self.spent) = (iteration_share(self.run), 0);
                    }
                    Event::AgentStarted { .. } => self.used = Usage::default(),
                    _ => {}
                }
                return QuotaDecision::Keep { agents: false };
            }
            EventClass::Usage(usage) if self.spent < self.iteration || self.is_news(&usage) => {
                self.used = usage;
                return QuotaDecision::Keep { agents: true };
            }
            // The next usage event repeats it.
            EventClass::Usage(_) => return QuotaDecision::Omit(None),
            EventClass::Agent => self.iteration,
            EventClass::Required => self.iteration.saturating_mul(2),
        };
        if estimated_bytes(event) <= limit.saturating_sub(self.spent).min(MAX_EVENT) {
            return QuotaDecision::Keep { agents: true };
        }
        let is_first = self.omitted.events == 0;
        self.omit(event);
        QuotaDecision::Omit(match event {
            Event::Result { usage: Some(usage), .. } if self.is_news(usage) => {
                self.used = *usage;
                Some(Box::new(Event::Usage(*usage)))
            }
            _ => is_first.then(|| Box::new(self.omitted.event())),
        })
    }

    pub fn record_bytes(&mut self, bytes: usize) {
        self.run = self.run.saturating_sub(bytes as u64);
        self.spent = self.spent.saturating_add(bytes as u64);
    }

    /// Events to record before the agent's end: the omission and its tail.
    pub fn finish_agent(&mut self) -> Vec<Event<'static>> {
        let Omitted { events, bytes } = std::mem::take(&mut self.omitted);
        if events == 0 {
            return Vec::new();
        }
        let tail = std::mem::take(&mut self.tail);
        let kept: u64 = tail.iter().map(payload_bytes).sum();
        self.tail_bytes = 0;
        let left_out = Omitted {
            events: events.saturating_sub(tail.len() as u64),
            bytes: bytes.saturating_sub(kept),
        };
        std::iter::once(left_out.event()).chain(tail).collect()
    }

    /// Returns whether usage has grown noticeably since it was last recorded; this bounds the number of records.
    fn is_news(&self, usage: &Usage) -> bool {
        let (before, now) = (self.used.total_tokens(), usage.total_tokens());
        let cost = |usage: &Usage| usage.cost_usd.unwrap_or(0.0);
        now > before.saturating_add(before / 64) || cost(usage) > cost(&self.used) * (65.0 / 64.0)
    }

    fn omit(&mut self, event: &Event<'_>) {
        self.omitted.events += 1;
        self.omitted.bytes = self.omitted.bytes.saturating_add(payload_bytes(event));
        if let Some(event) = tail_event(event) {
            self.tail_bytes += estimated_bytes(&event);
            self.tail.push_back(event);
        }
        while self.tail_bytes > TAIL_BYTES
            && let Some(first) = self.tail.pop_front()
        {
            self.tail_bytes -= estimated_bytes(&first);
        }
    }
}

fn iteration_share(run: u64) -> u64 {
    (run / 4).max(MIN_ITERATION_BYTES)
}

fn kind(event: &Event<'_>) -> EventClass {
    match event {
        Event::Text { .. }
        | Event::Thinking { .. }
        | Event::Output { .. }
        | Event::Notice { .. }
        | Event::ToolStarted { .. }
        | Event::ToolEnded { denied: false, .. } => EventClass::Agent,
        Event::ToolEnded { denied: true, .. }
        | Event::Session { .. }
        | Event::Todo { .. }
        | Event::Retracted { .. }
        | Event::BackgroundTasks { .. }
        | Event::Result { .. } => EventClass::Required,
        Event::Usage(usage) => EventClass::Usage(*usage),
        _ => EventClass::Ralph,
    }
}

fn estimated_bytes(event: &Event<'_>) -> u64 {
    payload_bytes(event) + EVENT_OVERHEAD
}

fn payload_bytes(event: &Event<'_>) -> u64 {
    let of = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
    let bytes = match event {
        Event::Text { text, .. }
        | Event::Thinking { text, .. }
        | Event::Output { text, .. }
        | Event::Notice { text } => text.len(),
        Event::ToolStarted { id, name, summary, edit, .. } => {
            let edit = edit.as_ref().map_or(0, |edit| edit.old.len() + edit.new.len());
            id.len() + name.len() + summary.len() + edit
        }
        Event::ToolEnded { id, name, preview, .. } => id.len() + name.len() + preview.len(),
        Event::Session { id, model } => of(id) + of(model),
        Event::Todo { items } => items.iter().map(|item| item.text.len() + 16).sum(),
        Event::Retracted { reason } => reason.len(),
        Event::Result { failure: Some(failure), .. } => failure.message.len(),
        _ => 0,
    };
    bytes as u64
}

/// An owned copy for the tail; of a long text only its end.
fn tail_event(event: &Event<'_>) -> Option<Event<'static>> {
    let end = |text: &str| -> Cow<'static, str> {
        let from = text.len().saturating_sub((TAIL_BYTES - EVENT_OVERHEAD) as usize);
        text[text.ceil_char_boundary(from)..].to_owned().into()
    };
    Some(match event {
        Event::Text { text, joined, subagent } => {
            Event::Text { text: end(text), joined: *joined, subagent: *subagent }
        }
        Event::Thinking { text, joined, subagent } => {
            Event::Thinking { text: end(text), joined: *joined, subagent: *subagent }
        }
        Event::Output { stream, text, joined } => {
            Event::Output { stream: *stream, text: end(text), joined: *joined }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ralph_events::event::{Failure, FailureKind, FileEdit, Purpose, Stream};
    use ralph_events::journal::{LineEncoder, MAX_LINE, entries};

    const ROOM: u64 = 1024 * 1024;

    fn record(ration: &mut JournalQuota, event: &Event<'static>, out: &mut Vec<Event<'static>>) {
        match ration.decide(event) {
            QuotaDecision::Keep { agents } => {
                if agents {
                    ration.record_bytes(usize::try_from(estimated_bytes(event)).unwrap() + 60);
                }
                out.push(event.clone());
            }
            QuotaDecision::Omit(told) => out.extend(told.map(|event| *event)),
        }
    }

    fn iteration(ration: &mut JournalQuota, events: &[Event<'static>]) -> Vec<Event<'static>> {
        let mut out = Vec::new();
        record(ration, &Event::IterationStarted { max_iterations: 9 }, &mut out);
        let started = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
        record(ration, &started, &mut out);
        events.iter().for_each(|event| record(ration, event, &mut out));
        out.extend(ration.finish_agent());
        out.drain(..2);
        out
    }

    fn said(text: &str) -> Event<'static> {
        Event::Text { text: text.to_owned().into(), joined: false, subagent: false }
    }

    #[test]
    fn journal_quota_counts_text_of_edits() {
        let call = |edit| Event::ToolStarted {
            id: "".into(),
            name: "".into(),
            summary: "".into(),
            edit,
            subagent: false,
        };
        let edit = FileEdit { old: "abc".to_owned(), new: "de".to_owned(), ..FileEdit::default() };
        assert_eq!(payload_bytes(&call(Some(Box::new(edit)))), payload_bytes(&call(None)) + 5);
    }

    #[test]
    fn journal_quota_keeps_only_end_of_oversized_event() {
        let long = "x".repeat(usize::try_from(MAX_EVENT).unwrap());
        let mut ration = JournalQuota::new(u64::MAX);
        let kept = iteration(&mut ration, &[said(&long), said("after")]);
        assert_eq!(kept[1], said("after"));
        let [Event::OutputOmitted { .. }, _, Event::OutputOmitted { .. }, Event::Text { text, .. }] =
            &kept[..]
        else {
            panic!("{} events", kept.len())
        };
        assert!(text.len() < 20_000 && long.ends_with(&**text));
    }

    #[test]
    fn journal_quota_maximum_event_fits_journal_line() {
        let long = "\u{1}".repeat(usize::try_from(MAX_EVENT).unwrap());
        let at =
            ralph_events::event::Stamp { time_ms: 1_794_774_472_123, iteration: 1, attempt: 1 };
        let mut lines = LineEncoder::default();
        lines.push(at, &said(&long));
        assert!(lines.bytes().len() > MAX_LINE / 2 && lines.bytes().len() < MAX_LINE);
        assert_eq!(entries(lines.bytes()).count(), 1);
    }

    fn flood(bytes: usize) -> Vec<Event<'static>> {
        (0..bytes / 100).map(|n| said(&format!("{n:099}"))).collect()
    }

    fn size(events: &[Event<'_>]) -> u64 {
        events.iter().map(estimated_bytes).sum()
    }

    #[test]
    fn journal_quota_keeps_events_that_fit() {
        let mut ration = JournalQuota::new(ROOM);
        let events = flood(100_000);
        assert_eq!(iteration(&mut ration, &events), events);
    }

    #[test]
    fn journal_quota_keeps_start_and_end_of_flood() {
        let mut ration = JournalQuota::new(ROOM);
        let events = flood(10_000_000);
        let out = iteration(&mut ration, &events);
        assert!(size(&out) < ROOM / 2, "{}", size(&out));
        assert_eq!((out.first(), out.last()), (events.first(), events.last()));
        let told: Vec<(u64, u64)> = out
            .iter()
            .filter_map(|event| match event {
                Event::OutputOmitted { events, bytes } => Some((*events, *bytes)),
                _ => None,
            })
            .collect();
        assert_eq!(told.len(), 2, "at the start and the end: {told:?}");
        let bytes: u64 = events.iter().map(payload_bytes).sum();
        assert!(told.last().unwrap().1 < bytes, "not more than there was: {told:?}");
        let kept = (out.len() - told.len()) as u64;
        assert_eq!(
            told.last().unwrap().0 + kept,
            events.len() as u64,
            "nothing is unaccounted for"
        );
    }

    #[test]
    fn journal_quota_keeps_minimum_per_iteration_and_bounds_total() {
        let mut ration = JournalQuota::new(ROOM);
        let mut total = 0;
        for nth in 0..200 {
            let out = iteration(&mut ration, &flood(1_000_000));
            assert!(size(&out) >= MIN_ITERATION_BYTES / 2, "{nth}: {}", size(&out));
            total += size(&out);
        }
        assert!(total < ROOM + 200 * 4 * MIN_ITERATION_BYTES, "{total}");
    }

    #[test]
    fn journal_quota_keeps_recent_usage_during_flood() {
        let mut ration = JournalQuota::new(0);
        let used = |tokens| Event::Usage(Usage { input_tokens: tokens, ..Usage::default() });
        let events: Vec<Event<'static>> =
            (0..100_000).flat_map(|n| [said("blah blah"), used(n)]).collect();
        let out = iteration(&mut ration, &events);
        let told: Vec<u64> = out
            .iter()
            .filter_map(|event| match event {
                Event::Usage(usage) => Some(usage.input_tokens),
                _ => None,
            })
            .collect();
        assert!(told.len() < 1500, "{}", told.len());
        assert!(*told.last().unwrap() > 98_000, "{:?}", told.last());
    }

    #[test]
    fn journal_quota_keeps_end_of_single_long_line() {
        let mut ration = JournalQuota::new(ROOM);
        let long = format!("{}é the end", "日本".repeat(1_000_000));
        let out = iteration(&mut ration, &[said(&long)]);
        assert!(size(&out) < 2 * TAIL_BYTES, "{}", size(&out));
        let Some(Event::Text { text, .. }) = out.last() else { panic!("{out:?}") };
        assert!(text.ends_with("本é the end"));
    }

    #[test]
    fn journal_quota_keeps_usage_of_omitted_result() {
        let mut ration = JournalQuota::new(0);
        let message = "x".repeat(100_000);
        let failure = Some(Failure { kind: FailureKind::Other, message, resets_at: None });
        let used = |cost| Usage { cost_usd: Some(cost), ..Usage::default() };
        let result =
            |cost| Event::Result { failure: failure.clone(), usage: Some(used(cost)), turns: None };
        let told = |verdict| match verdict {
            QuotaDecision::Omit(told) => told.map(|event| *event),
            QuotaDecision::Keep { .. } => panic!("there is no room"),
        };
        assert_eq!(told(ration.decide(&result(1.0))), Some(Event::Usage(used(1.0))));
        // One record is enough.
        assert_eq!(told(ration.decide(&result(1.0))), None);
        assert_eq!(told(ration.decide(&result(2.0))), Some(Event::Usage(used(2.0))));
        assert!(matches!(ration.finish_agent()[..], [Event::OutputOmitted { events: 3, .. }]));
    }

    proptest! {
        #[test]
        fn journal_quota_counts_every_omitted_event(
            room in 0_u64..200_000,
            lengths in proptest::collection::vec(0_usize..30_000, 0..60),
        ) {
            let mut ration = JournalQuota::new(room);
            let events: Vec<Event<'static>> = lengths
                .iter()
                .map(|length| Event::Output {
                    stream: Stream::Stdout,
                    text: "x".repeat(*length).into(),
                    joined: false,
                })
                .collect();
            let out = iteration(&mut ration, &events);
            let left_out = out.iter().rev().find_map(|event| match event {
                Event::OutputOmitted { events, .. } => Some(*events),
                _ => None,
            });
            let kept = out.iter().filter(|event| matches!(event, Event::Output { .. })).count();
            prop_assert_eq!(left_out.unwrap_or(0) + kept as u64, events.len() as u64);
        }
    }
}
