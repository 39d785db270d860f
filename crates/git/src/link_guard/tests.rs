use std::fs;
use std::os::unix::fs::symlink;

use ralph_store::project_record;

use super::walk::{FSMONITOR_SOCKET, MAX_DEPTH};
use super::*;

struct Scene {
    _temp: tempfile::TempDir,
    home: PathBuf,
    root: PathBuf,
    git: PathBuf,
}

fn scene() -> Scene {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let git = dir.join("project/.git");
    for subdir in ["objects/info", "objects/ab", "refs/heads", "logs/refs", "modules/a/refs"] {
        fs::create_dir_all(git.join(subdir)).unwrap();
    }
    symlink("../elsewhere", git.join("kept")).unwrap();
    symlink("../elsewhere", git.join("logs/kept")).unwrap();
    Scene { home: dir.join("home"), root: dir.join("project"), git, _temp: temp }
}

impl Scene {
    fn start(&self) -> (LinkGuard, Vec<String>) {
        LinkGuard::start(Some(&self.home), &self.root).unwrap()
    }

    fn plant(&self, name: &str) -> PathBuf {
        symlink("/planted", self.git.join(name)).unwrap();
        self.git.join(name)
    }

    fn open_runs(&self) -> usize {
        project_record::all_records(&self.home)[0].git.as_ref().unwrap().open_runs.len()
    }
}

#[test]
fn new_links_are_moved_to_top_of_git_directory() {
    let scene = scene();
    let (guard, warnings) = scene.start();
    assert!(warnings.is_empty());
    assert!(guard.check().unwrap().is_empty());
    let names = ["HEAD", "logs/HEAD", "objects/info/x", "refs/heads/main", "modules/a/refs/x"];
    let planted = names.map(|name| scene.plant(name));
    let object = scene.plant("objects/ab/cd");
    let warnings = guard.check().unwrap();
    assert_eq!(warnings.len(), 1, "one warning for all");
    assert!(warnings[0].contains("logs/HEAD -> /planted (now "), "{warnings:?}");
    assert!(planted.iter().all(|path| !path.is_symlink()));
    for name in ["HEAD", "HEAD.1", "x", "x.1", "main"] {
        let (name, number) = name.split_once('.').unwrap_or((name, ""));
        let dot = if number.is_empty() { "" } else { "." };
        let moved = scene.git.join(format!("{name}.from-sandbox{dot}{number}"));
        assert!(moved.is_symlink(), "{}", moved.display());
    }
    assert!(object.is_symlink(), "loose objects are replaced, not followed");
    assert!(guard.check().unwrap().is_empty(), "what was moved stays there");
    assert!(scene.git.join("kept").is_symlink() && scene.git.join("logs/kept").is_symlink());
}

#[test]
fn link_in_log_of_branch_named_objects_is_moved() {
    let scene = scene();
    let dirs = ["logs/refs/heads/objects/ab", "lfs/objects/ab", "modules/a/logs/objects/ab"];
    dirs.iter().for_each(|dir| fs::create_dir_all(scene.git.join(dir)).unwrap());
    fs::write(scene.git.join("modules/a/logs/HEAD"), "").unwrap();
    let (guard, _) = scene.start();
    let planted = dirs.map(|dir| scene.plant(&format!("{dir}/x")));
    assert_eq!(guard.check().unwrap().len(), 1);
    assert!(planted.iter().all(|path| !path.is_symlink()));
}

#[test]
fn new_pipes_and_sockets_are_moved_except_fsmonitor() {
    use std::os::unix::net::UnixListener;
    let scene = scene();
    let mkfifo = |path: &Path| ralph_process::create_named_pipe(path).unwrap();
    mkfifo(&scene.git.join("own"));
    let (guard, _) = scene.start();
    let pipes = ["index", "logs/HEAD", "refs/heads/main"].map(|name| scene.git.join(name));
    pipes.iter().for_each(|path| mkfifo(path));
    let _sockets =
        ["socket", FSMONITOR_SOCKET].map(|name| UnixListener::bind(scene.git.join(name)));
    let warnings = guard.check().unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("new pipes, sockets or devices in"), "{warnings:?}");
    assert!(pipes.iter().all(|path| path.symlink_metadata().is_err()));
    assert!(!scene.git.join("socket").exists() && scene.git.join(FSMONITOR_SOCKET).exists());
    assert!(scene.git.join("own").exists(), "it was there when the run started");
    assert!(guard.check().unwrap().is_empty());
}

#[test]
fn links_of_git_and_editors_are_kept() {
    let scene = scene();
    fs::create_dir_all(scene.git.join("worktrees/w")).unwrap();
    fs::create_dir_all(scene.git.join("refs/remotes/origin")).unwrap();
    let (guard, _) = scene.start();
    for (name, target) in [
        ("HEAD", "refs/heads/main"),
        ("worktrees/w/HEAD", "refs/heads/w"),
        ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"),
        (".#config", "me@host.1234:5678"),
    ] {
        symlink(target, scene.git.join(name)).unwrap();
        assert!(guard.check().unwrap().is_empty(), "{name}");
    }
    for (name, target) in [
        ("refs/heads/a", "../../hooks/x"),
        ("refs/heads/b", "/planted"),
        ("logs/HEAD", "refs/heads/main"),
        ("worktrees/.#x", "/home/me@host"),
        ("worktrees/w/logs", "refs/heads"),
    ] {
        symlink(target, scene.git.join(name)).unwrap();
        assert_eq!(guard.check().unwrap().len(), 1, "{name}");
    }
}

