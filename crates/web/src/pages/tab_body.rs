//! The content of a tab.

use std::path::Path;

use maud::{Markup, html};
use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_monitor::diff::{DiffFile, FileDiff, file_diff, run_diff};
use ralph_monitor::{StoriesError, read_check_log, read_stories, read_summary};
use ralph_report::check_view::{CheckRun, CheckView};
use ralph_report::story_view;
use ralph_report::summary::Summary;
use ralph_store::runs::RunDir;

use super::checks::CheckPart;
use super::diff::FilePart;
use super::run_data::{RunData, TabData};
use super::{checks, costs, diff, report, signs, stories};
use crate::app::{App, blocking};

/// The id of its element.
pub(crate) const ID: &str = "tabbody";

pub(crate) fn part(body: &Markup) -> Markup {
    html! { div id=(ID) { (body) } }
}

/// The content of a tab, and the number of changed lines if it is known.
pub(crate) async fn render(app: &App, data: RunData) -> (Markup, Option<(u64, u64)>) {
    let RunData { card, dir, checked, tab, .. } = data;
    let link = |path: &str| app.link(&format!("/runs/{}/{path}", card.id));
    let failed = || html! { p class="sub nothing" { "This cannot be read." } };
    match tab {
        // It has a page of its own.
        TabData::Activity => (html! {}, None),
        TabData::Costs => (costs::body(app, &card, &checked, app.now_ms()), None),
        TabData::Stories(state) => {
            (stories_body(*state, card.is_alive).await.unwrap_or_else(failed), None)
        }
        TabData::Report(state) => {
            let facts = summary(app, *state, card.is_alive).await;
            let body = |facts: Summary| report::body(&facts, &app.zone, &link("report.md"));
            (facts.map_or_else(failed, body), None)
        }
        TabData::Diff(state) => diff_body(app, *state, card.ended_ms.is_some(), link("diff")).await,
        TabData::Checks(views) => {
            let parts = blocking(move || check_parts(&dir, views)).await.unwrap_or_default();
            let log = |run: &CheckRun| format!("{}?name={}", link("log"), query_value(&run.log));
            (checks::body(&parts, log), None)
        }
    }
}

/// Asks git about the commits.
pub(crate) async fn summary(app: &App, state: RunState, is_alive: bool) -> Option<Summary> {
    let now = is_alive.then(|| app.now_ms());
    app.run_program(move || read_summary(&state, now)).await
}

async fn stories_body(state: RunState, is_alive: bool) -> Option<Markup> {
    blocking(move || match read_stories(Path::new(&state.info.directory)) {
        Ok(list) => stories::body(&story_view::stories(&list, &state, is_alive)),
        Err(StoriesError::None) => {
            stories::none("This run has no task list. `ralph new` creates one for `ralph work`.")
        }
        Err(StoriesError::Unreadable(why)) => {
            stories::none(&format!("The task list cannot be read: {}", signs::clean(&why)))
        }
    })
    .await
}

async fn diff_body(
    app: &App,
    state: RunState,
    is_over: bool,
    link: String,
) -> (Markup, Option<(u64, u64)>) {
    let read = app.run_program(move || {
        let directory = Path::new(&state.info.directory);
        let diff = run_diff(directory, &state)?;
        let mut room = diff::MAX_LINES;
        let part = |(at, file): (usize, &DiffFile)| {
            let wanted = at < diff::OPEN_FILES && room > 0 && !file.is_binary;
            let read = wanted.then(|| file_diff(directory, &diff, file).ok()).flatten();
            let lines = |read: &FileDiff| read.hunks.iter().map(|it| it.lines.len()).sum();
            room = room.saturating_sub(read.as_ref().map_or(0, lines));
            FilePart { file: file.clone(), diff: read }
        };
        let files: Vec<FilePart> = diff.files.iter().enumerate().map(part).collect();
        Ok::<_, Error>((diff, files))
    });
    match read.await {
        Some(Ok((run, files))) => {
            let link = |file: &DiffFile| format!("{link}?path={}", query_value(&file.path));
            (
                diff::body(&run, &files, is_over, link),
                Some((run.added, run.removed)).filter(|it| *it != (0, 0)),
            )
        }
        Some(Err(error)) => (diff::none(&signs::capitalize(&signs::clean(&error.message))), None),
        None => (diff::none("The changes cannot be read."), None),
    }
}

fn check_parts(dir: &RunDir, views: Vec<CheckView>) -> Vec<CheckPart> {
    let part = |view: CheckView| {
        let failure = view.last_failure.as_ref();
        let output =
            failure.and_then(|run| read_check_log(dir, &run.log, checks::OUTPUT_LINES).ok());
        CheckPart { view, output }
    };
    views.into_iter().map(part).collect()
}

/// Percent-encodes what a query cannot have.
fn query_value(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                value.push(char::from(byte));
            }
            _ => value += &format!("%{byte:02X}"),
        }
    }
    value
}
