//! Endless output of agents and guardrails does not fill the disk.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::DONE;
use crate::support::Project;

fn on_disk(run: &Path) -> u64 {
    let files = fs::read_dir(run).expect("a run");
    files.map(|file| file.expect("a file").metadata().expect("a file").len()).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn output_flood_is_counted_and_its_end_kept() {
    let project = Project::git();
    project.settings(&json!({"runs": {"maxJournalMegabytes": 1, "maxRawMegabytes": 1}}));
    let agent = project.fake_agent(&json!({"sessions": [
        [{"print": "first words"}, {"lines_megabytes": 8}, {"print": "last words"}],
        [{"print": "quiet"}],
        [{"lines_megabytes": 8}, {"print": DONE}],
    ]}));
    let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
    output.code(0).stdout_has("first words").stdout_has("last words").stdout_has("quiet");
    output.stdout_has("left out: more than the journal has room for (runs.maxJournalMegabytes)");
    assert!(output.stdout.len() < 2_000_000, "shown: {}", output.stdout.len());
    assert!(on_disk(&project.newest_run()) < 2_500_000, "{}", on_disk(&project.newest_run()));

    let events = project.events();
    assert_eq!(events.find("run_ended")["outcome"], "complete");
    let omissions = events.all("left_out");
    let of = |iteration: u64| {
        omissions
            .iter()
            .rev()
            .find(|event| event["iteration"] == iteration)
            .map(|e| number(&e["bytes"]))
    };
    assert!(of(1).is_some_and(|bytes| bytes > 6_000_000), "{omissions:?}");
    assert_eq!(of(2), None);
    assert!(of(3).is_some_and(|bytes| bytes > 6_000_000), "{omissions:?}");
    let replay = project.ralph(["replay"]).run();
    replay.code(0).stdout_has("last words").stdout_has("left out: more than");
    project.ralph(["report"]).run().code(0).stdout_has("were left out of the journal");
}

#[test]
fn resumed_run_gets_only_remaining_journal_quota() {
    let project = Project::git();
    project.settings(&json!({"runs": {"maxJournalMegabytes": 1}}));
    let agent = project.fake_agent(&json!([{"lines_megabytes": 3}]));
    project.ralph(["run", "-n", "1", "-p", "x", "--"]).args(agent).run().code(1);
    for limit in 2..=8 {
        project.ralph(["resume", "-n", &limit.to_string()]).run().code(1);
    }
    let journal = project.newest_run().join("events.jsonl");
    let size = fs::metadata(journal).expect("a journal").len();
    assert!((900_000..1_600_000).contains(&size), "{size}");
}

#[test]
fn endless_guardrail_output_is_bounded_in_log() {
    let project = Project::git();
    project.settings(&json!({
        "runs": {"maxRawMegabytes": 1},
        "guardrails": [{"command": "yes; true", "timeoutSeconds": 1}],
    }));
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    project.ralph(["run", "-n", "1", "-p", "x", "--"]).args(agent).run().code(1);
    let log = project.path().join(".ralph/guardrail_001_yes_true.log");
    let text = fs::read_to_string(log).expect("a log");
    assert!(text.len() < 1_100_000, "{}", text.len());
    assert!(text.ends_with("later output is not logged\n"), "{:?}", &text[text.len() - 200..]);
}
