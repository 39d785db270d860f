//! Every key, on the invented evening.

mod dialogs;

use std::io::Write;

use ratatui_core::layout::Position;

use ralph_events::event::{Event, FileEdit, Outcome, Stamp, Usage};
use ralph_events::journal::LineEncoder;
use ralph_events::run_state::RunState;
use ralph_monitor::actions::Delivery;
use ralph_monitor::sample::NOW_MS;

use super::{Dialog, Effect, Message, NewRunField, RequestKind, Screen, Selection, Tab};
use crate::data::Data;
use crate::input::{Key, MouseAction};
use crate::keys::{BINDINGS, Command};
use crate::view::Target;
use crate::view::tests::Evening;

fn selected(evening: &Evening) -> String {
    match &evening.model.fleet.selection {
        Some(Selection::Run(id)) => evening.source.data().card(id).unwrap().name.clone(),
        Some(Selection::Older) => "older".to_owned(),
        None => "none".to_owned(),
    }
}

fn note(evening: &Evening) -> &str {
    evening.model.note.as_ref().map_or("", |note| &note.text)
}

fn select(evening: &mut Evening, name: &str) {
    evening.press("g");
    while selected(evening) != name {
        evening.press("j");
    }
}

#[test]
fn arrows_and_letters_move_through_the_fleet() {
    let mut evening = Evening::new(120, 36);
    assert_eq!(selected(&evening), "reset-mail");
    evening.keys(&[Key::Down, Key::Char('j'), Key::Up, Key::Char('k'), Key::Up]);
    assert_eq!(selected(&evening), "reset-mail");
    evening.press("G");
    assert_eq!(selected(&evening), "older");
    evening.press("k");
    assert_eq!(selected(&evening), "bench");
    evening.press("g");
    assert_eq!(selected(&evening), "reset-mail");
    evening.keys(&[Key::PageDown, Key::PageUp]);
    assert_eq!(selected(&evening), "reset-mail");
}

#[test]
fn enter_opens_older_runs_and_escape_closes_them() {
    let mut evening = Evening::new(120, 36);
    evening.press("G");
    evening.keys(&[Key::Enter]);
    assert_eq!(evening.effects, [Effect::LoadOlderRuns]);
    assert_eq!(selected(&evening), "invoice-pdf", "the first that was hidden");
    assert!(evening.screen().contains("yesterday"), "{}", evening.screen());
    evening.keys(&[Key::Esc]);
    assert!(!evening.model.fleet.older_open);
}

#[test]
fn enter_opens_run_and_escape_goes_back() {
    let mut evening = Evening::new(120, 36);
    evening.keys(&[Key::Enter]);
    assert_eq!(evening.model.screen, Screen::Run);
    evening.keys(&[Key::Tab]);
    assert_eq!(evening.model.tab, Tab::Stories);
    evening.keys(&[Key::BackTab, Key::BackTab]);
    assert_eq!(evening.model.tab, Tab::Report);
    for (key, tab) in "12345".chars().zip(Tab::ALL) {
        evening.press(&key.to_string());
        assert_eq!(evening.model.tab, tab);
    }
    evening.keys(&[Key::Esc]);
    assert_eq!(evening.model.screen, Screen::Fleet);
    evening.keys(&[Key::Esc]);
    assert!(note(&evening).contains("q to leave"));
    evening.press("3");
    assert_eq!((evening.model.screen, evening.model.tab), (Screen::Run, Tab::Diff));
}

#[test]
fn scrolling_stops_following_and_end_resumes_it() {
    let mut evening = Evening::new(80, 24);
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("following"));
    evening.press("k");
    let scrolled = evening.screen();
    assert!(scrolled.contains("G follows"), "{scrolled}");
    evening.send(Message::NewItems(3));
    assert!(evening.screen().contains("3 new, G follows"));
    evening.press("j");
    assert!(evening.model.pages.activity.is_following(), "back at the end");
    evening.press("g");
    assert!(evening.screen().contains("iteration 1 "), "{}", evening.screen());
    evening.press("G");
    assert!(evening.screen().contains("following"));
}

