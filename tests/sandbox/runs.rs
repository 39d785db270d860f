//! Complete runs in a sandbox, which leave nothing behind.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::landlock;
use crate::support::{LONG, Project, Ralph, namespaces, skipped, wait_until};

pub(crate) fn bwrap_works() -> bool {
    let output = std::process::Command::new("bwrap")
        .args(["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--", "true"])
        .output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        skipped("bubblewrap does not work here");
    }
    works
}

pub(crate) fn run(project: &Project, args: &[&str], script: &str) -> Ralph {
    project.write("agent.sh", script);
    let run = ["run", "-p", "Work.", "-n", "3"];
    project.ralph(run).args(args).args(["--", "sh", "agent.sh"])
}

pub(crate) const DONE: &str = "echo '<response>DONE</response>'\n";

#[track_caller]
fn assert_nothing_is_left(project: &Project) {
    assert_eq!(project.processes(), []);
    let sandboxes = project.home().join(".ralph/sandboxes");
    let leftovers: Vec<_> = fs::read_dir(sandboxes).into_iter().flatten().flatten().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(project.path().parent().unwrap().to_str().unwrap()), "{mounts}");
}

#[test]
fn sandboxed_run_commits_and_leaves_nothing_behind() {
    if !bwrap_works() {
        return;
    }
    let project = Project::git();
    project.settings(&json!({
        "guardrails": [{"command": "test ! -e \"$HOME/secret\" && test -e made", "failAction": "APPEND"}],
        "scm": {"tasks": ["commit"]},
    }));
    fs::write(project.home().join("secret"), "s").unwrap();
    let script = "case \"$(cat)\" in *\"commit message\"*) echo Made; exit;; esac\n\
                  id -u > made; (sleep 1000 &); setsid sleep 1000 &\n\
                  cd /proc/self/ns; readlink user mnt pid net ipc uts > \"$OLDPWD/namespaces\"; cd - > /dev/null\n";
    let output = run(&project, &["--sandbox"], &format!("{script}{DONE}")).run();
    output.code(0).stdout_has("sandbox  bwrap, network: allowed hosts only");
    let events = project.events();
    assert_eq!(events.find("sandbox_ready")["backend"], "bwrap");
    assert_eq!(events.find("guardrail_ended")["passed"], true);
    assert_eq!(events.find("scm_ended")["ok"], true, "{}", events.find("scm_ended"));
    assert_ne!(project.read("made").trim(), "0", "no administrator inside");
    assert!(project.git_command(["show", "--stat", "HEAD"]).contains("made"));
    assert_nothing_is_left(&project);
    let own = project.read("namespaces");
    assert_eq!(own.lines().count(), 6, "{own}");
    let is_ours = |name: &str| {
        let kind = name.split(':').next().unwrap();
        fs::read_link(format!("/proc/self/ns/{kind}")).unwrap() == Path::new(name)
    };
    assert!(!own.lines().any(is_ours), "{own}");
    wait_until(LONG, || !own.lines().any(|name| namespaces().contains(name)));
}

#[test]
fn refused_host_is_event_with_allowing_setting() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let script = "for n in 1 2 3; do curl -s -m 5 https://example.com; done; curl -s http://10.0.0.1:8080/\n";
    let output = run(&project, &["--sandbox"], &format!("{script}{DONE}")).run();
    output.code(0).stdout_has("Connection refused: example.com:443");
    let events = project.events();
    let refused: Vec<_> = events.all("network_refused");
    assert_eq!(refused.len(), 2, "each once: {refused:?}");
    assert_eq!(refused[0]["allow"], "example.com");
    assert_eq!(refused[1]["allow"], "10.0.0.1:8080");
    assert_nothing_is_left(&project);
}

#[test]
fn allowed_local_port_is_reached_directly_and_by_proxy() {
    if !bwrap_works() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    let project = Project::new();
    project.settings(&json!({"sandbox": {"allowedDomains": [format!("localhost:{port}")]}}));
    let script = format!(
        "curl -s -m 5 http://127.0.0.1:{port} > direct\n\
         NO_PROXY= no_proxy= curl -s -m 5 http://localhost:{port} > proxied\n{DONE}"
    );
    run(&project, &["--sandbox"], &script).run().code(0);
    assert_eq!(project.read("direct"), "hello");
    assert_eq!(project.read("proxied"), "hello");
    assert_nothing_is_left(&project);
}

