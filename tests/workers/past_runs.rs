//! Runs that are not the last one of their name, that moved, or that version 0.1 started.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, Output, wait_until};

fn done(shop: &Workshop) -> Vec<String> {
    shop.fake_agent(&json!([{"print": "<response>DONE</response>"}]))
}

/// One iteration that waits for a file, then one that completes.
fn waiting_then_done(shop: &Workshop) -> Vec<String> {
    let wait = json!([{"print": "at work"}, shop.wait_step()]);
    let done = json!([{"print": "<response>DONE</response>"}]);
    shop.fake_agent(&json!({"sessions": [wait, done]}))
}

fn newest_id(shop: &Workshop) -> String {
    let run = shop.newest_run();
    run.file_name().and_then(|id| id.to_str()).expect("a run id").to_owned()
}

fn from<'s>(shop: &'s Workshop, dir: &'s Path) -> impl Fn(&[&str]) -> Output + 's {
    move |args| shop.ralph(args).current_dir(dir).run()
}

#[test]
fn background_start_answers_in_json() {
    let shop = Workshop::new();
    let args = ["run", "-f", "-", "-n", "1", "--background=agent", "--json", "--"];
    let started = shop.ralph(args).args(done(&shop)).stdin("x".repeat(1 << 20)).run();
    let answer = &started.code(0).json_lines().0[0];
    assert_eq!((&answer["name"], &answer["tmux"]), (&json!("agent"), &json!("ralph:agent")));
    shop.wait();
    assert_eq!(answer["run_id"], newest_id(&shop).as_str());
    shop.ralph(["logs", "agent"]).run().code(0).stdout_lacks("{\"");
}

#[test]
fn older_run_of_a_name_is_found_by_its_id() {
    let shop = Workshop::new();
    let nothing = shop.fake_agent(&json!([{"print": "the older one"}]));
    shop.ralph(["run", "-p", "x", "-n", "1", "--background=agent", "--"])
        .args(nothing)
        .run()
        .code(0);
    shop.ralph(["wait", "agent"]).run().code(1);
    let old = newest_id(&shop);
    let run = shop.ralph(["run", "-p", "x", "-n", "2", "--background=agent", "--"]);
    run.args(waiting_then_done(&shop)).run().code(0);
    shop.wait_for_state(|state| state["run_id"] != old.as_str() && state["status"] == "running");
    let home = shop.home();
    let there = from(&shop, &home);
    there(&["status", &old]).code(0).stdout_has("Outcome: limit").stdout_has("Iteration: 1/1");
    there(&["status", "agent"]).code(0).stdout_has("Iteration: 1/2");
    there(&["logs", &old]).code(0).stdout_has("the older one").stdout_lacks("at work");
    there(&["report", &old]).code(0).stdout_has(&old);
    let ended = format!("run {old} has ended: ");
    there(&["pause", &old]).code(1).stderr_has(&ended);
    there(&["attach", &old]).code(1).stderr_has(&ended);
    there(&["kill", &old]).code(0).stderr_has(&ended).stdout_is("");
    there(&["wait", &old]).code(1).stdout_has("[ralph] agent: ");
    assert_eq!(shop.state().unwrap()["status"], "running", "the newer run continues");
    shop.release();
    shop.wait();
    assert_eq!(shop.state().unwrap()["outcome"], "complete");
    let rows =
        || there(&["ls"]).code(0).stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let [new, past] = &rows()[..] else { panic!("{:?}", rows()) };
    assert!(new.starts_with("agent  complete "), "{new}");
    assert!(past.starts_with("agent  ended (iteration limit) "), "{past}");
    assert!(past.contains(&old[16..]), "{past}");
    there(&["ls", "--format", "names"]).stdout_is("agent\n");
    there(&["rm", &old]).code(0).stdout_is(&format!("removed {old}\n"));
    assert_eq!(rows().len(), 1);
    there(&["report", &old]).code(0);
    there(&["rm", "--all"]).code(0).stdout_is("removed agent\n");
    assert_eq!(rows(), [""; 0], "the last run of a removed name is no older run");
}

#[test]
fn removal_of_a_name_counts_its_runs() {
    let shop = Workshop::new();
    for _ in 0..3 {
        shop.ralph(["run", "-p", "x", "--background=agent", "--"]).args(done(&shop)).run().code(0);
        shop.ralph(["wait", "agent"]).run().code(0);
    }
    shop.ralph(["rm", "agent"]).run().code(0).stdout_is("removed agent (3 runs)\n");
}

#[test]
fn spawn_warns_of_a_prompt_that_cannot_stop_it() {
    let shop = Workshop::new();
    let prompt = "Answer <response>DONE</response> at the end.";
    let spawn = |more: &[&str]| {
        let spawn = shop.ralph(["spawn", "-p", prompt, "-n", "1", "--wait"]);
        spawn.args(more).arg("--").args(done(&shop)).run()
    };
    let warning = "stops early only with --done-pattern";
    spawn(&["--name", "a"]).stderr_has(warning);
    spawn(&["--name", "b", "--done-pattern", "DONE"]).stderr_lacks(warning);
}

