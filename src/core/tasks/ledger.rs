//! What a run remembers of its task list, so that the list can be judged by more than itself.
//!
//! An agent may split and reorder stories. What it may not do is get rid of one: a story that was
//! there at any time in the run may be gone only if another names it in `replaces`.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Broken, Problem, TaskList, few, order, parse};

/// How many stories are named one by one.
const MAX_NAMED: usize = 10;

/// The memory of a run. It is kept where the agent cannot write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Those of the run's start, which are run whatever the list says since.
    verify_commands: Vec<String>,
    /// Every story there ever was, as it was last seen, by its id.
    stories: Map<String, Value>,
    /// The ids of those that were in the list when it was last read, in its order.
    last: Vec<String>,
    /// The stories that passed when all checks last did.
    verified: BTreeSet<String>,
    /// Counts what was changed here.
    #[serde(skip)]
    revision: u64,
}

/// Something about a list that the agent has to be told.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// The file is no task list any more; here are its stories as they were.
    Broken {
        problems: Vec<Problem>,
        stories: Vec<Value>,
    },
    /// A story is gone; here it is as it was.
    Vanished {
        id: String,
        title: String,
        story: Value,
    },
    /// A story that passes without notes, or dependencies that make no sense.
    Problem(Problem),
    VerifyCommandsChanged {
        these_are_run: Vec<String>,
    },
}

impl Finding {
    /// Whether the work can be complete in spite of this.
    pub fn vetoes(&self) -> bool {
        !matches!(self, Finding::VerifyCommandsChanged { .. })
    }
}

/// In one line, for people.
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finding::Broken { problems, .. } => f.write_str(&few(problems).join("; ")),
            Finding::Vanished { id, title, .. } => {
                write!(f, "{id} ({title}) is gone, and no story replaces it")
            }
            Finding::Problem(problem) => problem.fmt(f),
            Finding::VerifyCommandsChanged { .. } => {
                f.write_str("verifyCommands: was changed; this run goes on with those of its start")
            }
        }
    }
}

/// A look at the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    pub findings: Vec<Finding>,
    /// `None` if it could not be read.
    pub progress: Option<Progress>,
    /// Stories that have been marked as passing since all checks last passed.
    pub unverified: Vec<String>,
}

/// How far the work is, by the list's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    /// The story to work on, by id and title.
    pub next: Option<(String, String)>,
    /// Some of those that do not pass, by their ids, and how many more there are.
    pub open: Vec<String>,
    pub more_open: usize,
}

impl Progress {
    pub fn of(list: &TaskList) -> Progress {
        let open = || list.stories.iter().filter(|story| !story.passes);
        Progress {
            done: list.done(),
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
    /// The memory of a run that begins with this list.
    pub fn new(list: &TaskList) -> Ledger {
        let mut ledger = Ledger {
            verify_commands: list.verify_commands.clone(),
            stories: Map::new(),
            last: Vec::new(),
            verified: BTreeSet::new(),
            revision: 0,
        };
        ledger.remember(list);
        ledger.checks_passed(list);
        ledger
    }

    /// Those of the run's start.
    pub fn verify_commands(&self) -> &[String] {
        &self.verify_commands
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
    pub fn review(&mut self, list: &Result<TaskList, Broken>) -> Review {
        let list = match list {
            Ok(list) => list,
            Err(broken) => {
                let stories = self.last.iter().filter_map(|id| self.stories.get(id)).cloned();
                let (problems, stories) = (broken.problems.clone(), stories.collect());
                let findings = vec![Finding::Broken { problems, stories }];
                return Review { findings, progress: None, unverified: Vec::new() };
            }
        };
        self.remember(list);
        let mut findings = self.vanished(list);
        findings.extend(list.problems().into_iter().map(Finding::Problem));
        if list.verify_commands != self.verify_commands {
            let these_are_run = self.verify_commands.clone();
            findings.push(Finding::VerifyCommandsChanged { these_are_run });
        }
        let unverified = list.stories.iter().filter(|story| story.passes);
        let unverified = unverified.filter(|story| !self.verified.contains(&story.id));
        Review {
            findings,
            progress: Some(Progress::of(list)),
            unverified: unverified.map(|story| story.id.clone()).collect(),
        }
    }

    /// All checks passed on the work that this list tells of.
    pub fn checks_passed(&mut self, list: &TaskList) {
        let passing = list.stories.iter().filter(|story| story.passes);
        let verified = passing.map(|story| story.id.clone()).collect();
        if self.verified != verified {
            self.verified = verified;
            self.revision += 1;
        }
    }

    /// Another number than before if there is anything that was not there before.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn remember(&mut self, list: &TaskList) {
        for story in &list.stories {
            if self.stories.get(&story.id) != Some(&story.source) {
                self.stories.insert(story.id.clone(), story.source.clone());
                self.revision += 1;
            }
        }
        let ids = || list.stories.iter().map(|story| &story.id);
        if !self.last.iter().eq(ids()) {
            self.last = ids().cloned().collect();
            self.revision += 1;
        }
    }

    /// The stories that are gone and that nobody stands in for: neither a story of the list nor one
    /// that has itself been replaced since.
    fn vanished(&self, list: &TaskList) -> Vec<Finding> {
        let mut accounted: HashSet<&str> = HashSet::with_capacity(self.stories.len());
        let mut ask: Vec<&str> = list.stories.iter().map(|story| story.id.as_str()).collect();
        while let Some(id) = ask.pop() {
            if !accounted.insert(id) {
                continue;
            }
            let replaces = self.stories.get(id).and_then(|story| story.get("replaces"));
            let replaces = replaces.and_then(Value::as_array).into_iter().flatten();
            ask.extend(replaces.filter_map(Value::as_str));
        }
        let gone = self.stories.iter().filter(|(id, _)| !accounted.contains(id.as_str()));
        let finding = |(id, story): (&String, &Value)| Finding::Vanished {
            id: id.clone(),
            title: story.get("title").and_then(Value::as_str).unwrap_or_default().to_owned(),
            story: story.clone(),
        };
        gone.map(finding).collect()
    }
}
