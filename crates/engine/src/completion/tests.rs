use super::*;
use proptest::prelude::*;

fn response() -> CompletionRule {
    CompletionRule::Response("DONE".into())
}

fn promise() -> CompletionRule {
    CompletionRule::Promise("COMPLETE".into())
}

fn judge(rule: &CompletionRule, texts: &[&str]) -> CompletionResult {
    let mut detector = CompletionDetector::new(rule);
    for text in texts {
        detector.push_text(text, false);
    }
    detector.finish()
}

#[test]
fn tag_split_across_messages_does_not_complete() {
    for (rule, tag) in
        [(promise(), "promise"), (CompletionRule::Response("COMPLETE".into()), "response")]
    {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        for (said, complete) in [
            (&[(&*open, false), ("COMPLETE", false), (&*close, false)][..], false),
            (&[(&*open, false), ("COMPLETE", true), (&*close, true)], true),
            (&[(&*format!("{open}\nCOMPLETE\n{close}"), false)], true),
            (&[("<", false), (&*format!("{}COMPLETE{close}", &open[1..]), false)], false),
        ] {
            let mut detector = CompletionDetector::new(&rule).for_messages();
            said.iter().for_each(|(text, joined)| detector.push_text(text, *joined));
            assert_eq!(detector.finish().complete, complete, "{said:?}");
        }
    }
}

#[test]
fn completion_ignores_escape_sequences_for_any_chunking() {
    let pattern = CompletionRule::Pattern(Regex::new("(?m)^all done$").unwrap());
    for (rule, said, complete) in [
        (&pattern, "so\n\x1b[0mall \x1b[1mdone\x1b[0m\r\nbye", true),
        (&pattern, "so\n\x1b]0;all done\nbye", false),
        (&pattern, "\x1b]a title that never ends\nall done", true),
        (&promise(), "\x1b[33m<promise>\x1b[0mCOMPLETE\x1b[33m</promise>\x1b[0m", true),
        (&promise(), "<promise>COMPLETE\x1b]0;</promise>\n", false),
    ] {
        for prompt in [None, Some("Work."), Some("Say \x1b[1m<promise>X</promise>.")] {
            let whole = &[said][..];
            let chars: Vec<String> = said.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            for pieces in [whole, &chars] {
                let mut detector = CompletionDetector::new(rule);
                if let Some(prompt) = prompt {
                    detector = detector.with_prompt_echo(prompt);
                }
                for (nth, piece) in pieces.iter().enumerate() {
                    detector.push_text(piece, nth > 0);
                }
                assert_eq!(detector.finish().complete, complete, "{pieces:?} {prompt:?}");
            }
        }
    }
}

#[test]
fn answer_with_only_prompt_echo_is_detected() {
    let prompt = "Do it.\n\nThen say <promise>COMPLETE</promise>";
    for (said, expected) in [
        (&["Do it.", "", "Then say <promise>COMPLETE</promise>"][..], true),
        (&["> Do it.", ">", "> Then say <promise>COMPLETE</promise>", ""], true),
        (&["Do it.", "", "Then say <promise>COMPLETE</promise>", "Working."], false),
        (&["Do it."], false),
        (&["Working."], false),
        (&[], false),
    ] {
        let mut detector = CompletionDetector::new(&promise()).with_prompt_echo(prompt);
        for text in said {
            detector.push_text(text, false);
        }
        assert!(!detector.finish().complete, "{said:?}");
        assert_eq!(detector.is_only_echo(), expected, "{said:?}");
    }
}

#[test]
fn first_response_tag_decides_completion() {
    let cases: [(&[&str], bool, Option<&str>); 12] = [
        (&["<response>DONE</response>"], true, Some("DONE")),
        (&["<RESPONSE> done\n</Response>"], true, Some("done")),
        (&["<response>", "DONE", "</response>"], true, Some("DONE")),
        (&["all <response>DONE</response> ok"], true, Some("DONE")),
        (&["<response>no</response><response>DONE</response>"], false, Some("no")),
        (&["<response>DONE</response><response>no</response>"], true, Some("DONE")),
        (&["<response>not DONE yet</response>"], false, Some("not DONE yet")),
        (&["I will say <response> later", "<response>DONE</response>"], true, Some("DONE")),
        (&["undone", "DONE"], false, None),
        (&["<response>DONE"], false, None),
        (&["DONE</response>"], false, None),
        (&[], false, None),
    ];
    for (texts, complete, found) in cases {
        let verdict = judge(&response(), texts);
        assert_eq!((verdict.complete, verdict.signal.as_deref()), (complete, found), "{texts:?}");
    }
}

