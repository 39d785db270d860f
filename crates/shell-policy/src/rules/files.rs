//! Destructive file operations; disks and boot; resource exhaustion; and which arguments of common
//! programs are paths that they write.

use super::places::Loss;
use super::table::{deny, warn};
use super::{Hit, Invocation, Rule};
use crate::Family::{Disks, Files, Obfuscation, Privilege, Resources, Secrets};
use crate::value::Arg;

const LEAVE: &str = "leave the disks of this machine alone; work on files in the project";

pub(super) const RULES: &[Rule] = &[
    deny(Disks, &["mkfs*", "mke2fs", "mkswap", "newfs", "wipefs", "blkdiscard", "badblocks"])
        .because("it formats or erases a disk", LEAVE),
    deny(Disks, &["fdisk", "sfdisk", "cfdisk", "gdisk", "sgdisk", "parted", "partx", "kpartx"])
        .unless(&["-l", "--list"])
        .because("it changes the partitions of a disk", LEAVE),
    deny(
        Disks,
        &["cryptsetup", "hdparm", "nvme", "mdadm", "losetup", "dmsetup", "tune2fs", "resize2fs"],
    )
    .because("it changes a disk or how it is read", LEAVE),
    deny(Disks, &["lvremove", "vgremove", "pvremove", "lvreduce", "pvcreate", "vgcreate"])
        .because("it removes or changes volumes", LEAVE),
    deny(Disks, &["zpool", "zfs", "btrfs"])
        .sub(&["destroy", "labelclear", "rollback", "subvolume delete", "device remove"])
        .because("it destroys a file system", LEAVE),
    deny(Disks, &["diskutil"])
        .sub(&["erase*", "partition*", "zero*", "random*", "secure*", "apfs delete*", "reformat"])
        .because("it erases a disk", LEAVE),
    deny(
        Disks,
        &[
            "grub-install",
            "grub2-install",
            "update-grub",
            "grub-mkconfig",
            "efibootmgr",
            "bootctl",
            "bcdedit",
            "bless",
            "lilo",
            "nvram",
        ],
    )
    .because("it changes how the machine starts", LEAVE),
    deny(Disks, &["format", "diskpart"]).because("it formats or changes a disk", LEAVE),
    deny(Resources, &["stress", "stress-ng", "memtester", "cpuburn"])
        .because("it uses up the machine", "measure with a small, bounded load"),
    warn(Files, &["dropbox-trash", "trash-empty"])
        .because("it empties the trash for good", "leave what is in the trash"),
];

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    match command.name {
        "rm" | "grm" | "del" | "rd" | "srm" | "wipe" | "shred" | "gshred" | "rimraf"
        | "del-cli" | "remove-item" => {
            remove(command, hits);
        }
        "mv" | "gmv" => moved(command, hits),
        "rsync" => mirrored(command, hits),
        "chmod" | "chown" | "chgrp" => ownership(command, hits),
        "dd" | "dcfldd" | "ddrescue" => raw(command, hits),
        "yes" | "cat" | "head" | "fallocate" | "truncate" => endless(command, hits),
        "robocopy" if command.args.iter().any(|arg| arg.text.eq_ignore_ascii_case("/mir")) => {
            hits.push(Hit::deny(
                Files,
                "it mirrors, and so deletes what is not in the source",
                "copy",
            ));
        }
        _ => {}
    }
    if command.is(&["cp", "ln", "install", "mv"]) {
        renamed(command, hits);
    }
    for written in written(command) {
        hits.extend(command.scene.writes(&written).filter(|hit| {
            // To lock a secret away is what should be done with it.
            hit.family != Secrets || !closes(command)
        }));
    }
}

/// `chmod 600`: nobody but the owner has any right to it.
fn closes(command: &Invocation<'_>) -> bool {
    command.name == "chmod"
        && command.operands().first().is_some_and(|mode| {
            let mode = mode.text.trim_start_matches('0');
            (mode.len() == 3 && mode.ends_with("00") && mode.bytes().all(|b| b.is_ascii_digit()))
                || ["go-rwx", "og-rwx", "go=", "og=", "u=rw,go=", "u=r,go="].contains(&mode)
        })
}

