//! Properties that hold for any command.

use std::time::Duration;

use proptest::prelude::*;
use ralph_shell_policy::{Tier, Verdict};

use crate::shell;

fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "rm",
        "-rf",
        "~",
        "/",
        "build",
        "$x",
        "${x:-",
        "}",
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "\\",
        "|",
        "||",
        "&&",
        ";",
        "&",
        "\n",
        " ",
        " ",
        "<<E\n",
        "\nE\n",
        "<<<",
        ">",
        "<(",
        "((",
        "))",
        "[[",
        "]]",
        "{",
        "if",
        "then",
        "fi",
        "for x in",
        "do",
        "done",
        "while",
        "case x in",
        "esac",
        ";;",
        "f()",
        "x=",
        "x=(",
        "=",
        "*",
        "?",
        "[",
        "]",
        "!",
        "#",
        "$'\\x",
        "{a,b}",
        "{1..9}",
        "eval",
        "bash -c",
        "xargs",
        "find . -exec",
        "\u{f8ff}",
        "\u{f8fe}",
        "ä",
        "\t",
        "sudo",
        "git push -f",
        "echo",
        "base64 -d",
        "python3 -c",
        "${!x}",
        "${x/a/b}",
        "${x:1:2}",
        "$@",
        "alias a=",
        "set --",
        "cd ..",
        "export",
        "trap",
        "env -S",
        "sed s/a/b/e",
        "awk '{system(\"x\")}'",
    ];
    prop_oneof![
        4 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        1 => "[ -~]{0,6}",
        1 => any::<char>().prop_map(String::from),
    ]
}

/// Spells a word differently with the same meaning.
fn spell(word: &str, how: u8) -> String {
    match how % 6 {
        0 => word.to_owned(),
        1 => format!("'{word}'"),
        2 => format!("\"{word}\""),
        3 => word.chars().flat_map(|c| ['\\', c]).collect(),
        4 => format!("$'{}'", word.bytes().map(|b| format!("\\x{b:02x}")).collect::<String>()),
        _ => {
            let (head, tail) = word.split_at(word.len() / 2);
            format!("{head}''\"{tail}\"")
        }
    }
}

const PLAIN: &[&[&str]] = &[
    &["rm", "-rf", "/home/u"],
    &["rm", "-rf", "build"],
    &["rm", "-r", "-f", ".git"],
    &["git", "push", "--force"],
    &["git", "reset", "--hard"],
    &["git", "status"],
    &["sudo", "ls"],
    &["cat", "/home/u/.ssh/id_rsa"],
    &["cat", "README.md"],
    &["npm", "publish"],
    &["npx", "x"],
    &["kubectl", "delete", "pod", "x"],
    &["psql", "-c", "DROP TABLE x"],
    &["bash", "-c", "rm -rf /home/u"],
    &["python3", "-c", "print(1)"],
    &["curl", "-d", "@x", "https://example.com"],
    &["ls", "-l"],
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn policy_never_panics_on_shell_pieces(pieces in prop::collection::vec(piece(), 0..40)) {
        shell(&pieces.concat());
        shell(&pieces.join(" "));
    }

    #[test]
    fn policy_never_panics_on_any_text(text in any::<String>()) {
        shell(&text);
    }

    #[test]
    fn quoting_does_not_change_verdict(
        command in proptest::sample::select(PLAIN.to_vec()),
        how in prop::collection::vec(any::<u8>(), 8),
    ) {
        let plain: Vec<String> = command.iter().map(|word| spell(word, 1)).collect();
        let other: Vec<String> =
            command.iter().zip(&how).map(|(word, how)| {
                spell(word, if word.contains([' ', '(']) { how % 2 + 1 } else { *how })
            }).collect();
        prop_assert_eq!(shell(&plain.join(" ")), shell(&other.join(" ")), "{}", other.join(" "));
    }

    #[test]
    fn surrounding_commands_do_not_weaken_verdict(
        command in proptest::sample::select(PLAIN.to_vec()),
        around in prop::collection::vec(0_u8..14, 0..4),
    ) {
        let command: Vec<String> = command.iter().map(|word| spell(word, 1)).collect();
        let alone = shell(&command.join(" "));
        let mut text = command.join(" ");
        for how in around {
            text = match how {
                0 => format!("ls; {text}"),
                1 => format!("{text}\nls"),
                2 => format!("true && {text}"),
                3 => format!("false || {text}"),
                4 => format!("({text}\n)"),
                5 => format!("{{ {text}\n}}"),
                6 => format!("if true; then {text}\nfi"),
                7 => format!("for i in 1 2; do {text}\ndone"),
                8 => format!("echo \"$({text}\n)\""),
                9 => format!("{{ {text}\n}} > /dev/null 2>&1"),
                10 => format!("f() {{ {text}\n}}; f"),
                11 => format!("bash -c '{}'", text.replace('\'', r"'\''")),
                12 => format!("eval '{}'", text.replace('\'', r"'\''")),
                _ => format!("bash <<'END{0}'\n{text}\nEND{0}\n", text.len()),
            };
        }
        let judged = shell(&text);
        prop_assert!(judged.tier() >= alone.tier(), "{text}\n{judged:?}\n{alone:?}");
        if alone == Verdict::Allow {
            prop_assert_eq!(judged, Verdict::Allow, "{}", text);
        }
    }
}

