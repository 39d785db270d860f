//! Privilege; container escape; system configuration; processes and kernel; persistence.

use super::table::{MACHINE_INSTALLERS, deny, warn};
use super::{Hit, Invocation, Rule};
use crate::Family::{
    Containers, Environment, Obfuscation, Persistence, Privilege, Processes, System,
};
use crate::value::{Arg, PARENT, PROCESS};

const NO_ROOT: &str = "do it without more rights, or say in your answer what a person should do";
const LEAVE: &str = "leave the machine as it is, or say in your answer what a person should do";
const ONCE: &str = "run it now, yourself, for the time of this work";

pub(super) const RULES: &[Rule] = &[
    // Privilege
    deny(Privilege, &["sudo", "doas", "pkexec", "gksudo", "kdesudo", "sudoedit", "run0", "dzdo"])
        .because("it runs with the rights of another user", NO_ROOT),
    deny(Privilege, &["visudo"])
        .unless(&["-c", "--check"])
        .because("it changes who may have the rights of another user", NO_ROOT),
    deny(Privilege, &["su", "runuser", "newgrp", "sg", "login"])
        .because("it becomes another user", NO_ROOT),
    deny(Privilege, &["setcap", "capsh", "chcon", "setfattr"])
        .because("it gives a program rights that it did not have", NO_ROOT),
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
    .because("it changes the users of this machine", LEAVE),
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
    .because("it leaves or makes namespaces by hand", "use the container tool of the project"),
    deny(Containers, &["docker", "podman", "nerdctl"])
        .sub(&["run", "create", "exec", "container run", "compose run", "compose exec"])
        .with(&["--privileged"])
        .because(
            "a privileged container has all the rights of the machine",
            "run it without --privileged",
        ),
    warn(Containers, &["docker", "podman", "nerdctl"])
        .sub(&[
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
        .because(
            "it deletes containers, images or volumes, also of others",
            "remove the ones that you made, by name",
        ),
    warn(Containers, &["docker", "podman", "nerdctl", "docker-compose"])
        .sub(&["compose down", "down"])
        .with(&["-v", "--volumes", "--rmi"])
        .because("it deletes the data of the services, too", "leave the volumes"),
    // System configuration
    deny(System, &["shutdown", "reboot", "halt", "poweroff", "telinit", "init"])
        .because("it stops the machine", LEAVE),
    deny(Persistence, &["systemctl", "launchctl", "rc-update", "update-rc.d", "chkconfig"])
        .sub(&[
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
        .because("it makes a service that starts by itself", ONCE),
    deny(System, &["systemctl", "launchctl", "service", "rc-service", "initctl"])
        .sub(&[
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
        .because("it starts, stops or changes services of this machine", LEAVE),
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
    .because("it changes the firewall", LEAVE),
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
    .sub(&[
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
    .because("it changes the network", LEAVE),
    deny(System, &["mount", "umount", "swapon", "swapoff", "fusermount"])
        .sub(&["*"])
        .because("it changes what is mounted", LEAVE),
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
    .sub(&["*"])
    .because("it changes the settings of this machine", LEAVE),
    deny(System, &["hostnamectl", "timedatectl", "localectl"])
        .sub(&["set-*", "hostname *", "icon-name *", "chassis *", "deployment *", "location *"])
        .because("it changes the settings of this machine", LEAVE),
    deny(System, &["update-alternatives"])
        .sub(&["*"])
        .unless(&["--list", "--display", "--query"])
        .because("it changes the settings of this machine", LEAVE),
    deny(System, &["defaults"])
        .sub(&["write", "delete"])
        .because("it changes the settings of this machine", LEAVE),
    deny(System, MACHINE_INSTALLERS)
        .sub(&[
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
        .because("it removes or replaces packages of this machine", LEAVE),
    deny(System, &["pacman"])
        .with(&["-R", "-Rs", "-Rns", "-Rdd", "--remove"])
        .because("it removes packages of this machine", LEAVE),
    deny(System, &["dpkg", "rpm"])
        .with(&[
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
        .because("it installs or removes packages of this machine", LEAVE),
    deny(System, &["date"]).with(&["-s", "--set"]).because("it sets the clock", LEAVE),
    // Processes and kernel
    deny(Processes, &["killall5", "slay"]).because(ALL_OF_A_USER, BY_NUMBER),
    deny(Processes, &["loginctl"])
        .sub(&["terminate-*", "kill-*"])
        .because(ALL_OF_A_USER, BY_NUMBER),
    warn(Processes, &["killall", "pkill", "skill", "fuser"])
        .unless(&["-0", "-l", "--list"])
        .because(
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
    .because("it changes the running kernel", LEAVE),
    deny(Processes, &["sysctl"])
        .with(&["-w", "-p", "--write", "--load", "--system"])
        .because("it changes settings of the kernel", LEAVE),
    deny(Processes, &["gcore", "ptrace", "criu"])
        .because("it reads the memory of another process", "log in the program itself"),
    deny(Processes, &["gdb", "lldb", "strace", "ltrace", "dtruss"])
        .with(&["-p", "--pid", "--attach"])
        .because("it takes hold of a running process", "start the program under the debugger"),
    warn(Processes, &["tmux"]).sub(&["kill-server"]).because(
        "it ends every session, also those of others",
        "end the session that you made, by its name",
    ),
    deny(Processes, &["ralph"]).sub(&["kill", "pause", "stop"]).because(
        "it would end the loop that runs you",
        "finish your work; the loop ends by itself",
    ),
    // Persistence
    deny(Persistence, &["at", "batch", "schtasks", "anacron", "systemd-run", "incrontab"])
        .unless(&["-l", "-V"])
        .because("it has a command run later, when nobody looks", ONCE),
    deny(Persistence, &["loginctl"])
        .sub(&["enable-linger"])
        .because("it lets processes outlive the session", ONCE),
    deny(Persistence, &["pm2", "forever"])
        .sub(&["startup", "save"])
        .because("it makes a service that starts by itself", ONCE),
    deny(Persistence, &["chsh"])
        .unless(&["-l", "--list-shells"])
        .because("it changes what happens at the next login", LEAVE),
    deny(Persistence, &["ssh-copy-id"]).because("it changes what happens at the next login", LEAVE),
    // Obfuscation
    deny(Obfuscation, &["hash"])
        .with(&["-p"])
        .because("a program is given another name", "call it by its own name"),
    // Environment hijack
    deny(Environment, &["ldconfig", "patchelf", "install_name_tool"])
        .sub(&["*"])
        .because("it changes what programs load", "build the program as it should be"),
    deny(Environment, &["update-ca-certificates", "update-ca-trust", "certutil", "trust"])
        .because("it changes whom this machine trusts", LEAVE),
    deny(Environment, &["npm", "pnpm", "yarn"])
        .sub(&[
            "config set *script-shell*",
            "config set prefix *",
            "config set ignore-scripts*",
            "config set proxy*",
        ])
        .because(
            "it changes what every later npm runs",
            "give the option to the one command that needs it",
        ),
];

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    match command.name {
        "kill" => kill(command, hits),
        "pkill" | "killall" | "skill" => {
            // Without a name it ends all that the user, or the terminal, has.
            let whose =
                command.values(&["-u", "-U", "--user", "--euid", "--uid", "-t", "--terminal"]);
            let names = command.operands();
            let all = |arg: &&Arg| ["", ".", ".*", ".+", "^", "*"].contains(&arg.text.as_str());
            if names.is_empty() && !whose.is_empty() || names.iter().any(all) {
                hits.push(Hit::deny(Processes, ALL_OF_A_USER, BY_NUMBER));
            }
            let parent = command.values(&["-P", "--parent"]).iter().any(|arg| arg.text == PARENT);
            if parent || command.operands().iter().any(|arg| is_ours(&arg.text)) {
                hits.push(Hit::deny(Processes, OURS, BY_NUMBER));
            }
        }
        "crontab" => {
            let harmless = command.has(&["-l"]) && !command.has(&["-r", "-e"]);
            if !harmless {
                hits.push(Hit::deny(
                    Persistence,
                    "it changes what runs by itself at set times",
                    ONCE,
                ));
            }
        }
        "docker" | "podman" | "nerdctl" => container(command, hits),
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

const ALL_OF_A_USER: &str = "it ends every process of the user, and with them the loop";
const OURS: &str = "it ends the loop, the agent or what they run in";
const BY_NUMBER: &str = "end the process that you started, by its number";

/// Whether a pattern of command lines means what runs this.
fn is_ours(pattern: &str) -> bool {
    let ours = ["ralph", "claude", "codex", "tmux", "sshd", "systemd", "init"];
    let pattern = pattern.trim_matches(['^', '$']);
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    ours.iter().any(|name| {
        pattern.ends_with(name) || pattern.split([' ', '_']).any(|word| base(word) == *name)
    })
}

fn kill(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
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
        hits.push(Hit::deny(Processes, "it ends every process that it may, and itself", BY_NUMBER));
    }
    if targets.contains(&PROCESS) {
        hits.push(Hit::deny(Processes, ALL_OF_A_USER, BY_NUMBER));
    }
    if targets.contains(&"0") {
        hits.push(Hit::warn(
            Processes,
            "it ends all that was started together with it, and itself",
            BY_NUMBER,
        ));
    }
    if targets.iter().any(|target| {
        let target = target.trim_start_matches('-');
        target == PARENT || target.strip_prefix(PROCESS).is_some_and(is_ours)
    }) {
        hits.push(Hit::deny(Processes, OURS, BY_NUMBER));
    }
}

fn container(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    const NARROW: &str = "mount the project alone, and give no more rights than needed";
    let mut secrets = Vec::new();
    for secret in command.values(&["--secret"]) {
        for part in secret.text.split(',') {
            if let Some(("src" | "source", file)) = part.split_once('=') {
                hits.extend(command.scene.reads(&Arg::known(file)));
            }
        }
    }
    let mut deny = |reason: &'static str| hits.push(Hit::deny(Containers, reason, NARROW));
    let runs = command.operands().first().is_some_and(|sub| {
        ["run", "create", "exec", "container", "compose", "service"].contains(&sub.text.as_str())
    });
    if !runs {
        return;
    }
    for volume in command.values(&["-v", "--volume"]) {
        let host = volume.text.split(':').next().unwrap_or_default();
        mounted(command, host, &mut deny);
        secrets.extend(command.scene.reads(&Arg::known(host)));
    }
    for mount in command.values(&["--mount"]) {
        for part in mount.text.split(',') {
            if let Some((key, host)) = part.split_once('=')
                && (key == "source" || key == "src")
            {
                mounted(command, host, &mut deny);
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

fn mounted(command: &Invocation<'_>, host: &str, deny: &mut dyn FnMut(&'static str)) {
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
    if system.contains(&normal) || command.scene.context.home.is_some_and(|home| home == path) {
        deny("it mounts the machine's own files, or the whole home, into a container");
    }
}