#[test]
fn environment_secrets_are_withheld() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    project.settings(&json!({"agent": {"env": {"MY_TOKEN": "given"}}}));
    let output = run(&project, &["--sandbox"], &format!("env > seen\n{DONE}"))
        .env("AWS_SECRET_ACCESS_KEY", "hidden")
        .env("GITHUB_TOKEN", "hidden")
        .env("SSH_AUTH_SOCK", "/hidden")
        .env("ANTHROPIC_API_KEY", "needed")
        .env("COLOUR", "blue")
        .run();
    output.code(0);
    let listing = project.read("seen");
    assert!(!listing.contains("hidden"), "{listing}");
    for line in ["MY_TOKEN=given", "ANTHROPIC_API_KEY=needed", "COLOUR=blue"] {
        assert!(listing.lines().any(|listing| listing == line), "{line} in {listing}");
    }
}

#[test]
fn secret_variable_by_name_or_shape_is_withheld() {
    if !bwrap_works() {
        return;
    }
    let secrets = [
        ("DB_PASS", "hidden"),
        ("DB_PW", "hidden"),
        ("MYSQL_PWD", "hidden"),
        ("SERVICE_JWT", "hidden"),
        ("BW_SESSION", "hidden0123456789"),
        ("MY_GITHUB", "ghp_hidden0123456789abcdefghijABCDEFGHIJ"),
        ("MY_SLACK", "xoxb-0123456789-hidden"),
        ("MY_MODEL", "sk-hidden0123456789abcdefghij"),
        ("MY_LOGIN", "eyJhidden0.eyJhidden1.hidden2"),
        ("MY_HEADER", "Bearer hidden"),
        ("MY_PEM", "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----"),
        ("MY_REMOTE", "https://me:hidden@example.com/x.git"),
    ];
    let harmless = [
        ("PASSWORD_STORE_DIR", "/home/u/.store"),
        ("COMPASS_HOME", "/opt/compass"),
        ("BYPASS", "localhost"),
        ("TERM_SESSION_ID", "w0t0p0:8A3B5C7D"),
        ("XDG_SESSION_ID", "12"),
        ("GPG_TTY", "/dev/pts/1"),
        ("GIT_COMMIT", "0123456789abcdef0123456789abcdef01234567"),
        ("LS_COLORS", "di=01;34:*.key=00;36"),
        ("OPENAI_API_KEY", "sk-needed0123456789abcdefghij"),
        ("KEPT_PASS", "ghp_kept0123456789abcdefghijABCDEFGHIJ01"),
    ];
    let project = Project::new();
    project.settings(&json!({"sandbox": {"env": ["KEPT_PASS"]}}));
    let with_all = |ralph: Ralph| {
        let all = secrets.iter().chain(&harmless);
        all.fold(ralph, |ralph, (name, value)| ralph.env(name, value))
    };
    with_all(run(&project, &["--sandbox"], &format!("env > seen\n{DONE}"))).run().code(0);
    let listing = project.read("seen");
    assert!(!listing.contains("hidden"), "{listing}");
    for (name, value) in harmless {
        assert!(
            listing.lines().any(|line| line == format!("{name}={value}")),
            "{name} in {listing}"
        );
    }
    let output = with_all(project.ralph(["sandbox", "check"])).run();
    for (name, _) in secrets {
        output.stdout_has(name);
    }
    output.stdout_lacks("hidden").stdout_lacks("GPG_TTY").stdout_lacks("KEPT_PASS");
}

#[test]
fn sandboxed_agent_handles_sigterm_before_end() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let script = "trap 'echo bye > bye; exit 0' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n";
    let running = run(&project, &["--sandbox"], script).start();
    project.wait_for_file("ready");
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("Received signal"));
    running.signal(Signal::INT);
    running.wait().code(130);
    assert_eq!(project.read("bye"), "bye\n");
    assert_nothing_is_left(&project);
}

