//! Starts a run in a project that has runs already.
//!
//! A browser chooses among projects and agents; it names no directory and no program of its own.

use std::path::Path;
use std::time::Duration;

use ralph_events::error::Error;
use ralph_monitor::{NewRun, StartedRun};
use ralph_store::project_record;
use ralph_store::requests::MAX_TEXT;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::actions::Failure;
use crate::app::{App, blocking};

pub(crate) const MAX_PROMPT: usize = 1 << 20;
pub(crate) const DEFAULT_ITERATIONS: u32 = 20;
/// The page of a new run is opened once the monitor knows the run, or after this time.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A run to start.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// The directory of a project that has runs already.
    pub directory: String,
    /// An installed agent, such as claude. Empty for the one in the project's settings.
    #[serde(default)]
    pub agent: String,
    pub prompt: String,
    /// At least 1.
    #[serde(default = "default_iterations")]
    pub max_iterations: u32,
    /// A shell command that must succeed before the run is done. Empty for none.
    #[serde(default)]
    pub check: String,
    #[serde(default = "default_sandbox")]
    pub sandbox: bool,
}

fn default_iterations() -> u32 {
    DEFAULT_ITERATIONS
}

fn default_sandbox() -> bool {
    true
}

/// A project that has runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownProject {
    /// The name of its directory.
    pub name: String,
    pub directory: String,
    /// Its newest run.
    last_run: String,
}

/// The one with the newest run first.
pub(crate) async fn known_projects(app: &App) -> Vec<KnownProject> {
    let home = app.home.clone();
    blocking(move || read_projects(&home)).await.unwrap_or_default()
}

fn read_projects(home: &Path) -> Vec<KnownProject> {
    let stored = project_record::stored_projects(home).unwrap_or_default();
    let known = stored.into_iter().filter_map(|project| {
        let runs = std::fs::read_dir(project.runs_dir()).ok()?.flatten();
        // Ids begin with the time.
        let last_run = runs.filter_map(|run| run.file_name().into_string().ok()).max()?;
        let root = project.root.ok()?.filter(|root| root.is_dir())?;
        let directory = root.to_str()?.to_owned();
        let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        Some(KnownProject { name, directory, last_run })
    });
    let mut known: Vec<KnownProject> = known.collect();
    known.sort_by(|a, b| b.last_run.cmp(&a.last_run));
    known
}

/// Starts the run in the background, and waits until the pages know it.
pub(crate) async fn start(app: &App, request: RunRequest) -> Result<StartedRun, Failure> {
    let run = check(request, &known_projects(app).await, &app.agents).map_err(Failure::Refused)?;
    let launcher = app.launcher.clone();
    let started = app.run_program(move || launcher.start(&run)).await;
    let started = started.unwrap_or_else(|| Err(Error::failed("the run was not started")));
    let started = started.map_err(Failure::Refused)?;
    // It works in any case.
    let _ = timeout(KNOWN_TIMEOUT, wait_until_known(app, &started.run_id)).await;
    Ok(started)
}

fn check(request: RunRequest, projects: &[KnownProject], agents: &[&str]) -> Result<NewRun, Error> {
    let RunRequest { directory, agent, prompt, max_iterations, check, sandbox } = request;
    let most = MAX_PROMPT / 1024;
    match () {
        () if !projects.iter().any(|project| project.directory == directory) => {
            Err(Error::input("no run has ever worked in that directory")
                .hint("start the first run of a project in a terminal"))
        }
        () if !agent.is_empty() && !agents.contains(&&*agent) => {
            Err(Error::input("that agent is not installed").hint(match agents.is_empty() {
                true => "none is; leave it empty for the agent of the settings".to_owned(),
                false => format!("installed: {}", agents.join(", ")),
            }))
        }
        () if prompt.trim().is_empty() => Err(Error::input("the prompt is empty")),
        () if prompt.len() > MAX_PROMPT => {
            Err(Error::input(format!("the prompt is longer than {most} KB")))
        }
        () if check.len() > MAX_TEXT => Err(Error::input("the check is too long")
            .hint("put it into a script of the project and name that")),
        () if max_iterations == 0 => Err(Error::input("the limit has to be at least 1")),
        () => {
            // Browsers send the line ends of Windows.
            let prompt = prompt.replace("\r\n", "\n");
            Ok(NewRun {
                directory: directory.into(),
                agent,
                prompt,
                max_iterations,
                check,
                sandbox,
            })
        }
    }
}

async fn wait_until_known(app: &App, run: &str) {
    let mut changes = app.hub.all_changes();
    loop {
        changes.mark_unchanged();
        let run = run.to_owned();
        let is_known = app.hub.ask(move |monitor| monitor.run_dir(&run).is_some()).await;
        if is_known != Some(false) || changes.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunRequest {
        let text = r#"{"directory": "/src/shop", "prompt": "Fix it.\r\nNow."}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn browser_chooses_only_known_projects_and_installed_agents() {
        let shop = KnownProject {
            name: "shop".to_owned(),
            directory: "/src/shop".to_owned(),
            last_run: String::new(),
        };
        let check = |request| check(request, std::slice::from_ref(&shop), &["claude"]);
        let run = check(RunRequest { agent: "claude".to_owned(), ..request() }).unwrap();
        assert_eq!((&*run.agent, &*run.prompt), ("claude", "Fix it.\nNow."));
        assert!(run.sandbox && run.max_iterations == DEFAULT_ITERATIONS);
        assert_eq!(check(request()).unwrap().agent, "");
        let refused = [
            RunRequest { directory: "/etc".to_owned(), ..request() },
            RunRequest { directory: "/src/shop/../..".to_owned(), ..request() },
            RunRequest { agent: "sh -c date".to_owned(), ..request() },
            RunRequest { agent: "claude --settings x".to_owned(), ..request() },
            RunRequest { agent: "codex".to_owned(), ..request() },
            RunRequest { prompt: " \r\n ".to_owned(), ..request() },
            RunRequest { prompt: "x".repeat(MAX_PROMPT + 1), ..request() },
            RunRequest { check: "x".repeat(MAX_TEXT + 1), ..request() },
            RunRequest { max_iterations: 0, ..request() },
        ];
        for request in refused {
            let error = check(request).unwrap_err();
            assert_eq!(error.kind, ralph_events::error::ErrorKind::Input, "{error:?}");
        }
    }
}
