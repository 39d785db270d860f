//! `ralph demo`: the real loop, on a scratch repository, with a scripted agent.

use clap::Args;
use serde_json::json;

use crate::config::FlagSetting;
use crate::demo;
use ralph_events::env_names;
use ralph_events::error::Error;
use ralph_git::run_git;
use ralph_process as process;
use ralph_process::trust;
use ralph_store::home;
use ralph_store::project::Project;

use super::serve::ServeArgs;
use crate::cli::args::LoopArgs;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Run without pauses.
    #[arg(long)]
    pub fast: bool,

    /// Show several loops at once in `ralph ui`.
    #[arg(long, conflicts_with_all = ["fast", "keep"])]
    pub ui: bool,

    /// Show several loops at once in a browser.
    #[arg(long, conflicts_with_all = ["fast", "keep", "ui"])]
    pub serve: bool,

    /// Keep the scratch repository.
    #[arg(long)]
    pub keep: bool,
}

pub fn demo(args: &DemoArgs) -> Result<u8, Error> {
    use_trusted_path()?;
    if args.ui {
        return watch_fleet();
    }
    if args.serve {
        let fleet = demo::DemoFleet::start()?;
        return super::serve::serve_home(&ServeArgs::on_any_port(), fleet.home().to_owned(), true);
    }
    let scratch_error = |err: std::io::Error| {
        Error::failed(format!("cannot create the scratch repository: {err}"))
            .hint("set TMPDIR to a writable directory")
    };
    let scratch = tempfile::Builder::new()
        .prefix("ralph-demo-")
        .disable_cleanup(args.keep)
        .tempdir()
        .map_err(scratch_error)?;
    let dir = scratch.path().join("project");
    demo::prepare(&dir).map_err(scratch_error)?;
    // The runs go where the repository goes.
    let home = match args.keep {
        true => home::require_ralph_home(|name| std::env::var_os(name))?,
        false => scratch.path().join("home"),
    };
    let project = Project::new(&dir, &home);
    // Keeps ralph's own files out of the agent's changes.
    project.prepare().map_err(scratch_error)?;
    for step in demo::GIT_COMMANDS {
        run_git(step, &dir).map_err(|err| err.hint("the demo needs git on the PATH"))?;
    }
    // `main` recognizes the agent by the name of this link.
    let agent = scratch.path().join(demo::AGENT_NAME);
    let me = std::env::current_exe().map_err(scratch_error)?;
    std::os::unix::fs::symlink(me, &agent).map_err(scratch_error)?;

    crate::cli::print(&format!(
        "This demo runs a loop in a scratch repository whose test (`{}`) fails.\n\
         The agent is a script that imitates claude and claims to be done too early:\n\
         no account, no network, and the costs are invented.\n\n",
        demo::TEST_COMMAND
    ))?;
    let flag = |key, value| FlagSetting { key, value, name: "demo".to_owned() };
    let flags = vec![
        flag("agent.command", json!(agent)),
        flag("agent.flags", json!(if args.fast { vec!["--fast"] } else { vec![] })),
        flag("agent.type", json!("claude")),
    ];
    let mut run = LoopArgs::default();
    run.prompt.prompt_file = Some(dir.join(demo::PROMPT_FILE));
    let code = super::run::run(&project, &run, flags)?;
    let log = run_git(&["log", "--oneline", "--stat", "-1"], &dir)?;
    let place = match args.keep {
        true => format!("The repository is in {}", dir.display()),
        false => "The scratch repository was removed (keep it with --keep).".to_owned(),
    };
    crate::cli::print(&format!(
        "\nThe commit it made:\n\n{log}\n{place}\n\n\
         To do the same in your own project:\n\n  \
         ralph run --check \"make test\" -p \"Make the tests pass. \\\n    \
         Answer <response>DONE</response> when they do.\" -- claude\n"
    ))?;
    Ok(code)
}

/// Shows several loops in `ralph ui`, and ends them with it.
fn watch_fleet() -> Result<u8, Error> {
    let failed = |err: std::io::Error| Error::failed(format!("cannot start the demo: {err}"));
    // A signal ends the screen, and then this process in order.
    let _signals = process::TerminalSignals::install().map_err(failed)?;
    let fleet = demo::DemoFleet::start()?;
    let me = std::env::current_exe().map_err(failed)?;
    let home = Some(fleet.home().as_os_str().to_owned());
    process::run_in_terminal(&[me.into(), "ui".into()], &[(env_names::RALPH_HOME, home)])
        .map_err(failed)?;
    Ok(0)
}

/// Restarts if agents can write to a directory on the `PATH`: the demo's scripts run outside a
/// sandbox.
fn use_trusted_path() -> Result<(), Error> {
    let trusted = trust::outside_path();
    if trust::user_path().as_ref() == Some(&trusted) {
        return Ok(());
    }
    let failed = |err: std::io::Error| Error::failed(format!("cannot start the demo: {err}"));
    let me = std::env::current_exe().map_err(failed)?.into_os_string();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let env = std::env::vars_os().filter(|(name, _)| name != "PATH");
    let env = env.chain([("PATH".into(), trusted)]).collect();
    Err(failed(process::exec(&me, &args, Some(env))))
}
