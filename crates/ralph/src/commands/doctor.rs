//! `ralph doctor`: checks the installation and says how to fix problems.

use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::path::Path;

use super::settings::LoopFileView;
use super::{agents, sandbox};
use crate::config::{self, Sources};
use crate::platform::{GUARANTEES, Platform};
use crate::recover;
use ralph_events::error::Error;
use ralph_events::exit_code;
use ralph_process::trust;
use ralph_report::width::push_one_line;
use ralph_shell_policy::shell_quote;
use ralph_store::project::Project;
use ralph_store::project_record::{self, OrphanedRuns};

/// Exits with 2 if the settings or `.ralph/config` are invalid.
pub fn doctor(project: &Project) -> Result<u8, Error> {
    let dir = project.root();
    recover::clean_best_effort(dir);
    let mut out = String::from("Agents\n");
    let mut found = 0;
    for adapter in ralph_agents::all().iter().filter(|adapter| adapter.name() != "text") {
        let line = agents::find_installed(adapter.name(), dir).map(|found| describe(found, true));
        found += u32::from(line.is_some());
        let profile = adapter.profile();
        let root_switch = profile.extras.root_switch.filter(|_| line.is_some());
        row(&mut out, profile.name, line, &format!("install it: {}", profile.install_command));
        if let Some(variable) = root_switch.filter(|variable| asks_as_root(variable)) {
            out.push_str(&format!(
                "           {:<9} does not skip permissions as root: run ralph as another user, \
                 use --sandbox, or set {variable}=1 if this machine is a sandbox\n",
                ""
            ));
        }
    }
    if found == 0 {
        out.push_str("  No agent found. Any command can be one; `ralph demo` needs none.\n");
    }
    out.push_str("\nTools\n");
    for (name, args, otherwise) in [
        ("git", &["--version"][..], "needed for SCM tasks: install git"),
        ("sh", &[], "needed for checks"),
        ("tmux", &["-V"], "needed for background runs (`ralph spawn`): install tmux"),
    ] {
        match trust::outside_program(OsStr::new(name)) {
            Ok(path) => {
                let tool = agents::query_version(&path, args, dir);
                row(&mut out, name, Some(describe(tool, !args.is_empty())), "");
            }
            Err(err) if err.untrusted.is_some() => row(&mut out, name, None, &err.to_string()),
            Err(_) => row(&mut out, name, None, otherwise),
        }
    }
    let (works, diagnosis) = sandbox::diagnosis(project);
    row(&mut out, "sandbox", works.then(|| diagnosis.clone()), &diagnosis);
    out.push_str(&platform_status(OS, ARCH, || has_arm64(dir)));
    out.push_str("\nThis project\n");
    // A directory name may contain terminal escapes.
    let mut shown = Vec::new();
    push_one_line(&dir.to_string_lossy(), 500, "…", &mut shown);
    out.push_str(&format!("  directory  {}\n", String::from_utf8_lossy(&shown)));
    let sources = Sources {
        project_dir: dir.to_owned(),
        env: std::env::vars_os().collect(),
        ..Sources::default()
    };
    let (settings, mut is_wrong) = settings_status(&sources);
    out.push_str(&format!("  settings   {settings}\n"));
    if let Some(view) = LoopFileView::at(&sources) {
        let name = config::display_name(&view.path);
        match view.problem() {
            None => out.push_str(&format!("  config     {name}, for plan, build and prompt\n")),
            Some(error) => {
                is_wrong = true;
                out.push_str(&format!("  config     invalid\n{}\n", error.to_string().trim_end()));
            }
        }
    }
    out.push_str(&orphaned_runs(project.ralph_home()));
    crate::cli::print(&out)?;
    Ok(if is_wrong { exit_code::USAGE } else { exit_code::SUCCESS })
}

