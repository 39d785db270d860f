//! Landlock runs, seen from outside.

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Project, Ralph, skipped};

pub(crate) fn landlock_works(project: &Project) -> bool {
    let check = project.ralph(["sandbox", "check"]).run();
    let works = check.stdout.contains("ok      landlock")
        && !check.stdout.contains("connections are not restricted");
    if !works {
        skipped("Landlock does not work here, or not with connections");
    }
    works
}

fn run(project: &Project, script: &str) -> Ralph {
    project.write("agent.sh", format!("{script}\necho '<response>DONE</response>'\n"));
    let args = ["run", "--sandbox=landlock", "-p", "Work.", "-n", "1", "--", "sh", "agent.sh"];
    project.ralph(args)
}

#[test]
fn landlock_blocks_outside_files_network_and_processes() {
    let project = Project::git();
    if !landlock_works(&project) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(project.home().join("secret"), "TOP SECRET").unwrap();
    project.settings(&json!({"scm": {"tasks": ["commit"]}}));
    let home = project.home();
    let home = home.display();
    let script = format!(
        "case \"$(cat)\" in *\"commit message\"*) echo Made; exit;; esac\n\
         cat {home}/secret > stolen; echo evil > {home}/secret; ln {home}/secret linked\n\
         curl -s -m 3 --noproxy '*' http://127.0.0.1:{port} && touch connected\n\
         curl -s -m 3 https://example.com\n\
         kill -0 $PPID && kill -0 1 && touch signalled\n\
         cat /proc/$PPID/environ > environ; echo evil > .git/hooks/pre-commit; echo evil >> .git/config\n\
         echo '{{}}' > .claude-settings; mkdir .claude; mv .claude-settings .claude/settings.json\n\
         echo \"$NODE_USE_ENV_PROXY $HTTPS_PROXY\" > proxy\n\
         echo kept > \"$HOME/scratch\" && mktemp > /dev/null && echo work > made"
    );
    let output = run(&project, &script).run();
    output.code(0).stdout_has("sandbox  landlock");
    assert_eq!(fs::read_to_string(project.home().join("secret")).unwrap(), "TOP SECRET");
    assert_eq!(project.read("stolen"), "");
    assert_eq!(project.read("environ"), "");
    assert_eq!(project.read("made"), "work\n");
    let proxy = project.read("proxy");
    assert!(proxy.starts_with("1 http://127.0.0.1:") && !proxy.contains(":3128"), "{proxy}");
    for name in
        ["linked", "connected", "signalled", ".git/hooks/pre-commit", ".claude/settings.json"]
    {
        assert!(!project.has(name), "{name}");
    }
    assert!(!project.read(".git/config").contains("evil"));
    let events = project.events();
    assert_eq!(events.find("network_refused")["host"], "example.com");
    assert_eq!(events.find("scm_ended")["ok"], true, "{}", events.find("scm_ended"));
    assert_eq!(project.processes(), []);
}

#[test]
fn agent_cannot_change_or_forge_runs() {
    let project = Project::git();
    if !landlock_works(&project) {
        return;
    }
    let evil = json!({
        "sandbox": {"backend": "none"}, "guardrails": [{"command": "touch evil"}],
        "agent": {"command": "sh", "flags": ["agent.sh"]},
    });
    project.write("evil.json", evil.to_string()).write(
        "agent.sh",
        "for run in .ralph/runs/*; do cp evil.json $run/spec.json; done\n\
         fake=.ralph/runs/20991231-235959-abcd; [ -d $fake ] || cp -r .ralph/runs/2* $fake\n\
         rm -f .ralph/runs; mkdir -p $fake; cp evil.json $fake/spec.json\n\
         echo tampered\n",
    );
    let args = ["run", "--sandbox=landlock", "-p", "Work.", "-n", "1", "--", "sh", "agent.sh"];
    project.ralph(args).run().code(1).stdout_has("tampered");
    project.ralph(["resume", "2099", "-n", "2"]).run().code(2).stderr_has("there is no run");
    project.ralph(["runs"]).run().code(0).stdout_lacks("2099");
    let resumed = project.ralph(["resume", "-n", "2"]).run();
    resumed.code(1).stdout_has("sandbox  landlock").stdout_has("tampered");
    assert!(!project.has("evil"));
}

/// These files are unprotected while the agent runs, and restored afterwards.
#[test]
fn git_files_are_restored_without_links_and_after_kill() {
    let project = Project::git();
    if !landlock_works(&project) {
        return;
    }
    let users = project.home().join("users");
    fs::create_dir(&users).unwrap();
    fs::write(users.join("config"), "mine").unwrap();
    let config = project.read(".git/config");
    let script = format!("mv .git old && ln -s {} .git", users.display());
    run(&project, &script).run().code(0).stderr_has(".git.from-sandbox");
    assert_eq!(fs::read_to_string(users.join("config")).unwrap(), "mine");
    assert_eq!(fs::read_dir(&users).unwrap().count(), 1);
    assert_eq!(project.read(".git/config"), config);
    assert!(project.has(".git/HEAD") && !project.has("old"), "it is the same repository again");
    // A kill; the next command that reads settings restores.
    let script = "printf '[core]\n\tfsmonitor = evil\n' >> .git/config; echo '{\"guardrails\":[]}' > .ralph/settings.local.json\n\
                  sleep 1000 & touch planted; wait";
    let running = run(&project, script).start();
    project.wait_for_file("planted");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    assert!(project.read(".git/config").contains("evil"));
    let output = project.ralph(["settings"]).run();
    output.code(0).stderr_has("config.from-sandbox").stderr_has("settings.local.json.from-sandbox");
    assert_eq!(project.read(".git/config"), config);
    assert!(!project.has(".ralph/settings.local.json"));
    // A process is left over until the next run ends it. Until then, every command checks again.
    project.ralph(["settings"]).run().code(0).stderr_lacks("from-sandbox");
    project.write(".claude/settings.json", "{}");
    project.ralph(["sandbox", "ls"]).run().code(0).stderr_has("settings.json.from-sandbox");
    project.write(".claude/settings.json", "{}");
    run(&project, "true").run().code(0).stderr_has("settings.json.from-sandbox.1");
    let planted = project.events().find("planted")["message"].clone();
    assert!(planted.as_str().unwrap().ends_with("settings.json.from-sandbox.1"), "{planted}");
    assert_eq!(project.processes(), []);
    project.ralph(["sandbox", "ls"]).run().stdout_has("No sandboxes.");
}
