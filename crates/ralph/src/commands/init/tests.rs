use std::collections::VecDeque;
use std::fmt::Write as _;

use serde_json::json;

use super::*;
use crate::commands::mode::BUILD_PROMPT;

struct Script {
    answers: VecDeque<&'static str>,
    screen: String,
}

impl Prompter for Script {
    fn prompt_line(&mut self, prompt: &str) -> Result<String, Abort> {
        self.screen.push_str(prompt);
        match self.answers.pop_front() {
            None => Err(Abort::EndOfInput),
            Some("^C") => Err(Abort::Interrupted),
            Some(answer) => {
                writeln!(self.screen, "{answer}").unwrap();
                Ok(answer.to_owned())
            }
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Abort> {
        self.screen.push_str(text);
        Ok(())
    }
}

struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        Project(tempfile::tempdir().unwrap())
    }

    fn init(&self, answers: &[&'static str]) -> (Result<u8, Error>, String) {
        self.init_where(|_, _| None, answers)
    }

    fn init_where(
        &self,
        sandbox: FindSandbox,
        answers: &[&'static str],
    ) -> (Result<u8, Error>, String) {
        let mut script =
            Script { answers: answers.iter().copied().collect(), screen: String::new() };
        let project = super::Project::new(self.0.path(), &self.0.path().join("home"));
        let result = init_with(&project, &Detection::default(), sandbox, &mut script);
        assert!(script.answers.is_empty(), "left: {:?}", script.answers);
        let dir = format!("{}/", self.0.path().display());
        (result, script.screen.replace(&dir, ""))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(".ralph").join(name)
    }

    fn settings(&self) -> Option<String> {
        fs::read_to_string(self.path("settings.json")).ok()
    }
}

#[test]
fn init_transcript_matches_questions_and_settings() {
    let project = Project::new();
    let (result, screen) = project.init(&[
        "claude",
        "--model,opus",
        "",
        "",
        "make lint",
        "APPEND",
        "Fix lint errors only. Do not change behavior.",
        "make test",
        "append",
        "",
        "",
        "y",
        "git",
        "commit",
        "2.50",
        "",
    ]);
    assert_eq!(result, Ok(0));
    let settings = project.settings().unwrap();
    let (dialog, closing) = screen.split_once("\nSettings written to").unwrap();
    assert_eq!(
        closing,
        format!(
            " .ralph/settings.json\n\n{settings}\nNext\n  \
             ralph run -p \"Fix a bug. Answer <response>DONE</response> when done.\"\n"
        )
    );
    assert_eq!(
        dialog,
        "Detected
  agents  none on the PATH; `ralph agents` says how to install one
  tests   no test command found
  git     not a repository

Agent command (e.g., claude, codex, amp, or other LLM CLI): claude
Agent flags (comma-separated, optional): --model,opus
Maximum iterations [10]: 
Completion response [DONE]: 
Add guardrail command (leave blank to finish): make lint
  Fail action (APPEND|PREPEND|REPLACE): APPEND
  Hint (optional, guidance for agent on failure): Fix lint errors only. Do not change behavior.
Add guardrail command (leave blank to finish): make test
  Fail action (APPEND|PREPEND|REPLACE): append
  Hint (optional, guidance for agent on failure): 
Add guardrail command (leave blank to finish): 
Configure SCM? (y/N): y
  SCM command (e.g., git): git
  SCM tasks (comma-separated, e.g., commit,push): commit
Budget per run in US dollars (optional): 2.50
Write starter prompts for `ralph plan` and `ralph build`? (y/N): 
"
    );
    assert_eq!(
        settings,
        r#"{
  "$schema": "./settings.schema.json",
  "maximumIterations": 10,
  "completionResponse": "DONE",
  "outputTruncateChars": 5000,
  "streamAgentOutput": true,
  "includeIterationCountInPrompt": false,
  "agent": {
    "command": "claude",
    "flags": [
      "--model",
      "opus"
    ]
  },
  "guardrails": [
    {
      "command": "make lint",
      "failAction": "APPEND",
      "hint": "Fix lint errors only. Do not change behavior."
    },
    {
      "command": "make test",
      "failAction": "APPEND"
    }
  ],
  "scm": {
    "command": "git",
    "tasks": [
      "commit"
    ]
  },
  "budget": {
    "costUsd": 2.5
  }
}
"#
    );
    assert_eq!(
        fs::read_to_string(project.path("settings.schema.json")).unwrap(),
        schema::schema_text()
    );
    let sources = Sources { project_dir: project.0.path().to_owned(), ..Sources::default() };
    let loaded = config::load(&sources).unwrap();
    assert_eq!(loaded.settings.guardrails.len(), 2);
}

#[test]
fn init_asks_again_after_invalid_answer() {
    let project = Project::new();
    let (result, screen) = project.init(&[
        "",
        "  ",
        " my agent ",
        "--say don't",
        " a , ,b",
        "0",
        "-3",
        "ten",
        "99999999999",
        "+5",
        " OK ",
        "yes",
        "x",
        "MAYBE",
        "LATER",
        " Replace ",
        "",
        "",
        "YES",
        "",
        "y",
        "jj",
        " , ",
        "y",
        "commit , push",
        "five",
        "$5",
    ]);
    assert_eq!(result, Ok(0));
    for (text, times) in [
        ("An agent command is needed.\n", 2),
        ("agent.flags[0]: unclosed quote", 1),
        ("Please enter a positive integer.\n", 4),
        ("  Please answer APPEND, PREPEND or REPLACE.\n", 2),
        ("  An SCM command is needed.\n", 1),
        ("  At least one task is needed.\n", 2),
        ("  `y` is not a command.", 1),
        ("  `yes` is not a command.", 1),
        ("Please enter an amount such as 5 or 2.50.\n", 1),
    ] {
        assert_eq!(screen.matches(text).count(), times, "{text}\n{screen}");
    }
    let document: Value = serde_json::from_str(&project.settings().unwrap()).unwrap();
    assert_eq!(document["agent"], json!({"command": "my agent", "flags": ["a", "b"]}));
    assert_eq!(document["maximumIterations"], 5);
    assert_eq!(document["completionResponse"], "OK");
    assert_eq!(document["guardrails"], json!([{"command": "x", "failAction": "REPLACE"}]));
    assert_eq!(document["scm"], json!({"command": "jj", "tasks": ["commit", "push"]}));
    assert_eq!(document["budget"], json!({"costUsd": 5.0}));
}

#[test]
fn init_without_scm_writes_no_scm_key() {
    let project = Project::new();
    assert_eq!(project.init(&["claude", "", "", "", "", ""]).0, Ok(0));
    assert!(!project.settings().unwrap().contains("scm"));
}

#[test]
fn init_offers_sandbox_only_where_one_works() {
    for (answer, expected) in
        [(None, "auto"), (Some(""), "auto"), (Some("Y"), "auto"), (Some(" No "), "none")]
    {
        let project = Project::new();
        let mut answers = vec!["claude", "", "", "", "", "", "", ""];
        answers.extend(answer);
        let works = |_: &_, agent: &str| (agent == "claude").then_some(Backend::Bwrap);
        let (result, screen) = project.init_where(works, &answers);
        assert_eq!(result, Ok(0));
        assert!(screen.contains("sandbox? bwrap works here. (Y/n): "), "{screen}");
        let document: Value = serde_json::from_str(&project.settings().unwrap()).unwrap();
        assert_eq!(document["sandbox"], json!({"backend": expected}), "{answer:?}");
    }
    let (_, screen) = Project::new().init(&["claude", "", "", "", "", ""]);
    assert!(!screen.contains("sandbox"), "{screen}");
}

#[test]
fn init_writes_missing_starter_prompts_on_request() {
    let project = Project::new();
    let plan = project.path("prompts/plan.md");
    // Neither end of input nor "no" writes prompts.
    for answers in [&["claude", "", "", "", "", ""][..], &["claude", "", "", "", "", "", "", "no"]]
    {
        let project = Project::new();
        assert_eq!(project.init(answers).0, Ok(0));
        assert!(project.settings().is_some() && !project.path("prompts").exists());
    }
    fs::create_dir_all(project.path("prompts")).unwrap();
    fs::write(&plan, "mine").unwrap();
    let (result, screen) = project.init(&["claude", "", "", "", "", "", "", "y"]);
    assert_eq!(result, Ok(0));
    assert!(screen.contains("\nPrompt written to .ralph/prompts/build.md\n"), "{screen}");
    assert_eq!(fs::read_to_string(&plan).unwrap(), "mine");
    let build = fs::read_to_string(project.path("prompts/build.md")).unwrap();
    assert_eq!(build, BUILD_PROMPT);
    let (_, screen) = project.init(&["y", "claude", "", "", "", "", ""]);
    assert!(!screen.contains("starter"), "there is nothing left to offer: {screen}");
}

#[test]
fn init_shows_existing_settings_and_keeps_them() {
    let project = Project::new();
    fs::create_dir(project.path("")).unwrap();
    let base = r#"{"agent": {"command": "claude", "env": {"A_TOKEN": "x"}}, "guardrails": []}"#;
    fs::write(project.path("settings.json"), base).unwrap();
    let (result, screen) = project.init(&[""]);
    assert_eq!(result, Ok(0));
    assert_eq!(
        screen,
        r#"Detected
  agents  none on the PATH; `ralph agents` says how to install one
  tests   no test command found
  git     not a repository
{
  "agent": {
    "command": "claude",
    "env": {
      "A_TOKEN": "(redacted)"
    }
  },
  "guardrails": []
}
Loaded from .ralph/settings.json
Overwrite? (y/N): 
"#
    );
    assert_eq!(project.settings().unwrap(), base);

    fs::write(project.path("settings.local.json"), r#"{"agent": {"command": "amp"}}"#).unwrap();
    let (_, screen) = project.init(&["n"]);
    assert!(screen.contains(r#""command": "amp""#), "{screen}");
    assert!(screen.contains(
        "Loaded from .ralph/settings.json (with local overlay from settings.local.json)\n"
    ));

    let (result, _) = project.init(&["y", "codex", "", "", "", "", ""]);
    assert_eq!(result, Ok(0));
    assert!(project.settings().unwrap().contains("codex"));
}

#[test]
fn init_replaces_broken_settings() {
    let project = Project::new();
    fs::create_dir(project.path("")).unwrap();
    fs::write(project.path("settings.json"), "{").unwrap();
    let (result, screen) = project.init(&["y", "codex", "", "", "", "", ""]);
    assert_eq!(result, Ok(0));
    assert!(screen.contains("warning: .ralph/settings.json:1:1: not valid JSON"), "{screen}");
}

#[test]
fn init_aborted_at_any_question_writes_nothing() {
    let all = ["claude", "", "", "", "make", "append", "", "", "y", "git", "commit"];
    for length in 0..all.len() {
        for end in [None, Some("^C")] {
            let project = Project::new();
            let mut answers = all[..length].to_vec();
            answers.extend(end);
            let (result, screen) = project.init(&answers);
            let error = result.unwrap_err();
            assert_eq!(error.exit_code(), 130);
            assert!(error.message.ends_with("nothing was written"), "{error}");
            assert!(screen.ends_with(": \n"), "{screen:?}");
            assert!(!project.path("").exists(), "{answers:?}");
        }
    }
}

#[test]
fn init_reports_obstacle_before_asking_questions() {
    let project = Project::new();
    fs::write(project.0.path().join(".ralph"), "").unwrap();
    let error = project.init(&[]).0.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.message.ends_with(".ralph is a file, not a directory"));

    let project = Project::new();
    fs::create_dir_all(project.path("settings.json")).unwrap();
    let error = project.init(&[]).0.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.message.ends_with("settings.json is a directory, not a file"));
}

#[test]
fn init_write_failure_names_the_file() {
    let project = Project::new();
    fs::create_dir_all(project.path("settings.schema.json")).unwrap();
    let error = project.init(&["claude", "", "", "", "", ""]).0.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.message.contains("cannot write "), "{error}");
    assert!(error.message.contains("settings.schema.json: "));
    assert_eq!(project.settings(), None);
}

#[test]
fn init_with_nul_in_answer_writes_nothing() {
    let project = Project::new();
    let error = project.init(&["cl\0aude", "", "", "", "", ""]).0.unwrap_err();
    assert_eq!(error.message, "agent.command: must not contain a NUL character");
    assert!(!project.path("").exists());
}

fn detected() -> Detection {
    Detection {
        agents: vec!["claude", "codex"],
        test: Some(detection::TestCommand { command: "cargo test".into(), found_in: "Cargo.toml" }),
        branch: Some("main".into()),
    }
}

fn init_yes(project: &Project, detection: &Detection, force: bool) -> Result<String, Error> {
    let mut text = String::new();
    let place = super::Project::new(project.0.path(), &project.0.path().join("home"));
    init_detected(&place, detection, force, |_, _| None, &mut text).map(|()| text)
}

#[test]
fn init_yes_writes_and_shows_detected_settings() {
    let project = Project::new();
    let text = init_yes(&project, &detected(), false).unwrap();
    assert!(text.starts_with(
        "Detected\n  agents  claude, codex\n  tests   cargo test (Cargo.toml)\n  \
         git     repository, on main\n\n\
         Using claude. Also found: codex (set agent.command).\n"
    ));
    assert!(text.contains(&project.settings().unwrap()), "{text}");
    let document: Value = serde_json::from_str(&project.settings().unwrap()).unwrap();
    assert_eq!(document["agent"]["command"], "claude");
    assert_eq!(document["guardrails"], json!([{"command": "cargo test", "failAction": "APPEND"}]));
    assert_eq!(document["scm"], json!({"command": "git", "tasks": ["commit"]}));
}

#[test]
fn init_yes_without_agent_or_over_existing_settings_is_refused() {
    let project = Project::new();
    let error = init_yes(&project, &Detection::default(), false).unwrap_err();
    assert_eq!((error.exit_code(), error.message.as_str()), (2, "no agent found on the PATH"));
    assert!(!project.path("").exists());

    init_yes(&project, &detected(), false).unwrap();
    let before = project.settings();
    let other = Detection { agents: vec!["amp"], ..Detection::default() };
    let error = init_yes(&project, &other, false).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.message.ends_with("settings.json already exists"), "{error}");
    assert_eq!(project.settings(), before);

    init_yes(&project, &other, true).unwrap();
    assert!(project.settings().unwrap().contains("amp"));
}
