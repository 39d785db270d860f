//! The documents of a task list: requirements, tasks, progress log and prompt.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::edit;

use ralph_store::save::{remove_stale_temp_files, save_atomically};
use ralph_store::{lock, safe_fs};

/// The default directory, in the project's root.
pub const DIRECTORY: &str = "ralph";

pub const PRD: &str = "prd.md";
pub const TASKS: &str = "tasks.json";
pub const PROGRESS: &str = "progress.txt";
pub const PROMPT: &str = "prompt.md";

/// Protects the loop from running out of memory on a file that is no task list.
const MAX_TASKS: u64 = 64 << 20;

/// Retries for a file that is being written.
const READ_RETRIES: u32 = 4;
const READ_RETRY_DELAY: Duration = Duration::from_millis(25);

const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    root: PathBuf,
    dir: PathBuf,
}

impl Documents {
    /// `dir` is relative to `root`.
    pub fn new(root: &Path, dir: Option<&Path>) -> Documents {
        let dir = root.join(dir.unwrap_or(Path::new(DIRECTORY)));
        // Normalized, because it is shown to the agent and compared.
        let dir = dir.components().collect();
        Documents { root: root.to_owned(), dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory relative to the project's root, for messages.
    pub fn display_dir(&self) -> String {
        let dir = self.dir.strip_prefix(&self.root).unwrap_or(&self.dir).to_string_lossy();
        if dir.is_empty() { ".".to_owned() } else { dir.into_owned() }
    }

    pub fn display_path(&self, name: &str) -> String {
        match self.display_dir().as_str() {
            "." => name.to_owned(),
            dir => format!("{dir}/{name}"),
        }
    }

    /// A ralph command as the user has to type it for these documents.
    pub fn command_line(&self, words: &str) -> String {
        match self.display_dir().as_str() {
            DIRECTORY => words.to_owned(),
            dir => format!("{words} --ralph-dir {}", shell_words::quote(dir)),
        }
    }

    /// Locks the documents until the result is dropped. Fails if there are none, or after a
    /// timeout.
    pub fn lock(&self) -> io::Result<File> {
        lock::lock_within(&self.dir, LOCK_TIMEOUT)
    }

    /// Refuses links out of the project.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        safe_fs::read_within(&self.root, &self.path(name), MAX_TASKS)
    }

    pub fn read_tasks(&self) -> io::Result<Vec<u8>> {
        read_tasks(&self.root, &self.path(TASKS))
    }

    /// Changes the task list under the lock. The inner error is that of `change`; the file is then
    /// unchanged.
    pub fn change_tasks<E>(
        &self,
        change: impl FnOnce(&str) -> Result<String, E>,
    ) -> io::Result<Result<(), E>> {
        let _held = self.lock()?;
        let bytes = self.read_tasks()?;
        let text = String::from_utf8(bytes).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "not UTF-8; save it in that encoding")
        })?;
        match change(&text) {
            Ok(changed) if changed != text => {
                // Follows a link within the project.
                let path = safe_fs::resolve_within(&self.root, &self.path(TASKS))?;
                remove_stale_temp_files(path.parent().unwrap_or(&self.dir));
                save_atomically(&path, changed.as_bytes()).map(Ok)
            }
            Ok(_) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// Reads a task list that an agent may be writing at this moment.
pub fn read_tasks(root: &Path, path: &Path) -> io::Result<Vec<u8>> {
    read_until_complete(|| safe_fs::read_within(root, path, MAX_TASKS))
}

fn read_until_complete(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut bytes = read()?;
    for _ in 1..READ_RETRIES {
        if !crate::is_truncated(&bytes) {
            break;
        }
        std::thread::sleep(READ_RETRY_DELAY);
        bytes = read()?;
    }
    Ok(bytes)
}

const PRD_TEMPLATE: &str = include_str!("templates/prd-template.md");
const PROGRESS_TEMPLATE: &str = include_str!("templates/progress-template.md");
const PROMPT_TEMPLATE: &str = include_str!("templates/prompt.md");
const TASKS_TEMPLATE: &str = include_str!("templates/tasks-template.json");

/// The plugin has a copy of each.
pub const TEMPLATES: [(&str, &str); 4] = [
    ("prd-template.md", PRD_TEMPLATE),
    ("progress-template.md", PROGRESS_TEMPLATE),
    ("prompt.md", PROMPT_TEMPLATE),
    ("tasks-template.json", TASKS_TEMPLATE),
];

/// Removes the example story of the template. `None` if there is another story.
pub fn without_placeholder(text: &str) -> Option<String> {
    // Avoids parsing a long list.
    if text.matches("\"passes\"").nth(1).is_some() {
        return None;
    }
    let stories = |text| edit::value(text)?.get("userStories").cloned();
    let is_placeholder = stories(text)? == stories(TASKS_TEMPLATE)?;
    if is_placeholder { edit::set(text, &[("userStories", serde_json::json!([]))]) } else { None }
}

#[derive(Debug, Clone, Copy)]
pub struct NewDocuments<'a> {
    pub name: &'a str,
    pub branch: &'a str,
    pub date: &'a str,
}

