//! Symbolic links in git directories that would lead git, outside the sandbox, to the user's files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;

use crate::landlock;
use crate::scene::{OTHER_USER, give};
use crate::support::{LONG, Project, Ralph, skipped, wait_until};

/// Replaced by links to the user's files.
const FILES: [&str; 3] = ["COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads/main"];
/// Replaced by links to files that git would create.
const ABSENT: [&str; 2] = ["index", "packed-refs"];
const DIRECTORIES: [&str; 4] = ["worktrees", "objects/info", "refs/tags", "modules"];
const VITAL: [&str; 2] = ["logs", "refs/heads"];

const MOVED: &str = "in the git directory were moved away";

/// A repository with a task list, and a home whose files must not change.
pub(crate) struct Scene {
    pub(crate) project: Project,
    user: u32,
    sandbox: &'static str,
}

impl Scene {
    pub(crate) fn new(sandbox: &'static str, user: u32) -> Option<Scene> {
        if user != 0 && rustix::process::getuid().as_raw() != 0 {
            skipped("only the administrator can become another user");
            return None;
        }
        let project = Project::git();
        let scene = Scene { project, user, sandbox };
        let project = &scene.project;
        project.ralph(["new", "Shop"]).run().success();
        project.ralph(["tasks", "add", "First", "--criterion", "c"]).run().success();
        let outside = json!({"scm": {"tasks": ["commit"]}, "sandbox": {"guardrails": false}});
        project.settings(&outside).write("file", "one\n");
        project.git_command(["add", "-A"]);
        project.git_command(["commit", "-qm", "Begin"]);
        for name in FILES {
            let path = scene.victim(name);
            fs::create_dir_all(path.parent()?).unwrap();
            fs::write(path, "mine\n").unwrap();
        }
        for name in DIRECTORIES.iter().chain(&VITAL) {
            fs::create_dir_all(scene.victim(name).join("entry")).unwrap();
            fs::write(scene.victim(name).join("entry/file"), "mine\n").unwrap();
        }
        let root = project.path().parent()?;
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        give(root, user);
        let check = scene.ralph(&["sandbox", "check"]).run();
        let works = match sandbox {
            "--no-sandbox" => true,
            "--sandbox=landlock" => landlock::landlock_works(&Project::new()),
            _ => check.stdout.contains("ok      bwrap"),
        };
        if !works {
            skipped("this sandbox does not work here");
        }
        works.then_some(scene)
    }

    pub(crate) fn ralph(&self, args: &[&str]) -> Ralph {
        let ralph = env!("CARGO_BIN_EXE_ralph");
        let ralph = if self.user == 0 {
            self.project.ralph(args)
        } else {
            let id = self.user.to_string();
            let words = ["--reuid", &id, "--regid", &id, "--clear-groups", "--", ralph];
            self.project.program("setpriv", words).args(args)
        };
        ralph.env("PATH", "/usr/local/bin:/usr/bin:/bin")
    }

    fn victim(&self, name: &str) -> PathBuf {
        self.project.home().join("victims").join(name.replace('/', "-"))
    }

    fn link_script(&self, names: &[&str]) -> String {
        let lines = names.iter().map(|name| {
            let (victim, name) = (self.victim(name), format!(".git/{name}"));
            let parent = Path::new(&name).parent().unwrap().display().to_string();
            let victim = victim.display();
            format!("mkdir -p {parent}; mv {name} old.$$ 2>/dev/null; rm -rf old.$$; ln -s {victim} {name}\n")
        });
        lines.collect()
    }

    pub(crate) fn run(&self, script: &str) -> Ralph {
        self.project.write("agent.sh", script);
        give(self.project.path(), self.user);
        self.ralph(&["run", self.sandbox, "-p", "Work.", "-n", "1", "--", "sh", "agent.sh"])
    }

    #[track_caller]
    fn assert_untouched(&self, after: &str) {
        let mut found = BTreeMap::new();
        list(&self.project.home().join("victims"), &mut found);
        let files = FILES.map(|name| self.victim(name)).into_iter();
        let dirs = DIRECTORIES.iter().chain(&VITAL);
        let dirs = dirs.map(|name| self.victim(name).join("entry/file"));
        let expected: BTreeMap<PathBuf, String> =
            files.chain(dirs).map(|path| (path, "mine\n".to_owned())).collect();
        assert_eq!(found, expected, "{after}");
    }
}

fn list(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, found);
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.insert(path, text);
        }
    }
}

