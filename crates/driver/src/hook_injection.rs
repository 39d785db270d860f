//! An agent without a sandbox, whose own questions are switched off, is made to ask ours.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::run_spec::AgentSpec;
use ralph_agents::HookFileAccess;
use ralph_events::env_names;
use ralph_store::safe_fs;

impl AgentSpec {
    /// Has the agent ask `ralph hook pre-tool-use` before it uses a tool, for this run only, if it
    /// can be made to. `ralph` is this program, `allow` is what the hook lets through.
    ///
    /// For agents that are on their own: in a sandbox, or if they ask for approvals, it is not needed.
    pub fn inject_hook(&mut self, ralph: &Path, allow: &[String], directory: &Path) {
        // Both go into JSON. A path that does not cannot be called.
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
    /// Where the agent is started.
    directory: &'a Path,
    /// Gone with this.
    written: RefCell<Option<tempfile::TempPath>>,
}

impl HookFileAccess for HookFiles<'_> {
    fn read(&self, path: &Path) -> Option<String> {
        let file = safe_fs::open_file(&self.directory.join(path)).ok()?;
        String::from_utf8(safe_fs::read_limited(file, 16 << 20).ok()?).ok()
    }

    fn write(&self, text: &str) -> Option<String> {
        // Readable by nobody else.
        let mut file =
            tempfile::Builder::new().prefix("ralph-settings-").suffix(".json").tempfile().ok()?;
        file.write_all(text.as_bytes()).ok()?;
        let path = file.into_temp_path();
        let told = path.to_str()?.to_owned();
        self.written.replace(Some(path));
        Some(told)
    }
}
