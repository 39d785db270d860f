//! What a run remembers of its task list, to detect removed stories and weakened criteria.
//!
//! An agent may split and reorder stories, but not drop one. A story may disappear only if another
//! names it in `replaces` and takes over its acceptance criteria.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::changes::{self, ListChanges};
use super::{InvalidTaskList, Story, TaskList, TaskProblem, first_problems, order, parse};

const MAX_NAMED: usize = 10;

/// Stored where the agent cannot write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Commands at the start of the run, which are run whatever the list says later.
    verify_commands: Vec<String>,
    /// Commands of the list when last read.
    #[serde(default)]
    last_commands: Vec<String>,
    /// Acceptance criteria at the start of the run, by story.
    #[serde(default)]
    criteria: BTreeMap<String, Vec<String>>,
    /// Every story ever seen, in its last version, by id.
    stories: Map<String, Value>,
    /// Ids in the list when last read, in order.
    last: Vec<String>,
    /// Stories that passed when all checks last passed.
    verified: BTreeSet<String>,
    /// Stories that passed when an iteration last finished, or that the user marked, and that were
    /// not open since. Other marks are doubtful.
    #[serde(default)]
    settled: BTreeSet<String>,
    /// Stories that replaced open ones, passed at once, and were never open.
    #[serde(default)]
    never_open: BTreeSet<String>,
    /// The run ended with this state, so later changes are not its agents'.
    #[serde(default)]
    closed: bool,
}

/// A problem of the list; it goes into the prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskFinding {
    InvalidList {
        problems: Vec<TaskProblem>,
        stories: Vec<Value>,
    },
    StoryRemoved {
        id: String,
        title: String,
        story: Value,
    },
    AddedAsPassing {
        id: String,
        replaced: Vec<String>,
    },
    /// A passing story without notes, or a bad dependency.
    Problem(TaskProblem),
    /// Criteria of the run's start are missing.
    CriteriaRemoved {
        id: String,
        lost: Vec<String>,
    },
    /// No replacement has these criteria.
    CriteriaLostInReplacement {
        id: String,
        title: String,
        by: Vec<String>,
        lost: Vec<String>,
    },
    VerifyCommandsChanged {
        commands_run: Vec<String>,
        /// Whether commands were removed, not only added.
        lost: bool,
    },
}

impl TaskFinding {
    /// Whether this prevents completion. Added commands do not.
    pub fn vetoes(&self) -> bool {
        !matches!(self, TaskFinding::VerifyCommandsChanged { lost: false, .. })
    }
}

impl std::fmt::Display for TaskFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TaskFinding::InvalidList { problems, .. } => {
                f.write_str(&first_problems(problems).join("; "))
            }
            TaskFinding::StoryRemoved { id, title, .. } => {
                write!(f, "{id} ({title}) was removed, and no story replaces it")
            }
            TaskFinding::AddedAsPassing { id, replaced } => {
                let replaced = changes::first_few(replaced);
                write!(
                    f,
                    "{id} replaces {replaced} but was added as passing, so it does not count yet"
                )
            }
            TaskFinding::Problem(problem) => problem.fmt(f),
            TaskFinding::CriteriaRemoved { id, lost } => {
                let lost = changes::quote_criteria(lost);
                write!(f, "{id}: acceptanceCriteria: removed {lost}")
            }
            TaskFinding::CriteriaLostInReplacement { id, title, by, lost } => {
                let (by, lost) = (changes::first_few(by), changes::quote_criteria(lost));
                write!(
                    f,
                    "{id} ({title}) was replaced by {by} without its acceptanceCriteria {lost}"
                )
            }
            TaskFinding::VerifyCommandsChanged { commands_run, .. } if commands_run.is_empty() => {
                f.write_str("verifyCommands: changed; this run still uses none")
            }
            TaskFinding::VerifyCommandsChanged { commands_run, .. } => {
                let run = changes::quote_commands(commands_run);
                write!(f, "verifyCommands: changed; this run still uses {run}")
            }
        }
    }
}

