//! Runs that start, write, end and die are seen within 200 ms, without polling.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use ralph_events::event::{Event, Outcome, Purpose, Stamp, Usage};
use ralph_events::journal::LineEncoder;
use ralph_monitor::{EventReader, Monitor, TranscriptWindow};
use ralph_report::run_card::RunCard;
use ralph_report::state_word::{Group, StateWord};
use ralph_report::transcript::ItemKind;
use ralph_store::project::Project;
use ralph_store::run_files::RunFiles;
use ralph_store::runs::{self, RunDir};

/// The promise, with room for a loaded test machine.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn monitor(&self) -> Monitor {
        Monitor::open(&self.path(), TimeZone::UTC, now_ms()).unwrap()
    }

    fn project(&self, name: &str) -> Project {
        let root = self.dir.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let project = Project::new(&root, &self.path());
        project.prepare_state().unwrap();
        project
    }
}

fn line(event: &Event<'_>, iteration: u32) -> Vec<u8> {
    let mut lines = LineEncoder::default();
    lines.push(Stamp { time_ms: now_ms(), iteration, attempt: iteration.min(1) }, event);
    lines.bytes().to_vec()
}

fn started(run: &str, pid: u32) -> Vec<u8> {
    line(&run_started(run, pid), 0)
}

fn run_started(run: &str, pid: u32) -> Event<'static> {
    Event::RunStarted {
        run: run.to_owned().into(),
        version: "0.2.0".into(),
        command: "run".into(),
        directory: "/src/shop".into(),
        pid,
        agent: "claude".into(),
        prompt: "p".into(),
        completion: "".into(),
        max_iterations: 5,
        branch: None,
        name: Some("night".into()),
        streams_text: false,
        plain_text: false,
        setup: None,
    }
}

fn agent_started() -> Vec<u8> {
    let mut lines = line(&Event::IterationStarted { max_iterations: 5 }, 1);
    let started = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
    lines.extend(line(&started, 1));
    lines
}

fn text(text: &str) -> Vec<u8> {
    line(&Event::Text { text: text.to_owned().into(), joined: false, subagent: false }, 1)
}

fn ended(outcome: Outcome) -> Vec<u8> {
    let event = Event::RunEnded {
        outcome,
        exit_code: 0,
        message: "".into(),
        iterations: 1,
        cut_off: false,
        duration_ms: 5,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
        branch: None,
        last_failure: None,
        used_up: None,
    };
    line(&event, 1)
}

/// Waits until the monitor shows the run as wanted, and checks how long that took.
fn expect_card(monitor: &mut Monitor, id: &str, wanted: impl Fn(&RunCard) -> bool) -> RunCard {
    let began = Instant::now();
    loop {
        monitor.update();
        if let Some(card) = monitor.card(id, now_ms()).filter(|card| wanted(card)) {
            let took = began.elapsed();
            assert!(took < SEEN_WITHIN, "seen after {took:?}");
            return card;
        }
        let left = PATIENCE.checked_sub(began.elapsed()).expect("the change is never seen");
        monitor.wait(Some(left));
    }
}

#[test]
fn new_project_run_text_and_end_are_seen_at_once() {
    let home = Home::new();
    let mut monitor = home.monitor();
    assert_eq!(monitor.overview(now_ms()).cards().count(), 0);
    let project = home.project("shop");
    let dir = project.run_dir(&runs::new_id(now_ms()));
    let mut files = RunFiles::create(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, std::process::id())).unwrap();
    let card = expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Working);
    assert_eq!((card.name.as_str(), card.project.as_str()), ("night", "shop"));
    files.append_journal(&agent_started()).unwrap();
    expect_card(&mut monitor, &dir.id, |card| card.iteration == 1);
    files.append_journal(&ended(Outcome::Complete)).unwrap();
    let card = expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Complete);
    assert_eq!(card.group, Group::Done);
    drop(files);
    // A second run of a known project.
    let second = project.run_dir(&runs::new_id(now_ms() + 5));
    let mut files = RunFiles::create(second.clone(), 0).unwrap();
    files.append_journal(&started(&second.id, std::process::id())).unwrap();
    expect_card(&mut monitor, &second.id, |card| card.state == StateWord::Working);
    // A finished run is resumed.
    let mut files = RunFiles::reopen(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, std::process::id())).unwrap();
    expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Working);
}

