//! Dialogs: tell, answer, stop, new run and help.

use ralph_monitor::actions::Delivery;
use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;

use super::{Effect, Model, NewRunDialog, NewRunField, Note, RequestKind};
use crate::data::{Data, question_of};
use crate::input::{Key, MouseAction};
use crate::text_field::TextField;
use crate::view::Target;

/// Keys that were meant for another screen must not stop a run.
const STOP_DEAF_MS: i64 = 300;

/// Of a long question, at a time.
const SCROLL_LINES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialog {
    Tell(TellDialog),
    Answer(AnswerDialog),
    Stop(StopDialog),
    New(NewRunDialog),
    Help { scroll: usize },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellDialog {
    pub run: String,
    pub field: TextField,
    pub delivery: Delivery,
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerDialog {
    pub run: String,
    pub question: String,
    /// Lines of the context above those shown.
    pub scroll: usize,
    pub field: TextField,
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopDialog {
    pub run: String,
    pub opened_ms: i64,
    pub error: Option<String>,
}

impl Dialog {
    /// The field that takes text now.
    pub(super) fn field(&mut self) -> Option<&mut TextField> {
        match self {
            Dialog::Tell(dialog) => Some(&mut dialog.field),
            Dialog::Answer(dialog) => Some(&mut dialog.field),
            Dialog::New(dialog) => dialog.focused_text(),
            Dialog::Stop(_) | Dialog::Help { .. } => None,
        }
    }

    fn set_error(&mut self, message: Option<String>) {
        match self {
            Dialog::Tell(TellDialog { error, .. })
            | Dialog::Answer(AnswerDialog { error, .. })
            | Dialog::Stop(StopDialog { error, .. })
            | Dialog::New(NewRunDialog { error, .. }) => *error = message,
            Dialog::Help { .. } => {}
        }
    }

    /// The run and the kind of text, for drafts.
    fn draft_key(&self) -> Option<(String, &'static str)> {
        match self {
            Dialog::Tell(dialog) => Some((dialog.run.clone(), "tell")),
            Dialog::Answer(dialog) => Some((dialog.question.clone(), "answer")),
            Dialog::New(_) => Some((String::new(), "prompt")),
            Dialog::Stop(_) | Dialog::Help { .. } => None,
        }
    }

    fn draft(&self) -> &str {
        match self {
            Dialog::Tell(dialog) => dialog.field.text(),
            Dialog::Answer(dialog) => dialog.field.text(),
            Dialog::New(dialog) => dialog.prompt.text(),
            Dialog::Stop(_) | Dialog::Help { .. } => "",
        }
    }
}

impl Model {
    pub(super) fn draft_for(&self, id: &str, kind: &'static str) -> TextField {
        let text = self.drafts.get(&(id.to_owned(), kind)).cloned();
        TextField::new(text.unwrap_or_default())
    }

    pub(super) fn open_tell(&mut self, data: &Data<'_>) {
        let Some(card) = self.selected_run().and_then(|id| data.card(id)) else {
            self.say("Select a run first.");
            return;
        };
        if !can_tell(card) {
            let text = format!("{} has ended; no agent is left to tell.", card.name);
            self.say(text);
            return;
        }
        self.dialog = Some(Dialog::Tell(TellDialog {
            run: card.id.clone(),
            field: self.draft_for(&card.id, "tell"),
            delivery: Delivery::Next,
            error: None,
        }));
    }

    /// The question of the selected run, or else the oldest one.
    pub(super) fn open_answer(&mut self, data: &Data<'_>) {
        let selected = self.selected_run().and_then(|id| data.card(id));
        let asking = selected.filter(|card| question_of(card).is_some()).or(data.oldest_question());
        let Some((card, question)) = asking.and_then(|card| Some((card, question_of(card)?)))
        else {
            let text = match selected {
                Some(card) if !card.is_alive => {
                    format!("{} has ended; nothing to answer.", card.name)
                }
                Some(card) => format!("{} is {}; nothing to answer.", card.name, card.word()),
                None => "No run asks anything.".to_owned(),
            };
            self.say(text);
            return;
        };
        self.dialog = Some(Dialog::Answer(AnswerDialog {
            run: card.id.clone(),
            question: question.to_owned(),
            field: self.draft_for(question, "answer"),
            scroll: 0,
            error: None,
        }));
        self.fleet.selection = Some(super::Selection::Run(card.id.clone()));
    }

    pub(super) fn open_stop(&mut self, data: &Data<'_>) {
        let Some(card) = self.selected_run().and_then(|id| data.card(id)) else {
            self.say("Select a run first.");
            return;
        };
        if !card.is_alive {
            let text = format!("{} does not run; nothing to stop.", card.name);
            self.say(text);
            return;
        }
        let run = card.id.clone();
        self.dialog = Some(Dialog::Stop(StopDialog { run, opened_ms: data.now_ms, error: None }));
    }

    pub(super) fn press_in_dialog(&mut self, key: Key, data: &Data<'_>) -> Vec<Effect> {
        if key == Key::Esc {
            self.close_dialog();
            return Vec::new();
        }
        let Some(dialog) = &mut self.dialog else { return Vec::new() };
        match dialog {
            Dialog::Help { scroll } => {
                match key {
                    Key::Up | Key::Char('k') => *scroll = scroll.saturating_sub(1),
                    Key::Down | Key::Char('j') => *scroll += 1,
                    Key::PageUp => *scroll = scroll.saturating_sub(10),
                    Key::PageDown => *scroll += 10,
                    Key::Char('q' | '?') | Key::Enter => self.dialog = None,
                    _ => {}
                }
                Vec::new()
            }
            Dialog::Stop(_) => self.press_in_stop(key, data),
            Dialog::Answer(_) if matches!(key, Key::Tab | Key::BackTab) => {
                self.step_question(key == Key::Tab, data);
                Vec::new()
            }
            Dialog::Answer(AnswerDialog { scroll, .. }) if key == Key::PageDown => {
                *scroll += SCROLL_LINES;
                Vec::new()
            }
            Dialog::Answer(AnswerDialog { scroll, .. }) if key == Key::PageUp => {
                *scroll = scroll.saturating_sub(SCROLL_LINES);
                Vec::new()
            }
            Dialog::Tell(_) | Dialog::Answer(_) | Dialog::New(_) => self.press_in_text(key),
        }
    }

    /// Keeps what was typed as a draft.
    fn close_dialog(&mut self) {
        if self.keep_draft() {
            self.say("Kept as a draft until you leave.");
        }
        self.dialog = None;
    }

    /// Returns whether there is one.
    fn keep_draft(&mut self) -> bool {
        let Some(dialog) = &self.dialog else { return false };
        let Some(key) = dialog.draft_key() else { return false };
        let is_blank = dialog.draft().trim().is_empty();
        match is_blank {
            true => drop(self.drafts.remove(&key)),
            false => drop(self.drafts.insert(key, dialog.draft().to_owned())),
        }
        !is_blank
    }

    /// Shows the next open question of the same run, or the one before.
    fn step_question(&mut self, forward: bool, data: &Data<'_>) {
        let Some(Dialog::Answer(AnswerDialog { run, question, .. })) = &self.dialog else { return };
        let Some(steering) = data.run(run).map(|run| &run.state.steering) else { return };
        let open: Vec<&str> = steering.open_questions().map(|it| it.id.as_str()).collect();
        // One that was answered meanwhile has no place among them.
        let next = match open.iter().position(|id| id == question) {
            Some(at) => (at + if forward { 1 } else { open.len() - 1 }) % open.len(),
            None => 0,
        };
        let Some(next) = open.get(next).filter(|id| *id != question) else { return };
        let run = run.clone();
        self.keep_draft();
        let field = self.draft_for(next, "answer");
        let question = (*next).to_owned();
        self.dialog =
            Some(Dialog::Answer(AnswerDialog { run, question, scroll: 0, field, error: None }));
    }

    fn press_in_stop(&mut self, key: Key, data: &Data<'_>) -> Vec<Effect> {
        let Some(Dialog::Stop(StopDialog { run, opened_ms, .. })) = &self.dialog else {
            return Vec::new();
        };
        if data.now_ms - opened_ms < STOP_DEAF_MS {
            return Vec::new();
        }
        let run = run.clone();
        match key {
            Key::Char('f') => vec![Effect::Stop { run, now: false }],
            Key::Char('e') => vec![Effect::Stop { run, now: true }],
            Key::Char('p') => vec![Effect::Pause(run)],
            Key::Char('n') => {
                self.dialog = None;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn press_in_text(&mut self, key: Key) -> Vec<Effect> {
        if let Some(dialog) = &mut self.dialog {
            dialog.set_error(None);
        }
        match (&mut self.dialog, key) {
            (Some(Dialog::New(dialog)), _) if dialog.is_starting => {}
            (Some(dialog), Key::Ctrl('e')) => {
                let text = dialog.field().map(|field| field.text().to_owned());
                return text.map(Effect::Edit).into_iter().collect();
            }
            (Some(Dialog::New(dialog)), Key::Tab) => dialog.focus = dialog.focus.step(1),
            (Some(Dialog::New(dialog)), Key::BackTab) => {
                dialog.focus = dialog.focus.step(NewRunField::ALL.len() - 1);
            }
            (Some(Dialog::New(dialog)), Key::Char(' ')) if dialog.focus == NewRunField::Sandbox => {
                dialog.sandbox = !dialog.sandbox;
            }
            (Some(Dialog::New(dialog)), Key::Ctrl('j')) if dialog.focus != NewRunField::Prompt => {}
            (Some(Dialog::Tell(dialog)), Key::Tab) => {
                dialog.delivery = match dialog.delivery {
                    Delivery::Next => Delivery::Now,
                    Delivery::Now => Delivery::Every,
                    Delivery::Every => Delivery::Next,
                };
            }
            (Some(Dialog::Tell(dialog)), Key::BackTab) => {
                dialog.delivery = match dialog.delivery {
                    Delivery::Next => Delivery::Every,
                    Delivery::Now => Delivery::Next,
                    Delivery::Every => Delivery::Now,
                };
            }
            (Some(dialog), Key::Enter) => return send(dialog),
            (Some(dialog), _) => {
                if let Some(field) = dialog.field() {
                    field.press(key);
                }
            }
            (None, _) => {}
        }
        Vec::new()
    }

    /// `target` is under the mouse.
    pub(super) fn mouse_in_dialog(
        &mut self,
        action: MouseAction,
        target: Option<Target>,
        data: &Data<'_>,
    ) -> Vec<Effect> {
        match (&mut self.dialog, action, target) {
            (Some(Dialog::Help { scroll }), MouseAction::WheelUp, _) => {
                *scroll = scroll.saturating_sub(1);
            }
            (Some(Dialog::Help { scroll }), MouseAction::WheelDown, _) => *scroll += 1,
            (Some(Dialog::Help { .. }), MouseAction::Press, _) => self.dialog = None,
            (_, MouseAction::Press, Some(Target::Key(key))) => {
                return self.press_in_dialog(key, data);
            }
            (Some(Dialog::Tell(dialog)), MouseAction::Press, Some(Target::Delivery(delivery))) => {
                dialog.delivery = delivery;
            }
            (Some(Dialog::New(dialog)), MouseAction::Press, Some(Target::Field(field)))
                if !dialog.is_starting =>
            {
                dialog.click(field);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Closes a dialog about a run that is no longer listed.
    pub(super) fn close_orphaned_dialog(&mut self, data: &Data<'_>) {
        let run = match &self.dialog {
            Some(Dialog::Tell(TellDialog { run, .. }))
            | Some(Dialog::Answer(AnswerDialog { run, .. }))
            | Some(Dialog::Stop(StopDialog { run, .. })) => run,
            _ => return,
        };
        if data.card(run).is_none() {
            self.close_dialog();
        }
    }

    /// Closes the dialog of an action that worked; shows the error in the one that did not.
    pub(super) fn action_done(
        &mut self,
        kind: RequestKind,
        run: &str,
        result: Result<(), String>,
        data: &Data<'_>,
    ) {
        match (result, &mut self.dialog) {
            (Ok(()), _) => {
                if let Some(key) = self.dialog.take().and_then(|dialog| dialog.draft_key()) {
                    self.drafts.remove(&key);
                }
                self.request(run, kind, data.now_ms);
            }
            (Err(message), Some(dialog)) => dialog.set_error(Some(message)),
            (Err(text), None) => self.note = Some(Note { text, is_failure: true }),
        }
    }

    pub(super) fn text_edited(&mut self, result: Result<String, String>) {
        let Some(dialog) = &mut self.dialog else { return };
        match result {
            Ok(text) => {
                if let Some(field) = dialog.field() {
                    let mut new = TextField::default();
                    new.insert(text.trim_end_matches('\n'));
                    *field = new;
                }
            }
            Err(message) => dialog.set_error(Some(message)),
        }
    }
}

/// Guidance for an interrupted run waits until that is resumed.
pub(crate) fn can_tell(card: &RunCard) -> bool {
    card.is_alive || card.state == StateWord::Interrupted && !card.is_removed
}

/// The effect of `Enter`.
fn send(dialog: &mut Dialog) -> Vec<Effect> {
    let nothing = "Nothing is written yet.";
    let effect = match dialog {
        Dialog::Tell(TellDialog { field, .. }) | Dialog::Answer(AnswerDialog { field, .. })
            if field.is_blank() =>
        {
            Err(nothing)
        }
        Dialog::Tell(TellDialog { run, field, delivery, .. }) => Ok(Effect::Tell {
            run: run.clone(),
            text: field.text().to_owned(),
            delivery: *delivery,
        }),
        Dialog::Answer(AnswerDialog { run, question, field, .. }) => Ok(Effect::Answer {
            run: run.clone(),
            question: question.clone(),
            text: field.text().to_owned(),
        }),
        Dialog::New(new) => match new.new_run() {
            Ok(run) => {
                new.is_starting = true;
                Ok(Effect::Start(run))
            }
            Err((field, question)) => {
                new.focus = field;
                Err(question)
            }
        },
        Dialog::Stop(_) | Dialog::Help { .. } => return Vec::new(),
    };
    match effect {
        Ok(effect) => vec![effect],
        Err(message) => {
            dialog.set_error(Some(message.to_owned()));
            Vec::new()
        }
    }
}
