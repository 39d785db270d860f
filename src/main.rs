//! A doorbell: the program is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ralph::main()
}
