//! An invented evening, 22:41, as real files: ten runs of today and fourteen older ones.
//!
//! Tests of both faces, pictures and benchmarks use it. Runs that work are locked and carry the pid of this process,
//! so they live as long as the [`SampleEvening`].

mod repository;
mod reset_mail;
mod script;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ralph_events::error::Error;
use ralph_events::event::{Event, Exit, Outcome, WaitReason};
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};

use script::{Plan, Script};

/// 2026-11-16 22:41:00 UTC.
pub const NOW_MS: i64 = 1_794_868_860_000;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The files exist until their directories are removed; the locks until this is dropped.
#[derive(Debug)]
pub struct SampleEvening {
    /// The run that most screens show.
    pub reset_mail: String,
    /// All runs by name, in the order of the overview.
    pub ids: Vec<(String, String)>,
    locks: Vec<File>,
}

impl SampleEvening {
    pub fn id(&self, name: &str) -> &str {
        let found = self.ids.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, id)| id)
    }

    /// The process of every run is gone, as after `kill -9`.
    pub fn release_locks(&mut self) {
        self.locks.clear();
    }
}

/// Writes the evening into `home`, and the project directories below `projects`.
///
/// # Errors
/// A file cannot be written.
pub fn write(home: &Path, projects: &Path) -> io::Result<SampleEvening> {
    write_runs(home, projects, "0f8e1d2c3b4a5968778695a4b3c2d1e0f1a2b3c4")
}

/// Like [`write`], with a git repository in which the run `reset-mail` has changed 14 files. Calls git.
///
/// # Errors
/// As for [`write`], and if git fails.
pub fn write_with_repository(home: &Path, projects: &Path) -> Result<SampleEvening, Error> {
    let io_error = |err: io::Error| Error::failed(err.to_string());
    let root = projects.join("shop-api");
    private_files::create_dir_all(&root).map_err(io_error)?;
    let repository = repository::create(&root)?;
    let evening = write_runs(home, projects, &repository.base).map_err(io_error)?;
    Ok(evening)
}

fn write_runs(home: &Path, projects: &Path, base: &str) -> io::Result<SampleEvening> {
    let mut evening =
        SampleEvening { reset_mail: String::new(), ids: Vec::new(), locks: Vec::new() };
    let writer = Writer { home: home.to_owned(), projects: projects.to_owned() };
    for (plan, ending) in today() {
        let mut script = Script::start(&plan, &writer.root(&plan));
        if plan.name == reset_mail::NAME {
            reset_mail::write(&mut script, base);
        } else {
            script.iterations(&plan);
        }
        end(&mut script, &plan, ending);
        let run = writer.save(&plan, script)?;
        if plan.name == reset_mail::NAME {
            evening.reset_mail.clone_from(&run.id);
            reset_mail::write_files(&run, &writer.root(&plan))?;
        }
        if !matches!(ending, Ending::Ended(_)) {
            let journal = File::options().append(true).open(run.journal())?;
            journal.lock()?;
            evening.locks.push(journal);
        }
        evening.ids.push((plan.name.to_owned(), run.id));
    }
    for (plan, outcome) in yesterday().into_iter().chain(older()) {
        let mut script = Script::start(&plan, &writer.root(&plan));
        script.iterations(&plan);
        script.run_ended(&plan, outcome);
        let run = writer.save(&plan, script)?;
        evening.ids.push((plan.name.to_owned(), run.id));
    }
    Ok(evening)
}

/// How a run of today stands at 22:41.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Tool(&'static str, &'static str, i64),
    Check(&'static str, i64),
    RateLimit(i64),
    Paused,
    Ended(Outcome),
    /// The script has done it already.
    Scripted,
}

fn end(script: &mut Script, plan: &Plan, ending: Ending) {
    match ending {
        Ending::Tool(name, summary, ago_ms) => {
            script.open_tool(NOW_MS - ago_ms, name, summary);
        }
        Ending::Check(command, ago_ms) => {
            script.agent_ended(NOW_MS - ago_ms, plan.cost_of_last());
            let command = command.into();
            script.push(NOW_MS - ago_ms, Event::GuardrailStarted { index: 0, command });
        }
        Ending::RateLimit(until_ms) => {
            let reason = WaitReason::RateLimit;
            script.push(plan.until_ms, Event::Waiting { reason, until_ms });
        }
        Ending::Paused => {
            script.push(plan.until_ms, Event::PauseRequested);
            script.push(plan.until_ms, Event::Paused);
        }
        Ending::Ended(outcome) => script.run_ended(plan, outcome),
        Ending::Scripted => {}
    }
}

