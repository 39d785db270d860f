//! Holds the shell scripts of the repository to what a Mac has: bash 3.2 and BSD tools.
//!
//! The scripts were not run on a Mac. These tests look for constructs that are known to fail there.

#![expect(clippy::unwrap_used, reason = "a script that cannot be read is a test that fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use fancy_regex::Regex;

/// Constructs that a Mac lacks: a name, a pattern for a line, and a line to prove the pattern with.
const CONSTRUCTS: &[(&str, &str, &str)] = &[
    ("bash 4: mapfile, coproc", r"\b(mapfile|readarray|coproc)\b", "mapfile -t lines <file"),
    (
        "bash 4: attribute of a variable",
        r"\b(declare|local|typeset)\s+-\w*[AgnluI]",
        "declare -A names",
    ),
    ("bash 4: change of case", r"\$\{!?\w+(\[[^]]*\])?(\^|,)", "echo ${x,,}"),
    ("bash 4.4: transformation", r"\$\{\w+(\[[^]]*\])?@[A-Za-z]\}", "echo ${x@Q}"),
    ("bash 4.3: index from the end", r"\$\{#?\w+\[\s*-\d", "echo ${list[-1]}"),
    ("bash 4.2: length from the end", r"\$\{\w+:\s*\d+:\s*-", "echo ${x:0:-1}"),
    ("bash 4: &>>, |&", r"&>>|\|&", "make &>>log"),
    ("bash 4: ;&, ;;&", r";&", "a) echo a ;;&"),
    ("bash 4.3: wait -n", r"\bwait\s+-\w*[npf]", "wait -n"),
    ("bash 4: option of read", r"\bread\s+(-\w+\s+)*-\w*([Ni]|t\s*\d*\.\d)", "read -t 0.5 line"),
    ("bash 4.2: time by printf", r"%\([^)]*\)T", "printf '%(%F)T' -1"),
    ("bash 4.2: -v", r"(\[\[?|\btest)\s+(!\s+)?-[vR]\s", "[[ -v name ]]"),
    ("bash 4: steps and zeros in braces", r"\{-?\d+\.\.-?\d+\.\.|\{0\d+\.\.", "echo {1..9..2}"),
    (
        "bash 4: variable",
        r"\$\{?(EPOCHSECONDS|EPOCHREALTIME|BASHPID|SRANDOM|BASH_ARGV0)\b",
        "echo $EPOCHSECONDS",
    ),
    (
        "bash 4: shell option",
        r"\bshopt\s.*\b(globstar|lastpipe|inherit_errexit|localvar_\w+|dirspell|autocd)\b",
        "shopt -s globstar",
    ),
    ("bash 4.1: file descriptor in a variable", r"(^|\s)\{\w+\}[<>]", "exec {fd}>file"),
    ("bash 3.2: no arguments with set -u", r#""\$\{@\}""#, r#"run "${@}""#),
    ("GNU readlink", r"\breadlink\s+(-\w+\s+)*(-\w*[fem]|--)", "readlink -f x"),
    ("GNU sed: option", r"\bsed\s+(-\w+\s+)*(-\w*[irszu]|--)", "sed -i s/a/b/ file"),
    ("GNU sed: no semicolon before }", r"\bsed\b.*[;{\s/][dpqDPxgGhHnN]\}", "sed -n '/a/{p}' x"),
    ("GNU grep", r"\bgrep\s+(-\w+\s+)*-\w*P", r"grep -oP '\d+' x"),
    ("GNU date", r"\bdate\s.*(-d\b|--|%\d*N)", "date -d tomorrow"),
    ("GNU stat", r"\bstat\s+(-\w+\s+)*(-\w*[cf]\b|--)", "stat -c %s x"),
    ("GNU sort", r"\bsort\s.*(-\w*[VhR]\b|--)", "sort -V"),
    ("GNU mktemp", r"\bmktemp\s+(-\w+\s+)*(-\w*[pt]\b|--)", "mktemp -t x.XXXX"),
    ("GNU mktemp: suffix", r"\bmktemp\b.*XXX[^X\s\x22')]+", "mktemp /tmp/x.XXXXXX.json"),
    ("GNU head, tail", r"\bhead\s+-[nc]\s*-|\b(head|tail)\s.*--\w", "head -n -1"),
    ("GNU xargs", r"\bxargs\s.*(-\w*[rd]\b|--)", "xargs -r rm"),
    ("GNU find", r"\bfind\s+-\w{2}|\bfind\s.*-(printf|executable|readable)\b", "find -name x"),
    (
        "GNU cp, mv, ln, install",
        r"\b(cp|mv|ln)\s+(-\w+\s+)*(-\w*[tTr]\b|--\w)|\binstall\s+(-\w+\s+)*-\w*[tTD]\b",
        "ln -sr a b",
    ),
    (
        "GNU base64, du, ls, touch",
        r"\b(base64\s+-w|du\s.*(-\w*b\b|--)|ls\s.*--|touch\s.*-d\b)",
        "base64 -w 0",
    ),
    ("GNU tar", r"\btar\s.*--(transform|owner|group|sort|mtime)\b", "tar --sort=name -c ."),
    ("GNU awk", r"\b(gensub|asorti?|strftime|systime|PROCINFO)\b", "awk '{ print strftime() }'"),
    ("echo with options", r"\becho\s+-[enE]+\b", "echo -e x"),
    (
        "program of Linux",
        r"(^|[;&|({!]|\b(then|do|else|if|while|until|exec|sudo|env)\s)\s*(nproc|timeout|setsid|flock|tac|shuf|numfmt|realpath|sha\d+sum|md5sum|getent|unshare|ip|stdbuf|pidof|taskset|gawk|ldd|free|runuser)(?=[\s;)|]|$)",
        "threads=$(nproc)",
    ),
];

/// Lines that may look so: in which file, which part of the line, why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("plugin/sandbox/setup.sh", "getent passwd", "runs inside a Linux container"),
    ("scripts/record-fixtures", "unshare", "tries whether it is there"),
    ("scripts/record-fixtures", "ip link", "tries whether it is there"),
    ("scripts/test-arm64", "unshare", "for Linux only"),
    ("scripts/fuzz", "${targets[@]}", "never empty: all targets by default"),
    ("scripts/packages.sh", "${packages[@]}", "after a look at its length"),
];

