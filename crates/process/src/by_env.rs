//! Finds the processes that a killed run left behind: they inherit a variable.
//!
//! macOS hides the environment of Apple's own programs (`/bin/sh`, `/usr/bin/perl`). They are found
//! only below a process that shows it.

use std::collections::HashSet;

use super::process_table::{
    Process, ProcessId, ProcessSource, SystemProcesses, ancestry, has_variable,
};
use super::tree::{self, Member};
use ralph_events::event::Leftover;

const RETRY_MS: u64 = 100;
const GIVE_UP_MS: u64 = 3_000;

/// This user's processes with `name=value` in their environment, and their descendants, but never
/// this process or its ancestors.
pub fn find_by_env(name: &str, value: &str) -> Vec<Leftover> {
    let mut source = SystemProcesses::default();
    let members = find_members(&mut source, &format!("{name}={value}"));
    members.iter().map(|member| member.leftover(&mut source)).collect()
}

/// Ends and returns what [`find_by_env`] finds. Blocks at most three seconds longer than the grace
/// period; `hurry` is polled and cuts that short.
pub fn kill_by_env(
    name: &str,
    value: &str,
    grace_ms: u64,
    hurry: impl FnMut() -> bool,
) -> Vec<Leftover> {
    terminate_all(&mut SystemProcesses::default(), &format!("{name}={value}"), grace_ms, hurry)
}

/// Whether any process mentions `text` in its environment.
pub fn is_in_environment(text: &[u8]) -> bool {
    is_mentioned(&mut SystemProcesses::default(), text)
}

fn is_mentioned(source: &mut impl ProcessSource, text: &[u8]) -> bool {
    let finder = memchr::memmem::Finder::new(text);
    source.table().is_some_and(|table| {
        let mut environments =
            table.alive.iter().filter_map(|process| source.environment(process.identity.pid));
        environments.any(|environment| finder.find(&environment).is_some())
    })
}

fn find_members(source: &mut impl ProcessSource, mark: &str) -> Vec<Member> {
    let Some(table) = source.table() else {
        return Vec::new();
    };
    let parents = table.parents();
    let above_us: Vec<i32> = ancestry(table.me.pid(), &parents).collect();
    let own: Vec<&Process> = table
        .alive
        .iter()
        .filter(|process| {
            let pid = process.identity.pid;
            !pid.is_init() && !above_us.contains(&process.pid()) && source.is_own(pid)
        })
        .collect();
    let carriers: HashSet<i32> = own
        .iter()
        .filter(|process| {
            let environment = source.environment(process.identity.pid).unwrap_or_default();
            has_variable(&environment, mark.as_bytes())
        })
        .map(|process| process.pid())
        .collect();
    own.iter()
        .filter(|process| {
            ancestry(process.pid(), &parents)
                .take_while(|pid| !above_us.contains(pid))
                .any(|pid| carriers.contains(&pid))
        })
        .map(|process| Member::of(process, None))
        .collect()
}

fn terminate_all(
    source: &mut impl ProcessSource,
    mark: &str,
    grace_ms: u64,
    mut hurry: impl FnMut() -> bool,
) -> Vec<Leftover> {
    let mut members = find_members(source, mark);
    let mut leftovers: Vec<Leftover> =
        members.iter().map(|member| member.leftover(source)).collect();
    for member in &members {
        member.terminate(source);
    }
    let ids = |members: &[Member]| -> Vec<ProcessId> {
        members.iter().map(|member| member.identity).collect()
    };
    let grace_ends = source.now_ms() + grace_ms;
    let mut gone = loop {
        let until = grace_ends.min(source.now_ms() + RETRY_MS);
        let gone = source.wait_until_gone(&ids(&members), until);
        if gone || source.now_ms() >= grace_ends || hurry() {
            break gone;
        }
    };
    let give_up_at = source.now_ms() + GIVE_UP_MS;
    loop {
        // Those seen before stay listed: they may have changed their environment. A reused pid is
        // not signalled.
        let new = find_members(source, mark);
        if gone && new.is_empty() {
            return leftovers;
        }
        if source.now_ms() >= give_up_at {
            let now = source.now_ms();
            for (leftover, member) in leftovers.iter_mut().zip(&members) {
                leftover.survived = !source.wait_until_gone(&[member.identity], now);
            }
            return leftovers;
        }
        members.extend(new);
        tree::kill(source, &members);
        let until = source.now_ms() + RETRY_MS;
        gone = source.wait_until_gone(&ids(&members), until);
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;
    use crate::tests::fake_processes::FakeProcesses;

    const MARK: &str = "RALPH_RUN_ID=r1";

    /// A killed run's tool 201 with the child 202, whose environment is hidden, and a stranger.
    fn left_behind() -> FakeProcesses {
        let mut source = FakeProcesses::new(false);
        source.fork(1, 201, 201).environment = Some(MARK);
        source.fork(201, 202, 202);
        source.fork(1, 203, 203).environment = Some("RALPH_RUN_ID=r10");
        source
    }

    #[test]
    fn leftovers_are_those_with_the_mark_and_their_descendants() {
        let mut source = left_behind();
        source.find(60).environment = Some(MARK);
        let found = terminate_all(&mut source, MARK, 100, || false);
        let pids: Vec<u32> = found.iter().map(|leftover| leftover.pid).collect();
        assert_eq!(pids, [201, 202], "not our parent");
        assert_eq!(source.signals, [(201, Signal::TERM), (202, Signal::TERM)]);
        assert!(source.has(60) && source.has(203) && !source.has(202));
    }

    #[test]
    fn any_variable_may_mention_text() {
        let mut source = left_behind();
        source.find(203).environment = Some("HOME=/Users/me TMPDIR=/s/a1/tmp");
        for (text, found) in [("/s/a1", true), ("/s/a2", false), ("RALPH_RUN_ID=r1", true)] {
            assert_eq!(is_mentioned(&mut source, text.as_bytes()), found, "{text}");
        }
    }

    #[test]
    fn leftovers_are_killed_after_grace_or_given_up() {
        let mut source = left_behind();
        source.find(201).ignores_term = true;
        source.find(202).ignores_term = true;
        source.find(202).survives_kill = true;
        let leftovers = terminate_all(&mut source, MARK, 500, || false);
        assert!(!source.has(201) && source.has(202));
        assert_eq!(source.now_ms, 1_000 + 500 + GIVE_UP_MS);
        let survived = |pid| leftovers.iter().any(|it| it.pid == pid && it.survived);
        assert!(!survived(201) && survived(202), "{leftovers:?}");
    }
}
