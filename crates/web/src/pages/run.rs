//! The head of a run's pages: figures, iteration bars, the question, tabs.

use maud::{Markup, html};
use ralph_events::text;
use ralph_report::run_card::{Bar, RunCard};
use ralph_report::state_word::StateWord;
use ralph_store::requests::MAX_TEXT;

use super::layout::{Page, Part};
use super::overview::{AttentionBox, elapsed_from};
use super::signs::{CheckedIterations, bar_class, clock, money, sign, ticking};
use crate::app::App;
use crate::tokens::Access;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tab {
    Activity,
    Stories,
    Diff,
    Checks,
    Costs,
    Report,
}

pub(crate) const TABS: [Tab; 6] =
    [Tab::Activity, Tab::Stories, Tab::Diff, Tab::Checks, Tab::Costs, Tab::Report];

impl Tab {
    pub(crate) fn from_name(name: &str) -> Option<Tab> {
        TABS.into_iter().find(|tab| tab.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        self.words().0
    }

    fn title(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Tab::Activity => ("activity", "Activity"),
            Tab::Stories => ("stories", "Stories"),
            Tab::Diff => ("diff", "Diff"),
            Tab::Checks => ("checks", "Checks"),
            Tab::Costs => ("costs", "Costs"),
            Tab::Report => ("report", "Report"),
        }
    }

    /// The first tab is the run's own page.
    pub(crate) fn link(self, app: &App, run: &str) -> String {
        match self {
            Tab::Activity => app.link(&format!("/runs/{run}")),
            _ => app.link(&format!("/runs/{run}/{}", self.name())),
        }
    }
}

/// The input of the head of a run's page.
#[derive(Clone, Copy)]
pub(crate) struct RunPage<'a> {
    pub app: &'a App,
    pub access: Access,
    pub tab: Tab,
    pub card: &'a RunCard,
    pub checked: &'a CheckedIterations,
    /// Added and removed lines, if they are known.
    pub changed_lines: Option<(u64, u64)>,
    pub now_ms: i64,
}

impl<'a> RunPage<'a> {
    pub(crate) fn new(
        app: &'a App,
        access: Access,
        tab: Tab,
        (card, checked): (&'a RunCard, &'a CheckedIterations),
    ) -> RunPage<'a> {
        RunPage { app, access, tab, card, checked, changed_lines: None, now_ms: app.now_ms() }
    }
}

/// `body` is the content of the tab.
pub(crate) fn page(view: RunPage<'_>, body: &Markup) -> Page {
    let RunPage { app, card, tab, .. } = view;
    let class = (tab != Tab::Activity).then_some("tab");
    let live = format!("/runs/{}/live?tab={}", card.id, tab.name());
    Page {
        title: page_title(card),
        live: Some(app.link(&live)),
        body: html! {
            div id="rh" class=[class] data-run=(card.id) data-name=(card.name) { @for part in head_parts(view) { (part.markup()) } }
            (tabs_part(view).markup())
            (body)
        },
    }
}

/// `asks · reset-mail` if it needs a person.
pub(crate) fn page_title(card: &RunCard) -> String {
    match card.attention {
        Some(_) => format!("{} · {}", card.word(), card.name),
        None => card.name.clone(),
    }
}

pub(crate) fn head_parts(view: RunPage<'_>) -> Vec<Part> {
    vec![
        Part::new("rtop", &top(view)),
        Part::new("rfig", &figures(view)),
        Part::new("rask", &question(view)),
    ]
}