fn remove(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    if command.args.iter().any(|arg| arg.text == "--no-preserve-root") {
        hits.push(Hit::deny(
            Files,
            "--no-preserve-root has no use but to delete everything",
            "name a path inside the project in plain words",
        ));
    }
    let always = ["srm", "wipe", "rd", "rimraf", "del-cli"];
    let recursive = command.has(&["-r", "-R", "--recursive"]) || command.is(&always);
    // `rm $flags ~`: what stands in the variable may well be -rf.
    let perhaps = command.args.iter().any(Arg::is_hole);
    for operand in command.operands() {
        if recursive || (perhaps && is_grave(command.scene.loss(operand))) {
            hits.extend(command.scene.deletes(operand));
        } else if operand.text.ends_with(".lock") && operand.text.contains(".git/") {
            hits.push(Hit::warn(
                Files,
                "a lock of git's is taken away",
                "make sure that no git is running",
            ));
        } else if let Some(hit) = command.scene.sweeps(operand) {
            hits.push(hit);
        } else if let Some(hit) = command.scene.writes(operand) {
            hits.push(hit);
        }
    }
}

/// What nobody means to lose.
fn is_grave(loss: Loss) -> bool {
    matches!(loss, Loss::Machine | Loss::Home | Loss::Project | Loss::History | Loss::Records)
}

/// What is moved away is as good as deleted where it was.
fn moved(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let mut operands = command.operands();
    if command.values(&["-t", "--target-directory"]).is_empty() {
        operands.pop();
    }
    for operand in operands {
        if is_grave(command.scene.loss(operand)) {
            hits.extend(command.scene.deletes(operand).map(|hit| Hit {
                reason: hit.reason.replace("deletes", "moves away").into(),
                ..hit
            }));
        } else {
            hits.extend(command.scene.writes(operand));
        }
    }
}

/// A program of the system under another name is not known by that any more.
fn renamed(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let [source, target] = operands.as_slice() else { return };
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let (from, to) = (name(&source.text), name(&target.text));
    let of_the_system = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/"];
    if of_the_system.iter().any(|place| source.text.starts_with(place))
        && super::programs().any(|program| program == from)
        && !to.is_empty()
        && to != from
        && !to.starts_with('.')
    {
        hits.push(Hit::deny(
            Obfuscation,
            "a program of the system is given another name",
            "call it by its own name",
        ));
    }
}

fn mirrored(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    if command.args.iter().any(|arg| arg.text.starts_with("--del"))
        && let Some(target) = command.operands().last()
        && !target.text.contains(':')
    {
        hits.extend(command.scene.deletes(target));
    }
    if command.has(&["--remove-source-files"])
        && let Some(source) = command.operands().first()
    {
        hits.extend(command.scene.deletes(source));
    }
}

fn ownership(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let operands = command.operands();
    let Some((mode, paths)) = operands.split_first() else { return };
    if command.name == "chmod" {
        let mode = mode.text.as_str();
        let numeric = mode.bytes().all(|b| b.is_ascii_digit());
        let special = numeric && mode.len() == 4 && !mode.starts_with(['0', '1']);
        // `-s` and `u-x` begin like options, `u+s` does not.
        let symbolic = !numeric
            && mode.split(',').any(|part| {
                part.split_once(['+', '='])
                    .is_some_and(|(who, what)| what.contains('s') && !who.contains('o'))
            });
        if special || symbolic {
            hits.push(Hit::deny(
                Privilege,
                "a set-user-ID program runs with its owner's rights, whoever starts it",
                "run the program with the rights that it needs, once",
            ));
        } else if mode == "777" || mode == "0777" || mode == "a+rwx" || mode == "666" {
            hits.push(Hit::warn(
                Privilege,
                "everybody on this machine may then write it",
                "give the rights to those who need them, such as u+x",
            ));
        }
    }
    let recursive = command.has(&["-R", "--recursive"]);
    if recursive && command.name == "chmod" && locks_out(&mode.text, command) {
        hits.push(Hit::deny(
            Files,
            "nobody may read or enter what is there any more, you neither",
            "name the files, and the rights that they should have",
        ));
    }
    for path in paths {
        let loss = command.scene.loss(path);
        if recursive && !matches!(loss, Loss::Inside | Loss::Project | Loss::Fresh) {
            hits.push(Hit::deny(
                Files,
                "it changes rights or owners recursively outside of the project, or where cannot be told",
                "name a path inside the project in plain words",
            ));
        }
    }
}

