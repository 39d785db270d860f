//! `ralph init`: asks a few questions and writes `.ralph/settings.json`.
//!
//! What is asked, and what becomes of the answers, is a function of an [`Ask`]; the terminal is one
//! of those, a script in a test is another.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::config::{self, FILE, LOCAL_FILE, Sources, schema, secret};
use crate::error::{Error, Kind};
use crate::sandbox::Backend;
use crate::state::project::Project;
use crate::state::save::save_atomically;
use crate::state::within;

use super::{modes, swept};

pub(super) const EXAMPLES: &str = "Examples:\n  ralph init\n  ralph init -C ../other-project";

/// The schema's file, beside the settings that refer to it.
const SCHEMA_FILE: &str = "settings.schema.json";

/// What `ralph init` was asked for.
#[derive(Debug, Clone)]
pub struct InitOptions {
    pub project_dir: PathBuf,
    /// Tells the sandbox that this agent would get in the project, if one works.
    pub sandbox: fn(&Project, &str) -> Option<Backend>,
}

/// Somebody who answers questions.
pub trait Ask {
    /// Shows the prompt and gives the line that was answered, without its end.
    ///
    /// # Errors
    /// There will be no answer.
    fn line(&mut self, prompt: &str) -> Result<String, Abort>;

    /// Shows text that asks nothing.
    ///
    /// # Errors
    /// There is nobody to show it to.
    fn say(&mut self, text: &str) -> Result<(), Abort>;
}

/// Why there will be no more answers.
#[derive(Debug)]
pub enum Abort {
    /// `Ctrl+C`, or another signal that ends a program.
    Interrupted,
    /// `Ctrl+D`, or the terminal is gone.
    EndOfInput,
    Failed(io::Error),
}

impl From<io::Error> for Abort {
    fn from(error: io::Error) -> Self {
        Abort::Failed(error)
    }
}

impl From<Errno> for Abort {
    fn from(errno: Errno) -> Self {
        Abort::Failed(errno.into())
    }
}

/// Carries out `ralph init` in the terminal.
///
/// # Errors
/// No terminal, a write that failed, or an interruption; nothing is written then.
pub(super) fn init(project: &Project) -> Result<u8, Error> {
    swept::sweep_aloud(project.root())?;
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Error::usage("init asks questions, and standard input is not a terminal")
            .hint("run `ralph init` in a terminal")
            .hint(
                "or write .ralph/settings.json yourself; `ralph settings --schema` describes it",
            ));
    }
    let mut terminal = Terminal::new(stdin.as_fd(), io::stdout())
        .map_err(|error| Error::config(format!("the terminal cannot be used: {error}")))?;
    let sandbox = super::sandbox::usable;
    let options = InitOptions { project_dir: project.root().to_owned(), sandbox };
    init_by(&options, &mut terminal)
}

/// Carries out `ralph init` with the answers of `ask`.
///
/// # Errors
/// As [`init`].
pub fn init_by(options: &InitOptions, ask: &mut dyn Ask) -> Result<u8, Error> {
    let sources = Sources { project_dir: options.project_dir.clone(), ..Sources::default() };
    let (path, _) = sources.files();
    let name = config::display_name(&path);
    // Better said before a dozen questions than after them.
    if path.is_dir() {
        return Err(Error::config(format!("{name}: is a directory, a file is needed")));
    }
    if let Some(directory) = path.parent()
        && fs::metadata(directory).is_ok_and(|metadata| !metadata.is_dir())
    {
        return Err(Error::config(format!(
            "{}: is a file, a directory is needed",
            config::display_name(directory)
        )));
    }
    let project = Project::new(options.project_dir.clone());
    let Answers { document, prompts } = match dialog(options, &sources, &project, &name, ask) {
        Ok(Some(answers)) => answers,
        Ok(None) => return Ok(0),
        Err(abort) => {
            // The cursor is behind a prompt. Nobody may be there to see it moved.
            let _ = ask.say("\n");
            return Err(match abort {
                Abort::Interrupted => {
                    Error::new(Kind::Interrupted, "interrupted, nothing was written")
                }
                Abort::EndOfInput => {
                    Error::new(Kind::Interrupted, "end of input, nothing was written")
                }
                Abort::Failed(error) => {
                    Error::config(format!("the terminal failed, nothing was written: {error}"))
                }
            });
        }
    };
    let problems = schema::problems(&document);
    if !problems.is_empty() {
        return Err(Error::config(problems.join("\n")).hint("nothing was written"));
    }
    write(&project, &path, &document, &prompts).map_err(|(path, error)| {
        let name = config::display_name(&path);
        Error::config(format!("{name}: cannot be written: {error}"))
    })?;
    // It is written, whether or not there is still somebody to be told.
    let _ = ask.say(&format!("\nSettings written to {name}\n"));
    for (path, _) in &prompts {
        let _ = ask.say(&format!("Prompt written to {}\n", config::display_name(path)));
    }
    Ok(0)
}

