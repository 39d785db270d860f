//! Work that takes longer than a frame: git, tmux, browsers. One thread does it in order, because
//! only one command may run at a time.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

type Job<R> = Box<dyn FnOnce() -> R + Send>;

/// A thread that wakes the screen when a job has ended.
#[derive(Debug)]
pub(crate) struct Jobs<R> {
    jobs: Sender<Job<R>>,
    results: Receiver<R>,
    wake: PipeReader,
}

impl<R: Send + 'static> Jobs<R> {
    /// # Errors
    /// There is no thread or descriptor left.
    pub(crate) fn start() -> io::Result<Jobs<R>> {
        let (jobs, waiting) = mpsc::channel::<Job<R>>();
        let (done, results) = mpsc::channel();
        let (wake, mut waker) = io::pipe()?;
        let work = move || {
            for job in waiting {
                if done.send(job()).is_err() || waker.write_all(b".").is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("jobs".to_owned()).spawn(work)?;
        Ok(Jobs { jobs, results, wake })
    }

    pub(crate) fn run(&self, job: impl FnOnce() -> R + Send + 'static) {
        // The thread lives as long as this.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Readable if a job has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Results of jobs that have ended. Call it only if [`Jobs::fd`] is readable.
    pub(crate) fn take(&mut self) -> Vec<R> {
        let mut bytes = [0; 64];
        let _ = self.wake.read(&mut bytes);
        self.results.try_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_wake() {
        let mut jobs: Jobs<u32> = Jobs::start().unwrap();
        jobs.run(|| 1);
        jobs.run(|| 2);
        let mut results = Vec::new();
        while results.len() < 2 {
            results.extend(jobs.take());
        }
        assert_eq!(results, [1, 2]);
    }
}
