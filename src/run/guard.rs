//! An agent without a sandbox, whose own questions are switched off, is made to ask ours.

use std::path::Path;

use super::spec::AgentSpec;
use crate::hook;

impl AgentSpec {
    /// Has the agent ask `ralph hook pre-tool-use` before it uses a tool, for this run only, if it
    /// can be made to. `ralph` is this program, `allow` is what the hook lets through.
    ///
    /// For agents that are on their own: in a sandbox, or if they ask for approvals, it is not needed.
    pub fn guard(&mut self, ralph: &Path, allow: &[String], directory: &Path) {
        // Both go into JSON. A path that does not cannot be called.
        let (Some(ralph), Ok(allow)) = (ralph.to_str(), serde_json::to_string(allow)) else {
            return;
        };
        let read = |path: &Path| std::fs::read_to_string(directory.join(path)).ok();
        let hook = [ralph, "hook", "pre-tool-use"];
        let Some(flags) = self.adapter.guarded(&self.flags, &hook, &read) else { return };
        self.flags = flags;
        self.env.push((hook::ALLOW_VARIABLE.into(), Some(allow.into())));
        self.guarded = true;
    }
}
