//! A real run without account, network or cost.
//!
//! The agent is scripted, but it edits files, runs the test and learns of failures only from its
//! prompt. It fixes half of the problem and claims completion; the guardrail refutes that, and the
//! second iteration fixes the rest.

mod agent;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub use agent::agent_main;

/// `main` recognizes the agent by this name.
pub const AGENT_NAME: &str = "demo-agent";

const FILES: [(&str, &str); 4] = [
    ("slugify.sh", include_str!("project/slugify.sh")),
    ("test.sh", include_str!("project/test.sh")),
    ("PROMPT.md", include_str!("project/PROMPT.md")),
    (".ralph/settings.json", include_str!("project/settings.json")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demo {
    pub prompt_file: &'static str,
    /// Fails before the run, passes after it.
    pub test_command: &'static str,
    /// Git commands to run in order. The repository gets its own name and no signing: the user may
    /// have no name configured, and signing may ask for a passphrase.
    pub git: &'static [&'static [&'static str]],
}

const DEMO: Demo = Demo {
    prompt_file: "PROMPT.md",
    test_command: "sh test.sh",
    git: &[
        &["init", "--quiet"],
        &["config", "user.name", "ralph demo"],
        &["config", "user.email", "demo@localhost"],
        &["config", "commit.gpgsign", "false"],
        &["add", "--all"],
        &["commit", "--quiet", "-m", "Add slugify.sh with a test that fails"],
    ],
};

/// Writes the project into a directory. Fails rather than overwrite a file.
pub fn prepare(dir: &Path) -> io::Result<Demo> {
    for (name, content) in FILES {
        let path = dir.join(name);
        write_new(&path, content).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
    }
    Ok(DEMO)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create_new(path)?.write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
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
        let demo = prepare(&dir).unwrap();
        assert!(dir.join(demo.prompt_file).is_file());
        let settings = fs::read_to_string(dir.join(".ralph/settings.json")).unwrap();
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(settings["guardrails"][0]["command"], demo.test_command);
    }
}
