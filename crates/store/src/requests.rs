//! Requests to a run: an ordered, durable queue.
//!
//! Each request is a numbered file in the run directory. The run acknowledges it once its effect is
//! in the journal. A run that is killed before gets the request again: one that must not be repeated
//! takes its number into the journal.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::lock;
use super::private_files;
use super::runs::{self, RunDir};
use super::save::{save_new, save_without_sync};

/// Senders hold the lock only while they write one file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than the steps in which file systems count time.
const TIME_STEP: Duration = Duration::from_millis(50);

const ACKNOWLEDGED: &str = "acknowledged";

/// The longest text that a request may carry, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    Pause,
    /// Continues, with a new iteration limit if one is given.
    Resume {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_iterations: Option<u32>,
    },
    /// Ends the run and its agent, or ends the run after the current iteration.
    Stop {
        #[serde(default = "at_once")]
        now: bool,
    },
    /// Guidance for the next prompt.
    Tell {
        text: String,
        /// Restarts the current iteration with it.
        #[serde(default)]
        now: bool,
        /// For all following prompts, too.
        #[serde(default)]
        every: bool,
    },
    /// Drops guidance that is waiting or repeated.
    ClearGuidance,
    /// Answers a question of the agent.
    Answer {
        question: String,
        text: String,
    },
}

/// Version 0.2 knew no other way to stop.
fn at_once() -> bool {
    true
}

impl Request {
    /// Ends the run and its agent.
    pub const STOP: Request = Request::Stop { now: true };

    /// Changes whether the run works. A later start or stop replaces it; what a person said stays valid.
    fn is_control(&self) -> bool {
        matches!(self, Request::Pause | Request::Resume { .. } | Request::Stop { .. })
    }
}

#[derive(Debug)]
pub enum SendError {
    /// The run has ended, and takes no requests.
    Ended,
    Io(io::Error),
}

impl From<io::Error> for SendError {
    fn from(err: io::Error) -> SendError {
        SendError::Io(err)
    }
}

/// The requests to one run.
#[derive(Debug, Clone)]
pub struct RequestQueue {
    run: RunDir,
    dir: PathBuf,
}

impl RequestQueue {
    pub fn of(run: &RunDir) -> RequestQueue {
        RequestQueue { run: run.clone(), dir: run.path.join("requests") }
    }

    /// Adds a request, wakes the run, and returns the request's number. A run that was killed
    /// accepts requests for the time when it is resumed.
    pub fn send(&self, request: &Request) -> Result<u64, SendError> {
        if !self.run.is_running() && runs::has_ended(&self.run.journal()) {
            return Err(SendError::Ended);
        }
        // A queue would make the directory anew.
        if !self.run.path.is_dir() {
            return Err(SendError::Io(io::ErrorKind::NotFound.into()));
        }
        let number = self.add(request)?;
        self.wake();
        Ok(number)
    }

    fn add(&self, request: &Request) -> io::Result<u64> {
        self.create_dir()?;
        // A number that was acknowledged meanwhile must not be used again.
        let _held = lock::lock_within(&self.dir, LOCK_TIMEOUT)?;
        let bytes = serde_json::to_vec(request)?;
        // Files first: the run notes the number before it removes the file.
        let last = self.numbers()?.pop().unwrap_or(0);
        let number = last.max(self.acknowledged()) + 1;
        save_new(&self.path(number), &bytes)?;
        Ok(number)
    }

    /// A value that changes with the list of requests. `None` if the list could change without it,
    /// because file systems count time in steps, and some in seconds.
    pub fn version(&self) -> Option<SystemTime> {
        let modified = std::fs::metadata(&self.dir).ok()?.modified().ok()?;
        let is_fine = modified.duration_since(UNIX_EPOCH).is_ok_and(|it| it.subsec_nanos() > 0);
        let is_old = modified.elapsed().is_ok_and(|age| age > TIME_STEP);
        (is_fine && is_old).then_some(modified)
    }

    /// The requests after `after` that are not acknowledged, oldest first. One that this version
    /// does not understand is `None`.
    pub fn pending(&self, after: u64) -> io::Result<Vec<(u64, Option<Request>)>> {
        let numbers = self.numbers()?;
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let after = after.max(self.acknowledged());
        let numbers = numbers.into_iter().filter(|number| *number > after);
        let read = |number: u64| {
            let text = std::fs::read(self.path(number)).ok()?;
            serde_json::from_slice(&text).ok()
        };
        Ok(numbers.map(|number| (number, read(number))).collect())
    }

