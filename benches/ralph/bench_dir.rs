//! A directory for the measured programs, and figures from /proc.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAMS: [(&str, &str); 3] = [
    ("true", include_str!("true.c")),
    ("ticker", include_str!("ticker.c")),
    ("reader", include_str!("reader.c")),
];

pub(super) fn called_as(name: &str) -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name() == Some(OsStr::new(name))
}

pub(super) struct BenchDir {
    dir: tempfile::TempDir,
}

impl BenchDir {
    pub(super) fn new() -> io::Result<Self> {
        let bench_dir = BenchDir { dir: tempfile::tempdir()? };
        for (name, source) in PROGRAMS {
            let file = bench_dir.path(&format!("{name}.c"));
            let output = bench_dir.path(&format!("{name}.out"));
            fs::write(&file, source)?;
            let status = Command::new("cc")
                .args(["-O2", "-static", "-o"])
                .args([&output, &file])
                .status()?;
            if !status.success() {
                return Err(io::Error::other(format!("cc failed to build {name}")));
            }
            fs::copy(output, bench_dir.path(name))?;
        }
        // A copy, as installed: a linker writes files in fragments, and starting one takes a sixth
        // longer.
        fs::copy(env!("CARGO_BIN_EXE_ralph"), bench_dir.path("ralph"))?;
        std::os::unix::fs::symlink(std::env::current_exe()?, bench_dir.path("claude"))?;
        Ok(bench_dir)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// ralph with its own home, and without other `RALPH_*` variables.
    pub(super) fn ralph(&self) -> Command {
        let mut command = silent(Command::new(self.path("ralph")));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"RALPH_") {
                command.env_remove(name);
            }
        }
        command.env("RALPH_HOME", self.path("home"));
        command
    }

    pub(super) fn ralph_run(&self, project: &str, iterations: u64, agent: &[&str]) -> Ralph {
        let project = self.path(project);
        let mut command = self.ralph();
        command
            .args(["run", "--quiet", "--prompt", "Do it.", "-n", &iterations.to_string(), "-C"])
            .arg(&project)
            .arg("--")
            .arg(self.path(agent[0]))
            .args(&agent[1..]);
        Ralph { project, command }
    }
}

pub(super) struct Ralph {
    project: PathBuf,
    pub(super) command: Command,
}

impl Ralph {
    /// In a fresh project.
    pub(super) fn spawn(&mut self) -> io::Result<Child> {
        if self.project.exists() {
            fs::remove_dir_all(&self.project)?;
        }
        fs::create_dir(&self.project)?;
        self.command.spawn()
    }

    /// Must end at the iteration limit.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let status = self.spawn()?.wait()?;
        if status.code() == Some(1) { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }

    pub(super) fn project(&self) -> &Path {
        &self.project
    }

    pub(super) fn journal(&self) -> io::Result<PathBuf> {
        let runs = fs::read_dir(self.project.join(".ralph/runs"))?;
        // Names sort by time.
        let last = runs.flatten().map(|run| run.path()).max().ok_or(io::ErrorKind::NotFound)?;
        Ok(last.join("events.jsonl"))
    }

    pub(super) fn on_disk(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for file in fs::read_dir(self.journal()?.with_file_name(""))? {
            bytes += file?.metadata()?.len();
        }
        Ok(bytes)
    }
}

pub(super) fn silent(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A figure in `/proc/PID/FILE`, such as `VmHWM:` in `status`; kilobytes become bytes.
pub(super) fn proc_figure(pid: u32, file: &str, name: &str) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).ok_or(io::ErrorKind::NotFound)?;
    let number: f64 =
        line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    Ok(if line.ends_with("kB") { number * 1024.0 } else { number })
}

/// The processor time of all threads in seconds.
pub(super) fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let mut seconds = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        seconds += nanoseconds.unwrap_or(f64::NAN) / 1e9;
    }
    Ok(seconds)
}
