//! Fuzz targets: functions of arbitrary bytes that panic if a property fails.
//!
//! `scripts/fuzz` runs them with libFuzzer, `tests/fuzz.rs` with reproducible mutations of the
//! seeds.

#![allow(clippy::unwrap_used, reason = "a finding is reported as a panic")]
#![allow(dead_code, unreachable_pub, reason = "the fuzzers and the test use different parts")]

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::config::{self, Sources, loop_file, shell};
use ralph::hooks::{self, HookOutput};
use ralph_engine::completion::{CompletionDetector, CompletionResult, CompletionRule};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Entry, Event, Exit, Stamp};
use ralph_events::journal;
use ralph_events::line_splitter::{Line, LineSplitter};
use ralph_events::run_state::RunState;
use ralph_report::summary::{Summary, html, plain};
use ralph_shell_policy as policy;
use ralph_shell_policy::{CommandAllowList, Context, ToolCall, Verdict};
use ralph_tasks as tasks;
use ralph_tasks::ledger::Ledger;
use ralph_tasks::{edit, order, verdict};

pub type Target = fn(&[u8]);

/// All targets by name; adapters by the agent's name.
pub const TARGETS: [(&str, Target); 17] = [
    ("amp", |data| adapter("amp", data)),
    ("claude", |data| adapter("claude", data)),
    ("cline", |data| adapter("cline", data)),
    ("codex", |data| adapter("codex", data)),
    ("completion", completion),
    ("config", config_file),
    ("copilot", |data| adapter("copilot", data)),
    ("gemini", |data| adapter("gemini", data)),
    ("hooks", hooks),
    ("journal", journal_reader),
    ("lines", lines),
    ("opencode", |data| adapter("opencode", data)),
    ("policy", shell_policy),
    ("qwen", |data| adapter("qwen", data)),
    ("settings", settings),
    ("tasks", task_list),
    ("text", |data| adapter("text", data)),
];

/// Far more than any input takes, so that a busy machine is not a finding.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Splits the bytes at lengths derived from them.
fn pieces(data: &[u8]) -> Vec<&[u8]> {
    let mut state = data.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    let mut pieces = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Mostly short, to split characters and words; sometimes long.
        let most = if state >> 61 == 0 { 4096 } else { 24 };
        let length = usize::try_from(state >> 33).unwrap() % most + 1;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// No byte is lost, no line is too long, and the chunking makes no difference.
pub fn lines(data: &[u8]) {
    let split = |pieces: &[&[u8]], max_line: usize| {
        let mut splitter = LineSplitter::new(max_line);
        let mut lines: Vec<(Vec<u8>, bool, bool)> = Vec::new();
        let mut each =
            |line: Line<'_>| lines.push((line.bytes.to_vec(), line.joined, line.is_unfinished));
        pieces.iter().for_each(|piece| splitter.push(piece, &mut each));
        splitter.finish(&mut each);
        lines
    };
    for max_line in [4, 17, 1 << 20] {
        let lines = split(&[data], max_line);
        assert_eq!(lines, split(&pieces(data), max_line));
        let mut joined_lines: Vec<Vec<u8>> = Vec::new();
        for (bytes, joined, _) in lines {
            assert!(bytes.len() <= max_line);
            if joined {
                joined_lines.last_mut().unwrap().extend(bytes)
            } else {
                joined_lines.push(bytes)
            }
        }
        let mut plain: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
        if plain.last().is_some_and(|last| last.is_empty()) {
            plain.pop();
        }
        let plain: Vec<&[u8]> =
            plain.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        assert_eq!(joined_lines, plain);
    }
}

/// Chunking makes no difference, events survive the journal, and no output is silently dropped.
pub fn adapter(name: &str, data: &[u8]) {
    let adapter = ralph_agents::by_name(name).unwrap();
    for structured in [true, false] {
        let events = |pieces: &[&[u8]]| {
            let mut reader = adapter.reader(structured);
            let mut splitter = LineSplitter::new(reader.max_line());
            let mut events: Vec<String> = Vec::new();
            let mut entries = journal::LineEncoder::default();
            let at = Stamp { time_ms: 1, iteration: 1, attempt: 1 };
            let mut take = |event: Event<'_>| {
                let line = entries.push(at, &event);
                let entry: Entry<'_> = serde_json::from_slice(line).unwrap();
                assert_eq!(entry.event, event, "{}", String::from_utf8_lossy(line));
                events.push(format!("{event:?}"));
                entries.clear();
            };
            for piece in pieces {
                splitter.push(piece, |line| reader.stdout(line, &mut take));
            }
            splitter.finish(|line| reader.stdout(line, &mut take));
            reader.stderr(Line { bytes: data, joined: false, is_unfinished: false }, &mut take);
            reader.side_file(&String::from_utf8_lossy(data), &mut take);
            reader.finish(Some(Exit::Code(1)), &mut take);
            events
        };
        assert_eq!(events(&[data]), events(&pieces(data)));
    }
    // Text that is not JSON is passed on unchanged.
    let mut reader = adapter.reader(true);
    let mut printed = String::new();
    let words = format!("\u{1}{}", String::from_utf8_lossy(data).replace(['\n', '\r'], " "));
    let line = Line { bytes: words.as_bytes(), joined: false, is_unfinished: false };
    reader.stdout(line, &mut |event| {
        if let Event::Output { text, .. } | Event::Text { text, .. } | Event::Notice { text } =
            event
        {
            printed.push_str(&text);
        }
    });
    reader.finish(Some(Exit::Code(0)), &mut |event| {
        if let Event::Output { text, .. } | Event::Text { text, .. } = event {
            printed.push_str(&text);
        }
    });
    assert!(printed.contains(words.trim()), "{words:?} became {printed:?}");
}

