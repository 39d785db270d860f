//! Markdown, diffs, paths and wrapping of the agent's output.

use super::*;
use ralph_events::event::FileEdit;

/// Standard output on a terminal of this width, with a status line below if `live`.
fn terminal(style: Style, width: usize, live: bool) -> (TerminalReporter, Sink) {
    let sink = Sink::default();
    let status = live.then_some(width);
    let screen = TerminalOutput::fake(sink.output(), Sink::default().output(), live, status);
    let screen = screen.with_text_width(width);
    (TerminalReporter::new(style, || TimeZone::UTC, screen), sink)
}

fn shown(style: Style, width: usize, events: &[Event<'_>]) -> String {
    let (mut human, sink) = terminal(style, width, false);
    let mut run = RunState::live();
    events.iter().for_each(|event| show(&mut human, &mut run, at(START), event));
    human.finish();
    sink.text()
}

/// `UPDATE_GOLDEN=1 cargo test golden` rewrites the files.
#[test]
fn agent_output_matches_golden_files() {
    let journal = include_str!("../../testdata/agent.jsonl");
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata");
    let color = Style { color: true, ..emoji() };
    let stamped = Style { timestamps: true, ..emoji() };
    for (name, style, width) in [
        ("piped", emoji(), None),
        ("color60", color, Some(60)),
        ("emoji60", emoji(), Some(60)),
        ("stamped60", stamped, Some(60)),
        ("plain100", Style::default(), Some(100)),
    ] {
        let (mut human, sink) = match width {
            Some(width) => terminal(style, width, false),
            None => {
                let sink = Sink::default();
                let screen = TerminalOutput::fake(sink.output(), sink.output(), false, None);
                (TerminalReporter::new(style, || TimeZone::UTC, screen), sink)
            }
        };
        let entries =
            journal.lines().map(|line| serde_json::from_str::<Entry<'static>>(line).unwrap());
        replay(entries, &mut human);
        let shown = sink.text();
        let path = format!("{directory}/agent.{name}.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shown == expected, "{path} differs; now:\n{shown}");
    }
}

#[test]
fn fragments_appear_at_once_and_are_rendered_when_line_ends() {
    let color = Style { color: true, ..emoji() };
    let (mut human, sink) = terminal(color, 20, true);
    human.streams_fragments = true;
    let mut run = RunState::live();
    show(&mut human, &mut run, at(START), &Event::IterationStarted { max_iterations: 3 });
    for (piece, joined, expected) in [
        ("a **bo", false, "a **bo\n"),
        ("ld** word and no more\nthe e", true, "a \x1b[1mbold\x1b[0m word and no\nmore\nthe e\n"),
        ("nd", true, "\x1b[Jthe end\n"),
    ] {
        show(&mut human, &mut run, at(START), &said(piece, joined));
        human.flush();
        let drawn = sink.take().concat();
        assert!(drawn.contains(expected), "{drawn:?}");
    }
    human.finish();
    assert!(sink.take().concat().ends_with("the end\n"));
}

#[test]
fn fragments_without_live_area_are_passed_on() {
    let (mut human, sink) = terminal(emoji(), 20, false);
    human.streams_fragments = true;
    let mut run = RunState::live();
    show(&mut human, &mut run, at(START), &said("- a", false));
    human.flush();
    assert_eq!(sink.take(), ["- a"]);
}

#[test]
fn wrapped_line_keeps_its_tabs() {
    let shown = shown(emoji(), 30, &[tool_ended(false, false, "\tone two three four")]);
    assert!(shown.ends_with("\n  ⎿  \tone two three\n     \tfour\n"), "{shown:?}");
}

#[test]
fn resize_affects_only_later_lines() {
    let (mut human, sink) = terminal(emoji(), 8, false);
    let mut run = RunState::live();
    show(&mut human, &mut run, at(START), &said("one two three", false));
    human.flush();
    human.redraw(Redraw::Resized);
    show(&mut human, &mut run, at(START), &said("one two three", false));
    human.flush();
    assert_eq!(sink.text(), "one two\nthree\none two three\n", "the width is unknown now");
}

#[test]
fn plain_text_agent_keeps_its_marks() {
    let mut started = run_started("agent", 1);
    if let Event::RunStarted { plain_text, .. } = &mut started {
        *plain_text = true;
    }
    let shown = shown(emoji(), 60, &[started, said("# **x** `y`", false), said("- z", false)]);
    assert!(shown.ends_with("\n# **x** `y`\n- z\n"), "{shown}");
}

#[test]
fn hostile_text_is_bounded_and_clean() {
    let mut lines = vec!["x".repeat(10_000_000), " ".repeat(10_000_000)];
    for piece in ["**a", "`", "[a](", "日", "\x1b[31m**", "\u{202e}`", "- ", "```\n````\n", "a\t"]
    {
        lines.push(piece.repeat(1_000_000 / piece.len()));
    }
    for line in lines {
        let shown = shown(emoji(), 40, &[said(&line, false)]);
        assert!(shown.chars().count() < 2 * MAX_TEXT, "{}", shown.len());
        let control = shown.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
        assert_eq!(control, None);
    }
}

#[test]
fn diff_of_hostile_edit_is_bounded_and_clean() {
    let evil = "\x1b[2J".to_owned() + &"x".repeat(2000);
    let edit = FileEdit { old: evil.clone(), new: evil, removed: u64::MAX, added: 1 };
    let started = Event::ToolStarted {
        id: "1".into(),
        name: "Edit".into(),
        summary: "f".into(),
        edit: Some(Box::new(edit)),
        subagent: false,
    };
    let whole = out(Style::default(), std::slice::from_ref(&started));
    assert!(!whole.contains('\x1b') && whole.len() < 600, "{whole}");
    assert!(whole.contains("... 18446744073709551614 more lines\n"), "{whole}");
    let silent = Style { max_output_lines: 0, ..Style::default() };
    assert_eq!(out(silent, &[started]), "[TOOL] Edit(f)\n");
}

#[test]
fn warnings_and_notes_wrap_on_the_terminal_only() {
    let warning = Event::Warning { message: "one two three four".into() };
    let note = Event::Note { message: "five six seven".into(), important: true };
    for (is_terminal, expected) in [
        (true, "[WARN] one two\n       three\n       four\nnote: five six\nseven\n"),
        (false, "[WARN] one two three four\nnote: five six seven\n"),
    ] {
        let sink = Sink::default();
        let screen = TerminalOutput::fake(sink.output(), sink.output(), is_terminal, None);
        let screen = screen.with_text_width(16);
        let mut human = TerminalReporter::new(Style::default(), || TimeZone::UTC, screen);
        let mut run = RunState::live();
        for event in [&warning, &note] {
            show(&mut human, &mut run, at(START), event);
        }
        human.finish();
        assert_eq!(sink.text(), expected);
    }
}
