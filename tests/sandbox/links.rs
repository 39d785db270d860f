//! Links that an agent leaves to make the next sandbox show their target. Each is repeated with the
//! target mounted: an attack that fails even then proves nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ralph_sandbox::plan::{Mount, PlanInputs};

use crate::scene::{AttackMethod, Scene, TestBackend, as_root, ordinary_user, probe};
use crate::support::{Project, skipped};

const CAGES: [TestBackend; 3] =
    [TestBackend::Bwrap, TestBackend::BwrapAlone, TestBackend::Landlock];

/// A link in the project, its target in `~/.ssh`, and the setting or variable that names it.
struct Link {
    name: &'static str,
    target: &'static str,
    named_by: fn(&mut PlanInputs, &Path),
}

fn set(wanted: &mut PlanInputs, name: &str, value: &Path) {
    wanted.env.push((name.into(), value.into()));
}

const LINKS: &[Link] = &[
    Link {
        name: "bin",
        target: "",
        named_by: |wanted, link| {
            let dirs = [link, Path::new("/usr/bin"), Path::new("/bin")];
            wanted.env = vec![("PATH".into(), std::env::join_paths(dirs).unwrap())];
        },
    },
    Link { name: "pip", target: "", named_by: |wanted, link| set(wanted, "PIP_CACHE_DIR", link) },
    Link { name: "cargo", target: "", named_by: |wanted, link| set(wanted, "CARGO_HOME", link) },
    Link {
        name: "ca.pem",
        target: "id_ed25519",
        named_by: |wanted, link| set(wanted, "SSL_CERT_FILE", link),
    },
    Link {
        name: "config/settings.json",
        target: "id_ed25519",
        named_by: |wanted, link| set(wanted, "CLAUDE_CONFIG_DIR", link.parent().unwrap()),
    },
    Link {
        name: "config/.credentials.json",
        target: "id_ed25519",
        named_by: |wanted, link| set(wanted, "CLAUDE_CONFIG_DIR", link.parent().unwrap()),
    },
    Link {
        name: "agent",
        target: "id_ed25519",
        named_by: |wanted, link| wanted.agent = Some(link.to_owned()),
    },
    Link {
        name: "data",
        target: "",
        named_by: |wanted, link| wanted.readable.push(link.to_owned()),
    },
    Link {
        name: "data",
        target: "",
        named_by: |wanted, link| wanted.writable.push(link.to_owned()),
    },
    Link { name: ".git", target: "", named_by: |_, _| {} },
    Link { name: ".git/worktrees", target: "", named_by: |_, _| {} },
];

