//! `ralph ui` on a real terminal: runs appear, are steered, end and die.

#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use support::Tmux;
use support::{LONG, Project, Running, is_alive, wait_until};

/// Changes must be visible by then. A busy machine is slower than the 200 ms that are promised.
const SOON: Duration = Duration::from_secs(5);

fn open_ui(project: &Project, args: &[&str]) -> Tmux {
    open_ui_on("TERM=tmux-256color", project, args)
}

/// tmux has a `TERM` of its own for its programs.
fn open_ui_on(term: &str, project: &Project, args: &[&str]) -> Tmux {
    let command = [term, env!("CARGO_BIN_EXE_ralph"), "ui"];
    project.program("env", command).args(args).in_tmux()
}

/// A run whose every iteration waits for a file: `go1`, `go2`, …
fn start_run(project: &Project, name: &str) -> Running {
    let session = |at: u32| {
        json!([
            {"print": format!("Working on part {at}.")},
            {"wait_for": project.sibling(&format!("go{at}"))},
            {"print": format!("Part {at} is finished.")},
        ])
    };
    let sessions: Vec<_> = (1..=4).map(session).collect();
    let agent = project.fake_agent(&json!({"sessions": sessions}));
    let run = ["run", "--name", name, "-n", "4", "-p", "Do the next part.", "--"];
    let run = project.ralph(run).args(agent).start();
    project.wait_for_event("agent_started");
    run
}

fn kill(run: Running) {
    run.signal(Signal::KILL);
    run.wait().killed_by(Signal::KILL);
}

fn release(project: &Project, at: u32) {
    std::fs::write(project.sibling(&format!("go{at}")), "").expect("a file beside the project");
}

fn ui_pid(project: &Project) -> i32 {
    let processes = project.processes();
    let is_ui = |command: &str| {
        command.trim_end().ends_with(" ui")
            && !command.starts_with("sh ")
            && !command.contains("tmux")
    };
    processes.iter().find(|it| is_ui(&it.command)).expect("the ui").pid
}

#[test]
fn new_run_appears_and_is_steered() {
    let project = Project::new();
    let screen = open_ui(&project, &[]);
    screen.wait_for_text(LONG, "No runs on this machine yet.");
    let run = start_run(&project, "parts");
    screen.wait_for_text(LONG, "Working on part 1.");
    let fleet = screen.capture();
    assert!(fleet.contains("working 1") && fleet.contains("● parts"), "{fleet}");

    screen.send_keys(["i"]);
    screen.wait_for_text(SOON, "tell parts");
    screen.send_keys(["Mind the gap.", "Enter"]);
    screen.wait_for_text(LONG, "you  Mind the gap.");
    let told = project.events();
    assert_eq!(told.find("guidance_received")["text"], "Mind the gap.");

    screen.send_keys(["p"]);
    screen.wait_for_text(LONG, "pausing");
    release(&project, 1);
    screen.wait_for_text(LONG, "paused by you");
    assert!(screen.capture().contains("waiting 1"));
    screen.send_keys(["r"]);
    screen.wait_for_text(LONG, "Working on part 2.");
    assert!(screen.capture().contains("delivered with iteration 2"), "{}", screen.capture());

    screen.send_keys(["x"]);
    screen.wait_for_text(SOON, "stop parts?");
    // The dialog ignores keys at first: press until it has understood.
    let end = Instant::now() + LONG;
    while screen.capture().contains("stop parts?") {
        assert!(Instant::now() < end, "{}", screen.capture());
        screen.send_keys(["e"]);
    }
    screen.wait_for_text(LONG, "stopped by you");
    run.wait().code(130);
    screen.send_keys(["q"]);
    assert_eq!(screen.wait_for_exit(LONG), 0);
}

#[test]
fn question_is_answered() {
    let project = Project::new();
    let agent = project.fake_agent(&json!({"sessions": [
        [{"print": "<question>410 or 303?\nThe story does not say.</question>"},
         {"wait_for": project.sibling("go1")}],
        [project.record_step(), {"wait_for": project.sibling("go2")}],
    ]}));
    let run = ["run", "--name", "links", "-n", "2", "-p", "Expire links.", "--"];
    let run = project.ralph(run).args(agent).start();
    let screen = open_ui(&project, &[]);
    release(&project, 1);
    screen.wait_for_text(LONG, "asks 410 or 303?");
    assert!(screen.capture().contains("needs you 1"));
    screen.send_keys(["a"]);
    screen.wait_for_text(SOON, "The story does not say.");
    screen.send_keys(["410, please.", "Enter"]);
    screen.wait_for_text(LONG, "you  410, please.");
    screen.wait_for_text(LONG, "needs you 0");
    release(&project, 2);
    run.wait().code(1);
    assert_eq!(project.events().find("question_answered")["text"], "410, please.");
    screen.wait_for_text(LONG, "iteration limit");
}

