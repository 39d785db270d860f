//! Calls git outside the sandbox, in a repository that agents have worked in.
//!
//! git executes much that a repository names. A sandbox protects the project's own configuration,
//! but agents can create other repositories in the work tree. So git executes no more than it must,
//! and uses only the repository that was meant. `-c` also reaches git in submodules.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// Disables file system monitors, submodules, remote helpers, background work and planted bare
/// repositories.
const BASE_CONFIG: &[&str] = &[
    "core.fsmonitor=false",
    "core.alternateRefsCommand=",
    "core.pager=cat",
    "diff.ignoreSubmodules=dirty",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "log.showSignature=false",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "safe.bareRepository=explicit",
    "status.submoduleSummary=false",
    "submodule.recurse=false",
];

/// Disables the project's hooks and fetching, too.
const READ_ONLY_CONFIG: &[&str] =
    &["core.hooksPath=/dev/null", "core.sshCommand=false", "credential.helper="];

const READ_ONLY_ENV: &[(&str, &str)] =
    &[("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitPurpose {
    /// Reads, or changes only git's own data.
    ReadOnly,
    /// Does what the user would do, with the project's hooks: a commit, a checkout.
    Write,
}

pub fn git_args(
    purpose: GitPurpose,
    settings: &[OsString],
    command: &[impl AsRef<OsStr>],
) -> Vec<OsString> {
    let extra = if purpose == GitPurpose::ReadOnly { READ_ONLY_CONFIG } else { &[] };
    let base = BASE_CONFIG.iter().chain(extra).map(OsString::from);
    let settings = base.chain(settings.iter().cloned());
    let settings = settings.flat_map(|setting| [OsString::from("-c"), setting]);
    settings.chain(command.iter().map(|word| word.as_ref().to_owned())).collect()
}

/// Lists filter drivers as NUL-terminated keys. Exits with 1 if there are none.
pub const LIST_FILTERS_ARGS: [&str; 5] =
    ["config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"];

/// The configuration is the user's, but `.gitattributes` is not: an agent can attach a filter to
/// any file, and git would run it outside the sandbox. Without the filter, a filtered file counts
/// as changed once its size or time differs.
pub fn disable_filters_config(keys: &[u8]) -> Vec<OsString> {
    let keys = keys.split(|byte| *byte == 0);
    let names = keys.filter_map(|key| {
        let end = key.iter().rposition(|byte| *byte == b'.')?;
        Some(key.get(..end)?.to_owned())
    });
    let names: BTreeSet<Vec<u8>> = names.filter(|name| !name.is_empty()).collect();
    let off = ["clean=", "smudge=", "process=", "required=false"];
    let setting =
        |name: &[u8], off: &str| OsString::from_vec([name, b".", off.as_bytes()].concat());
    names.iter().flat_map(|name| off.map(|off| setting(name, off))).collect()
}

pub fn git_env(purpose: GitPurpose) -> Vec<(OsString, Option<OsString>)> {
    let extra = if purpose == GitPurpose::ReadOnly { READ_ONLY_ENV } else { &[] };
    extra.iter().map(|(name, value)| (name.into(), Some(value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_git_filter_is_disabled_once() {
        let settings =
            disable_filters_config(b"filter.lfs.clean\0filter.lfs.process\0filter.a.b.clean\0");
        let settings: Vec<_> = settings.iter().map(|setting| setting.to_str().unwrap()).collect();
        let lfs = ["filter.lfs.clean=", "filter.lfs.smudge=", "filter.lfs.process="];
        assert!(lfs.iter().all(|setting| settings.contains(setting)), "{settings:?}");
        assert!(settings.contains(&"filter.a.b.required=false"), "{settings:?}");
        assert_eq!(settings.len(), 8);
        assert!(disable_filters_config(b"").is_empty());
    }
}