#[test]
fn run_that_had_written_nothing_yet_and_recreated_project_are_seen() {
    let home = Home::new();
    let project = home.project("shop");
    let dir = project.run_dir(&runs::new_id(now_ms()));
    dir.create().unwrap();
    let mut monitor = home.monitor();
    let mut files = RunFiles::create(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, std::process::id())).unwrap();
    expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Working);
    // All files are removed, and a new run starts.
    drop(files);
    std::fs::remove_dir_all(project.runs_dir().parent().unwrap()).unwrap();
    expect_card(&mut monitor, &dir.id, |card| card.is_removed);
    project.prepare_state().unwrap();
    monitor.update();
    let second = project.run_dir(&runs::new_id(now_ms() + 5));
    let mut files = RunFiles::create(second.clone(), 0).unwrap();
    files.append_journal(&started(&second.id, std::process::id())).unwrap();
    expect_card(&mut monitor, &second.id, |card| card.state == StateWord::Working);
}

#[test]
fn short_and_old_runs_are_seen_when_they_start() {
    let home = Home::new();
    let project = home.project("shop");
    let old = ended_run(&project, &[&started("old", 1), &ended(Outcome::Budget)]);
    let week = std::time::SystemTime::now() - Duration::from_secs(7 * 86_400);
    File::options().append(true).open(old.journal()).unwrap().set_modified(week).unwrap();
    let mut monitor = home.monitor();
    assert_eq!(monitor.card(&old.id, now_ms()), None, "not read before it is asked for");
    assert_eq!(monitor.overview(now_ms()).older, 1);
    // It has ended before anyone looks.
    let short = project.run_dir(&runs::new_id(now_ms() + 7));
    let mut files = RunFiles::create(short.clone(), 0).unwrap();
    files.append_journal(&started(&short.id, 1)).unwrap();
    files.append_journal(&ended(Outcome::Complete)).unwrap();
    drop(files);
    expect_card(&mut monitor, &short.id, |card| card.state == StateWord::Complete);
    // A resumed run updates the record of its project.
    let mut files = RunFiles::reopen(old.clone(), 0).unwrap();
    files.append_journal(&started(&old.id, std::process::id())).unwrap();
    project.update_record(|record| record.sandbox = Some("bwrap".to_owned())).unwrap();
    expect_card(&mut monitor, &old.id, |card| card.state == StateWord::Working);
}

/// A process that holds the lock of a journal, as a run does: this test program, started again.
struct LockHolder(Child);

const JOURNAL_TO_LOCK: &str = "TEST_JOURNAL_TO_LOCK";

impl LockHolder {
    fn start(journal: &Path) -> LockHolder {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "lock_holder_process", "--nocapture"])
            .env(JOURNAL_TO_LOCK, journal);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("journal is locked")));
        LockHolder(child)
    }
}

#[test]
fn lock_holder_process() {
    let Some(journal) = std::env::var_os(JOURNAL_TO_LOCK) else { return };
    let journal = File::options().append(true).open(journal).unwrap();
    journal.lock().unwrap();
    println!("journal is locked");
    let _ = std::io::stdin().read_line(&mut String::new());
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_process_is_seen_at_once() {
    let home = Home::new();
    let dir = home.project("shop").run_dir(&runs::new_id(now_ms()));
    dir.create().unwrap();
    let mut journal = File::create(dir.journal()).unwrap();
    let mut holder = LockHolder::start(&dir.journal());
    let pid = holder.0.id();
    journal.write_all(&started(&dir.id, pid)).unwrap();
    journal.write_all(&agent_started()).unwrap();
    let mut monitor = home.monitor();
    expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Working);
    holder.0.kill().unwrap();
    let card = expect_card(&mut monitor, &dir.id, |card| card.state == StateWord::Interrupted);
    assert_eq!(card.group, Group::NeedsYou);
    assert_eq!(card.attention.unwrap().text, "The process of the run is gone.");
    holder.0.wait().unwrap();
}

