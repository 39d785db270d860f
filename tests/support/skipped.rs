use std::fs;
use std::io::Write;

/// Reports a skip. `scripts/test` counts them at the end, because the output of passing tests is
/// hidden.
#[expect(clippy::print_stderr, reason = "what the test runner shows of a test")]
pub(crate) fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = std::env::var_os("RALPH_TESTS_SKIPPED") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
        written.expect("the list of what was skipped");
    }
}
