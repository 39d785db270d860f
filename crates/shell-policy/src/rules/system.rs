//! Containers and processes.

use std::path::Path;

use super::{CommandInvocation, Hit, finding, flag_values};
use crate::value::{Argument, PARENT_PID, PID_PREFIX};

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    match command.name {
        "kill" => check_kill(command, hits),
        "pkill" | "killall" | "skill" => {
            // Without a name they kill everything of the user or the terminal.
            let owners =
                command.values(&["-u", "-U", "--user", "--euid", "--uid", "-t", "--terminal"]);
            let names = command.operands();
            let all =
                |arg: &&Argument| ["", ".", ".*", ".+", "^", "*"].contains(&arg.text.as_str());
            if names.is_empty() && !owners.is_empty() || names.iter().any(all) {
                hits.push(finding("user_processes_killed"));
            }
            let parent =
                command.values(&["-P", "--parent"]).iter().any(|arg| arg.text == PARENT_PID);
            if parent || command.operands().iter().any(|arg| targets_own_process(&arg.text)) {
                hits.push(finding("loop_killed"));
            }
        }
        "docker" | "podman" | "nerdctl" => check_container(command, hits),
        _ => {}
    }
}

/// Whether a pattern matches the loop, the agent or their parents.
fn targets_own_process(pattern: &str) -> bool {
    let protected = ["ralph", "claude", "codex", "tmux", "sshd", "systemd", "init"];
    let pattern = pattern.trim_matches(['^', '$']);
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    protected.iter().any(|name| {
        pattern.ends_with(name) || pattern.split([' ', '_']).any(|word| base(word) == *name)
    })
}

fn check_kill(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    // The first may be a signal. A negative number is a process group, -1 is everything.
    let mut targets = Vec::new();
    let mut args = command.args.iter().map(|arg| arg.text.as_str()).peekable();
    if let Some(first) = args.peek()
        && first.starts_with('-')
    {
        if ["-l", "-L", "--list", "-0"].contains(first) {
            return;
        }
        let valued = ["-s", "-n", "--signal"].contains(first);
        args.next();
        if valued {
            args.next();
        }
    }
    targets.extend(args.filter(|text| *text != "--"));
    if targets.contains(&"-1") || targets.contains(&"1") {
        hits.push(finding("all_processes_killed"));
    }
    if targets.contains(&PID_PREFIX) {
        hits.push(finding("user_processes_killed"));
    }
    if targets.contains(&"0") {
        hits.push(finding("group_killed"));
    }
    if targets.iter().any(|target| {
        let target = target.trim_start_matches('-');
        target == PARENT_PID || target.strip_prefix(PID_PREFIX).is_some_and(targets_own_process)
    }) {
        hits.push(finding("loop_killed"));
    }
}

fn check_container(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    for secret in command.values(&["--secret"]) {
        for part in secret.text.split(',') {
            if let Some(("src" | "source", file)) = part.split_once('=') {
                hits.extend(command.context.check_read(&Argument::known(file)));
            }
        }
    }
    let runs = ["run", "create", "exec", "container", "compose", "service"];
    if !runs.contains(&command.subcommand()) {
        return;
    }
    let system = [
        "/", "/etc", "/root", "/proc", "/sys", "/dev", "/var", "/var/run", "/run", "/boot", "/usr",
        "/home", "/var/lib", "/bin", "/Users",
    ];
    for DockerMount { host, .. } in mounts(command.args) {
        let path = Path::new(&host);
        let is_home = command.context.context.home == Some(path);
        if is_home || system.iter().any(|system| Path::new(system) == path) {
            hits.push(finding("machine_mounted"));
        }
        hits.extend(command.context.check_read(&Argument::known(host)));
    }
}

/// A mount in the options of `docker run`.
pub(crate) struct DockerMount {
    pub(crate) host: String,
    pub(crate) inside: Option<String>,
    pub(crate) is_read_only: bool,
}

pub(crate) fn mounts(options: &[Argument]) -> Vec<DockerMount> {
    let volumes = flag_values(options, &["-v", "--volume"]).into_iter().map(|volume| {
        let mut parts = volume.text.split(':').map(str::to_owned);
        let (host, inside, mode) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let is_read_only = mode.is_some_and(|mode| mode.split(',').any(|word| word == "ro"));
        DockerMount { host, inside, is_read_only }
    });
    let mounts = flag_values(options, &["--mount"]).into_iter().map(|mount| {
        let value = |keys: &[&str]| {
            let mut parts = mount.text.split(',').filter_map(|part| part.split_once('='));
            parts.find(|(key, _)| keys.contains(key)).map(|(_, value)| value.to_owned())
        };
        DockerMount {
            host: value(&["source", "src"]).unwrap_or_default(),
            inside: value(&["target", "destination", "dst"]),
            is_read_only: mount.text.contains("readonly") || mount.text.contains(",ro"),
        }
    });
    volumes.chain(mounts).collect()
}
