//! `ralph demo`: a whole run to look at, with no account, no network and no cost.
//!
//! [`prepare`] writes a small project whose test fails, [`agent_main`] is an agent that works on it.
//! The agent is scripted, but what it does is real: it speaks claude's stream, edits the files, runs
//! the test, and learns of what it got wrong from its prompt only. Everything else in the run, from
//! the guardrail to the commit, is ralph at work as with any other agent.
//!
//! In the first iteration the agent repairs half of the problem and claims to be done. The guardrail
//! shows that it is not; in the second iteration the agent finds the failing case in its prompt and
//! repairs the rest.

mod agent;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub use agent::agent_main;

/// The name under which this program is the agent.
pub const AGENT_NAME: &str = "demo-agent";

/// The files of the project.
const FILES: [(&str, &str); 4] = [
    ("slugify.sh", include_str!("project/slugify.sh")),
    ("test.sh", include_str!("project/test.sh")),
    ("PROMPT.md", include_str!("project/PROMPT.md")),
    (".ralph/settings.json", include_str!("project/settings.json")),
];

/// A project that is ready for a run, once it is a git repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demo {
    /// The prompt's file, relative to the project.
    pub prompt_file: &'static str,
    /// The command that fails now and passes at the end, for people to try.
    pub test_command: &'static str,
    /// What git is to be called with, in this order and in the project. A newcomer may have neither
    /// a name set nor want each commit of a demonstration signed, so the repository says for itself.
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

/// Writes the project into a directory, which is made if it is not there. Nothing that exists is
/// overwritten: that is an error.
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