fn try_links(user: u32) {
    let me = rustix::process::getuid().as_raw();
    if me != 0 && me != user {
        return skipped("links as another user need the administrator");
    }
    for cage in CAGES {
        if !cage.works_for(&Scene::new(user)) {
            skipped(&format!("{cage:?} does not work here"));
            continue;
        }
        for link in LINKS {
            let scene = Scene::new(user);
            let ssh = scene.path.join("home/.ssh");
            let path = scene.path.join("project").join(link.name);
            let _ = fs::rename(&path, scene.path.join("project/was"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(ssh.join(link.target), &path).unwrap();
            let mut plan = scene.plan_with(|wanted| (link.named_by)(wanted, &path));
            let (at, there) = (path.display(), ssh.display());
            let script = format!("grep -rqs secret {at} {at}/ {there}");
            let read = probe(link.name, Box::leak(script.into_boxed_str()), |_| {});
            assert!(!scene.escapes(cage, &plan, &read), "{cage:?}, {user}: {}", link.name);
            plan.mounts.push(Mount::ReadOnly { from: ssh.clone(), at: ssh });
            assert!(
                scene.escapes(cage, &plan, &read),
                "{cage:?}, {user}: it cannot be read even if it is mounted, so that it proves nothing: {}",
                link.name
            );
        }
    }
}

#[test]
fn link_out_of_project_is_hidden_from_administrator() {
    as_root(try_links);
}

#[test]
fn link_out_of_project_is_hidden_from_ordinary_user() {
    try_links(ordinary_user());
}

/// The directory becomes a link between planning and start.
#[test]
fn link_created_after_planning_is_not_followed() {
    let user = ordinary_user();
    for cage in [TestBackend::Bwrap, TestBackend::Landlock] {
        let scene = Scene::new(user);
        if !cage.works_for(&scene) {
            skipped(&format!("{cage:?} does not work here"));
            continue;
        }
        let (home, tools) = (scene.path.join("home"), scene.path.join("project/tools"));
        fs::create_dir(&tools).unwrap();
        symlink(&tools, home.join("bin")).unwrap();
        let plan = scene.plan_with(|wanted| set(wanted, "SSL_CERT_DIR", &home.join("bin")));
        let is_tools =
            |mount: &Mount| matches!(mount, Mount::ReadOnly { from, .. } if *from == tools);
        assert!(plan.mounts.iter().any(is_tools), "{:?}", plan.mounts);
        fs::remove_dir(&tools).unwrap();
        symlink(home.join(".ssh"), &tools).unwrap();
        let read = "grep -rqs secret ~/bin/ ~/.ssh {root}/home/.ssh tools/";
        let output = scene.output(cage, &plan, &AttackMethod::ShellProbe(read));
        assert_ne!(output.status.code(), Some(crate::attacker::ESCAPED), "{cage:?}");
        assert_eq!(output.status.code() == Some(125), cage == TestBackend::Bwrap, "{output:?}");
    }
}

#[test]
fn link_created_during_run_is_reported_and_not_followed() {
    for backend in ["bwrap", "landlock"] {
        let project = Project::new();
        let check = project.ralph(["sandbox", "check"]).run().stdout;
        if !check.contains(&format!("ok      {backend}")) {
            skipped(&format!("{backend} does not work here"));
            continue;
        }
        let home = project.home();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(home.join(".ssh/id"), "canary").unwrap();
        project.write("tools/tool", "");
        symlink(project.path().join("tools"), home.join("bin")).unwrap();
        let mut path = home.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let home = home.display();
        project.write(
            "agent.sh",
            format!(
                "cat {home}/bin/* {home}/.ssh/* tools/* >> stolen 2> errors\n\
                 if [ ! -L tools ]; then mv tools old && ln -s {home}/.ssh tools; fi\n"
            ),
        );
        let sandbox = format!("--sandbox={backend}");
        let args = ["run", &sandbox, "-p", "Work.", "-n", "3", "--", "sh", "agent.sh"];
        let output = project.ralph(args).env("PATH", &path).run();
        let warning = "tools was removed or replaced by a link during the run";
        output.code(1).stderr_has(warning);
        assert_eq!(output.stderr.matches(warning).count(), 1, "{}", output.stderr);
        assert_eq!(project.read("stolen"), "", "{backend}");
        assert!(project.path().join("tools").is_symlink());
        let output = project.ralph(args).env("PATH", &path).run();
        output.code(1).stderr_has("sandbox: skipped PATH entry").stderr_has(" points out of ");
        assert_eq!(project.read("stolen"), "", "{backend}");
    }
}

#[test]
fn project_directory_behind_agent_link_is_refused() {
    let project = Project::git();
    let secrets = project.home().join(".ssh");
    fs::create_dir_all(&secrets).unwrap();
    project.write("packages/app/.ralph/settings.json", "{}");
    project.write("agent.sh", "touch ran; echo '<response>DONE</response>'\n");
    let run = |args: &[&str]| {
        let run = project.ralph(["run", "-p", "x", "-n", "1"]).args(args);
        run.args(["--", "sh", project.path().join("agent.sh").to_str().unwrap()])
    };
    run(&[]).run().code(0);
    run(&["-C", "packages/app"]).run().code(0);
    let app = project.path().join("packages/app");
    let run_id = fs::read_dir(app.join(".ralph/runs")).unwrap().flatten().next().unwrap();
    let run_id = run_id.file_name().into_string().unwrap();
    fs::rename(&app, project.path().join("packages/old")).unwrap();
    symlink(&secrets, &app).unwrap();
    let refused = "is a link to";
    let hint = format!("-C {}", secrets.display());
    run(&["-C", "packages/app"]).run().code(2).stderr_has(refused).stderr_has(&hint);
    run(&["-C", app.to_str().unwrap()]).run().code(2).stderr_has(refused);
    run(&[]).current_dir(&app).env("PWD", &app).run().code(2).stderr_has(refused);
    let resume = project.ralph(["resume", &run_id, "-C", "packages/app"]).run();
    resume.code(2).stderr_has(refused);
    assert_eq!(fs::read_dir(&secrets).unwrap().count(), 0);
    // Allowed: a wrong `PWD`, and a path that leaves the project without a link.
    run(&[]).env("PWD", &app).run().code(0);
    run(&["-C", "packages/../../home/.ssh"]).run().code(0);
    assert!(secrets.join("ran").exists(), "named by its own path");
}