/// The result of comparing the list with the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedgerReview {
    pub findings: Vec<TaskFinding>,
    /// `None` if the list is invalid.
    pub progress: Option<ListProgress>,
    /// Marked since all checks last passed.
    pub unverified: Vec<String>,
    /// Marked since an iteration last finished.
    pub doubtful: Vec<String>,
    /// Removed stories that are too many for the prompt.
    pub removed_stories_file: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListProgress {
    pub done: usize,
    pub total: usize,
    /// Id and title.
    pub next: Option<(String, String)>,
    /// Ids of some stories that do not pass; `more_open` counts the rest.
    pub open: Vec<String>,
    pub more_open: usize,
}

impl ListProgress {
    pub fn of(list: &TaskList) -> ListProgress {
        let open = || list.stories.iter().filter(|story| !story.passes);
        ListProgress {
            done: list.passing_count(),
            total: list.stories.len(),
            next: order::next(list).map(|story| (story.id.clone(), story.title.clone())),
            open: open().take(MAX_NAMED).map(|story| story.id.clone()).collect(),
            more_open: open().skip(MAX_NAMED).count(),
        }
    }

    pub fn is_complete(&self) -> bool {
        self.total > 0 && self.done == self.total
    }
}

impl Ledger {
    pub fn new(list: &TaskList) -> Ledger {
        let criteria = |story: &Story| (story.id.clone(), story.acceptance_criteria.clone());
        let mut ledger = Ledger {
            verify_commands: list.verify_commands.clone(),
            last_commands: Vec::new(),
            criteria: list.stories.iter().map(criteria).collect(),
            stories: Map::new(),
            last: Vec::new(),
            verified: BTreeSet::new(),
            settled: BTreeSet::new(),
            never_open: BTreeSet::new(),
            closed: false,
        };
        ledger.record(list);
        ledger.iteration_ended(list, true);
        ledger
    }

    /// A ledger for a list whose marks have unknown authors: all are doubtful.
    pub fn with_marks_in_doubt(list: &TaskList) -> (Ledger, ListChanges) {
        let ledger = Ledger { settled: BTreeSet::new(), ..Ledger::new(list) };
        let changes = ListChanges {
            unverified: passing_ids(list).cloned().collect(),
            ..ListChanges::default()
        };
        (ledger, changes)
    }

    /// Rebuilds a ledger from earlier versions of the list, newest first: stories of all versions,
    /// commands of the oldest, marks and criteria of the list itself.
    pub fn from_versions(list: &TaskList, versions: &[TaskList]) -> Ledger {
        let mut ledger = Ledger::new(list);
        for story in versions.iter().flat_map(|version| &version.stories) {
            ledger.stories.entry(story.id.as_str()).or_insert_with(|| story.source.clone());
        }
        if let Some(oldest) = versions.iter().rfind(|version| !version.stories.is_empty()) {
            let added = difference(&list.verify_commands, &oldest.verify_commands);
            ledger.verify_commands = oldest.verify_commands.iter().cloned().chain(added).collect();
        }
        ledger
    }

