//! The pages in a real browser: `tests/browser/test.mjs` drives Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{LONG, Project, example, skipped, wait_until};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Where `scripts/install-browser-tests` puts the npm packages.
fn cache() -> PathBuf {
    std::env::var_os("RALPH_BROWSER_CACHE")
        .map_or_else(|| root().join("target/browser"), Into::into)
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    found.find(|program| program.is_file())
}

/// Why the tests cannot run here.
fn missing() -> Option<&'static str> {
    match () {
        () if Command::new("node").arg("--version").output().is_err() => Some("there is no node"),
        () if chromium().is_none() => Some("there is no chromium"),
        () if !cache().join("node_modules/playwright-core").is_dir() => {
            Some("scripts/install-browser-tests has not run")
        }
        () => None,
    }
}

#[test]
fn pages_work_in_chromium() {
    if let Some(why) = missing() {
        skipped(&format!("browser tests of ralph serve: {why}"));
        return;
    }
    let project = Project::git();
    project.write("README.md", "hello\n");
    project.git_command(["add", "-A"]);
    project.git_command(["commit", "-qm", "start"]);
    let scratch = project.sibling("scratch");
    std::fs::create_dir(&scratch).expect("a directory");
    let sample_dir = project.sibling("sample");
    std::fs::create_dir(&sample_dir).expect("a directory");
    let program = example("sample-server", "crates/web/examples/sample-server.rs");
    let sample = project.program(program, [&sample_dir]).start();
    wait_until(LONG, || sample.stdout().contains("\nrun "));
    let text = sample.stdout();
    let link = text.split_whitespace().find(|word| word.starts_with("http")).expect("a link");
    let run = text.lines().find_map(|line| line.strip_prefix("run ")).expect("a run");
    let mut command = project.command("node");
    command.env("RALPH_TMUX_SOCKET", project.sibling("tmux.sock"));
    let env: serde_json::Map<String, Value> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), json!(value?.to_str()?))))
        .collect();
    let agent = project.fake_agent(&json!([]));
    let setup = json!({
        "ralph": env!("CARGO_BIN_EXE_ralph"),
        "agent": agent[0],
        "env": env,
        "directory": project.path(),
        "scratch": scratch,
        "sample": {"link": link, "run": run},
    });
    let file = project.sibling("setup.json");
    std::fs::write(&file, setup.to_string()).expect("the setup");
    let output = command
        .arg(root().join("tests/browser/test.mjs"))
        .arg(&file)
        .env("RALPH_BROWSER_CACHE", cache())
        .env("RALPH_CHROMIUM", chromium().expect("a browser"))
        .output()
        .expect("node");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert_eq!(stderr, "", "{stdout}");
}
