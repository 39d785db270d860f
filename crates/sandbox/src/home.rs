//! What a sandbox exposes of the home: toolchains, package caches, the agent's own files.

use std::path::{Path, PathBuf};

use super::environment;
use super::places::PLACES;
use super::plan::{Mount, PlanInputs, SandboxPlan};
use super::plan_builder::PlanBuilder;
use ralph_agents::profile::{FileExposure, HomeDir};
use ralph_agents::profile_of;

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
    for tool in &PLACES.tool_dirs {
        draft.show_hidden("tool", &home.join(tool));
    }
    for cache in &PLACES.cache_dirs {
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

/// Puts links into the scratch home, for backends that cannot mount.
pub(super) fn link_home_entries(plan: &SandboxPlan, scratch_home: &Path) {
    let home = plan.mounts.iter().find_map(|mount| match mount {
        Mount::Writable { from, at } if from == scratch_home => Some(at.clone()),
        _ => None,
    });
    let Some(home) = home else { return };
    for mount in &plan.mounts {
        let (Mount::ReadOnly { from, at } | Mount::Writable { from, at }) = mount else { continue };
        let Ok(below) = at.strip_prefix(&home) else { continue };
        let link = scratch_home.join(below);
        if below != Path::new("") && from != scratch_home && !plan.dirs.contains(&link) {
            if let Some(parent) = link.parent() {
                let _ = std::fs::create_dir_all(parent);
            }
            // Already visible through a linked parent.
            let _ = std::os::unix::fs::symlink(from, &link);
        }
    }
}