#[test]
fn brackets_move_by_iteration() {
    let mut evening = Evening::new(80, 24);
    evening.keys(&[Key::Enter]);
    let first_line =
        |evening: &mut Evening| evening.screen().lines().nth(7).unwrap().trim().to_owned();
    evening.press("[");
    assert!(first_line(&mut evening).starts_with("iteration 9"), "{}", evening.screen());
    evening.press("[");
    assert!(first_line(&mut evening).starts_with("iteration 8"), "{}", evening.screen());
    evening.press("]");
    assert!(first_line(&mut evening).starts_with("iteration 9"), "{}", evening.screen());
    evening.press("]");
    assert!(evening.model.pages.activity.is_following());
    evening.press("g[");
    assert_eq!(note(&evening), "This is the first iteration.");
}

#[test]
fn brackets_show_older_results_of_a_check() {
    let mut evening = Evening::new(120, 36);
    evening.keys(&[Key::Enter]);
    evening.press("4jj");
    assert!(evening.screen().contains("last failure: iteration 7"));
    evening.press("[");
    assert!(evening.screen().contains("iteration 6 ─"), "{}", evening.screen());
    evening.press("]]");
    assert!(evening.screen().contains("iteration 8 ─"), "{}", evening.screen());
    evening.press("]");
    assert_eq!(note(&evening), "There is no newer result.");
    evening.keys(&[Key::Enter]);
    assert!(evening.model.pages.checks.whole_output);
}

#[test]
fn filter_keeps_matching_runs() {
    let mut evening = Evening::new(120, 36);
    evening.press("fDOCS");
    let screen = evening.screen();
    assert!(screen.contains("slugs") && screen.contains("images"), "{screen}");
    assert!(!screen.contains("deps-upgrade"), "{screen}");
    evening.keys(&[Key::Enter]);
    assert!(["slugs", "docs"].contains(&selected(&evening).as_str()));
    assert!(evening.screen().contains("filter DOCS   Esc shows all runs"));
    evening.keys(&[Key::Esc]);
    assert!(evening.screen().contains("deps-upgrade"));
    evening.press("fnothing like it");
    assert!(evening.screen().contains("No run matches"));
}

#[test]
fn search_shows_last_hit_and_steps_back() {
    let mut evening = Evening::new(80, 24);
    evening.keys(&[Key::Enter]);
    evening.press("/make e2e");
    evening.keys(&[Key::Enter]);
    assert_eq!(evening.effects, [Effect::Search("make e2e".to_owned())]);
    evening.source.start_search("make e2e");
    while let Some((hits, is_running)) = evening.source.search_on() {
        evening.send(Message::Hits { hits, is_running });
    }
    let found = evening.screen();
    assert!(found.contains("of 8"), "{found}");
    evening.keys(&[Key::Up]);
    assert_eq!(evening.model.search.as_ref().unwrap().at, 6);
    evening.keys(&[Key::Down, Key::Down]);
    assert_eq!(evening.model.search.as_ref().unwrap().at, 0);
    evening.keys(&[Key::Esc]);
    assert_eq!(evening.model.search, None);
    evening.press("4jj/PASSED, 1");
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("1 of 1"), "{}", evening.screen());
    evening.keys(&[Key::Esc]);
    evening.press("/x");
    evening.keys(&[Key::Esc]);
    assert_eq!(evening.model.search, None);
}

#[test]
fn keys_that_cannot_work_say_why() {
    let mut evening = Evening::new(120, 36);
    let rows = [
        ("i18n", "p", "i18n is paused already"),
        ("slugs", "r", "slugs is working; nothing to resume"),
        ("bench", "x", "bench does not run; nothing to stop"),
        ("bench", "p", "bench does not run; nothing to pause"),
        ("bench", "i", "bench has ended"),
        ("bench", "t", "bench does not run"),
        ("api-errors", "r", "api-errors is complete; nothing to resume"),
    ];
    for (run, key, expected) in rows {
        select(&mut evening, run);
        evening.press(key);
        assert!(note(&evening).contains(expected), "{run} {key}: {}", note(&evening));
        assert!(evening.screen().contains(expected));
    }
    assert_eq!(evening.effects, []);
}

