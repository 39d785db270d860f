//! What every form of the report says, in the same words.

use jiff::tz::TimeZone;

use super::{Check, Commit, Continued, Doing, Facts, Iteration, Listed, ScmTask, Shown, Wait};
use crate::core::event::{Class, EndCause, FailureKind, Outcome, WaitReason};
use crate::core::text;
use crate::report::human::{Ending, cut_short};
use crate::report::runs::{after_words, outcome_word};
use crate::report::visible;
use crate::state::journal;

/// How many lines of a list are shown.
const MAX_LINES: usize = 50;
/// How many commits and how many failures of an iteration are shown.
const MAX_COMMITS: usize = 20;
const MAX_FAILURES: usize = 5;
/// How many iterations a guardrail's history shows.
const MAX_HISTORY: usize = 60;
/// A shorter wait is of no interest.
const WORTH_TELLING_MS: u64 = 60_000;
/// A wait that was this much shorter than planned was cut short.
const CUT_SHORT_MS: i64 = 2_000;

/// What the report begins with: names and values.
pub(super) fn summary(facts: &Facts, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let mut items = vec![("Asked", facts.asked.clone()), ("Outcome", outcome(facts, zone))];
    if is_known(facts) {
        let took = text::duration(facts.duration_ms);
        if !facts.command.is_empty() {
            items.extend([
                ("Command", format!("ralph {} with {}", facts.command, facts.agent)),
                ("Directory", facts.directory.clone()),
            ]);
        }
        let ended = facts.ended_ms.filter(|_| facts.outcome.is_some());
        items.push(("Started", started(facts, zone)));
        items.extend(ended.map(|ms| ("Ended", moment(ms, zone))));
        let name = if facts.doing.is_some() { "So far" } else { "Took" };
        items.extend([(name, format!("{took}, {}", iterations(facts))), ("Used", used(facts))]);
        items.extend(facts.last_words.clone().map(|words| ("Stderr", words)));
        items.extend(committed(facts).map(|commits| ("Commits", commits)));
        items.extend(facts.scm.iter().take(MAX_FAILURES).map(|task| ("SCM", scm_task(task))));
    }
    items.extend(untold(facts).map(|untold| ("Told", untold)));
    items.extend(damage(facts).map(|damage| ("Journal", damage)));
    items.extend(next(facts, zone).map(|next| ("Next", next)));
    items.retain(|(name, value)| !(value.is_empty() && *name == "Asked"));
    items
}

/// A part of a value: some of them name commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Command(&'a str),
}

/// The parts of a value of the summary. Only where all words are ours do backticks mean anything.
pub(super) fn pieces<'a>(name: &str, value: &'a str) -> Vec<Piece<'a>> {
    if !matches!(name, "Next" | "Told") || !value.matches('`').count().is_multiple_of(2) {
        return vec![Piece::Text(value)];
    }
    let parts = value.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    let piece = |(at, part): (usize, &'a str)| match at % 2 {
        0 => Piece::Text(part),
        _ => Piece::Command(part),
    };
    parts.map(piece).collect()
}

/// What to do about it.
fn next(facts: &Facts, zone: &TimeZone) -> Option<String> {
    let limit_ends = facts.limit_ends_ms.map(|ms| moment(ms, zone));
    if facts.outcome.is_none() && facts.doing.is_none() && is_known(facts) {
        let limit = limit_ends.map(|time| format!("the limit ends at {time}; "));
        return Some(
            limit.unwrap_or_default() + &format!("`ralph resume {}` goes on with it", facts.run),
        );
    }
    let last = facts.iterations.last();
    let outcome = facts.outcome?;
    let ending = Ending {
        run: &facts.run,
        outcome,
        message: &facts.message,
        iterations: last.map_or(0, |last| last.number),
        max_iterations: facts.max_iterations,
        cut_off: last.is_some_and(|last| last.cut_off || !last.ended),
        scm_done: last.map_or(&[], |last| &last.scm_done),
        limit_ends: limit_ends.as_deref(),
    };
    ending.next_step()
}

