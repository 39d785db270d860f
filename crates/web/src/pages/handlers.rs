//! Answers requests for pages.

use std::collections::HashMap;
use std::path::Path as FilePath;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use maud::{Markup, html};
use ralph_events::run_state::RunState;
use ralph_monitor::{
    Monitor, StoriesError, diff as monitor_diff, read_check_log, read_stories, read_summary,
};
use ralph_report::check_view::{self, CheckView};
use ralph_report::run_card::RunCard;
use ralph_report::story_view;
use ralph_report::summary::Summary;
use ralph_report::summary::plain::{self, TextFormat};
use ralph_store::runs::RunDir;
use serde::Deserialize;

use super::activity::{self, Context};
use super::checks::CheckPart;
use super::diff::FilePart;
use super::run::{self, RunPage, Tab};
use super::signs::CheckedIterations;
use super::transcript::{Tail, hidden_before};
use super::{checks, costs, diff, layout, overview, report, signs, stories};
use crate::app::App;
use crate::live::{self, Frame, LivePart, NamedState};
use crate::tokens::Access;

/// Blocks of a transcript that are kept current.
const LIVE_BLOCKS: usize = 60;
const PART: &str = "tabbody";

#[derive(Debug, Default, Deserialize)]
pub(crate) struct PageQuery {
    /// Older runs as well.
    all: Option<String>,
    /// The first iteration of the transcript.
    from: Option<u32>,
    tab: Option<String>,
    path: Option<String>,
    name: Option<String>,
}

pub(crate) async fn overview_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Query(query): Query<PageQuery>,
) -> Response {
    let all = query.all.is_some();
    let now_ms = app.now_ms();
    let overview = app.hub.ask(move |monitor| {
        if all {
            monitor.show_all();
        }
        monitor.overview(now_ms)
    });
    let Some(overview) = overview.await else { return gone() };
    let shown = overview::Shown { access, all };
    let page = overview::page(&app, shown, &overview);
    Html(layout::render(&app, access, &page)).into_response()
}

pub(crate) async fn overview_live(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Query(query): Query<PageQuery>,
) -> Response {
    let view = live::LiveView::Overview { access, all: query.all.is_some() };
    live::stream(&app, &view)
}

pub(crate) async fn run_live(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    let tab = query.tab.as_deref().and_then(Tab::from_name).unwrap_or(Tab::Activity);
    live::stream(&app, &live::LiveView::Run { id, tab, access })
}

/// The server is about to end.
fn gone() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

fn not_found(app: &App, access: Access, title: &str) -> Response {
    let text = "It was removed, or the link is wrong.";
    (StatusCode::NOT_FOUND, Html(layout::message_page(app, access, title, text))).into_response()
}

pub(crate) async fn no_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
) -> Response {
    not_found(&app, access, "There is no such page")
}

/// The data of a run's pages.
struct RunData {
    card: RunCard,
    dir: RunDir,
    /// The story of each iteration.
    stories: HashMap<u32, (String, String)>,
    checked: CheckedIterations,
    tab: TabData,
}

/// The data of one tab.
enum TabData {
    Activity,
    Stories(Box<RunState>),
    Diff(Box<RunState>),
    Checks(Vec<CheckView>),
    Costs,
    Report(Box<RunState>),
}

/// Runs on the monitor's thread.
fn collect(monitor: &mut Monitor, id: &str, tab: Tab, now: i64) -> Option<RunData> {
    let state = monitor.run(id)?;
    let story = |record: &ralph_events::run_state::IterationRecord| {
        let story = record.story.as_ref()?;
        Some((record.number, (signs::clean(&story.id), signs::clean(&story.title))))
    };
    let stories = state.iterations.iter().filter_map(story).collect();
    let checked = CheckedIterations::of(state);
    let tab = match tab {
        Tab::Activity => TabData::Activity,
        Tab::Stories => TabData::Stories(Box::new(state.clone())),
        Tab::Diff => TabData::Diff(Box::new(state.clone())),
        Tab::Checks => TabData::Checks(check_view::checks(state)),
        Tab::Costs => TabData::Costs,
        Tab::Report => TabData::Report(Box::new(state.clone())),
    };
    let dir = monitor.run_dir(id)?.clone();
    Some(RunData { card: monitor.card(id, now)?, dir, stories, checked, tab })
}

async fn run_data(app: &App, id: &str, tab: Tab) -> Option<RunData> {
    let (id, now_ms) = (id.to_owned(), app.now_ms());
    app.hub.ask(move |monitor| collect(monitor, &id, tab, now_ms)).await?
}

/// Runs work that reads files or starts programs on another thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

pub(crate) async fn run_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    render_run(&app, access, &id, Tab::Activity, &query).await
}

