//! Full and read-only disks, each a file system private to one test.

use serde_json::json;

use crate::support::Project;

const DONE: &str = "<response>DONE</response>";

/// A small disk for the project's `.ralph`.
const SMALL_PROJECT: &str = "mount -t tmpfs -o size=256k none .ralph";

/// A small disk for runs.
const SMALL_HOME: &str = "mkdir -p ~/.ralph && mount -t tmpfs -o size=256k none ~/.ralph";

/// Waits until the agent's output up to `now` is in the journal.
const RECORDED: &str = r#"until grep -q '"now"' .ralph/runs/*/events.jsonl; do sleep 0.01; done"#;

fn ralph(project: &Project, agent: &[String]) -> String {
    assert!(!project.path().to_string_lossy().contains(' '));
    format!("{} run -p x -n 3 -- {}", env!("CARGO_BIN_EXE_ralph"), agent.join(" "))
}

#[test]
fn full_disk_at_start_is_error() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([project.record_step(), {"print": DONE}]));
    let run = ralph(&project, &agent);
    for (mount, dir) in [(SMALL_PROJECT, ".ralph"), (SMALL_HOME, "~/.ralph")] {
        let script = format!(
            "head -c 1M /dev/zero >{dir}/filler 2>/dev/null
             {run}; echo code $?
             rm {dir}/filler; {run} >/dev/null; echo code $?"
        );
        let before = project.agent_starts().len();
        let Some(output) = project.run_with_mount(mount, &script) else { return };
        output.stderr_has("No space left on device").stderr_has("free some space");
        output.stdout_is("code 2\ncode 0\n").stderr_lacks("cut off").stderr_lacks("panicked");
        assert_eq!(project.agent_starts().len() - before, 1, "no agent without a journal");
    }
}

/// An empty ignore file would let later commits include keys, journals and logs.
#[test]
fn runtime_files_stay_out_of_git_after_full_disk() {
    let project = Project::git();
    let fill = "git clean -fdxq; head -c 1M /dev/zero >.ralph/filler; true";
    let agent = project.fake_agent(&json!({"sessions": [
        [{"shell": "echo done >work"}, {"print": DONE}],
        [{"print": "now"}, {"shell": format!("{RECORDED}; {fill}")}, {"print": DONE}],
        [{"shell": "echo more >work"}, {"print": DONE}],
    ], "commit_message": [{"print": "Work"}]}));
    let run = ralph(&project, &agent);
    let script = format!(
        r#"echo '{{"scm":{{"command":"git","tasks":["commit"]}},"agent":{{"env":{{"KEY":"s3cret"}}}}}}' >.ralph/settings.json
         git add -f .ralph/settings.json; git commit -qm first
         fill() {{ head -c 1M /dev/zero >.ralph/filler; }}
         fill 2>/dev/null; {run} >/dev/null; echo code $?
         rm .ralph/filler; {run} >/dev/null; echo code $?
         {run} >/dev/null; echo code $?
         rm .ralph/filler; {run} >/dev/null; echo code $?
         git log --format=%s; git ls-files"#
    );
    let Some(output) = project.run_with_mount(SMALL_PROJECT, &script) else { return };
    output.stdout_is(
        "code 2\ncode 0\ncode 0\ncode 0\nWork\nWork\nWork\nfirst\n.ralph/.gitignore\n.ralph/settings.json\nwork\n",
    );
}