/// Says how the guarantees of `docs/src/platforms.md` are known to hold here. `has_arm64` is asked on
/// macOS for x86-64 only.
fn platform_status(os: &str, arch: &str, has_arm64: impl FnOnce() -> bool) -> String {
    let Some(platform) = Platform::find(os, arch) else {
        return format!("\nPlatform: {os} {arch}\n  untested\n");
    };
    let mut out = format!("\nPlatform: {}\n", platform.name);
    for guarantee in GUARANTEES {
        let exception =
            platform.exception(guarantee).map_or_else(String::new, |text| format!(", {text}"));
        let evidence = platform.evidence(guarantee);
        out.push_str(&format!("  {evidence:<18} {}{exception}\n", guarantee.text));
    }
    if (os, arch) == ("macos", "x86_64") && has_arm64() {
        out.push_str("  running under Rosetta: install ralph for arm64\n");
    }
    out
}

/// Whether macOS says that the processor is arm64.
fn has_arm64(dir: &Path) -> bool {
    trust::outside_program(OsStr::new("sysctl")).is_ok_and(|sysctl| {
        let answer = agents::query_version(&sysctl, &["-n", "hw.optional.arm64"], dir);
        answer.version_output.as_deref() == Some("1")
    })
}

fn orphaned_runs(home: &Path) -> String {
    let orphans = project_record::orphaned_runs(home);
    if orphans.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nRun data of projects that no longer exist\n");
    for OrphanedRuns { root, dir, bytes } in orphans {
        let megabytes = bytes as f64 / 1e6;
        let mut shown = Vec::new();
        push_one_line(&root.to_string_lossy(), 500, "…", &mut shown);
        let shown = String::from_utf8_lossy(&shown);
        out.push_str(&format!("  {megabytes:>6.1} MB  {shown}\n"));
        out.push_str(&format!(
            "             remove it: rm -r {}\n",
            shell_quote(&dir.to_string_lossy())
        ));
    }
    out
}

fn asks_as_root(root_switch: &str) -> bool {
    rustix::process::geteuid().is_root() && std::env::var_os(root_switch).is_none()
}

fn row(out: &mut String, name: &str, found: Option<String>, otherwise: &str) {
    match found {
        Some(description) => out.push_str(&format!("  ok       {name:<9} {description}\n")),
        None => out.push_str(&format!("  missing  {name:<9} {otherwise}\n")),
    }
}

fn describe(found: agents::InstalledAgent, was_asked: bool) -> String {
    match found.version_output {
        _ if !found.is_trusted => format!("{} ({})", agents::UNTRUSTED_LABEL, found.path),
        Some(version) => format!("{version} ({})", found.path),
        None if !was_asked => found.path,
        None => format!("{} (version unknown)", found.path),
    }
}

fn settings_status(sources: &Sources) -> (String, bool) {
    match config::load(sources) {
        Ok(loaded) if loaded.files.is_empty() => {
            ("none; create them with `ralph init`".into(), false)
        }
        Ok(loaded) => {
            let names: Vec<String> =
                loaded.files.iter().map(|path| config::display_name(path)).collect();
            (names.join(", "), false)
        }
        Err(error) => (format!("wrong\n{}", error.to_string().trim_end()), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_status_lists_every_guarantee() {
        let linux = platform_status("linux", "x86_64", || unreachable!());
        assert!(linux.starts_with("\nPlatform: Linux x86-64\n  tested             runs loops"));
        assert_eq!(linux.lines().count(), GUARANTEES.len() + 2);
        let mac = platform_status("macos", "aarch64", || unreachable!());
        let row = "\n  type-checked only  kills every process that an agent started, except some ";
        assert!(mac.contains(row), "{mac}");
        assert!(!linux.contains("except"), "{linux}");
        let other = platform_status("freebsd", "x86_64", || unreachable!());
        assert_eq!(other, "\nPlatform: freebsd x86_64\n  untested\n");
    }

    #[test]
    fn translated_program_is_reported() {
        let intel = platform_status("macos", "x86_64", || false);
        let translated = platform_status("macos", "x86_64", || true);
        let note = "  running under Rosetta: install ralph for arm64\n";
        assert_eq!(translated, intel + note);
    }
}
