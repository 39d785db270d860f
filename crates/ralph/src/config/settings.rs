//! Every setting. The JSON Schema is generated from these types; doc comments become descriptions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Duration;
use ralph_agents::PromptVia;
use ralph_events::event::FailAction;
pub use ralph_sandbox::settings::{Sandbox, SandboxBackend, SandboxNetwork};

/// Settings of ralph, from `.ralph/settings.json` and `.ralph/settings.local.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "ralph settings")]
pub struct Settings {
    /// Where an editor finds the schema of this file. ralph itself does not read it.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,

    /// How many iterations there may be before the loop stops. Unset: 10; `ralph spawn` must be
    /// told.
    #[schemars(
        range(min = 1),
        extend("x-default" = "10; spawn must be told")
    )]
    pub maximum_iterations: Option<u32>,

    /// The text between `<response>` and `</response>` that ends the loop; case does not matter.
    #[schemars(length(min = 1))]
    pub completion_response: String,

    /// How many characters from the beginning of a failed guardrail's output go into the next prompt.
    pub output_truncate_chars: u32,

    /// How many characters from the end of that output follow, if it was cut.
    pub output_tail_chars: u32,

    /// Show what the agent does while it does it.
    pub stream_agent_output: bool,

    /// Put `Iteration X of Y, Z remaining.` before each prompt.
    pub include_iteration_count_in_prompt: bool,

    /// The program that does the work.
    pub agent: AgentSettings,

    /// Commands that must all exit with 0 before a completion counts.
    pub guardrails: Vec<GuardrailSettings>,

    /// What to do with the changes once all guardrails have passed. Unset: nothing.
    pub scm: Option<ScmSettings>,

    /// End an agent that has printed nothing for so long, in seconds or as `"5m"`; 0: never.
    /// Unset: 0; for `ralph spawn` 300, or 60 with `--interactive`.
    #[serde(serialize_with = "Duration::maybe_as_seconds")]
    #[schemars(extend("x-default" = "0; spawn 300, or 60 with --interactive"))]
    pub inactivity_timeout_seconds: Option<Duration>,

    /// End an agent that has printed nothing for so many minutes while none of its tools runs: its
    /// connection to the model is probably dead. It is warned of after a quarter of that; 0: never.
    /// Only for agents whose stream tells of tools.
    #[schemars(extend("minimum" = 0))]
    pub silent_model_minutes: f64,

    /// End an iteration that takes longer than this, in seconds or as `"2h"`; 0: never.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub iteration_timeout_seconds: Duration,

    /// End an agent that has given its final result and is still there after so long, in seconds or
    /// as `"10s"`.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub result_grace_seconds: Duration,

    /// What a run may use up before it is stopped.
    pub budget: BudgetSettings,

    /// What happens when the agent fails.
    pub retry: RetrySettings,

    /// What happens when the agent's account has used up its limit.
    pub rate_limit: RateLimitSettings,

    /// What happens when iterations change nothing.
    pub stall: StallSettings,

    /// Where the agent is locked in.
    pub sandbox: Sandbox,

    /// The blocklist of commands that Claude Code is kept from running.
    pub hooks: HooksSettings,

    /// How a run looks in the terminal.
    pub display: DisplaySettings,

    /// What is kept of past runs.
    pub runs: RunsSettings,

    /// Background workers.
    pub worker: WorkerSettings,

    /// The command that is notified when a run ends, pauses or waits, or when its model falls silent.
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
            sandbox: Sandbox::default(),
            hooks: HooksSettings::default(),
            display: DisplaySettings::default(),
            runs: RunsSettings::default(),
            worker: WorkerSettings::default(),
            notify: NotifySettings::default(),
        }
    }
}

/// The program that does the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentSettings {
    /// The program: a name on the PATH or a path. It is never split, so it may hold spaces.
    #[schemars(length(min = 1))]
    pub command: Option<String>,

    /// Arguments for the program. Each element is one argument, except that one such as
    /// `"--model opus"`, a flag and its value, is split as a shell would.
    pub flags: Vec<String>,

    /// The model that the agent is to use. Unset: the agent's own choice.
    #[schemars(length(min = 1))]
    pub model: Option<String>,

    /// Switch the agent's own approval prompts off.
    pub autonomous: bool,

    /// Which agent the command is. Unset: told by the command's name.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "claude", "codex", "amp", "cline", "opencode", "gemini", "copilot", "qwen", "text", null
    ]))]
    pub kind: Option<String>,

    /// How the prompt reaches the agent. Unset: what suits the agent.
    pub prompt_via: Option<PromptVia>,

    /// Leave alone what the agent started and did not end, rather than end it after each iteration.
    pub keep_background: bool,

    /// Variables to set in the agent's environment.
    pub env: BTreeMap<String, String>,

    /// Variables to keep from the agent.
    pub env_exclude: Vec<String>,

    /// All arguments of the program, in place of those that ralph would choose and of `flags`; the
    /// prompt goes to its standard input.
    pub args: Option<Vec<String>>,

    /// What the program prints: `json` is one JSON object a line, `text` is for people. Unset: what
    /// ralph asks the agent for.
    pub output_format: Option<AgentOutputFormat>,

    /// A jq expression that finds what the agent says in each line of its JSON, for an agent that
    /// ralph does not know.
    #[schemars(length(min = 1))]
    pub response_filter: Option<String>,

    /// A shell pipeline that the agent's output goes through on its way to the terminal only.
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

