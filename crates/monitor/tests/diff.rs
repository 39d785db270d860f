//! The changes of a run in a real repository.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]
use std::path::Path;
use std::process::Command;

use ralph_events::event::{Event, Stamp};
use ralph_events::run_state::RunState;
use ralph_monitor::diff::{LineKind, file_diff, run_diff};

fn git(directory: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=T", "-c", "user.email=t@example.com"]).args(words);
    let output = command.current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn state(head: &str) -> RunState {
    let mut state = RunState::default();
    let event =
        Event::Repository { head: head.to_owned().into(), commits: Vec::new(), by_others: false };
    state.apply_event(Stamp { time_ms: 0, iteration: 0, attempt: 0 }, &event);
    state
}

#[test]
fn uncommitted_files_come_first_and_untracked_ones_count_as_added() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("project");
    std::fs::create_dir(&root).unwrap();
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    git(&root, &["init", "-q"]);
    write("kept.txt", "one\ntwo\nthree\n");
    write("gone.txt", "x\n");
    git(&root, &["add", "."]);
    git(&root, &["commit", "-qm", "start"]);
    let base = git(&root, &["rev-parse", "HEAD"]);
    write("made.txt", "1\n2\n");
    std::fs::remove_file(root.join("gone.txt")).unwrap();
    // The repository's own program for diffs must not run.
    write(".gitattributes", "*.txt diff=evil\n");
    git(&root, &["config", "diff.evil.command", "touch ran"]);
    git(&root, &["config", "diff.evil.textconv", "touch ran"]);
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-qm", "work"]);
    write("kept.txt", "one\n2\nthree\n");
    write("née.txt", "new\nlines\n");
    std::fs::write(root.join("image.bin"), [0, 1, 2]).unwrap();

    let diff = run_diff(&root, &state(&base)).unwrap();
    let files: Vec<String> = diff
        .files
        .iter()
        .map(|file| {
            let place = if file.is_committed { "committed" } else { "open" };
            let letter = file.status.letter();
            format!("{place} {letter} {} +{} -{}", file.path, file.added, file.removed)
        })
        .collect();
    assert_eq!(
        files,
        [
            "open M kept.txt +1 -1",
            "open A image.bin +0 -0",
            "open A née.txt +2 -0",
            "committed A .gitattributes +1 -0",
            "committed D gone.txt +0 -1",
            "committed A made.txt +2 -0",
        ]
    );
    assert_eq!((diff.added, diff.removed), (6, 2));
    assert!(diff.files[1].is_binary);
    let lines = |nth: usize| -> Vec<(LineKind, String)> {
        let file = file_diff(&root, &diff, &diff.files[nth]).unwrap();
        file.hunks.into_iter().flat_map(|hunk| hunk.lines).map(|it| (it.kind, it.text)).collect()
    };
    let changed = |kind, text: &str| (kind, text.to_owned());
    assert_eq!(
        lines(0),
        [
            changed(LineKind::Context, "one"),
            changed(LineKind::Removed, "two"),
            changed(LineKind::Added, "2"),
            changed(LineKind::Context, "three"),
        ]
    );
    assert_eq!(lines(2).len(), 2);
    assert_eq!(lines(5), [changed(LineKind::Added, "1"), changed(LineKind::Added, "2")]);
    assert!(!root.join("ran").exists());
    assert!(run_diff(dir.path(), &state(&base)).is_err(), "no repository");
}
