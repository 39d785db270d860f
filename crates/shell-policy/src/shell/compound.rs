//! Compound commands: blocks, conditions, loops, functions, tests.

use std::rc::Rc;

use super::ast::{Command, Item, Link, Part, Word};
use super::parser::{Failed, Parser};

impl Parser<'_> {
    pub(super) fn group(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("{")?;
        let body = self.inner(&["}"])?;
        self.expect_reserved("}")?;
        let redirects = self.redirects()?;
        Ok(Command::Group { body, subshell: false, redirects })
    }

    pub(super) fn if_command(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("if")?;
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        let condition = self.inner(&["then"])?;
        self.expect_reserved("then")?;
        branches.push((condition, self.inner(&["elif", "else", "fi"])?));
        loop {
            self.newlines();
            if self.take_reserved("elif") {
                let condition = self.inner(&["then"])?;
                self.expect_reserved("then")?;
                branches.push((condition, self.inner(&["elif", "else", "fi"])?));
            } else if self.take_reserved("else") {
                otherwise = self.inner(&["fi"])?;
            } else {
                break;
            }
        }
        self.expect_reserved("fi")?;
        let redirects = self.redirects()?;
        Ok(Command::If { branches, otherwise, redirects })
    }

    pub(super) fn while_command(&mut self) -> Result<Command, Failed> {
        let _ = self.take_reserved("while") || self.take_reserved("until");
        let condition = self.inner(&["do"])?;
        let body = self.body()?;
        let redirects = self.redirects()?;
        Ok(Command::While { condition, body, redirects })
    }

    /// `do … done`, or `{ … }`, which bash takes after `for`, and zsh anywhere.
    fn body(&mut self) -> Result<Vec<Item>, Failed> {
        self.newlines();
        if self.take_reserved("{") {
            self.extension("a loop whose body is in braces");
            let body = self.inner(&["}"])?;
            self.expect_reserved("}")?;
            return Ok(body);
        }
        self.expect_reserved("do")?;
        let body = self.inner(&["done"])?;
        self.expect_reserved("done")?;
        Ok(body)
    }

    pub(super) fn for_command(&mut self) -> Result<Command, Failed> {
        if self.reserved() == Some("foreach") {
            self.extension("`foreach` of zsh");
        }
        let _ = self.take_reserved("for")
            || self.take_reserved("foreach")
            || self.take_reserved("select");
        self.blanks();
        if self.looking_at("((") {
            let Some(word) = self.arithmetic_command()? else {
                return self.fail("its brackets do not match");
            };
            self.semicolon();
            let body = self.body()?;
            let redirects = self.redirects()?;
            let condition = vec![Item {
                link: Link::Then,
                command: Command::Test(vec![word], Vec::new()),
                background: false,
            }];
            return Ok(Command::While { condition, body, redirects });
        }
        let variable = self.word()?.literal().unwrap_or_default();
        self.newlines();
        let words = if self.take_reserved("in") {
            let mut words = Vec::new();
            loop {
                self.blanks();
                if self.at_end_of_words() {
                    break;
                }
                words.push(self.word()?);
            }
            Some(words)
        } else if self.take("(") {
            self.extension("`for x (…)` of zsh");
            let words = self.words_until_paren()?;
            Some(words)
        } else {
            None
        };
        self.semicolon();
        let body = self.body()?;
        let redirects = self.redirects()?;
        Ok(Command::For { variable, words, body, redirects })
    }

    /// zsh: repeat N do … done.
    pub(super) fn repeat(&mut self) -> Result<Command, Failed> {
        let start = self.at;
        self.expect_reserved("repeat")?;
        self.blanks();
        if self.at_end_of_words() {
            self.at = start;
            return self.simple();
        }
        let word = self.word()?;
        self.semicolon();
        self.newlines();
        self.extension("`repeat` of zsh");
        let mut redirects = Vec::new();
        let body = match self.reserved() {
            Some("do" | "{") => {
                let body = self.body()?;
                redirects = self.redirects()?;
                body
            }
            // zsh's short form. For bash it is a program of this name, with arguments.
            _ => vec![Item {
                link: Link::Then,
                command: self.nested(Self::command)?,
                background: false,
            }],
        };
        Ok(Command::For { variable: String::new(), words: Some(vec![word]), body, redirects })
    }

    fn semicolon(&mut self) {
        self.blanks();
        if !self.looking_at(";;") {
            self.take(";");
        }
    }

    pub(super) fn case_command(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("case")?;
        self.blanks();
        let subject = self.word()?;
        self.expect_reserved("in")?;
        let mut patterns = Vec::new();
        let mut arms = Vec::new();
        loop {
            self.newlines();
            if self.take_reserved("esac") {
                break;
            }
            self.take("(");
            loop {
                self.blanks();
                patterns.push(self.word()?);
                self.blanks();
                if !self.take("|") {
                    self.expect(")")?;
                    break;
                }
            }
            arms.push(self.inner(&["esac"])?);
            self.newlines();
            if self.looking_at(";|") {
                self.extension("a fall-through of zsh");
            }
            if !(self.take(";;&") || self.take(";;") || self.take(";&") || self.take(";|")) {
                self.expect_reserved("esac")?;
                break;
            }
        }
        let redirects = self.redirects()?;
        Ok(Command::Case { subject, patterns, arms, redirects })
    }

    pub(super) fn function(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("function")?;
        self.blanks();
        let name = self.word()?.literal().unwrap_or_default();
        self.blanks();
        // Without `)` it is the body.
        let start = self.at;
        let empty = self.take("(") && {
            self.blanks();
            self.take(")")
        };
        if !empty {
            self.at = start;
        }
        let body = self.function_body()?;
        Ok(Command::Function { name, body: Rc::new(body) })
    }

    pub(super) fn function_body(&mut self) -> Result<Command, Failed> {
        self.newlines();
        let body = self.nested(Self::command)?;
        if matches!(body, Command::Simple(_) | Command::Function { .. }) {
            self.extension("a function whose body is a simple command");
        }
        Ok(body)
    }

    /// `coproc` with a command, or with a name and a compound command.
    pub(super) fn coproc(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("coproc")?;
        self.blanks();
        if self.reserved() == Some("coproc") {
            return self.fail("its brackets or its reserved words do not match");
        }
        let start = self.at;
        if !self.at_compound() && !self.at_end_of_words() {
            self.word()?;
            self.blanks();
            if !self.at_compound() {
                self.extension(
                    "a simple command as a coprocess, with a second word that is reserved",
                );
                self.go_back(start)?;
            }
        }
        self.nested(Self::command)
    }

    fn at_compound(&self) -> bool {
        const STARTS: &[&str] = &["{", "if", "while", "until", "for", "select", "case", "[["];
        self.looking_at("(") || self.reserved().is_some_and(|word| STARTS.contains(&word))
    }

    pub(super) fn test(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("[[")?;
        self.extension("a test, whose operators are not checked");
        let mut words = Vec::new();
        loop {
            self.newlines();
            if self.take_reserved("]]") {
                break;
            }
            if self.at >= self.source.len() {
                return self.fail("its brackets do not match");
            }
            if matches!(self.peek(), Some(b'(' | b')' | b'|' | b'&' | b';'))
                || (matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) != Some(b'('))
            {
                self.at += 1;
                continue;
            }
            words.push(self.word()?);
        }
        let redirects = self.redirects()?;
        Ok(Command::Test(words, redirects))
    }

    /// `((…))`, if it is one: two opening brackets may also be two subshells.
    pub(super) fn arithmetic_command(&mut self) -> Result<Option<Word>, Failed> {
        self.at += 2;
        let parts = self.arithmetic_expression()?;
        Ok(parts.map(|parts| Word { parts: vec![Part::Arithmetic(parts)] }))
    }
}
