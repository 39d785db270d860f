//! Other commands, on a real terminal where they need one.

use ralph_agents::{Adapter, by_name};
use serde_json::{Value, json};

use crate::support::{LONG, Project, wait_until};

const DIALOG: [(&str, &str); 16] = [
    ("Agent command (e.g., claude, codex, amp, or other LLM CLI): ", "claude"),
    ("Agent flags (comma-separated, optional): ", "--model,opus"),
    ("Maximum iterations [10]: ", ""),
    ("Completion response [DONE]: ", ""),
    ("Add guardrail command (leave blank to finish): ", "make lint"),
    ("  Fail action (APPEND|PREPEND|REPLACE): ", "APPEND"),
    (
        "  Hint (optional, guidance for agent on failure): ",
        "Fix lint errors only. Do not change behavior.",
    ),
    ("Add guardrail command (leave blank to finish): ", "make test"),
    ("  Fail action (APPEND|PREPEND|REPLACE): ", "APPEND"),
    ("  Hint (optional, guidance for agent on failure): ", ""),
    ("Add guardrail command (leave blank to finish): ", ""),
    ("Configure SCM? (y/N): ", "y"),
    ("  SCM command (e.g., git): ", "git"),
    ("  SCM tasks (comma-separated, e.g., commit,push): ", "commit"),
    ("Budget per run in US dollars (optional): ", ""),
    ("Write starter prompts for `ralph plan` and `ralph build`? (y/N): ", ""),
];

