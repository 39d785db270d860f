//! Paths that agents must not write, or not even read.

use std::path::{Component, Path};

use serde::Deserialize;

use super::places::{PartialPath, WILDCARDS, fold_name, matches_name};
use crate::data::{DATA, Words};
use crate::value::glob_match;
use crate::{Context, Family, Tier};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProtectedPath {
    /// A note for readers of `rules.json`.
    #[serde(default, rename = "comment")]
    _comment: serde::de::IgnoredAny,
    /// Patterns: `~/…` below the home, `./…` below the project, `**/…` anywhere. Each includes
    /// everything below.
    paths: Words,
    /// Exceptions, by the last component.
    #[serde(default)]
    except: Words,
    /// Exempts the project's tests, whose keys are made up.
    #[serde(default)]
    except_in_tests: bool,
    /// Whether reading is covered, too.
    reads: bool,
    pub(super) tier: Tier,
    pub(super) family: Family,
    pub(super) reason: &'static str,
    pub(super) suggestion: &'static str,
}

pub(super) fn find(
    context: &Context<'_>,
    place: &PartialPath,
    access: FileAccess,
) -> Option<&'static ProtectedPath> {
    let path = PathComponents::new(context, place);
    DATA.protected_paths.iter().find(|entry| {
        if access == FileAccess::Read && !entry.reads {
            return false;
        }
        entry
            .paths
            .iter()
            .any(|pattern| path.matches(pattern) && !path.is_inside_project_or_home(pattern))
            && !is_exempt(entry, place)
            && !(entry.except_in_tests && is_for_tests(context, place))
    })
}

fn is_for_tests(context: &Context<'_>, place: &PartialPath) -> bool {
    const TESTS: &[&str] =
        &["test", "tests", "testing", "testdata", "fixtures", "__tests__", "spec"];
    let Ok(inside) = place.base.strip_prefix(context.project) else { return false };
    let known = inside.parent().into_iter().flat_map(Path::components);
    !place.is_uncertain
        && known
            .map(|component| component.as_os_str().to_string_lossy().to_ascii_lowercase())
            .any(|name| TESTS.contains(&name.as_str()))
}

fn is_exempt(entry: &ProtectedPath, place: &PartialPath) -> bool {
    let last = match place.rest.last() {
        Some(last) => last.clone(),
        None => match place.base.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => return false,
        },
    };
    entry.except.iter().any(|pattern| glob_match(pattern, &last.to_ascii_lowercase()))
}

/// A path, split once for hundreds of comparisons.
struct PathComponents<'a> {
    names: Vec<PathComponent>,
    /// Number of components of the home or the project, if the path may be inside.
    home: Option<usize>,
    project: Option<usize>,
    /// Spelled as the project's path is.
    is_inside_project: bool,
    context: &'a Context<'a>,
}

struct PathComponent {
    folded: String,
    is_wild: bool,
}

impl<'a> PathComponents<'a> {
    fn new(context: &'a Context<'a>, place: &PartialPath) -> Self {
        let names: Vec<PathComponent> = folded_components(&place.base)
            .chain(place.rest.iter().map(|name| fold_name(name)))
            .map(PathComponent::new)
            .collect();
        // macOS takes both forms of an accented letter, composed or not, for the same.
        let may_be_same = |(name, other): (&PathComponent, &String)| {
            name.folded == *other || !name.folded.is_ascii() && !other.is_ascii()
        };
        let depth_of = |root: &Path| {
            let root: Vec<String> = folded_components(root).collect();
            let is_inside = names.len() >= root.len() && names.iter().zip(&root).all(may_be_same);
            is_inside.then_some(root.len())
        };
        PathComponents {
            home: context.home.and_then(depth_of),
            project: depth_of(context.project),
            is_inside_project: place.base.starts_with(context.project),
            names,
            context,
        }
    }

    fn matches(&self, pattern: &str) -> bool {
        if let Some(names) = pattern.strip_prefix("**/") {
            // `*.json` means all files of a kind, not the one with secrets.
            let is_specific =
                |name: &PathComponent| !name.matches_any_name() || names.starts_with('.');
            return self
                .names
                .iter()
                .enumerate()
                .any(|(at, name)| is_specific(name) && self.matches_from(at, names));
        }
        let (from, names) = match pattern.split_once('/') {
            Some(("~", names)) => (self.home, names),
            Some((".", names)) => (self.project, names),
            Some((_, names)) => (Some(0), names),
            None => (Some(0), pattern),
        };
        from.is_some_and(|from| self.matches_from(from, names))
    }

    fn matches_from(&self, from: usize, names: &str) -> bool {
        let mut components = self.names.iter().skip(from);
        names
            .split('/')
            .all(|name| components.next().is_some_and(|component| component.matches(name)))
    }

    /// Rules for `/opt` and `/root` do not apply inside a project or home there.
    fn is_inside_project_or_home(&self, pattern: &str) -> bool {
        let Context { home, project, .. } = self.context;
        match pattern.as_bytes().first() {
            Some(b'/') => {
                self.is_inside_project
                    || self.home.is_some() && home.is_some_and(|home| home.starts_with(pattern))
            }
            Some(b'~') => self.is_inside_project && *home != Some(project),
            _ => false,
        }
    }
}

impl PathComponent {
    fn new(folded: String) -> Self {
        PathComponent { is_wild: folded.contains(WILDCARDS), folded }
    }

    /// Whether only the extension is given: `*.json`.
    fn matches_any_name(&self) -> bool {
        self.is_wild
            && self.folded.rsplit_once('.').is_some_and(|(stem, _)| stem.chars().all(|c| c == '*'))
    }

    fn matches(&self, name: &str) -> bool {
        if name.contains('*') {
            return glob_match(name, &self.folded) && !self.folded.contains(['*', '?', '[']);
        }
        match self.is_wild {
            true => matches_name(&self.folded, name),
            false => self.folded.eq_ignore_ascii_case(name),
        }
    }
}

fn folded_components(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(fold_name(&name.to_string_lossy())),
        _ => None,
    })
}
