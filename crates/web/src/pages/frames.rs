//! Pages as the live stream sends them.

use super::activity::{self, Context};
use super::layout::Part;
use super::overview::{self, Shown};
use super::run::{self, RunPage, Tab};
use super::run_data::RunData;
use super::tab_body;
use super::transcript::Tail;
use crate::app::{App, blocking};
use crate::live::{Frame, LivePart, NamedState};
use crate::tokens::Access;

/// Blocks of a transcript that are kept current.
const LIVE_BLOCKS: usize = 60;

pub(crate) async fn overview(app: &App, shown: Shown) -> Option<Frame> {
    let now_ms = app.now_ms();
    let overview = app.hub.ask(move |monitor| monitor.overview(now_ms)).await?;
    Some(Frame {
        title: overview::title(&overview),
        states: overview.cards().map(NamedState::of).collect(),
        parts: live_parts(overview::parts(app, shown, &overview)).collect(),
        ..Frame::default()
    })
}

/// `tail` is kept between frames.
pub(crate) async fn run(
    app: &App,
    (id, tab): (&str, Tab),
    access: Access,
    tail: &mut Option<Tail>,
) -> Option<Frame> {
    let data = RunData::load(app, id, tab).await?;
    let (card, checked) = (data.card.clone(), data.checked.clone());
    let view = RunPage::new(app, access, tab, (&card, &checked));
    let mut parts: Vec<LivePart> = Vec::new();
    let mut lines = None;
    if tab == Tab::Activity {
        let (dir, directory, old) = (data.dir, card.directory.clone(), tail.take());
        *tail = blocking(move || Tail::open_or_update(old, &dir, &directory)).await.flatten();
        if let Some(tail) = tail {
            let context = Context { card: &card, stories: &data.stories, zone: &app.zone };
            parts = activity::parts(tail.recent(), context, LIVE_BLOCKS);
            parts.push(LivePart::new("todo".to_owned(), activity::todo(tail.todo())));
        }
    } else {
        let (body, changed_lines) = tab_body::render(app, data).await;
        lines = changed_lines;
        parts.push(LivePart::new(tab_body::ID.to_owned(), tab_body::part(&body)));
    }
    let view = RunPage { changed_lines: lines, ..view };
    let head = run::head_parts(view).into_iter().chain([run::tabs_part(view)]);
    let parts = live_parts(head).chain(parts).collect();
    let title = run::page_title(&card);
    Some(Frame { parts, title, states: vec![NamedState::of(&card)], ..Frame::default() })
}

fn live_parts(parts: impl IntoIterator<Item = Part>) -> impl Iterator<Item = LivePart> {
    parts.into_iter().map(LivePart::from)
}
