//! Every run, those that need a person first.

use maud::{Markup, html};
use ralph_events::text;
use ralph_report::overview::{CardGroup, Overview, SectionKind};
use ralph_report::run_card::{Attention, AttentionKind, RunCard};
use ralph_report::state_word::StateWord;
use ralph_store::requests::MAX_TEXT;

use super::charts;
use super::layout::{Page, Part};
use super::signs::{ago, capitalize, clock, money, plural, sign, sparkline, state_color, ticking};
use crate::app::App;
use crate::tokens::Access;

/// The choice of runs, and whether they can be steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    pub access: Access,
    /// Older runs as well.
    pub all: bool,
}

pub(crate) fn page(app: &App, shown: Shown, overview: &Overview) -> Page {
    let parts = parts(app, shown, overview);
    let live = if shown.all { "/live?all=1" } else { "/live" };
    Page {
        title: title(overview),
        live: Some(app.link(live)),
        body: html! {
            @if let [summary, needs_you, groups, chart] = parts.as_slice() {
                (summary.markup())
                div class="cols" {
                    div { (needs_you.markup()) (groups.markup()) }
                    (chart.markup())
                }
            } @else {
                @for part in &parts { (part.markup()) }
            }
        },
    }
}

/// `2 need you`.
pub(crate) fn title(overview: &Overview) -> String {
    match overview.needs_you {
        0 => String::new(),
        1 => "1 needs you".to_owned(),
        count => format!("{count} need you"),
    }
}

fn is_empty(overview: &Overview) -> bool {
    overview.sections.is_empty() && overview.older == 0 && overview.unreadable.is_empty()
}

/// One part on an empty page, else four in the order of the page.
pub(crate) fn parts(app: &App, shown: Shown, overview: &Overview) -> Vec<Part> {
    if is_empty(overview) {
        return vec![Part::new("empty", &empty())];
    }
    let needs_you = overview.section(SectionKind::NeedsYou);
    let others = overview.sections.iter().filter(|section| {
        section.kind != SectionKind::NeedsYou && (shown.all || section.kind != SectionKind::Older)
    });
    let groups = html! {
        @for section in others { (group(app, section, overview.now_ms)) }
        @for project in &overview.unreadable {
            p class="sub bad" { "Cannot read the runs of " (project.path) ": " (project.reason) }
        }
        @if overview.older > 0 && !shown.all {
            a class="all" href=(app.link("/?all=1")) { (plural(overview.older, "older run")) }
        }
    };
    vec![
        Part::new("sum", &summary(app, overview)),
        Part::new("needs", &attention_list(app, shown.access, overview.now_ms, needs_you)),
        Part::new("groups", &groups),
        Part::new("mon", &charts::cost_per_day(overview)),
    ]
}

fn summary(app: &App, overview: &Overview) -> Markup {
    let Overview { needs_you, working, waiting, .. } = overview;
    let money = overview.today_money();
    html! {
        div class="sum" {
            h1 {
                @if *needs_you > 0 { b { "needs you " (needs_you) } } @else { span { "needs you 0" } }
                " " span { "· working " (working) " · waiting " (waiting) }
            }
            div class="money" {
                p {
                    @if let Some(money) = &money { b { (money) } " today" }
                    @if let Some(reset) = overview.next_reset_ms {
                        @if money.is_some() { " · " }
                        "next reset " b { (clock(reset, &app.zone)) }
                    }
                }
            }
        }
    }
}

fn attention_list(app: &App, access: Access, now_ms: i64, cards: &[RunCard]) -> Markup {
    html! {
        @if !cards.is_empty() {
            section aria-labelledby="h-needs" {
                h2 id="h-needs" class="vh" { "Needs you" }
                @for card in cards {
                    (AttentionBox { app, access, now_ms, card, is_on_run_page: false }.render())
                }
            }
        }
    }
}

/// A run that needs a person, on the overview or on its own page.
#[derive(Clone, Copy)]
pub(crate) struct AttentionBox<'a> {
    pub app: &'a App,
    pub access: Access,
    pub now_ms: i64,
    pub card: &'a RunCard,
    pub is_on_run_page: bool,
}