#[test]
fn planted_files_of_killed_run_are_moved_before_use() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let script = "mkdir -p .claude .ralph/prompts; echo '{}' > .claude/settings.json\n\
                  echo EVIL > .ralph/prompts/plan.md; touch planted; setsid sleep 1000\n";
    let running = run(&project, &["--sandbox"], script).start();
    project.wait_for_file("planted");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    wait_until(LONG, || project.processes().is_empty());
    assert!(project.has(".claude/settings.json"));
    let output = project.ralph(["plan", "--print-prompt"]).run();
    output.code(0).stderr_has("settings.json.from-sandbox").stdout_lacks("EVIL");
    assert!(!project.has(".claude/settings.json") && project.has(".ralph/prompts.from-sandbox"));
    assert_nothing_is_left(&project);
    run(&project, &["--no-sandbox"], DONE).run().code(0);
}

#[test]
fn files_of_run_beside_sandbox_shell_are_kept() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let script = "touch inside; until test -e enough; do sleep 0.02; done; git init -q .";
    let shell = ["sandbox", "shell", "--sandbox=bwrap", "--", "sh", "-c", script];
    let shell = project.ralph(shell).start();
    project.wait_for_file("inside");
    run(&project, &["--sandbox"], DONE).run().code(0);
    project.write("enough", "");
    shell.wait().code(0).stderr_has("the agent created a git repository here");
    assert!(!project.has(".git"));
    let names = fs::read_dir(project.path().join(".ralph")).unwrap().flatten();
    let aside = names.filter(|name| name.file_name().to_string_lossy().contains("from-sandbox"));
    assert_eq!(aside.count(), 0);
    assert_eq!(project.events().find("run_ended")["exit_code"], 0);
}

/// A planted file that cannot be renamed must not take effect.
#[test]
fn immovable_planted_file_ends_run_and_blocks_next() {
    if !bwrap_works() {
        return;
    }
    if !rustix::process::getuid().is_root() {
        return skipped("mounts of the test's own need the administrator");
    }
    let project = Project::new();
    project.write("agent.sh", format!("mkdir .claude; echo '{{}}' > .claude/settings.json; mkfifo gate; read -r line < gate\n{DONE}"));
    // A mount point cannot be renamed.
    let script = "ralph=$1; (\"$ralph\" run -p x -n 2 --sandbox=bwrap -- sh agent.sh; echo $? > code) &\n\
         until test -p gate; do sleep 0.02; done\n\
         mount --bind .claude/settings.json .claude/settings.json; echo go > gate; wait\n\
         \"$ralph\" settings; echo settings $?; \"$ralph\" run -p x -n 1 -- touch was-run; echo run $?\n\
         \"$ralph\" sandbox ls; umount .claude/settings.json; \"$ralph\" settings > /dev/null; echo freed $?\n";
    let output = project
        .command("unshare")
        .args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_ralph")])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(project.read("code"), "2\n", "{stdout}{complained}");
    for line in ["settings 2", "run 2", "freed 0"] {
        assert!(stdout.lines().any(|stdout| stdout == line), "{line}: {stdout}{complained}");
    }
    assert!(stdout.contains("left over"), "{stdout}");
    assert!(complained.contains("settings.json was changed inside the sandbox"), "{complained}");
    assert!(!project.has("was-run") && project.has(".claude/settings.json.from-sandbox"));
    assert_nothing_is_left(&project);
}

/// A mount disappears when its file is replaced.
#[test]
fn guarded_file_replaced_from_outside_is_reported() {
    if !bwrap_works() {
        return;
    }
    let project = Project::git();
    let script = "mkfifo gate; read -r line < gate; echo '[alias]' >> .git/config\n";
    let child = run(&project, &["--sandbox"], &format!("{script}{DONE}")).start();
    wait_until(LONG, || project.path().join("gate").exists());
    project.git_command(["config", "user.nick", "mine"]);
    fs::write(project.path().join("gate"), "go\n").unwrap();
    child.wait().code(0);
    let events = project.events();
    let warnings: String =
        events.all("warning").iter().map(|it| it["message"].to_string()).collect();
    assert!(warnings.contains(".git/config was replaced from outside"), "{warnings}");
}

