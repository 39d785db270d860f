//! `ralph tell`, `ask`, `questions`, `answer`: words between a person and the agents of a run.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::print;
use crate::workers::registry::Workers;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::env_names::{QUESTIONS_DIR, RUN_ID};
use ralph_events::error::Error;
use ralph_events::event::{Event, Outcome};
use ralph_events::json_writer;
use ralph_events::question;
use ralph_events::run_state::{Question, RunState, Steering};
use ralph_events::text;
use ralph_store::home::ralph_home;
use ralph_store::project::Project;
use ralph_store::project_record;
use ralph_store::question_spool;
use ralph_store::requests::{MAX_TEXT, Request, RequestQueue, SendError};
use ralph_store::runs::{self, RunDir};

#[derive(Debug, Args)]
pub struct TellArgs {
    /// A run's name, id, beginning of the id, or last four characters of it.
    pub name: String,

    #[command(flatten)]
    pub text: TextArgs,

    /// End the current agent and restart the iteration with the guidance.
    #[arg(long)]
    now: bool,

    /// Repeat it in every following prompt, until `--clear`.
    #[arg(long)]
    every: bool,

    /// Drop guidance that is waiting or repeated.
    #[arg(long, conflicts_with_all = ["text", "file", "now", "every"])]
    clear: bool,
}

/// A text from the command line, a file or standard input.
#[derive(Debug, Args)]
pub struct TextArgs {
    /// The text, or `-` to read it from standard input.
    text: Option<String>,

    /// Read the text from this file.
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "text")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AskArgs {
    #[command(flatten)]
    pub text: TextArgs,
}

#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The question's id, as `ralph questions` shows it, or a unique beginning of it.
    pub id: String,

    #[command(flatten)]
    pub text: TextArgs,
}

