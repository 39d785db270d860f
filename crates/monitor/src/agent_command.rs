//! The agent of a run, as its user named it.

use ralph_store::runs::RunDir;
use serde::Deserialize;

#[derive(Deserialize)]
struct Spec {
    settings: Settings,
    agent_args: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Settings {
    agent: Agent,
}

#[derive(Deserialize)]
struct Agent {
    command: String,
}

/// The command line that the run was started with, quoted for a shell. `None` for runs without a readable record.
pub fn agent_command(run: &RunDir) -> Option<String> {
    let spec: Spec = serde_json::from_slice(&run.read_spec().ok()??).ok()?;
    let args = spec.agent_args.unwrap_or_default();
    let words = std::iter::once(&spec.settings.agent.command).chain(&args);
    Some(words.map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_store::project::Project;

    #[test]
    fn command_is_read_as_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let run =
            Project::new(dir.path(), &dir.path().join("home")).run_dir("20261118-000000-0001");
        run.create().unwrap();
        assert_eq!(agent_command(&run), None);
        let spec = r#"{"settings":{"agent":{"command":"/opt/my agents/slow"}},"agent_args":["--say","it's"]}"#;
        std::fs::write(run.spec(), spec).unwrap();
        let expected = r"'/opt/my agents/slow' --say 'it'\''s'";
        assert_eq!(agent_command(&run).as_deref(), Some(expected));
    }
}
