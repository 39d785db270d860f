//! Files can be moved and linked between a project's directories in every sandbox.

use crate::scene::{AttackMethod, Scene, TestBackend, as_root, as_user, ordinary_user};
use crate::support::skipped;

/// `git mv` renames a file, `git branch -m` a log; the latter then fails if the configuration is
/// read-only.
const SCRIPT: &str = "set -e; mkdir src lib; echo x > src/x; git add src\n\
     git -c user.name=me -c user.email=me@example.com commit -qm first\n\
     git mv src/x lib/y; git branch a; git branch -m a b/c || true; git rev-parse -q --verify b/c\n\
     ln lib/y src/hard; test lib/y -ef src/hard";

fn move_and_link(user: u32) {
    for cage in [TestBackend::Bwrap, TestBackend::BwrapAlone, TestBackend::Landlock] {
        let scene = Scene::new(user);
        if !cage.works_for(&scene) {
            skipped(&format!("{cage:?} does not work here"));
            continue;
        }
        let project = scene.path.join("project");
        let init = as_user(user, "git").args(["init", "-q"]).current_dir(&project).status();
        assert!(init.unwrap().success());
        let output = scene.output(cage, &scene.plan(), &AttackMethod::Shell(SCRIPT));
        assert!(output.status.success(), "{cage:?}, {user}: {output:?}");
        for moved in ["lib/y", ".git/logs/refs/heads/b/c"] {
            assert!(project.join(moved).exists(), "{cage:?}, {user}: {moved}");
        }
    }
}

#[test]
fn rename_between_directories_works_for_administrator() {
    as_root(move_and_link);
}

#[test]
fn rename_between_directories_works_for_ordinary_user() {
    move_and_link(ordinary_user());
}
