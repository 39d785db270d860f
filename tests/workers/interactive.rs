//! Workers with interactive agents.

use serde_json::json;

use crate::Workshop;
use crate::support::{LONG, skipped, wait_until};

/// Spawns an agent that asks and answers on its screen. `$1` is the file for its notes.
fn spawn(shop: &Workshop, more: &[&str], script: &str) {
    shop.write("PROMPT.md", "Say All tasks complete when all is done.\n");
    let notes = shop.sibling("notes");
    shop.spawn(1, &["--interactive", "--done-pattern", "All tasks complete"])
        .args(["sh", "-c", script, "sh", notes.to_str().expect("UTF-8")].map(str::to_owned))
        .args(more)
        .run()
        .code(0)
        .stdout_is("spawned agent (tmux: ralph:agent) [ralph mode: iteration 1/1]\n");
}

fn screen(shop: &Workshop) -> String {
    shop.tmux(["capture-pane", "-p", "-t", "ralph:agent"])
}

#[test]
fn interactive_prompt_is_typed_and_its_echo_ignored() {
    let shop = Workshop::new();
    shop.settings(&json!({"inactivityTimeoutSeconds": 3}));
    // The agent must not idle before the test has looked.
    spawn(
        &shop,
        &[],
        r#"printf "ready> "; read line; echo "$line" > "$1"
        until test -e "$1.seen"; do printf .; sleep 0.1; done; exec sleep 1000"#,
    );
    let notes = shop.sibling("notes");
    let read_notes = || std::fs::read_to_string(&notes).unwrap_or_default();
    wait_until(LONG, || read_notes().ends_with('\n'));
    assert_eq!(read_notes().trim(), "Say All tasks complete when all is done.");
    wait_until(LONG, || screen(&shop).contains("ready> Say All tasks complete when all is done."));
    std::fs::write(shop.sibling("notes.seen"), "").unwrap();
    shop.wait();
    let log = shop.log();
    assert!(log.contains(&"[TIMEOUT] inactivity timeout (3s), restarting".to_owned()), "{log:?}");
    assert_eq!(log.last().unwrap(), "[DONE] loop complete after 1 iteration");
    assert_eq!(shop.state().unwrap()["inactivity_timeout"], 3);
    wait_until(LONG, || shop.processes().is_empty());
}

#[test]
fn sent_text_is_typed_and_screen_completes_run() {
    let shop = Workshop::new();
    shop.settings(&json!({"resultGraceSeconds": 1}));
    spawn(
        &shop,
        &[],
        r#"printf "> "; read line; touch "$1"; read more; echo "told: $more"; echo "All tasks complete"; read x"#,
    );
    assert_eq!(shop.state().unwrap()["inactivity_timeout"], 60);
    shop.wait_for_file(shop.sibling("notes"));
    shop.ralph(["send", "agent", "yes; go on -x 'é'"]).run().code(0).stdout_is("");
    // It would wait forever, but it has printed the done pattern.
    shop.wait();
    assert_eq!(shop.log().last().unwrap(), "[DONE] done pattern matched, stopping loop");
    shop.ralph(["logs", "agent"]).run().code(0).stdout_has("told: yes; go on -x 'é'");
    shop.ralph(["send", "agent", "x"]).run().code(1).stderr_has("has no window");
}

