//! Tell, answer, stop and new run.

use ralph_monitor::StartedRun;

use super::*;

fn click(evening: &mut Evening, wanted: &Target) {
    let hits = evening.model.layout.hits.iter();
    let (area, _) = hits.rev().find(|(_, target)| target == wanted).expect("a target");
    let at = Position { x: area.x + 1, y: area.y };
    evening.send(Message::Mouse { action: MouseAction::Press, at });
}

#[test]
fn tell_sends_text_and_keeps_draft() {
    let mut evening = Evening::new(80, 24);
    evening.press("iuse 410");
    evening.keys(&[Key::Esc]);
    assert!(note(&evening).contains("draft"));
    evening.press("i");
    evening.keys(&[Key::Ctrl('j'), Key::Char('x'), Key::Tab]);
    evening.send(Message::Paste("pasted\nq".to_owned()));
    evening.keys(&[Key::Enter]);
    let text = "use 410\nxpasted\nq".to_owned();
    let run = evening.model.shown_run().unwrap().to_owned();
    assert_eq!(
        evening.effects,
        [Effect::Tell { run: run.clone(), text: text.clone(), delivery: Delivery::Now }]
    );
    let request = RequestKind::Tell(text);
    let failed = Err("cannot write".to_owned());
    evening.send(Message::Done { request: request.clone(), run: run.clone(), result: failed });
    assert!(evening.screen().contains("cannot write"), "the error is in the dialog");
    evening.send(Message::Done { request, run, result: Ok(()) });
    assert_eq!(evening.model.dialog, None);
    assert!(evening.screen().contains("sent, waits for"), "{}", evening.screen());
    evening.wait_ms(5_000);
    assert!(evening.screen().contains("no answer from"), "{}", evening.screen());
    evening.press("i");
    let Some(Dialog::Tell(dialog)) = &evening.model.dialog else { panic!() };
    assert!(dialog.field.is_blank(), "a sent text is no draft");
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("Nothing is written yet."));
}

#[test]
fn editor_replaces_text() {
    let mut evening = Evening::new(80, 24);
    evening.press("idraft");
    evening.keys(&[Key::Ctrl('e')]);
    assert_eq!(evening.effects, [Effect::Edit("draft".to_owned())]);
    evening.send(Message::Edited(Ok("from the editor\n".to_owned())));
    let Some(Dialog::Tell(dialog)) = &evening.model.dialog else { panic!() };
    assert_eq!(dialog.field.text(), "from the editor");
}

#[test]
fn answer_goes_to_selected_or_oldest_question() {
    let mut evening = Evening::new(80, 24);
    select(&mut evening, "docs");
    evening.press("a");
    assert_eq!(selected(&evening), "reset-mail", "the oldest question");
    evening.press("410");
    evening.keys(&[Key::Enter]);
    let Some(Effect::Answer { question, text, .. }) = evening.effects.pop() else { panic!() };
    assert_eq!((question.as_str(), text.as_str()), ("q1", "410"));
}

#[test]
fn stop_asks_and_ignores_early_keys() {
    let mut evening = Evening::new(80, 24);
    evening.press("xe");
    assert_eq!(evening.effects, [], "within 300 ms");
    evening.wait_ms(300);
    evening.press("jqe");
    let run = evening.model.shown_run().unwrap().to_owned();
    assert_eq!(evening.effects, [Effect::Stop { run: run.clone(), now: true }]);
    evening.effects.clear();
    evening.press("f");
    assert_eq!(evening.effects, [Effect::Stop { run: run.clone(), now: false }]);
    evening.effects.clear();
    evening.press("p");
    assert_eq!(evening.effects, [Effect::Pause(run)]);
    for no in [Key::Esc, Key::Char('n')] {
        evening.model.dialog = None;
        evening.press("x");
        evening.wait_ms(300);
        evening.keys(&[no]);
        assert_eq!(evening.model.dialog, None, "{no:?}");
    }
}

#[test]
fn new_run_needs_a_prompt_and_starts_once() {
    let mut evening = Evening::new(80, 24);
    evening.press("n");
    evening.keys(&[Key::Enter]);
    assert!(evening.screen().contains("What should it do?"));
    evening.press("Fix it.");
    evening.keys(&[Key::Tab]);
    evening.press("make test");
    evening.keys(&[Key::Tab, Key::Backspace, Key::Backspace, Key::Char('0'), Key::Enter]);
    assert!(evening.screen().contains("above 0"));
    evening.keys(&[Key::Backspace, Key::Char('7'), Key::Tab, Key::Char(' '), Key::Enter]);
    let Some(Effect::Start(new)) = evening.effects.pop() else { panic!() };
    assert_eq!((new.prompt.as_str(), new.max_iterations, new.sandbox), ("Fix it.", 7, false));
    assert_eq!(new.check, "make test");
    evening.keys(&[Key::Enter]);
    assert_eq!(evening.effects, [], "it is starting already");
    evening.send(Message::Started(Err("no tmux".to_owned())));
    assert!(evening.screen().contains("no tmux"));
    let Some(Dialog::New(dialog)) = &evening.model.dialog else { panic!() };
    assert_eq!((dialog.prompt.text(), dialog.focus), ("Fix it.", NewRunField::Sandbox));
    let slugs = evening.source.data().overview.cards().find(|card| card.name == "slugs").unwrap();
    let started = StartedRun { name: "shop".to_owned(), run_id: slugs.id.clone() };
    evening.send(Message::Started(Ok(started)));
    assert_eq!(note(&evening), "Started shop.");
    assert_eq!(selected(&evening), "slugs", "the new run is selected");
}

