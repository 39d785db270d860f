//! Rules as data.

use super::{CommandInvocation, Hit};
use crate::value::glob_match;
use crate::{Family, Tier};

/// A rule that needs no more than the program, its subcommand and its flags.
pub(crate) struct CommandRule {
    tier: Tier,
    family: Family,
    pub(super) programs: &'static [&'static str],
    /// The first operands, each entry one way to say it: `repo delete`. A `*` in a word is a pattern.
    subcommands: &'static [&'static str],
    /// One of these must be there.
    flags: &'static [&'static str],
    /// None of these may be there.
    unless: &'static [&'static str],
    pub(super) reason: &'static str,
    pub(super) suggestion: &'static str,
}

pub(super) const fn deny(family: Family, programs: &'static [&'static str]) -> CommandRule {
    rule(Tier::Deny, family, programs)
}

pub(super) const fn warn(family: Family, programs: &'static [&'static str]) -> CommandRule {
    rule(Tier::Warn, family, programs)
}

const fn rule(tier: Tier, family: Family, programs: &'static [&'static str]) -> CommandRule {
    CommandRule {
        tier,
        family,
        programs,
        subcommands: &[],
        flags: &[],
        unless: &[],
        reason: "",
        suggestion: "",
    }
}

impl CommandRule {
    pub(super) const fn subcommands(mut self, subcommands: &'static [&'static str]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(super) const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    pub(super) const fn unless(mut self, flags: &'static [&'static str]) -> Self {
        self.unless = flags;
        self
    }

    pub(super) const fn reason(mut self, reason: &'static str, instead: &'static str) -> Self {
        self.reason = reason;
        self.suggestion = instead;
        self
    }

    pub(super) fn check(&self, command: &CommandInvocation<'_>) -> Option<Hit> {
        if !self.programs.iter().any(|program| name_matches(program, command.name)) {
            return None;
        }
        if !self.subcommands.is_empty() {
            let operands = command.operands();
            let said = |subcommand: &&str| {
                subcommand.split(' ').enumerate().all(|(at, word)| {
                    operands.get(at).is_some_and(|operand| {
                        operand.text == word
                            || (word.contains('*') && glob_match(word, &operand.text))
                    })
                })
            };
            if !self.subcommands.iter().any(said) {
                return None;
            }
        }
        if (!self.flags.is_empty() && !command.has(self.flags))
            || (!self.unless.is_empty() && command.has(self.unless))
        {
            return None;
        }
        let says = |word: &str| {
            let mut words = command.args.iter().map(|arg| arg.text.as_str());
            words.by_ref().take_while(|text| *text != "--").any(|text| text == word)
        };
        // These run nothing that they are given, which could make use of the word itself.
        let asks = [Family::Publishing, Family::Cloud, Family::Git].contains(&self.family);
        if asks && says("--help") {
            return None;
        }
        // yarn passes over flags that it does not know.
        if self.family == Family::Publishing && says("--dry-run") && command.name != "yarn" {
            return None;
        }
        // Asking how it works, or what it is, does nothing.
        if let [only] = command.args
            && ["--help", "--version", "-h", "-V", "help", "version"].contains(&only.text.as_str())
        {
            return None;
        }
        Some(Hit::new(self.tier, self.family, self.reason, self.suggestion))
    }
}

/// Package managers that install for the whole machine.
pub(super) const MACHINE_INSTALLERS: &[&str] = &[
    "apt",
    "apt-get",
    "aptitude",
    "yum",
    "dnf",
    "microdnf",
    "zypper",
    "apk",
    "brew",
    "port",
    "snap",
    "flatpak",
    "emerge",
    "opkg",
    "choco",
    "winget",
    "scoop",
    "xbps-install",
    "xbps-remove",
    "nix-env",
];

fn name_matches(program: &str, name: &str) -> bool {
    match program.as_bytes() {
        [start @ .., b'*'] => name.as_bytes().starts_with(start),
        whole => whole == name.as_bytes(),
    }
}