/// What is to be written.
struct Answers {
    document: Value,
    prompts: Vec<(PathBuf, &'static str)>,
}

/// Everything between the start and the write; `None` if the settings are to stay as they are.
fn dialog(
    options: &InitOptions,
    sources: &Sources,
    project: &Project,
    name: &str,
    ask: &mut dyn Ask,
) -> Result<Option<Answers>, Abort> {
    if let Some(existing) = config::existing(sources) {
        let mut document = existing.document;
        secret::redact(&mut document);
        ask.say(&format!("{document:#}\n"))?;
        for problem in &existing.problems {
            ask.say(&format!("ralph: warning: {problem}\n"))?;
        }
        let overlay = if existing.with_overlay {
            format!(" (with local overlay from {LOCAL_FILE})")
        } else {
            String::new()
        };
        ask.say(&format!("Loaded from {name}{overlay}\n"))?;
        if !yes(&ask.line("Overwrite? (y/N): ")?) {
            return Ok(None);
        }
    }
    ask.say("\n")?;
    let mut document = questions(ask)?;
    let prompts = starter_prompts(project, ask)?;
    let agent = document["agent"]["command"].as_str().unwrap_or_default();
    if let Some(backend) = (options.sandbox)(project, agent) {
        document["sandbox"] = sandbox(backend, ask)?;
    }
    Ok(Some(Answers { document, prompts }))
}

/// Asks whether to lock agents in. The answer is written either way: some commands would do it unasked.
fn sandbox(backend: Backend, ask: &mut dyn Ask) -> Result<Value, Abort> {
    let question = format!("Run agents in a sandbox? {} works here. (Y/n): ", backend.name());
    let refused = match optional(ask, &question)? {
        Some(answer) => matches!(answer.trim().to_ascii_lowercase().as_str(), "n" | "no"),
        None => false,
    };
    Ok(json!({"backend": if refused { "none" } else { "auto" }}))
}

/// Asks for more than is needed: who has no more to say takes the default.
fn optional(ask: &mut dyn Ask, question: &str) -> Result<Option<String>, Abort> {
    match ask.line(question) {
        Err(Abort::EndOfInput) => {
            ask.say("\n")?;
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// Offers the prompts of `plan` and `build` that are not there, to be made one's own.
fn starter_prompts(
    project: &Project,
    ask: &mut dyn Ask,
) -> Result<Vec<(PathBuf, &'static str)>, Abort> {
    let directory = project.root().join(modes::PROMPTS_DIR);
    let mut missing = vec![("plan.md", modes::PLAN_PROMPT), ("build.md", modes::BUILD_PROMPT)];
    missing.retain(|(name, _)| directory.join(name).symlink_metadata().is_err());
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let question = "Write starter prompts for `ralph plan` and `ralph build`? (y/N): ";
    let wanted = optional(ask, question)?.is_some_and(|answer| yes(&answer));
    missing.retain(|_| wanted);
    Ok(missing.into_iter().map(|(name, text)| (directory.join(name), text)).collect())
}

/// Asks for the settings, in the order in which they are written.
fn questions(ask: &mut dyn Ask) -> Result<Value, Abort> {
    let command = required(
        ask,
        "Agent command (e.g., claude, codex, amp, or other LLM CLI): ",
        "An agent command is needed.\n",
    )?;
    let flags = loop {
        let flags = list(&ask.line("Agent flags (comma-separated, optional): ")?);
        match config::agent_args(&flags) {
            Ok(_) => break flags,
            Err(problem) => ask.say(&format!("{problem}\n"))?,
        }
    };
    let maximum_iterations = positive(ask, "Maximum iterations [10]: ", 10)?;
    let completion_response = or_default(&ask.line("Completion response [DONE]: ")?, "DONE");
    let guardrails = guardrails(ask)?;
    let scm = scm(ask)?;

    let mut document = json!({
        "$schema": format!("./{SCHEMA_FILE}"),
        "maximumIterations": maximum_iterations,
        "completionResponse": completion_response,
        "outputTruncateChars": 5000,
        "streamAgentOutput": true,
        "includeIterationCountInPrompt": false,
        "agent": {"command": command, "flags": flags},
        "guardrails": guardrails,
    });
    if let Some(scm) = scm {
        document["scm"] = scm;
    }
    Ok(document)
}

fn guardrails(ask: &mut dyn Ask) -> Result<Vec<Value>, Abort> {
    let mut guardrails = Vec::new();
    loop {
        let command = ask.line("Add guardrail command (leave blank to finish): ")?;
        let command = command.trim();
        if command.is_empty() {
            return Ok(guardrails);
        }
        let action = loop {
            let answer = ask.line("  Fail action (APPEND|PREPEND|REPLACE): ")?;
            let answer = match answer.trim() {
                "" => "APPEND",
                answer => answer,
            };
            match config::fail_action(answer) {
                Some(action) => break action,
                None => ask.say("  Please answer APPEND, PREPEND or REPLACE.\n")?,
            }
        };
        let hint = ask.line("  Hint (optional, guidance for agent on failure): ")?;
        let mut guardrail = Map::new();
        guardrail.insert("command".to_owned(), command.into());
        guardrail.insert("failAction".to_owned(), action.as_str().into());
        if !hint.trim().is_empty() {
            guardrail.insert("hint".to_owned(), hint.trim().into());
        }
        guardrails.push(Value::Object(guardrail));
    }
}

fn scm(ask: &mut dyn Ask) -> Result<Option<Value>, Abort> {
    if !yes(&ask.line("Configure SCM? (y/N): ")?) {
        return Ok(None);
    }
    let command = required(ask, "  SCM command (e.g., git): ", "  An SCM command is needed.\n")?;
    let tasks = loop {
        let tasks = list(&ask.line("  SCM tasks (comma-separated, e.g., commit,push): ")?);
        if !tasks.is_empty() {
            break tasks;
        }
        ask.say("  At least one task is needed.\n")?;
    };
    Ok(Some(json!({"command": command, "tasks": tasks})))
}

/// Asks until the answer is not blank.
fn required(ask: &mut dyn Ask, prompt: &str, otherwise: &str) -> Result<String, Abort> {
    loop {
        let answer = ask.line(prompt)?;
        if !answer.trim().is_empty() {
            return Ok(answer.trim().to_owned());
        }
        ask.say(otherwise)?;
    }
}

/// Asks until the answer is blank or a whole number from 1.
fn positive(ask: &mut dyn Ask, prompt: &str, default: u32) -> Result<u32, Abort> {
    loop {
        let answer = ask.line(prompt)?;
        let answer = answer.trim();
        if answer.is_empty() {
            return Ok(default);
        }
        match answer.parse() {
            Ok(number) if number > 0 => return Ok(number),
            _ => ask.say("Please enter a positive integer.\n")?,
        }
    }
}

fn or_default(answer: &str, default: &str) -> String {
    match answer.trim() {
        "" => default.to_owned(),
        answer => answer.to_owned(),
    }
}

fn yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// The items of a comma-separated list, trimmed, without empty ones.
fn list(answer: &str) -> Vec<String> {
    answer.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Writes the settings and, before them, the schema that they refer to and the prompts.
fn write(
    project: &Project,
    path: &std::path::Path,
    document: &Value,
    prompts: &[(PathBuf, &'static str)],
) -> Result<(), (PathBuf, io::Error)> {
    let save = |path: PathBuf, text: &str| {
        save_atomically(&path, text.as_bytes()).map_err(|error| (path, error))
    };
    for path in prompts.iter().map(|(path, _)| path.as_path()).chain([path]) {
        within::stays(project.root(), path).map_err(|error| (path.to_owned(), error))?;
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| (directory.to_owned(), error))?;
    }
    save(path.with_file_name(SCHEMA_FILE), &schema::schema_text())?;
    // What comes next may be a `git add`: local settings have no place in it.
    project.prepare().map_err(|error| (project.ralph_dir(), error))?;
    for (path, text) in prompts {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| (directory.to_owned(), error))?;
        }
        save(path.clone(), text)?;
    }
    save(path.with_file_name(FILE), &format!("{document:#}\n"))
}

/// A person at a terminal.
///
/// The terminal stays in its usual mode, so that the kernel does the line editing. Signals arrive by
/// a pipe that is waited for together with the input: a prompt is left the moment somebody presses
/// `Ctrl+C`, not at the next end of line.
struct Terminal<'fd, O> {
    input: BorrowedFd<'fd>,
    output: O,
    signals: UnixStream,
    registered: Vec<SigId>,
    /// What was read beyond the last line.
    pending: Vec<u8>,
}

impl<'fd, O: Write> Terminal<'fd, O> {
    fn new(input: BorrowedFd<'fd>, output: O) -> io::Result<Self> {
        let (signals, sender) = UnixStream::pair()?;
        let mut terminal =
            Terminal { input, output, signals, registered: Vec::new(), pending: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let id = signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
            terminal.registered.push(id);
        }
        Ok(terminal)
    }

    fn read_line(&mut self) -> Result<Vec<u8>, Abort> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.pending) {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                return Ok(line);
            }
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.input, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let (signalled, readable) =
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if signalled {
                // One signal is one interruption.
                let _ = self.signals.read(&mut [0]);
                return Err(Abort::Interrupted);
            }
            if !readable {
                continue;
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(self.input, &mut buffer) {
                // A terminal that was hung up gives an I/O error.
                Ok(0) | Err(Errno::IO) => return Err(Abort::EndOfInput),
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl<O: Write> Ask for Terminal<'_, O> {
    fn line(&mut self, prompt: &str) -> Result<String, Abort> {
        loop {
            self.say(prompt)?;
            match String::from_utf8(self.read_line()?) {
                Ok(line) => return Ok(line),
                Err(_) => self.say("That was not valid UTF-8, please type it again.\n")?,
            }
        }
    }

    fn say(&mut self, text: &str) -> Result<(), Abort> {
        self.output.write_all(text.as_bytes())?;
        Ok(self.output.flush()?)
    }
}

impl<O> Drop for Terminal<'_, O> {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fmt::Write as _;

    use super::*;

    /// Answers from a list and keeps what the screen would show.
    struct Script {
        answers: VecDeque<&'static str>,
        screen: String,
    }

    impl Ask for Script {
        fn line(&mut self, prompt: &str) -> Result<String, Abort> {
            self.screen.push_str(prompt);
            match self.answers.pop_front() {
                None => Err(Abort::EndOfInput),
                Some("^C") => Err(Abort::Interrupted),
                Some(answer) => {
                    // The terminal echoes what is typed.
                    writeln!(self.screen, "{answer}").unwrap();
                    Ok(answer.to_owned())
                }
            }
        }

        fn say(&mut self, text: &str) -> Result<(), Abort> {
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
            sandbox: fn(&super::Project, &str) -> Option<Backend>,
            answers: &[&'static str],
        ) -> (Result<u8, Error>, String) {
            let mut script =
                Script { answers: answers.iter().copied().collect(), screen: String::new() };
            let project_dir = self.0.path().to_owned();
            let options = InitOptions { project_dir, sandbox };
            let result = init_by(&options, &mut script);
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
    fn the_transcript() {
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
            "",
        ]);
        assert_eq!(result, Ok(0));
        assert_eq!(
            screen,
            "
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
Write starter prompts for `ralph plan` and `ralph build`? (y/N): 

Settings written to .ralph/settings.json
"
        );
        assert_eq!(
            project.settings().unwrap(),
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
  }
}
"#
        );
        assert_eq!(
            fs::read_to_string(project.path("settings.schema.json")).unwrap(),
            schema::schema_text()
        );
        // What init writes, load reads.
        let sources = Sources { project_dir: project.0.path().to_owned(), ..Sources::default() };
        let loaded = config::load(&sources).unwrap();
        assert_eq!(loaded.settings.guardrails.len(), 2);
    }

    #[test]
    fn bad_answers_are_asked_for_again() {
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
            "x",
            "MAYBE",
            "LATER",
            " Replace ",
            "",
            "",
            "YES",
            "",
            "jj",
            " , ",
            "commit , push",
        ]);
        assert_eq!(result, Ok(0));
        for (text, times) in [
            ("An agent command is needed.\n", 2),
            ("agent.flags[0]: a quote is not closed", 1),
            ("Please enter a positive integer.\n", 4),
            ("  Please answer APPEND, PREPEND or REPLACE.\n", 2),
            ("  An SCM command is needed.\n", 1),
            ("  At least one task is needed.\n", 1),
        ] {
            assert_eq!(screen.matches(text).count(), times, "{text}\n{screen}");
        }
        let document: Value = serde_json::from_str(&project.settings().unwrap()).unwrap();
        assert_eq!(document["agent"], json!({"command": "my agent", "flags": ["a", "b"]}));
        assert_eq!(document["maximumIterations"], 5);
        assert_eq!(document["completionResponse"], "OK");
        assert_eq!(document["guardrails"], json!([{"command": "x", "failAction": "REPLACE"}]));
        assert_eq!(document["scm"], json!({"command": "jj", "tasks": ["commit", "push"]}));
    }

