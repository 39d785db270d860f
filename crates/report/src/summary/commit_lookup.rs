//! Looks up a run's commits in git.

use std::collections::HashSet;

use super::{DiffStat, Summary};

const MAX_COMMITS_CHECKED: usize = 20_000;

/// Limits the git calls, and the listed commits.
const MAX_GIT_CALLS: usize = 200;
const MAX_COUNT_FLAG: &str = "--max-count=500";

/// Adds the commits that arrived together with others, marks those that no branch contains, and counts the range
/// shown to the user. Records that there is no repository; leaves everything open if `git` does not answer. Files of
/// ralph (`is_own_file`) do not count as changed.
pub fn annotate_commits(
    facts: &mut Summary,
    is_in_repository: bool,
    is_own_file: fn(&str) -> bool,
    git: &mut dyn FnMut(&[&str]) -> Option<String>,
) {
    facts.repository_gone = facts.commits().next().is_some() && !is_in_repository;
    if facts.repository_gone {
        return;
    }
    let mut asked = 0;
    facts.expand_commits(|old, new| {
        asked += 1;
        let range = format!("{old}..{new}");
        // Other commits of a merged branch were recorded when they were made, or were made elsewhere.
        let words =
            ["log", "--reverse", "--first-parent", MAX_COUNT_FLAG, "--format=%H %s", &range, "--"];
        if asked > MAX_GIT_CALLS {
            return None;
        }
        let log = git(&words)?;
        let commits = log.lines().filter_map(|line| line.split_once(' '));
        Some(commits.map(|(id, subject)| (id.to_owned(), subject.to_owned())).collect())
    });
    let commits = facts.commits_by_others.iter().chain(facts.commits());
    let ids: Vec<String> =
        commits.rev().take(MAX_COMMITS_CHECKED).map(|commit| commit.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    let asked: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut ask = |words: &[&str], more: &[&str]| git(&[words, &asked, more].concat());
    let Some(there) = ask(&["rev-list", "--no-walk", "--ignore-missing"], &[]) else { return };
    let Some(loose) = ask(&["rev-list", "--ignore-missing"], &["--not", "--all"]) else { return };
    let (there, loose): (HashSet<&str>, HashSet<&str>) =
        (there.lines().collect(), loose.lines().collect());
    let gone = asked.iter().filter(|id| !there.contains(*id) || loose.contains(*id));
    facts.mark_unreachable(&gone.copied().collect());
    let named = ["--not", "--branches", "--remotes", "--tags"];
    if let Some(unnamed) = ask(&["rev-list", "--ignore-missing"], &named) {
        facts.mark_detached(&unnamed.lines().collect());
    }
    if let Some((from, to)) = facts.commit_range() {
        let range = format!("{from}..{to}");
        if let Some(shown) = git(&["rev-list", &range, "--"]) {
            facts.count_range(&shown.lines().collect());
        }
        let words = ["diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let stat = git(&[&words[..], &[&range, "--"]].concat());
        facts.diff_stat = stat.and_then(|stat| DiffStat::parse(&stat, is_own_file));
    }
}

/// Finds the branch to merge the run's branch into.
pub fn annotate_branch(facts: &mut Summary, git: &mut dyn FnMut(&[&str]) -> Option<String>) {
    facts.default_branch = facts.branch().and_then(|branch| merge_target(branch, git));
}

/// The branch that the remote calls its default, else `main` or `master`, unless it has everything.
fn merge_target(branch: &str, git: &mut dyn FnMut(&[&str]) -> Option<String>) -> Option<String> {
    let format = "--format=origin/%(refname:short)";
    let known = git(&["symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD"])
        .or_else(|| git(&["for-each-ref", format, "refs/heads/main", "refs/heads/master"]))?;
    let name = known.lines().next()?.strip_prefix("origin/")?;
    let range = format!("refs/heads/{name}..refs/heads/{branch}");
    let ahead = git(&["rev-list", "--count", &range, "--"])?;
    (ahead.trim() != "0").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{CommitSummary, IterationSummary};
    use super::*;

    fn ask_git(dir: &Path, words: &[&str]) -> Option<String> {
        let settings = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let mut command = std::process::Command::new("git");
        command.args(settings).args(words).current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn git(dir: &Path, words: &[&str]) -> String {
        ask_git(dir, words).unwrap_or_else(|| panic!("git {words:?} failed"))
    }

    #[test]
    fn commit_lookup_adds_commits_between() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let commit = |subject| git(at, &["commit", "-q", "--allow-empty", "-m", subject]);
        git(at, &["init", "-q", "-b", "main"]);
        for subject in ["base", "one", "two", "three", "four", "five", "six", "seven"] {
            commit(subject);
        }
        git(at, &["checkout", "-q", "-b", "side"]);
        commit("eight");
        commit("nine");
        git(at, &["checkout", "-q", "main"]);
        git(at, &["merge", "-q", "side"]);
        git(at, &["checkout", "-q", "-b", "more"]);
        commit("ten");
        git(at, &["checkout", "-q", "main"]);
        git(at, &["merge", "-q", "--no-ff", "-m", "Take more in", "more"]);
        commit("eleven");
        let find = |wanted: &str| {
            let log = git(at, &["log", "--all", "--format=%H %s"]);
            let mut commits = log.lines().filter_map(|line| line.split_once(' '));
            commits.find(|(_, subject)| *subject == wanted).unwrap().0.to_owned()
        };

        let mut facts = Summary::default();
        facts.iterations.push(IterationSummary::default());
        for (id, since) in [("eleven", "nine"), ("five", "base")] {
            facts.iterations[0].commits.push(CommitSummary {
                id: find(id),
                subject: "as git put it".to_owned(),
                since: Some(find(since)),
                time_ms: 1,
                is_unreachable: false,
                is_detached: false,
            });
        }
        facts.head = Some(find("three"));
        annotate_commits(&mut facts, true, |_| false, &mut |words| ask_git(at, words));
        let subjects: Vec<&str> = facts.commits().map(|commit| commit.subject.as_str()).collect();
        assert_eq!(
            subjects,
            ["Take more in", "eleven", "one", "two", "three", "four", "five"],
            "in the order in which they were brought"
        );
    }

    #[test]
    fn branch_lookup_finds_size_and_merge_of_run() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        git(at, &["init", "-q", "-b", "main"]);
        git(at, &["commit", "-q", "--allow-empty", "-m", "base"]);
        git(at, &["switch", "-q", "-c", "ralph/x"]);
        std::fs::create_dir(at.join(".ralph")).unwrap();
        for (name, text) in [("new", "1\n2\n"), (".ralph/.gitignore", "/runs\n")] {
            std::fs::write(at.join(name), text).unwrap();
        }
        std::fs::write(at.join("image"), b"\0\x01").unwrap();
        git(at, &["add", "."]);
        git(at, &["commit", "-q", "-m", "work"]);
        let id = |name| git(at, &["rev-parse", name]).trim().to_owned();

        let mut facts = Summary { head: Some(id("main")), ..Summary::default() };
        facts.info.branch = Some("ralph/x".to_owned());
        facts.iterations.push(IterationSummary::default());
        facts.iterations[0].commits.push(CommitSummary {
            id: id("HEAD"),
            subject: "work".to_owned(),
            since: None,
            time_ms: 1,
            is_unreachable: false,
            is_detached: false,
        });
        let mut ask = |words: &[&str]| ask_git(at, words);
        annotate_commits(&mut facts, true, |path| path == ".ralph/.gitignore", &mut ask);
        assert_eq!(facts.diff_stat, Some(DiffStat { files: 2, added: 2, removed: 0 }));
        annotate_branch(&mut facts, &mut ask);
        assert_eq!(facts.default_branch.as_deref(), Some("main"));
        git(at, &["switch", "-q", "main"]);
        git(at, &["merge", "-q", "ralph/x"]);
        annotate_branch(&mut facts, &mut ask);
        assert_eq!(facts.default_branch, None);
    }
}
