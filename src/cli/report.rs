//! `ralph report`: what a run came to.

use jiff::tz::TimeZone;

use crate::error::Error;
use crate::report::morning::{Commit, Facts, Reading, html, plain};
use crate::run::scm;
use crate::state::journal;
use crate::state::project::Project;

use super::runs::{all, find};
use super::{ReportArgs, ReportForm};

/// # Errors
/// There is no such run.
pub(super) fn report(project: &Project, args: &ReportArgs) -> Result<u8, Error> {
    let dir = find(all(project)?, args.run.as_deref())?;
    let entries = journal::read(&dir.journal())
        .map_err(|err| Error::input(format!("cannot read {}: {err}", dir.journal().display())))?;
    let mut reading = Reading::default();
    entries.for_each(|entry| reading.fold(&entry));
    let going_on = dir.is_running().then(|| jiff::Timestamp::now().as_millisecond());
    let mut facts = reading.facts(going_on);
    facts.place_commits(commits(project, &facts));
    let zone = TimeZone::system();
    super::print(&match args.format {
        ReportForm::Text => plain::draw(&facts, &zone, plain::Form::Terminal),
        ReportForm::Markdown => plain::draw(&facts, &zone, plain::Form::Markdown),
        ReportForm::Html => html::draw(&facts, &zone),
        ReportForm::Json => {
            let json = serde_json::to_string_pretty(&facts)
                .map_err(|err| Error::failed(format!("cannot tell it as JSON: {err}")))?;
            json + "\n"
        }
    })
}

/// What was committed while the run lasted, on any branch; nothing where there is no repository.
fn commits(project: &Project, facts: &Facts) -> Vec<Commit> {
    // Git knows whole seconds.
    let since = format!("--since=@{}", facts.started_ms / 1000);
    let until = format!("--until=@{}", facts.ended_ms / 1000 + 1);
    let words = ["log", "--all", "--reverse", "--format=%h%x09%ct%x09%s", &since, &until];
    // What was there before may have been made in the same second. A commit that is gone since tells
    // nothing.
    let before = facts.head.as_ref().map(|head| format!("^{head}"));
    let without: Vec<&str> = words.iter().copied().chain(before.as_deref()).collect();
    let log = scm::git(&without, project.root());
    let log = log.or_else(|_| scm::git(&words, project.root())).unwrap_or_default();
    let commit = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (id, time, subject) = (fields.next()?, fields.next()?, fields.next()?);
        let time_ms = time.parse::<i64>().ok()?.saturating_mul(1000);
        Some(Commit { id: id.to_owned(), time_ms, subject: subject.to_owned() })
    };
    log.lines().filter_map(commit).collect()
}