    #[test]
    fn no_scm_is_no_key() {
        let project = Project::new();
        assert_eq!(project.init(&["claude", "", "", "", "", ""]).0, Ok(0));
        assert!(!project.settings().unwrap().contains("scm"));
    }

    #[test]
    fn a_sandbox_is_offered_where_one_works() {
        for (answer, expected) in
            [(None, "auto"), (Some(""), "auto"), (Some("Y"), "auto"), (Some(" No "), "none")]
        {
            let project = Project::new();
            let mut answers = vec!["claude", "", "", "", "", "", ""];
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
    fn starter_prompts_are_written_where_they_are_missing_and_wanted() {
        let project = Project::new();
        let plan = project.path("prompts/plan.md");
        // Without a word more than the rest needs, and without a yes.
        for answers in [&["claude", "", "", "", "", ""][..], &["claude", "", "", "", "", "", "no"]]
        {
            let project = Project::new();
            assert_eq!(project.init(answers).0, Ok(0));
            assert!(project.settings().is_some() && !project.path("prompts").exists());
        }
        fs::create_dir_all(project.path("prompts")).unwrap();
        fs::write(&plan, "mine").unwrap();
        let (result, screen) = project.init(&["claude", "", "", "", "", "", "y"]);
        assert_eq!(result, Ok(0));
        assert!(screen.ends_with("\nPrompt written to .ralph/prompts/build.md\n"), "{screen}");
        assert_eq!(fs::read_to_string(&plan).unwrap(), "mine");
        let build = fs::read_to_string(project.path("prompts/build.md")).unwrap();
        assert_eq!(build, modes::BUILD_PROMPT);
        let (_, screen) = project.init(&["y", "claude", "", "", "", "", ""]);
        assert!(!screen.contains("starter"), "there is nothing left to offer: {screen}");
    }

    #[test]
    fn existing_settings_are_shown_and_stay_unless_told_otherwise() {
        let project = Project::new();
        fs::create_dir(project.path("")).unwrap();
        let base = r#"{"agent": {"command": "claude", "env": {"A_TOKEN": "x"}}, "guardrails": []}"#;
        fs::write(project.path("settings.json"), base).unwrap();
        let (result, screen) = project.init(&[""]);
        assert_eq!(result, Ok(0));
        assert_eq!(
            screen,
            r#"{
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
    fn broken_settings_can_be_replaced() {
        let project = Project::new();
        fs::create_dir(project.path("")).unwrap();
        fs::write(project.path("settings.json"), "{").unwrap();
        let (result, screen) = project.init(&["y", "codex", "", "", "", "", ""]);
        assert_eq!(result, Ok(0));
        assert!(
            screen.contains("ralph: warning: .ralph/settings.json:1:1: not valid JSON"),
            "{screen}"
        );
    }

    #[test]
    fn whenever_it_is_left_nothing_is_written() {
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
    fn what_is_in_the_way_is_told_before_the_questions() {
        let project = Project::new();
        fs::write(project.0.path().join(".ralph"), "").unwrap();
        let error = project.init(&[]).0.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message.ends_with(".ralph: is a file, a directory is needed"));

        let project = Project::new();
        fs::create_dir_all(project.path("settings.json")).unwrap();
        let error = project.init(&[]).0.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message.ends_with("settings.json: is a directory, a file is needed"));
    }

    #[test]
    fn what_cannot_be_written_is_an_error_with_its_name() {
        let project = Project::new();
        fs::create_dir_all(project.path("settings.schema.json")).unwrap();
        let error = project.init(&["claude", "", "", "", "", ""]).0.unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message.contains("settings.schema.json: cannot be written: "), "{error}");
        assert_eq!(project.settings(), None);
    }

    #[test]
    fn a_nul_in_an_answer_writes_nothing() {
        let project = Project::new();
        let error = project.init(&["cl\0aude", "", "", "", "", ""]).0.unwrap_err();
        assert_eq!(error.message, "agent.command: must not hold a NUL character");
        assert!(!project.path("").exists());
    }

    mod terminal {
        use super::*;

        #[test]
        fn lines_come_one_by_one_however_the_bytes_do() {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut screen = Vec::new();
            let mut terminal = Terminal::new(ours.as_fd(), &mut screen).unwrap();
            theirs.write_all(b"one\ntw\xc3").unwrap();
            assert_eq!(terminal.line("a: ").unwrap(), "one");
            theirs.write_all(b"\xa9o\n\xff\nthree\nrest").unwrap();
            assert_eq!(terminal.line("b: ").unwrap(), "twéo");
            assert_eq!(terminal.line("c: ").unwrap(), "three");
            drop(theirs);
            assert!(matches!(terminal.line("d: "), Err(Abort::EndOfInput)));
            drop(terminal);
            assert_eq!(
                String::from_utf8(screen).unwrap(),
                "a: b: c: That was not valid UTF-8, please type it again.\nc: d: "
            );
        }

        #[test]
        fn a_signal_is_heard_while_nothing_is_typed() {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut terminal = Terminal::new(ours.as_fd(), io::sink()).unwrap();
            // Its own pipe rather than a real signal, which would reach every test of this process.
            let (signals, mut sender) = UnixStream::pair().unwrap();
            terminal.signals = signals;
            sender.write_all(b"x").unwrap();
            assert!(matches!(terminal.line("a: "), Err(Abort::Interrupted)));
            drop(theirs);
        }
    }
}
