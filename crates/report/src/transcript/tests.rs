use super::*;
use crate::sample_events::agent_ended;
use ralph_events::event::{Class, EndCause, Usage};

fn apply(transcript: &mut Transcript, minute: i64, event: Event<'_>) -> Vec<u64> {
    let at = Stamp { time_ms: minute * 60_000, iteration: 1, attempt: 1 };
    let position = u64::try_from(minute).unwrap() * 1000;
    transcript.apply(position, &Entry { at, event })
}

fn text(text: &str, joined: bool) -> Event<'_> {
    Event::Text { text: text.into(), joined, subagent: false }
}

fn tool(id: &'static str) -> Event<'static> {
    Event::ToolStarted {
        id: id.into(),
        name: "Bash".into(),
        summary: "/p/x make".into(),
        edit: None,
        subagent: false,
    }
}

fn tool_ended<'e>(id: &'e str, failed: bool, preview: &'e str) -> Event<'e> {
    Event::ToolEnded {
        id: id.into(),
        name: "Bash".into(),
        failed,
        denied: false,
        lines: 4,
        chars: 9,
        preview: preview.into(),
        subagent: false,
    }
}

#[test]
fn joined_text_and_lines_of_output_stay_one_item() {
    let mut transcript = Transcript::default();
    assert_eq!(apply(&mut transcript, 1, text("I read", false)), [1000]);
    assert_eq!(apply(&mut transcript, 2, text(" the code.", true)), [1000]);
    assert_eq!(apply(&mut transcript, 3, text("Then I write.", false)), [3000]);
    let line = |text: &'static str| Event::Output {
        stream: Stream::Stdout,
        text: text.into(),
        joined: false,
    };
    apply(&mut transcript, 4, line("one"));
    apply(&mut transcript, 5, line("two"));
    let texts: Vec<&str> = transcript
        .items()
        .iter()
        .map(|item| match &item.kind {
            ItemKind::Text { text, .. } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["I read the code.", "Then I write.", "one\ntwo"]);
}

#[test]
fn question_is_shown_once_and_without_tags() {
    let ask = || Event::QuestionAsked { id: "a1".into(), text: "301 or\n302?".into(), story: None };
    let mut transcript = Transcript::default();
    apply(&mut transcript, 1, text("Before.\n<question>301 or 302?</question>\nAfter.", false));
    assert_eq!(apply(&mut transcript, 2, ask()), [1000, 2000]);
    let [said, asked] = transcript.items() else { panic!("{transcript:?}") };
    assert!(matches!(&said.kind, ItemKind::Text { text, .. } if text == "Before.\nAfter."));
    assert!(matches!(&asked.kind, ItemKind::Question { text, .. } if text == "301 or"));

    let mut alone = Transcript::default();
    apply(&mut alone, 1, text("<QUESTION>301 or 302?</question>", false));
    assert_eq!(apply(&mut alone, 2, ask()), [1000]);
    assert!(matches!(alone.items(), [Item { kind: ItemKind::Question { .. }, .. }]));

    let mut both = Transcript::default();
    apply(
        &mut both,
        1,
        text("<question>First?</question> <question>301 or 302?</question>", false),
    );
    let first = Event::QuestionAsked { id: "a0".into(), text: "First?".into(), story: None };
    apply(&mut both, 2, first);
    apply(&mut both, 3, ask());
    let asked = both.items().iter().map(|item| match &item.kind {
        ItemKind::Question { text, .. } => text.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(asked.collect::<Vec<_>>(), ["First?", "301 or"]);

    let mut other = Transcript::default();
    apply(&mut other, 1, text("<question>Else?</question> <question>never closed", false));
    assert_eq!(apply(&mut other, 2, ask()), [2000], "another question");
}

#[test]
fn guidance_that_waits_at_the_end_of_a_run_was_missed() {
    let tell = |id| Event::GuidanceReceived { id, text: "use 301".into(), every: false };
    let mut journal = include_str!("../testdata/run.jsonl").lines();
    let ended = journal.find(|line| line.contains("\"run_ended\"")).unwrap();
    let ended: Entry<'_> = serde_json::from_str(ended).unwrap();
    let mut transcript = Transcript::default();
    apply(&mut transcript, 1, tell(1));
    apply(&mut transcript, 2, Event::GuidanceCleared);
    apply(&mut transcript, 3, tell(2));
    let delivered = Event::GuidanceDelivered { guidance: vec![2], answers: vec![] };
    apply(&mut transcript, 4, delivered);
    apply(&mut transcript, 5, tell(3));
    assert_eq!(apply(&mut transcript, 6, ended.event), [5000, 6000]);
    let missed = |item: &&Item| matches!(item.kind, ItemKind::You { is_missed: true, .. });
    let missed: Vec<u64> = transcript.items().iter().filter(missed).map(|it| it.id).collect();
    assert_eq!(missed, [5000]);
}

#[test]
fn text_of_a_commit_message_is_not_what_the_agent_says() {
    let mut transcript = Transcript::default();
    let started = |purpose| Event::AgentStarted { purpose, pid: 1, argv: Vec::new() };
    apply(&mut transcript, 1, started(Purpose::Work));
    apply(&mut transcript, 2, text("All done.", false));
    apply(&mut transcript, 3, started(Purpose::CommitMessage));
    apply(&mut transcript, 4, text("cart: Fix the total", false));
    apply(&mut transcript, 5, text(", again", true));
    apply(&mut transcript, 6, started(Purpose::Work));
    apply(&mut transcript, 7, text("Next.", false));
    let ids: Vec<u64> = transcript.items().iter().map(|item| item.id).collect();
    assert_eq!(ids, [2000, 7000]);
}

#[test]
fn tool_call_changes_in_place_and_ends_with_its_agent() {
    let mut transcript = Transcript::new("/p");
    apply(&mut transcript, 1, tool("a"));
    apply(&mut transcript, 2, tool("b"));
    assert_eq!(apply(&mut transcript, 3, tool_ended("a", true, "Exit code 2\nno rule")), [1000]);
    assert_eq!(apply(&mut transcript, 4, tool_ended("unknown", false, "")), [0_u64; 0]);
    let tools = |transcript: &Transcript| -> Vec<(ToolStatus, String, String, u64)> {
        let items = transcript.items().iter();
        let tools = items.filter_map(|item| match &item.kind {
            ItemKind::Tool(tool) => {
                Some((tool.status, tool.note.clone(), tool.preview.clone(), tool.lines))
            }
            _ => None,
        });
        tools.collect()
    };
    let failed = (ToolStatus::Failed, "exit code 2, 2m0s".to_owned(), "no rule".to_owned(), 3);
    let running = (ToolStatus::Running, String::new(), String::new(), 0);
    assert_eq!(tools(&transcript), [failed.clone(), running]);
    apply(
        &mut transcript,
        5,
        agent_ended(None, Some(EndCause::Inactivity), Class::TimedOut, Usage::default()),
    );
    let abandoned = (ToolStatus::Abandoned, "not finished".to_owned(), String::new(), 0);
    assert_eq!(tools(&transcript), [failed, abandoned]);
    assert!(!transcript.has_open_items());
    let last = transcript.items().last().unwrap();
    assert!(matches!(&last.kind, ItemKind::Notice { level: Level::Warning, .. }), "{last:?}");
}

#[test]
fn closed_transcript_only_changes_what_it_has() {
    let mut transcript = Transcript::default();
    apply(&mut transcript, 1, tool("a"));
    transcript.close();
    assert_eq!(apply(&mut transcript, 2, text("later", false)), [0_u64; 0]);
    assert_eq!(apply(&mut transcript, 3, tool_ended("a", false, "")), [1000]);
    assert_eq!(transcript.items().len(), 1);
}

#[test]
fn hostile_output_is_clean_and_bounded() {
    let mut transcript = Transcript::default();
    let long = "x".repeat(10 << 20);
    apply(&mut transcript, 1, text("\x1b[31mred\x1b[0m \u{202e}txt.exe\x07", false));
    apply(&mut transcript, 2, text(&long, false));
    for minute in 3..50 {
        apply(&mut transcript, minute, text(&long[..4_000], true));
    }
    apply(&mut transcript, 60, tool("a"));
    apply(&mut transcript, 61, tool_ended("a", false, &long));
    let shown = format!("{:?}", transcript.items());
    assert!(shown.len() < 4 * MAX_TEXT, "{}", shown.len());
    let ItemKind::Text { text, .. } = &transcript.items()[0].kind else { panic!("no text") };
    assert!(text.starts_with("red ") && text.ends_with("txt.exe"), "{text:?}");
    assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
    let ItemKind::Text { is_cut, .. } = &transcript.items()[1].kind else { panic!("no text") };
    assert!(is_cut);
}

#[test]
fn wait_ends_with_the_next_agent() {
    let mut transcript = Transcript::default();
    let reason = WaitReason::RateLimit;
    apply(&mut transcript, 1, Event::Waiting { reason, until_ms: 999 });
    apply(&mut transcript, 2, text("still here", false));
    let agent = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
    assert_eq!(apply(&mut transcript, 3, agent), [1000]);
    let wait = ItemKind::Wait { reason: Wait::RateLimit, until_ms: 999, ended_ms: Some(180_000) };
    assert_eq!(transcript.items()[0].kind, wait);
}

#[test]
fn restarted_iteration_keeps_its_heading() {
    let mut transcript = Transcript::default();
    let start = || Event::IterationStarted { max_iterations: 5 };
    let continued = Event::RunContinued {
        after: None,
        iterations: 0,
        cut_off: Some(1),
        unchecked: None,
        usage: Usage::default(),
        duration_ms: 1,
    };
    for (minute, event) in [start(), text("one", false), continued, start(), text("two", false)]
        .into_iter()
        .enumerate()
    {
        apply(&mut transcript, i64::try_from(minute).unwrap(), event);
    }
    let headings = transcript.items().iter();
    let headings = headings.filter(|item| matches!(item.kind, ItemKind::Iteration { .. }));
    assert_eq!(headings.count(), 1);
}
