//! The checks before anything is spent.

use std::path::Path;

use crate::commands::worker::{resume_in_background, start_in_background};
use crate::config::{self, DIRECTORY, LoadedSettings};
use ralph_driver::run_spec::RunSpec;
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_events::redact;
use ralph_git as git;
use ralph_report::warning_text::warning_text;
use ralph_sandbox::selection::Selection;
use ralph_shell_policy::CommandAllowList;

use super::{LaunchAction, LaunchPlan, active_marker, agent, checks, dry_run, sandbox};

/// A run that passed its preflight. Later failures are events and an exit code.
#[derive(Debug)]
pub(crate) struct CheckedRun<'a> {
    pub(super) plan: LaunchPlan<'a>,
    pub(super) spec: RunSpec,
    pub(super) selection: Selection,
    /// Warnings and notes for the start of the journal.
    pub(super) preface: Vec<Event<'static>>,
}

impl<'a> LaunchPlan<'a> {
    pub(crate) fn preflight(self, mut spec: RunSpec) -> Result<CheckedRun<'a>, Error> {
        let LaunchPlan { project, .. } = self;
        if let Some(scm) = &spec.scm {
            let is_set = self.spec.settings.is_set("scm");
            scm.preflight(project.root(), (!is_set).then_some("--commit"))?;
        }
        // Uncommitted changes may be the resumed run's own.
        let new_scm = spec.scm.as_ref().filter(|_| self.resume.is_none());
        let uncommitted = new_scm.map(|scm| scm.uncommitted(project.root())).unwrap_or_default();
        checks::check_budgets_enforceable(&spec)?;
        if let (Some(resume), Some(state)) = (&self.resume, &spec.resumed) {
            checks::check_budget_left(&spec, &resume.dir.id, state)?;
        }
        let selection = sandbox::select_sandbox(&mut spec, project, &self)?;
        spec.missing_signal = checks::missing_signal(&spec);
        let mut preface = self.preface(&spec, &selection);
        preface.extend(uncommitted_events(&uncommitted));
        let marker = active_marker::ignore_marker(project, &spec);
        preface.extend(marker.map(|message| Event::Warning { message: message.into() }));
        Ok(CheckedRun { plan: self, spec, selection, preface })
    }

    fn preface(&self, spec: &RunSpec, selection: &Selection) -> Vec<Event<'static>> {
        let mut preface = startup_events(spec, &self.spec.settings);
        preface.extend(sandbox::sandbox_events(selection, spec, self.settings()));
        if let Some(resume) = &self.resume {
            // Do not repeat warnings on every resume.
            preface.retain(|event| !resume.state.has_warned(event));
            let damage = resume.state.journal_warning(&spec.rules.budget);
            preface.extend(damage.map(|message| Event::Warning { message: message.into() }));
        }
        preface
    }
}

impl CheckedRun<'_> {
    /// Ends here with `--dry-run`. With `--background`, a window takes all steps again.
    pub(crate) fn start_or_show(self) -> Result<u8, Error> {
        match self.plan.action {
            LaunchAction::DryRun => self.show(),
            LaunchAction::StartInBackground => {
                let LaunchPlan { project, spec, resume, .. } = self.plan;
                match resume {
                    Some(run) => resume_in_background(project, &spec, &run.dir),
                    None => start_in_background(project, spec),
                }
            }
            LaunchAction::Start | LaunchAction::PrintPrompt => self.start(),
        }
    }

    fn show(&self) -> Result<u8, Error> {
        for event in &self.preface {
            if let Some(message) = warning_text(event) {
                crate::cli::warn(&message);
            }
        }
        dry_run::dry_run(&self.spec, &self.selection, &self.plan.spec.settings)
    }
}

/// Names ralph's own files apart: `ralph init` has just written them.
fn uncommitted_events(files: &[String]) -> impl Iterator<Item = Event<'static>> + use<> {
    let is_own = |file: &&String| Path::new(file).iter().any(|part| part == DIRECTORY);
    let (own, users): (Vec<_>, Vec<_>) = files.iter().partition(is_own);
    let warning = git::format_file_list(&users).map(|files| Event::Warning {
        message: format!("your uncommitted changes will be included in ralph's commits: {files}")
            .into(),
    });
    let note = git::format_file_list(&own).map(|files| Event::Note {
        message: format!("the first commit will include ralph's settings: {files}").into(),
        important: true,
    });
    warning.into_iter().chain(note)
}

fn effective_settings_line(loaded: &LoadedSettings) -> String {
    let Ok(mut document) = serde_json::to_value(&loaded.settings) else { return String::new() };
    redact::redact(&mut document);
    let changed: Vec<String> = config::leaf_values(&document)
        .into_iter()
        .filter(|(key, _)| loaded.is_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if changed.is_empty() { "all defaults".to_owned() } else { changed.join(" ") }
}

fn startup_events(spec: &RunSpec, loaded: &LoadedSettings) -> Vec<Event<'static>> {
    let note = |message: String| Event::Note { message: message.into(), important: false };
    let warning = |message: String| Event::Warning { message: message.into() };
    let mut events: Vec<_> = loaded
        .files
        .iter()
        .map(|path| note(format!("Loading settings from {}", config::display_name(path))))
        .collect();
    events.extend(loaded.warnings.iter().cloned().map(warning));
    events.push(note(format!("Settings: {}", effective_settings_line(loaded))));
    if let Some(tasks) = spec.tasks.as_ref().filter(|tasks| tasks.accepted) {
        events.push(Event::TaskListAccepted { list: tasks.name.clone().into() });
    }
    events.extend(agent::agent_warnings(&spec.agent).map(warning));
    let (_, unusable) =
        CommandAllowList::parse(loaded.settings.hooks.allow.iter().map(String::as_str));
    events.extend(
        unusable.into_iter().map(|bad| {
            warning(format!("hooks.allow: {:?} has no effect: {}", bad.entry, bad.reason))
        }),
    );
    if loaded.settings.scm.is_some() && spec.scm.is_none() && !loaded.is_set("scm.tasks") {
        let message = "scm has no tasks, so nothing is committed; use \"scm\": {\"tasks\": \
                       [\"commit\"]} to commit each passing iteration";
        events.push(warning(message.to_owned()));
    }
    events.extend(spec.missing_signal.as_ref().map(|signal| {
        warning(format!(
            "the prompt never mentions {signal}, which completes the run: it may run until its \
             limit"
        ))
    }));
    events
}