fn today() -> Vec<(Plan, Ending)> {
    let base = Plan::default();
    let at = |hour: i64, minute: i64| NOW_MS - (22 - hour) * HOUR - (41 - minute) * MINUTE;
    vec![
        (
            Plan {
                name: reset_mail::NAME,
                project: "shop-api",
                branch: "ralph/password-reset",
                max_iterations: 20,
                budget_usd: Some(10.0),
                stories: Some((0, 7)),
                checks: &reset_mail::CHECKS,
                is_sandboxed: true,
                active_ms: reset_mail::ACTIVE_MS,
                ..base
            },
            Ending::Scripted,
        ),
        (
            Plan {
                name: "deps-upgrade",
                project: "billing",
                branch: "deps",
                agent: "codex",
                levels: &[5, 6, 2],
                results: "++-",
                active_ms: 22 * MINUTE,
                cost_usd: 0.61,
                until_ms: at(22, 10),
                ..base
            },
            Ending::Ended(Outcome::CredentialsRefused),
        ),
        (
            Plan {
                name: "search-index-rewrite-for-facets",
                project: "catalogue",
                branch: "ralph/search-index",
                max_iterations: 40,
                levels: &[4, 3, 4, 3, 5, 6, 4, 3, 4, 5, 4, 3],
                results: "+++++-+++++*",
                active_ms: 3 * HOUR + 11 * MINUTE,
                cost_usd: 6.05,
                ..base
            },
            Ending::Tool("Edit", "src/index/segments/merge.rs", 3_000),
        ),
        (
            Plan {
                name: "slugs",
                project: "docs-site",
                branch: "ralph/slugs",
                max_iterations: 20,
                levels: &[4, 6, 5, 3],
                results: "--+*",
                active_ms: 38 * MINUTE,
                cost_usd: 1.92,
                ..base
            },
            Ending::Tool("Bash", "make test", 12_000),
        ),
        (
            Plan {
                name: "flaky-tests",
                project: "mobile-app",
                branch: "fix/flaky",
                levels: &[6, 3],
                results: "-*",
                active_ms: 9 * MINUTE,
                cost_usd: 0.48,
                ..base
            },
            Ending::Check("make test", 41_000),
        ),
        (
            Plan {
                name: "docs",
                project: "docs-site",
                branch: "docs",
                max_iterations: 20,
                levels: &[5, 4, 6, 5, 4, 4],
                results: "++++++",
                active_ms: HOUR + 18 * MINUTE,
                cost_usd: 1.39,
                until_ms: at(22, 39),
                ..base
            },
            Ending::RateLimit(at(23, 40)),
        ),
        (
            Plan {
                name: "i18n",
                project: "shop-web",
                branch: "ralph/i18n",
                max_iterations: 15,
                levels: &[6, 6, 5, 6, 4],
                results: "+-+++",
                active_ms: 47 * MINUTE,
                cost_usd: 0.90,
                until_ms: at(22, 10),
                ..base
            },
            Ending::Paused,
        ),
        (
            Plan {
                name: "api-errors",
                project: "shop-api",
                branch: "ralph/api-errors",
                max_iterations: 20,
                stories: Some((6, 6)),
                levels: &[4, 4, 6, 4, 3, 4, 5, 4],
                results: "++-+++++",
                active_ms: 2 * HOUR + 5 * MINUTE,
                cost_usd: 3.10,
                until_ms: at(20, 40),
                ..base
            },
            Ending::Ended(Outcome::Complete),
        ),
        (
            Plan {
                name: "parser-fix",
                project: "parser",
                branch: "ralph/parser-fix",
                levels: &[6, 5],
                results: "-+",
                active_ms: 14 * MINUTE,
                cost_usd: 0.98,
                until_ms: at(15, 2),
                ..base
            },
            Ending::Ended(Outcome::Complete),
        ),
        (
            Plan {
                name: "bench",
                project: "parser",
                branch: "bench",
                levels: &[6; 10],
                results: "++++++++++",
                active_ms: HOUR + 12 * MINUTE,
                cost_usd: 2.20,
                // Its iterations ended before midnight, the run after it.
                until_ms: at(0, 0) - 10_000,
                ended_ms: Some(at(0, 0) + 10_000),
                ..base
            },
            Ending::Ended(Outcome::LimitReached),
        ),
    ]
}

