//! The output of a check.

use std::io;
use std::path::Path;

use ralph_events::control_chars::strip_control_chars;
use ralph_store::runs::RunDir;
use ralph_store::safe_fs;

/// Larger logs lose their beginning.
const MAX_BYTES: u64 = 1 << 20;

/// The output of a check, or its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckLog {
    /// Lines in all.
    pub total: usize,
    /// The last lines, clean.
    pub lines: Vec<String>,
}

/// Reads the last `max_lines` of a check's output from the run directory. `log` is its name in the journal.
///
/// # Errors
/// The log is gone or cannot be read.
pub fn read_check_log(run: &RunDir, log: &str, max_lines: usize) -> io::Result<CheckLog> {
    let name = Path::new(log).file_name().ok_or(io::ErrorKind::NotFound)?;
    let mut file = safe_fs::open_file(&run.path.join(name))?;
    let size = file.metadata()?.len();
    let skipped = size.saturating_sub(MAX_BYTES);
    let mut bytes = Vec::new();
    io::Seek::seek(&mut file, io::SeekFrom::Start(skipped))?;
    io::Read::read_to_end(&mut io::Read::take(file, MAX_BYTES), &mut bytes)?;
    let text = strip_control_chars(&String::from_utf8_lossy(&bytes));
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let shown = lines.len().saturating_sub(max_lines);
    let lines_shown = lines[shown..].iter().map(|line| (*line).to_owned()).collect();
    Ok(CheckLog { total: lines.len(), lines: lines_shown })
}
