//! Steering runs: every action becomes a request in the run's queue.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Form, Json};
use ralph_events::error::{Error, ErrorKind};
use ralph_events::event::Outcome;
use ralph_events::run_state::Question;
use ralph_monitor::actions::{self, Delivery, Done};
use ralph_monitor::{Launcher, Monitor};
use ralph_store::runs::RunDir;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::wants_html;
use crate::api::Started;
use crate::app::App;
use crate::pages::layout;
use crate::pages::new_run::NewRunForm;
use crate::pages::signs::capitalize;
use crate::tokens::Access;
use crate::{new_run, pages};

/// An action of a person on a run.
#[derive(Debug)]
pub(crate) enum Action {
    Tell { text: String, delivery: Delivery },
    Pause,
    Resume,
    Stop { now: bool },
    Answer { question: Box<Question>, text: String },
}

impl Action {
    /// The text that is shown until the run has done it.
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
    /// The text that is shown until the run has done it.
    pub requested: &'static str,
}

/// Why a request failed, and what to do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    pub error: String,
    pub hint: String,
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

    pub(crate) fn message_and_hint(&self) -> (String, String) {
        match self {
            Failure::Unknown(what) => (format!("there is no such {what}"), String::new()),
            Failure::Refused(error) => {
                let clean = ralph_events::control_chars::strip_control_chars;
                (clean(&error.message), clean(&error.hints.join(" ")))
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (error, hint) = self.message_and_hint();
        (self.status(), Json(Problem { error, hint })).into_response()
    }
}

/// Sends the request, and returns the text to show.
pub(crate) async fn perform(app: &App, run: &str, action: Action) -> Result<&'static str, Failure> {
    let id = run.to_owned();
    let find = move |monitor: &mut Monitor| {
        let end = monitor.run(&id).and_then(|run| run.end.as_ref());
        let end = end.filter(|end| end.outcome == Outcome::Complete);
        let message = end.map(|end| end.message.clone());
        Some((monitor.run_dir(&id)?.clone(), message))
    };
    let found = app.hub.ask(find).await.flatten();
    let (dir, complete) = found.ok_or(Failure::Unknown("run"))?;
    if let (Some(message), Action::Resume) = (complete, &action) {
        let message = format!("run {run} is done: {message}");
        return Err(Failure::Refused(Error::failed(message)));
    }
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

impl Back {
    fn path(&self, run: &str) -> String {
        if self.overview.is_some() { "/".to_owned() } else { run_path(run) }
    }
}

fn see_other(link: String) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, link)]).into_response()
}

fn run_path(run: &str) -> String {
    format!("/runs/{run}")
}

/// The client that sent a form.
pub(crate) struct FormClient {
    app: App,
    access: Access,
    wants_html: bool,
}

impl FromRequestParts<App> for FormClient {
    type Rejection = <Extension<Access> as FromRequestParts<App>>::Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let wants_html = wants_html(&parts.headers);
        let Extension(access) = Extension::from_request_parts(parts, app).await?;
        Ok(FormClient { app: app.clone(), access, wants_html })
    }
}

impl FormClient {
    /// Performs the action of a form on the run's own page.
    async fn perform(self, run: &str, action: Action) -> Response {
        let result = perform(&self.app, run, action).await;
        self.respond(&run_path(run), result)
    }

    /// Leads a browser back to the page; the script gets JSON.
    fn respond(&self, back: &str, result: Result<&'static str, Failure>) -> Response {
        match (result, self.wants_html) {
            (Ok(_), true) => see_other(self.app.link(back)),
            (Ok(requested), false) => Json(Requested { requested }).into_response(),
            (Err(failure), true) => {
                let (error, hint) = failure.message_and_hint();
                let page = layout::message_page(&self.app, self.access, &capitalize(&error), &hint);
                (failure.status(), Html(page)).into_response()
            }
            (Err(failure), false) => failure.into_response(),
        }
    }
}

pub(crate) async fn tell_form(
    client: FormClient,
    Path(id): Path<String>,
    Form(fields): Form<Fields>,
) -> Response {
    let delivery = match fields.when.as_str() {
        "now" => Delivery::Now,
        "every" => Delivery::Every,
        "next" | "" => Delivery::Next,
        _ => {
            let error = Error::input("when has to be next, now or every");
            return client.respond(&run_path(&id), Err(Failure::Refused(error)));
        }
    };
    client.perform(&id, Action::Tell { text: fields.text, delivery }).await
}

pub(crate) async fn pause_form(client: FormClient, Path(id): Path<String>) -> Response {
    client.perform(&id, Action::Pause).await
}

pub(crate) async fn resume_form(
    client: FormClient,
    Path(id): Path<String>,
    Query(back): Query<Back>,
) -> Response {
    let result = perform(&client.app, &id, Action::Resume).await;
    client.respond(&back.path(&id), result)
}

pub(crate) async fn stop_form(
    client: FormClient,
    Path(id): Path<String>,
    Form(fields): Form<Fields>,
) -> Response {
    client.perform(&id, Action::Stop { now: fields.now == "true" }).await
}

pub(crate) async fn answer_form(
    client: FormClient,
    Path(question): Path<String>,
    Query(back): Query<Back>,
    Form(fields): Form<Fields>,
) -> Response {
    let (run, result) = answer(&client.app, question, fields.text).await;
    client.respond(&back.path(&run), result)
}

/// Shows the form again, with its text, if the run does not start.
pub(crate) async fn new_run_form(client: FormClient, Form(form): Form<NewRunForm>) -> Response {
    let FormClient { app, access, wants_html } = client;
    match (new_run::start(&app, form.request()).await, wants_html) {
        (Ok(started), true) => see_other(app.link(&run_path(&started.run_id))),
        (Ok(started), false) => Json(Started::from(started)).into_response(),
        (Err(failure), true) => {
            let projects = new_run::known_projects(&app).await;
            let page = pages::new_run::page(&app, &projects, &form, Some(&failure));
            (failure.status(), Html(layout::render(&app, access, &page))).into_response()
        }
        (Err(failure), false) => failure.into_response(),
    }
}
