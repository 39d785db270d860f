//! Paths and variables that every sandbox hides, shows or protects, from `places.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

pub(super) static PLACES: LazyLock<Places> = LazyLock::new(|| {
    serde_json::from_str(include_str!("places.json")).expect("a test parses the embedded places")
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(super) struct Places {
    /// Other users' files, service sockets, and secrets.
    pub(super) hidden_dirs: Vec<&'static str>,
    /// Most are unreadable for ordinary users anyway.
    pub(super) hidden_files: Vec<&'static str>,
    /// Of a Mac, where `/tmp`, `/var` and `/etc` are links to `/private`.
    pub(super) hidden_dirs_macos: Vec<&'static str>,
    pub(super) hidden_files_macos: Vec<&'static str>,
    /// A project cannot be one of these.
    pub(super) system_dirs: Vec<&'static str>,
    pub(super) system_dirs_macos: Vec<&'static str>,
    /// Programs are here on some systems.
    pub(super) shown_dirs: Vec<&'static str>,
    /// These control the kernel, and programs do not need them. For bubblewrap, an empty directory
    /// is faster than a read-only mount.
    pub(super) hidden_kernel_dirs: Vec<&'static str>,
    pub(super) readable_kernel_paths: Vec<&'static str>,
    /// Keys and passwords below the home. No hint may suggest showing them.
    pub(super) home_secrets: Vec<&'static str>,
    /// Toolchains below the home; read-only.
    pub(super) tool_dirs: Vec<&'static str>,
    /// Package caches below the home; writable.
    pub(super) cache_dirs: Vec<&'static str>,
    /// Tokens and keys inside `tool_dirs`; hidden.
    pub(super) tool_secrets: Vec<&'static str>,
    /// Variables that name a location, with its default in the home directory.
    pub(super) location_variables: BTreeMap<&'static str, &'static str>,
    pub(super) certificate_variables: Vec<&'static str>,
    /// Variables that point outside: sockets, terminals, other machines.
    pub(super) host_variables: Vec<&'static str>,
    /// Executed or obeyed outside: by ralph, the user's agents (hooks, MCP servers, plugins,
    /// approval rules) and version control.
    pub(super) protected_dirs: BTreeMap<&'static str, Vec<&'static str>>,
    /// Like `protected_dirs`: single files, and whole directories.
    pub(super) protected_paths: Vec<&'static str>,
    /// Groups that `sandbox.allowedDomains` can name.
    pub(super) host_groups: Vec<HostGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostGroup {
    pub(super) name: &'static str,
    pub(super) hosts: Vec<&'static str>,
    /// Off by default, because an agent could send data to any account there. Registries accept
    /// uploads, too, but loops need packages.
    #[serde(default)]
    pub(super) optional: bool,
}

/// Created and written by ralph during a run.
pub(super) const RALPH_STATE_PATHS: [&str; 1] = [".ralph/logs"];