pub(crate) async fn tab_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path((id, tab)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Response {
    match Tab::from_name(&tab) {
        Some(tab) => render_run(&app, access, &id, tab, &query).await,
        None => not_found(&app, access, "There is no such page"),
    }
}

async fn render_run(app: &App, access: Access, id: &str, tab: Tab, query: &PageQuery) -> Response {
    let Some(data) = run_data(app, id, tab).await else {
        return not_found(app, access, "There is no such run");
    };
    let (card, checked) = (data.card.clone(), data.checked.clone());
    let view = view(app, access, tab, (&card, &checked));
    let (body, lines) = match tab {
        Tab::Activity => (activity_page(view, data, query.from).await, None),
        _ => {
            let (body, lines) = tab_body(app, data).await;
            (html! { div id=(PART) { (body) } }, lines)
        }
    };
    let view = RunPage { changed_lines: lines, ..view };
    let page = run::page(view, &body);
    Html(layout::render(app, access, &page)).into_response()
}

fn view<'a>(
    app: &'a App,
    access: Access,
    tab: Tab,
    (card, checked): (&'a RunCard, &'a CheckedIterations),
) -> RunPage<'a> {
    RunPage { app, access, tab, card, checked, changed_lines: None, now_ms: app.now_ms() }
}

async fn activity_page(view: RunPage<'_>, data: RunData, from: Option<u32>) -> Markup {
    let (dir, directory) = (data.dir, data.card.directory.clone());
    let tail = blocking(move || match from {
        Some(first) => Tail::open_from(&dir, &directory, first),
        None => Tail::open(&dir, &directory),
    });
    let tail = tail.await.and_then(Result::ok);
    let items = match (&tail, from) {
        (None, _) => &[],
        (Some(tail), Some(first)) => tail.from(first),
        (Some(tail), None) => tail.recent(),
    };
    let todo = tail.as_ref().map_or(&[][..], Tail::todo);
    let context = Context { card: view.card, stories: &data.stories, zone: &view.app.zone };
    let hidden = hidden_before(items);
    let link = Tab::Activity.link(view.app, &view.card.id);
    html! {
        div class="body" {
            div class="main" {
                h2 class="vh" { "Transcript" }
                @if let Some((from, what)) = hidden {
                    a class="earlier" href={ (link) "?from=" (from) } { "Show " (what) }
                }
                @if items.is_empty() { p class="sub nothing" { "Nothing has happened yet." } }
                div id="log" role="log" aria-label="Transcript" aria-live="off" { (activity::log(items, context)) }
                (activity::todo(todo))
                p class="follow" id="follow" hidden {
                    (signs::sign("●", "w")) span { "Following. Scroll up to stay where you are." }
                }
                button class="pri new" id="new" type="button" hidden { "new ↓" }
            }
            (run::side(view))
        }
    }
}

/// The content of a tab, and the number of changed lines if it is known.
async fn tab_body(app: &App, data: RunData) -> (Markup, Option<(u64, u64)>) {
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
            let log = |run: &check_view::CheckRun| {
                format!("{}?name={}", link("log"), query_value(&run.log))
            };
            (checks::body(&parts, log), None)
        }
    }
}

/// Asks git about the commits.
async fn summary(app: &App, state: RunState, is_alive: bool) -> Option<Summary> {
    let now = is_alive.then(|| app.now_ms());
    app.run_program(move || read_summary(&state, now)).await
}