#[test]
fn background_run_of_moved_project_is_resumed_at_its_new_path() {
    for by_id in [false, true] {
        let shop = Workshop::new();
        let run = shop.ralph(["run", "-f", "PROMPT.md", "-n", "3", "--background=agent", "--"]);
        run.args(waiting_then_done(&shop)).run().code(0);
        shop.wait_for_event("text");
        let id = newest_id(&shop);
        shop.kill_loop("agent");
        wait_until(LONG, || shop.processes().is_empty());
        let moved = shop.sibling("moved");
        std::fs::rename(shop.path(), &moved).unwrap();
        shop.release();
        let wanted = if by_id { id.as_str() } else { "agent" };
        let home = shop.home();
        from(&shop, &home)(&["resume", wanted]).stderr_has("from its new path");
        let there = from(&shop, &moved);
        there(&["resume", wanted]).code(0).stdout_is("resumed ralph loop for agent\n");
        there(&["wait", "agent"]).code(0);
        let state = shop.state().unwrap();
        assert_eq!((&state["outcome"], &state["directory"]), (&json!("complete"), &json!(moved)));
        assert_eq!(state["run_id"], id.as_str(), "it is the same run");
        there(&["logs", "agent"])
            .code(0)
            .stderr_has(&format!("the project has moved since run {id} started"));
    }
}

#[test]
fn runs_follow_project_whose_path_is_not_utf8() {
    let shop = Workshop::new();
    let path = |name: &[u8]| shop.path().with_file_name(OsString::from_vec(name.to_vec()));
    let (first, second) = (path(b"a\xff"), path(b"b\xfe"));
    std::fs::create_dir(&first).unwrap();
    let run = shop.ralph(["run", "-p", "x", "--"]).args(done(&shop)).current_dir(&first).run();
    run.code(0).stderr_lacks("cannot record");
    let before = from(&shop, &first)(&["runs", "--json"]);
    before.code(0);
    // Without the link, only the record tells.
    std::fs::remove_file(first.join(".ralph/runs")).unwrap();
    std::fs::rename(&first, &second).unwrap();
    let after = from(&shop, &second)(&["runs", "--json"]);
    after.code(0).stderr_has("was moved from").stdout_is(&before.stdout);
}

#[test]
fn limit_of_a_run_does_not_sound_complete() {
    let shop = Workshop::new();
    let run = shop.ralph(["run", "-p", "x", "-n", "1", "--name", "agent", "--", "true"]);
    run.run().code(1);
    let state = shop.state().unwrap();
    assert_eq!(state["outcome"], "limit");
    assert!(!state["last_event"].as_str().unwrap().contains("complete"), "{state}");
    shop.ralph(["pause", "agent"]).run().code(1).stderr_has("error: run 'agent' is not running");
    shop.ralph(["kill", "agent"]).run().code(0).stderr_has("warning: run 'agent' is not running");
    shop.spawn_as("worker", 1, &["--done-pattern", "DONE", "--wait"])
        .args(done(&shop))
        .run()
        .code(0);
    shop.ralph(["resume", "worker"])
        .run()
        .code(0)
        .stderr_has("run 'worker' has ended: complete (")
        .stderr_lacks("not paused");
}

#[test]
fn bad_usage_exits_with_1_in_spawn_and_with_2_in_run() {
    let shop = Workshop::new();
    let pattern = ["-f", "PROMPT.md", "-n", "1", "--done-pattern", "(", "--", "true"];
    shop.ralph(["spawn"]).args(pattern).run().code(1).stderr_has("--done-pattern");
    shop.ralph(["run"]).args(pattern).run().code(2);
    shop.ralph(["run", "--background=b"]).args(pattern).run().code(2);
    let check = ["-f", "PROMPT.md", "-n", "1", "--check", " ", "--", "true"];
    shop.ralph(["spawn"]).args(check).run().code(1).stderr_has("--check is empty");
    shop.ralph(["run", "--background=b"]).args(check).run().code(2);
    shop.settings(&json!({"agent": {"flags": 7}}));
    for command in [&["run"][..], &["run", "--background=b"], &["spawn"]] {
        let run = shop.ralph(command).args(["-f", "PROMPT.md", "-n", "1", "--", "true"]).run();
        run.code(2).stderr_has("agent.flags");
    }
    assert!(shop.windows().is_empty());
}

#[test]
fn living_loop_of_version_0_1_is_explained() {
    let shop = Workshop::new();
    let dir = shop.worker("agent");
    std::fs::create_dir_all(&dir).unwrap();
    let id = "20261115-202752-0a1b";
    let state = json!({
        "worker_name": "agent", "status": "running", "max_iterations": 5, "current_iteration": 2,
        "run_id": id, "pid": std::process::id(), "directory": shop.path(),
    });
    std::fs::write(dir.join("state.json"), state.to_string()).unwrap();
    ralph_process::create_named_pipe(&dir.join("wake")).unwrap();
    let loop_lock = std::fs::File::open(&dir).unwrap();
    loop_lock.lock().unwrap();
    let home = shop.home();
    let there = from(&shop, &home);
    there(&["status", "agent"]).code(0).stdout_has("Iteration: 2/5");
    for args in [["pause", "agent"], ["resume", "agent"]] {
        let output = there(&args);
        output.code(1).stderr_has("started by ralph 0.1").stderr_has("ralph kill agent");
    }
    for args in [["logs", "agent"], ["report", "agent"]] {
        let output = there(&args);
        output.code(1).stderr_has("started by ralph 0.1").stderr_has("ralph status agent");
        output.stderr_lacks("No such file");
    }
}
