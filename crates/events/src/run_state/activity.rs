//! What a run is doing right now, and what it was asked to do.

use serde::Serialize;

use crate::event::{Purpose, WaitReason};

/// Open tool calls kept at once, so that an agent that never ends its calls does not fill the memory.
const MAX_OPEN_TOOLS: usize = 64;

/// The current activity of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "doing", rename_all = "snake_case")]
pub enum Activity {
    /// Between two steps, or not started.
    #[default]
    Idle,
    /// An agent is running.
    Agent(RunningAgent),
    Guardrail {
        command: String,
        since_ms: i64,
    },
    Scm {
        task: String,
        since_ms: i64,
    },
    /// Waiting for a rate limit to end, or before a retry.
    Waiting {
        reason: WaitReason,
        until_ms: i64,
    },
    /// Paused by request; no process is running.
    Paused {
        since_ms: i64,
    },
    /// Nothing can be done until a question is answered; no process is running.
    Parked {
        since_ms: i64,
    },
    /// The run has ended.
    Ended,
}

/// An agent that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningAgent {
    pub purpose: Purpose,
    pub since_ms: i64,
    pub last_output_ms: i64,
    /// The dialog on the agent's screen that waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialog: Option<String>,
    /// Tool calls that have not ended, oldest first.
    pub tools: Vec<OpenTool>,
    /// Tool calls so far.
    #[serde(skip)]
    pub tool_calls: u32,
}

/// A tool call that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenTool {
    pub id: String,
    pub name: String,
    /// Subject of the tool call in one line; may be empty.
    pub summary: String,
    pub since_ms: i64,
}

impl OpenTool {
    /// The call in one line: `Bash: cargo test`.
    pub fn call(&self) -> String {
        if self.summary.is_empty() {
            self.name.clone()
        } else {
            format!("{}: {}", self.name, self.summary)
        }
    }
}

impl Activity {
    pub(super) fn agent(purpose: Purpose, now_ms: i64) -> Activity {
        Activity::Agent(RunningAgent {
            purpose,
            since_ms: now_ms,
            last_output_ms: now_ms,
            dialog: None,
            tools: Vec::new(),
            tool_calls: 0,
        })
    }

    /// The run does nothing until a time has come or a person has answered.
    pub fn is_waiting(&self) -> bool {
        match self {
            Activity::Waiting { .. } | Activity::Parked { .. } => true,
            Activity::Agent(agent) => agent.dialog.is_some(),
            _ => false,
        }
    }

    /// The agent printed something.
    pub(super) fn touch(&mut self, now_ms: i64) {
        if let Activity::Agent(agent) = self {
            agent.last_output_ms = now_ms;
        }
    }

    pub(super) fn set_dialog(&mut self, dialog: Option<String>) {
        if let Activity::Agent(agent) = self {
            agent.dialog = dialog;
        }
    }

    pub(super) fn tool_started(&mut self, tool: OpenTool) {
        if let Activity::Agent(agent) = self {
            agent.last_output_ms = tool.since_ms;
            agent.tool_calls = agent.tool_calls.saturating_add(1);
            if agent.tools.len() == MAX_OPEN_TOOLS {
                agent.tools.remove(0);
            }
            agent.tools.push(tool);
        }
    }

    /// Returns the call that ended, if its start is known.
    pub(super) fn tool_ended(&mut self, id: &str, now_ms: i64) -> Option<OpenTool> {
        let Activity::Agent(agent) = self else { return None };
        agent.last_output_ms = now_ms;
        let position = agent.tools.iter().position(|tool| tool.id == id)?;
        Some(agent.tools.remove(position))
    }
}

/// A time without work: for a rate limit, or before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub iteration: u32,
    pub reason: WaitReason,
    pub from_ms: i64,
    /// The planned end.
    pub until_ms: i64,
    /// The actual end; `None` while it lasts, or if the run was killed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
}

/// Requests from outside that the run has not carried out yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// The signal or command that asked the run to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Pause after the current step.
    pub pause: bool,
}
