//! What becomes of workers when something is killed under them.

use rustix::process::Signal;
use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, Process, is_alive, wait_until};

fn start(shop: &Workshop) -> i32 {
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"print": "one"}],
        [{"print": "two"}, "hang"],
        [{"print": "three"}],
    ]}));
    shop.spawn(4, &[]).args(&agent).run().code(0);
    let state = shop.wait_for_state(|state| state["current_iteration"] == 2);
    wait_until(LONG, || shop.events().all("agent_started").len() == 2);
    state["pid"].as_i64().expect("a process number") as i32
}

#[test]
fn a_killed_loop_is_started_again_at_the_next_iteration() {
    let shop = Workshop::new();
    let pid = start(&shop);
    Process { pid, command: String::new() }.signal(Signal::KILL);
    wait_until(LONG, || !is_alive(pid));
    shop.ralph(["status", "agent"])
        .run()
        .code(0)
        .stdout_has("Status: running (its process is gone; `ralph resume agent` starts it again)");
    shop.ralph(["ls"]).run().code(0).stdout_has("gone");
    shop.ralph(["wait", "agent"]).run().code(1).stderr_has("its process is gone");
    shop.ralph(["spawn", "--name", "agent", "-f", "PROMPT.md", "-n", "1", "--", "sh"])
        .run()
        .code(1)
        .stderr_has("already exists (running)");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.ralph(["wait", "agent"]).run().code(0);
    let state = shop.state().unwrap();
    assert_eq!((&state["status"], &state["current_iteration"]), (&json!("stopped"), &json!(4)));
    assert_ne!(state["pid"], pid);
    let log = shop.log();
    let starts: Vec<_> = log.iter().filter(|line| line.starts_with("[START]")).collect();
    let expected: Vec<String> = (1..=4).map(|n| format!("[START] iteration {n}/4")).collect();
    assert_eq!(starts, expected.iter().collect::<Vec<_>>());
    assert_eq!(shop.events().all("run_started").len(), 2, "one journal for both");
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn a_killed_tmux_server_leaves_a_worker_that_can_be_resumed() {
    let shop = Workshop::new();
    let pid = start(&shop);
    shop.tmux(["kill-server"]);
    wait_until(LONG, || !is_alive(pid) && shop.processes().is_empty());
    assert_eq!(shop.state().unwrap()["status"], "paused");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.ralph(["wait", "agent"]).run().code(0);
    assert_eq!(shop.state().unwrap()["current_iteration"], 4);
}

#[test]
fn a_loop_that_is_gone_can_be_paused_and_killed_and_strangers_are_left_alone() {
    let shop = Workshop::new();
    let pid = start(&shop);
    Process { pid, command: String::new() }.signal(Signal::KILL);
    wait_until(LONG, || !is_alive(pid));
    // The number of the process has gone to somebody else since.
    let mut stranger = shop.command("sleep").arg("1000").spawn().unwrap();
    let mut state = shop.state().unwrap();
    state["pid"] = json!(stranger.id());
    std::fs::write(shop.file("state.json"), state.to_string()).unwrap();
    shop.ralph(["pause", "agent"]).run().code(0);
    assert_eq!(shop.state().unwrap()["status"], "paused");
    shop.ralph(["kill", "agent"]).run().code(0);
    assert_eq!(shop.state().unwrap()["status"], "stopped");
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn a_state_that_cannot_be_understood_is_said_and_stands_in_nobodys_way() {
    let shop = Workshop::new();
    let directory = shop.home().join(".ralph/workers/agent");
    std::fs::create_dir_all(&directory).unwrap();
    let agent = shop.fake_agent(&json!([{"print": "x"}]));
    for text in ["", "{\"worker_name\": \"ag", "[1]", "{\"status\": 7}"] {
        std::fs::write(directory.join("state.json"), text).unwrap();
        shop.ralph(["status", "agent"]).run().code(1).stderr_has("cannot understand");
        shop.ralph(["status"]).run().code(0).stdout_has("Status: unknown");
        shop.ralph(["ls", "--format", "json"]).run().code(0).stdout_has("\"unknown\"");
        shop.ralph(["ls"]).run().code(0).stdout_has("unknown");
        shop.ralph(["resume", "agent"]).run().code(1).stderr_has("cannot understand");
    }
    shop.spawn(1, &["--wait"]).args(&agent).run().code(0).stderr_has("cannot be understood");
    assert_eq!(shop.state().unwrap()["status"], "stopped");
}
