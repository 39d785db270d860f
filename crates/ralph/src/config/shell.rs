//! Parses shell assignments as data; runs nothing.
//!
//! Anything that a shell would execute, or that needs a real shell to evaluate, is an error.

use std::collections::HashSet;

use ralph_engine::template::is_part_of_name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvAssignment {
    pub name: String,
    pub value: String,
    pub line: usize,
    /// By `export`, or because the environment already has the name.
    pub exported: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFileProblem {
    pub line: usize,
    pub message: String,
    pub hint: &'static str,
}

/// Returns the assignments in order, and warnings. `known` looks up variables of the environment.
/// Fails at the first thing that is not an assignment.
pub fn parse(
    text: &str,
    known: impl Fn(&str) -> Option<String>,
) -> Result<(Vec<EnvAssignment>, Vec<LoopFileProblem>), LoopFileProblem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((before, _)) = text.split_once('\0') {
        // Variables cannot contain NUL.
        return Err(LoopFileProblem {
            line: before.matches('\n').count() + 1,
            message: "a NUL character".to_owned(),
            hint: "lines are NAME=value; is this a text file?",
        });
    }
    let mut parser = LoopFileParser {
        rest: text,
        line: 1,
        known: &known,
        assignments: Vec::new(),
        exported: HashSet::new(),
        warnings: Vec::new(),
    };
    while parser.skip_to_statement() {
        parser.statement()?;
    }
    let LoopFileParser { mut assignments, exported, warnings, .. } = parser;
    for set in &mut assignments {
        set.exported = exported.contains(set.name.as_str()) || known(&set.name).is_some();
    }
    Ok((assignments, warnings))
}

const QUOTE_HINT: &str = "if it is part of the value, put the value in 'single quotes'";

struct LoopFileParser<'t, 'k> {
    rest: &'t str,
    line: usize,
    known: &'k dyn Fn(&str) -> Option<String>,
    assignments: Vec<EnvAssignment>,
    exported: HashSet<&'t str>,
    warnings: Vec<LoopFileProblem>,
}

