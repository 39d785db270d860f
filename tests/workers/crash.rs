//! Workers after a kill.

use rustix::process::Signal;
use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, is_alive, wait_until};

fn start(shop: &Workshop) -> i32 {
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"print": "one"}],
        [{"print": "two"}, "hang"],
        [{"print": "three"}],
    ]}));
    shop.spawn(4, &[]).args(&agent).run().code(0);
    let state = shop.wait_for_state(|state| state["current_iteration"] == 2);
    // Before its first output an agent may not have counted its start, and the next would hang.
    wait_until(LONG, || shop.events().all("text").len() == 2);
    state["pid"].as_i64().expect("a process number") as i32
}

#[test]
fn killed_loop_resumes_at_next_iteration() {
    let shop = Workshop::new();
    let pid = start(&shop);
    shop.kill_loop("agent");
    shop.ralph(["status", "agent"])
        .run()
        .code(0)
        .stdout_has("Status: interrupted (continue it with `ralph resume agent`)");
    shop.ralph(["ls"]).run().code(0).stdout_has("interrupted");
    shop.ralph(["wait", "agent"]).run().code(1).stderr_has("its process is gone");
    shop.ralph(["spawn", "--name", "agent", "-f", "PROMPT.md", "-n", "1", "--", "sh"])
        .run()
        .code(1)
        .stderr_has("already exists (running)");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    let state = shop.state().unwrap();
    assert_eq!((&state["status"], &state["current_iteration"]), (&json!("stopped"), &json!(4)));
    assert_ne!(state["pid"], pid);
    let log = shop.log();
    let starts: Vec<_> = log.iter().filter(|line| line.starts_with("[START]")).collect();
    let expected: Vec<String> = (1..=4).map(|n| format!("[START] iteration {n}/4")).collect();
    assert_eq!(starts, expected.iter().collect::<Vec<_>>());
    assert_eq!(shop.events().all("run_started").len(), 2, "one journal for both");
    assert!(log.contains(&"[CUT] iteration 2 was interrupted".to_owned()), "{log:?}");
    let end = "[DONE] loop complete after 4 iterations, 1 interrupted";
    assert_eq!(log.last().unwrap(), end);
    let counts = ["finished_iterations", "cut_off_iterations", "total_failures"];
    assert_eq!(counts.map(|key| state[key].as_i64()), [Some(3), Some(1), Some(0)]);
    shop.ralph(["status", "agent"]).run().stdout_has("Interrupted iterations: 1\n");
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn what_killed_worker_left_behind_is_named_when_it_resumes() {
    let shop = Workshop::new();
    let daemon = "setsid sleep 600 > /dev/null 2>&1 &";
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"shell": daemon}, {"print": "one"}, "hang"],
        [{"print": "two"}],
    ]}));
    shop.spawn(1, &[]).args(&agent).run().code(0);
    wait_until(LONG, || shop.events().all("text").len() == 1);
    shop.kill_loop("agent");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    let events = shop.events();
    let recovered = events.all("recovered");
    let killed = recovered[0]["processes"].as_array().unwrap();
    assert!(killed.iter().any(|process| process["command"] == "sleep 600"), "{killed:?}");
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn answer_of_killed_worker_is_checked_and_committed() {
    let shop = Workshop::new();
    shop.git_init();
    let check = "touch .ralph/checked; until test -e .ralph/go; do sleep 0.01; done";
    shop.settings(&json!({
        "guardrails": [{"command": check}],
        "scm": {"command": "git", "tasks": ["commit"]},
    }));
    let agent = shop.fake_agent(&json!({
        "sessions": [[{"shell": "echo x >work"}, {"print": "XYZ"}]],
        "commit_message": [{"print": "Work"}],
    }));
    shop.git_command(["add", "."]);
    shop.git_command(["commit", "-qm", "first"]);
    shop.spawn(3, &["--done-pattern", "XYZ"]).args(&agent).run().code(0);
    shop.wait_for_file(".ralph/checked");
    shop.kill_loop("agent");
    shop.write(".ralph/go", "");
    std::fs::remove_file(shop.path().join("PROMPT.md")).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    let events = shop.events();
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    assert_eq!(shop.git_command(["log", "-1", "--format=%s"]).trim(), "Work");
    let warned = events.all("warning");
    assert!(!warned.iter().any(|it| it.to_string().contains("uncommitted")), "{warned:?}");
}

