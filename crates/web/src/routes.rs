//! Which request goes where.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};

use ralph_store::requests::MAX_TEXT;

use crate::app::App;
use crate::new_run::MAX_PROMPT;
use crate::pages::handlers as pages;
use crate::{access, actions, api, assets, metrics};

/// Forms and JSON. A character of the longest text may take six bytes, as in `\u0009`.
const MAX_BODY: usize = 6 * MAX_TEXT + 1024;

/// The prompt of a new run, where a form may write three characters for one.
const MAX_START_BODY: usize = 3 * MAX_PROMPT + 6 * MAX_TEXT;

pub(crate) fn router(app: App) -> Router {
    let start_limit = DefaultBodyLimit::max(MAX_START_BODY);
    Router::new()
        .route("/", get(pages::overview_page))
        .route("/live", get(pages::overview_live))
        .route("/new", get(pages::new_run_page).post(actions::new_run_form).layer(start_limit))
        .route("/runs/{id}", get(pages::run_page))
        .route("/runs/{id}/live", get(pages::run_live))
        .route("/runs/{id}/diff", get(pages::diff_page))
        .route("/runs/{id}/log", get(pages::check_log))
        .route("/runs/{id}/report.md", get(pages::markdown_report))
        .route("/runs/{id}/stop", get(pages::stop_page).post(actions::stop_form))
        .route("/runs/{id}/tell", post(actions::tell_form))
        .route("/runs/{id}/pause", post(actions::pause_form))
        .route("/runs/{id}/resume", post(actions::resume_form))
        .route("/runs/{id}/{tab}", get(pages::tab_page))
        .route("/questions/{id}/answer", post(actions::answer_form))
        .route("/api/openapi.json", get(api::openapi))
        .route("/api/runs", get(api::runs).post(api::start).layer(start_limit))
        .route("/api/events", get(api::changes))
        .route("/api/runs/{id}", get(api::run))
        .route("/api/runs/{id}/events", get(api::events))
        .route("/api/runs/{id}/tell", post(api::tell))
        .route("/api/runs/{id}/pause", post(api::pause))
        .route("/api/runs/{id}/resume", post(api::resume))
        .route("/api/runs/{id}/stop", post(api::stop))
        .route("/api/questions", get(api::questions))
        .route("/api/questions/{id}/answer", post(api::answer))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/assets/{name}", get(assets::serve))
        .fallback(pages::no_page)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(app.clone(), access::check))
        .with_state(app)
}
