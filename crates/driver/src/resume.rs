//! The state of a run that can be resumed, from its journal and the files beside it.

use std::path::Path;

use ralph_engine::rules::Budget;
use ralph_events::event::{Commit, Event};
use ralph_events::journal;
use ralph_events::run_state::{Repeated, RunState, Warning};
use ralph_git::head_log::NewCommits;
use ralph_store::runs::RunDir;

#[derive(Debug, Clone)]
pub struct ResumeState {
    pub run: RunState,
    /// The run has done something, and nothing in its journal can be read.
    pub is_lost: bool,
    /// The run was killed before it had done anything.
    pub is_new: bool,
    /// An upper limit for how much of the journal was read.
    pub journal_size: u64,
}

impl ResumeState {
    /// Reads the journal and the files beside it. A run without a journal had not started yet.
    pub fn load(dir: &RunDir) -> ResumeState {
        // Taken before the journal is read, so entries written meanwhile are noticed.
        let journal_size = dir.journal_size();
        let run = dir.read_state().unwrap_or_default();
        // The journal is written before anything else. If it is empty, no agent has run.
        let is_lost = run.is_empty() && run.unreadable > 0;
        let is_new = run.is_empty() && !is_lost;
        ResumeState { run, is_lost, is_new, journal_size }
    }

    /// The directory of the first start. The project may have been moved or copied since.
    pub fn original_directory(&self) -> Option<&Path> {
        self.run.info.began_in.as_deref().map(Path::new)
    }

    /// The journal contains this warning already.
    pub fn has_warned(&self, event: &Event<'_>) -> bool {
        let Event::Warning { message } = event else { return false };
        let known = |it: &Repeated<Warning>| matches!(&it.item, Warning::Message { message: known } if known == message);
        self.run.notices.warnings.first.iter().any(known)
    }

    /// Warns about a damaged journal, with the limits of `budget` that it affects.
    pub fn journal_warning(&self, budget: &Budget) -> Option<String> {
        let words = journal::unreadable_message(self.run.unreadable)?;
        let mut kept: Vec<&str> = Vec::new();
        kept.extend(budget.cost_usd.map(|_| "cost"));
        kept.extend(budget.tokens.map(|_| "tokens"));
        kept.extend(budget.duration_ms.map(|_| "time"));
        let consequence = if kept.is_empty() {
            "some work and spending may not be counted".to_owned()
        } else {
            format!(
                "they may contain {}, so more of the budget may be used than is counted",
                kept.join(", ")
            )
        };
        Some(format!("{words}: {consequence}"))
    }
}

