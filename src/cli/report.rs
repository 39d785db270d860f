//! `ralph report`: what a run came to.

use std::collections::HashSet;
use std::path::Path;

use jiff::tz::TimeZone;

use crate::error::Error;
use crate::report::morning::{Facts, Reading, html, plain};
use crate::run::scm;
use crate::state::journal;
use crate::state::project::Project;

use super::runs::{all, find};
use super::{ReportArgs, ReportForm};

/// Of how many commits it is looked up whether they are still there.
const MOST_LOOKED_UP: usize = 20_000;

/// # Errors
/// There is no such run.
pub(super) fn report(project: &Project, args: &ReportArgs) -> Result<u8, Error> {
    let dir = find(all(project)?, args.run.as_deref())?;
    let entries = journal::read(&dir.journal())
        .map_err(|err| Error::input(format!("cannot read {}: {err}", dir.journal().display())))?;
    let reading = Reading::of(entries);
    let going_on = dir.is_running().then(|| jiff::Timestamp::now().as_millisecond());
    let mut facts = reading.facts(going_on);
    if facts.run.is_empty() {
        facts.run.clone_from(&dir.id);
    }
    look_commits_up(project.root(), &mut facts);
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

/// Finds out which commits no branch has any more. Where there is no repository, nobody can tell.
fn look_commits_up(root: &Path, facts: &mut Facts) {
    let commits = facts.others.iter().chain(facts.commits());
    let ids: Vec<String> =
        commits.rev().take(MOST_LOOKED_UP).map(|commit| commit.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    let asked: Vec<&str> = ids.iter().map(String::as_str).collect();
    let ask = |words: &[&str], more: &[&str]| {
        let words = [words, &asked, more].concat();
        scm::git(&words, root)
    };
    let Ok(there) = ask(&["rev-list", "--no-walk", "--ignore-missing"], &[]) else { return };
    let Ok(loose) = ask(&["rev-list", "--ignore-missing"], &["--not", "--all"]) else { return };
    let (there, loose): (HashSet<&str>, HashSet<&str>) =
        (there.lines().collect(), loose.lines().collect());
    let gone = asked.iter().filter(|id| !there.contains(*id) || loose.contains(*id));
    facts.note_gone(&gone.copied().collect());
}
