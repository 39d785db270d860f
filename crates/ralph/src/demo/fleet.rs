//! Several scripted loops at once, in projects of their own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::agent::{ASK_FLAG, PACE_FLAG};
use ralph_events::env_names;
use ralph_events::error::Error;
use ralph_git::run_git;
use ralph_process::Companion;
use ralph_store::project::Project;

struct DemoLoop {
    project: &'static str,
    name: &'static str,
    branch: &'static str,
    /// Milliseconds between two steps: the loops end one after the other.
    pace: u64,
    asks: bool,
}

const LOOPS: [DemoLoop; 4] = [
    DemoLoop {
        project: "docs-site",
        name: "slugs",
        branch: "ralph/slugs",
        pace: 1200,
        asks: false,
    },
    DemoLoop {
        project: "shop-api",
        name: "page-names",
        branch: "ralph/page-names",
        pace: 2500,
        asks: true,
    },
    DemoLoop {
        project: "catalogue",
        name: "search-titles",
        branch: "ralph/search",
        pace: 4000,
        asks: false,
    },
    DemoLoop { project: "parser", name: "quick-fix", branch: "fix/titles", pace: 300, asks: false },
];

/// The loops and their scratch home. Dropping it ends the loops and removes everything.
#[derive(Debug)]
pub struct DemoFleet {
    /// Dropped first: a loop writes to the scratch directory until it has ended.
    _loops: Vec<Companion>,
    home: PathBuf,
    _scratch: TempDir,
}

impl DemoFleet {
    /// # Errors
    /// The scratch repositories cannot be created, or git is missing.
    pub fn start() -> Result<DemoFleet, Error> {
        let failed = |err: io::Error| {
            Error::failed(format!("cannot start the demo: {err}"))
                .hint("set TMPDIR to a writable directory")
        };
        let scratch = tempfile::Builder::new().prefix("ralph-demo-").tempdir().map_err(failed)?;
        let home = scratch.path().join("home");
        let agent = scratch.path().join(super::AGENT_NAME);
        let me = std::env::current_exe().map_err(failed)?;
        std::os::unix::fs::symlink(&me, &agent).map_err(failed)?;
        let mut loops = Vec::new();
        for demo in &LOOPS {
            let dir = scratch.path().join(demo.project);
            prepare(demo, &dir, &home, &agent).map_err(failed)?;
            let switch: &[&str] = &["checkout", "--quiet", "-b", demo.branch];
            for step in super::GIT_COMMANDS.iter().chain([&switch]) {
                run_git(step, &dir).map_err(|err| err.hint("the demo needs git on the PATH"))?;
            }
            let args = ["run", "--name", demo.name, "-f", super::PROMPT_FILE].map(OsString::from);
            let env = [(env_names::RALPH_HOME, home.clone().into_os_string())];
            loops.push(Companion::start(&me, &args, &dir, &env).map_err(failed)?);
        }
        Ok(DemoFleet { _loops: loops, home, _scratch: scratch })
    }

    /// The `RALPH_HOME` of the loops.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

fn prepare(demo: &DemoLoop, dir: &Path, home: &Path, agent: &Path) -> io::Result<()> {
    super::prepare(dir)?;
    let file = dir.join(".ralph/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    let pace = demo.pace.to_string();
    let mut flags = vec![PACE_FLAG, pace.as_str()];
    if demo.asks {
        flags.push(ASK_FLAG);
    }
    settings["agent"] = json!({"type": "claude", "command": agent, "flags": flags});
    fs::write(&file, settings.to_string())?;
    // Keeps ralph's own files out of the agent's changes.
    Project::new(dir, home).prepare()
}