#[test]
fn retracted_text_does_not_complete() {
    let pattern = CompletionRule::Pattern(Regex::new("DONE$").unwrap());
    for (rule, said) in [
        (response(), "<response>DONE</response>"),
        (promise(), "<promise>COMPLETE</promise>"),
        (pattern, "I am DONE"),
    ] {
        let mut detector = CompletionDetector::new(&rule);
        detector.push_text(&format!("{said} <response><promise>"), false);
        assert!(detector.has_output());
        detector.retract();
        assert!(!detector.has_output());
        assert_eq!(detector.finish(), CompletionResult::default(), "{said}");
        detector.push_text(said, false);
        assert!(detector.finish().complete, "{said}");
    }
}

#[test]
fn any_promise_tag_completes() {
    for (text, complete) in [
        ("<promise>COMPLETE</promise>", true),
        ("<promise> COMPLETE\n</promise>", true),
        ("<promise>no</promise> <promise>COMPLETE</promise>", true),
        ("<promise>complete</promise>", false),
        ("<PROMISE>COMPLETE</PROMISE>", false),
        ("<promise>COMPLETE</Promise>", false),
        ("<promise>COMPLETELY</promise>", false),
        ("COMPLETE", false),
    ] {
        assert_eq!(judge(&promise(), &[text]).complete, complete, "{text:?}");
    }
}

#[test]
fn prompt_is_searched_for_completion_instructions() {
    for (rule, prompt, told) in [
        (promise(), "Say <promise>COMPLETE</promise>.", true),
        (promise(), "First <promise>X</promise>, then <promise> COMPLETE </promise>", true),
        (promise(), "Say <promise>complete</promise>.", false),
        (promise(), "Say COMPLETE.", false),
        (response(), "<response>NO</response> or <Response>done</Response>", true),
        (response(), "<promise>DONE</promise>", false),
        (CompletionRule::Pattern(Regex::new("x").unwrap()), "", true),
    ] {
        assert_eq!(rule.is_requested_by(prompt), told, "{prompt}");
    }
}

#[test]
fn pattern_matches_across_lines_with_lookaround() {
    let rule = CompletionRule::Pattern(Regex::new(r"(?s)plan.*100%(?! left)").unwrap());
    assert!(judge(&rule, &["the plan", "is 100% done"]).complete);
    assert!(!judge(&rule, &["the plan", "is 100% left"]).complete);
}

#[test]
fn pattern_exceeding_backtrack_limit_is_abandoned() {
    let costly = "(?<!x)(a+)+b|never";
    let regex = fancy_regex::RegexBuilder::new(costly).backtrack_limit(100).build().unwrap();
    let verdict = judge(&CompletionRule::Pattern(regex), &[&"a".repeat(200), "done"]);
    assert!(verdict.pattern_too_slow && !verdict.complete);
    let regex = Regex::new("(?<!x)a+b|done").unwrap();
    assert!(!judge(&CompletionRule::Pattern(regex), &[&"a".repeat(200), "done"]).pattern_too_slow);
}

#[test]
fn pattern_matches_before_long_output() {
    let rule = CompletionRule::Pattern(Regex::new("All tasks complete").unwrap());
    let mut detector = CompletionDetector::new(&rule);
    detector.push_text("All tasks complete", false);
    for _ in 0..100_000 {
        detector.push_text("and more, and é more", false);
    }
    assert!(detector.finish().complete);
}

#[test]
fn pattern_anchors_hold_in_long_output() {
    // 16 bytes each, so that each is once at an end of the window.
    let line = "line number 777";
    for (pattern, last, complete) in [
        (r"^line number", "", true),
        // Needs all the text, which is not kept.
        (r"\A(?s).*number 777\nEND", "END", false),
        (r"^(?:END|number 777|777)", "END", false),
        (r"777$", "END", false),
        (r"777\z", "END", false),
        (r"777(?!\n)", "END", false),
        (r"(?m)^777$", "END", false),
        (r"END$", "END", true),
        (r"(?m)^END$", "END", true),
        (r"(?m)^line number 777$", "END", true),
    ] {
        let mut detector =
            CompletionDetector::new(&CompletionRule::Pattern(Regex::new(pattern).unwrap()));
        for _ in 0..100_000 {
            detector.push_text(line, false);
        }
        detector.push_text(last, false);
        assert_eq!(detector.finish().complete, complete, "{pattern}");
    }
}