static PATTERNS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let compile = |pattern| Regex::new(pattern).unwrap();
    CONSTRUCTS.iter().map(|(name, pattern, _)| (*name, compile(pattern))).collect()
});

/// bash 3.2 takes an empty array for an unset variable, unless it is written `${a[@]+"${a[@]}"}`.
static ARRAY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?<!\+)"\$\{(\w+)\[[@*]\]\}"#).unwrap());

/// The problems of a script: line, construct.
fn problems(file: &str, text: &str) -> Vec<(usize, &'static str)> {
    let may_be_empty = |array: &str| text.contains(&format!("{array}=()"));
    let is_exempt = |line: &str| {
        EXCEPTIONS.iter().any(|(other, part, _)| *other == file && line.contains(part))
    };
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') || is_exempt(line) {
            continue;
        }
        let mut add = |construct| found.push((at + 1, construct));
        for (name, pattern) in PATTERNS.iter() {
            if pattern.is_match(line).unwrap() {
                add(*name);
            }
        }
        if ARRAY.captures_iter(line).any(|array| may_be_empty(&array.unwrap()[1])) {
            add(EMPTY_ARRAY);
        }
    }
    found
}

const EMPTY_ARRAY: &str = "bash 3.2: an array that may be empty with set -u";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every shell script of the repository, by its name or its first line.
fn scripts() -> Vec<PathBuf> {
    fn visit(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap_or_default();
            let kind = entry.file_type().unwrap();
            if kind.is_dir()
                && !["target", ".git", "node_modules", "corpus"].contains(&name.as_str())
            {
                visit(&path, found);
            } else if kind.is_file() && is_script(&path) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&root(), &mut found);
    found
}

fn is_script(path: &Path) -> bool {
    let text = fs::read(path).unwrap();
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    path.extension().is_some_and(|extension| extension == "sh")
        || first.starts_with("#!") && (first.ends_with("/sh") || first.ends_with("bash"))
}

