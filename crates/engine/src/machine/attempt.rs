//! Attempts: start of the agent, classification of its end, retries and waits.

use jiff::Timestamp;

use super::super::rules::RetryScope;
use super::timers::WALL_CLOCK_CHECK_MS;
use super::{Action, AgentReport, AgentRun, Job, JobEnd, LoopMachine, Phase, RefusedHost, Step};
use ralph_events::event::{
    Class, EndCause, Event, Failure, Feedback, Outcome, Purpose, WaitReason,
};
use ralph_events::exit_code;
use ralph_events::run_state::RateLimits;
use ralph_events::text;

/// Limits that reset at a full second may last a moment longer.
const RESET_SLACK_MS: i64 = 1_000;

const PROMPT_ECHO_MESSAGE: &str = "the agent only repeated its prompt";

impl LoopMachine {
    pub(super) fn retry(&mut self, step: &mut Step) {
        if self.finish_if_due(step, true) {
            return;
        }
        if self.iteration_budget_exceeded(self.iteration.worked_ms) {
            // The work so far is checked; the next iteration has a new budget.
            self.iteration.class = Class::Limited;
            return self.run_checks(step);
        }
        if self.steering.pause {
            return self.enter_pause(step, true);
        }
        if self.rules.gates {
            self.phase = Phase::Briefing;
            step.push(Action::CollectBriefing);
        } else {
            self.start_agent(step, Purpose::Work);
        }
    }

    pub(super) fn on_briefed(&mut self, step: &mut Step, feedback: Vec<Feedback>) {
        if self.phase != Phase::Briefing {
            return;
        }
        if self.steering.ends_iteration() {
            return self.finish_stopped(step);
        }
        if self.steering.pause {
            return self.enter_pause(step, true);
        }
        self.feedback.brief(feedback);
        self.start_agent(step, Purpose::Work);
    }

    pub(super) fn start_agent(&mut self, step: &mut Step, purpose: Purpose) {
        self.totals.spending.start_attempt();
        if purpose == Purpose::Work {
            self.iteration.attempt += 1;
            self.conversation.fill_prompt();
        }
        self.start_job(step, Job::Agent(AgentRun::new(purpose, step.now)));
    }

    /// Reports each refused host once per iteration, up to the cap.
    pub(super) fn on_refusals(&mut self, step: &mut Step, hosts: Vec<RefusedHost>) {
        let most = self.rules.max_refusals;
        for refused in hosts {
            let reported = &mut self.iteration.refused;
            if reported.len() > most || !reported.insert(refused.clone()) {
                continue;
            }
            let event = if reported.len() > most {
                let message =
                    format!("more than {most} hosts were refused; the rest are not listed");
                Event::Warning { message: message.into() }
            } else {
                Event::NetworkRefused {
                    host: refused.host.into(),
                    port: refused.port,
                    reason: refused.reason.into(),
                    allow: refused.allow_entry.into(),
                }
            };
            self.emit(step, event);
        }
    }

    pub(super) fn agent_not_started(&mut self, step: &mut Step, message: String) {
        self.totals.spending.start_attempt();
        match self.agent().map(|agent| agent.purpose) {
            Some(Purpose::Work) => {
                self.iteration.class = Class::NotStarted;
                if self.steering.stop.is_some() {
                    self.finish_stopped(step);
                } else {
                    self.handle_failure(step, message);
                }
            }
            Some(Purpose::CommitMessage) => self.on_missing_commit_message(step),
            None => {}
        }
    }

    pub(super) fn agent_ended(&mut self, step: &mut Step, report: AgentReport) {
        let Phase::Running { job: Job::Agent(agent), started, ending } = self.phase else {
            return;
        };
        self.totals.spending.end_attempt(&report.usage);
        self.totals.tools = self.totals.tools.saturating_add(report.tools);
        self.totals.tool_errors = self.totals.tool_errors.saturating_add(report.tool_errors);
        self.iteration.worked_ms =
            self.iteration.worked_ms.saturating_add(step.now.mono_ms.saturating_sub(started));
        if agent.purpose == Purpose::CommitMessage {
            if self.steering.ends_iteration() {
                self.finish_stopped(step);
            } else {
                let has_message = report.has_message && report.class == Class::Answered;
                self.start_job(step, Job::CommitGuard { has_message });
            }
            return;
        }
        let restarts = ending == Some(JobEnd::CutOff(EndCause::Guidance));
        if restarts && report.class == Class::Interrupted && !self.steering.ends_iteration() {
            self.retries.limits = RateLimits::default();
            return self.retry(step);
        }
        self.classify_attempt(step, report);
    }