/// Chunking makes no difference, and no completion is found without its signal.
pub fn completion(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (prompt, answer) = text.split_once('\0').unwrap_or(("", &text));
    let rules = [
        CompletionRule::Response("DONE".to_owned()),
        CompletionRule::Promise("COMPLETE".to_owned()),
        CompletionRule::Pattern("(?m)^all done$".parse().unwrap()),
        CompletionRule::Never,
    ];
    let words = ["done", "COMPLETE", "all done"];
    for (nth, rule) in rules.iter().enumerate() {
        let verdict = |pieces: &[&str], echo: bool| -> CompletionResult {
            let mut detector = CompletionDetector::new(rule);
            if echo {
                detector = detector.with_prompt_echo(prompt);
            }
            for (nth, piece) in pieces.iter().enumerate() {
                detector.push_text(piece, nth > 0);
            }
            detector.finish()
        };
        let chars: Vec<&str> = char_pieces(answer);
        for echo in [false, true] {
            let at_once = verdict(&[answer], echo);
            assert_eq!(at_once, verdict(&chars, echo), "{rule:?} echo {echo}");
            let word = words.get(nth).copied();
            let there = word.is_some_and(|word| {
                strip_control_chars(answer).to_lowercase().contains(&word.to_lowercase())
            });
            assert!(!at_once.complete || there, "{rule:?} {at_once:?}");
        }
    }
}

fn char_pieces(text: &str) -> Vec<&str> {
    let mut ends: Vec<usize> = Vec::new();
    let mut at = 0;
    for piece in pieces(text.as_bytes()) {
        at += piece.len();
        ends.push(text.ceil_char_boundary(at));
    }
    ends.dedup();
    let mut from = 0;
    ends.into_iter()
        .map(|end| {
            let piece = &text[from..end];
            from = end;
            piece
        })
        .collect()
}

