//! File systems in a private mount namespace.

use super::{Output, Project, skipped};

impl Project {
    /// Runs `mount` and then `script` in a mount namespace. Skips (`None`) where that is not
    /// allowed.
    pub(crate) fn run_with_mount(&self, mount: &str, script: &str) -> Option<Output> {
        let unshare = |script: &str| {
            self.program("unshare", ["--map-root-user", "--mount", "sh", "-c", script]).run()
        };
        let possible = unshare(&format!("mkdir -p .ralph && {mount}"));
        if possible.status.success() {
            return Some(unshare(&format!("{mount}\n{script}")));
        }
        skipped(&format!("no file system can be mounted here: {}", possible.stderr.trim()));
        None
    }
}
