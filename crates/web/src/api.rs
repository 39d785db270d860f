//! The JSON interface. Its description is generated from these types.

use std::fmt::Write as _;
use std::io;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::stream;
use ralph_events::error::Error;
use ralph_monitor::actions::Delivery;
use ralph_monitor::{EventReader, Monitor, StartedRun};
use ralph_report::run_card::{BarResult, RunCard};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;
use utoipa::{IntoParams, OpenApi, ToSchema};

use crate::actions::{self, Action, Failure, Problem, Requested};
use crate::app::{App, blocking};
use crate::live;
use crate::new_run::{self, RunRequest};

/// Journal lines that are read for a client at once.
const CHUNK: usize = 16 * 1024;

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Run {
    pub id: String,
    pub name: String,
    /// The name of the project's directory.
    pub project: String,
    pub directory: String,
    pub branch: Option<String>,
    pub agent: String,
    pub sandboxed: bool,
    /// working, waiting, paused, asks, complete, ended, failed or interrupted
    pub state: &'static str,
    /// needs you, working, waiting or done
    pub group: &'static str,
    /// The process of the run is alive.
    pub alive: bool,
    /// Its current activity, or how it ended.
    pub now: String,
    pub iteration: u32,
    /// 0 for no limit.
    pub max_iterations: u32,
    /// Working time, without pauses.
    pub elapsed_ms: u64,
    /// `None` if the agent does not report it.
    pub cost_usd: Option<f64>,
    /// A part of the cost is estimated from tokens.
    pub cost_is_estimate: bool,
    pub budget_usd: Option<f64>,
    pub tokens: u64,
    pub attention: Option<Attention>,
    pub stories: Option<Progress>,
    pub checks: Option<Progress>,
    pub started_ms: Option<i64>,
    pub ended_ms: Option<i64>,
    pub iterations: Vec<Iteration>,
}

/// The reason why a run needs a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Attention {
    /// The question, or what broke.
    pub text: String,
    pub context: String,
    pub since_ms: i64,
    pub iteration: u32,
    pub question_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// Stories that are done, or checks that pass.
    pub done: u32,
    pub total: u32,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Iteration {
    pub number: u32,
    pub duration_ms: u64,
    /// passed, failed, interrupted or running
    pub result: &'static str,
    pub cost_usd: Option<f64>,
}

/// An open question.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Question {
    pub id: String,
    /// The id of the run.
    pub run: String,
    /// The first line is the question, the rest its context.
    pub text: String,
    pub asked_ms: i64,
    pub iteration: u32,
}

/// A run that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Started {
    pub name: String,
    /// The id of the run.
    pub run: String,
}

impl From<StartedRun> for Started {
    fn from(run: StartedRun) -> Started {
        Started { name: run.name, run: run.run_id }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tell {
    pub text: String,
    /// Ends the agent and restarts the iteration with the guidance.
    #[serde(default)]
    pub now: bool,
    /// Repeats it in every following prompt.
    #[serde(default)]
    pub every: bool,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    /// At once, or after the current iteration.
    #[serde(default)]
    pub now: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub text: String,
}

impl Run {
    pub(crate) fn of(card: &RunCard) -> Run {
        let progress = |(done, total)| Progress { done, total };
        Run {
            id: card.id.clone(),
            name: card.name.clone(),
            project: card.project.clone(),
            directory: card.directory.clone(),
            branch: card.branch.clone(),
            agent: card.agent.clone(),
            sandboxed: card.sandboxed,
            state: card.state.as_str(),
            group: card.group.as_str(),
            alive: card.is_alive,
            now: card.now.to_string(),
            iteration: card.iteration,
            max_iterations: card.max_iterations,
            elapsed_ms: card.elapsed_ms,
            cost_usd: card.cost.usd(),
            cost_is_estimate: card.cost.estimated.is_some(),
            budget_usd: card.budget_usd,
            tokens: card.tokens,
            attention: card.attention.as_ref().map(|what| Attention {
                text: what.text.clone(),
                context: what.context.clone(),
                since_ms: what.since_ms,
                iteration: what.iteration,
                question_id: what.question_id.clone(),
            }),
            stories: card.stories.map(progress),
            checks: card.checks.map(progress),
            started_ms: card.started_ms,
            ended_ms: card.ended_ms,
            iterations: card.bars.iter().map(Iteration::of).collect(),
        }
    }
}

impl Iteration {
    fn of(bar: &ralph_report::run_card::Bar) -> Iteration {
        Iteration {
            number: bar.iteration,
            duration_ms: bar.duration_ms,
            result: match bar.result {
                BarResult::Passed => "passed",
                BarResult::Failed => "failed",
                BarResult::Interrupted => "interrupted",
                BarResult::Running => "running",
            },
            cost_usd: bar.cost.usd(),
        }
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ralph serve",
        description = "Every run on this machine. Send `Authorization: Bearer TOKEN`."
    ),
    paths(runs, start, run, events, changes, tell, pause, resume, stop, questions, answer)
)]
struct Description;

pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}