#[test]
fn disk_filling_up_during_output_ends_run() {
    let project = Project::new();
    let pid_file = project.sibling("stray.pid");
    let agent = project.fake_agent(&json!([
        {"stray": {"pid_file": pid_file}}, {"lines_megabytes": 5}, {"print": DONE}, "hang",
    ]));
    let next = project.fake_agent(&json!([{"print": DONE}]));
    let (run, next) = (ralph(&project, &agent), ralph(&project, &next));
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let script = format!(
        "{run} >/dev/null; echo code $?
         cat .ralph/runs/*/events.jsonl >journal
         rm .ralph/runs/*/raw*; {ralph} runs
         rm -r .ralph/runs/*; {next} >/dev/null; echo code $?"
    );
    let Some(output) = project.run_with_mount(SMALL_HOME, &script) else { return };
    output.stderr_has("No space left on device").stderr_lacks("panicked");
    output.stdout_has("code 2\n").stdout_has("code 0\n");
    assert_eq!(project.processes(), []);
    // Partial lines were truncated, which left room for the end.
    let journal = project.read("journal");
    let events: Vec<serde_json::Value> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["outcome"], "broken");
}

/// With `ulimit -f`, the kernel kills a process that writes more.
#[test]
fn file_size_limit_ends_run() {
    let project = Project::new();
    let pid_file = project.sibling("stray.pid");
    let agent = project.fake_agent(&json!([
        {"shell": "grep -E '^Sig(Ign|Cgt)' /proc/self/status >../signals"},
        {"stray": {"pid_file": pid_file}}, {"lines_megabytes": 5}, {"print": DONE}, "hang",
    ]));
    let run = ralph(&project, &agent);
    // Through a pipe, because the limit applies to the test's files as well.
    let script = format!("ulimit -f 200; {{ {run}; echo code $?; }} | tail -n 9");
    let output = project.program("sh", ["-c", &script]).run();
    output
        .stdout_has("code 2\n")
        .stdout_has("cannot write the journal")
        .stdout_has("File too large");
    assert_eq!(project.processes(), []);
    assert_eq!(project.events().last("run_ended")["outcome"], "broken");
    // The agent's processes keep the default behaviour.
    for line in project.read("../signals").lines() {
        let signals = line.split_whitespace().next_back().expect("a mask");
        let signals = u64::from_str_radix(signals, 16).expect("a mask in hexadecimal");
        assert_eq!(signals & (1 << (rustix::process::Signal::XFSZ.as_raw() - 1)), 0, "{line}");
    }
}

#[test]
fn read_only_project_is_error() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([project.record_step(), {"print": DONE}]));
    let run = ralph(&project, &agent);
    let mount = "mount --bind . . && mount -o remount,ro,bind . && cd \"$PWD\"";
    let script = format!("{run}; echo code $?; {} runs; echo code $?", env!("CARGO_BIN_EXE_ralph"));
    let Some(output) = project.run_with_mount(mount, &script) else { return };
    output.stdout_has("code 2\n").stdout_has("code 0\n");
    output.stderr_has("Read-only file system").stderr_has("make it writable");
    assert!(project.agent_starts().is_empty());
}

/// Another process takes the last block, and the journal uses its reserve.
#[test]
fn run_end_is_recorded_on_full_disk() {
    let project = Project::new();
    let fill = "head -c 1M /dev/zero >~/.ralph/filler; i=0; \
                while test $i -lt 2000; do i=$((i+1)); echo line $i; sleep 0.003; done";
    let agent = project.fake_agent(&json!([{"shell": fill}, "hang"]));
    let (run, ralph) = (ralph(&project, &agent), env!("CARGO_BIN_EXE_ralph"));
    let script = format!(
        "{run} >/dev/null 2>&1; echo code $?
         cat .ralph/runs/*/events.jsonl >journal; ls .ralph/runs/*
         {ralph} report"
    );
    let Some(output) = project.run_with_mount(SMALL_HOME, &script) else { return };
    output.stdout_has("code 2\n").stdout_lacks("reserve").stdout_lacks("cut off,");
    output.stdout_has("cannot write the journal").stdout_has("No space left on device");
    assert_eq!(project.processes(), []);
    let journal = project.read("journal");
    let events: Vec<serde_json::Value> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().rev().take(3).map(|event| &event["event"]).collect();
    assert_eq!(names, ["run_ended", "iteration_ended", "agent_ended"]);
}

/// Runs a script with a small `$RALPH_HOME`, which `fill` fills and `clear` empties. The worker is
/// `w`.
fn with_small_home(project: &Project, script: &str) -> Option<crate::support::Output> {
    let home = project.sibling("small");
    std::fs::create_dir(&home).expect("a directory beside the project");
    let mount = format!("mount -t tmpfs -o size=256k none {}", home.display());
    let script = format!(
        "export RALPH_HOME={home} RALPH_TMUX_SOCKET={socket}
         fill() {{ head -c 1M /dev/zero >$RALPH_HOME/filler 2>/dev/null; true; }}
         clear() {{ rm $RALPH_HOME/filler; }}
         ralph() {{ {ralph} \"$@\"; }}
         {script}
         tmux -S $RALPH_TMUX_SOCKET kill-server 2>/dev/null",
        home = home.display(),
        socket = project.sibling("tmux.sock").display(),
        ralph = env!("CARGO_BIN_EXE_ralph"),
    );
    project.run_with_mount(&mount, &script)
}

/// The last state could not be saved, but the journal, on another disk, has the outcome.
#[test]
fn worker_complete_on_full_home_is_not_rerun() {
    let project = Project::new();
    project.write("PROMPT.md", "x\n");
    let agent = project.fake_agent(&json!([project.record_step(), {"print": "XYZ"}]));
    let script = format!(
        "ralph spawn --name w -f PROMPT.md -n 3 --done-pattern XYZ --wait -- {agent} >/dev/null; echo code $?
         # As a full disk left it before there was room set aside for it.
         sed -i 's/\"status\": \"stopped\"/\"status\": \"running\"/' $RALPH_HOME/workers/w/state.json
         ralph wait w >/dev/null; echo code $?
         ralph ls; ralph status w; ralph resume w; ralph resume --all; ralph kill w; ralph rm w",
        agent = agent.join(" "),
    );
    let Some(output) = with_small_home(&project, &script) else { return };
    output.stdout_has("code 0\ncode 0\n").stdout_lacks("gone").stdout_lacks("resumed");
    output.stdout_has("no background runs are paused\n").stdout_has("removed w\n");
    output.stderr_has("run 'w' has ended: complete").stderr_has("run 'w' is not running");
    assert_eq!(project.agent_starts().len(), 1, "it is complete");
}

#[test]
fn worker_on_full_home_fails_and_can_be_resumed() {
    let project = Project::new();
    project.write("PROMPT.md", "x\n");
    let filler = project.sibling("small/filler");
    let fill = format!("head -c 1M /dev/zero >{} 2>/dev/null; true", filler.display());
    let agent = project.fake_agent(&json!({"sessions": [
        [project.record_step(), {"shell": fill}, {"print": "paid"}],
        [project.record_step(), {"print": "XYZ"}],
    ]}));
    let script = format!(
        "ralph spawn --name w -f PROMPT.md -n 3 --done-pattern XYZ --wait -- {agent} >/dev/null; echo code $?
         ralph status w; cat $RALPH_HOME/workers/w/state.json
         clear; ralph resume w; ralph wait w >/dev/null; echo code $?",
        agent = agent.join(" "),
    );
    let Some(output) = with_small_home(&project, &script) else { return };
    output.stdout_has("code 2\n").stdout_has("Status: failed (cannot save the run's state in ");
    output.stdout_has("No space left on device").stdout_has("\"status\": \"failed\"");
    output.stdout_has("resumed ralph loop for w\ncode 0\n");
    assert_eq!(project.agent_starts().len(), 2);
}

#[test]
fn worker_completes_on_full_home() {
    let project = Project::new();
    project.write("PROMPT.md", "x\n");
    let filler = project.sibling("small/filler");
    let fill = format!("head -c 1M /dev/zero >{} 2>/dev/null; true", filler.display());
    let agent =
        project.fake_agent(&json!([project.record_step(), {"shell": fill}, {"print": "XYZ"}]));
    let script = format!(
        "ralph spawn --name w -f PROMPT.md -n 3 --done-pattern XYZ --wait -- {agent} >/dev/null; echo code $?
         cat $RALPH_HOME/workers/w/state.json; ralph resume --all",
        agent = agent.join(" "),
    );
    let Some(output) = with_small_home(&project, &script) else { return };
    output.stdout_has("code 0\n").stdout_has("\"outcome\": \"complete\"");
    output.stdout_has("no background runs are paused\n");
    assert_eq!(project.agent_starts().len(), 1);
}
