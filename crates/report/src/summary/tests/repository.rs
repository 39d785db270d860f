//! What was committed, by whom, and what was not.

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
    let told = terminal(&facts);
    assert!(told.contains("Commits:   2: git log base..two\n"), "{told}");
    facts.count_range(&HashSet::from(["two", "people", "merged"]));
    let told = terminal(&facts);
    let words =
        "Commits:   3: git log base..two (2 of them not by the run); 1 more by the run is not";
    assert!(told.contains(words), "{told}");
    assert!(told.contains("three lost (on no branch any more)"), "{told}");
    assert!(told.contains("not at work (1)\n  people by a person"), "{told}");
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
    let told = terminal(&facts);
    for line in [
        "SCM:       commit -m x failed in 1 iteration, the last time in 1: hook says no; it was \
         done after iteration 1\n",
        "SCM:       push failed in 2 iterations, the last time in 3: fatal: no way, and was not \
         done since\n",
        "       SCM task failed: push: error: failed to push some refs\n",
        "\nLeft to do\n  SCM task not done: push: fatal: no way\n",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    let markdown = plain::render(&facts, &TimeZone::UTC, plain::TextFormat::Markdown);
    let json = serde_json::to_string(&facts).unwrap();
    for page in [markdown, html::render(&facts, &TimeZone::UTC), json] {
        assert!(page.contains("hook says no") && page.contains("fatal: no way"), "{page}");
    }
}
