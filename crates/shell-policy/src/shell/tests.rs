use super::*;

/// `[argv0 argv1]` is a simple command, and so on.
fn show(source: &str) -> String {
    let program = parse(source);
    let mut out = list(&program.list);
    for heredoc in &program.heredocs {
        let body = match heredoc {
            Heredoc::Literal(text) => text.to_string(),
            Heredoc::Word(body) => word(body),
        };
        out.push_str(&format!(" <<{body}>>"));
    }
    if let Some(error) = program.error {
        out.push_str(&format!(" ERROR {error}"));
    }
    out
}

fn list(items: &[ListItem]) -> String {
    let mut out = String::new();
    for item in items {
        if !out.is_empty() {
            out.push_str(match item.connector {
                Connector::Then => " ; ",
                Connector::And => " && ",
                Connector::Or => " || ",
            });
        }
        out.push_str(&command(&item.command));
        if item.background {
            out.push('&');
        }
    }
    out
}

fn words(all: &[Word]) -> String {
    all.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn redirects(all: &[Redirect]) -> String {
    all.iter().map(|r| format!(" {:?}:{}", r.op, word(&r.target))).collect()
}

fn command(command_: &ShellCommand) -> String {
    match command_ {
        ShellCommand::Simple(simple) => {
            let mut out = String::from("[");
            for a in &simple.assignments {
                let value = match &a.value {
                    AssignedValue::Word(value) => word(value),
                    AssignedValue::Array(values) => format!("({})", words(values)),
                };
                out.push_str(&format!("{}{}={value} ", a.name, if a.append { "+" } else { "" }));
            }
            out + &words(&simple.words) + &redirects(&simple.redirects) + "]"
        }
        ShellCommand::Pipeline(stages) => {
            stages.iter().map(command).collect::<Vec<_>>().join(" | ")
        }
        ShellCommand::Function { name, body } => format!("{name}(){}", command(body)),
        ShellCommand::Compound { command, redirects: r } => match command {
            CompoundCommand::Group { body, subshell } => {
                let (open, close) = if *subshell { ("(", ")") } else { ("{", "}") };
                format!("{open}{}{close}{}", list(body), redirects(r))
            }
            CompoundCommand::If { branches, otherwise } => {
                let branches: Vec<_> =
                    branches.iter().map(|(c, b)| format!("{} ? {}", list(c), list(b))).collect();
                format!("if({} : {})", branches.join(" : "), list(otherwise))
            }
            CompoundCommand::While { condition, body } => {
                format!("while({} ? {})", list(condition), list(body))
            }
            CompoundCommand::For { variable, words: w, body } => {
                let values = w.as_deref().map_or("@".into(), words);
                format!("for({variable} in {values} do {})", list(body))
            }
            CompoundCommand::Case { subject, arms, .. } => {
                let arms: Vec<_> = arms.iter().map(|arm| list(arm)).collect();
                format!("case({} {})", word(subject), arms.join(" ;; "))
            }
            CompoundCommand::Test(all) => format!("test({}){}", words(all), redirects(r)),
        },
    }
}

fn word(word_: &Word) -> String {
    word_.parts.iter().map(part).collect()
}

fn part(part_: &WordPart) -> String {
    match part_ {
        WordPart::Text { text, .. } => text.clone(),
        WordPart::Parameter { name, op: ParameterOp::Plain, .. } => format!("<{name}>"),
        WordPart::Parameter { name, op, .. } => format!("<{name} {op:?}>"),
        WordPart::Command { program, .. } => format!("$({})", list(&program.list)),
        WordPart::Process { program, .. } => format!("<({})", list(&program.list)),
        WordPart::Arithmetic(parts) => format!("#{}#", parts.iter().map(part).collect::<String>()),
    }
}

#[test]
fn shell_commands_are_parsed_like_in_shell() {
    for (source, tree) in [
        ("", ""),
        ("  # only a comment", ""),
        ("ls -l a\\ b", "[ls -l a b]"),
        ("a; b\nc & d", "[a] ; [b] ; [c]& ; [d]"),
        ("a && b || c", "[a] && [b] || [c]"),
        ("a | b |& c", "[a] | [b] | [c]"),
        ("a &&\n b |\n c", "[a] && [b] | [c]"),
        ("a \\\n b", "[a b]"),
        ("r\\\nm x", "[rm x]"),
        ("! a; time -p b", "[a] ; [b]"),
        (r#"echo 'a b' "c d"e $'\x72m'"#, "[echo a b c de rm]"),
        (r#"echo "a \" \$x $x ${y} \q""#, r#"[echo a " $x <x> <y> \q]"#),
        ("echo a#b #c", "[echo a#b]"),
        ("x=1 y+='2 3' cmd z=3", "[x=1 y+=2 3 cmd z=3]"),
        ("a=(x 'y z') b[1]=2", "[a=(x y z) b=2 ]"),
        ("declare -a a=(x y)", "[a=(x y) declare -a]"),
        ("(a; b) >out", "([a] ; [b]) Write:out"),
        ("{ a; b; }", "{[a] ; [b]}"),
        ("((a))", "test(##)"),
        ("((a); b)", "(([a]) ; [b])"),
        ("if a; then b; elif c; then d; else e; fi", "if([a] ? [b] : [c] ? [d] : [e])"),
        ("while a; do b; done | c", "while([a] ? [b]) | [c]"),
        ("for x in a b; do c; done", "for(x in a b do [c])"),
        ("for x; do c; done", "for(x in @ do [c])"),
        ("for ((i=0;i<3;i++)); do c; done", "while(test(##) ? [c])"),
        ("for x (a b) { c; }", "for(x in a b do [c])"),
        ("case $x in a|b) c;; (*) d; e;; esac", "case(<x> [c] ;; [d] ; [e])"),
        ("case x in a) b\nesac; c", "case(x [b]) ; [c]"),
        ("f() { a; }; f", "f(){[a]} ; [f]"),
        ("function f { a; }", "f(){[a]}"),
        (":(){ :|:& };:", ":(){[:] | [:]&} ; [:]"),
        ("[[ -f x && $(a) =~ ^(b|c)$ ]] && d", "test(-f x $([a]) =~ ^ b c $) && [d]"),
        ("a >x 2>&1 <y >>z &>w", "[a Write:x Duplicate:1 Read:y Append:z Write:w]"),
        ("a 2>/dev/null", "[a Write:/dev/null]"),
        ("a <<<'b c'", "[a HereString:b c]"),
        ("a <(b) >(c)", "[a <([b]) <([c])]"),
        ("echo $(a; b) `c \\`d\\`` \"$(e \"f\")\"", "[echo $([a] ; [b]) $([c $([d])]) $([e f])]"),
        ("echo $((1+(2*3)+$(a)))", "[echo #$([a])#]"),
        ("echo $( (a) )", "[echo $(([a]))]"),
        ("echo $((a); (b))", "[echo $(([a]) ; ([b]))]"),
        ("cat <<EOF\na $x `b`\nEOF\nc", "[cat HereDocument:EOF] ; [c] <<a <x> $([b])\n>>"),
        ("cat <<'EOF'\na $x\nEOF", "[cat HereDocument:EOF] <<a $x\n>>"),
        ("cat <<-E\n\ta\n\tE\nb", "[cat HereDocument:E] ; [b] <<a\n>>"),
        (
            "a <<X; b <<Y\n1\nX\n2\nY\nc",
            "[a HereDocument:X] ; [b HereDocument:Y] ; [c] <<1\n>> <<2\n>>",
        ),
        ("echo \"$(cat <<'E'\nit's (fine\nE\n)\"", "[echo $([cat HereDocument:E])]"),
        (
            "echo ${x:-$(a)}",
            "[echo <x Default { word: Word { parts: [Command { program: Program { list: [ListItem { connector: Then, command: Simple(Simple { assignments: [], words: [Word { parts: [Text { text: \"a\", quoted: false }] }], redirects: [] }), background: false }], heredocs: [], error: None, extension: None }, quoted: false }] }, assign: false }>]",
        ),
        ("echo ${#x} ${!x} $# $$", "[echo <x Length> <x Indirect> <#> <$>]"),
        ("echo @(a|b) *.c", "[echo @(a|b) *.c]"),
        ("echo }; echo then", "[echo }] ; [echo then]"),
        ("echo a=b x{1,2}y", "[echo a=b x{1,2}y]"),
        ("a 5>x {fd}>y", "[a Write:x Write:y]"),
        ("echo 12", "[echo 12]"),
    ] {
        assert_eq!(show(source), tree, "{source}");
    }
}

#[test]
fn shell_syntax_errors_are_detected() {
    for source in [
        "echo 'a",
        "echo \"a",
        "echo `a",
        "echo $(a",
        "echo ${a",
        "(a",
        "a)",
        "{ a",
        "if a; then b",
        "while a; do b",
        "case x in a) b",
        "fi",
        "a | ",
        "a >",
        "f() ",
        "((a)",
        "a\0b",
        "for x in a",
        "[[ a",
        "&& a",
        "a=(b",
    ] {
        assert!(parse(source).error.is_some(), "{source}: {}", show(source));
    }
}

#[test]
fn commands_before_shell_syntax_error_are_kept() {
    assert_eq!(show("rm -rf x\n)"), "[rm -rf x] ERROR unmatched bracket or reserved word");
}

#[test]
fn shell_nesting_and_length_are_limited() {
    for (open, close) in
        [("( ", ")"), ("$(", ")"), ("$((", ") )"), ("{ ", "; }"), ("\"$(", ")\""), ("${x:-", "}")]
    {
        let deep = format!("{}a{}", open.repeat(100_000), close.repeat(100_000));
        assert!(parse(&deep).error.is_some(), "{open}");
        let fine = format!("echo {}a{}", open.repeat(20), close.repeat(20));
        if open.starts_with(['$', '"']) && open != "$((" {
            assert_eq!(parse(&fine).error, None, "{open}");
        }
    }
    assert!(parse(&"if ".repeat(100_000)).error.is_some());
    assert!(parse(&"f() ".repeat(100_000)).error.is_some());
    assert!(parse(&"a;".repeat(MAX_SIZE)).error.is_some());
    let mut quotes = String::from("a");
    for _ in 0..12 {
        quotes = format!("`{}`", quotes.replace('\\', "\\\\").replace('`', "\\`"));
    }
    assert_eq!(parse(&quotes).error, None);
}
