//! `ralph tasks`: shows and edits the stories of a task list.

use std::io;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::commands::stories;
use ralph_events::env_names::PARKED_STORIES;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_report::output::OutputStream;
use ralph_store::project::Project;
use ralph_tasks as tasks;
use ralph_tasks::documents::{self, Documents, TASKS};
use ralph_tasks::order::{self, StoryStatus};
use ralph_tasks::{Story, TaskList, TaskProblem, edit};

use super::new::DocumentsArgs;
use crate::task_memory::ListHistory;

#[derive(Debug, Args)]
pub struct TasksArgs {
    #[command(subcommand)]
    pub command: Option<TasksCommand>,

    /// Print one JSON object per story.
    #[arg(long, conflicts_with = "format", global = true)]
    json: bool,

    /// The form of the output.
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        global = true,
        hide_short_help = true
    )]
    format: TasksFormat,

    #[command(flatten)]
    pub place: DocumentsArgs,
}

impl TasksArgs {
    fn format(&self) -> TasksFormat {
        if self.json { TasksFormat::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TasksFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per story, as in the file, with its state.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum TasksCommand {
    /// List the stories (the default).
    List,

    /// Show the story to work on: the smallest priority of those that wait for nothing.
    Next,

    /// Show a story.
    Show {
        /// Its id.
        id: String,
    },

    /// Add a story at the end of the list.
    Add(Box<AddArgs>),

    /// Change a story.
    Set(Box<SetArgs>),
}

#[derive(Debug, Args)]
pub struct AddArgs {
    /// A short title.
    pub title: String,

    /// An acceptance criterion; repeatable.
    #[arg(long = "criterion", value_name = "TEXT", required = true)]
    pub criteria: Vec<String>,

    /// Its id [default: the next of the form US-001].
    #[arg(long)]
    pub id: Option<String>,

    /// A description of a few sentences.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,

    /// Lower numbers come first [default: after all others].
    #[arg(long, value_name = "NUMBER", value_parser = parse_finite, allow_negative_numbers = true)]
    pub priority: Option<f64>,

    /// A story that must pass first; repeatable.
    #[arg(long, value_name = "ID")]
    pub depends_on: Vec<String>,

    /// A story that this one replaces and that may be removed; repeatable.
    #[arg(long, value_name = "ID")]
    pub replaces: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Its id.
    pub id: String,

    /// Mark it as passing, or with =false as not. A mark needs notes that say what was done; `ralph work`
    /// believes it only while verifyCommands pass.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub passes: Option<bool>,

    /// The value, as in `--passes false`.
    #[arg(hide = true, requires = "passes")]
    pub passes_or_not: Option<bool>,

    /// New notes: what was done, and how it was checked.
    #[arg(long, value_name = "TEXT", conflicts_with = "add_note")]
    pub notes: Option<String>,

    /// A line to add to the notes.
    #[arg(long, value_name = "TEXT")]
    pub add_note: Option<String>,

    /// A new title.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// A new description.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,

    /// A new priority; lower numbers come first.
    #[arg(long, value_name = "NUMBER", value_parser = parse_finite, allow_negative_numbers = true)]
    pub priority: Option<f64>,

    /// The stories that must pass first, instead of the present ones; empty for none.
    #[arg(long, value_name = "ID")]
    pub depends_on: Vec<String>,
}

/// JSON has no infinities and no NaN.
fn parse_finite(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() { Ok(number) } else { Err("not a finite number".to_owned()) }
}

pub fn tasks(project: &Project, args: &TasksArgs) -> Result<u8, Error> {
    let documents = args.place.documents(project);
    let history = ListHistory { project, documents: &documents };
    match &args.command {
        None | Some(TasksCommand::List) => list(&history, args.format()),
        Some(TasksCommand::Next) => next(&history, args.format()),
        Some(TasksCommand::Show { id }) => show(&documents, id, args.format()),
        Some(TasksCommand::Add(new)) => add(&history, new, args.format()),
        Some(TasksCommand::Set(changes)) => set(&documents, changes, args.format()),
    }
}

pub fn read(documents: &Documents) -> Result<TaskList, Error> {
    let bytes = documents.read_tasks().map_err(|err| unreadable_error(documents, &err))?;
    let emptied = documents::without_placeholder(&String::from_utf8_lossy(&bytes));
    let bytes = emptied.map_or(bytes, String::into_bytes);
    tasks::parse(&bytes).map_err(|broken| invalid_list_error(documents, &broken.problems))
}

/// Reads a task list that is ready to be worked on.
pub fn read_valid(documents: &Documents) -> Result<TaskList, Error> {
    let list = read(documents)?;
    if list.stories.is_empty() {
        let add = documents.command_line("ralph tasks add");
        let name = documents.display_path(TASKS);
        let plugin = "or plan them with the Claude Code plugin: /ralph:ralph-plan";
        return Err(Error::input(format!("no stories in {name} yet"))
            .hint(format!("add one: {add} \"TITLE\" --criterion \"TEXT\""))
            .hint(plugin));
    }
    match list.problems().as_slice() {
        [] => Ok(list),
        problems => Err(invalid_list_error(documents, problems)),
    }
}

fn unreadable_error(documents: &Documents, err: &io::Error) -> Error {
    let name = documents.display_path(TASKS);
    match err.kind() {
        io::ErrorKind::NotFound => {
            let new = documents.command_line("ralph new");
            Error::input(format!("task list not found: {name}"))
                .hint(format!("create one with `{new}`, or name its directory with --ralph-dir"))
        }
        _ => Error::input(format!("cannot use {name}: {err}")),
    }
}

pub(super) fn invalid_list_error(documents: &Documents, problems: &[TaskProblem]) -> Error {
    let name = documents.display_path(TASKS);
    let lines: Vec<String> = tasks::first_problems(problems)
        .iter()
        .map(|problem| format!("{name}: {problem}"))
        .collect();
    Error::input(lines.join("\n"))
}

fn list(history: &ListHistory<'_>, format: TasksFormat) -> Result<u8, Error> {
    let documents = history.documents;
    let list = read(documents)?;
    let gone = history.missing_story_count(&list);
    let text = match format {
        TasksFormat::Text => {
            let (name, room) = (documents.display_path(TASKS), OutputStream::stdout().width());
            stories::table(&list, gone, &name, room)
        }
        TasksFormat::Json => {
            let rows = list.stories.iter().zip(order::story_statuses(&list));
            rows.map(|(story, status)| story_json(story, &status)).collect()
        }
    };
    crate::cli::print(&text)?;
    // Marks are the agent's claim; the ledger may disagree.
    if (list.is_complete() || gone > 0)
        && let Some(doubts) = history.completeness_doubts(&list)
    {
        crate::cli::warn(&doubts);
    }
    match list.problems().as_slice() {
        [] => Ok(0),
        problems => Err(invalid_list_error(documents, problems)),
    }
}

fn story_json(story: &Story, status: &StoryStatus<'_>) -> String {
    let (state, blockers) = match status {
        StoryStatus::Passes => ("passes", &[][..]),
        StoryStatus::Next => ("next", &[][..]),
        StoryStatus::Ready => ("ready", &[][..]),
        StoryStatus::Blocked(blockers) => ("waits", blockers.as_slice()),
    };
    let mut value = story.source.clone();
    value["state"] = json!(state);
    value["waitsFor"] = json!(blockers);
    to_json(&value)
}

fn to_json(value: &Value) -> String {
    json_writer::compact(value).unwrap_or_default() + "\n"
}

fn next(history: &ListHistory<'_>, format: TasksFormat) -> Result<u8, Error> {
    let documents = history.documents;
    let list = read(documents)?;
    let problems = order::dependency_problems(&list);
    if !problems.is_empty() {
        return Err(invalid_list_error(documents, &problems));
    }
    // A story with an open question waits for the user.
    let parked = std::env::var(PARKED_STORIES).unwrap_or_default();
    let parked: Vec<&str> = parked.lines().collect();
    let next = order::next_except(&list, &parked);
    if next.is_none() && order::next(&list).is_some() {
        return match format {
            TasksFormat::Json => Ok(0),
            TasksFormat::Text => {
                crate::cli::print("every story that can start waits for an answer from the user\n")
            }
        };
    }
    match (next, format) {
        (Some(story), TasksFormat::Text) => crate::cli::print(&stories::story_text(story)),
        (Some(story), TasksFormat::Json) => crate::cli::print(&to_json(&story.source)),
        (None, TasksFormat::Json) => Ok(0),
        (None, TasksFormat::Text) if list.stories.is_empty() => {
            crate::cli::print(&format!("{} has no stories yet\n", documents.display_path(TASKS)))
        }
        (None, TasksFormat::Text) => match history.completeness_doubts(&list) {
            None => crate::cli::print("every story passes\n"),
            Some(doubts) => {
                crate::cli::print(&format!("every story is marked as passing, but {doubts}\n"))
            }
        },
    }
}

fn find<'a>(documents: &Documents, list: &'a TaskList, id: &str) -> Result<&'a Story, Error> {
    list.stories.iter().find(|story| story.id == id).ok_or_else(|| {
        let wanted = id.to_lowercase();
        let near = list
            .stories
            .iter()
            .map(|story| (strsim::jaro_winkler(&story.id.to_lowercase(), &wanted), story))
            .filter(|(nearness, _)| *nearness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let error = Error::input(format!("no story {id:?} in {}", documents.display_path(TASKS)));
        match near {
            Some((_, story)) => error.hint(format!("its stories: {}", story.id)),
            None => error.hint(format!("`{}` lists them", documents.command_line("ralph tasks"))),
        }
    })
}

fn show(documents: &Documents, id: &str, format: TasksFormat) -> Result<u8, Error> {
    let list = read(documents)?;
    let story = find(documents, &list, id)?;
    crate::cli::print(&match format {
        TasksFormat::Text => stories::story_text(story),
        TasksFormat::Json => format!("{}\n", story.source),
    })
}

fn add(history: &ListHistory<'_>, args: &AddArgs, format: TasksFormat) -> Result<u8, Error> {
    let documents = history.documents;
    let title = one_line("the title", &args.title)?;
    let requested_id = args.id.as_deref().map(|id| one_line("the id", id)).transpose()?;
    let criteria: Vec<String> = args.criteria.iter().map(|text| normalize_lines(text)).collect();
    if criteria.iter().any(String::is_empty) {
        return Err(Error::usage("a criterion is empty").hint(
            "describe what must be true when the story is done: --criterion \"A mail is \
                   sent\"",
        ));
    }
    let mut id = String::new();
    edit_list(documents, |text, list| {
        id = requested_id.map_or_else(|| next_free_id(list), str::to_owned);
        for replaced in &args.replaces {
            // It may already be gone from the list.
            if !history.knows_story(replaced) {
                find(documents, list, replaced)?;
            }
        }
        let after_all = list.stories.iter().map(|story| story.priority).fold(0.0, f64::max) + 1.0;
        let description = args.description.as_deref().map(normalize_lines).unwrap_or_default();
        let mut story = json!({
            "id": id,
            "title": title,
            "description": description,
            "acceptanceCriteria": criteria,
            "priority": number(args.priority.unwrap_or(after_all.floor())),
            "passes": false,
            "notes": "",
            "dependsOn": args.depends_on,
        });
        if !args.replaces.is_empty() {
            story["replaces"] = json!(args.replaces);
        }
        Ok(edit::add_story(text, &story))
    })?;
    match format {
        TasksFormat::Text => crate::cli::print(&format!("added {id}\n")),
        TasksFormat::Json => show(documents, &id, format),
    }
}

fn one_line<'a>(label: &str, text: &'a str) -> Result<&'a str, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::usage(format!("{label} is empty")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::usage(format!("{label} contains a control character: {text:?}"))
            .hint("write it on one line; use --description for longer text"));
    }
    Ok(text)
}

