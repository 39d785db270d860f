//! The invented evening of the design, read from real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failed test")]
use jiff::tz::TimeZone;
use ralph_events::text::{format_dollars, format_minutes};
use ralph_monitor::diff::{file_diff, run_diff};
use ralph_monitor::sample::{self, NOW_MS, SampleEvening};
use ralph_monitor::{Monitor, TranscriptWindow, read_check_log, run_stories};
use ralph_report::check_view::checks;
use ralph_report::overview::{Overview, SectionKind};
use ralph_report::run_card::{BarResult, RunCard};
use ralph_report::run_table::cost_text;
use ralph_report::story_view::{Claim, stories};
use ralph_report::transcript::{Item, ItemKind};
use tempfile::TempDir;

struct Evening {
    dir: TempDir,
    sample: SampleEvening,
    monitor: Monitor,
}

fn evening() -> Evening {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let sample = sample::write(&home, &dir.path().join("src")).unwrap();
    let monitor = Monitor::open(&home, TimeZone::UTC, NOW_MS).unwrap();
    Evening { dir, sample, monitor }
}

/// A row as the wide terminal shows it.
fn row(card: &RunCard) -> String {
    let longest = card.longest_bar_ms();
    let first = card.bars.len().saturating_sub(10);
    let bar = |eighths: u8| char::from_u32(0x2580 + u32::from(eighths)).unwrap();
    let bars: String = card.bars[first..].iter().map(|it| bar(it.eighths(longest))).collect();
    let history: String = card.bars[first..].iter().map(|bar| bar.result.ascii()).collect();
    [
        card.sign(),
        &card.name,
        &card.project,
        card.branch.as_deref().unwrap_or_default(),
        &card.progress(),
        &card.elapsed(),
        &cost_text(card.cost).unwrap_or_default(),
        &bars,
        &history,
        &card.now.fit(22, "…"),
    ]
    .join(" | ")
}

fn rows(overview: &Overview) -> String {
    let mut out = String::new();
    for section in &overview.sections {
        out.push_str(&format!("{}\n", section.kind.title()));
        for card in &section.cards {
            out.push_str(&format!("{}\n", row(card)));
            if let Some(attention) = &card.attention {
                let ago = u64::try_from(NOW_MS - attention.since_ms).unwrap();
                let (text, remedy) = (&attention.text, attention.remedy);
                out.push_str(&format!("  {text} {remedy} | {} ago\n", format_minutes(ago)));
            }
        }
    }
    out
}

#[test]
fn overview_of_the_evening_has_the_rows_of_the_design() {
    let Evening { monitor, dir: _dir, sample: _sample } = evening();
    let overview = monitor.overview(NOW_MS);
    let line = overview.first_line(80, " · ", &TimeZone::UTC);
    let line: Vec<String> = line.into_iter().map(|part| part.text).collect();
    assert_eq!(
        line.join(" · "),
        "needs you 2 · working 3 · waiting 2 · $19.80 today · next reset 23:40"
    );
    let expected = "\
needs you
? | reset-mail | shop-api | ralph/password-reset | 9/20 | 1h51m | $4.37 | ▃▄▃▅▄▃▆▄▃ | -++--+-+* | Bash(cargo test…) 12s
  Should an expired link answer 410 Gone, or redirect to /reset?  | 5m ago
! | deps-upgrade | billing | deps | 3/10 | 22m | $0.61 | ▅▆▂ | ++- | credentials refused
  codex refused its credentials. Sign in again | 31m ago
working
● | search-index-rewrite-for-facets | catalogue | ralph/search-index | 12/40 | 3h11m | $6.05 | ▄▃▅▆▄▃▄▅▄▃ | +++-+++++* | Edit(…/merge.rs) 3s
● | slugs | docs-site | ralph/slugs | 4/20 | 38m | $1.92 | ▄▆▅▃ | --+* | Bash(make test) 12s
● | flaky-tests | mobile-app | fix/flaky | 2/10 | 9m | $0.48 | ▆▃ | -* | check make test 41s
waiting
○ | docs | docs-site | docs | 6/20 | 1h20m | $1.39 | ▅▄▆▅▄▄ | ++++++ | rate limit, 59m left
= | i18n | shop-web | ralph/i18n | 5/15 | 47m | $0.90 | ▆▆▅▆▄ | +-+++ | paused by you 22:10
done today
✓ | api-errors | shop-api | ralph/api-errors | 8/20 | 2h5m | $3.10 | ▄▄▆▄▃▄▅▄ | ++-+++++ | complete, 6/6 stories
✓ | parser-fix | parser | ralph/parser-fix | 2/10 | 14m | $0.98 | ▆▅ | -+ | complete, checks pass
■ | bench | parser | bench | 10/10 | 1h12m | $2.20 | ▆▆▆▆▆▆▆▆▆▆ | ++++++++++ | iteration limit
";
    assert_eq!(rows(&overview), expected);
    assert_eq!(overview.older, 14);
}

