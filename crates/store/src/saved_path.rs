//! Paths in JSON. A path that is not UTF-8 becomes its bytes in hexadecimal after a NUL, which no
//! path contains.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const BYTES_MARK: char = '\0';

fn to_text(path: &Path) -> Cow<'_, str> {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{BYTES_MARK}{digits}").into()
        }
    }
}

fn from_text(text: String) -> PathBuf {
    let Some(digits) = text.strip_prefix(BYTES_MARK) else { return text.into() };
    let bytes = digits.as_bytes().chunks(2).map_while(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    OsString::from_vec(bytes.collect()).into()
}

pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_text(path))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    String::deserialize(deserializer).map(from_text)
}

pub mod list {
    use super::*;

    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| to_text(path)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<String>::deserialize(d)?.into_iter().map(from_text).collect())
    }
}

/// Something by path.
pub mod map {
    use std::collections::BTreeMap;

    use super::*;

    pub fn serialize<S: Serializer, V: Serialize>(
        map: &BTreeMap<PathBuf, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(path, value)| (to_text(path), value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
        d: D,
    ) -> Result<BTreeMap<PathBuf, V>, D::Error> {
        let map = BTreeMap::<String, V>::deserialize(d)?;
        Ok(map.into_iter().map(|(path, value)| (from_text(path), value)).collect())
    }
}

/// Paths by path.
pub mod pairs {
    use std::collections::BTreeMap;

    use super::*;

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<PathBuf, PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(path, other)| (to_text(path), to_text(other))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<PathBuf, PathBuf>, D::Error> {
        let map = BTreeMap::<String, String>::deserialize(d)?;
        Ok(map.into_iter().map(|(path, other)| (from_text(path), from_text(other))).collect())
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
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn path_that_is_not_utf8_round_trips() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Saved {
            #[serde(with = "super")]
            path: PathBuf,
            #[serde(with = "super::list")]
            paths: Vec<PathBuf>,
            #[serde(with = "super::map")]
            map: BTreeMap<PathBuf, u8>,
            #[serde(with = "super::pairs")]
            pairs: BTreeMap<PathBuf, PathBuf>,
        }
        let odd = PathBuf::from(OsString::from_vec(b"/\xffx".to_vec()));
        let saved = Saved {
            path: odd.clone(),
            paths: vec!["/a \"b".into(), odd.clone()],
            map: [(odd.clone(), 1), ("/a".into(), 2)].into(),
            pairs: [(odd.clone(), odd), ("/a".into(), "/b".into())].into(),
        };
        let text = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<Saved>(&text).unwrap(), saved);
    }
}
