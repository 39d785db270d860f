//! Warnings and errors about links.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ralph_store::project_record::GitDirs;

use super::QuarantinedLink;

const MAX_NAMED: usize = 5;

pub(super) fn warning(moved: &[QuarantinedLink]) -> Option<String> {
    if moved.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = moved
        .iter()
        .take(MAX_NAMED)
        .map(|QuarantinedLink { path, target, to }| {
            format!("{} (now {})", describe(path, target), display_path(to))
        })
        .collect();
    if moved.len() > MAX_NAMED {
        shown.push(format!("{} more", moved.len() - MAX_NAMED));
    }
    let is_special = |moved: &QuarantinedLink| moved.target.as_os_str().is_empty();
    let (kind, why) = if !moved.iter().any(is_special) {
        ("symbolic links", "would follow them")
    } else if moved.iter().all(is_special) {
        ("pipes, sockets or devices", "could hang on them")
    } else {
        ("links and special files", "could follow or hang on them")
    };
    Some(format!(
        "new {kind} in the git directory were moved away, because git {why}: {}",
        shown.join(", ")
    ))
}

pub(super) fn describe(path: &Path, target: &Path) -> String {
    match target.as_os_str().is_empty() {
        true => format!("{} (a pipe, socket or device)", display_path(path)),
        false => format!("{} -> {}", display_path(path), display_path(target)),
    }
}

pub(super) fn display_path(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "?")
}

static PENDING_WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Queues each warning once.
pub fn queue_warnings(warnings: Vec<String>) {
    let mut pending = PENDING_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in warnings {
        if !pending.contains(&warning) {
            pending.push(warning);
        }
    }
}

pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *PENDING_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[derive(Debug)]
pub(super) struct LinkError {
    pub(super) message: String,
    pub(super) hint: String,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LinkError {}

pub(super) fn replaced_error(
    dot_git: &Path,
    was: Option<&GitDirs>,
    now: &GitDirs,
    record: Option<&Path>,
) -> io::Error {
    let was = was.map(|was| format!(" (before: {})", display_path(&was.git_dir)));
    let message = format!(
        "{} was replaced during the run: it now points to {}{}",
        display_path(dot_git),
        display_path(&now.git_dir),
        was.unwrap_or_default()
    );
    let restore = "restore it if the agent did this".to_owned();
    let hint = record.map_or(restore.clone(), |record| {
        let record = display_path(record);
        format!("{restore}; if you did, remove the key \"git\" from {record}")
    });
    io::Error::other(LinkError { message, hint })
}

pub fn hint(err: &io::Error) -> &str {
    let link_error = err.get_ref().and_then(|err| err.downcast_ref::<LinkError>());
    link_error.map_or("remove it if you did not create it", |link_error| &link_error.hint)
}
