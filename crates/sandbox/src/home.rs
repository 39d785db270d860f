//! What is shown of the home: toolchains, caches of packages, and the agent's own configuration.

use std::path::{Path, PathBuf};

use super::environment;
use super::plan::Wanted;
use super::plan_builder::Draft;

/// Tools that people install into their homes. They can be read, not changed.
pub(super) const TOOLS: &[&str] = &[
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
pub(super) const CACHES: &[&str] = &[
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
pub(super) const SECRETS: &[&str] = &[
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
enum How {
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
    files: &'static [(&'static str, How)],
}

const AGENTS: &[AgentHome] = &[
    AgentHome {
        adapter: "claude",
        moved_by: Some("CLAUDE_CONFIG_DIR"),
        dir: ".claude",
        files: &[
            (".credentials.json", How::Credentials),
            (".claude.json", How::Copy),
            ("CLAUDE.md", How::Config),
            ("agents", How::Config),
            ("commands", How::Config),
            ("hooks", How::Config),
            ("output-styles", How::Config),
            ("plugins", How::Config),
            ("rules", How::Config),
            ("settings.json", How::Config),
            ("settings.local.json", How::Config),
            ("skills", How::Config),
        ],
    },
    AgentHome {
        adapter: "claude",
        moved_by: None,
        dir: "",
        files: &[(".claude.json", How::Copy), (".local/share/claude/versions", How::Config)],
    },
    AgentHome {
        adapter: "codex",
        moved_by: Some("CODEX_HOME"),
        dir: ".codex",
        files: &[
            ("auth.json", How::Credentials),
            ("config.toml", How::Config),
            ("AGENTS.md", How::Config),
            ("prompts", How::Config),
            ("rules", How::Config),
            ("skills", How::Config),
        ],
    },
    AgentHome {
        adapter: "gemini",
        moved_by: None,
        dir: ".gemini",
        files: &[
            ("oauth_creds.json", How::Credentials),
            ("google_accounts.json", How::Copy),
            ("installation_id", How::Copy),
            (".env", How::Config),
            ("GEMINI.md", How::Config),
            ("commands", How::Config),
            ("extensions", How::Config),
            ("settings.json", How::Copy),
            ("trustedFolders.json", How::Copy),
        ],
    },
    AgentHome {
        adapter: "qwen",
        moved_by: None,
        dir: ".qwen",
        files: &[
            ("oauth_creds.json", How::Credentials),
            (".env", How::Config),
            ("QWEN.md", How::Config),
            ("settings.json", How::Copy),
        ],
    },
    AgentHome {
        adapter: "opencode",
        moved_by: None,
        dir: "",
        files: &[
            (".local/share/opencode/auth.json", How::Credentials),
            (".config/opencode", How::Config),
            (".opencode/bin", How::Config),
        ],
    },
    AgentHome {
        adapter: "copilot",
        moved_by: Some("COPILOT_HOME"),
        dir: ".copilot",
        files: &[
            ("config.json", How::Credentials),
            ("mcp-config.json", How::Config),
            ("agents", How::Config),
            ("skills", How::Config),
        ],
    },
    AgentHome {
        adapter: "cline",
        moved_by: Some("CLINE_DIR"),
        dir: ".cline",
        files: &[
            ("data/settings/providers.json", How::Credentials),
            ("data/secrets.json", How::Credentials),
            ("data/globalState.json", How::Copy),
        ],
    },
    AgentHome {
        adapter: "amp",
        moved_by: None,
        dir: "",
        files: &[(".local/share/amp/secrets.json", How::Credentials), (".config/amp", How::Config)],
    },
];

/// Shows what is needed of `home`, in whose place `scratch` is seen. The copies that have to be made.
pub(super) fn show(
    draft: &mut Draft<'_>,
    home: &Path,
    scratch: &Path,
    wanted: &Wanted,
) -> Vec<(PathBuf, PathBuf)> {
    for tool in TOOLS {
        draft.show_hidden("tool", &home.join(tool));
    }
    for cache in CACHES {
        // One that is a link to another disk is shown where it is.
        draft.show("package cache", &home.join(cache), true);
    }
    let mut copies = Vec::new();
    for agent in AGENTS.iter().filter(|agent| agent.adapter == wanted.adapter) {
        let moved = agent.moved_by.and_then(|name| environment::get(&wanted.env, name));
        let dir = moved.map_or_else(|| home.join(agent.dir), PathBuf::from);
        for (name, how) in agent.files {
            let path = dir.join(name);
            const WHAT: &str = "agent file";
            match (how, path.strip_prefix(home)) {
                (How::Credentials, _) => draft.show(WHAT, &path, true),
                (How::Copy, Ok(below)) => {
                    let found = draft.look_up(WHAT, &path);
                    copies.extend(found.map(|found| (found.real, scratch.join(below))));
                }
                (How::Config | How::Copy, _) => draft.show_hidden(WHAT, &path),
            }
        }
    }
    copies
}