/// Whether a mode takes the owner's right to read files, or to enter directories.
fn locks_out(mode: &str, command: &Invocation<'_>) -> bool {
    if mode.bytes().all(|b| b.is_ascii_digit()) {
        let owner = mode.bytes().rev().nth(2).unwrap_or(b'0');
        return owner < b'4' || !matches!(owner, b'5' | b'7');
    }
    // `-rwx` looks like an option, and `-R` is one.
    let dashed = command.args.iter().map(|arg| arg.text.as_str()).find(|text| {
        text.strip_prefix('-').is_some_and(|letters| {
            !letters.is_empty() && letters.chars().all(|c| "rwx".contains(c))
        })
    });
    dashed.unwrap_or(mode).split(',').any(|part| {
        let Some(at) = part.find(['-', '=']) else { return false };
        let (who, what) = part.split_at(at);
        let owner = who.is_empty() || who.contains(['a', 'u']);
        let gives = what.contains('X') || what.contains('+');
        owner
            && !gives
            && match what.strip_prefix('-') {
                Some(taken) => taken.contains(['r', 'x']),
                None => !(what.contains('r') && what.contains('x')),
            }
    })
}

fn raw(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let value = |key: &str| {
        command.args.iter().find_map(|arg| {
            arg.text.strip_prefix(key).map(|text| Arg { text: text.to_owned(), ..arg.clone() })
        })
    };
    let (input, output) = (value("if="), value("of="));
    if let Some(output) = &output {
        hits.extend(command.scene.writes(output));
    }
    if let Some(input) = &input {
        hits.extend(command.scene.reads(input));
        let endless = ["/dev/zero", "/dev/urandom", "/dev/random"].contains(&input.text.as_str());
        let lost = output.as_ref().is_none_or(|output| output.text == "/dev/null");
        if endless && !lost && value("count=").is_none() {
            hits.push(Hit::deny(
                Resources,
                "it writes without end until the disk is full",
                "give it a count",
            ));
        }
    }
}

/// Sizes that fill a disk.
fn endless(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    let sizes = match command.name {
        "head" => command.values(&["-c", "--bytes"]),
        "fallocate" => command.values(&["-l", "--length"]),
        "truncate" => command.values(&["-s", "--size"]),
        _ => return,
    };
    for size in sizes {
        let digits = size.text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = size.text.get(digits.len()..).and_then(|unit| unit.chars().next());
        let scale: u64 = match unit.map(|c| c.to_ascii_lowercase()) {
            Some('k') => 1 << 10,
            Some('m') => 1 << 20,
            Some('g') => 1 << 30,
            Some('t') => 1 << 40,
            Some('p' | 'e') => 1 << 50,
            _ => 1,
        };
        if digits.parse::<u64>().is_ok_and(|n| n.saturating_mul(scale) >= 20 << 30) {
            hits.push(Hit::deny(
                Resources,
                "it makes a file that may fill the disk",
                "use a size that the task needs",
            ));
        }
    }
}

/// The paths that a command writes, by its arguments.
fn written(command: &Invocation<'_>) -> Vec<Arg> {
    let operands = || command.operands().into_iter().cloned().collect::<Vec<_>>();
    match command.name {
        "tee" | "sponge" | "touch" | "mkdir" | "rmdir" | "unlink" | "truncate" | "mkfifo"
        | "mknod" | "ed" | "nano" | "vim" | "vi" | "nvim" | "emacs" | "ex" | "fallocate" => {
            operands()
        }
        "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => {
            operands().into_iter().skip(1).collect()
        }
        "cp" | "gcp" | "mv" | "gmv" | "install" | "ln" | "rsync" => {
            let mut targets = command.values(&["-t", "--target-directory"]);
            let mut sources = operands();
            if targets.is_empty() {
                targets.extend(sources.pop().filter(|arg| !is_remote(&arg.text)));
            }
            // Into a directory: each under its own name.
            if let Some(directory) =
                targets.first().filter(|arg| command.scene.holds_protected(arg))
            {
                let directory = directory.text.trim_end_matches('/').to_owned();
                targets.extend(sources.iter().filter_map(|source| {
                    let name = source.text.rsplit('/').next().filter(|name| !name.is_empty())?;
                    Some(Arg { text: format!("{directory}/{name}"), ..source.clone() })
                }));
            }
            targets
        }
        "curl" => command.values(&["-o", "--output", "--output-dir"]),
        "wget" => command.values(&["-O", "--output-document", "-P", "--directory-prefix"]),
        "sort" | "shuf" => command.values(&["-o", "--output"]),
        "sed" | "gsed" | "perl" | "ruby" if in_place(command) => scripted_files(command),
        // What is packed is only read.
        "tar" | "bsdtar" if !unpacks(command) => Vec::new(),
        "tar" | "bsdtar" => command.values(&["-C", "--directory"]),
        "unzip" => command.values(&["-d"]),
        "7z" | "7za" => command.values(&["-o"]),
        "patch" => {
            let mut paths = command.values(&["-d", "--directory", "-o", "--output"]);
            paths.extend(operands().into_iter().take(1));
            paths
        }
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc"
            if command.operands().first().is_some_and(|sub| sub.text == "cp") =>
        {
            operands().pop().into_iter().filter(|arg| !is_remote(&arg.text)).collect()
        }
        "git" => {
            let mut paths = command.values(&["--output", "--output-directory"]);
            let operands = command.operands();
            if let [sub, ..] = operands.as_slice()
                && ["archive", "format-patch"].contains(&sub.text.as_str())
            {
                paths.extend(command.values(&["-o"]));
            }
            if let [sub, second, target, ..] = operands.as_slice()
                && (sub.text == "clone" || (sub.text == "bundle" && second.text == "create"))
            {
                paths.push((*target).clone());
            }
            paths
        }
        "osascript" | "ssh-keygen" => command.values(&["-f"]),
        "cpio" if command.has(&["-i", "--extract"]) => command.values(&["-D", "--directory"]),
        _ => edited(command),
    }
}

