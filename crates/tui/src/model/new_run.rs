//! The form for a new run.

use std::path::PathBuf;

use ralph_monitor::{NewRun, StartedRun};

use super::{Dialog, Model, Note, Selection};
use crate::data::Data;
use crate::text_field::TextField;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewRunField {
    Directory,
    Agent,
    Prompt,
    Check,
    Limit,
    Sandbox,
}

impl NewRunField {
    pub const ALL: [NewRunField; 6] = [
        NewRunField::Directory,
        NewRunField::Agent,
        NewRunField::Prompt,
        NewRunField::Check,
        NewRunField::Limit,
        NewRunField::Sandbox,
    ];

    pub(super) fn step(self, by: usize) -> NewRunField {
        let at = NewRunField::ALL.iter().position(|field| *field == self).unwrap_or(0);
        NewRunField::ALL[(at + by) % NewRunField::ALL.len()]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRunDialog {
    pub directory: TextField,
    /// Empty for the agent in the project's settings.
    pub agent: TextField,
    pub prompt: TextField,
    /// A command that has to succeed; empty for none.
    pub check: TextField,
    pub limit: TextField,
    pub sandbox: bool,
    pub focus: NewRunField,
    pub error: Option<String>,
    /// It is being started.
    pub is_starting: bool,
}

impl NewRunDialog {
    pub fn text(&self, field: NewRunField) -> Option<&TextField> {
        match field {
            NewRunField::Directory => Some(&self.directory),
            NewRunField::Agent => Some(&self.agent),
            NewRunField::Prompt => Some(&self.prompt),
            NewRunField::Check => Some(&self.check),
            NewRunField::Limit => Some(&self.limit),
            NewRunField::Sandbox => None,
        }
    }

    /// The field that takes text now.
    pub(super) fn focused_text(&mut self) -> Option<&mut TextField> {
        match self.focus {
            NewRunField::Directory => Some(&mut self.directory),
            NewRunField::Agent => Some(&mut self.agent),
            NewRunField::Prompt => Some(&mut self.prompt),
            NewRunField::Check => Some(&mut self.check),
            NewRunField::Limit => Some(&mut self.limit),
            NewRunField::Sandbox => None,
        }
    }

    /// A click on a field.
    pub(super) fn click(&mut self, field: NewRunField) {
        self.focus = field;
        if field == NewRunField::Sandbox {
            self.sandbox = !self.sandbox;
        }
    }

    pub(super) fn new_run(&self) -> Result<NewRun, (NewRunField, &'static str)> {
        let max_iterations = self.limit.text().trim().parse().ok().filter(|limit| *limit > 0);
        match () {
            () if self.directory.is_blank() => Err((NewRunField::Directory, "Which directory?")),
            () if self.prompt.is_blank() => Err((NewRunField::Prompt, "What should it do?")),
            () => Ok(NewRun {
                directory: PathBuf::from(self.directory.text().trim()),
                agent: self.agent.text().trim().to_owned(),
                prompt: self.prompt.text().to_owned(),
                max_iterations: max_iterations
                    .ok_or((NewRunField::Limit, "The limit is a number above 0."))?,
                check: self.check.text().trim().to_owned(),
                sandbox: self.sandbox,
            }),
        }
    }
}

impl Model {
    pub(super) fn open_new_run(&mut self, data: &Data<'_>) {
        let selected = self.selected_run().and_then(|id| data.card(id));
        let directory = selected
            .map_or_else(|| self.directory.display().to_string(), |card| card.directory.clone());
        // The name of an agent need not be a command.
        let agent = selected.map_or(Some("claude"), |card| data.run(&card.id)?.agent_command);
        self.dialog = Some(Dialog::New(NewRunDialog {
            directory: TextField::new(directory),
            agent: TextField::new(agent.unwrap_or_default().to_owned()),
            prompt: self.draft_for("", "prompt"),
            check: TextField::default(),
            limit: TextField::new("20".to_owned()),
            sandbox: selected.is_none_or(|card| card.sandboxed),
            focus: NewRunField::Prompt,
            error: None,
            is_starting: false,
        }));
    }

    pub(super) fn run_started(&mut self, result: Result<StartedRun, String>, data: &Data<'_>) {
        match result {
            Ok(StartedRun { name, run_id }) => {
                self.dialog = None;
                self.drafts.remove(&(String::new(), "prompt"));
                self.say(format!("Started {name}."));
                if data.card(&run_id).is_some() {
                    self.fleet.selection = Some(Selection::Run(run_id));
                }
            }
            Err(message) => {
                if let Some(Dialog::New(dialog)) = &mut self.dialog {
                    dialog.is_starting = false;
                    dialog.error = Some(message);
                } else {
                    self.note = Some(Note { text: message, is_failure: true });
                }
            }
        }
    }
}
