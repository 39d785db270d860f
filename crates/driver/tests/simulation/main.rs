//! Runs the real engine in a simulated world in which a seed decides what fails, and compares its
//! state with the truth after every life of a run.
//!
//! `RALPH_SIMULATION_SEED=42 cargo test --test simulation` runs one history,
//! `RALPH_SIMULATION_HISTORIES=1000000` that many. `scripts/simulate` does either.

mod broken;
mod counters;
mod ending;
mod faces;
mod guidance;
mod history;
mod promises;
mod rng;
mod steering;
mod truth;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use broken::Fault;
use history::{Told, live, tell};

/// A moment's work without optimization. `scripts/test` runs more.
const HISTORIES: u64 = 2_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Runs all seeds below `count` on all processors and returns the smallest that failed.
fn search(count: u64, fault: Option<Fault>, told: impl Fn(&Told) + Sync) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let failed: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    match live(seed, fault) {
                        Ok(history) => told(&history),
                        Err(why) => {
                            failed.lock().expect("no thread panics").insert(seed, why);
                            next.store(count, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no thread panics").pop_first()
}

#[test]
fn promises_hold_for_any_simulated_history() {
    if let Some(seed) = number("RALPH_SIMULATION_SEED") {
        let (told, journal) = tell(seed);
        eprintln!("{journal}\nseed {seed}: {told:?}");
        assert!(told.is_ok());
        return;
    }
    let count = number("RALPH_SIMULATION_HISTORIES").unwrap_or(HISTORIES);
    let totals = Mutex::new((Told::default(), BTreeMap::<String, u64>::new()));
    let floods = AtomicU64::new(0);
    let failed = search(count, None, |told| {
        let mut totals = totals.lock().expect("no thread panics");
        totals.0.lives += told.lives;
        totals.0.crashes += told.crashes;
        totals.0.agents += told.agents;
        totals.0.looks += told.looks;
        totals.0.unlocked += told.unlocked;
        totals.0.meddled += told.meddled;
        floods.fetch_add(u64::from(told.left_out), Ordering::Relaxed);
        *totals.1.entry(format!("{:?}", told.outcome)).or_default() += 1;
    });
    let (sum, outcomes) = totals.into_inner().expect("no thread panics");
    eprintln!(
        "{count} histories, {} lives, {} crashes, {} agents, {} checks, {} git locks removed, {} \
         times extra work, {} with too much to record; {outcomes:?}",
        sum.lives,
        sum.crashes,
        sum.agents,
        sum.looks,
        sum.unlocked,
        sum.meddled,
        floods.load(Ordering::Relaxed)
    );
    if let Some((seed, why)) = failed {
        panic!(
            "seed {seed}: {why}\nalone: RALPH_SIMULATION_SEED={seed} cargo test --test simulation \
             -- --nocapture promises"
        );
    }
    // A simulation in which nothing happens proves nothing.
    assert!(sum.crashes > count / 4 && sum.agents > count, "{sum:?}");
    assert!(sum.looks > count / 4 && sum.unlocked > count / 200, "{sum:?}");
    assert!(sum.meddled > count / 200, "{sum:?}");
    assert!(outcomes.len() >= 4, "{outcomes:?}");
    assert!(floods.load(Ordering::Relaxed) > count / 20, "{floods:?}");
}

#[test]
fn same_seed_gives_same_history() {
    for seed in 0..20 {
        let [one, two] = [live(seed, None), live(seed, None)].map(|told| format!("{told:?}"));
        assert_eq!(one, two);
    }
}

#[test]
fn deliberately_broken_engines_are_caught() {
    for fault in Fault::ALL {
        let caught = search(20_000, Some(fault), |_| ());
        assert!(caught.is_some(), "not caught: {fault:?}");
    }
}
