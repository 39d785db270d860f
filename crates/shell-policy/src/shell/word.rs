//! Words: quoting, parameters, substitutions.

use std::rc::Rc;

use super::ast::{ParameterOp, Program, Word, WordPart};
use super::escape::{Octal, decode, find_unescaped};
use super::parser::{ParseFailed, ShellParser};

/// Joins adjacent text of the same kind.
#[derive(Default)]
struct WordBuilder {
    parts: Vec<WordPart>,
    /// Set for `''`, which is a word, too.
    has_part: bool,
}

impl WordBuilder {
    fn text(&mut self, piece: &str, quote: bool) {
        self.has_part = true;
        if let Some(WordPart::Text { text, quoted }) = self.parts.last_mut()
            && *quoted == quote
        {
            text.push_str(piece);
            return;
        }
        self.parts.push(WordPart::Text { text: piece.to_owned(), quoted: quote });
    }

    fn part(&mut self, part: WordPart) {
        self.has_part = true;
        self.parts.push(part);
    }
}

impl ShellParser<'_> {
    pub(super) fn word(&mut self) -> Result<Word, ParseFailed> {
        let mut word = WordBuilder::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b'|' | b'&' | b';' | b')' => break,
                b'<' | b'>' if self.peek_at(1) == Some(b'(') => self.process(byte, &mut word)?,
                b'<' | b'>' => break,
                b'(' => {
                    // Extended patterns, `@(a|b)`, and zsh's qualifiers.
                    let extended = word.parts.last().is_some_and(|part| {
                        matches!(part, WordPart::Text { text, quoted: false }
                            if text.ends_with(['@', '*', '?', '+', '!']))
                    });
                    let zsh = matches!(word.parts.as_slice(),
                        [WordPart::Text { text, quoted: false }] if text == "=");
                    if zsh {
                        self.note_extension("`=(…)` of zsh");
                        self.position += 1;
                        let program = Rc::new(self.substitution(")")?);
                        word.part(WordPart::Process { program, reads: false });
                    } else if extended {
                        self.note_extension("an extended pattern");
                        self.balanced(&mut word, *b"()")?;
                    } else {
                        break;
                    }
                }
                _ => self.parse_piece(byte, &mut word, false)?,
            }
        }
        if word.has_part { Ok(Word { parts: word.parts }) } else { self.error("missing word") }
    }

    /// `<(…)`, `>(…)`
    fn process(&mut self, byte: u8, word: &mut WordBuilder) -> Result<(), ParseFailed> {
        self.position += 2;
        let program = Rc::new(self.substitution(")")?);
        word.part(WordPart::Process { program, reads: byte == b'>' });
        Ok(())
    }

    /// Parses up to the closing bracket of the opening one here.
    fn balanced(
        &mut self,
        word: &mut WordBuilder,
        [opening, closing]: [u8; 2],
    ) -> Result<(), ParseFailed> {
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            if let b'"' | b'\'' | b'\\' | b'$' | b'`' = byte {
                self.parse_piece(byte, word, false)?;
                continue;
            }
            open += usize::from(byte == opening);
            open -= usize::from(byte == closing);
            self.one_char(word, false);
            if open == 0 {
                return Ok(());
            }
        }
        self.error("unmatched bracket")
    }

    fn one_char(&mut self, word: &mut WordBuilder, quoted: bool) {
        let rest = self.rest();
        if let Some(c) = rest.chars().next() {
            word.text(rest.get(..c.len_utf8()).unwrap_or_default(), quoted);
            self.position += c.len_utf8();
        }
    }

    fn parse_piece(
        &mut self,
        byte: u8,
        word: &mut WordBuilder,
        braces: bool,
    ) -> Result<(), ParseFailed> {
        match byte {
            b'\\' => {
                self.position += 1;
                match self.peek() {
                    None => word.text("\\", true),
                    Some(b'\n') => self.position += 1,
                    Some(_) => self.one_char(word, true),
                }
            }
            b'\'' => {
                self.position += 1;
                let Some(end) = self.rest().find('\'') else {
                    return self.error("unclosed quote");
                };
                word.text(self.rest().get(..end).unwrap_or_default(), true);
                self.position += end + 1;
            }
            b'"' => {
                self.position += 1;
                self.double_quoted(word)?;
            }
            b'$' => self.parse_dollar(word, false)?,
            b'`' => self.backquoted(word, false)?,
            _ => {
                let rest = self.rest();
                let end = rest
                    .find(|c: char| {
                        c.is_ascii_whitespace()
                            || "|&;()<>\\'\"$`".contains(c)
                            || (braces && "{}/".contains(c))
                    })
                    .unwrap_or(rest.len());
                if end == 0 {
                    self.one_char(word, false);
                } else {
                    word.text(rest.get(..end).unwrap_or_default(), false);
                    self.position += end;
                }
            }
        }
        Ok(())
    }

    /// Parses double-quoted text after the opening quote.
    fn double_quoted(&mut self, word: &mut WordBuilder) -> Result<(), ParseFailed> {
        word.text("", true);
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(['"', '\\', '$', '`']) else {
                return self.error("unclosed quote");
            };
            word.text(rest.get(..end).unwrap_or_default(), true);
            self.position += end;
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(());
                }
                Some(b'\\') => self.quoted_backslash(word, true),
                Some(b'$') => self.parse_dollar(word, true)?,
                _ => self.backquoted(word, true)?,
            }
        }
    }

    fn quoted_backslash(&mut self, word: &mut WordBuilder, quotes: bool) {
        self.position += 1;
        match self.peek() {
            Some(b'\n') => self.position += 1,
            Some(b'$' | b'`' | b'\\') => self.one_char(word, true),
            Some(b'"') if quotes => self.one_char(word, true),
            _ => word.text("\\", true),
        }
    }

    pub(super) fn heredoc_word(&mut self, body: &str) -> Word {
        if body.contains(['$', '`']) {
            self.note_extension("a here-document, which bash reads when it runs");
        }
        let mut parser = self.sub_parser(body);
        let mut word = WordBuilder::default();
        loop {
            let rest = parser.rest();
            let Some(end) = rest.find(['\\', '$', '`']) else {
                word.text(rest, true);
                break;
            };
            word.text(rest.get(..end).unwrap_or_default(), true);
            parser.position += end;
            let read = match parser.peek() {
                Some(b'\\') => {
                    parser.quoted_backslash(&mut word, false);
                    Ok(())
                }
                Some(b'$') => parser.parse_dollar(&mut word, true),
                _ => parser.backquoted(&mut word, true),
            };
            if read.is_err() {
                break;
            }
        }
        if let Some(error) = parser.error {
            self.error.get_or_insert(error);
        }
        Word { parts: word.parts }
    }

    fn backquoted(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ParseFailed> {
        self.position += 1;
        let mut inner = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.find(['`', '\\']) else {
                return self.error("unclosed quote");
            };
            inner.push_str(rest.get(..end).unwrap_or_default());
            self.position += end + 1;
            if rest.as_bytes().get(end) == Some(&b'`') {
                break;
            }
            match self.peek() {
                Some(b'`' | b'\\' | b'$') => {}
                Some(b'"') if quoted => {}
                _ => inner.push('\\'),
            }
            let rest = self.rest();
            if let Some(c) = rest.chars().next() {
                inner.push(c);
                self.position += c.len_utf8();
            }
        }
        self.note_extension("backquotes, which bash reads when it runs");
        let program = self.nested(|parser| Ok(parser.sub_parser(&inner).program()))?;
        if let Some(error) = program.error {
            return self.error(error);
        }
        word.part(WordPart::Command { program: Rc::new(program), quoted });
        Ok(())
    }

    fn parse_dollar(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ParseFailed> {
        self.position += 1;
        match self.peek() {
            Some(b'\'') if !quoted => {
                self.position += 1;
                let text = self.ansi_quoted()?;
                word.text(&text, true);
            }
            Some(b'"') if !quoted => {
                self.position += 1;
                self.double_quoted(word)?;
            }
            Some(b'(') => {
                if self.peek_at(1) == Some(b'(') {
                    let start = self.position;
                    self.position += 2;
                    if let Some(parts) = self.arithmetic_expression()? {
                        word.part(WordPart::Arithmetic(parts));
                        return Ok(());
                    }
                    self.note_extension("two brackets that are no arithmetic");
                    self.backtrack(start)?;
                }
                self.position += 1;
                let program = self.substitution(")")?;
                word.part(WordPart::Command { program: Rc::new(program), quoted });
            }
            Some(b'[') => {
                // The old form of `$((…))`. bash looks for brackets first.
                self.note_extension("old arithmetic");
                let mut parts = self.nested(Self::bracketed)?.parts;
                parts.retain(|part| !matches!(part, WordPart::Text { .. }));
                word.part(WordPart::Arithmetic(parts));
            }
            Some(b'{') => {
                self.position += 1;
                if self.at_brace_substitution() {
                    let program = self.brace_substitution()?;
                    word.part(WordPart::Command { program: Rc::new(program), quoted });
                    return Ok(());
                }
                let part = self.nested(|parser| parser.braced_parameter(quoted))?;
                word.part(part);
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let name = self.name().to_owned();
                self.position += name.len();
                word.part(WordPart::Parameter { name, op: ParameterOp::Plain, quoted });
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.position += 1;
                let name = char::from(byte).to_string();
                word.part(WordPart::Parameter { name, op: ParameterOp::Plain, quoted });
            }
            _ => word.text("$", quoted),
        }
        Ok(())
    }

    fn ansi_quoted(&mut self) -> Result<String, ParseFailed> {
        let rest = self.rest();
        let Some(end) = find_unescaped(rest, "'") else {
            return self.error("unclosed quote");
        };
        self.position += end + 1;
        let text = decode(rest.get(..end).unwrap_or_default(), Octal::Bare);
        // The shell ends the text at a NUL.
        Ok(text.split('\0').next().unwrap_or_default().to_owned())
    }

    pub(super) fn arithmetic_expression(&mut self) -> Result<Option<Vec<WordPart>>, ParseFailed> {
        let parts = self.nested(Self::arithmetic);
        if parts.is_err() {
            self.note_extension("arithmetic, which bash reads when it runs");
        }
        parts
    }

    /// Parses up to `))`. `None` if the inner bracket closes first.
    fn arithmetic(&mut self) -> Result<Option<Vec<WordPart>>, ParseFailed> {
        let mut open = 0_usize;
        let mut word = WordBuilder::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => {
                    open += 1;
                    self.position += 1;
                }
                b')' if open > 0 => {
                    open -= 1;
                    self.position += 1;
                }
                b')' if self.peek_at(1) == Some(b')') => {
                    self.position += 2;
                    word.parts.retain(|part| !matches!(part, WordPart::Text { .. }));
                    return Ok(Some(word.parts));
                }
                b')' => return Ok(None),
                b'"' | b'\'' | b'\\' | b'$' | b'`' => self.parse_piece(byte, &mut word, false)?,
                _ => self.position += 1,
            }
        }
        Ok(None)
    }

    /// Whether a command follows: `${ …; }` and `${| …; }` in bash 5.3, ksh and zsh, `${(…) }` in
    /// bash 5.3. In zsh, a parameter follows flags in parentheses.
    fn at_brace_substitution(&self) -> bool {
        match self.peek() {
            Some(b' ' | b'\t' | b'\n' | b'|') => true,
            Some(b'(') => {
                let after = self.rest().split_once(')').map_or("", |(_, after)| after);
                after.trim_start().starts_with(['}', ';', '|', '&'])
                    || after.starts_with([' ', '\n'])
            }
            _ => false,
        }
    }

    fn brace_substitution(&mut self) -> Result<Program, ParseFailed> {
        self.note_extension("a command substitution in braces");
        self.eat("|");
        self.substitution("}")
    }

    pub(super) fn bracketed(&mut self) -> Result<Word, ParseFailed> {
        let mut word = WordBuilder::default();
        self.balanced(&mut word, *b"[]")?;
        Ok(Word { parts: word.parts })
    }

    fn braced_parameter(&mut self, quoted: bool) -> Result<WordPart, ParseFailed> {
        // Empty in zsh, a run-time error in bash.
        if self.eat("}") {
            self.note_extension("`${}`");
            return Ok(WordPart::Parameter { name: String::new(), op: ParameterOp::Plain, quoted });
        }
        let mut prefix = None;
        if (self.looking_at("#") || self.looking_at("!"))
            && !matches!(self.peek_at(1), None | Some(b'}' | b':' | b'-' | b'%' | b'='))
        {
            prefix = self.peek();
            self.position += 1;
        }
        // zsh's flags have an unknown effect on the value.
        let mut flags = false;
        if self.looking_at("(") {
            self.note_extension("parameter flags of zsh");
            let Some(end) = self.rest().find(')') else {
                return self.error("unmatched bracket");
            };
            self.position += end + 1;
            flags = true;
        }
        // zsh: a nested expansion.
        let nested = match self.peek() {
            Some(b'$') => matches!(self.peek_at(1), Some(b'{' | b'(' | b'[')),
            Some(b'<' | b'>') => self.peek_at(1) == Some(b'('),
            Some(b'"' | b'`') => true,
            _ => false,
        };
        if nested {
            self.note_extension("an expansion of an expansion");
            let op = ParameterOp::Other(self.until_brace(true)?);
            return Ok(WordPart::Parameter { name: String::new(), op, quoted });
        }
        let mut name = self.name().to_owned();
        if name.is_empty() {
            name.extend(self.rest().chars().next());
        }
        self.position += name.len();
        if self.looking_at("[") {
            let start = self.position;
            let index = self.nested(Self::bracketed);
            if index.is_err()
                || self.source.get(start..self.position).is_some_and(|text| text.contains('('))
            {
                self.note_extension("an array's index, which bash reads when it runs");
            }
            let index = index?;
            match index.literal().as_deref() {
                Some(index @ ("[@]" | "[*]")) => name.push_str(index),
                Some(_) => name.push_str("[?]"),
                None => {
                    let mut parts = index.parts;
                    parts.extend(self.until_brace(true)?.parts);
                    let op = ParameterOp::Other(Word { parts });
                    return Ok(WordPart::Parameter { name, op, quoted });
                }
            }
        }
        let op = match (prefix, flags) {
            (_, true) => ParameterOp::Other(self.until_brace(true)?),
            (Some(b'#'), _) => {
                self.until_brace(true)?;
                ParameterOp::Length
            }
            (Some(_), _) => {
                let rest = self.until_brace(true)?;
                if rest.parts.is_empty() { ParameterOp::Indirect } else { ParameterOp::Other(rest) }
            }
            (None, _) => self.operator(quoted)?,
        };
        Ok(WordPart::Parameter { name, op, quoted })
    }

    fn operator(&mut self, quoted: bool) -> Result<ParameterOp, ParseFailed> {
        let texts: &[&str] = &[
            "}", ":-", "-", ":=", "=", ":+", "+", ":?", "?", ":", "##", "#", "%%", "%", "//", "/",
            "^^", "^", ",,", ",",
        ];
        let Some(text) = texts.iter().copied().find(|text| self.looking_at(text)) else {
            return Ok(ParameterOp::Other(self.until_brace(true)?));
        };
        self.position += text.len();
        if text == "}" {
            return Ok(ParameterOp::Plain);
        }
        if text.starts_with('/') {
            let (pattern, more) = self.operand(!quoted, true)?;
            let replacement = if more { self.until_brace(!quoted)? } else { Word::default() };
            return Ok(ParameterOp::Replace { all: text == "//", pattern, replacement });
        }
        let word = self.until_brace(!quoted)?;
        Ok(match text {
            ":-" | "-" => ParameterOp::Default { word, assign: false },
            ":=" | "=" => ParameterOp::Default { word, assign: true },
            ":+" | "+" => ParameterOp::Alternative(word),
            ":?" | "?" => ParameterOp::Required(word),
            ":" => ParameterOp::Substring(word),
            "##" | "#" => {
                ParameterOp::Strip { suffix: false, longest: text.len() == 2, pattern: word }
            }
            "%%" | "%" => {
                ParameterOp::Strip { suffix: true, longest: text.len() == 2, pattern: word }
            }
            "^^" | "^" => ParameterOp::Case { upper: true, all: text.len() == 2, pattern: word },
            ",," | "," => ParameterOp::Case { upper: false, all: text.len() == 2, pattern: word },
            _ => ParameterOp::Other(word),
        })
    }

    fn until_brace(&mut self, single_quotes: bool) -> Result<Word, ParseFailed> {
        Ok(self.operand(single_quotes, false)?.0)
    }

    /// Parses up to the closing brace, or to a slash if asked (then `true`).
    fn operand(&mut self, single_quotes: bool, slash: bool) -> Result<(Word, bool), ParseFailed> {
        let mut word = WordBuilder::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'}' => {
                    self.position += 1;
                    return Ok((Word { parts: word.parts }, false));
                }
                b'/' if slash => {
                    self.position += 1;
                    return Ok((Word { parts: word.parts }, true));
                }
                b'\'' if !single_quotes => self.single_quote_in_double(&mut word)?,
                b'<' | b'>' if self.peek_at(1) == Some(b'(') => self.process(byte, &mut word)?,
                _ => self.parse_piece(byte, &mut word, true)?,
            }
        }
        self.error("unmatched bracket")
    }

    /// A `'` in `"${x:-…}"`. It quotes nothing, but bash looks for its pair, and other shells do
    /// not. If that matters, it is an error.
    fn single_quote_in_double(&mut self, word: &mut WordBuilder) -> Result<(), ParseFailed> {
        let rest = self.rest().get(1..).unwrap_or_default();
        self.note_extension("a single quote in double quotes");
        match rest.split_once('\'') {
            None => {}
            Some((between, _)) if between.contains(['}', '"']) => {
                return self.error("shells differ about single quotes in double quotes");
            }
            Some((between, _)) => {
                self.one_char(word, true);
                let inner = self.heredoc_word(between);
                if self.error.is_some() {
                    return Err(ParseFailed);
                }
                inner.parts.into_iter().for_each(|part| word.part(part));
                self.position += between.len();
            }
        }
        self.one_char(word, true);
        Ok(())
    }
}
