//! One attempt at an iteration: the agent, how it ended, and whether to try again.

use jiff::Timestamp;

use super::super::rules::RetryScope;
use super::timers::WALL_CLOCK_CHECK_MS;
use super::{Action, LoopMachine, Now, Phase, Report};
use ralph_events::event::{
    Class, EndCause, Event, Failure, Feedback, Outcome, Purpose, WaitReason,
};
use ralph_events::exit_code;
use ralph_events::run_state::RateLimits as Limits;
use ralph_events::text;

/// A limit that ends at a full second has ended for everybody a moment later.
const RESET_SLACK_MS: i64 = 1_000;

/// Of an agent that says nothing of its own, whatever it prints.
const PROMPT_ECHO_MESSAGE: &str = "the agent repeated its prompt and said nothing else";

impl LoopMachine {
    pub(super) fn agent_purpose(&self) -> Option<Purpose> {
        match self.phase {
            Phase::Agent { purpose, .. } => Some(purpose),
            _ => None,
        }
    }

    pub(super) fn retry(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        if self.iteration_budget_exceeded(self.worked_ms) {
            // What was done so far stands and is checked; the next iteration has a budget of its own.
            self.class = Class::Limited;
            return self.run_checks(now, out);
        }
        if self.pause {
            return self.enter_pause(now, true, out);
        }
        self.attempt += 1;
        if self.rules.gates {
            self.phase = Phase::Briefing;
            out.push(Action::CollectBriefing);
        } else {
            self.start_agent(now, Purpose::Work, out);
        }
    }

    /// The gates have said what the agent has to know.
    pub(super) fn on_briefed(&mut self, now: Now, feedback: Vec<Feedback>, out: &mut Vec<Action>) {
        if self.phase != Phase::Briefing {
            return;
        }
        if self.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if self.pause {
            // It has not begun.
            self.attempt -= 1;
            return self.enter_pause(now, true, out);
        }
        self.feedback.truncate(self.lasting_feedback);
        self.feedback.extend(feedback);
        self.start_agent(now, Purpose::Work, out);
    }

    pub(super) fn start_agent(&mut self, now: Now, purpose: Purpose, out: &mut Vec<Action>) {
        self.spending.start_attempt();
        self.budget_ended_it = false;
        self.background = 0;
        self.tool_running = false;
        self.refused = false;
        let at = now.mono_ms;
        self.phase =
            Phase::Agent { purpose, started: at, last_output: at, result_at: None, ending: false };
        out.push(Action::StartAgent(purpose));
    }

    pub(super) fn agent_not_started(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.spending.start_attempt();
        match self.agent_purpose() {
            Some(Purpose::Work) => {
                self.class = Class::NotStarted;
                if self.stop.is_some() {
                    self.finish_stopped(now, out);
                } else {
                    self.handle_failure(now, message, out);
                }
            }
            Some(Purpose::CommitMessage) => self.on_missing_commit_message(now, out),
            None => {}
        }
    }

    pub(super) fn agent_ended(&mut self, now: Now, report: Report, out: &mut Vec<Action>) {
        let Phase::Agent { purpose, started, .. } = self.phase else {
            return;
        };
        self.spending.end_attempt(&report.usage);
        self.tools = self.tools.saturating_add(report.tools);
        self.tool_errors = self.tool_errors.saturating_add(report.tool_errors);
        self.worked_ms = self.worked_ms.saturating_add(now.mono_ms.saturating_sub(started));
        if purpose == Purpose::CommitMessage {
            if self.stop.is_some() {
                self.finish_stopped(now, out);
            } else {
                let given = report.has_message && report.class == Class::Answered;
                let started = now.mono_ms;
                self.phase = Phase::LookingAtStaged { given, started, ending: false };
                out.push(Action::CheckStaged);
            }
            return;
        }
        self.classify_attempt(now, report, out);
    }

