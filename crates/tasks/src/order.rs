//! What can be worked on, and in which order.

use std::collections::{HashMap, HashSet};

use super::{Story, TaskList, TaskProblem};

/// How many circles are told of. Where there is one there may be thousands.
const MAX_CYCLES: usize = 10;
/// How many stories of a circle are named.
const MAX_SHOWN: usize = 10;

/// How one story stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoryStatus {
    Passes,
    /// Nothing keeps it from being worked on.
    Ready,
    /// These stories, by their places, have to pass first.
    Blocked(Vec<usize>),
}

/// How every story stands, in the order of the list.
pub fn story_statuses(list: &TaskList) -> Vec<StoryStatus> {
    let graph = DependencyGraph::of(list);
    let standing = |(index, story): (usize, &Story)| {
        if story.passes {
            return StoryStatus::Passes;
        }
        let open = |other: &usize| list.stories.get(*other).is_some_and(|other| !other.passes);
        let waits: Vec<usize> = graph.edges(index).iter().copied().filter(open).collect();
        if waits.is_empty() { StoryStatus::Ready } else { StoryStatus::Blocked(waits) }
    };
    list.stories.iter().enumerate().map(standing).collect()
}

/// The story to work on: of those that wait for nothing, the one of the smallest priority, and of
/// several such the first in the list.
pub fn next(list: &TaskList) -> Option<&Story> {
    let standings = story_statuses(list);
    let ready = list.stories.iter().zip(&standings).filter(|(_, s)| **s == StoryStatus::Ready);
    ready.map(|(story, _)| story).min_by(|a, b| a.priority.total_cmp(&b.priority))
}

/// Dependencies that lead nowhere, and those that lead in a circle.
pub fn dependency_problems(list: &TaskList) -> Vec<TaskProblem> {
    let graph = DependencyGraph::of(list);
    let mut problems = graph.dangling.clone();
    for circle in graph.cycles() {
        let ids: Vec<&str> = circle.iter().filter_map(|at| id(list, *at)).collect();
        let Some(first) = ids.first() else { continue };
        let message = match ids.len() {
            1 => "names the story itself, so that it could never begin".to_owned(),
            many => {
                let shown = ids.iter().take(MAX_SHOWN).copied().collect::<Vec<_>>().join(" -> ");
                let more = match many.saturating_sub(MAX_SHOWN) {
                    0 => String::new(),
                    more => format!(" -> {more} more"),
                };
                format!("goes in a circle: {shown}{more} -> {first}")
            }
        };
        problems.push(TaskProblem::for_story(*first, "dependsOn", message));
    }
    problems
}

fn id(list: &TaskList, index: usize) -> Option<&str> {
    list.stories.get(index).map(|story| story.id.as_str())
}

/// Which story depends on which, by their places in the list.
struct DependencyGraph {
    edges: Vec<Vec<usize>>,
    dangling: Vec<TaskProblem>,
}

impl DependencyGraph {
    fn of(list: &TaskList) -> DependencyGraph {
        let stories = &list.stories;
        let places: HashMap<&str, usize> =
            stories.iter().enumerate().map(|(at, story)| (story.id.as_str(), at)).collect();
        // Whoever depends on a story that was split depends on all of its parts.
        let mut stand_ins: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, story) in stories.iter().enumerate() {
            for replaced in &story.replaces {
                stand_ins.entry(replaced).or_default().push(at);
            }
        }
        let mut dangling = Vec::new();
        let edges = stories
            .iter()
            .enumerate()
            .map(|(at, story)| {
                let mut edges = Vec::new();
                for wanted in &story.depends_on {
                    if let Some(place) = places.get(wanted.as_str()) {
                        edges.push(*place);
                    } else if let Some(parts) = stand_ins.get(wanted.as_str()) {
                        edges.extend(parts.iter().copied().filter(|part| *part != at));
                    } else {
                        let message = format!("names {wanted:?}, and there is no such story");
                        dangling.push(TaskProblem::for_story(&story.id, "dependsOn", message));
                    }
                }
                edges
            })
            .collect();
        DependencyGraph { edges, dangling }
    }

    fn edges(&self, at: usize) -> &[usize] {
        self.edges.get(at).map_or(&[], Vec::as_slice)
    }

    /// Some circles, at least one if there is any, each told once. A walk in depth without recursion:
    /// a chain may be as long as the list.
    fn cycles(&self) -> Vec<Vec<usize>> {
        let mut circles = Vec::new();
        let mut finished = vec![false; self.edges.len()];
        for start in 0..self.edges.len() {
            let mut path: Vec<(usize, usize)> = vec![(start, 0)];
            let mut on_path = HashSet::from([start]);
            while let Some((at, taken)) = path.last_mut() {
                let at = *at;
                let next = self.edges(at).get(*taken).copied();
                *taken += 1;
                match next {
                    _ if finished.get(at).copied().unwrap_or(true) => {
                        path.pop();
                        on_path.remove(&at);
                    }
                    Some(next) if on_path.contains(&next) => {
                        let from = path.iter().position(|(at, _)| *at == next).unwrap_or(0);
                        circles.push(path.iter().skip(from).map(|(at, _)| *at).collect());
                        if circles.len() >= MAX_CYCLES {
                            return circles;
                        }
                    }
                    Some(next) => {
                        path.push((next, 0));
                        on_path.insert(next);
                    }
                    None => {
                        if let Some(done) = finished.get_mut(at) {
                            *done = true;
                        }
                        path.pop();
                        on_path.remove(&at);
                    }
                }
            }
        }
        circles
    }
}
