//! `.ralph/runs`: a link for people to the runs in ralph's home. It also tells that a project was
//! moved or copied.
//!
//! An agent can change it, so it is only ever read as text: nothing is opened through it.

use std::io;
use std::path::PathBuf;

use super::project::Project;
use super::project_record::{is_project_dir, projects_dir};
use super::safe_fs;

fn path(project: &Project) -> PathBuf {
    project.ralph_dir().join("runs")
}

/// Whether the project has runs of version 0.1, which stored them here.
pub(super) fn is_directory(project: &Project) -> bool {
    path(project).symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// Creates or corrects the link. Leaves a file or directory of that name alone.
pub(super) fn create(project: &Project) -> io::Result<()> {
    let path = path(project);
    safe_fs::check_inside(project.root(), &path)?;
    match std::fs::read_link(&path) {
        Ok(target) if target == project.runs_dir() => return Ok(()),
        Ok(_) => std::fs::remove_file(&path)?,
        Err(_) => {}
    }
    std::os::unix::fs::symlink(project.runs_dir(), &path)
}

/// The project directory in ralph's home that the link names, if it is not the project's own.
pub(super) fn other_project(project: &Project) -> Option<PathBuf> {
    let target = std::fs::read_link(path(project)).ok()?;
    let dir = target.parent().filter(|_| target.ends_with("runs"))?;
    let is_project = dir.parent() == Some(&projects_dir(project.ralph_home()))
        && dir.file_name().is_some_and(is_project_dir);
    (is_project && dir != project.state_dir()).then(|| dir.to_owned())
}
