//! Writes in a thread, so that a slow reader never blocks a run.
//!
//! A terminal stopped by Ctrl+S or an idle pager can block a write indefinitely. One bounded, ordered queue
//! serves both outputs. Non-blocking writes would need no thread, but that mode belongs to the terminal, which
//! the user's shell shares.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::output::OutputTarget;

/// How long a full queue is waited for before output is omitted; short enough for signals.
const FULL_QUEUE_TIMEOUT: Duration = Duration::from_millis(250);

const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Small writes show the progress of a reader on a slow line.
const MAX_WRITE_BYTES: usize = 4 * 1024;

/// Small, because there may be many runs.
const STACK: usize = 64 * 1024;

type Writers = [Box<dyn Write + Send>; 2];

#[derive(Debug)]
pub(super) struct AsyncWriter {
    /// The thread ends after the last write, or with the process.
    queue: Sender<(OutputTarget, Vec<u8>)>,
    written: Receiver<WrittenPiece>,
    progress: Cell<Progress>,
    limit: usize,
    /// It was full; half of it must be free again.
    is_full: bool,
    is_abandoned: bool,
}

struct WrittenPiece {
    target: OutputTarget,
    bytes: usize,
    failed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    /// Bytes not written yet, including those in the thread.
    backlog: usize,
    closed_targets: [bool; 2],
    /// Since when nothing was written while someone waited for it.
    stuck_since: Option<Instant>,
}

impl AsyncWriter {
    /// Holds up to `limit` bytes, or one larger piece.
    ///
    /// # Errors No thread can be started.
    pub(super) fn new(limit: usize, mut writers: Writers) -> io::Result<Self> {
        let (queue, pieces) = channel::<(OutputTarget, Vec<u8>)>();
        let (report, written) = channel();
        let thread = std::thread::Builder::new().name("display".into()).stack_size(STACK);
        thread.spawn(move || {
            let mut closed = [false; 2];
            for (target, bytes) in pieces {
                let (writer, closed) =
                    (&mut writers[target as usize], &mut closed[target as usize]);
                for piece in bytes.chunks(MAX_WRITE_BYTES) {
                    // A failed output stays closed.
                    *closed =
                        *closed || writer.write_all(piece).and_then(|()| writer.flush()).is_err();
                    let piece = WrittenPiece { target, bytes: piece.len(), failed: *closed };
                    // The other side may be gone before the last write.
                    let _ = report.send(piece);
                }
            }
        })?;
        let progress = Progress { backlog: 0, closed_targets: [false; 2], stuck_since: None };
        let progress = Cell::new(progress);
        Ok(AsyncWriter { queue, written, progress, limit, is_full: false, is_abandoned: false })
    }

