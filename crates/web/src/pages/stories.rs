//! The stories of a run's task list. What the agent claims and what ralph checked never look alike.

use maud::{Markup, html};
use ralph_events::text;
use ralph_report::check_view::{CheckMark, CheckRun};
use ralph_report::story_view::{StoryState, StoryView};

use super::signs::{money, plural, sign};

pub(crate) fn body(stories: &[StoryView]) -> Markup {
    let count =
        |states: &[StoryState]| stories.iter().filter(|it| states.contains(&it.state)).count();
    let proven = count(&[StoryState::Proven]);
    let in_work = count(&[StoryState::InWork]);
    let claimed = count(&[StoryState::Claimed]);
    let to_do = stories.len() - proven - in_work - claimed;
    // The one that was proven last is the one to look at.
    let open = stories
        .iter()
        .filter(|story| story.state == StoryState::Proven)
        .max_by_key(|it| it.proven_in);
    let open = open.map(|story| story.id.as_str());
    html! {
        h2 class="vh" { "Stories" }
        (progress(stories, proven, in_work))
        p class="sub" {
            (proven) " proven" @if claimed > 0 { " · " (claimed) " claimed" }
            " · " (in_work) " in work · " (to_do) " to do. Proven: marked by the agent, and all checks passed on the same tree."
        }
        div class="sl" { @for story in stories { (row(story, open == Some(&story.id))) } }
    }
}

/// One sentence instead of a list.
pub(crate) fn none(reason: &str) -> Markup {
    html! { h2 class="vh" { "Stories" } p class="sub nothing" { (reason) } }
}

fn progress(stories: &[StoryView], proven: usize, in_work: usize) -> Markup {
    let label = format!("{proven} of {} proven, {in_work} in work", plural(stories.len(), "story"));
    html! {
        div class="prog" role="img" aria-label=(label) {
            @for story in stories {
                i class=(match story.state { StoryState::Proven => "d", StoryState::Claimed => "c", StoryState::InWork => "w", _ => "" }) {}
            }
        }
    }
}

fn row(story: &StoryView, is_open: bool) -> Markup {
    let color = match story.state {
        StoryState::Proven => "d",
        StoryState::Claimed => "a",
        StoryState::InWork => "w",
        StoryState::Next | StoryState::CanStart => "",
        StoryState::WaitsFor => "m",
    };
    html! {
        details id={ "story-" (story.id) } open[is_open] {
            summary {
                (sign(story.state.sign(), color))
                span class="sid" { (story.id) }
                span class="st" { (story.title) }
                span class="sub" { (state(story)) }
            }
            div class="sb" {
                div {
                    @if !story.criteria.is_empty() {
                        h3 { "Criteria" }
                        ul class="crit" { @for text in &story.criteria { li { (sign("·", "m")) (text) } } }
                    }
                    @if !story.claim.is_empty() { h3 { "Claimed by the agent" } p class="claim" { (story.claim) } }
                }
                div { (evidence(story)) }
                @if !story.iterations.is_empty() {
                    p class="sub" {
                        @let cost = money(&story.cost);
                        @if !cost.is_empty() { (cost) " in " }
                        (plural(story.iterations.len(), "iteration")) ", " (text::format_duration(story.duration_ms))
                    }
                }
            }
        }
    }
}

fn state(story: &StoryView) -> String {
    match (story.state, story.proven_in) {
        (StoryState::Proven, Some(iteration)) => format!("proven, iteration {iteration}"),
        (StoryState::Proven, None) => "proven before this run".to_owned(),
        (StoryState::WaitsFor, _) => format!("waits for {}", story.waits_for.join(", ")),
        (state, _) => state.as_str().to_owned(),
    }
}

fn evidence(story: &StoryView) -> Markup {
    html! {
        @if let Some((_, first)) = story.checks.first() {
            h3 { "Checked by ralph " span class="sub" { "iteration " (first.iteration) } }
            table class="ev" {
                tbody {
                    @for (command, run) in &story.checks { (check_row(command, run)) }
                    @for (id, subject) in &story.commits { tr { td { code { (id) } " " (subject) } td {} } }
                }
            }
        }
        @if !story.history.is_empty() {
            h3 { "History" }
            ul class="crit" {
                @for claim in &story.history {
                    li {
                        (sign(if claim.proven { "✓" } else { "~" }, if claim.proven { "d" } else { "a" }))
                        "Iteration " (claim.iteration) ": " (claim.text())
                    }
                }
            }
        }
    }
}

fn check_row(command: &str, run: &CheckRun) -> Markup {
    html! {
        tr {
            td { (check_sign(run.mark)) span class="vh" { (run.mark.as_str()) ": " } (command) }
            td { (text::format_duration(run.duration_ms)) }
        }
    }
}

pub(crate) fn check_sign(mark: CheckMark) -> Markup {
    let color = match mark {
        CheckMark::Passed => "d",
        CheckMark::Failed => "f",
        CheckMark::Interrupted => "a",
        CheckMark::NotRun => "m",
    };
    sign(&mark.sign().to_string(), color)
}
