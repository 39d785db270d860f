//! Keeps pages current by server-sent events.
//!
//! A feed renders one view whenever it changes, once for all its clients. Each client gets the parts that it does not
//! have yet. A client that reads slowly skips what it missed: it holds one frame, and slows nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use maud::Markup;
use ralph_report::run_card::RunCard;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api;
use crate::app::App;
use crate::pages::frames;
use crate::pages::layout::Part;
use crate::pages::overview::Shown;
use crate::pages::run::Tab;
use crate::pages::transcript::Tail;
use crate::tokens::Access;

/// Shows that the connection is alive, also to proxies.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// A line that clients ignore.
pub(crate) const COMMENT: &str = ":\n\n";
/// Several events at once become one frame.
const MIN_INTERVAL: Duration = Duration::from_millis(40);
/// For views that start programs.
const SLOW_INTERVAL: Duration = Duration::from_secs(2);

/// A view that clients follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LiveView {
    Overview {
        access: Access,
        all: bool,
    },
    Run {
        id: String,
        tab: Tab,
        access: Access,
    },
    /// Cards as JSON.
    Api,
}

/// An element of a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LivePart {
    pub id: String,
    pub html: String,
    /// The element that it is added to if the page does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Never changes an element that is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub new: bool,
    #[serde(skip)]
    hash: u64,
}

impl LivePart {
    pub(crate) fn new(id: String, html: Markup) -> LivePart {
        LivePart::from_text(id, html.into_string())
    }

    pub(crate) fn from_text(id: String, html: String) -> LivePart {
        let mut hasher = DefaultHasher::new();
        html.hash(&mut hasher);
        LivePart { id, html, into: None, new: false, hash: hasher.finish() }
    }

    #[must_use]
    pub(crate) fn inside(self, parent: &str) -> LivePart {
        LivePart { into: Some(parent.to_owned()), ..self }
    }

    /// The content may change without a new message.
    #[must_use]
    pub(crate) fn only_new(self) -> LivePart {
        LivePart { new: true, hash: 0, ..self }
    }
}

impl From<Part> for LivePart {
    fn from(part: Part) -> LivePart {
        LivePart::from_text(part.id.to_owned(), part.html)
    }
}

/// The state of a run, for announcements.
#[derive(Debug, Clone)]
pub(crate) struct NamedState {
    id: String,
    name: String,
    word: &'static str,
}

impl NamedState {
    pub(crate) fn of(card: &RunCard) -> NamedState {
        NamedState { id: card.id.clone(), name: card.name.clone(), word: card.word() }
    }
}

/// A view at one moment.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub parts: Vec<LivePart>,
    pub title: String,
    /// The state of each run that the view shows.
    pub states: Vec<NamedState>,
    /// A change of state, in words.
    pub say: Option<String>,
    /// Counts the frames of a feed.
    pub number: u64,
}

type Feeds = HashMap<LiveView, watch::Sender<Arc<Frame>>>;

/// The running feeds. One without clients ends.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Feeds>);

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Feeds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn subscribe(app: &App, view: &LiveView) -> watch::Receiver<Arc<Frame>> {
    let mut feeds = app.feeds.lock();
    if let Some(feed) = feeds.get(view) {
        return feed.subscribe();
    }
    let (sender, receiver) = watch::channel(Arc::new(Frame::default()));
    feeds.insert(view.clone(), sender.clone());
    tokio::spawn(feed(app.clone(), view.clone(), sender));
    receiver
}

async fn feed(app: App, view: LiveView, sender: watch::Sender<Arc<Frame>>) {
    let mut changes = match &view {
        LiveView::Run { id, .. } => app.hub.changes_of(id),
        LiveView::Overview { .. } | LiveView::Api => app.hub.all_changes(),
    };
    let interval = match view {
        LiveView::Run { tab: Tab::Diff | Tab::Report, .. } => SLOW_INTERVAL,
        _ => MIN_INTERVAL,
    };
    let mut renderer = Renderer::default();
    let mut last = Frame::default();
    loop {
        changes.mark_unchanged();
        if let Some(mut frame) = renderer.render(&app, &view).await {
            frame.number = last.number + 1;
            frame.say = announcement(&last.states, &frame.states);
            last = Frame { states: frame.states.clone(), number: frame.number, ..Frame::default() };
            sender.send_replace(Arc::new(frame));
        }
        // Bounds the frames per second. A change after a quiet time is shown at once.
        tokio::time::sleep(interval).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { break },
            () = sender.closed() => {
                let mut feeds = app.feeds.lock();
                if sender.receiver_count() == 0 {
                    feeds.remove(&view);
                    break;
                }
            }
        }
    }
}