/// How it came out, with its exit code; or how it stands.
fn outcome(facts: &Facts, zone: &TimeZone) -> String {
    if let Some(outcome) = facts.outcome {
        let words = ended(facts, outcome);
        return match facts.exit_code {
            Some(code) => format!("{words} (exit code {code})"),
            None => words,
        };
    }
    if !is_known(facts) {
        return "nothing is known of it: its journal is empty, or cannot be read".to_owned();
    }
    let open = facts.iterations.last().map(|last| match facts.open() {
        Some(number) => format!(", in iteration {number}"),
        None => format!(", after iteration {}", last.number),
    });
    let open = open.unwrap_or_default();
    match facts.doing {
        Some(Doing::Working) => {
            let since = started(facts, zone);
            match facts.iterations.last().filter(|last| !last.ended) {
                Some(last) => {
                    let (number, took) = (last.number, text::duration(last.duration_ms));
                    format!("running since {since}, iteration {number} for {took}")
                }
                None => format!("running since {since}{open}"),
            }
        }
        Some(Doing::Waiting { until_ms }) => {
            format!("running, and waits until {}{open}", moment(until_ms, zone))
        }
        Some(Doing::Paused { since_ms }) => {
            format!("paused since {}{open}", moment(since_ms, zone))
        }
        None => {
            let last = facts.ended_ms.map_or_else(|| "-".to_owned(), |ms| moment(ms, zone));
            format!("cut off{open}: killed, or the machine went down; last heard of {last}")
        }
    }
}

/// How it ended. What an agent or a system said of it is not by itself an outcome.
fn ended(facts: &Facts, outcome: Outcome) -> String {
    let message = facts.message.as_str();
    let last = facts.iterations.last().and_then(|last| last.class);
    let what = match (outcome, last) {
        _ if message.is_empty() => return outcome_word(outcome).to_owned(),
        (Outcome::AgentFailed, Some(Class::RateLimited | Class::Overloaded)) => {
            "stopped by a limit of the agent's"
        }
        (Outcome::CredentialsRefused, _) => "the agent's credentials were refused",
        (Outcome::PromptLost, _) => "failed before the agent was asked",
        (Outcome::Broken, _) => "ralph could not go on",
        (Outcome::Interrupted, _) => {
            let by = facts.stopped_by.as_ref().map(|signal| format!(" by {signal}"));
            return format!("{message}{}", by.unwrap_or_default());
        }
        _ => return message.to_owned(),
    };
    format!("{what}: {message}")
}

/// Whether an iteration may have done anything. An agent that is turned away does nothing.
fn did_anything(iteration: &Iteration) -> bool {
    let turned_away = matches!(
        iteration.class,
        Some(Class::NotStarted | Class::Credentials | Class::RateLimited | Class::Overloaded)
    );
    iteration.tools > 0 || !turned_away
}

fn is_complete(facts: &Facts) -> bool {
    matches!(facts.outcome, Some(Outcome::Complete | Outcome::CompleteScmFailed))
}

/// Anything of it can be read.
fn is_known(facts: &Facts) -> bool {
    facts.started_ms.is_some() || !facts.iterations.is_empty()
}

fn started(facts: &Facts, zone: &TimeZone) -> String {
    facts.started_ms.map_or_else(|| "an unknown time".to_owned(), |ms| moment(ms, zone))
}

fn iterations(facts: &Facts) -> String {
    let done = facts.iterations.len();
    match (facts.max_iterations, done) {
        (0, 1) => "1 iteration".to_owned(),
        (0, _) => format!("{done} iterations"),
        // The limit may have been lowered since.
        (max, _) if done > max as usize => format!("{done} iterations, now at most {max}"),
        (max, _) => format!("{done} of {max} iterations"),
    }
}

