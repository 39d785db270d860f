use std::collections::BTreeMap;
use std::path::Component;

use super::*;
use ralph_process::file_names::NameRule;

/// A fake machine: directories end with a slash, links have targets, files have text.
#[derive(Default)]
pub(crate) struct Paper {
    things: BTreeMap<PathBuf, Thing>,
    names: NameRule,
}

enum Thing {
    Dir,
    Link(PathBuf),
    File(String),
}

impl Paper {
    pub(crate) fn new(lines: &[&str]) -> Paper {
        let mut paper = Paper::default();
        for line in lines {
            let (path, thing) = match (line.split_once(" -> "), line.split_once(" = ")) {
                (Some((path, to)), _) => (path, Thing::Link(to.into())),
                (None, Some((path, text))) => (path, Thing::File(text.to_owned())),
                (None, None) if line.ends_with('/') => (*line, Thing::Dir),
                (None, None) => (*line, Thing::File(String::new())),
            };
            let path = PathBuf::from(path);
            for above in path.ancestors().skip(1) {
                paper.things.entry(above.to_owned()).or_insert(Thing::Dir);
            }
            paper.things.insert(path.components().collect(), thing);
        }
        paper
    }

    pub(crate) fn with_names(self, names: NameRule) -> Paper {
        Paper { names, ..self }
    }

    fn get(&self, path: &Path) -> Option<(&PathBuf, &Thing)> {
        self.things.iter().find(|(stored, _)| self.names.is_same_path(stored, path))
    }

    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut real = PathBuf::from("/");
        for part in path.components() {
            match part {
                Component::Normal(name) => real.push(name),
                Component::ParentDir => {
                    real.pop();
                }
                _ => {}
            }
            real = match self.get(&real)? {
                (stored, Thing::Link(to)) => self.resolve(&stored.parent()?.join(to))?,
                (stored, Thing::Dir | Thing::File(_)) => stored.clone(),
            }
        }
        Some(real)
    }
}

impl Disk for Paper {
    fn stat(&self, path: &Path) -> Option<PathInfo> {
        let real = self.resolve(path)?;
        let is_dir = matches!(self.get(&real)?.1, Thing::Dir);
        Some(PathInfo { real, is_dir })
    }

    fn read_link(&self, path: &Path) -> Option<PathBuf> {
        match self.get(path)?.1 {
            Thing::Link(to) => Some(to.clone()),
            Thing::Dir | Thing::File(_) => None,
        }
    }

    fn read(&self, path: &Path) -> Option<String> {
        match self.get(&self.resolve(path)?)?.1 {
            Thing::File(text) => Some(text.clone()),
            Thing::Dir | Thing::Link(_) => None,
        }
    }

    fn list_names(&self, directory: &Path) -> Vec<OsString> {
        let directory = self.resolve(directory);
        let children = self.things.keys().filter(|path| path.parent() == directory.as_deref());
        children.filter_map(|path| path.file_name()).map(OsString::from).collect()
    }

    /// Paths with `closed` are inaccessible.
    fn is_accessible(&self, path: &Path) -> bool {
        !path.to_str().unwrap().contains("closed")
    }

    /// Files named `.sock` are sockets.
    fn sockets(&self) -> Vec<PathBuf> {
        let sockets =
            self.things.keys().filter(|path| path.extension() == Some(OsStr::new("sock")));
        sockets.cloned().collect()
    }
}
