//! Makes an unsandboxed agent call our hook before each tool.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::run_spec::AgentSpec;
use ralph_agents::HookFileAccess;
use ralph_events::env_names;
use ralph_store::safe_fs;

impl AgentSpec {
    /// Adds `ralph hook pre-tool-use` to the agent's own configuration for this run, if it supports that. `ralph`
    /// is this program, `allow` the commands that the hook permits.
    ///
    /// Not needed in a sandbox, or if the agent asks for approval.
    pub fn inject_hook(&mut self, ralph: &Path, allow: &[String], directory: &Path) {
        // Both go into JSON; other paths cannot be called.
        let (Some(ralph), Ok(allow)) = (ralph.to_str(), serde_json::to_string(allow)) else {
            return;
        };
        let hook = [ralph, "hook", "pre-tool-use"];
        let files = HookFiles { directory, written: RefCell::default() };
        let Some(flags) = self.adapter.with_hook(&self.flags, &hook, &files) else { return };
        self.flags = flags;
        self.files.extend(files.written.into_inner().map(Arc::new));
        self.env.push((env_names::HOOKS_ALLOW.into(), Some(allow.into())));
        self.env.push((env_names::GUARDED.into(), Some("1".into())));
        self.has_hook = true;
    }
}

struct HookFiles<'a> {
    directory: &'a Path,
    written: RefCell<Option<tempfile::TempPath>>,
}

impl HookFileAccess for HookFiles<'_> {
    fn read(&self, path: &Path) -> Option<String> {
        let file = safe_fs::open_file(&self.directory.join(path)).ok()?;
        String::from_utf8(safe_fs::read_limited(file, 16 << 20).ok()?).ok()
    }

    fn write(&self, text: &str) -> Option<String> {
        // Readable only by the user.
        let mut file =
            tempfile::Builder::new().prefix("ralph-settings-").suffix(".json").tempfile().ok()?;
        file.write_all(text.as_bytes()).ok()?;
        let path = file.into_temp_path();
        let told = path.to_str()?.to_owned();
        self.written.replace(Some(path));
        Some(told)
    }
}