#[test]
fn killed_run_is_interrupted_at_once() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let screen = open_ui(&project, &["parts"]);
    screen.wait_for_text(LONG, "Working on part 1.");
    run.signal(Signal::KILL);
    screen.wait_for_text(SOON, "The process of the run is gone.");
    assert!(screen.capture().contains("needs you 1"));
    drop(run.wait());
}

#[test]
fn killed_ui_leaves_runs_alone() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let screen = open_ui(&project, &[]);
    screen.wait_for_text(LONG, "Working on part 1.");
    let ui = ui_pid(&project);
    rustix::process::kill_process(rustix::process::Pid::from_raw(ui).unwrap(), Signal::KILL)
        .unwrap();
    assert_eq!(screen.wait_for_exit(LONG), 128 + 9);
    assert!(is_alive(run.pid()));
    (1..=4).for_each(|at| release(&project, at));
    run.wait().code(1);
    assert_eq!(project.events().all("iteration_started").len(), 4);
}

/// What the shell finds after the UI: the screen, the cursor, the mouse, the line discipline.
#[track_caller]
fn assert_restored(screen: &Tmux) {
    let modes = "#{alternate_on} #{cursor_flag} #{mouse_any_flag}";
    wait_until(LONG, || screen.format(modes).trim() == "0 1 0");
    let settings = screen.wait_for_text(LONG, "icanon");
    assert!(!settings.contains("-icanon") && !settings.contains("-echo "), "{settings}");
}

/// Runs `ui` in a shell that does not repair the terminal itself.
fn ui_in_shell(project: &Project, after: &str) -> Tmux {
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let script = format!("set -m; '{ralph}' ui; {after}; stty -a; sleep 60");
    let screen = project.program("sh", ["-c", &script]).in_tmux();
    screen.wait_for_text(LONG, "No runs on this machine yet.");
    assert_eq!(screen.format("#{alternate_on} #{mouse_any_flag}").trim(), "1 1");
    screen
}

#[test]
fn terminal_is_restored_after_quit_and_signals() {
    let signals = [(None, 0), (Some(Signal::TERM), 0), (Some(Signal::HUP), 0)];
    for (signal, code) in signals.into_iter().chain([(Some(Signal::KILL), 128 + 9)]) {
        let project = Project::new();
        // After `kill -9` that takes a moment.
        let wait = "code=$?; until stty -a | grep -q ' icanon'; do :; done; echo code $code";
        let screen = ui_in_shell(&project, wait);
        match signal {
            None => screen.send_keys(["q"]),
            Some(signal) => {
                let pid = rustix::process::Pid::from_raw(ui_pid(&project)).unwrap();
                rustix::process::kill_process(pid, signal).unwrap();
            }
        }
        assert_restored(&screen);
        screen.wait_for_text(LONG, &format!("code {code}"));
    }
}

#[test]
fn suspended_ui_gives_the_terminal_back_and_continues() {
    let project = Project::new();
    let screen = ui_in_shell(&project, "read -r _; fg; echo code $?");
    screen.send_keys(["C-z"]);
    wait_until(LONG, || screen.format("#{alternate_on} #{mouse_any_flag}").trim() == "0 0");
    screen.send_keys(["Enter"]);
    screen.wait_for_text(LONG, "No runs on this machine yet.");
    screen.send_keys(["q"]);
    screen.wait_for_text(LONG, "code 0");
    assert_restored(&screen);
}

#[test]
fn resize_to_tiny_and_back() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let screen = open_ui(&project, &[]);
    screen.wait_for_text(LONG, "Working on part 1.");
    screen.resize(10, 3);
    screen.wait_for_text(SOON, "1 working");
    assert!(screen.capture().contains("0 need you"), "{}", screen.capture());
    screen.resize(40, 8);
    screen.wait_for_text(SOON, "This terminal is 40×8.");
    screen.resize(80, 24);
    screen.wait_for_text(SOON, "Working on part 1.");
    screen.resize(200, 60);
    screen.wait_for_text(SOON, "into the run");
    kill(run);
}

