//! The summary page of an archive.

use std::fmt::Write as _;

use super::{InvalidTaskList, TaskList};

/// The start date in the progress log.
pub fn start_date(progress: &str) -> Option<&str> {
    let line = progress.lines().find_map(|line| line.trim().strip_prefix("Started:"))?;
    Some(line.trim()).filter(|date| !date.is_empty())
}

pub fn render(
    list: &Result<TaskList, InvalidTaskList>,
    started: Option<&str>,
    today: &str,
) -> String {
    let dates = match started {
        Some(started) if started != today => format!("{started} to {today}"),
        _ => today.to_owned(),
    };
    let mut page = String::new();
    let list = match list {
        Ok(list) => list,
        Err(broken) => {
            let _ = write!(page, "# Summary\n\n- Dates: {dates}\n- Stories: unknown, because the ");
            page.push_str("task list could not be read:\n");
            for line in super::first_problems(&broken.problems) {
                let _ = writeln!(page, "  - {}", cell(&line));
            }
            return page;
        }
    };
    let (done, total) = (list.passing_count(), list.stories.len());
    let _ = write!(page, "# Summary: {}\n\n", cell(&list.project));
    if !list.description.trim().is_empty() {
        let _ = write!(page, "{}\n\n", list.description.trim());
    }
    let _ = writeln!(page, "- Stories: {done} of {total} complete");
    let _ = writeln!(page, "- Dates: {dates}");
    let _ = writeln!(page, "- Branch: {}", cell(&list.branch_name));
    if total > 0 {
        page.push_str("\n| Story | Title | Complete | Notes |\n|---|---|---|---|\n");
        for story in &list.stories {
            let complete = if story.passes { "yes" } else { "no" };
            let [id, title, notes] = [&story.id, &story.title, &story.notes].map(|text| cell(text));
            let _ = writeln!(page, "| {id} | {title} | {complete} | {notes} |");
        }
    }
    let replacing: Vec<_> =
        list.stories.iter().filter(|story| !story.replaces.is_empty()).collect();
    if !replacing.is_empty() {
        page.push_str("\nReplaced stories:\n\n");
        for story in replacing {
            let replaced = super::changes::first_few(&story.replaces);
            let _ = writeln!(page, "- {} replaces {}", cell(&story.id), cell(&replaced));
        }
    }
    page
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn task_summary_counts_stories_and_dates() {
        let list = parse(
            br#"{"project": "P", "branchName": "ralph/p", "description": "Does it.", "userStories": [
                {"id": "US-1", "title": "a|b\nc", "passes": true, "priority": 1,
                 "acceptanceCriteria": ["x"], "notes": "done"},
                {"id": "US-2", "title": "t", "passes": false, "priority": 1, "acceptanceCriteria": ["x"]}
            ]}"#,
        );
        assert_eq!(
            render(&list, start_date("# Log\nStarted: 2026-11-10\n"), "2026-11-15"),
            "# Summary: P\n\nDoes it.\n\n- Stories: 1 of 2 complete\n- Dates: 2026-11-10 to 2026-11-15\n\
             - Branch: ralph/p\n\n| Story | Title | Complete | Notes |\n|---|---|---|---|\n\
             | US-1 | a\\|b c | yes | done |\n| US-2 | t | no |  |\n"
        );
        let broken = render(&parse(b"{"), None, "2026-11-15");
        assert!(broken.contains("- Dates: 2026-11-15\n") && broken.contains("not valid JSON"));
    }
}
