//! Runs the command lines of the documentation, with a scripted agent in place of real ones.
//!
//! The `sh` blocks of a page are one script, run in a project of its own. After `sh`, a fence may say
//!
//! - `norun:REASON`: not run, only counted (needs a terminal, the network, or minutes)
//! - `fails`: must exit with an error
//! - `needs:sandbox`: only run where a sandbox works
//!
//! Commands in a comment `<!-- before: … -->` run before the block that follows it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::support::{Project, skipped};
use crate::{Block, blocks, pages, root};

/// The run that [`prepare`] makes is called this in the pages.
const EXAMPLE_RUN: &str = "20261115-202752-7f3a";

/// Blocks that are not run, in all pages together.
const MOST_NOT_RUN: usize = 8;

#[derive(Default)]
struct Counts {
    ralph: usize,
    others: usize,
    not_run: usize,
}

#[test]
fn every_documented_command_line_runs() {
    let has_sandbox = has_working_sandbox();
    let counts = Mutex::new(Counts::default());
    let is_run = |page: &PathBuf| page.starts_with("docs/src") || page == Path::new("README.md");
    let queue = Mutex::new(pages().into_iter().filter(is_run));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // The lock must not be held while the page runs.
                let next = || queue.lock().unwrap().next();
                while let Some(page) = next() {
                    run_page(&page, has_sandbox, &counts);
                }
            });
        }
    });
    let Counts { ralph, others, not_run } = counts.into_inner().unwrap();
    report(&format!("run: {ralph} lines of ralph, {others} others; not run: {not_run} lines"));
    assert!(ralph > 60, "only {ralph} command lines were found");
}

#[expect(clippy::print_stderr, reason = "what the test runner shows of a test")]
fn report(line: &str) {
    eprintln!("{line}");
}

fn has_working_sandbox() -> bool {
    let project = Project::new();
    let works = project.ralph(["sandbox", "shell", "--", "true"]).run().status.success();
    if !works {
        skipped("command lines of the documentation with --sandbox: no sandbox works here");
    }
    works
}

fn run_page(page: &Path, has_sandbox: bool, counts: &Mutex<Counts>) {
    let mut script = String::from("set -euxo pipefail\n");
    let mut is_empty = true;
    for block in blocks(page) {
        let (language, mark) = block.language.split_once(' ').unwrap_or((&block.language, ""));
        let Some(commands) = commands(language, &block) else { continue };
        let (ralph, others) = count(&commands);
        let mut counts = counts.lock().unwrap();
        if mark.starts_with("norun:") || (mark == "needs:sandbox" && !has_sandbox) {
            counts.not_run += ralph + others;
            continue;
        }
        counts.ralph += ralph;
        counts.others += others;
        is_empty = false;
        writeln!(script, ": '{}, line {}'\n{}", page.display(), block.line, block.before).unwrap();
        if mark == "fails" {
            writeln!(script, "if\n{commands}\nthen exit 99; fi").unwrap();
        } else {
            script.push_str(&commands);
        }
    }
    if is_empty {
        return;
    }
    let project = Project::new();
    let script = prepare(&project, page, &script);
    let shell = project.program("bash", ["-c", &script]).deadline(Duration::from_secs(180));
    let shell = shell.env("RALPH_TMUX_SOCKET", project.sibling("tmux.sock"));
    shell.env("GITHUB_STEP_SUMMARY", project.sibling("summary.md")).run().code(0);
}

/// The commands of a block, without a console's output and the rest of a workflow.
fn commands(language: &str, block: &Block) -> Option<String> {
    let lines = block.text.lines();
    let chosen: Vec<&str> = match language {
        "sh" => lines.collect(),
        "console" => lines.filter_map(|line| line.strip_prefix("$ ")).collect(),
        "yaml" => lines
            .map(|line| line.trim_start_matches([' ', '-']).trim_start_matches("run: "))
            .filter(|line| line.starts_with("ralph "))
            .collect(),
        _ => return None,
    };
    Some(chosen.join("\n") + "\n")
}