#[test]
fn pasted_text_is_one_message() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let screen = open_ui(&project, &[]);
    screen.wait_for_text(LONG, "Working on part 1.");
    screen.send_keys(["i"]);
    screen.wait_for_text(SOON, "tell parts");
    screen.paste("first line\nq second line 日本\n");
    screen.wait_for_text(SOON, "q second line 日本");
    screen.send_keys(["Enter"]);
    wait_until(LONG, || project.events().has("guidance_received"));
    assert_eq!(
        project.events().find("guidance_received")["text"],
        "first line\nq second line 日本"
    );
    kill(run);
}

#[test]
fn editor_writes_the_message() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let command =
        [r#"EDITOR=sh -c 'echo "edited: $(cat "$0")" >"$0"'"#, env!("CARGO_BIN_EXE_ralph"), "ui"];
    let screen = project.program("env", command).in_tmux();
    screen.wait_for_text(LONG, "Working on part 1.");
    screen.send_keys(["i"]);
    screen.wait_for_text(SOON, "tell parts");
    screen.send_keys(["draft", "C-e"]);
    screen.wait_for_text(LONG, "edited: draft");
    screen.send_keys(["Enter"]);
    wait_until(LONG, || project.events().has("guidance_received"));
    assert_eq!(project.events().find("guidance_received")["text"], "edited: draft");
    kill(run);
}

#[test]
fn tmux_window_is_shown_and_left() {
    let project = Project::new();
    let socket = format!("RALPH_TMUX_SOCKET={}", project.sibling("tmux.sock").display());
    let agent = project.fake_agent(&json!([
        {"print": "In the window."},
        {"wait_for": project.sibling("go1")},
    ]));
    let spawn = ["spawn", "--name", "windowed", "-p", "Wait.", "-n", "1", "--"];
    let ralph = project.program("env", [socket.as_str(), env!("CARGO_BIN_EXE_ralph")]);
    ralph.args(spawn).args(agent).run().code(0);
    let ui = ["TERM=tmux-256color", &socket, env!("CARGO_BIN_EXE_ralph"), "ui"];
    let screen = project.program("env", ui).in_tmux();
    screen.wait_for_text(LONG, "● windowed");
    screen.send_keys(["t"]);
    screen.wait_for_text(LONG, "starting iteration 1/1");
    screen.send_keys(["C-b", "d"]);
    screen.wait_for_text(LONG, "● windowed");
    screen.send_keys(["q"]);
    assert_eq!(screen.wait_for_exit(LONG), 0);
    let kill = ["kill-server"];
    let mut tmux = std::process::Command::new("tmux");
    tmux.env_remove("TMUX").arg("-S").arg(project.sibling("tmux.sock")).args(kill);
    tmux.output().unwrap();
}

#[test]
fn unusable_terminals_are_refused() {
    let project = Project::new();
    let inside = project.ralph(["ui"]).env("RALPH_RUN_ID", "x").run();
    inside.code(1).stderr_has("is not available inside a run");
    let refused = project.ralph(["ui"]).run();
    refused.code(2).stderr_has("error: ralph ui needs a terminal").stdout_is("");
    let screen = open_ui_on("TERM=dumb", &project, &[]);
    assert_eq!(screen.wait_for_exit(LONG), 2);
    let message = screen.scrollback();
    assert!(message.contains("cannot draw on this terminal (TERM=dumb)"), "{message}");
    let project = Project::new();
    let screen = open_ui(&project, &["nobody"]);
    assert_eq!(screen.wait_for_exit(LONG), 2);
    let message = screen.scrollback();
    assert!(message.contains("no run has the name or id 'nobody'"), "{message}");
}

#[test]
fn ascii_terminal_gets_ascii_only() {
    let project = Project::new();
    let run = start_run(&project, "parts");
    let screen = open_ui_on("TERM=linux", &project, &[]);
    let text = screen.wait_for_text(LONG, "* parts");
    assert!(text.is_ascii(), "{text}");
    kill(run);
}

#[test]
fn demo_shows_several_loops_and_ends_them() {
    let project = Project::new();
    let screen = project.ralph(["demo", "--ui"]).in_tmux();
    screen.wait_for_text(LONG, "search-titles");
    screen.wait_for_text(LONG, "asks Should a page name keep digits?");
    screen.send_keys(["q"]);
    assert_eq!(screen.wait_for_exit(LONG), 0);
    wait_until(LONG, || project.processes().iter().all(|it| it.command.contains("tmux")));
}
