//! One run in a list: what every screen shows of it.

mod estimate;

pub use estimate::Estimate;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::check_view;
use crate::run_table::cost_text;
use crate::state_word::{Group, StateWord};
use crate::status_line::{format_span, one_line, tool_subject};
use crate::terminal::plural;
use crate::time_text::format_local;
use crate::width;
use ralph_events::event::{Isolation, Outcome, Purpose, WaitReason};
use ralph_events::run_state::{
    Activity, Cost, GuardrailResult, IterationRecord, IterationResult, OpenTool, Question, RunState,
};
use ralph_events::text;

/// What a journal does not say about its run.
#[derive(Debug, Clone, Copy)]
pub struct CardContext<'a> {
    /// The name of the run's directory.
    pub id: &'a str,
    /// The name of the project's directory.
    pub project: &'a str,
    /// For journals without a name.
    pub fallback_name: Option<&'a str>,
    /// The process of the run is alive.
    pub is_alive: bool,
    /// The run directory was removed.
    pub is_removed: bool,
    /// Percent of the journal that was read, while figures are not final.
    pub reading: Option<u8>,
    pub now_ms: i64,
    pub zone: &'a TimeZone,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunCard {
    pub id: String,
    pub name: String,
    pub project: String,
    pub directory: String,
    pub branch: Option<String>,
    pub agent: String,
    pub sandboxed: bool,
    pub state: StateWord,
    pub group: Group,
    /// It pauses or stops once the current step has ended.
    pub is_pausing: bool,
    pub is_stopping: bool,
    pub is_alive: bool,
    pub pid: u32,
    pub iteration: u32,
    /// 0 for no limit.
    pub max_iterations: u32,
    /// Working time, without pauses.
    pub elapsed_ms: u64,
    pub cost: Cost,
    pub budget_usd: Option<f64>,
    pub tokens: u64,
    pub bars: Vec<Bar>,
    pub now: NowText,
    pub attention: Option<Attention>,
    /// Done, and all.
    pub stories: Option<(u32, u32)>,
    /// Checks whose last result is a pass, and all.
    pub checks: Option<(u32, u32)>,
    pub started_ms: Option<i64>,
    /// When it ended, or was last alive if it was killed.
    pub ended_ms: Option<i64>,
    /// When a wait for a rate limit, or before a retry, ends.
    pub wait_until_ms: Option<i64>,
    /// The wait is for a rate limit.
    pub is_rate_limited: bool,
    /// A remark on the files: removed, or written by a newer version.
    pub note: Option<String>,
    /// Percent of the journal that was read, while figures are not final.
    pub reading: Option<u8>,
    /// The run directory was removed while it was shown.
    pub is_removed: bool,
}

/// One iteration: height is time, colour the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bar {
    pub iteration: u32,
    pub duration_ms: u64,
    pub result: BarResult,
    pub cost: Cost,
    pub tools: u32,
    /// The last time that it was active.
    pub ended_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BarResult {
    Passed,
    Failed,
    Interrupted,
    Running,
}

impl BarResult {
    /// The bar where there are no block characters.
    pub fn ascii(self) -> char {
        match self {
            BarResult::Passed => '+',
            BarResult::Failed => '-',
            BarResult::Interrupted => '~',
            BarResult::Running => '*',
        }
    }
}

impl Bar {
    /// `8m54s · $0.21 · 11 tools`, without what is unknown.
    pub fn figures(&self, separator: &str) -> String {
        let tools = format!("{} tool{}", self.tools, plural(u64::from(self.tools)));
        let tools = (self.tools > 0).then_some(tools);
        let took = Some(text::format_duration(self.duration_ms));
        let parts = [took, cost_text(self.cost), tools];
        parts.into_iter().flatten().collect::<Vec<_>>().join(separator)
    }

    /// The height in eighths of a line, beside a run's longest iteration.
    pub fn eighths(&self, longest_ms: u64) -> u8 {
        let (own, longest) = (self.duration_ms.min(longest_ms), longest_ms.max(1));
        let share = u128::from(own) * 4 / u128::from(longest);
        2 + u8::try_from(share).unwrap_or(4)
    }
}

