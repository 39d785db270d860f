//! An agent cannot disable or weaken the sandbox of the next run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::ordinary_user;
use crate::support::{LONG, Project, Ralph, skipped, wait_until};

const RALPH: &str = env!("CARGO_BIN_EXE_ralph");
const CHANGED: &str = "permissions were changed inside the sandbox and have been restored";

/// A user's project, and a `PATH` on which `auto` finds a certain backend.
struct Case {
    project: Project,
    user: u32,
    backend: &'static str,
    path: OsString,
}

impl Case {
    fn new(backend: &'static str, user: u32) -> Option<Case> {
        let project = Project::git();
        project.settings(&json!({"sandbox": {"backend": "auto"}}));
        let path = limited_path(&project, backend == "bwrap");
        let case = Case { project, user, backend, path };
        case.chown_all();
        let check = case.ralph(["sandbox", "check"]).run();
        if !check.stdout.contains(&format!("ok      {backend}")) {
            skipped(&format!("{backend} does not work here for user {user}"));
            return None;
        }
        Some(case)
    }

    /// Each backend, as root if possible, and as an ordinary user.
    fn all() -> Vec<Case> {
        let mut users = vec![rustix::process::getuid().as_raw(), ordinary_user()];
        users.dedup();
        let of_user = |user| ["bwrap", "landlock"].map(|backend| Case::new(backend, user));
        users.into_iter().flat_map(of_user).flatten().collect()
    }

    fn chown_all(&self) {
        let top = self.project.path().parent().unwrap();
        fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
        let owner = format!("{0}:{0}", self.user);
        if rustix::process::getuid().is_root() {
            let chown = Command::new("chown").args(["-R", &owner]).arg(top).status();
            assert!(chown.unwrap().success());
        }
    }

    fn ralph<const N: usize>(&self, args: [&str; N]) -> Ralph {
        let id = self.user.to_string();
        let ralph = if rustix::process::getuid().as_raw() == self.user {
            self.project.ralph(args)
        } else {
            let drop = ["--reuid", &id, "--regid", &id, "--clear-groups", "--", RALPH];
            self.project.program("/usr/bin/setpriv", drop).args(args)
        };
        ralph.env("PATH", &self.path)
    }

    fn run(&self, script: &str) -> Ralph {
        self.project.write("agent.sh", format!("{script}\necho '<response>DONE</response>'\n"));
        self.chown_all();
        self.ralph(["run", "-p", "Work.", "-n", "1", "--", "sh", "agent.sh"])
    }

    fn mode(&self, name: &str) -> u32 {
        // Only root sees into a directory without search permission.
        let path: PathBuf = self.project.path().join(name).components().collect();
        fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o7777)
    }

    fn modes(&self) -> Vec<u32> {
        [".", ".ralph", ".ralph/runs", ".git"].map(|name| self.mode(name)).to_vec()
    }

    #[track_caller]
    fn assert_next_run_is_sandboxed(&self) {
        let output = self.run("echo ran > \"$HOME/ran\"").run();
        output.code(0).stdout_has(&format!("sandbox  {}", self.backend)).stderr_lacks(CHANGED);
        assert!(!self.project.home().join("ran").exists(), "the agent has a home of its own");
        assert_eq!(recorded_backend(&self.project), self.backend);
    }

    fn name(&self) -> String {
        format!("{}, user {}", self.backend, self.user)
    }
}

fn limited_path(project: &Project, with_bwrap: bool) -> OsString {
    let bin = project.sibling(if with_bwrap { "with-bwrap" } else { "without-bwrap" });
    fs::create_dir_all(&bin).unwrap();
    let bwrap = with_bwrap.then_some("bwrap");
    for name in ["sh", "git", "cat", "chmod", "mv", "sleep"].into_iter().chain(bwrap) {
        let from = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
        if let Some(from) = from.iter().find(|path| path.exists()) {
            let _ = symlink(from, bin.join(name));
        }
    }
    bin.into()
}