#[test]
fn removed_run_stays_as_files_removed() {
    let home = Home::new();
    let dir = home.project("shop").run_dir(&runs::new_id(now_ms()));
    let mut files = RunFiles::create(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, std::process::id())).unwrap();
    files.append_journal(&ended(Outcome::Complete)).unwrap();
    drop(files);
    let mut monitor = home.monitor();
    expect_card(&mut monitor, &dir.id, |card| card.note.is_none());
    std::fs::remove_dir_all(&dir.path).unwrap();
    let card = expect_card(&mut monitor, &dir.id, |card| card.is_removed);
    assert_eq!(card.note.as_deref(), Some("files removed"));
    assert_eq!((card.name.as_str(), card.state), ("night", StateWord::Complete));
    assert_eq!(home.monitor().overview(now_ms()).cards().count(), 0, "it leaves at the next start");
}

#[test]
fn large_journal_shows_both_ends_until_a_thread_has_read_it() {
    let home = Home::new();
    let project = home.project("shop");
    let usage = |usd: f64| Usage { cost_usd: Some(usd), ..Usage::default() };
    let mut lines = started("large", 1);
    let filler = text(&"x".repeat(10_000));
    for iteration in 1..=50_u32 {
        lines.extend(line(&Event::IterationStarted { max_iterations: 60 }, iteration));
        let started = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
        lines.extend(line(&started, iteration));
        (0..10).for_each(|_| lines.extend(&filler));
        lines.extend(line(&Event::Usage(usage(0.5)), iteration));
    }
    lines.extend(ended(Outcome::LimitReached));
    let dir = ended_run(&project, &[&lines]);
    let mut monitor = home.monitor();
    let card = monitor.card(&dir.id, now_ms()).unwrap();
    assert!(card.reading.is_some(), "not read at once");
    let head = (card.name.as_str(), card.state, card.iteration);
    assert_eq!(head, ("night", StateWord::Ended, 50));
    while monitor.card(&dir.id, now_ms()).unwrap().reading.is_some() {
        assert!(monitor.wait(Some(PATIENCE)));
        monitor.update();
    }
    let card = monitor.card(&dir.id, now_ms()).unwrap();
    assert_eq!((card.bars.len(), card.cost.reported), (50, Some(25.0)));
}

#[test]
fn many_runs_have_cards_before_all_of_them_are_read() {
    let home = Home::new();
    let project = home.project("shop");
    let filler = text(&"x".repeat(60_000));
    let lines = [&started("many", 1)[..], &filler, &ended(Outcome::Complete)];
    let runs: Vec<RunDir> =
        (0..30).map(|nth| project.run_dir(&runs::new_id(now_ms() - nth * 1000))).collect();
    for run in &runs {
        run.create().unwrap();
        std::fs::write(run.journal(), lines.concat()).unwrap();
    }
    let mut monitor = home.monitor();
    let cards = monitor.cards(now_ms());
    let is_known = |card: &RunCard| card.name == "night" && card.state == StateWord::Complete;
    assert!(cards.len() == runs.len() && cards.iter().all(is_known), "{cards:?}");
    assert!(cards.iter().any(|card| card.reading.is_some()), "the first screen waits for all");
    // A run that is not read yet shows its start and its end.
    let week = std::time::SystemTime::now() - Duration::from_secs(7 * 86_400);
    for run in &runs {
        File::options().append(true).open(run.journal()).unwrap().set_modified(week).unwrap();
    }
    let mut later = home.monitor();
    assert_eq!(later.cards(now_ms()).len(), 0);
    later.load_since(0);
    assert!(later.run(&runs[0].id).is_some_and(|run| run.info.name == "night"));
    while monitor.cards(now_ms()).iter().any(|card| card.reading.is_some()) {
        assert!(monitor.wait(Some(PATIENCE)));
        monitor.update();
    }
}