/// What it cost. A guess is called one.
fn used(facts: &Facts) -> String {
    let cost = match (facts.usage.cost_usd, facts.estimated_cost_usd) {
        (None, None) => "no cost told".to_owned(),
        (Some(told), None) => text::dollars(told),
        (None, Some(guess)) => {
            format!("about {} by an estimate, no cost told", text::dollars(guess))
        }
        (Some(told), Some(guess)) => format!(
            "{} told, about {} with an estimate of what was not",
            text::dollars(told),
            text::dollars(guess)
        ),
    };
    match facts.usage.total_tokens() {
        0 => cost,
        tokens => format!("{cost}, {} tokens", text::count(tokens)),
    }
}

/// What an iteration cost.
pub(super) fn cost(iteration: &Iteration) -> String {
    match (iteration.usage.cost_usd, iteration.estimated_cost_usd) {
        (_, Some(guess)) => format!("~{}", text::dollars(guess)),
        (Some(told), None) => text::dollars(told),
        (None, None) => "-".to_owned(),
    }
}

/// How much was committed, and how to look at it.
fn committed(facts: &Facts) -> Option<String> {
    let count = facts.commits().count();
    if count == 0 {
        return None;
    }
    let Some((from, to)) = facts.range() else { return Some(count.to_string()) };
    let no_branch = facts.commits().any(|commit| commit.no_branch && commit.id == to);
    let keep = format!(", on no branch (`git branch NAME {}` keeps them)", short(to));
    let is_gone = facts.commits().any(|commit| commit.gone && commit.id == to);
    let keep = match (no_branch, is_gone) {
        (true, _) => keep.as_str(),
        (false, true) => ", on no branch any more",
        (false, false) => "",
    };
    let log = format!("git log {}..{}{keep}", short(from), short(to));
    let Some(Shown { commits, own }) = facts.shown else { return Some(format!("{count}: {log}")) };
    // Whatever is named with the command is what the command shows.
    let others = match commits - own.min(commits) {
        0 => String::new(),
        n => format!(" ({n} of them not by the run)"),
    };
    let elsewhere = match count.saturating_sub(own as usize) {
        0 => String::new(),
        1 => "; 1 more by the run is not there any more, or on another branch".to_owned(),
        n => format!("; {n} more by the run are not there any more, or on another branch"),
    };
    Some(format!("{commits}: {log}{others}{elsewhere}"))
}

/// In how many iterations a task failed, and whether that was made good.
fn scm_task(task: &ScmTask) -> String {
    let ScmTask { task, iterations, why, made_good } = task;
    let count = iterations.len();
    let s = if count == 1 { "" } else { "s" };
    let last = iterations.last().copied().unwrap_or_default();
    let since = match made_good {
        true => format!("; it was done after iteration {last}"),
        false => ", and was not done since".to_owned(),
    };
    format!("{task} failed in {count} iteration{s}, the last time in {last}: {why}{since}")
}

/// That nobody was told, and how they will be.
fn untold(facts: &Facts) -> Option<String> {
    let run = &facts.run;
    facts.untold.then(|| {
        format!(
            "notify.command was not told of the end, for ralph was killed; `ralph resume {run}` tells it"
        )
    })
}

fn damage(facts: &Facts) -> Option<String> {
    let words = journal::unreadable_words(facts.unreadable)?;
    Some(format!("{words}; there was more than is told here"))
}

pub(super) fn moment(ms: i64, zone: &TimeZone) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| "-".to_owned(),
        |time| zone.to_datetime(time).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A list with its heading; nothing if it is empty.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) lines: Vec<String>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What whoever reads from the top wants to know first, and whoever looks at a terminal, last.
    Left,
    /// Signs below each other.
    Guardrails,
    Other,
}

