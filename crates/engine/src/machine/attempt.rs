//! Attempts: start of the agent, classification of its end, retries and waits.

use jiff::Timestamp;

use super::super::rules::RetryScope;
use super::timers::WALL_CLOCK_CHECK_MS;
use super::{Action, AgentReport, AgentRun, Job, LoopMachine, Now, Phase, RefusedHost};
use ralph_events::event::{Class, Event, Failure, Feedback, Outcome, Purpose, WaitReason};
use ralph_events::exit_code;
use ralph_events::run_state::RateLimits;
use ralph_events::text;

/// Limits that reset at a full second may last a moment longer.
const RESET_SLACK_MS: i64 = 1_000;

const PROMPT_ECHO_MESSAGE: &str = "the agent repeated its prompt and said nothing else";

impl LoopMachine {
    pub(super) fn retry(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.steering.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        if self.iteration_budget_exceeded(self.iteration.worked_ms) {
            // The work so far is checked; the next iteration has a new budget.
            self.iteration.class = Class::Limited;
            return self.run_checks(now, out);
        }
        if self.steering.pause {
            return self.enter_pause(now, true, out);
        }
        if self.rules.gates {
            self.phase = Phase::Briefing;
            out.push(Action::CollectBriefing);
        } else {
            self.start_agent(now, Purpose::Work, out);
        }
    }

    pub(super) fn on_briefed(&mut self, now: Now, feedback: Vec<Feedback>, out: &mut Vec<Action>) {
        if self.phase != Phase::Briefing {
            return;
        }
        if self.steering.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if self.steering.pause {
            return self.enter_pause(now, true, out);
        }
        self.feedback.brief(feedback);
        self.start_agent(now, Purpose::Work, out);
    }

    pub(super) fn start_agent(&mut self, now: Now, purpose: Purpose, out: &mut Vec<Action>) {
        self.totals.spending.start_attempt();
        if purpose == Purpose::Work {
            self.iteration.attempt += 1;
        }
        self.start_job(now, Job::Agent(AgentRun::new(purpose, now)), out);
    }

    /// Reports each refused host once per iteration, up to the cap.
    pub(super) fn on_refusals(&mut self, now: Now, hosts: Vec<RefusedHost>, out: &mut Vec<Action>) {
        let most = self.rules.max_refusals;
        for refused in hosts {
            let reported = &mut self.iteration.refused;
            if reported.len() > most || !reported.insert(refused.clone()) {
                continue;
            }
            let event = if reported.len() > most {
                let message =
                    format!("more than {most} hosts were refused; others are not told of");
                Event::Warning { message: message.into() }
            } else {
                Event::NetworkRefused {
                    host: refused.host.into(),
                    port: refused.port,
                    reason: refused.reason.into(),
                    allow: refused.allow_entry.into(),
                }
            };
            self.emit(now, event, out);
        }
    }

    pub(super) fn agent_not_started(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.totals.spending.start_attempt();
        match self.agent().map(|agent| agent.purpose) {
            Some(Purpose::Work) => {
                self.iteration.class = Class::NotStarted;
                if self.steering.stop.is_some() {
                    self.finish_stopped(now, out);
                } else {
                    self.handle_failure(now, message, out);
                }
            }
            Some(Purpose::CommitMessage) => self.on_missing_commit_message(now, out),
            None => {}
        }
    }

    pub(super) fn agent_ended(&mut self, now: Now, report: AgentReport, out: &mut Vec<Action>) {
        let Phase::Running { job: Job::Agent(agent), started, .. } = self.phase else {
            return;
        };
        self.totals.spending.end_attempt(&report.usage);
        self.totals.tools = self.totals.tools.saturating_add(report.tools);
        self.totals.tool_errors = self.totals.tool_errors.saturating_add(report.tool_errors);
        self.iteration.worked_ms =
            self.iteration.worked_ms.saturating_add(now.mono_ms.saturating_sub(started));
        if agent.purpose == Purpose::CommitMessage {
            if self.steering.stop.is_some() {
                self.finish_stopped(now, out);
            } else {
                let has_message = report.has_message && report.class == Class::Answered;
                self.start_job(now, Job::CommitGuard { has_message }, out);
            }
            return;
        }
        self.classify_attempt(now, report, out);
    }

