//! State that hooks keep between calls, in `$RALPH_HOME/hooks`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use ralph_store::private_files;
use ralph_store::project_record::fnv64;
use ralph_store::save::save_privately;

const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct SessionStore {
    directory: PathBuf,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HookSession {
    /// The highest threshold reported.
    #[serde(default)]
    pub(super) fired: u8,
}

/// The session that the loop started. Its agent may start others, which inherit its environment.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoopSession {
    #[serde(default)]
    pub(super) start: String,
    #[serde(default)]
    pub(super) session: String,
}

impl SessionStore {
    pub(super) fn new(ralph_home: &Path) -> Self {
        SessionStore { directory: ralph_home.join("hooks") }
    }

    pub(super) fn session(&self, id: &str) -> HookSession {
        read(&self.session_file(id))
    }

    /// `change` returns `None` if there is nothing to save.
    pub(super) fn update_session<T>(
        &self,
        id: &str,
        change: impl FnOnce(&mut HookSession) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.update(&self.session_file(id), change)
    }

    /// Also removes expired ones.
    pub(super) fn remove_session(&self, id: &str) {
        let _ = fs::remove_file(self.session_file(id));
        let old = SystemTime::now().checked_sub(SESSION_LIFETIME);
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let changed = entry.metadata().and_then(|meta| meta.modified()).ok();
            if changed.zip(old).is_some_and(|(changed, old)| changed < old) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Claims this session as the loop's own unless another one is. Returns whether it is. `start`
    /// identifies the start of an agent within the run.
    pub(super) fn claim_session(&self, run: &str, start: &str, session: &str) -> io::Result<bool> {
        let path = self.directory.join(format!("run-{}.json", file_name(run)));
        let known: LoopSession = read(&path);
        if known.start == start {
            return Ok(known.session == session);
        }
        let claimed = self.update(&path, |claim: &mut LoopSession| {
            (claim.start != start).then(|| {
                *claim = LoopSession { start: start.to_owned(), session: session.to_owned() };
            })
        })?;
        Ok(claimed.is_some() || read::<LoopSession>(&path).session == session)
    }

    fn session_file(&self, id: &str) -> PathBuf {
        self.directory.join(format!("session-{}.json", file_name(id)))
    }

    fn update<D: DeserializeOwned + Default + Serialize, T>(
        &self,
        path: &Path,
        change: impl FnOnce(&mut D) -> Option<T>,
    ) -> io::Result<Option<T>> {
        private_files::create_dir_all(&self.directory)?;
        // Tool calls and their hooks run in parallel.
        let directory = File::open(&self.directory)?;
        directory.lock()?;
        let mut data = read(path);
        let changed = change(&mut data);
        if changed.is_some() {
            save_privately(path, serde_json::to_string(&data)?.as_bytes())?;
        }
        Ok(changed)
    }
}

fn read<D: DeserializeOwned + Default>(path: &Path) -> D {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// A name for any text, without path separators.
fn file_name(word: &str) -> String {
    format!("{:016x}", fnv64(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn memory() -> (tempfile::TempDir, SessionStore) {
        let dir = tempfile::tempdir().unwrap();
        let memory = SessionStore::new(dir.path());
        (dir, memory)
    }

    fn fire(memory: &SessionStore, id: &str, threshold: u8) {
        let changed = memory.update_session(id, |session| {
            session.fired = threshold;
            Some(())
        });
        changed.unwrap();
    }

    #[test]
    fn hook_session_is_remembered_until_forgotten() {
        let (_dir, memory) = memory();
        assert_eq!(memory.session("a").fired, 0);
        fire(&memory, "a", 70);
        assert_eq!(memory.session("a").fired, 70);
        assert_eq!(memory.session("b").fired, 0);
        memory.remove_session("a");
        assert_eq!(memory.session("a").fired, 0);
    }

    #[test]
    fn any_session_id_maps_to_its_own_file() {
        let (dir, memory) = memory();
        let long = "x".repeat(5_000);
        let ids = ["../../etc/passwd", "/", "..", ".", "", "a/b", "a%2fb", "a\0b", "ä", &long];
        let longer = format!("{long}y");
        let names: HashSet<String> =
            ids.iter().copied().chain([longer.as_str()]).map(file_name).collect();
        assert_eq!(names.len(), ids.len() + 1);
        for id in ids {
            fire(&memory, id, 50);
            assert_eq!(memory.session(id).fired, 50, "{id}");
        }
        let files = fs::read_dir(dir.path().join("hooks")).unwrap().count();
        assert_eq!(files, ids.len());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn corrupt_session_file_is_ignored() {
        let (dir, memory) = memory();
        for rubbish in ["", "{", "[]", r#"{"fired": 1000}"#, r#"{"fired": "x"}"#] {
            fs::create_dir_all(dir.path().join("hooks")).unwrap();
            fs::write(memory.session_file("a"), rubbish).unwrap();
            assert_eq!(memory.session("a"), HookSession::default());
            fire(&memory, "a", 60);
            assert_eq!(memory.session("a").fired, 60);
        }
    }

    #[test]
    fn first_session_of_attempt_claims_the_loop() {
        let (_dir, memory) = memory();
        assert!(memory.claim_session("run", "1.1", "outer").unwrap());
        assert!(!memory.claim_session("run", "1.1", "inner").unwrap());
        assert!(memory.claim_session("run", "1.1", "outer").unwrap());
        assert!(memory.claim_session("run", "1.2", "next").unwrap());
        assert!(!memory.claim_session("run", "1.2", "outer").unwrap());
        assert!(memory.claim_session("other run", "1.2", "outer").unwrap());
    }

    #[test]
    fn concurrent_hooks_report_alert_once() {
        let (_dir, memory) = memory();
        let told = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        memory.update_session("a", |session| {
                            (session.fired < 70).then(|| session.fired = 70)
                        })
                    })
                })
                .collect();
            threads.into_iter().filter_map(|t| t.join().unwrap().unwrap()).count()
        });
        assert_eq!(told, 1);
    }

    #[test]
    fn old_session_files_are_removed() {
        let (dir, memory) = memory();
        fire(&memory, "old", 50);
        fire(&memory, "new", 50);
        let old = File::options().write(true).open(memory.session_file("old")).unwrap();
        old.set_modified(SystemTime::now() - 2 * SESSION_LIFETIME).unwrap();
        memory.remove_session("another");
        assert_eq!(fs::read_dir(dir.path().join("hooks")).unwrap().count(), 1);
        assert_eq!(memory.session("new").fired, 50);
    }
}
