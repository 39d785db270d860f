//! Secrets of tools in the home are unreadable in a sandbox.

use std::fs;
use std::os::unix::fs::symlink;

use crate::scene::{AttackMethod, Scene, TestBackend, as_root, ordinary_user, probe};
use crate::support::skipped;

/// As GNU stow does it: `~/.cargo` links to `~/dotfiles/cargo`.
fn read_in_linked_directory(user: u32) {
    for cage in [TestBackend::Bwrap, TestBackend::BwrapAlone, TestBackend::Landlock] {
        let scene = Scene::new(user);
        if !cage.works_for(&scene) {
            skipped(&format!("{cage:?} does not work here"));
            continue;
        }
        let home = scene.path.join("home");
        fs::create_dir(home.join("dotfiles")).unwrap();
        fs::rename(home.join(".cargo"), home.join("dotfiles/cargo")).unwrap();
        symlink("dotfiles/cargo", home.join(".cargo")).unwrap();
        let tool = AttackMethod::Shell("cat {root}/home/dotfiles/cargo/bin/tool");
        assert!(scene.output(cage, &scene.plan(), &tool).status.success(), "{cage:?}, {user}");
        for script in [
            "grep -s secret {root}/home/.cargo/credentials.toml",
            "grep -s secret {root}/home/dotfiles/cargo/credentials.toml",
        ] {
            let read = probe(script, script, |_| {});
            let mut plan = scene.plan();
            assert!(!scene.escapes(cage, &plan, &read), "{cage:?}, {user}: {script}");
            plan.mounts.retain(|mount| !mount.at().ends_with("credentials.toml"));
            assert!(scene.escapes(cage, &plan, &read), "{cage:?}, {user}: it proves nothing");
        }
    }
}

#[test]
fn secret_in_linked_directory_hidden_from_administrator() {
    as_root(read_in_linked_directory);
}

#[test]
fn secret_in_linked_directory_hidden_from_ordinary_user() {
    read_in_linked_directory(ordinary_user());
}
