//! Finds agents, the test command and git for `ralph init`.

use std::path::Path;

use serde_json::{Value, json};

use crate::commands::agents::find_agent;
use ralph_git as git;
use ralph_store::safe_fs;

/// The facts about a project and this machine that settings can start from.
#[derive(Debug, Default)]
pub(super) struct Detection {
    /// Agents on the `PATH`, in the order of `ralph agents`.
    pub(super) agents: Vec<&'static str>,
    pub(super) test: Option<TestCommand>,
    /// The branch, if the project is in a git repository.
    pub(super) branch: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestCommand {
    pub(super) command: String,
    /// The file that shows that the command works here.
    pub(super) found_in: &'static str,
}

impl Detection {
    pub(super) fn of(root: &Path) -> Detection {
        let known = ralph_agents::all().iter().map(|adapter| adapter.name());
        let is_installed = |name: &&str| *name != "text" && find_agent(name, root).is_some();
        Detection {
            agents: known.filter(is_installed).collect(),
            test: test_command(root),
            branch: git::is_in_repository(root)
                .then(|| git::branch::current_branch(root).unwrap_or_else(|| "no branch".into())),
        }
    }

    /// The lines that the dialog starts with.
    pub(super) fn describe(&self) -> String {
        let agents = match self.agents.as_slice() {
            [] => "none on the PATH; `ralph agents` says how to install one".to_owned(),
            found => found.join(", "),
        };
        let test = match &self.test {
            Some(TestCommand { command, found_in }) => format!("{command} ({found_in})"),
            None => "no test command found".to_owned(),
        };
        let git = match &self.branch {
            Some(branch) => format!("repository, on {branch}"),
            None => "not a repository".to_owned(),
        };
        format!("Detected\n  agents  {agents}\n  tests   {test}\n  git     {git}\n")
    }

    /// The settings that need no questions. `agent` is the first of [`Detection::agents`].
    pub(super) fn settings(&self, agent: &str) -> Value {
        let test = self.test.iter().map(|test| &test.command);
        let mut settings = super::questions::base_settings();
        settings["agent"] = json!({"command": agent, "flags": []});
        settings["guardrails"] =
            test.map(|command| json!({"command": command, "failAction": "APPEND"})).collect();
        if self.branch.is_some() {
            settings["scm"] = json!({"command": "git", "tasks": ["commit"]});
        }
        settings
    }
}

const MAX_FILE: u64 = 1 << 20;

/// Reads a test command from the text of a file in a project.
type FindCommand = fn(&Path, &str) -> Option<String>;

/// Files that show how a project is tested, most specific first.
const TEST_FILES: [(&str, FindCommand); 18] = [
    ("Makefile", make_target),
    ("makefile", make_target),
    ("GNUmakefile", make_target),
    ("justfile", just_recipe),
    ("package.json", npm_script),
    ("deno.json", |_, _| found("deno test")),
    ("Cargo.toml", |_, _| found("cargo test")),
    ("go.mod", |_, _| found("go test ./...")),
    ("pyproject.toml", python),
    ("pytest.ini", python),
    ("tox.ini", |_, _| found("tox")),
    ("mix.exs", |_, _| found("mix test")),
    ("pom.xml", |_, _| found("mvn test")),
    ("build.gradle", gradle),
    ("build.gradle.kts", gradle),
    ("Package.swift", |_, _| found("swift test")),
    ("composer.json", |_, text| script(text)?.is_some().then(|| "composer test".to_owned())),
    ("Rakefile", |_, _| found("rake test")),
];

pub(super) fn test_command(root: &Path) -> Option<TestCommand> {
    TEST_FILES.iter().find_map(|(name, command)| {
        // Agents can write these files.
        let text = safe_fs::read_within(root, &root.join(name), MAX_FILE).ok()?;
        let command = command(root, &String::from_utf8_lossy(&text))?;
        Some(TestCommand { command, found_in: name })
    })
}

fn found(command: &str) -> Option<String> {
    Some(command.to_owned())
}

fn make_target(_: &Path, text: &str) -> Option<String> {
    let has_target = |name: &str| {
        text.lines().any(|line| {
            // `test := x` is a variable.
            let rule = line.split_once(':').filter(|(_, rest)| !rest.starts_with('='));
            rule.is_some_and(|(targets, _)| targets.split_whitespace().any(|it| it == name))
        })
    };
    ["test", "check"].into_iter().find(|name| has_target(name)).map(|name| format!("make {name}"))
}

fn just_recipe(_: &Path, text: &str) -> Option<String> {
    let is_test = |line: &str| line.starts_with("test:") || line.starts_with("test ");
    text.lines().any(is_test).then(|| "just test".to_owned())
}

fn npm_script(root: &Path, text: &str) -> Option<String> {
    let script = script(text)??;
    // `npm init` writes a test that always fails.
    if script.contains("no test specified") {
        return None;
    }
    let managers = [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun run")];
    let manager = managers.iter().find(|(lock_file, _)| root.join(lock_file).exists());
    Some(format!("{} test", manager.map_or("npm", |(_, program)| program)))
}

/// `scripts.test` of a JSON file; the outer `None` is invalid JSON.
fn script(text: &str) -> Option<Option<String>> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["scripts"]["test"].as_str().map(str::to_owned))
}

fn python(root: &Path, text: &str) -> Option<String> {
    let has_tests = text.contains("pytest") || root.join("tests").is_dir();
    let runner = if root.join("uv.lock").exists() { "uv run pytest" } else { "pytest" };
    has_tests.then(|| runner.to_owned())
}

fn gradle(root: &Path, _: &str) -> Option<String> {
    found(if root.join("gradlew").exists() { "./gradlew test" } else { "gradle test" })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn test_command_is_detected_from_project_files() {
        for (files, expected) in [
            (&[("Makefile", "all:\n\ttrue\ntest: all\n")][..], Some("make test")),
            (&[("Makefile", "lint check: all\n")], Some("make check")),
            (&[("Makefile", "test := x\nall:\n"), ("Cargo.toml", "")], Some("cargo test")),
            (&[("package.json", r#"{"scripts": {"test": "vitest"}}"#)], Some("npm test")),
            (
                &[("package.json", r#"{"scripts": {"test": "jest"}}"#), ("pnpm-lock.yaml", "")],
                Some("pnpm test"),
            ),
            (
                &[(
                    "package.json",
                    r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#,
                )],
                None,
            ),
            (&[("package.json", "{"), ("go.mod", "")], Some("go test ./...")),
            (&[("pyproject.toml", "[tool.pytest]"), ("uv.lock", "")], Some("uv run pytest")),
            (&[("pyproject.toml", "[project]")], None),
            (&[("build.gradle.kts", ""), ("gradlew", "")], Some("./gradlew test")),
            (&[("composer.json", r#"{"scripts": {"test": "phpunit"}}"#)], Some("composer test")),
            (&[("justfile", "build:\n\ntest *args:\n")], Some("just test")),
            (&[], None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            let command = test_command(dir.path()).map(|test| test.command);
            assert_eq!(command.as_deref(), expected, "{files:?}");
        }
    }
}
