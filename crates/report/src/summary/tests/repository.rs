//! Commits of the run and of others, their size, and what failed.

use super::*;

#[test]
fn summary_attributes_commits_to_run_or_others() {
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 0, repository("base", Vec::new(), false)),
            (1, 1, iteration_started()),
            (
                2,
                1,
                repository(
                    "two",
                    vec![
                        committed("one", "first try", None),
                        committed("two", "made well", Some("one")),
                    ],
                    false,
                ),
            ),
            (3, 1, iteration_ended(Class::Answered, false)),
            (3, 1, repository("people", vec![committed("people", "by a person", None)], true)),
            (3, 2, iteration_started()),
            (4, 2, repository("elsewhere", Vec::new(), false)),
            (5, 2, repository("three", vec![committed("three", "lost", None)], false)),
            // A branch that is merged brings what was told before.
            (6, 2, repository("two", vec![committed("two", "made well", None)], false)),
        ],
        None,
    );
    let subjects = |commits: &[CommitSummary]| -> Vec<String> {
        commits.iter().map(|commit| commit.subject.clone()).collect()
    };
    assert_eq!(subjects(&facts.iterations[0].commits), ["made well"], "what was amended is gone");
    assert_eq!(subjects(&facts.iterations[1].commits), ["lost"]);
    assert_eq!(subjects(&facts.commits_by_others), ["by a person"]);
    let mut facts = facts;
    facts.mark_unreachable(&HashSet::from(["three"]));
    let text = terminal(&facts);
    assert!(
        text.contains(" 2 commits.\n") && text.contains("  git log --oneline base..two\n"),
        "{text}"
    );
    facts.count_range(&HashSet::from(["two", "people", "merged"]));
    let words = " 3 commits (2 not by this run); 1 more gone or on another branch.";
    assert!(unwrapped(&facts).contains(words), "{words} in {}", unwrapped(&facts));
    let text = terminal(&facts);
    assert!(text.contains("three lost (on no branch any more) (iteration 2)"), "{text}");
    assert!(text.contains("by others\n    people by a person"), "{text}");
}

#[test]
fn summary_of_complete_branch_shows_size_and_merge_commands() {
    let mut facts = read(
        vec![
            (1, 0, run_started()),
            (1, 0, repository("base", Vec::new(), false)),
            (1, 1, iteration_started()),
            (2, 1, repository("one", vec![committed("one", "first", None)], false)),
            (3, 1, guardrail(true)),
            (4, 1, iteration_ended(Class::Answered, false)),
            (4, 1, run_ended(Outcome::Complete, 3_000)),
        ],
        None,
    );
    facts.title = "Password reset".to_owned();
    facts.info.branch = Some("ralph/reset".to_owned());
    facts.diff_stat = Some(DiffStat { files: 31, added: 1204, removed: 310 });
    facts.remaining.stories = Some((12, 12));
    facts.answer = Some("It is sent in the background.\n\nBoth tests pass.".to_owned());
    facts.default_branch = Some("main".to_owned());
    facts.info.completion = "every story of ralph/tasks.json passes".to_owned();
    let text = terminal(&facts);
    let start = "\
Password reset — complete                                               run ab12
All 12 stories pass. 1 commit on ralph/reset, 31 files, +1,204 −310.

  Took    3.0s, 1 of 10 iterations
  Cost    unknown: the agent reported none
  Checks  make test 1 of 1 passed

  Last words of the agent
    It is sent in the background.
    Both tests pass.

  Commits
    one first (iteration 1)
";
    assert!(text.starts_with(start), "{text}");
    let end = "
Next
  git log --oneline main..ralph/reset
  git switch main
  git merge --ff-only ralph/reset
  ralph archive
";
    assert!(text.ends_with(end), "{text}");
    let colored = plain::TextFormat::Plain { color: true, width: None };
    let text = plain::render(&facts, &TimeZone::UTC, colored);
    assert!(text.contains("\u{1b}[32mcomplete\u{1b}[0m"), "{text:?}");
    assert_eq!(DiffStat::parse("", |_| false), None);
}

#[test]
fn failed_commit_and_push_appear_in_every_format() {
    let scm = |task: &'static str, ok, detail: &'static str| Event::ScmEnded {
        task: task.into(),
        ok,
        detail: detail.into(),
        duration_ms: 1,
    };
    let rejected = "To /remote\n ! [rejected] main -> main\nerror: failed to push some refs\n\
                    hint: Updates were rejected\nhint: See the note";
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, scm("commit -m x", false, "lint: 3 problems\nhook says no\n")),
            (3, 1, iteration_ended(Class::Answered, false)),
            (3, 2, iteration_started()),
            (4, 2, scm("commit -m x", true, "")),
            (4, 2, scm("push", false, rejected)),
            (5, 2, iteration_ended(Class::Answered, false)),
            (5, 3, iteration_started()),
            (6, 3, scm("push", false, "fatal: no way\n\nPlease make sure")),
            (7, 3, iteration_ended(Class::Answered, false)),
            (7, 3, run_ended(Outcome::CompleteScmFailed, 6_000)),
        ],
        None,
    );
    let text = unwrapped(&facts);
    for line in [
        "commit -m x failed in 1 iteration: hook says no; it succeeded later",
        "push failed in 2 iterations: fatal: no way",
        "SCM task failed: push: error: failed to push some refs",
        "Left to do SCM task not done: push: fatal: no way",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let markdown = plain::render(&facts, &TimeZone::UTC, plain::TextFormat::Markdown);
    let json = serde_json::to_string(&facts).unwrap();
    for page in [markdown, html::render(&facts, &TimeZone::UTC), json] {
        assert!(page.contains("hook says no") && page.contains("fatal: no way"), "{page}");
    }
}