/// A directory for this thread.
fn thread_dir() -> PathBuf {
    let name = format!("ralph-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Removes the files of this thread's targets.
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(thread_dir());
}

/// Accepted settings round-trip, merging is idempotent, and errors are not empty.
pub fn settings(data: &[u8]) {
    let (project, local) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], Some(&data[at + 1..])),
        None => (data, None),
    };
    let dir = thread_dir();
    let (path, local_path) = (dir.join("settings.json"), dir.join(config::LOCAL_FILE));
    let put = |bytes: &[u8], local: Option<&[u8]>| {
        std::fs::write(&path, bytes).unwrap();
        match local {
            Some(local) => std::fs::write(&local_path, local).unwrap(),
            None => {
                let _ = std::fs::remove_file(&local_path);
            }
        }
        let settings_path = Some(path.clone());
        config::load(&Sources { settings_path, project_dir: dir.clone(), ..Sources::default() })
    };
    match put(project, local) {
        Err(err) => assert!(!err.to_string().trim().is_empty()),
        Ok(loaded) => {
            let saved = serde_json::to_vec(&loaded.settings).unwrap();
            let reloaded = put(&saved, None).unwrap_or_else(|err| {
                panic!("{}: {err}", String::from_utf8_lossy(&saved));
            });
            assert_eq!(reloaded.settings, loaded.settings);
            if let Some(local) = local {
                let reloaded = put(&saved, Some(local)).unwrap();
                assert_eq!(reloaded.settings, loaded.settings, "merged twice");
            }
        }
    }
}

/// Quoting every value of an accepted config changes nothing, and errors name an existing line.
pub fn config_file(data: &[u8]) {
    let path = thread_dir().join("config");
    std::fs::write(&path, data).unwrap();
    let variable = |name: &str| (name == "HOME").then(|| "/home/u".to_owned());
    let read = loop_file::read(&path, variable);
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(read.is_err());
        return;
    };
    match shell::parse(text, variable) {
        Err(problem) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&problem.line), "{problem:?} of {lines}");
            assert!(read.is_err());
        }
        Ok((assignments, _)) => {
            let quoted: String = assignments
                .iter()
                .map(|set| {
                    let export = if set.exported { "export " } else { "" };
                    format!("{export}{}='{}'\n", set.name, set.value.replace('\'', r"'\''"))
                })
                .collect();
            let (reparsed, warnings) = shell::parse(&quoted, |_| None)
                .unwrap_or_else(|problem| panic!("{quoted:?}: {problem:?}"));
            let of = |all: &[shell::EnvAssignment]| -> Vec<(String, String, bool)> {
                all.iter().map(|it| (it.name.clone(), it.value.clone(), it.exported)).collect()
            };
            assert_eq!(of(&reparsed), of(&assignments));
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }
}

/// An edit changes nothing else, an agent's list is judged, and none with an open story is
/// complete.
pub fn task_list(data: &[u8]) {
    let (before, after) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    let Ok(list) = tasks::parse(before) else { return };
    assert_eq!(order::story_statuses(&list).len(), list.stories.len());
    if let Some(next) = order::next(&list) {
        assert!(!next.passes);
    }
    let text = std::str::from_utf8(before).unwrap();
    if let Some(story) = list.stories.first() {
        let notes = serde_json::Value::from("seen");
        let edited = edit::set_in_story(text, &story.id, &[("notes", notes)]).unwrap();
        let reparsed = tasks::parse(edited.as_bytes()).unwrap();
        assert_eq!(reparsed.stories[0].notes, "seen");
        assert_eq!(reparsed.stories[1..], list.stories[1..]);
        assert_eq!(reparsed.verify_commands, list.verify_commands);
    }
    let mut ledger = Ledger::new(&list);
    let now = tasks::parse(after);
    let review = ledger.review(&now);
    let _ = verdict::briefing(&review, "tasks.json");
    for (claimed, checked) in [(false, false), (true, false), (true, true)] {
        let verdict = verdict::final_verdict(&review, claimed, checked, "tasks.json");
        let open = now.as_ref().is_ok_and(|list| !list.is_complete()) || now.is_err();
        let complete = matches!(verdict, ralph_tasks::verdict::TaskVerdict::Complete);
        assert!(!(complete && (open || !checked)), "{verdict:?}");
    }
}

