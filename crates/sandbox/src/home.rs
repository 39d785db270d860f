//! What a sandbox exposes of the home: toolchains, package caches, the agent's own files.

use std::path::{Path, PathBuf};

use super::environment;
use super::plan::PlanInputs;
use super::plan_builder::PlanBuilder;
use ralph_agents::profile::{FileExposure, HomeDir};
use ralph_agents::profile_of;

/// Toolchains; read-only.
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

/// Package caches; writable.
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

/// Tokens and keys inside [`TOOL_DIRS`]; hidden.
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

pub(super) fn agent_dir(
    dir: &HomeDir,
    wanted: &PlanInputs,
    home: Option<&Path>,
) -> Option<PathBuf> {
    let moved = dir.moved_by.and_then(|name| environment::get(&wanted.env, name));
    moved.map(PathBuf::from).or_else(|| Some(home?.join(dir.path)))
}

/// Exposes parts of `home`, which `scratch` replaces. Returns the copies to make.
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
        // A link to another disk is resolved.
        draft.show("package cache", &home.join(cache), true);
    }
    let mut copies = Vec::new();
    for agent_home in profile_of(wanted.adapter).homes {
        let Some(dir) = agent_dir(&agent_home.dir, wanted, Some(home)) else { continue };
        for (name, exposure) in agent_home.entries {
            let path = dir.join(name);
            const FILE_LABEL: &str = "agent file";
            match (exposure, path.strip_prefix(home)) {
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
