//! Asks git for the state of a work tree, and parses the answer.

use ralph_store::project::is_run_time_file;

pub const PROGRAM: &str = "git";

/// Runs no program that the repository names, and takes no lock. Paths start at the repository's
/// root.
pub const STATUS_ARGS: [&str; 6] = [
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
];

/// Conflicts in the whole repository, whichever part of it the project is.
pub const UNMERGED_ARGS: [&str; 5] = ["ls-files", "--unmerged", "-z", "--full-name", ":/"];

/// Each file once. Ignores any other output.
pub fn parse_unmerged(output: &str) -> Vec<&str> {
    let mut files: Vec<&str> = output
        .split('\0')
        .filter_map(|entry| {
            let (state, file) = entry.split_once('\t')?;
            // Mode, object, stage.
            matches!(state.rsplit(' ').next(), Some("1" | "2" | "3")).then_some(file)
        })
        .collect();
    files.dedup();
    files
}

/// A status line, and its file if the line does not cover the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRecord<'a> {
    pub line: &'a str,
    pub file: Option<&'a str>,
}

/// Skips ralph's own files.
pub fn parse_records(status: &str) -> impl Iterator<Item = StatusRecord<'_>> {
    let mut fields = status.split('\0');
    std::iter::from_fn(move || {
        loop {
            let line = fields.next()?;
            let kind = line.split(' ').next().unwrap_or_default();
            // Words before the path.
            let words = match kind {
                "1" => 8,
                "2" => 9,
                "u" => 10,
                "?" => 1,
                "#" if line.starts_with("# branch.oid") || line.starts_with("# branch.head") => {
                    return Some(StatusRecord { line, file: None });
                }
                _ => continue,
            };
            if kind == "2" {
                fields.next();
            }
            match line.splitn(words + 1, ' ').nth(words) {
                Some(file) if !is_run_time_file(file) => {
                    return Some(StatusRecord { line, file: Some(file) });
                }
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_status_files_are_listed_without_own_files() {
        let status = "# branch.oid 1234\0# branch.head main\0# branch.ab +1 -0\0\
            1 .M N... 100644 100644 100644 aa bb src/a b.rs\0\
            2 R. N... 100644 100644 100644 aa bb R100 new\0old\0\
            u UU N... 100644 100644 100644 100644 aa bb cc both\0\
            ? .ralph/guardrail_001_x.log\0? .ralph/runs/x\0? fresh file\0";
        let files: Vec<Option<&str>> = parse_records(status).map(|record| record.file).collect();
        let expected =
            [None, None, Some("src/a b.rs"), Some("new"), Some("both"), Some("fresh file")];
        assert_eq!(files, expected);
        assert_eq!(parse_records("").count(), 0);
        assert_eq!(parse_records("1 short\0\0?\0").count(), 0);
    }

    #[test]
    fn conflicted_file_is_listed_once() {
        let output = "warning: something else\n100644 aa 1\ta b|100644 bb 2\ta b|100644 cc 3\ta b|\
            100644 aa 2\tours|100644 aa 3\tdir/theirs|";
        let output = output.replace('|', "\0");
        assert_eq!(parse_unmerged(&output), ["a b", "ours", "dir/theirs"]);
        for nothing in ["", "warning: a\tb\n", "100644 aa 0\tmerged\0"] {
            assert_eq!(parse_unmerged(nothing), [""; 0], "{nothing}");
        }
    }
}