#[test]
fn dialog_waits_for_person_and_receives_no_prompt() {
    let shop = Workshop::new();
    let notifications = shop.sibling("told");
    shop.settings(&json!({
        "resultGraceSeconds": 1, "inactivityTimeoutSeconds": 5,
        "notify": {"command": format!("cat >>'{}'", notifications.display())},
    }));
    spawn(
        &shop,
        &[],
        r#"printf "Do you trust this folder?\n> 1. Yes\n  2. No\n"; read line; echo "$line" >"$1"
        printf "\033[2J\033[Hready> "; read line; echo "$line" >>"$1"; echo "All tasks complete"; read x"#,
    );
    let state = shop.wait_for_state(|state| state["waiting"] == true);
    assert_eq!(state["last_event"], "waiting for you: ralph attach agent");
    shop.ralph(["ls"]).run().stdout_has("agent  asks ");
    shop.ralph(["status", "agent"])
        .run()
        .stdout_has("Status: asks (waiting for you: ralph attach agent)");
    wait_until(LONG, || {
        std::fs::read_to_string(&notifications).is_ok_and(|it| it.contains("dialog_opened"))
    });
    // Longer than the inactivity timeout and than typing a prompt takes.
    let opened = std::time::Instant::now();
    wait_until(LONG, || opened.elapsed().as_secs() >= 6);
    assert!(!shop.sibling("notes").exists(), "something was typed");
    shop.ralph(["send", "agent", "yes"]).run().code(0);
    shop.wait();
    let notes = std::fs::read_to_string(shop.sibling("notes")).unwrap();
    assert_eq!(notes, "yes\nSay All tasks complete when all is done.\n", "{:?}", shop.log());
    let log = shop.log();
    assert_eq!(log[1], "[WAIT] waiting for you: ralph attach agent (trust this folder)");
    assert_eq!(log[2], "[CONTINUE] the dialog was answered");
    assert_eq!(shop.state().unwrap()["outcome"], "complete");
}

#[test]
fn interactive_prompt_that_never_arrives_is_failure() {
    let shop = Workshop::new();
    shop.settings(&json!({"inactivityTimeoutSeconds": 2}));
    shop.spawn(1, &["--interactive", "--wait"]).args(["sleep", "1000"]).run().code(1);
    assert_eq!(shop.state().unwrap()["outcome"], "failed");
    let events = shop.events();
    let ended = events.last("agent_ended");
    assert_eq!(ended["class"], "failed");
    assert_eq!(ended["failure"]["message"], "the prompt was not typed: the agent showed nothing");
}

/// JavaScript agents discard what is typed before they read keys.
#[test]
fn interactive_prompt_waits_until_agent_reads_keys() {
    let shop = Workshop::new();
    shop.settings(&json!({"resultGraceSeconds": 1}));
    spawn(
        &shop,
        &[],
        r#"for i in 1 2 3 4; do printf "loading "; sleep 1; done
        stty -icanon -icrnl echo; printf "\nready> "; line=; key=
        until key=$(dd bs=1 count=1 2>/dev/null | tr '\r' '@'); test "$key" = @; do line="$line$key"; done
        echo "$line" >"$1"; echo "All tasks complete"; exec sleep 1000"#,
    );
    shop.wait();
    let notes = std::fs::read_to_string(shop.sibling("notes")).unwrap();
    assert_eq!(notes.replace(' ', ""), "SayAlltaskscompletewhenallisdone.\n");
}

#[test]
fn interactive_agent_has_terminal_and_keys() {
    let shop = Workshop::new();
    spawn(
        &shop,
        &[],
        r#"trap 'echo caught' INT; stty size; test -t 2 && echo yes; while :; do read line && echo "$line" >> "$1"; done"#,
    );
    wait_until(LONG, || screen(&shop).contains("50 200\nyes\n"));
    shop.wait_for_file(shop.sibling("notes"));
    shop.tmux(["send-keys", "-t", "ralph:agent", "C-c"]);
    wait_until(LONG, || screen(&shop).contains("caught"));
    assert_eq!(shop.state().unwrap()["status"], "running", "the key was the agent's");
    let terminal = shop.ralph(["attach", "agent"]).env("TERM", "xterm").in_tmux();
    terminal.wait_for_text(LONG, "caught");
    shop.ralph(["kill", "agent"]).run().code(0);
    wait_until(LONG, || shop.processes().iter().all(|it| it.command.contains("tmux")));
}