/// What an agent prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentOutputFormat {
    /// One JSON object a line.
    Json,
    /// Text for people.
    Text,
}

/// A command that must exit with 0 before a completion counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuardrailSettings {
    /// The shell command to run after each iteration.
    #[schemars(length(min = 1))]
    pub command: String,

    /// What a failure does to the next prompt: it is added after it, put before it, or takes its
    /// place.
    #[serde(default = "default_fail_action")]
    pub fail_action: FailAction,

    /// Guidance for the agent that goes with a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,

    /// End the command after so long, in seconds or as `"10m"`, and count it as failed. Unset or 0:
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

/// What to do with the changes once all guardrails have passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScmSettings {
    /// The version control program.
    #[schemars(length(min = 1))]
    pub command: String,

    /// What it is told to do, in order, such as `commit` and `push`.
    #[schemars(inner(length(min = 1)))]
    pub tasks: Vec<String>,

    /// What `commit` takes, as paths or pathspecs of git from the project's directory. The default is everything in it,
    /// even if the repository is larger.
    #[schemars(inner(length(min = 1)))]
    pub paths: Vec<String>,

    /// End a task after so long, in seconds or as `"30m"`, with everything that it started (a hook, for
    /// instance), and count it as failed; 0: never.
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

/// What a run may use up before it is stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BudgetSettings {
    /// US dollars that a run may cost. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cost_usd: Option<f64>,

    /// Tokens that a run may use, cached ones included. Unset: no limit.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,

    /// How long a run may take, such as `"8h"`. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub duration: Option<Duration>,

    /// The same for each iteration; an iteration that goes past it is ended, the run goes on.
    pub per_iteration: IterationBudgetSettings,
}

/// What an iteration may use up before it is ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IterationBudgetSettings {
    /// US dollars that an iteration may cost. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cost_usd: Option<f64>,

    /// Tokens that an iteration may use, cached ones included. Unset: no limit.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,

    /// How long an iteration may take, such as `"30m"`. Unset: no limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub duration: Option<Duration>,
}

/// What happens when the agent fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetrySettings {
    /// How often a failed iteration is tried again before the run ends. Unset: 3; for `ralph spawn`
    /// 4, so that the fifth failure in a row ends it.
    #[schemars(extend("x-default" = "3; spawn 4"))]
    pub max: Option<u32>,

    /// How long to wait before the first new try, in seconds or as `"1s"`; it doubles each time.
    #[serde(serialize_with = "Duration::as_seconds")]
    pub backoff_seconds: Duration,

    /// The longest wait between two tries, in seconds or as `"5m"`.
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

/// What happens when the agent's account has used up its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimitSettings {
    /// Wait until the limit ends and go on, rather than end the run.
    pub wait: bool,

    /// The longest wait, such as `"6h"`; a limit that lasts longer ends the run.
    pub max_wait: Duration,
}

impl Default for RateLimitSettings {
    fn default() -> Self {
        RateLimitSettings { wait: true, max_wait: Duration::from_secs(6 * 60 * 60) }
    }
}

/// What happens when iterations change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StallSettings {
    /// Stop after so many iterations in a row that changed nothing in the repository; 0: only warn.
    pub iterations: u32,
}

/// The blocklist of commands that Claude Code is kept from running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HooksSettings {
    /// Apply it in a person's own sessions too, not only to agents that a loop started.
    pub always: bool,

    /// Commands that it lets through.
    pub allow: Vec<String>,
}

/// How a run looks in the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DisplaySettings {
    /// Emoji rather than `[OK]`. Unset: as the terminal can.
    pub emoji: Option<bool>,

    /// Colours. Unset: as the terminal can, and `NO_COLOR` is honoured.
    pub color: Option<bool>,

    /// Put the time before each line.
    pub timestamps: bool,

    /// How many lines of a tool's output are shown.
    pub max_output_lines: u32,

    /// How many characters of a tool's output are shown.
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

/// What is kept of past runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RunsSettings {
    /// How many past runs are kept.
    #[schemars(range(min = 1))]
    pub keep: u32,

    /// How much of an agent's raw output is kept for a run, in megabytes: the newest of it.
    pub max_raw_megabytes: u32,

    /// How much room a run's journal has for what agents print, in megabytes. An iteration may take a
    /// quarter of what is left; of what does not fit only the end is kept, and the rest is counted.
    pub max_journal_megabytes: u32,
}

impl Default for RunsSettings {
    fn default() -> Self {
        RunsSettings { keep: 50, max_raw_megabytes: 200, max_journal_megabytes: 200 }
    }
}

/// Background workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// Files that are copied into a worker's new worktree although git ignores them.
    pub copy: Vec<String>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings { copy: vec![".env".into()] }
    }
}

/// Who is told when a run ends, pauses or waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NotifySettings {
    /// A shell command that is run with the event as JSON on its standard input.
    #[schemars(length(min = 1))]
    pub command: Option<String>,
}
