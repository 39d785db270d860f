//! Makes a plan: hides the machine, shows what is needed, protects the project.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{
    Disk, ExpectedEntry, HostSystem, INSIDE_DIR, IsolationLayers, Mount, PathGuard, PlanError,
    PlanInputs, SandboxPlan,
};
use crate::places::{PLACES, RALPH_STATE_PATHS};
use crate::plan_builder::{PathTarget, PlanBuilder, settings_path};
use crate::{environment, git, home, tools};
use ralph_process::trust::AgentWritable;

/// Plans a sandbox.
///
/// # Errors
/// What to show and what to hide overlap.
pub fn build_plan(inputs: &PlanInputs, disk: &dyn Disk) -> Result<SandboxPlan, PlanError> {
    let known = inputs.agent_writable.union([inputs.project.clone()]);
    let first = build_plan_with(inputs, disk, known.clone())?;
    // Agents of earlier runs may have left links there.
    let writable = first.writable_sources(&inputs.scratch);
    if writable.is_empty() {
        return Ok(first);
    }
    build_plan_with(inputs, disk, known.union(writable))
}

fn build_plan_with(
    inputs: &PlanInputs,
    disk: &dyn Disk,
    agent_writable: AgentWritable,
) -> Result<SandboxPlan, PlanError> {
    let home = inputs.home.as_deref().and_then(|home| disk.stat(home)).filter(|home| home.is_dir);
    // Service users have `/` as their home, which is none.
    let home = home.map(|home| home.real).filter(|home| home != Path::new("/"));
    refuse_overlaps(inputs, home.as_deref()).map_err(PlanError::Path)?;
    let named_home = inputs.home.clone().zip(home.clone());
    let mut builder = PlanBuilder {
        disk,
        home: named_home,
        mounts: Vec::new(),
        hidden: Vec::new(),
        agent_writable,
        replaceable: BTreeSet::new(),
        skipped: BTreeSet::new(),
        notes: Vec::new(),
    };
    let scratch = |name: &str| inputs.scratch.join(name);

    let (hidden_dirs, hidden_files) = match inputs.system {
        HostSystem::Linux => (&PLACES.hidden_dirs, &PLACES.hidden_files),
        HostSystem::MacOs => (&PLACES.hidden_dirs_macos, &PLACES.hidden_files_macos),
    };
    for dir in hidden_dirs {
        builder.hide(Path::new(dir));
    }
    builder.hide(&inputs.ralph_home);
    let ssh = Path::new("/etc/ssh");
    let keys =
        disk.list_names(ssh).into_iter().filter(|name| name.as_encoded_bytes().ends_with(b"_key"));
    let files = hidden_files.iter().map(PathBuf::from).chain(keys.map(|name| ssh.join(name)));
    let is_secret = |file: &Path| disk.stat(file).is_some_and(|found| !found.is_dir);
    // Unreadable files need no mount; each costs time at every start.
    for file in files.filter(|file| is_secret(file) && disk.is_accessible(file)) {
        builder.mounts.push(Mount::EmptyFile { at: file });
    }
    for path in &PLACES.shown_dirs {
        builder.show("system directory", Path::new(path), false);
    }
    for (name, place) in [("tmp", "/tmp"), ("var-tmp", "/var/tmp")] {
        if let Some(found) = disk.stat(Path::new(place)) {
            builder.replace(&found.real, scratch(name));
        }
    }
    let mut copies = Vec::new();
    if let Some(home) = &home {
        builder.replace(home, scratch("home"));
        copies = home::show_home(&mut builder, home, &scratch("home"), inputs);
    }
    let variable = |name: &str| environment::get(&inputs.env, name);
    tools::show_tools(&mut builder, home.as_deref(), inputs);
    for name in &PLACES.certificate_variables {
        if let Some(path) = variable(name) {
            builder.show_hidden(name, Path::new(path));
        }
    }
    if let Some(agent) = &inputs.agent
        && let Some(found) = builder.find_shown("agent program", agent)
    {
        builder.show_hidden("agent program", package_dir(&found.real));
        builder.show_hidden("agent program", agent);
    }
    // The settings below may show them again.
    tools::hide_secrets(&mut builder, home.as_deref(), inputs);
    for (paths, writable, key) in
        [(&inputs.readable, false, "readable"), (&inputs.writable, true, "writable")]
    {
        for path in paths {
            let path = settings_path(path, &inputs.project, home.as_deref());
            if let PathTarget::Inside(_) = builder.resolve_target(&path)
                && let Some(hidden) = builder.hidden_below(&path, &inputs.scratch)
            {
                return Err(PlanError::Setting(format!(
                    "sandbox.{key}: {} contains {}, which must stay hidden; list only the parts \
                     that the agent needs",
                    path.display(),
                    hidden.display()
                )));
            }
            if let PathTarget::Missing = builder.resolve_target(&path) {
                builder.notes.push(format!("sandbox.{key}: {} does not exist", path.display()));
            }
            builder.show(&format!("sandbox.{key}"), &path, writable);
        }
    }

    let repository = git::find_repository(&mut builder, &inputs.project, home.as_deref());
    if let Some(repository) = &repository
        && repository.top != inputs.project
    {
        builder.show("repository", &repository.top, false);
    }
    builder.show("project", &inputs.project, true);
    let mut guards = Vec::new();
    git::protect_git_entry(&inputs.project, &mut builder, &mut guards);
    if let Some(repository) = &repository {
        git::protect(repository, &mut builder, &mut guards);
    }
    protect_project(&inputs.project, &mut builder, &mut guards);
    for root in &inputs.nested_projects {
        protect_nested(root, home.as_deref(), &mut builder, &mut guards);
    }

    builder.hide_sockets(inputs);

    let inside = Path::new(INSIDE_DIR);
    let ralph = disk.stat(&inputs.ralph).map_or_else(|| inputs.ralph.clone(), |found| found.real);
    builder.mounts.push(Mount::ReadOnly { from: ralph, at: inside.join("ralph") });
    // Root could do more inside, and some agents refuse to run as root.
    let user = if inputs.user.0 == 0 { (1000, 1000) } else { inputs.user };
    let mut files = Vec::new();
    for (name, text) in environment::account_files(disk, user, home.as_deref(), variable("USER")) {
        let at = Path::new("/etc").join(name);
        files.push((scratch(name), text));
        builder.mounts.push(Mount::ReadOnly { from: scratch(name), at });
    }
    let (env, withheld) = environment::env_changes(inputs, home.as_deref(), &builder);
    let dirs = ["home", "tmp", "var-tmp"].map(scratch).to_vec();
    builder.drop_covered();
    let PlanBuilder { mounts, mut replaceable, notes, .. } = builder;
    // Mounts protect these from being replaced.
    replaceable.retain(|source| {
        let is_inside = |at: &Path| at == source && at.starts_with(&inputs.project);
        mounts.iter().any(|mount| mount.source() == Some(source) && !is_inside(mount.at()))
    });
    let network = inputs.network.clone();
    let kernel = if inputs.user.0 == 0 { kernel(disk) } else { Vec::new() };
    // Parents first.
    guards.sort();
    guards.dedup();
    let isolation = IsolationLayers::ALL;
    Ok(SandboxPlan {
        mounts,
        kernel,
        copies,
        files,
        dirs,
        guards,
        env,
        withheld,
        network,
        user,
        isolation,
        notes,
        project: inputs.project.clone(),
        replaceable_sources: replaceable,
    })
}

