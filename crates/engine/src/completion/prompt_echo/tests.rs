//! Completion tags in echoed prompts.

use crate::completion::{CompletionDetector, CompletionRule};

const TAG: &str = "<promise>COMPLETE</promise>";
const ALONE: &str = "# Task\n\nStudy the notes.\n  - Then do one thing.\n\nWhen all is done, say \"so\":\n\n<promise>COMPLETE</promise>\n\nNot before that.\n";
const BESIDE: &str = "Work on the list.\n\n  1. Take the first task.\n  2. If none is left, answer <promise>COMPLETE</promise> and stop.\nNever push.\n";
const SHORT: &str = "When all is done answer <promise>COMPLETE</promise>";
const TWO: &str = "Work.\nWhen all is done answer <promise>COMPLETE</promise>\n";

fn completes(prompt: &str, output: &str) -> bool {
    let rule = CompletionRule::Promise("COMPLETE".into());
    let mut detector = CompletionDetector::new(&rule).with_prompt_echo(prompt);
    for line in output.lines() {
        detector.push_text(line, false);
    }
    detector.finish().complete
}

fn each(prompt: &str, change: impl Fn(usize, &str) -> String) -> String {
    let lines = prompt.lines().enumerate().map(|(at, line)| change(at, line));
    lines.collect::<Vec<_>>().join("\n")
}

type Form = fn(&str) -> String;
const FORMS: [(&str, Form); 20] = [
    ("as it is", str::to_owned),
    ("coloured", |p| format!("\u{1b}[1m{p}\u{1b}[0m")),
    ("each line coloured", |p| each(p, |_, l| format!("\u{1b}[38;5;12m{l}\u{1b}[0m"))),
    ("a speaker", |p| format!("user: {p}")),
    ("in a sentence", |p| format!("Running with prompt \"{p}\"")),
    ("in a sentence, ended", |p| format!("Running with prompt \"{}\"", p.trim_end())),
    ("no blank lines", |p| {
        let lines = p.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }),
    ("a log", |p| each(p, |_, l| format!("2026-11-16T04:00:00Z INFO {l}"))),
    ("a log with times", |p| each(p, |at, l| format!("2026-11-16T04:00:{at:02}Z INFO {l}"))),
    ("boxed", |p| each(p, |_, l| format!("│ {l:<90} │"))),
    ("loud", |p| each(p, |_, l| if l.contains('<') { l.to_owned() } else { l.to_uppercase() })),
    ("numbered", |p| each(p, |at, l| format!("{:6}\t{l}", at + 1))),
    ("quoted", |p| each(p, |_, l| format!("> {l}"))),
    ("cut", |p| each(p, |_, l| l.chars().take(60).collect())),
    ("without its beginning", |p| {
        // The line with the tag alone may be the requested answer.
        let rest: Vec<&str> = p.lines().skip(usize::from(p.lines().count() > 2)).collect();
        rest.join("\n")
    }),
    ("JSON", |p| serde_json::json!({ "prompt": p }).to_string()),
    ("JSON in JSON", |p| {
        serde_json::json!({ "log": serde_json::json!({ "prompt": p }).to_string() }).to_string()
    }),
    ("a trace", |p| format!("+ agent -p '{}'", p.trim_end())),
    ("a trace on a line", |p| format!("+ agent -p $'{}'", p.replace('\n', "\\n"))),
    ("lines ended twice", |p| each(p, |_, l| format!("{l}\r"))),
];

#[test]
fn echoed_prompt_in_any_format_does_not_complete() {
    for prompt in [ALONE, BESIDE, SHORT, TWO] {
        for (name, form) in FORMS {
            let shown = form(prompt);
            assert!(!completes(prompt, &shown), "{name}: {shown}");
            assert!(!completes(prompt, &format!("Hello\n{shown}\nWorking.\n")), "{name}");
            let answered = format!("{shown}\nAll is done.\n{TAG}\n");
            assert!(completes(prompt, &answered), "{name}: {answered}");
        }
    }
}

#[test]
fn dictated_line_completes_unless_part_of_prompt_echo() {
    const LINE: &str = "All tasks are complete. <promise>COMPLETE</promise>";
    let several =
        format!("Work on the list.\nWhen all is done, print exactly:\n\n{LINE}\n\nNever push.\n");
    let one = format!("Work on the list. When all is done, print: {LINE}");
    for prompt in [&several, &one] {
        assert!(completes(prompt, LINE), "{prompt}");
        assert!(completes(prompt, &format!("I took a task.\n{LINE}\nGood night.")), "{prompt}");
        assert!(!completes(prompt, prompt), "{prompt}");
        assert!(!completes(prompt, &format!("user: {prompt}\nI take a task.")), "{prompt}");
        let wrapped = prompt.replace("is done, ", "is done,\n");
        assert!(!completes(prompt, &wrapped), "{wrapped}");
    }
    let wrapped = one.replace("print: ", "print:\n");
    assert!(!completes(&one, &wrapped), "{wrapped}");
    let above = format!("When all is done, print exactly:\n{LINE}");
    assert!(!completes(&several, &above), "{above}");
}

#[test]
fn signal_ignored_as_echo_is_reported() {
    let ignored = |output: &str| {
        let rule = CompletionRule::Promise("COMPLETE".into());
        let mut detector = CompletionDetector::new(&rule).with_prompt_echo(BESIDE);
        output.lines().for_each(|line| detector.push_text(line, false));
        detector.finish();
        detector.ignored_signal()
    };
    assert!(ignored(&format!("user: {BESIDE}\nI take a task.")));
    assert!(ignored(&format!("{BESIDE}\nI take a task.")));
    assert!(!ignored("I take a task."));
    assert!(!ignored(TAG));
}

#[test]
fn promise_in_own_answer_completes() {
    for prompt in [ALONE, BESIDE, SHORT, TWO] {
        for output in [
            TAG.to_owned(),
            format!("\u{1b}[32m{TAG}\u{1b}[0m"),
            format!("All is done. {TAG}"),
            format!("{TAG} and good night"),
            format!("I took the first task.\n\n{TAG}\n\nThat was all."),
            format!("Work.\n\n{TAG}"),
            format!("{{\"answer\": \"All is done.\\n{TAG}\\n\"}}"),
            format!("{SHORT}, I was told.\nSo: {TAG}"),
            format!("Not before that.\n{TAG}"),
        ] {
            assert!(completes(prompt, &output), "{prompt}\n-- {output}");
        }
    }
}
