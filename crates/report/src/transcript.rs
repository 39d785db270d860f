//! A run as a conversation: text, tool calls, checks, commits, questions and your messages.
//!
//! [`Transcript::apply`] takes the entries of a journal one by one. An item changes in place: a tool call that ends
//! is the same item as when it started. Everything an agent printed is cleaned and bounded here.

use serde::Serialize;

use crate::check_view::CheckMark;
use crate::run_table::continued_after_text;
use crate::status_line::{one_line, tool_subject};
use crate::story_view::short_id;
use crate::terminal::{describe_cause, describe_class, describe_outcome, plural};
use crate::warning_text::warning_text;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{
    Entry, Event, Exit, FileEdit, Outcome, Purpose, Stamp, Stream, TodoItem, TodoStatus, WaitReason,
};
use ralph_events::text;

/// Characters of one text.
const MAX_TEXT: usize = 16 * 1024;
/// Characters of a tool's output. Agents' adapters keep less.
const MAX_PREVIEW: usize = 8 * 1024;
/// Commits of one report.
const MAX_COMMITS: usize = 50;
const MAX_TODOS: usize = 50;
/// Tool calls that may be open at once.
const MAX_OPEN: usize = 64;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// Unique within the run, and growing: the position of its line in the journal.
    pub id: u64,
    pub time_ms: i64,
    pub iteration: u32,
    pub kind: ItemKind,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ItemKind {
    /// An iteration starts. Its figures are in the run's state.
    Iteration {
        number: u32,
    },
    Text {
        voice: Voice,
        text: String,
        is_cut: bool,
    },
    Tool(ToolItem),
    Check(CheckItem),
    Commit {
        id: String,
        subject: String,
    },
    Question {
        id: String,
        text: String,
        context: String,
        is_answered: bool,
    },
    /// A person's guidance, or the answer to a question.
    You {
        text: String,
        guidance: Option<u64>,
        question: Option<String>,
        every: bool,
        delivered_in: Option<u32>,
        /// Not delivered: the run ended first.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_missed: bool,
    },
    /// Stories that the agent marked although checks failed or were cut off.
    Claim {
        stories: Vec<String>,
        failed: Vec<String>,
    },
    Wait {
        reason: Wait,
        until_ms: i64,
        ended_ms: Option<i64>,
    },
    Notice {
        level: Level,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    Agent,
    Subagent,
    Thinking,
    /// Lines that no adapter understands, or all output of an agent without one.
    Output,
    /// The agent's standard error.
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    RateLimit,
    Backoff,
    Paused,
    Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Info,
    Warning,
    Failure,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolItem {
    /// The agent's id of the call.
    #[serde(skip)]
    pub call: String,
    pub name: String,
    /// Path, command or pattern; may be empty.
    pub subject: String,
    pub status: ToolStatus,
    /// `+14 −3`, `118 lines`, `exit code 101, 6.2s`; empty while it runs.
    pub note: String,
    pub edit: Option<FileEdit>,
    /// The beginning of its output.
    pub preview: String,
    /// Lines in all; `preview` may have fewer.
    pub lines: u64,
    pub ended_ms: Option<i64>,
    pub is_subagent: bool,
    /// It only reads or searches: several in a row can be shown as one.
    pub is_lookup: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Running,
    Done,
    Failed,
    Denied,
    /// The agent ended before the call did.
    Abandoned,
}

impl ToolStatus {
    pub fn sign(self) -> &'static str {
        self.signs().0
    }

    pub fn ascii_sign(self) -> &'static str {
        self.signs().1
    }

    fn signs(self) -> (&'static str, &'static str) {
        match self {
            ToolStatus::Running => ("●", "*"),
            ToolStatus::Done => ("✓", "+"),
            ToolStatus::Failed | ToolStatus::Denied => ("✗", "x"),
            ToolStatus::Abandoned => ("~", "~"),
        }
    }
}

impl ToolItem {
    /// `Bash(cargo test)`.
    pub fn text(&self) -> String {
        match self.subject.as_str() {
            "" => self.name.clone(),
            subject => format!("{}({subject})", self.name),
        }
    }
}

/// A check of an iteration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckItem {
    pub command: String,
    /// `None` while it runs.
    pub mark: Option<CheckMark>,
    /// `3.1s`, `exit code 1, 1m44s`; empty while it runs.
    pub note: String,
    /// The file with its output.
    pub log: String,
}

