//! The one place that waits: for output, exits, signals and deadlines.

mod ask;
mod pipe;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use self::pipe::{ChildPipe, read_pipe};
use super::forest::ProcessForest;
use super::input::ChildInput;
use super::process_table::SystemProcesses;
use super::signals::{self, SignalReader};
use super::{ChildId, Launch, Occurrence, Signal, TerminalSize, clock, platform, spawn};
use ralph_events::event::Stream;

pub(super) const READ_BYTES: usize = 256 * 1024;

/// Starts programs and reports what happens to them and to this process.
///
/// Only one can exist: reaping, adopting orphans and signal handlers are process-wide. Use it from
/// the main thread, because Linux kills children when the thread that started them ends.
#[derive(Debug)]
pub struct System {
    pub grace_ms: u64,
    signals: SignalReader,
    signal_pending: bool,
    pending: VecDeque<Signal>,
    children: Vec<Child>,
    next_id: u64,
    forest: ProcessForest<SystemProcesses>,
    /// Output was returned after the deadline.
    deadline_pending: bool,
    /// Rotates, for fairness.
    next_stream: usize,
    wakeups: u64,
    wake_pipe: WatchedFd,
    control_pipe: WatchedFd,
    keys: WatchedFd,
    file_watch: WatchedFd,
}

#[derive(Debug, Default)]
struct WatchedFd {
    fd: Option<OwnedFd>,
    is_ready: bool,
}

/// A second one would reap the first one's children.
static SYSTEM_EXISTS: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Child {
    id: ChildId,
    stdout: Option<ChildPipe>,
    stderr: Option<ChildPipe>,
    input: Option<ChildInput>,
    /// Its processes have ended; what they wrote is still read.
    has_ended: bool,
}

impl System {
    /// On Linux, also becomes the reaper of orphaned descendants.
    pub fn new() -> io::Result<System> {
        let wanted = [signals::RUN_SIGNALS, platform::EXTRA_SIGNALS].concat();
        System::with_signals(&wanted, platform::become_reaper)
    }

    /// Finds orphans as on macOS, for tests on Linux.
    #[doc(hidden)]
    pub fn without_reaper() -> io::Result<System> {
        System::with_signals(signals::RUN_SIGNALS, || false)
    }

    pub(super) fn with_child_signals_only() -> io::Result<System> {
        System::with_signals(signals::CHILD_SIGNALS, platform::become_reaper)
    }