#[test]
fn steering_keys_request_what_can_work() {
    let mut evening = Evening::new(120, 36);
    type Row = (&'static str, &'static str, fn(String) -> Effect);
    let rows: [Row; 6] = [
        ("slugs", "p", Effect::Pause),
        ("i18n", "r", Effect::Resume),
        ("deps-upgrade", "r", Effect::Resume),
        ("slugs", "t", Effect::Attach),
        ("bench", "o", Effect::OpenReport),
        ("bench", "y", Effect::Copy),
    ];
    for (run, key, expected) in rows {
        select(&mut evening, run);
        let id = evening.model.shown_run().unwrap().to_owned();
        evening.press(key);
        assert_eq!(evening.effects.pop(), Some(expected(id)), "{run} {key}");
    }
}

#[test]
fn mouse_selects_opens_and_scrolls() {
    let mut evening = Evening::new(120, 36);
    let at = |evening: &Evening, wanted: &Target| {
        let (area, _) =
            evening.model.layout.hits.iter().find(|(_, target)| target == wanted).unwrap();
        Position { x: area.x + 1, y: area.y }
    };
    let click = |evening: &mut Evening, at| {
        evening.send(Message::Mouse { action: MouseAction::Press, at });
    };
    let slugs = Position { x: 5, y: 10 };
    click(&mut evening, slugs);
    assert_eq!((selected(&evening).as_str(), evening.model.screen), ("slugs", Screen::Fleet));
    evening.wait_ms(1_000);
    click(&mut evening, slugs);
    assert_eq!(evening.model.screen, Screen::Fleet, "too slow for a double click");
    click(&mut evening, slugs);
    assert_eq!(evening.model.screen, Screen::Run);
    let checks = at(&evening, &Target::Tab(Tab::Checks));
    click(&mut evening, checks);
    assert_eq!(evening.model.tab, Tab::Checks);
    let back = at(&evening, &Target::Command(Command::Back));
    click(&mut evening, back);
    assert_eq!(evening.model.screen, Screen::Fleet);
    evening.send(Message::Mouse { action: MouseAction::WheelDown, at: slugs });
    assert_eq!(selected(&evening), "flaky-tests");
    select(&mut evening, "reset-mail");
    evening.keys(&[Key::Enter, Key::Char('1')]);
    evening.send(Message::Mouse { action: MouseAction::WheelUp, at: Position { x: 20, y: 20 } });
    assert!(!evening.model.pages.activity.is_following());
}

#[test]
fn small_terminal_knows_only_quit() {
    let mut evening = Evening::new(40, 8);
    evening.press("x");
    assert_eq!(evening.model.dialog, None);
    evening.press("q");
    assert_eq!(evening.effects, [Effect::Quit]);
}

#[test]
fn quit_works_everywhere() {
    for keys in ["", "i", "x", "?", "/", "f", "n"] {
        let mut evening = Evening::new(80, 24);
        evening.press(keys);
        evening.keys(&[Key::Ctrl('c')]);
        assert_eq!(evening.effects, [Effect::Quit], "after {keys:?}");
    }
    let mut evening = Evening::new(80, 24);
    evening.press("q");
    assert_eq!(evening.effects, [Effect::Quit]);
}

#[test]
fn no_key_panics_anywhere() {
    for size in [(60, 20), (200, 60)] {
        let mut evening = Evening::new(size.0, size.1);
        for tab in ["", "1", "2", "3", "4", "5"] {
            for (key, _) in BINDINGS.iter().flat_map(|binding| binding.keys) {
                evening.model.dialog = None;
                evening.model.fleet.filter = None;
                evening.press(tab);
                evening.keys(&[*key, Key::Char('z'), Key::Enter, Key::Esc]);
            }
        }
    }
}

