//! Support for black-box tests: a temporary project, ralph run in it, the fake agent, and a check for
//! leftover processes.
//!
//! ```ignore
//! let project = Project::new();
//! let agent = project.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
//! project.ralph(["run", "-p", "do it", "--"]).args(agent).run().code(0).stdout_has("DONE");
//! assert_eq!(project.events().find("run_ended")["outcome"], "complete");
//! assert_eq!(project.processes(), []);
//! ```
//!
//! Tests never sleep to let something happen; they wait for it with [`wait_until`].

#![allow(
    dead_code,
    reason = "every test program compiles this module for itself and uses its own part of it"
)]

mod mounts;
mod skipped;
mod tmux;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use skipped::skipped;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub(crate) use tmux::Tmux;

/// Far longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Marks every process of a project. Not `RALPH_…`: ralph warns about unknown variables with that
/// prefix.
const MARK: &str = "TEST_PROJECT_MARK";

/// A project and a home in a temporary directory. Dropping it kills every process of the project.
#[derive(Debug)]
pub(crate) struct Project {
    root: tempfile::TempDir,
    directory: PathBuf,
    mark: String,
    scripts: AtomicU32,
}

impl Project {
    pub(crate) fn new() -> Project {
        Project::named("project")
    }

    /// A project whose path needs quoting everywhere.
    pub(crate) fn with_awkward_path() -> Project {
        Project::named(r#"it's a "test" $HOME; project"#)
    }

    pub(crate) fn git() -> Project {
        let project = Project::new();
        project.git_init();
        project
    }

    pub(crate) fn named(name: &str) -> Project {
        let root = tempfile::tempdir().expect("a temporary directory");
        // Resolved, because ralph and the agent report paths without links.
        let path = root.path().canonicalize().expect("the temporary directory");
        let directory = path.join(name);
        for part in [&directory, &path.join("home"), &path.join("bin"), &path.join("scripts")] {
            fs::create_dir(part).expect("a directory of the project");
        }
        Project {
            mark: path.to_string_lossy().into_owned(),
            directory,
            root,
            scripts: AtomicU32::new(0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.sibling("home")
    }

    /// A path next to the project, outside its work tree.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.directory.with_file_name(name)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Project {
        let path = self.directory.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self
    }

    #[track_caller]
    pub(crate) fn read(&self, path: &str) -> String {
        let path = self.directory.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.directory.join(path).exists()
    }

    pub(crate) fn settings(&self, settings: &Value) -> &Project {
        self.write(".ralph/settings.json", format!("{settings:#}\n"))
    }

    pub(crate) fn git_init(&self) -> &Project {
        self.git_command(["init", "--quiet", "--initial-branch=main"]);
        self
    }

    #[track_caller]
    pub(crate) fn git_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.command("git").args(args).output().expect("git");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "git failed: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A program in the project with ralph's environment: nothing of the tester's but the `PATH`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).env_clear().envs(self.environment());
        command
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut path = self.sibling("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut environment = vec![
            ("PATH".into(), path),
            ("HOME".into(), self.home().into()),
            ("FAKE_AGENT_SCRIPT".into(), self.sibling("scripts").into()),
            (MARK.into(), self.mark.clone().into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ];
        for role in ["AUTHOR", "COMMITTER"] {
            environment.push((format!("GIT_{role}_NAME").into(), "Tess Ter".into()));
            environment.push((format!("GIT_{role}_EMAIL").into(), "tess@example.com".into()));
        }
        environment
    }

    pub(crate) fn ralph<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ralph {
        self.program(env!("CARGO_BIN_EXE_ralph"), args)
    }

    pub(crate) fn ralph_with_memory_limit(&self, megabytes: u32, args: &[&str]) -> Ralph {
        let script = format!("ulimit -v {}; exec \"$@\"", megabytes * 1024);
        let limited = ["-c", &script, "sh", env!("CARGO_BIN_EXE_ralph")];
        self.program("sh", limited.iter().chain(args))
    }

    /// Makes the journal a sparse file, which ends in a line far too long to read.
    pub(crate) fn append_endless_line(journal: &Path) {
        let file = fs::OpenOptions::new().write(true).open(journal).expect("a journal");
        file.set_len(600 << 20).expect("a sparse file");
    }

    pub(crate) fn program<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Ralph {
        reset_ignored_signals();
        let mut command = self.command(program);
        command.args(args);
        Ralph {
            command,
            stdin: Vec::new(),
            keep_stdin_open: false,
            deadline: LONG,
            socket_directory: self.root.path().to_owned(),
        }
    }

    /// Writes a script for the fake agent (see `testing/fake_agent.rs`) and returns its command
    /// line.
    pub(crate) fn fake_agent(&self, script: &Value) -> Vec<String> {
        let number = self.scripts.fetch_add(1, Ordering::Relaxed);
        let path = self.write_script(&format!("script-{number}"), script);
        [fake_agent_program(), "--script".into(), path]
            .map(|part| part.into_os_string().into_string().expect("UTF-8"))
            .into()
    }

    /// Puts the fake agent on the `PATH` under the name of a real one and resets its session count.
    pub(crate) fn install_agent(&self, name: &str, script: &Value) {
        let path = self.write_script(name, script);
        let _ = fs::remove_file(path.with_extension("json.count"));
        let link = self.sibling("bin").join(name);
        if !link.exists() {
            // A link, because a file just written cannot be executed while another thread forks
            // with it open.
            std::os::unix::fs::symlink(fake_agent_program(), link).expect("a link to the agent");
        }
    }

    fn write_script(&self, name: &str, script: &Value) -> PathBuf {
        let path = self.sibling("scripts").join(name).with_extension("json");
        fs::write(&path, script.to_string()).expect("the agent's script");
        path
    }

    /// The script step that records an agent start for [`Project::agent_starts`].
    pub(crate) fn record_step(&self) -> Value {
        json!({"record": self.sibling("record.jsonl")})
    }

    /// Adds [`Project::record_step`] to the start of each session.
    pub(crate) fn record_sessions(&self, sessions: &[Value]) -> Vec<Value> {
        let recorded = |steps: &Value| {
            let steps = steps.as_array().expect("steps").iter().cloned();
            std::iter::once(self.record_step()).chain(steps).collect()
        };
        sessions.iter().map(recorded).collect()
    }

    /// The recorded agent starts: `prompt`, `stdin_eof`, `argv`, `env`, `cwd`, `pid`, `start`.
    pub(crate) fn agent_starts(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.sibling("record.jsonl")).unwrap_or_default();
        parse_lines(&text)
    }

    #[track_caller]
    pub(crate) fn newest_run(&self) -> PathBuf {
        self.find_newest_run().unwrap_or_else(|| panic!("no run in {}", self.directory.display()))
    }

    /// The link in the project, or its target if that was removed.
    fn runs_dir(&self) -> Option<PathBuf> {
        let link = self.directory.join(".ralph/runs");
        if link.exists() {
            return Some(link);
        }
        let projects = fs::read_dir(self.home().join(".ralph/projects")).ok()?;
        let runs = projects.map(|entry| entry.expect("an entry").path().join("runs"));
        runs.into_iter().find(|runs| runs.is_dir())
    }

    fn find_newest_run(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.runs_dir()?).ok()?;
        let runs = entries.filter_map(|entry| {
            let path = entry.expect("an entry").path();
            let journal = path.join("events.jsonl").metadata().ok()?;
            Some((journal.modified().expect("a time"), path))
        });
        runs.max().map(|(_, path)| path)
    }

