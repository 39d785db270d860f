//! The text that a tool call changes in a file.

use super::{SUMMARY_CHARS, one_line};
use crate::json::RawJson;
use ralph_events::event::FileEdit;
use ralph_events::text;

/// Limit for each of the two texts.
const EDIT_CHARS: usize = 2000;

pub(super) fn from_tool_call(tool: &str, input: RawJson<'_>) -> Option<FileEdit> {
    let mut edit = FileEdit::default();
    match tool {
        "Edit" | "edit" | "edit_file" | "editor" | "replace" | "Write" | "write" | "write_file"
        | "create" | "create_file" | "NotebookEdit" => add_replacement(&mut edit, input),
        "MultiEdit" => {
            input.member("edits").for_each_element(|part| add_replacement(&mut edit, part))?;
        }
        "apply_patch" => add_patch(&mut edit, &input.member("patchText").text()),
        _ => return None,
    }
    (edit.removed + edit.added > 0).then_some(edit)
}

fn add_replacement(edit: &mut FileEdit, input: RawJson<'_>) {
    let (mut old, mut new) = (RawJson::default(), RawJson::default());
    let _ = input.for_each_member(|key, value| match key {
        b"old_string" | b"oldString" | b"old_str" | b"old_text" => old = value,
        b"new_string" | b"newString" | b"new_str" | b"new_text" | b"content" | b"file_text"
        | b"new_source" => new = value,
        _ => {}
    });
    add(edit, &old.text(), &new.text());
}

/// The files that a patch names, in one line.
pub(super) fn patched_files(input: RawJson<'_>) -> Option<String> {
    let patch = input.member("patchText").text();
    let files =
        patch.lines().filter_map(|line| Some(line.strip_prefix("*** ")?.split_once(" File: ")?.1));
    let files = files.take(SUMMARY_CHARS).collect::<Vec<_>>().join(", ");
    (!files.is_empty()).then(|| one_line(&files))
}

/// Reads `*** Begin Patch`. Unchanged lines separate the changes.
fn add_patch(edit: &mut FileEdit, patch: &str) {
    let (mut old, mut new) = (String::new(), String::new());
    for line in patch.split_inclusive('\n') {
        if let Some(line) = line.strip_prefix('-') {
            old.push_str(line);
        } else if let Some(line) = line.strip_prefix('+') {
            new.push_str(line);
        } else {
            add(edit, &std::mem::take(&mut old), &std::mem::take(&mut new));
        }
    }
    add(edit, &old, &new);
}

fn add(edit: &mut FileEdit, old: &str, new: &str) {
    let lines = |text| str::split_inclusive(text, '\n');
    let (old_start, new_start) = shared_bytes(lines(old), lines(new));
    let (old, new) = (&old[old_start..], &new[new_start..]);
    let (old_end, new_end) = shared_bytes(lines(old).rev(), lines(new).rev());
    let (old, new) = (&old[..old.len() - old_end], &new[..new.len() - new_end]);
    edit.removed += lines(old).count() as u64;
    edit.added += lines(new).count() as u64;
    push_bounded(&mut edit.old, old);
    push_bounded(&mut edit.new, new);
}

/// The size of the lines that both begin with, in each. A missing newline at the end makes no difference.
fn shared_bytes<'t>(
    old: impl Iterator<Item = &'t str>,
    new: impl Iterator<Item = &'t str>,
) -> (usize, usize) {
    old.zip(new)
        .take_while(|(old, new)| old.trim_end_matches('\n') == new.trim_end_matches('\n'))
        .fold((0, 0), |sum, (old, new)| (sum.0 + old.len(), sum.1 + new.len()))
}