    /// Decides what follows an attempt whose usage is already counted.
    pub(super) fn classify_attempt(
        &mut self,
        now: Now,
        report: AgentReport,
        out: &mut Vec<Action>,
    ) {
        self.iteration.class = report.class;
        // Only an attempt that ended normally with an answer can complete anything.
        self.iteration.complete = report.complete && report.class == Class::Answered;
        self.iteration.found = report.found;
        if self.steering.stop.is_some() && !self.may_check_gates(0) {
            return self.finish_stopped(now, out);
        }
        if report.class != Class::RateLimited && report.class != Class::Overloaded {
            self.retries.limits = RateLimits::default();
        }
        let failure_message = report.failure.as_ref().map(|failure| failure.message.clone());
        match report.class {
            Class::Answered => self.handle_answer(now, out),
            Class::Empty if !self.rules.retry_empty => self.handle_answer(now, out),
            Class::Limited => {
                if let Some(used_up) = self.run_budget_exceeded(now) {
                    return self.finish_by_budget(now, &used_up, out);
                }
                if self.agent().is_some_and(|agent| agent.budget_ended) {
                    let message = "the agent was ended because its tokens were taken to cost what is left of the \
                                   budget, and it has told less since: the run goes on";
                    self.emit(now, Event::Warning { message: message.into() }, out);
                }
                self.handle_answer(now, out);
            }
            Class::TimedOut if !self.rules.inactivity_fails => self.handle_answer(now, out),
            Class::Credentials => {
                let message = failure_message
                    .unwrap_or_else(|| "the agent's credentials were refused".to_owned());
                self.finish(
                    now,
                    Outcome::CredentialsRefused,
                    exit_code::AGENT_FAILED,
                    message,
                    out,
                );
            }
            Class::RateLimited | Class::Overloaded => {
                let resets_at = report.failure.as_ref().and_then(|failure| failure.resets_at);
                let message =
                    failure_message.unwrap_or_else(|| "the agent is at its limit".to_owned());
                self.handle_rate_limit(now, resets_at, &message, out);
            }
            Class::Empty => {
                let repeats = report.repeats_prompt;
                let message = if repeats { PROMPT_ECHO_MESSAGE } else { "the agent said nothing" };
                self.handle_failure(now, message.to_owned(), out);
            }
            Class::Failed if report.failure.as_ref().is_some_and(Failure::is_permanent) => {
                self.retries.failures += 1;
                self.give_up(now, failure_message.unwrap_or(report.exit), out);
            }
            Class::Failed
            | Class::ContextExhausted
            | Class::TimedOut
            | Class::Interrupted
            | Class::NotStarted => {
                let message = failure_message.unwrap_or(report.exit);
                self.handle_failure(now, message, out);
            }
        }
    }

    fn handle_answer(&mut self, now: Now, out: &mut Vec<Action>) {
        self.retries.failures = 0;
        self.retries.any_succeeded = true;
        self.run_checks(now, out);
    }

    fn handle_failure(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.retries.failures += 1;
        let fatal = self.rules.retry.max_failures();
        if self.retries.failures >= fatal {
            return self.give_up(now, message, out);
        }
        let delay_ms = self.rules.retry.backoff(self.retries.failures);
        let uses_iteration = matches!(self.rules.retry.scope, RetryScope::NextIteration { .. });
        let is_last = uses_iteration && self.iteration.number >= self.rules.max_iterations;
        let may_wait = self.run_budget_exceeded(now).is_none()
            && self.remaining_ms(now).is_none_or(|remaining| remaining > delay_ms);
        let event = Event::Retrying {
            class: self.iteration.class,
            message: message.into(),
            delay_ms: Some(delay_ms).filter(|_| may_wait && !is_last),
            failures: self.retries.failures,
            max_failures: fatal,
        };
        self.emit(now, event, out);
        if uses_iteration {
            self.end_iteration(now, false, out);
            out.push(Action::Save);
            if is_last {
                return self.next_iteration(now, out);
            }
        }
        self.wait(now, WaitReason::Backoff, delay_ms, None, out);
    }

    /// Waits and retries the iteration. Not counted as a failure.
    fn handle_rate_limit(
        &mut self,
        now: Now,
        resets_at: Option<i64>,
        message: &str,
        out: &mut Vec<Action>,
    ) {
        let limit = self.rules.rate_limit;
        self.retries.limits.count = self.retries.limits.count.saturating_add(1);
        let until_wall = resets_at
            .map(|seconds| seconds.saturating_mul(1000).saturating_add(RESET_SLACK_MS))
            .filter(|until| *until > now.wall_ms);
        let delay_ms = match until_wall {
            Some(until) => until.abs_diff(now.wall_ms),
            None => self.rules.retry.backoff(self.retries.limits.count),
        };
        let waited = self.retries.limits.waited_ms.saturating_add(delay_ms);
        if !limit.wait || waited > limit.max_wait_ms {
            let why = if limit.wait {
                format!("waiting longer than {}", text::format_duration(limit.max_wait_ms))
            } else {
                "waiting for limits".to_owned()
            };
            let message =
                format!("{message} ({why} is not allowed: see rateLimit in the settings)");
            return self.finish(now, Outcome::AgentFailed, exit_code::AGENT_FAILED, message, out);
        }
        self.retries.limits.waited_ms = waited;
        self.wait(now, WaitReason::RateLimit, delay_ms, until_wall, out);
    }

    fn wait(
        &mut self,
        now: Now,
        reason: WaitReason,
        delay_ms: u64,
        until_wall: Option<i64>,
        out: &mut Vec<Action>,
    ) {
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        let until_ms = now.wall_ms.saturating_add_unsigned(delay_ms);
        if let Some(remaining_ms) =
            self.remaining_ms(now).filter(|remaining| *remaining <= delay_ms)
        {
            let next_attempt =
                match until_wall.and_then(|until| Timestamp::from_millisecond(until).ok()) {
                    Some(until) => format!("the limit ends at {},", until.strftime("%F %H:%M UTC")),
                    None => "the next attempt is due".to_owned(),
                };
            let (delay, remaining) =
                (text::format_duration(delay_ms), text::format_duration(remaining_ms));
            let message = format!(
                "{next_attempt} in {delay}, and the time of this run is used up in {remaining}"
            );
            return self.finish(now, Outcome::Budget, exit_code::BUDGET, message, out);
        }
        self.emit(now, Event::Waiting { reason, until_ms }, out);
        let first = if until_wall.is_some() { delay_ms.min(WALL_CLOCK_CHECK_MS) } else { delay_ms };
        self.phase = Phase::Waiting {
            reason,
            until_mono: now.mono_ms.saturating_add(first),
            until_wall,
            latest_mono: now.mono_ms.saturating_add(delay_ms),
        };
    }
}
