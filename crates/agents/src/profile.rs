//! Facts about an agent that are data, not code.

/// What ralph knows about an agent besides its command line and stream. Has no defaults, so a new adapter
/// must set every field.
#[derive(Debug, Clone, Copy)]
pub struct AgentProfile {
    /// As in `agent.type`.
    pub name: &'static str,
    pub install_command: &'static str,
    pub recording: Recording,
    /// When the stream reports tokens, for the documentation.
    pub tokens: Option<&'static str>,
    /// When the stream reports dollars, for the documentation.
    pub cost: Option<&'static str>,
    /// A cost budget can rely on the reported cost.
    pub cost_is_verified: bool,
    /// Whether the end of a rate limit is reported, for the documentation.
    pub limit_end: Option<&'static str>,
    /// Flags that turn off approval prompts in an interactive session.
    pub interactive_autonomous_flags: &'static [&'static str],
    pub hosts: &'static [&'static str],
    /// Prefixes of variables with its keys and service addresses.
    pub key_prefixes: &'static [&'static str],
    /// Its files in the home directory. A sandbox hides all others, such as transcripts of other projects.
    pub homes: &'static [AgentHome],
    pub extras: AgentExtras,
}

/// Facts that hold for few agents.
#[derive(Debug, Clone, Copy)]
pub struct AgentExtras {
    /// A text may continue in the next event, in the middle of a line.
    pub streams_text: bool,
    /// Confines itself to the project outside a sandbox of ralph's.
    pub sandboxes_itself: bool,
    /// May run Claude Code's stop hook.
    pub stop_hook: bool,
    pub cloud_keys: &'static [CloudKeys],
    pub configured_keys: Option<ConfiguredKeys>,
    /// Its own sandbox, which cannot run inside another one, is off if this variable is `false`.
    pub sandbox_switch: Option<&'static str>,
    /// On a Mac its login is in the keychain; these variables replace it.
    pub keychain_substitutes: &'static [&'static str],
    /// As root it keeps asking for approval, unless this variable is set.
    pub root_switch: Option<&'static str>,
    /// The agent of this name in Docker's sandboxes, which Docker logs in.
    pub docker_agent: Option<&'static str>,
}

impl AgentExtras {
    pub const NONE: AgentExtras = AgentExtras {
        streams_text: false,
        sandboxes_itself: false,
        stop_hook: false,
        cloud_keys: &[],
        configured_keys: None,
        sandbox_switch: None,
        keychain_substitutes: &[],
        root_switch: None,
        docker_agent: None,
    };
}

/// The version whose streams the tests replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    Version { product: &'static str, version: &'static str },
    Missing { reason: &'static str },
}

/// Keys of a cloud, needed if the variable `switch` is set and not 0.
#[derive(Debug, Clone, Copy)]
pub struct CloudKeys {
    pub switch: &'static str,
    pub prefixes: &'static [&'static str],
}

/// A configuration file in which `variables` finds names of further key variables.
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
    pub const HOME: HomeDir = HomeDir { moved_by: None, path: "" };
}

/// Paths relative to `dir`.
#[derive(Debug, Clone, Copy)]
pub struct AgentHome {
    pub dir: HomeDir,
    pub entries: &'static [(&'static str, FileExposure)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileExposure {
    /// Read-only.
    Config,
    /// Writable: refreshing a token invalidates the old one.
    Credentials,
    /// A temporary copy: some agents keep notes in the file of their settings.
    Copy,
}

/// All known model services, for agents that can use any.
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

/// For agents with a choice of providers.
pub(crate) const PROVIDER_HOSTS: &[&str] = &[
    "opencode.ai",
    "models.dev",
    "api.cline.bot",
    "api.anthropic.com",
    "api.openai.com",
    "openrouter.ai",
    "generativelanguage.googleapis.com",
];