/// What follows the iterations.
pub(super) fn sections(facts: &Facts, zone: &TimeZone) -> Vec<Section> {
    let history = "Guardrails, from the first iteration to the last".to_owned();
    let others = format!("Committed while the run was not at work ({})", facts.others.len());
    let (denied, warnings) = (&facts.denied, &facts.warnings);
    let sections = [
        (Kind::Guardrails, history, guardrails(facts)),
        (Kind::Other, "Went on".to_owned(), went_on(facts, zone)),
        (Kind::Other, waited_in_all(facts), limits_waited_for(facts, zone)),
        (Kind::Other, others, facts.others.iter().map(commit_line).collect()),
        (Kind::Other, format!("Denied to the agent ({})", denied.total), listed(denied)),
        (Kind::Other, format!("Warnings ({})", warnings.total), listed(warnings)),
        (Kind::Left, "Left to do".to_owned(), left_to_do(facts)),
    ];
    let bounded = sections.map(|(kind, heading, mut lines)| {
        let more = lines.len().saturating_sub(MAX_LINES + 1);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("and {more} more"));
        }
        Section { heading, lines, kind }
    });
    bounded.into_iter().filter(|section| !section.lines.is_empty()).collect()
}

fn listed(list: &Listed) -> Vec<String> {
    let lines = list.first.iter().map(|told| match told.times {
        1 => told.text.clone(),
        times => format!("{times} times: {}", told.text),
    });
    let more = Some(list.more()).filter(|more| *more > 0);
    lines.chain(more.map(|more| format!("and {more} more"))).collect()
}

/// When the run went on after it had been left, a line each.
fn went_on(facts: &Facts, zone: &TimeZone) -> Vec<String> {
    let line = |continued: &Continued| {
        let (time, after) = (moment(continued.time_ms, zone), after_words(continued.after));
        let again = continued.cut_off.map(|n| format!("; iteration {n} was begun again"));
        let checked = continued
            .unchecked
            .map(|n| format!("; what the agent of iteration {n} had done was checked"));
        format!("{time}, after {after}{}", again.or(checked).unwrap_or_default())
    };
    facts.continued.iter().map(line).collect()
}

fn limits(facts: &Facts) -> impl Iterator<Item = &Wait> {
    facts.waits.iter().filter(|wait| wait.reason == WaitReason::RateLimit)
}

fn waited_in_all(facts: &Facts) -> String {
    let waited = |wait: &Wait| wait.ended_ms.map_or(0, |ended| (ended - wait.from_ms).max(0));
    let all = limits(facts).map(waited).sum::<i64>().unsigned_abs();
    format!("Limits waited for ({} in all)", text::duration(all))
}

/// The limits that the run sat out, a line each.
fn limits_waited_for(facts: &Facts, zone: &TimeZone) -> Vec<String> {
    let length = |from: i64, until: i64| text::duration(u64::try_from(until - from).unwrap_or(0));
    let line = |wait: &Wait| {
        let Wait { iteration, from_ms, until_ms, ended_ms, .. } = *wait;
        let from = moment(from_ms, zone);
        let planned = length(from_ms, until_ms);
        let how = match ended_ms {
            Some(ended) if ended + CUT_SHORT_MS < until_ms => {
                format!("for {} of {planned}, then it was stopped", length(from_ms, ended))
            }
            Some(ended) => format!("for {}", length(from_ms, ended)),
            None if facts.doing == Some(Doing::Waiting { until_ms }) => {
                format!("until {}", moment(until_ms, zone))
            }
            None => format!("for {planned}, but the run was cut off meanwhile"),
        };
        format!("iteration {iteration}: from {from} {how}")
    };
    limits(facts).map(line).collect()
}

