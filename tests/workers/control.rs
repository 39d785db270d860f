//! Control requests to workers.

use rustix::process::Signal;
use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, Process, wait_until};

fn waiting(shop: &Workshop) -> Vec<String> {
    shop.fake_agent(&json!([
        shop.record_step(),
        {"print": "at work"},
        shop.wait_step(),
    ]))
}

fn slow_tmux(shop: &Workshop) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").expect("a PATH");
    let real = std::env::split_paths(&path).map(|dir| dir.join("tmux")).find(|it| it.exists());
    let script = format!(
        "#!/bin/sh\nuntil test -e '{}'; do sleep 0.01; done\nexec '{}' \"$@\"\n",
        shop.sibling("go").display(),
        real.expect("tmux, which these tests need").display()
    );
    let bin = shop.sibling("slow");
    std::fs::create_dir(&bin).expect("a file beside the project");
    std::fs::write(bin.join("tmux"), script).expect("a file beside the project");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("tmux"), mode).expect("a file beside the project");
    let dirs = std::iter::once(bin).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).expect("a file beside the project")
}

#[test]
fn kill_all_ends_workers_being_spawned() {
    let shop = Workshop::new();
    let path = slow_tmux(&shop);
    let agent = shop.fake_agent(&json!([shop.record_step(), "hang"]));
    let names = ["a", "b", "c", "d"];
    let spawns: Vec<_> = names
        .iter()
        .map(|name| shop.spawn_as(name, 1, &[]).args(&agent).env("PATH", &path).start())
        .collect();
    let reservation = |name: &&str| shop.worker(name).with_file_name(format!(".{name}.lock"));
    wait_until(LONG, || names.iter().all(|name| reservation(name).exists()));
    assert!(!shop.worker("a").exists(), "it is only reserved");
    let kill = shop.ralph(["kill", "--all"]).start();
    wait_until(LONG, || shop.worker("x").with_file_name(".kill-all").exists());
    shop.release();
    kill.wait().code(0);
    for spawn in spawns {
        spawn.wait();
    }
    shop.ralph(["ls", "--format", "json"]).run().stdout_lacks("\"alive\": true");
    wait_until(LONG, || shop.processes().iter().all(|it| it.command.contains("tmux")));
}

#[test]
fn paused_worker_finishes_iteration_and_resumes() {
    let shop = Workshop::new();
    shop.spawn(3, &[]).args(waiting(&shop)).run().code(0);
    shop.ralph(["pause", "agent"]).run().code(0).stdout_is("paused ralph loop for agent\n");
    assert_eq!(shop.state().unwrap()["status"], "paused", "at once");
    shop.ralph(["pause", "agent"])
        .run()
        .code(0)
        .stderr_is("ralph: warning: worker 'agent' is already paused\n");
    shop.release();
    shop.wait_for_event("paused");
    assert_eq!(shop.agent_starts().len(), 1, "nothing new was begun");
    shop.ralph(["resume", "agent"]).run().code(0).stdout_is("resumed ralph loop for agent\n");
    let state = shop.wait_for_status("stopped");
    assert_eq!(state["current_iteration"], 3);
    assert_eq!(shop.agent_starts().len(), 3);
    shop.ralph(["resume", "agent"])
        .run()
        .code(1)
        .stderr_has("run 'agent' has ended: no iterations left")
        .stderr_has("ralph resume agent -n 13");
    shop.ralph(["pause", "agent"]).run().code(1).stderr_has("is not running (stopped)");
    // It may get more iterations and continue after a kill.
    shop.ralph(["resume", "agent", "-n", "2"])
        .run()
        .code(1)
        .stderr_has("already started 3 iterations");
    shop.ralph(["resume", "agent", "-n", "4"])
        .run()
        .code(0)
        .stdout_is("resumed ralph loop for agent\n");
    assert_eq!(shop.wait_for_status("stopped")["current_iteration"], 4);
    shop.wait();
    let text = std::fs::read_to_string(shop.file("state.json")).unwrap();
    for odd in ["0", "\"8\"", "1.5", "-1", "null"] {
        let edited = text.replace("\"max_iterations\": 4", &format!("\"max_iterations\": {odd}"));
        std::fs::write(shop.file("state.json"), edited).unwrap();
        let output = shop.ralph(["resume", "agent"]).run();
        output.code(1).stderr_has(&format!("max_iterations is {odd} in "));
    }
    let edited = text.replace("\"max_iterations\": 4", "\"max_iterations\": 5");
    std::fs::write(shop.file("state.json"), edited).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0).stdout_is("resumed ralph loop for agent\n");
    shop.wait();
    assert_eq!(shop.agent_starts().len(), 5);
}

