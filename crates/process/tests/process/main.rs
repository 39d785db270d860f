//! `System` against real processes.
//!
//! Reaping, adopting orphans and signals belong to a whole process, but `cargo test` runs tests as
//! threads. Each test therefore runs this program again for its body alone.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test")]

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ralph_events::event::{Exit, Stream};
use ralph_process::{ChildEnd, ChildId, Launch, Occurrence, System};

macro_rules! cases {
    ($($(#[$meta:meta])* fn $name:ident() $body:block)*) => {
        $(
            #[test]
            $(#[$meta])*
            fn $name() {
                isolated(concat!(module_path!(), "::", stringify!($name)), || $body);
            }
        )*
    };
}

mod starting;
mod streams;
mod trees;
mod waiting;

/// The name of the test whose body to run.
const CASE: &str = "RALPH_TEST_CASE";
/// More than any test takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test body alone in a process.
fn isolated(path: &str, body: fn()) {
    let name = path.split_once("::").map_or(path, |(_program, name)| name);
    if std::env::var_os(CASE).is_some_and(|case| case == name) {
        // Background jobs of a script start with SIGINT ignored.
        #[expect(unsafe_code, reason = "there is no safe way to say so")]
        // SAFETY: it changes a signal disposition only.
        unsafe {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        return body();
    }
    let output = this_program(name).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    println!("{stdout}");
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(stdout.contains(" 1 passed"), "no test has the name {name}");
}

fn this_program(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([case, "--exact", "--nocapture", "--include-ignored"])
        .arg("--test-threads=1")
        .env(CASE, case)
        .stdin(Stdio::null());
    command
}

struct Script {
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: Vec<u8>,
    merge_stderr: bool,
    keep_background: bool,
}

fn sh(script: &str) -> Script {
    Script {
        args: vec!["-c".into(), script.into()],
        env: Vec::new(),
        stdin: Vec::new(),
        merge_stderr: false,
        keep_background: false,
    }
}

impl Script {
    fn start(&self, system: &mut System) -> (ChildId, u32) {
        system.start(&self.launch()).unwrap()
    }

    fn launch(&self) -> Launch<'_> {
        Launch {
            stdin: &self.stdin,
            merge_stderr: self.merge_stderr,
            keep_background: self.keep_background,
            ..Launch::plain(Path::new("/"), OsStr::new("sh"), &self.args, &self.env)
        }
    }
}

#[derive(Default)]
struct Capture {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Capture {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The pid printed as `name=PID`.
    fn pid(&self, name: &str) -> u32 {
        self.text()
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.text()))
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(bytes),
            Stream::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }

    fn until(&mut self, system: &mut System, words: &[&str]) {
        let deadline = system.now_ms() + PATIENCE.as_millis() as u64;
        let mut buf = Vec::new();
        while !words.iter().all(|word| self.text().contains(word)) {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Output(_, stream) => self.take(stream, &buf),
                other => panic!("{other:?} while waiting for {words:?}"),
            }
        }
    }

    fn await_end(&mut self, system: &mut System, child: ChildId) -> ChildEnd {
        let deadline = system.now_ms() + PATIENCE.as_millis() as u64;
        let mut buf = Vec::new();
        loop {
            match system.wait(Some(deadline), &mut buf) {
                Occurrence::Output(id, stream) if id == child => self.take(stream, &buf),
                Occurrence::Ended(id, ended) if id == child => return ended,
                other => panic!("{other:?} while waiting for the end"),
            }
        }
    }
}

fn run(system: &mut System, script: &Script) -> (Capture, ChildEnd) {
    let (child, _) = script.start(system);
    let mut capture = Capture::default();
    let ended = capture.await_end(system, child);
    (capture, ended)
}

fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// The state letter in `/proc/PID/stat`.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn eventually(label: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{label}");
        std::thread::yield_now();
    }
}

fn children_of_this_process() -> String {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
        .collect()
}

const PLAIN: ChildEnd = ChildEnd { exit: Some(Exit::Code(0)), leftovers: Vec::new() };