    /// Decides what follows an attempt whose usage is already counted.
    pub(super) fn classify_attempt(&mut self, step: &mut Step, report: AgentReport) {
        self.iteration.class = report.class;
        // Only an attempt that ended normally with an answer can complete anything.
        self.iteration.complete = report.complete && report.class == Class::Answered;
        self.iteration.found = report.found;
        if self.steering.ends_iteration() && !self.may_check_gates(0) {
            return self.finish_stopped(step);
        }
        if report.class != Class::RateLimited && report.class != Class::Overloaded {
            self.retries.limits = RateLimits::default();
        }
        let failure_message = report.failure.as_ref().map(|failure| failure.message.clone());
        match report.class {
            Class::Answered => self.handle_answer(step),
            Class::Empty if !self.rules.retry_empty => self.handle_answer(step),
            Class::Limited => {
                if let Some(used_up) = self.run_budget_exceeded(step.now) {
                    return self.finish_by_budget(step, &used_up);
                }
                if self.agent().is_some_and(|agent| agent.budget_ended) {
                    let message = "the agent was stopped because its estimated cost used up the \
                                   budget; the reported cost is lower, so the run continues";
                    self.emit(step, Event::Warning { message: message.into() });
                }
                self.handle_answer(step);
            }
            Class::TimedOut if !self.rules.inactivity_fails => self.handle_answer(step),
            Class::Credentials => {
                let message = failure_message
                    .unwrap_or_else(|| "the agent's credentials were refused".to_owned());
                self.finish(step, Outcome::CredentialsRefused, exit_code::AGENT_FAILED, message);
            }
            Class::RateLimited | Class::Overloaded => {
                let resets_at = report.failure.as_ref().and_then(|failure| failure.resets_at);
                let message = failure_message
                    .unwrap_or_else(|| "the agent reached its rate limit".to_owned());
                self.handle_rate_limit(step, resets_at, &message);
            }
            Class::Empty => {
                let repeats = report.repeats_prompt;
                let message = if repeats { PROMPT_ECHO_MESSAGE } else { "the agent said nothing" };
                self.handle_failure(step, message.to_owned());
            }
            Class::Failed if report.failure.as_ref().is_some_and(Failure::is_permanent) => {
                self.retries.failures += 1;
                self.give_up(step, failure_message.unwrap_or(report.exit));
            }
            Class::Failed
            | Class::ContextExhausted
            | Class::TimedOut
            | Class::Interrupted
            | Class::NotStarted => {
                let message = failure_message.unwrap_or(report.exit);
                self.handle_failure(step, message);
            }
        }
    }

    fn handle_answer(&mut self, step: &mut Step) {
        self.retries.record_success();
        self.run_checks(step);
    }

    fn handle_failure(&mut self, step: &mut Step, message: String) {
        if self.steering.stop.is_some() {
            return self.finish_stopped(step);
        }
        self.retries.failures += 1;
        let fatal = self.rules.retry.max_failures();
        if self.retries.failures >= fatal {
            return self.give_up(step, message);
        }
        let delay_ms = self.rules.retry.backoff(self.retries.failures);
        let uses_iteration = matches!(self.rules.retry.scope, RetryScope::NextIteration { .. });
        let is_last = uses_iteration && self.iteration.number >= self.rules.max_iterations;
        let may_wait = self.run_budget_exceeded(step.now).is_none()
            && self.remaining_ms(step.now).is_none_or(|remaining| remaining > delay_ms);
        let event = Event::Retrying {
            class: self.iteration.class,
            message: message.into(),
            delay_ms: Some(delay_ms).filter(|_| may_wait && !is_last),
            failures: self.retries.failures,
            max_failures: fatal,
        };
        self.emit(step, event);
        if uses_iteration {
            self.end_iteration(step, false);
            step.push(Action::Save);
            if is_last {
                return self.next_iteration(step);
            }
        }
        self.wait(step, WaitReason::Backoff, delay_ms, None);
    }

    /// Waits and retries the iteration. Not counted as a failure.
    fn handle_rate_limit(&mut self, step: &mut Step, resets_at: Option<i64>, message: &str) {
        if self.steering.stop.is_some() {
            return self.finish_stopped(step);
        }
        let limit = self.rules.rate_limit;
        self.retries.limits.count = self.retries.limits.count.saturating_add(1);
        let until_wall = resets_at
            .map(|seconds| seconds.saturating_mul(1000).saturating_add(RESET_SLACK_MS))
            .filter(|until| *until > step.now.wall_ms);
        let delay_ms = match until_wall {
            Some(until) => until.abs_diff(step.now.wall_ms),
            None => self.rules.retry.backoff(self.retries.limits.count),
        };
        let waited = self.retries.limits.waited_ms.saturating_add(delay_ms);
        if !limit.wait || waited > limit.max_wait_ms {
            let why = if limit.wait {
                format!("waiting longer than {}", text::format_duration(limit.max_wait_ms))
            } else {
                "waiting for rate limits".to_owned()
            };
            let message = format!("{message} (rateLimit in the settings does not allow {why})");
            return self.finish(step, Outcome::AgentFailed, exit_code::AGENT_FAILED, message);
        }
        self.retries.limits.waited_ms = waited;
        self.wait(step, WaitReason::RateLimit, delay_ms, until_wall);
    }

    fn wait(
        &mut self,
        step: &mut Step,
        reason: WaitReason,
        delay_ms: u64,
        until_wall: Option<i64>,
    ) {
        if let Some(used_up) = self.run_budget_exceeded(step.now) {
            return self.finish_by_budget(step, &used_up);
        }
        let until_ms = step.now.wall_ms.saturating_add_unsigned(delay_ms);
        if let Some(remaining_ms) =
            self.remaining_ms(step.now).filter(|remaining| *remaining <= delay_ms)
        {
            let next_attempt =
                match until_wall.and_then(|until| Timestamp::from_millisecond(until).ok()) {
                    Some(until) => {
                        format!("the rate limit resets at {},", until.strftime("%F %H:%M UTC"))
                    }
                    None => "the next attempt is due".to_owned(),
                };
            let (delay, remaining) =
                (text::format_duration(delay_ms), text::format_duration(remaining_ms));
            let message =
                format!("{next_attempt} in {delay}, but the run's time is up in {remaining}");
            return self.finish(step, Outcome::Budget, exit_code::BUDGET, message);
        }
        self.emit(step, Event::Waiting { reason, until_ms });
        let first = if until_wall.is_some() { delay_ms.min(WALL_CLOCK_CHECK_MS) } else { delay_ms };
        self.phase = Phase::Waiting {
            reason,
            until_mono: step.now.mono_ms.saturating_add(first),
            until_wall,
            latest_mono: step.now.mono_ms.saturating_add(delay_ms),
        };
    }
}
