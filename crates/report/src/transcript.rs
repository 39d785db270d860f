//! A run as a conversation: text, tool calls, checks, commits, questions and your messages.
//!
//! [`Transcript::apply`] takes the entries of a journal one by one. An item changes in place: a tool call that ends
//! is the same item as when it started. Everything an agent printed is cleaned and bounded here.

mod check;
mod clean_text;
mod item;
mod notice;
mod steering;
mod tool_call;

use clean_text::clean;
pub use item::{CheckItem, Item, ItemKind, Level, ToolItem, ToolStatus, Voice, Wait};

use crate::status_line::one_line;
use crate::story_view::short_id;
use crate::terminal::{describe_cause, describe_class};
use ralph_events::event::{Entry, Event, Purpose, Stamp, Stream, TodoItem, TodoStatus, WaitReason};

/// Characters of one text.
const MAX_TEXT: usize = 16 * 1024;
/// Characters of a tool's output. Agents' adapters keep less.
const MAX_PREVIEW: usize = 8 * 1024;
/// Commits of one report.
const MAX_COMMITS: usize = 50;
const MAX_TODOS: usize = 50;
/// Tool calls that may be open at once.
const MAX_OPEN: usize = 64;

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

#[cfg(test)]
mod tests;