/// The files of a program that is told to change them where they are.
fn edited(command: &Invocation<'_>) -> Vec<Arg> {
    let short = match command.name {
        "yq" | "clang-format" | "autopep8" | "autoflake" | "jaq" | "astyle" | "tidy" => "-i",
        "gofmt" | "goimports" | "gofumpt" | "shfmt" => "-w",
        _ => "",
    };
    let is_edit = |text: &str| {
        ["--write", "--in-place", "--inplace", "--fix"].contains(&text)
            || text.starts_with("--in-place=")
            || (!short.is_empty() && text == short)
    };
    if !command.args.iter().any(|arg| is_edit(&arg.text)) {
        return Vec::new();
    }
    // What follows another option is more likely its value.
    let mut before = "";
    let mut files = Vec::new();
    for arg in command.args {
        let value = before.starts_with('-') && !is_edit(before) && before != "--";
        if !arg.text.starts_with('-') && !value {
            files.push(arg.clone());
        }
        before = &arg.text;
    }
    files
}

/// `tar -xf`, `tar xf`, `tar --extract`.
fn unpacks(command: &Invocation<'_>) -> bool {
    let old = command.args.first().is_some_and(|arg| {
        arg.text.contains('x') && arg.text.bytes().all(|b| b.is_ascii_alphabetic())
    });
    old || command.has(&["-x", "--extract", "--get"])
}

/// The files of a program whose first operand is a script, unless one stands behind a flag: of sed,
/// perl and ruby, which all take what follows `-i` in the same word for the suffix of copies.
pub(super) fn scripted_files(command: &Invocation<'_>) -> Vec<Arg> {
    let (scripts, valued) = match command.name {
        "sed" | "gsed" => ("ef", "l"),
        _ => ("eE", "IrCMm"),
    };
    let mut scripted = false;
    let mut files = Vec::new();
    let mut args = command.args.iter();
    while let Some(arg) = args.next() {
        let text = arg.text.as_str();
        if text == "--" {
            files.extend(args.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').unwrap_or((long, ""));
            if ["expression", "file", "line-length"].contains(&name) {
                scripted |= name != "line-length";
                if value.is_empty() {
                    args.next();
                }
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            if let Some(at) = letters.find(|c: char| {
                c == 'i' || scripts.contains(c) || valued.contains(c) || !c.is_ascii_alphanumeric()
            }) {
                let letter = letters.chars().nth(at).unwrap_or('i');
                scripted |= scripts.contains(letter);
                if letter != 'i' && letter.is_ascii_alphabetic() && at + 1 == letters.len() {
                    args.next();
                }
            }
        } else {
            files.push(arg.clone());
        }
    }
    // `-i ''` is how sed of BSD is told to keep no copy.
    files.retain(|file| !file.text.is_empty());
    if !scripted && !files.is_empty() {
        files.remove(0);
    }
    files
}

fn in_place(command: &Invocation<'_>) -> bool {
    command.args.iter().any(|arg| {
        arg.text.starts_with("--in-place")
            || (arg.text.starts_with('-')
                && !arg.text.starts_with("--")
                && arg.text.split('.').next().is_some_and(|flags| flags.contains('i')))
    })
}

pub(super) fn is_remote(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
}
