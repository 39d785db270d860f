//! The last word of a process that must not take too long.

use std::sync::OnceLock;

/// What it says.
static TIMEOUT_OUTPUT: OnceLock<Vec<u8>> = OnceLock::new();

/// After so many seconds this process prints `word` on standard output and is gone, with exit code 0, whatever
/// it is doing. A thread could do that too, but it has to be made, and this is for programs that start often.
///
/// Once in the life of a process.
#[expect(unsafe_code, reason = "there is no safe way to act on a signal while busy")]
pub fn arm(seconds: u32, word: Vec<u8>) {
    if TIMEOUT_OUTPUT.set(word).is_err() {
        return;
    }
    let handler = on_alarm as extern "C" fn(libc::c_int);
    // SAFETY: `speak` does only what a handler may do.
    unsafe {
        libc::signal(libc::SIGALRM, handler as libc::sighandler_t);
        libc::alarm(seconds);
    }
}

/// Nothing is said any more.
#[expect(unsafe_code, reason = "there is no safe name for it")]
pub fn disarm() {
    // SAFETY: it takes a number.
    unsafe { libc::alarm(0) };
}

#[expect(unsafe_code, reason = "what a handler may do has no safe names")]
extern "C" fn on_alarm(_: libc::c_int) {
    if let Some(word) = TIMEOUT_OUTPUT.get() {
        // SAFETY: both may be called in a handler. The word is there for ever, and reading it is one load
        // from memory, since it was set before there could be a signal.
        unsafe { libc::write(libc::STDOUT_FILENO, word.as_ptr().cast(), word.len()) };
    }
    // SAFETY: as above.
    unsafe { libc::_exit(0) };
}