    #[track_caller]
    pub(crate) fn wait_for_event(&self, kind: &str) {
        wait_until(LONG, || self.find_newest_run().is_some() && self.events().has(kind));
    }

    /// The journal of the newest run, without an incomplete last line.
    #[track_caller]
    pub(crate) fn events(&self) -> Events {
        let path = self.newest_run().join("events.jsonl");
        let text = fs::read_to_string(&path).expect("the journal");
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        Events(parse_lines(&text[..complete]))
    }

    #[track_caller]
    pub(crate) fn raw(&self) -> Vec<u8> {
        fs::read(self.newest_run().join("raw.ndjson")).expect("the raw stream")
    }

    /// Every live process of this project: ralph, its agents, their descendants, and the tmux
    /// server.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let wanted = format!("{MARK}={}", self.mark);
        let entries = fs::read_dir("/proc").expect("finding processes needs /proc");
        entries
            .filter_map(|entry| {
                let directory = entry.ok()?.path();
                let pid = directory.file_name()?.to_str()?.parse().ok()?;
                // Unreadable: the process has just ended or belongs to another user.
                let environment = fs::read(directory.join("environ")).ok()?;
                let is_ours = environment.split(|byte| *byte == 0).any(|v| v == wanted.as_bytes());
                let command = fs::read(directory.join("cmdline")).ok()?;
                is_ours.then(|| Process {
                    pid,
                    command: String::from_utf8_lossy(&command).replace('\0', " "),
                })
            })
            .collect()
    }

    /// Creates programs as an agent could plant them. Each notes outside the project that it ran.
    pub(crate) fn plant_programs(&self, dir: &Path, names: &[&str]) {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(dir).expect("a directory for planted programs");
        let script =
            format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\n", self.sibling("canary").display());
        for name in names {
            fs::write(dir.join(name), &script).expect("a planted program");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(dir.join(name), mode).expect("its mode");
        }
    }

    pub(crate) fn planted_runs(&self) -> Vec<String> {
        let text = fs::read_to_string(self.sibling("canary")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn path_with<S: AsRef<OsStr>>(&self, entries: &[S]) -> OsString {
        let mut path = OsString::new();
        for entry in entries {
            path.push(entry);
            path.push(":");
        }
        path.push(self.sibling("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }

    #[track_caller]
    pub(crate) fn wait_for_file(&self, path: impl AsRef<Path>) -> String {
        let path = self.directory.join(path);
        wait_until(LONG, || path.exists());
        fs::read_to_string(path).expect("the file")
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        for process in self.processes() {
            process.signal(Signal::KILL);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) command: String,
}

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All namespaces held by a process, an open file or a mount. The kernel reuses their numbers, so
/// one may belong to another namespace a moment later.
pub(crate) fn namespaces() -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    let names = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    for process in names("/proc".into()) {
        let links = ["ns", "fd"].map(|dir| names(process.path().join(dir)));
        let links = links.into_iter().flatten().filter_map(|link| fs::read_link(link.path()).ok());
        found.extend(links.filter_map(|to| to.into_os_string().into_string().ok()));
    }
    found.retain(|link| {
        link.contains(":[") && !link.starts_with("pipe") && !link.starts_with("socket")
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(mounts.split_whitespace().filter(|word| word.contains(":[")).map(str::to_owned));
    found
}

/// Whether a process exists and is not a zombie. A killed process keeps its files and locks while
/// one of its threads waits for the disk.
pub(crate) fn is_alive(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|path| {
        let stat = fs::read_to_string(path).unwrap_or_default();
        // The state follows the name, which is in parentheses and may contain any character.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    })
}

#[track_caller]
fn fake_agent_program() -> PathBuf {
    example("fake-agent", "testing/fake_agent.rs")
}

/// A helper program, which must be newer than its source: `cargo test --test NAME` does not build
/// it.
#[track_caller]
pub(crate) fn example(name: &str, source: &str) -> PathBuf {
    let ralph = Path::new(env!("CARGO_BIN_EXE_ralph"));
    let program = ralph.with_file_name("examples").join(name);
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(source);
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let files = fs::read_dir(&source).into_iter().flatten().flatten();
    let last_change =
        files.map(|file| file.path()).chain([source]).filter_map(|file| changed(&file));
    assert!(
        changed(&program) >= last_change.max(),
        "{} is not built from its source of today: cargo build --example {name}",
        program.display()
    );
    program
}

#[derive(Debug)]
pub(crate) struct Ralph {
    command: Command,
    stdin: Vec<u8>,
    keep_stdin_open: bool,
    deadline: Duration,
    socket_directory: PathBuf,
}

impl Ralph {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Ralph {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Ralph {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Ralph {
        self.command.env(name, value);
        self
    }

    #[allow(dead_code, reason = "not every test program includes such a test")]
    pub(crate) fn without_git_identity(mut self) -> Ralph {
        for role in ["AUTHOR", "COMMITTER"] {
            self.command.env_remove(format!("GIT_{role}_NAME"));
            self.command.env_remove(format!("GIT_{role}_EMAIL"));
        }
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Ralph {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    /// Keeps standard input open and silent.
    #[allow(dead_code, reason = "not every test program includes such a test")]
    pub(crate) fn keep_stdin_open(mut self) -> Ralph {
        self.keep_stdin_open = true;
        self
    }

    pub(crate) fn current_dir(mut self, directory: impl AsRef<Path>) -> Ralph {
        self.command.current_dir(directory);
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Ralph {
        self.deadline = deadline;
        self
    }

    #[track_caller]
    pub(crate) fn run(self) -> Output {
        self.start().wait()
    }

    /// Starts it with files as streams: no reader is needed, and a leftover process cannot keep
    /// them open.
    #[track_caller]
    pub(crate) fn start(self) -> Running {
        self.start_with_stdout(None)
    }

    #[track_caller]
    pub(crate) fn start_with_stdout(mut self, stdout: Option<Stdio>) -> Running {
        let (stdin, writer) = if self.keep_stdin_open {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            (Stdio::from(reader), Some(writer))
        } else {
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(&self.stdin).expect("standard input");
            file.rewind().expect("standard input");
            (Stdio::from(file), None)
        };
        let streams = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a temporary file"));
        let into = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().expect("a stream"));
        let child = self
            .command
            .stdin(stdin)
            .stdout(stdout.unwrap_or_else(|| into(&streams[0])))
            .stderr(into(&streams[1]))
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        drop(self.command);
        let deadline = Instant::now() + self.deadline;
        Running { child, streams, deadline, _stdin: writer }
    }

    #[track_caller]
    pub(crate) fn in_tmux(self) -> Tmux {
        Tmux::start(&self.command, &self.socket_directory)
    }
}

/// Undoes ignored signals: a script that runs the tests in the background makes them ignore Ctrl+C,
/// and children inherit that.
fn reset_ignored_signals() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            #[expect(unsafe_code, reason = "there is no safe way to say so")]
            // SAFETY: it changes a signal's disposition and touches no memory.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    });
}

#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    streams: [tempfile::NamedTempFile; 2],
    deadline: Instant,
    _stdin: Option<std::io::PipeWriter>,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a process id");
        kill_process(pid, signal).expect("a process that has not been waited for");
    }

    pub(crate) fn stdout(&self) -> String {
        read_lossy(self.streams[0].path())
    }

    pub(crate) fn stderr(&self) -> String {
        read_lossy(self.streams[1].path())
    }

    #[track_caller]
    pub(crate) fn wait(mut self) -> Output {
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this test") {
                return Output { status, stdout: self.stdout(), stderr: self.stderr() };
            }
            assert!(
                Instant::now() < self.deadline,
                "it did not end in time\n--- stdout\n{}\n--- stderr\n{}",
                self.stdout(),
                self.stderr()
            );
            pause();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    #[track_caller]
    pub(crate) fn code(&self, code: i32) -> &Output {
        self.check(self.status.code() == Some(code), &format!("exit code {code}"))
    }

    #[track_caller]
    pub(crate) fn success(&self) -> &Output {
        self.code(0)
    }

    #[track_caller]
    pub(crate) fn killed_by(&self, signal: Signal) -> &Output {
        let number = signal.as_raw();
        self.check(self.status.signal() == Some(number), &format!("the end by signal {number}"))
    }

    #[track_caller]
    pub(crate) fn stdout_has(&self, text: &str) -> &Output {
        self.check(self.stdout.contains(text), &format!("{text:?} in stdout"))
    }

    #[track_caller]
    pub(crate) fn stdout_lacks(&self, text: &str) -> &Output {
        self.check(!self.stdout.contains(text), &format!("no {text:?} in stdout"))
    }

    #[track_caller]
    pub(crate) fn stdout_is(&self, text: &str) -> &Output {
        self.check(self.stdout == text, &format!("{text:?} as stdout"))
    }

    #[track_caller]
    pub(crate) fn stderr_has(&self, text: &str) -> &Output {
        self.check(self.stderr.contains(text), &format!("{text:?} in stderr"))
    }

    #[track_caller]
    pub(crate) fn stderr_lacks(&self, text: &str) -> &Output {
        self.check(!self.stderr.contains(text), &format!("no {text:?} in stderr"))
    }

    #[track_caller]
    pub(crate) fn stderr_is(&self, text: &str) -> &Output {
        self.check(self.stderr == text, &format!("{text:?} as stderr"))
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Events {
        Events(parse_lines(&self.stdout))
    }

    #[track_caller]
    fn check(&self, holds: bool, wanted: &str) -> &Output {
        assert!(
            holds,
            "expected {wanted}, but: {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status, self.stdout, self.stderr
        );
        self
    }
}

#[derive(Debug)]
pub(crate) struct Events(pub(crate) Vec<Value>);

impl Events {
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.0.iter().map(|event| event["event"].as_str().unwrap_or("?")).collect()
    }

    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|event| event["event"] == kind).collect()
    }

    pub(crate) fn has(&self, kind: &str) -> bool {
        !self.all(kind).is_empty()
    }

    #[track_caller]
    pub(crate) fn find(&self, kind: &str) -> &Value {
        let found = self.all(kind).first().copied();
        found.unwrap_or_else(|| panic!("no {kind} in {:?}", self.kinds()))
    }

    #[track_caller]
    pub(crate) fn last(&self, kind: &str) -> &Value {
        let found = self.all(kind).last().copied();
        found.unwrap_or_else(|| panic!("no {kind} in {:?}", self.kinds()))
    }
}

/// The time of an event by ralph's clock, so that a slow test does not distort durations.
#[track_caller]
pub(crate) fn time_ms(event: &Value) -> i64 {
    let time: jiff::Timestamp = event["time"].as_str().expect("a time").parse().expect("a time");
    time.as_millisecond()
}

#[track_caller]
pub(crate) fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < end, "it did not happen within {deadline:?}");
        pause();
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn read_lossy(path: &Path) -> String {
    let bytes = fs::read(path).expect("a stream");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[track_caller]
fn parse_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}")))
        .collect()
}
