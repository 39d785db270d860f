use super::*;
use crate::async_writer::tests::Reader;
use crate::output::tests::Sink;

fn screen(one_terminal: bool, width: Option<usize>) -> (TerminalOutput, Sink, Sink) {
    let (out, err) = (Sink::default(), Sink::default());
    let screen = TerminalOutput::fake(out.output(), err.output(), one_terminal, width);
    (screen, out, err)
}

#[test]
fn screen_writes_each_output_in_few_writes() {
    let (mut screen, out, err) = screen(false, None);
    screen.buffer_for(OutputTarget::Out).extend(b"a\n");
    screen.buffer_for(OutputTarget::Out).extend(b"b\n");
    screen.buffer_for(OutputTarget::Err).extend(b"warning\n");
    screen.buffer_for(OutputTarget::Out).extend(b"c");
    screen.flush("");
    screen.flush("");
    assert_eq!(out.take(), ["a\nb\n", "c"]);
    assert_eq!(err.take(), ["warning\n"]);
}

#[test]
fn screen_replaces_status_line_in_one_write() {
    let (mut screen, out, err) = screen(true, Some(20));
    screen.buffer_for(OutputTarget::Out).extend(b"a\n");
    screen.flush("st");
    assert_eq!(out.take(), ["a\nst\r"]);
    screen.flush("st");
    assert_eq!(out.take(), [""; 0], "nothing changed");
    screen.buffer_for(OutputTarget::Err).extend(b"w\n");
    screen.flush("st2");
    assert_eq!(out.take(), ["\r\x1b[Jw\nst2\r"]);
    screen.flush("");
    screen.flush("");
    assert_eq!(out.take(), ["\r\x1b[J"]);
    assert_eq!(err.take(), [""; 0]);
}

#[test]
fn screen_shows_unfinished_line_above_status_line() {
    let (mut screen, out, _) = screen(true, Some(11));
    screen.buffer_for(OutputTarget::Out).extend(b"one\nunfin");
    screen.flush("st");
    assert_eq!(out.take(), ["one\nunfin\nst\r"]);
    screen.buffer_for(OutputTarget::Out).extend("ished\tlong 日".as_bytes());
    screen.flush("st");
    assert_eq!(out.take(), ["\r\x1b[1A\x1b[Jed long 日\nst\r"]);
    // Made narrower, the line that was drawn takes two rows.
    screen.live.as_mut().unwrap().resize(6);
    screen.buffer_for(OutputTarget::Out).extend(b"\n");
    screen.flush("st");
    assert_eq!(out.take(), ["\r\x1b[2A\x1b[Junfinished\tlong 日\nst\r"]);
}

#[test]
fn screen_preview_line_is_replaced_by_whole_line() {
    let (mut screen, out, _) = screen(true, Some(20));
    screen.set_partial_line(b"Working... ");
    screen.flush("st");
    assert_eq!(out.take(), ["Working... \nst\r"]);
    screen.flush("st");
    assert_eq!(out.take(), [""; 0], "nothing changed");
    screen.set_partial_line(b"Working... \r10%\r20%\r");
    screen.flush("st");
    assert_eq!(out.take(), ["\r\x1b[1A\x1b[J20%\nst\r"]);
    screen.buffer_for(OutputTarget::Out).extend(b"Working... done\n");
    screen.set_partial_line(b"");
    screen.flush("st");
    assert_eq!(out.take(), ["\r\x1b[1A\x1b[JWorking... done\nst\r"]);
    // Nothing is shown that could not be taken back.
    screen.set_partial_line(b"more");
    screen.flush("");
    assert_eq!(out.take(), ["\r\x1b[J"]);
    let (mut screen, out, _) = self::screen(false, Some(20));
    screen.set_partial_line(b"more");
    screen.flush("st");
    assert_eq!(out.take(), [""; 0]);
}

#[test]
fn screen_without_status_writes_unfinished_line_directly() {
    let (mut screen, out, _) = screen(true, Some(11));
    screen.buffer_for(OutputTarget::Out).extend(b"unfin");
    screen.flush("");
    assert_eq!(out.take(), ["unfin"]);
}

#[test]
fn screen_output_to_file_keeps_terminal_status_line() {
    let (mut screen, out, err) = screen(false, Some(20));
    screen.buffer_for(OutputTarget::Out).extend(b"a");
    screen.flush("st");
    assert_eq!((out.take(), err.take()), (vec!["a".into()], vec!["st\r".into()]));
    screen.buffer_for(OutputTarget::Out).extend(b"b\n");
    screen.flush("st");
    assert_eq!((out.take(), err.take()), (vec!["b\n".into()], vec![]));
    screen.buffer_for(OutputTarget::Err).extend(b"w\n");
    screen.flush("st");
    assert_eq!(err.take(), ["\r\x1b[Jw\nst\r"]);
}

#[test]
fn screen_stops_writing_to_closed_output() {
    let (mut screen, out, err) = screen(false, None);
    *out.closed.borrow_mut() = true;
    screen.buffer_for(OutputTarget::Out).extend(b"a\n");
    screen.buffer_for(OutputTarget::Err).extend(b"w\n");
    screen.flush("");
    assert_eq!(err.text(), "w\n");
    assert!(!screen.is_closed());
    *err.closed.borrow_mut() = true;
    screen.buffer_for(OutputTarget::Err).extend(b"w\n");
    screen.flush("");
    assert!(screen.is_closed());
}

