//! A doorbell: the program is in the library.

#![cfg_attr(target_os = "linux", no_main)]

use std::process;

/// The beginning that Rust gives a program reads the memory map of the process, to say a word should the
/// stack overflow. That takes a fifth of the time of a hook that answers, and Claude Code waits for one before
/// and after every tool. So this is C's beginning, and what else Rust's would do is done by the library.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the C library calls it by its name")]
// SAFETY: nothing else in the program has this name.
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    ralph::process::begin();
    let code = std::panic::catch_unwind(ralph::main).unwrap_or(101);
    // Writes what is left in buffers.
    process::exit(code.into())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    process::exit(ralph::main().into())
}
