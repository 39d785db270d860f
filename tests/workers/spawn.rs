//! Starting workers.

use serde_json::json;

use crate::support::{LONG, wait_until};
use crate::{Workshop, support};

#[test]
fn worker_runs_in_window_until_limit() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([
        shop.record_step(),
        {"print": "working"},
        shop.wait_step(),
    ]));
    shop.spawn(3, &[])
        .args(&agent)
        .run()
        .code(0)
        .stdout_is("spawned agent (tmux: ralph:agent) [ralph mode: iteration 1/3]\n");
    assert_eq!(shop.windows(), ["ralph:agent"]);
    let state = shop.state().unwrap();
    assert_eq!(state["status"], "running");
    assert_eq!(state["prompt_file"], shop.path().join("PROMPT.md").to_str().unwrap());
    assert_eq!(state["inactivity_timeout"], 300);
    assert_eq!(state["done_pattern"], json!(null));
    assert!(support::is_alive(state["pid"].as_i64().unwrap() as i32));
    shop.write("PROMPT.md", "Do another thing.\n");
    shop.release();
    let state = shop.wait_for_status("stopped");
    assert_eq!((&state["current_iteration"], &state["exit_code"]), (&json!(3), &json!(0)));
    let log = shop.log();
    assert_eq!(log[0], "[START] iteration 1/3");
    assert!(log[1].starts_with("[END] iteration 1 exit=0 duration="), "{log:?}");
    assert_eq!(log[2], "[START] iteration 2/3");
    assert_eq!(log.last().unwrap(), "[DONE] loop complete after 3 iterations");
    let prompts: Vec<_> = shop.agent_starts().iter().map(|it| it["prompt"].clone()).collect();
    assert!(prompts[0].as_str().unwrap().contains("Do the next thing."));
    assert!(prompts[1].as_str().unwrap().contains("Do another thing."), "{prompts:?}");
    // The window closes with its loop, and the server with the last window.
    wait_until(LONG, || shop.windows().is_empty() && shop.processes().is_empty());
}

#[test]
fn done_pattern_stops_loop_and_wait_returns_exit_code() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"print": "more to do"}],
        [{"print": "All tasks complete"}],
    ]}));
    shop.spawn(9, &["--done-pattern", "All tasks (?=complete)", "--wait"])
        .args(&agent)
        .run()
        .code(0)
        .stdout_has("spawned agent");
    let state = shop.state().unwrap();
    assert_eq!((&state["status"], &state["current_iteration"]), (&json!("stopped"), &json!(2)));
    assert_eq!(shop.log().last().unwrap(), "[DONE] done pattern matched, stopping loop");
    // The done pattern counts even if the agent then hangs or fails, but not if it crashes.
    shop.settings(&json!({"resultGraceSeconds": 1, "retry": {"backoffSeconds": 0}}));
    for (then, exit, done) in
        [("sleep 1000", 143, true), ("exit 3", 3, true), ("kill -9 $$", 137, false)]
    {
        let script = format!("cat; printf 'All \\033[1mtasks\\033[0m complete\\n'; {then}");
        shop.spawn(1, &["--done-pattern", "All tasks complete", "--wait"])
            .args(["sh", "-c", &script])
            .run()
            .code(i32::from(!done));
        let log = shop.log();
        let ends = format!("[END] iteration 1 exit={exit} ");
        assert!(log.iter().any(|line| line.starts_with(&ends)), "{log:?}");
        let last = log.last().unwrap();
        assert_eq!(last == "[DONE] done pattern matched, stopping loop", done, "{then}: {log:?}");
    }
}

