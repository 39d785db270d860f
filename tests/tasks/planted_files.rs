//! ralph's own git calls execute nothing that an agent planted in a repository.

use super::work::{print_step, project_with, work};
use super::*;

/// A command that creates a canary file outside the project and fails.
fn canary(project: &Project, name: &str) -> String {
    format!("touch {}; false", project.sibling(&format!("canary-{name}")).display())
}

fn triggered_canaries(project: &Project) -> Vec<String> {
    let parent = project.sibling("x").parent().expect("a directory").to_owned();
    let names = std::fs::read_dir(parent).expect("files").flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_prefix("canary-")?.to_owned())).collect();
    names.sort();
    for name in &names {
        std::fs::remove_file(project.sibling(&format!("canary-{name}"))).expect("a file");
    }
    names
}

fn plant_repository(project: &Project, at: &str) {
    project.git_command(["init", "--quiet", at]);
    project.write(&format!("{at}/file"), "one\n");
    for words in [&["add", "file"][..], &["commit", "--quiet", "-m", "x"]] {
        project.git_command(["-C", at].iter().chain(words));
    }
    project.git_command(["add", at]);
}

fn plant(project: &Project) {
    plant_repository(project, "nested");
    let nested = canary(project, "nested-fsmonitor");
    project.git_command(["-C", "nested", "config", "core.fsmonitor", &nested]);
    plant_repository(project, "filtered");
    let filter = canary(project, "nested-filter");
    project.git_command(["-C", "filtered", "config", "filter.x.clean", &filter]);
    project.write("filtered/.git/info/attributes", "* filter=x\n").write("filtered/file", "two\n");
    // git inspects only the submodules that it knows.
    let module =
        |path| format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = ./x\n\tignore = none\n");
    project.write(".gitmodules", module("filtered") + &module("sub"));
    plant_repository(project, "sub");
    project.git_command(["submodule", "--quiet", "absorbgitdirs", "sub"]);
    let sub = canary(project, "submodule-fsmonitor");
    project.git_command(["-C", "sub", "config", "core.fsmonitor", &sub]);
    let own = canary(project, "own-fsmonitor");
    project.git_command(["config", "core.fsmonitor", &own]);
    for (key, value) in [("log.showSignature", "true"), ("status.submoduleSummary", "true")] {
        project.git_command(["config", key, value]);
    }
}

#[test]
fn programs_planted_in_git_config_are_not_executed() {
    let project = project_with(&[open("US-1", &json!({}))]);
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    project.git_init();
    plant(&project);
    project.git_command(["-c", "core.fsmonitor=false", "commit", "--quiet", "-m", "First"]);
    triggered_canaries(&project);
    // Proves that the canaries work.
    project.git_command(["status"]);
    let all = ["nested-filter", "nested-fsmonitor", "own-fsmonitor", "submodule-fsmonitor"];
    assert_eq!(triggered_canaries(&project), all);

    let stop = json!({
        "session_id": "x", "hook_event_name": "Stop", "stop_hook_active": false,
        "cwd": project.path(), "transcript_path": project.sibling("transcript.jsonl"),
    });
    let commands = [
        (
            "run",
            project.ralph(["run", "-n", "1", "-p", "x", "--no-sandbox", "--dry-run", "--", "true"]),
        ),
        ("work", work(&project, &["-n", "1", "--dry-run"], &[json!([print_step("x")])])),
        (
            "hook stop",
            project.ralph(["hook", "stop"]).stdin(stop.to_string()).env("RALPH_RUN_ID", "x"),
        ),
        ("report", project.ralph(["report"])),
        ("doctor", project.ralph(["doctor"])),
        ("archive", project.ralph(["archive", "--force"])),
    ];
    for (name, command) in commands {
        let output = command.run();
        assert_eq!(
            triggered_canaries(&project),
            [""; 0],
            "{name}: {} {}",
            output.stdout,
            output.stderr
        );
    }
    assert!(project.has("ralph-archive"), "it was archived");
    let subject = project.git_command(["-c", "core.fsmonitor=false", "log", "-1", "--format=%s"]);
    assert!(subject.contains("rchive"), "and committed: {subject}");
}

/// The user configured the filters; an agent attaches them to its files.
#[test]
fn git_filters_are_not_run_for_inspection() {
    let project = project_with(&[open("US-1", &json!({}))]);
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    project.git_init().write("notebook", "one\n").write("data", "one\n").write("plain", "one\n");
    project.git_command(["add", "-A"]);
    project.git_command(["commit", "--quiet", "-m", "First"]);
    for key in
        ["filter.strip.clean", "filter.large.process", "diff.strip.textconv", "diff.external"]
    {
        project.git_command(["config", key, &canary(&project, key)]);
    }
    project.git_command(["config", "filter.large.required", "true"]);
    project.write(".gitattributes", "notebook filter=strip diff=strip\ndata filter=large\n");
    project.write("notebook", "two\n").write("data", "two\n");
    // Proves that the canaries work.
    for file in ["notebook", "data"] {
        project.command("git").args(["status", "--", file]).output().expect("git");
    }
    assert_eq!(triggered_canaries(&project), ["filter.large.process", "filter.strip.clean"]);
    let looks = json!({"stall": {"iterations": 2}, "sandbox": {"guardrails": false}});
    let commits = json!({"scm": {"command": "git", "tasks": ["commit"]}});
    let run = ["run", "-n", "3", "-p", "x"];
    for (settings, args) in [
        (&commits, &["--no-sandbox", "--dry-run", "--", "true"][..]),
        (&looks, &["--no-sandbox", "--", "echo", "x"]),
        (&looks, &["--sandbox", "--", "echo", "x"]),
    ] {
        project.settings(settings);
        let output = project.ralph(run).args(args).run();
        assert_eq!(
            triggered_canaries(&project),
            [""; 0],
            "{args:?}: {} {}",
            output.stdout,
            output.stderr
        );
    }
    project.settings(&commits);
    let output = project.ralph(run).args(["--no-sandbox", "--", "true"]).run();
    output.stderr_has("your uncommitted changes will be included in ralph's commits");
}

