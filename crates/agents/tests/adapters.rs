//! Compares the events of recorded streams with the reviewed ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ralph_agents as agents;
use ralph_events::event::{Event, Exit, Failure, Usage};
use ralph_events::line_splitter::LineSplitter;

struct Case {
    agent: String,
    name: String,
    path: PathBuf,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    side: Option<String>,
    exit: Exit,
}

fn fixtures() -> Vec<Case> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures"));
    let mut cases = Vec::new();
    for agent in agents::all().iter().map(|adapter| adapter.name()).filter(|name| *name != "text") {
        for entry in std::fs::read_dir(root.join(agent)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "ndjson") {
                continue;
            }
            let code = std::fs::read_to_string(path.with_extension("rc")).unwrap();
            let code: i32 = code.trim().parse().unwrap();
            cases.push(Case {
                agent: agent.to_owned(),
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                stdout: std::fs::read(&path).unwrap(),
                stderr: std::fs::read(path.with_extension("stderr")).unwrap_or_default(),
                side: std::fs::read_to_string(path.with_extension("side")).ok(),
                exit: if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) },
                path,
            });
        }
    }
    assert!(cases.len() > 100, "only {} fixtures were found", cases.len());
    cases.sort_by(|a, b| (&a.agent, &a.name).cmp(&(&b.agent, &b.name)));
    cases
}

impl Case {
    fn events(&self) -> Vec<Event<'static>> {
        let side = self.side.as_deref();
        events(&self.agent, [&self.stdout[..]], &self.stderr, side, self.exit)
    }
}

fn events<'c>(
    agent: &str,
    stdout: impl IntoIterator<Item = &'c [u8]>,
    stderr: &[u8],
    side: Option<&str>,
    exit: Exit,
) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    let mut reader = agents::by_name(agent).unwrap().reader(true);
    let mut emit = |event: Event<'_>| events.push(owned(&event));
    let mut lines = LineSplitter::new(reader.max_line());
    for chunk in stdout {
        lines.push(chunk, |line| reader.stdout(line, &mut emit));
    }
    lines.finish(|line| reader.stdout(line, &mut emit));
    let mut lines = LineSplitter::new(reader.max_line());
    lines.push(stderr, |line| reader.stderr(line, &mut emit));
    lines.finish(|line| reader.stderr(line, &mut emit));
    if let Some(side) = side {
        reader.side_file(side, &mut emit);
    }
    reader.finish(Some(exit), &mut emit);
    events
}

/// Through JSON, as in the journal.
fn owned(event: &Event<'_>) -> Event<'static> {
    serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap()
}

fn render(agent: &str, events: &[Event<'_>]) -> String {
    let mut out = String::new();
    for event in events {
        match event {
            Event::Session { id, model } => writeln!(out, "session {id:?} model {model:?}"),
            Event::Text { text, subagent, joined } => {
                writeln!(out, "{}{}text {text:?}", mark(*subagent), more(*joined))
            }
            Event::Thinking { text, subagent, joined } => {
                writeln!(out, "{}{}thinking {text:?}", mark(*subagent), more(*joined))
            }
            Event::ToolStarted { name, summary, edit, subagent, .. } => {
                write!(out, "{}tool {name}({summary})", mark(*subagent)).unwrap();
                match edit {
                    None => writeln!(out),
                    Some(edit) => writeln!(out, " -{:?} +{:?}", edit.old, edit.new),
                }
            }
            Event::ToolEnded { name, failed, denied, lines, chars, preview, subagent, .. } => {
                let verdict = match (denied, failed) {
                    (true, _) => "denied",
                    (_, true) => "failed",
                    _ => "ok",
                };
                writeln!(
                    out,
                    "{}tool {name} {verdict}, {lines} lines, {chars} chars: {preview:?}",
                    mark(*subagent)
                )
            }
            Event::Todo { items } => {
                let items: Vec<_> =
                    items.iter().map(|item| format!("{:?} {:?}", item.status, item.text)).collect();
                writeln!(out, "todo {}", items.join(", "))
            }
            Event::Usage(used) => writeln!(out, "usage {}", usage(used)),
            Event::Notice { text } => writeln!(out, "notice {text:?}"),
            Event::Retracted { reason } => writeln!(out, "retracted {reason:?}"),
            Event::BackgroundTasks { running } => writeln!(out, "background tasks {running}"),
            Event::Result { failure, usage: used, turns } => {
                write!(out, "result").unwrap();
                match failure {
                    None => write!(out, " ok"),
                    Some(failure) => write!(out, " {}", failed(agent, failure)),
                }
                .unwrap();
                if let Some(turns) = turns {
                    write!(out, ", {turns} turns").unwrap();
                }
                match used {
                    None => writeln!(out),
                    Some(used) => writeln!(out, ", {}", usage(used)),
                }
            }
            Event::Output { stream, text, .. } => writeln!(out, "output {stream:?} {text:?}"),
            other => panic!("unexpected {other:?}"),
        }
        .unwrap();
    }
    out
}

fn more(joined: bool) -> &'static str {
    if joined { "more " } else { "" }
}

fn mark(subagent: bool) -> &'static str {
    if subagent { "subagent " } else { "" }
}