/// The screen up to a question, without trailing spaces, which a terminal drops.
fn transcript(answered: usize) -> String {
    let mut text = String::from("\n");
    for (question, answer) in &DIALOG[..answered] {
        text.push_str(format!("{question}{answer}").trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn init_dialog_in_terminal_writes_settings() {
    let project = Project::new();
    let tmux = project.ralph(["init"]).in_tmux();
    for (index, (question, answer)) in DIALOG.iter().enumerate() {
        tmux.wait_for_text(LONG, &format!("{}{}", transcript(index), question.trim_end()));
        tmux.send_keys([*answer, "Enter"].iter().filter(|key| !key.is_empty()));
    }
    // Asked only if a sandbox works on this machine.
    let is_asked = || tmux.scrollback().contains("Run agents in a sandbox?");
    wait_until(LONG, || is_asked() || tmux.scrollback().contains("Settings written"));
    let backend = if is_asked() {
        tmux.send_keys(["Enter"]);
        json!("auto")
    } else {
        Value::Null
    };
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    // tmux scrolls by a line to report the exit.
    wait_until(LONG, || tmux.scrollback().contains("Settings written to .ralph/settings.json"));
    let screen = tmux.scrollback();
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    assert!(lines[0] == "Detected" && lines[1].starts_with("  agents  "), "{screen}");
    assert!(lines.join("\n").contains(&transcript(DIALOG.len())), "{screen}");
    let settings: Value = serde_json::from_str(&project.read(".ralph/settings.json")).unwrap();
    assert_eq!(settings["agent"], json!({"command": "claude", "flags": ["--model", "opus"]}));
    assert_eq!(settings["scm"], json!({"command": "git", "tasks": ["commit"]}));
    assert_eq!(settings["outputTruncateChars"], 5000);
    assert_eq!(settings["sandbox"]["backend"], backend);
    assert!(project.read(".ralph/.gitignore").contains("settings.local.json"));
    project.ralph(["settings"]).run().code(0).stdout_has("agent.command = \"claude\"");
}

#[test]
fn init_yes_needs_no_terminal() {
    let project = Project::git();
    project.write("Makefile", "test:\n\ttrue\n");
    project.install_agent("claude", &json!({"sessions": [[]]}));
    let init = |args: &[&str]| project.ralph(["init", "--yes"]).args(args).run();
    let output = project.ralph(["init", "--yes"]).env("PATH", "/nowhere").run();
    output.code(2).stderr_has("error: no agent found on the PATH\nhint: ");
    let output = init(&[]);
    output.code(0).stdout_has("  agents  claude").stdout_has("make test (Makefile)");
    output.stdout_has("\nNext\n");
    let settings: Value = serde_json::from_str(&project.read(".ralph/settings.json")).unwrap();
    assert_eq!(settings["guardrails"][0]["command"], "make test");
    assert_eq!(settings["scm"]["tasks"], json!(["commit"]));
    init(&[]).code(2).stderr_has("settings.json already exists\nhint: ");
    init(&["--force"]).code(0);
}

#[test]
fn init_shows_and_keeps_existing_settings() {
    let project = Project::new();
    project.settings(&json!({"agent": {"command": "claude"}}));
    let before = project.read(".ralph/settings.json");
    let tmux = project.ralph(["init"]).in_tmux();
    tmux.wait_for_text(LONG, "Overwrite? (y/N):");
    assert!(tmux.scrollback().contains("Loaded from .ralph/settings.json\n"));
    tmux.send_keys(["Enter"]);
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    assert_eq!(project.read(".ralph/settings.json"), before);
}

#[test]
fn init_aborted_at_any_question_writes_nothing() {
    for key in ["C-c", "C-d"] {
        for length in [0, 1, 4, 5, 6, 11, 12, 13] {
            let project = Project::new();
            let tmux = project.ralph(["init"]).in_tmux();
            for (index, (question, answer)) in DIALOG[..length].iter().enumerate() {
                let so_far = format!("{}{}", transcript(index), question.trim_end());
                tmux.wait_for_text(LONG, &so_far);
                tmux.send_keys([*answer, "Enter"].iter().filter(|key| !key.is_empty()));
            }
            let expected = format!("{}{}", transcript(length), DIALOG[length].0.trim_end());
            tmux.wait_for_text(LONG, &expected);
            tmux.send_keys([key]);
            assert_eq!(tmux.wait_for_exit(LONG), 130, "{key} after {length}");
            tmux.wait_for_text(LONG, "nothing was written");
            assert!(!project.has(".ralph"), "{key} after {length}");
        }
    }
}

#[test]
fn init_without_terminal_is_refused() {
    let project = Project::new();
    let output = project.ralph(["init"]).stdin("claude\n\n\n\n\n\n").run();
    output.code(2).stderr_has("not a terminal").stderr_has("hint: `ralph init --yes`");
    assert!(!project.has(".ralph"));
}

#[test]
fn settings_show_origin_of_each_value() {
    let project = Project::new();
    project.settings(&json!({"agent": {"command": "claude"}, "maximumIterations": 3}));
    project.write(".ralph/settings.local.json", r#"{"maximumIterations": 4}"#);
    let output = project.ralph(["settings"]).env("RALPH_AGENT__MODEL", "opus").run();
    output.code(0);
    for (setting, origin) in [
        ("agent.command = \"claude\"", ".ralph/settings.json"),
        ("maximumIterations = 4", ".ralph/settings.local.json"),
        ("agent.model = \"opus\"", "RALPH_AGENT__MODEL"),
        ("completionResponse = \"DONE\"", "default"),
    ] {
        let line = output.stdout.lines().find(|line| line.starts_with(setting));
        assert!(line.is_some_and(|line| line.contains(origin)), "{setting}: {}", output.stdout);
    }
    let json = project.ralph(["settings", "--json"]).run();
    serde_json::from_str::<Value>(&json.stdout).unwrap();
    let schema = project.ralph(["settings", "--schema"]).run();
    serde_json::from_str::<Value>(&schema.stdout).unwrap();
}

#[test]
fn doctor_reports_agents_sandbox_and_config_errors() {
    let project = Project::new();
    project.install_agent("codex", &json!([{"print": "codex-cli 9.9"}]));
    project.settings(&json!({"agnet": 1}));
    let output = project.ralph(["doctor"]).run();
    output
        .code(2)
        .stdout_has("codex-cli 9.9")
        .stdout_has("  sandbox   ")
        .stdout_has("\nPlatform: ")
        .stdout_has("agnet")
        .stdout_has("did you mean agent?")
        .stdout_lacks("config ");
    project.write(".ralph/config", "A=1\nB=$(x)\n");
    project.ralph(["doctor"]).run().code(2).stdout_has(".ralph/config:2: $(…) would run a command");
    project.write(".ralph/config", "A=1\n").settings(&json!({}));
    let output = project.ralph(["doctor"]).run();
    output.code(0).stdout_has("config     .ralph/config, for plan, build and prompt\n");
    assert_eq!(project.processes(), []);
}

#[test]
fn doctor_as_root_reports_claude_restriction() {
    let project = Project::new();
    project.install_agent("claude", &json!([{"print": "2.1 (Claude Code)"}]));
    let warning = "does not skip permissions as root";
    let output = project.ralph(["doctor"]).run();
    if rustix::process::geteuid().is_root() {
        output.code(0).stdout_has(warning);
    } else {
        output.code(0).stdout_lacks(warning);
    }
    project.ralph(["doctor"]).env("IS_SANDBOX", "1").run().code(0).stdout_lacks(warning);
}

#[test]
fn agents_lists_installed_and_tested_versions() {
    let project = Project::new();
    let recorded = by_name("claude").and_then(<dyn Adapter>::recorded_version).unwrap();
    project.install_agent("claude", &json!([{"print": format!("{recorded} (Claude Code)")}]));
    project.install_agent("codex", &json!([{"print": "codex-cli 9.9"}]));
    project.install_agent("gemini", &json!([{"exit": 1}]));
    let path = |name: &str| project.sibling("bin").join(name).display().to_string();

    let output = project.ralph(["agents"]).run();
    output
        .code(0)
        .stderr_is("")
        .stdout_has("not installed; install it: npm install -g opencode-ai");
    let line = |agent: &str| output.stdout.lines().find(|line| line.starts_with(agent)).unwrap();
    assert!(line("claude").contains(" recorded ") && line("claude").ends_with(&path("claude")));
    assert!(line("codex").contains("9.9") && line("codex").contains("recorded "));

    let rows = project.ralph(["agents", "--json"]).run().code(0).json_lines();
    let row = |agent: &str| rows.0.iter().find(|row| row["agent"] == agent).unwrap();
    assert_eq!(row("claude")["version"], recorded);
    assert_eq!(row("claude")["is_recorded"], true);
    assert_eq!(row("codex")["program"], path("codex"));
    assert_eq!(row("codex")["is_recorded"], false);
    assert_eq!(row("gemini")["version"], Value::Null, "it would not tell");
    assert_eq!(row("opencode")["program"], Value::Null);
    assert_eq!(row("amp")["recorded"], Value::Null);
    assert_eq!(project.processes(), []);
}

#[test]
fn completions_and_man_pages_are_valid() {
    let project = Project::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = project.ralph(["completions", shell]).run();
        script.code(0).stdout_has("ralph");
        let lookup = project.program("sh", ["-c", &format!("command -v {shell}")]).run();
        if lookup.status.success() {
            project.program(shell, ["-n"]).stdin(&script.stdout).run().code(0).stderr_is("");
        }
    }
    project.ralph(["completions", "tcsh"]).run().code(2).stderr_has("bash");
    project.ralph(["man", "pages"]).run().code(0);
    for page in ["ralph.1", "ralph-run.1", "ralph-init.1"] {
        assert!(project.read(&format!("pages/{page}")).contains("ralph"), "{page}");
    }
    let lookup = project.program("sh", ["-c", "command -v groff"]).run();
    if lookup.status.success() {
        let groff = ["-man", "-ww", "-Tutf8", "pages/ralph-run.1"];
        project.program("groff", groff).run().code(0).stderr_is("").stdout_has("ralph run");
    }
    project.write("file", "");
    project.ralph(["man", "file"]).run().code(2).stderr_has("cannot write to file");
}

#[test]
fn help_is_available_for_every_command() {
    let project = Project::new();
    let alone = project.ralph([""; 0]).run();
    alone.code(2);
    assert!(alone.stderr.contains("Usage: ralph"), "{alone:?}");
    project.ralph(["--help"]).run().code(0).stdout_has("ralph demo");
    for command in [
        "run",
        "init",
        "settings",
        "runs",
        "replay",
        "demo",
        "doctor",
        "agents",
        "completions",
        "man",
    ] {
        project.ralph([command, "--help"]).run().code(0).stdout_has("Examples:");
    }
    project.ralph(["help", "--help"]).run().code(0).stdout_has("ralph demo");
    project.ralph(["help", "run", "-h"]).run().code(0).stdout_has("Examples:");
    project.ralph(["rum"]).run().code(2).stderr_has("run");
    project.ralph(["run", "--promtp", "x"]).run().code(2).stderr_has("--prompt");
    project.ralph(["run", "--output", "xml"]).run().code(2).stderr_has("json");
    project.ralph(["replay", "nonsense"]).run().code(2).stderr_has("`ralph runs` lists them");
    project.ralph(["replay"]).run().code(2).stderr_has("this project has no runs yet");
    project.ralph(["runs"]).run().code(0).stdout_has("no runs yet");
    assert!(!project.has(".ralph"), "looking leaves nothing behind");
}

#[test]
fn every_error_has_same_prefix() {
    let project = Project::new();
    let commands: [&[&str]; 9] = [
        &["no-such-command"],
        &["run", "--no-such-flag"],
        &["run", "-p", "x", "-f", "y"],
        &["run", "-n", "many"],
        &["plan", "0"],
        &["prompt"],
        &["spawn"],
        &["run", "-p", "x"],
        &["replay", "nothing"],
    ];
    for args in commands {
        let output = project.ralph(args).run();
        output.stdout_is("");
        // The messages of the worker commands have always named the program.
        let prefix = if args == ["spawn"] { "ralph: error: " } else { "error: " };
        assert!(output.stderr.starts_with(prefix), "{args:?}: {}", output.stderr);
        assert!(!output.stderr.contains('\u{1b}'), "{args:?}: {}", output.stderr);
    }
    project.ralph([""; 0]).run().code(2).stderr_has("Usage:").stderr_lacks("error:");
    project.ralph(["plan", "--help"]).run().code(0).stdout_has("Usage:").stderr_is("");
}

/// A full disk is an error; a reader that closes the pipe is not.
#[test]
fn unwritable_stdout_is_error() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
    project.ralph(["run", "-p", "x", "--"]).args(&agent).run().code(0);
    project.ralph(["new", "feature"]).run().code(0);
    let ralph = env!("CARGO_BIN_EXE_ralph");
    for command in [
        "--help",
        "run --help",
        "help run",
        "--version",
        "report",
        "report --format markdown",
        "report --format html",
        "report --format json",
        "runs",
        "runs --json",
        "replay",
        "replay --output json",
        "replay --output plain",
        "ls",
        "ls --format json",
        "status",
        "tasks",
        "settings",
        "settings --schema",
        "doctor",
        "agents",
        "sandbox ls",
        "completions bash",
        "template",
        "run -p x --print-prompt",
        "resume",
    ] {
        let line = format!("{ralph} {command} >/dev/full");
        let output = project.program("sh", ["-c", &line]).run();
        output.code(1).stderr_has("error: ").stderr_has("No space left on device");
        // `head` instead of `true` might read before it exits.
        let line = format!("({ralph} {command}; echo $? >code) | true; cat code");
        let output = project.program("sh", ["-c", &line]).run();
        output.stdout_is("0\n").stderr_lacks("error");
    }
    // A run's outcome does not depend on its display, but the failure is reported.
    for form in ["human", "json"] {
        let line =
            format!("exec {ralph} run -p x --output {form} -- {} >/dev/full", agent.join(" "));
        let output = project.program("sh", ["-c", &line]).run();
        output.code(0).stderr_has("cannot write to standard output: No space");
        project.ralph(["report"]).run().code(0).stdout_has("cannot write to standard output");
    }
}
