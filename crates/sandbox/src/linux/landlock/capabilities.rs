//! Dropping the capabilities of a process.

use std::io;

/// Drops all capabilities. Without the bounding set, `execve` cannot regain them.
///
/// # Errors
/// One could not be dropped. The program must not start.
pub(super) fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let check = |result: libc::c_long| match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    for capability in 0..64 as libc::c_ulong {
        #[expect(unsafe_code, reason = "there is no safe interface to capabilities")]
        // SAFETY: the call takes only numbers.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match check(result.into()) {
            Ok(()) => {}
            // No capability has this number or a higher one.
            Err(err) if err.raw_os_error() == Some(libc::EINVAL) && capability > 0 => break,
            // Needs CAP_SETPCAP. Without it, NO_NEW_PRIVS below suffices.
            Err(err) if err.raw_os_error() == Some(libc::EPERM) => break,
            Err(err) => return Err(err),
        }
    }
    let (header, data) = ([VERSION_3, 0u32], [[0u32; 3]; 2]);
    #[expect(unsafe_code, reason = "there is no safe interface to capabilities")]
    // SAFETY: `capset` reads a header and two data blocks of this layout.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        check(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0).into())?;
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::seccomp::{self, SyscallRule};

    /// Capabilities and filters are per thread.
    fn drop_in_thread(refused: &[SyscallRule]) -> (io::Result<()>, String) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if !refused.is_empty() {
                    seccomp::install(refused).unwrap();
                }
                let result = drop_capabilities();
                (result, std::fs::read_to_string("/proc/thread-self/status").unwrap())
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn drop_capabilities_clears_all_sets() {
        let (result, status) = drop_in_thread(&[]);
        result.unwrap();
        let mut sets = vec!["CapInh", "CapPrm", "CapEff", "CapAmb"];
        // Only root can change the bounding set.
        sets.extend(rustix::process::geteuid().is_root().then_some("CapBnd"));
        for set in sets {
            let line = status.lines().find(|line| line.starts_with(set)).unwrap();
            assert!(line.ends_with("0000000000000000"), "{line}");
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }

    #[test]
    fn drop_capabilities_failure_is_error() {
        for call in [seccomp::SYS_capset, seccomp::SYS_prctl] {
            let (result, _) = drop_in_thread(&[SyscallRule::refuse(call, libc::EIO)]);
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO), "{call:?}");
        }
    }
}
