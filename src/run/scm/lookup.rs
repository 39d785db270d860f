//! What git knows by now of the commits that a run's journal tells of.

use std::collections::HashSet;
use std::path::Path;

use crate::report::morning::Facts;

/// Of how many commits it is looked up whether they are still there.
const MOST_LOOKED_UP: usize = 20_000;

/// Finds out which commits no branch has any more, and which are in the range that is named for a look. Where
/// there is no repository, nobody can tell.
pub fn look_up(root: &Path, facts: &mut Facts) {
    let commits = facts.others.iter().chain(facts.commits());
    let ids: Vec<String> =
        commits.rev().take(MOST_LOOKED_UP).map(|commit| commit.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    let asked: Vec<&str> = ids.iter().map(String::as_str).collect();
    let ask = |words: &[&str], more: &[&str]| {
        let words = [words, &asked, more].concat();
        super::git(&words, root)
    };
    let Ok(there) = ask(&["rev-list", "--no-walk", "--ignore-missing"], &[]) else { return };
    let Ok(loose) = ask(&["rev-list", "--ignore-missing"], &["--not", "--all"]) else { return };
    let (there, loose): (HashSet<&str>, HashSet<&str>) =
        (there.lines().collect(), loose.lines().collect());
    let gone = asked.iter().filter(|id| !there.contains(*id) || loose.contains(*id));
    facts.note_gone(&gone.copied().collect());
    if let Some((from, to)) = facts.range() {
        let range = format!("{from}..{to}");
        if let Ok(shown) = super::git(&["rev-list", &range, "--"], root) {
            facts.note_shown(&shown.lines().collect());
        }
    }
}
