use super::*;
use crate::tests::fake_processes::{FakeProcess, FakeProcesses, pid, process};

fn tree(main: i32) -> ProcessTree {
    ProcessTree::new(pid(main), None, None)
}

/// ralph is 100 in session 50, child of 60. Returns the pids of the family.
fn members(
    alive: &[Process],
    families: &mut [ProcessTree],
    index: usize,
    released: &[i32],
    reaper: bool,
) -> Vec<i32> {
    let mut source = FakeProcesses::new(reaper);
    let fakes = alive.iter().map(|process| FakeProcess::of(*process));
    source.alive.extend(fakes);
    let mut released = alive
        .iter()
        .map(|process| process.identity)
        .filter(|identity| released.contains(&identity.pid.as_raw_pid()))
        .collect();
    let mut families: Vec<&mut ProcessTree> = families.iter_mut().collect();
    let mut found: Vec<i32> = scan(&mut source, &mut families, index, &mut released, reaper)
        .members
        .iter()
        .map(|member| member.identity.pid.as_raw_pid())
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn single_child_owns_all_descendants_and_orphans() {
    let alive = [
        process(200, 100, 200),
        process(201, 200, 201), // its tool, in a session of its own
        process(202, 201, 201),
        process(203, 100, 203), // an orphan in a session of its own
        process(204, 203, 203),
        process(205, 1, 200),  // lost before we were told, but in its session
        process(300, 60, 60),  // our parent's other child
        process(301, 1, 301),  // a stranger
        process(302, 100, 50), // started by us in our own session
    ];
    let found = |reaper| members(&alive, &mut [tree(200)], 0, &[], reaper);
    assert_eq!(found(false), [200, 201, 202, 203, 204, 205]);
    // With a subreaper, a child of init is not ours.
    assert_eq!(found(true), [200, 201, 202, 203, 204]);
}

#[test]
fn reused_pid_of_reaped_child_is_not_owned() {
    let mut family = tree(200);
    family.reaped = true;
    for (session, reaper) in [(400, true), (200, true), (400, false), (200, false)] {
        let alive = [process(200, 1, session)];
        let found = members(&alive, std::slice::from_mut(&mut family), 0, &[], reaper);
        assert_eq!(found, Vec::<i32>::new());
    }
}

#[test]
fn each_of_two_children_owns_only_its_descendants() {
    let alive = [
        process(200, 100, 200),
        process(201, 200, 201),
        process(210, 100, 210),
        process(211, 100, 210),
        process(220, 100, 220), // an orphan of one of the two
    ];
    let mut families = [tree(200), tree(210)];
    assert_eq!(members(&alive, &mut families, 0, &[], true), [200, 201]);
    assert_eq!(members(&alive, &mut families, 1, &[], true), [210, 211]);
    // Members stay members when their parent is gone.
    let orphaned = [process(201, 100, 201), process(210, 100, 210)];
    families[0].reaped = true;
    assert_eq!(members(&orphaned, &mut families, 0, &[], true), [201]);
    assert_eq!(members(&alive, &mut [tree(200)], 0, &[], true), [200, 201, 210, 211, 220]);
}

#[test]
fn released_process_and_its_children_stay_released() {
    let alive = [
        process(150, 100, 150), // left alone
        process(151, 150, 151),
        process(152, 100, 150),
        process(200, 100, 200),
    ];
    let found = members(&alive, &mut [tree(200)], 0, &[150], true);
    assert_eq!(found, [200]);
}
