//! Every setting. The JSON Schema is generated from these types; doc comments become descriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Duration;
use ralph_agents::PromptVia;
use ralph_engine::rules::QuestionMode;
use ralph_events::event::FailAction;
pub use ralph_sandbox::settings::{SandboxBackend, SandboxNetwork, SandboxSettings};

/// Settings of ralph, from `.ralph/settings.json` and `.ralph/settings.local.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "ralph settings")]
pub struct Settings {
    /// URL of the JSON schema, for editors. ralph ignores it.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,

    /// Maximum number of iterations. Unset: 10; required for `ralph spawn`.
    #[schemars(
        range(min = 1),
        extend("x-default" = "10; required for spawn")
    )]
    pub maximum_iterations: Option<u32>,

    /// Answer between `<response>` and `</response>` that completes the run; case is ignored.
    #[schemars(length(min = 1))]
    pub completion_response: String,

    /// Characters of a failed check's output that go into the next prompt, from its beginning.
    pub output_truncate_chars: u32,

    /// Characters from the end of that output that follow, if it was truncated.
    pub output_tail_chars: u32,

    /// Show the agent's work live.
    pub stream_agent_output: bool,

    /// Put `Iteration X of Y, Z remaining.` before each prompt.
    pub include_iteration_count_in_prompt: bool,

    /// The agent and how to call it.
    pub agent: AgentSettings,

    /// Commands that must all exit with 0 before a completion counts.
    pub guardrails: Vec<GuardrailSettings>,

    /// Version control tasks after an iteration that passes. Unset: none.
    pub scm: Option<ScmSettings>,

    /// Stop an agent that prints nothing for this long, in seconds or as `"5m"`; 0: never.
    /// Unset: 0; for `ralph spawn` 300, or 60 with `--interactive`.
    #[serde(serialize_with = "Duration::maybe_as_seconds")]
    #[schemars(extend("x-default" = "0; spawn 300, or 60 with --interactive"))]
    pub inactivity_timeout_seconds: Option<Duration>,

    /// Stop an agent that prints nothing for this many minutes while no tool runs: it has probably
    /// lost its connection. ralph warns after a quarter of the time; 0: never. Only for agents that
    /// report their tools.
    #[schemars(extend("minimum" = 0))]
    pub silent_model_minutes: f64,

    /// Stop an iteration after this time, in seconds or as `"2h"`; 0: never.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub iteration_timeout_seconds: Duration,

    /// Stop an agent that has given its final result but does not exit, after this time, in seconds or
    /// as `"10s"`.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub result_grace_seconds: Duration,

    /// Limits on cost, tokens and time.
    pub budget: BudgetSettings,

    /// Retries after a failure of the agent.
    pub retry: RetrySettings,

    /// Waiting for rate limits.
    pub rate_limit: RateLimitSettings,

    /// Detection of iterations that change nothing.
    pub stall: StallSettings,

    /// Isolation of the agent.
    pub sandbox: SandboxSettings,

    /// Blocklist of commands for Claude Code.
    pub hooks: HooksSettings,

    /// Output in the terminal.
    pub display: DisplaySettings,

    /// Data kept of past runs.
    pub runs: RunsSettings,

    /// Runs in the background.
    pub worker: WorkerSettings,

    /// What a question of the agent does to the run.
    pub questions: QuestionsSetting,

    /// Notifications when a run ends, pauses or waits, when its agent asks a question or falls silent.
    pub notify: NotifySettings,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schema: None,
            maximum_iterations: None,
            completion_response: "DONE".into(),
            output_truncate_chars: 5000,
            output_tail_chars: 2000,
            stream_agent_output: true,
            include_iteration_count_in_prompt: false,
            agent: AgentSettings::default(),
            guardrails: Vec::new(),
            scm: None,
            inactivity_timeout_seconds: None,
            silent_model_minutes: 20.0,
            iteration_timeout_seconds: Duration::ZERO,
            result_grace_seconds: Duration::from_secs(10),
            budget: BudgetSettings::default(),
            retry: RetrySettings::default(),
            rate_limit: RateLimitSettings::default(),
            stall: StallSettings::default(),
            sandbox: SandboxSettings::default(),
            hooks: HooksSettings::default(),
            display: DisplaySettings::default(),
            runs: RunsSettings::default(),
            worker: WorkerSettings::default(),
            questions: QuestionsSetting::default(),
            notify: NotifySettings::default(),
        }
    }
}

