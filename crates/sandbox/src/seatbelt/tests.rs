//! The command line, the probe and the errors, with a stand-in for `sandbox-exec`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::disk::RealDisk;
use crate::plan::{HostSystem, INSIDE_DIR, PlanInputs, build_plan};
use crate::probe;
use crate::settings;

struct StandIn {
    _temp: tempfile::TempDir,
    dir: PathBuf,
    program: PathBuf,
}

impl StandIn {
    fn new() -> StandIn {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let program = dir.join("sandbox-exec");
        fs::write(&program, include_str!("stand_in.sh")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home/src/shop/.git/hooks", "home/.ralph/sandboxes/s"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        fs::write(dir.join("home/src/shop/.git/config"), "[core]\n").unwrap();
        let stand_in = StandIn { _temp: temp, dir, program };
        stand_in.set_mode("holds");
        stand_in
    }

    fn set_mode(&self, mode: &str) {
        fs::write(self.program.with_extension("mode"), mode).unwrap();
    }

    /// The words of the last call.
    fn call(&self) -> Vec<String> {
        let words = fs::read_to_string(self.program.with_extension("call")).unwrap();
        words.split_terminator('\0').map(str::to_owned).collect()
    }

    fn project(&self) -> PathBuf {
        self.dir.join("home/src/shop")
    }

    fn command(&self, network: NetworkMode) -> SeatbeltCommand {
        let (home, scratch) = (self.dir.join("home"), self.dir.join("home/.ralph/sandboxes/s"));
        let proxy_port = matches!(network, NetworkMode::Proxy { .. }).then_some(4321);
        let inputs = PlanInputs {
            project: self.project(),
            ralph_home: home.join(".ralph"),
            home: Some(home),
            scratch: scratch.clone(),
            ralph: "/usr/local/bin/ralph".into(),
            adapter: "claude",
            network,
            system: HostSystem::MacOs,
            ..PlanInputs::default()
        };
        let plan = build_plan(&inputs, &RealDisk).unwrap();
        let ralph = "/usr/local/bin/ralph".into();
        SeatbeltCommand { sandbox_exec: self.program.clone(), ralph, plan, scratch, proxy_port }
    }

    fn probe(&self, mode: &str) -> Result<(), BackendError> {
        self.set_mode(mode);
        let command = self.command(NetworkMode::Proxy { ports: Vec::new() });
        command.probe(&[], &self.project(), &self.dir.join("home"))
    }
}

#[test]
fn probe_passes_only_if_all_checks_do() {
    let stand_in = StandIn::new();
    for (mode, expected) in [
        ("holds", None),
        ("no-write", Some("the project is not writable")),
        ("canary", Some("a file outside is readable")),
        ("outside", Some("files outside are writable")),
        ("home", Some("files outside are writable")),
        ("protected", Some("protected files are writable")),
        ("missing", Some("protected files are writable")),
        ("connect", Some("the network is reachable without the proxy")),
        ("no-proxy", Some("the proxy is not reachable")),
        ("silent", Some("the probe did not finish")),
        (
            "rejected",
            Some(
                "this system rejects the profile: sandbox-exec: <input string>:7:2: unbound \
                 variable: file-fly",
            ),
        ),
        (
            "nested",
            Some(
                "sandbox-exec failed (exit code 71): sandbox-exec: sandbox_apply: Operation not permitted",
            ),
        ),
    ] {
        let result = stand_in.probe(mode);
        assert_eq!(result.as_ref().err().map(|err| err.reason.as_str()), expected, "{mode}");
        let is_clear = result.is_err_and(|err| !err.is_config_error && err.hint.is_some());
        assert_eq!(is_clear, expected.is_some(), "{mode}: another backend may work");
        let left: Vec<_> = fs::read_dir(stand_in.project()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{mode}: only .git is left: {left:?}");
        assert_eq!(fs::read_dir(stand_in.dir.join("home")).unwrap().count(), 2, "{mode}");
    }
}

#[test]
fn probe_without_proxy_does_not_ask_for_it() {
    let stand_in = StandIn::new();
    stand_in.set_mode("no-proxy");
    let command = stand_in.command(NetworkMode::None);
    command.probe(&[], &stand_in.project(), &stand_in.dir.join("home")).unwrap();
    // An open network is no failure.
    stand_in.set_mode("connect");
    let command = stand_in.command(NetworkMode::Full);
    command.probe(&[], &stand_in.project(), &stand_in.dir.join("home")).unwrap();
}

#[test]
fn command_line_has_profile_parameters_and_command() {
    let stand_in = StandIn::new();
    stand_in.probe("holds").unwrap();
    let words = stand_in.call();
    assert_eq!(words[0], "-p");
    assert!(words[1].starts_with("(version 1)\n(deny default)\n"));
    assert!(words[1].contains("(remote ip \"localhost:4321\")"));
    let params = words[2..].chunks(2).take_while(|pair| pair[0] == "-D").count();
    let definition = |word: &String| word.split_once('=').map(|(_, path)| PathBuf::from(path));
    assert!(words[2..].iter().filter_map(definition).any(|path| path.ends_with("src/shop")));
    let command = &words[2 + 2 * params..];
    assert_eq!(command[..3], ["/usr/local/bin/ralph", COMMAND, "-"]);
    assert_eq!(command[3..5], ["/usr/local/bin/ralph", probe::COMMAND]);

    let command = stand_in.command(NetworkMode::None);
    let args = ["-c".into(), "echo \"(hi)\"".into()];
    let words = command.arguments(Some(7), OsStr::new("/bin/sh"), &args);
    let end: Vec<_> = words[words.len() - 6..].iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(end, ["/usr/local/bin/ralph", COMMAND, "7", "/bin/sh", "-c", "echo \"(hi)\""],);
}

#[test]
fn environment_names_scratch_home_proxy_and_ralph() {
    let stand_in = StandIn::new();
    let command = stand_in.command(NetworkMode::Proxy { ports: Vec::new() });
    let env = |adapter| seatbelt_env(adapter, &command.plan, &command.scratch, command.proxy_port);
    let value = |adapter, name: &str| {
        let env = env(adapter);
        let last = env.iter().rev().find(|(other, _)| other == name);
        last.and_then(|(_, value)| value.clone()).map(|value| value.into_string().unwrap())
    };
    let scratch = command.scratch.to_str().unwrap();
    let expected = |below: &str| Some(format!("{scratch}/{below}"));
    assert_eq!(value("claude", "HOME"), expected("home"));
    assert_eq!(value("claude", "TMPDIR"), expected("tmp"));
    assert_eq!(value("claude", "HTTPS_PROXY"), Some("http://127.0.0.1:4321".to_owned()));
    let path = value("claude", "PATH").unwrap();
    assert!(path.ends_with(&format!(":{scratch}/bin")), "{path}");
    assert!(!path.contains(INSIDE_DIR), "{path}");
    // A sandbox of the agent's own cannot be nested.
    assert_eq!(value("claude", "GEMINI_SANDBOX"), None);
    assert_eq!(value("gemini", "GEMINI_SANDBOX").as_deref(), Some("false"));
    assert_eq!(value("qwen", "QWEN_SANDBOX").as_deref(), Some("false"));
}

#[test]
fn missing_login_is_noted_before_agent_fails() {
    let stand_in = StandIn::new();
    let plan = stand_in.command(NetworkMode::None).plan;
    let note = |adapter, name: &str| {
        login_note(adapter, &[(name.into(), "x".into())], &plan).unwrap_or_default()
    };
    let text = note("claude", "OTHER");
    assert!(text.contains("keychain"), "{text}");
    assert!(text.ends_with("set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"), "{text}");
    for name in ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"] {
        assert_eq!(note("claude", name), "", "{name}");
    }
    assert_eq!(note("codex", "OTHER"), "");
    let mut with_file = plan;
    let file = stand_in.dir.join("home/.claude/.credentials.json");
    with_file.mounts.push(crate::plan::Mount::Writable { from: file.clone(), at: file });
    assert_eq!(login_note("claude", &[], &with_file), None);
}

#[test]
fn project_in_icloud_is_noted() {
    let drive = Path::new("/Users/me/Library/Mobile Documents/com~apple~CloudDocs/shop");
    assert!(cloud_note(drive).is_some());
    assert_eq!(cloud_note(Path::new("/Users/me/Documents/shop")), None);
}

#[test]
fn link_is_not_taken_for_its_target() {
    let stand_in = StandIn::new();
    let link = stand_in.dir.join("link");
    std::os::unix::fs::symlink(stand_in.project(), &link).unwrap();
    assert!(is_unlinked(&stand_in.project()));
    for path in [link.clone(), link.join(".git"), stand_in.dir.join("missing")] {
        assert!(!is_unlinked(&path), "{}", path.display());
    }
}

const STAND_IN: &str = "SEATBELT_STAND_IN";

/// Runs `prepared_sandbox` in a process with its own home. Returns what it printed.
fn prepare(stand_in: &StandIn, program: &Path, mode: &str) -> String {
    stand_in.set_mode(mode);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "seatbelt::tests::prepared_sandbox", "--nocapture"])
        .env_clear()
        .env("HOME", stand_in.dir.join("home"))
        .env("PATH", "/usr/bin:/bin")
        .env(STAND_IN, program)
        .current_dir(stand_in.project())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let (_, said) = text.split_once("<<").unwrap();
    said.split_once(">>").unwrap().0.to_owned()
}

