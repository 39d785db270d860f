use std::fs::OpenOptions;
use std::io::Write;

use super::*;

/// Files of a repository, written without git.
struct Repository {
    dir: tempfile::TempDir,
    head: String,
}

fn id(name: &str) -> String {
    format!("{:0<40}", name.bytes().map(|byte| format!("{byte:x}")).collect::<String>())
}

impl Repository {
    fn new() -> Repository {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git/logs")).unwrap();
        Repository { dir, head: "0".repeat(40) }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join(".git/logs/HEAD")
    }

    /// Moves `HEAD` to a commit of this name.
    fn go(&mut self, name: &str, message: &str) {
        let old = std::mem::replace(&mut self.head, id(name));
        let line = format!("{old} {} A B <a@b> 1794774472 +0100\t{message}\n", self.head);
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        log.unwrap().write_all(line.as_bytes()).unwrap();
        std::fs::write(self.dir.path().join(".git/HEAD"), format!("{}\n", self.head)).unwrap();
    }

    fn watch(&self, since: LogPosition<'_>) -> (HeadLog, Option<NewCommits>) {
        HeadLog::open(self.dir.path(), since)
    }
}

fn subjects(moved: Option<NewCommits>) -> Vec<String> {
    moved.into_iter().flat_map(|it| it.commits).map(|commit| commit.subject).collect()
}

#[test]
fn head_log_reports_each_commit_once() {
    let mut repository = Repository::new();
    repository.go("a", "commit (initial): before");
    let (mut watch, begin) = repository.watch(LogPosition::Now);
    assert_eq!(begin, Some(NewCommits { head: id("a"), commits: Vec::new() }));
    assert_eq!(watch.new_commits(true), None);
    for (name, message, expected) in [
        ("b", "commit: fix: the parser", Some("fix: the parser")),
        ("c", "commit (amend): better", Some("better")),
        ("d", "checkout: moving from main to x", None),
        ("e", "cherry-pick: taken", Some("taken")),
        ("f", "revert: Revert \"taken\"", Some("Revert \"taken\"")),
        ("g", "commit (merge): Merge branch 'x'", Some("Merge branch 'x'")),
        (
            "h",
            "merge x: Merge made by the 'ort' strategy.",
            Some("merge x: Merge made by the 'ort' strategy."),
        ),
        ("i", "merge x: Fast-forward", Some("merge x: Fast-forward")),
        ("j", "reset: moving to HEAD~1", None),
        ("k", "rebase (start): checkout main", None),
        ("l", "rebase (pick): picked", Some("picked")),
        ("m", "rebase (finish): returning to refs/heads/x", None),
        ("n", "am: by mail", Some("by mail")),
        ("o", "", None),
    ] {
        repository.go(name, message);
        let moved = watch.new_commits(false);
        assert_eq!(moved.as_ref().map(|moved| moved.head.clone()), Some(id(name)), "{message}");
        assert_eq!(subjects(moved), Vec::from_iter(expected), "{message}");
        assert_eq!(watch.new_commits(false), None);
    }
    repository.go("p", "commit: one");
    repository.go("q", "commit (amend): two");
    let commits = watch.new_commits(false).unwrap().commits;
    assert_eq!(commits[1].replaces.as_ref(), Some(&commits[0].id));
}

#[test]
fn head_log_position_survives_truncation() {
    let mut repository = Repository::new();
    for name in ["a", "b", "c"] {
        repository.go(name, "commit: old");
    }
    let (mut watch, _) = repository.watch(LogPosition::Now);
    let forget = |lines: usize| {
        let log = std::fs::read_to_string(repository.log()).unwrap();
        let rest: Vec<&str> = log.split_inclusive('\n').skip(lines).collect();
        std::fs::write(repository.log(), rest.concat()).unwrap();
    };
    forget(1);
    assert_eq!(watch.new_commits(true), None);
    repository.go("d", "commit: new");
    assert_eq!(subjects(watch.new_commits(false)), ["new"]);
    // A partial line is read when complete.
    let mut log = OpenOptions::new().append(true).open(repository.log()).unwrap();
    let line = format!("{} {} A <a> 1 +0000\tcommit: whole\n", id("d"), id("e"));
    log.write_all(&line.as_bytes()[..60]).unwrap();
    assert_eq!(watch.new_commits(false), None);
    log.write_all(&line.as_bytes()[60..]).unwrap();
    assert_eq!(subjects(watch.new_commits(false)), ["whole"]);
    std::fs::remove_file(repository.log()).unwrap();
    repository.head = "0".repeat(40);
    repository.go("z", "commit (initial): afresh");
    assert_eq!(subjects(watch.new_commits(false)), ["afresh"]);
}

#[test]
fn head_log_after_resume_reports_commits_since() {
    let mut repository = Repository::new();
    repository.go("a", "commit: known");
    repository.go("b", "commit: by a person");
    let (mut watch, begin) = repository.watch(LogPosition::Commit(&id("a")));
    assert_eq!(subjects(begin), ["by a person"]);
    repository.go("c", "commit: by the run");
    assert_eq!(subjects(watch.new_commits(false)), ["by the run"]);
    let (_, all) = repository.watch(LogPosition::Ever);
    assert_eq!(subjects(all), ["known", "by a person", "by the run"]);
    let (_, unknown) = repository.watch(LogPosition::Commit(&id("gone")));
    assert_eq!(unknown, Some(NewCommits { head: id("c"), commits: Vec::new() }));
}