#[derive(Debug, Args)]
pub struct QuestionsArgs {
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

impl TextArgs {
    fn read(&self) -> Result<String, Error> {
        let (bytes, from) = match (&self.file, self.text.as_deref()) {
            (Some(path), _) if path != Path::new("-") => {
                let shown = path.display().to_string();
                let file = std::fs::File::open(path);
                let bytes = file.and_then(read_bounded);
                let failed = |err| Error::input(format!("cannot read {shown}: {err}"));
                (bytes.map_err(failed)?, shown.clone())
            }
            (Some(_), _) | (None, Some("-")) => {
                let bytes = read_bounded(io::stdin().lock());
                let failed = |err| Error::input(format!("cannot read standard input: {err}"));
                (bytes.map_err(failed)?, "standard input".to_owned())
            }
            (None, Some(text)) => (text.as_bytes().to_vec(), "the text".to_owned()),
            (None, None) => {
                return Err(Error::usage("no text given")
                    .hint("pass it as an argument, with -f FILE, or on standard input with -"));
            }
        };
        if bytes.len() > MAX_TEXT {
            let most = MAX_TEXT / 1024;
            return Err(Error::input(format!("{from} is longer than {most} KB"))
                .hint("shorten it, or put it into a file of the project and name that file"));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::input(format!("{from} is not valid UTF-8")))?;
        let text = strip_control_chars(&text).trim().to_owned();
        if text.is_empty() {
            return Err(Error::input(format!("{from} is empty")));
        }
        Ok(text)
    }
}

fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An agent must not steer or approve itself.
pub fn refuse_inside_run(what: &str) -> Result<(), Error> {
    if std::env::var_os(RUN_ID).is_none_or(|run| run.is_empty()) {
        return Ok(());
    }
    Err(Error::failed(format!("{what} is not available inside a run"))
        .hint("an agent asks the user with `ralph ask`")
        .hint(format!("a person uses another terminal, without {RUN_ID} in the environment")))
}

pub fn tell(args: &TellArgs) -> Result<u8, Error> {
    let TellArgs { now, every, .. } = *args;
    let request = match args.clear {
        true => Request::ClearGuidance,
        false => Request::Tell { text: args.text.read()?, now, every },
    };
    let worker = Workers::open_user_dir()?.find(&args.name)?;
    worker.refuse_old_loop()?;
    let (label, handle) = (worker.label(), worker.handle().to_owned());
    let (_, run) = worker.run_with_journal()?;
    let has_guidance = !args.clear || has_guidance(&run);
    match RequestQueue::of(&run).send(&request) {
        Ok(_) => {}
        Err(SendError::Io(err)) => return Err(send_error(&run, &err)),
        Err(SendError::Ended) => {
            let state = worker.load_state().known();
            let how = state
                .as_ref()
                .map_or_else(String::new, |state| format!(": {}", state.end_clause()));
            let is_complete = state.is_some_and(|state| state.is_complete());
            return Err(ended_error(&format!("{label} has ended{how}"), &handle, is_complete));
        }
    }
    let what = match (args.clear, now, every) {
        (true, ..) if !has_guidance => return print("there was no guidance to drop\n"),
        (true, ..) => "dropped the guidance that was waiting or repeated",
        (_, true, false) => "restarts the iteration with your guidance",
        (_, true, true) => "restarts the iteration with your guidance, and repeats it",
        (_, false, true) => "carries your guidance in every prompt from the next one on",
        (_, false, false) if run.is_running() => {
            "carries your guidance in the next prompt, if there is one; --now does not wait"
        }
        (_, false, false) => "carries your guidance in the next prompt",
    };
    print(&format!("{label} {what}{}\n", resume_note(&run, &handle)))
}

/// Also guidance that the run has not taken yet.
fn has_guidance(run: &RunDir) -> bool {
    let waiting = RequestQueue::of(run).pending(0).unwrap_or_default();
    if waiting.iter().any(|(_, request)| matches!(request, Some(Request::Tell { .. }))) {
        return true;
    }
    let Ok(entries) = run.read_journal() else { return true };
    RunState::read(entries).steering.due_guidance().next().is_some()
}

fn resume_note(run: &RunDir, handle: &str) -> String {
    match run.is_running() {
        true => String::new(),
        false => format!(", once it is resumed: ralph resume {handle}"),
    }
}

fn send_error(run: &RunDir, err: &io::Error) -> Error {
    Error::failed(format!("cannot write to {}: {err}", run.path.display()))
}

fn ended_error(message: &str, handle: &str, is_complete: bool) -> Error {
    let error = Error::failed(message.to_owned()).hint(format!("see how: ralph report {handle}"));
    if is_complete {
        return error.hint("it is complete; start a new run");
    }
    error.hint(format!("resume it first: ralph resume {handle}"))
}

/// Leaves a question for the run that this process belongs to.
pub fn ask(args: &AskArgs) -> Result<u8, Error> {
    let run = std::env::var(RUN_ID).ok().filter(|run| !run.is_empty());
    let Some(run) = run else {
        return Err(Error::failed("`ralph ask` works only inside a run")
            .hint("an agent asks the user with it; to steer a run, use `ralph tell`"));
    };
    let Some(text) = question::bounded(&args.text.read()?) else {
        return Err(Error::input("the question has no words"));
    };
    let Some(dir) = std::env::var_os(QUESTIONS_DIR).filter(|dir| !dir.is_empty()) else {
        return Err(Error::failed("this run takes no questions")
            .hint("the setting \"questions\" is \"off\": decide yourself"));
    };
    question_spool::leave(Path::new(&dir), &text).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => Error::failed(format!("run {run} takes no questions any more")),
        _ => Error::failed(format!("cannot leave the question: {err}")),
    })?;
    print(&format!("{}\n", question::id(&run, &text)))
}

/// A question, and the run that asked it.
struct AskedQuestion {
    question: Question,
    /// Also one that waits until the run is resumed.
    answer: Option<String>,
    run: RunDir,
    project: Project,
    name: Option<String>,
}

impl AskedQuestion {
    fn handle(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.run.id)
    }
}

/// All questions of runs that have not ended.
fn all_questions() -> Result<Vec<AskedQuestion>, Error> {
    let Some(home) = ralph_home(|name| std::env::var_os(name)) else { return Ok(Vec::new()) };
    let stored = project_record::stored_projects(&home).map_err(|err| {
        Error::failed(format!("cannot list the projects in {}: {err}", home.display()))
    })?;
    let mut asked = Vec::new();
    for root in stored.into_iter().filter_map(|project| project.root.ok().flatten()) {
        let project = Project::new(&root, &home);
        let runs = runs::list(&project.runs_dir()).unwrap_or_default();
        for run in
            runs.into_iter().filter(|run| run.is_running() || !runs::has_ended(&run.journal()))
        {
            let Ok(entries) = run.read_journal() else { continue };
            let (mut steering, mut name) = (Steering::default(), None);
            for entry in entries.without_text() {
                if let Event::RunStarted { name: Some(known), .. } = &entry.event {
                    name = Some(known.to_string());
                }
                steering.apply(entry.at, &entry.event);
            }
            let queue = RequestQueue::of(&run);
            asked.extend(steering.questions.into_iter().map(|question| AskedQuestion {
                answer: match &question.answer {
                    Some(answer) => Some(answer.text.clone()),
                    None => queue.waiting_answer(&question.id),
                },
                question,
                run: run.clone(),
                project: project.clone(),
                name: name.clone(),
            }));
        }
    }
    asked.sort_by_key(|it| it.question.asked_ms);
    Ok(asked)
}