type ActionResult = Result<Json<Requested>, Failure>;

async fn perform(app: &App, run: &str, action: Action) -> ActionResult {
    actions::perform(app, run, action).await.map(|requested| Json(Requested { requested }))
}

/// Every run whose journal was read: active ones, and those of the last two weeks.
#[utoipa::path(get, path = "/api/runs", responses((status = 200, body = Vec<Run>)))]
pub(crate) async fn runs(State(app): State<App>) -> Json<Vec<Run>> {
    let now_ms = app.now_ms();
    let cards = app.hub.ask(move |monitor| monitor.cards(now_ms)).await.unwrap_or_default();
    Json(cards.iter().rev().map(Run::of).collect())
}

/// Starts a run in the background, in a project that has runs already.
#[utoipa::path(post, path = "/api/runs", request_body = RunRequest,
    responses((status = 201, body = Started), (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn start(
    State(app): State<App>,
    body: Bytes,
) -> Result<(StatusCode, Json<Started>), Failure> {
    let started = new_run::start(&app, parse(&body)?).await?;
    Ok((StatusCode::CREATED, Json(started.into())))
}

#[utoipa::path(get, path = "/api/runs/{id}", params(("id" = String, Path,)),
    responses((status = 200, body = Run), (status = 404, body = Problem)))]
pub(crate) async fn run(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Run>, Failure> {
    let now_ms = app.now_ms();
    let card = app.hub.ask(move |monitor| {
        // Reads the journal of an older run.
        monitor.run(&id)?;
        monitor.card(&id, now_ms)
    });
    let card = card.await.flatten().ok_or(Failure::Unknown("run"))?;
    Ok(Json(Run::of(&card)))
}

/// A run as server-sent events of the name `run`, whenever one changes.
#[utoipa::path(get, path = "/api/events",
    responses((status = 200, body = Run, content_type = "text/event-stream")))]
pub(crate) async fn changes(State(app): State<App>) -> Response {
    live::stream(&app, &live::LiveView::Api)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Like `Last-Event-ID`, for clients that cannot set a header.
    from: Option<u64>,
}

/// The journal of a run as server-sent events, from its beginning or from `Last-Event-ID` on.
///
/// The id of an event is the position of its end in the journal. See the journal's reference for the content.
#[utoipa::path(get, path = "/api/runs/{id}/events",
    params(("id" = String, Path,), ("Last-Event-ID" = Option<u64>, Header,), EventQuery),
    responses((status = 200, body = Object, content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(crate) async fn events(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(query): Query<EventQuery>,
) -> Result<Response, Failure> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let position = last.or(query.from).unwrap_or(0);
    // Before the journal is opened: what is written in between must wake us.
    let changes = app.hub.changes_of(&id);
    let dir = app.hub.ask(move |monitor| monitor.run_dir(&id).cloned()).await.flatten();
    let dir = dir.ok_or(Failure::Unknown("run"))?;
    let reader = blocking(move || EventReader::open(&dir, position).ok()).await.flatten();
    let reader = reader.ok_or(Failure::Unknown("run"))?;
    Ok(live::event_stream(stream::unfold(Lines { reader, changes }, Lines::next)))
}

/// The position of one client in a journal. It reads when the client has taken what it had, so that a slow one costs
/// no memory.
struct Lines {
    reader: EventReader,
    changes: watch::Receiver<u64>,
}

impl Lines {
    async fn next(mut self) -> Option<(String, Lines)> {
        loop {
            self.changes.mark_unchanged();
            let Lines { mut reader, changes } = self;
            let (text, reader) =
                blocking(move || Some((read(&mut reader).ok()?, reader))).await??;
            self = Lines { reader, changes };
            if !text.is_empty() {
                return Some((text, self));
            }
            match timeout(live::KEEP_ALIVE, self.changes.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some((live::COMMENT.to_owned(), self)),
            }
        }
    }
}

fn read(reader: &mut EventReader) -> io::Result<String> {
    let mut text = String::new();
    for line in reader.read(CHUNK)? {
        // Event data must not have line ends.
        let data = String::from_utf8_lossy(&line.bytes).replace('\r', " ");
        let _ = write!(text, "id: {}\ndata: {data}\n\n", line.end);
    }
    Ok(text)
}

/// Empty bodies mean the defaults.
fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|err| Failure::Refused(Error::input(format!("the body is not valid: {err}"))))
}

