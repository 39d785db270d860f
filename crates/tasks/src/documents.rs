//! The documents of a task list: what is to be done, what is done, what was learned, what each
//! iteration is asked.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::edit;

use ralph_store::save::{remove_stale_temp_files, save_atomically};
use ralph_store::{lock, safe_fs};

/// Where they are unless somebody says otherwise.
pub const DIRECTORY: &str = "ralph";

pub const PRD: &str = "prd.md";
pub const TASKS: &str = "tasks.json";
pub const PROGRESS: &str = "progress.txt";
pub const PROMPT: &str = "prompt.md";

/// A list of more than this is not read: no list is so long, and a loop must not end for lack of
/// memory because of something that took its name.
const MAX_TASKS: u64 = 64 << 20;

/// A file that ends too early may be in the middle of being written: so many looks, so far apart.
const READ_RETRIES: u32 = 4;
const READ_RETRY_DELAY: Duration = Duration::from_millis(25);

/// How long somebody else may be changing the list.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The documents of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    root: PathBuf,
    dir: PathBuf,
}

impl Documents {
    /// `dir` is as somebody gave it, from the project's root on.
    pub fn new(root: &Path, dir: Option<&Path>) -> Documents {
        let dir = root.join(dir.unwrap_or(Path::new(DIRECTORY)));
        // `.` and the like would be told to the agent, and compared with.
        let dir = dir.components().collect();
        Documents { root: root.to_owned(), dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory as people are told of it: from the project's root on.
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

    /// A command of ours that is about these documents, `ralph tasks` say, as it has to be typed.
    pub fn command_line(&self, words: &str) -> String {
        match self.display_dir().as_str() {
            DIRECTORY => words.to_owned(),
            dir => format!("{words} --ralph-dir {}", shell_words::quote(dir)),
        }
    }

    /// Keeps everybody else from changing them until the answer is dropped.
    ///
    /// # Errors
    /// There are none, or somebody has been at it for too long.
    pub fn lock(&self) -> io::Result<File> {
        lock::lock_within(&self.dir, LOCK_TIMEOUT)
    }

    /// Reads a document as it is.
    ///
    /// # Errors
    /// It is not there, no file, or elsewhere by a link.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        safe_fs::read_within(&self.root, &self.path(name), MAX_TASKS)
    }

    /// Reads the task list.
    ///
    /// # Errors
    /// It is not there, or no file.
    pub fn read_tasks(&self) -> io::Result<Vec<u8>> {
        read_tasks(&self.root, &self.path(TASKS))
    }

    /// Changes the task list, while nobody else does.
    ///
    /// # Errors
    /// What the file system says, and inside of that what `change` says. The file is then as it was.
    pub fn change_tasks<E>(
        &self,
        change: impl FnOnce(&str) -> Result<String, E>,
    ) -> io::Result<Result<(), E>> {
        let _held = self.lock()?;
        let bytes = self.read_tasks()?;
        let text = String::from_utf8(bytes).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8; save it as that")
        })?;
        match change(&text) {
            Ok(changed) if changed != text => {
                // A list that is kept elsewhere in the project stays there.
                let path = safe_fs::resolve_within(&self.root, &self.path(TASKS))?;
                remove_stale_temp_files(path.parent().unwrap_or(&self.dir));
                save_atomically(&path, changed.as_bytes()).map(Ok)
            }
            Ok(_) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// Reads a task list in a project that an agent may be writing at this moment.
///
/// # Errors
/// It is not there, no file, too large or elsewhere by a link.
pub fn read_tasks(root: &Path, path: &Path) -> io::Result<Vec<u8>> {
    read_until_complete(|| safe_fs::read_within(root, path, MAX_TASKS))
}

/// Looks again while what is read ends too early, a few times.
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

/// The templates of the documents, by file name. The plugin has a copy of each.
pub const TEMPLATES: [(&str, &str); 4] = [
    ("prd-template.md", PRD_TEMPLATE),
    ("progress-template.md", PROGRESS_TEMPLATE),
    ("prompt.md", PROMPT_TEMPLATE),
    ("tasks-template.json", TASKS_TEMPLATE),
];

/// The list without the story of the template, if that is all that is in it: it shows what a story
/// looks like, and is none.
pub fn without_placeholder(text: &str) -> Option<String> {
    // Of thousands of stories none need be looked at to know that there is more than one.
    if text.matches("\"passes\"").nth(1).is_some() {
        return None;
    }
    let stories = |text| edit::value(text)?.get("userStories").cloned();
    let is_placeholder = stories(text)? == stories(TASKS_TEMPLATE)?;
    if is_placeholder { edit::set(text, &[("userStories", serde_json::json!([]))]) } else { None }
}

/// The documents of work that is new.
#[derive(Debug, Clone, Copy)]
pub struct NewDocuments<'a> {
    /// What the work is called.
    pub name: &'a str,
    pub branch: &'a str,
    /// The day, as people write it.
    pub date: &'a str,
}

impl Documents {
    /// The documents as they are at the beginning, each with its name.
    pub fn initial_documents(&self, fresh: NewDocuments<'_>) -> [(&'static str, String); 4] {
        let title = fresh.name.split_whitespace().collect::<Vec<_>>().join(" ");
        // The name comes last: it may hold anything, even what looks like a place for something else.
        let named = |template: &str| {
            template.replace("{{DATE}}", fresh.date).replace("{{PROJECT_NAME}}", &title)
        };
        let tasks = TASKS_TEMPLATE;
        let fields = [("project", fresh.name.into()), ("branchName", fresh.branch.into())];
        [
            (PRD, named(PRD_TEMPLATE)),
            (TASKS, edit::set(tasks, &fields).unwrap_or_else(|| tasks.to_owned())),
            (PROGRESS, named(PROGRESS_TEMPLATE)),
            (PROMPT, self.prompt()),
        ]
    }

    /// What each iteration is asked if nobody has written anything else.
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
        // Named by another path it is no part of the project, and still no file.
        assert_eq!(
            kind(&Documents::new(&dir.path().join("p"), Some(dir.path()))),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn partly_written_task_list_is_read_again() {
        let looks = |contents: &[&str]| {
            let mut contents = contents.iter();
            read_until_complete(|| Ok(contents.next().unwrap().as_bytes().to_vec())).unwrap()
        };
        assert_eq!(looks(&["", "{\"a\": ", "{\"a\": 1}"]), b"{\"a\": 1}");
        assert_eq!(looks(&["{\"a\" 1}"]), b"{\"a\" 1}", "that does not get better by waiting");
        // Torn for good: whoever wants to parse it says what is wrong.
        assert_eq!(looks(&["{", "{", "{", "{"]), b"{");
    }
}
