//! The corpus, and the allow list.

use std::collections::BTreeSet;
use std::path::Path;

use ralph_shell_policy::{
    CommandAllowList, Context, Family, ToolCall, Verdict, judge, normalize_path,
};

use crate::judge_with;

pub(crate) struct Case {
    pub(crate) line: usize,
    pub(crate) verdict: &'static str,
    pub(crate) family: &'static str,
    pub(crate) command: String,
}

pub(crate) fn cases() -> Vec<Case> {
    let text = include_str!("corpus.txt");
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, text)| {
            let (verdict, rest) = text.split_once(' ').unwrap();
            let (family, command) = rest.trim_start().split_once(' ').unwrap();
            Case { line, verdict, family, command: command.trim_start().replace('⏎', "\n") }
        })
        .collect()
}

fn call(command: &str) -> ToolCall<'_> {
    match (command.strip_prefix("@write "), command.strip_prefix("@read ")) {
        (Some(path), _) => ToolCall::Write(path),
        (_, Some(path)) => ToolCall::Read(path),
        _ => ToolCall::Shell(command.into()),
    }
}

fn describe(verdict: &Verdict) -> (&'static str, &'static str) {
    let word = match verdict {
        Verdict::Allow => "allow",
        Verdict::Warn(_) => "warn",
        Verdict::Deny(_) => "deny",
    };
    (word, verdict.finding().map_or("-", |finding| finding.family.slug()))
}

