//! Everything that differs between systems, as one module for each. Both have the same items, which
//! only fetch facts and carry out orders: decisions are common code.

#[cfg(any(target_os = "macos", test))]
mod kern_procargs;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "macos")]
pub(crate) use macos::*;