#[test]
fn failed_or_killed_worker_can_be_resumed() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let fails = json!([{"exit": 1}]);
    let sessions = json!({"sessions": [fails, fails, fails, fails, fails, fails, [
        {"print": "better"},
        shop.wait_step(),
    ]]});
    shop.spawn(8, &["--wait"]).args(shop.fake_agent(&sessions)).run().code(1);
    assert_eq!(shop.state().unwrap()["current_iteration"], 5);
    shop.ralph(["resume"]).run().code(0).stdout_has("background runs (agent): ralph resume agent");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait_for_state(|state| state["current_iteration"] == 7);
    assert_eq!(shop.state().unwrap()["consecutive_failures"], 1, "it begins anew");
    std::fs::remove_file(shop.path().join("PROMPT.md")).unwrap();
    shop.ralph(["kill", "agent"]).run().code(0);
    shop.ralph(["resume", "agent"]).run().code(1).stderr_has("prompt file not found");
    shop.write("PROMPT.md", "Do the next thing.\n");
    shop.release();
    shop.ralph(["resume", "agent", "agent"]).run().code(0);
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 8);
}

#[test]
fn loop_with_removed_files_ends_and_keeps_its_name() {
    let shop = Workshop::new();
    shop.spawn(3, &[]).args(waiting(&shop)).run().code(0);
    shop.wait_for_event("text");
    std::fs::remove_dir_all(shop.worker("agent")).unwrap();
    let second_spawn = shop.spawn(1, &[]).args(["true"]).run();
    second_spawn.code(1).stderr_has("tmux window 'agent' already exists");
    shop.release();
    wait_until(LONG, || shop.windows().is_empty() && shop.processes().is_empty());
    assert_eq!(shop.agent_starts().len(), 1, "nothing new was begun");
    assert!(!shop.worker("agent").exists(), "and nothing written");
    let events = shop.events();
    assert!(events.last("run_ended")["message"].as_str().unwrap().contains("was removed"));
}

#[test]
fn microvm_of_paused_worker_is_stopped_and_reused() {
    use std::os::unix::fs::PermissionsExt;
    let shop = Workshop::new();
    let sbx = shop.sibling("bin").join("sbx");
    std::fs::write(&sbx, include_str!("../support/sbx.sh")).unwrap();
    std::fs::set_permissions(&sbx, std::fs::Permissions::from_mode(0o755)).unwrap();
    shop.write(
        "agent.sh",
        format!("until test -e {}; do sleep 0.02; done", shop.sibling("go").display()),
    );
    shop.spawn(2, &["--sandbox=docker"]).args(["sh", "agent.sh"]).run().code(0);
    shop.ralph(["pause", "agent"]).run().code(0);
    let calls = || std::fs::read_to_string(shop.sibling("bin").join("calls")).unwrap();
    let before = calls().len();
    shop.release();
    shop.wait_for_event("paused");
    wait_until(LONG, || calls()[before..].contains("<stop>"));
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait_for_status("stopped");
    let calls = calls();
    let (_, after) = calls[before..].split_once("<stop>").unwrap();
    assert!(after.contains("<sh><agent.sh>"), "{after}");
    assert_eq!(calls.matches("<create>").count(), 1);
}