/// What a question of the agent does to the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QuestionsSetting {
    /// The loop continues, and the answer goes into the prompt that follows it.
    #[default]
    Continue,
    /// The run parks after the iteration until the question is answered.
    Wait,
    /// Nothing is a question.
    Off,
}

impl From<QuestionsSetting> for QuestionMode {
    fn from(setting: QuestionsSetting) -> QuestionMode {
        match setting {
            QuestionsSetting::Continue => QuestionMode::Continue,
            QuestionsSetting::Wait => QuestionMode::Wait,
            QuestionsSetting::Off => QuestionMode::Off,
        }
    }
}

/// The agent and how to call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentSettings {
    /// The program: a name on the PATH or a path. It is never split, so it may contain spaces.
    #[schemars(length(min = 1))]
    pub command: Option<String>,

    /// Arguments for the program, added to those of ralph. Each element is one argument, except that
    /// a flag with its value, such as `"--model opus"`, is split like in a shell.
    pub flags: Vec<String>,

    /// The model. Unset: the agent's default.
    #[schemars(length(min = 1))]
    pub model: Option<String>,

    /// Turn off the agent's own approval prompts.
    pub autonomous: bool,

    /// The adapter for the command. Unset: chosen by the command's name.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "claude", "codex", "amp", "cline", "opencode", "gemini", "copilot", "qwen", "text", null
    ]))]
    pub kind: Option<String>,

    /// How the prompt is passed to the agent. Unset: the adapter's choice.
    pub prompt_via: Option<PromptVia>,

    /// Keep background processes of the agent running instead of killing them after each iteration.
    pub keep_background: bool,

    /// Environment variables to set for the agent.
    pub env: BTreeMap<String, String>,

    /// Environment variables to hide from the agent.
    pub env_exclude: Vec<String>,

    /// All arguments of the program, replacing `flags` and those that ralph would choose. The prompt
    /// goes to standard input.
    pub args: Option<Vec<String>>,

    /// Format of the program's output: `json` is one JSON object per line, `text` is plain text.
    /// Unset: the adapter's choice.
    pub output_format: Option<AgentOutputFormat>,

    /// A jq expression that selects the agent's answer from each line of its JSON, for agents without
    /// an adapter.
    #[schemars(length(min = 1))]
    pub response_filter: Option<String>,

    /// A shell pipeline that filters the agent's output for the terminal.
    #[schemars(length(min = 1))]
    pub display_filter: Option<String>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        AgentSettings {
            command: None,
            flags: Vec::new(),
            model: None,
            autonomous: true,
            kind: None,
            prompt_via: None,
            keep_background: false,
            env: BTreeMap::new(),
            env_exclude: Vec::new(),
            args: None,
            output_format: None,
            response_filter: None,
            display_filter: None,
        }
    }
}

/// Format of an agent's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentOutputFormat {
    /// One JSON object per line.
    Json,
    /// Plain text.
    Text,
}

/// A command that must exit with 0 before a completion counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardrailSettings {
    /// The shell command to run after each iteration.
    #[schemars(length(min = 1))]
    pub command: String,

    /// Where the feedback goes: after the next prompt, before it, or in place of it.
    #[serde(default = "default_fail_action")]
    pub fail_action: FailAction,

    /// Advice for the agent if the command fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,

    /// Stop the command after this time, in seconds or as `"10m"`, and count it as failed. Unset or 0:
    /// never.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "Duration::maybe_as_seconds"
    )]
    pub timeout_seconds: Option<Duration>,
}

fn default_fail_action() -> FailAction {
    FailAction::Append
}

/// Version control tasks after an iteration that passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScmSettings {
    /// The version control program.
    #[schemars(length(min = 1))]
    pub command: String,

    /// Tasks to run in order, such as `commit` and `push`.
    #[schemars(inner(length(min = 1)))]
    pub tasks: Vec<String>,

    /// Paths or git pathspecs that `commit` includes, relative to the project. The default is the whole
    /// project, even if the repository is larger.
    #[schemars(inner(length(min = 1)))]
    pub paths: Vec<String>,

    /// Stop a task after this time, in seconds or as `"30m"`, with everything it started, such as a
    /// hook, and count it as failed; 0: never.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub timeout_seconds: Duration,
}