/// Lines that run ralph, and others. Continuations and here-documents belong to their first line.
fn count(commands: &str) -> (usize, usize) {
    let (mut ralph, mut others, mut is_inside, mut continues) = (0, 0, false, false);
    for line in commands.lines() {
        let is_start = !is_inside && !continues && !line.trim().is_empty();
        let runs_ralph = |part: &str| {
            let is_assignment = |word: &&str| word.starts_with("RALPH_");
            part.split_whitespace().find(|word| !is_assignment(word)) == Some("ralph")
        };
        match line.split('|').any(runs_ralph) {
            true if !is_inside => ralph += 1,
            _ => others += usize::from(is_start && !line.starts_with('#') && !line.ends_with('|')),
        }
        continues = line.ends_with('\\') || line.ends_with('|');
        is_inside = if is_inside { line != "EOF" } else { line.contains("<<'EOF'") };
    }
    (ralph, others)
}

/// A repository with what the pages take for granted, the agents on the `PATH`, and a run that
/// failed. Returns the script with the id of that run.
fn prepare(project: &Project, page: &Path, script: &str) -> String {
    let bin = project.sibling("bin");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ralph"), bin.join("ralph")).unwrap();
    let is_missing = |name: &&str| Command::new(name).arg("--version").output().is_err();
    for name in ["claude", "codex"].into_iter().chain(["jq", "make"].into_iter().filter(is_missing))
    {
        copy_agent(&bin.join(name));
    }
    // A tutorial starts from nothing.
    if page.starts_with("docs/src/tutorial") {
        return script.to_owned();
    }
    project.git_init();
    project.write("PROMPT.md", "Do it. Answer <response>DONE</response> when it is done.\n");
    project.write("audit.md", "Audit it. Answer <promise>COMPLETE</promise> in the end.\n");
    for name in ["DOCS.md", "TESTS.md"] {
        project.write(name, "Do a task. If none is left, say: All tasks complete\n");
    }
    project.write("specs/README.md", "It works.\n").write("Makefile", "test lint:\n\t@true\n");
    project.write(".gitignore", "/my-agent\n");
    copy_agent(&project.path().join("my-agent"));
    project.git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "Begin"]);
    let run = ["run", "-f", "PROMPT.md", "--name", "first", "--", "claude"];
    project.ralph(run).env("AGENT_FAILS", "1").env("RALPH_RETRY__MAX", "0").run().code(4);
    let run = project.newest_run();
    let id = run.file_name().unwrap().to_str().unwrap();
    let (start, end) = (&EXAMPLE_RUN[..13], &EXAMPLE_RUN[16..]);
    script.replace(EXAMPLE_RUN, id).replace(start, id).replace(end, &id[16..])
}

/// Copies by another process: a file that this one has open for writing cannot be executed while
/// another thread forks.
fn copy_agent(to: &Path) {
    let mut copy = Command::new("cp");
    assert!(copy.arg(root().join("tests/docs/agent")).arg(to).status().unwrap().success());
}

#[test]
fn few_command_lines_are_not_run() {
    let all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    let not_run: Vec<_> = all
        .iter()
        .filter(|block| block.language.contains("norun:"))
        .map(|block| format!("{}, line {}: {}", block.page.display(), block.line, block.language))
        .collect();
    assert!(not_run.len() <= MOST_NOT_RUN, "{not_run:#?}");
}

#[test]
fn mdbook_builds_book() {
    let target = tempfile::tempdir().unwrap();
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", "--dest-dir"]).arg(target.path()).arg(root().join("docs"));
    match mdbook.output() {
        Ok(output) => {
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{messages}");
            assert!(!messages.contains("WARN"), "{messages}");
        }
        Err(_) => skipped("the book: mdbook is not installed"),
    }
}