#[test]
fn pause_ends_backoff_and_limit_can_be_changed() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"backoffSeconds": 100}}));
    let agent = shop.fake_agent(&json!({"sessions": [[{"exit": 1}], [{"print": "fine"}]]}));
    shop.spawn(2, &[]).args(&agent).run().code(0);
    shop.wait_for_event("waiting");
    shop.ralph(["pause", "agent"]).run().code(0);
    shop.wait_for_event("paused");
    let text = std::fs::read_to_string(shop.file("state.json")).unwrap();
    let edited = text.replace("\"max_iterations\": 2", "\"max_iterations\": 4");
    assert_ne!(text, edited);
    std::fs::write(shop.file("state.json"), edited).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait();
    let state = shop.state().unwrap();
    assert_eq!((&state["current_iteration"], &state["max_iterations"]), (&json!(4), &json!(4)));
}

#[test]
fn kill_ends_loop_and_process_tree() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([
        "ignore_signals",
        {"stray": {"pid_file": shop.sibling("stray")}},
        {"write": {"path": shop.sibling("ready"), "text": "x"}},
        "hang",
    ]));
    shop.spawn(3, &[]).args(&agent).run().code(0);
    wait_until(LONG, || shop.sibling("ready").exists());
    shop.ralph(["kill", "agent"]).run().code(0).stdout_is("killed agent\n");
    let state = shop.state().unwrap();
    assert_eq!(state["status"], "stopped");
    assert_eq!(
        (&state["finished_iterations"], &state["cut_off_iterations"]),
        (&json!(0), &json!(1))
    );
    let log = shop.log();
    assert!(log[1].starts_with("[CUT] iteration 1 was interrupted after "), "{log:?}");
    assert_eq!(log.last().unwrap(), "[DONE] killed");
    wait_until(LONG, || shop.processes().is_empty());
    shop.ralph(["kill", "agent"]).run().code(0).stderr_has("is not running");
    shop.ralph(["rm", "agent"]).run().code(0).stdout_is("removed agent\n");
    assert!(!shop.home().join(".ralph/workers/agent").exists());
}

#[test]
fn request_wakes_loop_waiting_for_silent_agent() {
    let shop = Workshop::new();
    shop.spawn(3, &[]).args(waiting(&shop)).run().code(0);
    shop.wait_for_event("text");
    // A worker that is not woken would not answer.
    shop.ralph(["pause", "agent"]).run().code(0).stderr_is("");
    shop.ralph(["rm", "agent"]).run().code(1).stderr_has("run 'agent' is paused");
    shop.ralph(["kill", "agent"]).run().code(0);
}

#[test]
fn sigterm_pauses_and_second_one_ends_resumably() {
    let shop = Workshop::new();
    shop.spawn(3, &[]).args(waiting(&shop)).run().code(0);
    shop.wait_for_event("text");
    let pid = shop.state().unwrap()["pid"].as_i64().unwrap() as i32;
    let the_loop = Process { pid, command: String::new() };
    // After a resume, the next TERM is the first one again.
    for _ in 0..2 {
        the_loop.signal(Signal::TERM);
        shop.wait_for_status("paused");
        assert!(crate::support::is_alive(pid), "its agent may finish");
        shop.ralph(["resume", "agent"]).run().code(0);
    }
    the_loop.signal(Signal::TERM);
    shop.wait_for_status("paused");
    the_loop.signal(Signal::TERM);
    wait_until(LONG, || !crate::support::is_alive(pid));
    assert_eq!(shop.state().unwrap()["status"], "paused");
    wait_until(LONG, || shop.processes().is_empty());
    shop.release();
    shop.ralph(["resume", "agent"]).run().code(0).stdout_is("resumed ralph loop for agent\n");
    shop.wait();
    assert_eq!(shop.state().unwrap()["current_iteration"], 3);
}