/// What a person has to do about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attention {
    pub kind: AttentionKind,
    /// The question's first line, or what broke, as a sentence.
    pub text: String,
    /// The rest of the question.
    pub context: String,
    /// What to do before the run is resumed: `Sign in again`. May be empty.
    pub remedy: &'static str,
    pub since_ms: i64,
    pub iteration: u32,
    pub question_id: Option<String>,
}

impl Attention {
    pub fn of_question(question: &Question) -> Attention {
        Attention {
            kind: AttentionKind::Question,
            text: one_line(question.headline()),
            context: ralph_events::control_chars::strip_control_chars(question.context()),
            remedy: "",
            since_ms: question.asked_ms,
            iteration: question.iteration,
            question_id: Some(question.id.clone()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    Question,
    /// A dialog on the agent's screen.
    Dialog,
    /// The run failed or was killed.
    Problem,
}

/// What a run does now, or how it ended. `before`, `subject` and `after` stand together; the time never goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NowText {
    before: String,
    subject: String,
    after: String,
    /// `12s`; empty if there is none.
    pub time: String,
    /// When `time` started, if it is a running span.
    pub since_ms: Option<i64>,
    /// A shorter text for narrow columns; empty if there is none.
    short: String,
    /// Paths are cut from the left.
    is_path: bool,
}

impl NowText {
    fn plain(text: impl Into<String>) -> NowText {
        NowText { subject: text.into(), ..NowText::default() }
    }

    /// A step that has lasted since a time.
    fn since(text: impl Into<String>, since_ms: i64, now_ms: i64) -> NowText {
        let time = format_span(now_ms - since_ms);
        NowText { time, since_ms: Some(since_ms), ..NowText::plain(text) }
    }

    /// The whole text, without the time.
    pub fn text(&self) -> String {
        [&*self.before, &self.subject, &self.after].concat()
    }

    /// The text, at most `room` columns wide. Commands lose their end, paths their beginning.
    pub fn fit(&self, room: usize, ellipsis: &str) -> String {
        let time = if self.time.is_empty() { String::new() } else { format!(" {}", self.time) };
        let whole = self.text() + &time;
        if width::display_width(&whole) <= room {
            return whole;
        }
        if !self.short.is_empty() {
            return width::prefix_within(&self.short, room).to_owned();
        }
        let around = [&*self.before, ellipsis, &self.after, &time];
        let around: usize = around.into_iter().map(width::display_width).sum();
        let left = room.saturating_sub(around);
        let cut = if self.is_path {
            format!("{ellipsis}{}", path_end(&self.subject, left))
        } else {
            format!("{}{ellipsis}", width::prefix_within(&self.subject, left).trim_end())
        };
        let fitted = [&*self.before, &cut, &self.after, &time].concat();
        width::prefix_within(&fitted, room).to_owned()
    }
}

impl std::fmt::Display for NowText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = if self.time.is_empty() { "" } else { " " };
        write!(f, "{}{}{}{space}{}", self.before, self.subject, self.after, self.time)
    }
}

/// The end of a path that fits, from a slash on if there is one.
fn path_end(path: &str, room: usize) -> &str {
    let end = width::suffix_within(path, room);
    end.find('/').map_or(end, |slash| &end[slash..])
}

