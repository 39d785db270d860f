//! Converts a plan to read and write grants for Landlock, which can only allow.

use std::path::{Path, PathBuf};

use crate::plan::{Disk, Mount, SandboxPlan};

/// Each path includes everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Grants {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// Without `/dev/pts`: access to one's own terminal there includes the user's other terminals.
pub(super) const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

pub(super) fn landlock_grants(plan: &SandboxPlan, disk: &dyn Disk) -> Grants {
    let mut hidden: Vec<&Path> = vec![Path::new("/dev")];
    let mut grants = Grants::default();
    for mount in &plan.mounts {
        match mount {
            Mount::EmptyDir { at } | Mount::EmptyFile { at } => hidden.push(at),
            Mount::ReadOnly { from, at } if from == at => grants.read.push(at.clone()),
            // Landlock cannot relocate; allow it in place.
            Mount::ReadOnly { from, .. } => grants.read.push(from.clone()),
            Mount::Writable { from, at } => {
                if from != at {
                    hidden.push(at);
                }
                grants.write.push(from.clone());
            }
        }
    }
    add_visible(Path::new("/"), &hidden, disk, &mut grants.read);
    // Secrets cannot be excluded from a grant: grant their neighbours one by one.
    let secrets: Vec<&Path> = plan
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::EmptyFile { at } | Mount::EmptyDir { at } => Some(at.as_path()),
            _ => None,
        })
        .collect();
    let contains_secret = |path: &Path| secrets.iter().any(|secret| secret.starts_with(path));
    let (allowed, parts): (Vec<_>, Vec<_>) =
        grants.read.into_iter().partition(|path| !contains_secret(path));
    grants.read = allowed;
    for part in parts {
        add_visible(&part, &secrets, disk, &mut grants.read);
    }
    for list in [&mut grants.read, &mut grants.write] {
        list.sort();
        list.dedup();
    }
    // A writable parent covers these. A separate grant could be turned into a link by the agent.
    let writable = grants.write.clone();
    let is_below =
        |path: &PathBuf| writable.iter().any(|above| above != path && path.starts_with(above));
    grants.read.retain(|path| !is_below(path) && !writable.contains(path));
    grants.write.retain(|path| !is_below(path));
    grants
}

/// Adds everything below `path` that is not hidden, with few entries.
fn add_visible(path: &Path, hidden: &[&Path], disk: &dyn Disk, out: &mut Vec<PathBuf>) {
    if hidden.contains(&path) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        out.push(path.to_owned());
        return;
    }
    for name in disk.list_names(path) {
        let below = path.join(name);
        // Landlock checks the target of a link.
        if disk.read_link(&below).is_none() {
            add_visible(&below, hidden, disk, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::build_plan;
    use crate::plan::tests::{MACHINE, Paper, linked_tools};

    #[test]
    fn grants_exclude_secrets_behind_links() {
        let (wanted, more) = linked_tools();
        let disk = Paper::new(&[MACHINE, &more].concat());
        let grants = landlock_grants(&build_plan(&wanted, &disk).unwrap(), &disk);
        for secret in [
            "/home/u/dotfiles/cargo/credentials.toml",
            "/home/u/dotfiles/git/credentials",
            "/home/u/dotfiles/git/deno-key",
            "/mnt/opam/plugins/opam-publish/token",
            "/opt/uv/credentials/tokens.toml",
        ] {
            let above = grants.read.iter().find(|path| Path::new(secret).starts_with(path));
            assert_eq!(above, None, "{secret}");
        }
        assert!(grants.read.contains(&"/home/u/dotfiles/cargo/bin".into()), "{grants:?}");
    }
}
