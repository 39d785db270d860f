//! Files that the user names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file for reading. Accepts pipes made by a shell (`<(…)`, standard input). Refuses named
/// pipes with `InvalidInput`: opening one could block forever.
pub fn open_user_file(path: &Path) -> io::Result<File> {
    let is_named = !["/dev/fd", "/dev/stdin", "/proc"].iter().any(|it| path.starts_with(it));
    if is_named && std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(named_pipe_error());
    }
    if !is_named {
        return File::open(path);
    }
    // The path may have become a pipe since the check.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Err(named_pipe_error());
    }
    if !kind.is_file() && !kind.is_dir() {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    }
    Ok(file)
}

fn named_pipe_error() -> io::Error {
    let message = "it is a named pipe";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Fails with `FileTooLarge` beyond `max_bytes`, because a device may be endless.
pub fn read_user_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_user_file(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", max_bytes >> 20),
        ));
    }
    Ok(bytes)
}