#[test]
fn corpus_commands_get_expected_verdict() {
    let mut wrong = String::new();
    for case in cases() {
        let verdict = judge_with(&[], &call(&case.command));
        let (word, family) = describe(&verdict);
        if (word, family) != (case.verdict, case.family) {
            wrong.push_str(&format!(
                "line {}: {:?}\n  must be {} {}, is {word} {family}: {}\n",
                case.line,
                case.command,
                case.verdict,
                case.family,
                verdict.finding().map_or("", |finding| &finding.reason),
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn corpus_covers_every_family_and_harmless_commands() {
    let cases = cases();
    let count = |verdict: &str| cases.iter().filter(|case| case.verdict == verdict).count();
    assert!(cases.len() >= 400, "{}", cases.len());
    assert!(count("allow") * 2 >= cases.len(), "{} of {}", count("allow"), cases.len());
    let denied: BTreeSet<_> =
        cases.iter().filter(|case| case.verdict == "deny").map(|case| case.family).collect();
    let families: BTreeSet<_> = Family::ALL.iter().map(|family| family.slug()).collect();
    assert_eq!(denied, families);
    let all: BTreeSet<_> = cases.iter().map(|case| &case.command).collect();
    assert_eq!(all.len(), cases.len(), "a command stands there twice");
}

/// In containers the user is often root, and projects are in unusual directories.
#[test]
fn home_and_project_may_be_below_system_directories() {
    let (allow, _) = CommandAllowList::parse([]);
    for (project, home, call, verdict) in [
        ("/root/app", "/root", ToolCall::Write("/root/app/x"), "allow"),
        ("/root/app", "/root", ToolCall::Write("/root/notes"), "warn"),
        ("/root/app", "/root", ToolCall::Write("/root/.bashrc"), "deny"),
        ("/root/app", "/root", ToolCall::Read("/root/.ssh/id"), "deny"),
        ("/root/app", "/root", ToolCall::Write("/etc/x"), "deny"),
        ("/opt/app", "/home/u", ToolCall::Write("/opt/app/x"), "allow"),
        ("/opt/app", "/home/u", ToolCall::Write("/opt/other/x"), "deny"),
        ("/opt/app", "/home/u", ToolCall::Shell("rm -rf /opt/app/build".into()), "warn"),
        ("/opt/app", "/home/u", ToolCall::Shell("rm -rf /opt".into()), "deny"),
        ("/tmp/app", "/home/u", ToolCall::Shell("rm -rf build".into()), "warn"),
        ("/tmp/app", "/home/u", ToolCall::Shell("rm -rf /tmp".into()), "deny"),
        ("/tmp/u/app", "/tmp/u", ToolCall::Shell("rm /tmp/u/notes".into()), "warn"),
        ("/tmp/u/app", "/tmp/u", ToolCall::Shell("rm /tmp/notes".into()), "allow"),
        ("/tmp/u/app", "/tmp/u", ToolCall::Write("/tmp/u/app/x"), "allow"),
        ("/home/u", "/home/u", ToolCall::Write("/home/u/x"), "allow"),
        ("/home/u", "/home/u", ToolCall::Write("/home/u/.bashrc"), "deny"),
        ("/home/u", "/home/u", ToolCall::Shell("rm -rf ~".into()), "deny"),
        // An accented letter, composed and not.
        ("/Users/\u{e9}/app", "/Users/\u{e9}", ToolCall::Read("/Users/e\u{301}/.ssh/id"), "deny"),
        ("/Users/\u{e9}/app", "/Users/\u{e9}", ToolCall::Read("/Users/e/.ssh/id"), "allow"),
    ] {
        let context = Context {
            project: Path::new(project),
            cwd: Path::new(project),
            home: Some(Path::new(home)),
            allow: &allow,
            resolve: &normalize_path,
            variable: &|_| None,
        };
        let judged = judge(&context, &call);
        assert_eq!(describe(&judged).0, verdict, "{call:?} in {project}: {judged:?}");
    }
}

#[test]
fn unresolvable_path_is_not_deleted() {
    let (allow, _) = CommandAllowList::parse([]);
    let context = Context {
        project: Path::new("/p"),
        cwd: Path::new("/p"),
        home: None,
        allow: &allow,
        resolve: &|_| None,
        variable: &|_| None,
    };
    for (command, verdict) in [("rm -rf build", "deny"), ("rm -rf ~", "deny"), ("ls", "allow")] {
        assert_eq!(
            describe(&judge(&context, &ToolCall::Shell(command.into()))).0,
            verdict,
            "{command}"
        );
    }
}

#[test]
fn blocklist_page_names_every_family() {
    let page = include_str!("../../../../docs/src/reference/blocklist.md");
    for family in Family::ALL {
        assert!(page.contains(&format!("\n| {family} |")), "{family}");
    }
}

#[test]
fn block_message_has_command_reason_and_alternative() {
    let message = crate::shell("cd /tmp && git push --force").message().unwrap();
    assert_eq!(
        message,
        "ralph blocked `git push --force` (destructive git): it can overwrite commits that others \
         have. Instead: push to your own branch, without force. A user can allow it with \
         \"hooks.allow\" in .ralph/settings.json."
    );
    assert!(crate::shell("npx x").message().unwrap().starts_with("ralph warns about `npx x` ("));
    assert_eq!(crate::shell("ls").message(), None);
}

#[test]
fn allow_list_permits_only_named_commands() {
    for (allow, command, verdict) in [
        ("git push --force origin gh-pages", "git push --force origin gh-pages", "allow"),
        ("git push --force origin gh-pages", "git push --force origin main", "deny"),
        ("git push --force origin gh-pages", "git push --force origin gh-pages; rm -rf ~", "deny"),
        ("git push --force origin gh-pages", "cd x && git push --force origin gh-pages", "allow"),
        ("git reset --hard", "git reset --hard", "allow"),
        ("git reset --hard", "cd sub && git reset --hard", "allow"),
        ("git reset --hard", "cd /other && git reset --hard", "deny"),
        ("git reset --hard", "cd ~ && git reset --hard", "deny"),
        ("git reset --hard", "cd \"$UNKNOWN\" && git reset --hard", "deny"),
        ("git reset --hard", "(cd /other && git log); git reset --hard", "allow"),
        ("npx prettier *", "npx prettier --write src", "allow"),
        ("npx prettier *", "timeout 60 npx prettier --write src", "allow"),
        ("npx prettier *", "npx prettier $(rm -rf ~)", "deny"),
        ("npx prettier *", "npx prettier x > ~/.bashrc", "deny"),
        ("npx prettier *", "npx prettier x; npx other", "warn"),
        ("rm -rf /tmp/scratch/*", "rm -rf /tmp/scratch/x", "allow"),
        ("rm -rf /tmp/scratch/*", "rm -rf /tmp/scratch/../../home/u", "deny"),
        ("rm -rf /tmp/scratch/*", "rm -rf /tmp/scratch/x ~", "deny"),
        ("rm -rf /tmp/scratch/*", "rm -rf /tmp/scratch/$UNKNOWN", "deny"),
        ("sudo apt-get *", "sudo apt-get update", "warn"),
        ("sudo *", "sudo rm -rf /", "deny"),
        ("bash -c *", "bash -c 'rm -rf /'", "deny"),
        ("LD_PRELOAD=./x.so ./run", "LD_PRELOAD=./x.so ./run", "allow"),
        ("./run", "LD_PRELOAD=./x.so ./run", "deny"),
        ("Write(~/.local/bin/x)", "cp x ~/.local/bin/x", "allow"),
        ("Write(~/.local/bin/x)", "cp x ~/.local/bin/y", "deny"),
        ("Write(.git/info/*)", "@write .git/info/exclude", "allow"),
        ("Write(.git/info/*)", "@write .git/config", "deny"),
        ("Read(.env)", "@read .env", "allow"),
        ("Read(.env)", "cat .env", "allow"),
        ("Read(.env)", "cat .env ~/.ssh/id_rsa", "deny"),
        ("Read(/etc/shadow)", "@write /etc/shadow", "deny"),
    ] {
        let judged = judge_with(&[allow], &call(command));
        assert_eq!(describe(&judged).0, verdict, "{command} with {allow}: {judged:?}");
    }
}

#[test]
fn mcp_command_that_is_no_shell_warns() {
    let judged = judge_with(&[], &ToolCall::Unreadable("G1 X10 (move)".into()));
    assert_eq!(describe(&judged), ("warn", "obfuscation"));
    let judged = judge_with(&[], &ToolCall::Unreadable("rm -rf ~\n)".into()));
    assert_eq!(describe(&judged), ("deny", "files"));
}
