//! The steps of [`RunState::apply`] that concern several parts of the state.

use super::clock::millis_between;
use super::{
    Activity, IterationRecord, RateLimits, Requests, RunEnd, RunState, TaskProgress, Wait, Warning,
};
use crate::event::{Event, Outcome, Stamp, Usage, WaitReason};

impl RunState {
    /// Returns the working time so far. Pass `now_ms` for a run that is alive.
    pub fn duration_ms(&self, now_ms: Option<i64>) -> u64 {
        match &self.end {
            Some(end) => end.duration_ms,
            None => self.clock.active_until(now_ms),
        }
    }

    /// Returns the working time of an iteration so far. Pass `now_ms` for a run that is alive.
    pub fn iteration_ms(&self, record: &IterationRecord, now_ms: Option<i64>) -> u64 {
        record.active_ms(self.active_until_ms(now_ms))
    }

    /// When the last working time ended, or `now_ms`.
    fn active_until_ms(&self, now_ms: Option<i64>) -> i64 {
        let last_ms = self.clock.last_ms;
        self.clock.idle_since_ms.unwrap_or_else(|| last_ms.max(now_ms.unwrap_or(last_ms)))
    }

    /// No entry was applied.
    pub fn is_empty(&self) -> bool {
        self.clock.previous_ms.is_none()
    }

    /// Returns how the run ended; `None` while it is active, or if it was killed.
    pub fn outcome(&self) -> Option<Outcome> {
        self.end.as_ref().map(|end| end.outcome)
    }

    /// Notes that the run was alive at `time_ms`, according to something other than the journal.
    pub fn alive_at(&mut self, time_ms: i64) {
        if self.end.is_some() {
            return;
        }
        self.clock.last_entry_ms.get_or_insert(self.clock.last_ms);
        self.clock.last_ms = self.clock.last_ms.max(time_ms);
        if self.clock.idle_since_ms.is_none()
            && let Some(previous_ms) = self.clock.previous_ms
        {
            self.clock.advance(time_ms.max(previous_ms), false);
        }
    }

    /// Returns the state of a run whose journal ends here.
    #[must_use]
    pub fn closed(mut self) -> RunState {
        self.close();
        self
    }

    /// A resume after giving up means that the user has fixed the cause. More time, money or iterations fix nothing.
    pub fn forgive_failures(&mut self) {
        if let Some(Outcome::AgentFailed | Outcome::CredentialsRefused | Outcome::Stalled) =
            self.outcome()
        {
            (self.resume.failures, self.resume.limits) = (0, RateLimits::default());
        }
    }

    /// Settles what is still open: the journal ends here, or a new process resumes the run.
    pub fn close(&mut self) {
        self.settle_attempt();
        // A wait keeps no end: its length is unknown.
        if let Activity::Waiting { .. } | Activity::Paused { .. } | Activity::Parked { .. } =
            self.activity
        {
            self.activity = Activity::Idle;
        }
        let until_ms = self.active_until_ms(None);
        if let Some(current) = self.iterations.last_mut() {
            current.stop(until_ms);
        }
        self.totals.settle_omitted();
    }

    /// Lets the time pass that lies between the previous entry and this one.
    pub(super) fn tick(&mut self, at: Stamp, event: &Event<'_>) {
        let now = at.time_ms;
        if let Event::RunStarted { .. } = event {
            let open = self.iterations.last().filter(|last| last.is_open());
            let open = open.map(|last| last.number);
            self.close();
            self.clock.start(now, open);
        } else {
            self.clock.advance(now, self.end.is_some());
        }
    }

    /// Every entry names its iteration. Starts and ends that are missing from the journal follow from that.
    pub(super) fn trust_stamp(&mut self, at: Stamp, event: &Event<'_>) {
        self.totals.iteration = self.totals.iteration.max(at.iteration);
        self.resume.iterations = self.resume.iterations.max(at.iteration.saturating_sub(1));
        if let Event::IterationStarted { .. } = event {
            return;
        }
        if self.resume.trust_stamp(at) {
            self.totals.spending.start_iteration();
        }
        if at.iteration > self.iterations.last().map_or(0, |last| last.number) {
            self.open_record(at);
        }
    }

    pub(super) fn open_record(&mut self, at: Stamp) {
        if let Some(last) = self.iterations.last_mut() {
            last.stop(at.time_ms);
        }
        match self.iterations.last_mut().filter(|last| last.number == at.iteration) {
            Some(again) => again.restart(at.time_ms),
            None => {
                if self.live {
                    self.iterations.clear();
                }
                self.iterations.push(IterationRecord::new(at.iteration, at.time_ms));
            }
        }
    }