/// Options before (or among) the operands whose value is the next word, by program.
pub(crate) fn valued_options(program: &str) -> &'static [&'static str] {
    match program {
        "git" => &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--exec-path",
            "-m",
            "--message",
            "-F",
            "--file",
            "--author",
            "--date",
            "--config-env",
            "--push-option",
            "-o",
            "--format",
            "--grep",
        ],
        "gh" => {
            &["-R", "--repo", "-t", "--title", "-b", "--body", "-X", "--method", "-f", "-F", "-H"]
        }
        "docker" | "podman" | "nerdctl" | "docker-compose" => &[
            "-H",
            "--host",
            "--context",
            "--config",
            "--log-level",
            "--file",
            "-v",
            "--volume",
            "-e",
            "--env",
            "-p",
            "--publish",
            "--name",
            "-w",
            "--workdir",
            "-u",
            "--user",
            "--network",
            "--net",
            "--mount",
            "--env-file",
            "--tag",
            "--project-name",
            "--entrypoint",
            "--platform",
            "--memory",
            "-m",
            "--cpus",
            "--label",
            "-l",
            "--hostname",
            "--cap-add",
            "--cap-drop",
            "--security-opt",
            "--device",
            "--gpus",
            "--shm-size",
            "--ulimit",
            "--add-host",
            "--dns",
            "--restart",
            "--tmpfs",
            "--volumes-from",
            "--pull",
            "--runtime",
        ],
        "kubectl" | "oc" | "helm" | "k" => &[
            "-n",
            "--namespace",
            "--context",
            "--cluster",
            "--kubeconfig",
            "-f",
            "--filename",
            "-l",
            "--selector",
            "-o",
            "--output",
            "--kube-context",
            "--user",
            "--token",
        ],
        "aws" => &["--profile", "--region", "--output", "--endpoint-url", "--query"],
        "gcloud" | "gsutil" | "bq" => &["--project", "--account", "--zone", "--region", "-o", "-h"],
        "az" => &["--subscription", "-g", "--resource-group", "-n", "--name", "-o", "--output"],
        "terraform" | "tofu" | "terragrunt" => &["-var", "-var-file", "-target", "-state"],
        "npm" | "pnpm" | "yarn" | "bun" => &[
            "-w",
            "--workspace",
            "--prefix",
            "-C",
            "--dir",
            "--filter",
            "-F",
            "--registry",
            "--tag",
            "--cwd",
            "--userconfig",
        ],
        "cargo" => &["--manifest-path", "-p", "--package", "--config", "-Z", "--color", "-j"],
        "pip" => &[
            "--index-url",
            "-i",
            "--extra-index-url",
            "-r",
            "--requirement",
            "-t",
            "--target",
            "--python",
        ],
        "ssh" => &[
            "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o",
            "-p", "-Q", "-R", "-S", "-W", "-w", "-B",
        ],
        "scp" | "sftp" => &["-c", "-F", "-i", "-J", "-l", "-o", "-P", "-S", "-D"],
        "rsync" => &[
            "-e",
            "--rsh",
            "--exclude",
            "--include",
            "--exclude-from",
            "-f",
            "--filter",
            "--log-file",
        ],
        "curl" => &[
            "-X",
            "--request",
            "-H",
            "--header",
            "-d",
            "--data",
            "--data-raw",
            "--data-binary",
            "--data-urlencode",
            "--url-query",
            "--form-string",
            "--unix-socket",
            "-F",
            "--form",
            "-o",
            "--output",
            "-u",
            "--user",
            "-A",
            "-e",
            "-b",
            "-c",
            "-T",
            "--upload-file",
            "-m",
            "--max-time",
            "--retry",
            "-w",
            "-x",
            "--proxy",
            "--cacert",
            "--cert",
            "--key",
            "--connect-timeout",
            "--json",
            "-K",
            "--config",
            "--url",
            "--resolve",
            "--limit-rate",
            "-r",
        ],
        "wget" => &[
            "-O",
            "--output-document",
            "-P",
            "--directory-prefix",
            "-o",
            "-U",
            "--header",
            "--post-data",
            "--post-file",
            "--method",
            "-t",
            "-T",
        ],
        "psql" | "mysql" | "mariadb" | "sqlite3" | "mongosh" | "redis-cli" | "mysqladmin"
        | "dropdb" | "pg_restore" => &[
            "-h",
            "--host",
            "-p",
            "--port",
            "-U",
            "--user",
            "-u",
            "-d",
            "--dbname",
            "-c",
            "--command",
            "-e",
            "--execute",
            "-f",
            "--file",
            "--eval",
            "-a",
            "-n",
            "-D",
            "-P",
        ],
        "chmod" | "chown" | "chgrp" => &["--reference"],
        "cp" | "mv" | "ln" | "install" => {
            &["-t", "--target-directory", "-S", "--suffix", "-m", "-o", "-g"]
        }
        "openssl" => {
            &["-out", "-keyout", "-newkey", "-subj", "-days", "-addext", "-set_serial", "-sha256"]
        }
        "grep" | "egrep" | "fgrep" | "zgrep" | "rg" => &[
            "-e",
            "--regexp",
            "-f",
            "--file",
            "-m",
            "--max-count",
            "-A",
            "-B",
            "-C",
            "-g",
            "--glob",
            "-t",
            "--type",
        ],
        "head" | "tail" => &["-n", "-c", "--lines", "--bytes"],
        "truncate" | "fallocate" => &["-s", "--size", "-l", "-o", "-r"],
        "shred" => &["-n", "-s", "--iterations", "--size"],
        "touch" => &["-d", "-t", "-r", "--date", "--reference"],
        "mkdir" => &["-m", "--mode"],
        "awk" | "gawk" | "mawk" | "nawk" => {
            &["-F", "-v", "-f", "-i", "--include", "--assign", "--file", "--field-separator"]
        }
        "alembic" => &["-c", "--config", "-n", "--name", "-x"],
        "migrate" => &["-path", "-database", "-source"],
        "tar" | "bsdtar" | "gtar" => {
            &["-f", "--file", "-C", "--directory", "-X", "--exclude", "-T", "-I"]
        }
        "kill" | "pkill" | "killall" | "pgrep" | "skill" => &[
            "-s",
            "--signal",
            "-u",
            "-U",
            "-g",
            "-t",
            "-P",
            "-G",
            "--user",
            "--euid",
            "--uid",
            "--terminal",
            "--parent",
            "--group",
        ],
        "systemctl" | "journalctl" => &["-t", "--type", "-u", "-n", "-H", "-M"],
        "crontab" => &["-u"],
        "nc" | "ncat" | "netcat" => &["-p", "-w", "-s", "-i", "-q", "-x", "-X", "-e", "-c"],
        "find" => &[],
        _ => &[],
    }
}
