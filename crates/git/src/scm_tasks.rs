//! Version control after a passing iteration, as a list of programs to run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_events::event::Exit;
use ralph_process as process;
use ralph_process::ChildId;
use ralph_process::trust;

use super::git_call::GIT_LOCK_TIMEOUT;
use super::lock_files::{self, is_lock_error};
use super::repository::{add_init_hint, require_repository};
use super::status;
use super::uncommitted::uncommitted;

const MAX_OUTPUT: usize = 4 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScmSpec {
    pub program: String,
    /// As words: `["commit"]`, `["push", "origin", "main"]`.
    pub tasks: Vec<Vec<String>>,
    /// Pathspecs relative to the project's directory. Empty for the whole repository.
    pub paths: Vec<String>,
}

impl ScmSpec {
    /// Checks that the tasks can work, before the run costs anything. `flag` is the flag that asked for
    /// them, if any.
    pub fn preflight(&self, directory: &Path, flag: Option<&str>) -> Result<(), Error> {
        let (needs, remedy) = match flag {
            Some(flag) => (format!("{flag} needs"), format!("run without {flag}")),
            None => ("SCM tasks need".to_owned(), "remove `scm` from the settings".to_owned()),
        };
        let program = OsStr::new(&self.program);
        let found = match self.program.contains('/') {
            true => process::find_program(program, None, directory).map(drop).ok_or(None),
            false => trust::outside_program(program).map(drop).map_err(Some),
        };
        match found {
            Ok(()) => {}
            Err(Some(err)) if err.untrusted.is_some() => {
                let hint = "or set scm.command to its absolute path";
                return Err(err.error("").hint(hint));
            }
            Err(_) => {
                return Err(Error::input(format!("scm.command not found: {}", self.program))
                    .hint(format!("install it, or {remedy}")));
            }
        }
        if !self.is_git() {
            return Ok(());
        }
        let add_hints = |error: Error| {
            add_init_hint(error, &format!("{needs} one")).hint(format!("or {remedy}"))
        };
        require_repository(directory).map_err(add_hints)
    }

    /// Files that a commit would include though no agent of this run changed them.
    pub fn uncommitted(&self, directory: &Path) -> Vec<String> {
        if !self.is_git() || self.commits().next().is_none() {
            return Vec::new();
        }
        uncommitted(directory, "--untracked-files=all", &self.paths).unwrap_or_default()
    }

    pub fn is_git(&self) -> bool {
        let name = std::path::Path::new(&self.program).file_name();
        name.is_some_and(|name| name == "git")
    }

    fn commits(&self) -> impl Iterator<Item = &Vec<String>> {
        self.tasks.iter().filter(|task| task.first().is_some_and(|word| word == "commit"))
    }

    /// Commands that list conflicts, stage everything, and tell by their exit code whether there is
    /// anything to commit. `None` if the SCM is not git.
    ///
    /// Stages before the agent writes a message, so the commit is what the guardrails checked: the
    /// agent may do more than write it.
    pub fn status_commands(&self) -> Option<Vec<Vec<String>>> {
        // Staging a file marks its conflicts as resolved, and git would commit the markers.
        // `commit -a` would leave out new files.
        let commands: [&[&str]; 3] =
            [&status::UNMERGED_ARGS, &["add", "-A"], &["diff", "--cached", "--quiet"]];
        let mut commands: Vec<Vec<String>> = commands.into_iter().map(to_strings).collect();
        commands.iter_mut().skip(1).for_each(|command| command.extend(self.pathspecs()));
        self.is_git().then_some(commands)
    }

    fn pathspecs(&self) -> impl Iterator<Item = String> {
        let dashes = (!self.paths.is_empty()).then(|| "--".to_owned());
        dashes.into_iter().chain(self.paths.iter().cloned())
    }

