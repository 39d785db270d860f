use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Creates a named pipe that only its owner can open.
///
/// # Errors
/// The path already exists, or the system refused.
pub fn create_named_pipe(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    #[expect(unsafe_code, reason = "rustix has no mkfifo for macOS")]
    // SAFETY: the path is NUL-terminated and outlives the call.
    let result = unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use super::*;

    #[test]
    fn create_named_pipe_is_private_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        create_named_pipe(&path).unwrap();
        let meta = path.symlink_metadata().unwrap();
        assert!(meta.file_type().is_fifo());
        assert_eq!(meta.permissions().mode() & 0o077, 0);
        let again = create_named_pipe(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
