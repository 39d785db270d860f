//! No process is left over however an agent or ralph ends, and ralph never hangs.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, Running, is_alive, time_ms, wait_until};

const DONE: &str = "<response>DONE</response>";

/// A tool in its own session that ignores TERM and holds standard output open.
fn stray(project: &Project) -> Value {
    json!({"stray": {"pid_file": project.sibling("stray.pid")}})
}

fn stray_pid(project: &Project) -> i32 {
    project.wait_for_file(project.sibling("stray.pid")).parse().expect("a process id")
}

fn wait_for_event(project: &Project, kind: &str) {
    project.wait_for_event(kind);
}

#[track_caller]
fn assert_no_processes(project: &Project) {
    assert_eq!(project.processes(), []);
    let pid = stray_pid(project);
    assert!(!is_alive(pid), "{pid}");
}

#[test]
fn leftover_process_is_ended_after_normal_end() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([stray(&project), {"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    assert_no_processes(&project);
    let leftovers = project.events();
    let leftovers = leftovers.find("leftovers");
    assert_eq!(leftovers["kept"], false);
    assert_eq!(leftovers["processes"][0]["pid"], stray_pid(&project));
}

#[test]
fn kept_background_process_is_named() {
    let project = Project::new();
    project.settings(&json!({"agent": {"keepBackground": true}}));
    let agent = project.fake_agent(&json!([stray(&project), {"print": DONE}]));
    let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
    let pid = stray_pid(&project);
    output.code(0);
    assert!(is_alive(pid));
    assert_eq!(project.events().find("leftovers")["kept"], true);
    let printed = format!("{}{}", output.stdout, output.stderr);
    assert!(printed.contains(&pid.to_string()), "{printed}");
}

fn hanging(project: &Project) -> Running {
    let agent =
        project.fake_agent(&json!([stray(project), "ignore_signals", {"print": "set"}, "hang"]));
    let run = project.ralph(["run", "-p", "x", "--"]).args(agent).start();
    project.wait_for_event("text");
    run
}

#[track_caller]
fn end_with_signals(signals: &[Signal]) {
    let project = Project::new();
    let run = hanging(&project);
    for (sent, signal) in signals.iter().enumerate() {
        run.signal(*signal);
        wait_until(LONG, || project.events().all("stop_requested").len() == sent + 1);
    }
    run.wait().code(130).stderr_has("Received");
    assert_no_processes(&project);
    assert_eq!(project.events().last("agent_ended")["ended_by"], "interrupt");
    assert_eq!(project.events().last("run_ended")["outcome"], "interrupted");
}

#[test]
fn leftover_process_is_ended_after_two_sigint() {
    end_with_signals(&[Signal::INT, Signal::INT]);
}

#[test]
fn leftover_process_is_ended_after_two_sigterm() {
    end_with_signals(&[Signal::TERM, Signal::TERM]);
}

#[test]
fn leftover_process_is_ended_after_sighup() {
    end_with_signals(&[Signal::HUP]);
}

#[test]
fn leftover_process_is_ended_after_sigquit() {
    end_with_signals(&[Signal::QUIT]);
}

#[test]
fn leftover_process_is_ended_after_ctrl_backslash() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([stray(&project), {"print": "set"}, "hang"]));
    let tmux = project.ralph(["run", "-p", "x", "--"]).args(agent).in_tmux();
    project.wait_for_event("text");
    tmux.send_keys(["C-\\"]);
    assert_eq!(tmux.wait_for_exit(LONG), 130);
    let pid = stray_pid(&project);
    assert!(!is_alive(pid), "{pid}");
    assert_eq!(project.events().last("run_ended")["outcome"], "interrupted");
}

#[test]
fn inherited_ignored_signals_stay_ignored() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"wait_for": "go"}, {"print": DONE}]));
    // As a shell without job control starts background commands.
    let script = "trap '' INT QUIT; exec nohup \"$0\" \"$@\"";
    let args = ["-c", script, env!("CARGO_BIN_EXE_ralph"), "run", "-p", "x", "--"];
    let run = project.program("sh", args).args(agent).start();
    project.wait_for_event("agent_started");
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::INT] {
        run.signal(signal);
    }
    project.write("go", "");
    run.wait().code(0);
    assert!(!project.events().has("stop_requested"));
}

#[test]
fn third_signal_kills_immediately() {
    let project = Project::new();
    let run = hanging(&project);
    for sent in 0..3 {
        run.signal(Signal::INT);
        if sent < 2 {
            wait_until(LONG, || project.events().all("stop_requested").len() == sent + 1);
        }
    }
    run.wait().code(130);
    // Less than the grace period after the second signal.
    let events = project.events();
    let took = time_ms(events.last("agent_ended")) - time_ms(events.all("stop_requested")[1]);
    assert!(took < 5_000, "{took} ms");
    assert_no_processes(&project);
}

#[test]
fn leftover_process_is_ended_after_each_time_limit() {
    // In parallel, because each mostly waits.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            check_limit(|ms| json!({"inactivityTimeoutSeconds": ms / 1000.0}), "inactivity", 4)
        });
        scope.spawn(|| {
            check_limit(
                |ms| json!({"iterationTimeoutSeconds": ms / 1000.0}),
                "iteration_timeout",
                4,
            )
        });
        scope.spawn(|| {
            check_limit(|ms| json!({"budget": {"duration": format!("{ms}ms")}}), "budget", 3)
        });
    });
}