#[test]
fn all_open_questions_of_a_run_can_be_answered() {
    let mut evening = Evening::new(120, 36);
    let text = "Which of the two mails?\nThe short one fits a phone.".into();
    append(&evening, &[Event::QuestionAsked { id: "q2".into(), text, story: None }]);
    evening.press("afirst");
    while !evening.screen().contains("1 of 2") {
        evening.source.monitor.wait(None);
        evening.source.update(NOW_MS);
    }
    evening.keys(&[Key::Tab]);
    let screen = evening.screen();
    assert!(screen.contains("2 of 2") && screen.contains("The short one fits"), "{screen}");
    evening.press("short");
    evening.keys(&[Key::Tab]);
    assert!(evening.screen().contains(" first"), "a draft for each: {}", evening.screen());
    evening.keys(&[Key::BackTab, Key::Enter]);
    let Some(Effect::Answer { run, question, text }) = evening.effects.pop() else { panic!() };
    assert_eq!((question.as_str(), text.as_str()), ("q2", "short"));
    let request = RequestKind::Answer(question);
    evening.send(Message::Done { request, run, result: Ok(()) });
    evening.wait_ms(1);
    assert_eq!(evening.model.requests.len(), 1, "until the run has taken it");
}

#[test]
fn long_question_is_wrapped_and_its_answer_is_counted() {
    let mut evening = Evening::new(60, 20);
    let words: Vec<String> = (1..=200).map(|number| format!("w{number}")).collect();
    let asked =
        Event::QuestionAsked { id: "long".into(), text: words.join(" ").into(), story: None };
    let is_asked = |run: &RunState| run.steering.question("long").is_some();
    append_and_read(&mut evening, &[asked], is_asked);
    evening.press("a");
    evening.keys(&[Key::BackTab]);
    let small = evening.screen();
    assert!(small.contains(" w20 ") && small.contains('…'), "{small}");
    assert!(small.contains("Asked") && small.contains("Enter"), "the rest stays: {small}");
    evening.resize(120, 36);
    assert!(evening.screen().contains(" w200"), "{}", evening.screen());
    evening.keys(&[Key::Esc]);
    let answered = Event::QuestionAnswered { id: "long".into(), text: "Yes.".into() };
    let is_answered =
        |run: &RunState| run.steering.question("long").is_some_and(|question| !question.is_open());
    append_and_read(&mut evening, &[answered], is_answered);
    evening.press("i");
    assert!(evening.screen().contains("waits to be delivered"), "{}", evening.screen());
    assert!(!evening.screen().contains("Nothing else waits"));
    evening.keys(&[Key::BackTab]);
    assert!(evening.screen().contains("ralph tell reset-mail --clear"), "{}", evening.screen());
}

#[test]
fn context_of_a_question_can_be_scrolled() {
    let mut evening = Evening::new(80, 24);
    let context: Vec<String> = (1..=30).map(|number| format!("line {number}.")).collect();
    let text = format!("Which?\n{}", context.join("\n"));
    let asked = Event::QuestionAsked { id: "long".into(), text: text.into(), story: None };
    append_and_read(&mut evening, &[asked], |run| run.steering.question("long").is_some());
    evening.press("a");
    evening.keys(&[Key::BackTab]);
    assert!(evening.screen().contains("line 1.") && evening.screen().contains("PgDn"));
    evening.keys(&[Key::PageDown; 6]);
    let end = evening.screen();
    assert!(end.contains("line 30.") && !end.contains("line 1."), "{end}");
    evening.keys(&[Key::PageUp; 6]);
    assert!(evening.screen().contains("line 1."), "{}", evening.screen());
}

#[test]
fn new_run_names_the_agent_as_it_was_given() {
    let mut evening = Evening::new(60, 20);
    let agent = |evening: &Evening| match &evening.model.dialog {
        Some(Dialog::New(dialog)) => dialog.agent.text().to_owned(),
        _ => panic!("no dialog"),
    };
    evening.press("n");
    assert_eq!(agent(&evening), "claude");
    let error = "cannot start the agent: there is no program of that name in any directory of \
                 PATH, and no file either (give its path, or install it, and press Enter again)";
    evening.send(Message::Started(Err(error.to_owned())));
    let screen = evening.screen();
    assert!(screen.contains("again)") && screen.contains("Enter start"), "{screen}");
}

#[test]
fn dialogs_take_clicks() {
    let mut evening = Evening::new(80, 24);
    evening.press("i");
    click(&mut evening, &Target::Delivery(Delivery::Every));
    evening.press("Keep it short.");
    click(&mut evening, &Target::Key(Key::Enter));
    let Some(Effect::Tell { delivery, .. }) = evening.effects.pop() else { panic!() };
    assert_eq!(delivery, Delivery::Every);
    click(&mut evening, &Target::Key(Key::Esc));
    assert_eq!(evening.model.dialog, None);

    evening.press("x");
    click(&mut evening, &Target::Key(Key::Char('f')));
    assert_eq!(evening.effects, [], "as deaf as to keys");
    evening.wait_ms(300);
    click(&mut evening, &Target::Key(Key::Char('f')));
    assert!(matches!(evening.effects.pop(), Some(Effect::Stop { now: false, .. })));
    click(&mut evening, &Target::Key(Key::Esc));

    evening.press("n");
    click(&mut evening, &Target::Field(NewRunField::Check));
    evening.press("make");
    click(&mut evening, &Target::Field(NewRunField::Sandbox));
    let Some(Dialog::New(dialog)) = &evening.model.dialog else { panic!() };
    assert_eq!((dialog.check.text(), dialog.sandbox), ("make", false));
    // What is below a dialog stays untouched.
    evening.send(Message::Mouse { action: MouseAction::Press, at: Position { x: 0, y: 8 } });
    assert_eq!(selected(&evening), "reset-mail");
}