/// Started by [`prepare`].
#[test]
fn prepared_sandbox() {
    let Some(program) = std::env::var_os(STAND_IN) else { return };
    let project = std::env::current_dir().unwrap();
    let settings = settings::SandboxSettings::default();
    let request = SandboxRequest {
        project: &project,
        settings: &settings,
        adapter: "claude",
        agent: None,
        env: &[],
    };
    let said = match SeatbeltSandbox::prepare(&request, Path::new(&program)) {
        Err(err) => format!("{} {err}", err.is_config_error),
        Ok(mut sandbox) => {
            let args = ["1".into()];
            let launch = Launch::plain(&project, OsStr::new("/bin/sleep"), &args, &[]);
            let wrapped = sandbox.wrap(&launch, None).unwrap();
            assert_eq!(wrapped.program, program);
            assert_eq!(wrapped.args.last(), Some(&"1".into()));
            let scratch = sandbox.scratch.path().to_owned();
            assert!(scratch.join("bin/ralph").is_symlink() && scratch.join("home").is_dir());
            assert!(sandbox.proxy().is_some());
            assert_eq!(sandbox.info().backend, Backend::Seatbelt);
            // As if the rules did not hold.
            fs::write(project.join(".mcp.json"), "planted").unwrap();
            fs::write(project.join(".git/hooks/pre-commit"), "planted").unwrap();
            let aside = |name: &str| SandboxTrace::Quarantined(project.join(name));
            let expected = [".mcp.json.from-sandbox", ".git/hooks.from-sandbox"].map(aside);
            assert_eq!(sandbox.cleanup(), expected);
            assert_eq!(fs::read_dir(project.join(".git/hooks")).unwrap().count(), 0);
            let notes = sandbox.info().notes.join("; ");
            drop(sandbox);
            assert!(!scratch.exists());
            notes
        }
    };
    println!("<<{said}>>");
}

#[test]
fn prepare_tells_machine_from_project() {
    let stand_in = StandIn::new();
    let program = stand_in.program.clone();
    assert!(prepare(&stand_in, &program, "holds").contains("keychain"));
    let text = prepare(&stand_in, &program, "no-write-in-project");
    assert!(text.starts_with("true seatbelt works on this machine, but not in "), "{text}");
    let text = prepare(&stand_in, &program, "canary");
    assert!(text.starts_with("false a file outside is readable; --sandbox=docker"), "{text}");
    let text = prepare(&stand_in, &program, "rejected");
    assert!(text.starts_with("false this system rejects the profile: "), "{text}");
    let missing = stand_in.dir.join("missing");
    let text = prepare(&stand_in, &missing, "holds");
    assert!(text.starts_with(&format!("false {} does not exist", missing.display())), "{text}");
}