    /// The answer to a question that the run has not taken yet.
    pub fn waiting_answer(&self, asked: &str) -> Option<String> {
        let requests = self.pending(0).unwrap_or_default().into_iter();
        requests.filter_map(|(_, request)| request).find_map(|request| match request {
            Request::Answer { question, text } if question == asked => Some(text),
            _ => None,
        })
    }

    /// Removes the requests up to `number`.
    pub fn acknowledge(&self, number: u64) -> io::Result<()> {
        save_without_sync(&self.dir.join(ACKNOWLEDGED), number.to_string().as_bytes())?;
        let mut old = self.numbers()?.into_iter().filter(|old| *old <= number);
        old.try_for_each(|old| self.remove(old))
    }

    /// The number of the last acknowledged request; 0 for none.
    pub fn acknowledged(&self) -> u64 {
        let text = std::fs::read_to_string(self.dir.join(ACKNOWLEDGED)).unwrap_or_default();
        text.parse().unwrap_or(0)
    }

    /// Drops requests to pause, resume or stop: a later decision replaces them. Guidance and answers stay.
    pub fn drop_control(&self) -> io::Result<()> {
        let pending = self.pending(0)?;
        let is_kept =
            |request: &Option<Request>| request.as_ref().is_some_and(|it| !it.is_control());
        match pending.iter().position(|(_, request)| is_kept(request)) {
            None => pending.last().map_or(Ok(()), |(last, _)| self.acknowledge(*last)),
            Some(first) => {
                let dropped = pending[first..].iter().filter(|(_, request)| !is_kept(request));
                dropped.map(|(number, _)| *number).try_for_each(|number| self.remove(number))?;
                let before = pending[..first].last();
                before.map_or(Ok(()), |(number, _)| self.acknowledge(*number))
            }
        }
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        match std::fs::remove_file(self.path(number)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            _ => Ok(()),
        }
    }

    /// The named pipe that wakes the run; the run creates it.
    pub fn wake_pipe(&self) -> PathBuf {
        self.dir.join("wake")
    }