pub(crate) const MESSAGE: &str =
    "case \"$(cat)\" in *\"commit message\"*) echo Made; exit;; esac\n";
pub(crate) const DONE: &str = "echo '<response>DONE</response>'\n";

fn commit_of_run_follows_no_link(sandbox: &'static str, user: u32) {
    let Some(scene) = Scene::new(sandbox, user) else { return };
    let plant = scene.link_script(&[&FILES[..], &ABSENT, &DIRECTORIES].concat());
    // A directory that cannot be listed is checked, too.
    let script = format!("{MESSAGE}echo two > file\n{plant}chmod 311 .git/logs\n{DONE}");
    let output = scene.run(&script).run();
    scene.assert_untouched(&format!("{}{}", output.stdout, output.stderr));
    output.code(0).stderr_has(MOVED).stderr_has("logs/HEAD");
    assert_eq!(output.stderr.matches(MOVED).count(), 1, "said once: {}", output.stderr);
    assert!(!scene.project.path().join(".git/worktrees").exists());
    assert!(scene.project.path().join(".git/worktrees.from-sandbox").is_symlink());
    let output = scene.ralph(&["archive", "--force"]).run();
    output.code(0).stderr_lacks(MOVED).stdout_has("Committed as");
    scene.assert_untouched("archive");
}

fn missing_directories_are_not_followed(sandbox: &'static str, user: u32) {
    let Some(scene) = Scene::new(sandbox, user) else { return };
    let plant = scene.link_script(&VITAL);
    let output = scene.run(&format!("{MESSAGE}echo two > file\n{plant}{DONE}")).run();
    output.stderr_has(MOVED);
    scene.ralph(&["archive", "--force"]).run();
    scene.assert_untouched("archive");
}

/// ralph is killed before its check, and the next command calls git.
fn archive_after_kill_follows_no_link(sandbox: &'static str, user: u32) {
    let Some(scene) = Scene::new(sandbox, user) else { return };
    // The user's own links stay; one that the agent changed is restored.
    let user_link = scene.project.path().join(".git/own");
    symlink("hooks", &user_link).unwrap();
    let changed = scene.project.path().join(".git/changed");
    symlink("info", &changed).unwrap();
    let plant = scene.link_script(&[&FILES[..], &ABSENT, &DIRECTORIES].concat());
    // With landlock an agent can change the mode of any file of the user.
    let memory = scene.project.home().join(".ralph");
    let memory = memory.display();
    let script = format!(
        "{plant}ln -sfn /etc .git/changed; chmod 000 {memory}/projects {memory}/sandboxes {memory} 2>/dev/null
        touch planted; sleep 1000\n"
    );
    let running = scene.run(&script).start();
    scene.project.wait_for_file("planted");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    let output = scene.ralph(&["archive", "--force"]).run();
    scene.assert_untouched(&format!("{}{}", output.stdout, output.stderr));
    output.code(0).stderr_has(MOVED).stdout_has("Committed as");
    wait_until(LONG, || scene.project.processes().is_empty());
    assert_eq!(fs::read_link(&user_link).unwrap(), Path::new("hooks"));
    assert_eq!(fs::read_link(&changed).unwrap(), Path::new("info"));
    // After a run that ended with a check, a new link is the user's.
    scene.run(DONE).run().code(0).stderr_lacks(MOVED);
    let new = scene.project.path().join(".git/new");
    symlink("info", &new).unwrap();
    scene.run(DONE).run().code(0).stderr_lacks(MOVED);
    assert!(new.is_symlink() && user_link.is_symlink());
}

fn attack(sandbox: &'static str, user: u32) {
    commit_of_run_follows_no_link(sandbox, user);
    missing_directories_are_not_followed(sandbox, user);
    archive_after_kill_follows_no_link(sandbox, user);
}

#[test]
fn git_links_from_bwrap_are_not_followed() {
    attack("--sandbox=bwrap", 0);
}

#[test]
fn git_links_from_bwrap_of_ordinary_user_are_not_followed() {
    attack("--sandbox=bwrap", OTHER_USER);
}

#[test]
fn git_links_from_landlock_are_not_followed() {
    attack("--sandbox=landlock", 0);
}

#[test]
fn git_links_from_landlock_of_ordinary_user_not_followed() {
    attack("--sandbox=landlock", OTHER_USER);
}

#[test]
fn git_links_without_sandbox_are_not_followed() {
    attack("--no-sandbox", 0);
    attack("--no-sandbox", OTHER_USER);
}

