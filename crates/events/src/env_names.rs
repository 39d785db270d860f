//! Environment variables that ralph reads and sets. Settings from the environment (`RALPH_AGENT__COMMAND`) share
//! the prefix.

pub const PREFIX: &str = "RALPH_";

/// Directory of ralph's own files.
pub const RALPH_HOME: &str = "RALPH_HOME";

/// The run of an agent, and of every process it starts.
pub const RUN_ID: &str = "RALPH_RUN_ID";

pub const ITERATION: &str = "RALPH_ITERATION";

pub const MAX_ITERATIONS: &str = "RALPH_MAX_ITERATIONS";

/// The directory where `ralph ask` leaves questions. Not set if the run takes none.
pub const QUESTIONS_DIR: &str = "RALPH_QUESTIONS_DIR";

/// Stories that wait for an answer, one per line: `ralph tasks next` skips them.
pub const PARKED_STORIES: &str = "RALPH_PARKED_STORIES";

/// The agent start for which the stop hook checks the work. Empty if it must not check: the loop commits by
/// itself, or the agent is not Claude Code.
pub const STOP_CHECK: &str = "RALPH_STOP_CHECK";

/// Set if the run injects the hook; with the plugin, the agent would call it twice.
pub const GUARDED: &str = "RALPH_GUARDED";

/// The setting `hooks.allow` at the start of the run.
pub const HOOKS_ALLOW: &str = "RALPH_HOOKS__ALLOW";

/// Another tmux server, for tests.
pub const TMUX_SOCKET: &str = "RALPH_TMUX_SOCKET";
