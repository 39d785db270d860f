//! A plan as a list of what may be read and what may be written, for Landlock, which can only allow.

use std::path::{Path, PathBuf};

use super::plan::{Disk, Mount, SandboxPlan};

/// What may be used; everything below a path with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Grants {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// Devices that every program may use. The others are not needed. Not among them are `/dev/pts`: whoever may use the
/// terminal that they have just made may use the user's others as well, read what is typed there and write to it.
pub(super) const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

pub(super) fn landlock_grants(plan: &SandboxPlan, disk: &dyn Disk) -> Grants {
    let mut hidden: Vec<&Path> = vec![Path::new("/dev")];
    let mut grants = Grants::default();
    for mount in &plan.mounts {
        match mount {
            Mount::EmptyDir { at } | Mount::EmptyFile { at } => hidden.push(at),
            Mount::ReadOnly { from, at } if from == at => grants.read.push(at.clone()),
            // What is at another place inside cannot be; but it may be used where it is.
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
    // Secrets in the middle of what is shown cannot be taken out of it again: what holds one is shown
    // without it.
    let secrets: Vec<&Path> = plan
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mount::EmptyFile { at } | Mount::EmptyDir { at } => Some(at.as_path()),
            _ => None,
        })
        .collect();
    let holds = |path: &Path| secrets.iter().any(|secret| secret.starts_with(path));
    let (whole, parts): (Vec<_>, Vec<_>) = grants.read.into_iter().partition(|path| !holds(path));
    grants.read = whole;
    for part in parts {
        add_visible(&part, &secrets, disk, &mut grants.read);
    }
    for list in [&mut grants.read, &mut grants.write] {
        list.sort();
        list.dedup();
    }
    // What is below something writable may be used by that. The agent could replace it by a link.
    let writable = grants.write.clone();
    let is_below =
        |path: &PathBuf| writable.iter().any(|above| above != path && path.starts_with(above));
    grants.read.retain(|path| !is_below(path) && !writable.contains(path));
    grants.write.retain(|path| !is_below(path));
    grants
}

/// Adds what is below `path` but not hidden, in as few steps as possible.
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
        // Links are followed when they are used, and judged by where they lead.
        if disk.read_link(&below).is_none() {
            add_visible(&below, hidden, disk, out);
        }
    }
}