#[test]
fn five_consecutive_failures_stop_loop() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"exit": 3}],
        [{"print": "better"}],
        [{"exit": 1}],
    ]}));
    shop.spawn(20, &["--wait"]).args(&agent).run().code(1);
    let state = shop.state().unwrap();
    assert_eq!(state["status"], "failed");
    assert_eq!(state["current_iteration"], 7);
    assert_eq!((&state["consecutive_failures"], &state["total_failures"]), (&json!(5), &json!(6)));
    let log = shop.log();
    assert_eq!(log[1], "[FAIL] iteration 1 failed (exit: 3), retrying in 0s (attempt 1/5)");
    assert_eq!(log.last().unwrap(), "[FAIL] 5 consecutive failures, stopping loop");
}

/// The server reads the user's configuration when it starts.
fn tmux_configuration(shop: &Workshop, text: &str) {
    std::fs::write(shop.home().join(".tmux.conf"), text).expect("a file in the home");
}

#[test]
fn workers_survive_tmux_destroy_unattached() {
    let shop = Workshop::new();
    tmux_configuration(&shop, "set -g destroy-unattached on\n");
    let agent = shop.waiting_agent();
    shop.spawn_as("other", 1, &[]).args(&agent).run().code(0);
    shop.spawn(2, &[]).args(&agent).run().code(0);
    assert_eq!(shop.windows(), ["ralph:other", "ralph:agent"]);
    shop.release();
    shop.wait();
    assert_eq!(shop.state().unwrap()["outcome"], "limit");
}

#[test]
fn tmux_exit_unattached_warns() {
    let shop = Workshop::new();
    tmux_configuration(&shop, "set -s exit-unattached on\n");
    let output = shop.spawn(1, &[]).args(shop.waiting_agent()).run();
    output.stderr_has("warning: tmux exits").stderr_has("`exit-unattached on`");
}

#[test]
fn spawn_with_only_failed_iterations_exits_1() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let agent = shop.fake_agent(&json!([{"exit": 3}]));
    shop.spawn(2, &["--wait"]).args(&agent).run().code(1);
    let state = shop.state().unwrap();
    assert_eq!((&state["status"], &state["outcome"]), (&json!("failed"), &json!("failed")));
    assert_eq!((&state["consecutive_failures"], &state["total_failures"]), (&json!(2), &json!(2)));
    let log = shop.log();
    assert!(log.iter().any(|line| line.ends_with("not retrying (attempt 2/5)")), "{log:?}");
    assert_eq!(log.last().unwrap(), "[FAIL] all 2 iterations failed, stopping loop");
    shop.ralph(["ls"]).run().code(0).stdout_has("agent  failed ");
}

#[test]
fn worker_outcome_is_listed() {
    let shop = Workshop::new();
    let quick = shop.fake_agent(&json!([{"print": "XYZ"}]));
    shop.spawn_as("done", 2, &["--wait", "--done-pattern", "XYZ"]).args(&quick).run().code(0);
    shop.spawn_as("limit", 1, &["--wait"]).args(&quick).run().code(0);
    let patient = shop.waiting_agent();
    shop.spawn_as("budget", 1, &["--wait", "--max-time", "1s"]).args(&patient).run().code(3);
    shop.spawn_as("killed", 1, &[]).args(&patient).run().code(0);
    shop.ralph(["kill", "killed"]).run().code(0);
    let table = shop.ralph(["ls"]).run();
    let listed = shop.ralph(["ls", "--format", "json"]).run();
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    for (worker, outcome, expected) in [
        ("done", "complete", "done    complete "),
        ("limit", "limit", "limit   ended (iteration limit) "),
        ("budget", "budget", "budget  ended (budget used up) "),
        ("killed", "killed", "killed  ended (stopped by you) "),
    ] {
        table.stdout_has(expected);
        let all = listed.as_array().unwrap();
        let row = all.iter().find(|row| row["name"] == worker).unwrap();
        assert_eq!((&row["status"], &row["outcome"]), (&json!("stopped"), &json!(outcome)));
        let output = shop.ralph(["status", worker]).run();
        let word = if outcome == "complete" { "complete" } else { "ended" };
        output
            .stdout_has(&format!("Status: {word} ("))
            .stdout_has(&format!("\nOutcome: {outcome}\n"));
    }
}

