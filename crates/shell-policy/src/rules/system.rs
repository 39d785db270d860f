//! Privilege; container escape; system configuration; processes and kernel; persistence.

use super::table::{MACHINE_INSTALLERS, deny, warn};
use super::{CommandInvocation, CommandRule, Hit};
use crate::Family::{
    Containers, Environment, Obfuscation, Persistence, Privilege, Processes, System,
};
use crate::value::{Argument, PARENT_PID, PID_PREFIX};

const NO_ROOT: &str = "do it without more rights, or say in your answer what a person should do";
const LEAVE_MACHINE: &str =
    "leave the machine as it is, or say in your answer what a person should do";
const RUN_IT_NOW: &str = "run it now, yourself, for the time of this work";

pub(super) const RULES: &[CommandRule] = &[
    // Privilege
    deny(Privilege, &["sudo", "doas", "pkexec", "gksudo", "kdesudo", "sudoedit", "run0", "dzdo"])
        .reason("it runs with the rights of another user", NO_ROOT),
    deny(Privilege, &["visudo"])
        .unless(&["-c", "--check"])
        .reason("it changes who may have the rights of another user", NO_ROOT),
    deny(Privilege, &["su", "runuser", "newgrp", "sg", "login"])
        .reason("it becomes another user", NO_ROOT),
    deny(Privilege, &["setcap", "capsh", "chcon", "setfattr"])
        .reason("it gives a program rights that it did not have", NO_ROOT),
    deny(
        Privilege,
        &[
            "usermod",
            "gpasswd",
            "adduser",
            "useradd",
            "userdel",
            "deluser",
            "groupadd",
            "groupdel",
            "groupmod",
            "addgroup",
            "passwd",
            "chpasswd",
            "vipw",
            "vigr",
            "dscl",
            "sysadminctl",
            "dseditgroup",
        ],
    )
    .reason("it changes the users of this machine", LEAVE_MACHINE),
    // Container escape
    deny(
        Containers,
        &[
            "nsenter",
            "unshare",
            "chroot",
            "pivot_root",
            "systemd-nspawn",
            "lxc-attach",
            "ctr",
            "runc",
            "crictl",
        ],
    )
    .reason("it leaves or makes namespaces by hand", "use the container tool of the project"),
    deny(Containers, &["docker", "podman", "nerdctl"])
        .subcommands(&["run", "create", "exec", "container run", "compose run", "compose exec"])
        .flags(&["--privileged"])
        .reason(
            "a privileged container has all the rights of the machine",
            "run it without --privileged",
        ),
    warn(Containers, &["docker", "podman", "nerdctl"])
        .subcommands(&[
            "system prune",
            "volume prune",
            "image prune",
            "container prune",
            "builder prune",
            "network prune",
            "volume rm",
            "rm",
            "rmi",
            "container rm",
            "image rm",
        ])
        .reason(
            "it deletes containers, images or volumes, also of others",
            "remove the ones that you made, by name",
        ),
    warn(Containers, &["docker", "podman", "nerdctl", "docker-compose"])
        .subcommands(&["compose down", "down"])
        .flags(&["-v", "--volumes", "--rmi"])
        .reason("it deletes the data of the services, too", "leave the volumes"),
    // System configuration
    deny(System, &["shutdown", "reboot", "halt", "poweroff", "telinit", "init"])
        .reason("it stops the machine", LEAVE_MACHINE),
    deny(Persistence, &["systemctl", "launchctl", "rc-update", "update-rc.d", "chkconfig"])
        .subcommands(&[
            "enable",
            "reenable",
            "link",
            "edit",
            "load",
            "bootstrap",
            "submit",
            "add",
            "preset",
            "*.service",
        ])
        .reason("it makes a service that starts by itself", RUN_IT_NOW),
    deny(System, &["systemctl", "launchctl", "service", "rc-service", "initctl"])
        .subcommands(&[
            "start",
            "stop",
            "restart",
            "reload",
            "disable",
            "mask",
            "unmask",
            "kill",
            "isolate",
            "poweroff",
            "reboot",
            "halt",
            "daemon-reload",
            "set-*",
            "unload",
            "bootout",
            "remove",
            "* start",
            "* stop",
            "* restart",
        ])
        .reason("it starts, stops or changes services of this machine", LEAVE_MACHINE),
    deny(
        System,
        &[
            "iptables",
            "ip6tables",
            "nft",
            "ufw",
            "firewall-cmd",
            "pfctl",
            "iptables-restore",
            "ebtables",
            "ipset",
        ],
    )
    .unless(&["-L", "--list", "-S"])
    .reason("it changes the firewall", LEAVE_MACHINE),
    deny(
        System,
        &[
            "ip",
            "route",
            "ifconfig",
            "nmcli",
            "networksetup",
            "resolvectl",
            "scutil",
            "brctl",
            "iwconfig",
            "tc",
        ],
    )
    .subcommands(&[
        "* add",
        "* del",
        "* delete",
        "* set",
        "* replace",
        "* flush",
        "add",
        "del",
        "delete",
        "* up",
        "* down",
        "flush",
        "connection *",
        "-set*",
    ])
    .reason("it changes the network", LEAVE_MACHINE),
    deny(System, &["mount", "umount", "swapon", "swapoff", "fusermount"])
        .subcommands(&["*"])
        .reason("it changes what is mounted", LEAVE_MACHINE),
    deny(
        System,
        &[
            "hostname",
            "hwclock",
            "setenforce",
            "dpkg-reconfigure",
            "csrutil",
            "spctl",
            "tmutil",
            "pmset",
            "systemsetup",
            "reg",
            "setx",
        ],
    )
    .subcommands(&["*"])
    .reason("it changes the settings of this machine", LEAVE_MACHINE),
    deny(System, &["hostnamectl", "timedatectl", "localectl"])
        .subcommands(&[
            "set-*",
            "hostname *",
            "icon-name *",
            "chassis *",
            "deployment *",
            "location *",
        ])
        .reason("it changes the settings of this machine", LEAVE_MACHINE),
    deny(System, &["update-alternatives"])
        .subcommands(&["*"])
        .unless(&["--list", "--display", "--query"])
        .reason("it changes the settings of this machine", LEAVE_MACHINE),
    deny(System, &["defaults"])
        .subcommands(&["write", "delete"])
        .reason("it changes the settings of this machine", LEAVE_MACHINE),
    deny(System, MACHINE_INSTALLERS)
        .subcommands(&[
            "remove",
            "purge",
            "autoremove",
            "erase",
            "del",
            "uninstall",
            "rm",
            "full-upgrade",
            "dist-upgrade",
            "unmerge",
        ])
        .reason("it removes or replaces packages of this machine", LEAVE_MACHINE),
    deny(System, &["pacman"])
        .flags(&["-R", "-Rs", "-Rns", "-Rdd", "--remove"])
        .reason("it removes packages of this machine", LEAVE_MACHINE),
    deny(System, &["dpkg", "rpm"])
        .flags(&[
            "-r",
            "-P",
            "-e",
            "-i",
            "-U",
            "--remove",
            "--purge",
            "--install",
            "--erase",
            "--force-all",
        ])
        .reason("it installs or removes packages of this machine", LEAVE_MACHINE),
    deny(System, &["date"]).flags(&["-s", "--set"]).reason("it sets the clock", LEAVE_MACHINE),
    // Processes and kernel
    deny(Processes, &["killall5", "slay"]).reason(KILLS_ALL_OF_USER, KILL_BY_PID),
    deny(Processes, &["loginctl"])
        .subcommands(&["terminate-*", "kill-*"])
        .reason(KILLS_ALL_OF_USER, KILL_BY_PID),
    warn(Processes, &["killall", "pkill", "skill", "fuser"])
        .unless(&["-0", "-l", "--list"])
        .reason(
            "it ends every process of that name, also those of others",
            "end the process that you started, by its number",
        ),
    deny(
        Processes,
        &[
            "insmod",
            "rmmod",
            "modprobe",
            "depmod",
            "kexec",
            "kmod",
            "dkms",
            "bpftool",
            "kextload",
            "kextunload",
            "kldload",
        ],
    )
    .reason("it changes the running kernel", LEAVE_MACHINE),
    deny(Processes, &["sysctl"])
        .flags(&["-w", "-p", "--write", "--load", "--system"])
        .reason("it changes settings of the kernel", LEAVE_MACHINE),
    deny(Processes, &["gcore", "ptrace", "criu"])
        .reason("it reads the memory of another process", "log in the program itself"),
    deny(Processes, &["gdb", "lldb", "strace", "ltrace", "dtruss"])
        .flags(&["-p", "--pid", "--attach"])
        .reason("it takes hold of a running process", "start the program under the debugger"),
    warn(Processes, &["tmux"]).subcommands(&["kill-server"]).reason(
        "it ends every session, also those of others",
        "end the session that you made, by its name",
    ),
    deny(Processes, &["ralph"])
        .subcommands(&["kill", "pause", "stop"])
        .reason("it would end the loop that runs you", "finish your work; the loop ends by itself"),
    // Persistence
    deny(Persistence, &["at", "batch", "schtasks", "anacron", "systemd-run", "incrontab"])
        .unless(&["-l", "-V"])
        .reason("it has a command run later, when nobody looks", RUN_IT_NOW),
    deny(Persistence, &["loginctl"])
        .subcommands(&["enable-linger"])
        .reason("it lets processes outlive the session", RUN_IT_NOW),
    deny(Persistence, &["pm2", "forever"])
        .subcommands(&["startup", "save"])
        .reason("it makes a service that starts by itself", RUN_IT_NOW),
    deny(Persistence, &["chsh"])
        .unless(&["-l", "--list-shells"])
        .reason("it changes what happens at the next login", LEAVE_MACHINE),
    deny(Persistence, &["ssh-copy-id"])
        .reason("it changes what happens at the next login", LEAVE_MACHINE),
    // Obfuscation
    deny(Obfuscation, &["hash"])
        .flags(&["-p"])
        .reason("a program is given another name", "call it by its own name"),
    // Environment hijack
    deny(Environment, &["ldconfig", "patchelf", "install_name_tool"])
        .subcommands(&["*"])
        .reason("it changes what programs load", "build the program as it should be"),
    deny(Environment, &["update-ca-certificates", "update-ca-trust", "certutil", "trust"])
        .reason("it changes whom this machine trusts", LEAVE_MACHINE),
    deny(Environment, &["npm", "pnpm", "yarn"])
        .subcommands(&[
            "config set *script-shell*",
            "config set prefix *",
            "config set ignore-scripts*",
            "config set proxy*",
        ])
        .reason(
            "it changes what every later npm runs",
            "give the option to the one command that needs it",
        ),
];

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    match command.name {
        "kill" => check_kill(command, hits),
        "pkill" | "killall" | "skill" => {
            // Without a name it ends all that the user, or the terminal, has.
            let whose =
                command.values(&["-u", "-U", "--user", "--euid", "--uid", "-t", "--terminal"]);
            let names = command.operands();
            let all =
                |arg: &&Argument| ["", ".", ".*", ".+", "^", "*"].contains(&arg.text.as_str());
            if names.is_empty() && !whose.is_empty() || names.iter().any(all) {
                hits.push(Hit::deny(Processes, KILLS_ALL_OF_USER, KILL_BY_PID));
            }
            let parent =
                command.values(&["-P", "--parent"]).iter().any(|arg| arg.text == PARENT_PID);
            if parent || command.operands().iter().any(|arg| targets_own_process(&arg.text)) {
                hits.push(Hit::deny(Processes, KILLS_LOOP, KILL_BY_PID));
            }
        }
        "crontab" => {
            let harmless = command.has(&["-l"]) && !command.has(&["-r", "-e"]);
            if !harmless {
                hits.push(Hit::deny(
                    Persistence,
                    "it changes what runs by itself at set times",
                    RUN_IT_NOW,
                ));
            }
        }
        "docker" | "podman" | "nerdctl" => check_container(command, hits),
        "ulimit" if command.args.iter().any(|arg| arg.text == "unlimited") => {
            hits.push(Hit::warn(
                crate::Family::Resources,
                "it takes a limit away that keeps the machine usable",
                "leave the limits",
            ));
        }
        _ => {}
    }
}

