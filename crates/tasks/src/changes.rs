//! Changes of a task list between two runs.

/// Differences from the ledger of the previous run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListChanges {
    /// The previous run was killed, so the author of a change is unknown.
    pub cut_off: bool,
    /// Stories that the user removed, by id and title.
    pub dropped: Vec<(String, String)>,
    /// Removed by the user.
    pub removed_commands: Vec<String>,
    /// Added by the user.
    pub added_commands: Vec<String>,
    pub rewritten: Vec<String>,
    /// Stories marked as passing by an iteration that did not finish, or on which no check ever
    /// passed.
    pub unverified: Vec<String>,
}

const MAX_NAMED: usize = 10;

impl ListChanges {
    pub fn messages(&self) -> Vec<String> {
        let mut messages = self.losses();
        if !self.added_commands.is_empty() {
            messages
                .push(format!("verifyCommands: added {}", quote_commands(&self.added_commands)));
        }
        messages
    }

    /// What was removed: the list may be complete only because of it.
    pub fn losses(&self) -> Vec<String> {
        let mut messages = Vec::new();
        let dropped: Vec<String> =
            self.dropped.iter().map(|(id, title)| format!("{id} ({title})")).collect();
        match dropped.as_slice() {
            [] => {}
            [one] => messages.push(format!("story removed: {one}")),
            many => messages.push(format!("{} stories removed: {}", many.len(), first_few(many))),
        }
        if !self.removed_commands.is_empty() {
            messages.push(format!(
                "verifyCommands: removed {}",
                quote_commands(&self.removed_commands)
            ));
        }
        if !self.rewritten.is_empty() {
            messages.push(format!("acceptance criteria changed: {}", first_few(&self.rewritten)));
        }
        messages
    }
}

pub fn quote_commands(commands: &[String]) -> String {
    first_few(&commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>())
}

pub fn quote_criteria(criteria: &[String]) -> String {
    criteria.iter().map(|criterion| format!("{criterion:?}")).collect::<Vec<_>>().join(", ")
}

pub fn first_few(names: &[String]) -> String {
    ralph_events::text::first_few(names, MAX_NAMED)
}
