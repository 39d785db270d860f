//! Branch and directory names derived from the user's name for the work.

use ralph_events::text;

/// Leaves room in a file name for prefixes and suffixes.
const MAX_CHARS: usize = 60;

/// `ralph/NAME`, reduced to characters that git allows.
pub fn branch_name(name: &str) -> String {
    let name = name.strip_prefix("ralph/").unwrap_or(name);
    let parts: Vec<String> = name.split('/').filter_map(sanitize).collect();
    match parts.is_empty() {
        true => "ralph/work".to_owned(),
        false => format!("ralph/{}", parts.join("/")),
    }
}

/// The name as one path component, without a leading `ralph/`.
pub fn label(name: &str) -> String {
    try_label(name).unwrap_or_else(|| "work".to_owned())
}

/// Like [`label`]; `None` if no character is usable.
pub fn try_label(name: &str) -> Option<String> {
    let name = name.strip_prefix("ralph/").unwrap_or(name);
    sanitize(&name.replace('/', "-"))
}

/// Keeps letters and digits of any language, and `-`, `_`, `.` where git and file systems accept
/// them.
fn sanitize(name: &str) -> Option<String> {
    let mut part = String::new();
    for c in text::prefix(name, 4 * MAX_CHARS).chars() {
        let c = if c.is_alphanumeric() || matches!(c, '_' | '.') { c } else { '-' };
        if !(matches!(c, '.' | '-') && part.ends_with(c)) {
            part.push(c);
        }
    }
    let trim = |part: &str| part.trim_matches(['-', '.']).to_owned();
    let mut part = trim(text::prefix(&trim(&part), MAX_CHARS));
    // Reserved by git.
    while let Some(rest) = part.strip_suffix(".lock") {
        part = trim(rest);
    }
    (!part.is_empty()).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn task_names_become_branches_and_labels() {
        for (name, as_branch, as_label) in [
            ("feature-name", "ralph/feature-name", "feature-name"),
            ("ralph/feature-name", "ralph/feature-name", "feature-name"),
            ("Password reset!", "ralph/Password-reset", "Password-reset"),
            ("a/b c", "ralph/a/b-c", "a-b-c"),
            ("größe 日本", "ralph/größe-日本", "größe-日本"),
            (r#"it's "x" $(y)"#, "ralph/it-s-x-y", "it-s-x-y"),
            ("../../etc/passwd", "ralph/etc/passwd", "etc-passwd"),
            ("v1..2.lock", "ralph/v1.2", "v1.2"),
            ("--force", "ralph/force", "force"),
            ("!!!", "ralph/work", "work"),
            ("", "ralph/work", "work"),
        ] {
            assert_eq!((branch_name(name).as_str(), label(name).as_str()), (as_branch, as_label));
        }
        assert!(label(&"x".repeat(500)).len() <= MAX_CHARS);
    }

    proptest! {
        /// The rules of `git check-ref-format`.
        #[test]
        fn any_task_name_becomes_valid_git_branch(name in "(.|[-./~^:?*@{}\\[ ]|\\.lock){0,20}") {
            let branch = branch_name(&name);
            for bad in ["..", "//", "@{", " ", "~", "^", ":", "?", "*", "[", "\\"] {
                prop_assert!(!branch.contains(bad), "{branch}");
            }
            prop_assert!(!branch.chars().any(char::is_control));
            for part in branch.split('/') {
                prop_assert!(!part.is_empty() && !part.starts_with(['.', '-']), "{branch}");
                prop_assert!(!part.ends_with('.') && !part.ends_with(".lock"), "{branch}");
            }
            let label = label(&name);
            prop_assert!(!label.contains('/') && !label.starts_with('.') && !label.is_empty());
        }
    }
}
