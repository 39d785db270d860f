//! The first overview of many runs, and of one with a large journal.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use jiff::tz::TimeZone;
use ralph_events::event::{Event, Stamp};
use ralph_events::journal::LineEncoder;
use ralph_monitor::{Monitor, TranscriptWindow};
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};

use crate::bench_dir::{BenchDir, proc_figure};
use crate::sections::{compare, timed};
use crate::table::{Table, Target, size, time};

pub(super) fn monitor(
    bench_dir: &BenchDir,
    table: &mut Table,
    megabytes: Option<u64>,
) -> io::Result<()> {
    many(bench_dir, table)?;
    large(bench_dir, table, megabytes.unwrap_or(200))
}

pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Writes 200 runs, 40 of them of today, which it returns.
pub(super) fn write_many(bench_dir: &BenchDir, home: &Path) -> io::Result<Vec<RunDir>> {
    const RUNS: i64 = 200;
    const TODAY: i64 = 40;
    let mut today = Vec::new();
    for nth in 0..RUNS {
        let root = bench_dir.path(&format!("monitor-project-{}", nth % 10));
        let run = new_run(home, &root, now_ms() - nth * 1000)?;
        write_journal(&run, 100_000)?;
        if nth < TODAY {
            today.push(run);
        } else {
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86_400);
            File::options().append(true).open(run.journal())?.set_modified(old)?;
        }
    }
    Ok(today)
}

/// Compared with reading the journals of today.
fn many(bench_dir: &BenchDir, table: &mut Table) -> io::Result<()> {
    let home = bench_dir.path("monitor-many");
    let today = write_many(bench_dir, &home)?;
    let times = compare(
        20,
        || today.iter().try_for_each(|run| fs::read(run.journal()).map(drop)),
        || {
            let monitor = Monitor::open(&home, TimeZone::UTC, now_ms())?;
            match monitor.overview(now_ms()).cards().count() {
                40 => Ok(()),
                other => Err(io::Error::other(format!("{other} cards"))),
            }
        },
    )?;
    table.ratio(
        "first overview of 200 runs, compared with reading 40 of today",
        times,
        time,
        Target::None,
    );
    table.value("the same, against the limit", times.1, time, Target::AtMost(0.06));
    Ok(())
}

/// Compared with reading the same bytes.
fn large(bench_dir: &BenchDir, table: &mut Table, megabytes: u64) -> io::Result<()> {
    let home = bench_dir.path("monitor-large");
    let run = new_run(&home, &bench_dir.path("monitor-project"), now_ms())?;
    write_journal(&run, megabytes << 20)?;
    let first = timed(|| {
        let monitor = Monitor::open(&home, TimeZone::UTC, now_ms())?;
        let window = TranscriptWindow::open(&run, "")?;
        let is_there = monitor.card(&run.id, now_ms()).is_some() && window.items().count() > 0;
        is_there.then_some(()).ok_or_else(|| io::Error::other("nothing to show"))
    })?;
    let label = format!("header and end of a {megabytes} MB journal");
    table.value(&label, first, time, Target::AtMost(0.15));
    let times = compare(
        3,
        || {
            let mut file = File::open(run.journal())?;
            let mut block = vec![0; 1 << 20];
            while file.read(&mut block)? > 0 {}
            Ok(())
        },
        || {
            let mut monitor = Monitor::open(&home, TimeZone::UTC, now_ms())?;
            while monitor.card(&run.id, now_ms()).is_none_or(|card| card.reading.is_some()) {
                monitor.wait(None);
                monitor.update();
            }
            Ok(())
        },
    )?;
    let label = format!("all figures of a {megabytes} MB journal, compared with reading it");
    table.ratio(&label, times, time, Target::None);
    let memory = proc_figure(std::process::id(), "status", "VmHWM:")?;
    table.value("most memory of this process meanwhile", memory, size, Target::None);
    Ok(())
}

pub(super) fn new_run(home: &Path, root: &Path, started_ms: i64) -> io::Result<RunDir> {
    let project = Project::new(root, home);
    project.prepare_state()?;
    let run = project.run_dir(&runs::new_id(started_ms));
    run.create()?;
    Ok(run)
}

/// Mostly text, as journals are.
pub(super) fn write_journal(run: &RunDir, bytes: u64) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(run.journal())?);
    let mut lines = LineEncoder::default();
    let text = "The token is deleted in the transaction that sets the password. ".repeat(8);
    let (mut written, mut iteration) = (0, 0);
    while written < bytes {
        iteration += 1;
        let at = Stamp { time_ms: now_ms(), iteration, attempt: 1 };
        lines.push(at, &Event::IterationStarted { max_iterations: 10_000 });
        for nth in 0..100 {
            let id = nth.to_string();
            let (id, name, summary) = (id.as_str().into(), "Bash".into(), "make test".into());
            lines.push(at, &Event::ToolStarted { id, name, summary, edit: None, subagent: false });
            lines.push(at, &Event::Text { text: (&*text).into(), joined: false, subagent: false });
        }
        written += lines.bytes().len() as u64;
        file.write_all(lines.bytes())?;
        lines.clear();
    }
    file.flush()
}
