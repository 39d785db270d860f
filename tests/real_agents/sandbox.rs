//! Sandboxed agents reach only their service, and their commits arrive.

use std::process::Command;

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{LONG, namespaces, skipped, wait_until};
use crate::{Facts, for_agents};

fn bwrap_works() -> bool {
    let output = Command::new("bwrap")
        .args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--", "true"])
        .output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        skipped("bubblewrap does not work here");
    }
    works
}

fn shell(command: &str) -> Value {
    json!({"sh": command})
}

// opencode, gemini, cline and qwen pass as well, but take 10 to 30 s of processor time.
for_agents!(agent_works_in_sandbox: claude, codex, copilot);

/// Agents that get the service's address by a variable, so it is allowed automatically.
const ADDRESS_BY_VARIABLE: [&str; 4] = ["claude", "gemini", "copilot", "qwen"];

fn agent_works_in_sandbox(facts: &Facts) {
    if !bwrap_works() {
        return;
    }
    let script = |_: &_| {
        json!({"sessions": [
            [
                shell("cd /proc/self/ns; readlink user mnt pid net ipc uts > \"$OLDPWD/namespaces\"; cd -"),
                shell("id -u; ls -A \"$HOME\"; curl -sS -m 5 https://example.com; cat \"$HOME/secret\""),
                {"text": "I looked around."},
            ],
            [
                shell("echo hello > greeting.txt && git add greeting.txt && git commit -qm 'Say hello'"),
                {"text": "Committed."},
            ],
            [{"text": "All there.\n<response>DONE</response>"}],
        ]})
    };
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    std::fs::write(project.home().join("secret"), "TOP SECRET").expect("a secret");
    let allowed = if ADDRESS_BY_VARIABLE.contains(&facts.name) {
        vec![]
    } else {
        vec![real.service_address()]
    };
    project.settings(&json!({"sandbox": {"allowedDomains": allowed}}));
    let args =
        [&["-p", "Say hello. Then <response>DONE</response>.", "-n", "5", "--sandbox"], facts.args];
    let output = real.run(&args.concat()).run();
    output.code(0);

    let events = project.events();
    assert_eq!(events.find("sandbox_ready")["backend"], "bwrap");
    assert_eq!(events.all("iteration_started").len(), 3, "{:?}", events.kinds());
    assert_eq!(events.last("run_ended")["outcome"], "complete");
    let refused = events.all("network_refused");
    let curl = refused.iter().find(|refused| refused["allow"] == "example.com");
    assert_eq!(curl.map(|curl| &curl["port"]), Some(&json!(443)), "{refused:?}");
    assert_eq!(project.git_command(["log", "--format=%s"]), "Say hello\nBegin\n");
    assert_eq!(project.read("greeting.txt"), "hello\n");
    assert!(!String::from_utf8_lossy(&project.raw()).contains("TOP SECRET"));
    assert!(!real.requests().iter().any(|request| request.to_string().contains("TOP SECRET")));

    assert_eq!(project.processes(), []);
    let own = project.read("namespaces");
    assert_eq!(own.lines().count(), 6, "{own}");
    wait_until(LONG, || !own.lines().any(|name| namespaces().contains(name)));
    let sandboxes = project.home().join(".ralph/sandboxes");
    assert_eq!(std::fs::read_dir(sandboxes).expect("the directory").count(), 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(project.path().to_str().expect("UTF-8")), "{mounts}");
}