const KILLS_ALL_OF_USER: &str = "it ends every process of the user, and with them the loop";
const KILLS_LOOP: &str = "it ends the loop, the agent or what they run in";
const KILL_BY_PID: &str = "end the process that you started, by its number";

/// Whether a pattern of command lines means what runs this.
fn targets_own_process(pattern: &str) -> bool {
    let ours = ["ralph", "claude", "codex", "tmux", "sshd", "systemd", "init"];
    let pattern = pattern.trim_matches(['^', '$']);
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    ours.iter().any(|name| {
        pattern.ends_with(name) || pattern.split([' ', '_']).any(|word| base(word) == *name)
    })
}

fn check_kill(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    // The first dash may be a signal; a second negative number is a process group, -1 is everybody.
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
        hits.push(Hit::deny(
            Processes,
            "it ends every process that it may, and itself",
            KILL_BY_PID,
        ));
    }
    if targets.contains(&PID_PREFIX) {
        hits.push(Hit::deny(Processes, KILLS_ALL_OF_USER, KILL_BY_PID));
    }
    if targets.contains(&"0") {
        hits.push(Hit::warn(
            Processes,
            "it ends all that was started together with it, and itself",
            KILL_BY_PID,
        ));
    }
    if targets.iter().any(|target| {
        let target = target.trim_start_matches('-');
        target == PARENT_PID || target.strip_prefix(PID_PREFIX).is_some_and(targets_own_process)
    }) {
        hits.push(Hit::deny(Processes, KILLS_LOOP, KILL_BY_PID));
    }
}

