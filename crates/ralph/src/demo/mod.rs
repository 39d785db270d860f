//! A real run without account, network or cost.
//!
//! The agent is scripted, but it edits files, runs the test and learns of failures only from its
//! prompt. It fixes half of the problem and claims completion; the guardrail refutes that, and the
//! second iteration fixes the rest.

mod agent;
mod fleet;

use std::io;
use std::path::Path;

use ralph_store::save::{PendingSave, save_all};

pub use agent::agent_main;
pub use fleet::DemoFleet;

/// `main` recognizes the agent by this name.
pub const AGENT_NAME: &str = "demo-agent";

const FILES: [(&str, &str); 4] = [
    ("slugify.sh", include_str!("project/slugify.sh")),
    ("test.sh", include_str!("project/test.sh")),
    (PROMPT_FILE, include_str!("project/PROMPT.md")),
    (".ralph/settings.json", include_str!("project/settings.json")),
];

pub const PROMPT_FILE: &str = "PROMPT.md";

/// Fails before the run, passes after it.
pub const TEST_COMMAND: &str = "sh test.sh";

/// Git commands to run in order. The repository gets its own name and no signing: the user may
/// have no name configured, and signing may ask for a passphrase.
pub const GIT_COMMANDS: &[&[&str]] = &[
    &["init", "--quiet"],
    &["config", "user.name", "ralph demo"],
    &["config", "user.email", "demo@localhost"],
    &["config", "commit.gpgsign", "false"],
    &["add", "--all"],
    &["commit", "--quiet", "-m", "Add slugify.sh with a test that fails"],
];

/// Writes the project into a directory. Fails rather than overwrite a file.
pub fn prepare(dir: &Path) -> io::Result<()> {
    let save = |(name, content): (&str, &str)| PendingSave {
        path: dir.join(name),
        bytes: content.into(),
        replace: false,
    };
    save_all(&FILES.map(save)).map_err(|(path, error)| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn demo_does_not_overwrite_existing_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("test.sh"), "mine").unwrap();
        let error = prepare(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("test.sh"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("test.sh")).unwrap(), "mine");
    }

    #[test]
    fn demo_creates_directory_with_prompt_and_settings() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a/b");
        prepare(&dir).unwrap();
        assert!(dir.join(PROMPT_FILE).is_file());
        let settings = fs::read_to_string(dir.join(".ralph/settings.json")).unwrap();
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(settings["guardrails"][0]["command"], TEST_COMMAND);
    }
}
