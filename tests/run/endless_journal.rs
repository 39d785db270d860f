//! A journal whose last line is endless, as an agent could leave it.

use serde_json::json;

use crate::run;
use crate::support::Project;

#[test]
fn journal_with_endless_line_is_read_in_bounded_memory() {
    let project = Project::new();
    run(&project, &["-p", "x", "-n", "1"], &json!([{"print": "not yet"}])).run().code(1);
    let journal = project.newest_run().join("events.jsonl");
    for command in [
        &["runs"][..],
        &["report"],
        &["replay"],
        &["resume", "-n", "2"],
        &["run", "-p", "x", "--", "robot"],
    ] {
        Project::append_endless_line(&journal);
        let output = project.ralph_with_memory_limit(400, command).run();
        output.stderr_lacks("panicked").stderr_lacks("memory");
        assert!(matches!(output.status.code(), Some(0..=2)), "{command:?}: {output:?}");
    }
}
