//! Workers: listing many, sending requests, and the cost of an idle one.

use std::fs;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ralph::workers::registry::Workers;
use ralph::workers::store::{StoredState, Worker};
use ralph::workers::watch::WorkerWatcher;
use ralph_report::worker_lines::{WorkerState, WorkerStatus};
use ralph_store::requests::Request;
use serde_json::json;

use crate::bench_dir::{BenchDir, proc_figure, silent};
use crate::sections::compare;
use crate::table::{Table, Target, count, time};

const LONG: Duration = Duration::from_secs(30);

pub(super) fn workers(
    bench_dir: &BenchDir,
    table: &mut Table,
    number: Option<u64>,
) -> io::Result<()> {
    many(bench_dir, table, number.unwrap_or(200))?;
    one(bench_dir, table)
}

/// Compared with listing their directories.
fn many(bench_dir: &BenchDir, table: &mut Table, number: u64) -> io::Result<()> {
    let home = bench_dir.path("many");
    let all = Workers::at(home.join("workers"));
    for nth in 0..number {
        let worker = all.by_name(&format!("worker-{nth}")).map_err(io::Error::other)?;
        worker.create()?;
        worker.save(&WorkerState {
            worker_name: worker.name.clone(),
            prompt_file: "/src/project/PROMPT.md".into(),
            max_iterations: 100,
            current_iteration: 7,
            status: if nth % 2 == 0 { WorkerStatus::Stopped } else { WorkerStatus::Paused },
            started: "2026-01-15T10:30:00.000000".into(),
            finished_iterations: 6,
            finished_ms: 6_000_000,
            cost_usd: Some(1.5),
            last_event: Some("starting iteration 7/100".into()),
            directory: "/src/project".into(),
            ..WorkerState::default()
        })?;
    }
    for command in [&["ls"][..], &["status", "--all"]] {
        let mut floor = silent(Command::new("ls"));
        floor.arg("-l").arg(home.join("workers"));
        let mut listing = bench_dir.ralph();
        listing.args(command).env("RALPH_HOME", &home);
        let times = compare(200, || floor.status().map(drop), || listing.status().map(drop))?;
        let label =
            format!("ralph {} with {number} workers, compared with `ls -l`", command.join(" "));
        table.ratio(&label, times, time, Target::AtMost(5.0));
    }
    Ok(())
}

fn one(bench_dir: &BenchDir, table: &mut Table) -> io::Result<()> {
    const SECONDS: u64 = 5;
    let home = bench_dir.path("one");
    let project = bench_dir.path("one-project");
    fs::create_dir_all(&project)?;
    let all = Workers::at(home.join("workers"));
    let worker = all.by_name("agent").map_err(io::Error::other)?;
    worker.create()?;
    let ticker = bench_dir.path("ticker").to_string_lossy().into_owned();
    let spec = json!({
        "command": "spawn",
        "directory": project,
        "settings": {
            "maximumIterations": 9,
            "agent": {"command": ticker, "flags": ["silent"]},
        },
        "origins": {},
        "files": [],
        "settings_files": [],
        "prompt": {"text": "Do it."},
        "completion": "never",
        "view": {"output": "human", "verbose": false, "quiet": true},
    });
    fs::write(worker.spec_path(), spec.to_string())?;
    // Without a window.
    let mut command = bench_dir.ralph();
    command.args(["worker-loop", "agent"]).env("RALPH_HOME", &home).current_dir(&project);
    let mut child = command.spawn()?;
    let measured = ask(&worker, &child, SECONDS);
    child.kill()?;
    child.wait()?;
    let (longest, wakes) = measured?;
    table.value(
        "longest of 50 delays from a request to the new state",
        longest,
        time,
        Target::AtMost(0.05),
    );
    table.value(
        &format!("wake-ups of a worker in {SECONDS} s with a silent agent"),
        wakes,
        count,
        Target::AtMost(0.0),
    );
    Ok(())
}

fn ask(worker: &Worker, child: &Child, seconds: u64) -> io::Result<(f64, f64)> {
    let mut watch = WorkerWatcher::new(worker);
    let mut until = |is_it: &dyn Fn(&WorkerState) -> bool| {
        watch
            .wait_for_within(LONG, || match worker.load_state() {
                StoredState::State(state) if is_it(&state) => Some(()),
                _ => None,
            })
            .ok_or_else(|| io::Error::other("the worker does not respond"))
    };
    until(&|state| state.current_iteration == 1)?;
    let mut longest = 0_f64;
    for nth in 0..50 {
        let (wish, status) = match nth % 2 {
            0 => (Request::Pause, WorkerStatus::Paused),
            _ => (Request::Resume { max_iterations: None }, WorkerStatus::Running),
        };
        let sent_at = Instant::now();
        worker.send_request(&wish)?;
        until(&|state| state.status == status)?;
        longest = longest.max(sent_at.elapsed().as_secs_f64());
    }
    std::thread::sleep(Duration::from_secs(1));
    let wakes = || proc_figure(child.id(), "status", "voluntary_ctxt_switches:");
    let before = wakes()?;
    std::thread::sleep(Duration::from_secs(seconds));
    Ok((longest, wakes()? - before))
}
