//! Boxes above the screen.

use ratatui_core::layout::{Position, Rect};

use ralph_events::control_chars::strip_control_chars;
use ralph_monitor::actions::Delivery;
use ralph_report::run_card::{Attention, RunCard};
use ralph_report::state_word::StateWord;
use ralph_report::width::wrap;

use super::{Target, View};
use crate::canvas::{cut, span};
use crate::input::Key;
use crate::model::{AnswerDialog, Dialog, NewRunDialog, NewRunField, StopDialog, TellDialog};
use crate::text_field::TextField;
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn dialog(&mut self, screen: Rect) {
        match &self.model.dialog {
            None => {}
            Some(Dialog::Tell(dialog)) => self.tell(screen, dialog),
            Some(Dialog::Answer(dialog)) => self.answer(screen, dialog),
            Some(Dialog::Stop(dialog)) => self.stop(screen, dialog),
            Some(Dialog::New(dialog)) => self.new_run(screen, dialog),
            Some(Dialog::Help { scroll }) => self.help(screen, *scroll),
        }
    }

    /// A centred box. Returns its inside without the padding.
    pub(super) fn open_box(
        &mut self,
        screen: Rect,
        width: u16,
        height: u16,
        title: &str,
        remark: &str,
    ) -> Rect {
        let width = width.min(screen.width - 2);
        let height = height.min(screen.height - 2);
        let x = screen.x + (screen.width - width) / 2;
        let y = screen.y + (screen.height - height) / 2;
        let inside = self.canvas.dialog(Rect { x, y, width, height }, title, remark);
        Rect { x: inside.x + 2, width: inside.width.saturating_sub(4), ..inside }
    }

    fn tell(&mut self, screen: Rect, dialog: &TellDialog) {
        let Some(card) = self.data.card(&dialog.run) else { return };
        let area = self.open_box(screen, 80, 19, &format!("tell {}", card.name), "");
        let mut y = area.y + 1;
        y = self.paragraph(area, y, "Guidance for the agent, in your words.", Role::Ink) + 1;
        let rows = area.height.saturating_sub(12).clamp(2, 5);
        self.field(Rect { x: area.x, y, width: area.width, height: rows }, &dialog.field, true);
        y += rows + 1;
        let (next, now) = (card.iteration + 1, card.iteration);
        let about = card
            .stop_estimate()
            .map_or(String::new(), |estimate| format!("in about {}", estimate.minutes()));
        let (next, restarts) = match card.is_alive {
            true => (
                format!("with iteration {next}"),
                format!("ends the agent and restarts iteration {now}"),
            ),
            false => {
                ("with the next prompt".to_owned(), "the same: no agent is running".to_owned())
            }
        };
        let choices = [
            (Delivery::Next, next, about.as_str()),
            (Delivery::Now, "now".to_owned(), restarts.as_str()),
            (Delivery::Every, "every iteration".to_owned(), "until you clear it"),
        ];
        self.canvas.put(area.x, y, 4, "When", Role::Strong);
        for (delivery, word, remark) in choices {
            let is_chosen = delivery == dialog.delivery;
            let mark = if is_chosen { "(•)" } else { "( )" };
            let role = if is_chosen { Role::Strong } else { Role::Ink };
            self.canvas.put(area.x + 7, y, 22, &format!("{mark} {word}"), role);
            self.canvas.put(area.x + 31, y, area.width.saturating_sub(31), remark, Role::Muted);
            let row = Rect { y, height: 1, ..area };
            self.layout.hits.push((row, Target::Delivery(delivery)));
            y += 1;
        }
        y += 1;
        let waiting = match dialog.delivery {
            Delivery::Every => format!("To clear it: ralph tell {} --clear", card.name),
            // Its journal does not have what was sent since.
            _ if !card.is_alive => "It waits until you resume the run.".to_owned(),
            _ => self.waiting_text(card),
        };
        self.remark_line(area, y, dialog.error.as_deref(), &waiting);
        let keys = [
            ("Enter", "send"),
            ("Ctrl-J", "new line"),
            ("Tab", "when"),
            ("Ctrl-E", "editor"),
            ("Esc", "keep as draft"),
        ];
        self.key_line(area, &keys);
    }

    /// Guidance and answers that were not delivered yet.
    fn waiting_text(&self, card: &RunCard) -> String {
        let waiting = self.data.run(&card.id).map_or(0, |run| {
            let steering = &run.state.steering;
            let guidance = steering.guidance.iter();
            let guidance = guidance.filter(|it| !it.cleared && it.delivered_in.is_none());
            let answers = steering.questions.iter().filter_map(|it| it.answer.as_ref());
            guidance.count() + answers.filter(|it| it.delivered_in.is_none()).count()
        });
        match waiting {
            0 => "Nothing else waits to be delivered.".to_owned(),
            1 => "Another message waits to be delivered.".to_owned(),
            count => format!("{count} other messages wait to be delivered."),
        }
    }

    fn answer(&mut self, screen: Rect, dialog: &AnswerDialog) {
        let Some(card) = self.data.card(&dialog.run) else { return };
        let steering = self.data.run(&card.id).map(|run| &run.state.steering);
        let asked = steering.and_then(|steering| steering.question(&dialog.question));
        // The run may not be read yet; the card has its oldest question.
        let whole = asked.map(|question| Attention {
            // Lists show only the beginning.
            text: strip_control_chars(question.headline()),
            ..Attention::of_question(question)
        });
        let Some(attention) = whole.or_else(|| card.attention.clone()) else { return };
        let open = steering.map_or(1, |steering| steering.open_questions().count());
        let at = steering.and_then(|steering| {
            steering.open_questions().position(|question| question.id == dialog.question)
        });
        let remark = match at {
            Some(at) => format!("{} of {open}", at + 1),
            None if steering.is_some() => "answered".to_owned(),
            None => String::new(),
        };
        let inner = usize::from(88.min(screen.width - 2) - 6);
        // What the other parts leave; of the text, the headline comes first.
        let room = usize::from(screen.height.saturating_sub(13)).max(1);
        let headline = lines(&attention.text, inner).min(room);
        let whole = lines(&attention.context, inner);
        let context = whole.min((room - headline).saturating_sub(1));
        let gap = usize::from(context > 0);
        let height = 15 + headline + context + gap;
        let height = u16::try_from(height).unwrap_or(u16::MAX);
        let area = self.open_box(screen, 88, height, &format!("{} asks", card.name), &remark);
        let mut y = area.y + 1;
        let room = Rect { height: 1 + u16::try_from(headline).unwrap_or(1), ..area };
        y = self.paragraph(room, y, &attention.text, Role::Strong) + 1;
        if context > 0 {
            let room = Rect { height: y - area.y + u16::try_from(context).unwrap_or(0), ..area };
            let shown = scrolled(&attention.context, inner, dialog.scroll.min(whole - context));
            y = self.paragraph(room, y, &shown, Role::Ink) + 1;
        }
        let goes_on = match card.state {
            _ if !card.is_alive => "The run has stopped.",
            _ if card.is_parked => "The run waits for you.",
            _ => "The run continues.",
        };
        let asked = format!(
            "Asked {} in iteration {}. {goes_on}",
            self.data.ago(attention.since_ms),
            attention.iteration
        );
        y = self.paragraph(area, y, &asked, Role::Muted) + 1;
        let rows = area.bottom().saturating_sub(y + 6).clamp(1, 3);
        self.field(Rect { x: area.x, y, width: area.width, height: rows }, &dialog.field, true);
        y += rows + 1;
        let goes = match card.is_alive {
            true => {
                format!("Your answer goes into the prompt of iteration {}.", card.iteration + 1)
            }
            false => "Your answer waits until you resume the run.".to_owned(),
        };
        self.remark_line(area, y, dialog.error.as_deref(), &goes);
        let mut keys = vec![
            ("Enter", "answer"),
            ("Ctrl-J", "new line"),
            ("Ctrl-E", "editor"),
            ("Esc", "keep as draft"),
        ];
        if context < whole {
            keys.insert(1, ("PgDn", "more"));
        }
        if open > 1 {
            keys.insert(1, ("Tab", "next"));
        }
        self.key_line(area, &keys);
    }

    fn stop(&mut self, screen: Rect, dialog: &StopDialog) {
        let Some(card) = self.data.card(&dialog.run) else { return };
        let number = card.iteration;
        let height = if screen.width < 76 { 18 } else { 17 };
        let area = self.open_box(screen, 72, height, &format!("stop {}?", card.name), "");
        let now = card.now.text();
        let doing = match (card.state, card.now.time.as_str()) {
            (StateWord::Waiting | StateWord::Paused, _) => {
                format!("Iteration {number} waits: {}.", card.now)
            }
            (_, "") => format!("Iteration {number} is running: {now}."),
            (_, time) => format!("Iteration {number} is running: {now}, {time}."),
        };
        let mut y = self.paragraph(area, area.y + 1, &doing, Role::Ink) + 1;
        let about = card
            .stop_estimate()
            .map(|estimate| format!("About {estimate}, going by earlier iterations."));
        let end = format!(
            "Ends the agent and everything it started. Changed files stay as they are; \
             iteration {number} is neither checked nor committed."
        );
        let choices = [
            ('f', format!("finish iteration {number}, then stop"), about.unwrap_or_default()),
            ('e', "end it now".to_owned(), end),
            ('p', format!("pause after iteration {number} instead"), String::new()),
        ];
        for (key, text, detail) in choices {
            self.canvas.put(area.x, y, 1, &key.to_string(), Role::Strong);
            self.canvas.put(area.x + 3, y, area.width - 3, &text, Role::Ink);
            let indented = Rect { x: area.x + 3, width: area.width - 3, ..area };
            let next = if detail.is_empty() {
                y + 1
            } else {
                self.paragraph(indented, y + 1, &detail, Role::Muted)
            };
            let rows = Rect { y, height: next - y, ..area };
            self.layout.hits.push((rows, Target::Key(Key::Char(key))));
            y = next + 1;
        }
        // The keys of this dialog stand a line lower.
        self.remark_line(
            Rect { height: area.height + 1, ..area },
            y,
            dialog.error.as_deref(),
            "In each case the run can be resumed with r.",
        );
        let line = [
            span("Esc", Role::Strong),
            span(" or ", Role::Muted),
            span("n", Role::Strong),
            span(" leave it running", Role::Muted),
        ];
        let last = Rect { y: area.bottom() - 1, height: 1, ..area };
        self.canvas.put_spans(last.x, last.y, last.width, &line);
        self.layout.hits.push((last, Target::Key(Key::Esc)));
    }

    fn new_run(&mut self, screen: Rect, dialog: &NewRunDialog) {
        let inner = usize::from(80.min(screen.width - 2) - 6);
        let error = dialog.error.as_deref().map_or(0, |error| lines(error, inner));
        // A long error makes the box higher.
        let extra = u16::try_from(error.saturating_sub(2)).unwrap_or_default().min(6);
        let area = self.open_box(screen, 80, 21 + extra, "new run", "");
        let height = area.height - extra.min(area.height);
        let mut y = area.y + 1;
        for field in NewRunField::ALL {
            let focused = dialog.focus == field;
            let (label, placeholder) = match field {
                NewRunField::Directory => ("Directory", ""),
                NewRunField::Agent => ("Agent", "as in the settings of the project"),
                NewRunField::Prompt => ("Prompt", ""),
                NewRunField::Check => ("Check", "none: nothing proves the work"),
                NewRunField::Limit => ("Iterations", ""),
                NewRunField::Sandbox => ("Sandbox", ""),
            };
            let role = if focused { Role::Strong } else { Role::Muted };
            self.canvas.put(area.x, y, 10, label, role);
            let rows = match field {
                NewRunField::Prompt => height.saturating_sub(16).clamp(2, 5),
                _ => 1,
            };
            let place = Rect { x: area.x + 12, y, width: area.width - 12, height: rows };
            match dialog.text(field) {
                Some(text) => {
                    self.field(place, text, focused);
                    if text.text().is_empty() {
                        self.canvas.put(place.x + 1, y, place.width, placeholder, Role::Muted);
                    }
                }
                None => {
                    let text =
                        if dialog.sandbox { "(•) on    ( ) off" } else { "( ) on    (•) off" };
                    let role = if focused { Role::Strong } else { Role::Ink };
                    self.canvas.put(place.x + 1, y, 20, text, role);
                }
            }
            let row = Rect { x: area.x, width: area.width, ..place };
            self.layout.hits.push((row, Target::Field(field)));
            y += rows + u16::from(height >= 19 || field == NewRunField::Prompt);
        }
        let text = match dialog.is_starting {
            true => "Starting in the background…",
            false => "It runs in the background, in a tmux window.",
        };
        self.remark_line(area, y.max(area.bottom() - 4 - extra), dialog.error.as_deref(), text);
        let keys = [
            ("Enter", "start"),
            ("Tab", "next field"),
            ("Space", "switch"),
            ("Ctrl-E", "editor"),
            ("Esc", "close"),
        ];
        self.key_line(area, &keys);
    }

    /// A text field; the one with the focus has the cursor.
    fn field(&mut self, area: Rect, field: &TextField, focused: bool) {
        if let Some(style) = self.canvas.theme.selected_background() {
            self.canvas.buffer.set_style(area, style);
        }
        let room = area.width.saturating_sub(2);
        let shown = field.rows(usize::from(room), usize::from(area.height));
        for (y, row) in (area.y..area.bottom()).zip(&shown.rows) {
            self.canvas.put(area.x + 1, y, room, row, Role::Ink);
        }
        if focused {
            let row = u16::try_from(shown.cursor.0).unwrap_or_default();
            let column = u16::try_from(shown.cursor.1).unwrap_or_default().min(room);
            self.canvas.cursor = Some(Position { x: area.x + 1 + column, y: area.y + row });
        }
    }

    /// An error, or a remark.
    fn remark_line(&mut self, area: Rect, y: u16, error: Option<&str>, remark: &str) {
        let area = Rect { height: area.height.saturating_sub(2), ..area };
        match error {
            Some(error) => self.paragraph(area, y, error, Role::Failed),
            None => self.paragraph(area, y, remark, Role::Muted),
        };
    }

    /// The keys of a dialog. Without room, those before the last one go first.
    fn key_line(&mut self, area: Rect, keys: &[(&str, &str)]) {
        let mut keys = keys.to_vec();
        let width = |keys: &[(&str, &str)]| -> usize {
            keys.iter().map(|(key, word)| key.len() + word.len() + 4).sum::<usize>() - 3
        };
        while keys.len() > 2 && width(&keys) > usize::from(area.width) + 2 {
            keys.remove(keys.len() - 2);
        }
        let (mut x, y) = (area.x, area.bottom() - 2);
        for (key, word) in keys {
            let line = [span(key, Role::Strong), span(format!(" {word}"), Role::Muted)];
            let width = self.canvas.put_spans(x, y, area.right() + 2 - x, &line);
            if let Some(key) = key_named(key) {
                self.layout.hits.push((Rect { x, y, width, height: 1 }, Target::Key(key)));
            }
            x += width + 3;
        }
    }

    /// Wraps a text, with an ellipsis if there is more than fits. Returns the line after it.
    pub(super) fn paragraph(&mut self, area: Rect, y: u16, text: &str, role: Role) -> u16 {
        let width = usize::from(area.width);
        let mut lines = text
            .lines()
            .flat_map(|line| wrap(line, width, width).into_iter().map(move |range| &line[range]))
            .peekable();
        let mut next = y;
        while next < area.bottom()
            && let Some(line) = lines.next()
        {
            let is_cut = next + 1 == area.bottom() && lines.peek().is_some();
            let line = match is_cut {
                true => {
                    cut(line.trim_end(), width.saturating_sub(2), "") + self.canvas.theme.ellipsis()
                }
                false => line.to_owned(),
            };
            self.canvas.put(area.x, next, area.width, &line, role);
            next += 1;
        }
        next
    }
}

/// The text without its first `skipped` lines, as wrapped.
fn scrolled(text: &str, width: usize, skipped: usize) -> String {
    let wrapped = text
        .lines()
        .flat_map(|line| wrap(line, width, width).into_iter().map(move |range| &line[range]));
    wrapped.skip(skipped).collect::<Vec<_>>().join("\n")
}

fn lines(text: &str, width: usize) -> usize {
    text.lines().map(|line| wrap(line, width, width).len()).sum()
}

/// The key that a click stands for.
fn key_named(label: &str) -> Option<Key> {
    match label {
        "Enter" => Some(Key::Enter),
        "Tab" => Some(Key::Tab),
        "Esc" => Some(Key::Esc),
        "Ctrl-E" => Some(Key::Ctrl('e')),
        "Ctrl-J" => Some(Key::Ctrl('j')),
        "PgDn" => Some(Key::PageDown),
        _ => None,
    }
}