fn normalize_lines(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

fn next_free_id(list: &TaskList) -> String {
    let numbers =
        list.stories.iter().filter_map(|story| story.id.strip_prefix("US-")?.parse::<u32>().ok());
    format!("US-{:03}", numbers.max().unwrap_or(0).saturating_add(1))
}

/// Whole numbers without a fraction.
fn number(number: f64) -> Value {
    serde_json::from_str(&number.to_string()).unwrap_or_else(|_| json!(number))
}

fn set(documents: &Documents, args: &SetArgs, format: TasksFormat) -> Result<u8, Error> {
    if args.passes == Some(false) && args.passes_or_not.is_some() {
        return Err(Error::usage("conflicting values: use --passes or --passes=false"));
    }
    let passes = args.passes_or_not.or(args.passes);
    let title = args.title.as_deref().map(|title| one_line("the title", title)).transpose()?;
    let changed = edit_list(documents, |text, list| {
        let story = find(documents, list, &args.id)?;
        let notes = match (&args.notes, &args.add_note) {
            (Some(notes), _) => Some(normalize_lines(notes)),
            (None, Some(note)) if story.notes.trim().is_empty() => Some(normalize_lines(note)),
            (None, Some(note)) => {
                Some(format!("{}\n{}", story.notes.trim_end(), normalize_lines(note)))
            }
            (None, None) => None,
        };
        let named: Vec<&String> = args.depends_on.iter().filter(|id| !id.is_empty()).collect();
        let depends_on = (!args.depends_on.is_empty()).then(|| json!(named));
        let changes: Vec<edit::FieldChange<'_>> = [
            ("title", title.map(|it| json!(it))),
            ("description", args.description.as_deref().map(|it| json!(normalize_lines(it)))),
            ("priority", args.priority.map(number)),
            ("passes", passes.map(|it| json!(it))),
            ("notes", notes.map(|it| json!(it))),
            ("dependsOn", depends_on),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
        .collect();
        if changes.is_empty() {
            return Err(Error::usage("nothing to change")
                .hint("name a field to set; `ralph tasks set --help` lists them"));
        }
        Ok(edit::set_in_story(text, &args.id, &changes))
    });
    changed.map_err(|err| match passes {
        Some(true) if args.notes.is_none() && err.message.contains("notes:") => {
            err.hint("describe what was done: --passes --notes \"…\"")
        }
        _ => err,
    })?;
    match format {
        TasksFormat::Text => crate::cli::print(&format!("changed {}\n", args.id)),
        TasksFormat::Json => show(documents, &args.id, format),
    }
}

/// Edits the list, unless that would introduce a new problem.
fn edit_list(
    documents: &Documents,
    edit: impl FnOnce(&str, &TaskList) -> Result<Option<String>, Error>,
) -> Result<(), Error> {
    let changed = documents.change_tasks(|text| {
        let emptied = documents::without_placeholder(text);
        let text = emptied.as_deref().unwrap_or(text);
        let list = tasks::parse(text.as_bytes()).map_err(|broken| {
            invalid_list_error(documents, &broken.problems).hint("repair it first")
        })?;
        let before = list.problems();
        let changed = edit(text, &list)?.ok_or_else(|| {
            let name = documents.display_path(TASKS);
            Error::failed(format!("cannot find the value to change in {name}"))
        })?;
        let after = match tasks::parse(changed.as_bytes()) {
            Ok(list) => list.problems(),
            Err(broken) => broken.problems,
        };
        let new: Vec<TaskProblem> =
            after.into_iter().filter(|problem| !before.contains(problem)).collect();
        match new.as_slice() {
            [] => Ok(changed),
            new => Err(invalid_list_error(documents, new).hint("nothing was changed")),
        }
    });
    changed.map_err(|err| unreadable_error(documents, &err))?
}