impl Documents {
    pub fn initial_documents(&self, fresh: NewDocuments<'_>) -> [(&'static str, String); 4] {
        let title = fresh.name.split_whitespace().collect::<Vec<_>>().join(" ");
        // The name is inserted last: it may look like a placeholder.
        let fill = |template: &str| {
            template.replace("{{DATE}}", fresh.date).replace("{{PROJECT_NAME}}", &title)
        };
        let tasks = TASKS_TEMPLATE;
        let fields = [("project", fresh.name.into()), ("branchName", fresh.branch.into())];
        [
            (PRD, fill(PRD_TEMPLATE)),
            (TASKS, edit::set(tasks, &fields).unwrap_or_else(|| tasks.to_owned())),
            (PROGRESS, fill(PROGRESS_TEMPLATE)),
            (PROMPT, self.prompt()),
        ]
    }

    /// The default prompt of an iteration.
    pub fn prompt(&self) -> String {
        let prompt = ["next", "set"].iter().fold(PROMPT_TEMPLATE.to_owned(), |prompt, command| {
            let command = format!("ralph tasks {command}");
            prompt.replace(&command, &self.command_line(&command))
        });
        prompt.replace("{{RALPH_DIR}}", &self.display_dir())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_documents_contain_any_task_name() {
        let documents = Documents::new(Path::new("/p"), Some(Path::new("./work")));
        let name = "it's \"{{DATE}}\"\n日本 $RALPH_ITERATION";
        let fresh = documents.initial_documents(NewDocuments {
            name,
            branch: "ralph/x",
            date: "2026-11-15",
        });
        let text = |wanted| &fresh.iter().find(|(name, _)| *name == wanted).unwrap().1;
        let title = "it's \"{{DATE}}\" 日本 $RALPH_ITERATION";
        assert!(text(PRD).starts_with(&format!("# PRD: {title}\n")));
        assert!(text(PROGRESS).contains(&format!("Started: 2026-11-15\nPRD: {title}\n")));
        assert!(text(PROMPT).contains("`work/progress.txt`"));
        assert!(text(PROMPT).contains("`ralph tasks next --ralph-dir work`"));
        assert!(text(PROMPT).contains("`ralph tasks set --ralph-dir work US-001"));
        let list = edit::value(text(TASKS)).unwrap();
        assert_eq!((&list["project"], &list["branchName"]), (&name.into(), &"ralph/x".into()));
        let emptied = without_placeholder(text(TASKS)).unwrap();
        assert_eq!(without_placeholder(&emptied), None);
        assert_eq!(crate::parse(emptied.as_bytes()).unwrap().stories, []);
        for (name, text) in fresh.iter().filter(|(name, _)| *name != TASKS) {
            let text = text.replace(title, "");
            assert!(!text.contains("{{"), "{name} has an empty place");
        }
    }

    #[test]
    fn document_paths_are_shown_as_typed() {
        for (dir, prd, command) in [
            (None, "ralph/prd.md", "ralph tasks"),
            (Some("ralph"), "ralph/prd.md", "ralph tasks"),
            (Some("."), "prd.md", "ralph tasks --ralph-dir ."),
            (Some("a b"), "a b/prd.md", "ralph tasks --ralph-dir 'a b'"),
            (Some("/q"), "/q/prd.md", "ralph tasks --ralph-dir /q"),
        ] {
            let documents = Documents::new(Path::new("/p"), dir.map(Path::new));
            assert_eq!(
                (&*documents.display_path(PRD), &*documents.command_line("ralph tasks")),
                (prd, command)
            );
        }
    }

    #[test]
    fn task_list_that_is_no_file_is_error() {
        let dir = tempfile::tempdir().unwrap();
        let documents = Documents::new(dir.path(), Some(Path::new(".")));
        let kind = |documents: &Documents| documents.read_tasks().unwrap_err().kind();
        assert_eq!(kind(&documents), io::ErrorKind::NotFound);
        std::fs::create_dir(documents.path(TASKS)).unwrap();
        assert_eq!(kind(&documents), io::ErrorKind::IsADirectory);
        std::fs::remove_dir(documents.path(TASKS)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", documents.path(TASKS)).unwrap();
        assert_eq!(kind(&documents), io::ErrorKind::PermissionDenied);
        // A path outside the project, which is still no regular file.
        assert_eq!(
            kind(&Documents::new(&dir.path().join("p"), Some(dir.path()))),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn partly_written_task_list_is_read_again() {
        let read = |contents: &[&str]| {
            let mut contents = contents.iter();
            read_until_complete(|| Ok(contents.next().unwrap().as_bytes().to_vec())).unwrap()
        };
        assert_eq!(read(&["", "{\"a\": ", "{\"a\": 1}"]), b"{\"a\": 1}");
        assert_eq!(read(&["{\"a\" 1}"]), b"{\"a\" 1}", "that does not get better by waiting");
        assert_eq!(read(&["{", "{", "{", "{"]), b"{");
    }
}
