//! ralph as pid 1 of a namespace, with its process group outside.

use std::path::Path;

use crate::support::{Project, skipped};

#[test]
fn stop_as_pid_1_exits_130() {
    if !rustix::process::getuid().is_root() || !Path::new("/proc/self/ns/pid").exists() {
        return skipped("a process namespace needs Linux and the administrator");
    }
    let project = Project::new();
    let ralph = env!("CARGO_BIN_EXE_ralph");
    // Its own agent, which ignores TERM, interrupts it twice.
    let agent = "trap '' INT TERM; kill -INT 1; sleep 1; kill -INT 1; sleep 100";
    let line = ["--pid", "--fork", "--mount-proc", ralph, "run", "--no-sandbox", "-p", "x", "--"];
    let output = project.program("unshare", line).args(["sh", "-c", agent]).run();
    output.code(130).stderr_lacks("panicked");
    assert!(project.events().has("run_ended"));
}
