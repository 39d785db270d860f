//! How git is called outside of a sandbox, in a repository that agents have worked in.
//!
//! git executes much that a repository names. The configuration of the project's own repository is the user's,
//! and kept from agents in a sandbox; but a repository inside of the work tree, or a directory that looks like
//! one, is made by whoever writes files. So git is told to execute nothing that it need not, and to look into
//! no repository but the one that was meant. `-c` reaches what git starts in a submodule, too.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// What is not wanted of any call: a file system monitor, submodules, helpers for addresses, work in the
/// background; and a bare repository that is in the way (`HEAD`, `objects`, `refs` and `config` in a directory).
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

/// What a look needs even less: the project's own hooks, and whatever fetches what is missing.
const READ_ONLY_CONFIG: &[&str] =
    &["core.hooksPath=/dev/null", "core.sshCommand=false", "credential.helper="];

const READ_ONLY_ENV: &[(&str, &str)] =
    &[("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// What git is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitPurpose {
    /// To know something, or to change what only git keeps.
    ReadOnly,
    /// To do what the user would do by hand, with the hooks of the project's own: a commit, a checkout.
    Write,
}

/// The whole command line, but for the program. `settings` are added to those of every call.
pub fn git_args(
    purpose: GitPurpose,
    settings: &[OsString],
    command: &[impl AsRef<OsStr>],
) -> Vec<OsString> {
    let more = if purpose == GitPurpose::ReadOnly { READ_ONLY_CONFIG } else { &[] };
    let always = BASE_CONFIG.iter().chain(more).map(OsString::from);
    let settings = always.chain(settings.iter().cloned());
    let settings = settings.flat_map(|setting| [OsString::from("-c"), setting]);
    settings.chain(command.iter().map(|word| word.as_ref().to_owned())).collect()
}

/// Asks git for the keys of all filter drivers, each followed by a zero byte. The exit code is 1 if there are none.
pub const LIST_FILTERS_ARGS: [&str; 5] =
    ["config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"];

/// The settings for a look that switch these filter drivers off.
///
/// The configuration is the user's, but `.gitattributes` is not: an agent may attach a filter to any file, and git would
/// run it outside the sandbox to compare that file with the index. Without the filter, a filtered file counts as
/// changed once its size or time differs from the index, even if the filter would make the content the same.
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

/// What git has in its environment besides.
pub fn git_env(purpose: GitPurpose) -> Vec<(OsString, Option<OsString>)> {
    let more = if purpose == GitPurpose::ReadOnly { READ_ONLY_ENV } else { &[] };
    more.iter().map(|(name, value)| (name.into(), Some(value.into()))).collect()
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