/// What is left, a line each.
fn left_to_do(facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    let is_over = facts.doing.is_none() && !is_complete(facts);
    // Whoever is killed ends nothing, and what it was at may never have been begun again.
    let cut_off = facts.iterations.last().filter(|last| last.cut_off || is_over && !last.ended);
    // After a budget, that is said with what to do about it.
    let is_told = facts.outcome == Some(Outcome::Budget);
    let cut_off = cut_off.filter(|last| did_anything(last) && !is_told);
    lines.extend(cut_off.map(|last| cut_short(last.number, &last.scm_done)));
    let undone = facts.scm.iter().filter(|task| !task.made_good);
    lines.extend(undone.map(|task| format!("SCM task not done: {}: {}", task.task, task.why)));
    let left = &facts.left;
    if let Some((done, total)) = left.stories.filter(|(done, total)| done < total) {
        let next = left.story.as_ref().map_or(String::new(), |story| format!(", next {story}"));
        lines.push(format!("stories: {done} of {total} pass{next}"));
    }
    lines.extend(left.problems.iter().map(|problem| format!("not complete: {problem}")));
    let told = match facts.doing {
        Some(_) => "the agent is told",
        None => "the agent was to be told",
    };
    lines.extend(left.feedback.iter().map(|part| format!("{told}: {part}")));
    lines.extend(left.plan.iter().map(|entry| format!("open in the agent's plan: {entry}")));
    lines
}

/// A line for each guardrail, with a sign for each iteration, and one that explains the signs.
fn guardrails(facts: &Facts) -> Vec<String> {
    let mut commands: Vec<&str> = Vec::new();
    for check in facts.iterations.iter().flat_map(|iteration| &iteration.guardrails) {
        if !commands.contains(&check.command.as_str()) && commands.len() < MAX_LINES {
            commands.push(&check.command);
        }
    }
    if commands.is_empty() {
        return Vec::new();
    }
    let line = |command: &str| {
        let sign = |iteration: &Iteration| {
            let own = iteration.guardrails.iter().rfind(|check| check.command == command);
            match own {
                None => '.',
                Some(check) if check.passed => '+',
                Some(check) if check.cut_off => '~',
                Some(_) => '-',
            }
        };
        let signs: String = facts.iterations.iter().map(sign).collect();
        let failed = signs.matches('-').count();
        // Every sign is one byte.
        let shown = match signs.len().checked_sub(MAX_HISTORY) {
            Some(cut @ 1..) => format!("…{} (failed {failed} times)", &signs[cut..]),
            _ => signs,
        };
        format!("{shown}  {command}")
    };
    let signs = "(+ passed, - failed, ~ interrupted, . not run)".to_owned();
    commands.into_iter().map(line).chain([signs]).collect()
}

/// What became of an iteration, in a word or two.
pub(super) fn state(iteration: &Iteration) -> &'static str {
    if iteration.under_way {
        return "under way";
    }
    let Some(class) = iteration.class.filter(|_| iteration.ended) else { return "not ended" };
    if iteration.guardrails.iter().any(Check::failed) {
        return "guardrail failed";
    }
    match class {
        Class::Answered if iteration.cut_off => "not all checked",
        Class::Answered if iteration.vetoed.is_some() => "not complete",
        Class::Answered => "answered",
        Class::Empty if iteration.repeats_prompt => "repeated its prompt",
        Class::Empty => "said nothing",
        Class::Failed => "failed",
        Class::RateLimited => "rate limit",
        Class::Overloaded => "overloaded",
        Class::Credentials => "credentials refused",
        Class::ContextExhausted => "context full",
        Class::Limited => match (iteration.ended_by, iteration.failure) {
            (Some(EndCause::Budget), _) => "run's budget",
            (None, Some(FailureKind::TurnLimit)) => "agent's turn limit",
            (None, Some(FailureKind::AgentBudget)) => "agent's own budget",
            _ => "iteration's budget",
        },
        Class::TimedOut if iteration.ended_by == Some(EndCause::Inactivity) => "fell silent",
        Class::TimedOut => "timed out",
        Class::Interrupted => "interrupted",
        Class::NotStarted => "not started",
    }
}

/// How often it was tried, if more than once.
pub(super) fn tries(iteration: &Iteration) -> Option<String> {
    let Iteration { begun, attempts, .. } = *iteration;
    match (begun, attempts) {
        (0..=1, 0..=1) => None,
        (0..=1, n) => Some(format!("{n} attempts")),
        (m, n) if n <= m => Some(format!("begun {m} times")),
        (m, n) => Some(format!("begun {m} times, {n} attempts")),
    }
}

