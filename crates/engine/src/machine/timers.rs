//! Timers and budgets.

use super::{Action, AgentRun, Job, JobEnd, LoopMachine, Now, Phase, Step};
use ralph_events::event::{EndCause, Event, Purpose};

/// How often a wait is compared with the wall clock, which advances while the computer sleeps.
pub(super) const WALL_CLOCK_CHECK_MS: u64 = 60_000;
/// Time to exit, or to find other credentials. Some agents retry for minutes.
const REFUSED_GRACE_MS: u64 = 3_000;
/// The warning comes after this fraction of the limit.
const SILENCE_WARNING_FRACTION: u64 = 4;
/// A repository that takes longer has no fingerprint.
const STALL_CHECK_TIMEOUT_MS: u64 = 30_000;
/// After that, ralph commits with a default message.
const COMMIT_MESSAGE_TIMEOUT_MS: u64 = 5 * 60_000;
/// Lets SCM tasks commit checked work after the run's time is up.
pub(super) const FINAL_SCM_GRACE_MS: u64 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    CheckDone,
    End(JobEnd),
    WarnSilent,
    CheckBudgets,
    EndWait,
    /// The time of the run is up during a wait.
    FinishByBudget,
}

impl LoopMachine {
    /// The time at which [`super::Input::Timer`] is due, by the monotonic clock.
    pub fn deadline(&self) -> Option<u64> {
        self.timers().map(|(at, _)| at).min()
    }

    /// In order of precedence: the first one that is due fires.
    fn timers(&self) -> impl Iterator<Item = (u64, Due)> {
        let run = self.run_deadline();
        // The cause is recorded for agents only.
        let cut_off = Due::End(JobEnd::CutOff(EndCause::Budget));
        let rows: Vec<(Option<u64>, Due)> = match self.phase {
            Phase::Running { job, started, ending: None } => match job {
                Job::Agent(agent) => self.agent_timers(&agent, started),
                Job::Guardrail(index) => {
                    let limit = self.rules.guardrails.get(index).copied().flatten();
                    vec![(add_limit(started, limit), Due::End(JobEnd::TimedOut)), (run, cut_off)]
                }
                Job::ScmStatus | Job::CommitGuard { .. } | Job::ScmTask(_) => vec![
                    (add_limit(started, self.rules.scm_timeout_ms), Due::End(JobEnd::TimedOut)),
                    (self.scm_deadline(), cut_off),
                ],
                Job::StallCheck => vec![
                    (add_limit(started, Some(STALL_CHECK_TIMEOUT_MS)), cut_off),
                    (run, cut_off),
                ],
            },
            Phase::Waiting { until_mono, .. } => {
                vec![(run, Due::FinishByBudget), (Some(until_mono), Due::EndWait)]
            }
            _ => Vec::new(),
        };
        rows.into_iter().filter_map(|(at, due)| Some((at?, due)))
    }

    fn agent_timers(&self, agent: &AgentRun, started: u64) -> Vec<(Option<u64>, Due)> {
        let rules = &self.rules;
        // An answer counts, whichever limit the agent meets after it.
        let answered = agent.has_answered().then(|| agent.result_end_cause());
        let end = |cause| Due::End(JobEnd::CutOff(answered.unwrap_or(cause)));
        let silence = self.silence_limit(agent);
        let warning = silence.filter(|_| !self.totals.silence_warned);
        let warning = warning.map(|limit| limit / SILENCE_WARNING_FRACTION);
        vec![
            // First: a limit that is due at the same time must not hide the answer.
            (agent.check_done_at, Due::CheckDone),
            (self.result_deadline(agent), end(agent.result_end_cause())),
            (add_limit(started, rules.iteration_timeout_ms), end(EndCause::IterationTimeout)),
            (message_deadline(agent.purpose, started), end(EndCause::IterationTimeout)),
            (add_limit(agent.last_output, rules.inactivity_ms), end(EndCause::Inactivity)),
            (add_limit(agent.last_output, silence), end(EndCause::SilentModel)),
            (add_limit(agent.last_output, warning), Due::WarnSilent),
            (self.run_deadline(), Due::CheckBudgets),
            (self.iteration_deadline(started), Due::CheckBudgets),
        ]
    }

    pub(super) fn on_timer(&mut self, step: &mut Step) {
        let Some((_, due)) = self.timers().find(|(at, _)| *at <= step.now.mono_ms) else { return };
        match due {
            Due::CheckDone => {
                if let Some(agent) = self.agent_mut() {
                    agent.check_done_at = None;
                }
                step.push(Action::CheckDone);
            }
            Due::End(end) => self.end_job(step, end),
            Due::WarnSilent => self.warn_silent(step),
            Due::CheckBudgets => self.check_budgets(step),
            Due::EndWait => self.end_wait(step),
            Due::FinishByBudget => {
                if let Some(used_up) = self.run_budget_exceeded(step.now) {
                    self.finish_by_budget(step, &used_up);
                }
            }
        }
    }