#[test]
fn inactivity_is_no_failure() {
    let shop = Workshop::new();
    let agent =
        shop.fake_agent(&json!({"sessions": [[{"print": "hm"}, "hang"], [{"print": "x"}]]}));
    shop.spawn(2, &["--inactivity-timeout", "1s", "--wait"]).args(&agent).run().code(0);
    let state = shop.state().unwrap();
    assert_eq!((&state["status"], &state["total_failures"]), (&json!("stopped"), &json!(0)));
    assert!(shop.log().contains(&"[TIMEOUT] inactivity timeout (1s), restarting".to_owned()));
}

#[test]
fn invalid_spawn_is_refused_and_leaves_nothing() {
    let shop = Workshop::new();
    for file in ["-", "/dev/stdin", "/dev/fd/0"] {
        let output = shop.ralph(["spawn", "-f", file, "-n", "1", "--", "true"]).run();
        output.code(1).stderr_has("cannot read its prompt from");
    }
    let agent = shop.fake_agent(&json!([]));
    let spawn = |args: &[&str]| shop.ralph(["spawn"]).args(args).arg("--").args(&agent).run();
    spawn(&["-n", "3"]).code(1).stderr_has("ralph: error: spawn requires --prompt-file\n");
    spawn(&["-f", "PROMPT.md"])
        .code(1)
        .stderr_has("ralph: error: spawn requires --max-iterations\n");
    spawn(&["--ralph", "-n", "3"]).code(1).stderr_has("error: --ralph requires --prompt-file\n");
    spawn(&["--ralph", "-f", "PROMPT.md"])
        .code(1)
        .stderr_has("error: --ralph requires --max-iterations\n");
    spawn(&["-f", "./missing.md", "-n", "3"])
        .code(1)
        .stderr_has("ralph: error: prompt file not found: ./missing.md\n");
    spawn(&["-f", "PROMPT.md", "-n", "3", "--done-pattern", "("]).code(1);
    spawn(&["-f", "PROMPT.md", "-n", "0"]).code(1).stderr_has("must be a whole number from 1");
    spawn(&["--bogus"]).code(1).stderr_has("hint: see `ralph spawn --help`");
    shop.ralph(["-C", ".", "pause"]).run().code(1).stderr_has("hint: see `ralph pause --help`");
    spawn(&["-f", "PROMPT.md", "-n", "3", "--inactivity-timeout", "5x"])
        .code(1)
        .stderr_has("must be a number of seconds or a duration such as 90s, 5m or 1h30m");
    spawn(&["-f", "PROMPT.md", "-n", "3", "--name", "a.b"]).code(1).stderr_has("invalid run name");
    shop.spawn(3, &[]).arg("no-such-agent").run().code(2).stderr_has("not found");
    assert!(!shop.home().join(".ralph/workers/agent").exists());
    assert_eq!(shop.windows(), [""; 0]);
}

#[test]
fn spawn_without_tmux_leaves_nothing() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([]));
    shop.spawn(3, &[])
        .args(&agent)
        .env("PATH", shop.sibling("bin"))
        .run()
        .code(1)
        .stderr_has("cannot open a window for 'agent': tmux was not found");
    assert!(!shop.home().join(".ralph/workers/agent").exists());
}

#[test]
fn loop_that_cannot_start_reports_why_and_leaves_nothing() {
    let shop = Workshop::new();
    let hold = shop.waiting_agent();
    let foreground = shop.project.ralph(["run", "-p", "x", "-n", "1", "--"]).args(&hold).start();
    shop.wait_for_event("agent_started");
    shop.spawn(3, &[])
        .args(&hold)
        .run()
        .code(2)
        .stderr_has("the loop of 'agent' did not start")
        .stderr_has("is in use by `ralph run`");
    let entries = std::fs::read_dir(shop.home().join(".ralph/workers")).unwrap().flatten();
    let leftovers: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !name.contains("project"))
        .collect();
    assert!(leftovers.is_empty(), "only the run in the foreground is there: {leftovers:?}");
    wait_until(LONG, || shop.windows().is_empty());
    shop.release();
    foreground.wait();
}