    /// Whether commits take nothing from the work tree that is not staged. False for unknown flags.
    pub fn commits_index_only(&self) -> bool {
        let is_index_only = |word: &String| match word.strip_prefix("--") {
            Some(name) => {
                let file_flags =
                    ["all", "include", "interactive", "only", "patch", "pathspec-from-file"];
                let name = name.split('=').next().unwrap_or_default();
                // git accepts abbreviated flags.
                !name.is_empty() && !file_flags.iter().any(|flag| flag.starts_with(name))
            }
            None => {
                let is_harmless = |letter: char| "nqsSv".contains(letter);
                word.strip_prefix('-').is_some_and(|letters| letters.chars().all(is_harmless))
            }
        };
        if !self.paths.is_empty() {
            return false;
        }
        self.commits().flat_map(|task| task.iter().skip(1)).all(is_index_only)
    }

    pub fn commands(&self, task: usize, message: &str) -> Vec<Vec<String>> {
        let Some(task) = self.tasks.get(task) else { return Vec::new() };
        let mut command = task.clone();
        if task.first().is_some_and(|word| word == "commit") {
            let flag = if self.is_git() { "-m" } else { "-am" };
            command.extend(to_strings(&[flag, message]));
            command.extend(self.pathspecs().filter(|_| self.is_git()));
        }
        vec![command]
    }
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A running SCM task, or the check whether there is anything to commit.
#[derive(Debug)]
pub struct ScmProcess {
    pub child: ChildId,
    /// `None` for the check.
    pub task: Option<usize>,
    pub command: Vec<String>,
    pub remaining_commands: std::vec::IntoIter<Vec<String>>,
    pub started_ms: u64,
    /// Why ralph killed it.
    pub ended: Option<&'static str>,
    /// An unused lock that blocks it, and when it counts as abandoned.
    pub stale_lock: Option<(PathBuf, u64)>,
    /// The beginning; the end is in `output_tail`.
    output: Vec<u8>,
    output_tail: Vec<u8>,
}

impl ScmProcess {
    pub fn new(
        child: ChildId,
        task: Option<usize>,
        command: Vec<String>,
        remaining_commands: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) -> Self {
        ScmProcess {
            child,
            task,
            command,
            remaining_commands,
            started_ms,
            ended: None,
            stale_lock: None,
            output: Vec::new(),
            output_tail: Vec::new(),
        }
    }

    pub fn can_retry(&self, now_ms: u64) -> bool {
        let timeout = u64::try_from(GIT_LOCK_TIMEOUT.as_millis()).unwrap_or(0);
        is_lock_error(&self.output_tail()) && now_ms < self.started_ms.saturating_add(timeout)
    }

    /// An unused lock must become old first.
    pub fn can_wait_for_lock(&self, now_ms: u64) -> bool {
        let timeout = lock_files::STALE_LOCK_AGE.saturating_add(GIT_LOCK_TIMEOUT).as_millis();
        now_ms.saturating_sub(self.started_ms) < u64::try_from(timeout).unwrap_or(0)
    }

    pub fn output(&mut self, bytes: &[u8]) {
        let capacity = MAX_OUTPUT - self.output.len();
        let (first, rest) = bytes.split_at(capacity.min(bytes.len()));
        self.output.extend_from_slice(first);
        self.output_tail.extend_from_slice(rest);
        let excess = self.output_tail.len().saturating_sub(MAX_OUTPUT);
        if excess > MAX_OUTPUT {
            self.output_tail.drain(..excess);
        }
    }

    pub fn failure_message(&self, exit: Option<Exit>) -> String {
        match (self.ended, self.output_tail(), exit) {
            (Some(why), output, _) if output.is_empty() => format!("stopped: {why}"),
            (Some(why), output, _) => {
                format!("stopped: {why}; its output: {output}")
            }
            (None, output, Some(exit)) if output.is_empty() => format!("{exit} without output"),
            (None, output, None) if output.is_empty() => "it could not be run".to_owned(),
            (None, output, _) => output,
        }
    }

    pub fn output_head(&self) -> String {
        String::from_utf8_lossy(&self.output).trim().to_owned()
    }