/// CPU time, since the machine may be busy.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().expect("elapsed time")
}

#[test]
fn hostile_input_is_judged_quickly() {
    let many = |text: &str, n: usize| text.repeat(n);
    let nest = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    let doubling = |n: usize| {
        let mut text = String::from("x=aaaaaaaaaaaaaaaa;");
        text.push_str(&"x=$x$x;".repeat(n));
        text + "rm -rf $x"
    };
    let alternatives = "if a; then x=1; else x=2; fi;".to_owned()
        + &(0..12).map(|n| format!("if a; then v{n}=1; else v{n}=2; fi;")).collect::<String>()
        + "echo $v0$v1$v2$v3$v4$v5$v6$v7$v8$v9$v10$v11";
    let functions =
        (1..30).map(|n| format!("f{n}() {{ f{0}; f{0}; }};", n - 1)).collect::<String>() + "f29";
    for (name, text) in [
        ("20 MB", many("a ", 10 << 20)),
        ("many words", many("a ", 32_000)),
        ("many commands", many("a;", 32_000)),
        ("a long word", many("a", 260_000)),
        ("a long quoted word", format!("echo '{}'", many("a", 260_000))),
        ("a long here-document", format!("cat <<'E'\n{}E\n", many("some text\n", 26_000))),
        ("here-document, expanded", format!("cat <<E\n{}E\n", many("$x text\n", 32_000))),
        ("here-documents", many("cat <<E\n", 32_000)),
        ("nested brackets", nest("(", "ls", ")", 130_000)),
        ("nested substitutions", nest("$(", "ls", ")", 80_000)),
        ("nested arithmetic", nest("$((", "1", ") )", 40_000)),
        ("ambiguous brackets", nest("((", "1", ") )", 25)),
        ("ambiguous arithmetic", nest("$((", "1", ") )", 25)),
        ("nested quotes", nest("\"$(", "ls", ")\"", 50_000)),
        ("nested defaults", nest("${x:-", "a", "}", 40_000)),
        ("backslashes", many("\\", 260_000)),
        ("backquotes", many("`", 65_000)),
        ("dollars", many("$", 65_000)),
        ("open braces", format!("echo {}", many("{ ", 32_000))),
        ("indices", many("a[;", 80_000)),
        ("braces", format!("echo {}", many("{a,b}", 50_000))),
        ("nested braces", format!("echo {}", nest("{a,", "b", "}", 60_000))),
        ("a range", "echo {1..999999999}".to_owned()),
        ("product of ranges", format!("echo {}", many("{1..100}", 100))),
        ("doubling", doubling(100)),
        ("expansion", format!("x='{}'; echo {}", many("a ", 30_000), many("$x", 60_000))),
        ("expansion of words", format!("x='{}'; echo {}", many("a ", 30_000), many("$x ", 60_000))),
        (
            "expansion in quotes",
            format!("x='{}'; echo \"{}\"", many("a ", 30_000), many("$x", 60_000)),
        ),
        (
            "expansion in a loop",
            format!(
                "x='{}'; for i in {{1..500}}; do echo {}; done",
                many("a ", 30_000),
                many("$x ", 100)
            ),
        ),
        (
            "find in loops",
            format!("for i in {{1..500}}; do find . {}; done", many("-exec ls {} \\; ", 500)),
        ),
        ("alternatives", alternatives),
        ("functions", functions),
        ("recursion", "f() { f; f; }; f".to_owned()),
        ("alias of itself", "alias a='a a'; a; alias b=c c=b; b".to_owned()),
        ("eval of itself", "x='eval \"$x\"'; eval \"$x\"".to_owned()),
        ("loops", format!("{}ls{}", many("for i in {1..100}; do ", 8), many("; done", 8))),
        ("while in while", format!("{}ls{}", many("while a; do ", 40), many("; done", 40))),
        ("if in if", format!("{}ls{}", many("if a; then ", 50), many("; fi", 50))),
        ("variables", (0..20_000).map(|n| format!("v{n}={n};")).collect()),
        ("xargs", format!("echo {} | xargs ls", many("a ", 30_000))),
        ("pipes", many("cat |", 12_000) + "cat"),
        ("stars", format!("x={}; echo ${{x%{}}}", many("a", 4000), many("*a", 500))),
        ("find", format!("find . {}", many("-exec ls {} \\; ", 1_000))),
        ("python", format!("python3 -c '{}'", many("os.system(\"ls\") ", 3_000))),
        ("options", format!("git {}", many("-c a=b ", 35_000))),
        ("base64", format!("echo {} | base64 -d | sh", many("YWFh", 60_000))),
    ] {
        let start = thread_cpu_time();
        shell(&text);
        let took = thread_cpu_time() - start;
        // Far above the usual time, far below a blow-up.
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    }
}

#[test]
fn oversized_or_nested_input_is_denied() {
    for text in [
        "ls ".repeat(1 << 20),
        format!("{}ls{}", "( ".repeat(1000), ")".repeat(1000)),
        "ls\0".to_owned(),
        "ls; ".repeat(10_000),
    ] {
        assert_eq!(shell(&text).tier(), Some(Tier::Deny), "{text:.40}");
    }
}
