//! Containers and processes.

use super::{CommandInvocation, Hits};
use crate::Family::{Containers, Processes};
use crate::value::{Argument, PARENT_PID, PID_PREFIX};

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Hits) {
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
                hits.deny(Processes, KILLS_ALL_OF_USER, KILL_BY_PID);
            }
            let parent =
                command.values(&["-P", "--parent"]).iter().any(|arg| arg.text == PARENT_PID);
            if parent || command.operands().iter().any(|arg| targets_own_process(&arg.text)) {
                hits.deny(Processes, KILLS_LOOP, KILL_BY_PID);
            }
        }
        "docker" | "podman" | "nerdctl" => check_container(command, hits),
        _ => {}
    }
}

const KILLS_ALL_OF_USER: &str = "it ends every process of the user, and with them the loop";
const KILLS_LOOP: &str = "it ends the loop, the agent or what they run in";
const KILL_BY_PID: &str = "end the process that you started, by its number";

/// Whether a pattern matches the loop, the agent or their parents.
fn targets_own_process(pattern: &str) -> bool {
    let protected = ["ralph", "claude", "codex", "tmux", "sshd", "systemd", "init"];
    let pattern = pattern.trim_matches(['^', '$']);
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    protected.iter().any(|name| {
        pattern.ends_with(name) || pattern.split([' ', '_']).any(|word| base(word) == *name)
    })
}

fn check_kill(command: &CommandInvocation<'_>, hits: &mut Hits) {
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
        hits.deny(Processes, "it ends every process that it may, and itself", KILL_BY_PID);
    }
    if targets.contains(&PID_PREFIX) {
        hits.deny(Processes, KILLS_ALL_OF_USER, KILL_BY_PID);
    }
    if targets.contains(&"0") {
        hits.warn(
            Processes,
            "it ends all that was started together with it, and itself",
            KILL_BY_PID,
        );
    }
    if targets.iter().any(|target| {
        let target = target.trim_start_matches('-');
        target == PARENT_PID || target.strip_prefix(PID_PREFIX).is_some_and(targets_own_process)
    }) {
        hits.deny(Processes, KILLS_LOOP, KILL_BY_PID);
    }
}

fn check_container(command: &CommandInvocation<'_>, hits: &mut Hits) {
    const MOUNT_PROJECT_ONLY: &str = "mount the project alone, and give no more rights than needed";
    let mut secrets = Vec::new();
    for secret in command.values(&["--secret"]) {
        for part in secret.text.split(',') {
            if let Some(("src" | "source", file)) = part.split_once('=') {
                hits.extend(command.context.check_read(&Argument::known(file)));
            }
        }
    }
    let mut deny = |reason: &'static str| hits.deny(Containers, reason, MOUNT_PROJECT_ONLY);
    let runs = ["run", "create", "exec", "container", "compose", "service"];
    if !runs.contains(&command.subcommand()) {
        return;
    }
    for volume in command.values(&["-v", "--volume"]) {
        let host = volume.text.split(':').next().unwrap_or_default();
        check_mounts(command, host, &mut deny);
        secrets.extend(command.context.check_read(&Argument::known(host)));
    }
    for mount in command.values(&["--mount"]) {
        for part in mount.text.split(',') {
            if let Some((key, host)) = part.split_once('=')
                && (key == "source" || key == "src")
            {
                check_mounts(command, host, &mut deny);
            }
        }
    }
    hits.extend(secrets);
}

fn check_mounts(command: &CommandInvocation<'_>, host: &str, deny: &mut dyn FnMut(&'static str)) {
    if host.contains("docker.sock")
        || host.contains("containerd.sock")
        || host.contains("podman.sock")
    {
        deny("who has the socket of the container daemon has the machine");
        return;
    }
    let path = std::path::Path::new(host);
    let system = [
        "/", "/etc", "/root", "/proc", "/sys", "/dev", "/var", "/var/run", "/run", "/boot", "/usr",
        "/home", "/var/lib", "/bin", "/Users",
    ];
    let normal = host.trim_end_matches('/');
    let normal = if normal.is_empty() && host.starts_with('/') { "/" } else { normal };
    if system.contains(&normal) || command.context.context.home.is_some_and(|home| home == path) {
        deny("it mounts the machine's own files, or the whole home, into a container");
    }
}
