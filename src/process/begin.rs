//! What has to be so before a program does anything.

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd as _;

/// Does what Rust does before a `main` of its own, but for a word when the stack overflows: a program that
/// nobody listens to gets an error, not a signal, and no file takes the place of a standard stream that is
/// closed.
#[expect(unsafe_code, reason = "there is no safe name for it")]
pub fn begin() {
    // SAFETY: a signal that is ignored runs nothing.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if rustix::io::fcntl_getfd(stream) == Err(rustix::io::Errno::BADF)
            && let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null")
        {
            // The lowest number that is free, which is that of the stream. It stays open.
            let _ = nothing.into_raw_fd();
        }
    }
}