fn top(view: RunPage<'_>) -> Markup {
    let RunPage { app, access, card, .. } = view;
    let action = |name: &str| app.link(&format!("/runs/{}/{name}", card.id));
    let is_open = card.is_alive && card.ended_ms.is_none();
    let mut places = vec![card.project.clone()];
    places.extend(card.branch.clone());
    places.push(card.agent.clone());
    if card.sandboxed {
        places.push("sandbox".to_owned());
    }
    places.retain(|place| !place.is_empty());
    html! {
        div class="bk" {
            a class="back" href=(app.link("/")) { "‹ All runs" }
            @if access == Access::Full && !card.is_removed {
                @if is_open && card.state == StateWord::Paused {
                    form method="post" action=(action("resume")) data-say="resuming" { button class="btn" id="b-resume" { "Resume" } }
                } @else if is_open && (card.is_pausing || card.is_stopping) {
                    span class="sub wait" { (card.word()) "…" }
                } @else if is_open {
                    form method="post" action=(action("pause")) data-say="pausing" { button class="btn" id="b-pause" { "Pause" } }
                } @else if can_resume(card) {
                    form method="post" action=(action("resume")) data-say="resuming" { button class="btn" id="b-resume" { "Resume" } }
                }
                @if is_open { a class="btn no" id="b-stop" href=(action("stop")) { "Stop…" } }
            }
        }
        div class="rh" {
            h1 { (card.name) }
            p class="sub" {
                @if !matches!(card.state, StateWord::Working | StateWord::Asks) { b class="word" { (card.word()) } " · " }
                (places.join(" · "))
            }
            @if let Some(note) = &card.note { p class="sub note" { (note) } }
            @if let Some(percent) = card.reading { p class="sub" { "reading, " (percent) " %" } }
        }
    }
}

/// Every run but a complete one can be continued.
fn can_resume(card: &RunCard) -> bool {
    card.state != StateWord::Complete
}

fn figures(view: RunPage<'_>) -> Markup {
    let card = view.card;
    let runs = card.is_alive && card.ended_ms.is_none() && card.state != StateWord::Paused;
    let from = (runs && card.wait_until_ms.is_none()).then(|| elapsed_from(card, view.now_ms));
    let cost = money(&card.cost);
    html! {
        div class="top2" {
            dl class="facts" {
                div { dt { "Iteration" } dd { (card.iteration) @if card.max_iterations > 0 { span { "/" (card.max_iterations) } } } }
                div { dt { "Time" } dd { (ticking(&card.elapsed(), from, true)) } }
                div {
                    dt { "Cost" }
                    dd {
                        @if cost.is_empty() { span { "unknown" } } @else { (cost) }
                        @if let Some(budget) = card.budget_usd { " " span { "/ " (short_dollars(budget)) } }
                    }
                }
                @if let Some((done, total)) = card.stories {
                    div { dt { "Stories" } dd { (done) span { "/" (total) } } }
                } @else if let Some((passing, total)) = card.checks {
                    div { dt { "Checks" } dd { (passing) span { "/" (total) } } }
                }
            }
            @if !card.bars.is_empty() { (strip(view)) }
        }
    }
}

/// `$10`, `$2.50`.
fn short_dollars(usd: f64) -> String {
    if usd.fract() == 0.0 { format!("${usd:.0}") } else { text::format_dollars(usd) }
}

/// Each bar leads to its iteration.
fn strip(view: RunPage<'_>) -> Markup {
    let RunPage { app, card, checked, .. } = view;
    let longest = card.longest_bar_ms().max(1);
    let height = |bar: &Bar| (bar.duration_ms as f64 / longest as f64 * 100.0).max(4.0);
    let label = |bar: &Bar| {
        let took = text::format_duration(bar.duration_ms);
        let money = money(&bar.cost);
        let money = if money.is_empty() { money } else { format!(", {money}") };
        format!("Iteration {}: {took}{money}, {}", bar.iteration, checked.word(bar))
    };
    html! {
        div class="bars" tabindex="0" role="group" aria-label="Iterations" {
            ol class="strip" {
                @for bar in &card.bars {
                    li {
                        a href={ (Tab::Activity.link(app, &card.id)) "?from=" (bar.iteration) "#i" (bar.iteration) } aria-label=(label(bar)) {
                            svg aria-hidden="true" {
                                rect class=(bar_class(bar.result)) width="100%" rx="1" y={ (format!("{:.1}", 100.0 - height(bar))) "%" } height={ (format!("{:.1}", height(bar))) "%" } {}
                            }
                            span { (bar.iteration) }
                        }
                    }
                }
            }
        }
        p class="key" {
            (key("p", checked.passed_key(&card.bars))) (key("f", "failed")) (key("n", "running"))
        }
    }
}

fn key(class: &str, text: &str) -> Markup {
    html! {
        span { svg aria-hidden="true" { rect class=(class) width="9" height="9" rx="2" {} } (text) }
    }
}