fn record_path(project: &Project) -> PathBuf {
    let projects = project.home().join(".ralph/projects");
    let mut dirs = fs::read_dir(projects).unwrap().flatten();
    let dir = dirs.next().expect("a record").path();
    assert!(dirs.next().is_none());
    dir.join("project.json")
}

fn recorded_backend(project: &Project) -> Value {
    let text = fs::read_to_string(record_path(project)).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    record["sandbox"].clone()
}

#[test]
fn chmod_by_agent_is_undone_and_next_run_is_sandboxed() {
    for case in Case::all() {
        case.assert_next_run_is_sandboxed();
        let before = case.modes();
        for attack in [
            "chmod 555 .",
            "chmod 0 .",
            "chmod 555 .ralph .git",
            "chmod 0 .ralph/runs .ralph .git .",
            "chmod 777 .",
        ] {
            let output = case.run(attack).run();
            output.code(0).stdout_has(&format!("sandbox  {}", case.backend)).stderr_has(CHANGED);
            assert_eq!(output.stderr.matches(CHANGED).count(), 1, "{}", output.stderr);
            assert_eq!(case.modes(), before, "{}: {attack}", case.name());
            case.assert_next_run_is_sandboxed();
        }
        if case.backend == "landlock" {
            case.run("mv .git old; chmod 0 old").run().code(0);
            assert_eq!(case.modes(), before, "{}", case.name());
        }
        // In every iteration, but reported once.
        case.project.write("agent.sh", "chmod 0 .");
        case.chown_all();
        let run = case.ralph(["run", "-p", "Work.", "-n", "3", "--", "sh", "agent.sh"]).run();
        run.code(1);
        assert_eq!(run.stderr.matches(CHANGED).count(), 1, "{}", run.stderr);
    }
}

#[test]
fn chmod_by_killed_run_is_undone_before_project_is_read() {
    for case in Case::all() {
        let before = case.mode(".");
        let running = case.run("chmod 0 .; sleep 1000").start();
        wait_until(LONG, || case.mode(".") == 0);
        running.signal(Signal::KILL);
        running.wait().killed_by(Signal::KILL);
        let output = case.ralph(["runs"]).run();
        output.code(0).stderr_has(CHANGED).stdout_has("interrupted");
        assert_eq!(case.mode("."), before, "{}", case.name());
        case.assert_next_run_is_sandboxed();
        assert_eq!(case.project.processes(), []);
    }
}

#[test]
fn probe_failure_in_project_is_error() {
    for case in Case::all() {
        case.run("true").run().code(0);
        fs::remove_file(record_path(&case.project)).unwrap();
        let run = case.run("echo ran > \"$HOME/ran\"");
        let root = case.project.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o555)).unwrap();
        let output = run.run();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        output.code(2).stderr_has(&format!("{} works on this machine, but not in", case.backend));
        output.stderr_has("the project is not writable").stderr_has("hint: ");
        assert!(!case.project.home().join("ran").exists(), "{}", case.name());
        case.assert_next_run_is_sandboxed();
    }
}