    /// From the start of a line. Programs print the reason of a failure last.
    pub fn output_tail(&self) -> String {
        if self.output_tail.is_empty() {
            return self.output_head();
        }
        let all = [&self.output[..], &self.output_tail].concat();
        let last = &all[all.len().saturating_sub(MAX_OUTPUT)..];
        let line = memchr::memchr(b'\n', last).map_or(0, |end| end + 1);
        format!("…\n{}", String::from_utf8_lossy(&last[line..]).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(program: &str, tasks: &[&[&str]]) -> ScmSpec {
        let tasks = tasks.iter().map(|task| to_strings(task)).collect();
        ScmSpec { program: program.to_owned(), tasks, paths: Vec::new() }
    }

    #[test]
    fn commit_with_paths_takes_only_these_paths() {
        let paths = vec![".".to_owned(), ":!secrets".to_owned()];
        let git = ScmSpec { paths, ..spec("git", &[&["commit"]]) };
        let commands = git.status_commands().unwrap();
        assert_eq!(
            commands[0],
            to_strings(&status::UNMERGED_ARGS),
            "conflicts count in the whole repository"
        );
        assert_eq!(commands[1], to_strings(&["add", "-A", "--", ".", ":!secrets"]));
        assert_eq!(
            commands[2],
            to_strings(&["diff", "--cached", "--quiet", "--", ".", ":!secrets"])
        );
        assert_eq!(
            git.commands(0, "m"),
            [to_strings(&["commit", "-m", "m", "--", ".", ":!secrets"])]
        );
        assert!(!git.commits_index_only());
    }

    #[test]
    fn git_task_commands_are_built_without_shell_quoting() {
        let git = spec("/usr/bin/git", &[&["commit", "--signoff"], &["push", "origin"]]);
        assert_eq!(
            git.commands(0, "Fix `x` $(y)"),
            [to_strings(&["commit", "--signoff", "-m", "Fix `x` $(y)"])]
        );
        assert_eq!(git.commands(1, "m"), [to_strings(&["push", "origin"])]);
    }

    #[test]
    fn only_plain_commit_is_known_to_commit_staged_files() {
        for (flags, expected) in [
            (&[][..], true),
            (&["--signoff", "-S", "-nv", "--author=A <a@b>"], true),
            (&["-a"], false),
            (&["-qa"], false),
            (&["--al"], false),
            (&["--only"], false),
            (&["--", "file"], false),
            (&["file"], false),
        ] {
            let task = [&["commit"], flags].concat();
            let git = spec("git", &[&task, &["push", "-a"]]);
            assert_eq!(git.commits_index_only(), expected, "{flags:?}");
        }
    }

    #[test]
    fn other_scm_uses_documented_commit_flags() {
        let hg = spec("hg", &[&["commit"]]);
        assert_eq!(hg.status_commands(), None);
        assert_eq!(hg.commands(0, "m"), [to_strings(&["commit", "-am", "m"])]);
    }

    #[test]
    fn scm_failure_always_has_a_reason() {
        let run = |ended, output: &str| {
            let mut run =
                ScmProcess::new(ChildId(1), None, to_strings(&["add"]), Vec::new().into_iter(), 0);
            run.ended = ended;
            run.output(output.as_bytes());
            run
        };
        let (killed, failed) = (Some(Exit::Signal(15)), Some(Exit::Code(1)));
        let up = Some("the time is up");
        for (ended, output, exit, expected) in [
            (up, "\n", killed, "stopped: the time is up"),
            (up, "hm", killed, "stopped: the time is up; its output: hm"),
            (None, "no\n", failed, "no"),
            (None, "", failed, "exit code 1 without output"),
            (None, "", None, "it could not be run"),
        ] {
            assert_eq!(run(ended, output).failure_message(exit), expected);
        }
        let long: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let run = run(None, &long);
        assert!(run.output_head().starts_with("line 0\n"));
        let last = run.failure_message(failed);
        assert!(last.starts_with("…\nline 9") && last.ends_with("line 9999"), "{last}");
        assert!(last.len() <= MAX_OUTPUT + "…\n".len());
    }
}
