//! Actions on the selected run. A key that cannot work says why.

use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;

use super::dialog::can_tell;
use super::movement::file_count;
use super::{Effect, Model, Note, Screen, Tab};
use crate::data::Data;
use crate::keys::Command;

fn can_resume(card: &RunCard) -> bool {
    match card.state {
        _ if card.is_removed => false,
        StateWord::Paused => true,
        StateWord::Complete => false,
        _ => card.is_pausing || !card.is_alive,
    }
}

impl Model {
    /// Whether a command does something for the selected run. The footer offers no others.
    pub(crate) fn works(&self, command: Command, data: &Data<'_>) -> bool {
        let card = self.selected_run().and_then(|id| data.card(id));
        let is = |test: fn(&RunCard) -> bool| card.is_some_and(test);
        match command {
            Command::Up | Command::PageUp | Command::Before | Command::Open
                if self.has_empty_list(data) =>
            {
                false
            }
            Command::Answer => data.oldest_question().is_some(),
            Command::Tell => is(can_tell),
            Command::Pause => {
                is(|card| card.is_alive && !card.is_pausing && card.state != StateWord::Paused)
            }
            Command::Resume => is(can_resume),
            // Of a run that has ended, nothing is left to follow.
            Command::Stop | Command::Attach | Command::Last => is(|card| card.is_alive),
            _ => true,
        }
    }

    /// The tab has a list, and there is nothing in it.
    fn has_empty_list(&self, data: &Data<'_>) -> bool {
        let run = self.shown_run().and_then(|id| data.run(id));
        self.screen == Screen::Run
            && run.is_some_and(|run| match self.tab {
                Tab::Stories => run.detail.stories.is_empty(),
                Tab::Diff => file_count(run) == 0,
                Tab::Checks => run.detail.checks.is_empty(),
                Tab::Activity | Tab::Report => false,
            })
    }

    pub(super) fn pause(&mut self, data: &Data<'_>) -> Vec<Effect> {
        let Some(card) = self.selected_run().and_then(|id| data.card(id)) else {
            self.say("Select a run first.");
            return Vec::new();
        };
        let problem = match card.state {
            _ if !card.is_alive => Some("does not run; nothing to pause."),
            StateWord::Paused => Some("is paused already; r resumes it."),
            _ if card.is_pausing => Some("pauses already, after this iteration."),
            _ => None,
        };
        if let Some(problem) = problem {
            let text = format!("{} {problem}", card.name);
            self.say(text);
            return Vec::new();
        }
        vec![Effect::Pause(card.id.clone())]
    }

    pub(super) fn resume(&mut self, data: &Data<'_>) -> Vec<Effect> {
        let Some(card) = self.selected_run().and_then(|id| data.card(id)) else {
            self.say("Select a run first.");
            return Vec::new();
        };
        if card.is_removed {
            let text = format!("{}: its files are gone; nothing to resume.", card.name);
            self.say(text);
            return Vec::new();
        }
        if !can_resume(card) {
            let text = format!("{} is {}; nothing to resume.", card.name, card.word());
            self.say(text);
            return Vec::new();
        }
        vec![Effect::Resume(card.id.clone())]
    }

    /// Says at once why a run that ended before was not resumed.
    pub(super) fn resumed(&mut self, run: &str, result: Result<bool, String>, data: &Data<'_>) {
        let text = match (result, data.card(run)) {
            (Ok(true), _) | (Ok(false), None) => return,
            (Err(text), _) => text,
            (Ok(false), Some(card)) => {
                let RunCard { name, now, iteration, max_iterations: limit, .. } = card;
                let is_used_up = *limit > 0 && iteration >= limit;
                let more = limit.saturating_add(10);
                let hint = is_used_up.then(|| format!(" (ralph resume {name} -n {more})"));
                format!("{name} was not resumed: {now}{}", hint.unwrap_or_default())
            }
        };
        self.requests.retain(|request| request.run != run);
        self.note = Some(Note { text, is_failure: true });
    }

    pub(super) fn look_elsewhere(&mut self, command: Command, data: &Data<'_>) -> Vec<Effect> {
        let Some(card) = self.selected_run().and_then(|id| data.card(id)) else {
            self.say("Select a run first.");
            return Vec::new();
        };
        match command {
            Command::Attach if !card.is_alive => {
                let text = format!("{} does not run; there is no window.", card.name);
                self.say(text);
                Vec::new()
            }
            Command::Attach => vec![Effect::Attach(card.id.clone())],
            Command::Report => {
                let effect = Effect::OpenReport(card.id.clone());
                self.say("Opening the report in a browser.");
                vec![effect]
            }
            _ => {
                let effect = Effect::Copy(card.id.clone());
                let text = format!("Copied {}.", card.id);
                self.say(text);
                vec![effect]
            }
        }
    }
}
