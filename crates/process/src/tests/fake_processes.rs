//! A process table for tests: processes fork, end and are reparented as a test says.

use std::collections::VecDeque;

use rustix::process::{Pid, Signal};

use crate::process_table::{Process, ProcessId, ProcessSource, ProcessTable, Reaped, SignalTarget};
use ralph_events::event::Exit;

pub(crate) const ME: i32 = 100;

pub(crate) fn pid(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

pub(crate) fn process(number: i32, parent: i32, session: i32) -> Process {
    Process {
        identity: ProcessId { pid: pid(number), start: u64::from(number.unsigned_abs()) },
        parent,
        origin: None,
        group: session,
        session,
        stopped: false,
        dead: false,
    }
}

#[derive(Debug)]
pub(crate) struct FakeProcess {
    pub(crate) process: Process,
    /// Variables with spaces between. `None` if it is unreadable.
    pub(crate) environment: Option<&'static str>,
    pub(crate) ignores_term: bool,
    pub(crate) survives_kill: bool,
    /// How many processes it starts while being killed, each by the one before.
    pub(crate) forks_left: i32,
}

impl FakeProcess {
    pub(crate) fn of(process: Process) -> FakeProcess {
        FakeProcess {
            process,
            environment: None,
            ignores_term: false,
            survives_kill: false,
            forks_left: 0,
        }
    }
}

/// ralph is 100 in session 50, child of 60.
#[derive(Debug)]
pub(crate) struct FakeProcesses {
    reaper: bool,
    pub(crate) now_ms: u64,
    pub(crate) alive: Vec<FakeProcess>,
    unreaped: VecDeque<Pid>,
    /// The pids that got signals, in order; negative for a group.
    pub(crate) signals: Vec<(i32, Signal)>,
    pub(crate) environments_read: Vec<i32>,
    watched: Vec<ProcessId>,
    /// A watched process has ended or forked.
    pub(crate) has_changed: bool,
    next_start: u64,
}

impl FakeProcesses {
    pub(crate) fn new(reaper: bool) -> FakeProcesses {
        let alive = [process(1, 0, 1), process(60, 1, 60), process(ME, 60, 50)];
        FakeProcesses {
            reaper,
            now_ms: 1_000,
            alive: alive.into_iter().map(FakeProcess::of).collect(),
            unreaped: VecDeque::new(),
            signals: Vec::new(),
            environments_read: Vec::new(),
            watched: Vec::new(),
            has_changed: false,
            next_start: 1_000,
        }
    }

    /// Starts a process, with its own session if that has its number.
    pub(crate) fn fork(&mut self, parent: i32, number: i32, session: i32) -> &mut FakeProcess {
        let start = self.next_start;
        self.next_start += 1;
        let forked_by = self.find(parent).process.identity;
        self.has_changed |= self.watched.contains(&forked_by);
        self.alive.push(FakeProcess::of(Process {
            identity: ProcessId { pid: pid(number), start },
            origin: (!self.reaper).then_some(forked_by.start),
            ..process(number, parent, session)
        }));
        self.find(number)
    }

    pub(crate) fn find(&mut self, number: i32) -> &mut FakeProcess {
        self.alive.iter_mut().find(|fake| fake.process.pid() == number).unwrap()
    }

    pub(crate) fn has(&self, number: i32) -> bool {
        self.alive.iter().any(|fake| fake.process.pid() == number)
    }

    pub(crate) fn exit(&mut self, number: i32) {
        let gone = self.find(number).process;
        self.alive.retain(|fake| fake.process.pid() != number);
        let adopter = if self.reaper { ME } else { 1 };
        for fake in self.alive.iter_mut().filter(|fake| fake.process.parent == number) {
            fake.process.parent = adopter;
        }
        if gone.parent == ME {
            self.unreaped.push_back(gone.identity.pid);
        }
        self.has_changed |= self.watched.contains(&gone.identity);
    }

    fn deliver(&mut self, number: i32, signal: Signal) {
        let fake = self.find(number);
        let dies = match signal {
            Signal::TERM => !fake.ignores_term,
            Signal::KILL => !fake.survives_kill,
            _ => false,
        };
        if !dies {
            return;
        }
        let (forks_left, environment) = (fake.forks_left, fake.environment);
        if forks_left > 0 {
            let next = number + 1000;
            let forked = self.fork(number, next, next);
            (forked.forks_left, forked.environment) = (forks_left - 1, environment);
            forked.ignores_term = true;
        }
        self.exit(number);
    }
}

impl ProcessSource for FakeProcesses {
    fn table(&mut self) -> Option<ProcessTable> {
        let alive: Vec<Process> = self.alive.iter().map(|fake| fake.process).collect();
        Some(ProcessTable { me: process(ME, 60, 50), alive })
    }

    fn start_of_child(&mut self, pid: Pid) -> Option<u64> {
        let start = self.find(pid.as_raw_pid()).process.identity.start;
        (!self.reaper).then_some(start)
    }

    fn is_own(&mut self, _pid: Pid) -> bool {
        true
    }

    fn environment(&mut self, pid: Pid) -> Option<Vec<u8>> {
        self.environments_read.push(pid.as_raw_pid());
        self.find(pid.as_raw_pid()).environment.map(|it| it.replace(' ', "\0").into_bytes())
    }

    fn command_line(&mut self, pid: Pid) -> String {
        format!("program {}", pid.as_raw_pid())
    }

    fn signal(&mut self, target: SignalTarget, signal: Signal) {
        let is_target = |process: &Process| match target {
            SignalTarget::Process(identity) => process.identity == identity,
            SignalTarget::Group(group) => process.group == group.as_raw_pid(),
        };
        self.signals.push(match target {
            SignalTarget::Process(identity) => (identity.pid.as_raw_pid(), signal),
            SignalTarget::Group(group) => (-group.as_raw_pid(), signal),
        });
        let reached: Vec<i32> = self
            .alive
            .iter()
            .filter(|fake| is_target(&fake.process))
            .map(|fake| fake.process.pid())
            .collect();
        for number in reached {
            self.deliver(number, signal);
        }
    }

    fn reap(&mut self) -> Reaped {
        match self.unreaped.pop_front() {
            Some(pid) => Reaped::Child(pid, Some(Exit::Code(0))),
            None if self.alive.iter().any(|fake| fake.process.parent == ME) => Reaped::NoneYet,
            None => Reaped::NoChildren,
        }
    }

    fn watch(&mut self, processes: &[ProcessId]) -> bool {
        self.watched = processes.to_vec();
        true
    }

    fn wait_until_gone(&mut self, processes: &[ProcessId], until_ms: u64) -> bool {
        let gone = self.alive.iter().all(|fake| !processes.contains(&fake.process.identity));
        if !gone {
            self.now_ms = until_ms;
        }
        gone
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}
