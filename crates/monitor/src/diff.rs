//! What a run has changed: its work tree against the commit that it started from.

use std::path::Path;

use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_events::text;
use ralph_store::project::is_run_time_file;
use ralph_store::safe_fs;
use serde::Serialize;

/// Files that are listed.
pub const MAX_FILES: usize = 2_000;

/// Lines of one file that are shown.
pub const MAX_LINES: usize = 20_000;

/// The changed files of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunDiff {
    /// Those that are not committed come first.
    pub files: Vec<DiffFile>,
    /// Files that are not listed.
    pub omitted: usize,
    pub added: u64,
    pub removed: u64,
    pub commits: usize,
    /// The commit that the run started from; empty in a repository without commits.
    pub base: String,
}

/// A changed file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiffFile {
    pub path: String,
    pub status: FileStatus,
    pub added: u64,
    pub removed: u64,
    pub is_committed: bool,
    pub is_binary: bool,
    pub is_untracked: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    Added,
    #[default]
    Modified,
    Deleted,
}

impl FileStatus {
    pub fn letter(self) -> char {
        match self {
            FileStatus::Added => 'A',
            FileStatus::Modified => 'M',
            FileStatus::Deleted => 'D',
        }
    }
}

/// The changed parts of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    pub hunks: Vec<Hunk>,
    /// Lines that are not shown.
    pub omitted: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hunk {
    pub old_start: u64,
    pub new_start: u64,
    /// Lines of the new file.
    pub new_lines: u64,
    /// The function or section that it is in; may be empty.
    pub section: String,
    pub lines: Vec<DiffLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffLine {
    pub kind: LineKind,
    /// Line numbers in the old and new file.
    pub old: Option<u64>,
    pub new: Option<u64>,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    Context,
    Added,
    Removed,
}

/// Lists the files that a run has changed.
///
/// # Errors
/// There is no repository, or git fails.
pub fn run_diff(directory: &Path, run: &RunState) -> Result<RunDiff, Error> {
    ralph_git::require_repository(directory)?;
    let mut diff = RunDiff {
        commits: run.iterations.iter().map(|record| record.commits.len()).sum(),
        base: run.repository.first_head.clone().filter(|id| is_commit_id(id)).unwrap_or_default(),
        ..RunDiff::default()
    };
    let head = ralph_git::head_commit(directory);
    let mut files = match &head {
        Some(head) => changed_files(directory, &[head])?,
        None => Vec::new(),
    };
    files.extend(untracked_files(directory, &files)?);
    if let Some(head) = head.filter(|head| !diff.base.is_empty() && *head != diff.base) {
        let committed = changed_files(directory, &[&diff.base, &head])?;
        files.extend(committed.into_iter().map(|file| DiffFile { is_committed: true, ..file }));
    }
    diff.added = files.iter().map(|file| file.added).sum();
    diff.removed = files.iter().map(|file| file.removed).sum();
    diff.omitted = files.len().saturating_sub(MAX_FILES);
    files.truncate(MAX_FILES);
    diff.files = files;
    Ok(diff)
}

/// Returns the changes of one file of a [`RunDiff`].
///
/// # Errors
/// As for [`run_diff`].
pub fn file_diff(directory: &Path, diff: &RunDiff, file: &DiffFile) -> Result<FileDiff, Error> {
    let lines = usize::try_from(file.added.saturating_add(file.removed)).unwrap_or(usize::MAX);
    if file.is_binary {
        return Ok(FileDiff::default());
    }
    if lines > MAX_LINES {
        return Ok(FileDiff { hunks: Vec::new(), omitted: lines });
    }
    if file.is_untracked {
        let text = read_work_tree_file(directory, &file.path).unwrap_or_default();
        return Ok(whole_file(&String::from_utf8_lossy(&text)));
    }
    let head = ralph_git::head_commit(directory).unwrap_or_default();
    let range: Vec<&str> = match file.is_committed {
        true => vec![&diff.base, &head],
        false => vec![&head],
    };
    let path = format!(":(top,literal){}", file.path);
    let words: Vec<&str> =
        (DIFF_ARGS.into_iter().chain(["--unified=3"])).chain(range).chain(["--", &path]).collect();
    Ok(parse_hunks(&ralph_git::run_git(&words, directory)?))
}

/// Nothing that a repository names is executed, and large files count as binary.
const DIFF_ARGS: [&str; 7] = [
    "-c",
    "core.bigFileThreshold=4m",
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-color",
];

/// Larger files that are in no commit count as binary.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Characters of a line.
const MAX_COLUMNS: usize = 500;

fn is_commit_id(id: &str) -> bool {
    matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn changed_files(directory: &Path, range: &[&str]) -> Result<Vec<DiffFile>, Error> {
    let words: Vec<&str> = (DIFF_ARGS.into_iter().chain(["--raw", "--numstat", "-z"]))
        .chain(range.iter().copied())
        .chain(["--"])
        .collect();
    Ok(parse_changes(&ralph_git::run_git(&words, directory)?))
}

/// Parses `git diff --raw --numstat -z`: first a state for each path, then its figures.
fn parse_changes(output: &str) -> Vec<DiffFile> {
    let mut files: Vec<DiffFile> = Vec::new();
    let mut fields = output.split('\0');
    while let Some(field) = fields.next() {
        if let Some(raw) = field.strip_prefix(':') {
            let status = match raw.rsplit(' ').next() {
                Some("A") => FileStatus::Added,
                Some("D") => FileStatus::Deleted,
                _ => FileStatus::Modified,
            };
            let path = fields.next().unwrap_or_default().to_owned();
            if !is_run_time_file(&path) {
                files.push(DiffFile { path, status, ..DiffFile::default() });
            }
            continue;
        }
        let mut figures = field.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) =
            (figures.next(), figures.next(), figures.next())
        else {
            continue;
        };
        if let Some(file) = files.iter_mut().find(|file| file.path == path) {
            file.is_binary = added == "-";
            file.added = added.parse().unwrap_or(0);
            file.removed = removed.parse().unwrap_or(0);
        }
    }
    files
}

/// Files that git does not know count as added.
fn untracked_files(directory: &Path, known: &[DiffFile]) -> Result<Vec<DiffFile>, Error> {
    let mut paths = ralph_git::list_uncommitted_recursive(directory)?;
    paths.retain(|path| !path.ends_with('/') && known.iter().all(|file| file.path != *path));
    let file = |path: String| {
        let bytes = read_work_tree_file(directory, &path);
        let is_binary = bytes.as_ref().is_none_or(|bytes| memchr::memchr(0, bytes).is_some());
        let bytes = bytes.filter(|_| !is_binary).unwrap_or_default();
        DiffFile {
            status: FileStatus::Added,
            added: bytes.split_inclusive(|byte| *byte == b'\n').count() as u64,
            is_binary,
            is_untracked: true,
            path,
            ..DiffFile::default()
        }
    };
    Ok(paths.into_iter().take(MAX_FILES).map(file).collect())
}

/// Reads a file by its path in the work tree. `None` if it is too large, gone, or leads out of the tree.
fn read_work_tree_file(directory: &Path, path: &str) -> Option<Vec<u8>> {
    let root = ralph_git::repository_dirs(directory).into_iter().next()?;
    safe_fs::read_within(&root, &root.join(path), MAX_FILE_BYTES).ok()
}

fn whole_file(text: &str) -> FileDiff {
    let mut hunk = Hunk { new_start: 1, ..Hunk::default() };
    let mut lines = text.lines();
    for (line, number) in lines.by_ref().take(MAX_LINES).zip(1..) {
        hunk.push(LineKind::Added, None, Some(number), line);
    }
    hunk.new_lines = hunk.lines.len() as u64;
    FileDiff { hunks: vec![hunk], omitted: lines.count() }
}

/// Parses the hunks of a unified diff of one file.
fn parse_hunks(diff: &str) -> FileDiff {
    let mut file = FileDiff::default();
    let (mut old, mut new, mut shown) = (0, 0, 0);
    for line in diff.lines() {
        if let Some(hunk) = parse_hunk_head(line) {
            (old, new) = (hunk.old_start, hunk.new_start);
            file.hunks.push(hunk);
            continue;
        }
        let Some(hunk) = file.hunks.last_mut() else { continue };
        let (kind, text) = match line.split_at_checked(1) {
            Some(("+", text)) => (LineKind::Added, text),
            Some(("-", text)) => (LineKind::Removed, text),
            Some((" ", text)) => (LineKind::Context, text),
            _ => continue,
        };
        let old_number = (kind != LineKind::Added).then_some(old);
        let new_number = (kind != LineKind::Removed).then_some(new);
        old += u64::from(old_number.is_some());
        new += u64::from(new_number.is_some());
        if shown == MAX_LINES {
            file.omitted += 1;
            continue;
        }
        shown += 1;
        hunk.push(kind, old_number, new_number, text);
    }
    file
}

/// `@@ -58,7 +58,12 @@ impl Link`
fn parse_hunk_head(line: &str) -> Option<Hunk> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, section) = rest.split_once(" @@")?;
    let range = |range: &str| -> Option<(u64, u64)> {
        let (start, lines) = range.split_once(',').unwrap_or((range, "1"));
        Some((start.parse().ok()?, lines.parse().ok()?))
    };
    let ((old_start, _), (new_start, new_lines)) = (range(old)?, range(new)?);
    let section = clean(section.trim());
    Some(Hunk { old_start, new_start, new_lines, section, lines: Vec::new() })
}

impl Hunk {
    fn push(&mut self, kind: LineKind, old: Option<u64>, new: Option<u64>, text: &str) {
        self.lines.push(DiffLine { kind, old, new, text: clean(text) });
    }
}

fn clean(text: &str) -> String {
    strip_control_chars(&text::truncate(text, MAX_COLUMNS, "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_number_old_and_new_lines() {
        let diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -58,3 +58,4 @@ impl Link\n keep\n-- old\n+ new\n+\x1b[31mred\n last\n\\ No newline at end of file\n@@ -90 +91 @@\n-a\n+b\n";
        let file = parse_hunks(diff);
        let shown: Vec<String> = file.hunks[0]
            .lines
            .iter()
            .map(|line| format!("{:?} {:?} {:?} {}", line.kind, line.old, line.new, line.text))
            .collect();
        assert_eq!(
            shown,
            [
                "Context Some(58) Some(58) keep",
                "Removed Some(59) None - old",
                "Added None Some(59)  new",
                "Added None Some(60) red",
                "Context Some(60) Some(61) last",
            ]
        );
        assert_eq!(file.hunks[0].section, "impl Link");
        assert_eq!((file.hunks[1].old_start, file.hunks[1].new_start), (90, 91));
    }
}