fn failed(agent: &str, failure: &Failure) -> String {
    let resets = failure.resets_at.map_or(String::new(), |at| {
        let at = jiff::Timestamp::from_second(at).unwrap();
        // codex reports local times.
        if agent == "codex" {
            let local = at.to_zoned(jiff::tz::TimeZone::system()).datetime();
            format!(", resets at {local} local time")
        } else {
            format!(", resets at {at}")
        }
    });
    format!("FAILED {:?}{resets}: {:?}", failure.kind, failure.message)
}

fn usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map_or("cost unknown".to_owned(), |cost| format!("${cost:.6}"));
    format!(
        "{cost}, in {} + {} read + {} written, out {}",
        usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens
    )
}

#[test]
fn recorded_streams_match_reviewed_events() {
    let bless = std::env::var_os("RALPH_BLESS").is_some();
    let mut wrong = Vec::new();
    for case in fixtures() {
        let actual = render(&case.agent, &case.events());
        let path = case.path.with_extension("events");
        if bless {
            std::fs::write(&path, &actual).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if actual != expected {
            wrong.push(format!("{}:\nexpected\n{expected}\nactual\n{actual}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn truncated_stream_never_succeeds() {
    for case in fixtures() {
        let mut start = 0;
        for line in case.stdout.split_inclusive(|byte| *byte == b'\n') {
            // Cut between two lines.
            let reported = events(&case.agent, [&case.stdout[..start]], b"", None, Exit::Code(0));
            start += line.len();
            assert!(
                reported.iter().any(|event| matches!(event, Event::Result { .. })),
                "{}/{} cut at {start}",
                case.agent,
                case.name
            );
            // Cut inside a line; the middle of a long one is sampled.
            let text = line.strip_suffix(b"\n").unwrap_or(line).len();
            for cut in (0..text).filter(|cut| *cut < 60 || text - cut < 60 || cut % 61 == 0) {
                let events = events(&case.agent, [&line[..cut]], b"", None, Exit::Code(0));
                assert_eq!(
                    successes(&events),
                    0,
                    "{}/{}: {:?}",
                    case.agent,
                    case.name,
                    String::from_utf8_lossy(&line[..cut])
                );
            }
        }
    }
}

fn successes(events: &[Event<'_>]) -> usize {
    let success = |event: &&Event<'_>| matches!(event, Event::Result { failure: None, .. });
    events.iter().filter(success).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn adapter_events_are_independent_of_chunking(nth in any::<prop::sample::Index>(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let cases = fixtures();
        let case = nth.get(&cases);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(case.stdout.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(case.stdout.len());
        let mut from = 0;
        let chunks: Vec<&[u8]> = cuts.iter().map(|cut| {
            let chunk = &case.stdout[from..*cut];
            from = *cut;
            chunk
        }).collect();
        prop_assert_eq!(
            events(&case.agent, chunks, &case.stderr, case.side.as_deref(), case.exit),
            case.events()
        );
    }

    #[test]
    fn damaged_stream_never_panics(nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..6)) {
        let cases = fixtures();
        let case = nth.get(&cases);
        let mut stdout = case.stdout.clone();
        let at = at.index(stdout.len() + 1);
        stdout.splice(at..(at + bytes.len()).min(case.stdout.len()), bytes);
        events(&case.agent, [&stdout[..]], &case.stderr, None, case.exit);
    }
}