#[test]
fn journal_without_name_takes_it_from_the_state_file() {
    let home = Home::new();
    let project = home.project("shop");
    let nameless = String::from_utf8(started("r", 1)).unwrap().replace(r#","name":"night""#, "");
    let dir = ended_run(&project, &[nameless.as_bytes()]);
    let name = |home: &Home| home.monitor().card(&dir.id, now_ms()).unwrap().name;
    assert_eq!(name(&home), dir.id);
    std::fs::write(dir.path.join("state.json"), r#"{"worker_name":"of-0-1"}"#).unwrap();
    assert_eq!(name(&home), "of-0-1");
}

/// Nothing holds its lock.
fn ended_run(project: &Project, lines: &[&[u8]]) -> RunDir {
    let dir = project.run_dir(&runs::new_id(now_ms()));
    dir.create().unwrap();
    std::fs::write(dir.journal(), lines.concat()).unwrap();
    dir
}

#[test]
fn damaged_and_newer_journals_have_cards() {
    let home = Home::new();
    let project = home.project("shop");
    let id = "20261116-000000-0001";
    let torn = text("cut in the middle");
    let cut = ended_run(&project, &[&started(id, 1), &agent_started(), &torn[..40]]);
    let newer = String::from_utf8(started(id, 1)).unwrap().replace("0.2.0", "0.9.0");
    let unknown =
        br#"{"time":"2026-11-15T20:27:52.123Z","iteration":1,"attempt":1,"event":"dream"}"#;
    let newer = ended_run(&project, &[newer.as_bytes(), unknown, b"\n", &agent_started()]);
    let monitor = home.monitor();
    let card = monitor.card(&cut.id, now_ms()).unwrap();
    assert_eq!((card.state, card.iteration, card.note), (StateWord::Interrupted, 1, None));
    let card = monitor.card(&newer.id, now_ms()).unwrap();
    assert_eq!(card.note.as_deref(), Some("written by ralph 0.9.0, some entries are not shown"));
    assert_eq!(card.iteration, 1);
}

#[test]
fn unreadable_project_is_a_row_with_its_reason() {
    let home = Home::new();
    let project = home.project("shop");
    std::fs::write(project.record_file(), "no JSON").unwrap();
    let other = home.project("blog");
    std::fs::remove_dir_all(other.runs_dir()).unwrap();
    std::fs::write(other.runs_dir(), "no directory").unwrap();
    let overview = home.monitor().overview(now_ms());
    assert_eq!(overview.unreadable.len(), 2, "{:?}", overview.unreadable);
    assert!(overview.unreadable.iter().any(|it| it.reason.contains("project.json")));
    assert!(overview.unreadable.iter().any(|it| it.path.ends_with("blog")));
}

#[test]
fn event_reader_continues_without_loss_or_repetition() {
    let home = Home::new();
    let dir = home.project("shop").run_dir(&runs::new_id(now_ms()));
    let mut files = RunFiles::create(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, 1)).unwrap();
    let mut reader = EventReader::open(&dir, 0).unwrap();
    let first = reader.read(1 << 16).unwrap();
    assert_eq!(first.len(), 1);
    for n in 0..50 {
        files.append_journal(&text(&format!("text {n} {}", "x".repeat(n * 10)))).unwrap();
    }
    let mut seen = Vec::new();
    let mut last = first[0].end;
    loop {
        // A client that reconnects after every chunk, with room for less than one line.
        let mut reader = EventReader::open(&dir, last).unwrap();
        let lines = reader.read(64).unwrap();
        let Some(end) = lines.last().map(|line| line.end) else { break };
        last = end;
        seen.extend(lines);
    }
    assert_eq!(seen.len(), 50);
    let texts = seen.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned());
    assert!(texts.enumerate().all(|(n, line)| line.contains(&format!("text {n} "))));
}