/// What is told of an iteration below its figures.
#[derive(Debug)]
pub(super) enum Detail {
    Commit(String),
    Plain(String),
    Bad(String),
}

pub(super) fn details(iteration: &Iteration) -> Vec<Detail> {
    let mut details = Vec::new();
    let and_more = |shown: usize, all: usize| {
        let more = all.saturating_sub(shown);
        (more > 0).then(|| Detail::Plain(format!("and {more} more")))
    };
    let commits = &iteration.commits;
    details.extend(commits.iter().take(MAX_COMMITS).map(|it| Detail::Commit(commit_line(it))));
    details.extend(and_more(MAX_COMMITS, commits.len()));
    if let Some(head) = iteration.head.as_ref().filter(|_| commits.is_empty()) {
        details.push(Detail::Plain(format!("HEAD moved to {}", short(head))));
    }
    if iteration.waited_ms >= WORTH_TELLING_MS {
        details.push(Detail::Plain(format!("waited {}", text::duration(iteration.waited_ms))));
    }
    let mut failures = Listed::default();
    iteration.failures.iter().for_each(|why| failures.push(why.clone()));
    let failed = failures.first.iter().take(MAX_FAILURES).map(|told| match told.times {
        1 => format!("failed: {}", told.text),
        times => format!("failed {times} times: {}", told.text),
    });
    details.extend(failed.map(Detail::Bad));
    details.extend(and_more(MAX_FAILURES, failures.first.len()));
    let scm = iteration.scm_failed.iter().take(MAX_FAILURES);
    details.extend(scm.map(|it| Detail::Bad(format!("SCM task failed: {}: {}", it.task, it.why))));
    let vetoed = iteration.vetoed.iter();
    details.extend(vetoed.map(|why| Detail::Bad(format!("not complete: {why}"))));
    details
}

fn commit_line(commit: &Commit) -> String {
    let gone = if commit.gone { " (on no branch any more)" } else { "" };
    format!("{} {}{gone}", short(&commit.id), commit.subject)
}

/// The beginning of a commit's name.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// The first and the last of the iterations, and those between that are not worth a line each.
pub(super) fn fold(
    iterations: &[Iteration],
    first: usize,
    last: usize,
) -> (&[Iteration], &[Iteration], &[Iteration]) {
    if iterations.len() <= first + last + 1 {
        return (iterations, &[], &[]);
    }
    let (first, rest) = iterations.split_at(first);
    let (middle, last) = rest.split_at(rest.len() - last);
    (first, middle, last)
}

/// What is told of many iterations at once.
pub(super) fn in_short(iterations: &[Iteration]) -> String {
    let mut states: Vec<(&str, u32)> = Vec::new();
    let (mut took, mut commits) = (0_u64, 0);
    let (mut cost, mut guessed) = (None, "");
    for iteration in iterations {
        took = took.saturating_add(iteration.duration_ms);
        commits += iteration.commits.len();
        if iteration.estimated_cost_usd.is_some() {
            guessed = "~";
        }
        if let Some(own) = iteration.estimated_cost_usd.or(iteration.usage.cost_usd) {
            *cost.get_or_insert(0.0) += own;
        }
        let word = state(iteration);
        match states.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => states.push((word, 1)),
        }
    }
    states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let states: Vec<String> =
        states.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
    let cost = cost.map(|cost| format!(", {guessed}{}", text::dollars(cost))).unwrap_or_default();
    let number = |iteration: Option<&Iteration>| iteration.map_or(0, |it| it.number);
    format!(
        "{} to {}: {}; {}{cost}, {commits} commits",
        number(iterations.first()),
        number(iterations.last()),
        states.join(", "),
        text::duration(took)
    )
}

/// On one line, and nothing in it that steers a terminal or turns what follows around.
pub(super) fn clean(text: &str) -> String {
    let mut out = Vec::new();
    visible::one_line(text, 300, "…", &mut out);
    String::from_utf8(out).unwrap_or_default()
}