#[test]
fn narrow_columns_keep_seconds_and_the_end_of_paths() {
    let Evening { monitor, sample, dir: _dir } = evening();
    let now =
        |name: &str, room: usize| monitor.card(sample.id(name), NOW_MS).unwrap().now.fit(room, "…");
    assert_eq!(now("reset-mail", 19), "Bash(cargo te…) 12s");
    assert_eq!(now("search-index-rewrite-for-facets", 19), "Edit(…/merge.rs) 3s");
    assert_eq!(now("docs", 19), "limit, 59m left");
    assert_eq!(now("i18n", 19), "paused by you 22:10");
    assert_eq!(now("api-errors", 19), "6/6 stories");
    assert_eq!(now("reset-mail", 60), "Bash(cargo test reset) 12s");
}

#[test]
fn older_runs_are_read_when_they_are_asked_for() {
    let Evening { mut monitor, dir: _dir, sample: _sample } = evening();
    assert_eq!(monitor.overview(NOW_MS).section(SectionKind::Yesterday), []);
    monitor.load_since(NOW_MS - 14 * 86_400_000);
    while monitor.overview(NOW_MS).cards().count() < 24 {
        assert!(monitor.wait(Some(std::time::Duration::from_secs(20))));
        monitor.update();
    }
    let overview = monitor.overview(NOW_MS);
    let yesterday: Vec<String> = overview
        .section(SectionKind::Yesterday)
        .iter()
        .map(|card| format!("{} {} {}", card.sign(), card.name, card.now))
        .collect();
    assert_eq!(
        yesterday,
        [
            "✓ invoice-pdf complete, 4/4 stories",
            "✓ csv-import complete, 9/9 stories",
            "■ types stopped by you",
            "✗ images agent kept failing",
        ]
    );
    assert_eq!(overview.older, 10);
    let seven: f64 = overview.cost_per_day.iter().rev().take(7).map(|day| day.usd).sum();
    assert_eq!(format_dollars(seven), "$106.60");
    assert_eq!(overview.cost_per_day.len(), 14);
}

#[test]
fn diff_of_the_evening_has_the_figures_of_the_design() {
    let dir = tempfile::tempdir().unwrap();
    let (home, src) = (dir.path().join("home"), dir.path().join("src"));
    let sample = sample::write_with_repository(&home, &src).unwrap();
    let monitor = Monitor::open(&home, TimeZone::UTC, NOW_MS).unwrap();
    let run = monitor.state(&sample.reset_mail).unwrap();
    let diff = run_diff(&src.join("shop-api"), run).unwrap();
    let figures = (diff.files.len(), diff.added, diff.removed, diff.commits);
    assert_eq!(figures, (14, 612, 87, 4), "{:?}", diff.files);
    let first = &diff.files[0];
    assert_eq!((first.path.as_str(), first.added, first.removed), ("src/reset/link.rs", 14, 3));
    let hunks = file_diff(&src.join("shop-api"), &diff, first).unwrap().hunks;
    assert_eq!(hunks.len(), 3);
    assert_eq!(hunks[0].old_start, 57);
}

