//! Resolution of paths: inside the project, outside, or unknown.

use std::path::{Path, PathBuf};

use super::protected::{self, FileAccess};
use super::{CommandContext, Hit, finding};
use crate::Context;
use crate::links::LinkTable;
use crate::value::{Argument, NEW_TEMP_DIR, TextOrigin, UNKNOWN, UNKNOWN_NAME, glob_match};

#[derive(Debug, PartialEq)]
pub(super) struct PartialPath {
    /// The part that is known, resolved.
    pub(super) base: PathBuf,
    /// The rest, from the first component with a pattern or an unknown part.
    pub(super) rest: Vec<String>,
    /// An unknown part may contain `..`, so `base` is a guess.
    pub(super) is_uncertain: bool,
    /// Is in a temporary directory that the same command line created.
    pub(super) is_new: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteScope {
    Machine,
    Home,
    /// The project, a parent of it, or everything in it.
    Project,
    /// `.git`
    History,
    /// `.ralph`
    RalphState,
    Outside,
    Unknown,
    Inside,
    /// A temporary directory that the same command line created.
    New,
}

pub(super) const WILDCARDS: [char; 5] = ['*', '?', '[', UNKNOWN, UNKNOWN_NAME];

impl CommandContext<'_> {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        self.links.resolve(self.context, path)
    }

    /// Resolves a path; `None` if nothing is known.
    pub(super) fn locate(&self, arg: &Argument) -> Option<PartialPath> {
        let text = arg.text.as_str();
        if text.is_empty() || arg.is_unknown() {
            return None;
        }
        // Names after an unknown beginning still say something.
        let absolute = text.starts_with('/') || text.starts_with(UNKNOWN);
        let mut known = PathBuf::new();
        let mut rest = Vec::new();
        for component in text.split('/') {
            let wild = component.contains([UNKNOWN, UNKNOWN_NAME])
                || (arg.glob && component.contains(['*', '?', '[']));
            if wild || !rest.is_empty() {
                if !component.is_empty() {
                    rest.push(component.to_owned());
                }
            } else {
                known.push(component);
            }
        }
        let full = if absolute { Path::new("/").join(known) } else { self.cwd?.join(known) };
        let is_uncertain = text.contains(UNKNOWN) || rest.iter().any(|component| component == "..");
        let base = self.resolve(&full)?;
        let is_new = (text.starts_with(NEW_TEMP_DIR)
            || full.starts_with(NEW_TEMP_DIR)
            || self.links.is_created(&base))
            && !text.contains("..");
        Some(PartialPath { base, rest, is_uncertain, is_new })
    }

    /// Whether some files in a directory are protected by name: the home, `.ralph`, an agent's
    /// directory.
    pub(super) fn holds_protected(&self, arg: &Argument) -> bool {
        self.locate(arg).is_some_and(|place| {
            place.rest.is_empty()
                && (self.context.home == Some(&place.base)
                    || has_name(&place.base, ".claude")
                    || has_name(&place.base, ".ralph"))
        })
    }

    pub(crate) fn is_project(&self, arg: &Argument) -> bool {
        self.locate(arg).is_some_and(|place| {
            !place.is_uncertain && place.rest.is_empty() && place.base == self.context.project
        })
    }

    pub(crate) fn temporary_path(&self, arg: &Argument) -> Option<PathBuf> {
        let place =
            self.locate(arg).filter(|place| !place.is_uncertain && place.rest.is_empty())?;
        let project = self.context.project;
        let is_separate = !place.base.starts_with(project) && !project.starts_with(&place.base);
        (is_separate && self.is_temporary(&place.base)).then_some(place.base)
    }

    pub(super) fn delete_scope(&self, arg: &Argument) -> DeleteScope {
        let Some(place) = self.locate(arg).filter(|place| !place.is_uncertain) else {
            return DeleteScope::Unknown;
        };
        if place.is_new {
            return DeleteScope::New;
        }
        let project = self.context.project;
        let PartialPath { base, rest, .. } = &place;
        if base.parent().is_none() {
            return DeleteScope::Machine;
        }
        if self.context.home == Some(base) {
            return DeleteScope::Home;
        }
        if rest.is_empty() && project.starts_with(base) {
            return DeleteScope::Project;
        }
        let Ok(inside) = base.strip_prefix(project) else { return DeleteScope::Outside };
        let names: Vec<String> = inside
            .components()
            .map(|component| component.as_os_str().to_string_lossy().into_owned())
            .chain(rest.iter().cloned())
            .collect();
        if inside.as_os_str().is_empty()
            && let [only] = rest.as_slice()
            && is_everything(only)
        {
            return DeleteScope::Project;
        }
        if names.iter().any(|name| matches_name(name, ".git")) {
            return DeleteScope::History;
        }
        if names.first().is_some_and(|name| matches_name(name, ".ralph")) {
            return DeleteScope::RalphState;
        }
        DeleteScope::Inside
    }

    pub(crate) fn check_delete(&self, arg: &Argument) -> Option<Hit> {
        let hit = finding(match self.delete_scope(arg) {
            DeleteScope::Inside => return Some(finding("recursive_delete")),
            DeleteScope::New => return None,
            DeleteScope::Machine => "machine_deleted",
            DeleteScope::Home => "home_deleted",
            DeleteScope::Project => "project_deleted",
            DeleteScope::History => "history_deleted",
            DeleteScope::RalphState => "ralph_state_deleted",
            DeleteScope::Outside => "outside_deleted",
            DeleteScope::Unknown => "unknown_deleted",
        });
        let temporary = |place: PartialPath| {
            self.is_temporary(&place.base)
                || place.base == Path::new("/tmp") && !place.rest.is_empty()
        };
        if !self.locate(arg).is_some_and(temporary) {
            return Some(hit);
        }
        let suggestion = "create a directory with `mktemp -d`; the same command may delete it";
        Some(Hit { suggestion: suggestion.into(), ..hit })
    }

    /// Judges the deletion of each file that a pattern or a search finds.
    pub(super) fn check_bulk_delete(&self, arg: &Argument) -> Option<Hit> {
        if arg.is_unknown() && arg.origin == TextOrigin::Computed {
            return Some(finding("printed_files_deleted"));
        }
        let place = self.locate(arg).filter(|place| !place.is_uncertain && !place.is_new)?;
        let all =
            |name: &String| is_everything(name) && (name.starts_with('.') || !name.contains('.'));
        if place.rest.is_empty() || !place.rest.iter().all(all) {
            return None;
        }
        let project = self.context.project;
        if place.base.parent() == Some(project) && has_name(&place.base, ".ralph") {
            return Some(finding("ralph_files_deleted"));
        }
        let is_parent = project.starts_with(&place.base) && place.base != project;
        if is_parent || self.context.home == Some(&place.base) {
            return Some(finding("home_files_deleted"));
        }
        if place.base != project {
            return None;
        }
        // A search enters `.git`; a pattern does not.
        let searched = arg.origin == TextOrigin::Computed
            && arg.text.contains('/')
            && place.rest.iter().all(|name| name.chars().eq([UNKNOWN_NAME]));
        Some(match searched {
            true => finding("search_deletes_project"),
            false => finding("project_files_deleted"),
        })
    }

    pub(super) fn is_temporary(&self, path: &Path) -> bool {
        ["/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/var/folders", "/dev/shm"]
            .iter()
            .any(|place| path.starts_with(place) && path != Path::new(place))
            // A home is never temporary.
            && !self.context.home.is_some_and(|home| path.starts_with(home))
            || (self.context.variable)("TMPDIR")
                .is_some_and(|place| place.len() > 1 && path.starts_with(place))
    }

    pub(crate) fn check_write(&self, arg: &Argument) -> Option<Hit> {
        const SAFE_DEVICES: &[&str] =
            &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "-"];
        if SAFE_DEVICES.contains(&arg.text.as_str()) || arg.text.starts_with("/dev/fd/") {
            return None;
        }
        if arg.text.starts_with("/dev/tcp/") || arg.text.starts_with("/dev/udp/") {
            return Some(finding("shell_connection"));
        }
        let place = self.locate(arg)?;
        if let Some(hit) = self.check_protected(&place, FileAccess::Write) {
            return Some(hit);
        }
        let project = self.context.project;
        if place.is_uncertain
            || place.is_new
            || place.base.starts_with(project)
            || self.is_temporary(&place.base)
        {
            return None;
        }
        if place.base.parent().is_none() && place.rest.is_empty() {
            return Some(finding("root_written"));
        }
        if SAFE_DEVICES.iter().any(|path| Path::new(path) == place.base)
            || self.context.allow.allows_path(FileAccess::Write, &place.base, self.context)
        {
            return None;
        }
        Some(finding("outside_written"))
    }

    pub(crate) fn check_read(&self, arg: &Argument) -> Option<Hit> {
        if arg.text.starts_with("/dev/tcp/") || arg.text.starts_with("/dev/udp/") {
            return self.check_write(arg);
        }
        let place = self.locate(arg)?;
        self.check_protected(&place, FileAccess::Read)
    }

    fn check_protected(&self, place: &PartialPath, access: FileAccess) -> Option<Hit> {
        let entry = protected::find(self.context, place, access)?;
        let path = place.rest.iter().fold(place.base.clone(), |path, name| path.join(name));
        if self.context.allow.allows_path(access, &path, self.context) {
            return None;
        }
        Some(Hit::new(entry.tier, entry.family, entry.reason, entry.suggestion))
    }
}

