//! The one child process that runs at a time.

use super::{Action, LoopMachine, Now, Phase, Step};
use ralph_events::event::{EndCause, Purpose};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Job {
    Agent(AgentRun),
    Guardrail(usize),
    ScmStatus,
    /// Checks what an agent changed while it wrote a commit message.
    CommitGuard {
        has_message: bool,
    },
    ScmTask(usize),
    StallCheck,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct AgentRun {
    pub(super) purpose: Purpose,
    pub(super) last_output: u64,
    /// When to see whether it has said that it is done, unless it prints before.
    pub(super) check_done_at: Option<u64>,
    /// Reset when it works again.
    pub(super) result_at: Option<u64>,
    pub(super) background: u32,
    pub(super) tool_running: bool,
    /// Its result is that its credentials were refused.
    pub(super) refused: bool,
    /// By the costs known then, the budget of the run was used up.
    pub(super) budget_ended: bool,
}

impl AgentRun {
    pub(super) fn new(purpose: Purpose, now: Now) -> AgentRun {
        AgentRun { purpose, last_output: now.mono_ms, ..AgentRun::default() }
    }

    pub(super) fn on_output(&mut self, now: Now, check_done_ms: Option<u64>) {
        self.last_output = now.mono_ms;
        if self.purpose == Purpose::Work {
            self.check_done_at = check_done_ms.map(|ms| now.mono_ms.saturating_add(ms));
        }
    }

    /// It gave its result and has no background task.
    pub(super) fn has_answered(&self) -> bool {
        self.result_at.is_some() && self.background == 0
    }

    pub(super) fn result_end_cause(&self) -> EndCause {
        if self.refused { EndCause::Refused } else { EndCause::ResultGrace }
    }
}

/// Why the machine ends a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// Exceeded its own limit, which is a failure.
    TimedOut,
    /// Met a limit, or the run has to stop. Says nothing about the work.
    CutOff(EndCause),
}

impl LoopMachine {
    pub(super) fn start_job(&mut self, step: &mut Step, job: Job) {
        self.phase = Phase::Running { job, started: step.now.mono_ms, ending: None };
        step.push(match job {
            Job::Agent(agent) => Action::StartAgent(agent.purpose),
            Job::Guardrail(index) => Action::RunGuardrail(index),
            Job::ScmStatus => Action::CheckScmStatus,
            Job::CommitGuard { .. } => Action::CheckStaged,
            Job::ScmTask(index) => Action::RunScmTask(index),
            Job::StallCheck => Action::CheckStall,
        });
    }

    /// Ends the running job once. The input with its result still follows.
    pub(super) fn end_job(&mut self, step: &mut Step, end: JobEnd) {
        let Phase::Running { job, ending: ending @ None, .. } = &mut self.phase else { return };
        *ending = Some(end);
        let timed_out = end == JobEnd::TimedOut;
        step.push(match (*job, end) {
            (Job::Agent(_), JobEnd::CutOff(cause)) => Action::EndAgent(cause),
            (Job::Agent(_), JobEnd::TimedOut) => Action::EndAgent(EndCause::IterationTimeout),
            (Job::Guardrail(_), _) => Action::EndGuardrail { timed_out },
            _ => Action::EndScmTask { timed_out },
        });
    }

    /// Staging and inspections make no commits.
    pub(super) fn job_may_commit(&self) -> bool {
        let Phase::Running { job, .. } = self.phase else { return false };
        match job {
            Job::Agent(_) | Job::Guardrail(_) | Job::ScmTask(_) => true,
            Job::ScmStatus | Job::CommitGuard { .. } | Job::StallCheck => false,
        }
    }

    pub(super) fn agent(&self) -> Option<&AgentRun> {
        match &self.phase {
            Phase::Running { job: Job::Agent(agent), .. } => Some(agent),
            _ => None,
        }
    }

    pub(super) fn agent_mut(&mut self) -> Option<&mut AgentRun> {
        match &mut self.phase {
            Phase::Running { job: Job::Agent(agent), .. } => Some(agent),
            _ => None,
        }
    }
}
