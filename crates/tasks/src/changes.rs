//! What became of a list between two runs.

/// What is different from what the run before remembered, and who has to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Since {
    /// That run never came to its end, so that nobody knows who did what.
    pub cut_off: bool,
    /// Stories that the list's owner took out, by id and title.
    pub dropped: Vec<(String, String)>,
    /// Commands that its owner took out.
    pub lost_commands: Vec<String>,
    /// Commands that its owner put in.
    pub new_commands: Vec<String>,
    /// Stories whose acceptance criteria its owner changed or took out.
    pub rewritten: Vec<String>,
    /// Stories that pass by the word of an iteration that nothing stands behind: it did not come to
    /// its end, or no check has ever passed on it.
    pub doubtful: Vec<String>,
}

/// How many are named one by one.
const MAX_NAMED: usize = 10;

impl Since {
    /// What its owner changed, in words.
    pub fn told(&self) -> Vec<String> {
        let mut told = self.losses();
        if !self.new_commands.is_empty() {
            told.push(format!("verifyCommands has gained {}", quoted(&self.new_commands)));
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
            many => told.push(format!("{} stories are gone: {}", many.len(), few(many))),
        }
        if !self.lost_commands.is_empty() {
            told.push(format!("verifyCommands has lost {}", quoted(&self.lost_commands)));
        }
        if !self.rewritten.is_empty() {
            told.push(format!("acceptance criteria were changed: {}", few(&self.rewritten)));
        }
        told
    }
}

/// Commands, so that they can be told from words.
pub fn quoted(commands: &[String]) -> String {
    few(&commands.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>())
}

/// The first few of many.
pub fn few(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