    /// What is made of an agent that has ended, and whose use is counted.
    pub(super) fn classify_attempt(&mut self, now: Now, report: Report, out: &mut Vec<Action>) {
        self.class = report.class;
        // Whatever it said: one that failed, was ended or said nothing has not completed anything.
        self.complete = report.complete && report.class == Class::Answered;
        self.found = report.found;
        if self.stop.is_some() && !self.may_check_gates(0) {
            return self.finish_stopped(now, out);
        }
        if report.class != Class::RateLimited && report.class != Class::Overloaded {
            self.limits = Limits::default();
        }
        let told = report.failure.as_ref().map(|failure| failure.message.clone());
        match report.class {
            Class::Answered => self.handle_answer(now, out),
            Class::Empty if !self.rules.retry_empty => self.handle_answer(now, out),
            Class::Limited => {
                if let Some(used_up) = self.run_budget_exceeded(now) {
                    return self.finish_by_budget(now, &used_up, out);
                }
                if std::mem::take(&mut self.budget_ended_it) {
                    let message = "the agent was ended because its tokens were taken to cost what is left of the \
                                   budget, and it has told less since: the run goes on";
                    out.push(Action::Emit(Event::Warning { message: message.into() }));
                }
                self.handle_answer(now, out);
            }
            Class::TimedOut if !self.rules.inactivity_fails => self.handle_answer(now, out),
            Class::Credentials => {
                let message =
                    told.unwrap_or_else(|| "the agent's credentials were refused".to_owned());
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
                let message = told.unwrap_or_else(|| "the agent is at its limit".to_owned());
                self.handle_rate_limit(now, resets_at, &message, out);
            }
            Class::Empty => {
                let repeats = report.repeats_prompt;
                let message = if repeats { PROMPT_ECHO_MESSAGE } else { "the agent said nothing" };
                self.handle_failure(now, message.to_owned(), out);
            }
            Class::Failed if report.failure.as_ref().is_some_and(Failure::is_permanent) => {
                self.failures += 1;
                self.give_up(now, told.unwrap_or(report.exit), out);
            }
            Class::Failed
            | Class::ContextExhausted
            | Class::TimedOut
            | Class::Interrupted
            | Class::NotStarted => {
                let message = told.unwrap_or(report.exit);
                self.handle_failure(now, message, out);
            }
        }
    }

    fn handle_answer(&mut self, now: Now, out: &mut Vec<Action>) {
        self.failures = 0;
        self.any_succeeded = true;
        self.run_checks(now, out);
    }

    /// An attempt failed, and the retry policy decides.
    fn handle_failure(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.failures += 1;
        let fatal = self.rules.retry.max_failures();
        if self.failures >= fatal {
            return self.give_up(now, message, out);
        }
        let delay_ms = self.rules.retry.backoff(self.failures);
        let uses_iteration = matches!(self.rules.retry.scope, RetryScope::NextIteration { .. });
        let is_last = uses_iteration && self.iteration >= self.rules.max_iterations;
        let may_wait = self.run_budget_exceeded(now).is_none()
            && self.remaining_ms(now).is_none_or(|left| left > delay_ms);
        out.push(Action::Emit(Event::Retrying {
            class: self.class,
            message: message.into(),
            delay_ms: Some(delay_ms).filter(|_| may_wait && !is_last),
            failures: self.failures,
            max_failures: fatal,
        }));
        if uses_iteration {
            self.end_iteration(now, false, out);
            out.push(Action::Save);
            if is_last {
                // There is nothing left to wait for.
                return self.next_iteration(now, out);
            }
        }
        self.wait(now, WaitReason::Backoff, delay_ms, None, out);
    }

    /// The agent's account or service has had enough for now. The iteration is tried again, and the
    /// wait counts as no failure.
    fn handle_rate_limit(
        &mut self,
        now: Now,
        resets_at: Option<i64>,
        message: &str,
        out: &mut Vec<Action>,
    ) {
        let limit = self.rules.rate_limit;
        self.limits.count = self.limits.count.saturating_add(1);
        let until_wall = resets_at
            .map(|seconds| seconds.saturating_mul(1000).saturating_add(RESET_SLACK_MS))
            .filter(|until| *until > now.wall_ms);
        let delay_ms = match until_wall {
            Some(until) => until.abs_diff(now.wall_ms),
            None => self.rules.retry.backoff(self.limits.count),
        };
        let waited = self.limits.waited_ms.saturating_add(delay_ms);
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
        self.limits.waited_ms = waited;
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
        // There is no use in waiting for what may not be done any more.
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        let until_ms = now.wall_ms.saturating_add_unsigned(delay_ms);
        if let Some(left_ms) = self.remaining_ms(now).filter(|left| *left <= delay_ms) {
            let what = match until_wall.and_then(|until| Timestamp::from_millisecond(until).ok()) {
                Some(until) => format!("the limit ends at {},", until.strftime("%F %H:%M UTC")),
                None => "the next attempt is due".to_owned(),
            };
            let (delay, left) = (text::format_duration(delay_ms), text::format_duration(left_ms));
            let message =
                format!("{what} in {delay}, and the time of this run is used up in {left}");
            return self.finish(now, Outcome::Budget, exit_code::BUDGET, message, out);
        }
        out.push(Action::Emit(Event::Waiting { reason, until_ms }));
        let first = if until_wall.is_some() { delay_ms.min(WALL_CLOCK_CHECK_MS) } else { delay_ms };
        self.phase = Phase::Waiting {
            reason,
            until_mono: now.mono_ms.saturating_add(first),
            until_wall,
            latest_mono: now.mono_ms.saturating_add(delay_ms),
        };
    }

    pub(super) fn end_agent(&mut self, cause: EndCause, out: &mut Vec<Action>) {
        if let Phase::Agent { ending, .. } = &mut self.phase
            && !std::mem::replace(ending, true)
        {
            out.push(Action::EndAgent(cause));
        }
    }
}
