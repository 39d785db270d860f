//! A real terminal, and signals.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Project, Tmux, wait_until};
use crate::{DONE, run, run_with};

fn last_line(tmux: &Tmux) -> String {
    tmux.capture().trim_end().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn status_line_is_shown_during_run_and_removed_at_end() {
    let project = Project::new();
    let go = project.sibling("go");
    let script = json!([
        {"claude": "init"}, {"claude": {"text": "On it."}},
        {"claude": {"tool": {"name": "Bash", "input": {"command": "make"}}}},
        {"wait_for": go},
        {"claude": {"tool_result": {"content": "ok"}}},
        {"claude": {"text": DONE}}, {"claude": {"result": {"total_cost_usd": 0.5}}},
    ]);
    let tmux = run_with("claude", &project, &["-p", "do it"], &script).in_tmux();
    tmux.wait_for_text(LONG, "⏺ Bash(make)");
    // The status line is drawn after the output above it.
    wait_until(LONG, || {
        let last = last_line(&tmux);
        last.contains("1/10") && last.contains("Bash")
    });
    std::fs::write(go, "").unwrap();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    let screen = tmux.scrollback();
    assert!(screen.contains("✅ Complete (cost: $0.50"), "{screen}");
    let last = screen.lines().rfind(|line| !line.is_empty() && !line.starts_with("Pane is dead"));
    assert!(last.unwrap().starts_with("  report     ralph report "), "{screen}");
    assert!(screen.contains("\nDone after 1 iteration in "), "{screen}");
    assert_eq!(screen.matches("Bash").count(), 2, "{screen}");
}

#[test]
fn agent_output_is_rendered_on_terminal_only() {
    let long = ["word"; 40].join(" ");
    let said = format!("- **bold** {long}");
    let script = |project: &Project| {
        let path = project.path().canonicalize().unwrap().join("a.rs");
        json!([
            {"claude": "init"}, {"claude": {"text": said}},
            {"claude": {"tool": {"name": "Edit", "input": {
                "file_path": path, "old_string": "old", "new_string": "new",
            }}}},
            {"claude": {"tool_result": {"content": "The file was updated."}}},
            {"claude": {"text": DONE}}, {"claude": {"result": {}}},
        ])
    };
    let edit = "⏺ Edit(a.rs)\n  ⎿  -old\n     +new\n✅ Result ← Edit (1 line, 21 chars)\n\n";
    let project = Project::new();
    let tmux = run_with("claude", &project, &["-p", "do it"], &script(&project)).in_tmux();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    let screen = tmux.scrollback();
    assert!(screen.contains("\n• bold word"), "{screen}");
    assert!(screen.contains(" word\n  word "), "{screen}");
    assert!(screen.contains(edit), "{screen}");
    let events = project.events();
    assert_eq!(events.find("text")["text"], said, "the journal has what the agent said");
    let change = json!({"old": "old", "new": "new", "removed": 1, "added": 1});
    assert_eq!(events.find("tool_started")["edit"], change);

    let project = Project::new();
    let output = run_with("claude", &project, &["-p", "do it"], &script(&project)).run();
    output.code(0).stdout_has(&format!("\n{said}\n"));
    output.stdout_has("[TOOL] Edit(a.rs)\n  |  -old\n     +new\n[OK] Result <- Edit (1 line");
}

#[test]
fn ctrl_c_lets_agent_finish() {
    let project = Project::new();
    let go = project.sibling("go");
    let script =
        json!([{"raw": "Working... "}, {"wait_for": go}, {"print": "finished"}, {"print": DONE}]);
    let tmux = run(&project, &["-p", "do it"], &script).in_tmux();
    tmux.wait_for_text(LONG, "Working...");
    tmux.send_keys(["C-c"]);
    let screen = tmux.wait_for_text(LONG, "Received signal, shutting down...");
    assert!(!screen.contains("finished"), "{screen}");
    std::fs::write(go, "").unwrap();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    let screen = tmux.scrollback();
    assert!(screen.contains("Working... finished\n"), "{screen}");
    assert_eq!(screen.matches("Working").count(), 1, "{screen}");
    let events = project.events();
    assert_eq!(events.find("agent_ended")["class"], "answered", "the key did not reach the agent");
    assert_eq!(events.find("run_ended")["outcome"], "complete", "and what it did counts");
}

#[test]
fn ctrl_c_twice_kills_agent_process_tree() {
    let project = Project::new();
    let pid_file = project.sibling("tool.pid");
    let script = json!([{"stray": {"pid_file": pid_file}}, {"print": "here"}, "hang"]);
    let tmux = run(&project, &["-p", "do it"], &script).in_tmux();
    tmux.wait_for_text(LONG, "here");
    tmux.send_keys(["C-c"]);
    tmux.wait_for_text(LONG, "Received signal, shutting down...");
    tmux.send_keys(["C-c"]);
    assert_eq!(tmux.wait_for_exit(LONG), 130);
    assert_eq!(project.events().find("agent_ended")["ended_by"], "interrupt");
    drop(tmux);
    wait_until(LONG, || project.processes().is_empty());
}

#[test]
fn no_color_is_honored_on_terminal() {
    let project = Project::new();
    let script = json!([{"print": DONE}]);
    let tmux = run(&project, &["-p", "do it"], &script).env("NO_COLOR", "1").in_tmux();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    assert!(!tmux.capture_with_colors().contains('\x1b'));
    drop(tmux);
    let project = Project::new();
    let tmux = run(&project, &["-p", "do it"], &script).in_tmux();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    assert!(tmux.capture_with_colors().contains("\x1b[32m"), "{}", tmux.capture_with_colors());
}

#[test]
fn signal_lets_guardrail_finish_and_starts_nothing_else() {
    let project = Project::new();
    let go = project.sibling("go");
    let command =
        format!("touch running; until test -e '{}'; do sleep 0.01; done; touch ran", go.display());
    project.settings(&json!({"guardrails": [{"command": command}, {"command": "touch second"}]}));
    let running = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).start();
    project.wait_for_file("running");
    running.signal(Signal::TERM);
    wait_until(LONG, || running.stderr().contains("Received signal, shutting down..."));
    std::fs::write(go, "").unwrap();
    running.wait().code(130);
    assert!(project.has("ran") && !project.has("second"));
}