    /// The ledger for the next run, and the changes since the previous one. After a run that ended,
    /// changes are the user's and stand. After a killed run, they may be an agent's. `has_checks`:
    /// there are commands that prove what the list says.
    pub fn after_previous_run(
        mut self,
        list: &TaskList,
        has_checks: bool,
    ) -> (Ledger, ListChanges) {
        let mut changes = ListChanges { cut_off: !self.closed, ..ListChanges::default() };
        let lost_before: HashMap<String, Vec<String>> = self
            .lost_criteria(&self.list())
            .into_iter()
            .map(|story| (story.id, story.lost))
            .collect();
        let last = std::mem::take(&mut self.last);
        let missing: HashSet<String> = self
            .unaccounted_stories(last.iter().map(String::as_str))
            .map(|(id, _)| id.clone())
            .collect();
        let seen = self.stories.clone();
        let commands = std::mem::take(&mut self.last_commands);
        let never_open = self.never_open.clone();
        self.record(list);
        if !changes.cut_off {
            self.never_open.retain(|id| never_open.contains(id));
            for finding in self.removed_stories(list) {
                if let TaskFinding::StoryRemoved { id, title, .. } = finding
                    && !missing.contains(&id)
                {
                    changes.dropped.push((id, title));
                }
            }
            let dropped: HashSet<&str> =
                changes.dropped.iter().map(|(id, _)| id.as_str()).collect();
            self.stories.retain(|id, _| !dropped.contains(id.as_str()));
            for story in self.lost_criteria(list) {
                let before = lost_before.get(&story.id).map_or(&[][..], Vec::as_slice);
                if difference(&story.lost, before).is_empty() {
                    continue;
                }
                if let Some(criteria) = self.criteria.get_mut(&story.id) {
                    criteria.retain(|criterion| {
                        before.contains(criterion) || !story.lost.contains(criterion)
                    });
                }
                changes.rewritten.push(story.id);
            }
            if list.verify_commands != commands {
                changes.removed_commands = difference(&self.verify_commands, &list.verify_commands);
                changes.added_commands = difference(&list.verify_commands, &self.verify_commands);
                self.verify_commands.clone_from(&list.verify_commands);
            }
        }
        for story in &list.stories {
            let seen = seen.get(&story.id);
            let seen_criteria = seen.map(recorded_criteria).unwrap_or_default();
            let now = &story.acceptance_criteria;
            let unchanged = seen.is_some() && seen_criteria == *now;
            if !self.criteria.contains_key(&story.id) || !(changes.cut_off || unchanged) {
                if !difference(&seen_criteria, now).is_empty() {
                    changes.rewritten.push(story.id.clone());
                }
                self.criteria.insert(story.id.clone(), now.clone());
            }
            if story.passes && !self.verified.contains(&story.id) {
                let by_agent = changes.cut_off || seen.is_some_and(|seen| seen["passes"] == true);
                if !by_agent {
                    self.verified.insert(story.id.clone());
                    self.settled.insert(story.id.clone());
                } else if changes.cut_off || !has_checks || !self.settled.contains(&story.id) {
                    self.settled.remove(&story.id);
                    changes.unverified.push(story.id.clone());
                }
            }
        }
        self.closed = false;
        (self, changes)
    }

    /// Changes since the run stopped count as its own.
    pub fn reopened(mut self) -> Ledger {
        self.closed = false;
        self
    }

    pub fn verify_commands(&self) -> &[String] {
        &self.verify_commands
    }

    pub fn finish_run(&mut self, list: &Result<TaskList, InvalidTaskList>) {
        if let Ok(list) = list {
            self.record(list);
            self.closed = true;
        }
    }

    pub fn knows_story(&self, id: &str) -> bool {
        self.stories.contains_key(id)
    }

    /// The list when last read.
    pub fn list(&self) -> TaskList {
        let document = serde_json::json!({
            "project": "",
            "branchName": "",
            "description": "",
            "verifyCommands": self.verify_commands,
            "userStories": self.last_stories(),
        });
        parse(document.to_string().as_bytes()).unwrap_or_else(|_| TaskList {
            verify_commands: self.verify_commands.clone(),
            ..TaskList::default()
        })
    }

    fn last_stories(&self) -> Vec<Value> {
        self.last.iter().filter_map(|id| self.stories.get(id)).cloned().collect()
    }