#[test]
fn workers_share_directory_only_with_each_other() {
    let shop = Workshop::new();
    let agent = shop.waiting_agent();
    shop.spawn(1, &[]).args(&agent).run().code(0).stderr_lacks("warning");
    shop.spawn_as("other", 1, &[])
        .args(&agent)
        .run()
        .code(0)
        .stderr_has("ralph: warning: agent works in this directory, too");
    shop.spawn(1, &[])
        .args(&agent)
        .run()
        .code(1)
        .stderr_has("ralph: error: run 'agent' already exists (running)");
    shop.project
        .ralph(["run", "-p", "x", "--"])
        .args(&agent)
        .run()
        .code(2)
        .stderr_has("`ralph ls` lists all runs");
    shop.release();
    shop.wait();
    shop.ralph(["wait", "other"]).run().code(0);
    shop.spawn(1, &["--wait"]).args(&agent).run().code(0);
}

#[test]
fn many_iterations_warn_and_empty_prompt_is_accepted() {
    let shop = Workshop::new();
    shop.write("PROMPT.md", "");
    let agent = shop.fake_agent(&json!([shop.record_step(), {"print": "done"}]));
    shop.spawn(51, &["--wait", "--done-pattern", "done"]).args(&agent).run().code(0).stderr_is(
        "ralph: warning: high iteration count (>50) may consume significant resources\n",
    );
    assert_eq!(shop.agent_starts().len(), 1);
}

#[test]
fn loop_has_environment_of_spawning_command() {
    let shop = Workshop::new();
    let hold = shop.waiting_agent();
    // The server's environment is that of its first client.
    shop.spawn_as("first", 1, &[]).args(&hold).env("API_KEY", "of the first").run().code(0);
    let agent = shop.fake_agent(&json!([shop.record_step()]));
    shop.spawn(1, &["--wait"]).args(&agent).env("API_KEY", "my own").run().code(0);
    assert_eq!(shop.agent_starts()[0]["env"]["API_KEY"], "my own");
    assert!(!shop.file("environment.json").exists(), "no secret stays on the disk");
    shop.release();
    shop.ralph(["wait", "first"]).run();
}

#[test]
fn vanished_or_unreadable_prompt_fails_worker() {
    let shop = Workshop::new();
    let path = shop.path().join("PROMPT.md");
    for (spoil, why) in [
        ("rm PROMPT.md", "prompt file not found: "),
        ("rm PROMPT.md; mkdir PROMPT.md", "cannot read prompt file: "),
    ] {
        shop.write("PROMPT.md", "Do it.");
        let agent = shop.fake_agent(&json!([{"shell": spoil}, {"print": "oops"}]));
        shop.spawn(3, &["--wait"]).args(&agent).run().code(1);
        let state = shop.state().unwrap();
        assert_eq!((&state["status"], &state["exit_code"]), (&json!("failed"), &json!(1)));
        let expected = format!("{why}{}", path.display());
        let message = state["message"].as_str().unwrap();
        assert!(message.starts_with(&expected), "{message}");
    }
}