    pub(super) fn run_started(&mut self, now_ms: i64, event: &Event<'_>) {
        let Event::RunStarted {
            run,
            version,
            command,
            directory,
            pid,
            agent,
            prompt,
            completion,
            max_iterations,
            branch,
            name,
            setup,
            ..
        } = event
        else {
            return;
        };
        let info = &mut self.info;
        info.run = run.as_ref().to_owned();
        info.version = version.as_ref().to_owned();
        info.command = command.as_ref().to_owned();
        info.directory = directory.as_ref().to_owned();
        info.began_in.get_or_insert_with(|| directory.as_ref().to_owned());
        info.agent = agent.as_ref().to_owned();
        info.pid = *pid;
        info.prompt = prompt.as_ref().to_owned();
        info.completion = completion.as_ref().to_owned();
        info.max_iterations = *max_iterations;
        info.setup.clone_from(setup);
        if let Some(name) = name {
            info.name = name.as_ref().to_owned();
        }
        if info.branch.is_none() {
            info.branch = branch.as_deref().map(str::to_owned);
        }
        self.forgive_failures();
        self.end = None;
        self.requests = Requests::default();
        self.activity = Activity::Idle;
        self.resume.limits.stop_waiting(now_ms);
    }

    /// Ends an attempt whose end is missing from the journal. Its usage counts all the same.
    pub(super) fn settle_attempt(&mut self) {
        if self.resume.settle_attempt(self.clock.previous_ms) {
            let usage = self.totals.spending.settle();
            if let Some(current) = self.iterations.last_mut() {
                current.add_usage(&usage);
            }
        }
    }

    pub(super) fn running_usage(&mut self, usage: &Usage) {
        if self.resume.is_agent_running() {
            self.totals.spending.set_running(*usage);
        }
    }

    pub(super) fn wait(&mut self, at: Stamp, reason: WaitReason, until_ms: i64) {
        if self.live {
            self.waits.clear();
        }
        let (iteration, from_ms) = (at.iteration, at.time_ms);
        self.waits.push(Wait { iteration, reason, from_ms, until_ms, ended_ms: None });
        self.activity = Activity::Waiting { reason, until_ms };
        self.resume.waiting(reason, from_ms, until_ms);
    }

    /// Changes the activity, which ends a wait.
    pub(super) fn enter(&mut self, activity: Activity, now_ms: i64) {
        self.end_wait(now_ms);
        self.activity = activity;
    }

    pub(super) fn end_wait(&mut self, now_ms: i64) {
        let Activity::Waiting { .. } = self.activity else { return };
        self.activity = Activity::Idle;
        if let Some(wait) = self.waits.last_mut() {
            wait.ended_ms = Some(now_ms);
            if let Some(current) = self.iterations.last_mut() {
                let waited_ms = millis_between(wait.from_ms, now_ms);
                current.waited_ms = current.waited_ms.saturating_add(waited_ms);
            }
        }
    }

    pub(super) fn end_pause(&mut self, now_ms: i64) {
        let (Activity::Paused { since_ms } | Activity::Parked { since_ms }) = self.activity else {
            return;
        };
        self.activity = Activity::Idle;
        if let Some(current) = self.iterations.last_mut() {
            current.skip_pause(now_ms.saturating_sub(since_ms).max(0));
        }
    }

    /// Problems that are new become warnings: they may be gone from the next list.
    pub(super) fn set_tasks(&mut self, tasks: TaskProgress) {
        let known = self.tasks.take().map(|tasks| tasks.problems).unwrap_or_default();
        for message in tasks.problems.iter().filter(|problem| !known.contains(problem)) {
            self.notices.warnings.push(Warning::Message { message: message.clone() });
        }
        self.tasks = Some(tasks);
    }

    pub(super) fn run_ended(&mut self, now_ms: i64, event: &Event<'_>) {
        let Event::RunEnded { outcome, iterations, cut_off, duration_ms, usage, branch, .. } =
            event
        else {
            return;
        };
        self.settle_attempt();
        self.enter(Activity::Ended, now_ms);
        self.clock.active_ms = self.clock.active_ms.max(*duration_ms);
        self.clock.enter_idle(now_ms);
        self.info.last_branch = branch.as_deref().map(str::to_owned);
        self.end = RunEnd::new(now_ms, event, self.requests.stop.take());
        self.resume.run_ended(now_ms, *outcome, *iterations, *cut_off);
        self.totals.spending.at_least(usage);
        let last_failure = self.end.as_ref().and_then(|end| end.last_failure.as_deref());
        let last = self.iterations.last_mut();
        self.totals.run_ended(*outcome, last.as_ref().and_then(|last| last.class));
        if let (Some(last), Some(why)) = (last, last_failure) {
            // No retry follows the last failure, so only the end names it.
            last.attempt_failed(last.class, why, &self.notices.last_words.line);
        }
    }
}
