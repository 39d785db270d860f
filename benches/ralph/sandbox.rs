//! The cost of a sandbox per iteration.

use std::io;
use std::process::Command;

use crate::bench_dir::{BenchDir, silent};
use crate::sections::{median, timed};
use crate::table::{Table, Target, time};

const ITERATIONS: u64 = 40;
const ROUNDS: usize = 5;

pub(super) fn sandbox(bench_dir: &BenchDir, table: &mut Table, _: Option<u64>) -> io::Result<()> {
    let mut bare = silent(Command::new("bwrap"));
    bare.args(["--unshare-all", "--ro-bind", "/", "/", "--"]).arg(bench_dir.path("true"));
    if !bare.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    // The difference to one iteration leaves out what happens once per run.
    let runs = |backend: &str| {
        [1, 1 + ITERATIONS].map(|iterations| {
            let mut run = bench_dir.ralph_run("sandbox", iterations, &["true"]);
            run.command
                .env("RALPH_SANDBOX__BACKEND", backend)
                .env("RALPH_HOME", bench_dir.path("home"));
            run
        })
    };
    let mut backends = ["none", "bwrap", "landlock"].map(|backend| (runs(backend), Vec::new()));
    let mut floors = Vec::new();
    // In turn, so that all meet the same disturbances.
    for _ in 0..ROUNDS {
        for _ in 0..ITERATIONS {
            floors.push(timed(|| bare.status().map(drop))?);
        }
        for ([one, many], times) in &mut backends {
            let (one, many) = (timed(|| one.run())?, timed(|| many.run())?);
            times.push((many - one) / ITERATIONS as f64);
        }
    }
    let floor = median(floors);
    let [outside, bwrap, landlock] = backends.map(|(_, times)| median(times));
    table.ratio(
        "overhead of an iteration in bwrap, compared with a bare bwrap",
        (floor, bwrap - outside),
        time,
        // About 10 ms instead of 4, and 2 more as root.
        Target::AtMost(3.0),
    );
    table.value("  the same with landlock", landlock - outside, time, Target::AtMost(5e-3));
    Ok(())
}