impl RunCard {
    pub fn of(run: &RunState, context: &CardContext<'_>) -> RunCard {
        let CardContext { is_alive, now_ms, .. } = *context;
        let state = StateWord::of(run, is_alive);
        let last_ms = run.end.as_ref().map_or(run.clock.last_ms, |end| end.time_ms);
        // Files that are gone need no action.
        let group = if context.is_removed { Group::Done } else { state.group(last_ms, now_ms) };
        let info = &run.info;
        let setup = info.setup.as_deref();
        let is_over = run.end.is_some() || !is_alive;
        let (passing, checks) = check_view::passing_checks(run);
        let (wait_until_ms, is_rate_limited) = match run.activity {
            Activity::Waiting { reason, until_ms } if is_alive => {
                (Some(until_ms), reason == WaitReason::RateLimit)
            }
            _ => (None, false),
        };
        let is_waiting_for_pause = !matches!(run.activity, Activity::Paused { .. });
        RunCard {
            id: context.id.to_owned(),
            name: run_name(run, context),
            project: one_line(context.project),
            directory: one_line(&info.directory),
            branch: info.last_branch.as_ref().or(info.branch.as_ref()).map(|it| one_line(it)),
            agent: one_line(&info.agent),
            sandboxed: setup.is_some_and(|it| matches!(it.isolation, Isolation::Sandbox { .. })),
            state,
            group,
            is_pausing: !is_over && run.requests.pause && is_waiting_for_pause,
            is_stopping: !is_over && run.requests.stop.is_some(),
            is_alive,
            pid: info.pid,
            iteration: run.totals.iteration,
            max_iterations: info.max_iterations,
            elapsed_ms: run.duration_ms(is_alive.then_some(now_ms)),
            cost: run.cost(),
            budget_usd: setup.and_then(|setup| setup.max_cost_usd),
            tokens: run.usage().total_tokens(),
            bars: bars(run, is_alive, now_ms),
            now: now_text(run, state, context),
            attention: (group == Group::NeedsYou).then(|| attention(run, last_ms)),
            stories: run.tasks.as_ref().map(|tasks| (tasks.done, tasks.total)),
            checks: (checks > 0).then_some((passing, checks)),
            started_ms: run.clock.started_ms,
            ended_ms: is_over.then_some(last_ms),
            wait_until_ms,
            is_rate_limited,
            note: note(run, context.is_removed),
            reading: context.reading,
            is_removed: context.is_removed,
        }
    }

    pub fn sign(&self) -> &'static str {
        self.state.sign(self.group)
    }

    pub fn ascii_sign(&self) -> &'static str {
        self.state.ascii_sign(self.group)
    }

    /// The state in one word; `pausing` and `stopping` until the run has done so.
    pub fn word(&self) -> &'static str {
        match () {
            () if self.is_stopping => "stopping",
            () if self.is_pausing => "pausing",
            () => self.state.as_str(),
        }
    }

    /// `9/20`, or `9` without a limit.
    pub fn progress(&self) -> String {
        crate::terminal::format_progress(self.iteration, self.max_iterations)
    }

    /// `1h51m`.
    pub fn elapsed(&self) -> String {
        text::format_minutes(self.elapsed_ms)
    }

    pub fn longest_bar_ms(&self) -> u64 {
        self.bars.iter().map(|bar| bar.duration_ms).max().unwrap_or(0)
    }
}

fn run_name(run: &RunState, context: &CardContext<'_>) -> String {
    let known = Some(run.info.name.as_str()).filter(|name| !name.is_empty());
    let name = known.or(context.fallback_name).unwrap_or(context.id);
    one_line(name)
}

fn note(run: &RunState, is_removed: bool) -> Option<String> {
    if is_removed {
        return Some("files removed".to_owned());
    }
    let version = &run.info.version;
    if run.unreadable == 0 || version_numbers(version) <= version_numbers(OWN_VERSION) {
        return None;
    }
    Some(format!("written by ralph {}, some entries are not shown", one_line(version)))
}

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

fn version_numbers(version: &str) -> Vec<u64> {
    let part = |part: &str| part.split('-').next().and_then(|number| number.parse().ok());
    version.split('.').map(|it| part(it).unwrap_or(0)).collect()
}