#[test]
fn head_log_handles_late_repository_and_missing_reflog() {
    let mut repository = Repository::new();
    let (mut watch, begin) = repository.watch(LogPosition::Now);
    assert_eq!(begin, None);
    repository.go("a", "commit (initial): the first");
    assert_eq!(watch.new_commits(false), None, "not looked for all the time");
    assert_eq!(subjects(watch.new_commits(true)), ["the first"]);

    std::fs::remove_file(repository.log()).unwrap();
    let (mut watch, _) = repository.watch(LogPosition::Now);
    std::fs::write(repository.dir.path().join(".git/HEAD"), id("b")).unwrap();
    assert_eq!(watch.new_commits(true), Some(NewCommits { head: id("b"), commits: Vec::new() }));
    assert_eq!(watch.new_commits(true), None);

    let nowhere = tempfile::tempdir().unwrap();
    assert_eq!(HeadLog::open(nowhere.path(), LogPosition::Now).1, None);
}

#[test]
fn removed_repository_is_reported_as_lost() {
    let mut repository = Repository::new();
    let (at, aside) = (repository.dir.path().to_owned(), tempfile::tempdir().unwrap());
    let below = at.join("below");
    std::fs::create_dir(&below).unwrap();
    // Not missing: there was no repository at the start.
    let (mut watch, _) = repository.watch(LogPosition::Now);
    repository.go("a", "commit (initial): one");
    watch.new_commits(true);
    std::fs::rename(at.join(".git"), aside.path().join("git")).unwrap();
    watch.new_commits(true);
    assert_eq!(watch.missing_repository(), None);
    std::fs::rename(aside.path().join("git"), at.join(".git")).unwrap();

    for from in [&at, &below] {
        let (mut watch, _) = HeadLog::open(from, LogPosition::Now);
        watch.new_commits(true);
        assert_eq!(watch.missing_repository(), None);
        std::fs::rename(at.join(".git"), aside.path().join("git")).unwrap();
        watch.new_commits(false);
        assert_eq!(watch.missing_repository(), None, "not looked for all the time");
        watch.new_commits(true);
        assert_eq!(watch.missing_repository(), Some(at.join(".git")));
        // An empty `.git` is no repository.
        std::fs::create_dir(at.join(".git")).unwrap();
        watch.new_commits(true);
        assert_eq!(watch.missing_repository(), Some(at.join(".git")));
        // A new repository is a replacement.
        std::fs::write(at.join(".git/HEAD"), "ref: refs/heads/main").unwrap();
        watch.new_commits(true);
        assert_eq!(
            (watch.missing_repository(), watch.replaced_repository()),
            (None, Some(at.join(".git").as_path()))
        );
        std::fs::remove_dir_all(at.join(".git")).unwrap();
        std::fs::rename(aside.path().join("git"), at.join(".git")).unwrap();
        watch.new_commits(true);
        assert_eq!((watch.missing_repository(), watch.replaced_repository()), (None, None));
    }

    // A linked work tree has its log elsewhere.
    let linked = below.join("tree");
    std::fs::create_dir(&linked).unwrap();
    std::fs::write(linked.join(".git"), format!("gitdir: {}", at.join(".git").display())).unwrap();
    let (mut watch, _) = HeadLog::open(&linked, LogPosition::Now);
    watch.new_commits(true);
    assert_eq!(watch.missing_repository(), None);
    std::fs::remove_file(linked.join(".git")).unwrap();
    watch.new_commits(true);
    assert_eq!(watch.missing_repository(), Some(linked.join(".git")));
}

fn git(dir: &Path, words: &[&str]) -> String {
    let settings = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
    let mut command = std::process::Command::new("git");
    command.args(settings).args(words).current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn head_log_without_reflog_lines_reports_commit_range() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let commit = |subject| git(at, &["commit", "-q", "--allow-empty", "-m", subject]);
    git(at, &["init", "-q", "-b", "main"]);
    commit("base");
    let (mut watch, _) = HeadLog::open(at, LogPosition::Now);
    let commits = |watch: &mut HeadLog| {
        let moved = watch.new_commits(true).unwrap();
        let commits = moved.commits.into_iter().map(|commit| match commit.since {
            Some(since) => format!("{} after {}", subject(at, &commit.id), subject(at, &since)),
            None => commit.subject,
        });
        commits.collect::<Vec<String>>()
    };
    // Emptied after one commit, before the next.
    commit("one");
    let empty = || git(at, &["reflog", "expire", "--expire=now", "--all"]);
    empty();
    assert_eq!(commits(&mut watch), ["one after base"]);
    commit("two");
    commit("three");
    assert_eq!(commits(&mut watch), ["two", "three"]);
    empty();
    commit("four");
    assert_eq!(commits(&mut watch), ["four"], "without a look in between");
    commit("five");
    empty();
    commit("six");
    assert_eq!(commits(&mut watch), ["six after four"]);
    commit("seven");
    assert_eq!(commits(&mut watch), ["seven"]);

    git(at, &["checkout", "-q", "-b", "side"]);
    commit("eight");
    commit("nine");
    git(at, &["checkout", "-q", "main"]);
    assert_eq!(commits(&mut watch), ["eight", "nine"]);
    git(at, &["merge", "-q", "side"]);
    assert_eq!(commits(&mut watch), ["nine after seven"]);
    git(at, &["checkout", "-q", "-b", "more"]);
    commit("ten");
    git(at, &["checkout", "-q", "main"]);
    git(at, &["merge", "-q", "--no-ff", "-m", "Take more in", "more"]);
    assert_eq!(commits(&mut watch), ["ten", "Take more in after nine"]);
}

fn subject(at: &Path, id: &str) -> String {
    git(at, &["show", "-s", "--format=%s", id]).trim().to_owned()
}