#[test]
fn weaker_sandbox_without_request_is_error() {
    let Some(case) = Case::new("bwrap", rustix::process::getuid().as_raw()) else { return };
    let Case { project, path: with, .. } = &case;
    let without = limited_path(project, false);
    let go = |path: &OsString, args: &[&str]| {
        let run = project.ralph(["run", "-p", "Work.", "-n", "1"]).args(args).env("PATH", path);
        run.args(["--", "sh", "agent.sh"]).run()
    };
    project.write("agent.sh", "echo ran >> ran; echo '<response>DONE</response>'\n");
    let runs = || fs::read_to_string(project.path().join("ran")).unwrap_or_default().len();
    go(with, &["--dry-run"]).code(0);
    assert!(!project.home().join(".ralph/projects").exists(), "a dry run writes nothing");
    go(with, &[]).code(0).stdout_has("sandbox  bwrap");
    assert_eq!(recorded_backend(project), "bwrap");
    let ran = runs();
    for args in [&[][..], &["--sandbox"], &["--dry-run"]] {
        let output = go(&without, args);
        output.code(2).stderr_has("used the sandbox bwrap before").stderr_has("--sandbox=landlock");
        output.stderr_has("bwrap is not installed");
    }
    let shell = project.ralph(["sandbox", "shell", "--", "true"]).env("PATH", &without).run();
    shell.code(2).stderr_has("used the sandbox bwrap before");
    // A command without a sandbox by default is not the user's choice.
    project.settings(&json!({}));
    go(&without, &[]).code(0);
    project.settings(&json!({"sandbox": {"backend": "auto"}}));
    assert_eq!(recorded_backend(project), "bwrap");
    assert_eq!(runs(), ran + "ran\n".len());
    go(&without, &["--sandbox=landlock"]).code(0).stdout_has("sandbox  landlock");
    assert_eq!(recorded_backend(project), "landlock");
    go(&without, &[]).code(0).stdout_has("sandbox  landlock");
    go(with, &[]).code(0).stdout_has("sandbox  bwrap");
    assert_eq!(recorded_backend(project), "bwrap");
    go(&without, &["--no-sandbox"]).code(0);
    assert_eq!(recorded_backend(project), Value::Null);
    go(&without, &[]).code(0).stdout_has("sandbox  landlock");
}

#[test]
fn resume_in_weaker_sandbox_is_error() {
    let Some(case) = Case::new("bwrap", rustix::process::getuid().as_raw()) else { return };
    case.project.write("agent.sh", "echo work\n");
    case.ralph(["run", "--sandbox", "-p", "x", "-n", "1", "--", "sh", "agent.sh"]).run().code(1);
    let without = limited_path(&case.project, false);
    let resumed = case.ralph(["resume", "-n", "2"]).env("PATH", without).run();
    resumed.code(2).stderr_has("used the sandbox bwrap before").stdout_lacks("work");
    case.ralph(["resume", "-n", "2"]).run().code(1).stdout_has("sandbox  bwrap");
}

#[test]
fn damaged_project_record_is_error_naming_file() {
    let Some(case) = Case::new("landlock", rustix::process::getuid().as_raw()) else { return };
    case.run("true").run().code(0);
    let path = record_path(&case.project);
    fs::write(&path, "{").unwrap();
    case.run("echo ran > ran").run().code(2).stderr_has(path.to_str().unwrap());
    assert!(!case.project.has("ran"));
}

#[test]
fn sandbox_without_home_is_error() {
    let project = Project::new();
    project.write("agent.sh", "echo ran >> ran; echo '<response>DONE</response>'\n");
    let go = |flag: &str| {
        let run = project.ralph(["run", "-p", "x", "-n", "1", flag, "--", "sh", "agent.sh"]);
        run.env("HOME", "")
    };
    go("--sandbox")
        .run()
        .code(2)
        .stderr_has("neither RALPH_HOME nor HOME is set")
        .stderr_has("hint");
    let list = project.ralph(["sandbox", "ls"]).env("HOME", "").run();
    list.code(2).stderr_has("neither RALPH_HOME nor HOME is set");
    go("--sandbox").env("RALPH_HOME", "relative").run().code(2).stderr_has("not an absolute path");
    assert!(!project.has("ran"));
    go("--no-sandbox").run().code(2).stderr_has("neither RALPH_HOME nor HOME is set");
    assert!(!project.has("ran"));
}