#[test]
fn killed_run_is_shown_as_interrupted() {
    let mut evening = Evening::new(120, 36);
    evening.release_locks();
    let screen = evening.screen();
    assert!(screen.contains("needs you 7"), "{screen}");
    assert!(screen.contains("The process of the run is gone. Press r to resume."), "{screen}");
}

/// Writes to the journal of the shown run.
fn append(evening: &Evening, events: &[Event<'_>]) {
    let mut lines = LineEncoder::default();
    let at = Stamp { time_ms: NOW_MS, iteration: 9, attempt: 1 };
    for event in events {
        lines.push(at, event);
    }
    let run = evening.source.monitor.run_dir(evening.model.shown_run().unwrap()).unwrap();
    let mut journal = std::fs::File::options().append(true).open(run.journal()).unwrap();
    journal.write_all(lines.bytes()).unwrap();
}

#[test]
fn diff_is_read_again_when_a_tool_has_edited_a_file() {
    let mut evening = Evening::with_repository(120, 36);
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("diff +612 −87"), "{}", evening.screen());
    std::fs::write(evening.repository().join("new.rs"), "one\ntwo\n").unwrap();
    let started = Event::ToolStarted {
        id: "w".into(),
        name: "Write".into(),
        summary: "new.rs".into(),
        edit: Some(Box::new(FileEdit {
            old: String::new(),
            new: String::new(),
            removed: 0,
            added: 2,
        })),
        subagent: false,
    };
    let ended = Event::ToolEnded {
        id: "w".into(),
        name: "Write".into(),
        failed: false,
        denied: false,
        lines: 1,
        chars: 1,
        preview: "".into(),
        subagent: false,
    };
    append(&evening, &[started, ended]);
    while evening.source.next_read_ms(Tab::Activity).is_none() {
        evening.source.monitor.wait(None);
        evening.source.update(NOW_MS);
    }
    // Nothing else wakes the screen if the run writes no more.
    let due_ms = evening.source.next_read_ms(Tab::Activity).unwrap();
    assert!((1..=1_000).contains(&(due_ms - NOW_MS)), "{due_ms}");
    assert!(evening.screen().contains("diff +612 −87"));
    evening.wait_ms(due_ms - NOW_MS);
    assert!(evening.screen().contains("diff +614 −87"), "{}", evening.screen());
    assert_eq!(evening.source.next_read_ms(Tab::Activity), None);
}

#[test]
fn refused_resume_says_why_at_once() {
    let mut evening = Evening::new(60, 20);
    evening.release_locks();
    let id = evening.model.shown_run().unwrap().to_owned();
    let resume = |evening: &mut Evening, result| {
        let (request, run) = (RequestKind::Resume, id.clone());
        evening.send(Message::Done { request, run, result: Ok(()) });
        assert!(evening.screen().contains("resuming…"), "{}", evening.screen());
        evening.send(Message::Resumed { run: id.clone(), result });
    };
    let long = "run 20261118-144432-3475 has reached its limit: 1 of 1 iteration (raise the total: \
                ralph resume 20261118-144432-3475 -n 11)";
    resume(&mut evening, Err(long.to_owned()));
    let screen = evening.screen();
    assert!(!screen.contains("resuming…"), "{screen}");
    assert!(screen.contains("has reached its limit"), "{screen}");
    assert!(screen.trim_end().ends_with("-n 11)"), "the hint is cut: {screen}");
    // `ralph resume` also succeeds if there is nothing to resume.
    resume(&mut evening, Ok(false));
    assert_eq!(note(&evening), "reset-mail was not resumed: process is gone");
    resume(&mut evening, Ok(true));
    assert!(evening.screen().contains("resuming…"), "until the journal says so");
}