#[test]
fn transcript_window_scrolls_through_a_long_run_and_follows_its_end() {
    let home = Home::new();
    let dir = home.project("shop").run_dir(&runs::new_id(now_ms()));
    let mut files = RunFiles::create(dir.clone(), 0).unwrap();
    files.append_journal(&started(&dir.id, 1)).unwrap();
    let tool = |id: &str| Event::ToolStarted {
        id: id.to_owned().into(),
        name: "Bash".into(),
        summary: "make".into(),
        edit: None,
        subagent: false,
    };
    let done = |id: &str| Event::ToolEnded {
        id: id.to_owned().into(),
        name: "Bash".into(),
        failed: false,
        denied: false,
        lines: 1,
        chars: 1,
        preview: "".into(),
        subagent: false,
    };
    let filler = "x".repeat(2_000);
    let mut expected = 0;
    for iteration in 1..=40_u32 {
        let mut lines = line(&Event::IterationStarted { max_iterations: 40 }, iteration);
        for n in 0..50 {
            let id = format!("{iteration}-{n}");
            lines.extend(line(&tool(&id), iteration));
            let words = format!("text {iteration}-{n} {filler}");
            let words = Event::Text { text: words.into(), joined: false, subagent: false };
            lines.extend(line(&words, iteration));
            lines.extend(line(&done(&id), iteration));
            expected += 2;
        }
        files.append_journal(&lines).unwrap();
        expected += 1;
    }
    let mut window = TranscriptWindow::open(&dir, "").unwrap();
    assert!(window.is_at_end() && !window.is_at_start());
    // Every item appears exactly once, and no call seems to run on at the end of a page.
    let mut ids: Vec<u64> = window.items().map(|item| item.id).collect();
    let mut most = 0;
    while !window.is_at_start() {
        let added = window.load_earlier().unwrap();
        let items: Vec<_> = window.items().collect();
        most = most.max(items.len());
        ids.splice(0..0, items[..added].iter().map(|item| item.id));
        let runs_on = |item: &&&ralph_report::transcript::Item| matches!(&item.kind, ItemKind::Tool(tool) if tool.ended_ms.is_none());
        assert_eq!(items.iter().filter(runs_on).count(), 0);
    }
    assert_eq!(ids.len(), expected);
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(most < expected / 2, "memory is bounded: {most} of {expected} items");
    assert!(!window.is_at_end());
    assert!(window.update().unwrap().has_more);
    // Jumps and search.
    let position = window.go_to_iteration(17).unwrap().unwrap();
    let item = window.items().find(|item| item.id == position).unwrap();
    assert_eq!(item.kind, ItemKind::Iteration { number: 17 });
    assert_eq!(window.go_to_iteration(41).unwrap(), None);
    let hits: Vec<_> = window.search("TEXT 23-7 ").unwrap().flatten().collect();
    assert_eq!((hits.len(), hits[0].iteration), (1, 23));
    window.go_to(hits[0].position).unwrap();
    assert!(window.items().any(|item| item.id == hits[0].position));
    // The end, with a call that ends later.
    window.go_to_end().unwrap();
    let before = window.items().count();
    files.append_journal(&line(&tool("last"), 40)).unwrap();
    let update = window.update().unwrap();
    assert_eq!((update.changed.len(), window.items().count()), (1, before + 1));
    files.append_journal(&line(&done("last"), 40)).unwrap();
    assert_eq!(window.update().unwrap().changed, update.changed);
}