    /// Creates the directory, which also holds the named pipe.
    pub fn create_dir(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.dir)
    }

    /// Has the run look for requests. Without a run, nothing happens.
    pub fn wake(&self) {
        wake(&self.wake_pipe());
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.json"))
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Writes to a named pipe if a run listens there.
pub fn wake(path: &Path) {
    // Never write to a regular file here.
    if !is_pipe(path) {
        return;
    }
    // Fails at once without a reader.
    let pipe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let _ = pipe.and_then(|mut pipe| pipe.write_all(b"!"));
}

pub fn is_pipe(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::super::run_files::RunFiles;
    use super::*;

    fn queue() -> (tempfile::TempDir, RequestQueue) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: "run".into(), path: dir.path().join("run") };
        run.create().unwrap();
        (dir, RequestQueue::of(&run))
    }

    fn numbered(pending: &[(u64, Option<Request>)]) -> Vec<u64> {
        pending.iter().map(|(number, _)| *number).collect()
    }

    const LIMIT: Request = Request::Resume { max_iterations: Some(7) };

    #[test]
    fn requests_are_taken_in_order_and_kept_until_acknowledged() {
        let (_dir, queue) = queue();
        assert!(queue.pending(0).unwrap().is_empty());
        for request in [Request::Pause, LIMIT, Request::STOP] {
            queue.send(&request).unwrap();
        }
        let expected = [(1, Some(Request::Pause)), (2, Some(LIMIT)), (3, Some(Request::STOP))];
        assert_eq!(queue.pending(0).unwrap(), expected);
        assert_eq!(queue.pending(0).unwrap(), expected, "as after a kill -9 of the run");
        assert_eq!(queue.pending(2).unwrap(), expected[2..], "those that were taken are known");
        queue.acknowledge(2).unwrap();
        assert_eq!(queue.pending(0).unwrap(), expected[2..]);
        queue.drop_control().unwrap();
        assert!(queue.pending(0).unwrap().is_empty());
        assert_eq!(queue.send(&Request::Pause).unwrap(), 4, "numbers are not used again");
    }

    #[test]
    fn start_drops_older_control_requests_and_keeps_what_a_person_said() {
        let (_dir, queue) = queue();
        let tell = |text: &str| Request::Tell { text: text.into(), now: false, every: false };
        let answer = Request::Answer { question: "q1".into(), text: "yes".into() };
        for request in [Request::Pause, tell("a"), Request::STOP, answer.clone(), Request::Pause] {
            queue.send(&request).unwrap();
        }
        queue.drop_control().unwrap();
        assert_eq!(queue.waiting_answer("q1").as_deref(), Some("yes"));
        assert_eq!(queue.waiting_answer("q2"), None);
        let kept = [(2, Some(tell("a"))), (4, Some(answer))];
        assert_eq!(queue.pending(0).unwrap(), kept);
        queue.drop_control().unwrap();
        assert_eq!(queue.pending(0).unwrap(), kept, "nothing is lost by a second start");
        assert_eq!(queue.send(&tell("b")).unwrap(), 5);
    }

    #[test]
    fn stop_of_an_older_version_is_immediate() {
        for (text, now) in
            [(r#"{"request":"stop"}"#, true), (r#"{"request":"stop","now":false}"#, false)]
        {
            let request: Request = serde_json::from_str(text).unwrap();
            assert_eq!(request, Request::Stop { now });
        }
    }

    #[test]
    fn run_killed_while_acknowledging_takes_no_request_twice() {
        let (_dir, queue) = queue();
        queue.send(&Request::Pause).unwrap();
        queue.send(&Request::STOP).unwrap();
        // Killed before the files were removed.
        std::fs::write(queue.dir.join(ACKNOWLEDGED), "1").unwrap();
        assert_eq!(queue.pending(0).unwrap(), [(2, Some(Request::STOP))]);
        queue.acknowledge(2).unwrap();
        assert!(queue.numbers().unwrap().is_empty());
    }

    #[test]
    fn version_changes_with_every_request() {
        let (_dir, queue) = queue();
        queue.create_dir().unwrap();
        assert_eq!(queue.version(), None, "the next change may have the same time");
        let set_time = |time: Duration| {
            let dir = std::fs::File::open(&queue.dir).unwrap();
            dir.set_modified(UNIX_EPOCH + time).unwrap();
        };
        set_time(Duration::new(1_000, 1_000_000));
        let before = queue.version();
        assert!(before.is_some() && before == queue.version());
        queue.send(&Request::Pause).unwrap();
        assert_ne!(queue.version(), before);
        set_time(Duration::from_secs(1_000));
        assert_eq!(queue.version(), None, "a file system that counts seconds");
    }

    #[test]
    fn unknown_request_does_not_block_later_ones() {
        let (_dir, queue) = queue();
        queue.send(&Request::Pause).unwrap();
        std::fs::write(queue.path(2), r#"{"request":"dance"}"#).unwrap();
        queue.send(&Request::STOP).unwrap();
        let pending = queue.pending(1).unwrap();
        assert_eq!(pending, [(2, None), (3, Some(Request::STOP))]);
    }

    #[test]
    fn concurrent_senders_get_different_numbers() {
        let (_dir, queue) = queue();
        let senders = 8;
        std::thread::scope(|scope| {
            for _ in 0..senders {
                scope.spawn(|| queue.send(&Request::Pause).unwrap());
            }
            // The run takes them meanwhile.
            let mut taken = 0;
            while taken < senders {
                let pending = numbered(&queue.pending(taken).unwrap());
                let expected: Vec<u64> = (taken + 1..=taken + pending.len() as u64).collect();
                assert_eq!(pending, expected, "none is left out");
                if let Some(last) = pending.last() {
                    queue.acknowledge(*last).unwrap();
                    taken = *last;
                }
            }
        });
        assert_eq!(queue.acknowledged(), senders);
    }

    #[test]
    fn finished_run_refuses_requests_and_killed_run_keeps_them() {
        let (_dir, queue) = queue();
        let mut files = RunFiles::create(queue.run.clone(), 0).unwrap();
        queue.send(&Request::Pause).unwrap();
        drop(files);
        queue.send(&LIMIT).unwrap();
        files = RunFiles::reopen(queue.run.clone(), 0).unwrap();
        assert_eq!(numbered(&queue.pending(0).unwrap()), [1, 2]);
        let end = concat!(
            r#"{"time":"2026-11-15T20:10:00.000Z","iteration":0,"attempt":0,"event":"run_ended","#,
            r#""outcome":"complete","exit_code":0,"message":"","iterations":1,"duration_ms":1,"#,
            r#""usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"#,
            r#""cache_write_tokens":0},"tools":0,"tool_errors":0}"#,
            "\n"
        );
        files.append_journal(end.as_bytes()).unwrap();
        assert!(queue.send(&Request::Pause).is_ok(), "it is about to exit");
        drop(files);
        assert!(matches!(queue.send(&Request::Pause), Err(SendError::Ended)));
    }

    #[test]
    fn wake_never_blocks_or_writes_to_regular_file() {
        let (_dir, queue) = queue();
        queue.create_dir().unwrap();
        std::fs::write(queue.wake_pipe(), "in the way").unwrap();
        queue.wake();
        assert_eq!(std::fs::read(queue.wake_pipe()).unwrap(), b"in the way");
    }
}