/// With growing space for workers, for runs, or for both on one disk, until everything fits.
#[test]
fn spawn_on_full_disk_leaves_nothing_and_reports() {
    let shop = Workshop::new();
    let agent = shop.waiting_agent().join(" ");
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let socket = shop.socket();
    let socket = socket.display();
    for places in ["$HOME/.ralph", ".ralph", "$HOME/.ralph .ralph"] {
        // Bind mounts put both places on one disk.
        let mount = format!(
            "mkdir -p disk && mount -t tmpfs -o size=256k none disk
             for place in {places}; do
                 mkdir -p $place disk/$place && mount --bind disk/$place $place
             done"
        );
        let script = format!(
            r#"export RALPH_TMUX_SOCKET={socket}
            free=0
            until
                head -c 1M /dev/zero > disk/filler 2>/dev/null
                truncate -s -${{free}}k disk/filler
                {ralph} spawn --name agent -f PROMPT.md -n 1 -- {agent}
            do
                test -e $HOME/.ralph/workers/agent && echo left: state
                tmux -S {socket} has-session 2>/dev/null && echo left: session
                free=$((free + 4))
                test $free -lt 200 || break
            done
            {ralph} ls; {ralph} kill agent"#
        );
        let Some(output) = shop.run_with_mount(&mount, &script) else { return };
        output.stdout_lacks("left:").stdout_has("spawned agent").stderr_lacks("panicked");
        let errors: Vec<_> = output.stderr.lines().filter(|line| line.contains("error:")).collect();
        assert!(!errors.is_empty(), "{output:?}");
        assert!(errors.iter().all(|line| line.contains("No space left on device")), "{errors:#?}");
    }
    wait_until(LONG, || shop.processes().is_empty());
}

/// tmux expands `#(…)`, `#{…}` and single letters after `#` in directory arguments.
#[test]
fn worker_runs_in_directory_with_tmux_format_characters() {
    for name in ["C#Projects", "p#(cd; touch canary)", "p#{pid}", "p##(x)"] {
        let shop = Workshop::named(name);
        let agent = shop.fake_agent(&json!([shop.record_step(), {"print": "working"}]));
        shop.spawn(1, &["--wait"]).args(&agent).run().code(0);
        let project_path = shop.path().to_str().unwrap();
        assert_eq!(shop.agent_starts()[0]["cwd"], project_path);
        assert_eq!(shop.state().unwrap()["directory"], project_path);
        assert!(!shop.home().join("canary").exists(), "{name}");
    }
}

#[test]
fn worker_with_missing_directory_does_not_start() {
    let shop = Workshop::new();
    let work_dir = shop.sibling("here");
    std::fs::create_dir(&work_dir).unwrap();
    let project = shop.path().to_str().unwrap().to_owned();
    let spawn = ["spawn", "-C", &project, "--name", "agent", "-f", "PROMPT.md", "-n", "3", "--"];
    shop.ralph(spawn).args(shop.waiting_agent()).current_dir(&work_dir).run().code(0);
    shop.kill_loop("agent");
    std::fs::remove_dir(&work_dir).unwrap();
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.kill_loop("agent");
    let moved = shop.sibling("moved");
    std::fs::rename(shop.path(), &moved).unwrap();
    let resumed = shop.ralph(["resume", "agent"]).current_dir(shop.home()).run();
    resumed.code(1).stderr_has("cannot enter ").stderr_has("from its new path");
    std::fs::rename(&moved, shop.path()).unwrap();
}

#[test]
fn programs_planted_in_project_are_not_run_for_workers() {
    let shop = Workshop::new();
    shop.git_init();
    let bin = shop.path().join(".venv/bin");
    shop.plant_programs(&bin, &["tmux", "git", "sh", "claude"]);
    shop.write("file", "x");
    shop.git_command(["add", "-f", "file", "PROMPT.md"]);
    shop.git_command(["commit", "-qm", "First"]);
    let path = shop.path_with(&[&bin]);
    let agent = shop.fake_agent(&json!([shop.record_step(), {"print": "working"}]));
    for more in [&["--wait"][..], &["--wait", "--worktree"]] {
        shop.spawn(1, more).args(&agent).env("PATH", &path).run().code(0);
    }
    // The agent has the spawning client's `PATH`, not the server's.
    assert_eq!(shop.agent_starts()[0]["env"]["PATH"], path.to_str().unwrap());
    for command in
        [&["ls"][..], &["status", "agent"], &["attach", "agent"], &["rm", "agent", "--force"]]
    {
        shop.ralph(command).env("PATH", &path).run();
    }
    assert_eq!(shop.planted_runs(), Vec::<String>::new());
}
