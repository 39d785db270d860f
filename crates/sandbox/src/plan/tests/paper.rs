use std::collections::BTreeMap;
use std::path::Component;

use super::*;

/// A fake machine: directories end with a slash, links have targets, files have text.
#[derive(Default)]
pub(super) struct Paper(BTreeMap<PathBuf, Thing>);

enum Thing {
    Dir,
    Link(PathBuf),
    File(String),
}

impl Paper {
    pub(super) fn new(lines: &[&str]) -> Paper {
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
                paper.0.entry(above.to_owned()).or_insert(Thing::Dir);
            }
            paper.0.insert(path.components().collect(), thing);
        }
        paper
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
            match self.0.get(&real)? {
                Thing::Link(to) => real = self.resolve(&real.parent()?.join(to))?,
                Thing::Dir | Thing::File(_) => {}
            }
        }
        Some(real)
    }
}

impl Disk for Paper {
    fn stat(&self, path: &Path) -> Option<PathInfo> {
        let real = self.resolve(path)?;
        let is_dir = matches!(self.0.get(&real)?, Thing::Dir);
        Some(PathInfo { real, is_dir })
    }

    fn read_link(&self, path: &Path) -> Option<PathBuf> {
        match self.0.get(path)? {
            Thing::Link(to) => Some(to.clone()),
            Thing::Dir | Thing::File(_) => None,
        }
    }

    fn read(&self, path: &Path) -> Option<String> {
        match self.0.get(&self.resolve(path)?)? {
            Thing::File(text) => Some(text.clone()),
            Thing::Dir | Thing::Link(_) => None,
        }
    }

    fn list_names(&self, directory: &Path) -> Vec<OsString> {
        let children = self.0.keys().filter(|path| path.parent() == Some(directory));
        children.filter_map(|path| path.file_name()).map(OsString::from).collect()
    }

    /// Paths with `closed` are inaccessible.
    fn is_accessible(&self, path: &Path) -> bool {
        !path.to_str().unwrap().contains("closed")
    }

    /// Files named `.sock` are sockets.
    fn sockets(&self) -> Vec<PathBuf> {
        let sockets = self.0.keys().filter(|path| path.extension() == Some(OsStr::new("sock")));
        sockets.cloned().collect()
    }
}