    fn warn_silent(&mut self, step: &mut Step) {
        let Some(agent) = self.agent() else { return };
        let silent_ms = step.now.mono_ms.saturating_sub(agent.last_output);
        self.totals.silence_warned = true;
        let limit_ms = self.rules.silent_model_ms.unwrap_or(silent_ms);
        self.emit(step, Event::ModelSilent { silent_ms, limit_ms });
    }

    fn end_wait(&mut self, step: &mut Step) {
        let Phase::Waiting { reason, until_mono, until_wall, latest_mono } = &mut self.phase else {
            return;
        };
        // A wall clock that was set back must not prolong the wait.
        if let Some(remaining) = until_wall.map(|until| until.saturating_sub(step.now.wall_ms))
            && remaining > 0
            && step.now.mono_ms < *latest_mono
        {
            let next = remaining.unsigned_abs().min(WALL_CLOCK_CHECK_MS);
            *until_mono = step.now.mono_ms.saturating_add(next).min(*latest_mono);
            return;
        }
        let reason = *reason;
        if self.is_retry_wait(reason) {
            self.retry(step);
        } else {
            self.next_iteration(step);
        }
    }

    fn run_deadline(&self) -> Option<u64> {
        let limit = self.rules.budget.duration_ms?;
        Some(self.clock.deadline(limit))
    }

    /// SCM tasks may finish with checked work after the run's time is up.
    fn scm_deadline(&self) -> Option<u64> {
        self.run_deadline()
            .map(|at| at.saturating_add(FINAL_SCM_GRACE_MS).max(self.iteration.scm.grace_until))
    }

    /// Waiting does not count as work.
    fn iteration_deadline(&self, started: u64) -> Option<u64> {
        let limit = self.rules.iteration_budget.duration_ms?;
        Some(started.saturating_add(limit.saturating_sub(self.iteration.worked_ms)))
    }

    pub(super) fn remaining_ms(&self, now: Now) -> Option<u64> {
        self.run_deadline().map(|at| at.saturating_sub(now.mono_ms))
    }

    fn is_time_up(&self, now: Now) -> bool {
        self.remaining_ms(now) == Some(0)
    }

    fn result_deadline(&self, agent: &AgentRun) -> Option<u64> {
        if agent.refused {
            return add_limit(agent.result_at?, Some(REFUSED_GRACE_MS));
        }
        if agent.background > 0 {
            return None;
        }
        add_limit(agent.result_at?, self.rules.result_grace_ms)
    }

    /// None while a tool or background task runs, or after the result.
    fn silence_limit(&self, agent: &AgentRun) -> Option<u64> {
        let waits_for_model =
            !agent.tool_running && agent.background == 0 && agent.result_at.is_none();
        self.rules.silent_model_ms.filter(|_| waits_for_model)
    }

    pub(super) fn check_budgets(&mut self, step: &mut Step) {
        let Phase::Running { job: Job::Agent(agent), started, .. } = self.phase else { return };
        if agent.has_answered() {
            return self.check_time_after_result(step, &agent, started);
        }
        let worked =
            self.iteration.worked_ms.saturating_add(step.now.mono_ms.saturating_sub(started));
        if self.run_budget_exceeded(step.now).is_some() {
            if let Some(agent) = self.agent_mut() {
                agent.budget_ended = true;
            }
            self.end_job(step, JobEnd::CutOff(EndCause::Budget));
        } else if self.iteration_budget_exceeded(worked) {
            self.end_job(step, JobEnd::CutOff(EndCause::IterationBudget));
        }
    }

    pub(super) fn iteration_budget_exceeded(&self, worked_ms: u64) -> bool {
        self.rules.is_iteration_budget_exceeded(&self.totals.spending, worked_ms)
    }

    /// After the result, ending an agent for its cost would only lose the answer. Time still counts.
    fn check_time_after_result(&mut self, step: &mut Step, agent: &AgentRun, started: u64) {
        let over = self.iteration_deadline(started).is_some_and(|at| step.now.mono_ms >= at);
        if over || self.is_time_up(step.now) {
            self.end_job(step, JobEnd::CutOff(agent.result_end_cause()));
        }
    }

    pub(super) fn run_budget_exceeded(&self, now: Now) -> Option<String> {
        let elapsed = self.clock.active_ms(now.mono_ms);
        let (used, reported) =
            (self.totals.spending.budget_usage(), self.totals.spending.reported_so_far());
        self.rules.budget.exceeded(&used, &reported, elapsed)
    }
}

fn message_deadline(purpose: Purpose, started: u64) -> Option<u64> {
    (purpose == Purpose::CommitMessage).then(|| started.saturating_add(COMMIT_MESSAGE_TIMEOUT_MS))
}

fn add_limit(start: u64, limit_ms: Option<u64>) -> Option<u64> {
    Some(start.saturating_add(limit_ms?))
}
