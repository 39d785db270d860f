//! What became of a list between two runs.

/// What is different from what the run before remembered, and who has to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListChanges {
    /// That run never came to its end, so that nobody knows who did what.
    pub cut_off: bool,
    /// Stories that the list's owner took out, by id and title.
    pub dropped: Vec<(String, String)>,
    /// Commands that its owner took out.
    pub removed_commands: Vec<String>,
    /// Commands that its owner put in.
    pub added_commands: Vec<String>,
    /// Stories whose acceptance criteria its owner changed or took out.
    pub rewritten: Vec<String>,
    /// Stories that pass by the word of an iteration that nothing stands behind: it did not come to
    /// its end, or no check has ever passed on it.
    pub unverified: Vec<String>,
}

/// How many are named one by one.
const MAX_NAMED: usize = 10;

impl ListChanges {
    /// What its owner changed, in words.
    pub fn messages(&self) -> Vec<String> {
        let mut told = self.losses();
        if !self.added_commands.is_empty() {
            told.push(format!(
                "verifyCommands has gained {}",
                quote_commands(&self.added_commands)
            ));
        }
        told
    }

    /// What is less than it was: a list that is complete because of it may not be what anybody meant.
    pub fn losses(&self) -> Vec<String> {
        let mut told = Vec::new();
        let dropped: Vec<String> =
            self.dropped.iter().map(|(id, title)| format!("{id} ({title})")).collect();
        match dropped.as_slice() {
            [] => {}
            [one] => told.push(format!("the story {one} is gone")),
            many => told.push(format!("{} stories are gone: {}", many.len(), first_few(many))),
        }
        if !self.removed_commands.is_empty() {
            told.push(format!(
                "verifyCommands has lost {}",
                quote_commands(&self.removed_commands)
            ));
        }
        if !self.rewritten.is_empty() {
            told.push(format!("acceptance criteria were changed: {}", first_few(&self.rewritten)));
        }
        told
    }
}

/// Commands, so that they can be told from words.
pub fn quote_commands(commands: &[String]) -> String {
    first_few(&commands.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>())
}

/// The first few of many.
pub fn first_few(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