#[test]
fn pattern_match_may_be_long() {
    let rule = CompletionRule::Pattern(Regex::new("(?s)BEGIN.*END").unwrap());
    let line = "x".repeat(999);
    let mut said = vec!["BEGIN"];
    said.extend([line.as_str(); 250]);
    said.push("END");
    assert!(judge(&rule, &said).complete);
}

#[test]
fn prompt_that_may_name_the_signal_is_recognized() {
    let pattern = CompletionRule::Pattern(Regex::new("^all (tasks )?are done$").unwrap());
    let short_words = CompletionRule::Pattern(Regex::new("^it is done$").unwrap());
    for (rule, prompt, mentioned) in [
        (&promise(), "Say <promise>COMPLETE</promise>.", true),
        (&promise(), "Say <PROMISE> and stop.", true),
        (&promise(), "Put complete into a promise tag.", true),
        (&promise(), "I promise you nothing.", false),
        (&promise(), "Make it complete.", false),
        (&response(), "End with <response>.", true),
        (&response(), "Work.", false),
        (&pattern, "all are done", true),
        (&pattern, "When all tasks are finished, say that you are done.", true),
        (&pattern, "Say when you are done.", false),
        (&short_words, "Say when you are done.", true),
        (&CompletionRule::Never, "Work.", true),
    ] {
        assert_eq!(rule.is_mentioned_in(prompt), mentioned, "{prompt}");
    }
}

#[test]
fn pattern_matches_across_window_boundary() {
    let rule = CompletionRule::Pattern(Regex::new("All tasks complete").unwrap());
    for before in (2 * PATTERN_WINDOW - 40)..(2 * PATTERN_WINDOW + 4) {
        for before in [before, before - PATTERN_WINDOW, before - PATTERN_MARGIN] {
            let mut detector = CompletionDetector::new(&rule);
            detector.push_text(&"x".repeat(before), true);
            detector.push_text("All tasks complete", true);
            for _ in 0..6 {
                detector.push_text(&"x".repeat(PATTERN_MARGIN - 7), true);
            }
            assert!(detector.finish().complete, "{before}");
        }
    }
}

#[test]
fn oversized_response_does_not_hide_next_one() {
    let mut detector = CompletionDetector::new(&response());
    detector.push_text("<response>", false);
    for _ in 0..10_000 {
        detector.push_text("é".repeat(100).as_str(), true);
    }
    detector.push_text("</response><response>DONE</response>", true);
    assert!(detector.finish().complete);
}

