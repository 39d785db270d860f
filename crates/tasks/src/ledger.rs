//! What a run remembers of its task list, so that the list can be judged by more than itself.
//!
//! An agent may split and reorder stories. What it may not do is get rid of one: a story that was
//! there at any time in the run may be gone only if another names it in `replaces`, and what it was to
//! be judged by goes on in those that stand for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::changes::{self, ListChanges};
use super::{InvalidTaskList, Story, TaskList, TaskProblem, first_problems, order, parse};

/// How many stories are named one by one.
const MAX_NAMED: usize = 10;

/// The memory of a run. It is kept where the agent cannot write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Those of the run's start, which are run whatever the list says since.
    verify_commands: Vec<String>,
    /// Those of the list when it was last read.
    #[serde(default)]
    last_commands: Vec<String>,
    /// The acceptance criteria that the stories of the run's start had then.
    #[serde(default)]
    criteria: BTreeMap<String, Vec<String>>,
    /// Every story there ever was, as it was last seen, by its id.
    stories: Map<String, Value>,
    /// The ids of those that were in the list when it was last read, in its order.
    last: Vec<String>,
    /// The stories that passed when all checks last did.
    verified: BTreeSet<String>,
    /// The stories that passed when an iteration last came to its end, or that the list's owner marked,
    /// and that have not been seen open since. A mark of any other is in doubt.
    #[serde(default)]
    settled: BTreeSet<String>,
    /// Stories that took the place of open ones, passed at once, and have not been seen open since.
    #[serde(default)]
    never_open: BTreeSet<String>,
    /// The run came to its end, and this is what the list was then: whatever is different later was
    /// not done by its agents.
    #[serde(default)]
    closed: bool,
    /// Counts what was changed here.
    #[serde(skip)]
    revision: u64,
}

/// Something about a list that the agent has to be told.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskFinding {
    /// The file is no task list any more; here are its stories as they were.
    InvalidList { problems: Vec<TaskProblem>, stories: Vec<Value> },
    /// A story is gone; here it is as it was.
    StoryRemoved { id: String, title: String, story: Value },
    /// A story took the place of open ones and passed at once.
    AddedAsPassing { id: String, replaced: Vec<String> },
    /// A story that passes without notes, or dependencies that make no sense.
    Problem(TaskProblem),
    /// A story has lost acceptance criteria that it had when the run began.
    CriteriaRemoved { id: String, lost: Vec<String> },
    /// A story was replaced, and these acceptance criteria of it are in none of the stories that stand for
    /// it.
    CriteriaLostInReplacement { id: String, title: String, by: Vec<String>, lost: Vec<String> },
    VerifyCommandsChanged {
        these_are_run: Vec<String>,
        /// Some of them are not in the list any more.
        lost: bool,
    },
}

impl TaskFinding {
    /// Whether the work cannot be complete because of this. Commands that were only added weaken
    /// nothing.
    pub fn vetoes(&self) -> bool {
        !matches!(self, TaskFinding::VerifyCommandsChanged { lost: false, .. })
    }
}

/// In one line, for people.
impl std::fmt::Display for TaskFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TaskFinding::InvalidList { problems, .. } => {
                f.write_str(&first_problems(problems).join("; "))
            }
            TaskFinding::StoryRemoved { id, title, .. } => {
                write!(f, "{id} ({title}) is gone, and no story replaces it")
            }
            TaskFinding::AddedAsPassing { id, replaced } => {
                let replaced = changes::first_few(replaced);
                write!(
                    f,
                    "{id} took the place of {replaced} and was never open, so that it does not count yet"
                )
            }
            TaskFinding::Problem(problem) => problem.fmt(f),
            TaskFinding::CriteriaRemoved { id, lost } => {
                let lost: Vec<String> = lost.iter().map(|it| format!("{it:?}")).collect();
                write!(f, "{id}: acceptanceCriteria: was changed; gone is {}", lost.join(", "))
            }
            TaskFinding::CriteriaLostInReplacement { id, title, by, lost } => {
                let lost: Vec<String> = lost.iter().map(|it| format!("{it:?}")).collect();
                let (by, lost) = (changes::first_few(by), lost.join(", "));
                write!(
                    f,
                    "{id} ({title}) was replaced by {by} without its acceptanceCriteria {lost}"
                )
            }
            TaskFinding::VerifyCommandsChanged { these_are_run, .. }
                if these_are_run.is_empty() =>
            {
                f.write_str("verifyCommands: was changed; this run goes on without any")
            }
            TaskFinding::VerifyCommandsChanged { these_are_run, .. } => {
                let run = changes::quote_commands(these_are_run);
                write!(f, "verifyCommands: was changed; this run goes on with {run}")
            }
        }
    }
}

