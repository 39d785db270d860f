//! A display that is read slowly or not at all never stops a run.

use std::io::{PipeReader, Read, Seek, SeekFrom};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, Running, wait_until};
use crate::{DONE, run, run_with};

const NUMBERS: u64 = 20_000;

fn numbers(digits: usize) -> Value {
    json!({"shell": format!("seq -f %0{digits}.0f 0 {}", NUMBERS - 1)})
}

/// Ten megabytes: more than the queue for people holds.
const MUCH: usize = 500;

/// More than the queue of each output format holds.
const FORMS: [(&str, usize); 2] = [("human", MUCH), ("json", 4_000)];

fn start(project: &Project, args: &[&str], script: &Value) -> (Running, PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let args = [&["-p", "do it"], args].concat();
    (run(project, &args, script).start_with_stdout(Some(writer.into())), reader)
}

fn end_of_journal(project: &Project) -> String {
    let end = || -> std::io::Result<String> {
        let mut runs = std::fs::read_dir(project.path().join(".ralph/runs"))?;
        let run = runs.next().ok_or(std::io::ErrorKind::NotFound)??;
        let mut file = std::fs::File::open(run.path().join("events.jsonl"))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(8_000)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    end().unwrap_or_default()
}

fn journal_has(project: &Project, text: &str) -> bool {
    end_of_journal(project).contains(text)
}

fn last(project: &Project, event: &str) -> Value {
    let end = end_of_journal(project);
    let mut entries = end.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.rfind(|entry| entry["event"] == event).expect(event)
}

#[test]
fn unread_output_does_not_delay_inactivity_limit() {
    // In parallel, because each waits for its reader at the end.
    let runs = FORMS.map(|(form, digits)| {
        let project = Project::new();
        project.settings(&json!({"retry": {"max": 0}}));
        let script = json!([numbers(digits), "hang"]);
        let args = ["--inactivity-timeout", "2", "--output", form];
        let run = start(&project, &args, &script);
        (project, run)
    });
    for (project, (running, _reader)) in runs {
        running.wait().code(4);
        assert_eq!(last(&project, "agent_ended")["ended_by"], "inactivity");
        assert_eq!(last(&project, "run_ended")["outcome"], "agent_failed");
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn unread_output_does_not_delay_signals() {
    for (form, digits) in FORMS {
        let project = Project::new();
        let script = json!([numbers(digits), {"print": "printed all"}, "hang"]);
        let (running, _reader) = start(&project, &["--output", form], &script);
        wait_until(LONG, || journal_has(&project, "printed all"));
        running.signal(Signal::TERM);
        wait_until(LONG, || journal_has(&project, "SIGTERM"));
        running.signal(Signal::TERM);
        running.wait().code(130);
        assert_eq!(last(&project, "agent_ended")["ended_by"], "interrupt");
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn paused_reader_sees_missing_count_and_rest_in_order() {
    let project = Project::new();
    let go = project.sibling("go");
    let script =
        json!([numbers(MUCH), {"print": "printed all"}, {"wait_for": go}, {"print": DONE}]);
    let (running, mut reader) = start(&project, &[], &script);
    wait_until(LONG, || journal_has(&project, "printed all"));
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    std::fs::write(go, "").unwrap();
    running.wait().code(0);
    let text = reading.join().unwrap();
    let (before, after) =
        text.split_once(" lines were not shown; `ralph replay` has them\n").unwrap();
    let missing: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    let shown_numbers = |text: &str| -> Vec<u64> {
        let numbers = text.lines().filter(|line| line.len() == MUCH);
        numbers.filter_map(|line| line.parse().ok()).collect()
    };
    let (before, after) = (shown_numbers(before), shown_numbers(after));
    assert!(before.len() > 5_000 && missing > 5_000, "{} {missing}", before.len());
    assert!(before.iter().copied().eq(0..before.len() as u64), "not in order");
    // The line that was cut counts as shown or as missing.
    let next = before.len() as u64 + missing;
    assert!(after[0] == next || after[0] + 1 == next, "{} {missing} {}", before.len(), after[0]);
    assert!(after.iter().copied().eq(after[0]..NUMBERS), "not in order");
    assert!(text.contains("Done after"), "the end is not shown");
}

#[test]
fn slow_json_reader_gets_every_event() {
    let project = Project::new();
    let text = "x".repeat(60_000);
    let texts = vec![json!({"claude": {"text": text}}); 100];
    let script: Value = [json!({"claude": "init"})]
        .into_iter()
        .chain(texts)
        .chain([json!({"claude": {"text": DONE}}), json!({"claude": {"result": {}}})])
        .collect();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let args = ["-p", "do it", "--output", "json"];
    let running =
        run_with("claude", &project, &args, &script).start_with_stdout(Some(writer.into()));
    // Starts reading only after the run has ended, and slowly.
    wait_until(LONG, || journal_has(&project, "run_ended"));
    let mut read = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut piece).unwrap() {
            0 => break,
            count => read.extend_from_slice(&piece[..count]),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    running.wait().code(0);
    let journal = std::fs::read(project.newest_run().join("events.jsonl")).unwrap();
    assert!(journal.len() > 6_000_000);
    assert!(read == journal, "{} bytes of {}", read.len(), journal.len());
}

#[test]
fn ctrl_s_stops_only_the_terminal() {
    let project = Project::new();
    let stopped = project.sibling("stopped");
    project.settings(&json!({"retry": {"max": 0}}));
    let script = json!([
        {"print": "here"}, {"wait_for": stopped}, numbers(MUCH), {"print": "printed all"}, "hang"
    ]);
    let tmux = run(&project, &["-p", "do it", "--inactivity-timeout", "2"], &script).in_tmux();
    tmux.wait_for_text(LONG, "here");
    tmux.send_keys(["C-s"]);
    std::fs::write(&stopped, "").unwrap();
    assert_eq!(tmux.wait_for_exit(LONG), 4, "the inactivity limit");
    assert!(!tmux.capture().contains("printed all"), "the terminal was not stopped");
    assert_eq!(project.events().find("agent_ended")["ended_by"], "inactivity");
    drop(tmux);
    wait_until(LONG, || project.processes().is_empty());
}

#[test]
fn ctrl_c_twice_on_stopped_terminal_ends_run() {
    let project = Project::new();
    let stopped = project.sibling("stopped");
    let script = json!([
        {"print": "here"}, {"wait_for": stopped}, numbers(MUCH), {"print": "printed all"}, "hang"
    ]);
    let tmux = run(&project, &["-p", "do it"], &script).in_tmux();
    tmux.wait_for_text(LONG, "here");
    tmux.send_keys(["C-s"]);
    std::fs::write(&stopped, "").unwrap();
    wait_until(LONG, || journal_has(&project, "printed all"));
    tmux.send_keys(["C-c"]);
    wait_until(LONG, || journal_has(&project, "SIGINT"));
    // The key has also resumed the terminal.
    tmux.send_keys(["C-s"]);
    tmux.send_keys(["C-c"]);
    assert_eq!(tmux.wait_for_exit(LONG), 130);
    assert_eq!(project.events().find("agent_ended")["ended_by"], "interrupt");
    drop(tmux);
    wait_until(LONG, || project.processes().is_empty());
}