async fn stories_body(state: RunState, is_alive: bool) -> Option<Markup> {
    blocking(move || match read_stories(FilePath::new(&state.info.directory)) {
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
        let directory = FilePath::new(&state.info.directory);
        let diff = monitor_diff::run_diff(directory, &state)?;
        let mut room = diff::MAX_LINES;
        let part = |(at, file): (usize, &monitor_diff::DiffFile)| {
            let wanted = at < diff::OPEN_FILES && room > 0 && !file.is_binary;
            let read =
                wanted.then(|| monitor_diff::file_diff(directory, &diff, file).ok()).flatten();
            let lines =
                |read: &monitor_diff::FileDiff| read.hunks.iter().map(|it| it.lines.len()).sum();
            room = room.saturating_sub(read.as_ref().map_or(0, lines));
            FilePart { file: file.clone(), diff: read }
        };
        let files: Vec<FilePart> = diff.files.iter().enumerate().map(part).collect();
        Ok::<_, ralph_events::error::Error>((diff, files))
    });
    match read.await {
        Some(Ok((run, files))) => {
            let link =
                |file: &monitor_diff::DiffFile| format!("{link}?path={}", query_value(&file.path));
            (
                diff::body(&run, &files, is_over, link),
                Some((run.added, run.removed)).filter(|it| *it != (0, 0)),
            )
        }
        Some(Err(error)) => (diff::none(&signs::clean(&error.message)), None),
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

/// A run as the live stream shows it.
pub(crate) async fn run_frame(
    app: &App,
    id: &str,
    tab: Tab,
    access: Access,
    tail: &mut Option<Tail>,
) -> Option<Frame> {
    let data = run_data(app, id, tab).await?;
    let (card, checked) = (data.card.clone(), data.checked.clone());
    let view = view(app, access, tab, (&card, &checked));
    let mut parts: Vec<LivePart> = Vec::new();
    let mut lines = None;
    if tab == Tab::Activity {
        if tail.is_none() {
            *tail = Tail::open(&data.dir, &card.directory).ok();
        } else if let Some(tail) = tail {
            // The next frame tries again.
            let _ = tail.update();
        }
        if let Some(tail) = tail {
            let todo = tail.todo();
            let context = Context { card: &card, stories: &data.stories, zone: &app.zone };
            parts = activity::parts(tail.recent(), context, LIVE_BLOCKS);
            parts.push(LivePart::new("todo".to_owned(), activity::todo(todo)));
        }
    } else {
        let (body, changed_lines) = tab_body(app, data).await;
        lines = changed_lines;
        parts.push(LivePart::new(PART.to_owned(), html! { div id=(PART) { (body) } }));
    }
    let view = RunPage { changed_lines: lines, ..view };
    let head = run::head_parts(view).into_iter().chain([run::tabs_part(view)]);
    let parts = head.map(LivePart::from).chain(parts).collect();
    let title = run::page_title(&card);
    Some(Frame { parts, title, states: vec![NamedState::of(&card)], ..Frame::default() })
}

/// The question before a run is stopped, as a page.
pub(crate) async fn stop_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Response {
    let Some(data) = run_data(&app, &id, Tab::Costs).await else {
        return not_found(&app, access, "There is no such run");
    };
    if access == Access::ReadOnly {
        return not_found(&app, access, "There is no such page");
    }
    let body = html! {
        h1 class="vh" { "Stop " (data.card.name) }
        p { a class="back" href=(Tab::Activity.link(&app, &id)) { "‹ " (data.card.name) } }
        div class="dialog" id="stopbox" { (run::stop_form(view(&app, access, Tab::Activity, (&data.card, &data.checked)))) }
    };
    let page = layout::Page { title: format!("Stop {}", data.card.name), live: None, body };
    Html(layout::render(&app, access, &page)).into_response()
}

pub(crate) async fn markdown_report(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Response {
    let data = run_data(&app, &id, Tab::Report).await;
    let Some(RunData { card, tab: TabData::Report(state), .. }) = data else {
        return not_found(&app, access, "There is no such run");
    };
    let Some(facts) = summary(&app, *state, card.is_alive).await else { return gone() };
    let text = plain::render(&facts, &app.zone, TextFormat::Markdown);
    ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response()
}

/// The whole output of a check, as plain text.
pub(crate) async fn check_log(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    let (data, name) = (run_data(&app, &id, Tab::Costs).await, query.name.unwrap_or_default());
    let Some(data) = data else { return not_found(&app, access, "There is no such run") };
    let log = blocking(move || read_check_log(&data.dir, &name, usize::MAX).ok()).await.flatten();
    match log {
        Some(log) => plain_text(log.lines.join("\n")),
        None => not_found(&app, access, "This output is gone"),
    }
}

fn plain_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// All changes of one file.
async fn file_diff(app: &App, access: Access, id: &str, path: String) -> Response {
    let data = run_data(app, id, Tab::Diff).await;
    let Some(RunData { card, tab: TabData::Diff(state), .. }) = data else {
        return not_found(app, access, "There is no such run");
    };
    let read = app.run_program(move || {
        let directory = FilePath::new(&state.info.directory);
        let diff = monitor_diff::run_diff(directory, &state).ok()?;
        let file = diff.files.iter().find(|file| file.path == path)?.clone();
        let changes = monitor_diff::file_diff(directory, &diff, &file).ok()?;
        Some(FilePart { file, diff: Some(changes) })
    });
    let Some(Some(part)) = read.await else {
        return not_found(app, access, "There is no such change");
    };
    let page_link = Tab::Diff.link(app, &card.id);
    let changes = part.diff.as_ref();
    let body = html! {
        p { a class="back" href=(page_link) { "‹ " (card.name) } }
        h1 class="file" { (part.file.path) }
        @if let Some(changes) = changes {
            div class="tools whole" { (diff::changes(changes, &part.file, &|_| page_link.clone())) }
        }
    };
    let page = layout::Page { title: part.file.path.clone(), live: None, body };
    Html(layout::render(app, access, &page)).into_response()
}

/// The diff tab, or one file of it.
pub(crate) async fn diff_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Response {
    match query.path.clone() {
        Some(path) => file_diff(&app, access, &id, path).await,
        None => render_run(&app, access, &id, Tab::Diff, &query).await,
    }
}