/// Adds guidance to the next prompt.
#[utoipa::path(post, path = "/api/runs/{id}/tell", params(("id" = String, Path,)), request_body = Tell,
    responses((status = 200, body = Requested), (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn tell(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> ActionResult {
    let Tell { text, now, every } = parse(&body)?;
    let delivery = match (now, every) {
        (true, true) => {
            let message = "`now` and `every` exclude each other";
            return Err(Failure::Refused(Error::input(message)));
        }
        (true, false) => Delivery::Now,
        (false, true) => Delivery::Every,
        (false, false) => Delivery::Next,
    };
    perform(&app, &id, Action::Tell { text, delivery }).await
}

/// Pauses a run after the current iteration.
#[utoipa::path(post, path = "/api/runs/{id}/pause", params(("id" = String, Path,)),
    responses((status = 200, body = Requested), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn pause(State(app): State<App>, Path(id): Path<String>) -> ActionResult {
    perform(&app, &id, Action::Pause).await
}

/// Continues a paused run, or one whose process is gone.
#[utoipa::path(post, path = "/api/runs/{id}/resume", params(("id" = String, Path,)),
    responses((status = 200, body = Requested), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn resume(State(app): State<App>, Path(id): Path<String>) -> ActionResult {
    perform(&app, &id, Action::Resume).await
}

/// Ends a run after the current iteration, or at once.
#[utoipa::path(post, path = "/api/runs/{id}/stop", params(("id" = String, Path,)), request_body = Stop,
    responses((status = 200, body = Requested), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn stop(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> ActionResult {
    let Stop { now } = parse(&body)?;
    perform(&app, &id, Action::Stop { now }).await
}

/// Open questions of all runs, oldest first.
#[utoipa::path(get, path = "/api/questions", responses((status = 200, body = Vec<Question>)))]
pub(crate) async fn questions(State(app): State<App>) -> Json<Vec<Question>> {
    let open = |monitor: &mut Monitor| {
        let mut open = Vec::new();
        for id in monitor.ids().map(str::to_owned).collect::<Vec<_>>() {
            let state = monitor.state(&id).filter(|state| state.end.is_none());
            let questions = state.map(|state| state.steering.open_questions());
            open.extend(questions.into_iter().flatten().map(|question| Question {
                id: question.id.clone(),
                run: id.clone(),
                text: ralph_events::control_chars::strip_control_chars(&question.text),
                asked_ms: question.asked_ms,
                iteration: question.iteration,
            }));
        }
        open.sort_by_key(|question| question.asked_ms);
        open
    };
    Json(app.hub.ask(open).await.unwrap_or_default())
}

/// Answers a question.
#[utoipa::path(post, path = "/api/questions/{id}/answer", params(("id" = String, Path,)), request_body = Answer,
    responses((status = 200, body = Requested), (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn answer(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> ActionResult {
    let Answer { text } = parse(&body)?;
    let (_, result) = actions::answer(&app, id, text).await;
    result.map(|requested| Json(Requested { requested }))
}
