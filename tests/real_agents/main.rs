//! Real agents, as npm installs them, against a model that answers by a script.
//!
//! `scripts/install-agents` installs them. A new agent is an entry in `testing/agents.json`, one in
//! [`AGENTS`], and its name at the head of each theme.
//!
//! | what such programs do | tested here, beside the recorded streams in `crates/agents/tests/adapters.rs` |
//! |---|---|
//! | exit codes that lie | `processes`, `failures::refused_credentials_end_run_end_run_end_run`, `failures::cut_stream_is_retried` |
//! | tools in sessions of their own, wrappers whose child holds the output | `processes` |
//! | a daemon that stays | `processes::cline_runs_without_its_daemon` |
//! | a standard input that must be closed, or they wait for its end | `case`, by which ralph's own stays open |
//! | prompts that begin with a dash | `failures::refused_credentials_end_run_end_run_end_run`, `prompts` |
//! | prompts that are long, and that they repeat | `prompts` |
//! | several results of one process | `loops::claude_output_after_result_counts` |
//! | a marker in several pieces, the words of a limit in a file | `loops` |
//! | hooks, settings for one run, plugins | `hooks` |
//! | a sandbox in which `.git` cannot be written | `loops`, by codex's commit |
//! | files that they leave behind | `loops` |
//! | a summary of the conversation that looks like an answer, or is made again and again | `limits`, opencode's |
//! | a screen that takes long to be ready, dialogs of a first start | `interactive` |
//! | retries that go on for minutes | `limits`, `failures::refused_credentials_end_run_end_run_end_run` |
//! | a connection that is dead, and tools that are silent | `failures::dead_connection_is_ended_and_slow_tool_is_not` |
//! | worktrees, and the configuration of git that is hidden from it | `tasks::work_commits_in_root_subdirectory_and_worktree` |

#[path = "../../testing/agents.rs"]
mod agents;
#[path = "../support/real.rs"]
mod real;
#[path = "../support/mod.rs"]
mod support;

mod case;
mod failures;
mod hooks;
mod interactive;
mod limits;
mod loops;
mod modes;
mod processes;
mod prompts;
mod sandbox;
mod tasks;

/// Dollars for a million tokens.
struct Price {
    input: f64,
    cache_read: f64,
    cache_write: f64,
    output: f64,
}

/// What a test must know of an agent.
struct Facts {
    name: &'static str,
    /// Arguments of ralph that this agent needs.
    args: &'static [&'static str],
    /// What it takes a token to cost, if it tells.
    price: Option<Price>,
    /// Its protocol tells what was written to the cache.
    tells_cache_write: bool,
    /// Its stream tells of what was used before the whole answer is there.
    tells_usage_early: bool,
    /// Seconds of silence after which it is taken to hang: more than it usually needs to start.
    silence_s: u32,
}

const fn facts(name: &'static str) -> Facts {
    Facts {
        name,
        args: &[],
        price: None,
        tells_cache_write: false,
        tells_usage_early: true,
        silence_s: 6,
    }
}

const AGENTS: [Facts; 7] = [
    Facts {
        args: &["--model", "claude-opus-5-5"],
        price: Some(Price { input: 4.0, cache_read: 0.2, cache_write: 5.0, output: 20.0 }),
        tells_cache_write: true,
        silence_s: 3,
        ..facts("claude")
    },
    Facts { tells_usage_early: false, silence_s: 3, ..facts("codex") },
    Facts {
        price: Some(Price { input: 3.0, cache_read: 0.0, cache_write: 0.0, output: 15.0 }),
        tells_usage_early: false,
        silence_s: 12,
        ..facts("opencode")
    },
    Facts { tells_usage_early: false, ..facts("gemini") },
    facts("copilot"),
    facts("cline"),
    facts("qwen"),
];

impl Facts {
    fn of(name: &str) -> &'static Facts {
        AGENTS.iter().find(|facts| facts.name == name).expect("an agent of the table")
    }
}

/// A test for each agent: they run side by side, and fail one by one.
macro_rules! for_agents {
    ($check:ident: $($agent:ident),+) => {
        mod $check {
            $(
                #[test]
                fn $agent() {
                    super::$check(crate::Facts::of(stringify!($agent)));
                }
            )+
        }
    };
}
use for_agents;
