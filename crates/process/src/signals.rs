//! Signals as bytes in a pipe, for one `poll` together with everything else.

use std::ffi::c_int;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use libc::{SIGALRM, SIGIO, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGXFSZ};

use super::Signal;

/// Handling `SIGXFSZ` makes a write beyond the file size limit fail like one to a full disk;
/// ignoring it would be inherited by agents. `SIGUSR1` and those after it would by default end this
/// process without its children.
pub(super) const RUN_SIGNALS: &[c_int] = &[
    SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGXFSZ, SIGXCPU, SIGUSR1, SIGUSR2,
    SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
];
/// Ctrl+C still ends this process.
pub(super) const CHILD_SIGNALS: &[c_int] = &[SIGCHLD];

struct SignalPipe {
    pipe: Option<&'static (PipeReader, PipeWriter)>,
    signals: Vec<c_int>,
}

/// Handlers are never removed, nor is the pipe.
static SIGNAL_PIPE: Mutex<SignalPipe> = Mutex::new(SignalPipe { pipe: None, signals: Vec::new() });

#[derive(Debug, Clone, Copy)]
pub(super) struct SignalReader {
    reader: &'static PipeReader,
}

impl SignalReader {
    pub(super) fn listen(wanted: &[c_int]) -> io::Result<Self> {
        let mut listening = SIGNAL_PIPE.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = match listening.pipe {
            Some(pipe) => pipe,
            None => {
                let (reader, writer) = io::pipe()?;
                super::spawn::set_nonblocking(reader.as_fd())?;
                super::spawn::set_nonblocking(writer.as_fd())?;
                let pipe: &'static _ = Box::leak(Box::new((reader, writer)));
                listening.pipe = Some(pipe);
                pipe
            }
        };
        for &signal in wanted {
            if !listening.signals.contains(&signal) && !is_inherited_ignore(signal) {
                let writer = &pipe.1;
                let byte = [u8::try_from(signal).unwrap_or_default()];
                // A byte per signal keeps count and order. A full pipe still wakes the reader.
                let action = move || {
                    let _ = rustix::io::write(writer, &byte);
                };
                #[expect(
                    unsafe_code,
                    reason = "the action does nothing but write(2) of a constant to a pipe that \
                              is never closed, which is async-signal-safe; errno is kept by \
                              signal-hook"
                )]
                // SAFETY: see the reason above.
                unsafe {
                    signal_hook::low_level::register(signal, action)?;
                }
                listening.signals.push(signal);
            }
        }
        Ok(SignalReader { reader: &pipe.0 })
    }

    pub(super) fn fd(self) -> BorrowedFd<'static> {
        self.reader.as_fd()
    }

    /// Returns whether a child may have ended.
    pub(super) fn take_signals(self, mut each: impl FnMut(Signal)) -> bool {
        let mut children = false;
        let mut bytes = [0; 512];
        while let Ok(count @ 1..) = rustix::io::read(self.reader, &mut bytes) {
            // Checking the children is cheap, and makes a lost byte harmless.
            children = true;
            for &byte in &bytes[..count] {
                match c_int::from(byte) {
                    SIGINT => each(Signal::Interrupt),
                    SIGTERM => each(Signal::Terminate),
                    SIGHUP => each(Signal::HangUp),
                    SIGQUIT => each(Signal::Quit),
                    SIGXCPU => each(Signal::CpuLimit),
                    SIGWINCH => each(Signal::Resize),
                    _ => {}
                }
            }
            if count < bytes.len() {
                break;
            }
        }
        children
    }
}

/// Set by `nohup`, and by shells without job control for background commands.
pub(super) fn is_inherited_ignore(signal: c_int) -> bool {
    if ![SIGHUP, SIGINT, SIGQUIT].contains(&signal) {
        return false;
    }
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    #[expect(unsafe_code, reason = "there is no safe way to ask for a signal's disposition")]
    // SAFETY: a null new action changes nothing; all zeroes are a valid old one.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
