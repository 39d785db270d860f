//! Real agents, installed from npm, with a scripted model.
//!
//! `scripts/install-agents` installs them. To add one, add it to `testing/agents.json`, to [`AGENTS`],
//! and to the list of each test.

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

/// Dollars per million tokens.
struct Price {
    input: f64,
    cache_read: f64,
    cache_write: f64,
    output: f64,
}

struct Facts {
    name: &'static str,
    args: &'static [&'static str],
    /// The price it assumes, if it reports costs.
    price: Option<Price>,
    reports_cache_write: bool,
    /// Its stream reports usage before an answer is complete.
    reports_usage_early: bool,
    /// Seconds of silence that count as hanging: more than it needs to start.
    silence_s: u32,
}

const fn facts(name: &'static str) -> Facts {
    Facts {
        name,
        args: &[],
        price: None,
        reports_cache_write: false,
        reports_usage_early: true,
        silence_s: 6,
    }
}

const AGENTS: [Facts; 7] = [
    Facts {
        args: &["--model", "claude-opus-5-5"],
        price: Some(Price { input: 4.0, cache_read: 0.2, cache_write: 5.0, output: 20.0 }),
        reports_cache_write: true,
        silence_s: 3,
        ..facts("claude")
    },
    Facts { reports_usage_early: false, silence_s: 3, ..facts("codex") },
    Facts {
        price: Some(Price { input: 3.0, cache_read: 0.0, cache_write: 0.0, output: 15.0 }),
        reports_usage_early: false,
        silence_s: 12,
        ..facts("opencode")
    },
    Facts { reports_usage_early: false, ..facts("gemini") },
    facts("copilot"),
    facts("cline"),
    facts("qwen"),
];

impl Facts {
    fn of(name: &str) -> &'static Facts {
        AGENTS.iter().find(|facts| facts.name == name).expect("an agent of the table")
    }
}

/// One test per agent, so that they run in parallel and fail separately.
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
