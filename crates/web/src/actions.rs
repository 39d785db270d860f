//! Steering runs: every action becomes a request in the run's queue.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use axum::{Extension, Form};
use ralph_events::error::{Error, ErrorKind};
use ralph_events::run_state::Question;
use ralph_monitor::actions::{self, Delivery, Done};
use ralph_monitor::{Launcher, Monitor};
use ralph_store::runs::RunDir;
use serde::Deserialize;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

use crate::guard::wants_html;
use crate::pages::layout;
use crate::tokens::Access;

/// What a person can do to a run.
#[derive(Debug)]
pub(crate) enum Action {
    Tell { text: String, delivery: Delivery },
    Pause,
    Resume,
    Stop { now: bool },
    Answer { question: Box<Question>, text: String },
}

impl Action {
    /// What is shown until the run has done it.
    fn requested(&self) -> &'static str {
        match self {
            Action::Tell { delivery: Delivery::Next, .. } => "sent, waits for the next iteration",
            Action::Tell { delivery: Delivery::Now, .. } => {
                "sent, the iteration starts again with it"
            }
            Action::Tell { delivery: Delivery::Every, .. } => "sent, goes into every prompt",
            Action::Pause => "pausing",
            Action::Resume => "resuming",
            Action::Stop { .. } => "stopping",
            Action::Answer { .. } => "answered",
        }
    }
}

/// The request is in the run's queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Requested {
    /// What is shown until the run has done it.
    pub requested: &'static str,
}

/// Why a request failed, and what to do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    pub error: String,
    pub hint: String,
}

impl axum::response::IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (error, hint) = self.words();
        (self.status(), axum::Json(Problem { error, hint })).into_response()
    }
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such run or question.
    Unknown(&'static str),
    Refused(Error),
}

impl Failure {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failure::Unknown(_) => StatusCode::NOT_FOUND,
            Failure::Refused(error) if error.kind == ErrorKind::Failed => StatusCode::CONFLICT,
            Failure::Refused(_) => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn words(&self) -> (String, String) {
        match self {
            Failure::Unknown(what) => (format!("there is no such {what}"), String::new()),
            Failure::Refused(error) => {
                let clean = ralph_events::control_chars::strip_control_chars;
                (clean(&error.message), clean(&error.hints.join(" ")))
            }
        }
    }
}

/// Does it, and returns what to show.
pub(crate) async fn perform(app: &App, run: &str, action: Action) -> Result<&'static str, Failure> {
    let id = run.to_owned();
    let dir = app.hub.ask(move |monitor| monitor.run_dir(&id).cloned()).await.flatten();
    let dir = dir.ok_or(Failure::Unknown("run"))?;
    let launcher = app.launcher.clone();
    // A request waits for a lock and for the disk; resuming starts a program.
    let done = app.run_program(move || {
        let requested = action.requested();
        send(&dir, &action, &*launcher).map(|_| requested)
    });
    let failed = || Err(Error::failed("the request was not carried out"));
    done.await.unwrap_or_else(failed).map_err(Failure::Refused)
}

fn send(dir: &RunDir, action: &Action, launcher: &dyn Launcher) -> Result<Done, Error> {
    match action {
        Action::Tell { text, delivery } => actions::tell(dir, text, *delivery),
        Action::Pause => actions::pause(dir),
        Action::Resume => actions::resume(dir, launcher),
        Action::Stop { now } => actions::stop(dir, *now),
        Action::Answer { question, text } => actions::answer(dir, question, text),
    }
}

/// Answers a question. Also returns the run that asked it.
pub(crate) async fn answer(
    app: &App,
    question: String,
    text: String,
) -> (String, Result<&'static str, Failure>) {
    let find = move |monitor: &mut Monitor| {
        let asked = |id: &str| {
            Some((id.to_owned(), monitor.state(id)?.steering.question(&question)?.clone()))
        };
        monitor.ids().find_map(asked)
    };
    match app.hub.ask(find).await.flatten() {
        Some((run, question)) => {
            let action = Action::Answer { question: Box::new(question), text };
            let result = perform(app, &run, action).await;
            (run, result)
        }
        None => (String::new(), Err(Failure::Unknown("question"))),
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Fields {
    #[serde(default)]
    text: String,
    #[serde(default)]
    when: String,
    #[serde(default)]
    now: String,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Back {
    /// The form was on the overview.
    overview: Option<String>,
}

pub(crate) async fn tell_form(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Form(fields): Form<Fields>,
) -> Response {
    let delivery = match fields.when.as_str() {
        "now" => Delivery::Now,
        "every" => Delivery::Every,
        _ => Delivery::Next,
    };
    let result = perform(&app, &id, Action::Tell { text: fields.text, delivery }).await;
    answer_to(&app, access, &headers, &format!("/runs/{id}"), result)
}

pub(crate) async fn pause_form(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let result = perform(&app, &id, Action::Pause).await;
    answer_to(&app, access, &headers, &format!("/runs/{id}"), result)
}

pub(crate) async fn resume_form(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(back): Query<Back>,
) -> Response {
    let result = perform(&app, &id, Action::Resume).await;
    answer_to(&app, access, &headers, &back.path(&id), result)
}

pub(crate) async fn stop_form(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Form(fields): Form<Fields>,
) -> Response {
    let result = perform(&app, &id, Action::Stop { now: fields.now == "true" }).await;
    answer_to(&app, access, &headers, &format!("/runs/{id}"), result)
}

pub(crate) async fn answer_form(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
    Path(question): Path<String>,
    Query(back): Query<Back>,
    Form(fields): Form<Fields>,
) -> Response {
    let (run, result) = answer(&app, question, fields.text).await;
    answer_to(&app, access, &headers, &back.path(&run), result)
}

impl Back {
    fn path(&self, run: &str) -> String {
        if self.overview.is_some() { "/".to_owned() } else { format!("/runs/{run}") }
    }
}

/// Back to the page for a browser, JSON for the script.
fn answer_to(
    app: &App,
    access: Access,
    headers: &HeaderMap,
    back: &str,
    result: Result<&'static str, Failure>,
) -> Response {
    match (result, wants_html(headers)) {
        (Ok(_), true) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, app.link(back))]).into_response()
        }
        (Ok(requested), false) => axum::Json(Requested { requested }).into_response(),
        (Err(failure), true) => {
            let (error, hint) = failure.words();
            let page = layout::message_page(app, access, &error, &hint);
            (failure.status(), Html(page)).into_response()
        }
        (Err(failure), false) => failure.into_response(),
    }
}
