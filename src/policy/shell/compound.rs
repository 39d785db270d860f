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
            // zsh: for x (a b) …
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
        if self.reserved() != Some("do") && self.reserved() != Some("{") {
            self.at = start;
            return self.simple();
        }
        let body = self.body()?;
        let redirects = self.redirects()?;
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
                if self.take(")") {
                    break;
                }
                if self.take("|") {
                    continue;
                }
                patterns.push(self.word()?);
            }
            arms.push(self.inner(&["esac"])?);
            self.newlines();
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
        if self.take("(") {
            self.expect(")")?;
        }
        self.newlines();
        let body = self.nested(Self::command)?;
        Ok(Command::Function { name, body: Rc::new(body) })
    }

    pub(super) fn test(&mut self) -> Result<Command, Failed> {
        self.expect_reserved("[[")?;
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
        self.nested(|parser| match parser.arithmetic()? {
            Some(parts) => Ok(Some(Word { parts: vec![Part::Arithmetic(parts)] })),
            None => Ok(None),
        })
    }
}