    fn with_signals(wanted: &[i32], become_reaper: fn() -> bool) -> io::Result<System> {
        if SYSTEM_EXISTS.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this process already has a System",
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
            forest: ProcessForest::new(SystemProcesses::default(), become_reaper()),
            deadline_pending: false,
            next_stream: 0,
            wakeups: 0,
            wake_pipe: WatchedFd::default(),
            control_pipe: WatchedFd::default(),
            keys: WatchedFd::default(),
            file_watch: WatchedFd::default(),
        })
    }

    /// Reports a write as [`Occurrence::ProxyRefused`].
    pub fn set_wake_pipe(&mut self, pipe: Option<impl Into<OwnedFd>>) {
        let pipe = pipe.map(Into::into);
        self.wake_pipe.fd = pipe.filter(|pipe| spawn::set_nonblocking(pipe.as_fd()).is_ok());
    }

    pub fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    pub fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// Reports bytes as [`Occurrence::ControlRequest`].
    ///
    /// # Errors
    /// It cannot be made nonblocking.
    pub fn set_control_pipe(&mut self, pipe: OwnedFd) -> io::Result<()> {
        spawn::set_nonblocking(pipe.as_fd())?;
        self.control_pipe.fd = Some(pipe);
        Ok(())
    }

    /// Reports changes as [`Occurrence::FilesChanged`], until they are taken from the watcher.
    pub fn set_file_watch(&mut self, watch: OwnedFd) {
        self.file_watch.fd = Some(watch);
    }

    /// Reports input as [`Occurrence::KeyInput`], until its end.
    pub fn set_key_input(&mut self, keys: OwnedFd) {
        self.keys.fd = Some(keys);
    }

    pub fn is_idle(&self) -> bool {
        self.children.is_empty()
    }

    /// Starts a program. Returns its pid, for display only.
    ///
    /// The error is `NotFound` for a missing program or directory, `PermissionDenied` for an
    /// unusable one.
    pub fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        let spawned = spawn::spawn(launch)?;
        let id = ChildId(self.next_id);
        self.next_id += 1;
        self.forest.add(id, spawned.pid, launch.mark(), launch.keep_background);
        self.children.push(Child {
            id,
            stdout: Some(ChildPipe::new(spawned.stdout)),
            stderr: spawned.stderr.map(ChildPipe::new),
            input: spawned.stdin.map(ChildInput::new),
            has_ended: false,
        });
        Ok((id, spawned.pid.as_raw_pid().unsigned_abs()))
    }

    pub fn resize(&mut self, child: ChildId, size: TerminalSize) {
        let input = self.position(child).and_then(|index| self.children[index].input.as_ref());
        if let Some(input) = input {
            let _ = rustix::termios::tcsetwinsize(input.fd(), size.winsize());
        }
    }

    /// Whether the child has left line mode.
    pub fn reads_keys(&self, child: ChildId) -> bool {
        let input = self.position(child).and_then(|index| self.children[index].input.as_ref());
        let Some(input) = input else { return false };
        rustix::termios::tcgetattr(input.fd())
            .is_ok_and(|mode| !mode.local_modes.contains(rustix::termios::LocalModes::ICANON))
    }

    /// Ends a child and its tree: TERM, [`System::grace_ms`], KILL. Overrides `keep_background`.
    pub fn terminate_child(&mut self, child: ChildId) {
        self.forest.terminate_child(child, self.grace_ms);
    }

    pub fn kill_child(&mut self, child: ChildId) {
        self.forest.kill_child(child);
    }

    /// Queues input without blocking; `false` if the buffer is full. Input for a child that has
    /// closed its end is dropped.
    pub fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        let Some(index) = self.position(child) else { return true };
        self.children[index].input.as_mut().is_none_or(|input| input.push(bytes))
    }

    /// Closes the input after what is queued.
    pub fn close_input(&mut self, child: ChildId) {
        if let Some(index) = self.position(child) {
            ChildInput::close(&mut self.children[index].input);
        }
    }

    /// Waits for the next occurrence or the deadline.
    ///
    /// Signals come first. Available output comes before a passed deadline, or a suspension of
    /// ralph would look like silence of the child; but never twice in a row.
    pub fn wait(&mut self, until_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        buf.clear();
        loop {
            if std::mem::take(&mut self.signal_pending) && self.take_arrived_signals() {
                self.forest.reap();
            }
            if let Some(signal) = self.pending.pop_front() {
                return Occurrence::Signal(signal);
            }
            if std::mem::take(&mut self.control_pipe.is_ready) {
                drain(&mut self.control_pipe.fd);
                return Occurrence::ControlRequest;
            }
            if std::mem::take(&mut self.keys.is_ready) && self.read_keys(buf) {
                return Occurrence::KeyInput;
            }
            let now = clock::now_ms();
            self.advance(now);
            if let Some(index) = self.children.iter().position(Child::is_finished) {
                let id = self.children.remove(index).id;
                return Occurrence::Ended(id, self.forest.remove(id));
            }
            if std::mem::take(&mut self.wake_pipe.is_ready) {
                drain(&mut self.wake_pipe.fd);
                return Occurrence::ProxyRefused;
            }
            if std::mem::take(&mut self.file_watch.is_ready) {
                return Occurrence::FilesChanged;
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

    fn read_keys(&mut self, buf: &mut Vec<u8>) -> bool {
        let Some(keys) = &self.keys.fd else { return false };
        buf.reserve(4096);
        match rustix::io::read(keys, rustix::buffer::spare_capacity(buf)) {
            Ok(1..) => true,
            Err(Errno::INTR | Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                self.keys.fd = None;
                false
            }
        }
    }

    /// Queues signals before later ones.
    pub(super) fn requeue_signals(&mut self, signals: Vec<Signal>) {
        for signal in signals.into_iter().rev() {
            self.pending.push_front(signal);
        }
    }

    fn position(&self, child: ChildId) -> Option<usize> {
        self.children.iter().position(|other| other.id == child)
    }

    fn take_arrived_signals(&mut self) -> bool {
        let pending = &mut self.pending;
        self.signals.take_signals(|signal| pending.push_back(signal))
    }

    fn advance(&mut self, now: u64) {
        self.forest.advance(now);
        for child in self.children.iter_mut().filter(|child| !child.has_ended) {
            if self.forest.has_ended(child.id) {
                child.finish_streams();
            }
        }
    }

    /// Polls, then reads one pipe unless a signal has arrived.
    fn read(&mut self, until_ms: Option<u64>, buf: &mut Vec<u8>) -> Option<(ChildId, Stream)> {
        let timeout = self.poll_timeout(until_ms);
        let mut sources = Vec::with_capacity(2 * self.children.len());
        let mut polled = Vec::with_capacity(1 + 2 * self.children.len());
        let signals = self.signals.fd();
        polled.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
        for (index, child) in self.children.iter().enumerate() {
            for (stream, pipe) in [(Stream::Stdout, &child.stdout), (Stream::Stderr, &child.stderr)]
            {
                if let Some(pipe) = pipe {
                    sources.push((index, stream, false));
                    polled.push(PollFd::from_borrowed_fd(pipe.fd(), PollFlags::IN));
                }
            }
        }
        let mut fed = Vec::new();
        for (index, child) in self.children.iter().enumerate() {
            if let Some(input) = child.input.as_ref().filter(|input| input.has_pending()) {
                fed.push(index);
                polled.push(PollFd::from_borrowed_fd(input.fd(), PollFlags::OUT));
            }
        }
        let watched = [&self.control_pipe, &self.wake_pipe, &self.keys, &self.file_watch];
        for fd in watched.into_iter().filter_map(|watched| watched.fd.as_ref()) {
            polled.push(PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        }
        for fd in self.forest.source.watch_fds() {
            polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let result = rustix::event::poll(&mut polled, timeout.as_ref());
        self.wakeups += 1;
        // In the order of `polled`.
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let mut is_next_ready = || ready.next().unwrap_or(false);
        // EINTR: a handler has run.
        self.signal_pending = is_next_ready() || result.is_err();
        if self.signal_pending {
            return None;
        }
        for source in &mut sources {
            source.2 = is_next_ready();
        }
        for index in fed {
            if is_next_ready() {
                ChildInput::flush(&mut self.children[index].input);
            }
        }
        let System { control_pipe, wake_pipe, keys, file_watch, .. } = self;
        for watched in [control_pipe, wake_pipe, keys, file_watch] {
            watched.is_ready = watched.fd.is_some() && is_next_ready();
        }
        if ready.any(|is_ready| is_ready) {
            self.forest.note_change();
        }
        self.read_round_robin(&sources, buf)
    }

    fn poll_timeout(&self, until_ms: Option<u64>) -> Option<Timespec> {
        let deadline = [until_ms, self.forest.next_step_ms()].into_iter().flatten().min();
        deadline
            .map(|ms| clock::timespec(ms.saturating_mul(1_000_000).saturating_sub(clock::now_ns())))
    }

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

/// Reads all that is there: the receiver handles it at once. Closes the pipe if its writers are gone.
fn drain(slot: &mut Option<OwnedFd>) {
    let mut bytes = [0; 256];
    while let Some(pipe) = slot {
        match rustix::io::read(pipe, &mut bytes) {
            Ok(1..) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            Ok(0) | Err(_) => *slot = None,
        }
    }
}

impl Drop for System {
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
        self.has_ended && self.stdout.is_none() && self.stderr.is_none()
    }

    fn finish_streams(&mut self) {
        self.has_ended = true;
        self.input = None;
        for slot in [&mut self.stdout, &mut self.stderr] {
            if let Some(pipe) = slot
                && !pipe.read_only_available()
            {
                *slot = None;
            }
        }
    }
}