fn question(view: RunPage<'_>) -> Markup {
    let RunPage { app, access, card, now_ms, tab, .. } = view;
    let Some(what) = &card.attention else { return html! {} };
    html! {
        (AttentionBox { app, access, now_ms, card, is_on_run_page: true }.render())
        @if what.question_id.is_some() && tab != Tab::Activity {
            a class="one" href=(Tab::Activity.link(app, &card.id)) {
                (sign("?", "a"))
                span { b { "asks" } " " (what.text) }
                span class="sub" { "Answer ›" }
            }
        }
    }
}

pub(crate) fn tabs_part(view: RunPage<'_>) -> Part {
    let RunPage { app, card, tab: current, .. } = view;
    let count = |tab: Tab| match tab {
        Tab::Stories => card.stories.map(|(done, total)| format!("{done}/{total}")),
        Tab::Diff => view.changed_lines.map(|(added, removed)| format!("+{added} −{removed}")),
        Tab::Checks => card.checks.map(|(passing, total)| format!("{passing}/{total}")),
        _ => None,
    };
    let nav = html! {
        nav class="tabs" aria-label="Run" {
            @for tab in TABS {
                a href=(tab.link(app, &card.id)) aria-current=[(tab == current).then_some("page")] {
                    (tab.title()) @if let Some(count) = count(tab) { span { (count) } }
                }
            }
        }
    };
    Part { id: "tabs", html: html! { div id="tabs" class="tabbar" { (nav) } }.into_string() }
}

/// The box for guidance, and what else is known of the run.
pub(crate) fn side(view: RunPage<'_>) -> Markup {
    let RunPage { app, access, card, .. } = view;
    let can_tell =
        access == Access::Full && !card.is_removed && can_resume(card) && card.reading.is_none();
    html! {
        div class="side" {
            dl class="info" {
                @if let Some(started) = card.started_ms {
                    dt { "Started" }
                    dd { (clock(started, &app.zone)) ", " (super::signs::local(started, &app.zone, "%-d %B")) }
                }
                dt { "Agent" } dd { (card.agent) @if card.tokens > 0 { ", " (text::format_count(card.tokens)) " tokens" } }
                dt { "Directory" } dd { (card.directory) }
                dt { "Run" } dd { code { (card.id) } }
            }
            @if can_tell {
                form class="comp" id="tellbox" method="post" action=(app.link(&format!("/runs/{}/tell", card.id))) aria-label="Tell the agent" data-say="sent" {
                    h2 { "Tell the agent" }
                    div class="in" {
                        label class="vh" for="tell" { "Guidance for the agent" }
                        textarea id="tell" name="text" rows="1" required placeholder="Tell the agent…" maxlength=(MAX_TEXT) {}
                        button class="pri" { "Send" }
                    }
                    fieldset {
                        legend class="vh" { "When" }
                        label { input type="radio" name="when" value="next" checked; "next iteration" }
                        label { input type="radio" name="when" value="now"; "now" }
                        label { input type="radio" name="when" value="every"; "every iteration" }
                    }
                    p class="sub told" role="status" {}
                }
            }
        }
    }
}

/// The dialog of "Stop…", as a page of its own too.
pub(crate) fn stop_form(app: &App, card: &RunCard) -> Markup {
    let action = |name: &str| app.link(&format!("/runs/{}/{name}", card.id));
    let iteration = card.iteration;
    html! {
        h2 id="dlg" { "Stop " (card.name) "?" }
        p class="sub" {
            "Iteration " (iteration) " is running: " (card.now) ". In each case the run can be resumed."
        }
        form method="post" action=(action("stop")) data-say="stopping" {
            button class="pri" name="now" value="false" {
                "Finish iteration " (iteration) ", then stop"
                @if let Some(rest) = card.stop_estimate() { span { "about " (rest) } }
            }
        }
        form method="post" action=(action("stop")) data-say="stopping" {
            button class="btn no" name="now" value="true" {
                "End it now" span { "ends the agent and everything it started; files stay as they are, unchecked" }
            }
        }
        form method="post" action=(action("pause")) data-say="pausing" {
            button class="btn" { "Pause after iteration " (iteration) span { "keeps its place, costs nothing" } }
        }
        a class="btn leave" href=(Tab::Activity.link(app, &card.id)) { "Leave it running" }
    }
}