#[test]
fn all_flag_applies_to_every_worker() {
    let shop = Workshop::new();
    let agent = shop.waiting_agent();
    for name in ["a", "b", "c"] {
        shop.spawn_as(name, 3, &[]).args(&agent).run().code(0);
    }
    shop.ralph(["pause", "a"]).run().code(0);
    let request = |args: &[&str], expected: &str| {
        shop.ralph(args).run().code(0).stdout_is(expected).stderr_is("");
    };
    request(&["pause", "--all"], "paused ralph loop for b\npaused ralph loop for c\n");
    request(&["pause", "--all"], "no runs are active\n");
    // As after a reboot: some are paused, some are gone.
    shop.kill_loop("b");
    let all = "resumed ralph loop for a\nresumed ralph loop for b\nresumed ralph loop for c\n";
    request(&["resume", "--all"], all);
    request(&["resume", "--all"], "no background runs are paused\n");
    shop.ralph(["resume", "--all", "-n", "3"])
        .run()
        .code(2)
        .stderr_has("--all cannot be combined with limits");
    shop.ralph(["resume", "--all", "a"]).run().code(2);
    let expected = shop.ralph(["kill", "a", "missing", "c", "a"]).run();
    expected.code(1).stdout_is("killed a\nkilled c\n").stderr_has("run 'missing' not found");
    shop.ralph(["rm", "a", "b", "missing"])
        .run()
        .code(1)
        .stdout_is("removed a\n")
        .stderr_has("ralph: error: run 'b' is running\n")
        .stderr_has("ralph: error: run 'missing' not found\n");
    request(&["kill", "--all"], "killed b\n");
    request(&["kill", "--all"], "no runs are active\n");
    request(&["rm", "--all"], "removed b\nremoved c\n");
    wait_until(LONG, || shop.processes().is_empty() && shop.windows().is_empty());
}

#[test]
fn unknown_worker_is_reported() {
    let shop = Workshop::new();
    for command in ["pause", "resume", "kill", "rm", "status", "logs", "attach", "wait"] {
        let output = shop.ralph([command, "missing"]).run();
        output.code(1).stderr_has("ralph: error: run 'missing' not found");
    }
    shop.ralph(["status", "../x"]).run().code(1).stderr_has("invalid run name");
}

#[test]
fn concurrent_requests_end_in_one_state() {
    let shop = Workshop::new();
    shop.spawn(3, &[]).args(waiting(&shop)).run().code(0);
    for last in ["pause", "resume", "kill"] {
        let racing: Vec<_> = (0..24)
            .map(|nth| {
                // Many send the last command, others something in between; a killed worker must not
                // be resumed.
                let others = ["pause", if last == "kill" { "pause" } else { "resume" }];
                let command = if nth % 3 == 0 { last } else { others[nth % 2] };
                shop.ralph([command, "agent"]).start()
            })
            .collect();
        for command in racing {
            let output = command.wait();
            assert!(output.stderr.is_empty() || output.stderr.starts_with("ralph: "), "{output:?}");
            assert!(!output.stderr.contains("does not respond"), "{output:?}");
        }
        shop.ralph([last, "agent"]).run();
        let expected = match last {
            "pause" => "paused",
            "resume" => "running",
            _ => "stopped",
        };
        assert_eq!(shop.state().unwrap()["status"], expected);
        assert!(!shop.file("request.json").exists(), "every request was taken");
    }
    wait_until(LONG, || shop.processes().is_empty() && shop.windows().is_empty());
    assert_eq!(shop.agent_starts().len(), 1, "no agent was started twice");
}

#[test]
fn killed_worker_carries_guidance_in_its_next_iteration() {
    let shop = Workshop::new();
    let hangs = json!([shop.record_step(), {"print": "at work"}, "hang"]);
    let done = json!([shop.record_step(), {"print": "All done"}]);
    let agent = shop.fake_agent(&json!({"sessions": [hangs, hangs, done]}));
    shop.spawn(5, &["--done-pattern", "All done"]).args(agent).run().code(0);
    shop.wait_for_event("text");
    shop.ralph(["tell", "agent", "--now", "Mind the gap."]).run().code(0);
    wait_until(LONG, || shop.agent_starts().len() == 2);
    shop.wait_for_event("guidance_delivered");
    shop.kill_loop("agent");
    // A worker's interrupted iteration counts as used, but not what it was told.
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait_for_status("stopped");
    let starts = shop.agent_starts();
    let carries = |start: &serde_json::Value| {
        start["prompt"].as_str().is_some_and(|prompt| prompt.contains("Mind the gap."))
    };
    assert_eq!(starts.iter().map(carries).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(shop.events().last("guidance_delivered")["iteration"], 2);
    assert!(
        shop.log().iter().any(|line| line.contains("[TELL] Mind the gap.")),
        "{:?}",
        shop.log()
    );
}