/// The items of a run, or of a part of it.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    items: Vec<Item>,
    directory: String,
    todo: Vec<TodoItem>,
    /// Positions in `items` of calls, checks and waits that have not ended.
    open: Vec<usize>,
    /// Of the current iteration.
    marked: Vec<String>,
    failed: Vec<String>,
    unfinished_checks: bool,
    /// The agent writes a commit message, which is shown with the commit.
    writes_message: bool,
    /// Guidance up to this item was dropped.
    cleared_until: u64,
    /// Only changes items, adds none.
    is_closed: bool,
}

impl Transcript {
    /// Paths in tool calls are shown relative to `directory`.
    pub fn new(directory: &str) -> Transcript {
        Transcript { directory: directory.to_owned(), ..Transcript::default() }
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// The agent's own plan, as it was last.
    pub fn todo(&self) -> &[TodoItem] {
        &self.todo
    }

    /// From now on, entries change items but add none: they belong to the next part.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether a later entry can change an item.
    pub fn has_open_items(&self) -> bool {
        !self.open.is_empty()
    }

    /// Drops the first `count` items.
    pub fn forget(&mut self, count: usize) {
        let count = count.min(self.items.len());
        self.items.drain(..count);
        self.open = self.open.iter().filter_map(|at| at.checked_sub(count)).collect();
    }

    /// Takes the entry at `position` of the journal, and returns the ids of items that are new or changed.
    pub fn apply(&mut self, position: u64, entry: &Entry<'_>) -> Vec<u64> {
        let mut changed = Vec::new();
        self.apply_event(position, entry.at, &entry.event, &mut changed);
        changed
    }

    fn add(&mut self, id: u64, at: Stamp, kind: ItemKind, changed: &mut Vec<u64>) -> Option<usize> {
        if self.is_closed {
            return None;
        }
        self.items.push(Item { id, time_ms: at.time_ms, iteration: at.iteration, kind });
        changed.push(id);
        Some(self.items.len() - 1)
    }

    fn add_open(&mut self, id: u64, at: Stamp, kind: ItemKind, changed: &mut Vec<u64>) {
        if let Some(position) = self.add(id, at, kind, changed) {
            if self.open.len() == MAX_OPEN {
                self.open.remove(0);
            }
            self.open.push(position);
        }
    }

    fn notice(&mut self, id: u64, at: Stamp, level: Level, text: &str, changed: &mut Vec<u64>) {
        let text = clean(text, MAX_PREVIEW).0;
        self.add(id, at, ItemKind::Notice { level, text }, changed);
    }

    /// Changes the open items for which `change` returns whether they have ended.
    fn end_open(&mut self, changed: &mut Vec<u64>, mut change: impl FnMut(&mut ItemKind) -> bool) {
        let items = &mut self.items;
        self.open.retain(|at| {
            let Some(item) = items.get_mut(*at) else { return false };
            let has_ended = change(&mut item.kind);
            if has_ended {
                changed.push(item.id);
            }
            !has_ended
        });
    }

    fn apply_event(&mut self, id: u64, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        self.end_wait(at, event, changed);
        match event {
            Event::AgentStarted { purpose, .. } => {
                self.writes_message = *purpose == Purpose::CommitMessage;
            }
            Event::AgentEnded { purpose: Purpose::CommitMessage, .. } => {
                self.writes_message = false;
            }
            Event::RunStarted { directory, .. } => {
                self.writes_message = false;
                self.directory = directory.as_ref().to_owned();
                self.abandon(changed);
                // A resumed run still has them.
                self.set_missed(false, changed);
            }
            Event::IterationStarted { .. } => {
                (self.marked, self.failed) = Default::default();
                self.unfinished_checks = false;
                self.todo.clear();
                self.add(id, at, ItemKind::Iteration { number: at.iteration }, changed);
            }
            Event::Text { text, joined, subagent } => {
                let voice = if *subagent { Voice::Subagent } else { Voice::Agent };
                self.speak(id, at, voice, text, *joined, changed);
            }
            Event::Thinking { text, joined, .. } => {
                self.speak(id, at, Voice::Thinking, text, *joined, changed);
            }
            Event::Output { stream, text, joined } => {
                let voice = if *stream == Stream::Stderr { Voice::Stderr } else { Voice::Output };
                self.speak(id, at, voice, text, *joined, changed);
            }
            Event::ToolStarted { .. } => self.tool_started(id, at, event, changed),
            Event::ToolEnded { .. } => self.tool_ended(at, event, changed),
            Event::Todo { items } => {
                let clean =
                    |item: &TodoItem| TodoItem { text: one_line(&item.text), ..item.clone() };
                self.todo = items.iter().take(MAX_TODOS).map(clean).collect();
            }
            Event::Notice { text } | Event::Retracted { reason: text } => {
                self.notice(id, at, Level::Info, text, changed);
            }
            Event::AgentEnded { purpose: Purpose::Work, class, ended_by, .. } => {
                self.abandon(changed);
                let text = ended_by.map(describe_cause);
                let failure = (!class.finished_normally()).then(|| describe_class(*class));
                if let Some(text) = text.or(failure) {
                    self.notice(id, at, Level::Warning, text, changed);
                }
            }
            Event::GuardrailStarted { command, .. } => {
                let check = CheckItem {
                    command: one_line(command),
                    mark: None,
                    note: String::new(),
                    log: String::new(),
                };
                self.add_open(id, at, ItemKind::Check(check), changed);
            }
            Event::GuardrailEnded { .. } => self.check_ended(event, changed),
            Event::Repository { commits, .. } => {
                for (commit, id) in commits.iter().take(MAX_COMMITS).zip(id..) {
                    let (hash, subject) = (short_id(&commit.id), one_line(&commit.subject));
                    self.add(id, at, ItemKind::Commit { id: hash, subject }, changed);
                }
            }
            Event::ScmEnded { task, ok: false, detail, .. } => {
                let text = format!("SCM task {task} failed: {detail}");
                self.notice(id, at, Level::Failure, &text, changed);
            }
            Event::Tasks { marked, .. } => self.marked.extend(marked.iter().cloned()),
            Event::IterationEnded { .. } => self.claim(id, at, changed),
            Event::Waiting { reason, until_ms } => {
                let reason = match reason {
                    WaitReason::RateLimit => Wait::RateLimit,
                    WaitReason::Backoff => Wait::Backoff,
                };
                let wait = ItemKind::Wait { reason, until_ms: *until_ms, ended_ms: None };
                self.add_open(id, at, wait, changed);
            }
            Event::Paused | Event::Parked => {
                let reason = if *event == Event::Paused { Wait::Paused } else { Wait::Parked };
                let wait = ItemKind::Wait { reason, until_ms: i64::MAX, ended_ms: None };
                self.add_open(id, at, wait, changed);
            }
            _ => self.steering_event(id, at, event, changed),
        }
    }

    fn steering_event(&mut self, id: u64, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        match event {
            Event::QuestionAsked { id: question, text, .. } => {
                let text = clean(text, MAX_TEXT).0;
                let (headline, context) = text.split_once('\n').unwrap_or((&text, ""));
                let question = ItemKind::Question {
                    id: question.as_ref().to_owned(),
                    text: headline.trim().to_owned(),
                    context: context.trim().to_owned(),
                    is_answered: false,
                };
                if self.is_closed {
                    return;
                }
                let emptied = self.cut_out_question(at, &text, changed);
                match emptied.and_then(|position| self.items.get_mut(position)) {
                    Some(item) => item.kind = question,
                    None => drop(self.add(id, at, question, changed)),
                }
            }
            Event::QuestionAnswered { id: answered, text } => {
                let find = |item: &mut Item| match &mut item.kind {
                    ItemKind::Question { id, is_answered, .. } if **id == **answered => {
                        *is_answered = true;
                        Some(item.id)
                    }
                    _ => None,
                };
                changed.extend(self.items.iter_mut().find_map(find));
                let answer = ItemKind::You {
                    text: clean(text, MAX_TEXT).0,
                    guidance: None,
                    question: Some(answered.as_ref().to_owned()),
                    every: false,
                    delivered_in: None,
                    is_missed: false,
                };
                self.add(id, at, answer, changed);
            }
            Event::GuidanceReceived { id: guidance, text, every } => {
                let you = ItemKind::You {
                    text: clean(text, MAX_TEXT).0,
                    guidance: Some(*guidance),
                    question: None,
                    every: *every,
                    delivered_in: None,
                    is_missed: false,
                };
                self.add(id, at, you, changed);
            }
            Event::GuidanceDelivered { guidance, answers } => {
                for item in &mut self.items {
                    let ItemKind::You { guidance: own, question, delivered_in, is_missed, .. } =
                        &mut item.kind
                    else {
                        continue;
                    };
                    if own.is_some_and(|own| guidance.contains(&own))
                        || question.as_ref().is_some_and(|own| answers.contains(own))
                    {
                        (*delivered_in, *is_missed) = (Some(at.iteration), false);
                        changed.push(item.id);
                    }
                }
            }
            _ => {
                match event {
                    Event::RunEnded { .. } => self.set_missed(true, changed),
                    Event::GuidanceCleared => self.cleared_until = id,
                    _ => {}
                }
                if let Some((level, text)) = notice_text(event) {
                    self.notice(id, at, level, &text, changed);
                }
            }
        }
    }

    fn set_missed(&mut self, missed: bool, changed: &mut Vec<u64>) {
        for item in &mut self.items {
            if let ItemKind::You { delivered_in: None, guidance, is_missed, .. } = &mut item.kind
                && (guidance.is_none() || item.id > self.cleared_until)
                && *is_missed != missed
            {
                *is_missed = missed;
                changed.push(item.id);
            }
        }
    }

    /// Leaves the question out of the text that asked it. Returns whether nothing else was said there.
    fn cut_out_question(
        &mut self,
        at: Stamp,
        asked: &str,
        changed: &mut Vec<u64>,
    ) -> Option<usize> {
        let asked = letters(asked);
        let recent = self.items.iter_mut().enumerate().rev();
        for (position, item) in recent.take_while(|(_, item)| item.iteration == at.iteration) {
            let ItemKind::Text { text, .. } = &mut item.kind else { continue };
            let Some(range) = question_range(text, &asked) else { continue };
            let rest = format!("{}\n{}", text[..range.start].trim_end(), text[range.end..].trim());
            *text = rest.trim().to_owned();
            changed.push(item.id);
            return text.is_empty().then_some(position);
        }
        None
    }

    /// Adds to the previous text if it continues there. Lines of plain output belong together, too.
    fn speak(
        &mut self,
        id: u64,
        at: Stamp,
        voice: Voice,
        words: &str,
        joined: bool,
        changed: &mut Vec<u64>,
    ) {
        if self.writes_message && voice != Voice::Stderr {
            return;
        }
        let is_line = matches!(voice, Voice::Output | Voice::Stderr);
        if (joined || is_line)
            && let Some(Item { id, iteration, kind, .. }) = self.items.last_mut()
            && let ItemKind::Text { voice: before, text, is_cut } = kind
            && *before == voice
            && *iteration == at.iteration
        {
            let room = MAX_TEXT.saturating_sub(text.chars().count());
            let (more, cut) = clean(words, room);
            if !joined {
                text.push('\n');
            }
            text.push_str(&more);
            *is_cut |= cut;
            changed.push(*id);
            return;
        }
        let (text, is_cut) = clean(words, MAX_TEXT);
        if !text.trim().is_empty() {
            self.add(id, at, ItemKind::Text { voice, text, is_cut }, changed);
        }
    }

    fn tool_started(&mut self, id: u64, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        let Event::ToolStarted { id: call, name, summary, edit, subagent } = event else { return };
        let name = one_line(name);
        let tool = ToolItem {
            call: call.as_ref().to_owned(),
            subject: tool_subject(summary, &self.directory),
            status: ToolStatus::Running,
            note: String::new(),
            edit: edit.as_deref().map(clean_edit),
            preview: String::new(),
            lines: 0,
            ended_ms: None,
            is_subagent: *subagent,
            is_lookup: is_lookup(&name),
            name,
        };
        self.add_open(id, at, ItemKind::Tool(tool), changed);
    }

    fn tool_ended(&mut self, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        let Event::ToolEnded { id: call, failed, denied, lines, preview, .. } = event else {
            return;
        };
        let items = &self.items;
        let started_ms = self.open.iter().find_map(|at| {
            let item = items.get(*at)?;
            matches!(&item.kind, ItemKind::Tool(tool) if tool.call == **call)
                .then_some(item.time_ms)
        });
        let Some(started_ms) = started_ms else { return };
        let took_ms = u64::try_from(at.time_ms - started_ms).unwrap_or(0);
        self.end_open(changed, |kind| {
            let ItemKind::Tool(tool) = kind else { return false };
            if tool.call != **call {
                return false;
            }
            tool.status = match (denied, failed) {
                (true, _) => ToolStatus::Denied,
                (_, true) => ToolStatus::Failed,
                _ => ToolStatus::Done,
            };
            tool.ended_ms = Some(at.time_ms);
            tool.lines = *lines;
            let exit = set_output(tool, preview);
            tool.note = tool_note(tool, exit, took_ms);
            true
        });
    }

    fn check_ended(&mut self, event: &Event<'_>, changed: &mut Vec<u64>) {
        let Event::GuardrailEnded { command, exit, cut_off, passed, log, duration_ms, .. } = event
        else {
            return;
        };
        let mark = match (passed, cut_off) {
            (true, _) => CheckMark::Passed,
            (_, true) => CheckMark::Interrupted,
            _ => CheckMark::Failed,
        };
        let command = one_line(command);
        match mark {
            CheckMark::Failed => self.failed.push(command.clone()),
            CheckMark::Interrupted => self.unfinished_checks = true,
            _ => {}
        }
        self.end_open(changed, |kind| {
            let ItemKind::Check(check) = kind else { return false };
            if check.command != command {
                return false;
            }
            check.mark = Some(mark);
            check.note = exit_note(exit.filter(|_| !passed), *duration_ms);
            check.log = one_line(log);
            true
        });
    }

    /// A mark in an iteration whose checks failed proves nothing.
    fn claim(&mut self, id: u64, at: Stamp, changed: &mut Vec<u64>) {
        let (stories, failed) =
            (std::mem::take(&mut self.marked), std::mem::take(&mut self.failed));
        let is_unproven = !failed.is_empty() || self.unfinished_checks;
        if !stories.is_empty() && is_unproven {
            let stories = stories.iter().map(|story| one_line(story)).collect();
            self.add(id, at, ItemKind::Claim { stories, failed }, changed);
        }
    }

    /// Whatever was open has no end in the journal.
    fn abandon(&mut self, changed: &mut Vec<u64>) {
        self.end_open(changed, |kind| match kind {
            ItemKind::Tool(tool) => {
                tool.status = ToolStatus::Abandoned;
                tool.note = "not finished".to_owned();
                true
            }
            _ => false,
        });
    }

    fn end_wait(&mut self, at: Stamp, event: &Event<'_>, changed: &mut Vec<u64>) {
        let ends = |reason: Wait| match reason {
            Wait::RateLimit | Wait::Backoff => matches!(
                event,
                Event::RunStarted { .. }
                    | Event::IterationStarted { .. }
                    | Event::AgentStarted { .. }
                    | Event::Retrying { .. }
                    | Event::Waiting { .. }
                    | Event::StopRequested { .. }
                    | Event::RunEnded { .. }
            ),
            Wait::Paused => {
                matches!(
                    event,
                    Event::Resumed { .. } | Event::RunStarted { .. } | Event::RunEnded { .. }
                )
            }
            Wait::Parked => {
                matches!(event, Event::Unparked | Event::RunStarted { .. } | Event::RunEnded { .. })
            }
        };
        self.end_open(changed, |kind| match kind {
            ItemKind::Wait { reason, ended_ms, .. } if ends(*reason) => {
                *ended_ms = Some(at.time_ms);
                true
            }
            _ => false,
        });
    }
}

/// Completed items of a plan, and all.
pub fn todo_progress(items: &[TodoItem]) -> (usize, usize) {
    let done = items.iter().filter(|item| item.status == TodoStatus::Completed).count();
    (done, items.len())
}

/// Where `text` has the tags of a question with these letters.
fn question_range(text: &str, asked: &str) -> Option<std::ops::Range<usize>> {
    const TAGS: (&str, &str) = ("<question>", "</question>");
    let lower = text.to_ascii_lowercase();
    let mut from = 0;
    while let Some(start) = lower[from..].find(TAGS.0).map(|at| from + at) {
        let inside = start + TAGS.0.len();
        let end = inside + lower[inside..].find(TAGS.1)?;
        // A long question was cut when it was asked.
        if !asked.is_empty() && letters(&text[inside..end]).starts_with(asked) {
            return Some(start..end + TAGS.1.len());
        }
        from = inside;
    }
    None
}

/// Questions are asked without the line breaks of the output.
fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Clean text of at most `max` characters, and whether it was cut.
fn clean(text: &str, max: usize) -> (String, bool) {
    // Control sequences are longer than what remains of them.
    let window = text::prefix(text, max.saturating_mul(4).saturating_add(64));
    let clean = strip_control_chars(window);
    let kept = text::prefix(&clean, max).trim_end_matches('\n');
    let is_cut = window.len() < text.len() || kept.len() < clean.trim_end_matches('\n').len();
    (kept.to_owned(), is_cut)
}

fn clean_edit(edit: &FileEdit) -> FileEdit {
    let side = |text: &str| clean(text, MAX_PREVIEW).0;
    FileEdit { old: side(&edit.old), new: side(&edit.new), ..*edit }
}

/// Sets the output of a call that ended. Returns the exit code that it starts with, which is left out.
fn set_output(tool: &mut ToolItem, preview: &str) -> Option<Exit> {
    let text = clean(preview, MAX_PREVIEW).0;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let code = (tool.status == ToolStatus::Failed)
        .then(|| first.trim().to_ascii_lowercase())
        .and_then(|first| first.strip_prefix("exit code ")?.parse().ok());
    match code {
        Some(code) => {
            tool.preview = rest.to_owned();
            tool.lines = tool.lines.saturating_sub(1);
            Some(Exit::Code(code))
        }
        None => {
            tool.preview = text;
            None
        }
    }
}

fn tool_note(tool: &ToolItem, exit: Option<Exit>, took_ms: u64) -> String {
    match (tool.status, &tool.edit) {
        (ToolStatus::Denied, _) => "denied".to_owned(),
        (ToolStatus::Failed, _) => match exit {
            Some(exit) => exit_note(Some(exit), took_ms),
            None => format!("failed, {}", text::format_duration(took_ms)),
        },
        (_, Some(edit)) => format!("+{} −{}", edit.added, edit.removed),
        (_, None) if tool.is_lookup => format!("{} line{}", tool.lines, plural(tool.lines)),
        _ => text::format_duration(took_ms),
    }
}

fn exit_note(exit: Option<Exit>, took_ms: u64) -> String {
    let took = text::format_duration(took_ms);
    exit.map_or_else(|| took.clone(), |exit| format!("{exit}, {took}"))
}

/// By name, because adapters report no kind.
fn is_lookup(name: &str) -> bool {
    const WORDS: [&str; 8] = ["read", "grep", "glob", "ls", "list", "search", "find", "view"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name == *word || name.starts_with(&format!("{word}_")))
        || ["websearch", "webfetch", "notebookread", "codebase_search"].contains(&name.as_str())
}

fn notice_text(event: &Event<'_>) -> Option<(Level, String)> {
    Some(match event {
        Event::RunContinued { after, cut_off, .. } => {
            let again =
                cut_off.map_or_else(String::new, |n| format!(": iteration {n} starts again"));
            (Level::Info, format!("Resumed after {}{again}", continued_after_text(*after)))
        }
        Event::Retrying { class, message, delay_ms, failures, max_failures } => {
            let cause = if message.is_empty() { describe_class(*class) } else { message };
            let when = delay_ms.map(|ms| format!("Retrying in {}", text::format_duration(ms)));
            let when = when.unwrap_or_else(|| "Failed".to_owned());
            (Level::Warning, format!("{when}: {cause} (failure {failures} of {max_failures})"))
        }
        Event::Vetoed { reason } => (Level::Warning, format!("Not done: {reason}")),
        Event::NetworkRefused { host, port, reason, .. } => {
            (Level::Warning, format!("Connection refused: {host}:{port} ({reason})"))
        }
        Event::Leftovers { processes, kept: false } if !processes.is_empty() => {
            let names: Vec<&str> = processes.iter().map(|it| it.command.as_str()).collect();
            (Level::Info, format!("The agent left running: {}. Ended.", names.join("; ")))
        }
        Event::DialogOpened { dialog } => {
            (Level::Warning, format!("A dialog waits on the agent's screen: {dialog}"))
        }
        Event::GuidanceCleared => (Level::Info, "You cleared your guidance".to_owned()),
        Event::PauseRequested => (Level::Info, "You asked the run to pause".to_owned()),
        Event::StopRequested { signal, .. } => (Level::Info, format!("Stop requested: {signal}")),
        Event::RunEnded { outcome, message, .. } => {
            let level = match crate::state_word::StateWord::of_outcome(*outcome) {
                crate::state_word::StateWord::Failed => Level::Failure,
                _ => Level::Info,
            };
            let words = describe_outcome(*outcome);
            match message.trim() {
                _ if *outcome == Outcome::Interrupted => (level, words.to_owned()),
                "" => (level, words.to_owned()),
                message => (level, format!("{words}: {message}")),
            }
        }
        other => (Level::Warning, warning_text(other)?.into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_events::event::{Class, EndCause, Usage};

    fn apply(transcript: &mut Transcript, minute: i64, event: Event<'_>) -> Vec<u64> {
        let at = Stamp { time_ms: minute * 60_000, iteration: 1, attempt: 1 };
        let position = u64::try_from(minute).unwrap() * 1000;
        transcript.apply(position, &Entry { at, event })
    }

    fn text(text: &str, joined: bool) -> Event<'_> {
        Event::Text { text: text.into(), joined, subagent: false }
    }

    fn tool(id: &'static str) -> Event<'static> {
        Event::ToolStarted {
            id: id.into(),
            name: "Bash".into(),
            summary: "/p/x make".into(),
            edit: None,
            subagent: false,
        }
    }

    fn tool_ended<'e>(id: &'e str, failed: bool, preview: &'e str) -> Event<'e> {
        Event::ToolEnded {
            id: id.into(),
            name: "Bash".into(),
            failed,
            denied: false,
            lines: 4,
            chars: 9,
            preview: preview.into(),
            subagent: false,
        }
    }

    fn agent_ended(class: Class, ended_by: Option<EndCause>) -> Event<'static> {
        Event::AgentEnded {
            purpose: Purpose::Work,
            exit: None,
            ended_by,
            class,
            failure: None,
            duration_ms: 1,
            usage: Usage::default(),
            tools: 0,
            tool_errors: 0,
            denied: 0,
            repeats_prompt: false,
            filter_errors: 0,
            complete: None,
            found: None,
            commit_message: None,
        }
    }

    #[test]
    fn joined_text_and_lines_of_output_stay_one_item() {
        let mut transcript = Transcript::default();
        assert_eq!(apply(&mut transcript, 1, text("I read", false)), [1000]);
        assert_eq!(apply(&mut transcript, 2, text(" the code.", true)), [1000]);
        assert_eq!(apply(&mut transcript, 3, text("Then I write.", false)), [3000]);
        let line = |text: &'static str| Event::Output {
            stream: Stream::Stdout,
            text: text.into(),
            joined: false,
        };
        apply(&mut transcript, 4, line("one"));
        apply(&mut transcript, 5, line("two"));
        let texts: Vec<&str> = transcript
            .items()
            .iter()
            .map(|item| match &item.kind {
                ItemKind::Text { text, .. } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["I read the code.", "Then I write.", "one\ntwo"]);
    }

    #[test]
    fn question_is_shown_once_and_without_tags() {
        let ask =
            || Event::QuestionAsked { id: "a1".into(), text: "301 or\n302?".into(), story: None };
        let mut transcript = Transcript::default();
        apply(&mut transcript, 1, text("Before.\n<question>301 or 302?</question>\nAfter.", false));
        assert_eq!(apply(&mut transcript, 2, ask()), [1000, 2000]);
        let [said, asked] = transcript.items() else { panic!("{transcript:?}") };
        assert!(matches!(&said.kind, ItemKind::Text { text, .. } if text == "Before.\nAfter."));
        assert!(matches!(&asked.kind, ItemKind::Question { text, .. } if text == "301 or"));

        let mut alone = Transcript::default();
        apply(&mut alone, 1, text("<QUESTION>301 or 302?</question>", false));
        assert_eq!(apply(&mut alone, 2, ask()), [1000]);
        assert!(matches!(alone.items(), [Item { kind: ItemKind::Question { .. }, .. }]));

        let mut other = Transcript::default();
        apply(&mut other, 1, text("<question>Else?</question> <question>never closed", false));
        assert_eq!(apply(&mut other, 2, ask()), [2000], "another question");
    }

    #[test]
    fn guidance_that_waits_at_the_end_of_a_run_was_missed() {
        let tell = |id| Event::GuidanceReceived { id, text: "use 301".into(), every: false };
        let mut journal = include_str!("testdata/run.jsonl").lines();
        let ended = journal.find(|line| line.contains("\"run_ended\"")).unwrap();
        let ended: Entry<'_> = serde_json::from_str(ended).unwrap();
        let mut transcript = Transcript::default();
        apply(&mut transcript, 1, tell(1));
        apply(&mut transcript, 2, Event::GuidanceCleared);
        apply(&mut transcript, 3, tell(2));
        let delivered = Event::GuidanceDelivered { guidance: vec![2], answers: vec![] };
        apply(&mut transcript, 4, delivered);
        apply(&mut transcript, 5, tell(3));
        assert_eq!(apply(&mut transcript, 6, ended.event), [5000, 6000]);
        let missed = |item: &&Item| matches!(item.kind, ItemKind::You { is_missed: true, .. });
        let missed: Vec<u64> = transcript.items().iter().filter(missed).map(|it| it.id).collect();
        assert_eq!(missed, [5000]);
    }

    #[test]
    fn text_of_a_commit_message_is_not_what_the_agent_says() {
        let mut transcript = Transcript::default();
        let started = |purpose| Event::AgentStarted { purpose, pid: 1, argv: Vec::new() };
        apply(&mut transcript, 1, started(Purpose::Work));
        apply(&mut transcript, 2, text("All done.", false));
        apply(&mut transcript, 3, started(Purpose::CommitMessage));
        apply(&mut transcript, 4, text("cart: Fix the total", false));
        apply(&mut transcript, 5, text(", again", true));
        apply(&mut transcript, 6, started(Purpose::Work));
        apply(&mut transcript, 7, text("Next.", false));
        let ids: Vec<u64> = transcript.items().iter().map(|item| item.id).collect();
        assert_eq!(ids, [2000, 7000]);
    }

    #[test]
    fn tool_call_changes_in_place_and_ends_with_its_agent() {
        let mut transcript = Transcript::new("/p");
        apply(&mut transcript, 1, tool("a"));
        apply(&mut transcript, 2, tool("b"));
        assert_eq!(
            apply(&mut transcript, 3, tool_ended("a", true, "Exit code 2\nno rule")),
            [1000]
        );
        assert_eq!(apply(&mut transcript, 4, tool_ended("unknown", false, "")), [0_u64; 0]);
        let tools = |transcript: &Transcript| -> Vec<(ToolStatus, String, String, u64)> {
            let items = transcript.items().iter();
            let tools = items.filter_map(|item| match &item.kind {
                ItemKind::Tool(tool) => {
                    Some((tool.status, tool.note.clone(), tool.preview.clone(), tool.lines))
                }
                _ => None,
            });
            tools.collect()
        };
        let failed = (ToolStatus::Failed, "exit code 2, 2m0s".to_owned(), "no rule".to_owned(), 3);
        let running = (ToolStatus::Running, String::new(), String::new(), 0);
        assert_eq!(tools(&transcript), [failed.clone(), running]);
        apply(&mut transcript, 5, agent_ended(Class::TimedOut, Some(EndCause::Inactivity)));
        let abandoned = (ToolStatus::Abandoned, "not finished".to_owned(), String::new(), 0);
        assert_eq!(tools(&transcript), [failed, abandoned]);
        assert!(!transcript.has_open_items());
        let last = transcript.items().last().unwrap();
        assert!(matches!(&last.kind, ItemKind::Notice { level: Level::Warning, .. }), "{last:?}");
    }

    #[test]
    fn closed_transcript_only_changes_what_it_has() {
        let mut transcript = Transcript::default();
        apply(&mut transcript, 1, tool("a"));
        transcript.close();
        assert_eq!(apply(&mut transcript, 2, text("later", false)), [0_u64; 0]);
        assert_eq!(apply(&mut transcript, 3, tool_ended("a", false, "")), [1000]);
        assert_eq!(transcript.items().len(), 1);
    }

    #[test]
    fn hostile_output_is_clean_and_bounded() {
        let mut transcript = Transcript::default();
        let long = "x".repeat(10 << 20);
        apply(&mut transcript, 1, text("\x1b[31mred\x1b[0m \u{202e}txt.exe\x07", false));
        apply(&mut transcript, 2, text(&long, false));
        for minute in 3..50 {
            apply(&mut transcript, minute, text(&long[..4_000], true));
        }
        apply(&mut transcript, 60, tool("a"));
        apply(&mut transcript, 61, tool_ended("a", false, &long));
        let shown = format!("{:?}", transcript.items());
        assert!(shown.len() < 4 * MAX_TEXT, "{}", shown.len());
        let ItemKind::Text { text, .. } = &transcript.items()[0].kind else { panic!("no text") };
        assert!(text.starts_with("red ") && text.ends_with("txt.exe"), "{text:?}");
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
        let ItemKind::Text { is_cut, .. } = &transcript.items()[1].kind else { panic!("no text") };
        assert!(is_cut);
    }

    #[test]
    fn wait_ends_with_the_next_agent() {
        let mut transcript = Transcript::default();
        let reason = WaitReason::RateLimit;
        apply(&mut transcript, 1, Event::Waiting { reason, until_ms: 999 });
        apply(&mut transcript, 2, text("still here", false));
        let agent = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
        assert_eq!(apply(&mut transcript, 3, agent), [1000]);
        let wait =
            ItemKind::Wait { reason: Wait::RateLimit, until_ms: 999, ended_ms: Some(180_000) };
        assert_eq!(transcript.items()[0].kind, wait);
    }
}
