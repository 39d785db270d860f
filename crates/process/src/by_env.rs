//! What an earlier process left behind, known by a variable in its environment.
//!
//! A killed process cannot clean up after itself; its successor can, because what an agent starts
//! inherits the agent's environment. Only Linux shows the environments of other processes, so
//! elsewhere nothing is ever found.

use ralph_events::event::Leftover;

/// The processes of this user that carry `name=value` in their environment, with what they started.
/// This process and those above it are never among them.
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

/// Ends what [`find_marked`] finds: TERM, `grace_ms`, KILL. Returns what there was. Blocks until it
/// is gone, or for three seconds more than the grace at most.
pub fn kill_by_env(name: &str, value: &str, grace_ms: u64) -> Vec<Leftover> {
    kill_by_env_unless(name, value, grace_ms, || false)
}

/// The same, but that the grace ends as soon as somebody is in a `hurry`.
pub fn kill_by_env_unless(
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

    /// How long is waited for what was killed before the process table is looked at again.
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
        // Some may have been started meanwhile. Those seen first stay in the list: they may have
        // changed their environment, and a number that went to someone else is not signalled.
        let new = find_by_env(name, value);
        if (gone && new.is_empty()) || clock::now_ms() >= give_up_at {
            return leftovers;
        }
        members.extend(new);
        tree::kill(&members);
        gone = wait_until_gone(&members, clock::now_ms() + RETRY_MS);
    }
}
