//! Says to the linker which functions belong together.

use std::env;
use std::path::Path;

/// What answers Claude Code's hooks stands in one place of the program, so that it is not gathered from all
/// over it, a page at a time, at every tool call. See the file itself.
const ORDER: &str = "hooks.ld";

fn main() {
    println!("cargo::rerun-if-changed={ORDER}");
    let is_linux = env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux");
    if let (true, Some(root)) = (is_linux, env::var_os("CARGO_MANIFEST_DIR")) {
        let order = Path::new(&root).join(ORDER);
        println!("cargo::rustc-link-arg-bin=ralph=-Wl,-T,{}", order.display());
    }
}