fn is_everything(pattern: &str) -> bool {
    pattern.chars().all(|c| WILDCARDS.contains(&c) || c == '.')
}

fn has_name(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|last| matches_name(&last.to_string_lossy(), name))
}

/// The form in which names are compared. The file systems of macOS ignore case, in all of Unicode
/// (`ſ` is an `s`), and HFS+ ignores invisible characters, too.
pub(super) fn fold_name(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let is_invisible = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let visible = name.chars().filter(|c| !is_invisible(c));
    visible.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Whether a component may be this name, which is lower-case ASCII or a directory of the user.
pub(super) fn matches_name(component: &str, name: &str) -> bool {
    let component = &fold_name(component);
    if !component.contains(WILDCARDS) {
        return *component == fold_name(name);
    }
    // A pattern matches a leading dot only if it has one.
    if name.starts_with('.') && !component.starts_with(['.', UNKNOWN, UNKNOWN_NAME, '[']) {
        return false;
    }
    // A pattern without letters names nothing in particular.
    let letters = component.chars().filter(|c| !WILDCARDS.contains(c) && *c != '.').count();
    letters > 0 && glob_match(component, &fold_name(name))
}

pub(crate) fn judge_path(context: &Context<'_>, path: &str, access: FileAccess) -> Option<Hit> {
    let text = match (path.strip_prefix("~/"), context.home) {
        (Some(rest), Some(home)) => home.join(rest).to_string_lossy().into_owned(),
        _ => path.to_owned(),
    };
    let links = LinkTable::default();
    let command_context =
        CommandContext { context, cwd: Some(context.cwd), stdin: None, links: &links };
    let arg = Argument { glob: text.contains('*'), ..Argument::known(text) };
    match access {
        FileAccess::Write => command_context.check_write(&arg),
        FileAccess::Read => command_context.check_read(&arg),
    }
}
