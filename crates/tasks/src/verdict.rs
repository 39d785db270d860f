//! The task list's answer to the agent's claim of completion, and the feedback for the next prompt.

use serde_json::Value;

use super::changes;
use super::first_problems;
use super::ledger::{LedgerReview, TaskFinding};
use ralph_events::event::{FailAction, Feedback};
use ralph_events::text;

/// An agent that emptied a list of ten thousand stories needs no more.
const MAX_FINDINGS: usize = 20;
/// Characters shown of a removed story.
const MAX_STORY: usize = 4_000;
const MAX_REASONS: usize = 4;
/// Longer lists are not repeated in the prompt.
const MAX_LIST: usize = 16_000;

#[derive(Debug, Clone, PartialEq)]
pub enum TaskVerdict {
    /// The result of the completion rule stands.
    Stands,
    /// Every story passes, whatever the agent said.
    Complete,
    /// `feedback` goes into the next prompt, after that of the guardrails.
    Veto { reason: String, feedback: Vec<Feedback> },
}

/// Feedback before an iteration. `name` is the list's file.
pub fn briefing(review: &LedgerReview, name: &str) -> Vec<Feedback> {
    let mut feedback = findings_feedback(review, name);
    if !review.doubtful.is_empty() {
        let message = format!(
            "Marked as passing in {name} by an iteration that was interrupted or whose checks did \
             not pass: {}. Before anything else, verify them. Set \"passes\" back to false for \
             those that do not pass.",
            story_list(&review.doubtful, 0)
        );
        feedback.push(appended(message));
    }
    feedback
}

/// Tells the agent which stories wait for an answer, and which one to work on.
pub fn parked_feedback(parked: &[&str], next: Option<&(String, String)>) -> Feedback {
    let mut message = format!(
        "Do not work on these stories, which wait for an answer from the user: {}.",
        parked.join(", ")
    );
    if let Some((id, title)) = next {
        message.push_str(&format!(" The next story is {id} ({title})."));
    }
    appended(message)
}

fn appended(message: String) -> Feedback {
    Feedback { action: FailAction::Append, message }
}

fn findings_feedback(review: &LedgerReview, name: &str) -> Vec<Feedback> {
    if review.findings.is_empty() {
        return Vec::new();
    }
    let mut message = format!("Before anything else, repair {name}:");
    let shown = review.findings.iter().take(MAX_FINDINGS);
    for finding in shown {
        message.push_str("\n- ");
        message.push_str(&finding_advice(finding, review.removed_stories_file.as_deref()));
    }
    if review.findings.len() > MAX_FINDINGS {
        message.push_str(&format!("\n- {} more like these", review.findings.len() - MAX_FINDINGS));
        if let Some(file) = &review.removed_stories_file {
            message.push_str(&format!("; all removed stories are in {file}"));
        }
    }
    vec![appended(message)]
}

/// Stories that must be restored but do not fit into the prompt.
pub fn overflowing_stories(review: &LedgerReview) -> Option<Vec<&Value>> {
    let stories: Vec<&Value> = review
        .findings
        .iter()
        .flat_map(|finding| match finding {
            TaskFinding::InvalidList { stories, .. } => stories.iter().collect(),
            TaskFinding::StoryRemoved { story, .. } => vec![story],
            _ => Vec::new(),
        })
        .collect();
    let fits = match review.findings.as_slice() {
        [TaskFinding::InvalidList { stories, .. }] => stories_text(stories).is_some(),
        findings => {
            let is_short = |story: &&Value| format!("{story:#}").len() <= MAX_STORY;
            findings.len() <= MAX_FINDINGS && stories.iter().all(is_short)
        }
    };
    (!stories.is_empty() && !fits).then_some(stories)
}

fn stories_text(stories: &[Value]) -> Option<String> {
    serde_json::to_string_pretty(stories).ok().filter(|text| text.len() <= MAX_LIST)
}

fn finding_advice(finding: &TaskFinding, backup_file: Option<&str>) -> String {
    match finding {
        TaskFinding::InvalidList { problems, stories } => {
            let n = stories.len();
            let stories = match (stories_text(stories), backup_file) {
                _ if stories.is_empty() => "It had no stories.".to_owned(),
                (Some(text), _) => format!("Its stories were:\n{text}"),
                (None, Some(file)) => {
                    format!("It had {n} stories. They are in {file}: put them back.")
                }
                (None, None) => format!("It had {n} stories; git may still have them."),
            };
            let problems = first_problems(problems).join("\n  ");
            format!("It is not a valid task list:\n  {problems}\n{stories}")
        }
        TaskFinding::StoryRemoved { id, title, story } => {
            let story = format!("{story:#}");
            format!(
                "Story {id} ({title}) was removed. A story may be removed only if another one \
                 names it in \"replaces\". Name it there, or put it back unchanged:\n{}",
                text::truncate(&story, MAX_STORY, "\n…")
            )
        }
        TaskFinding::AddedAsPassing { id, replaced } => format!(
            "Story {id} replaces {} and was added as passing. A story that replaces others must \
             be in the list with \"passes\": false first. Set it back to false, and stop; the \
             next iteration will verify it.",
            changes::first_few(replaced)
        ),
        TaskFinding::Problem(problem) => format!("{problem}."),
        TaskFinding::CriteriaRemoved { id, lost } => format!(
            "Acceptance criteria of {id} were removed. You may add criteria, but not remove them. \
             Put back: {}",
            text::truncate(&changes::quote_criteria(lost), MAX_STORY, "…")
        ),
        TaskFinding::CriteriaLostInReplacement { id, title, by, lost } => format!(
            "Story {id} ({title}) was replaced by {}, but some of its acceptance criteria are \
             missing there. Each must be in one of the stories that replace it, word for word. \
             Add: {}",
            changes::first_few(by),
            text::truncate(&changes::quote_criteria(lost), MAX_STORY, "…")
        ),
        TaskFinding::VerifyCommandsChanged { commands_run, .. } => {
            let commands: Vec<String> =
                commands_run.iter().map(|command| format!("`{command}`")).collect();
            let commands =
                if commands.is_empty() { "none".to_owned() } else { commands.join(", ") };
            format!(
                "\"verifyCommands\" was changed. That has no effect: the run uses those from its \
                 start ({commands}). Put them back."
            )
        }
    }
}

