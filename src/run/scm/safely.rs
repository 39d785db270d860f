//! How git is called outside of a sandbox, in a repository that agents have worked in.
//!
//! git executes much that a repository names. The configuration of the project's own repository is the user's,
//! and kept from agents in a sandbox; but a repository inside of the work tree, or a directory that looks like
//! one, is made by whoever writes files. So git is told to execute nothing that it need not, and to look into
//! no repository but the one that was meant. `-c` reaches what git starts in a submodule, too.

use std::ffi::{OsStr, OsString};

/// What is not wanted of any call: a file system monitor, submodules, helpers for addresses, work in the
/// background; and a bare repository that is in the way (`HEAD`, `objects`, `refs` and `config` in a directory).
const ALWAYS: &[&str] = &[
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
const FOR_A_LOOK: &[&str] =
    &["core.hooksPath=/dev/null", "core.sshCommand=false", "credential.helper="];

const ENV_FOR_A_LOOK: &[(&str, &str)] =
    &[("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// What git is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Purpose {
    /// To know something, or to change what only git keeps.
    Look,
    /// To do what the user would do by hand, with the hooks of the project's own: a commit, a checkout.
    Work,
}

/// The whole command line, but for the program.
pub(in crate::run) fn words(purpose: Purpose, command: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    let more = if purpose == Purpose::Look { FOR_A_LOOK } else { &[] };
    let settings = ALWAYS.iter().chain(more);
    let settings = settings.flat_map(|setting| ["-c", setting]).map(OsString::from);
    settings.chain(command.iter().map(|word| word.as_ref().to_owned())).collect()
}

/// What git has in its environment besides.
pub(in crate::run) fn env(purpose: Purpose) -> Vec<(OsString, Option<OsString>)> {
    let more = if purpose == Purpose::Look { ENV_FOR_A_LOOK } else { &[] };
    more.iter().map(|(name, value)| (name.into(), Some(value.into()))).collect()
}
