//! Files that a person names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file to read it. A pipe that a shell made (`<(…)`, standard input) is one; a named pipe is not,
/// because nobody may ever write to it.
///
/// # Errors
/// As for any file; `InvalidInput` for a named pipe.
pub fn open_user_file(path: &Path) -> io::Result<File> {
    let is_named = !["/dev/fd", "/dev/stdin", "/proc"].iter().any(|it| path.starts_with(it));
    if is_named && std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(named_pipe_error());
    }
    if !is_named {
        return File::open(path);
    }
    // It may have become one just now.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Err(named_pipe_error());
    }
    if !kind.is_file() && !kind.is_dir() {
        // What comes from there is waited for.
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    }
    Ok(file)
}

fn named_pipe_error() -> io::Error {
    let message = "it is a named pipe, from which nothing may ever come";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Reads a file, but no more than `most` bytes of it: a device may have no end.
///
/// # Errors
/// As [`open`]; `FileTooLarge` if there is more.
pub fn read_user_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_user_file(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", most >> 20),
        ));
    }
    Ok(bytes)
}