impl<'t> LoopFileParser<'t, '_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        self.line += usize::from(c == Some('\n'));
        c
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    fn name(&mut self) -> &'t str {
        self.take_while(is_part_of_name)
    }

    fn problem<T>(&self, message: impl Into<String>) -> Result<T, LoopFileProblem> {
        Err(LoopFileProblem { line: self.line, message: message.into(), hint: QUOTE_HINT })
    }

    fn skip_to_statement(&mut self) -> bool {
        loop {
            self.take_while(|c| c.is_whitespace() || c == ';');
            if self.peek() != Some('#') {
                return !self.rest.is_empty();
            }
            self.take_while(|c| c != '\n');
        }
    }

    /// One assignment, or `export` with names.
    fn statement(&mut self) -> Result<(), LoopFileProblem> {
        let name = self.name();
        if name != "export" || !matches!(self.peek(), None | Some(' ' | '\t' | '\r' | '\n')) {
            return self.assignment(name);
        }
        loop {
            self.take_while(is_blank);
            if matches!(self.peek(), None | Some('\n' | ';' | '#')) {
                return Ok(());
            }
            let name = self.name();
            self.exported.insert(name);
            if name.is_empty() || !self.is_at_word_end() {
                self.assignment(name)?;
            }
        }
    }

    fn assignment(&mut self, name: &str) -> Result<(), LoopFileProblem> {
        let is_name = name.starts_with(|c: char| !c.is_ascii_digit());
        if self.peek() != Some('=') || !is_name {
            let mut shown = name.to_owned();
            while let Some(c) = self.peek().filter(|c| *c != '\n' && shown.len() < 40) {
                shown.push(c);
                self.next();
            }
            let message = format!("not an assignment: {}", shown.trim_end());
            let hint = "lines must be NAME=value; the file is read as data, not executed";
            return Err(LoopFileProblem { line: self.line, message, hint });
        }
        self.next();
        let line = self.line;
        let (name, value) = (name.to_owned(), self.word()?);
        self.assignments.push(EnvAssignment { name, value, line, exported: false });
        self.take_while(is_blank);
        Ok(())
    }

    fn is_at_word_end(&self) -> bool {
        self.peek().is_none_or(|c| c.is_whitespace() || c == ';')
    }

    fn word(&mut self) -> Result<String, LoopFileProblem> {
        let mut word = String::new();
        // The line of the open double quote.
        let mut quote = None;
        self.tilde(&mut word);
        while quote.is_some() || !self.is_at_word_end() {
            let line = self.line;
            match (self.next(), quote) {
                (Some('"'), None) => quote = Some(line),
                (Some('"'), Some(_)) => quote = None,
                (Some('$'), _) => self.expansion(&mut word)?,
                (Some('`'), _) => return self.execution_error("`…`"),
                (Some('\\'), _) => match (self.next(), quote) {
                    (None, Some(line)) => return Err(unclosed_quote_error(line, '"')),
                    (None, None) => return self.problem("a \\ at the end of the file"),
                    (Some('\n'), _) => {}
                    (Some(c), Some(_)) if !"$`\"\\".contains(c) => word.extend(['\\', c]),
                    (Some(c), _) => word.push(c),
                },
                (None, _) => return Err(unclosed_quote_error(quote.unwrap_or(line), '"')),
                (Some('\''), None) => {
                    word += self.take_while(|c| c != '\'');
                    if self.next().is_none() {
                        return Err(unclosed_quote_error(line, '\''));
                    }
                }
                (Some(c @ ('|' | '&' | '<' | '>' | '(' | ')')), None) => {
                    let message = format!("`{c}` is shell syntax, which is not supported here");
                    return self.problem(message);
                }
                (Some(c), _) => {
                    word.push(c);
                    if c == ':' && quote.is_none() {
                        self.tilde(&mut word);
                    }
                }
            }
        }
        Ok(word)
    }

    /// At the start of a value and after each colon.
    fn tilde(&mut self, word: &mut String) {
        if self.peek() != Some('~') {
            return;
        }
        self.next();
        let is_home = self.is_at_word_end() || matches!(self.peek(), Some('/' | ':'));
        match (self.known)("HOME").filter(|_| is_home) {
            Some(home) => word.push_str(&home),
            None => word.push('~'),
        }
    }

    fn execution_error<T>(&self, construct: &str) -> Result<T, LoopFileProblem> {
        self.problem(format!("{construct} would run a command; the file is not executed"))
    }

    /// After the `$`.
    fn expansion(&mut self, word: &mut String) -> Result<(), LoopFileProblem> {
        match self.peek() {
            Some('(') => return self.execution_error("$(…)"),
            Some('{') => return self.braced(word),
            Some(c) if c.is_ascii_digit() || "?!#*@-$".contains(c) => {
                return self.problem(format!("${c} exists only in a running shell"));
            }
            Some('\'') => return self.problem("$'…' is not supported"),
            _ => {}
        }
        match self.name() {
            "" => word.push('$'),
            name => *word += &self.value(name).unwrap_or_else(|| self.unknown(name)),
        }
        Ok(())
    }

    /// `${NAME}` and `${NAME:-text}`.
    fn braced(&mut self, word: &mut String) -> Result<(), LoopFileProblem> {
        let line = self.line;
        self.next();
        let name = self.name();
        let operators = [":-", "-", ":"];
        let operator =
            operators.into_iter().find(|it| self.rest.starts_with(it)).unwrap_or_default();
        self.rest = &self.rest[operator.len()..];
        let default = operator
            .ends_with('-')
            .then(|| self.take_while(|c| !"}$`'\"\\\n".contains(c)).to_owned());
        match self.peek() {
            Some('}') if !name.is_empty() && operator != ":" => self.next(),
            None | Some('\n' | '\r' | ' ' | '\t' | ';' | '"') if operator != ":" => {
                let message = format!("unclosed ${{{name}{operator}");
                return Err(LoopFileProblem { line, message, hint: "close it with a }" });
            }
            _ => {
                let message = format!("${{{name}{operator}…}} is not supported");
                let hint = "use ${NAME} or ${NAME:-text}";
                return Err(LoopFileProblem { line: self.line, message, hint });
            }
        };
        let value = self.value(name).filter(|value| operator != ":-" || !value.is_empty());
        *word += &value.or(default).unwrap_or_else(|| self.unknown(name));
        Ok(())
    }

    fn value(&self, name: &str) -> Option<String> {
        let set = self.assignments.iter().rev().find(|set| set.name == name);
        set.map(|set| set.value.clone()).or_else(|| (self.known)(name))
    }

    /// As in a shell, but with a warning.
    fn unknown(&mut self, name: &str) -> String {
        let message = format!("variable {name} is not set; using an empty value");
        self.warnings.push(LoopFileProblem { line: self.line, message, hint: QUOTE_HINT });
        String::new()
    }
}

