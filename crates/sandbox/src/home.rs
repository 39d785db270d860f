//! What is shown of the home: toolchains, caches of packages, and the agent's own configuration.

use std::path::{Path, PathBuf};

use super::environment;
use super::plan::PlanInputs;
use super::plan_builder::PlanBuilder;

/// Tools that people install into their homes. They can be read, not changed.
pub(super) const TOOL_DIRS: &[&str] = &[
    ".asdf",
    ".bun",
    ".cabal/bin",
    ".cargo",
    ".config/fnm",
    ".config/git",
    ".deno",
    ".dotnet",
    ".fnm",
    ".ghcup",
    ".gitconfig",
    ".gitignore",
    ".gitignore_global",
    ".goenv",
    ".gvm",
    ".jenv",
    ".juliaup",
    ".linuxbrew",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/nvm",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/rtx",
    ".local/share/uv",
    ".local/share/virtualenvs",
    ".mix",
    ".nodenv",
    ".nix-profile",
    ".npm-global",
    ".nvm",
    ".opam",
    ".phpenv",
    ".pixi",
    ".poetry",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".rye",
    ".sdkman",
    ".swiftly",
    ".tool-versions",
    ".volta",
    ".yarn",
    "go/bin",
    "go/pkg",
    "miniconda3",
    "miniforge3",
    "sdk",
];

/// What package managers keep, and have to be able to add to.
pub(super) const CACHE_DIRS: &[&str] = &[
    ".bun/install/cache",
    ".cache/bazel",
    ".cache/deno",
    ".cache/go-build",
    ".cache/ms-playwright",
    ".cache/node",
    ".cache/pip",
    ".cache/pnpm",
    ".cache/pypoetry",
    ".cache/sccache",
    ".cache/uv",
    ".cache/yarn",
    ".cargo/git",
    ".cargo/registry",
    ".gradle/caches",
    ".gradle/wrapper",
    ".ivy2/cache",
    ".local/share/pnpm/store",
    ".m2/repository",
    ".npm",
    ".nuget/packages",
    ".rustup/tmp",
    "go/pkg/mod",
];

/// Secrets in the middle of [`TOOLS`], files and directories: what publishes, and keys.
pub(super) const TOOL_SECRETS: &[&str] = &[
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/git/credentials",
    ".deno/credentials.json",
    ".dotnet/corefx",
    ".local/share/uv/credentials",
    ".npm-global/etc/npmrc",
    ".opam/plugins/opam-publish",
    ".rye/credentials",
];

/// How a file of an agent is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileExposure {
    /// To be read.
    Config,
    /// Itself, to be written: tokens change while they are used, and an old one is worth nothing.
    Credentials,
    /// A copy that is thrown away: agents keep notes in the same file as their settings.
    Copy,
}

/// Where an agent keeps its own, and what is shown of that. The rest, such as the transcripts of other
/// projects, is not.
struct AgentHome {
    adapter: &'static str,
    /// The variable that moves it, and where it is without.
    moved_by: Option<&'static str>,
    dir: &'static str,
    files: &'static [(&'static str, FileExposure)],
}