fn yesterday() -> Vec<(Plan, Outcome)> {
    let base = Plan::default();
    let at = |hour: i64, minute: i64| NOW_MS - DAY - (22 - hour) * HOUR - (41 - minute) * MINUTE;
    let plan = |name, project, iterations, max_iterations, minutes, cost_usd, until_ms| Plan {
        name,
        project,
        branch: "main",
        max_iterations,
        levels: &[6; 20][..iterations],
        results: &"++++++++++++++++++++"[..iterations],
        active_ms: minutes * MINUTE,
        cost_usd,
        until_ms,
        ..base
    };
    let invoice = plan("invoice-pdf", "billing", 6, 20, 104, 5.12, at(21, 30));
    let import = plan("csv-import", "shop-api", 11, 30, 182, 7.80, at(20, 0));
    vec![
        (Plan { stories: Some((4, 4)), ..invoice }, Outcome::Complete),
        (Plan { stories: Some((9, 9)), ..import }, Outcome::Complete),
        (plan("types", "shop-web", 4, 20, 41, 1.36, at(16, 0)), Outcome::Interrupted),
        (plan("images", "docs-site", 3, 10, 19, 0.70, at(11, 0)), Outcome::AgentFailed),
    ]
}

/// One run on most days before yesterday.
fn older() -> Vec<(Plan, Outcome)> {
    const DAYS: [(i64, f64); 10] = [
        (2, 13.22),
        (4, 11.70),
        (5, 16.80),
        (6, 27.90),
        (7, 31.50),
        (8, 22.80),
        (9, 3.00),
        (11, 9.10),
        (12, 18.30),
        (13, 12.70),
    ];
    let plan = |(days, cost_usd): (i64, f64)| Plan {
        name: "night-shift",
        project: "catalogue",
        branch: "main",
        levels: &[6, 5, 4],
        results: "+-+",
        active_ms: 2 * HOUR,
        cost_usd,
        until_ms: NOW_MS - days * DAY - 2 * HOUR,
        ..Plan::default()
    };
    DAYS.into_iter().map(|day| (plan(day), Outcome::Complete)).collect()
}

struct Writer {
    home: PathBuf,
    projects: PathBuf,
}

impl Writer {
    fn root(&self, plan: &Plan) -> PathBuf {
        self.projects.join(plan.project)
    }

    fn save(&self, plan: &Plan, script: Script) -> io::Result<RunDir> {
        let root = self.root(plan);
        private_files::create_dir_all(&root)?;
        let project = Project::new(&root, &self.home);
        private_files::create_dir_all(&project.runs_dir())?;
        project.update_record(|record| record.root.clone_from(&root))?;
        let run = project.run_dir(script.id());
        run.create()?;
        let spec = serde_json::json!({ "settings": { "agent": { "command": plan.agent } } });
        std::fs::write(run.spec(), spec.to_string())?;
        let last_ms = script.last_ms();
        std::fs::write(run.journal(), script.into_lines())?;
        let modified = SystemTime::UNIX_EPOCH
            + Duration::from_millis(u64::try_from(last_ms).unwrap_or_default());
        File::options().append(true).open(run.journal())?.set_modified(modified)?;
        Ok(run)
    }
}

/// The id of a run that started at a time: the same in every sample.
fn run_id(started_ms: i64) -> String {
    let id = runs::new_id(started_ms);
    let (time, _) = id.rsplit_once('-').unwrap_or((&id, ""));
    format!("{time}-{:04x}", started_ms.rem_euclid(0x1_0000))
}

fn exit(passed: bool) -> Exit {
    Exit::Code(i32::from(!passed))
}
