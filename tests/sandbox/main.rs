//! Sandboxes: what gets out of them, and what does not.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod proxy;