#[test]
fn scripts_use_only_what_a_mac_has() {
    let root = root();
    let scripts = scripts();
    let names: Vec<&str> =
        scripts.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
    for expected in
        [".ci/run", "scripts/test", "plugin/scripts/ralph.sh", "plugin/sandbox/setup.sh"]
    {
        assert!(names.contains(&expected), "{expected} was not looked at: {names:?}");
    }
    for (file, part, _) in EXCEPTIONS {
        assert!(
            fs::read_to_string(root.join(file)).unwrap().contains(part),
            "{file} has no {part}"
        );
    }
    let mut wrong = String::new();
    for (name, path) in names.iter().zip(&scripts) {
        for (line, construct) in problems(name, &fs::read_to_string(path).unwrap()) {
            wrong.push_str(&format!("{name}:{line}: {construct}\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn planted_construct_is_found() {
    for (name, _, line) in CONSTRUCTS {
        let text = format!("#!/usr/bin/env bash\n# a comment\nif true; then\n    {line}\nfi\n");
        let found = problems("scripts/x", &text);
        assert!(found.contains(&(4, *name)), "{line}: {found:?}");
        assert_eq!(problems("scripts/x", &format!("# {line}\n")), [], "{line}");
    }
    let array = "args=()\nrun \"${args[@]}\"\n";
    assert_eq!(problems("scripts/x", array), [(2, EMPTY_ARRAY)]);
}

#[test]
fn portable_line_is_no_problem() {
    for line in [
        "args=()",
        "run ${args[@]+\"${args[@]}\"} \"$@\" \"${@:2}\"",
        "n=${#args[@]} x=${x%%,*} y=${x//,/ } z=${!x} w=${x: -1}",
        "local with=$1 sudo=",
        "exec >file 2>&1; a && b || c",
        "sed -n '2,/^x /{s/^# \\{0,1\\}//;p;}' \"$0\"",
        "sed -n 's/^host: //p' file | sort | uniq -c",
        "readlink \"$home/$name\"",
        "dir=$(mktemp -d \"${TMPDIR:-/tmp}/ralph.XXXXXX\")",
        "grep -v '^#' file; find . -name x; head -n 1; tail -n 3; ls -la",
        "cp -R a b; ln -s a b; install -m 755 a b; mv a b",
        "git log --date=iso --sort; cargo install --path .; rm -rf x",
        "read -r count reason; wait \"$pid\"; echo 'a -e'",
        "a) echo a ;;",
        "printf '%s\\n' \"$timeout\" free ip",
    ] {
        let text = format!("args=()\n{line}\n");
        assert_eq!(problems("scripts/x", &text), [], "{line}");
    }
}

/// Runs `install_missing` where only the given programs exist; returns standard error.
fn install_missing(system: &str, managers: &[&str], needed: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("uname", &format!("#!/bin/sh\necho {system}\n"));
    for name in managers {
        program(name, "#!/bin/sh\nexit 1\n");
    }
    symlink("/bin/sh", dir.path().join("sh")).unwrap();
    let packages = root().join("scripts/packages.sh");
    let script = format!(
        "set -euo pipefail; name=x; source {packages:?}; for i in {needed}; do need $i; done; install_missing"
    );
    let bash = std::env::var_os("RALPH_TEST_BASH").unwrap_or_else(|| "/bin/bash".into());
    let output = Command::new(bash)
        .args(["-c", &script])
        .env_clear()
        .env("PATH", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap().replace("sudo ", "")
}

#[test]
fn missing_program_is_named_by_package_of_this_system() {
    for (system, managers, needed, command) in [
        ("Darwin", &["brew"][..], "git tmux", "brew install git tmux (https://brew.sh)"),
        ("Darwin", &[], "tmux", "brew install tmux (https://brew.sh)"),
        (
            "Linux",
            &["dnf"],
            "cc git tmux bwrap",
            "dnf install gcc glibc-static git tmux bubblewrap",
        ),
        ("Linux", &["pacman"], "cc bwrap", "pacman -S gcc bubblewrap"),
        ("Linux", &["apk"], "cc c++", "apk add gcc musl-dev g++"),
        ("Linux", &["zypper"], "cc c++", "zypper install gcc glibc-devel-static gcc-c++"),
        ("Linux", &[], "tmux", "tmux"),
    ] {
        let expected = format!("x: please install first: {command}\n");
        assert_eq!(install_missing(system, managers, needed), expected);
    }
    let compiler = "x: please install a compiler first: xcode-select --install\n";
    assert_eq!(install_missing("Darwin", &["brew"], "tmux cc"), compiler);
    let nothing = "x: there is no cargo; https://rustup.rs says how to get it\n";
    assert_eq!(install_missing("Linux", &["dnf"], ""), nothing);
    assert_eq!(install_missing("Linux", &["dnf", "tmux"], "tmux"), nothing);
}
