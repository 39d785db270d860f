//! Compares parser and walk with bash.
//!
//! The lines are hostile, so bash runs in an empty sandbox: no files but its own, no network, no
//! programs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ralph_shell_policy as policy;

use crate::corpus;
use crate::skipped::skipped;

/// Seconds for all lines.
const TIMEOUT_SECONDS: &str = "120";

/// Prints 1 for each valid text, else 0.
const PARSE: &str = r#"
mapfile -d '' -t lines
for line in "${lines[@]}"; do
    (eval "set -n"$'\n'"$line") </dev/null &>/dev/null && printf 1 || printf 0
done
"#;

/// Runs a script with `texts` as standard input, separated by NUL. `None` without such a sandbox.
fn in_empty_sandbox(script: &str, texts: &[String], args: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", TIMEOUT_SECONDS, "bwrap", "--unshare-all", "--unshare-user"]);
    command.args(["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]);
    command.args(["--die-with-parent", "--new-session", "--clearenv"]);
    for file in bash_and_libraries()? {
        command.arg("--ro-bind").arg(&file).arg(&file);
    }
    command.args(["--dev", "/dev", "--tmpfs", "/home/u/proj", "--chdir", "/home/u/proj"]);
    command.args(["--setenv", "HOME", "/home/u", "--setenv", "KNOWN", "build"]);
    command.args(["--setenv", "PATH", "/nowhere", "--", "/bin/bash", "-c", script, "bash"]);
    let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take()?;
    let input: Vec<u8> = texts.iter().flat_map(|text| text.bytes().chain([0])).collect();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().ok()?;
    let _ = writer.join();
    Some(output.stdout)
}

fn bash_and_libraries() -> Option<Vec<PathBuf>> {
    let bash = PathBuf::from("/bin/bash");
    let listed = Command::new("ldd").arg(&bash).output().ok()?;
    let listed = String::from_utf8(listed.stdout).ok()?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    let files: Vec<_> = [bash].into_iter().chain(libraries.map(PathBuf::from)).collect();
    files.iter().all(|file| file.exists()).then_some(files)
}

/// Whether the sandbox works, with a bash that parses substitutions early.
fn usable() -> bool {
    let script = r#"((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 502)) && printf yes"#;
    let works = in_empty_sandbox(script, &[], &[]).is_some_and(|out| out == b"yes");
    if !works {
        skipped("no bwrap, or no bash 5.2 or later, to compare the policy with");
    }
    works
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const PIECES: &[&str] = &[
    " ",
    "\n",
    ";",
    ";;",
    ";&",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    "(",
    ")",
    "{ ",
    " }",
    "((",
    "))",
    "$((",
    "$(",
    "[[ ",
    " ]]",
    "'",
    "\"",
    "\\",
    "`",
    "$",
    "${x",
    "${x:-",
    "${x^",
    "${#",
    "}",
    "<",
    ">",
    ">>",
    ">|",
    "<(",
    ">(",
    "<<E\n",
    "<<<",
    "2>&1",
    "&>",
    "! ",
    "if ",
    "; then ",
    "; else ",
    "; fi",
    "while ",
    "; do ",
    "; done",
    "for x in ",
    "case x in ",
    "x) ",
    " esac",
    "f() ",
    "function f ",
    "coproc ",
    "time ",
    "select x in ",
    "x=",
    "x=(",
    "a[1]=",
    "#",
    "*",
    "?",
    "@(",
    "!(",
    "=",
    "$'",
    "$\"",
    "~",
    " in ",
    "until ",
    "elif ",
];

fn mutate(random: &mut Random, lines: &[String]) -> String {
    let mut text: Vec<char> = lines[random.below(lines.len())].chars().collect();
    for _ in 0..=random.below(2) {
        let at = random.below(text.len() + 1);
        match random.below(5) {
            0 | 1 => {
                text.splice(at..at, random.pick(PIECES).chars());
            }
            2 => {
                let end = text.len().min(at + 1 + random.below(3));
                text.drain(at..end);
            }
            3 => text.truncate(at),
            _ => {
                let other: Vec<char> = lines[random.below(lines.len())].chars().collect();
                let from = random.below(other.len() + 1);
                text.truncate(at);
                text.extend(&other[from..]);
            }
        }
    }
    text.into_iter().collect()
}

const MUTATIONS: usize = 4_000;

#[test]
fn parser_agrees_with_bash_on_corpus_and_mutations() {
    if !usable() {
        return;
    }
    let mut texts = commands();
    let mut random = Random(0x5eed_cafe);
    let mutations: Vec<_> = (0..MUTATIONS).map(|_| mutate(&mut random, &texts)).collect();
    texts.extend(mutations);
    let (first, second) = texts.split_at(texts.len() / 2);
    let answers = std::thread::scope(|scope| {
        let halves = [first, second]
            .map(|half| scope.spawn(move || in_empty_sandbox(PARSE, half, &[]).unwrap()));
        halves.map(|half| half.join().unwrap()).concat()
    });
    assert_eq!(answers.len(), texts.len(), "bash stopped early");
    let mut wrong = String::new();
    let mut compared = 0;
    for (text, answer) in texts.iter().zip(answers) {
        let Some(valid) = policy::is_valid_bash(text) else { continue };
        compared += 1;
        if valid != (answer == b'1') {
            wrong.push_str(&format!("{text:?} is valid: {valid}\n"));
        }
    }
    assert!(wrong.is_empty(), "bash disagrees that\n{wrong}");
    assert!(compared * 10 > texts.len() * 9, "{compared} of {}", texts.len());
}

fn commands() -> Vec<String> {
    let cases = corpus::cases().into_iter();
    cases.map(|case| case.command).filter(|command| !command.starts_with('@')).collect()
}

/// Prints the words of every program that bash would start. `$1` is the exit code of all programs.
/// A text ends after twenty programs or one second. `kill` counts as a program, so texts cannot end
/// each other.
const RUN: &str = r#"
mapfile -d '' -t lines
exec 100>&1 >/dev/null 2>&1 </dev/null
status=$1
set --
command_not_found_handle() {
    if read -rN 1 -u 101 _; then
        printf '%s\0' "$index" "$#" "$@" >&100
    else
        builtin kill -KILL "$shell"
    fi
    return "$status"
}
kill() { command_not_found_handle kill "$@"; }
enable -n suspend
set -f
for index in "${!lines[@]}"; do
    exec 101<<<"1234567890123456789"
    (
        shell=$BASHPID
        ulimit -t 1
        eval "${lines[index]}"
        # A coprocess may wait for input for ever.
        [[ ${lines[index]} == *coproc* ]] || wait
    )
done
printf 'end\0' >&100
"#;

/// Pairs of text index and command words.
fn started(output: &[u8]) -> Vec<(usize, Vec<String>)> {
    let mut fields = output.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut commands = Vec::new();
    while let Some(text) = fields.next().filter(|text| text != "end") {
        let count = fields.next().unwrap();
        let words = fields.by_ref().take(count.parse().unwrap());
        commands.push((text.parse().unwrap(), words.map(std::borrow::Cow::into_owned).collect()));
    }
    commands
}

#[test]
fn policy_sees_every_command_bash_runs() {
    if !usable() {
        return;
    }
    let cases = corpus::cases().into_iter();
    // No fork bombs, even there.
    let cases = cases.filter(|case| case.family != "resources" && !case.command.starts_with('@'));
    let texts: Vec<String> = cases.map(|case| case.command).collect();
    let mut missed = String::new();
    let outputs = std::thread::scope(|scope| {
        let texts = &texts;
        ["0", "1"]
            .map(|status| scope.spawn(move || in_empty_sandbox(RUN, texts, &[status]).unwrap()))
            .map(|output| output.join().unwrap())
    });
    for output in outputs {
        let last = output.len().saturating_sub(200);
        assert!(
            output.ends_with(b"end\0"),
            "bash stopped early, after {}",
            String::from_utf8_lossy(&output[last..])
        );
        for (text, words) in started(&output) {
            let Some(seen) = crate::trace(&texts[text]) else { continue };
            // It is a loop in zsh.
            if words[0] == "repeat" {
                continue;
            }
            // Programs print nothing there, but the policy may know their output.
            let prints = texts[text].contains("$(") || texts[text].contains(['`', '|']);
            let same = |seen: &Vec<String>| {
                could_be(seen, &words) || (prints && could_be(&seen[..1], &words[..1]))
            };
            if !seen.iter().any(same) && !DIFFERENT.contains(&texts[text].as_str()) {
                missed.push_str(&format!(
                    "{:?}\n  runs {words:?}, the policy saw {seen:?}\n",
                    texts[text]
                ));
            }
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

/// Lines that differ there: no accounts, another parent, no `which`; `compgen` adds words.
const DIFFERENT: &[&str] = &[
    "rm -rf ~root",
    "cat ~u/.ssh/id_rsa",
    "kill -9 $PPID",
    "pkill -P $PPID",
    "$(which rm) -rf ~",
    "compgen -C 'rm -rf ~'",
];

fn could_be(seen: &[String], words: &[String]) -> bool {
    let pattern: Vec<char> = seen.concat().chars().collect();
    // The policy does not tell process substitutions apart.
    let text: Vec<char> = words.concat().replace("/dev/fd/62", "/dev/fd/63").chars().collect();
    matches(&pattern, &text)
}

fn matches(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [unknown, rest @ ..] if policy::is_placeholder(*unknown) => {
            (0..=text.len()).any(|end| matches(rest, &text[end..]))
        }
        [first, rest @ ..] => text.first() == Some(first) && matches(rest, &text[1..]),
    }
}