fn kernel(disk: &dyn Disk) -> Vec<Mount> {
    let existing = |path: &&&str| disk.stat(Path::new(path)).is_some();
    let hidden = PLACES.hidden_kernel_dirs.iter().filter(existing);
    let readable = PLACES.readable_kernel_paths.iter().filter(existing);
    hidden
        .map(|at| Mount::EmptyDir { at: at.into() })
        .chain(readable.map(|at| Mount::ReadOnly { from: at.into(), at: at.into() }))
        .collect()
}

/// Refuses directories inside each other: hiding one would hide the other.
fn refuse_overlaps(inputs: &PlanInputs, home: Option<&Path>) -> Result<(), String> {
    let project = &inputs.project;
    if let Some(home) = home
        && home.starts_with(project)
    {
        let what = if home == project { "is" } else { "contains" };
        return Err(format!(
            "the project {what} the home directory {}, which a sandbox must hide; move the \
             project to its own directory",
            home.display()
        ));
    }
    let system_dirs = match inputs.system {
        HostSystem::Linux => &PLACES.system_dirs,
        HostSystem::MacOs => &PLACES.system_dirs_macos,
    };
    if system_dirs.iter().any(|system| Path::new(system) == project) {
        return Err(format!(
            "{} is a system directory, which a sandbox cannot isolate; move the project to its \
             own directory",
            project.display()
        ));
    }
    if inputs.scratch.starts_with(project) {
        return Err(format!(
            "ralph's own files in {} are inside the project; set RALPH_HOME to another directory",
            inputs.scratch.display()
        ));
    }
    Ok(())
}