fn stuck(one_terminal: bool, width: Option<usize>, limit: usize) -> (TerminalOutput, Reader) {
    let (mut screen, ..) = screen(one_terminal, width);
    let (reader, writers) = Reader::new();
    screen.outputs.outbox = AsyncWriter::new(limit, writers).ok();
    screen.outputs.queued = [true; 2];
    screen.notice = |lines, out| drop(writeln!(out, "({lines} missing)"));
    (screen, reader)
}

/// Reads all that there is.
fn drain(screen: &mut TerminalOutput, reader: &Reader) -> String {
    let backlog = screen.outputs.outbox.as_ref().unwrap().backlog();
    let text = reader.take(backlog).into_iter().map(|(_, text)| text).collect();
    while screen.has_pending_output(Duration::from_secs(30)) {}
    text
}

#[test]
fn screen_tells_stuck_reader_how_much_is_missing() {
    let (mut screen, reader) = stuck(false, None, 100_000);
    let mut number = 0;
    let mut say = |screen: &mut TerminalOutput, flushes: usize| {
        for _ in 0..flushes {
            for _ in 0..100 {
                let target = if number % 7 == 0 { OutputTarget::Err } else { OutputTarget::Out };
                writeln!(screen.buffer_for(target), "{number:09}").unwrap();
                number += 1;
            }
            screen.flush("");
            assert!(screen.buffer.len() <= MAX_HELD_BYTES);
        }
        number
    };
    say(&mut screen, 500);
    let first = drain(&mut screen, &reader);
    assert_eq!(first.len(), 100_000, "no more than the limit is kept");
    let said = say(&mut screen, 1);
    let second = drain(&mut screen, &reader);
    let lines: Vec<&str> = first.lines().chain(second.lines()).collect();
    let notice = lines.iter().position(|line| line.starts_with('(')).unwrap();
    let missing: u64 = lines[notice][1..].split(' ').next().unwrap().parse().unwrap();
    let shown = |line: &&str| line.parse::<u64>().unwrap();
    let before: Vec<u64> = lines[..notice].iter().map(shown).collect();
    let after: Vec<u64> = lines[notice + 1..].iter().map(shown).collect();
    assert_eq!(before, (0..10_000).collect::<Vec<_>>());
    assert_eq!(after, (10_000 + missing..said).collect::<Vec<_>>());
    assert_eq!(screen.omitted_lines, 0);
}

#[test]
fn screen_ends_line_whose_rest_was_dropped() {
    let (mut screen, reader) = stuck(false, None, 10);
    screen.buffer_for(OutputTarget::Out).extend(b"broken off");
    screen.flush("");
    screen.buffer_for(OutputTarget::Out).extend([b'x'; MAX_HELD_BYTES]);
    screen.buffer_for(OutputTarget::Out).extend(b"\nshown\n");
    screen.flush("");
    assert_eq!(drain(&mut screen, &reader), "broken off");
    screen.flush("");
    assert_eq!(drain(&mut screen, &reader), "\n(1 missing)\nshown\n");
}

#[test]
fn screen_delivers_last_output_to_late_reader() {
    let (mut screen, reader) = stuck(false, None, 10);
    screen.buffer_for(OutputTarget::Out).extend(b"0123456789\n");
    screen.flush("");
    screen.buffer_for(OutputTarget::Out).extend(b"the end\n");
    screen.flush("");
    screen.finish();
    assert_eq!(drain(&mut screen, &reader), "0123456789\nthe end\n");
}

#[test]
fn screen_status_lines_do_not_queue_up() {
    let (mut screen, reader) = stuck(true, Some(40), 1 << 20);
    for second in 0..10_000 {
        screen.flush(&format!("{second} s"));
    }
    assert!(screen.outputs.outbox.as_ref().unwrap().backlog() < 2 * QUEUE_FOR_STATUS);
    drain(&mut screen, &reader);
    screen.flush("the last");
    assert_eq!(drain(&mut screen, &reader), "\r\x1b[Jthe last\r");
    screen.finish();
    assert_eq!(drain(&mut screen, &reader), "\r\x1b[J");
}

#[test]
fn screen_redraws_only_accepted_output() {
    let (mut screen, reader) = stuck(true, Some(40), 20);
    screen.buffer_for(OutputTarget::Out).extend(b"0123456789\n");
    screen.flush("first");
    screen.buffer_for(OutputTarget::Out).extend(b"0123456789\n");
    screen.flush("second");
    assert_eq!(drain(&mut screen, &reader), "0123456789\nfirst\r");
    screen.flush("third");
    assert_eq!(drain(&mut screen, &reader), "\r\x1b[J0123456789\nthird\r");
}

#[test]
fn screen_file_output_is_complete_beside_stuck_terminal() {
    let (mut screen, _reader) = stuck(false, None, 10);
    let file = Sink::default();
    screen.outputs.streams[0] = file.output();
    screen.outputs.queued = [false, true];
    for _ in 0..3 {
        screen.buffer_for(OutputTarget::Err).extend(b"warning: much\n");
        screen.buffer_for(OutputTarget::Out).extend(b"a\n");
        screen.flush("");
    }
    assert_eq!(file.text(), "a\na\na\n");
    assert_eq!(screen.buffer, b"warning: much\nwarning: much\n");
    assert_eq!(screen.segments, [(OutputTarget::Err, 0)]);
}
