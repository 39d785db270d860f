//! Files that a person names.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file to read it. A pipe that a shell made (`<(…)`, standard input) is one; a named pipe is not,
/// because nobody may ever write to it.
///
/// # Errors
/// As for any file; `InvalidInput` for a named pipe.
pub fn open(path: &Path) -> io::Result<File> {
    let is_named = !["/dev/fd", "/dev/stdin", "/proc"].iter().any(|it| path.starts_with(it));
    if is_named && std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a named pipe, from which nothing may ever come",
        ));
    }
    File::open(path)
}

/// Reads a file, but no more than `most` bytes of it: a device may have no end.
///
/// # Errors
/// As [`open`]; `FileTooLarge` if there is more.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MiB", most >> 20),
        ));
    }
    Ok(bytes)
}