fn check_container(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    const MOUNT_PROJECT_ONLY: &str = "mount the project alone, and give no more rights than needed";
    let mut secrets = Vec::new();
    for secret in command.values(&["--secret"]) {
        for part in secret.text.split(',') {
            if let Some(("src" | "source", file)) = part.split_once('=') {
                hits.extend(command.context.check_read(&Argument::known(file)));
            }
        }
    }
    let mut deny =
        |reason: &'static str| hits.push(Hit::deny(Containers, reason, MOUNT_PROJECT_ONLY));
    let runs = command.operands().first().is_some_and(|sub| {
        ["run", "create", "exec", "container", "compose", "service"].contains(&sub.text.as_str())
    });
    if !runs {
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
    for (flags, values, reason) in [
        (
            &["--pid", "--ipc", "--uts", "--userns", "--cgroupns"][..],
            &["host"][..],
            "it shares a namespace with the machine",
        ),
        (
            &["--cap-add"],
            &[
                "ALL",
                "SYS_ADMIN",
                "SYS_PTRACE",
                "SYS_MODULE",
                "DAC_READ_SEARCH",
                "NET_ADMIN",
                "all",
                "CAP_SYS_ADMIN",
            ],
            "it gives the container rights over the machine",
        ),
        (
            &["--security-opt"],
            &["seccomp=unconfined", "apparmor=unconfined", "seccomp:unconfined", "label=disable"],
            "it takes the container's walls down",
        ),
    ] {
        if command.values(flags).iter().any(|value| values.contains(&value.text.as_str())) {
            deny(reason);
        }
    }
    if command.values(&["--device"]).iter().any(|device| device.text.starts_with("/dev/")) {
        deny("it gives the container a device of the machine");
    }
    hits.append(&mut secrets);
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
