//! Everything that the loop needs to continue a run, as plain data.

use super::{OpenIteration, Pending, RateLimits, RunState, StallSeen};
use crate::event::{Feedback, Outcome};
use crate::spending::Spending;

/// Where a resumed run continues.
#[derive(Debug, Clone, Default)]
pub struct ResumePoint {
    /// Iterations that are finished.
    pub iterations: u32,
    /// The iteration that was started and not finished.
    pub open: Option<OpenIteration>,
    /// Known facts about the open iteration that were not acted upon.
    pub pending: Pending,
    /// Failures in a row that the retry policy counts.
    pub failures: u32,
    /// An iteration has ended without a failure.
    pub any_succeeded: bool,
    pub limits: RateLimits,
    /// Feedback for the next prompt.
    pub feedback: Vec<Feedback>,
    /// The feedback when an iteration last finished.
    pub last_feedback: Vec<Feedback>,
    /// The message an agent has written for the commit that comes next.
    pub commit_message: Option<String>,
    /// The message of a commit that was started. Only the repository knows whether it was made.
    pub pending_commit: Option<String>,
    pub scm_failed: bool,
    pub tools: u32,
    pub tool_errors: u32,
    pub spending: Spending,
    pub stall: StallSeen,
    /// `stall` was taken after the last iteration.
    pub stall_checked: bool,
    /// The commit that was checked out last.
    pub head: Option<String>,
    /// Working time, without pauses.
    pub active_ms: u64,
    /// `None` if the run was killed.
    pub outcome: Option<Outcome>,
}

impl ResumePoint {
    /// The first iteration was started.
    pub fn has_started(&self) -> bool {
        self.iterations > 0 || self.open.is_some()
    }

    /// The next step needs no agent and no prompt. Another iteration may follow.
    pub fn needs_only_checks(&self) -> bool {
        match self.pending {
            Pending::Unchecked(_) | Pending::Checked { .. } => self.open.is_some(),
            Pending::Complete => true,
            Pending::Nothing | Pending::Ended(_) => false,
        }
    }
}

impl RunState {
    /// Returns where a run continues whose journal ends here.
    pub fn resume_point(&self) -> ResumePoint {
        let mut closed = self.clone();
        closed.close();
        let (resume, totals) = (closed.resume, closed.totals);
        ResumePoint {
            iterations: resume.completed,
            open: resume.open,
            pending: resume.pending,
            failures: resume.failures,
            any_succeeded: resume.any_succeeded,
            limits: resume.limits,
            feedback: resume.feedback,
            last_feedback: resume.last_feedback,
            commit_message: resume.commit_message,
            pending_commit: resume.committing,
            scm_failed: resume.scm_failed,
            tools: totals.tools,
            tool_errors: totals.tool_errors,
            spending: totals.spending,
            stall: resume.stall,
            stall_checked: resume.looked,
            head: closed.repository.head,
            active_ms: closed.clock.active_ms,
            outcome: closed.end.map(|end| end.outcome),
        }
    }
}
