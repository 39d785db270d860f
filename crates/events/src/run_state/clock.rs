//! When a run started, when it was last alive, and how long it has worked.

use serde::Serialize;

/// The times of a run, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// `None` if the beginning of the journal is lost.
    pub started_ms: Option<i64>,
    /// The last time the run is known to have been alive. Entries written after its end do not count.
    pub last_ms: i64,
    /// Time spent working: without pauses, and without the time between an end and a resume.
    pub active_ms: u64,
    /// Set while no working time passes: the run is paused or has ended.
    pub idle_since_ms: Option<i64>,
    /// Length of all earlier pauses, including the time between an end and a resume.
    pub idle_ms: u64,
    /// Time of the previous entry. Unlike `last_ms`, it follows a clock that was set back.
    #[serde(skip)]
    pub(super) previous_ms: Option<i64>,
    /// `last_ms` by the journal alone, if the run was alive after its last entry.
    #[serde(skip)]
    pub(super) last_entry_ms: Option<i64>,
    /// Until the last process has said what it found.
    #[serde(skip)]
    before_start: Option<BeforeStart>,
}

/// What the journal said when a process started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BeforeStart {
    active_ms: u64,
    /// The iteration that the previous process worked on when it was killed.
    open_iteration: Option<u32>,
}

impl Clock {
    /// A process starts the run or resumes it.
    pub(super) fn start(&mut self, now_ms: i64, open_iteration: Option<u32>) {
        if self.previous_ms.is_none() {
            self.started_ms = Some(now_ms);
        }
        self.leave_idle(now_ms);
        // The clock may have been set back since.
        self.last_ms = self.last_entry_ms.take().unwrap_or(self.last_ms);
        self.before_start = Some(BeforeStart { active_ms: self.active_ms, open_iteration });
        self.previous_ms = Some(now_ms);
        self.last_ms = self.last_ms.max(now_ms);
    }

    /// A resumed run had worked for `active_ms` before: a killed process may have done so after its last entry. Returns
    /// the iteration that this time belongs to.
    pub(super) fn resumed_after(&mut self, active_ms: u64) -> Option<(u32, u64)> {
        let Some(before) = self.before_start.take() else {
            self.active_ms = self.active_ms.max(active_ms);
            return None;
        };
        let unrecorded_ms = active_ms.saturating_sub(before.active_ms);
        self.active_ms = self.active_ms.saturating_add(unrecorded_ms);
        Some((before.open_iteration?, unrecorded_ms))
    }

    /// An entry was written at `now_ms`.
    pub(super) fn advance(&mut self, now_ms: i64, run_ended: bool) {
        if self.idle_since_ms.is_none()
            && let Some(previous_ms) = self.previous_ms
        {
            self.active_ms = self.active_ms.saturating_add(millis_between(previous_ms, now_ms));
        }
        self.previous_ms = Some(now_ms);
        if !run_ended {
            self.last_ms = self.last_ms.max(now_ms);
        }
    }

    pub(super) fn enter_idle(&mut self, now_ms: i64) {
        self.idle_since_ms.get_or_insert(now_ms);
    }

    pub(super) fn leave_idle(&mut self, now_ms: i64) {
        if let Some(since_ms) = self.idle_since_ms.take() {
            self.idle_ms = self.idle_ms.saturating_add(millis_between(since_ms, now_ms));
        }
    }

    /// Returns the working time up to `now_ms`, or up to the last entry.
    pub fn active_until(&self, now_ms: Option<i64>) -> u64 {
        let since_last = match (now_ms, self.previous_ms, self.idle_since_ms) {
            (Some(now_ms), Some(previous_ms), None) => millis_between(previous_ms, now_ms),
            _ => 0,
        };
        self.active_ms.saturating_add(since_last)
    }
}

/// Time from one moment to a later one; 0 if the clock was set back in between.
pub(super) fn millis_between(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}
