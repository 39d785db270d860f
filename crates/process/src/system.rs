//! The one place that waits: for output, for ends, for signals, for deadlines.

mod ask;
mod ending;
mod pipe;

use std::collections::{HashSet, VecDeque};
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::time::Timespec;

use self::ending::ChildStage;
use self::pipe::{ChildPipe, read_pipe};
use super::input::ChildInput;
use super::signals::{self, SignalReader};
use super::tree::{ProcessForest, ProcessId, ProcessTree};
use super::{
    ChildEnd, ChildId, Launch, LaunchExtras, Occurrence, Signal, TerminalSize, clock, spawn,
};
use ralph_events::event::{Exit, Leftover, Stream};

/// The most that one [`Occurrence::Output`] carries.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// Starts programs and tells what happens to them and to this process.
///
/// There is one at a time, because waiting for children, adopting orphans and handling signals
/// belong to the process as a whole. All its children are ended when it is dropped. On Linux they
/// are killed when the thread that started them ends, so use it from the main thread.
#[derive(Debug)]
pub struct System {
    /// How long a child and what it started have between TERM and KILL in [`System::end`].
    pub grace_ms: u64,
    signals: SignalReader,
    /// The last wait found something in the signal pipe.
    signal_pending: bool,
    pending: VecDeque<Signal>,
    children: Vec<Child>,
    next_id: u64,
    forest: ProcessForest,
    /// `waitpid` knows of no child at all.
    has_no_children: bool,
    /// A child of ours has ended since the process table was last looked at.
    reaped_some: bool,
    /// Output was handed over although the caller's deadline had passed.
    deadline_pending: bool,
    /// What other threads ring by writing to it.
    wake_pipe: Option<PipeReader>,
    proxy_refused: bool,
    /// Which stream is looked at first, so that a loud child does not silence the others.
    next_stream: usize,
    wakeups: u64,
    /// Where others may knock, and whether somebody has.
    control_pipe: Option<OwnedFd>,
    control_requested: bool,
    /// What is typed into this process's own terminal, and whether anything is there.
    keys: Option<OwnedFd>,
    typed: bool,
}

/// A second [`System`] would take the ends of the first one's children.
static SYSTEM_EXISTS: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Child {
    id: ChildId,
    tree: ProcessTree,
    exit: Option<Exit>,
    stdout: Option<ChildPipe>,
    stderr: Option<ChildPipe>,
    input: Option<ChildInput>,
    keep_background: bool,
    stage: ChildStage,
    /// Those that were asked to leave already.
    terminated: HashSet<ProcessId>,
    empty_scans: u32,
    leftovers: Vec<Leftover>,
}

impl System {
    /// Takes the signals of this process over and, on Linux, the orphans below it.
    pub fn new() -> io::Result<System> {
        System::with_signals(signals::RUN_SIGNALS)
    }

    /// Leaves the signals that end this process as they are.
    pub(super) fn with_child_signals_only() -> io::Result<System> {
        System::with_signals(signals::CHILD_SIGNALS)
    }