fn unclosed_quote_error(line: usize, quote: char) -> LoopFileProblem {
    let message = format!("unclosed quote ({quote})");
    LoopFileProblem { line, message, hint: "close it, or put a \\ before it" }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn values(text: &str) -> Vec<(String, String)> {
        let (assignments, _) = parse(text, known).unwrap();
        assignments.into_iter().map(|set| (set.name, set.value)).collect()
    }

    #[test]
    fn shell_values_are_expanded_like_in_shell() {
        for (text, expected) in [
            ("A=b", "b"),
            ("  A=b  # comment", "b"),
            ("export A=b", "b"),
            ("\u{feff}A=b\r\n", "b"),
            ("A=", ""),
            ("A=''", ""),
            ("A='a b'", "a b"),
            ("A=\"a b\"", "a b"),
            ("A='a'\\''b'", "a'b"),
            ("A=a\\ b", "a b"),
            ("A=\"say \\\"hi\\\" \\$HOME \\n\"", "say \"hi\" $HOME \\n"),
            ("A='$HOME `x` $(y)'", "$HOME `x` $(y)"),
            ("A=$HOME/x", "/home/me/x"),
            ("A=\"${HOME}x\"", "/home/mex"),
            ("A=~/x", "/home/me/x"),
            ("A=~", "/home/me"),
            ("A=a~b", "a~b"),
            ("A='~/x'", "~/x"),
            ("A=x:~/y:~:z", "x:/home/me/y:/home/me:z"),
            ("A=x:~y", "x:~y"),
            ("A=${NOBODY:-claude}", "claude"),
            ("A=${EMPTY:-claude}", "claude"),
            ("A=${EMPTY-claude}", ""),
            ("A=${HOME:-x}", "/home/me"),
            ("A=[$NOBODY]", "[]"),
            ("A=5$", "5$"),
            ("A=\"a$ b\"", "a$ b"),
            ("A=a#b", "a#b"),
            ("A=*.md", "*.md"),
            ("A=x=y", "x=y"),
            ("A='one\ntwo'", "one\ntwo"),
            ("A=one\\\ntwo", "onetwo"),
            ("A=\"one\\\ntwo\"", "onetwo"),
        ] {
            let expected = [("A".to_owned(), expected.to_owned())];
            assert_eq!(values(text), expected, "{text:?}");
        }
    }

    #[test]
    fn shell_parser_agrees_with_sh() {
        let text = "G=x:~/y:~\nA='a b'\\''c'\nexport B=\"$A \\\"x\\\" \\\\ \\n\" C=${NOBODY:-d}\nD=~/x;E=a#b\nF=\"${B}\"$A\n";
        let mut script = text.to_owned();
        for name in ["G", "A", "B", "C", "D", "E", "F"] {
            script.push_str(&format!("printf '%s=%s\\n' {name} \"${name}\"\n"));
        }
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .env_clear()
            .env("HOME", "/home/me")
            .output()
            .unwrap();
        let ours: String =
            values(text).iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        assert_eq!(ours, String::from_utf8(output.stdout).unwrap());
    }

    #[test]
    fn shell_exports_include_overridden_environment() {
        for (text, expected) in [
            ("A=1", false),
            ("export A=1", true),
            ("A=1; export A", true),
            ("export A\nA=late", true),
            ("export A B\nB=1\nA=1", true),
            ("export AB\nA=1", false),
            ("HOME=/elsewhere", true),
            ("EMPTY=x", true),
        ] {
            let (assignments, _) = parse(text, known).unwrap();
            assert!(assignments.iter().all(|set| set.exported == expected), "{text:?}");
        }
    }

    #[test]
    fn shell_statements_are_parsed_with_lines_and_exports() {
        let text = "# comment\n\nA=1\nexport B=2 C='3'; D=4 E=$A$B\nexport A\nA=5 # again\n";
        let (assignments, warnings) = parse(text, known).unwrap();
        let shown: Vec<_> = assignments
            .iter()
            .map(|set| (set.name.as_str(), set.value.as_str(), set.line, set.exported))
            .collect();
        assert_eq!(
            shown,
            [
                ("A", "1", 3, true),
                ("B", "2", 4, true),
                ("C", "3", 4, true),
                ("D", "4", 4, false),
                ("E", "12", 4, false),
                ("A", "5", 6, true),
            ]
        );
        assert_eq!(warnings, []);
        let (_, warnings) = parse("A=1\nB=$NOBODY", known).unwrap();
        assert_eq!(warnings[0].line, 2);
    }

    #[test]
    fn shell_commands_are_refused_with_line_number() {
        for (text, line, word) in [
            ("A=1\nB=$(rm -rf x)", 2, "$(…)"),
            ("A=1\n\nB=\"x $(y)\"", 3, "$(…)"),
            ("A=$((1+1))", 1, "$(…)"),
            ("A=`x`", 1, "`…`"),
            ("A=\"`x`\"", 1, "`…`"),
            ("rm -rf x", 1, "not an assignment: rm -rf x"),
            ("A=1\nA=b touch x", 2, "not an assignment: touch x"),
            ("A=b; touch x", 1, "not an assignment: touch x"),
            ("A=b|c", 1, "`|`"),
            ("A=b >c", 1, "not an assignment: >c"),
            ("A=b&", 1, "`&`"),
            ("A=(b c)", 1, "`(`"),
            ("A+=b", 1, "not an assignment: A+=b"),
            ("A[0]=b", 1, "not an assignment: A[0]=b"),
            ("A = b", 1, "not an assignment: A = b"),
            ("=b", 1, "not an assignment: =b"),
            ("1A=b", 1, "not an assignment: 1A=b"),
            ("export -n A", 1, "not an assignment: -n A"),
            (". other", 1, "not an assignment: . other"),
            ("A=$1", 1, "$1"),
            ("A=$'x'", 1, "$'…'"),
            ("A=${B:=x}", 1, "${B:…}"),
            ("A=${B:?x}", 1, "${B:…}"),
            ("A=${B:-$(x)}", 1, "${B:-…}"),
            ("A=${B%x}", 1, "${B…}"),
            ("A=${", 1, "unclosed ${"),
            ("A=1\nB=${C\n", 2, "unclosed ${C"),
            ("A=1\nB=\"${C\"\n", 2, "unclosed ${C"),
            ("A=${C:-x\nB=1", 1, "unclosed ${C:-"),
            ("A=1\nB=\0", 2, "a NUL character"),
            ("A=1\nB='x\ny\n", 2, "unclosed quote (')"),
            ("A=\"x\n\nB=2", 1, "unclosed quote (\")"),
            ("A=\"x\\", 1, "unclosed quote"),
            ("A=x\\", 1, "a \\ at the end"),
        ] {
            let problem = parse(text, known).unwrap_err();
            assert_eq!(problem.line, line, "{text:?}: {problem:?}");
            assert!(problem.message.contains(word), "{text:?}: {problem:?}");
        }
    }

    proptest! {
        #[test]
        fn shell_parser_never_panics(text in "(A=|export |[$`'\"\\\\{}(): \n;#~-]|x|é){0,24}") {
            if let Err(problem) = parse(&text, known) {
                prop_assert!(problem.line <= text.lines().count() + 1);
            }
        }

        #[test]
        fn shell_quoted_value_round_trips(value in "[^'\u{0}]*") {
            prop_assert_eq!(values(&format!("A='{value}'")), [("A".to_owned(), value)]);
        }
    }
}
