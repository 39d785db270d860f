//! Kills the real program with `kill -9` at hundreds of moments, with an agent that writes and
//! commits.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::DONE;
use crate::support::{LONG, Project, Running, wait_until};

/// Kills per project; more than 300 in all.
const KILLS: u64 = 80;

fn pseudo_random(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn project() -> Project {
    let project = Project::git();
    project.settings(&json!({
        "maximumIterations": 100_000,
        "guardrails": [{"command": "test -s work"}],
        "scm": {"command": "git", "tasks": ["commit"]},
        "retry": {"max": 1000, "backoffSeconds": 0},
    }));
    let work =
        "echo $RALPH_ITERATION >>work; git add work; git commit -qm work work; echo x >>more";
    project.install_agent(
        "robot",
        &json!({
            "sessions": [[{"shell": work}, {"shell": format!("test ! -e finish || echo '{DONE}'")}]],
            "commit_message": [{"print": "More"}],
        }),
    );
    project
}

fn journal(project: &Project) -> Option<PathBuf> {
    let runs = std::fs::read_dir(project.path().join(".ralph/runs")).ok()?;
    let began = runs.flatten().map(|run| run.path()).find(|run| run.join("spec.json").exists());
    began.map(|run| run.join("events.jsonl"))
}

/// The journal from an offset: it grows long and is read often.
fn journal_after(project: &Project, offset: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut file) = journal(project).and_then(|path| File::open(path).ok()) {
        // Resuming truncates a partial line.
        let from = file.metadata().map_or(0, |meta| meta.len().min(offset));
        let read = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut bytes));
        read.expect("the journal can be read");
    }
    bytes
}

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn start(project: &Project) -> Running {
    if journal(project).is_some() {
        project.ralph(["resume"]).start()
    } else {
        project.ralph(["run", "-p", "x", "--", "robot"]).start()
    }
}

/// Kills the run after a number of new journal lines and a short delay, or after a timeout.
fn kill(project: &Project, offset: u64, moment: u64) {
    let run = start(project);
    let written = || lines(&journal_after(project, offset));
    let extra_lines = (moment % 41) as usize;
    // A busy machine may not even have started by then; some kills must come late.
    if extra_lines >= 30 {
        wait_until(LONG, || written() > 0);
    }
    let until = Instant::now() + Duration::from_millis(300);
    while written() < extra_lines && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Not for synchronization: any moment will do.
    std::thread::sleep(Duration::from_micros(pseudo_random(moment) % 4_000));
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
}

#[derive(Debug, Default)]
struct JournalProgress {
    size: u64,
    iterations: u64,
}

impl JournalProgress {
    /// Every complete line is an event, and iterations never decrease.
    fn read_new(&mut self, project: &Project) {
        let text = journal_after(project, self.size);
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.size += complete as u64;
        for line in text[..complete].split_inclusive(|byte| *byte == b'\n') {
            let event: serde_json::Value = serde_json::from_slice(line).expect("a whole line");
            if event["event"] == "iteration_ended" {
                let now = event["iteration"].as_u64().expect("a number");
                assert!(now >= self.iterations, "iteration {now} after {}", self.iterations);
                self.iterations = now;
            }
        }
    }
}

/// A killed git leaves lock files. Those among the objects do no harm.
fn remove_locks(directory: &Path) {
    for entry in directory.read_dir().expect("git's own").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "objects" {
            remove_locks(&path);
        } else if name.as_encoded_bytes().ends_with(b".lock") {
            // A child that is still running may remove its lock itself.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn assert_pays_once(project: &Project) {
    let mut is_answered = false;
    for event in project.events().0 {
        match event["event"].as_str() {
            Some("agent_started") if event["purpose"] == "work" => {
                assert!(!is_answered, "iteration {} has its answer", event["iteration"]);
            }
            Some("agent_ended") if event["purpose"] == "work" => {
                is_answered = event["class"] == "answered";
            }
            Some("iteration_ended") if event.get("cut_off").is_none() => is_answered = false,
            _ => {}
        }
    }
}

fn survive_kills(series: u64) {
    let project = project();
    let mut progress = JournalProgress::default();
    for n in 0..KILLS {
        kill(&project, progress.size, pseudo_random(series * 1_000 + n));
        progress.read_new(&project);
        remove_locks(&project.path().join(".git"));
    }
    project.write("finish", "");
    // A git that the last kill left behind may leave a lock, which is removed after a minute.
    let output = project.ralph(["resume"]).deadline(3 * LONG).run();
    output.code(0).stdout_has("Resuming run");
    wait_until(LONG, || project.processes().is_empty());
    project.git_command(["fsck", "--strict"]);
    assert_eq!(project.git_command(["status", "--porcelain", "work", "more"]), "");
    assert_pays_once(&project);
    let events = project.events();
    let continued = events.all("run_continued").len() as u64;
    assert!(continued > KILLS / 8, "the moments are all too early: {continued}");
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    assert!(
        events.last("run_ended")["iterations"].as_u64() >= Some(progress.iterations),
        "it counts on"
    );
    let runs = std::fs::read_dir(project.path().join(".ralph/runs")).expect("runs").flatten();
    let journals = runs.filter(|run| run.path().join("events.jsonl").exists());
    assert_eq!(journals.count(), 1, "all of it is one run");
}

// In parallel, because each mostly waits.

#[test]
fn run_killed_at_any_moment_resumes_series_1() {
    survive_kills(1);
}

#[test]
fn run_killed_at_any_moment_resumes_series_2() {
    survive_kills(2);
}

#[test]
fn run_killed_at_any_moment_resumes_series_3() {
    survive_kills(3);
}

#[test]
fn run_killed_at_any_moment_resumes_series_4() {
    survive_kills(4);
}
