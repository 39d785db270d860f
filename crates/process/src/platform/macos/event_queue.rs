//! A kqueue with a thread that turns its events into bytes in a pipe: macOS does not let `poll(2)`
//! wait for a kqueue.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::kqueue::{
    Event, EventFilter, EventFlags, ProcessEvents, UserDefinedFlags, UserFlags, VnodeEvents,
    kevent_timespec, kqueue,
};
use rustix::io::Errno;
use rustix::process::Pid;

use super::super::super::spawn::set_nonblocking;

const BATCH: usize = 64;
const STACK_BYTES: usize = 64 * 1024;

/// Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct EventQueue {
    queue: Arc<OwnedFd>,
    changed_files: Receiver<RawFd>,
    wake_reader: PipeReader,
    wake_writer: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl EventQueue {
    pub(super) fn new() -> io::Result<EventQueue> {
        let queue = Arc::new(kqueue()?);
        let (wake_reader, wake_writer) = io::pipe()?;
        set_nonblocking(wake_reader.as_fd())?;
        set_nonblocking(wake_writer.as_fd())?;
        change(&queue, stop_event(EventFlags::ADD | EventFlags::CLEAR, UserFlags::empty()))?;
        let (sender, changed_files) = channel();
        let (shared, writer) = (Arc::clone(&queue), wake_writer.try_clone()?);
        let thread = thread::Builder::new()
            .name("kqueue".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || forward_events(&shared, &sender, &writer))?;
        Ok(EventQueue { queue, changed_files, wake_reader, wake_writer, thread: Some(thread) })
    }

    /// Fails with `SRCH` for one that has ended already.
    pub(super) fn watch_process(&self, pid: Pid, flags: ProcessEvents) -> Result<(), Errno> {
        let filter = EventFilter::Proc { pid, flags };
        change(&self.queue, event(filter, EventFlags::ADD | EventFlags::CLEAR))
    }

    /// Makes the descriptor readable. A full pipe is readable, too.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake_writer, &[0]);
    }

    /// `file` must stay open until it is removed by closing it.
    pub(super) fn watch_file(&self, file: RawFd, flags: VnodeEvents) -> Result<(), Errno> {
        let filter = EventFilter::Vnode { vnode: file, flags };
        change(&self.queue, event(filter, EventFlags::ADD | EventFlags::CLEAR))
    }

    /// Readable if there are events.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake_reader.as_fd()
    }

    pub(super) fn take_changed_files(&self) -> Vec<RawFd> {
        let mut bytes = [0; 256];
        // Read first: a later event leaves its byte for the next call.
        while matches!(rustix::io::read(&self.wake_reader, &mut bytes), Ok(1..)) {}
        self.changed_files.try_iter().collect()
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        let stop = stop_event(EventFlags::empty(), UserFlags::TRIGGER);
        if change(&self.queue, stop).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn event(filter: EventFilter, flags: EventFlags) -> Event {
    Event::new(filter, flags, std::ptr::null_mut())
}

fn stop_event(flags: EventFlags, user: UserFlags) -> Event {
    let user_flags = UserDefinedFlags::new(0);
    event(EventFilter::User { ident: 0, flags: user, user_flags }, flags)
}

fn change(queue: &OwnedFd, change: Event) -> Result<(), Errno> {
    let mut none: [Event; 0] = [];
    #[expect(unsafe_code, reason = "rustix cannot know that a descriptor in an event stays valid")]
    // SAFETY: files stay open while they are watched, and closing one removes its event.
    unsafe {
        kevent_timespec(queue, &[change], &mut none, None).map(|_| ())
    }
}

fn forward_events(queue: &OwnedFd, changed_files: &Sender<RawFd>, wake_writer: &PipeWriter) {
    let mut events = Vec::with_capacity(BATCH);
    loop {
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        #[expect(unsafe_code, reason = "as in `change`")]
        // SAFETY: as in `change`; this call changes nothing.
        let result = unsafe { kevent_timespec(queue, &[], spare, None) };
        match result {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for event in &events {
            match event.filter() {
                EventFilter::User { .. } => return,
                EventFilter::Vnode { vnode, .. } if changed_files.send(vnode).is_err() => return,
                _ => {}
            }
        }
        // A full pipe wakes, too.
        let _ = rustix::io::write(wake_writer, &[0]);
    }
}