#[test]
fn planted_bare_repository_is_refused() {
    let project = Project::git();
    project.write("part/file", "");
    // git takes this for a bare repository with a work tree elsewhere.
    for directory in ["part/objects/x", "part/refs/x"] {
        project.write(directory, "");
    }
    let evil = canary(&project, "bare");
    project.write("part/HEAD", "ref: refs/heads/main\n").write(
        "part/config",
        format!("[core]\nbare = false\nworktree = .\nfsmonitor = \"{evil}\"\nrepositoryformatversion = 0\n"),
    );
    let part = project.path().join("part");
    project.git_command(["-C", "part", "status"]);
    assert_eq!(triggered_canaries(&project), ["bare"]);
    let settings = json!({"scm": {"command": "git", "tasks": ["commit"]}});
    project.write("part/.ralph/settings.json", settings.to_string());
    let run = ["run", "-n", "1", "-p", "x", "--no-sandbox", "--", "true"];
    project.ralph(run).current_dir(part).run().code(2).stderr_has("it is a bare repository");
    assert_eq!(triggered_canaries(&project), [""; 0]);
}

/// What an agent outside a sandbox can leave behind: links out of the project, and pipes.
#[test]
fn commands_refuse_links_out_of_project_and_pipes() {
    let project = project_with(&[open("US-1", &json!({}))]);
    project.git_init();
    let outside = project.sibling("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("file"), "theirs").expect("a file");
    let link = |to: &str, name: &str| {
        let at = project.path().join(name);
        let _ = std::fs::remove_file(&at);
        std::os::unix::fs::symlink(outside.join(to), at).expect("a link");
    };
    let untouched = |case: &str| {
        let file = std::fs::read_to_string(outside.join("file")).expect("a file");
        let count = std::fs::read_dir(&outside).expect("files").count();
        assert_eq!((file.as_str(), count), ("theirs", 1), "{case}");
    };
    let once = |project: &Project| work(project, &["-n", "1"], &[json!([print_step("x")])]);

    link("file", ".gitignore");
    once(&project)
        .run()
        .stderr_has("cannot write .gitignore")
        .stderr_has("links out of the project");
    project
        .ralph(["new", "--force"])
        .run()
        .success()
        .stderr_has("cannot add .ralph-active to .gitignore");
    untouched(".gitignore");
    write_list(&project, &list(&[open("US-1", &json!({}))]));
    link("file", ".ralph/lock");
    once(&project).run();
    untouched(".ralph/lock");

    // The active marker as a pipe, at the end of a run and at the start of the next.
    let swap = json!({"shell": "rm .ralph-active && mkfifo .ralph-active"});
    for _ in 0..2 {
        work(&project, &["-n", "1"], &[json!([swap, print_step("x")])]).run().code(1);
    }

    link("file", "ralph/prd.md");
    project
        .ralph(["archive", "--force"])
        .run()
        .code(2)
        .stderr_has("ralph/prd.md: it links out of the project");
    link("file", "ralph/tasks.json");
    project.ralph(["tasks"]).run().code(2).stderr_has("links out of the project");
    std::fs::remove_file(project.path().join("ralph/tasks.json")).expect("the link");
    let large = std::fs::File::create(project.path().join("ralph/tasks.json")).expect("a file");
    large.set_len(1 << 30).expect("a hole");
    project.ralph(["tasks"]).run().code(2).stderr_has("it is too large: 1024 MB");
    std::fs::remove_dir_all(project.path().join("ralph")).expect("the documents");
    link("", "ralph");
    project.ralph(["new"]).run().code(2).stderr_has("links out of the project");
    untouched("ralph");
    std::fs::remove_file(project.path().join("ralph")).expect("the link");
    project.ralph(["new"]).run().success();
    project.write("ralph/prd.md", "mine");
    link("", "ralph-archive");
    project.ralph(["archive", "--force"]).run().code(2).stderr_has("links out of the project");
    untouched("ralph-archive");
    std::fs::remove_dir_all(project.path().join(".ralph")).expect("ours");
    link("", ".ralph");
    let run = project.ralph(["run", "-n", "1", "-p", "x", "--no-sandbox", "--", "true"]).run();
    run.code(2).stderr_has("links out of the project");
    untouched(".ralph");
}

#[test]
fn planted_programs_are_not_run_by_work_and_archive() {
    let project = Project::git();
    project.settings(&json!({"scm": {"tasks": ["commit"]}}));
    project.write("ralph/prompt.md", "Work.");
    write_list(&project, &list(&[open("a", &json!({}))]));
    let bin = project.path().join("node_modules/.bin");
    project.plant_programs(&bin, &["git", "sh", "tmux", "bwrap", "claude"]);
    project.write(".gitignore", "node_modules\n");
    let path = project.path_with(&[&bin]);
    let sessions =
        [json!([work::write_stories_step(&[passing("a")]), work::print_step(work::PROMISE)])];
    work::work(&project, &[], &sessions).env("PATH", &path).run().code(0);
    assert_ne!(project.git_command(["log", "--format=%s"]), "");
    project.ralph(["archive"]).env("PATH", &path).run().code(0);
    project.ralph(["tasks"]).env("PATH", &path).run().code(0);
    assert_eq!(project.planted_runs(), Vec::<String>::new());
}