/// One bar per iteration. The money that no ended iteration accounts for belongs to the running one.
fn bars(run: &RunState, is_alive: bool, now_ms: i64) -> Vec<Bar> {
    let bar = |record: &IterationRecord, is_open: bool| Bar {
        iteration: record.number,
        duration_ms: record.active_ms(is_open.then_some(now_ms)),
        result: bar_result(record, is_open),
        cost: run.iteration_cost(record),
        tools: record.tools,
        ended_ms: record.ended_ms.filter(|_| !is_open).unwrap_or(run.clock.last_ms),
    };
    let mut bars: Vec<Bar> = run.iterations.iter().map(|record| bar(record, false)).collect();
    let is_working = is_alive && run.end.is_none();
    if let Some((last, shown)) = run.iterations.last().zip(bars.last_mut())
        && is_working
        && !last.ended
    {
        *shown = bar(last, true);
    }
    if let Some((last, earlier)) = bars.split_last_mut()
        && last.result == BarResult::Running
    {
        let sum = |cost: fn(&Cost) -> Option<f64>| {
            earlier.iter().filter_map(|bar| cost(&bar.cost)).sum::<f64>()
        };
        if let Activity::Agent(agent) = &run.activity {
            last.tools = last.tools.saturating_add(agent.tool_calls);
        }
        let total = run.cost();
        let before = sum(Cost::usd);
        last.cost = Cost {
            reported: total.reported.map(|usd| (usd - sum(|cost| cost.reported)).max(0.0)),
            estimated: total.estimated.map(|usd| (usd - before).max(0.0)),
        };
    }
    bars
}

fn bar_result(record: &IterationRecord, is_open: bool) -> BarResult {
    if is_open {
        return BarResult::Running;
    }
    let Some(class) = record.class.filter(|_| record.ended) else { return BarResult::Interrupted };
    if record.guardrails.iter().any(GuardrailResult::has_failed) {
        return BarResult::Failed;
    }
    let checked = (!record.cut_off).then_some(true);
    match IterationResult::new(class, checked, false, record.cut_off) {
        IterationResult::Successful => BarResult::Passed,
        IterationResult::Failed => BarResult::Failed,
        IterationResult::Interrupted => BarResult::Interrupted,
    }
}

fn now_text(run: &RunState, state: StateWord, context: &CardContext<'_>) -> NowText {
    if let Some(end) = &run.end {
        return end_text(run, end.outcome);
    }
    if context.is_removed {
        return NowText::plain("files removed");
    }
    if state == StateWord::Interrupted {
        return NowText::plain("process is gone");
    }
    let now_ms = context.now_ms;
    match &run.activity {
        Activity::Idle | Activity::Ended => NowText::plain("working"),
        Activity::Agent(agent) => match (agent.purpose, agent.tools.first()) {
            (Purpose::CommitMessage, _) => {
                NowText::since("commit message", agent.last_output_ms, now_ms)
            }
            (Purpose::Work, None) => NowText::since("agent thinking", agent.last_output_ms, now_ms),
            (Purpose::Work, Some(tool)) => tool_text(tool, &run.info.directory, now_ms),
        },
        Activity::Guardrail { command, since_ms } => NowText {
            before: "check ".to_owned(),
            ..NowText::since(one_line(command), *since_ms, now_ms)
        },
        Activity::Scm { task, since_ms } => NowText {
            before: "SCM ".to_owned(),
            ..NowText::since(one_line(task), *since_ms, now_ms)
        },
        Activity::Paused { since_ms } => {
            let time = format_local(*since_ms, context.zone, "%H:%M");
            NowText { short: "paused by you".to_owned(), time, ..NowText::plain("paused by you") }
        }
        Activity::Parked { since_ms } => NowText::since("waits for you", *since_ms, now_ms),
        Activity::Waiting { reason, until_ms } => {
            let left = u64::try_from(until_ms - now_ms).unwrap_or(0);
            let left = format!("{} left", text::format_minutes(left));
            let (word, short) = match reason {
                WaitReason::RateLimit => ("rate limit", format!("limit, {left}")),
                WaitReason::Backoff => ("back-off", left.clone()),
            };
            NowText { short, ..NowText::plain(format!("{word}, {left}")) }
        }
    }
}

fn tool_text(tool: &OpenTool, directory: &str, now_ms: i64) -> NowText {
    let name = one_line(&tool.name);
    let subject = tool_subject(&tool.summary, directory);
    if subject.is_empty() {
        return NowText::since(name, tool.since_ms, now_ms);
    }
    let is_path = subject.contains('/') && !subject.contains(char::is_whitespace);
    NowText {
        before: format!("{name}("),
        after: ")".to_owned(),
        is_path,
        ..NowText::since(subject, tool.since_ms, now_ms)
    }
}

