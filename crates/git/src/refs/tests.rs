use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;

use super::*;
use ralph_store::lock::{Holder, Lock, LockAttempt};
use ralph_store::run_files::RunFiles;

/// Files of repositories, written without git.
struct TestRepositories {
    dir: tempfile::TempDir,
}

impl TestRepositories {
    fn new() -> TestRepositories {
        let place = TestRepositories { dir: tempfile::tempdir().unwrap() };
        place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
        place.write("repo/.git/refs/heads/main", "1111\n");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn linked(&self, name: &str) {
        let top = self.path(name);
        self.write(&format!("{name}/.git"), &format!("gitdir: ../repo/.git/worktrees/{name}\n"));
        let state = format!("repo/.git/worktrees/{name}");
        self.write(&format!("{state}/gitdir"), &format!("{}/.git\n", top.display()));
        self.write(&format!("{state}/commondir"), "../..\n");
        self.write(&format!("{state}/HEAD"), &format!("ref: refs/heads/{name}\n"));
        self.write(&format!("repo/.git/refs/heads/{name}"), "1111\n");
    }

    fn look(&self, project: &str) -> u64 {
        fingerprint(&self.path(project), &self.path("home")).unwrap()
    }
}

#[test]
fn refs_fingerprint_changes_only_with_relevant_refs() {
    let place = TestRepositories::new();
    place.linked("tree");
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    let looks = || [place.look("repo"), place.look("tree/sub")];
    let mut before = looks();
    for (file, text, seen) in [
        ("refs/heads/main", "2222", [true, true]),
        ("refs/heads/deep/er", "2222", [true, true]),
        ("refs/tags/v1", "2222", [true, true]),
        ("refs/notes/commits", "2222", [true, true]),
        ("refs/stash", "2222", [true, true]),
        ("logs/refs/stash", "one stash and another", [true, true]),
        ("packed-refs", "# pack-refs with: peeled\n2222 refs/tags/v2\n^1111\n", [true, true]),
        ("packed-refs", "# pack-refs with: peeled\n3333 refs/tags/v2\n^1111\n", [true, true]),
        ("reftable/tables.list", "0x01-0x02-abc.ref", [true, true]),
        ("worktrees/new/HEAD", "2222", [true, true]),
        // `git status` covers a work tree's own.
        ("worktrees/tree/HEAD", "2222", [true, false]),
        ("worktrees/tree/index", "staged", [true, false]),
        ("index", "staged", [false, true]),
        ("HEAD", "2222", [false, true]),
        ("refs/remotes/origin/main", "2222", [false, false]),
        ("refs/prefetch/remotes/origin/main", "2222", [false, false]),
        ("refs/jj/keep/2222", "2222", [false, false]),
        ("packed-refs", "3333 refs/tags/v2\n^2222\n4444 refs/remotes/o/x\n", [false, false]),
        ("refs/heads/main.lock", "3333", [false, false]),
        ("worktrees/tree/logs/HEAD", "1111 2222", [false, false]),
        ("FETCH_HEAD", "2222", [false, false]),
    ] {
        place.write(&format!("repo/.git/{file}"), text);
        let now = looks();
        assert_eq!([now[0] != before[0], now[1] != before[1]], seen, "{file}");
        before = now;
    }
    assert_eq!(place.look("repo"), before[0]);
}

#[test]
fn refs_fingerprint_treats_submodule_as_own_repository() {
    let place = TestRepositories::new();
    place.write("repo/sub/.git", "gitdir: ../.git/modules/sub\n");
    place.write("repo/.git/modules/sub/HEAD", "ref: refs/heads/main\n");
    let (above, sub) = (place.look("repo"), place.look("repo/sub"));
    place.write("repo/.git/modules/sub/refs/heads/main", "2222");
    assert_eq!(place.look("repo"), above);
    assert_ne!(place.look("repo/sub"), sub);
    assert_eq!(fingerprint(Path::new("/"), Path::new("/h")), Some(0));
    for broken in ["", "gitdir: ", "gitdir: nowhere\n", "what\0ever"] {
        place.write("none/.git", broken);
        assert!(fingerprint(&place.path("none"), Path::new("/h")).is_some(), "{broken:?}");
    }
}

#[test]
fn refs_fingerprint_ignores_worktrees_of_other_runs() {
    let place = TestRepositories::new();
    let trees = ["mine", "theirs", "deep"];
    trees.iter().for_each(|tree| place.linked(tree));
    let run = |root: PathBuf| {
        let holder = Holder { pid: 1, run: "r".into(), command: "run".into() };
        let project = Project::new(&root, &place.path("home"));
        fs::create_dir_all(project.root()).unwrap();
        project.prepare_state().unwrap();
        let files = RunFiles::create(project.run_dir("r"), 100).unwrap();
        let taken = Lock::try_lock(project.root(), &project.lock_path(), &holder).unwrap();
        let LockAttempt::Acquired { lock, .. } = taken else { panic!("nobody is there") };
        (files, lock)
    };
    let works_on = |tree: &str, id: &str| {
        place.write(&format!("repo/.git/refs/heads/{tree}"), id);
        place.write(&format!("repo/.git/worktrees/{tree}/index"), id);
    };
    fs::create_dir_all(place.path("mine/part")).unwrap();
    // At the same depth as this one, and at the top.
    let (theirs, deep) = (run(place.path("theirs")), run(place.path("deep/part")));
    let before = place.look("mine/part");
    works_on("theirs", "2");
    works_on("deep", "2");
    assert_eq!(place.look("mine/part"), before);
    works_on("mine", "2");
    assert_ne!(place.look("mine/part"), before);
    drop((theirs, deep));
    let before = place.look("mine/part");
    works_on("theirs", "33");
    assert_ne!(place.look("mine/part"), before);
}

fn names() -> impl Strategy<Value = BTreeMap<String, (u8, bool, Option<u8>)>> {
    let name =
        prop::sample::select(vec!["heads/a", "heads/b/c", "tags/t", "stash", "notes/n", "x"]);
    // Value, whether it is loose, and a value in the packed list.
    let meaning = (0..4_u8, any::<bool>(), prop::option::of(0..4_u8));
    prop::collection::btree_map(name.prop_map(|name| format!("refs/{name}")), meaning, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Only values count, loose or packed.
    #[test]
    fn refs_fingerprint_is_same_for_loose_and_packed_refs(one in names(), other in names()) {
        let look = |names: &BTreeMap<String, (u8, bool, Option<u8>)>| {
            let place = TestRepositories::new();
            let mut list = String::from("# pack-refs with: peeled fully-peeled sorted \n");
            for (name, (id, loose, older)) in names {
                if *loose {
                    place.write(&format!("repo/.git/{name}"), &format!("{id:040}\n"));
                }
                if let Some(id) = if *loose { *older } else { Some(*id) } {
                    list.push_str(&format!("{id:040} {name}\n^{:040}\n", 7));
                }
            }
            place.write("repo/.git/packed-refs", &list);
            place.look("repo")
        };
        let meanings = |names: &BTreeMap<String, (u8, bool, Option<u8>)>| -> Vec<(String, u8)> {
            names.iter().map(|(name, (id, ..))| (name.clone(), *id)).collect()
        };
        prop_assert_eq!(look(&one) == look(&other), meanings(&one) == meanings(&other));
        let moved = one.iter().map(|(name, (id, loose, older))| (name.clone(), (*id, !loose, *older)));
        prop_assert_eq!(look(&moved.collect()), look(&one));
    }
}
