use rustix::process::Signal;

use super::*;
use crate::tests::fake_processes::{FakeProcess, FakeProcesses, ME, pid, process};

const CHILD: ChildId = ChildId(1);
const GRACE_MS: u64 = 5_000;
const MARK: &str = "RALPH_RUN_ID=r1";

type FakeForest = ProcessForest<FakeProcesses>;

/// A forest with the child 200.
fn forest(reaper: bool) -> FakeForest {
    let mut source = FakeProcesses::new(reaper);
    source.fork(ME, 200, 200);
    let mut forest = ProcessForest::new(source, reaper);
    forest.add(CHILD, pid(200), Some(MARK.into()), false);
    forest
}

/// One wake-up of `System::wait`.
fn wake(forest: &mut FakeForest) {
    if std::mem::take(&mut forest.source.has_changed) {
        forest.note_change();
    }
    forest.reap();
    let now = forest.source.now_ms;
    forest.advance(now);
}

/// Wakes up at every change and step until the tree has ended.
fn finish(forest: &mut FakeForest) -> ChildEnd {
    for _ in 0..1_000 {
        wake(forest);
        if forest.has_ended(CHILD) {
            return forest.remove(CHILD);
        }
        if !forest.source.has_changed {
            forest.source.now_ms = forest.next_step_ms().expect("nothing would wake it");
        }
    }
    panic!("it never ended");
}

fn pids(leftovers: &[Leftover]) -> Vec<u32> {
    leftovers.iter().map(|leftover| leftover.pid).collect()
}

#[test]
fn terminate_sends_term_once_and_kill_after_grace() {
    for reaper in [true, false] {
        let mut forest = forest(reaper);
        forest.source.fork(200, 201, 201).ignores_term = true;
        forest.terminate_child(CHILD, GRACE_MS);
        let ended = finish(&mut forest);
        let signals: Vec<_> =
            forest.source.signals.iter().filter(|(target, _)| target.abs() == 201).collect();
        let kills = if reaper { 2 } else { 1 };
        assert_eq!(signals[0], &(201, Signal::TERM), "{reaper}");
        assert_eq!(signals.len(), 1 + kills, "{signals:?}");
        assert!(signals[1..].iter().all(|(_, signal)| *signal == Signal::KILL));
        // What outlives the child gets less than the full grace period.
        let waited = forest.source.now_ms - 1_000;
        assert!((LEFTOVER_GRACE_MS..LEFTOVER_GRACE_MS + 1_000).contains(&waited), "{waited}");
        assert_eq!((ended.exit, ended.leftovers), (Some(Exit::Code(0)), vec![]));
    }
}

#[test]
fn orphans_are_found_through_dead_parents() {
    for reaper in [true, false] {
        let mut forest = forest(reaper);
        wake(&mut forest);
        forest.source.now_ms += LOOK_MS;
        forest.source.fork(200, 201, 201);
        wake(&mut forest);
        // A daemon: its parent is gone before anyone looks again.
        forest.source.fork(201, 202, 202);
        forest.source.exit(201);
        forest.source.exit(200);
        let ended = finish(&mut forest);
        assert_eq!(pids(&ended.leftovers), [202], "{reaper}");
        assert!(!forest.source.has(202));
    }
}

#[test]
fn orphan_of_unseen_parent_is_found_by_its_mark() {
    for (environment, found) in
        [(Some(MARK), true), (Some("RALPH_RUN_ID=r2"), false), (None, false)]
    {
        let mut forest = forest(false);
        forest.source.fork(200, 201, 201);
        forest.source.fork(201, 202, 202).environment = environment;
        forest.source.exit(201);
        forest.source.exit(200);
        let ended = finish(&mut forest);
        // Without either it escapes: macOS hides the environment of Apple's programs.
        assert_eq!(!ended.leftovers.is_empty(), found, "{environment:?}");
        assert_eq!(forest.source.has(202), !found);
    }
}

#[test]
fn inherited_mark_of_our_ancestors_does_not_matter() {
    let mut forest = forest(false);
    forest.source.find(60).environment = Some(MARK);
    let terminal = process(70, 1, 70);
    forest.source.alive.push(FakeProcess::of(terminal));
    forest.source.find(60).process.parent = 70;
    forest.source.find(70).environment = Some(MARK);
    forest.source.exit(200);
    assert_eq!(finish(&mut forest).leftovers, []);
    assert!(forest.source.has(60) && forest.source.has(70));
}

