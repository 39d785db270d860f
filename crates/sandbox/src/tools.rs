//! Toolchains that are not where the home has them: on the `PATH`, and where variables say.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::environment;
use super::home::{CACHE_DIRS, TOOL_DIRS, TOOL_SECRETS};
use super::plan::{PathInfo, PlanInputs};
use super::plan_builder::{PathTarget, PlanBuilder};

/// Variables that say where something is, and where it would be in the home without them.
const LOCATION_VARIABLES: &[(&str, &str)] = &[
    ("ASDF_DATA_DIR", ".asdf"),
    ("ASDF_DIR", ".asdf"),
    ("BUN_INSTALL", ".bun"),
    ("CARGO_HOME", ".cargo"),
    ("DENO_INSTALL", ".deno"),
    ("FNM_DIR", ".local/share/fnm"),
    ("GOPATH", "go"),
    ("MISE_DATA_DIR", ".local/share/mise"),
    ("NODENV_ROOT", ".nodenv"),
    ("NVM_DIR", ".nvm"),
    ("OPAMROOT", ".opam"),
    ("PIP_CACHE_DIR", ".cache/pip"),
    ("PNPM_HOME", ".local/share/pnpm"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("SDKMAN_DIR", ".sdkman"),
    ("UV_CACHE_DIR", ".cache/uv"),
    ("VOLTA_HOME", ".volta"),
    ("npm_config_cache", ".npm"),
];

/// The tools that variables have moved out of their usual place in the home: the variable, the directory that it names,
/// and the usual one.
fn tool_location<'w>(
    home: Option<&'w Path>,
    wanted: &'w PlanInputs,
) -> impl Iterator<Item = (&'static str, &'w Path, &'static str)> {
    LOCATION_VARIABLES.iter().filter_map(move |(name, usual)| {
        let root = Path::new(environment::get(&wanted.env, name)?);
        // Where it would be anyway, the home has shown it.
        let is_usual = home.is_some_and(|home| home.join(usual) == root);
        (root.is_absolute() && !is_usual).then_some((*name, root, *usual))
    })
}

/// The paths of a list for the home that are below `usual`, as they are below `root`.
fn below_root(root: &Path, usual: &str, list: &[&str]) -> Vec<PathBuf> {
    let below = list.iter().filter_map(|path| Path::new(path).strip_prefix(usual).ok());
    // Joining nothing would leave a slash at the end.
    below.map(|below| root.join(below).components().collect()).collect()
}

/// Shows what the environment names, as far as it is in a place that is hidden.
pub(super) fn show_tools(draft: &mut PlanBuilder<'_>, home: Option<&Path>, wanted: &PlanInputs) {
    for (name, root, usual) in tool_location(home, wanted) {
        for tool in below_root(root, usual, TOOL_DIRS) {
            draft.show_hidden(name, &tool);
        }
        for cache in below_root(root, usual, CACHE_DIRS) {
            draft.show_hidden_writable(name, &cache);
        }
    }
    let path = environment::get(&wanted.env, "PATH");
    for dir in path.map(std::env::split_paths).into_iter().flatten() {
        if let Some(whole) = package_root(draft, &dir) {
            draft.show_hidden("PATH entry", &whole);
        }
        draft.show_hidden("PATH entry", &dir);
    }
}

/// Hides the secrets of tools, in the home and where variables say, wherever they are seen. Tools that are links are seen
/// at two places.
pub(super) fn hide_secrets(draft: &mut PlanBuilder<'_>, home: Option<&Path>, wanted: &PlanInputs) {
    let usual = home.into_iter().flat_map(|home| TOOL_SECRETS.iter().map(|path| home.join(path)));
    let moved = tool_location(home, wanted)
        .flat_map(|(_, root, usual)| below_root(root, usual, TOOL_SECRETS));
    for secret in usual.chain(moved) {
        if let PathTarget::Inside(found) = draft.resolve_target(&secret) {
            draft.hide_everywhere(&found);
        }
    }
}

/// What the programs of a directory on the `PATH` cannot do without, if that is more: the shims of pyenv, rbenv and
/// asdf call what is beside them, and `bin` of a Node.js or a virtual environment holds links to its `lib`.
fn package_root(draft: &PlanBuilder<'_>, dir: &Path) -> Option<PathBuf> {
    let whole = dir.parent()?;
    let PathTarget::Inside(PathInfo { real, .. }) = draft.resolve_target(whole) else {
        return None;
    };
    let has = |name: &str| draft.disk.stat(&whole.join(name)).is_some();
    let manages_versions = has("libexec") || has("shims") || has("installs");
    let needed = match dir.file_name().and_then(OsStr::to_str)? {
        "shims" => true,
        // `~/.local` has much else in it, and what has a `.git` may be somebody's project.
        "bin" if manages_versions => true,
        "bin" => has("lib") && !has(".git"),
        _ => false,
    };
    // What is mounted below it already would be covered by it.
    let covers =
        draft.mounts.iter().any(|mount| mount.at() != real && mount.at().starts_with(&real));
    let is_local = whole.file_name() == Some(OsStr::new(".local"));
    (needed && !covers && !is_local).then(|| whole.to_owned())
}
