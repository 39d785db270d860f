//! The settings of the sandbox. Doc comments of fields are the descriptions in the generated JSON
//! Schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the agent is locked in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// What locks the agent in. Unset: `none`; for `ralph work` `auto`.
    #[schemars(extend("x-default" = "none; work auto"))]
    pub backend: Option<SandboxBackend>,

    /// Refuse to run without a sandbox, rather than warn and go on.
    pub required: bool,

    /// Run checks and SCM tasks inside the sandbox too.
    pub guardrails: bool,

    /// What may be reached over the network from inside.
    pub network: SandboxNetwork,

    /// Hosts that may be reached beyond those that the agent needs: `"api.example.com"`,
    /// `"*.example.com"`, `"localhost:8080"`.
    pub allowed_domains: Vec<String>,

    /// Variables that are passed on to the agent although they look like secrets, by their names.
    pub env: Vec<String>,

    /// Further paths that may be read.
    pub readable: Vec<String>,

    /// Further paths that may be written.
    pub writable: Vec<String>,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        SandboxSettings {
            backend: None,
            required: false,
            guardrails: true,
            network: SandboxNetwork::Allowlist,
            allowed_domains: Vec::new(),
            env: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
        }
    }
}

/// What locks the agent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxBackend {
    /// Nothing.
    None,
    /// The first that works here; nothing, with a warning, if none does.
    Auto,
    /// Bubblewrap: namespaces of its own, Linux only.
    Bwrap,
    /// Seatbelt, macOS only. Written without a Mac at hand; used only if trying it out succeeds.
    Seatbelt,
    /// A microVM by Docker.
    Docker,
    /// Landlock and seccomp, where bubblewrap may not run; Linux only.
    Landlock,
}

/// What may be reached over the network from inside a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxNetwork {
    /// What the agent needs, package registries, and `allowedDomains`.
    Allowlist,
    /// Everything.
    Full,
    /// Nothing.
    None,
}