#[test]
fn run_whose_files_are_gone_cannot_be_resumed() {
    let mut evening = Evening::new(120, 36);
    let id = evening.model.shown_run().unwrap().to_owned();
    let dir = evening.source.monitor.run_dir(&id).unwrap().path.clone();
    std::fs::rename(&dir, dir.with_extension("moved")).unwrap();
    while evening.source.data().card(&id).is_some_and(|card| !card.is_removed) {
        evening.source.monitor.wait(None);
        evening.source.update(NOW_MS);
    }
    evening.send(Message::DataChanged);
    select(&mut evening, "reset-mail");
    let screen = evening.screen();
    assert!(screen.contains("files removed"), "{screen}");
    assert!(!screen.contains("process"), "{screen}");
    evening.effects.clear();
    evening.press("r");
    assert_eq!(evening.effects, []);
    assert_eq!(note(&evening), "reset-mail: its files are gone; nothing to resume.");
    evening.press("i");
    assert!(evening.model.dialog.is_none(), "no agent is left to tell");
}

/// Appends events, and waits until the run has the last of them.
fn append_and_read(evening: &mut Evening, events: &[Event<'_>], is_read: fn(&RunState) -> bool) {
    append(evening, events);
    let id = evening.model.shown_run().unwrap().to_owned();
    while !is_read(evening.source.monitor.state(&id).unwrap()) {
        evening.source.monitor.wait(None);
        evening.source.update(NOW_MS);
    }
    evening.send(Message::DataChanged);
}

fn ended(outcome: Outcome, message: std::borrow::Cow<'static, str>) -> Event<'static> {
    Event::RunEnded {
        outcome,
        exit_code: 1,
        message,
        iterations: 9,
        cut_off: false,
        duration_ms: 1,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
        branch: None,
        last_failure: None,
        used_up: None,
    }
}

#[test]
fn ended_run_offers_only_what_works() {
    let mut evening = Evening::new(120, 36);
    let footer = |evening: &mut Evening| evening.screen().lines().last().unwrap().to_owned();
    let told = Event::GuidanceReceived { id: 77, text: "Use tabs.".into(), every: false };
    let has_more = |run: &RunState| run.steering.guidance.iter().any(|it| it.id == 77);
    append_and_read(&mut evening, &[told], has_more);
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("waits for iteration 10"), "{}", evening.screen());
    assert!(footer(&mut evening).contains("i tell  p pause  x stop"), "{}", footer(&mut evening));
    let ended = ended(Outcome::LimitReached, "limit".into());
    append_and_read(&mut evening, &[ended], |run| run.end.is_some());
    evening.release_locks();
    assert!(evening.screen().contains("not delivered"), "{}", evening.screen());
    let footer = footer(&mut evening);
    assert!(footer.contains("r resume"), "{footer}");
    let missing = ["i tell", "p pause", "x stop", "G follow"];
    assert!(!missing.iter().any(|it| footer.contains(it)), "{footer}");
    evening.press("a");
    assert_eq!(note(&evening), "reset-mail has ended; nothing to answer.");
}

#[test]
fn narrow_rows_keep_what_matters() {
    let mut evening = Evening::new(60, 20);
    let message = "the agent failed five times in a row, at last with exit code 3".into();
    append_and_read(&mut evening, &[Event::PauseRequested], |run| run.requests.pause);
    let screen = evening.screen();
    assert!(screen.contains(" pausing "), "the first word stays whole: {screen}");
    assert!(!screen.contains("pausing,"), "{screen}");
    append_and_read(&mut evening, &[ended(Outcome::AgentFailed, message)], |run| run.end.is_some());
    evening.release_locks();
    let screen = evening.screen();
    assert!(screen.contains("… Press r."), "{screen}");
}

#[test]
fn search_of_a_page_works_when_all_keys_come_at_once() {
    let mut evening = Evening::new(120, 36);
    evening.keys(&[Key::Enter, Key::Char('5')]);
    for key in [Key::Char('/'), Key::Char('c'), Key::Char('o'), Key::Enter] {
        evening.model.update(Message::Key(key), &evening.source.data());
    }
    evening.send(Message::DataChanged);
    let search = evening.model.search.as_ref().unwrap();
    assert!(!search.hits.is_empty(), "{}", evening.screen());
}

#[test]
fn diff_of_an_ended_run_says_which_tree_it_shows() {
    let mut evening = Evening::with_repository(80, 24);
    let says = |evening: &mut Evening| evening.screen().contains("The work tree as it is now.");
    evening.keys(&[Key::Enter, Key::Char('3')]);
    assert!(!says(&mut evening), "it works");
    evening.release_locks();
    assert!(says(&mut evening), "{}", evening.screen());
}

#[test]
fn rows_without_runs_show_more_of_the_selected_one() {
    for size in [(80, 24), (120, 36)] {
        let mut evening = Evening::new(size.0, size.1);
        let before = evening.screen();
        evening.press("fslugs");
        evening.keys(&[Key::Enter]);
        let rule = |screen: &str| screen.lines().position(|line| line.starts_with("─ ")).unwrap();
        let screen = evening.screen();
        assert!(rule(&screen) < rule(&before) - 8, "{screen}");
        assert!(rule(&screen) > 4, "{screen}");
    }
}

#[test]
fn cut_notice_in_the_preview_ends_in_an_ellipsis() {
    let mut evening = Evening::new(80, 24);
    let message = "the prompt never mentions the response, ".repeat(3);
    append(&evening, &[Event::Warning { message: message.into() }]);
    while !evening.screen().contains("the prompt never") {
        evening.source.monitor.wait(None);
        evening.source.update(NOW_MS);
    }
    let screen = evening.screen();
    let line = screen.lines().find(|line| line.contains("the prompt never")).unwrap();
    assert!(line.ends_with('…'), "{screen}");
}

#[test]
fn empty_page_offers_no_keys_for_its_list() {
    let mut evening = Evening::new(60, 20);
    select(&mut evening, "deps-upgrade");
    evening.keys(&[Key::Enter, Key::Char('2')]);
    let screen = evening.screen();
    assert!(screen.contains("This run has no task list."), "{screen}");
    assert!(!screen.contains("↑↓ story"), "{screen}");
}

#[test]
fn reading_is_mentioned_after_a_while() {
    let mut evening = Evening::new(120, 36);
    let mut card = evening.source.data().overview.cards().next().unwrap().clone();
    card.reading = Some(40);
    let mut since = std::collections::HashMap::new();
    since.insert(card.id.clone(), NOW_MS);
    let mut text_after = |ms: i64| {
        evening.wait_ms(ms);
        let data = Data { reading_since: &since, ..evening.source.data() };
        data.reading_text(&card)
    };
    assert_eq!(text_after(299), None);
    assert_eq!(text_after(1).as_deref(), Some("reading 40%"));
}

#[test]
fn filter_without_a_match_selects_nothing() {
    let mut evening = Evening::new(80, 24);
    evening.press("fzzz");
    evening.keys(&[Key::Enter, Key::Enter]);
    assert_eq!(selected(&evening), "none", "{}", evening.screen());
    assert!(!evening.model.fleet.older_open);
}

#[test]
fn last_run_can_be_selected_while_older_ones_are_read() {
    let mut evening = Evening::unread(120, 36);
    evening.press("G");
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("reading 14 older runs"), "{}", evening.screen());
    evening.press("G");
    let last = evening.source.data().overview.cards().last().unwrap().name.clone();
    assert_eq!(selected(&evening), last, "{}", evening.screen());
}

#[test]
fn endless_search_and_filter_leave_room_for_the_result() {
    let mut evening = Evening::new(60, 20);
    for (key, expected) in [("/", "not found"), ("f", "Esc shows all runs")] {
        evening.press(key);
        evening.send(Message::Paste("a".repeat(1 << 20)));
        evening.keys(&[Key::Enter]);
        evening.send(Message::Hits { hits: Vec::new(), is_running: false });
        assert!(evening.screen().contains(expected), "{}", evening.screen());
        evening.keys(&[Key::Esc, Key::Esc]);
    }
}