#[test]
fn agent_links_do_not_redirect_reads_or_writes() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let (secret, victim) = (project.home().join("secret"), project.home().join("victim"));
    fs::write(&secret, "TOP SECRET").unwrap();
    fs::write(&victim, "as it was").unwrap();
    // The next prompt file, and the file it is written to, become links to a secret.
    project.write("PROMPT.md", "Work.");
    project.write(
        "agent.sh",
        format!(
            "cat > \"seen-$RALPH_ITERATION\"; rm PROMPT.md; ln -s {} PROMPT.md\n\
             ln -s {} .ralph/prompt_002.txt\n",
            secret.display(),
            victim.display()
        ),
    );
    let args = ["run", "--sandbox", "-f", "PROMPT.md", "-n", "2", "--", "sh", "agent.sh"];
    let output = project.ralph(args).run();
    output.code(2).stdout_has("links out of the project");
    assert!(!project.has("seen-2"));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    let by_file = project.settings(&json!({"agent": {"promptVia": "file"}}));
    by_file.write("agent.sh", format!("ln -sf {} .ralph/prompt_002.txt\n", victim.display()));
    let args = ["run", "--sandbox", "-p", "Work.", "-n", "2", "--settings"];
    let settings = project.path().join(".ralph/settings.json");
    let agent = project.ralph(args).arg(settings).args(["--", "sh", "agent.sh"]);
    agent.run().code(1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
}

#[test]
fn worktree_allows_commits_and_protects_git_files() {
    if bwrap_works() {
        attack_a_worktree("--sandbox=bwrap");
    }
    if landlock::landlock_works(&Project::new()) {
        attack_a_worktree("--sandbox=landlock");
    }
}

fn attack_a_worktree(sandbox: &str) {
    let project = Project::git();
    project.write("README.md", "x");
    project.git_command(["add", "."]);
    project.git_command(["commit", "-qm", "Begin"]);
    let tree = project.sibling("tree");
    project.git_command(["worktree", "add", "-q", tree.to_str().unwrap()]);
    let script = "echo work > work; git add -A && git commit -qm 'From inside' || exit 1\n\
                  common=$(git rev-parse --git-common-dir)\n\
                  echo evil > \"$common/hooks/pre-commit\"; git config core.fsmonitor evil\n\
                  echo 'gitdir: evil' > .git; rm -f .git; mv \"$common/worktrees\" \"$common/old\"\n";
    fs::write(tree.join("agent.sh"), format!("{script}{DONE}")).unwrap();
    let args = ["run", sandbox, "-p", "x", "-n", "1", "-C"];
    project.ralph(args).arg(&tree).args(["--", "sh", "agent.sh"]).run().code(0);
    let log = project.command("git").current_dir(&tree).args(["log", "--format=%s"]).output();
    assert_eq!(String::from_utf8_lossy(&log.unwrap().stdout), "From inside\nBegin\n");
    assert!(!project.has(".git/hooks/pre-commit"));
    assert!(!project.read(".git/config").contains("evil"));
    assert!(project.has(".git/worktrees") && !project.has(".git/old"));
    assert!(tree.join(".git").is_file());
}

fn without_bwrap(project: &Project) -> std::ffi::OsString {
    let bin = project.sibling("few");
    fs::create_dir(&bin).unwrap();
    for name in ["sh", "git", "true", "cat"] {
        let from = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
        let from = from.iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(from, bin.join(name)).unwrap();
    }
    bin.into()
}

