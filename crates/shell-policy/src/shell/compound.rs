//! Compound commands: blocks, conditions, loops, functions, tests.

use std::rc::Rc;

use super::ast::{CompoundCommand, ListItem, ShellCommand, Word, WordPart};
use super::parser::{ParseFailed, ShellParser};

impl ShellParser<'_> {
    pub(super) fn group(&mut self) -> Result<CompoundCommand, ParseFailed> {
        self.expect_reserved("{")?;
        let body = self.nested_list(&["}"])?;
        self.expect_reserved("}")?;
        Ok(CompoundCommand::Group { body, subshell: false })
    }

    pub(super) fn if_command(&mut self) -> Result<CompoundCommand, ParseFailed> {
        self.expect_reserved("if")?;
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let condition = self.nested_list(&["then"])?;
            self.expect_reserved("then")?;
            branches.push((condition, self.nested_list(&["elif", "else", "fi"])?));
            self.skip_newlines();
            if !self.eat_reserved("elif") {
                break;
            }
        }
        if self.eat_reserved("else") {
            otherwise = self.nested_list(&["fi"])?;
        }
        self.expect_reserved("fi")?;
        Ok(CompoundCommand::If { branches, otherwise })
    }

    pub(super) fn while_command(&mut self) -> Result<CompoundCommand, ParseFailed> {
        let _ = self.eat_reserved("while") || self.eat_reserved("until");
        let condition = self.nested_list(&["do"])?;
        let body = self.body()?;
        Ok(CompoundCommand::While { condition, body })
    }

    /// `do … done`, or `{ … }`, which bash accepts after `for`, zsh anywhere.
    fn body(&mut self) -> Result<Vec<ListItem>, ParseFailed> {
        self.skip_newlines();
        if self.eat_reserved("{") {
            self.note_extension("a loop whose body is in braces");
            let body = self.nested_list(&["}"])?;
            self.expect_reserved("}")?;
            return Ok(body);
        }
        self.expect_reserved("do")?;
        let body = self.nested_list(&["done"])?;
        self.expect_reserved("done")?;
        Ok(body)
    }

    pub(super) fn for_command(&mut self) -> Result<CompoundCommand, ParseFailed> {
        if self.reserved() == Some("foreach") {
            self.note_extension("`foreach` of zsh");
        }
        let _ =
            self.eat_reserved("for") || self.eat_reserved("foreach") || self.eat_reserved("select");
        self.skip_blanks();
        if self.looking_at("((") {
            let Some(word) = self.arithmetic_command()? else {
                return self.error("unmatched bracket");
            };
            self.semicolon();
            let body = self.body()?;
            let command = CompoundCommand::Test(vec![word]);
            let condition =
                vec![ListItem::new(ShellCommand::Compound { command, redirects: Vec::new() })];
            return Ok(CompoundCommand::While { condition, body });
        }
        let variable = self.word()?.literal().unwrap_or_default();
        self.skip_newlines();
        let words = if self.eat_reserved("in") {
            let mut words = Vec::new();
            loop {
                self.skip_blanks();
                if self.at_end_of_words() {
                    break;
                }
                words.push(self.word()?);
            }
            Some(words)
        } else if self.eat("(") {
            self.note_extension("`for x (…)` of zsh");
            let words = self.words_until_paren()?;
            Some(words)
        } else {
            None
        };
        self.semicolon();
        let body = self.body()?;
        Ok(CompoundCommand::For { variable, words, body })
    }

    /// zsh: `repeat N do … done`.
    pub(super) fn repeat(&mut self) -> Result<ShellCommand, ParseFailed> {
        let start = self.position;
        self.expect_reserved("repeat")?;
        self.skip_blanks();
        if self.at_end_of_words() {
            self.position = start;
            return self.simple();
        }
        let word = self.word()?;
        self.semicolon();
        self.skip_newlines();
        self.note_extension("`repeat` of zsh");
        let body = match self.reserved() {
            Some("do" | "{") => self.body()?,
            // zsh's short form. In bash it is a program of this name.
            _ => vec![ListItem::new(self.nested(Self::command)?)],
        };
        let words = Some(vec![word]);
        self.redirected(CompoundCommand::For { variable: String::new(), words, body })
    }

    fn semicolon(&mut self) {
        self.skip_blanks();
        if !self.looking_at(";;") {
            self.eat(";");
        }
    }

    pub(super) fn case_command(&mut self) -> Result<CompoundCommand, ParseFailed> {
        self.expect_reserved("case")?;
        self.skip_blanks();
        let subject = self.word()?;
        self.expect_reserved("in")?;
        let mut patterns = Vec::new();
        let mut arms = Vec::new();
        loop {
            self.skip_newlines();
            if self.eat_reserved("esac") {
                break;
            }
            self.eat("(");
            loop {
                self.skip_blanks();
                patterns.push(self.word()?);
                self.skip_blanks();
                if !self.eat("|") {
                    self.expect(")")?;
                    break;
                }
            }
            arms.push(self.nested_list(&["esac"])?);
            self.skip_newlines();
            if self.looking_at(";|") {
                self.note_extension("a fall-through of zsh");
            }
            if !(self.eat(";;&") || self.eat(";;") || self.eat(";&") || self.eat(";|")) {
                self.expect_reserved("esac")?;
                break;
            }
        }
        Ok(CompoundCommand::Case { subject, patterns, arms })
    }

    pub(super) fn function(&mut self) -> Result<ShellCommand, ParseFailed> {
        self.expect_reserved("function")?;
        self.skip_blanks();
        let name = self.word()?.literal().unwrap_or_default();
        self.skip_blanks();
        let start = self.position;
        let empty = self.eat("(") && {
            self.skip_blanks();
            self.eat(")")
        };
        if !empty {
            self.position = start;
        }
        let body = self.function_body()?;
        Ok(ShellCommand::Function { name, body: Rc::new(body) })
    }

    pub(super) fn function_body(&mut self) -> Result<ShellCommand, ParseFailed> {
        self.skip_newlines();
        let body = self.nested(Self::command)?;
        if matches!(body, ShellCommand::Simple(_) | ShellCommand::Function { .. }) {
            self.note_extension("a function whose body is a simple command");
        }
        Ok(body)
    }

    pub(super) fn coproc(&mut self) -> Result<ShellCommand, ParseFailed> {
        self.expect_reserved("coproc")?;
        self.skip_blanks();
        if self.reserved() == Some("coproc") {
            return self.error("unmatched bracket or reserved word");
        }
        let start = self.position;
        if !self.at_compound() && !self.at_end_of_words() {
            self.word()?;
            self.skip_blanks();
            if !self.at_compound() {
                self.note_extension(
                    "a simple command as a coprocess, with a second word that is reserved",
                );
                self.backtrack(start)?;
            }
        }
        self.nested(Self::command)
    }

    fn at_compound(&self) -> bool {
        const COMPOUND_KEYWORDS: &[&str] =
            &["{", "if", "while", "until", "for", "select", "case", "[["];
        self.looking_at("(")
            || self.reserved().is_some_and(|word| COMPOUND_KEYWORDS.contains(&word))
    }

    pub(super) fn test(&mut self) -> Result<CompoundCommand, ParseFailed> {
        self.expect_reserved("[[")?;
        self.note_extension("a test, whose operators are not checked");
        let mut words = Vec::new();
        loop {
            self.skip_newlines();
            if self.eat_reserved("]]") {
                break;
            }
            if self.position >= self.source.len() {
                return self.error("unmatched bracket");
            }
            if matches!(self.peek(), Some(b'(' | b')' | b'|' | b'&' | b';'))
                || (matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) != Some(b'('))
            {
                self.position += 1;
                continue;
            }
            words.push(self.word()?);
        }
        Ok(CompoundCommand::Test(words))
    }

    /// `((…))`, unless it is two subshells.
    pub(super) fn arithmetic_command(&mut self) -> Result<Option<Word>, ParseFailed> {
        self.position += 2;
        let parts = self.arithmetic_expression()?;
        Ok(parts.map(|parts| Word { parts: vec![WordPart::Arithmetic(parts)] }))
    }
}