impl AttentionBox<'_> {
    /// A question with its answer box, or a problem with the one thing to do.
    pub(crate) fn render(self) -> Markup {
        let Some(what) = &self.card.attention else { return html! {} };
        match (&what.question_id, what.kind) {
            (Some(id), _) => self.question(what, id),
            (None, AttentionKind::Problem) => self.problem(what),
            (None, _) => html! {
                div class="prob" {
                    (self.asker(what))
                    p { (what.text) }
                    p class="sub" { "A dialog on the agent's screen. Answer it there: " code { "ralph attach " (self.card.name) } }
                }
            },
        }
    }

    fn run_link(self) -> Markup {
        let AttentionBox { app, card, .. } = self;
        html! { a href=(app.link(&format!("/runs/{}", card.id))) { b { (card.name) } } }
    }

    /// `reset-mail asks 5 min ago, iteration 9`.
    fn asker(self, what: &Attention) -> Markup {
        html! {
            p class="who" {
                (sign("?", "a")) (self.run_link()) " asks "
                span class="sub" { (ago(what.since_ms, self.now_ms)) ", iteration " (what.iteration) }
            }
        }
    }

    fn question(self, what: &Attention, id: &str) -> Markup {
        let AttentionBox { app, access, card, .. } = self;
        let (heading, field) = (format!("q-{id}"), format!("a-{id}"));
        let class = if self.is_on_run_page { "ask runask" } else { "ask" };
        let inner = html! {
            (self.asker(what))
            p class="q" id=(heading) { (what.text) }
            @if !what.context.is_empty() { p class="ctx" { (what.context) } }
        };
        if access == Access::ReadOnly {
            return html! { div class=(class) id={ "ask-" (id) } { (inner) } };
        }
        html! {
            form class=(class) id={ "ask-" (id) } method="post" action=(app.link(&format!("/questions/{id}/answer{}", self.back()))) aria-labelledby=(heading) data-say="answered" {
                (inner)
                div class="ansr" {
                    label class="vh" for=(field) { "Your answer" }
                    textarea id=(field) name="text" rows="1" required placeholder="Your answer" maxlength=(MAX_TEXT) {}
                    button class="pri" { "Answer" }
                }
                p class="sub" { "Goes into iteration " (card.iteration + 1) ". " (meanwhile(card)) }
            }
        }
    }

    /// The query that says where a form leads back to.
    fn back(self) -> &'static str {
        if self.is_on_run_page { "" } else { "?overview=1" }
    }

    fn problem(self, what: &Attention) -> Markup {
        let AttentionBox { app, access, card, .. } = self;
        let remedy = match what.remedy {
            "" => String::new(),
            remedy => format!(" {remedy}, then resume."),
        };
        let money = money(&card.cost);
        html! {
            div class="prob" {
                p class="who" {
                    (sign("!", "f")) (self.run_link()) " " (card.word()) " "
                    span class="sub" { (ago(what.since_ms, self.now_ms)) ", " (card.project) }
                }
                p { (what.text) (remedy) }
                div class="acts" {
                    @if access == Access::Full && !card.is_removed {
                        form method="post" action=(app.link(&format!("/runs/{}/resume{}", card.id, self.back()))) data-say="resuming" {
                            button class="btn" { "Resume" }
                        }
                    }
                    span class="sub" {
                        "Iteration " (card.iteration)
                        @if card.max_iterations > 0 { " of " (card.max_iterations) }
                        @if !money.is_empty() { ", " (money) }
                        ". Nothing is lost."
                    }
                }
            }
        }
    }
}

fn meanwhile(card: &RunCard) -> &'static str {
    if card.is_parked { "The run waits for it." } else { "The run continues meanwhile." }
}

fn group(app: &App, section: &CardGroup, now_ms: i64) -> Markup {
    let title = section.kind.title();
    let id = format!("h-{}", title.replace(' ', "-"));
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (capitalize(title)) }
            ul class="rows" { @for card in &section.cards { (row(app, card, now_ms)) } }
        }
    }
}

fn row(app: &App, card: &RunCard, now_ms: i64) -> Markup {
    let class = match (card.state, card.ended_ms.is_some()) {
        (StateWord::Working, _) => "row w",
        (StateWord::Complete, _) => "row d",
        (StateWord::Failed | StateWord::Interrupted, _) => "row d x",
        (_, true) => "row d s",
        _ => "row o",
    };
    let place = match &card.branch {
        Some(branch) => format!("{} · {branch}", card.project),
        None => card.project.clone(),
    };
    let is_ticking = card.is_alive && card.state == StateWord::Working;
    let elapsed_from = is_ticking.then(|| elapsed_from(card, now_ms));
    html! {
        li class=(class) id={ "run-" (card.id) } {
            a href=(app.link(&format!("/runs/{}", card.id))) {
                (sign(card.sign(), state_color(card.state)))
                span class="nm" {
                    b title=(card.name) { (card.name) }
                    span class="sub" { (place) }
                }
                span class="now" { span class="vh" { (card.word()) ": " } (now(card, now_ms)) }
                (sparkline(card))
                span class="n it" { span class="vh" { "iteration " } (card.progress()) }
                span class="n ti" { (ticking(&card.elapsed(), elapsed_from, true)) }
                span class="n co" { (money(&card.cost)) }
            }
        }
    }
}

/// The moment from which a clock shows the working time.
pub(crate) fn elapsed_from(card: &RunCard, now_ms: i64) -> i64 {
    now_ms - i64::try_from(card.elapsed_ms).unwrap_or(0)
}

/// Paths lose their beginning at this width; the page cuts the rest.
const NOW_COLUMNS: usize = 26;

/// The current activity of a run. The time stays when the rest is cut.
fn now(card: &RunCard, now_ms: i64) -> Markup {
    if let Some(note) = card.note.as_deref().filter(|_| card.is_removed) {
        return html! { span class="tx" { (note) } };
    }
    let shown = card.now.fit(NOW_COLUMNS, "…");
    let shown = shown.strip_suffix(&card.now.time).unwrap_or(&shown).trim_end();
    let left = card.wait_until_ms.map(|until| {
        let left_ms = u64::try_from(until - now_ms).unwrap_or(0);
        (until, text::format_minutes(left_ms))
    });
    let left = left.as_ref().and_then(|(until, left)| Some((until, left, shown.split_once(left)?)));
    html! {
        span class="tx" title=(card.now.text()) {
            @match left {
                Some((until, left, (before, after))) => { (before) span data-until=(until) { (left) } (after) },
                None => (shown),
            }
        }
        @if !card.now.time.is_empty() {
            " " span class="tm" { (ticking(&card.now.time, card.now.since_ms, false)) }
        }
    }
}

fn empty() -> Markup {
    html! {
        div class="none" {
            h1 { "No runs on this machine yet" }
            p class="sub" { "They show up here as soon as they start. In a git repository:" }
            pre tabindex="0" { "ralph run -n 5 -p \"Make the tests pass. Then answer DONE.\"" }
            p class="sub" { "Or watch an example, without account or cost:" }
            pre tabindex="0" { "ralph demo --serve" }
        }
    }
}
