//! The start and the end of the report: what came of the run, its figures, and what to do next.

use jiff::tz::TimeZone;

use super::words::{count, format_time, group_thousands, sentence};
use super::{DiffStat, RunActivity, Summary};
use crate::next_steps::{NextSteps, RunEnding};
use crate::state_word::StateWord;
use crate::terminal::short_id;
use ralph_events::event::{Class, Outcome, WaitReason};
use ralph_events::run_state::{GuardrailResult, Wait};
use ralph_events::text;

/// The completion rule of a task list in the default place.
const DEFAULT_LIST_PASSES: &str = "every story of ralph/tasks.json passes";
const NO_CHECKS: &str = "This run has no checks: nothing proves it. Add one with --check.";

/// Name and value.
pub(super) type Row = (&'static str, String);

/// Returns what came of the run, in a few sentences.
pub(super) fn lead(facts: &Summary, zone: &TimeZone) -> String {
    let mut sentences = vec![outcome(facts, zone)];
    if let Some((done, total)) = facts.remaining.stories.filter(|_| !is_complete(facts)) {
        sentences.push(format!("{done} of {total} stories pass."));
    }
    sentences.extend(committed(facts));
    sentences.join(" ")
}

fn outcome(facts: &Summary, zone: &TimeZone) -> String {
    match facts.end.outcome {
        Some(outcome) => end_sentence(facts, outcome),
        None if !is_readable(facts) => {
            "Its journal is empty or cannot be read: nothing else is known about this run."
                .to_owned()
        }
        None => open_sentence(facts, zone),
    }
}

/// The end in ralph's words, before those of an agent or the system.
fn end_sentence(facts: &Summary, outcome: Outcome) -> String {
    let last = facts.iterations.last().and_then(|last| last.record.class);
    let cause = match outcome {
        Outcome::Complete if facts.iterations.is_empty() => "",
        Outcome::Complete => return completion(facts),
        Outcome::CompleteScmFailed => {
            return "The work is done, but an SCM task failed.".to_owned();
        }
        Outcome::LimitReached => {
            let limit = count(facts.info.max_iterations as usize, "iteration");
            return format!("Not done: it reached its limit of {limit}.");
        }
        Outcome::Interrupted => {
            let how = facts.end.stopped_by.as_ref().map(|signal| format!(" ({signal})"));
            return format!("Stopped by you{}{}.", how.unwrap_or_default(), position(facts));
        }
        Outcome::Budget | Outcome::Stalled => "Stopped",
        Outcome::AgentFailed if matches!(last, Some(Class::RateLimited | Class::Overloaded)) => {
            "Stopped by the agent's rate limit"
        }
        Outcome::AgentFailed => "",
        Outcome::CredentialsRefused => "The agent's credentials were refused",
        Outcome::PromptMissing => "Failed before the agent started",
        Outcome::InternalError => "Internal error",
    };
    match (cause, facts.end.message.as_str()) {
        ("", "") => sentence(facts.state.as_str()),
        ("", message) => sentence(message),
        (cause, "") => format!("{cause}."),
        (cause, message) => sentence(&format!("{cause}: {message}")),
    }
}

fn completion(facts: &Summary) -> String {
    match facts.remaining.stories {
        Some((_, 1)) => "Its only story passes.".to_owned(),
        Some((_, total)) => format!("All {total} stories pass."),
        None if checks(facts).next().is_some() => "Every check passes.".to_owned(),
        None => "The agent reports that it is done; no check proves it.".to_owned(),
    }
}

fn open_sentence(facts: &Summary, zone: &TimeZone) -> String {
    let position = position(facts);
    let time = |ms: i64| format_time(ms, zone);
    match facts.activity {
        Some(RunActivity::Parked { since_ms }) => {
            format!("Waiting for your answer since {}{position}.", time(since_ms))
        }
        Some(RunActivity::Working) if facts.steering.open_questions().next().is_some() => {
            format!("Working{position}, with an open question.")
        }
        _ if facts.state == StateWord::Asks => format!("The agent waits for an answer{position}."),
        Some(RunActivity::Working) => format!("Working{position}."),
        Some(RunActivity::Waiting { until_ms, reason }) => {
            let why = match reason {
                WaitReason::RateLimit => "Rate limit reached",
                WaitReason::Backoff => "The agent failed",
            };
            format!("{why}: waiting until {}{position}.", time(until_ms))
        }
        Some(RunActivity::Paused { since_ms }) => {
            format!("Paused since {}{position}.", time(since_ms))
        }
        None => {
            let seen = facts.ended_ms.map(|ms| format!(" Last seen {}.", time(ms)));
            let why = "ralph was killed, or the machine went down.";
            format!("Interrupted{position}: {why}{}", seen.unwrap_or_default())
        }
    }
}

/// ` in iteration 3`, ` after iteration 2`, or nothing.
fn position(facts: &Summary) -> String {
    match facts.iterations.last() {
        Some(last) if !last.record.ended || last.record.cut_off => {
            format!(" in iteration {}", last.record.number)
        }
        Some(last) => format!(" after iteration {}", last.record.number),
        None => String::new(),
    }
}

/// The commits in a sentence; `None` if the run did not see a repository.
fn committed(facts: &Summary) -> Option<String> {
    let made = facts.commits().count();
    if made == 0 {
        return facts.head.is_some().then(|| "No commits.".to_owned());
    }
    if facts.repository_gone {
        return Some(format!("{} in a repository that is gone.", count(made, "commit")));
    }
    let last = facts.commit_range().map(|(_, to)| to);
    let last = facts.commits().find(|commit| Some(commit.id.as_str()) == last);
    let branch = match (last, facts.branch()) {
        (Some(last), _) if last.is_detached => " on no branch".to_owned(),
        (Some(last), _) if last.is_unreachable => " on no branch any more".to_owned(),
        (_, Some(branch)) => format!(" on {branch}"),
        (_, None) => String::new(),
    };
    // The range is what the command under "Next" shows.
    let range = facts.range_counts.map(|range| (range.commits as usize, range.own as usize));
    let (shown, own) = range.unwrap_or((made, made));
    let mut words = format!("{}{branch}", count(shown, "commit"));
    if shown > own {
        words += &format!(" ({} not by this run)", shown - own);
    }
    if made > own {
        words += &format!("; {} more gone or on another branch", made - own);
    }
    if let Some(DiffStat { files, added, removed }) = facts.diff_stat {
        let (added, removed) = (group_thousands(added), group_thousands(removed));
        words += &format!(", {}, +{added} −{removed}", count(files as usize, "file"));
    }
    Some(format!("{words}."))
}

/// The figures that matter most.
pub(super) fn main_rows(facts: &Summary) -> Vec<Row> {
    if !is_readable(facts) {
        return Vec::new();
    }
    let took = format!("{}, {}", text::format_duration(facts.duration_ms), iterations(facts));
    let waited = Some(total_wait_ms(facts)).filter(|ms| *ms > 0);
    let waited = waited.map(|ms| format!("; waited {} for rate limits", text::format_duration(ms)));
    let name = if facts.activity.is_some() { "So far" } else { "Took" };
    let mut rows = vec![(name, took + &waited.unwrap_or_default()), ("Cost", cost_line(facts))];
    rows.extend(checks_line(facts).map(|checks| ("Checks", checks)));
    rows.extend(facts.end.last_words.clone().map(|words| ("Stderr", words)));
    rows
}

fn total_wait_ms(facts: &Summary) -> u64 {
    let limits = facts.waits.iter().filter(|wait| wait.reason == WaitReason::RateLimit);
    let waited = |wait: &Wait| wait.ended_ms.map_or(0, |ended| (ended - wait.from_ms).max(0));
    limits.map(waited).sum::<i64>().unsigned_abs()
}

fn iterations(facts: &Summary) -> String {
    let done = facts.iterations.len();
    match facts.info.max_iterations {
        0 => count(done, "iteration"),
        // The limit may have been lowered.
        max if done > max as usize => format!("{} (limit now {max})", count(done, "iteration")),
        max => format!("{done} of {}", count(max as usize, "iteration")),
    }
}

/// The cost; estimates are labelled.
fn cost_line(facts: &Summary) -> String {
    let dollars = text::format_dollars;
    let budget = facts.info.setup.as_ref().and_then(|setup| setup.max_cost_usd);
    let budget = budget.map(|limit| format!(" of {}", dollars(limit))).unwrap_or_default();
    let cost = match (facts.usage.cost_usd, facts.estimated_cost_usd) {
        (None, None) => "unknown: the agent reported none".to_owned(),
        (Some(reported), None) => format!("{}{budget}", dollars(reported)),
        (None, Some(guess)) => {
            format!("about {}{budget} (estimated, the agent reported none)", dollars(guess))
        }
        (Some(reported), Some(guess)) => format!(
            "about {}{budget} ({} reported, the rest estimated)",
            dollars(guess),
            dollars(reported)
        ),
    };
    match facts.usage.total_tokens() {
        0 => cost,
        tokens => format!("{cost}, {} tokens", text::format_count(tokens)),
    }
}

/// All results of checks that ran to their end.
fn checks(facts: &Summary) -> impl DoubleEndedIterator<Item = &GuardrailResult> {
    let all = facts.iterations.iter().flat_map(|iteration| &iteration.record.guardrails);
    all.filter(|check| !check.cut_off)
}

/// Returns the commands of the checks, in the order of their first run.
pub(super) fn check_commands(facts: &Summary) -> Vec<&str> {
    let mut commands: Vec<&str> = Vec::new();
    for check in facts.iterations.iter().flat_map(|iteration| &iteration.record.guardrails) {
        if !commands.contains(&check.command.as_str()) {
            commands.push(&check.command);
        }
    }
    commands
}

fn checks_line(facts: &Summary) -> Option<String> {
    let commands = check_commands(facts);
    if commands.is_empty() {
        let setup = facts.info.setup.as_ref();
        let has_checks = setup.is_some_and(|setup| !setup.checks.is_empty());
        return (!has_checks && !facts.iterations.is_empty()).then(|| NO_CHECKS.to_owned());
    }
    let one = |command: &&str| {
        let own = checks(facts).filter(|check| check.command == *command);
        let results: Vec<bool> = own.map(|check| check.passed).collect();
        let (passed, all) = (results.iter().filter(|passed| **passed).count(), results.len());
        let now = match (results.last(), facts.open_iteration()) {
            (None, _) => return format!("{command} interrupted"),
            (Some(true), _) if passed == all => "",
            (Some(true), None) => ", passes now",
            (Some(true), Some(_)) => ", passed last",
            (Some(false), None) => ", fails now",
            (Some(false), Some(_)) => ", failed last",
        };
        format!("{command} {passed} of {all} passed{now}")
    };
    let shown: Vec<String> = commands.iter().map(one).collect();
    Some(shown.join(" · "))
}

/// Returns the check that failed last and has not passed since.
pub(super) fn failing_check(facts: &Summary) -> Option<&GuardrailResult> {
    let passes_now = |failed: &GuardrailResult| {
        checks(facts).rfind(|it| it.command == failed.command).is_some_and(|it| it.passed)
    };
    checks(facts).rfind(|check| !check.passed && !passes_now(check))
}

/// The circumstances of the run.
pub(super) fn detail_rows(facts: &Summary, zone: &TimeZone) -> Vec<Row> {
    let info = &facts.info;
    let mut rows = vec![("Run", info.run.clone())];
    if !info.command.is_empty() {
        let version = info.setup.as_ref().and_then(|setup| setup.agent_version.as_ref());
        let version = version.map(|version| format!(" {version}")).unwrap_or_default();
        rows.push(("Command", format!("ralph {} with {}{version}", info.command, info.agent)));
    }
    rows.push(("Directory", info.directory.clone()));
    if info.prompt != facts.title {
        rows.push(("Prompt", info.prompt.clone()));
    }
    if let (Some(first), Some(last)) = (&info.branch, &info.last_branch) {
        rows.push(("Branch", format!("{last} (started on {first})")));
    }
    if is_readable(facts) {
        let unknown = || "unknown".to_owned();
        let started = facts.started_ms.map_or_else(unknown, |ms| format_time(ms, zone));
        rows.push(("Started", started));
        let ended = facts.ended_ms.zip(facts.end.exit_code);
        rows.extend(
            ended.map(|(ms, code)| {
                ("Ended", format!("{}, exit code {code}", format_time(ms, zone)))
            }),
        );
    }
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

/// Returns what to do now: look at the commits, merge them, archive the task list, resume.
pub(super) fn next_steps(facts: &Summary, zone: &TimeZone) -> NextSteps {
    let mut steps = NextSteps::default();
    if facts.activity.is_none() && is_readable(facts) {
        steps = ending_steps(facts, zone);
    }
    let resume = std::mem::take(&mut steps.commands);
    steps.commands = commit_commands(facts);
    if facts.state == StateWord::Complete && facts.info.completion == DEFAULT_LIST_PASSES {
        steps.commands.push("ralph archive".to_owned());
    }
    steps.commands.extend(resume);
    if facts.end.notify_pending && is_complete(facts) {
        steps.commands.push(format!("ralph resume {}", short_run_id(facts)));
    }
    steps
}

fn commit_commands(facts: &Summary) -> Vec<String> {
    let Some((from, to)) = facts.commit_range().filter(|_| !facts.repository_gone) else {
        return Vec::new();
    };
    if let (Some(base), Some(branch)) = (&facts.default_branch, facts.branch())
        && is_complete(facts)
    {
        let (range, branch) = (format!("{base}..{branch}"), shell_words::quote(branch));
        return vec![
            format!("git log --oneline {}", shell_words::quote(&range)),
            format!("git switch {}", shell_words::quote(base)),
            format!("git merge --ff-only {branch}"),
        ];
    }
    let is_detached = facts.commits().any(|commit| commit.is_detached && commit.id == to);
    let (from, to) = (text::short_commit(from), text::short_commit(to));
    let keep = is_detached.then(|| format!("git branch NAME {to}"));
    [format!("git log --oneline {from}..{to}")].into_iter().chain(keep).collect()
}

fn ending_steps(facts: &Summary, zone: &TimeZone) -> NextSteps {
    let last = facts.iterations.last();
    let limit_ends = facts.end.limit_ends_ms.map(|ms| format_time(ms, zone));
    let ending = RunEnding {
        run: short_run_id(facts),
        // A killed run is resumed like one that was stopped in an iteration.
        outcome: facts.end.outcome.unwrap_or(Outcome::Interrupted),
        budget_used_up: facts.end.budget_used_up,
        iterations: last.map_or(0, |last| last.record.number),
        max_iterations: facts.info.max_iterations,
        cut_off: facts.end.outcome.is_none()
            || last.is_some_and(|last| last.record.cut_off || !last.record.ended),
        scm_done: last.map_or(&[], |last| &last.record.scm_done),
        limit_ends: limit_ends.as_deref(),
        setup: facts.info.setup.as_deref(),
    };
    ending.next_steps()
}

/// Returns the end of the run's id, which commands accept.
pub(super) fn short_run_id(facts: &Summary) -> &str {
    short_id(&facts.info.run)
}

pub(super) fn is_complete(facts: &Summary) -> bool {
    matches!(facts.end.outcome, Some(Outcome::Complete | Outcome::CompleteScmFailed))
}

pub(super) fn is_readable(facts: &Summary) -> bool {
    facts.started_ms.is_some() || !facts.iterations.is_empty()
}