/// Tries growing limits: the machine decides how fast an agent starts its tool.
fn check_limit(limit: impl Fn(f64) -> Value, cause: &str, code: i32) {
    for ms in [300.0, 1_000.0, 3_000.0, 10_000.0] {
        let project = Project::new();
        let mut settings = limit(ms);
        settings["retry"] = json!({"max": 0});
        project.settings(&settings);
        let agent = project.fake_agent(&json!([stray(&project), {"print": DONE}, "hang"]));
        project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(code);
        assert_eq!(project.processes(), []);
        if project.sibling("stray.pid").exists() {
            assert_no_processes(&project);
            assert_eq!(project.events().last("agent_ended")["ended_by"], cause);
            return;
        }
    }
    panic!("{cause}: no agent came to start its tool");
}

#[test]
fn run_time_budget_ends_any_phase() {
    let hangs = "sleep 100";
    for settings in [
        json!({"guardrails": [{"command": hangs}]}),
        json!({"retry": {"backoffSeconds": 100}}),
        json!({"scm": {"command": "sh", "tasks": [format!("-c \"{hangs}\"")]}}),
    ] {
        let project = Project::new();
        let mut settings = settings;
        settings["budget"] = json!({"duration": "500ms"});
        project.settings(&settings);
        let fails = settings.get("retry").is_some();
        let agent = project.fake_agent(&json!([{"print": DONE}, {"exit": u8::from(fails)}]));
        project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(3);
        assert_eq!(project.processes(), []);
        assert_eq!(project.events().last("run_ended")["outcome"], "budget", "{settings}");
    }
}

#[test]
fn leftover_process_is_ended_after_result_grace() {
    let project = Project::new();
    project.settings(&json!({"resultGraceSeconds": 0.3}));
    project.install_agent(
        "claude",
        &json!([
            {"claude": "init"}, stray(&project), {"claude": {"text": DONE}},
            {"claude": {"result": {}}}, "hang",
        ]),
    );
    project.ralph(["run", "-p", "x", "--", "claude"]).run().code(0);
    assert_no_processes(&project);
    assert_eq!(project.events().find("agent_ended")["ended_by"], "result_grace");
}

#[test]
fn stopped_agent_is_ended() {
    let project = Project::new();
    project.settings(&json!({"inactivityTimeoutSeconds": 1, "retry": {"max": 0}}));
    let agent = project.fake_agent(&json!([{"print": "x"}, {"signal": 19}, {"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(4);
    assert_eq!(project.processes(), []);
}

#[test]
fn forking_agent_leaves_no_processes() {
    let project = Project::new();
    // Each starts a successor in a new session and exits, at most a thousand times.
    let fork = r#"cat >/dev/null; echo started
        n=0; f() { n=$((n+1)); [ $n -gt 1000 ] || (setsid sh -c ': ' & sleep 0.01; f) & }; f; f; f
        echo '<response>DONE</response>'"#;
    project.ralph(["run", "-p", "x", "--", "sh", "-c", fork]).run().code(0);
    assert_eq!(project.processes(), []);
}

#[test]
fn child_holding_output_is_ended() {
    let project = Project::new();
    let wrapper = format!("cat >/dev/null; (sleep 100) & echo '{DONE}'");
    project.ralph(["run", "-p", "x", "--", "sh", "-c", &wrapper]).run().code(0);
    assert_eq!(project.processes(), []);
    assert!(project.events().has("leftovers"));
}

#[test]
fn hanging_git_is_ended_by_signal() {
    for hangs_in in ["diff", "commit"] {
        let project = Project::git();
        // Under another name it would not count as git.
        let git = format!(
            "case $1 in {hangs_in}) : >'{}'; sleep 100;; *) exec /usr/bin/git \"$@\";; esac",
            project.sibling("reached").display()
        );
        let path = project.sibling("bin").join("git");
        project.write("../bin/git", format!("#!/bin/sh\n{git}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
        project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
        let agent = project.fake_agent(&json!({
            "sessions": [[{"write": {"path": "a", "text": ""}}, {"print": DONE}]],
            "commit_message": [{"print": "m"}],
        }));
        let run = project.ralph(["run", "-p", "x", "--"]).args(agent).start();
        project.wait_for_file(project.sibling("reached"));
        run.signal(Signal::INT);
        wait_for_event(&project, "stop_requested");
        run.signal(Signal::INT);
        run.wait().code(130);
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn ctrl_c_does_not_reach_agent() {
    let project = Project::new();
    let agent = r#"trap 'echo INT >>signals; exit 9' INT; cat >/dev/null; : >ready
        while [ ! -e go ]; do sleep 0.02; done; echo '<response>DONE</response>'"#;
    let tmux = project.ralph(["run", "-p", "x", "--", "sh", "-c", agent]).in_tmux();
    project.wait_for_file("ready");
    tmux.send_keys(["C-c"]);
    tmux.wait_for_text(LONG, "Received signal, shutting down...");
    project.write("go", "");
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    assert!(!project.has("signals"), "the agent was to finish its work");
    assert_eq!(project.events().find("agent_ended")["exit"]["code"], 0);
}