/// Appends whole lines, or the beginning of the first if it is too long.
fn push_bounded(kept: &mut String, lines: &str) {
    if !lines.is_empty() && !kept.is_empty() && !kept.ends_with('\n') {
        kept.push('\n');
    }
    let head = text::prefix(lines, EDIT_CHARS.saturating_sub(kept.chars().count()));
    let end = match head.rfind('\n') {
        Some(end) if head.len() < lines.len() => end + 1,
        None if head.len() < lines.len() && !kept.is_empty() => 0,
        _ => head.len(),
    };
    kept.push_str(&head[..end]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn edit(tool: &str, input: &Value) -> Option<FileEdit> {
        from_tool_call(tool, RawJson::from_document(input.to_string().as_bytes()))
    }

    #[test]
    fn edits_of_every_agent_carry_changed_lines() {
        let patch = "*** Begin Patch\n*** Add File: n\n+1\n*** Update File: m\n@@\n a\n-b\n+c\n d\n-e\n*** End Patch\n";
        for (tool, input, (old, new), (removed, added)) in [
            // claude
            (
                "Edit",
                json!({"file_path": "f", "old_string": "a\nb\nc", "new_string": "a\nB\nc"}),
                ("b\n", "B\n"),
                (1, 1),
            ),
            ("Edit", json!({"old_string": "a", "new_string": "a\nb"}), ("", "b"), (0, 1)),
            ("Edit", json!({"old_string": "a\n\nb\n", "new_string": "a\nb\n"}), ("\n", ""), (1, 0)),
            ("Write", json!({"file_path": "f", "content": "x\ny\n"}), ("", "x\ny\n"), (0, 2)),
            (
                "MultiEdit",
                json!({"edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}]}),
                ("a\nc", "b"),
                (2, 1),
            ),
            ("NotebookEdit", json!({"new_source": "print()"}), ("", "print()"), (0, 1)),
            // amp, gemini, copilot, cline, opencode
            ("edit_file", json!({"path": "f", "old_str": "a", "new_str": "b"}), ("a", "b"), (1, 1)),
            ("replace", json!({"old_string": "a", "new_string": "b"}), ("a", "b"), (1, 1)),
            ("create", json!({"path": "f", "file_text": "a"}), ("", "a"), (0, 1)),
            (
                "editor",
                json!({"old_text": null, "new_text": "a", "insert_line": 3}),
                ("", "a"),
                (0, 1),
            ),
            (
                "edit",
                json!({"filePath": "f", "oldString": "a", "newString": "b"}),
                ("a", "b"),
                (1, 1),
            ),
            ("apply_patch", json!({"patchText": patch}), ("b\ne\n", "1\nc\n"), (2, 2)),
        ] {
            let (old, new) = (old.to_owned(), new.to_owned());
            assert_eq!(edit(tool, &input), Some(FileEdit { old, new, removed, added }), "{input}");
        }
        for (tool, input) in [
            ("Edit", json!({"old_string": "a", "new_string": "a"})),
            ("Edit", json!({"old_string": 7})),
            ("Edit", json!(null)),
            ("MultiEdit", json!({"edits": "?"})),
            ("Read", json!({"content": "a"})),
        ] {
            assert_eq!(edit(tool, &input), None, "{input}");
        }
    }

    #[test]
    fn patch_is_summarized_by_its_files() {
        let files = |patch: &str| {
            patched_files(RawJson::from_document(
                json!({"patchText": patch}).to_string().as_bytes(),
            ))
        };
        let patch = "*** Begin Patch\n*** Add File: a.rs\n+x\n*** Delete File: b c.rs\n";
        assert_eq!(files(patch).as_deref(), Some("a.rs, b c.rs"));
        assert_eq!(files("x"), None);
    }

    #[test]
    fn long_edit_is_cut_at_line_end() {
        let old = "é".repeat(3000);
        let new = "123456789\n".repeat(1000);
        let edit = edit("Edit", &json!({"old_string": old, "new_string": new})).unwrap();
        assert_eq!((edit.removed, edit.added), (1, 1000));
        assert_eq!(edit.old, "é".repeat(EDIT_CHARS), "there is no other place to cut");
        assert_eq!(edit.new, "123456789\n".repeat(200));
    }
}
