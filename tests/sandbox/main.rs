//! Sandboxes and attacks on them.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "../support/mod.rs"]
mod support;

mod attacker;
mod docker;
mod escapes;
mod git_hooks;
mod git_links;
mod landlock;
mod landlock_escapes;
mod links;
mod proxy;
mod renames;
mod runs;
mod scene;
mod secrets;
mod untrusted_env;
mod untrusted_path;
mod weakening;
