//! Decides which stories can be worked on, and in which order.

use std::collections::{HashMap, HashSet};

use super::{Story, TaskList, TaskProblem};

/// Where there is one cycle, there may be thousands.
const MAX_CYCLES: usize = 10;
const MAX_SHOWN: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoryStatus<'a> {
    Passes,
    /// The ready story with the smallest priority; the first of equals.
    Next,
    Ready,
    /// By stories that must pass first, named by id.
    Blocked(Vec<&'a str>),
}

pub fn story_statuses(list: &TaskList) -> Vec<StoryStatus<'_>> {
    let graph = DependencyGraph::of(list);
    let status = |(index, story): (usize, &Story)| {
        if story.passes {
            return StoryStatus::Passes;
        }
        let others = graph.edges[index].iter().map(|other| &list.stories[*other]);
        let open = others.filter(|other| !other.passes).map(|other| other.id.as_str());
        let blockers: Vec<&str> = open.collect();
        if blockers.is_empty() { StoryStatus::Ready } else { StoryStatus::Blocked(blockers) }
    };
    let mut statuses: Vec<_> = list.stories.iter().enumerate().map(status).collect();
    let ready = (0..statuses.len()).filter(|index| statuses[*index] == StoryStatus::Ready);
    let priority = |index: &usize| list.stories[*index].priority;
    if let Some(next) = ready.min_by(|a, b| priority(a).total_cmp(&priority(b))) {
        statuses[next] = StoryStatus::Next;
    }
    statuses
}

pub fn next(list: &TaskList) -> Option<&Story> {
    let is_next = |status: &StoryStatus<'_>| *status == StoryStatus::Next;
    Some(&list.stories[story_statuses(list).iter().position(is_next)?])
}

/// The next story that waits for no answer to a question.
pub fn next_except<'l>(list: &'l TaskList, parked: &[&str]) -> Option<&'l Story> {
    let statuses = story_statuses(list);
    let can_start =
        |status: &StoryStatus<'_>| matches!(status, StoryStatus::Next | StoryStatus::Ready);
    let ready = list.stories.iter().zip(&statuses).filter(|(_, status)| can_start(status));
    let free = ready.map(|(story, _)| story).filter(|story| !parked.contains(&story.id.as_str()));
    free.min_by(|a, b| a.priority.total_cmp(&b.priority))
}

pub fn dependency_problems(list: &TaskList) -> Vec<TaskProblem> {
    let graph = DependencyGraph::of(list);
    let mut problems = graph.dangling.clone();
    for cycle in graph.cycles() {
        let ids: Vec<&str> = cycle.iter().map(|index| list.stories[*index].id.as_str()).collect();
        let Some(first) = ids.first() else { continue };
        let (field, message) = match ids.len() {
            1 => (Some("dependsOn"), "names the story itself".to_owned()),
            many => {
                let shown = ids.iter().take(MAX_SHOWN).copied().collect::<Vec<_>>().join(" -> ");
                let more = match many.saturating_sub(MAX_SHOWN) {
                    0 => String::new(),
                    more => format!(" -> {more} more"),
                };
                (None, format!("dependency cycle: {shown}{more} -> {first}"))
            }
        };
        problems.push(TaskProblem { story: Some((*first).to_owned()), field, message });
    }
    problems
}

/// Dependencies by index.
struct DependencyGraph {
    edges: Vec<Vec<usize>>,
    dangling: Vec<TaskProblem>,
}

impl DependencyGraph {
    fn of(list: &TaskList) -> DependencyGraph {
        let stories = &list.stories;
        let indices: HashMap<&str, usize> =
            stories.iter().enumerate().map(|(index, story)| (story.id.as_str(), index)).collect();
        // A story that depends on a split one depends on all of its parts.
        let mut replacements: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, story) in stories.iter().enumerate() {
            for replaced in &story.replaces {
                replacements.entry(replaced).or_default().push(index);
            }
        }
        let mut dangling = Vec::new();
        let edges = stories
            .iter()
            .enumerate()
            .map(|(index, story)| {
                let mut edges = Vec::new();
                for dependency in &story.depends_on {
                    if let Some(index) = indices.get(dependency.as_str()) {
                        edges.push(*index);
                    } else if let Some(parts) = replacements.get(dependency.as_str()) {
                        edges.extend(parts.iter().copied().filter(|part| *part != index));
                    } else {
                        let message = format!("unknown story {dependency:?}");
                        dangling.push(TaskProblem::for_story(&story.id, "dependsOn", message));
                    }
                }
                edges
            })
            .collect();
        DependencyGraph { edges, dangling }
    }

    /// Returns some cycles, at least one if there is any. Not recursive: a chain may be as long as
    /// the list.
    fn cycles(&self) -> Vec<Vec<usize>> {
        let mut cycles = Vec::new();
        let mut finished = vec![false; self.edges.len()];
        for start in 0..self.edges.len() {
            let mut path: Vec<(usize, usize)> = vec![(start, 0)];
            let mut on_path = HashSet::from([start]);
            while let Some((story, taken)) = path.last_mut() {
                let story = *story;
                let next = self.edges[story].get(*taken).copied().filter(|_| !finished[story]);
                *taken += 1;
                match next {
                    Some(next) if on_path.contains(&next) => {
                        let from = path.iter().position(|(story, _)| *story == next).unwrap_or(0);
                        cycles.push(path.iter().skip(from).map(|(story, _)| *story).collect());
                        if cycles.len() >= MAX_CYCLES {
                            return cycles;
                        }
                    }
                    Some(next) => {
                        path.push((next, 0));
                        on_path.insert(next);
                    }
                    None => {
                        finished[story] = true;
                        path.pop();
                        on_path.remove(&story);
                    }
                }
            }
        }
        cycles
    }
}