#[test]
fn missing_sandbox_is_error_only_if_named_or_required() {
    let project = Project::new();
    let path = without_bwrap(&project);
    let go = |args: &[&str]| run(&project, args, DONE).env("PATH", &path).run();
    go(&["--sandbox=bwrap"]).code(2).stderr_has("bwrap is not installed").stderr_has("apt install");
    go(&["--sandbox"]).code(0).stderr_has("bwrap is not installed").stderr_has("apt install");
    go(&["--sandbox=seatbelt"])
        .code(2)
        .stderr_has("seatbelt is available only on macOS")
        .stderr_has("available on this system: bwrap, docker, landlock");
    go(&["--sandbox=nonsense"]).code(2).stderr_has("sandbox.backend");
    go(&["--no-sandbox"]).code(0).stderr_lacks("sandbox");
    project.settings(&json!({"sandbox": {"backend": "bwrap", "required": true}}));
    go(&[]).code(2).stderr_has("bwrap is not installed");
    go(&["--no-sandbox"]).code(0);
    // A mistake must not disable the sandbox.
    let domains = json!(["https://a.test/x", "ok.test", "*"]);
    project.settings(&json!({"sandbox": {"backend": "auto", "allowedDomains": domains}}));
    run(&project, &[], DONE).run().code(2).stderr_has("https://a.test/x").stderr_has("\"*\"");
    project.settings(&json!({"sandbox": {"backend": "auto", "readable": ["/"]}}));
    run(&project, &[], DONE).run().code(2).stderr_has("sandbox.readable: / contains");
}

#[test]
fn bwrap_from_project_is_not_used() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    project.write("bin/bwrap", "#!/bin/sh\ntouch ../was-run\nexit 0\n");
    let script = project.path().join("bin/bwrap");
    fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut path = project.path().join("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    run(&project, &["--sandbox=bwrap"], DONE).env("PATH", path).run().code(0);
    assert!(!project.has("was-run"));
}

#[test]
fn active_marker_names_sandbox() {
    if !bwrap_works() {
        return;
    }
    let project = Project::new();
    let list = |passes: bool, notes: &str| {
        json!({
            "project": "p", "branchName": "b", "description": "", "userStories": [{
                "id": "a", "title": "t", "acceptanceCriteria": ["c"], "priority": 1,
                "passes": passes, "notes": notes,
            }],
        })
        .to_string()
    };
    project.write("ralph/tasks.json", list(false, "")).write("done.json", list(true, "n"));
    project.write("agent.sh", "cp .ralph-active seen; cp done.json ralph/tasks.json; echo ok\n");
    project.ralph(["work", "--sandbox=bwrap", "--", "sh", "agent.sh"]).run().code(0);
    let sign: serde_json::Value = serde_json::from_str(&project.read("seen")).unwrap();
    assert_eq!(sign["mode"], "bwrap");
}

#[test]
fn task_commands_work_in_every_sandbox() {
    for sandbox in ["bwrap", "landlock"] {
        let project = Project::git();
        let works =
            if sandbox == "bwrap" { bwrap_works() } else { landlock::landlock_works(&project) };
        if !works {
            continue;
        }
        project.ralph(["new", "Feature"]).run().code(0);
        project.ralph(["tasks", "add", "One", "--criterion", "c"]).run().code(0);
        // The build directory may be hidden inside.
        fs::copy(env!("CARGO_BIN_EXE_ralph"), project.path().join("ralph-here")).unwrap();
        let ralph = "./ralph-here";
        let steps = ["next", "add Two --criterion d", "set US-001 --passes --notes done"];
        let script: Vec<_> =
            steps.iter().map(|step| format!("{ralph} tasks {step} || exit 1\n")).collect();
        project.write("agent.sh", script.concat());
        let sandbox = format!("--sandbox={sandbox}");
        let output = project.ralph(["work", &sandbox, "-n", "1", "--", "sh", "agent.sh"]).run();
        output.code(1).stdout_has("US-001").stdout_has("1 of 2 pass");
    }
}

#[test]
fn sandboxed_agent_reads_guardrail_logs() {
    for backend in ["bwrap", "landlock"] {
        let works = if backend == "bwrap" {
            bwrap_works()
        } else {
            landlock::landlock_works(&Project::new())
        };
        if !works {
            continue;
        }
        let project = Project::new();
        let check = json!({"command": "echo 6 times 7 is $((6 * 7)); test -e made", "failAction": "APPEND"});
        project.settings(&json!({"guardrails": [check]}));
        let script = "cat .ralph/guardrail_001_*.log > made || rm -f made\n";
        run(&project, &[&format!("--sandbox={backend}")], &format!("{script}{DONE}")).run().code(0);
        assert!(project.read("made").contains("is 42"), "{backend}");
    }
}