    /// Compares the list with the ledger, then records it.
    pub fn review(&mut self, list: &Result<TaskList, InvalidTaskList>) -> LedgerReview {
        let list = match list {
            Ok(list) => list,
            Err(broken) => {
                let (problems, stories) = (broken.problems.clone(), self.last_stories());
                return LedgerReview {
                    findings: vec![TaskFinding::InvalidList { problems, stories }],
                    ..LedgerReview::default()
                };
            }
        };
        self.record(list);
        let mut findings = self.removed_stories(list);
        let removed_count = findings.len();
        let never_open = |story: &&Story| story.passes && self.never_open.contains(&story.id);
        findings.extend(list.stories.iter().filter(never_open).map(|story| {
            TaskFinding::AddedAsPassing {
                id: story.id.clone(),
                replaced: self.with_titles(&story.replaces),
            }
        }));
        findings.extend(list.problems().into_iter().map(TaskFinding::Problem));
        findings.extend(list.stories.iter().filter_map(|story| {
            let lost = difference(self.criteria.get(&story.id)?, &story.acceptance_criteria);
            (!lost.is_empty()).then(|| TaskFinding::CriteriaRemoved { id: story.id.clone(), lost })
        }));
        findings.extend(self.lost_criteria(list).into_iter().map(|story| {
            let LostCriteria { id, by, lost } = story;
            let title = self.title(&id).unwrap_or_default();
            TaskFinding::CriteriaLostInReplacement { id, title, by, lost }
        }));
        if list.verify_commands != self.verify_commands {
            let lost = !difference(&self.verify_commands, &list.verify_commands).is_empty();
            let commands_run = self.verify_commands.clone();
            findings.push(TaskFinding::VerifyCommandsChanged { commands_run, lost });
        }
        let mut progress = ListProgress::of(list);
        // Removed stories still count as work.
        progress.total += removed_count;
        let passing_except = |known: &BTreeSet<String>| {
            passing_ids(list).filter(|id| !known.contains(*id)).cloned().collect::<Vec<_>>()
        };
        LedgerReview {
            findings,
            progress: Some(progress),
            unverified: passing_except(&self.verified),
            doubtful: passing_except(&self.settled),
            removed_stories_file: None,
        }
    }

    pub fn iteration_ended(&mut self, list: &TaskList, checks_passed: bool) {
        self.settled = passing_ids(list).cloned().collect();
        if checks_passed {
            self.verified.clone_from(&self.settled);
        }
    }

    pub fn replacements(&self, list: &TaskList) -> Vec<String> {
        let present: HashSet<&str> = list.stories.iter().map(|story| story.id.as_str()).collect();
        let line = |story: &Story| {
            let replaced = story.replaces.iter().filter(|id| !present.contains(id.as_str()));
            let replaced: Vec<String> =
                replaced.filter(|id| self.stories.contains_key(*id)).cloned().collect();
            (!replaced.is_empty()).then(|| {
                format!(
                    "{} replaces {}",
                    story.id,
                    changes::first_few(&self.with_titles(&replaced))
                )
            })
        };
        list.stories.iter().filter_map(line).collect()
    }

    fn with_titles(&self, ids: &[String]) -> Vec<String> {
        let titled = |id: &String| {
            self.title(id).map_or_else(|| id.clone(), |title| format!("{id} ({title})"))
        };
        ids.iter().map(titled).collect()
    }

    fn title(&self, id: &str) -> Option<String> {
        self.stories.get(id)?.get("title")?.as_str().map(str::to_owned)
    }

    /// Replaced stories with criteria that no replacement has, word for word. Stories without a
    /// replacement count as removed instead.
    fn lost_criteria(&self, list: &TaskList) -> Vec<LostCriteria> {
        let present: HashSet<&str> = list.stories.iter().map(|story| story.id.as_str()).collect();
        let is_gone = |id: &&str| !present.contains(id);
        if !self.criteria.keys().any(|id| is_gone(&id.as_str())) {
            return Vec::new();
        }
        let mut replacements: BTreeMap<&str, Vec<&Story>> = BTreeMap::new();
        for story in list.stories.iter().filter(|story| !story.replaces.is_empty()) {
            for id in self.replacement_chain(story.replaces.iter().map(String::as_str), is_gone) {
                replacements.entry(id).or_default().push(story);
            }
        }
        let lost = |(id, replacements): (&str, Vec<&Story>)| {
            let kept: HashSet<&String> =
                replacements.iter().flat_map(|story| &story.acceptance_criteria).collect();
            let criteria = self.criteria.get(id)?.iter();
            let lost: Vec<String> =
                criteria.filter(|criterion| !kept.contains(criterion)).cloned().collect();
            let by = replacements.iter().map(|story| story.id.clone()).collect();
            (!lost.is_empty()).then(|| LostCriteria { id: id.to_owned(), by, lost })
        };
        replacements.into_iter().filter_map(lost).collect()
    }