#[test]
fn pause_works_while_screen_changes() {
    let shop = Workshop::new();
    let end = shop.sibling("end");
    let script = r#"printf "> "; read line; while test ! -e "$1"; do n=$((n + 1)); printf "\rtick $n"; sleep 0.05; done"#;
    let agent = ["sh", "-c", script, "sh", end.to_str().expect("UTF-8")];
    shop.spawn(2, &["--interactive"]).args(agent).run().code(0);
    wait_until(LONG, || screen(&shop).contains("tick"));
    shop.ralph(["pause", "agent"]).run().code(0).stdout_is("paused ralph loop for agent\n");
    let screen_text = screen(&shop);
    wait_until(LONG, || screen(&shop) != screen_text);
    assert_eq!(shop.log(), ["[START] iteration 1/2", "[PAUSE] paused"], "the agent continues");
    shop.ralph(["ls"]).run().code(0).stdout_has("agent  pausing ");
    std::fs::write(&end, "").unwrap();
    shop.wait_for_event("paused");
    // The log follows the journal with a delay.
    wait_until(LONG, || shop.log().len() == 3);
    assert!(shop.log()[2].starts_with("[END] iteration 1 exit=0 "), "{:?}", shop.log());
    shop.ralph(["ls"]).run().code(0).stdout_has("agent  paused ");
    shop.ralph(["resume", "agent"]).run().code(0);
    shop.wait_for_state(|state| state["current_iteration"] == 2);
    shop.ralph(["kill", "agent"]).run().code(0);
}

#[test]
fn send_and_cost_budget_are_refused_for_wrong_mode() {
    let shop = Workshop::new();
    shop.spawn(1, &[]).args(shop.waiting_agent()).run().code(0);
    shop.ralph(["send", "agent", "x"]).run().code(1).stderr_has("run 'agent' is not interactive");
    shop.release();
    shop.wait();
    shop.install_agent("claude", &json!([]));
    shop.spawn(1, &["--interactive", "--max-cost", "5"])
        .arg("claude")
        .run()
        .code(2)
        .stderr_has("costUsd has no effect: claude does not report costs on its own screen")
        .stderr_has("hint: drop --interactive, or set duration instead");
}

#[test]
fn sandboxed_interactive_agent_has_screen_and_keys() {
    let shop = Workshop::new();
    shop.settings(&json!({"resultGraceSeconds": 1}));
    shop.write("PROMPT.md", "Say All tasks complete when all is done.\n");
    std::fs::write(shop.home().join("secret"), "secret").unwrap();
    let check = shop.ralph(["sandbox", "check"]).run();
    // It must end by its output, not by the key.
    let script = "trap 'echo caught' INT; cat $HOME/secret; stty size </dev/tty; test -t 2 && echo yes; \
                  while :; do read line && touch prompted; test \"$line\" = over && break; done; \
                  echo All tasks complete; sleep 1000";
    for backend in ["bwrap", "landlock"] {
        if !check.stdout.contains(&format!("ok      {backend}")) {
            skipped(&format!("{backend} does not work here"));
            continue;
        }
        let sandbox = format!("--sandbox={backend}");
        let more = ["--interactive", &sandbox, "--done-pattern", "All tasks complete"];
        shop.spawn(1, &more).args(["sh", "-c", script]).run().code(0);
        wait_until(LONG, || screen(&shop).contains("50 200\nyes\n"));
        let screen_text = screen(&shop);
        assert!(screen_text.contains("secret: "), "{backend}: it could be read\n{screen_text}");
        shop.wait_for_file("prompted");
        shop.tmux(["send-keys", "-t", "ralph:agent", "C-c"]);
        wait_until(LONG, || screen(&shop).contains("caught"));
        shop.ralph(["send", "agent", "over"]).run().code(0);
        shop.wait();
        assert_eq!(shop.log().last().unwrap(), "[DONE] done pattern matched, stopping loop");
        wait_until(LONG, || shop.processes().is_empty());
        std::fs::remove_file(shop.path().join("prompted")).unwrap();
    }
}
