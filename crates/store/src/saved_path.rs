//! Paths in JSON. A path that is not UTF-8 is a list of bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SavedPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&PathBuf> for SavedPath {
    fn from(path: &PathBuf) -> SavedPath {
        match path.to_str() {
            Some(text) => SavedPath::Text(text.to_owned()),
            None => SavedPath::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<SavedPath> for PathBuf {
    fn from(saved: SavedPath) -> PathBuf {
        match saved {
            SavedPath::Text(text) => text.into(),
            SavedPath::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

pub fn serialize<S: Serializer>(path: &PathBuf, serializer: S) -> Result<S::Ok, S::Error> {
    SavedPath::from(path).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    SavedPath::deserialize(deserializer).map(PathBuf::from)
}

pub mod list {
    use super::*;

    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(SavedPath::from))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<PathBuf>, D::Error> {
        let saved = Vec::<SavedPath>::deserialize(d)?;
        Ok(saved.into_iter().map(PathBuf::from).collect())
    }
}

/// Replaces the directory `from` at the start of a path by `to`.
pub fn rebase(path: &mut PathBuf, from: &Path, to: &Path) {
    if let Ok(below) = path.strip_prefix(from) {
        *path = to.join(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_is_not_utf8_round_trips() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Saved {
            #[serde(with = "super")]
            path: PathBuf,
            #[serde(with = "super::list")]
            paths: Vec<PathBuf>,
        }
        let odd = PathBuf::from(OsString::from_vec(b"/\xff".to_vec()));
        let saved = Saved { path: odd.clone(), paths: vec!["/a \"b".into(), odd] };
        let text = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<Saved>(&text).unwrap(), saved);
    }
}
