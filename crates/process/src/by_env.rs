//! Finds the processes that a killed run left behind: they inherit a variable.
//!
//! Only Linux shows the environments of other processes.

use ralph_events::event::Leftover;

/// This user's processes with `name=value` in their environment, and their descendants, but never
/// this process or its ancestors.
pub fn find_by_env(name: &str, value: &str) -> Vec<Leftover> {
    #[cfg(target_os = "linux")]
    return super::tree::linux::find_by_env(name, value)
        .iter()
        .map(super::tree::Member::leftover)
        .collect();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (name, value);
        Vec::new()
    }
}

/// Ends and returns what [`find_by_env`] finds. Blocks at most three seconds longer than the grace
/// period; `hurry` is polled and cuts that short.
pub fn kill_by_env(
    name: &str,
    value: &str,
    grace_ms: u64,
    hurry: impl FnMut() -> bool,
) -> Vec<Leftover> {
    #[cfg(target_os = "linux")]
    return terminate_all(name, value, grace_ms, hurry);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (name, value, grace_ms, hurry);
        Vec::new()
    }
}

#[cfg(target_os = "linux")]
fn terminate_all(
    name: &str,
    value: &str,
    grace_ms: u64,
    mut hurry: impl FnMut() -> bool,
) -> Vec<Leftover> {
    use super::tree::linux::{find_by_env, wait_until_gone};
    use super::{clock, tree};

    const RETRY_MS: u64 = 100;
    const GIVE_UP_MS: u64 = 3_000;

    let mut members = find_by_env(name, value);
    let leftovers = members.iter().map(tree::Member::leftover).collect();
    for member in &members {
        member.terminate();
    }
    let grace_ends = clock::now_ms() + grace_ms;
    let mut gone = loop {
        let gone = wait_until_gone(&members, grace_ends.min(clock::now_ms() + RETRY_MS));
        if gone || clock::now_ms() >= grace_ends || hurry() {
            break gone;
        }
    };
    let give_up_at = clock::now_ms() + GIVE_UP_MS;
    loop {
        // Those seen before stay listed: they may have changed their environment. A reused pid is
        // not signalled.
        let new = find_by_env(name, value);
        if (gone && new.is_empty()) || clock::now_ms() >= give_up_at {
            return leftovers;
        }
        members.extend(new);
        tree::kill(&members);
        gone = wait_until_gone(&members, clock::now_ms() + RETRY_MS);
    }
}
