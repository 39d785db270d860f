//! The real program, killed with `kill -9` at hundreds of moments, by an agent that writes and commits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::DONE;
use crate::support::{LONG, Project, Running, wait_until};

/// How often each of the projects is killed. Together they make it 300 times and more.
const KILLS: u64 = 80;

/// A number for each moment: they differ, and are the same each time.
fn chance(n: u64) -> u64 {
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
    project.agent_named(
        "robot",
        &json!({
            "sessions": [[{"shell": work}, {"shell": format!("test ! -e finish || echo '{DONE}'")}]],
            "commit_message": [{"print": "More"}],
        }),
    );
    project
}

/// The journal of the run, if there is one by now.
fn journal(project: &Project) -> Option<PathBuf> {
    let runs = std::fs::read_dir(project.path().join(".ralph/runs")).ok()?;
    let began = runs.flatten().map(|run| run.path()).find(|run| run.join("settings.json").exists());
    began.map(|run| run.join("events.jsonl"))
}

fn lines(project: &Project) -> usize {
    let text = journal(project).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

fn start(project: &Project) -> Running {
    if journal(project).is_some() {
        project.ralph(["resume"]).start()
    } else {
        project.ralph(["run", "-p", "x", "--", "robot"]).start()
    }
}

/// Kills it at some moment: after so many lines of its journal and a little more, or after so long.
fn kill(project: &Project, moment: u64) {
    let before = lines(project);
    let run = start(project);
    let more = (moment % 41) as usize;
    // A busy machine may take longer to begin at all than it is given; some moments must be later ones.
    if more >= 30 {
        wait_until(LONG, || lines(project) > before);
    }
    let until = Instant::now() + Duration::from_millis(300);
    while lines(project) < before + more && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Not for synchronisation: any moment is as good as any other.
    std::thread::sleep(Duration::from_micros(chance(moment) % 4_000));
    run.signal(Signal::KILL);
    run.wait().ended_by(Signal::KILL);
}

/// Every whole line is an event, and iterations only become more.
fn iterations(project: &Project) -> u64 {
    let text = journal(project).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut last = 0;
    for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
        let event: serde_json::Value = serde_json::from_slice(line).expect("a whole line");
        if event["event"] == "iteration_ended" {
            last = event["iteration"].as_u64().expect("a number");
        }
    }
    last
}

/// Nobody pays for another agent while there is an answer that is not checked to the end.
fn pays_once(project: &Project) {
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

fn killed_again_and_again(series: u64) {
    let project = project();
    let mut done = 0;
    for n in 0..KILLS {
        kill(&project, chance(series * 1_000 + n));
        let now = iterations(&project);
        assert!(now >= done, "iteration {now} after {done}");
        done = now;
        // A git that is killed leaves its own locks behind, as it always does.
        let script = "find .git -name '*.lock' -delete 2>/dev/null || true";
        project.program("sh", ["-c", script]).run().success();
    }
    project.write("finish", "");
    let output = project.ralph(["resume"]).run();
    output.code(0).stdout_has("Goes on after it was cut off");
    wait_until(LONG, || project.processes().is_empty());
    project.git_command(["fsck", "--strict"]);
    assert_eq!(project.git_command(["status", "--porcelain", "work", "more"]), "");
    pays_once(&project);
    let events = project.events();
    let continued = events.all("run_continued").len() as u64;
    assert!(continued > KILLS / 8, "the moments are all too early: {continued}");
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    assert!(events.last("run_ended")["iterations"].as_u64() >= Some(done), "it counts on");
    let runs = std::fs::read_dir(project.path().join(".ralph/runs")).expect("runs").flatten();
    let journals = runs.filter(|run| run.path().join("events.jsonl").exists());
    assert_eq!(journals.count(), 1, "all of it is one run");
}

// Beside each other, because each of them mostly waits.

#[test]
fn killed_at_any_moment_first_series() {
    killed_again_and_again(1);
}

#[test]
fn killed_at_any_moment_second_series() {
    killed_again_and_again(2);
}

#[test]
fn killed_at_any_moment_third_series() {
    killed_again_and_again(3);
}

#[test]
fn killed_at_any_moment_fourth_series() {
    killed_again_and_again(4);
}