/// Before the first iteration, for a list in which every story passes already.
pub fn initial_verdict(review: &LedgerReview, checks_passed: bool, name: &str) -> TaskVerdict {
    if !checks_passed {
        let message = format!(
            "Every story in {name} is marked as passing, but a check fails. Make it pass. Set \
             \"passes\" back to false for each story that is not finished."
        );
        return TaskVerdict::Veto {
            reason: format!("every story in {name} passes, but a check failed"),
            feedback: vec![appended(message)],
        };
    }
    without_doubtful_marks(review, final_verdict(review, false, true, name))
}

/// After an iteration that did not finish: its own marks do not count.
pub fn unfinished_verdict(review: &LedgerReview, checks_passed: bool, name: &str) -> TaskVerdict {
    without_doubtful_marks(review, final_verdict(review, false, checks_passed, name))
}

/// Turns completion into a veto if marks are doubtful. The next briefing names them.
fn without_doubtful_marks(review: &LedgerReview, verdict: TaskVerdict) -> TaskVerdict {
    if verdict != TaskVerdict::Complete || review.doubtful.is_empty() {
        return verdict;
    }
    let reason = format!(
        "marked as passing by an iteration that was interrupted or failed its checks: {}",
        story_list(&review.doubtful, 0)
    );
    TaskVerdict::Veto { reason, feedback: Vec::new() }
}

/// After an iteration that finished.
pub fn final_verdict(
    review: &LedgerReview,
    claimed: bool,
    checks_passed: bool,
    name: &str,
) -> TaskVerdict {
    if !checks_passed {
        // The guardrails report the failure; this adds stories marked in spite of it.
        let feedback = match review.unverified.as_slice() {
            [] => Vec::new(),
            ids => {
                let (ids, were, it) = match ids {
                    [id] => (id.clone(), "was", "it"),
                    ids => (story_list(ids, 0), "were", "them"),
                };
                vec![appended(format!(
                    "{ids} {were} marked as passing in {name} while a check fails. Make the check \
                     pass, or set \"passes\" of {it} back to false."
                ))]
            }
        };
        return TaskVerdict::Veto { reason: "a check failed".to_owned(), feedback };
    }
    let vetoes: Vec<String> = review
        .findings
        .iter()
        .filter(|finding| finding.vetoes())
        .map(ToString::to_string)
        .collect();
    if !vetoes.is_empty() {
        // The next briefing explains it, from the list as it is then.
        let reason = format!("{name}: {}", first_few(&vetoes));
        return TaskVerdict::Veto { reason, feedback: Vec::new() };
    }
    match &review.progress {
        Some(progress) if progress.is_complete() => TaskVerdict::Complete,
        Some(progress) if claimed => {
            let reason = match progress.total {
                0 => format!("{name} has no stories"),
                total => {
                    let open = total - progress.done;
                    let (do_not, ids) = if open == 1 {
                        ("does not pass", progress.open.join(""))
                    } else {
                        ("do not pass", story_list(&progress.open, progress.more_open))
                    };
                    format!("{open} of {total} stories {do_not} yet: {ids}")
                }
            };
            let advice = if progress.total == 0 {
                "Add stories for the work."
            } else {
                "Work on the next one. Say that the work is complete only when every story passes."
            };
            let message = format!("You said that the work is complete, but {reason}. {advice}");
            TaskVerdict::Veto { reason, feedback: vec![appended(message)] }
        }
        _ => TaskVerdict::Stands,
    }
}

pub fn first_few(reasons: &[String]) -> String {
    let shown = reasons.iter().take(MAX_REASONS).cloned().collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(MAX_REASONS) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

fn story_list(ids: &[String], more: usize) -> String {
    let shown = ids.len().min(MAX_FINDINGS);
    let more = more + ids.len() - shown;
    let ids = ids[..shown].join(", ");
    if more == 0 { ids } else { format!("{ids} and {more} more") }
}