#[test]
fn worker_survives_killed_tmux_server() {
    let shop = Workshop::new();
    let pid = start(&shop);
    shop.tmux(["kill-server"]);
    wait_until(LONG, || !is_alive(pid) && shop.processes().is_empty());
    assert_eq!(shop.state().unwrap()["status"], "paused");
    shop.ralph(["ls"]).run().code(0).stdout_has("agent  ended (stopped by you) ");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 4);
}

#[test]
fn dead_loop_can_be_paused_and_killed_sparing_reused_pid() {
    let shop = Workshop::new();
    start(&shop);
    shop.kill_loop("agent");
    // The pid now belongs to another process.
    let mut stranger = shop.command("sleep").arg("1000").spawn().unwrap();
    let mut state = shop.state().unwrap();
    state["pid"] = json!(stranger.id());
    std::fs::write(shop.file("state.json"), state.to_string()).unwrap();
    shop.ralph(["pause", "agent"]).run().code(0);
    assert_eq!(shop.state().unwrap()["status"], "paused");
    shop.ralph(["kill", "agent"]).run().code(0);
    let state = shop.state().unwrap();
    assert_eq!(state["status"], "stopped");
    assert_eq!(state["exit_code"], 130, "as of one that is there");
    assert!(state["ended"].is_string() && state["last_event"] == "killed");
    let log = shop.log();
    assert_eq!(log.last().unwrap(), "[DONE] killed");
    assert!(log[log.len() - 2].ends_with("was interrupted"), "{log:?}");
    shop.ralph(["wait", "agent"]).run().code(130);
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn worker_can_be_resumed_after_reboot() {
    let shop = Workshop::new();
    let pid = start(&shop);
    // As in a power failure. The loop goes first, or it would notice the end of the others.
    shop.kill_loop("agent");
    for process in shop.processes() {
        process.signal(Signal::KILL);
    }
    wait_until(LONG, || !is_alive(pid) && shop.processes().is_empty());
    // The pid now belongs to another process.
    let mut stranger = shop.command("sleep").arg("1000").spawn().unwrap();
    let mut state = shop.state().unwrap();
    assert_eq!(state["status"], "running");
    state["pid"] = json!(stranger.id());
    std::fs::write(shop.file("state.json"), state.to_string()).unwrap();
    shop.ralph(["ls"]).run().code(0).stdout_has("interrupted");
    shop.ralph(["resume", "agent"]).run().code(0).stdout_is("resumed ralph loop for agent\n");
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 4);
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn damaged_state_of_dead_loop_is_rebuilt_from_journal() {
    let shop = Workshop::new();
    start(&shop);
    shop.kill_loop("agent");
    let saved_state = std::fs::read_to_string(shop.file("state.json")).unwrap();
    std::fs::write(shop.file("state.json"), &saved_state[..saved_state.len() / 2]).unwrap();
    shop.ralph(["status", "agent"]).run().code(1).stderr_has("ralph resume agent");
    shop.ralph(["resume", "agent"])
        .run()
        .code(0)
        .stderr_has("invalid ")
        .stderr_has("state.json.broken\n");
    shop.wait();
    let state = shop.state().unwrap();
    assert_eq!((&state["current_iteration"], &state["status"]), (&json!(4), &json!("stopped")));
    let expected: serde_json::Value = serde_json::from_str(&saved_state).unwrap();
    for key in ["started", "prompt_file", "run_id", "directory", "max_iterations"] {
        assert_eq!(state[key], expected[key], "{key}");
    }
    let aside = std::fs::read_to_string(shop.file("state.json.broken")).unwrap();
    assert_eq!(aside, saved_state[..saved_state.len() / 2], "it is kept");
}

#[test]
fn damaged_state_of_running_loop_is_rewritten() {
    let shop = Workshop::new();
    let agent = shop.waiting_agent();
    shop.spawn(2, &[]).args(&agent).run().code(0);
    shop.spawn_as("other", 1, &[]).args(&agent).run().code(0);
    for spoilt in ["", "{\"worker_name\": \"ag", "[]"] {
        std::fs::write(shop.file("state.json"), spoilt).unwrap();
        shop.ralph(["ls"]).run().code(0).stdout_has("unknown").stdout_has("other  working");
        shop.ralph(["pause", "agent"]).run().code(0).stderr_has("invalid ");
        assert_eq!(shop.state().unwrap()["status"], "paused");
        std::fs::remove_file(shop.file("state.json")).unwrap();
        shop.ralph(["resume", "agent"]).run().code(0).stderr_is("");
        assert_eq!(shop.state().unwrap()["status"], "running");
    }
    shop.release();
    shop.wait();
    shop.ralph(["wait", "other"]).run().code(0);
}

#[test]
fn state_of_older_version_continues() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([shop.record_step()]));
    shop.spawn(9, &["--wait", "--done-pattern", "never"]).args(&agent).run().code(0);
    let ran = shop.agent_starts().len();
    let old = json!({
        "worker_name": "agent", "prompt_file": shop.path().join("PROMPT.md"),
        "max_iterations": 9, "current_iteration": 7, "status": "paused",
        "started": "2024-01-15T10:30:00.000000", "last_iteration_started": null,
        "consecutive_failures": 0, "total_failures": 2, "done_pattern": "never",
        "inactivity_timeout": 300,
    });
    std::fs::write(shop.file("state.json"), old.to_string()).unwrap();
    shop.ralph(["status", "agent"]).run().code(0).stdout_has("Iteration: 7/9");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    assert_eq!(shop.agent_starts().len() - ran, 2, "the eighth and the ninth");
    let state = shop.state().unwrap();
    assert_eq!((&state["current_iteration"], &state["total_failures"]), (&json!(9), &json!(2)));
}