#[test]
fn echoed_prompt_does_not_complete_by_response_tag() {
    let prompt = "Fix it.\nThen say\n<response>DONE</response>\n";
    let judge = |lines: &[&str]| {
        let mut detector = CompletionDetector::new(&response()).with_prompt_echo(prompt);
        for line in lines {
            detector.push_text(line, false);
        }
        detector.finish().complete
    };
    let echo = ["Fix it.", "Then say", "<response>DONE</response>"];
    assert!(!judge(&echo));
    assert!(!judge(&[&["> "], &echo[..], &["working"]].concat()));
    assert!(judge(&[&echo[..], &["working", "<response>DONE</response>"]].concat()));
    assert!(judge(&["<response>DONE</response>"]), "the answer alone is the agent's own");
    assert!(judge(&["Then say", "<response>DONE</response>"]), "a part of the prompt is no echo");
    assert!(judge(&["Fix it.", "Fix it.", "<response>DONE</response>"]));
    // More text follows on the last line of the prompt.
    assert!(!judge(&["Fix it.", "Then say", "<response>DONE</response>I will."]));
    assert!(judge(&["Fix it.", "Then say", "<response>DONE</response><response>DONE</response>"]));
    let tag = "<response>DONE</response>";
    let plain = "Fix it.\n\nThen say\n<response>DONE</response>";
    let rows: [(&str, &[&str], bool); 12] = [
        // Blank lines around the prompt, or more of them in the echo.
        ("\n \nSay\n<response>DONE</response>\n\n\n", &["Say", tag], false),
        ("\nSay\n<response>DONE</response>\n", &["", "Say", tag, "", ""], false),
        ("\nSay\n<response>DONE</response>\n", &["Say", tag, "", tag], true),
        (plain, &["> Fix it.", ">", "> Then say", "> <response>DONE</response>"], false),
        (plain, &["│ Fix it.", "│", "│ Then say", "│ <response>DONE</response>"], false),
        (plain, &["  Fix it.", "", "  Then say", "  <response>DONE</response>  "], false),
        (plain, &["> Fix it.", ">", "> Then say", "> done", "  <response>DONE</response>"], true),
        ("> Say\n> <response>DONE</response>", &["Say", tag], false),
        // Its first lines repeat, so the echo starts later than it seems.
        ("A\nA\n<response>DONE</response>", &["A", "A", "A", tag], false),
        ("A\nB\nA\n<response>DONE</response>", &["A", "B", "A", "B", "A", tag], false),
        ("A\nA\n<response>DONE</response>", &["A", "A", "A", tag, "A", tag], true),
        ("A\nA\n<response>DONE</response>", &["A", tag], true),
    ];
    for (prompt, lines, complete) in rows {
        let mut detector = CompletionDetector::new(&response()).with_prompt_echo(prompt);
        for line in lines {
            detector.push_text(line, false);
        }
        assert_eq!(detector.finish().complete, complete, "{prompt:?}: {lines:?}");
    }
    let one_line = "Say <response>DONE</response> when done";
    for (line, complete) in [
        (one_line.to_owned(), false),
        (format!("{one_line}: working"), false),
        (format!("{one_line}<response>DONE</response>"), true),
    ] {
        let mut detector = CompletionDetector::new(&response()).with_prompt_echo(one_line);
        detector.push_text(&line, false);
        assert_eq!(detector.finish().complete, complete, "{line}");
    }
}

#[test]
fn echo_of_long_prompt_line_is_detected_in_pieces() {
    let long = format!("{} <response>DONE</response>", "x".repeat(200_000));
    let prompt = format!("First.\n{long}\nLast: <response>DONE</response>");
    let echo = |detector: &mut CompletionDetector, quote: &str| {
        for line in prompt.lines() {
            let line = format!("{quote}{line}");
            let (head, rest) = line.split_at(line.len().min(64 * 1024));
            detector.push_text(head, false);
            for piece in rest.as_bytes().chunks(64 * 1024) {
                detector.push_text(std::str::from_utf8(piece).unwrap(), true);
            }
        }
    };
    for (quote, said, complete) in [
        ("", "working", false),
        ("> ", "working", false),
        ("", "<response>DONE</response>", true),
        ("", &*format!("{long}{long}"), true),
    ] {
        let mut detector = CompletionDetector::new(&response()).with_prompt_echo(&prompt);
        echo(&mut detector, quote);
        detector.push_text(said, false);
        assert_eq!(detector.finish().complete, complete, "{quote} {}", said.len());
    }
}

proptest! {
    #[test]
    fn verdict_is_independent_of_chunking(
        text in "(<response>|</response>|<resp|onse>|DONE|x|é| |\n|<){0,12}",
        cuts in proptest::collection::vec(0usize..80, 0..6),
    ) {
        for rule in [response(), CompletionRule::Promise("DONE".into())] {
            let whole = judge(&rule, &[&text]);
            let mut detector = CompletionDetector::new(&rule);
            let mut cuts: Vec<usize> =
                cuts.iter().map(|cut| text.floor_char_boundary(*cut)).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts {
                detector.push_text(&text[from..cut], true);
                from = cut;
            }
            detector.push_text(&text[from..], true);
            prop_assert_eq!(detector.finish(), whole);
        }
    }

    #[test]
    fn response_scanner_agrees_with_regex_definition(
        text in "(<response>|</response>|DONE|x|é| |\n|<){0,12}",
    ) {
        let plain = Regex::new(r"(?is)<response>((?:(?!<response>).)*?)</response>").unwrap();
        let expected = plain
            .captures(text.as_str())
            .unwrap()
            .map(|found| found.get(1).unwrap().as_str().trim().to_owned());
        prop_assert_eq!(judge(&response(), &[&text]).signal, expected);
    }
}