pub fn questions(args: &QuestionsArgs) -> Result<u8, Error> {
    let mut open = all_questions()?;
    open.retain(|it| it.answer.is_none());
    if args.json {
        let list: Vec<serde_json::Value> = open.iter().map(to_json).collect();
        let text = json_writer::pretty(&list).unwrap_or_default();
        return print(&format!("{text}\n"));
    }
    if open.is_empty() {
        return print("no open questions\n");
    }
    let mut out = String::new();
    for it in &open {
        let since = Timestamp::now().as_millisecond().saturating_sub(it.question.asked_ms);
        let age = match since / 60_000 {
            ..1 => "just now".to_owned(),
            minutes => format!("{} ago", text::format_duration(minutes.unsigned_abs() * 60_000)),
        };
        let story = it.question.story.as_deref().map(|id| format!(", {id}")).unwrap_or_default();
        let (id, name, iteration) = (&it.question.id, it.handle(), it.question.iteration);
        let _ = writeln!(out, "{id}  {name}, iteration {iteration}{story}, {age}");
        for line in strip_control_chars(&it.question.text).lines() {
            let _ = writeln!(out, "{}", format!("  {line}").trim_end());
        }
        out.push('\n');
    }
    if let Some(first) = open.first() {
        let _ = writeln!(out, "Answer one: ralph answer {} \"…\"", first.question.id);
    }
    print(&out)
}

fn to_json(asked: &AskedQuestion) -> serde_json::Value {
    let AskedQuestion { question, run, project, name, .. } = asked;
    let asked_at = Timestamp::from_millisecond(question.asked_ms).ok();
    let mut value = json!({
        "id": question.id,
        "run": run.id,
        "name": name,
        "directory": project.root().display().to_string(),
        "iteration": question.iteration,
        "text": question.text,
        "asked_at": asked_at.map(|time| format!("{time:.3}")),
    });
    if let Some(story) = &question.story {
        value["story"] = json!(story);
    }
    value
}

pub fn answer(args: &AnswerArgs) -> Result<u8, Error> {
    let text = args.text.read()?;
    let id = &args.id;
    let mut found = all_questions()?;
    found.retain(|it| it.question.id.starts_with(id.as_str()));
    if found.iter().any(|it| it.question.id == *id) {
        found.retain(|it| it.question.id == *id);
    }
    // Ids are short: one of another run may be the same.
    if found.iter().any(|it| it.answer.is_none()) {
        found.retain(|it| it.answer.is_none());
    }
    let Some(asked) = found.pop() else {
        return Err(Error::failed(format!("no run has an open question {id}"))
            .hint("`ralph questions` lists them"));
    };
    if let Some(other) = found.pop() {
        let (one, two) = (&other.question.id, &asked.question.id);
        if one != two {
            return Err(Error::failed(format!("{id} is the beginning of {one} and {two}"))
                .hint("`ralph questions` lists them"));
        }
        let (one, two) = (&other.run.id, &asked.run.id);
        return Err(Error::failed(format!("runs {one} and {two} both have a question {id}"))
            .hint("answer with `ralph tell RUN` instead"));
    }
    let id = &asked.question.id;
    if let Some(answer) = &asked.answer {
        let first = text::truncate(answer, 60, "…");
        return Err(Error::failed(format!("question {id} was answered already: {first}"))
            .hint(format!("to add something: ralph tell {} \"…\"", asked.handle())));
    }
    let request = Request::Answer { question: id.clone(), text };
    match RequestQueue::of(&asked.run).send(&request) {
        Ok(_) => {}
        Err(SendError::Io(err)) => return Err(send_error(&asked.run, &err)),
        Err(SendError::Ended) => {
            let (id, entries) = (&asked.run.id, asked.run.read_journal());
            let is_complete =
                entries.is_ok_and(|it| RunState::read(it).outcome() == Some(Outcome::Complete));
            return Err(ended_error(&format!("run {id} has ended"), id, is_complete));
        }
    }
    let (name, note) = (asked.handle(), resume_note(&asked.run, asked.handle()));
    print(&format!("answered {id}: {name} gets it with the next prompt{note}\n"))
}