/// `reset-mail asks a question`, for each run whose state has changed.
fn announcement(before: &[NamedState], after: &[NamedState]) -> Option<String> {
    let old: HashMap<&str, &str> = before.iter().map(|run| (&*run.id, run.word)).collect();
    let changed = after.iter().filter(|run| old.get(&*run.id).is_some_and(|it| *it != run.word));
    let words: Vec<String> = changed
        .map(|NamedState { name, word, .. }| match *word {
            "asks" => format!("{name} asks a question"),
            word => format!("{name} is now {word}"),
        })
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// State of a feed that outlives a frame.
#[derive(Debug, Default)]
struct Renderer {
    tail: Option<Tail>,
}

impl Renderer {
    async fn render(&mut self, app: &App, view: &LiveView) -> Option<Frame> {
        match view {
            LiveView::Overview { access, all } => {
                frames::overview(app, Shown { access: *access, all: *all }).await
            }
            LiveView::Run { id, tab, access } => {
                frames::run(app, (id, *tab), *access, &mut self.tail).await
            }
            LiveView::Api => {
                let now_ms = app.now_ms();
                let cards = app.hub.ask(move |monitor| monitor.cards(now_ms)).await?;
                let part = |card| {
                    let run = api::Run::of(&card);
                    let json = serde_json::to_string(&run).unwrap_or_default();
                    LivePart::from_text(run.id, json)
                };
                Some(Frame { parts: cards.into_iter().map(part).collect(), ..Frame::default() })
            }
        }
    }
}

/// One client of a feed.
struct Client {
    frames: watch::Receiver<Arc<Frame>>,
    /// The hash of each part that it has.
    seen: HashMap<String, u64>,
    number: u64,
    is_json: bool,
}

impl Client {
    /// The parts that this client does not have. Forgets those that the view has no longer.
    fn new_parts<'f>(&mut self, frame: &'f Frame) -> Vec<&'f LivePart> {
        let is_new = |part: &&LivePart| self.seen.get(&part.id) != Some(&part.hash);
        let parts: Vec<&LivePart> = frame.parts.iter().filter(is_new).collect();
        self.seen = frame.parts.iter().map(|part| (part.id.clone(), part.hash)).collect();
        parts
    }

    async fn next(mut self) -> Option<(String, Client)> {
        loop {
            let frame = self.frames.borrow_and_update().clone();
            if frame.number > self.number {
                let is_first = self.number == 0;
                self.number = frame.number;
                let parts = self.new_parts(&frame);
                let text = match self.is_json {
                    true => parts.iter().map(|part| event_text("run", &part.html)).collect(),
                    false => page_update(&frame, &parts, is_first),
                };
                return Some((text, self));
            }
            match timeout(KEEP_ALIVE, self.frames.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some((COMMENT.to_owned(), self)),
            }
        }
    }
}

#[derive(Serialize)]
struct Update<'a> {
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    say: Option<&'a str>,
    parts: &'a [&'a LivePart],
}

fn page_update(frame: &Frame, parts: &[&LivePart], is_first: bool) -> String {
    let say = frame.say.as_deref().filter(|_| !is_first);
    let update = Update { title: &frame.title, say, parts };
    event_text("update", &serde_json::to_string(&update).unwrap_or_default())
}

/// JSON has no line ends, which would end the data.
fn event_text(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

pub(crate) fn stream(app: &App, view: &LiveView) -> Response {
    let client = Client {
        frames: subscribe(app, view),
        seen: HashMap::new(),
        number: 0,
        is_json: *view == LiveView::Api,
    };
    event_stream(stream::unfold(client, Client::next))
}

/// Answers with server-sent events. The next text is asked for when the client has taken the one before.
pub(crate) fn event_stream(texts: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(texts.map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_state_are_announced() {
        let run =
            |id: &str, word| NamedState { id: id.to_owned(), name: format!("name-{id}"), word };
        let before = [run("a", "working"), run("b", "working")];
        assert_eq!(announcement(&before, &before), None);
        // A run that turns up is seen in the list.
        assert_eq!(announcement(&[], &before), None);
        let after = [run("a", "asks"), run("b", "complete"), run("c", "working")];
        let text = announcement(&before, &after);
        assert_eq!(text.as_deref(), Some("name-a asks a question, name-b is now complete"));
    }

    #[test]
    fn client_gets_only_parts_it_does_not_have() {
        let (sender, frames) = watch::channel(Arc::new(Frame::default()));
        let mut client = Client { frames, seen: HashMap::new(), number: 0, is_json: false };
        let part = |id: &str, html: &str| LivePart::from_text(id.to_owned(), html.to_owned());
        let frame = |parts| Frame { parts, ..Frame::default() };
        let first = frame(vec![part("a", "1"), part("b", "1")]);
        assert_eq!(client.new_parts(&first).len(), 2);
        let second = frame(vec![part("a", "1"), part("b", "2")]);
        let ids: Vec<&str> = client.new_parts(&second).iter().map(|it| &*it.id).collect();
        assert_eq!(ids, ["b"]);
        // A skeleton is sent once, whatever it contains.
        let skeleton = |html| frame(vec![part("i1", html).only_new()]);
        assert_eq!(client.new_parts(&skeleton("1")).len(), 1);
        assert_eq!(client.new_parts(&skeleton("2")).len(), 0);
        drop(sender);
    }
}
