//! Runs in a terminal, found and steered from another one.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::Workshop;
use crate::support::{LONG, Process, Ralph, wait_until};

fn run(shop: &Workshop, more: &[&str]) -> Ralph {
    shop.ralph(["run", "-f", "PROMPT.md", "-n", "3"]).args(more).arg("--")
}

/// Two iterations that wait for a file, and a third one that completes.
fn agent(shop: &Workshop) -> Vec<String> {
    let step = json!([shop.record_step(), {"print": "at work"}, shop.wait_step()]);
    let done = json!([shop.record_step(), {"print": "<response>DONE</response>"}]);
    shop.fake_agent(&json!({"sessions": [step, step, done]}))
}

fn state_of(shop: &Workshop, name: &str) -> Value {
    let text = std::fs::read(shop.worker(name).join("state.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn rows(shop: &Workshop) -> Vec<Value> {
    let output = shop.ralph(["ls", "--format", "json"]).current_dir(shop.home()).run();
    serde_json::from_str(&output.code(0).stdout).expect("a list")
}

#[test]
fn foreground_run_is_listed_and_steered_by_name_from_elsewhere() {
    let shop = Workshop::new();
    let run = run(&shop, &[]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let there = |args: &[&str]| shop.ralph(args).current_dir(shop.home()).run();
    let list = rows(&shop);
    assert_eq!(
        (list.len(), &list[0]["name"], &list[0]["status"]),
        (1, &json!("project"), &json!("running"))
    );
    there(&["ls"]).code(0).stdout_has("project  working");
    there(&["status", "project"])
        .code(0)
        .stdout_has("Ralph Loop: project")
        .stdout_has("Iteration: 1/3");
    there(&["pause", "project"]).code(0).stdout_is("paused ralph loop for project\n");
    let in_run = std::fs::read(shop.newest_run().join("state.json")).unwrap();
    let in_run: Value = serde_json::from_slice(&in_run).unwrap();
    assert_eq!(in_run, state_of(&shop, "project"));
    assert_eq!((&in_run["status"], &in_run["command"]), (&json!("paused"), &json!("run")));
    shop.release();
    shop.wait_for_event("paused");
    assert_eq!(shop.agent_starts().len(), 1, "nothing new was begun");
    there(&["resume", "project", "-n", "5"]).code(0).stdout_is("resumed ralph loop for project\n");
    run.wait().code(0);
    assert_eq!(shop.events().last("resumed")["max_iterations"], 5);
    there(&["ls"]).code(0).stdout_has("project  complete");
    there(&["wait", "project"]).code(0);
    there(&["logs", "project"]).code(0).stdout_has("at work").stdout_lacks("[ralph] project:");
    there(&["report", "project"]).code(0).stdout_has("3 of 5 iterations");
    there(&["pause", "project"]).code(1).stderr_has("is not running (stopped)");
    there(&["rm", "project"]).code(0);
    assert!(rows(&shop).is_empty() && shop.newest_run().join("events.jsonl").exists());
}

#[test]
fn run_is_selected_by_id_its_beginning_or_last_four_characters() {
    let shop = Workshop::new();
    let run = run(&shop, &["--name", "mine"]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let id = shop.newest_run().file_name().unwrap().to_str().unwrap().to_owned();
    let there = |args: &[&str]| shop.ralph(args).current_dir(shop.home()).run();
    for part in [&id[..], &id[..17], &id[16..]] {
        there(&["status", part]).code(0).stdout_has("Ralph Loop: mine");
        there(&["report", part]).code(0).stdout_has(&id);
    }
    there(&["pause", &id[16..]]).code(0).stdout_is("paused ralph loop for mine\n");
    there(&["resume", &id[16..]]).code(0).stdout_is("resumed ralph loop for mine\n");
    there(&["kill", &id[16..]]).code(0).stdout_is("killed mine\n");
    run.wait().code(130);
    assert_eq!(state_of(&shop, "mine")["outcome"], "killed");
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn name_of_living_run_is_refused_and_free_after_its_end() {
    let shop = Workshop::new();
    let first = run(&shop, &["--name", "mine"]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let other = shop.sibling("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("PROMPT.md"), "Do it.").unwrap();
    let second = |name: &str| {
        let done = shop.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
        run(&shop, &["--name", name]).args(done).current_dir(&other).run()
    };
    second("mine").code(2).stderr_has("run 'mine' already exists (running)");
    second("../mine").code(2).stderr_has("invalid run name");
    shop.spawn_as("mine", 1, &[]).arg("true").run().code(1).stderr_has("already exists (running)");
    shop.release();
    first.wait().code(0);
    second("mine").code(0);
    assert_eq!(state_of(&shop, "mine")["directory"], other.to_str().unwrap());
    // Without a name, a run takes that of its directory, with a number while another one has it.
    let done = shop.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
    for _ in 0..2 {
        run(&shop, &[]).args(&done).run().code(0);
    }
    assert_eq!(rows(&shop).iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["mine", "project"]);
}

#[test]
fn interrupted_run_is_resumed_by_name_in_this_terminal() {
    let shop = Workshop::new();
    let first = run(&shop, &["--name", "mine"]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let pid = state_of(&shop, "mine")["pid"].as_i64().unwrap() as i32;
    Process { pid, command: String::new() }.signal(Signal::KILL);
    first.wait();
    wait_until(LONG, || shop.processes().is_empty());
    shop.ralph(["ls"]).run().code(0).stdout_has("mine  interrupted");
    shop.ralph(["resume", "--all"]).run().code(0).stdout_is("no background runs are paused\n");
    shop.release();
    let output = shop.ralph(["resume", "mine"]).current_dir(shop.home()).run();
    output.code(0).stdout_lacks("resumed ralph loop");
    let state = state_of(&shop, "mine");
    assert_eq!((&state["status"], &state["outcome"]), (&json!("stopped"), &json!("complete")));
    assert_eq!(shop.events().all("run_started").len(), 2, "one journal for both");
}

#[test]
fn killed_run_of_a_terminal_is_resumed_in_a_window_with_the_resuming_environment() {
    let shop = Workshop::new();
    let first = run(&shop, &["--name", "mine"]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let id = shop.newest_run().file_name().unwrap().to_str().unwrap().to_owned();
    first.signal(Signal::KILL);
    first.wait();
    wait_until(LONG, || shop.processes().is_empty());
    let before = state_of(&shop, "mine");
    let resume = || shop.ralph(["resume", &id, "--background"]);
    let output = resume().env("PATH", shop.sibling("bin")).run();
    output.code(1).stderr_has("cannot open a window for 'mine': tmux was not found");
    output.stderr_has("hint: background runs need tmux");
    assert_eq!(state_of(&shop, "mine"), before, "nothing has changed");
    resume().env("API_KEY", "sesame").run().code(0).stdout_is("resumed ralph loop for mine\n");
    assert_eq!(shop.windows(), ["ralph:mine"]);
    let left = shop.worker("mine").join("environment.json");
    assert!(!left.exists(), "secrets stay in no file");
    wait_until(LONG, || shop.agent_starts().len() > 1);
    resume().run().code(2).stderr_has(&format!("run {id} is still active"));
    shop.ralph(["logs", "mine"]).run().code(0).stdout_has("at work");
    shop.release();
    shop.ralph(["wait", "mine"]).run().code(0);
    assert!(shop.agent_starts()[0]["env"]["API_KEY"].is_null());
    assert_eq!(shop.agent_starts()[1]["env"]["API_KEY"], "sesame");
    let state = state_of(&shop, "mine");
    assert_eq!((&state["outcome"], &state["run_id"]), (&json!("complete"), &json!(id)));
    assert_eq!(shop.events().all("run_started").len(), 2, "one journal for both");
    resume().run().code(0).stdout_has(&format!("run {id} is done"));
}

#[test]
fn older_run_of_a_taken_name_is_resumed_in_a_window_under_another() {
    let shop = Workshop::new();
    let first = run(&shop, &[]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let id = shop.newest_run().file_name().unwrap().to_str().unwrap().to_owned();
    first.signal(Signal::KILL);
    first.wait();
    wait_until(LONG, || shop.processes().is_empty());
    let done = shop.fake_agent(&json!([{"print": "<response>DONE</response>"}]));
    shop.ralph(["run", "-p", "x", "--background=project", "--"]).args(done).run().code(0);
    shop.ralph(["wait", "project"]).run().code(0);
    shop.release();
    let resume = shop.ralph(["resume", &id, "--background", "-n", "4"]).run();
    resume.code(0).stdout_is("resumed ralph loop for project-2\n");
    shop.ralph(["wait", "project-2"]).run().code(0);
    let state = state_of(&shop, "project-2");
    assert_eq!((&state["run_id"], &state["max_iterations"]), (&json!(id), &json!(4)));
    assert_eq!(state_of(&shop, "project")["outcome"], "complete", "the other one is left alone");
}

#[test]
fn run_of_moved_project_is_resumed_by_name_at_its_new_path() {
    let shop = Workshop::new();
    let first = run(&shop, &["--name", "mine"]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    first.signal(Signal::KILL);
    first.wait();
    wait_until(LONG, || shop.processes().is_empty());
    let moved = shop.sibling("moved");
    std::fs::rename(shop.path(), &moved).unwrap();
    shop.release();
    let resume = |from: &std::path::Path| shop.ralph(["resume", "mine"]).current_dir(from).run();
    resume(&shop.home()).code(2).stderr_has("project directory is gone");
    shop.ralph(["runs"]).current_dir(&moved).run().code(0).stderr_has("was moved from");
    resume(&shop.home()).code(0);
    let state = state_of(&shop, "mine");
    assert_eq!((&state["outcome"], &state["directory"]), (&json!("complete"), &json!(moved)));
    shop.ralph(["ls"]).current_dir(shop.home()).run().code(0).stdout_has("mine  complete");
}

#[test]
fn request_to_stopped_process_survives_until_it_is_taken() {
    let shop = Workshop::new();
    let run = run(&shop, &[]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let pid = state_of(&shop, "project")["pid"].as_i64().unwrap() as i32;
    let process = Process { pid, command: String::new() };
    process.signal(Signal::STOP);
    let requests = || {
        let dir = shop.newest_run().join("requests").read_dir().unwrap().flatten();
        let mut names: Vec<_> = dir.map(|it| it.file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".json"));
        names.sort();
        names
    };
    let pause = shop.ralph(["pause", "project"]).start();
    wait_until(LONG, || requests() == ["000001.json"]);
    // Killed before it has its answer.
    pause.signal(Signal::KILL);
    pause.wait();
    process.signal(Signal::CONT);
    // The run looks for requests before it begins anything new, even if no request woke it.
    shop.release();
    wait_until(LONG, || state_of(&shop, "project")["status"] == "paused");
    wait_until(LONG, || requests().is_empty());
    assert_eq!(shop.agent_starts().len(), 1);
    shop.ralph(["resume", "project"]).run().code(0);
    run.wait().code(0);
    let journal = std::fs::read_to_string(shop.newest_run().join("events.jsonl")).unwrap();
    assert!(journal.find("pause_requested") < journal.find("\"resumed\""));
}

#[test]
fn run_killed_before_it_took_a_request_can_be_resumed() {
    let shop = Workshop::new();
    let run = run(&shop, &[]).args(agent(&shop)).start();
    shop.wait_for_event("text");
    let pid = state_of(&shop, "project")["pid"].as_i64().unwrap() as i32;
    let process = Process { pid, command: String::new() };
    process.signal(Signal::STOP);
    let pause = shop.ralph(["pause", "project"]).start();
    wait_until(LONG, || shop.newest_run().join("requests/000001.json").exists());
    process.signal(Signal::KILL);
    run.wait();
    pause.wait().code(0);
    assert_eq!(state_of(&shop, "project")["status"], "paused", "the pause holds for a dead run");
    shop.release();
    wait_until(LONG, || shop.processes().is_empty());
    shop.ralph(["resume"]).run().code(0);
    assert_eq!(shop.events().all("pause_requested").len(), 0, "the start came later");
}

#[test]
fn background_run_behaves_as_run() {
    let shop = Workshop::new();
    shop.settings(&json!({"guardrails": [{"command": "test -e passed"}]}));
    let done =
        shop.fake_agent(&json!([shop.record_step(), {"print": "<response>DONE</response>"}]));
    let here = shop.ralph(["run", "-f", "PROMPT.md", "-n", "2", "--name", "a", "--"]).args(&done);
    here.run().code(1);
    let there =
        shop.ralph(["run", "-f", "PROMPT.md", "-n", "2", "--background=b", "--"]).args(&done);
    there.run().code(0).stdout_has("started b (tmux: ralph:b)");
    shop.ralph(["wait", "b"]).run().code(1);
    let [a, b] = ["a", "b"].map(|name| state_of(&shop, name));
    for key in
        ["status", "outcome", "exit_code", "message", "current_iteration", "command", "last_event"]
    {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!((&a["foreground"], &b["foreground"]), (&json!(true), &json!(false)));
    assert_eq!(shop.agent_starts().len(), 4);
    // It goes on where it was.
    shop.write("passed", "");
    shop.ralph(["resume", "b", "-n", "3"]).run().code(0).stdout_is("resumed ralph loop for b\n");
    shop.ralph(["wait", "b"]).run().code(0);
    assert_eq!(state_of(&shop, "b")["outcome"], "complete");
    wait_until(LONG, || shop.windows().is_empty());
}

#[test]
fn piped_prompt_is_kept_for_background_run() {
    let shop = Workshop::new();
    let done = json!([shop.record_step(), {"print": "<response>DONE</response>"}]);
    let run = shop.ralph(["run", "-f", "-", "--background=piped", "--"]);
    run.args(shop.fake_agent(&done)).stdin("Do the piped thing.").run().code(0);
    shop.ralph(["wait", "piped"]).run().code(0);
    assert!(shop.agent_starts()[0].to_string().contains("Do the piped thing."));
}

#[test]
fn background_run_that_cannot_start_says_why_with_the_same_code() {
    let shop = Workshop::new();
    let run = |args: &[&str]| shop.ralph(args).run();
    run(&["run", "-f", "missing.md", "--background=b", "--", "true"])
        .code(2)
        .stderr_has("prompt file not found");
    run(&["build", "--background=b", "--", "true"]).code(2).stderr_has("not a git repository");
    assert!(rows(&shop).is_empty() && shop.windows().is_empty());
    shop.git_init();
    let agent = shop.fake_agent(&json!([shop.wait_step()]));
    shop.ralph(["prompt", "-p", "<promise>COMPLETE</promise>", "--background", "--"])
        .args(&agent)
        .run()
        .code(0);
    run(&["attach", "missing"]).code(1);
    assert_eq!(rows(&shop)[0]["name"], "project");
    run(&["run", "-f", "PROMPT.md", "--background", "--", "true"])
        .code(2)
        .stderr_has("is in use by");
    run(&["kill", "project"]).code(0);
    wait_until(LONG, || shop.windows().is_empty());
}