    fn with_signals(wanted: &[i32]) -> io::Result<System> {
        if SYSTEM_EXISTS.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this process has a System already",
            ));
        }
        let signals = SignalReader::listen(wanted)
            .inspect_err(|_| SYSTEM_EXISTS.store(false, Ordering::Release))?;
        Ok(System {
            grace_ms: 5_000,
            signals,
            signal_pending: false,
            pending: VecDeque::new(),
            children: Vec::new(),
            next_id: 1,
            forest: ProcessForest::new(),
            has_no_children: false,
            reaped_some: false,
            deadline_pending: false,
            wake_pipe: None,
            proxy_refused: false,
            next_stream: 0,
            wakeups: 0,
            control_pipe: None,
            control_requested: false,
            keys: None,
            typed: false,
        })
    }

    /// Ends a wait with [`Occurrence::Called`] whenever something has been written to `bell`.
    pub fn set_wake_pipe(&mut self, bell: Option<PipeReader>) {
        self.wake_pipe = bell.filter(|bell| spawn::set_nonblocking(bell.as_fd()).is_ok());
    }

    /// Milliseconds on a clock that does not jump.
    pub fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    /// How often waiting has come to an end, for whatever reason.
    pub fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// From now on a byte at this end of a pipe is [`Occurrence::Woken`].
    ///
    /// # Errors
    /// Reading from it cannot be kept from waiting.
    pub fn set_control_pipe(&mut self, door: OwnedFd) -> io::Result<()> {
        spawn::set_nonblocking(door.as_fd())?;
        self.control_pipe = Some(door);
        Ok(())
    }

    /// From now on what can be read here is [`Occurrence::Typed`], until its end.
    pub fn set_key_input(&mut self, keys: OwnedFd) {
        self.keys = Some(keys);
    }

    /// Whether a child is left whose end has not been reported.
    pub fn is_idle(&self) -> bool {
        self.children.is_empty()
    }

    /// Starts a program. Gives its process number for people and records.
    ///
    /// The error's kind is `NotFound` for a missing program or directory and `PermissionDenied`
    /// for one that may not be used; its text names which.
    pub fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        self.start_with(launch, &LaunchExtras::default())
    }

    /// The same for a program whose standard input is what it is fed, bit by bit.
    pub fn start_with_stdin_pipe(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        self.start_with(launch, &LaunchExtras { has_stdin_pipe: true, ..LaunchExtras::default() })
    }

    /// The same for a program that has a terminal of its own. What it shows there is told as its
    /// output, and what it is fed is typed.
    pub fn start_on_terminal(
        &mut self,
        launch: &Launch<'_>,
        size: TerminalSize,
    ) -> io::Result<(ChildId, u32)> {
        self.start_with(launch, &LaunchExtras { terminal: Some(size), ..LaunchExtras::default() })
    }

    /// Gives the terminal of such a program another size.
    pub fn resize(&mut self, child: ChildId, size: TerminalSize) {
        let input = self.position(child).and_then(|index| self.children[index].input.as_ref());
        if let Some(input) = input {
            // One that is gone needs none.
            let _ = rustix::termios::tcsetwinsize(input.fd(), size.winsize());
        }
    }

    /// Whether such a program has switched its terminal from whole lines to single keys.
    pub fn reads_keys(&self, child: ChildId) -> bool {
        let input = self.position(child).and_then(|index| self.children[index].input.as_ref());
        let Some(input) = input else { return false };
        rustix::termios::tcgetattr(input.fd())
            .is_ok_and(|mode| !mode.local_modes.contains(rustix::termios::LocalModes::ICANON))
    }

    /// As [`System::start`], for programs that need more than most.
    pub fn start_with(
        &mut self,
        launch: &Launch<'_>,
        extras: &LaunchExtras<'_>,
    ) -> io::Result<(ChildId, u32)> {
        let spawned = spawn::spawn(launch, extras)?;
        let id = ChildId(self.next_id);
        self.next_id += 1;
        self.has_no_children = false;
        self.children.push(Child {
            id,
            tree: ProcessTree::new(spawned.pid),
            exit: None,
            stdout: Some(ChildPipe::new(spawned.stdout)),
            stderr: spawned.stderr.map(ChildPipe::new),
            input: spawned.stdin.map(ChildInput::new),
            keep_background: launch.keep_background,
            stage: ChildStage::Running,
            terminated: HashSet::new(),
            empty_scans: 0,
            leftovers: Vec::new(),
        });
        Ok((id, spawned.pid.as_raw_pid().unsigned_abs()))
    }

    /// Gives a child that is fed something more to read, and never waits for it. Says whether there was
    /// room for it: what waits for one that does not read has a limit. One that reads no more needs
    /// none.
    pub fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        let Some(index) = self.position(child) else { return true };
        self.children[index].input.as_mut().is_none_or(|input| input.push(bytes))
    }

    /// The child is fed nothing more: it comes to the end of its input once it has read the rest.
    pub fn close_input(&mut self, child: ChildId) {
        if let Some(index) = self.position(child) {
            ChildInput::close(&mut self.children[index].input);
        }
    }

    /// Waits for the next thing to happen, until the deadline if there is one.
    ///
    /// Output goes into `buf`, in place of what is in there. Signals come before everything else.
    /// Output that is there already comes before a deadline that has just passed, or a pause of
    /// this process would look like a silence of the child; but never twice in a row.
    pub fn wait(&mut self, until_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        buf.clear();
        loop {
            if std::mem::take(&mut self.signal_pending) && self.take_arrived_signals() {
                self.reap();
            }
            if let Some(signal) = self.pending.pop_front() {
                return Occurrence::Signal(signal);
            }
            if std::mem::take(&mut self.control_requested) {
                self.drain_control_pipe();
                return Occurrence::ControlRequest;
            }
            if std::mem::take(&mut self.typed) && self.read_keys(buf) {
                return Occurrence::KeyInput;
            }
            let now = clock::now_ms();
            self.advance(now);
            if let Some(index) = self.children.iter().position(Child::is_finished) {
                let child = self.children.remove(index);
                return Occurrence::Ended(child.id, child.ended());
            }
            if std::mem::take(&mut self.proxy_refused) {
                self.drain_wake_pipe();
                return Occurrence::ProxyRefused;
            }
            let due = until_ms.is_some_and(|until| until <= now);
            if due && self.deadline_pending {
                self.deadline_pending = false;
                return Occurrence::Deadline;
            }
            let Some((id, stream)) = self.read(if due { Some(now) } else { until_ms }, buf) else {
                if due {
                    self.deadline_pending = false;
                    return Occurrence::Deadline;
                }
                continue;
            };
            self.deadline_pending = due;
            return Occurrence::Output(id, stream);
        }
    }

    /// Takes what was written to the bell. One that is at its end will not ring again.
    fn drain_wake_pipe(&mut self) {
        let mut bytes = [0; 256];
        while let Some(bell) = &self.wake_pipe {
            match rustix::io::read(bell, &mut bytes) {
                Ok(0) => self.wake_pipe = None,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes what was typed; says whether it was anything.
    fn read_keys(&mut self, buf: &mut Vec<u8>) -> bool {
        let Some(keys) = &self.keys else { return false };
        buf.reserve(4096);
        match rustix::io::read(keys, rustix::buffer::spare_capacity(buf)) {
            Ok(1..) => true,
            Err(Errno::INTR | Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                self.keys = None;
                false
            }
        }
    }

    /// Tells these signals again, before any that came later.
    pub(super) fn requeue_signals(&mut self, signals: Vec<Signal>) {
        for signal in signals.into_iter().rev() {
            self.pending.push_front(signal);
        }
    }

    /// Takes all that was knocked so far: who opens looks at everything that there is.
    fn drain_control_pipe(&mut self) {
        let mut bytes = [0; 64];
        let Some(door) = &self.control_pipe else { return };
        loop {
            match rustix::io::read(door, &mut bytes) {
                Ok(1..) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody will ever knock again, and that is no reason to be woken for ever.
                Ok(0) | Err(_) => break,
            }
        }
        self.control_pipe = None;
    }

    fn position(&self, child: ChildId) -> Option<usize> {
        self.children.iter().position(|other| other.id == child)
    }

    fn take_arrived_signals(&mut self) -> bool {
        let pending = &mut self.pending;
        self.signals.take_signals(|signal| pending.push_back(signal))
    }

    /// Waits for all who have ended: children, and orphans that became ours.
    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                Ok(None) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.has_no_children = true;
                    return;
                }
            }
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        self.reaped_some = true;
        let child =
            self.children.iter_mut().find(|child| child.tree.main == pid && !child.tree.reaped);
        if let Some(child) = child {
            child.tree.reaped = true;
            child.exit = status
                .exit_status()
                .map(Exit::Code)
                .or_else(|| status.terminating_signal().map(Exit::Signal));
        }
    }

    /// Waits until something can be done or the time has come. Reads from one pipe if any has
    /// something and no signal has arrived.
    fn read(&mut self, until_ms: Option<u64>, buf: &mut Vec<u8>) -> Option<(ChildId, Stream)> {
        let mut timeout = self.poll_timeout(until_ms);
        let mut sources = Vec::with_capacity(2 * self.children.len());
        let mut polled = Vec::with_capacity(1 + 2 * self.children.len());
        let signals = self.signals.fd();
        polled.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
        for (index, child) in self.children.iter().enumerate() {
            for (stream, pipe) in [(Stream::Stdout, &child.stdout), (Stream::Stderr, &child.stderr)]
            {
                if let Some(pipe) = pipe {
                    if pipe.has_buffered() {
                        timeout = Some(clock::timespec(0));
                    }
                    sources.push((index, stream, pipe.has_buffered()));
                    polled.push(PollFd::from_borrowed_fd(pipe.fd(), PollFlags::IN));
                }
            }
        }
        let readers = polled.len();
        let mut fed = Vec::new();
        for (index, child) in self.children.iter().enumerate() {
            if let Some(input) = child.input.as_ref().filter(|input| input.has_pending()) {
                fed.push(index);
                polled.push(PollFd::from_borrowed_fd(input.fd(), PollFlags::OUT));
            }
        }
        let others = polled.len();
        if let Some(door) = &self.control_pipe {
            polled.push(PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN));
        }
        if let Some(bell) = &self.wake_pipe {
            polled.push(PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN));
        }
        if let Some(keys) = &self.keys {
            polled.push(PollFd::from_borrowed_fd(keys.as_fd(), PollFlags::IN));
        }
        let result = rustix::event::poll(&mut polled, timeout.as_ref());
        self.wakeups += 1;
        // A wait that was interrupted was so by a signal, whose handler has run by now.
        self.signal_pending = result.is_err() || !polled[0].revents().is_empty();
        if self.signal_pending {
            return None;
        }
        if self.keys.is_some() {
            self.typed = polled.pop().is_some_and(|keys| !keys.revents().is_empty());
        }
        if self.wake_pipe.is_some() {
            self.proxy_refused = polled.pop().is_some_and(|bell| !bell.revents().is_empty());
        }
        if self.control_pipe.is_some() {
            self.control_requested = polled.pop().is_some_and(|door| !door.revents().is_empty());
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        for (source, fd) in sources.iter_mut().zip(&polled[1..readers]) {
            source.2 |= is_ready(fd);
        }
        fed.retain({
            let mut ready = polled[readers..others].iter().map(is_ready);
            move |_| ready.next().unwrap_or(false)
        });
        for index in fed {
            ChildInput::flush(&mut self.children[index].input);
        }
        self.read_round_robin(&sources, buf)
    }

    /// How long to wait at most: until then, or until something is to be done for a child.
    fn poll_timeout(&self, until_ms: Option<u64>) -> Option<Timespec> {
        let deadline = [until_ms, self.next_step_ms()].into_iter().flatten().min();
        deadline
            .map(|ms| clock::timespec(ms.saturating_mul(1_000_000).saturating_sub(clock::now_ns())))
    }

    /// Reads from the first pipe that is ready, beginning with another one each time.
    fn read_round_robin(
        &mut self,
        sources: &[(usize, Stream, bool)],
        buf: &mut Vec<u8>,
    ) -> Option<(ChildId, Stream)> {
        self.next_stream = self.next_stream.wrapping_add(1);
        for offset in 0..sources.len() {
            let (index, stream, ready) = sources[(self.next_stream + offset) % sources.len()];
            if ready {
                let child = &mut self.children[index];
                let slot = match stream {
                    Stream::Stdout => &mut child.stdout,
                    Stream::Stderr => &mut child.stderr,
                };
                if read_pipe(slot, buf) {
                    return Some((child.id, stream));
                }
            }
        }
        None
    }
}

impl Drop for System {
    /// No process that was started here outlives this, on whichever way the caller leaves.
    fn drop(&mut self) {
        let ids: Vec<ChildId> = self.children.iter().map(|child| child.id).collect();
        for id in ids {
            self.kill_child(id);
        }
        let mut unread = Vec::new();
        while !self.children.is_empty() {
            self.wait(None, &mut unread);
        }
        SYSTEM_EXISTS.store(false, Ordering::Release);
    }
}

impl Child {
    fn is_finished(&self) -> bool {
        self.stage == ChildStage::Ended && self.stdout.is_none() && self.stderr.is_none()
    }

    fn ended(self) -> ChildEnd {
        ChildEnd { exit: self.exit, leftovers: self.leftovers }
    }
}
