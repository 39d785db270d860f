//! The monotonic clock for deadlines. It stops while the machine sleeps: a closed laptop lid is no
//! inactivity of an agent.

use std::sync::LazyLock;
use std::time::Instant;

use rustix::time::Timespec;

/// `CLOCK_MONOTONIC` on Linux and `CLOCK_UPTIME_RAW` on macOS, whose `CLOCK_MONOTONIC` would not
/// stop.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) fn now_ns() -> u64 {
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