/// Returns the events for commits found at a resume. All are by others, except a commit that the run was making.
pub fn commits_since(moved: NewCommits, committing: Option<&str>) -> Vec<Event<'static>> {
    let NewCommits { head, mut commits } = moved;
    let subject = committing.and_then(|message| message.lines().next()).map(str::trim);
    let is_own = |commit: &Commit, own: &str| match commit.subject.strip_suffix('…') {
        Some(beginning) => own.starts_with(beginning),
        None => commit.subject == own,
    };
    let mut events = Vec::new();
    if let Some((first, subject)) = commits.first().zip(subject)
        && is_own(first, subject)
    {
        let own = commits.remove(0);
        if commits.is_empty() {
            commits.push(own);
            return vec![Event::Repository { head: head.into(), commits, by_others: false }];
        }
        let id = own.id.clone();
        events.push(Event::Repository { head: id.into(), commits: vec![own], by_others: false });
    }
    let by_others = !commits.is_empty();
    events.push(Event::Repository { head: head.into(), commits, by_others });
    events
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const START: &str = r#"{"time":"2026-11-15T20:00:00.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"/p","pid":1,"agent":"claude","prompt":"","completion":"","max_iterations":5}"#;
    const CHECK: &str = r#"{"time":"2026-11-15T20:10:00.000Z","iteration":1,"attempt":1,"event":"guardrail_started","index":0,"command":"true"}"#;
    const END: &str = r#"{"time":"2026-11-15T20:10:00.000Z","iteration":1,"attempt":1,"event":"run_ended","outcome":"interrupted","message":"","exit_code":130,"iterations":1,"duration_ms":600000,"usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0},"tools":0,"tool_errors":0,"cut_off":true}"#;

    fn at(seconds: u64) -> SystemTime {
        // 20:00 of that day.
        SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_794_772_800 + seconds)
    }

    fn left(ralph_dir: &Path, lines: &[&str], written: SystemTime) -> ResumeState {
        let dir = RunDir { id: "r".to_owned(), path: ralph_dir.join("runs/r") };
        dir.create().unwrap();
        std::fs::write(dir.journal(), lines.join("\n") + "\n").unwrap();
        let journal = std::fs::File::options().append(true).open(dir.journal()).unwrap();
        journal.set_modified(written).unwrap();
        ResumeState::load(&dir)
    }

    #[test]
    fn cut_off_run_lasted_until_its_last_file_change() {
        let ralph = tempfile::tempdir().unwrap();
        let minutes = |left: ResumeState| left.run.clock.active_ms / 60_000;
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(600))), 10);
        let write = |name: &str, seconds| {
            let file = std::fs::File::create(ralph.path().join(name)).unwrap();
            file.set_modified(at(seconds)).unwrap();
        };
        write("runs/r/raw.ndjson", 15 * 60);
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(600))), 15);
        write("runs/r/guardrail_001_true.log", 40 * 60);
        let cut_off = left(ralph.path(), &[START, CHECK], at(600));
        assert_eq!(cut_off.run.duration_ms(None), cut_off.run.clock.active_ms, "one rule");
        assert_eq!(minutes(cut_off), 40);
        // A silent run leaves signs of life.
        write("runs/r/state.json", 45 * 60);
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(600))), 45);
        // Another run has a guardrail of the same name.
        write("guardrail_001_true.log", 50 * 60);
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(600))), 45);
        // A time in the future does not count.
        write("runs/r/guardrail_001_other.log", 100 * 365 * 24 * 60 * 60);
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(600))), 45);
        // The recorded end counts.
        let ended = left(ralph.path(), &[START, CHECK, END], at(600));
        assert_eq!((ended.run.duration_ms(None), minutes(ended)), (600_000, 10));
        // All files were copied.
        assert_eq!(minutes(left(ralph.path(), &[START, CHECK], at(60 * 60))), 10);
    }

    #[test]
    fn commit_in_progress_at_kill_belongs_to_run() {
        let commit = |subject: &str| Commit {
            id: format!("id of {subject}"),
            subject: subject.to_owned(),
            replaces: None,
            since: None,
        };
        // The commit being made, the commits found, and for each event how many commits and whether by others.
        for (committing, found, told) in [
            (None, &[][..], &[(0, false)][..]),
            (None, &["mine"], &[(1, true)]),
            (Some("mine\n\nmore"), &[], &[(0, false)]),
            (Some("mine\n\nmore"), &["mine"], &[(1, false)]),
            (Some("mine"), &["mine", "theirs"], &[(1, false), (1, true)]),
            (Some("mine"), &["theirs"], &[(1, true)]),
            (Some("mine and long"), &["mine an…"], &[(1, false)]),
        ] {
            let commits = found.iter().map(|subject| commit(subject)).collect();
            let events = commits_since(NewCommits { head: "h".to_owned(), commits }, committing);
            let whose = events.iter().map(|event| match event {
                Event::Repository { commits, by_others, .. } => (commits.len(), *by_others),
                other => panic!("{other:?}"),
            });
            assert_eq!(whose.collect::<Vec<_>>(), told, "{committing:?} {found:?}");
            let head =
                |event: &Event<'_>| matches!(event, Event::Repository { head, .. } if head == "h");
            assert!(events.last().is_some_and(head));
        }
    }

    #[test]
    fn unreadable_journal_warns_about_affected_budget() {
        let ralph = tempfile::tempdir().unwrap();
        let whole = left(ralph.path(), &[START, CHECK], at(600));
        assert_eq!((whole.journal_warning(&Budget::default()), whole.is_lost), (None, false));
        let damaged = left(ralph.path(), &[START, "\u{0}\u{0}", CHECK, "{"], at(600));
        let budget = Budget { cost_usd: Some(1.0), tokens: None, duration_ms: Some(1) };
        let said = damaged.journal_warning(&budget).unwrap();
        assert!(said.starts_with("2 lines of the journal cannot be read"), "{said}");
        assert!(said.contains("may contain cost, time"), "{said}");
        assert!(!damaged.is_lost);
        assert!(left(ralph.path(), &["nonsense"], at(600)).is_lost);
        for (journal, is_lost) in [
            (&b""[..], false),
            (b"\n", false),
            (b"{\"ti", false),
            (&START.as_bytes()[..90], false),
            (b"\xff\n\xff", true),
            (b"[1]\n", true),
        ] {
            let dir = RunDir { id: "r".to_owned(), path: ralph.path().join("runs/r") };
            std::fs::write(dir.journal(), journal).unwrap();
            let found = ResumeState::load(&dir);
            assert_eq!((found.is_lost, found.is_new), (is_lost, !is_lost), "{journal:?}");
        }
    }
}