impl Default for ScmSettings {
    fn default() -> Self {
        ScmSettings {
            command: "git".into(),
            tasks: Vec::new(),
            paths: vec![".".into()],
            timeout_seconds: Duration::from_secs(1_800),
        }
    }
}

/// Limits on cost, tokens and time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BudgetSettings {
    /// Maximum cost of a run in US dollars. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cost_usd: Option<f64>,

    /// Maximum number of tokens of a run, cached ones included. Unset: no limit.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,

    /// Maximum duration of a run, such as `"8h"`. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub duration: Option<Duration>,

    /// Limits for each iteration. An iteration that exceeds one is stopped; the run continues.
    pub per_iteration: IterationBudgetSettings,
}

/// Limits for each iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IterationBudgetSettings {
    /// Maximum cost of an iteration in US dollars. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cost_usd: Option<f64>,

    /// Maximum number of tokens of an iteration, cached ones included. Unset: no limit.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,

    /// Maximum duration of an iteration, such as `"30m"`. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub duration: Option<Duration>,
}

/// Retries after a failure of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetrySettings {
    /// Maximum number of retries in a row before the run ends. Unset: 3; 4 for `ralph spawn`, so the
    /// fifth failure in a row ends it.
    #[schemars(extend("x-default" = "3; spawn 4"))]
    pub max: Option<u32>,

    /// Wait before the first retry, in seconds or as `"1s"`; it doubles each time.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub backoff_seconds: Duration,

    /// Longest wait before a retry, in seconds or as `"5m"`.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub backoff_cap_seconds: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        RetrySettings {
            max: None,
            backoff_seconds: Duration::from_secs(1),
            backoff_cap_seconds: Duration::from_secs(300),
        }
    }
}

/// Waiting for rate limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimitSettings {
    /// Wait until a rate limit resets instead of ending the run.
    pub wait: bool,

    /// Longest wait, such as `"6h"`; a rate limit that lasts longer ends the run.
    pub max_wait: Duration,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        RateLimitSettings { wait: true, max_wait: Duration::from_secs(6 * 60 * 60) }
    }
}

/// Detection of iterations that change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StallSettings {
    /// Stop after this many iterations in a row without a change in the repository; 0: only warn.
    pub iterations: u32,
}

/// Blocklist of commands for Claude Code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HooksSettings {
    /// Check commands in your own Claude Code sessions, too, not only in loops.
    pub always: bool,

    /// Commands that are allowed although the blocklist has them.
    pub allow: Vec<String>,
}

/// Output in the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DisplaySettings {
    /// Use emoji instead of `[OK]`. Unset: if the terminal supports them.
    pub emoji: Option<bool>,

    /// Use colours. Unset: if the terminal supports them and `NO_COLOR` is not set.
    pub color: Option<bool>,

    /// Show the time before each line.
    pub timestamps: bool,

    /// Lines shown of a tool's output.
    pub max_output_lines: u32,

    /// Characters shown of a tool's output.
    pub max_output_chars: u32,
}

impl Default for DisplaySettings {
    fn default() -> Self {
        DisplaySettings {
            emoji: None,
            color: None,
            timestamps: false,
            max_output_lines: 10,
            max_output_chars: 2000,
        }
    }
}

/// Data kept of past runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RunsSettings {
    /// Number of past runs to keep.
    #[schemars(range(min = 1))]
    pub keep: u32,

    /// Raw agent output to keep per run, in megabytes; older output is dropped.
    pub max_raw_megabytes: u32,

    /// Space for agent output in a run's journal, in megabytes. An iteration may use a quarter of what
    /// is left; if its output is larger, only the end is kept.
    pub max_journal_megabytes: u32,
}

impl Default for RunsSettings {
    fn default() -> Self {
        RunsSettings { keep: 50, max_raw_megabytes: 200, max_journal_megabytes: 200 }
    }
}

/// Runs in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// Ignored files to copy into the new worktree of a background run.
    pub copy: Vec<String>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings { copy: vec![".env".into()] }
    }
}

/// Notifications when a run ends, pauses or waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NotifySettings {
    /// A shell command that gets each event as JSON on standard input.
    #[schemars(length(min = 1))]
    pub command: Option<String>,
}