#[test]
fn reused_pid_is_not_signalled() {
    for reaper in [true, false] {
        let mut forest = forest(reaper);
        forest.source.fork(200, 201, 201).ignores_term = true;
        forest.terminate_child(CHILD, GRACE_MS);
        forest.source.exit(201);
        // A stranger gets its number, and that of the child.
        forest.source.fork(1, 201, 201);
        if !forest.source.has(200) {
            forest.reap();
            forest.source.fork(1, 200, 200);
        }
        forest.source.signals.clear();
        finish(&mut forest);
        assert_eq!(forest.source.signals, [], "{reaper}");
        assert!(forest.source.has(201));
    }
}

#[test]
fn forks_during_kill_do_not_escape() {
    for reaper in [true, false] {
        let mut forest = forest(reaper);
        forest.source.fork(200, 201, 201).forks_left = 20;
        forest.kill_child(CHILD);
        assert_eq!(finish(&mut forest).leftovers, [], "{reaper}");
        let last = 201 + 20 * 1_000;
        assert!(forest.source.signals.contains(&(last, Signal::KILL)));
        assert_eq!(forest.source.alive.len(), 3, "{:?}", forest.source.alive);
    }
}

#[test]
fn unkillable_process_is_reported_and_left_alone() {
    for reaper in [true, false] {
        let mut forest = forest(reaper);
        let stuck = forest.source.fork(200, 201, 201);
        (stuck.ignores_term, stuck.survives_kill) = (true, true);
        forest.kill_child(CHILD);
        let ended = finish(&mut forest);
        assert_eq!((pids(&ended.leftovers), ended.leftovers[0].survived), (vec![201], true));
        assert_eq!(forest.source.now_ms, 1_000 + GIVE_UP_MS);
        // It is not of the next child.
        forest.source.fork(ME, 300, 300);
        forest.add(CHILD, pid(300), None, false);
        forest.source.exit(300);
        assert_eq!(finish(&mut forest).leftovers, [], "{reaper}");
    }
}

#[test]
fn end_of_orphan_wakes_without_polling() {
    let mut forest = forest(false);
    forest.source.fork(200, 201, 201).ignores_term = true;
    forest.terminate_child(CHILD, GRACE_MS);
    wake(&mut forest);
    assert_eq!(forest.next_step_ms(), Some(1_000 + TERM_SCAN_MS));
    forest.source.exit(201);
    assert!(forest.source.has_changed);
    wake(&mut forest);
    assert!(forest.has_ended(CHILD));
}

#[test]
fn forks_are_looked_at_in_intervals() {
    let mut forest = forest(false);
    wake(&mut forest);
    assert_eq!(forest.next_step_ms(), None, "an idle child needs no wake-ups");
    forest.source.fork(200, 201, 201);
    wake(&mut forest);
    assert_eq!(forest.next_step_ms(), Some(1_000 + LOOK_MS));
    forest.source.now_ms += LOOK_MS;
    wake(&mut forest);
    assert_eq!(forest.next_step_ms(), None);
    assert_eq!(forest.watched.len(), 2);
    // One that comes and goes between two looks leaves the others watched.
    forest.source.fork(200, 202, 202);
    forest.source.exit(202);
    wake(&mut forest);
    forest.source.now_ms += LOOK_MS;
    wake(&mut forest);
    forest.source.exit(201);
    assert!(forest.source.has_changed);
}

/// Reading one is expensive on macOS.
#[test]
fn environments_are_read_of_new_strangers_and_only_once() {
    let mut source = FakeProcesses::new(false);
    source.fork(1, 150, 150).environment = Some("HOME=/Users/me");
    source.fork(ME, 200, 200);
    let mut forest = ProcessForest::new(source, false);
    forest.add(CHILD, pid(200), Some(MARK.into()), false);
    forest.source.fork(1, 300, 300).environment = Some("RALPH_RUN_ID=r2");
    forest.source.fork(1, 301, 301);
    for step in 0..3 {
        forest.source.fork(200, 210 + step, 200);
        forest.note_change();
        forest.source.now_ms += LOOK_MS;
        wake(&mut forest);
    }
    // A hidden one may come to light when it executes another program.
    assert_eq!(forest.source.environments_read, [300, 301, 301, 301]);
    forest.source.find(301).environment = Some(MARK);
    for number in [200, 210, 211, 212] {
        forest.source.exit(number);
    }
    assert_eq!(pids(&finish(&mut forest).leftovers), [301]);
    assert!(forest.source.has(150) && forest.source.has(300));
}
