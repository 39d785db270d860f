//! Facts about an agent that are data, not code.

/// Everything the rest of ralph needs to know about one agent besides its command line and stream.
///
/// There are no defaults: a new adapter has to answer each of these.
#[derive(Debug, Clone, Copy)]
pub struct AgentProfile {
    /// The adapter's name, as in `agent.type`.
    pub name: &'static str,
    pub install_command: &'static str,
    pub recording: Recording,
    /// When the stream reports token counts, for the documentation; `None` if it never does.
    pub tokens: Option<&'static str>,
    /// When the stream reports dollars, for the documentation; `None` if it never does.
    pub cost: Option<&'static str>,
    /// The reported cost was seen in recordings, so a cost budget can rely on it.
    pub cost_is_verified: bool,
    /// Whether a rate limit is reported with its end, for the documentation.
    pub limit_end: Option<&'static str>,
    /// A text event may continue in the next one, in the middle of a line.
    pub streams_text: bool,
    /// Confines itself to the project when it runs outside a sandbox of ralph's.
    pub sandboxes_itself: bool,
    /// May run Claude Code's stop hook.
    pub stop_hook: bool,
    /// Flags that turn off approval prompts in an interactive session.
    pub interactive_autonomous_flags: &'static [&'static str],
    /// Hosts that it cannot work without.
    pub hosts: &'static [&'static str],
    /// Prefixes of the variables that hold its keys and service addresses.
    pub key_prefixes: &'static [&'static str],
    /// Keys of a cloud that it needs only if the user has chosen that cloud.
    pub cloud_keys: &'static [CloudKeys],
    /// A configuration file that names further key variables.
    pub configured_keys: Option<ConfiguredKeys>,
    /// What it keeps in the home directory. Anything else there, such as transcripts of other projects, is
    /// hidden in a sandbox.
    pub homes: &'static [AgentHome],
}

/// The version whose streams the tests replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    Version { product: &'static str, version: &'static str },
    Missing { reason: &'static str },
}

/// Keys that are needed while a variable is set to anything but 0.
#[derive(Debug, Clone, Copy)]
pub struct CloudKeys {
    pub switch: &'static str,
    pub prefixes: &'static [&'static str],
}

/// A file in the agent's directory from which `variables` reads names of key variables.
#[derive(Debug, Clone, Copy)]
pub struct ConfiguredKeys {
    pub dir: HomeDir,
    pub file: &'static str,
    pub variables: fn(&str) -> Vec<String>,
}

/// A directory below the home, unless a variable moves it.
#[derive(Debug, Clone, Copy)]
pub struct HomeDir {
    pub moved_by: Option<&'static str>,
    pub path: &'static str,
}

impl HomeDir {
    /// The home directory itself.
    pub const HOME: HomeDir = HomeDir { moved_by: None, path: "" };
}

/// Files and directories of an agent, relative to `dir`.
#[derive(Debug, Clone, Copy)]
pub struct AgentHome {
    pub dir: HomeDir,
    pub entries: &'static [(&'static str, FileExposure)],
}

/// How a sandbox exposes a file of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileExposure {
    /// Read-only.
    Config,
    /// Writable: agents refresh their tokens, and an old token is worthless afterwards.
    Credentials,
    /// A copy that is thrown away: some agents keep notes in the same file as their settings.
    Copy,
}

/// Prefixes of all known model services, for agents that can use any of them.
pub const MODEL_SERVICE_PREFIXES: &[&str] = &[
    "AMP_",
    "ANTHROPIC_",
    "AZURE_OPENAI_",
    "CEREBRAS_",
    "CLAUDE_",
    "CLINE_",
    "CODEX_",
    "COHERE_",
    "COPILOT_",
    "DASHSCOPE_",
    "DEEPSEEK_",
    "FIREWORKS_",
    "GEMINI_",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_",
    "GOOGLE_GENERATIVE_AI_",
    "GROQ_",
    "MISTRAL_",
    "MOONSHOT_",
    "OPENAI_",
    "OPENCODE_",
    "OPENROUTER_",
    "PERPLEXITY_",
    "QWEN_",
    "TOGETHER_",
    "XAI_",
    "ZAI_",
];

/// Hosts of the usual model services, for agents with a choice of providers.
pub(crate) const PROVIDER_HOSTS: &[&str] = &[
    "opencode.ai",
    "models.dev",
    "api.cline.bot",
    "api.anthropic.com",
    "api.openai.com",
    "openrouter.ai",
    "generativelanguage.googleapis.com",
];