fn end_text(run: &RunState, outcome: Outcome) -> NowText {
    let text = match outcome {
        Outcome::Complete => {
            let proof = match (&run.tasks, check_view::passing_checks(run).1) {
                (Some(tasks), _) => format!("{}/{} stories", tasks.done, tasks.total),
                (None, 0) => "no checks".to_owned(),
                (None, _) => "checks pass".to_owned(),
            };
            let text = format!("complete, {proof}");
            return NowText { short: proof, ..NowText::plain(text) };
        }
        Outcome::CompleteScmFailed => "SCM task failed",
        Outcome::LimitReached => "iteration limit",
        Outcome::Interrupted => "stopped by you",
        Outcome::Budget => "budget used up",
        Outcome::Stalled => "no progress",
        Outcome::AgentFailed => "agent kept failing",
        Outcome::CredentialsRefused => "credentials refused",
        Outcome::PromptMissing => "prompt is gone",
        Outcome::InternalError => "ralph failed",
    };
    NowText::plain(text)
}

/// The oldest question, a dialog, or what broke.
fn attention(run: &RunState, last_ms: i64) -> Attention {
    let problem = |text: String, remedy| Attention {
        kind: AttentionKind::Problem,
        text,
        context: String::new(),
        remedy,
        since_ms: last_ms,
        iteration: run.totals.iteration,
        question_id: None,
    };
    let agent = one_line(&run.info.agent);
    if let Some(end) = &run.end {
        return match end.outcome {
            Outcome::CredentialsRefused => {
                problem(format!("{agent} refused its credentials."), "Sign in again")
            }
            Outcome::Stalled => problem(sentence(&end.message), "Make the prompt clearer"),
            Outcome::PromptMissing => problem(sentence(&end.message), "Restore the missing file"),
            Outcome::CompleteScmFailed => {
                problem(sentence(&end.message), "Run the failed SCM task yourself")
            }
            _ => problem(sentence(&end.message), ""),
        };
    }
    if let Some(question) = run.steering.open_questions().next() {
        return Attention::of_question(question);
    }
    match &run.activity {
        Activity::Agent(agent) if agent.dialog.is_some() => Attention {
            kind: AttentionKind::Dialog,
            since_ms: agent.last_output_ms,
            ..problem(
                sentence(&format!(
                    "A dialog waits on the agent's screen: {}",
                    agent.dialog.as_deref().unwrap_or_default()
                )),
                "Answer it in the run's tmux window",
            )
        },
        Activity::Parked { since_ms } => Attention {
            since_ms: *since_ms,
            ..problem("The run waits for an answer.".to_owned(), "")
        },
        _ => problem("The process of the run is gone.".to_owned(), ""),
    }
}