const AGENT_HOMES: &[AgentHome] = &[
    AgentHome {
        adapter: "claude",
        moved_by: Some("CLAUDE_CONFIG_DIR"),
        dir: ".claude",
        files: &[
            (".credentials.json", FileExposure::Credentials),
            (".claude.json", FileExposure::Copy),
            ("CLAUDE.md", FileExposure::Config),
            ("agents", FileExposure::Config),
            ("commands", FileExposure::Config),
            ("hooks", FileExposure::Config),
            ("output-styles", FileExposure::Config),
            ("plugins", FileExposure::Config),
            ("rules", FileExposure::Config),
            ("settings.json", FileExposure::Config),
            ("settings.local.json", FileExposure::Config),
            ("skills", FileExposure::Config),
        ],
    },
    AgentHome {
        adapter: "claude",
        moved_by: None,
        dir: "",
        files: &[
            (".claude.json", FileExposure::Copy),
            (".local/share/claude/versions", FileExposure::Config),
        ],
    },
    AgentHome {
        adapter: "codex",
        moved_by: Some("CODEX_HOME"),
        dir: ".codex",
        files: &[
            ("auth.json", FileExposure::Credentials),
            ("config.toml", FileExposure::Config),
            ("AGENTS.md", FileExposure::Config),
            ("prompts", FileExposure::Config),
            ("rules", FileExposure::Config),
            ("skills", FileExposure::Config),
        ],
    },
    AgentHome {
        adapter: "gemini",
        moved_by: None,
        dir: ".gemini",
        files: &[
            ("oauth_creds.json", FileExposure::Credentials),
            ("google_accounts.json", FileExposure::Copy),
            ("installation_id", FileExposure::Copy),
            (".env", FileExposure::Config),
            ("GEMINI.md", FileExposure::Config),
            ("commands", FileExposure::Config),
            ("extensions", FileExposure::Config),
            ("settings.json", FileExposure::Copy),
            ("trustedFolders.json", FileExposure::Copy),
        ],
    },
    AgentHome {
        adapter: "qwen",
        moved_by: None,
        dir: ".qwen",
        files: &[
            ("oauth_creds.json", FileExposure::Credentials),
            (".env", FileExposure::Config),
            ("QWEN.md", FileExposure::Config),
            ("settings.json", FileExposure::Copy),
        ],
    },
    AgentHome {
        adapter: "opencode",
        moved_by: None,
        dir: "",
        files: &[
            (".local/share/opencode/auth.json", FileExposure::Credentials),
            (".config/opencode", FileExposure::Config),
            (".opencode/bin", FileExposure::Config),
        ],
    },
    AgentHome {
        adapter: "copilot",
        moved_by: Some("COPILOT_HOME"),
        dir: ".copilot",
        files: &[
            ("config.json", FileExposure::Credentials),
            ("mcp-config.json", FileExposure::Config),
            ("agents", FileExposure::Config),
            ("skills", FileExposure::Config),
        ],
    },
    AgentHome {
        adapter: "cline",
        moved_by: Some("CLINE_DIR"),
        dir: ".cline",
        files: &[
            ("data/settings/providers.json", FileExposure::Credentials),
            ("data/secrets.json", FileExposure::Credentials),
            ("data/globalState.json", FileExposure::Copy),
        ],
    },
    AgentHome {
        adapter: "amp",
        moved_by: None,
        dir: "",
        files: &[
            (".local/share/amp/secrets.json", FileExposure::Credentials),
            (".config/amp", FileExposure::Config),
        ],
    },
];

/// Shows what is needed of `home`, in whose place `scratch` is seen. The copies that have to be made.
pub(super) fn show_home(
    draft: &mut PlanBuilder<'_>,
    home: &Path,
    scratch: &Path,
    wanted: &PlanInputs,
) -> Vec<(PathBuf, PathBuf)> {
    for tool in TOOL_DIRS {
        draft.show_hidden("tool", &home.join(tool));
    }
    for cache in CACHE_DIRS {
        // One that is a link to another disk is shown where it is.
        draft.show("package cache", &home.join(cache), true);
    }
    let mut copies = Vec::new();
    for agent in AGENT_HOMES.iter().filter(|agent| agent.adapter == wanted.adapter) {
        let moved = agent.moved_by.and_then(|name| environment::get(&wanted.env, name));
        let dir = moved.map_or_else(|| home.join(agent.dir), PathBuf::from);
        for (name, how) in agent.files {
            let path = dir.join(name);
            const FILE_LABEL: &str = "agent file";
            match (how, path.strip_prefix(home)) {
                (FileExposure::Credentials, _) => draft.show(FILE_LABEL, &path, true),
                (FileExposure::Copy, Ok(below)) => {
                    let found = draft.find_shown(FILE_LABEL, &path);
                    copies.extend(found.map(|found| (found.real, scratch.join(below))));
                }
                (FileExposure::Config | FileExposure::Copy, _) => {
                    draft.show_hidden(FILE_LABEL, &path)
                }
            }
        }
    }
    copies
}
