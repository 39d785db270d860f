//! Toolchains outside their usual place: on the `PATH`, or named by variables.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::environment;
use super::places::PLACES;
use super::plan::{PathInfo, PlanInputs};
use super::plan_builder::{PathTarget, PlanBuilder};

fn tool_location<'w>(
    home: Option<&'w Path>,
    inputs: &'w PlanInputs,
) -> impl Iterator<Item = (&'static str, &'w Path, &'static str)> {
    PLACES.location_variables.iter().filter_map(move |(name, usual)| {
        let root = Path::new(environment::get(&inputs.env, name)?);
        // Shown with the home directory.
        let is_usual = home.is_some_and(|home| home.join(usual) == root);
        (root.is_absolute() && !is_usual).then_some((*name, root, *usual))
    })
}

fn below_root(root: &Path, usual: &str, list: &[&str]) -> Vec<PathBuf> {
    let below = list.iter().filter_map(|path| Path::new(path).strip_prefix(usual).ok());
    // Joining an empty path would add a slash.
    below.map(|below| root.join(below).components().collect()).collect()
}

pub(super) fn show_tools(builder: &mut PlanBuilder<'_>, home: Option<&Path>, inputs: &PlanInputs) {
    for (name, root, usual) in tool_location(home, inputs) {
        for tool in below_root(root, usual, &PLACES.tool_dirs) {
            builder.show_hidden(name, &tool);
        }
        for cache in below_root(root, usual, &PLACES.cache_dirs) {
            builder.show_hidden_writable(name, &cache);
        }
    }
    let path = environment::get(&inputs.env, "PATH");
    for dir in path.map(std::env::split_paths).into_iter().flatten() {
        if let Some(root) = package_root(builder, &dir) {
            builder.show_hidden("PATH entry", &root);
        }
        builder.show_hidden("PATH entry", &dir);
    }
}

/// Hides the tools' secrets, also where links show them again.
pub(super) fn hide_secrets(
    builder: &mut PlanBuilder<'_>,
    home: Option<&Path>,
    inputs: &PlanInputs,
) {
    let usual =
        home.into_iter().flat_map(|home| PLACES.tool_secrets.iter().map(|path| home.join(path)));
    let moved = tool_location(home, inputs)
        .flat_map(|(_, root, usual)| below_root(root, usual, &PLACES.tool_secrets));
    for secret in usual.chain(moved) {
        if let PathTarget::Inside(found) = builder.resolve_target(&secret) {
            builder.hide_everywhere(&found);
        }
    }
}

/// The directory that a `PATH` entry needs: the shims of pyenv, rbenv and asdf call their
/// neighbours; `bin` of Node.js or a virtual environment links to `lib`.
fn package_root(builder: &PlanBuilder<'_>, dir: &Path) -> Option<PathBuf> {
    let root = dir.parent()?;
    let PathTarget::Inside(PathInfo { real, .. }) = builder.resolve_target(root) else {
        return None;
    };
    let has = |name: &str| builder.disk.stat(&root.join(name)).is_some();
    let manages_versions = has("libexec") || has("shims") || has("installs");
    let needed = match dir.file_name().and_then(OsStr::to_str)? {
        "shims" => true,
        // A directory with `.git` may be a project.
        "bin" if manages_versions => true,
        "bin" => has("lib") && !has(".git"),
        _ => false,
    };
    // A mount here would cover those below it.
    let covers =
        builder.mounts.iter().any(|mount| mount.at() != real && mount.at().starts_with(&real));
    let is_local = root.file_name() == Some(OsStr::new(".local"));
    (needed && !covers && !is_local).then(|| root.to_owned())
}