/// Protects the files of `places.json`.
fn protect_project(project: &Path, builder: &mut PlanBuilder<'_>, guards: &mut Vec<PathGuard>) {
    for (dir, names) in &PLACES.protected_dirs {
        let dir = project.join(dir);
        // `.clinerules` and `.jj/repo` can also be files.
        let is_file = |path: &Path| {
            builder.disk.read_link(path).is_none()
                && builder.disk.stat(path).is_some_and(|it| !it.is_dir)
        };
        if is_file(&dir) {
            builder.protect_one(&dir, guards);
            continue;
        }
        if dir.parent().is_some_and(is_file) {
            continue;
        }
        let mut names: BTreeSet<OsString> = names.iter().map(OsString::from).collect();
        names.extend(builder.disk.list_names(&dir).into_iter().filter(|name| {
            let name = builder.names().key(name);
            name.as_encoded_bytes().starts_with(b"settings")
                && name.as_encoded_bytes().ends_with(b".json")
        }));
        builder.protect(&dir, names.iter().map(OsString::as_os_str), guards);
    }
    for name in &PLACES.protected_paths {
        builder.protect_one(&project.join(name), guards);
    }
    // A new repository would bring its own configuration.
    for name in [".hg", ".jj"] {
        let dir = project.join(name);
        if builder.disk.stat(&dir).is_none() && builder.disk.read_link(&dir).is_none() {
            guards.retain(|guard| !guard.path.starts_with(&dir));
            guards.push(PathGuard { path: dir, was: ExpectedEntry::Nothing });
        }
    }
}

/// Protects another project of ralph: its next run obeys the settings there.
fn protect_nested(
    root: &Path,
    home: Option<&Path>,
    builder: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    // A link does not lead to the known project.
    let has_links = root.ancestors().any(|dir| builder.disk.read_link(dir).is_some());
    if has_links || !builder.is_writable(root) {
        return;
    }
    let mut nested = Vec::new();
    let is_there = builder.disk.stat(root).is_some_and(|found| found.is_dir);
    builder.protect_ancestors(root, is_there, &mut nested);
    if is_there {
        git::protect_git_entry(root, builder, &mut nested);
        if let Some(repository) = git::find_repository(builder, root, home)
            && repository.is_in(root)
        {
            git::protect(&repository, builder, &mut nested);
        }
    }
    protect_project(root, builder, &mut nested);
    // A run of that project may create these meanwhile.
    let created = [&RALPH_STATE_PATHS[..], &[".ralph/.gitignore"]].concat();
    let is_created = |path: &Path| created.iter().any(|name| path == root.join(name));
    nested.retain(|guard| guard.was != ExpectedEntry::Nothing || !is_created(&guard.path));
    guards.append(&mut nested);
}

/// The directory that a program needs: for npm, all of `node_modules`.
fn package_dir(program: &Path) -> &Path {
    program
        .ancestors()
        .filter(|path| path.file_name() == Some(OsStr::new("node_modules")))
        .last()
        .or_else(|| program.parent())
        .unwrap_or(program)
}
