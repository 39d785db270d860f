//! The text output of `ralph tasks`.

use std::fmt::Write as _;

use ralph_events::control_chars::ControlCharFilter;
use ralph_events::text;
use ralph_report::table;
use ralph_report::width;
use ralph_tasks::order::{self, StoryStatus};
use ralph_tasks::{Story, TaskList};

const MAX_WAITS: usize = 3;
const MAX_ID: usize = 24;
const MAX_TITLE: usize = 120;

/// One row per story, cut to `room` columns. `gone` stories were removed but are still owed.
pub fn table(list: &TaskList, gone: usize, name: &str, room: Option<usize>) -> String {
    let mut out = String::new();
    let project = sanitize(&list.project, MAX_TITLE);
    let (done, total) = (list.passing_count(), list.stories.len() + gone);
    let project = if project.is_empty() { String::new() } else { format!("{project}: ") };
    if total == 0 {
        let _ = writeln!(out, "{project}no stories in {name} yet; add one with `ralph tasks add`");
        return out;
    }
    let _ = writeln!(out, "{project}{} ({name})\n", progress_text(done, total));
    let rows: Vec<[String; 3]> = list
        .stories
        .iter()
        .zip(order::story_statuses(list))
        .map(|(story, status)| {
            let state = match status {
                StoryStatus::Passes => "passes".to_owned(),
                StoryStatus::Next => "next".to_owned(),
                StoryStatus::Ready => "ready".to_owned(),
                StoryStatus::Blocked(blockers) => blocked_by(&blockers),
            };
            let mark = if state == "next" { '>' } else { ' ' };
            let id = format!("{mark} {}", sanitize(&story.id, MAX_ID));
            [id, state, sanitize(&story.title, MAX_TITLE)]
        })
        .collect();
    out + &table::format_plain(&rows, room)
}

pub fn progress_text(done: usize, total: usize) -> String {
    match total {
        1 => format!("{done} of 1 story passes"),
        _ => format!("{done} of {total} stories pass"),
    }
}

fn blocked_by(blockers: &[&str]) -> String {
    let ids: Vec<String> = blockers.iter().map(|id| sanitize(id, MAX_ID)).collect();
    format!("waits for {}", text::first_few(&ids, MAX_WAITS))
}

pub fn story_text(story: &Story) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}  {}", sanitize(&story.id, MAX_ID), sanitize(&story.title, MAX_TITLE));
    let passes = if story.passes { "passes" } else { "does not pass yet" };
    let _ = writeln!(out, "priority {}, {passes}", story.priority);
    for (label, ids) in [("depends on", &story.depends_on), ("replaces", &story.replaces)] {
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(|id| sanitize(id, MAX_ID)).collect();
            let _ = writeln!(out, "{label} {}", ids.join(", "));
        }
    }
    paragraph("", &story.description, &mut out);
    out.push_str("\nAcceptance criteria:\n");
    for criterion in &story.acceptance_criteria {
        let _ = writeln!(out, "- {}", sanitize(criterion, usize::MAX / 8));
    }
    paragraph("Notes:\n", &story.notes, &mut out);
    out
}

fn paragraph(title: &str, text: &str, out: &mut String) {
    let mut scratch = String::new();
    let text = ControlCharFilter::default().filter(text.trim(), &mut scratch).to_owned();
    if !text.is_empty() {
        let _ = write!(out, "\n{title}{text}\n");
    }
}

/// Agents write these texts: they must not contain terminal escapes.
fn sanitize(text: &str, max: usize) -> String {
    width::one_line(text, max, "...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_tasks::parse;
    use serde_json::{Value, json};

    fn one(id: &str, title: &str, passes: bool, after: &[&str]) -> Value {
        json!({
            "id": id, "title": title, "passes": passes, "notes": "n", "priority": 1,
            "acceptanceCriteria": ["a"], "dependsOn": after,
        })
    }

    #[test]
    fn story_list_is_aligned_sanitized_and_fits_width() {
        let list = json!({
            "project": "Shop", "branchName": "b", "description": "", "userStories": [
                one("US-1", "Prices \u{1b}[31mred\nsecond line", true, &[]),
                one("US-10", "日本", false, &["US-1"]),
                one("US-3", "After", false, &["US-10", "US-1"]),
                one("US-4", "Also", false, &[]),
            ],
        });
        let list = parse(list.to_string().as_bytes()).unwrap();
        let whole = table(&list, 0, "ralph/tasks.json", None);
        assert_eq!(
            whole,
            "\
Shop: 1 of 4 stories pass (ralph/tasks.json)

  US-1   passes           Prices red second line
> US-10  next             日本
  US-3   waits for US-10  After
  US-4   ready            Also
"
        );
        for line in table(&list, 0, "t", Some(20)).lines().skip(2) {
            assert!(width::display_width(line) <= 20, "{line}");
        }
        assert!(table(&list, 2, "t", None).starts_with("Shop: 1 of 6 stories pass (t)"));
        assert_eq!(progress_text(0, 1), "0 of 1 story passes");
    }
}