/// A look at the list.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerReview {
    pub findings: Vec<TaskFinding>,
    /// `None` if it could not be read.
    pub progress: Option<TaskProgress>,
    /// Stories that have been marked as passing since all checks last passed.
    pub unverified: Vec<String>,
    /// Stories that have been marked as passing since an iteration last came to its end.
    pub doubtful: Vec<String>,
    /// The file in which the stories are that are too many to be told of.
    pub removed_stories_file: Option<String>,
}

/// How far the work is, by the list's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProgress {
    pub done: usize,
    pub total: usize,
    /// The story to work on, by id and title.
    pub next: Option<(String, String)>,
    /// Some of those that do not pass, by their ids, and how many more there are.
    pub open: Vec<String>,
    pub more_open: usize,
}

impl TaskProgress {
    pub fn of(list: &TaskList) -> TaskProgress {
        let open = || list.stories.iter().filter(|story| !story.passes);
        TaskProgress {
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
    /// The memory of a run that begins with this list, of which nothing else is known.
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
            revision: 0,
        };
        ledger.record(list);
        ledger.iteration_ended(list, true);
        ledger
    }

    /// The same of a list whose marks nobody can tell who made, so that all of them are in doubt.
    pub fn with_marks_in_doubt(list: &TaskList) -> (Ledger, ListChanges) {
        let ledger = Ledger { settled: BTreeSet::new(), ..Ledger::new(list) };
        let since = ListChanges {
            unverified: passing_ids(list).cloned().collect(),
            ..ListChanges::default()
        };
        (ledger, since)
    }

    /// Rebuilds the memory of a list from its earlier versions, the newest first, when no run has left one.
    /// Stories of any version are known, and the commands of the oldest one check the work. Marks and acceptance criteria
    /// are those of the list itself.
    pub fn from_versions(list: &TaskList, versions: &[TaskList]) -> Ledger {
        let mut ledger = Ledger::new(list);
        let stories = versions.iter().flat_map(|version| &version.stories);
        ledger.merge(stories.map(|story| (&story.id, &story.source)));
        if let Some(oldest) = versions.iter().rfind(|version| !version.stories.is_empty()) {
            let added = difference(&list.verify_commands, &oldest.verify_commands);
            ledger.verify_commands = oldest.verify_commands.iter().cloned().chain(added).collect();
        }
        ledger
    }

    /// Adds the stories of another ledger that this one does not know.
    #[must_use]
    pub fn merged_with(mut self, other: &Ledger) -> Ledger {
        self.merge(other.stories.iter());
        self
    }