#[test]
fn too_deeply_nested_git_directory_is_named_in_error() {
    let scene = scene();
    let (guard, _) = scene.start();
    fs::create_dir_all(scene.git.join("x/y/z").join("d/".repeat(MAX_DEPTH))).unwrap();
    let error = guard.check().unwrap_err().to_string();
    let named = format!("cannot check {} for links", scene.git.join("x/y/z").display());
    assert!(error.starts_with(&named), "{error}");
}

#[test]
fn write_is_refused_while_other_agent_works() {
    let scene = scene();
    let (guard, _) = scene.start();
    guard.refuse_other_agents(Some(&scene.home)).unwrap();
    let record = Project::new(&scene.root, &scene.home);
    let parent = std::os::unix::process::parent_id();
    record.update_record(|record| record.git.as_mut().unwrap().open_runs.push(parent)).unwrap();
    let error = guard.refuse_other_agents(Some(&scene.home)).unwrap_err();
    assert!(error.to_string().contains(&format!("(pid {parent})")), "{error}");
    assert!(hint(&error).contains("stop that run"), "{}", hint(&error));
}

#[test]
fn changed_link_is_restored_and_removed_link_stays_gone() {
    let scene = scene();
    let (guard, _) = scene.start();
    fs::remove_file(scene.git.join("kept")).unwrap();
    assert!(guard.check().unwrap().is_empty());
    scene.plant("kept");
    assert_eq!(guard.check().unwrap().len(), 1);
    assert_eq!(fs::read_link(scene.git.join("kept")).unwrap(), Path::new("../elsewhere"));
}

#[test]
fn links_of_killed_run_are_moved_and_user_links_are_kept() {
    let scene = scene();
    let (guard, _) = scene.start();
    drop(guard);
    assert_eq!(scene.open_runs(), 1);
    let planted = scene.plant("index");
    let (guard, warnings) = scene.start();
    assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
    assert!(guard.finish().unwrap().is_empty());
    assert_eq!(scene.open_runs(), 0);
    let own = scene.plant("index");
    let (_, warnings) = scene.start();
    assert!(warnings.is_empty() && own.is_symlink(), "{warnings:?}");
}

#[test]
fn replaced_git_directory_is_error_and_not_searched() {
    let scene = scene();
    let (guard, _) = scene.start();
    let other = scene.root.join("other");
    fs::rename(&scene.git, &other).unwrap();
    fs::write(&scene.git, "gitdir: other\n").unwrap();
    let error = guard.check().unwrap_err();
    let record = Project::new(&scene.root, &scene.home).record_file();
    assert!(hint(&error).contains(record.to_str().unwrap()), "{}", hint(&error));
    let error = error.to_string();
    assert!(error.contains("was replaced during the run"), "{error}");
    fs::remove_file(&scene.git).unwrap();
    symlink("other", &scene.git).unwrap();
    guard.check().unwrap();
    assert!(!scene.git.is_symlink() && scene.root.join(".git.from-sandbox").is_symlink());
    assert!(other.join("kept").is_symlink());
    fs::rename(&other, &scene.git).unwrap();
    assert!(guard.check().unwrap().is_empty());
}

#[test]
fn links_in_common_directory_count_for_every_worktree() {
    let scene = scene();
    let tree = scene.root.with_file_name("tree");
    let own = scene.git.join("worktrees/tree");
    fs::create_dir_all(&own).unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    fs::write(own.join("commondir"), "../..\n").unwrap();
    let (guard, _) = LinkGuard::start(Some(&scene.home), &tree).unwrap();
    drop(guard);
    let check = |paths: &RepositoryPaths<'_>| {
        quarantine_new_links(paths, &open_records(Some(&scene.home), paths))
    };
    let planted = scene.plant("packed-refs");
    let paths = RepositoryPaths { directory: &scene.root, git_dir: None };
    assert_eq!(check(&paths).unwrap().len(), 1);
    assert!(!planted.is_symlink());
    let planted = scene.plant("packed-refs");
    let paths = RepositoryPaths { directory: Path::new("/"), git_dir: Some(&scene.git) };
    assert_eq!(check(&paths).unwrap().len(), 1);
    assert!(!planted.is_symlink());
    let record = Project::new(&tree, &scene.home);
    let gone = i32::MAX.unsigned_abs();
    record.update_record(|record| record.git.as_mut().unwrap().open_runs = vec![gone]).unwrap();
    let planted = scene.plant("packed-refs");
    let (guard, warnings) = scene.start();
    assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
    guard.finish().unwrap();
    let own = scene.plant("packed-refs");
    assert!(check(&RepositoryPaths { directory: &scene.root, git_dir: None }).unwrap().is_empty());
    assert!(own.is_symlink());
}