#[test]
fn missing_journal_keeps_iteration_count() {
    let shop = Workshop::new();
    start(&shop);
    shop.kill_loop("agent");
    let runs = shop.path().join(".ralph/runs").canonicalize().unwrap();
    std::fs::remove_dir_all(runs).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 4);
    assert_eq!(shop.events().all("iteration_started").len(), 2, "the third and the fourth");
}

#[test]
fn moved_project_ends_loop_and_is_not_recreated() {
    let shop = Workshop::new();
    let moved_path = shop.sibling("away");
    let moves = format!("mv '{}' '{}'", shop.path().display(), moved_path.display());
    let agent = shop.fake_agent(&json!({"sessions": [
        [shop.record_step(), {"print": "before"}],
        [shop.record_step(), {"shell": moves}],
        [shop.record_step()],
    ]}));
    shop.spawn(5, &["--wait"]).args(&agent).run().code(2);
    assert!(!shop.path().exists());
    assert_eq!(shop.agent_starts().len(), 2);
    let state = shop.state().unwrap();
    assert_eq!(state["status"], "failed");
    let report = shop.ralph(["report", "agent"]).current_dir(shop.home()).run();
    report.code(0).stdout_has("is gone").stdout_has("2 of 5 iterations");
    std::fs::rename(moved_path, shop.path()).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 5);
}

#[test]
fn unreadable_state_is_reported_and_does_not_block_spawn() {
    let shop = Workshop::new();
    let directory = shop.home().join(".ralph/workers/agent");
    std::fs::create_dir_all(&directory).unwrap();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    for text in ["", "{\"worker_name\": \"ag", "[1]", "{\"status\": 7}"] {
        std::fs::write(directory.join("state.json"), text).unwrap();
        shop.ralph(["status", "agent"]).run().code(1).stderr_has("invalid");
        shop.ralph(["status"]).run().code(0).stdout_has("Status: unknown");
        shop.ralph(["ls", "--format", "json"]).run().code(0).stdout_has("\"unknown\"");
        shop.ralph(["ls"]).run().code(0).stdout_has("unknown");
    }
    shop.spawn(1, &["--wait"]).args(&agent).run().code(0).stderr_has("invalid");
    assert_eq!(shop.state().unwrap()["status"], "stopped");
    let aside = std::fs::read_to_string(shop.file("state.json.broken")).unwrap();
    assert_eq!(aside, "{\"status\": 7}", "it is kept");
}

#[test]
fn worker_of_version_0_1_resumes_by_its_launch_record() {
    let shop = Workshop::new();
    let paid = json!([
        {"claude": {"text": "working"}}, {"claude": {"result": {"total_cost_usd": 4.0}}},
    ]);
    let hang = json!([{"write": {"path": "at", "text": ""}}, "hang"]);
    let sessions = shop.record_sessions(&[paid.clone(), hang, paid]);
    shop.install_agent("claude", &json!({"sessions": sessions}));
    shop.spawn(3, &[]).arg("claude").run().code(0);
    shop.wait_for_file("at");
    shop.kill_loop("agent");
    std::fs::remove_file(shop.file("spec.json")).unwrap();
    let launch = include_str!("../support/version_0_1/launch.json");
    let launch = launch.replace("PROJECT", shop.path().to_str().unwrap());
    std::fs::write(shop.file("launch.json"), launch).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.ralph(["wait", "agent"]).run().code(3);
    let ended = shop.events().last("run_ended").clone();
    assert!(ended["message"].as_str().unwrap().contains("$8.00 of $7.00"), "{ended}");
}
