//! A long run in a few minutes. Memory, descriptors, threads and files must not grow.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ralph_events::event::Event;
use ralph_store::runs;

use crate::bench_dir::{BenchDir, proc_figure};
use crate::table::{Table, Target, count, size, speed, time};
use crate::writer;

/// Output per agent: 10,000 of them make 20 GB.
const EACH: u64 = 2_000_000;
const MEGABYTES: u64 = 20_000;
/// The default limits of the journal and the raw output.
const ROOM: f64 = 2.0 * 200.0 * 1024.0 * 1024.0;
/// The most that an iteration adds to a full journal: both ends of its output, and ralph's own
/// events.
const OF_ITERATION: f64 = 16.0 * 1024.0;

/// Figures of one tenth of the run.
#[derive(Clone, Copy, Default)]
struct Sample {
    memory: f64,
    descriptors: f64,
    threads: f64,
}

impl Sample {
    fn look(&mut self, pid: u32) -> io::Result<()> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        self.memory = self.memory.max(proc_figure(pid, "status", "VmRSS:")?);
        self.descriptors = self.descriptors.max(descriptors as f64);
        self.threads = self.threads.max(proc_figure(pid, "status", "Threads:")?);
        Ok(())
    }
}

pub(super) fn soak(
    bench_dir: &BenchDir,
    table: &mut Table,
    megabytes: Option<u64>,
) -> io::Result<()> {
    let bytes = megabytes.unwrap_or(MEGABYTES) * 1_000_000;
    let iterations = bytes.div_ceil(EACH).max(20);
    let mut run = bench_dir.ralph_run("soak", iterations, &["claude"]);
    run.command.env(writer::SIZE_VARIABLE, EACH.to_string());
    let began = Instant::now();
    let mut child = run.spawn()?;
    let (mut peak, mut largest) = (0.0, 0_u64);
    let mut tenths = [Sample::default(); 10];
    while child.try_wait()?.is_none() {
        // The last values stay if the process is gone.
        if let Ok(journal) = run.journal()
            && let Some(done) = last_iteration(&journal)
        {
            let tenth = usize::try_from((done.saturating_sub(1)) * 10 / iterations).unwrap_or(0);
            if let Some(seen) = tenths.get_mut(tenth) {
                let _ = seen.look(child.id());
            }
            largest = largest.max(run.on_disk().unwrap_or(0));
        }
        peak = proc_figure(child.id(), "status", "VmHWM:").unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = began.elapsed().as_secs_f64();
    let journal = run.journal()?;
    let starts: Vec<f64> = runs::read_journal(&journal)?
        .filter(|entry| matches!(entry.event, Event::AgentStarted { .. }))
        .map(|entry| entry.at.time_ms as f64 / 1e3)
        .collect();
    if starts.len() as u64 != iterations {
        return Err(io::Error::other(format!("{} iterations of {iterations}", starts.len())));
    }
    let gigabytes = (iterations * EACH) as f64 / 1e9;
    let label = format!("{iterations} iterations, {gigabytes:.1} GB of output in one run");
    table.value(&label, seconds, time, Target::None);
    table.value("  speed", (iterations * EACH) as f64 / seconds, speed, Target::None);
    table.value("  peak memory", peak, size, Target::AtMost(16e6));
    let (second, last) = (tenths[1], tenths[9]);
    let mut grows = |label: &str, of: fn(&Sample) -> f64, show: fn(f64) -> String, most: f64| {
        let label = format!("  {label}: last tenth compared with the second");
        table.ratio(&label, (of(&second), of(&last)), show, Target::AtMost(most));
    };
    grows("memory", |seen| seen.memory, size, 1.1);
    grows("open descriptors", |seen| seen.descriptors, count, 1.0);
    grows("threads", |seen| seen.threads, count, 1.0);
    let tenth = starts.len() / 10;
    let each = |from: usize| (starts[from + tenth - 1] - starts[from]) / (tenth - 1) as f64;
    table.ratio(
        "  iteration time: last tenth compared with the second",
        (each(tenth), each(starts.len() - tenth)),
        time,
        Target::AtMost(1.1),
    );
    let on_disk = largest.max(run.on_disk()?) as f64;
    table.value(
        "  maximum on disk",
        on_disk,
        size,
        Target::AtMost(ROOM + OF_ITERATION * iterations as f64),
    );
    let journal = fs::metadata(journal)?.len() as f64;
    table.value("  journal part", journal, size, Target::None);
    let began = Instant::now();
    let mut report = bench_dir.ralph();
    report.arg("report").arg("-C").arg(run.project());
    if !report.status()?.success() {
        return Err(io::Error::other("no report"));
    }
    table.value("  ralph report for it", began.elapsed().as_secs_f64(), time, Target::None);
    fs::remove_dir_all(run.project())
}

fn last_iteration(journal: &Path) -> Option<u64> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open(journal).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024))).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let mark = b"\"iteration\":";
    let at = memchr::memmem::rfind(&end, mark)? + mark.len();
    let digits: String =
        end[at..].iter().map(|byte| char::from(*byte)).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