#[test]
fn hangup_ends_agent_immediately() {
    let project = Project::new();
    let running = run(&project, &["-p", "do it"], &json!([{"print": "here"}, "hang"])).start();
    wait_until(LONG, || running.stdout().contains("here"));
    running.signal(Signal::HUP);
    running.wait().code(130);
    assert_eq!(project.processes(), []);
    assert_eq!(project.events().find("run_ended")["outcome"], "interrupted");
}

#[test]
fn unrelated_signals_do_not_end_run() {
    let project = Project::new();
    let running = run(&project, &["-p", "do it"], &json!([{"print": "here"}, "hang"])).start();
    wait_until(LONG, || running.stdout().contains("here"));
    for signal in [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF] {
        running.signal(signal);
    }
    running.signal(Signal::XCPU);
    running.wait().code(130);
    assert_eq!(project.processes(), []);
    let requested = project.events();
    let signals: Vec<&Value> =
        requested.all("stop_requested").iter().map(|event| &event["signal"]).collect();
    assert_eq!(signals, ["SIGXCPU"]);
}

#[test]
fn second_signal_kills_guardrail_process_tree() {
    let project = Project::new();
    let command = "sleep 100 & touch running; wait";
    project.settings(&json!({"guardrails": [{"command": command}]}));
    let running = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).start();
    project.wait_for_file("running");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal, shutting down..."));
    running.signal(Signal::TERM);
    // An interrupted guardrail has not failed.
    running.wait().code(130).stdout_has("Guardrail interrupted").stdout_lacks("failed");
    assert_eq!(project.processes(), []);
    let events = project.events();
    assert_eq!(events.find("guardrail_ended")["cut_off"], true);
    let ended = events.find("run_ended");
    assert_eq!((&ended["iterations"], &ended["cut_off"]), (&json!(1), &json!(true)));
    let report = project.ralph(["report"]).run();
    report.code(0).stdout_has("~ sleep 100").stdout_lacks("check failed");
}

#[test]
fn ctrl_c_does_not_reach_a_guardrail() {
    let project = Project::new();
    let go = project.sibling("go");
    let command =
        format!("echo checking; until test -e '{}'; do sleep 0.01; done; touch ran", go.display());
    project.settings(&json!({"guardrails": [{"command": command}]}));
    let tmux = run(&project, &["-p", "do it"], &json!([{"print": DONE}])).in_tmux();
    tmux.wait_for_text(LONG, "Guardrail: echo checking");
    tmux.send_keys(["C-c"]);
    tmux.wait_for_text(LONG, "Received signal, shutting down...");
    std::fs::write(go, "").unwrap();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    assert!(project.has("ran"));
}

#[test]
fn rate_limit_wait_is_counted_down() {
    let project = Project::new();
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let message = format!("Claude AI usage limit reached|{}", now.unwrap().as_secs() + 3000);
    let script = json!([{"claude": {"result": {"is_error": true, "result": message}}}]);
    let tmux = run_with("claude", &project, &["-p", "do it"], &script).in_tmux();
    tmux.wait_for_text(LONG, "Rate limit reached: resets at");
    wait_until(LONG, || last_line(&tmux).contains("rate limit"));
    let first = last_line(&tmux);
    wait_until(LONG, || last_line(&tmux) != first);
    tmux.send_keys(["C-c"]);
    assert_eq!(tmux.wait_for_exit(LONG), 130);
}