fn line(item: &Item) -> String {
    match &item.kind {
        ItemKind::Iteration { number } => format!("iteration {number}"),
        ItemKind::Text { text, .. } => text.chars().take(40).collect(),
        ItemKind::Tool(tool) => format!("{} {}  {}", tool.status.sign(), tool.text(), tool.note),
        ItemKind::Check(check) => {
            format!("{} {}  {}", check.mark.unwrap().sign(), check.command, check.note)
        }
        ItemKind::Commit { id, subject } => format!("Committed {id} {subject}"),
        ItemKind::Question { text, .. } => format!("asks {text}"),
        ItemKind::You { text, delivered_in, .. } => format!("you {text}  {delivered_in:?}"),
        ItemKind::Claim { stories, failed } => format!("~ {stories:?} {failed:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn transcript_of_the_evening_reads_like_the_design() {
    let Evening { monitor, sample, dir: _dir } = evening();
    let run = monitor.run_dir(&sample.reset_mail).unwrap();
    let directory = &monitor.state(&sample.reset_mail).unwrap().info.directory;
    let window = TranscriptWindow::open(run, directory).unwrap();
    let lines: Vec<String> = window.items().map(line).collect();
    let start = lines.iter().position(|line| line == "iteration 7").unwrap();
    let expected = "\
iteration 7
The form, the handler and the end of oth
✓ make lint  3.1s
✓ make test  41.0s
✗ make e2e  exit code 1, 1m44s
~ [\"US-004\"] [\"make e2e\"]
iteration 8
The second visit finds the token again, 
✓ Edit(src/reset/set.rs)  +6 −4
✓ Bash(cargo test reset)  4.8s
All of US-004 holds now. DONE
✓ make lint  3.1s
✓ make test  41.0s
✓ make e2e  1m52s
Committed 3f2a91c Set a new password with the link
iteration 9
I will look at how links are checked bef
✓ Read(src/reset/link.rs)  118 lines
✓ Read(src/reset/token.rs)  28 lines
✓ Grep(fn verify)  3 lines
Tokens carry their creation time, so the
✓ Edit(src/reset/link.rs)  +14 −3
✗ Bash(cargo test reset::link)  exit code 101, 6.2s
The test expects a status that the story
asks Should an expired link answer 410 Gone, or redirect to /reset?
you Keep the old mail template.  Some(9)
✓ Edit(templates/expired.html)  +22 −0
● Bash(cargo test reset)  ";
    assert_eq!(lines[start..].join("\n"), expected);
    assert_eq!(window.todo().len(), 4);
    let card = monitor.card(&sample.reset_mail, NOW_MS).unwrap();
    let last = card.bars.last().unwrap();
    assert_eq!(last.result, BarResult::Running);
    assert_eq!(last.figures(" · "), "8m54s · $0.21 · 7 tools");
    assert_eq!(card.bars[7].figures(" · "), "12m20s · $0.31 · 24 tools");
}

#[test]
fn stories_and_checks_of_the_evening_tell_claim_from_proof() {
    let Evening { monitor, sample, dir: _dir } = evening();
    let run = monitor.state(&sample.reset_mail).unwrap();
    let dir = monitor.run_dir(&sample.reset_mail).unwrap();
    let list = run_stories(dir, run).unwrap();
    let views = stories(&list, run, true);
    let states: Vec<String> = views
        .iter()
        .map(|it| {
            format!("{} {} {:?} {}", it.state.sign(), it.id, it.proven_in, it.waits_for.join(","))
        })
        .collect();
    assert_eq!(
        states,
        [
            "✓ US-001 Some(2) ",
            "✓ US-002 Some(3) ",
            "✓ US-003 Some(6) ",
            "✓ US-004 Some(8) ",
            "● US-005 None ",
            "○ US-006 None ",
            "◌ US-007 None US-006",
        ]
    );
    let fourth = &views[3];
    let history: Vec<String> = fourth.history.iter().map(Claim::text).collect();
    assert_eq!(
        history,
        ["claimed, but make e2e failed: not counted", "claimed, all checks passed: proven"]
    );
    assert_eq!((&fourth.iterations[..], fourth.duration_ms), (&[7, 8][..], (34 * 60 + 8) * 1000));
    assert_eq!(cost_text(fourth.cost).as_deref(), Some("$0.97"));
    assert_eq!(
        fourth.commits,
        [("3f2a91c".to_owned(), "Set a new password with the link".to_owned())]
    );
    let checks = checks(run);
    let rows: Vec<String> = checks
        .iter()
        .map(|check| {
            let history: String = check.history.iter().map(|mark| mark.sign()).collect();
            format!("{} {history} {} of {}", check.command, check.passed, check.runs)
        })
        .collect();
    assert_eq!(
        rows,
        ["make lint ✓✓✓✓✗✓✓✓· 7 of 8", "make test ✗✓✓✗✗✓✓✓· 5 of 8", "make e2e ✗✓✓✗✗✓✗✓· 4 of 8",]
    );
    let failure = checks[2].last_failure.as_ref().unwrap();
    assert_eq!(failure.iteration, 7);
    let log =
        read_check_log(monitor.run_dir(&sample.reset_mail).unwrap(), &failure.log, 15).unwrap();
    assert_eq!((log.total, log.lines.len()), (47, 15));
    assert_eq!(log.lines[0], "$ npm run --silent e2e");
}
