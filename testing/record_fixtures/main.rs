//! Records the output of real agents for adapter tests (`scripts/record-fixtures`).
//! `testing/README.md` describes the cases.

#[path = "../agents.rs"]
mod agents;
mod compare;
#[path = "../model_server/mod.rs"]
mod model_server;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use agents::Agent;
use clap::Parser;
use compare::Recording;
use model_server::{Script, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

const LONGEST_S: u64 = 300;

const DONE: &str = "All done.\n<promise>COMPLETE</promise>\n<response>DONE</response>";

const MARK: &str = "RECORDING_MARK";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Records the output of real agents.
#[derive(Parser)]
struct Args {
    /// Directory for recordings, one per agent
    #[arg(long, default_value = "tests/fixtures")]
    into: PathBuf,
    /// Compare with the stored recordings instead of writing
    #[arg(long)]
    check: bool,
    /// Include cases that take minutes
    #[arg(long)]
    slow: bool,
    /// Act as a hook of claude: save standard input to this file, print the answer
    #[arg(long, hide = true, value_name = "LOG")]
    hook: Option<PathBuf>,
    #[arg(long, hide = true)]
    answer: Option<String>,
    #[arg(long, hide = true)]
    once: bool,
    /// AGENT or AGENT/CASE; default: all
    cases: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    script: Value,
    prompt: Option<String>,
    stdin: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    only_args: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    without_files: Vec<String>,
    side_file: Option<String>,
    signal: Option<Send>,
    longest_s: Option<u64>,
    #[serde(default)]
    slow: bool,
    #[serde(default)]
    no_git: bool,
    #[serde(default)]
    outside_tmp: bool,
    hooks: Option<Hooks>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    number: i32,
    on: Option<String>,
    nth: Option<usize>,
    while_running: Option<String>,
    after_s: Option<u64>,
    kill_after_s: Option<u64>,
}

impl Send {
    fn is_due(&self, began: Instant, stdout: &Path, mark: &str) -> Result<bool> {
        if began.elapsed() < Duration::from_secs(self.after_s.unwrap_or_default()) {
            return Ok(false);
        }
        if let Some(text) = &self.on {
            let printed = String::from_utf8_lossy(&fs::read(stdout)?).matches(text).count();
            if printed < self.nth.unwrap_or(1) {
                return Ok(false);
            }
        }
        match &self.while_running {
            None => Ok(true),
            Some(text) => {
                Ok(marked_processes(mark)?.iter().any(|(_, command)| command.starts_with(text)))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hooks {
    on: Vec<String>,
    answer: Option<Value>,
    #[serde(default)]
    once: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.hook {
        Some(log) => run_hook(log, args.answer.as_deref(), args.once).map(|()| true),
        None => record_all(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "record-fixtures: {text}");
}

fn record_all(args: &Args) -> Result<bool> {
    let table =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/cases.json");
    let table =
        fs::read_to_string(&table).map_err(|error| format!("{}: {error}", table.display()))?;
    let table: BTreeMap<String, BTreeMap<String, Case>> =
        serde_json::from_str(&table).map_err(|error| format!("cases.json: {error}"))?;
    let mut matched = 0;
    let mut left_out = 0;
    let mut fine = true;
    for (name, cases) in &table {
        let agent = Agent::named(name).ok_or_else(|| format!("agents.json has no {name}"))?;
        for (case_name, case) in cases {
            let full_name = format!("{name}/{case_name}");
            let is_named = args.cases.contains(&full_name);
            if !(is_named || args.cases.is_empty() || args.cases.contains(name)) {
                continue;
            }
            matched += 1;
            if case.slow && !is_named && !args.slow {
                left_out += 1;
                continue;
            }
            if !agent.program().exists() {
                return Err(format!("{name} is not installed: scripts/install-agents").into());
            }
            let began = Instant::now();
            let recording =
                record(&agent, case).map_err(|error| format!("{full_name}: {error}"))?;
            let seconds = began.elapsed().as_secs();
            let stem = args.into.join(&full_name);
            let outcome = if !args.check {
                write(&recording, &stem)?;
                "recorded"
            } else if compare::differs(&recording, &stem)? {
                fine = false;
                "DIFFERS"
            } else {
                "the same"
            };
            say(&format!("{full_name}: {outcome} ({seconds} s)"));
        }
    }
    if matched == 0 {
        return Err("unknown case".into());
    }
    if left_out > 0 {
        say(&format!("{left_out} that take minutes were skipped; --slow includes them"));
    }
    Ok(fine)
}

fn record(agent: &Agent, case: &Case) -> Result<Recording> {
    let place = if case.outside_tmp { "/var/tmp" } else { "/tmp" };
    // Letters only: claude derives file names from paths.
    let root = tempfile::Builder::new().prefix("recording").tempdir_in(place)?;
    let home = root.path().join("home");
    let project = home.join("project");
    fs::create_dir_all(&project)?;
    if !case.no_git {
        create_repository(&project)?;
    }
    let script = Script::parse(&fill(&case.script)?.to_string())?;
    let server = Server::bind(([127, 0, 0, 1], 0).into(), script, None)?;
    let port = server.address()?.port();
    thread::spawn(|| server.serve());

    let url = format!("http://127.0.0.1:{port}");
    let mut env = agent.set_up(&home, &url)?;
    for (name, text) in &case.files {
        let path = home.join(name);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, text)?;
    }
    for name in &case.without_files {
        fs::remove_file(home.join(name))?;
    }
    for (name, value) in &case.env {
        match value {
            Some(value) => env.insert(name.clone(), value.clone()),
            None => env.remove(name),
        };
    }
    let mut args = case.only_args.clone().unwrap_or_else(|| agent.args.clone());
    args.extend(case.args.iter().cloned());
    let hook_log = root.path().join("hooks");
    if let Some(hooks) = &case.hooks {
        let settings = root.path().join("settings.json");
        fs::write(&settings, hook_settings(hooks, &hook_log)?.to_string())?;
        args.push("--settings".to_owned());
        args.push(settings.to_string_lossy().into_owned());
    }
    let usual_prompt = || case.stdin.is_none().then(|| "say hi".to_owned());
    args.extend(case.prompt.clone().or_else(usual_prompt));
    let mark = root.path().to_string_lossy().into_owned();
    let mut command = Command::new(agent.program());
    command.args(&args).current_dir(&project).env_clear().envs(&env);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &home).env("TERM", "xterm").env(MARK, &mark);
    let stdin = root.path().join("stdin");
    fs::write(&stdin, case.stdin.as_deref().unwrap_or_default())?;
    let streams = [root.path().join("stdout"), root.path().join("stderr")];
    let status = run(command, &stdin, &streams, case, &mark);
    for (pid, _) in marked_processes(&mark)? {
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = status?;

    let neutral = |path: &Path| -> Result<String> {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let home = home.to_string_lossy();
        let dashes = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Ok(text
            .replace(&*home, "/home/user")
            .replace(&dashes(&home), "-home-user")
            .replace(&*root.path().to_string_lossy(), "/home/user/recording")
            .replace(&*agents::cache().to_string_lossy(), "/usr/local/lib/agents")
            .replace(&*std::env::current_exe()?.to_string_lossy(), "/usr/local/bin/hook")
            .replace(&format!("127.0.0.1:{port}"), "127.0.0.1:8901"))
    };
    let code = status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or_default();
    let side_file = case.side_file.as_ref().map(|name| neutral(&project.join(name)));
    Ok(BTreeMap::from([
        ("ndjson", neutral(&streams[0])?),
        ("stderr", neutral(&streams[1])?),
        ("rc", format!("{code}\n")),
        ("hooklog.jsonl", neutral(&hook_log)?),
        ("side", side_file.transpose()?.unwrap_or_default()),
    ]))
}

fn fill(script: &Value) -> Result<Value> {
    let in_2_hours = (SystemTime::UNIX_EPOCH.elapsed()?.as_secs() + 7200).to_string();
    let done = Value::from(DONE).to_string();
    let script = script.to_string().replace("{done}", done.trim_matches('"'));
    // A text in a header, a number in a body.
    let script =
        script.replace("\"resets_at\":\"{in 2 hours}\"", &format!("\"resets_at\":{in_2_hours}"));
    Ok(serde_json::from_str(&script.replace("{in 2 hours}", &in_2_hours))?)
}

fn create_repository(project: &Path) -> Result<()> {
    fs::write(project.join("README.md"), "A project.\n")?;
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &["-c", "user.name=n", "-c", "user.email=a@b", "commit", "--quiet", "-m", "init"],
    ] {
        let mut git = Command::new("git");
        // Makes the commit id reproducible.
        git.env("GIT_AUTHOR_DATE", "@1700000000 +0000")
            .env("GIT_COMMITTER_DATE", "@1700000000 +0000");
        if !git.args(args).current_dir(project).status()?.success() {
            return Err(format!("git {args:?} failed").into());
        }
    }
    Ok(())
}

/// Runs an agent with files as streams, which a leftover process cannot keep open.
fn run(
    mut command: Command,
    stdin: &Path,
    [stdout, stderr]: &[PathBuf; 2],
    case: &Case,
    mark: &str,
) -> Result<ExitStatus> {
    let mut child = command
        .stdin(File::open(stdin)?)
        .stdout(File::create(stdout)?)
        .stderr(File::create(stderr)?)
        .spawn()?;
    let began = Instant::now();
    let longest = Duration::from_secs(case.longest_s.unwrap_or(LONGEST_S));
    let mut to_send = case.signal.as_ref();
    let mut kill_at = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return match to_send {
                None => Ok(status),
                Some(_) => Err(format!("it exited before the signal ({status})").into()),
            };
        }
        if let Some(signal) = to_send
            && signal.is_due(began, stdout, mark)?
        {
            let pid = Pid::from_child(&child);
            let number = Signal::from_named_raw(signal.number).ok_or("unknown signal")?;
            kill_process(pid, number)?;
            to_send = None;
            kill_at = signal.kill_after_s.map(|after| Instant::now() + Duration::from_secs(after));
        }
        if kill_at.is_some_and(|at| Instant::now() > at) {
            child.kill()?;
            kill_at = None;
        }
        if began.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            return Err(format!("it did not exit within {longest:?}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn marked_processes(mark: &str) -> Result<Vec<(Pid, String)>> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let directory = entry?.path();
        let pid = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        // Unreadable: the process has just ended or belongs to another user.
        let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
        if read("environ").split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            found.push((pid, String::from_utf8_lossy(&read("cmdline")).replace('\0', " ")));
        }
    }
    Ok(found)
}

fn hook_settings(hooks: &Hooks, log: &Path) -> Result<Value> {
    let mut words =
        vec![std::env::current_exe()?.to_string_lossy().into_owned(), "--hook".to_owned()];
    words.push(log.to_string_lossy().into_owned());
    if let Some(answer) = &hooks.answer {
        words.extend(["--answer".to_owned(), answer.to_string()]);
    }
    if hooks.once {
        words.push("--once".to_owned());
    }
    let command = shell_words::join(words);
    let mut settings = json!({"hooks": {}});
    for event in &hooks.on {
        let mut entry = json!({"hooks": [{"type": "command", "command": command, "timeout": 20}]});
        if event == "PreToolUse" || event == "PostToolUse" {
            entry["matcher"] = json!("Bash");
        }
        settings["hooks"][event] = json!([entry]);
    }
    Ok(settings)
}

fn run_hook(log: &Path, answer: Option<&str>, once: bool) -> Result<()> {
    let mut stdin = String::new();
    io::stdin().read_to_string(&mut stdin)?;
    let is_first = !log.exists();
    let env: BTreeMap<String, String> = std::env::vars()
        .filter(|(name, _)| name.starts_with("CLAUDE"))
        .map(|(name, value)| {
            let value = if name.contains("TOKEN") { "[removed]".to_owned() } else { value };
            (name, value)
        })
        .collect();
    let entry = json!({
        "cwd": std::env::current_dir()?,
        "env": env,
        "stdin": serde_json::from_str::<Value>(&stdin)?,
    });
    let mut file = fs::OpenOptions::new().create(true).append(true).open(log)?;
    file.write_all(format!("{entry}\n").as_bytes())?;
    if let Some(answer) = answer
        && (is_first || !once)
    {
        writeln!(io::stdout(), "{answer}")?;
    }
    Ok(())
}

fn write(recording: &Recording, stem: &Path) -> Result<()> {
    if let Some(directory) = stem.parent() {
        fs::create_dir_all(directory)?;
    }
    for (extension, text) in recording {
        let path = stem.with_added_extension(extension);
        if !text.is_empty() || *extension == "ndjson" {
            fs::write(path, text)?;
        } else if path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
