//! The changes of a run, uncommitted ones first.

use maud::{Markup, html};
use ralph_monitor::diff::{DiffFile, FileDiff, FileStatus, LineKind, RunDiff};

use super::signs::plural;

/// Files whose changes are shown without asking for each.
pub(crate) const OPEN_FILES: usize = 40;
/// Lines of all files together.
pub(crate) const MAX_LINES: usize = 3000;

/// A file, and its changes if the page shows them.
pub(crate) struct FilePart {
    pub file: DiffFile,
    pub diff: Option<FileDiff>,
}

pub(crate) fn body(
    diff: &RunDiff,
    files: &[FilePart],
    is_over: bool,
    file_link: impl Fn(&DiffFile) -> String,
) -> Markup {
    let (committed, open): (Vec<&FilePart>, Vec<&FilePart>) =
        files.iter().partition(|part| part.file.is_committed);
    if files.is_empty() {
        return none("This run has changed nothing so far.");
    }
    html! {
        h2 class="vh" { "Diff" }
        @if is_over { p class="sub nothing" { "The work tree as it is now. It may have changed since the run ended." } }
        @if !open.is_empty() {
            h2 { "Not committed" @if !is_over { " yet" } }
            div class="tools" { @for (at, part) in open.iter().enumerate() { (file(part, at == 0, &file_link)) } }
        }
        @if !committed.is_empty() {
            h2 { "Committed " span class="sub" { (plural(diff.commits, "commit")) " since the start" } }
            div class="tools" {
                @for (at, part) in committed.iter().enumerate() { (file(part, open.is_empty() && at == 0, &file_link)) }
            }
        }
        @if diff.omitted > 0 { p class="sub" { "and " (plural(diff.omitted, "more file")) } }
    }
}

pub(crate) fn none(text: &str) -> Markup {
    html! { h2 class="vh" { "Diff" } p class="sub nothing" { (text) } }
}

fn file(part: &FilePart, is_open: bool, link: &impl Fn(&DiffFile) -> String) -> Markup {
    let FilePart { file, diff } = part;
    let letter = file.status.letter();
    let word = match file.status {
        FileStatus::Added => "added",
        FileStatus::Modified => "changed",
        FileStatus::Deleted => "deleted",
    };
    let key = crate::assets::checksum(format!("{} {}", file.is_committed, file.path).as_bytes());
    html! {
        details class="tl" id={ "f" (format!("{key:08x}")) } open[is_open] {
            summary {
                span class={ "fk " (letter) } aria-label=(word) role="img" { (letter) }
                code title=(file.path) { (file.path) }
                span class="n" {
                    @if file.added > 0 { span class="dd" { "+" (file.added) } }
                    @if file.removed > 0 { " " span class="ff" { "−" (file.removed) } }
                }
            }
            @match diff {
                Some(diff) => (changes(diff, file, link)),
                None if file.is_binary => p class="sub cut" { "A binary file." },
                None => a class="more" href=(link(file)) { "Show the changes" },
            }
        }
    }
}

pub(crate) fn changes(
    diff: &FileDiff,
    file: &DiffFile,
    link: &impl Fn(&DiffFile) -> String,
) -> Markup {
    html! {
        pre class="df" tabindex="0" {
            @for hunk in &diff.hunks {
                span class="hk" { "@@ " (hunk.new_start) "," (hunk.new_lines) " @@ " (hunk.section) }
                @for line in &hunk.lines {
                    @match line.kind {
                        LineKind::Added => span class="add" { "+" (line.text) },
                        LineKind::Removed => span class="del" { "-" (line.text) },
                        LineKind::Context => span { " " (line.text) },
                    }
                }
            }
        }
        @if diff.omitted > 0 {
            a class="more" href=(link(file)) { "Show " (plural(diff.omitted, "more line")) }
        }
    }
}
