//! The thread that follows the runs, and how the others talk to it.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use ralph_events::error::Error;
use ralph_monitor::Monitor;
use ralph_process::EndSignals;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::{oneshot, watch};

type Job = Box<dyn FnOnce(&mut Monitor) + Send>;

/// Sends jobs to the monitor's thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Hub {
    jobs: mpsc::Sender<Job>,
    bell: Arc<OwnedFd>,
    topics: Arc<Mutex<HashMap<String, watch::Sender<u64>>>>,
}

/// Runs the jobs on the monitor's thread.
pub(crate) struct MonitorLoop {
    jobs: mpsc::Receiver<Job>,
    bell: OwnedFd,
}

/// The topic of changes of any run.
const ALL_RUNS: &str = "";

pub(crate) fn new() -> io::Result<(Hub, MonitorLoop)> {
    let (reader, writer) = io::pipe()?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    for end in [&reader, &writer] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    let (sender, receiver) = mpsc::channel();
    let hub = Hub { jobs: sender, bell: Arc::new(writer), topics: Arc::default() };
    Ok((hub, MonitorLoop { jobs: receiver, bell: reader }))
}

impl Hub {
    /// Runs a short job on the monitor's thread.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Monitor) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let job = move |monitor: &mut Monitor| {
            // A client that left needs no answer.
            let _ = sender.send(job(monitor));
        };
        self.jobs.send(Box::new(job)).ok()?;
        // A full pipe rings as well.
        let _ = rustix::io::write(&*self.bell, b"!");
        receiver.await.ok()
    }

    /// A counter of the changes of all runs.
    pub(crate) fn all_changes(&self) -> watch::Receiver<u64> {
        self.changes_of(ALL_RUNS)
    }

    /// A counter of the changes of one run.
    pub(crate) fn changes_of(&self, run: &str) -> watch::Receiver<u64> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(run.to_owned()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    fn publish<'r>(&self, runs: impl Iterator<Item = &'r str>) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        for run in runs.chain([ALL_RUNS]) {
            if let Some(topic) = topics.get(run) {
                topic.send_modify(|count| *count += 1);
            }
        }
        topics.retain(|_, topic| topic.receiver_count() > 0);
    }
}

impl MonitorLoop {
    /// Takes in changes and runs jobs until a signal arrives.
    pub(crate) fn run(
        self,
        mut monitor: Monitor,
        hub: &Hub,
        signals: &EndSignals,
    ) -> Result<(), Error> {
        let failed = |err: rustix::io::Errno| Error::failed(format!("cannot wait: {err}"));
        loop {
            let bell = self.bell.as_fd();
            let mut fds = [monitor.fd(), bell, signals.fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(err) => return Err(failed(err)),
            }
            if fds[2].revents().contains(PollFlags::IN) {
                return Ok(());
            }
            let _ = rustix::io::read(&self.bell, &mut [0; 256]);
            let changes = monitor.update();
            for job in self.jobs.try_iter() {
                job(&mut monitor);
            }
            if !changes.is_empty() {
                hub.publish(changes.runs.iter().map(String::as_str));
            }
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hub")
    }
}