/// Hooks answer everything in JSON and let only complete objects through in a run. They tolerate
/// control characters in values.
pub fn hooks(data: &[u8]) {
    let home = thread_dir();
    let variable = |name: &str| -> Option<OsString> {
        match name {
            "RALPH_HOME" => Some(home.clone().into()),
            "HOME" => Some("/home/u".into()),
            "RALPH_RUN_ID" => Some("20261115-202752-1ec3".into()),
            "CLAUDE_PROJECT_DIR" => Some(home.clone().into()),
            _ => None,
        }
    };
    let began = Instant::now();
    for name in hooks::HOOK_NAMES {
        let (answer, _) = hooks::handle(OsStr::new(name), data, &variable);
        if let Some(json) = answer.json() {
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert!(json.is_object());
        }
        let is_whole = data.trim_ascii().starts_with(b"{") && data.trim_ascii().ends_with(b"}");
        if name == "pre-tool-use" && !is_whole {
            assert!(matches!(answer, HookOutput::Deny(_)), "{answer:?}");
        }
    }
    assert!(began.elapsed() < MAX_TIME);
}

/// Every command is judged quickly, and a leading no-op hides none.
pub fn shell_policy(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let allow = CommandAllowList::default();
    let context = Context {
        project: Path::new("/home/u/proj"),
        cwd: Path::new("/home/u/proj"),
        home: Some(Path::new("/home/u")),
        allow: &allow,
        resolve: &policy::normalize_path,
        variable: &|name| (name == "KNOWN").then(|| "build".to_owned()),
    };
    let judge = |command: &str| policy::judge(&context, &ToolCall::Shell(command.into()));
    let began = Instant::now();
    let verdict = judge(&text);
    let after = judge(&format!("true\n{text}"));
    for call in [ToolCall::Read(&text), ToolCall::Write(&text)] {
        policy::judge(&context, &call);
    }
    assert!(began.elapsed() < MAX_TIME, "{:?}", began.elapsed());
    if let Verdict::Deny(finding) = &verdict {
        assert!(!finding.reason.is_empty() && !finding.suggestion.is_empty());
        // An overlong command is denied, and a little more may make it overlong.
        assert!(matches!(after, Verdict::Deny(_)), "weakened by `true`: {finding:?}");
    }
    assert_eq!(verdict, judge(&text), "different verdict on the same command");
}

/// A damaged journal is read as far as possible: complete lines are found, and all summaries work.
pub fn journal_reader(data: &[u8]) {
    let read = |bytes: &[u8]| -> Vec<Entry<'static>> { journal::entries(bytes).collect() };
    let entries = read(data);
    let whole = data.split(|byte| *byte == b'\n');
    let whole = whole.filter(|line| serde_json::from_slice::<Entry<'_>>(line).is_ok()).count();
    // A line with a duplicate key may count, too.
    assert!(entries.len() >= whole, "complete lines: {} of {whole}", entries.len());
    let mut lines = journal::LineEncoder::default();
    let at = Stamp { time_ms: 1_794_774_472_123, iteration: 1, attempt: 1 };
    let last = Event::Warning { message: Cow::Borrowed("the last word") };
    lines.push(at, &last);
    let longer = read(&[data, b"\n", lines.bytes()].concat());
    assert_eq!(longer.len(), entries.len() + 1);
    assert_eq!(longer.last().map(|entry| &entry.event), Some(&last));

    let mut state = RunState::default();
    entries.iter().for_each(|entry| state.apply(entry));
    drop(state.clone().closed());
    let facts = Summary::of(&state, None);
    serde_json::to_vec(&facts).unwrap();
    let zone = jiff::tz::TimeZone::UTC;
    let page = html::render(&facts, &zone);
    assert!(page.starts_with("<!"));
    let text = plain::TextFormat::Plain { color: false, width: Some(60) };
    for form in [text, plain::TextFormat::Markdown] {
        let _ = plain::render(&facts, &zone, form);
    }
}