    /// These stories and all that they replace, transitively.
    fn replacement_chain<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a str>,
        include: impl Fn(&&'a str) -> bool,
    ) -> HashSet<&'a str> {
        let mut chain: HashSet<&str> = HashSet::new();
        let mut queue: Vec<&str> = ids.filter(|id| include(id)).collect();
        while let Some(id) = queue.pop() {
            if chain.insert(id)
                && let Some(replaces) =
                    self.stories.get(id).and_then(|it| it["replaces"].as_array())
            {
                queue.extend(replaces.iter().filter_map(Value::as_str).filter(|id| include(id)));
            }
        }
        chain
    }

    fn remember_replacements(&mut self, list: &TaskList) {
        for story in &list.stories {
            if !story.passes {
                self.never_open.remove(&story.id);
            } else if self.replaces_open_story(story) {
                self.never_open.insert(story.id.clone());
            }
        }
    }

    /// Whether a story newly names an open one in `replaces`.
    fn replaces_open_story(&self, story: &Story) -> bool {
        let previous = self.stories.get(&story.id).and_then(|it| it["replaces"].as_array());
        let is_new = |id: &str| !previous.is_some_and(|ids| ids.iter().any(|it| it == id));
        let is_open = |id: &str| {
            self.stories.get(id).is_some_and(|it| it["passes"] != true)
                || self.never_open.contains(id)
        };
        story.replaces.iter().any(|id| *id != story.id && is_new(id) && is_open(id))
    }

    fn record(&mut self, list: &TaskList) {
        self.remember_replacements(list);
        for story in &list.stories {
            self.stories.insert(story.id.clone(), story.source.clone());
        }
        // A story that was open in between must be verified again.
        let passing: HashSet<&String> = passing_ids(list).collect();
        self.settled.retain(|id| passing.contains(id));
        self.verified.retain(|id| passing.contains(id));
        self.last = list.stories.iter().map(|story| story.id.clone()).collect();
        self.last_commands.clone_from(&list.verify_commands);
    }

    fn removed_stories(&self, list: &TaskList) -> Vec<TaskFinding> {
        self.unaccounted_stories(list.stories.iter().map(|story| story.id.as_str()))
            .map(|(id, story)| TaskFinding::StoryRemoved {
                id: id.clone(),
                title: story["title"].as_str().unwrap_or_default().to_owned(),
                story: story.clone(),
            })
            .collect()
    }

    /// Stories that are neither in a list with these ids nor replaced by one of them.
    fn unaccounted_stories<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let accounted = self.replacement_chain(ids, |_| true);
        self.stories.iter().filter(move |(id, _)| !accounted.contains(id.as_str()))
    }
}

struct LostCriteria {
    id: String,
    by: Vec<String>,
    lost: Vec<String>,
}

fn recorded_criteria(story: &Value) -> Vec<String> {
    let criteria = story["acceptanceCriteria"].as_array().into_iter().flatten();
    criteria.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn passing_ids(list: &TaskList) -> impl Iterator<Item = &String> {
    list.stories.iter().filter(|story| story.passes).map(|story| &story.id)
}

/// Items of `old` that are not in `new`.
fn difference(old: &[String], new: &[String]) -> Vec<String> {
    old.iter().filter(|item| !new.contains(item)).cloned().collect()
}