fn sentence(message: &str) -> String {
    let mut line = one_line(message);
    if !line.ends_with(['.', '!', '?']) {
        line.push('.');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_events::event::{Class, Event, Exit, FailAction, Stamp, Usage};

    const MINUTE: i64 = 60_000;
    /// A quarter of an hour after the start of the run.
    const NOW: i64 = 15 * MINUTE;

    fn started() -> Event<'static> {
        Event::RunStarted {
            run: "r".into(),
            version: "0.2.0".into(),
            command: "run".into(),
            directory: "/src/shop".into(),
            pid: 7,
            agent: "codex".into(),
            prompt: "p".into(),
            completion: "".into(),
            max_iterations: 5,
            branch: None,
            name: Some("night".into()),
            streams_text: false,
            plain_text: false,
            setup: None,
        }
    }

    fn working() -> Vec<Event<'static>> {
        let agent = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
        vec![started(), Event::IterationStarted { max_iterations: 5 }, agent]
    }

    fn tool(name: &'static str, summary: &'static str) -> Event<'static> {
        let (id, name, summary) = ("1".into(), name.into(), summary.into());
        Event::ToolStarted { id, name, summary, edit: None, subagent: false }
    }

    fn check(passed: bool) -> Event<'static> {
        Event::GuardrailEnded {
            index: 0,
            command: "make test".into(),
            exit: Some(Exit::Code(0)),
            timed_out: false,
            cut_off: false,
            passed,
            fail_action: FailAction::Append,
            log: "".into(),
            duration_ms: 1,
        }
    }

    fn iteration_ended() -> Event<'static> {
        Event::IterationEnded {
            class: Class::Answered,
            guardrails_passed: Some(true),
            complete: false,
            cut_off: false,
            duration_ms: 1,
            usage: Usage::default(),
        }
    }

    fn ended(outcome: Outcome) -> Event<'static> {
        Event::RunEnded {
            outcome,
            exit_code: 0,
            message: "it says why".into(),
            iterations: 1,
            cut_off: false,
            duration_ms: 1,
            usage: Usage::default(),
            tools: 0,
            tool_errors: 0,
            notify: false,
            branch: None,
            last_failure: None,
            used_up: None,
        }
    }

    fn tasks(done: u32, total: u32) -> Event<'static> {
        Event::Tasks {
            done,
            total,
            story: None,
            title: None,
            problems: Vec::new(),
            unreadable: false,
            marked: Vec::new(),
        }
    }

    fn asked() -> Event<'static> {
        Event::QuestionAsked { id: "q1".into(), text: "410 or 303?\nWhy".into(), story: None }
    }

    /// The card of a run whose events happen one minute apart.
    fn card(events: &[Event<'_>], is_alive: bool, now_ms: i64) -> RunCard {
        let mut run = RunState::default();
        for (event, minute) in events.iter().zip(0..) {
            let iteration = u32::from(minute > 0);
            let time_ms = minute * MINUTE;
            run.apply_event(Stamp { time_ms, iteration, attempt: iteration }, event);
        }
        let context = CardContext {
            id: "20261116-204918-10b0",
            project: "shop",
            fallback_name: None,
            is_alive,
            is_removed: false,
            reading: None,
            now_ms,
            zone: &TimeZone::UTC,
        };
        RunCard::of(&run, &context)
    }

    #[test]
    fn card_has_word_group_sign_and_now_of_every_state() {
        let rate_limit =
            Event::Waiting { reason: WaitReason::RateLimit, until_ms: NOW + 59 * MINUTE };
        let backoff = Event::Waiting { reason: WaitReason::Backoff, until_ms: NOW + 30_000 };
        let guardrail = Event::GuardrailStarted { index: 0, command: "make test".into() };
        let scm = Event::ScmStarted { task: "commit".into(), argv: Vec::new() };
        let dialog = Event::DialogOpened { dialog: "trust".into() };
        let cases: Vec<(Vec<Event<'_>>, bool, &str)> = vec![
            (vec![started()], true, "working working ● * | working"),
            (vec![], true, "working working ● * | agent thinking 13m0s"),
            (
                vec![tool("Bash", "cargo test")],
                true,
                "working working ● * | Bash(cargo test) 12m0s",
            ),
            (
                vec![tool("Edit", "/src/shop/src/a/b.rs")],
                true,
                "working working ● * | Edit(src/a/b.rs) 12m0s",
            ),
            (vec![guardrail], true, "working working ● * | check make test 12m0s"),
            (vec![scm], true, "working working ● * | SCM commit 12m0s"),
            (vec![rate_limit], true, "waiting waiting ○ o | rate limit, 59m left"),
            (vec![backoff], true, "waiting waiting ○ o | back-off, 30s left"),
            (vec![Event::PauseRequested], true, "pausing working ● * | agent thinking 13m0s"),
            (
                vec![Event::PauseRequested, Event::Paused],
                true,
                "paused waiting = = | paused by you 00:04",
            ),
            (vec![asked()], true, "asks needs you ? ? | agent thinking 13m0s"),
            (vec![asked(), Event::Parked], true, "asks needs you ? ? | waits for you 11m0s"),
            (vec![dialog], true, "asks needs you ? ? | agent thinking 13m0s"),
            (vec![], false, "interrupted needs you ! ! | process is gone"),
            (vec![asked()], false, "interrupted needs you ! ! | process is gone"),
            (
                vec![tasks(6, 6), ended(Outcome::Complete)],
                false,
                "complete done ✓ + | complete, 6/6 stories",
            ),
            (
                vec![check(true), ended(Outcome::Complete)],
                false,
                "complete done ✓ + | complete, checks pass",
            ),
            (vec![ended(Outcome::Complete)], false, "complete done ✓ + | complete, no checks"),
            (vec![ended(Outcome::LimitReached)], false, "ended done ■ # | iteration limit"),
            (vec![ended(Outcome::Budget)], false, "ended done ■ # | budget used up"),
            (vec![ended(Outcome::Interrupted)], false, "ended done ■ # | stopped by you"),
            (
                vec![ended(Outcome::CredentialsRefused)],
                false,
                "failed needs you ! ! | credentials refused",
            ),
            (vec![ended(Outcome::AgentFailed)], false, "failed needs you ! ! | agent kept failing"),
            (vec![ended(Outcome::Stalled)], false, "failed needs you ! ! | no progress"),
            (vec![ended(Outcome::PromptMissing)], false, "failed needs you ! ! | prompt is gone"),
            (vec![ended(Outcome::InternalError)], false, "failed needs you ! ! | ralph failed"),
            (
                vec![ended(Outcome::CompleteScmFailed)],
                false,
                "failed needs you ! ! | SCM task failed",
            ),
        ];
        for (events, is_alive, expected) in cases {
            let events = match events.first() {
                Some(Event::RunStarted { .. }) => events,
                _ => working().into_iter().chain(events).collect(),
            };
            let card = card(&events, is_alive, NOW);
            let (word, group, now) = (card.word(), card.group.as_str(), &card.now);
            let shown = format!("{word} {group} {} {} | {now}", card.sign(), card.ascii_sign());
            assert_eq!(shown, expected, "{events:?}");
            assert_eq!(card.attention.is_some(), card.group == Group::NeedsYou);
        }
    }

    #[test]
    fn failure_needs_a_person_for_a_day_or_until_it_is_resumed() {
        let mut events = working();
        events.push(ended(Outcome::AgentFailed));
        let last_ms = 3 * MINUTE;
        let day = crate::state_word::ATTENTION_MS;
        for (now_ms, group, sign) in
            [(last_ms + day - 1, Group::NeedsYou, "!"), (last_ms + day, Group::Done, "✗")]
        {
            let card = card(&events, false, now_ms);
            assert_eq!((card.group, card.sign()), (group, sign));
        }
        events.push(started());
        assert_eq!(card(&events, true, NOW).group, Group::Working);
        let killed = card(&working(), false, 2 * MINUTE + day);
        assert_eq!((killed.group, killed.sign()), (Group::Done, "✗"));
    }

    #[test]
    fn attention_names_the_cause_and_the_remedy() {
        let attention = |more: Vec<Event<'static>>, is_alive: bool| {
            let events: Vec<_> = working().into_iter().chain(more).collect();
            let it = card(&events, is_alive, NOW).attention.unwrap();
            format!(
                "{:?}: {} [{}] {} {:?}",
                it.kind, it.text, it.context, it.remedy, it.question_id
            )
        };
        assert_eq!(attention(vec![asked()], true), "Question: 410 or 303? [Why]  Some(\"q1\")");
        assert_eq!(
            attention(vec![ended(Outcome::CredentialsRefused)], false),
            "Problem: codex refused its credentials. [] Sign in again None"
        );
        assert_eq!(
            attention(vec![ended(Outcome::InternalError)], false),
            "Problem: it says why. []  None"
        );
        assert_eq!(attention(vec![], false), "Problem: The process of the run is gone. []  None");
    }

    #[test]
    fn bars_tell_passed_failed_interrupted_and_running_iterations() {
        let mut run = RunState::default();
        let mut apply = |time_ms: i64, iteration: u32, event: Event<'_>| {
            run.apply_event(Stamp { time_ms, iteration, attempt: 1 }, &event);
        };
        let cost = |usd: f64| Usage { cost_usd: Some(usd), ..Usage::default() };
        let agent = || Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
        apply(0, 0, started());
        for (iteration, passed) in [(1, true), (2, false)] {
            let start = i64::from(iteration) * MINUTE;
            apply(start, iteration, Event::IterationStarted { max_iterations: 5 });
            apply(start, iteration, check(passed));
            apply(start + 1, iteration, iteration_ended());
        }
        apply(3 * MINUTE, 3, Event::IterationStarted { max_iterations: 5 });
        apply(3 * MINUTE, 3, agent());
        apply(4 * MINUTE, 4, Event::IterationStarted { max_iterations: 5 });
        apply(4 * MINUTE, 4, agent());
        apply(4 * MINUTE, 4, Event::Usage(cost(0.25)));
        apply(4 * MINUTE, 4, tool("Bash", "x"));
        let context = CardContext {
            id: "r",
            project: "p",
            fallback_name: None,
            is_alive: true,
            is_removed: false,
            reading: None,
            now_ms: 9 * MINUTE,
            zone: &TimeZone::UTC,
        };
        let card = RunCard::of(&run, &context);
        let signs: String = card.bars.iter().map(|bar| bar.result.ascii()).collect();
        assert_eq!(signs, "+-~*");
        assert_eq!(card.bars[3].figures(" · "), "5m0s · $0.25 · 1 tool");
        let dead = RunCard::of(&run, &CardContext { is_alive: false, ..context });
        assert_eq!(dead.bars[3].result, BarResult::Interrupted);
    }

    #[test]
    fn estimate_is_what_the_average_iteration_leaves() {
        use BarResult::{Failed, Interrupted, Passed, Running};
        let estimate = |bars: &[(BarResult, u64, Option<f64>)]| {
            let mut card = card(&working(), true, NOW);
            let bar = |(result, minutes, reported): &(BarResult, u64, Option<f64>)| Bar {
                result: *result,
                cost: Cost { reported: *reported, estimated: None },
                ..bar(minutes * 60_000)
            };
            card.bars = bars.iter().map(bar).collect();
            card.stop_estimate().map(|it| format!("{it}, {}", it.minutes()))
        };
        let (passed, failed) = ((Passed, 6, Some(0.5)), (Failed, 4, Some(0.3)));
        let cases = [
            (vec![passed, failed, (Running, 1, Some(0.1))], "4 more minutes and $0.30, 4 minutes"),
            // Iterations that were cut off say nothing about the length of a whole one.
            (
                vec![passed, (Interrupted, 0, None), (Running, 5, Some(0.5))],
                "1 more minute, 1 minute",
            ),
            (vec![passed, (Passed, 6, None), (Running, 1, None)], "5 more minutes, 5 minutes"),
        ];
        for (bars, expected) in cases {
            assert_eq!(estimate(&bars).as_deref(), Some(expected), "{bars:?}");
        }
        let unknown = [vec![(Running, 1, None)], vec![passed], vec![failed, (Running, 5, None)]];
        for bars in unknown {
            assert_eq!(estimate(&bars), None, "{bars:?}");
        }
    }

    fn bar(duration_ms: u64) -> Bar {
        Bar {
            iteration: 1,
            duration_ms,
            result: BarResult::Passed,
            cost: Cost::default(),
            tools: 0,
            ended_ms: 0,
        }
    }

    #[test]
    fn bar_heights_follow_time() {
        let heights = [0, 24, 25, 50, 75, 99, 100, 500].map(|ms| bar(ms).eighths(100));
        assert_eq!(heights, [2, 2, 3, 4, 5, 5, 6, 6]);
        assert_eq!(bar(0).eighths(0), 2);
        assert_eq!(bar(u64::MAX).eighths(u64::MAX), 6, "no overflow");
    }
}
