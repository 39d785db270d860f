//! The names of the environment variables that ralph reads and sets. Settings from the environment
//! (`RALPH_AGENT__COMMAND`) have the same prefix; their names follow from the keys of the settings.

/// The prefix of all of them.
pub const PREFIX: &str = "RALPH_";

/// The directory of ralph's own files.
pub const RALPH_HOME: &str = "RALPH_HOME";

/// The run that a process belongs to. An agent's environment has it, and so has every process that the agent starts.
pub const RUN_ID: &str = "RALPH_RUN_ID";

/// The number of the current iteration.
pub const ITERATION: &str = "RALPH_ITERATION";

/// The number of iterations after which the run stops.
pub const MAX_ITERATIONS: &str = "RALPH_MAX_ITERATIONS";

/// The start of the agent, within its run, for which the stop hook checks the work. Empty if it must not check: the
/// loop commits by itself, or the agent is not Claude Code.
pub const STOP_CHECK: &str = "RALPH_STOP_CHECK";

/// Set if the run makes its agent call the hook. With the plugin the agent would call it twice.
pub const GUARDED: &str = "RALPH_GUARDED";

/// The setting `hooks.allow`. A run passes it to its agent, so that the value from the run's start applies.
pub const HOOKS_ALLOW: &str = "RALPH_HOOKS__ALLOW";

/// The socket of another tmux server than the user's own, for tests.
pub const TMUX_SOCKET: &str = "RALPH_TMUX_SOCKET";
