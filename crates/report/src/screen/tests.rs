use super::*;
use crate::async_writer::tests::Reader;
use crate::output::tests::Sink;

fn screen(one_terminal: bool, width: Option<usize>) -> (TerminalOutput, Sink, Sink) {
    let (out, err) = (Sink::default(), Sink::default());
    let screen = TerminalOutput::fake(out.output(), err.output(), one_terminal, width);
    (screen, out, err)
}

#[test]
fn each_output_gets_its_own_in_as_few_writes_as_the_order_allows() {
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
fn the_status_line_is_taken_away_before_text_and_drawn_again_after_in_one_write() {
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
fn an_unfinished_line_is_shown_above_the_status_line_until_it_is_finished() {
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
fn a_line_that_is_only_shown_goes_when_the_whole_one_comes() {
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
fn an_unfinished_line_is_written_at_once_when_nothing_is_drawn_beneath() {
    let (mut screen, out, _) = screen(true, Some(11));
    screen.buffer_for(OutputTarget::Out).extend(b"unfin");
    screen.flush("");
    assert_eq!(out.take(), ["unfin"]);
}

#[test]
fn output_into_a_file_leaves_the_status_line_of_the_terminal_alone() {
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
fn a_reader_that_is_gone_is_written_to_no_more() {
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
fn a_reader_that_stands_still_is_told_how_much_it_missed_and_gets_the_last_of_it() {
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
fn a_line_whose_end_is_missing_is_ended() {
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
fn the_last_words_are_there_for_somebody_who_reads_late() {
    let (mut screen, reader) = stuck(false, None, 10);
    screen.buffer_for(OutputTarget::Out).extend(b"0123456789\n");
    screen.flush("");
    screen.buffer_for(OutputTarget::Out).extend(b"the end\n");
    screen.flush("");
    screen.finish();
    assert_eq!(drain(&mut screen, &reader), "0123456789\nthe end\n");
}

#[test]
fn status_lines_do_not_queue_up() {
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
fn what_is_drawn_is_what_was_taken() {
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
fn a_file_gets_everything_though_a_terminal_takes_nothing() {
    let (mut screen, _reader) = stuck(false, None, 10);
    let file = Sink::default();
    screen.outputs.out = file.output();
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
