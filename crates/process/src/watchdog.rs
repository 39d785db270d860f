//! A timer that makes a process answer in time.

use std::sync::OnceLock;

static TIMEOUT_OUTPUT: OnceLock<Vec<u8>> = OnceLock::new();

/// After `seconds`, prints `output` and exits with code 0, whatever the process is doing. Cheaper
/// than a thread, for programs that start often. Works once per process.
#[expect(unsafe_code, reason = "there is no safe way to act on a signal while busy")]
pub fn arm(seconds: u32, output: Vec<u8>) {
    if TIMEOUT_OUTPUT.set(output).is_err() {
        return;
    }
    let handler = on_alarm as extern "C" fn(libc::c_int);
    // SAFETY: `on_alarm` makes only async-signal-safe calls.
    unsafe {
        libc::signal(libc::SIGALRM, handler as libc::sighandler_t);
        libc::alarm(seconds);
    }
}

/// Cancels the timer.
#[expect(unsafe_code, reason = "there is no safe name for it")]
pub fn disarm() {
    // SAFETY: `alarm` only takes a number.
    unsafe { libc::alarm(0) };
}

#[expect(unsafe_code, reason = "what a handler may do has no safe names")]
extern "C" fn on_alarm(_: libc::c_int) {
    if let Some(output) = TIMEOUT_OUTPUT.get() {
        // SAFETY: `write` is async-signal-safe. The output was set before the handler was installed
        // and is never freed.
        unsafe { libc::write(libc::STDOUT_FILENO, output.as_ptr().cast(), output.len()) };
    }
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(0) };
}
