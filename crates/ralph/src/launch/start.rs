//! Starts the driver: takes the locks, opens the run's files and runs the loop.

use ralph_driver::driver;
use ralph_driver::resume;
use ralph_driver::run_spec::RunSpec;
use ralph_driver::session::{self, Retention, RunSession, SessionOptions};
use ralph_engine::rules::QuestionMode;
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_git::head_log::LogPosition;
use ralph_report::{Backpressure, Reporter};
use ralph_sandbox::selection::Selection;
use ralph_store::active_marker::ActiveMarker;
use ralph_store::home;
use ralph_store::lock::{Holder, Lock};
use ralph_store::question_spool::QuestionSpool;

use super::LoopCommand;
use super::active_marker;
use super::named_run::NameReservation;
use super::plan::megabytes;
use super::preflight::CheckedRun;
use super::reporters::{self, reporter, style};

/// Everything the driver needs besides the spec and the world.
struct Prepared {
    reporters: Vec<Box<dyn Reporter>>,
    /// The first events of the journal.
    events: Vec<Event<'static>>,
    /// Held until the run ends.
    list_lock: Option<Lock>,
    marker: Option<ActiveMarker>,
}

impl CheckedRun<'_> {
    pub(super) fn start(mut self) -> Result<u8, Error> {
        let name = NameReservation::new(&mut self.plan)?;
        let mut session = self.open_session()?;
        let prepared = match self.prepare(&mut session, name) {
            Ok(prepared) => prepared,
            Err(err) => {
                session.discard();
                return Err(err);
            }
        };
        let Prepared { reporters, events, list_lock, marker } = prepared;
        let end = driver::run(&self.spec, &mut session.world, reporters, &events);
        drop(marker);
        drop(list_lock);
        session.close();
        Ok(end.exit_code)
    }

    fn open_session(&self) -> Result<RunSession, Error> {
        let CheckedRun { plan, spec, .. } = self;
        let shared = plan.spec.command == LoopCommand::Spawn;
        let resumed = plan.resume.as_ref();
        let options = SessionOptions {
            command: spec.command,
            retention: self.retention(),
            shared,
            resume: resumed.map(|resume| resume.dir.id.as_str()),
            known_journal_bytes: resumed.map(|resume| resume.state.journal_size),
            spec: &plan.spec.to_json()?,
        };
        RunSession::open(plan.project, options)
    }

    fn retention(&self) -> Retention {
        let runs = &self.plan.settings().runs;
        Retention { runs: runs.keep as usize, raw_bytes: megabytes(runs.max_raw_megabytes) }
    }

    fn prepare(
        &mut self,
        session: &mut RunSession,
        name: Option<NameReservation>,
    ) -> Result<Prepared, Error> {
        let mut events = std::mem::take(&mut session.preface);
        let mode = self.enter_sandbox(session, &mut events);
        self.spec.name = name.as_ref().map(|name| name.worker().name.clone());
        let reporters = self.reporters(session, name, &mut events)?;
        events.splice(0..0, commits_since_last_run(&self.spec, session));
        self.spec.run_id.clone_from(&session.run_id);
        events.extend(self.accept_questions(session).err().map(warning));
        let written = session.world.journal_size();
        self.spec.journal_bytes = self.spec.journal_bytes.saturating_sub(written);
        let list_lock = lock_task_list(&self.spec)?;
        events.append(&mut self.plan.recovery.take_events());
        events.append(&mut self.preface);
        let marker = active_marker::create_marker(self.plan.project, &self.spec, mode)
            .unwrap_or_else(|message| {
                events.push(warning(message));
                None
            });
        Ok(Prepared { reporters, events, list_lock, marker })
    }

    /// Lets the agent leave questions with `ralph ask`.
    fn accept_questions(&mut self, session: &mut RunSession) -> Result<(), String> {
        if self.spec.rules.questions == QuestionMode::Off {
            return Ok(());
        }
        let project = self.plan.project;
        let dir = project.questions_dir(&session.run_id);
        let spool = QuestionSpool::new(project.root(), &dir);
        let accepted = session.world.set_question_spool(spool);
        accepted.map_err(|err| format!("`ralph ask` does not work in this run: {err}"))?;
        self.spec.questions_dir = Some(dir);
        Ok(())
    }

    /// Returns the name of the sandbox for the marker.
    fn enter_sandbox(
        &mut self,
        session: &mut RunSession,
        events: &mut Vec<Event<'static>>,
    ) -> &'static str {
        let (mode, writable, sandbox) =
            match std::mem::replace(&mut self.selection, Selection::None) {
                Selection::Found { sandbox, .. } => {
                    let info = sandbox.info();
                    (info.backend.name(), info.writable.clone(), Some(sandbox))
                }
                Selection::None | Selection::Unavailable(_) => {
                    (active_marker::UNSANDBOXED_MODE, Vec::new(), None)
                }
            };
        let unrecorded = crate::project_dir::record_project(self.plan.project, &writable);
        events.extend(unrecorded.map(warning));
        if let Some(sandbox) = sandbox {
            let guardrails = self.plan.settings().sandbox.guardrails;
            session.world.set_sandbox(sandbox, guardrails);
        }
        mode
    }

    fn reporters(
        &mut self,
        session: &mut RunSession,
        name: Option<NameReservation>,
        events: &mut Vec<Event<'static>>,
    ) -> Result<Vec<Box<dyn Reporter>>, Error> {
        let output = self.plan.view.output;
        let style = style(self.plan.view, self.plan.settings());
        let is_in_window = matches!(name, Some(NameReservation::Window(_)));
        let attach =
            |name: NameReservation| name.attach(session, &self.spec, output, style.clone());
        let attached = name.map(attach).transpose();
        let mut reporters = match attached {
            Ok(Some(reporters)) => reporters,
            Err(err) if is_in_window => {
                return Err(Error::failed(format!("cannot listen for requests: {err}")));
            }
            without_name => {
                let why = without_name.err();
                let message = why.map(|err| format!("other processes cannot find this run: {err}"));
                events.extend(message.map(warning));
                vec![reporter(output, style, Backpressure::DropWhenSlow)]
            }
        };
        if self.plan.spec.defaults().session_log {
            let (project, keep) = (self.plan.project, self.retention());
            let (log, note) = reporters::session_log(project, keep, session.world.run_dir())?;
            reporters.push(log);
            events.push(note);
        }
        Ok(reporters)
    }
}

fn warning(message: String) -> Event<'static> {
    Event::Warning { message: message.into() }
}

/// Starts watching the repository. A resumed run reports the commits made in the meantime.
fn commits_since_last_run(spec: &RunSpec, session: &mut RunSession) -> Vec<Event<'static>> {
    let resumed = spec.resumed.as_ref();
    let since = resumed.map_or(LogPosition::Now, |state| {
        state.repository.head.as_deref().map_or(LogPosition::Ever, LogPosition::Commit)
    });
    let Some(commits) = session.world.watch_repository(since) else { return Vec::new() };
    let committing = resumed.and_then(|state| state.resume.pending_commit.as_deref());
    resume::commits_since(commits, committing).into_iter().collect()
}

fn lock_task_list(spec: &RunSpec) -> Result<Option<Lock>, Error> {
    let Some(tasks) = &spec.tasks else { return Ok(None) };
    let home = home::ralph_home(|name| std::env::var_os(name));
    let (pid, run) = (std::process::id(), spec.run_id.clone());
    let holder = Holder { pid, run, command: spec.command.to_owned() };
    session::lock_task_list(home.as_deref(), &tasks.path, &holder)
}