#[test]
fn nested_project_settings_survive_agent_of_outer_project() {
    for case in Case::all() {
        let project = &case.project;
        let settings = json!({"sandbox": {"backend": "auto"}}).to_string();
        project.write("packages/app/.ralph/settings.json", &settings);
        project.write("packages/app/agent.sh", "echo '<response>DONE</response>'\n");
        case.chown_all();
        let nested = || {
            let run = case.ralph(["run", "-C", "packages/app", "-p", "x", "-n", "1"]);
            run.args(["--", "sh", "agent.sh"]).run()
        };
        nested().code(0).stdout_has(&format!("sandbox  {}", case.backend));
        for attack in [
            "echo '{}' > packages/app/.ralph/settings.json",
            "mv packages/app packages/old; /bin/cp -r packages/old packages/app; \
             echo '{}' > packages/app/.ralph/settings.json",
            "echo '{}' > packages/app/.ralph/settings.local.json",
        ] {
            case.run(attack).run().code(0);
            let path = project.path().join("packages/app/.ralph");
            let now = fs::read_to_string(path.join("settings.json")).unwrap();
            assert_eq!(now, settings, "{}: {attack}", case.name());
            assert!(!path.join("settings.local.json").exists(), "{}: {attack}", case.name());
            nested().code(0).stdout_has(&format!("sandbox  {}", case.backend));
        }
    }
}

#[test]
fn settings_weakening_sandbox_are_error_until_user_asks() {
    let Some(case) = Case::new("bwrap", rustix::process::getuid().as_raw()) else { return };
    let Case { project, .. } = &case;
    case.assert_next_run_is_sandboxed();
    for (backend, ask) in [("landlock", "--sandbox=landlock"), ("none", "--no-sandbox")] {
        project.settings(&json!({"sandbox": {"backend": backend}}));
        let output = case.run("echo ran > ran").run();
        output.code(2).stderr_has("used the sandbox").stderr_has("settings.json selects");
        output.stderr_has(ask);
        assert!(!project.has("ran"));
    }
    // A file outside the project is the user's, like flags and variables.
    let file = project.sibling("mine.json");
    fs::write(&file, json!({"sandbox": {"backend": "landlock"}}).to_string()).unwrap();
    let go = |args: &[&str]| {
        let run = case.ralph(["run", "-p", "Work.", "-n", "1"]).args(args);
        run.args(["--", "sh", "agent.sh"])
    };
    go(&["--settings", file.to_str().unwrap()]).run().code(0).stdout_has("sandbox  landlock");
    go(&[]).run().code(2).stderr_has("selects no sandbox");
    go(&[]).env("RALPH_SANDBOX__BACKEND", "none").run().code(0);
    assert_eq!(recorded_backend(project), Value::Null);
    go(&[]).run().code(0).stdout_lacks("Sandbox:");
}

#[test]
fn moved_project_is_cleaned_up_and_keeps_its_sandbox() {
    for case in Case::all() {
        let project = &case.project;
        case.assert_next_run_is_sandboxed();
        let (root, moved) = (project.path().to_owned(), project.sibling("moved"));
        let running = case.run("echo evil > .mcp.json; echo > planted; sleep 1000").start();
        wait_until(LONG, || project.has("planted"));
        running.signal(Signal::KILL);
        running.wait().killed_by(Signal::KILL);
        // Landlock does not kill its processes.
        wait_until(LONG, || {
            let leftovers = project.processes();
            leftovers.iter().for_each(|process| process.signal(Signal::KILL));
            leftovers.is_empty()
        });
        fs::rename(&root, &moved).unwrap();
        let at = |args: &[&str], dir: &Path| case.ralph(["sandbox"]).args(args).current_dir(dir);
        at(&["ls"], &project.home()).run().code(0).stdout_has("project missing");
        assert!(moved.join(".mcp.json").exists(), "no run has looked there");
        let settings = case.ralph(["settings"]).current_dir(&moved).run();
        settings.code(0).stderr_has(".mcp.json.from-sandbox");
        assert!(!moved.join(".mcp.json").exists(), "{}", case.name());
        at(&["ls"], &moved).run().code(0).stdout_lacks("missing");
        fs::write(moved.join(".ralph/settings.json"), r#"{"sandbox": {"backend": "none"}}"#)
            .unwrap();
        let run = case.ralph(["run", "-p", "x", "-n", "1", "--", "sh", "agent.sh"]);
        let before = format!("used the sandbox {} before", case.backend);
        run.current_dir(&moved).run().code(2).stderr_has(&before);
        fs::rename(&moved, &root).unwrap();
    }
}