    fn merge<'a>(&mut self, stories: impl Iterator<Item = (&'a String, &'a Value)>) {
        for (id, story) in stories {
            if !self.stories.contains_key(id) {
                self.stories.insert(id.clone(), story.clone());
            }
        }
    }

    /// The memory of a run that begins with this list, by what the run before remembered; and what was
    /// done to the list since. After a run that came to its end that was its owner's doing, and holds.
    /// After one that was cut off nobody can tell an agent's doing from anybody else's, so that nothing
    /// is forgiven. `has_checks`: there are commands that prove what the list says.
    pub fn after_previous_run(
        mut self,
        list: &TaskList,
        has_checks: bool,
    ) -> (Ledger, ListChanges) {
        let mut since = ListChanges { cut_off: !self.closed, ..ListChanges::default() };
        let lost_before: HashMap<String, Vec<String>> = self
            .lost_criteria(&self.list())
            .into_iter()
            .map(|story| (story.id, story.lost))
            .collect();
        let last = std::mem::take(&mut self.last);
        let gone: HashSet<String> = self
            .unaccounted_stories(last.iter().map(String::as_str))
            .map(|(id, _)| id.clone())
            .collect();
        let seen: HashMap<String, StoryRecord> =
            list.stories.iter().filter_map(|story| self.last_seen(&story.id)).collect();
        let commands = std::mem::take(&mut self.last_commands);
        let never_open = self.never_open.clone();
        self.record(list);
        if !since.cut_off {
            self.never_open.retain(|id| never_open.contains(id));
            for finding in self.removed_stories(list) {
                if let TaskFinding::StoryRemoved { id, title, .. } = finding
                    && !gone.contains(&id)
                {
                    since.dropped.push((id, title));
                }
            }
            let dropped: HashSet<&str> = since.dropped.iter().map(|(id, _)| id.as_str()).collect();
            self.stories.retain(|id, _| !dropped.contains(id.as_str()));
            for story in self.lost_criteria(list) {
                let before = lost_before.get(&story.id).map_or(&[][..], Vec::as_slice);
                if difference(&story.lost, before).is_empty() {
                    continue;
                }
                if let Some(criteria) = self.criteria.get_mut(&story.id) {
                    criteria.retain(|it| before.contains(it) || !story.lost.contains(it));
                }
                since.rewritten.push(story.id);
            }
            if list.verify_commands != commands {
                since.removed_commands = difference(&self.verify_commands, &list.verify_commands);
                since.added_commands = difference(&list.verify_commands, &self.verify_commands);
                self.verify_commands.clone_from(&list.verify_commands);
            }
        }
        for story in &list.stories {
            let seen = seen.get(&story.id);
            let now = &story.acceptance_criteria;
            let unchanged = seen.is_some_and(|seen| seen.criteria == *now);
            if !self.criteria.contains_key(&story.id) || !(since.cut_off || unchanged) {
                if seen.is_some_and(|seen| !difference(&seen.criteria, now).is_empty()) {
                    since.rewritten.push(story.id.clone());
                }
                self.criteria.insert(story.id.clone(), now.clone());
            }
            if story.passes && !self.verified.contains(&story.id) {
                let by_agent = since.cut_off || seen.is_some_and(|seen| seen.passes);
                if !by_agent {
                    self.verified.insert(story.id.clone());
                    self.settled.insert(story.id.clone());
                } else if since.cut_off || !has_checks || !self.settled.contains(&story.id) {
                    self.settled.remove(&story.id);
                    since.unverified.push(story.id.clone());
                }
            }
        }
        self.closed = false;
        self.revision += 1;
        (self, since)
    }

    /// The memory of a run that goes on. Whoever changed the list while it stood still, it is the same run:
    /// nothing is forgiven.
    pub fn reopened(mut self) -> Ledger {
        self.closed = false;
        self
    }

    /// The commands that check the work of this run.
    pub fn verify_commands(&self) -> &[String] {
        &self.verify_commands
    }

    /// The run has come to its end, and this is what the list is then.
    pub fn finish_run(&mut self, list: &Result<TaskList, InvalidTaskList>) {
        if let Ok(list) = list {
            self.record(list);
            self.closed = true;
            self.revision += 1;
        }
    }

    pub fn knows_story(&self, id: &str) -> bool {
        self.stories.contains_key(id)
    }

    /// What a story was when it was last seen.
    fn last_seen(&self, id: &str) -> Option<(String, StoryRecord)> {
        let story = self.stories.get(id)?;
        let criteria = story.get("acceptanceCriteria").and_then(Value::as_array);
        let criteria = criteria.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let passes = story.get("passes").and_then(Value::as_bool).unwrap_or(false);
        Some((id.to_owned(), StoryRecord { passes, criteria: criteria.collect() }))
    }

    /// The list as it was last seen, as far as a run has to know it.
    pub fn list(&self) -> TaskList {
        let stories = self.last.iter().filter_map(|id| self.stories.get(id)).cloned();
        let document = serde_json::json!({
            "project": "",
            "branchName": "",
            "description": "",
            "verifyCommands": self.verify_commands,
            "userStories": stories.collect::<Vec<Value>>(),
        });
        parse(document.to_string().as_bytes()).unwrap_or_else(|_| TaskList {
            project: String::new(),
            branch_name: String::new(),
            description: String::new(),
            verify_commands: self.verify_commands.clone(),
            stories: Vec::new(),
        })
    }

    /// Judges what the list is now by what it was, and remembers what is new in it.
    pub fn review(&mut self, list: &Result<TaskList, InvalidTaskList>) -> LedgerReview {
        let list = match list {
            Ok(list) => list,
            Err(broken) => {
                let stories = self.last.iter().filter_map(|id| self.stories.get(id)).cloned();
                let (problems, stories) = (broken.problems.clone(), stories.collect());
                let findings = vec![TaskFinding::InvalidList { problems, stories }];
                let (unverified, doubtful) = (Vec::new(), Vec::new());
                return LedgerReview {
                    findings,
                    progress: None,
                    unverified,
                    doubtful,
                    removed_stories_file: None,
                };
            }
        };
        self.record(list);
        let mut findings = self.removed_stories(list);
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
            let these_are_run = self.verify_commands.clone();
            findings.push(TaskFinding::VerifyCommandsChanged { these_are_run, lost });
        }
        let gone =
            findings.iter().filter(|it| matches!(it, TaskFinding::StoryRemoved { .. })).count();
        let mut progress = TaskProgress::of(list);
        // What is gone is still owed.
        progress.total += gone;
        let besides = |known: &BTreeSet<String>| {
            passing_ids(list).filter(|id| !known.contains(*id)).cloned().collect::<Vec<_>>()
        };
        LedgerReview {
            findings,
            progress: Some(progress),
            unverified: besides(&self.verified),
            doubtful: besides(&self.settled),
            removed_stories_file: None,
        }
    }

    /// An iteration came to its end with this list; all checks may have passed on the work that it tells
    /// of.
    pub fn iteration_ended(&mut self, list: &TaskList, checks_passed: bool) {
        let passing: BTreeSet<String> = passing_ids(list).cloned().collect();
        if checks_passed && self.verified != passing {
            self.verified.clone_from(&passing);
            self.revision += 1;
        }
        if self.settled != passing {
            self.settled = passing;
            self.revision += 1;
        }
    }

    /// Another number than before if there is anything that was not there before.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Which stories of the list stand for others that are gone from it, a line each.
    pub fn replacements(&self, list: &TaskList) -> Vec<String> {
        let there: HashSet<&str> = list.stories.iter().map(|story| story.id.as_str()).collect();
        let line = |story: &Story| {
            let gone = story.replaces.iter().filter(|id| !there.contains(id.as_str()));
            let gone: Vec<String> =
                gone.filter(|id| self.stories.contains_key(*id)).cloned().collect();
            (!gone.is_empty()).then(|| {
                format!("{} replaces {}", story.id, changes::first_few(&self.with_titles(&gone)))
            })
        };
        list.stories.iter().filter_map(line).collect()
    }

    /// Stories by id and title, as far as they are known.
    fn with_titles(&self, ids: &[String]) -> Vec<String> {
        let titled = |id: &String| {
            self.title(id).map_or_else(|| id.clone(), |title| format!("{id} ({title})"))
        };
        ids.iter().map(titled).collect()
    }

    fn title(&self, id: &str) -> Option<String> {
        self.stories.get(id)?.get("title")?.as_str().map(str::to_owned)
    }

    /// The stories that were replaced, with those acceptance criteria that are in none of the stories of
    /// the list that stand for them, word for word. Of a story that nobody stands for, all of it is
    /// missed, and not told here.
    fn lost_criteria(&self, list: &TaskList) -> Vec<LostCriteria> {
        let there: HashSet<&str> = list.stories.iter().map(|story| story.id.as_str()).collect();
        let gone = |id: &&str| !there.contains(id);
        if !self.criteria.keys().any(|id| gone(&id.as_str())) {
            return Vec::new();
        }
        let mut heirs: BTreeMap<&str, Vec<&Story>> = BTreeMap::new();
        for story in list.stories.iter().filter(|story| !story.replaces.is_empty()) {
            for id in self.replacement_chain(story.replaces.iter().map(String::as_str), gone) {
                heirs.entry(id).or_default().push(story);
            }
        }
        let lost = |(id, heirs): (&str, Vec<&Story>)| {
            let carried: HashSet<&String> =
                heirs.iter().flat_map(|story| &story.acceptance_criteria).collect();
            let criteria = self.criteria.get(id)?.iter();
            let lost: Vec<String> = criteria.filter(|it| !carried.contains(it)).cloned().collect();
            let by = heirs.iter().map(|story| story.id.clone()).collect();
            (!lost.is_empty()).then(|| LostCriteria { id: id.to_owned(), by, lost })
        };
        heirs.into_iter().filter_map(lost).collect()
    }

    /// These stories and all that they stand for, one after the other, as far as they are `asked` for.
    fn replacement_chain<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a str>,
        asked: impl Fn(&&'a str) -> bool,
    ) -> HashSet<&'a str> {
        let mut all: HashSet<&str> = HashSet::new();
        let mut ask: Vec<&str> = ids.filter(|id| asked(id)).collect();
        while let Some(id) = ask.pop() {
            if !all.insert(id) {
                continue;
            }
            let replaces = self.stories.get(id).and_then(|story| story.get("replaces"));
            let replaces = replaces.and_then(Value::as_array).into_iter().flatten();
            ask.extend(replaces.filter_map(Value::as_str).filter(|id| asked(id)));
        }
        all
    }

    /// Notes who takes the place of open stories without ever having been open.
    fn remember_replacements(&mut self, list: &TaskList) {
        for story in &list.stories {
            let changed = if story.passes {
                self.replaces_open_story(story) && self.never_open.insert(story.id.clone())
            } else {
                self.never_open.remove(&story.id)
            };
            self.revision += u64::from(changed);
        }
    }

    /// Whether a story names one that is open, by what was last seen, and did not before.
    fn replaces_open_story(&self, story: &Story) -> bool {
        let before = self.stories.get(&story.id).and_then(|it| it.get("replaces")?.as_array());
        let is_news = |id: &str| !before.is_some_and(|ids| ids.iter().any(|it| it == id));
        let is_open = |id: &str| {
            let passes = |story: &Value| story.get("passes").and_then(Value::as_bool);
            let story = self.stories.get(id);
            story.is_some_and(|it| passes(it) != Some(true)) || self.never_open.contains(id)
        };
        story.replaces.iter().any(|id| *id != story.id && is_news(id) && is_open(id))
    }

    fn record(&mut self, list: &TaskList) {
        self.remember_replacements(list);
        for story in &list.stories {
            if self.stories.get(&story.id) != Some(&story.source) {
                self.stories.insert(story.id.clone(), story.source.clone());
                self.revision += 1;
            }
        }
        // What was open in between has to be found out again.
        let passing: HashSet<&String> = passing_ids(list).collect();
        for known in [&mut self.settled, &mut self.verified] {
            let before = known.len();
            known.retain(|id| passing.contains(id));
            self.revision += u64::from(known.len() != before);
        }
        let ids = || list.stories.iter().map(|story| &story.id);
        if !self.last.iter().eq(ids()) {
            self.last = ids().cloned().collect();
            self.revision += 1;
        }
        if self.last_commands != list.verify_commands {
            self.last_commands.clone_from(&list.verify_commands);
            self.revision += 1;
        }
    }

    fn removed_stories(&self, list: &TaskList) -> Vec<TaskFinding> {
        let finding = |(id, story): (&String, &Value)| TaskFinding::StoryRemoved {
            id: id.clone(),
            title: story.get("title").and_then(Value::as_str).unwrap_or_default().to_owned(),
            story: story.clone(),
        };
        self.unaccounted_stories(list.stories.iter().map(|story| story.id.as_str()))
            .map(finding)
            .collect()
    }

    /// The stories that a list with these ids has not and that nobody stands in for: neither a story of
    /// the list nor one that has itself been replaced since.
    fn unaccounted_stories<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let accounted = self.replacement_chain(ids, |_| true);
        self.stories.iter().filter(move |(id, _)| !accounted.contains(id.as_str()))
    }
}

/// What a story was.
struct StoryRecord {
    passes: bool,
    criteria: Vec<String>,
}

/// A story that was replaced, by which, and what of it is lost.
struct LostCriteria {
    id: String,
    by: Vec<String>,
    lost: Vec<String>,
}

/// The stories that pass, by their ids.
fn passing_ids(list: &TaskList) -> impl Iterator<Item = &String> {
    list.stories.iter().filter(|story| story.passes).map(|story| &story.id)
}

/// Those of `old` that `new` has not.
fn difference(old: &[String], new: &[String]) -> Vec<String> {
    old.iter().filter(|it| !new.contains(it)).cloned().collect()
}
