//! Answers requests for pages.

use std::path::Path as FilePath;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use maud::{Markup, html};
use ralph_monitor::{diff as monitor_diff, read_check_log};
use ralph_report::summary::plain::{self, TextFormat};
use serde::Deserialize;

use super::activity::{self, Context};
use super::diff::FilePart;
use super::new_run::{self, NewRunForm};
use super::run::{self, RunPage, Tab};
use super::run_data::{RunData, TabData};
use super::transcript::{Tail, hidden_before};
use super::{diff, layout, overview, signs, tab_body};
use crate::app::{App, blocking};
use crate::live;
use crate::new_run::known_projects;
use crate::tokens::Access;

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

pub(crate) async fn new_run_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
) -> Response {
    if access == Access::ReadOnly {
        return not_found(&app, access, "There is no such page");
    }
    let projects = known_projects(&app).await;
    let page = new_run::page(&app, &projects, &NewRunForm::default(), None);
    Html(layout::render(&app, access, &page)).into_response()
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
    let Some(data) = RunData::load(app, id, tab).await else {
        return not_found(app, access, "There is no such run");
    };
    let (card, checked) = (data.card.clone(), data.checked.clone());
    let view = RunPage::new(app, access, tab, (&card, &checked));
    let (body, lines) = match tab {
        Tab::Activity => (activity_page(view, data, query.from).await, None),
        _ => {
            let (body, lines) = tab_body::render(app, data).await;
            (tab_body::part(&body), lines)
        }
    };
    let view = RunPage { changed_lines: lines, ..view };
    let page = run::page(view, &body);
    Html(layout::render(app, access, &page)).into_response()
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

/// The question before a run is stopped, as a page.
pub(crate) async fn stop_page(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Response {
    let Some(data) = RunData::load(&app, &id, Tab::Costs).await else {
        return not_found(&app, access, "There is no such run");
    };
    if access == Access::ReadOnly {
        return not_found(&app, access, "There is no such page");
    }
    let body = html! {
        h1 class="vh" { "Stop " (data.card.name) }
        p { a class="back" href=(Tab::Activity.link(&app, &id)) { "‹ " (data.card.name) } }
        div class="dialog" id="stopbox" { (run::stop_form(&app, &data.card)) }
    };
    let page = layout::Page { title: format!("Stop {}", data.card.name), live: None, body };
    Html(layout::render(&app, access, &page)).into_response()
}

pub(crate) async fn markdown_report(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Response {
    let data = RunData::load(&app, &id, Tab::Report).await;
    let Some(RunData { card, tab: TabData::Report(state), .. }) = data else {
        return not_found(&app, access, "There is no such run");
    };
    let Some(facts) = tab_body::summary(&app, *state, card.is_alive).await else { return gone() };
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
    let (data, name) = (RunData::load(&app, &id, Tab::Costs).await, query.name.unwrap_or_default());
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
    let data = RunData::load(app, id, Tab::Diff).await;
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