/// An agent in a worktree can write to the common git directory.
#[test]
fn git_links_from_worktree_are_not_followed_in_main_tree() {
    let Some(scene) = Scene::new("--sandbox=bwrap", 0) else { return };
    let tree = scene.project.sibling("tree");
    scene.project.git_command(["worktree", "add", "-q", tree.to_str().unwrap()]);
    let names = ["COMMIT_EDITMSG", "logs/HEAD", "packed-refs"];
    let plant = scene.link_script(&names).replace(".git/", "\"$common\"/");
    let script = format!(
        "common=$(git rev-parse --git-common-dir)\n{plant}touch planted; sleep 1000\n{DONE}"
    );
    fs::write(tree.join("agent.sh"), script).unwrap();
    let args = ["run", "--sandbox=bwrap", "-p", "x", "-n", "1", "-C", tree.to_str().unwrap()];
    let running = scene.ralph(&args).args(["--", "sh", "agent.sh"]).start();
    scene.project.wait_for_file(tree.join("planted"));
    // While that run is active it could restore the links, so git must not write.
    let output = scene.ralph(&["archive", "--force"]).run();
    output.stderr_has(MOVED).stderr_has("creates links in the git directory");
    output.stderr_has("stop that run first").stdout_lacks("Committed as");
    scene.assert_untouched("archive");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
}

/// The agent restores the link whenever it is moved.
#[test]
fn spawn_beside_agent_replanting_links_is_refused() {
    let Some(scene) = Scene::new("--sandbox=bwrap", 0) else { return };
    let (link, victim) = (".git/logs/refs/heads/b", scene.victim("logs/HEAD"));
    let plant = format!("test -L {link} || ln -s {} {link} 2>/dev/null", victim.display());
    let script = format!("mkdir -p .git/logs/refs/heads; while :; do {plant}; touch planted; done");
    let running = scene.run(&script).start();
    scene.project.wait_for_file("planted");
    let args = ["spawn", "--name", "b", "--worktree", "-n", "1", "-p", "x", "--", "true"];
    let output = scene.ralph(&args).run();
    output.code(1).stderr_has("creates links in the git directory");
    assert_eq!(output.stderr.matches(MOVED).count(), 1, "said once: {}", output.stderr);
    scene.assert_untouched("spawn");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
}

/// The log of a branch `objects/ab/x` is in a directory that looks like one of loose objects.
#[test]
fn link_in_log_of_branch_named_objects_is_not_followed() {
    let Some(scene) = Scene::new("--sandbox=bwrap", 0) else { return };
    let log = ".git/logs/refs/heads/objects/ab/x";
    let victim = scene.victim("logs/HEAD");
    let plant = format!("rm -f {log}; ln -s {} {log}", victim.display());
    let script =
        format!("{MESSAGE}git checkout -qb objects/ab/x; {plant}; echo two > file\n{DONE}");
    scene.run(&script).run().code(0).stderr_has(MOVED);
    scene.ralph(&["archive", "--force"]).run().code(0).stdout_has("Committed as");
    scene.assert_untouched("archive");
}

/// git would wait for the other end.
#[test]
fn pipes_in_git_directory_are_moved_aside() {
    let Some(scene) = Scene::new("--sandbox=bwrap", 0) else { return };
    let names = ["COMMIT_EDITMSG", "logs/HEAD", "index", "info/exclude", "packed-refs"];
    let plant = names.map(|name| format!("rm -f .git/{name}; mkfifo .git/{name}\n")).concat();
    let script = format!("{MESSAGE}echo two > file\n{plant}{DONE}");
    let output = scene.run(&script).run();
    output.code(0).stderr_has("pipes, sockets or devices").stderr_has(MOVED);
    scene.ralph(&["archive", "--force"]).run().code(0).stdout_has("Committed as");
}

/// Without a sandbox nothing restores the repository, so git is not called.
#[test]
fn git_directory_replaced_by_pointer_is_refused() {
    for replace in ["ln -s $V .git", "echo gitdir: $V > .git"] {
        let Some(scene) = Scene::new("--no-sandbox", 0) else { return };
        let victim = scene.project.sibling("victim");
        scene.project.git_command(["init", "-q", victim.to_str().unwrap()]);
        let replace = replace.replace("$V", &format!("{}/.git", victim.display()));
        let script = format!("{MESSAGE}mv .git old; {replace}; echo two > file\n{DONE}");
        let output = scene.run(&script).run();
        assert!(!victim.join(".git/index").exists() && !victim.join(".git/logs").exists());
        output.code(2).stderr_has(".git");
        assert!(scene.project.has("old/HEAD"));
    }
}
