//! The monotonic clock for deadlines. It stops while the machine sleeps: a closed laptop lid is no
//! inactivity of an agent.

use rustix::time::{ClockId, Timespec};

pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

pub(super) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

pub(super) fn timespec(nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}
