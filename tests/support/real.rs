//! A real agent in a test project, with a scripted model server.
//!
//! The agent gets its own home and only the variables of `testing/agents.json`. Where the system
//! allows it, server, ralph and agent share a network namespace, and the agent can reach nothing
//! else.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::agents::{self, Agent};
use super::support::{LONG, Project, Ralph, example, skipped};

pub(crate) struct RealAgent {
    pub(crate) project: Project,
    agent: Agent,
    server: ModelServer,
    env: Vec<(String, String)>,
}

impl RealAgent {
    pub(crate) fn new(name: &str, script: impl FnOnce(&Project) -> Value) -> Option<RealAgent> {
        let agent = Agent::named(name).unwrap_or_else(|| panic!("no {name} in agents.json"));
        if !agent.program().exists() {
            report_missing_agent(name);
            return None;
        }
        let project = Project::git();
        project.write("README.md", "A project.\n");
        project.git_command(["add", "."]);
        project.git_command(["commit", "--quiet", "-m", "Begin"]);
        let server = ModelServer::start(&script(&project), &project.sibling("model"));
        let mut env = agent.set_up(&project.home(), &server.url).expect("the agent's files");
        // Agents leave files behind and fail on those of other users.
        let temporary = project.sibling("tmp");
        fs::create_dir(&temporary).expect("a directory for temporary files");
        env.insert("TMPDIR".to_owned(), temporary.to_str().expect("UTF-8").to_owned());
        Some(RealAgent { project, env: env.into_iter().collect(), agent, server })
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ralph {
        self.run_with(args, &[])
    }

    pub(crate) fn run_with(&self, args: &[&str], flags: &[&str]) -> Ralph {
        self.ralph(&[&["run"], args].concat(), flags)
    }

    /// `ralph run` with the agent in the settings: some settings apply only to the agent they name.
    pub(crate) fn run_from_settings(
        &self,
        settings: &Value,
        args: &[&str],
        flags: &[&str],
    ) -> Ralph {
        let mut settings = settings.clone();
        settings["agent"]["command"] = self.agent.program().to_str().expect("UTF-8").into();
        let agent_flags = self.agent.flags.iter().map(String::as_str);
        settings["agent"]["flags"] = agent_flags.chain(flags.iter().copied()).collect();
        self.project.settings(&settings);
        let all: Vec<String> = ["run"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        self.in_agent_network(Path::new(env!("CARGO_BIN_EXE_ralph")), &all)
    }

    pub(crate) fn ralph(&self, args: &[&str], flags: &[&str]) -> Ralph {
        let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend(["--".to_owned(), self.agent.program().to_str().expect("UTF-8").to_owned()]);
        all.extend_from_slice(&self.agent.flags);
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.in_agent_network(Path::new(env!("CARGO_BIN_EXE_ralph")), &all)
    }

    pub(crate) fn without_ralph(&self, args: &[&str]) -> Ralph {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.in_agent_network(&self.agent.program(), &args)
    }

    pub(crate) fn program(&self, name: &str, args: &[&str]) -> Ralph {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.in_agent_network(Path::new(name), &args)
    }

    pub(crate) fn service_address(&self) -> String {
        let port = self.server.url.rsplit(':').next().unwrap_or_default();
        format!("localhost:{}", port.trim_end_matches('/'))
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.server.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a request")).collect()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.requests().iter().any(|request| request["kind"] == "main")
    }

    pub(crate) fn temporary_bytes(&self) -> u64 {
        fn size(path: &Path) -> u64 {
            let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            metadata.len() + entries.map(|entry| size(&entry.path())).sum::<u64>()
        }
        size(&self.project.sibling("tmp"))
    }

    pub(crate) fn first_requests(&self) -> Vec<Value> {
        let begins = |request: &Value| request["kind"] == "main" && request["fresh"] == true;
        self.requests().into_iter().filter(begins).collect()
    }

    fn in_agent_network(&self, program: &Path, args: &[String]) -> Ralph {
        let mut line = self.server.enter_command();
        line.push(program.to_str().expect("UTF-8").to_owned());
        line.extend_from_slice(args);
        // Agents start slowly, especially in parallel.
        let mut ralph = self.project.program(&line[0], &line[1..]).deadline(2 * LONG);
        for (name, value) in &self.env {
            ralph = ralph.env(name, value);
        }
        ralph
    }
}

/// Fails on CI if npm is reachable, because the agent could have been installed.
fn report_missing_agent(agent: &str) {
    let reason = format!("agent {agent} not installed");
    skipped(&reason);
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !is_ci || agents::cache().join("npm-unreachable").exists(),
        "{reason}, though npm can be reached: scripts/install-agents {agent}"
    );
}

struct ModelServer {
    url: String,
    log: PathBuf,
    child: Child,
}

impl ModelServer {
    fn start(script: &Value, files: &Path) -> ModelServer {
        let script_file = files.with_extension("script.json");
        let log = files.with_extension("requests.jsonl");
        fs::write(&script_file, script.to_string()).expect("the script");
        let mut line: Vec<&str> = Vec::new();
        if let Some(network) = network() {
            line.extend(network.make);
            line.extend(["sh", "-c", r#"ip link set lo up && exec "$@""#, "sh"]);
        }
        let program = example("model-server", "testing/model_server");
        line.push(program.to_str().expect("UTF-8"));
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .arg("--until-stdin-closes")
            .arg("--script")
            .arg(script_file)
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let mut url = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut url).expect("the address of the service");
        assert!(url.starts_with("http://"), "the model service did not start: {url:?}");
        ModelServer { url: url.trim().to_owned(), log, child }
    }

    /// The command prefix that enters the server's network.
    fn enter_command(&self) -> Vec<String> {
        let Some(network) = network() else { return Vec::new() };
        let pid = self.child.id().to_string();
        let words = ["nsenter", "--target", &pid].into_iter().chain(network.enter.iter().copied());
        words.map(str::to_owned).collect()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Network {
    make: &'static [&'static str],
    enter: &'static [&'static str],
}

const NETWORKS: [Network; 2] = [
    // Preferred: no user namespace, so that the system looks as usual.
    Network { make: &["unshare", "--net", "--"], enter: &["--net", "--"] },
    Network {
        make: &["unshare", "--map-current-user", "--keep-caps", "--net", "--"],
        enter: &["--user", "--preserve-credentials", "--net", "--"],
    },
];

/// The first way that works here; reports a skip if there is none.
fn network() -> Option<&'static Network> {
    static NETWORK: OnceLock<Option<&'static Network>> = OnceLock::new();
    *NETWORK.get_or_init(|| {
        let works = |network: &&Network| {
            Command::new(network.make[0])
                .args(&network.make[1..])
                .args(["ip", "link", "set", "lo", "up"])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        let found = NETWORKS.iter().find(works);
        if found.is_none() {
            skipped("a network of its own for an agent, which could reach the real one");
        }
        found
    })
}
