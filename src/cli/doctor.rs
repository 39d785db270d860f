//! `ralph doctor`: what is here, and what to do about what is not.

use std::path::Path;

use super::settings::LoopFileLook;
use super::{agents, sandbox, swept};
use crate::agent;
use crate::config::{self, Sources};
use crate::error::Error;
use crate::report::visible::one_line;
use crate::state::project::Project;

pub(super) const EXAMPLES: &str = "Examples:\n  ralph doctor";

/// # Errors
/// Standard output cannot be written.
pub(super) fn doctor(project: &Project) -> Result<u8, Error> {
    let dir = project.root();
    swept::sweep_and_go_on(dir);
    let mut out = String::from("Agents\n");
    let mut found = 0;
    for adapter in agent::all().iter().filter(|adapter| adapter.name() != "text") {
        let line = check(adapter.name(), &["--version"], dir);
        found += u32::from(line.is_some());
        let refuses = line.is_some() && adapter.name() == "claude" && refuses_root();
        row(&mut out, adapter.name(), line, &format!("to get it: {}", adapter.install()));
        if refuses {
            out.push_str(&format!("           {:<9} {ROOT}\n", ""));
        }
    }
    if found == 0 {
        out.push_str("  No agent was found. Any command can be one; `ralph demo` needs none.\n");
    }
    out.push_str("\nTools\n");
    row(&mut out, "git", check("git", &["--version"], dir), "needed for SCM tasks: install git");
    row(&mut out, "sh", check("sh", &[], dir), "needed for guardrails");
    row(
        &mut out,
        "tmux",
        check("tmux", &["-V"], dir),
        "needed for background workers (`ralph spawn`): install tmux",
    );
    let (works, what) = sandbox::diagnosis(project);
    row(&mut out, "sandbox", works.then(|| what.clone()), &what);
    out.push_str("\nThis project\n");
    // A name may hold anything, and a terminal obeys a lot.
    let mut shown = Vec::new();
    one_line(&dir.to_string_lossy(), 500, "…", &mut shown);
    out.push_str(&format!("  directory  {}\n", String::from_utf8_lossy(&shown)));
    let sources = Sources {
        project_dir: dir.to_owned(),
        env: std::env::vars_os().collect(),
        ..Sources::default()
    };
    out.push_str(&format!("  settings   {}\n", settings(&sources)));
    if let Some(look) = LoopFileLook::at(&sources) {
        let name = config::display_name(&look.path);
        match look.problem() {
            None => out.push_str(&format!("  config     {name}, for plan, build and prompt\n")),
            Some(error) => {
                out.push_str(&format!("  config     wrong\n{}\n", error.to_string().trim_end()));
            }
        }
    }
    super::print(&out)
}

const ROOT: &str = "does not skip permissions as root: run ralph as an ordinary user, use --sandbox, or set \
                    IS_SANDBOX=1 if this machine is one";

/// Whether claude would refuse to work without asking: it does as root, unless it is told that it is in a sandbox.
fn refuses_root() -> bool {
    rustix::process::geteuid().is_root() && std::env::var_os("IS_SANDBOX").is_none()
}

fn row(out: &mut String, name: &str, found: Option<String>, otherwise: &str) {
    match found {
        Some(what) => out.push_str(&format!("  ok       {name:<9} {what}\n")),
        None => out.push_str(&format!("  missing  {name:<9} {otherwise}\n")),
    }
}

fn check(name: &str, args: &[&str], dir: &Path) -> Option<String> {
    let found = agents::find(name, args, dir)?;
    Some(match found.said {
        Some(version) => format!("{version} ({})", found.path),
        None if args.is_empty() => found.path,
        None => format!("{}, which does not tell its version", found.path),
    })
}

fn settings(sources: &Sources) -> String {
    match config::load(sources) {
        Ok(loaded) if loaded.files.is_empty() => "none; `ralph init` writes some".to_owned(),
        Ok(loaded) => {
            let names: Vec<String> =
                loaded.files.iter().map(|path| config::display_name(path)).collect();
            names.join(", ")
        }
        Err(error) => format!("wrong\n{}", error.to_string().trim_end()),
    }
}