    /// Returns whether there is room. After it was full, half must be free: omissions then occur in few places.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let limit = self.limit;
        let fits = |backlog: usize| backlog == 0 || backlog.saturating_add(bytes) <= limit;
        let backlog = match self.is_full {
            true => self.backlog(),
            false => self.wait_until(FULL_QUEUE_TIMEOUT, fits),
        };
        self.is_full = !fits(backlog) || self.is_full && backlog > limit / 2;
        !self.is_full
    }

    /// Adds bytes, whether or not there is room.
    pub(super) fn push(&self, target: OutputTarget, bytes: &[u8]) {
        let progress = self.progress();
        if !bytes.is_empty() && !progress.closed_targets[target as usize] {
            self.progress.set(Progress { backlog: progress.backlog + bytes.len(), ..progress });
            let _ = self.queue.send((target, bytes.to_vec()));
        }
    }

    pub(super) fn backlog(&self) -> usize {
        self.progress().backlog
    }

    pub(super) fn is_closed(&self, target: OutputTarget) -> bool {
        self.progress().closed_targets[target as usize]
    }

    /// Waits a moment for the queue to empty. Gives up once nothing was taken for `patience`.
    pub(super) fn has_pending_output(&mut self, patience: Duration) -> bool {
        let progress = self.progress();
        if self.is_abandoned || progress.backlog == 0 {
            return false;
        }
        let now = Instant::now();
        let since = progress.stuck_since.unwrap_or(now);
        self.progress.set(Progress { stuck_since: Some(since), ..progress });
        let left = patience.saturating_sub(now - since);
        self.is_abandoned = left.is_zero();
        !self.is_abandoned && self.wait_until(left.min(LAG_CHECK_INTERVAL), |left| left == 0) > 0
    }

    /// The progress, with all that the thread has reported.
    fn progress(&self) -> Progress {
        self.written.try_iter().for_each(|piece| self.record(&piece));
        self.progress.get()
    }

    fn record(&self, piece: &WrittenPiece) {
        let mut progress = self.progress.get();
        progress.backlog -= piece.bytes;
        progress.closed_targets[piece.target as usize] = piece.failed;
        progress.stuck_since = None;
        self.progress.set(progress);
    }

    /// Waits until the backlog is as wanted, and returns it.
    fn wait_until(&self, at_most: Duration, is_wanted: impl Fn(usize) -> bool) -> usize {
        let end = Instant::now() + at_most;
        while !is_wanted(self.backlog()) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(piece) = self.written.recv_timeout(left) else { break };
            self.record(&piece);
        }
        self.backlog()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A reader that takes bytes only on request.
    #[derive(Debug)]
    pub(crate) struct Reader {
        permits: Sender<usize>,
        written: Receiver<(OutputTarget, Vec<u8>)>,
    }

    struct Gate {
        target: OutputTarget,
        /// Shared by both outputs.
        permits: Arc<Mutex<(Receiver<usize>, usize)>>,
        written: Sender<(OutputTarget, Vec<u8>)>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut permits = self.permits.lock().unwrap();
            while permits.1 == 0 {
                // The test has ended.
                permits.1 += permits.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            }
            let taken = bytes.len().min(permits.1);
            permits.1 -= taken;
            let sent = self.written.send((self.target, bytes[..taken].to_vec()));
            sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Reader {
        pub(crate) fn new() -> (Reader, Writers) {
            let (permits, receiver) = channel();
            let shared = Arc::new(Mutex::new((receiver, 0)));
            let (sender, written) = channel();
            let writers = [OutputTarget::Out, OutputTarget::Err].map(|target| {
                let (permits, written) = (Arc::clone(&shared), sender.clone());
                Box::new(Gate { target, permits, written }) as Box<dyn Write + Send>
            });
            (Reader { permits, written }, writers)
        }

        /// Reads so many bytes, and tells which went where.
        pub(crate) fn take(&self, count: usize) -> Vec<(OutputTarget, String)> {
            self.permits.send(count).unwrap();
            let mut taken: Vec<(OutputTarget, String)> = Vec::new();
            let mut length = 0;
            while length < count {
                let (target, bytes) = self.written.recv_timeout(Duration::from_secs(30)).unwrap();
                length += bytes.len();
                let text = String::from_utf8(bytes).unwrap();
                match taken.last_mut() {
                    Some((last, all)) if *last == target => all.push_str(&text),
                    _ => taken.push((target, text)),
                }
            }
            taken
        }
    }

    fn outbox(limit: usize) -> (AsyncWriter, Reader) {
        let (reader, writers) = Reader::new();
        (AsyncWriter::new(limit, writers).unwrap(), reader)
    }

    const LONG: Duration = Duration::from_secs(30);

    fn wait_for_backlog(outbox: &AsyncWriter, bytes: usize) {
        let end = Instant::now() + LONG;
        while outbox.backlog() != bytes {
            assert!(Instant::now() < end, "{} bytes are left", outbox.backlog());
            std::thread::yield_now();
        }
    }

    #[test]
    fn async_writer_keeps_order_of_both_outputs() {
        let (mut outbox, reader) = outbox(100);
        for (target, text) in [
            (OutputTarget::Out, "a"),
            (OutputTarget::Out, "b"),
            (OutputTarget::Err, "c"),
            (OutputTarget::Out, "d"),
        ] {
            outbox.push(target, text.as_bytes());
        }
        assert_eq!(outbox.backlog(), 4, "nothing has been read");
        let taken = reader.take(4);
        let expected =
            [(OutputTarget::Out, "ab"), (OutputTarget::Err, "c"), (OutputTarget::Out, "d")];
        assert_eq!(taken, expected.map(|(target, text)| (target, text.to_owned())));
        while outbox.has_pending_output(LONG) {}
        assert_eq!(outbox.backlog(), 0);
    }

    #[test]
    fn full_queue_refuses_until_half_is_free() {
        let (mut outbox, reader) = outbox(10);
        assert!(outbox.has_room(50), "one large piece fits into an empty queue");
        outbox.push(OutputTarget::Out, b"12345678");
        assert!(outbox.has_room(2) && !outbox.has_room(3));
        assert!(!outbox.has_room(1), "it was full");
        // The thread may have taken the eight bytes in one piece, whose progress shows at its end.
        reader.take(8);
        wait_for_backlog(&outbox, 0);
        assert!(outbox.has_room(3));
        outbox.push(OutputTarget::Out, b"more than it holds");
        assert_eq!(outbox.backlog(), 18, "what must be said is taken anyway");
        reader.take(18);
    }

    #[test]
    fn queue_waits_for_slow_reader() {
        let (mut outbox, reader) = outbox(10);
        outbox.push(OutputTarget::Out, b"0123456789");
        let reading = std::thread::spawn(move || {
            reader.take(10);
            reader
        });
        // It is well within the time for which a slow reader is waited for.
        assert!(outbox.has_room(10));
        reading.join().unwrap();
    }

    #[test]
    fn stuck_reader_is_abandoned_but_slow_one_is_not() {
        let (mut outbox, reader) = outbox(1 << 20);
        outbox.push(OutputTarget::Out, &[b'x'; 2 * MAX_WRITE_BYTES]);
        assert!(outbox.has_pending_output(LONG), "nothing was read");
        reader.take(MAX_WRITE_BYTES);
        wait_for_backlog(&outbox, MAX_WRITE_BYTES);
        assert!(outbox.has_pending_output(LONG));
        let started = Instant::now();
        let patience = Duration::from_millis(50);
        while outbox.has_pending_output(patience) {}
        assert!(started.elapsed() < LONG);
        assert_eq!(outbox.backlog(), MAX_WRITE_BYTES);
        assert!(!outbox.has_pending_output(LONG), "it stays given up");
    }

    #[test]
    fn closed_output_is_dropped_while_other_continues() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (reader, [_, err]) = Reader::new();
        let outbox = AsyncWriter::new(100, [Box::new(Closed), err]).unwrap();
        outbox.push(OutputTarget::Out, b"a");
        outbox.push(OutputTarget::Err, b"b");
        assert_eq!(reader.take(1), [(OutputTarget::Err, "b".to_owned())]);
        wait_for_backlog(&outbox, 0);
        assert!(outbox.is_closed(OutputTarget::Out) && !outbox.is_closed(OutputTarget::Err));
        outbox.push(OutputTarget::Out, b"a");
        assert_eq!(outbox.backlog(), 0);
    }
}
