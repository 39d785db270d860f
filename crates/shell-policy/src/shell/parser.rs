//! Lists, pipelines, simple commands, redirections.

use std::cell::Cell;
use std::rc::Rc;

use memchr::memchr;

use super::ast::{
    AssignedValue, Assignment, CompoundCommand, Connector, Heredoc, ListItem, Program, Redirect,
    RedirectOp, ShellCommand, Simple, Word,
};
use super::{MAX_DEPTH, MAX_SIZE};

/// Parses a command line. Keeps what precedes an error.
pub(crate) fn parse(source: &str) -> Program {
    if source.len() > MAX_SIZE {
        return Program { error: Some("too long"), ..Program::default() };
    }
    if memchr(0, source.as_bytes()).is_some() {
        return Program { error: Some("contains a NUL byte"), ..Program::default() };
    }
    ShellParser::new(source, 0).program()
}

type Partial = Vec<ListItem>;
/// The message is in [`ShellParser::error`].
pub(super) struct ParseFailed;

pub(super) struct ShellParser<'a> {
    pub(super) source: &'a str,
    pub(super) position: usize,
    pub(super) depth: usize,
    pub(super) error: Option<&'static str>,
    pub(super) heredocs: Vec<Heredoc>,
    /// Here-documents after this line: index, delimiter, whether it is quoted, whether tabs are
    /// stripped.
    pub(super) pending: Vec<(usize, String, bool, bool)>,
    /// Bytes that may still be parsed twice.
    reread_budget: Rc<Cell<usize>>,
    extension: Rc<Cell<Option<&'static str>>>,
}

const CLOSERS: &[&str] = &["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Builtins whose arguments may be arrays: `declare -a names=(…)`.
const DECLARE_BUILTINS: &[&str] =
    &["alias", "declare", "typeset", "local", "export", "readonly", "eval", "let"];

/// A brace ends the list of `${ …; }` whatever follows: `"${ ls; }"`.
const BRACE_SUBSTITUTION: &str = "${";

fn is_array_name(text: &str) -> bool {
    let name = text.strip_suffix('=').map(|name| name.strip_suffix('+').unwrap_or(name));
    name.is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The length of the body and the offset after the delimiter.
fn heredoc_end(text: &str, delimiter: &str, tabs: bool) -> Option<(usize, usize)> {
    let mut start = 0;
    while start < text.len() {
        let rest = &text.as_bytes()[start..];
        let end = memchr(b'\n', rest).map_or(text.len(), |length| start + length);
        let line = text.get(start..end)?;
        let line = if tabs { line.trim_start_matches('\t') } else { line };
        // The first byte rules out nearly all lines.
        let begins = line.as_bytes().first() == delimiter.as_bytes().first();
        match begins.then(|| line.strip_prefix(delimiter)).flatten() {
            Some("") => return Some((start, text.len().min(end + 1))),
            // bash accepts `$(cat <<EOF … EOF)` with a warning.
            Some(after) if after.starts_with(')') && !delimiter.is_empty() => {
                return Some((start, end - after.len()));
            }
            _ => start = end + 1,
        }
    }
    None
}

impl<'a> ShellParser<'a> {
    pub(super) fn new(source: &'a str, depth: usize) -> Self {
        ShellParser {
            source,
            position: 0,
            depth,
            error: None,
            heredocs: Vec::new(),
            pending: Vec::new(),
            reread_budget: Rc::new(Cell::new(MAX_SIZE)),
            extension: Rc::default(),
        }
    }

    pub(super) fn sub_parser<'b>(&self, source: &'b str) -> ShellParser<'b> {
        ShellParser {
            reread_budget: Rc::clone(&self.reread_budget),
            extension: Rc::clone(&self.extension),
            ..ShellParser::new(source, self.depth + 1)
        }
    }

    pub(super) fn note_extension(&self, form: &'static str) {
        self.extension.set(Some(form));
    }

    /// Resets for another attempt. Limited, because nested attempts double with each level.
    pub(super) fn backtrack(&mut self, start: usize) -> Result<(), ParseFailed> {
        let bytes = self.position.saturating_sub(start);
        self.position = start;
        match self.reread_budget.get().checked_sub(bytes) {
            Some(remaining) => {
                self.reread_budget.set(remaining);
                Ok(())
            }
            None => self.error("brackets are too ambiguous"),
        }
    }

    pub(super) fn program(mut self) -> Program {
        let list = match self.list(&[]) {
            Ok(list) => {
                if self.position < self.source.len() && self.error.is_none() {
                    self.error = Some("unmatched bracket or reserved word");
                }
                list
            }
            Err(list) => list,
        };
        self.end_of_line();
        let extension = self.extension.get();
        Program { list, heredocs: self.heredocs, error: self.error, extension }
    }

    pub(super) fn error<T>(&mut self, reason: &'static str) -> Result<T, ParseFailed> {
        self.error.get_or_insert(reason);
        Err(ParseFailed)
    }

    pub(super) fn rest(&self) -> &'a str {
        self.source.get(self.position..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.position).copied()
    }

    pub(super) fn peek_at(&self, offset: usize) -> Option<u8> {
        self.source.as_bytes().get(self.position + offset).copied()
    }

    /// The letters, digits and underscores here.
    pub(super) fn name(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    pub(super) fn looking_at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.looking_at(text);
        if found {
            self.position += text.len();
        }
        found
    }

    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ParseFailed>,
    ) -> Result<T, ParseFailed> {
        if self.depth >= MAX_DEPTH {
            return self.error("nested too deeply");
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, line continuations and a comment.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r') => self.position += 1,
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.position += 2,
                Some(b'#') => {
                    self.position += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                _ => return,
            }
        }
    }

    /// Skips blanks and newlines, and reads here-documents that start there.
    pub(super) fn skip_newlines(&mut self) {
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'\n') {
                return;
            }
            self.position += 1;
            self.end_of_line();
        }
    }

    /// Reads the here-documents announced on this line.
    fn end_of_line(&mut self) {
        for (number, delimiter, quoted, tabs) in std::mem::take(&mut self.pending) {
            let body = self.heredoc_body(&delimiter, tabs);
            let body = match quoted {
                true => Heredoc::Literal(Rc::new(body)),
                false if self.error.is_some() => Heredoc::Word(Word::default()),
                false => Heredoc::Word(self.heredoc_word(&body)),
            };
            if let Some(slot) = self.heredocs.get_mut(number) {
                *slot = body;
            }
        }
    }

    fn heredoc_body(&mut self, delimiter: &str, tabs: bool) -> String {
        let rest = self.rest();
        let end = heredoc_end(rest, delimiter, tabs);
        let (length, next) = end.unwrap_or((rest.len(), rest.len()));
        self.position += next;
        let body = rest.get(..length).unwrap_or_default();
        let mut body = match tabs {
            false => body.to_owned(),
            true => body.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect(),
        };
        if !body.is_empty() && !body.ends_with('\n') {
            body.push('\n');
        }
        body
    }

    pub(super) fn list(&mut self, closers: &[&str]) -> Result<Vec<ListItem>, Partial> {
        let mut items = Vec::new();
        let mut link = Connector::Then;
        loop {
            self.skip_newlines();
            if self.at_end_of_list(closers) {
                if link != Connector::Then {
                    self.error.get_or_insert("missing command");
                    return Err(items);
                }
                return Ok(items);
            }
            let command = match self.pipeline() {
                Ok(command) => command,
                Err(ParseFailed) => return Err(items),
            };
            self.skip_blanks();
            let mut background = false;
            let mut next = Connector::Then;
            if self.eat("&&") {
                next = Connector::And;
            } else if self.eat("||") {
                next = Connector::Or;
            } else if self.at_end_of_arm() || self.eat(";") {
            } else if self.eat("&!") || self.eat("&|") {
                self.note_extension("a job that zsh disowns");
                background = true;
            } else if self.eat("&") {
                background = true;
            } else if self.peek() != Some(b'\n') && !self.at_end_of_list(closers) {
                self.error.get_or_insert("missing separator between commands");
                items.push(ListItem { connector: link, command, background });
                return Err(items);
            }
            items.push(ListItem { connector: link, command, background });
            link = next;
        }
    }

    /// Whether an arm of a `case` ends. `;&` and `;;&` fall through in bash, `;|` in zsh.
    fn at_end_of_arm(&self) -> bool {
        [";;", ";&", ";|"].iter().any(|end| self.looking_at(end))
    }

    fn at_end_of_list(&self, closers: &[&str]) -> bool {
        self.position >= self.source.len()
            || self.peek() == Some(b')')
            || (self.peek() == Some(b'}') && closers == [BRACE_SUBSTITUTION])
            || self.at_end_of_arm()
            || self
                .reserved()
                .is_some_and(|word| closers.contains(&word) || CLOSERS.contains(&word))
    }

    /// Parses a list in which an error fails the whole command.
    pub(super) fn nested_list(&mut self, closers: &[&str]) -> Result<Vec<ListItem>, ParseFailed> {
        let list = self.nested(|parser| parser.list(closers).map_err(|_| ParseFailed))?;
        if list.is_empty() {
            self.note_extension("an empty block");
        }
        Ok(list)
    }

    /// The next unquoted word, not consumed.
    pub(super) fn reserved(&self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_ascii_whitespace() || ";|&()<>\"'\\$`".contains(c))
            .unwrap_or(rest.len());
        let word = rest.get(..end)?;
        let next = rest.as_bytes().get(end);
        let continues = match next {
            Some(b'<' | b'>') => rest.as_bytes().get(end + 1) == Some(&b'('),
            // A line continuation continues the word, unless the word ends there.
            Some(b'\\') if rest.get(end..).is_some_and(|rest| rest.starts_with("\\\n")) => {
                let line = rest.get(end..).unwrap_or_default();
                let line = line.trim_start_matches("\\\n");
                line.starts_with(|c: char| !c.is_ascii_whitespace() && !";|&()".contains(c))
            }
            Some(b'"' | b'\'' | b'\\' | b'$' | b'`') => true,
            _ => false,
        };
        (!word.is_empty() && !continues).then_some(word)
    }

    pub(super) fn eat_reserved(&mut self, word: &str) -> bool {
        let found = self.reserved() == Some(word);
        if found {
            self.position += word.len();
        }
        found
    }

    fn pipeline(&mut self) -> Result<ShellCommand, ParseFailed> {
        loop {
            self.skip_blanks();
            let Some(word @ ("!" | "time")) = self.reserved() else { break };
            self.position += word.len();
            self.skip_blanks();
            while word == "time" && (self.eat_reserved("-p") || self.eat_reserved("--")) {
                self.skip_blanks();
            }
            if matches!(self.peek(), None | Some(b'\n' | b';')) {
                return Ok(ShellCommand::Simple(Simple::default()));
            }
        }
        // `!(…)` is a negated subshell, unless extended patterns are on.
        if self.looking_at("!(") {
            self.position += 1;
        }
        let mut stages = vec![self.command()?];
        loop {
            self.skip_blanks();
            if self.looking_at("||") || !(self.eat("|&") || self.eat("|")) {
                break;
            }
            self.skip_newlines();
            if self.eat_reserved("!") {
                self.note_extension("`!` inside a pipeline");
                self.skip_blanks();
            }
            if self.reserved() == Some("coproc") {
                self.note_extension("`coproc` inside a pipeline");
            }
            stages.push(self.command()?);
        }
        match stages.len() {
            1 => stages.pop().ok_or(ParseFailed),
            _ => Ok(ShellCommand::Pipeline(stages)),
        }
    }

    pub(super) fn command(&mut self) -> Result<ShellCommand, ParseFailed> {
        self.skip_blanks();
        if self.looking_at("((") {
            let start = self.position;
            if let Some(word) = self.arithmetic_command()? {
                return self.redirected(CompoundCommand::Test(vec![word]));
            }
            self.backtrack(start)?;
        }
        if self.eat("(") {
            let body = self.nested_list(&[])?;
            self.expect(")")?;
            return self.redirected(CompoundCommand::Group { body, subshell: true });
        }
        let command = match self.reserved() {
            Some("{") => self.group()?,
            Some("if") => self.if_command()?,
            Some("while" | "until") => self.while_command()?,
            Some("for" | "foreach" | "select") => self.for_command()?,
            Some("case") => self.case_command()?,
            Some("[[") => self.test()?,
            Some("repeat") => return self.repeat(),
            Some("function") => return self.function(),
            Some("coproc") => return self.coproc(),
            Some(word) if CLOSERS.contains(&word) || ["in", "]]"].contains(&word) => {
                return self.error("unmatched bracket or reserved word");
            }
            _ => return self.simple(),
        };
        self.redirected(command)
    }

    /// Parses the redirections after a compound command.
    pub(super) fn redirected(
        &mut self,
        command: CompoundCommand,
    ) -> Result<ShellCommand, ParseFailed> {
        Ok(ShellCommand::Compound { command, redirects: self.redirects()? })
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<(), ParseFailed> {
        self.skip_newlines();
        if self.eat(text) { Ok(()) } else { self.error("unmatched bracket") }
    }

    pub(super) fn expect_reserved(&mut self, word: &str) -> Result<(), ParseFailed> {
        self.skip_newlines();
        if self.eat_reserved(word) {
            Ok(())
        } else {
            self.error("unmatched bracket or reserved word")
        }
    }

    pub(super) fn at_end_of_words(&self) -> bool {
        match self.peek() {
            None | Some(b'\n' | b';' | b'|' | b'&' | b')' | b'(') => true,
            Some(b'<' | b'>') => self.peek_at(1) != Some(b'('),
            _ => false,
        }
    }

    pub(super) fn words_until_paren(&mut self) -> Result<Vec<Word>, ParseFailed> {
        self.nested(|parser| {
            let mut words = Vec::new();
            loop {
                parser.skip_newlines();
                if parser.eat(")") {
                    return Ok(words);
                }
                if parser.at_end_of_words() {
                    return parser.error("unmatched bracket");
                }
                words.push(parser.array_element()?);
            }
        })
    }

    /// Parses an element, perhaps with `[index]=`.
    fn array_element(&mut self) -> Result<Word, ParseFailed> {
        if self.peek() != Some(b'[') {
            return self.word();
        }
        let mut element = self.bracketed()?;
        if !self.at_end_of_words() && !matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            element.parts.extend(self.word()?.parts);
        }
        Ok(element)
    }

    pub(super) fn simple(&mut self) -> Result<ShellCommand, ParseFailed> {
        let mut simple = Simple::default();
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                simple.redirects.push(redirect);
                continue;
            }
            if self.at_end_of_words() {
                break;
            }
            if simple.words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                simple.assignments.push(assignment);
                continue;
            }
            let word = self.word()?;
            // `name() { … }`
            if simple.words.is_empty()
                && simple.assignments.is_empty()
                && let Some(name) = word.unquoted_literal()
            {
                let after = self.position;
                self.skip_blanks();
                if self.eat("(") {
                    self.skip_blanks();
                    if self.eat(")") {
                        let name = name.to_owned();
                        let body = self.function_body()?;
                        return Ok(ShellCommand::Function { name, body: Rc::new(body) });
                    }
                    return self.error("unmatched bracket");
                }
                self.position = after;
            }
            // `declare -a names=(…)`: the array is kept as words.
            if !simple.words.is_empty()
                && self.peek() == Some(b'(')
                && simple
                    .words
                    .first()
                    .and_then(Word::unquoted_literal)
                    .is_some_and(|name| DECLARE_BUILTINS.contains(&name))
                && word.literal().is_some_and(|text| is_array_name(&text))
            {
                self.position += 1;
                let elements = self.words_until_paren()?;
                let name = word.literal().unwrap_or_default();
                let name = name.trim_end_matches('=').trim_end_matches('+').to_owned();
                simple.assignments.push(Assignment {
                    name,
                    append: false,
                    index: None,
                    value: AssignedValue::Array(elements),
                });
                continue;
            }
            simple.words.push(word);
        }
        if simple == Simple::default() {
            return self.error("missing command");
        }
        Ok(ShellCommand::Simple(simple))
    }

    /// `name=value`, `name+=value`, `name[i]=value`, `name=(…)`.
    fn assignment(&mut self) -> Result<Option<Assignment>, ParseFailed> {
        let (rest, name) = (self.rest(), self.name());
        let length = name.len();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        let mut after = length;
        let mut index = None;
        if rest.as_bytes().get(after) == Some(&b'[') {
            let start = self.position;
            self.position += length;
            index = Some(self.nested(Self::bracketed)?);
            after = self.position - start;
            self.backtrack(start)?;
        }
        let tail = rest.get(after..).unwrap_or_default();
        let append = tail.starts_with("+=");
        if !append && !tail.starts_with('=') {
            let is_special = |c: char| c.is_ascii_whitespace() || ";|&()<>".contains(c);
            if index.is_some() && rest.get(..after).is_some_and(|word| word.contains(is_special)) {
                self.note_extension("a word with an index, which bash reads up to its bracket");
            }
            return Ok(None);
        }
        self.position += after + if append { 2 } else { 1 };
        let value = if self.eat("(") {
            AssignedValue::Array(self.words_until_paren()?)
        } else if self.at_end_of_words() || matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            AssignedValue::Word(Word::default())
        } else {
            AssignedValue::Word(self.word()?)
        };
        Ok(Some(Assignment { name: name.to_owned(), append, index, value }))
    }

    fn redirects(&mut self) -> Result<Vec<Redirect>, ParseFailed> {
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(redirects),
            }
        }
    }

    fn redirect(&mut self) -> Result<Option<Redirect>, ParseFailed> {
        if !matches!(self.peek(), Some(b'<' | b'>' | b'&' | b'{' | b'0'..=b'9')) {
            return Ok(None);
        }
        let start = self.position;
        // A descriptor before the operator: `2>`, `{fd}>`.
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let mut skip = digits;
        if let Some(name) = rest.strip_prefix('{') {
            let name = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            let after = rest.as_bytes().get(name + 1..).unwrap_or_default();
            if matches!(after, [b'}', b'<' | b'>', ..]) {
                skip = name + 2;
            }
        }
        self.position += skip;
        const OPERATORS: &[(&str, RedirectOp)] = &[
            ("<<<", RedirectOp::HereString),
            ("<<-", RedirectOp::HereDocument),
            ("<<", RedirectOp::HereDocument),
            ("<>", RedirectOp::ReadWrite),
            ("<&", RedirectOp::Duplicate),
            ("<", RedirectOp::Read),
            ("&>>", RedirectOp::Append),
            ("&>", RedirectOp::Write),
            (">>&", RedirectOp::Append),
            (">>", RedirectOp::Append),
            (">&", RedirectOp::Duplicate),
            (">|", RedirectOp::Write),
            (">", RedirectOp::Write),
        ];
        let process = self.looking_at("<(") || self.looking_at(">(");
        let found = OPERATORS.iter().find(|(text, _)| self.looking_at(text)).filter(|_| !process);
        let Some((text, op)) = found else {
            self.position = start;
            return Ok(None);
        };
        if skip > 0 && text.starts_with('&') {
            self.position = start;
            return Ok(None);
        }
        self.position += text.len();
        // zsh: `>>!`, `&>|` and similar overwrite regardless of options.
        let forced = text.contains('>') && *text != "<>" && (self.eat("!") || self.eat("|"));
        if forced || *text == ">>&" {
            self.note_extension("a redirection of zsh");
        }
        self.skip_blanks();
        if self.at_end_of_words() {
            return self.error("redirection without a target");
        }
        let target = self.word()?;
        // In `< 2>&1` the number belongs to the next redirection.
        let is_number =
            target.unquoted_literal().is_some_and(|text| text.bytes().all(|b| b.is_ascii_digit()));
        if *op != RedirectOp::Duplicate && is_number && matches!(self.peek(), Some(b'<' | b'>')) {
            return self.error("redirection without a target");
        }
        let heredoc = (*op == RedirectOp::HereDocument).then(|| {
            let number = self.heredocs.len();
            self.heredocs.push(Heredoc::Word(Word::default()));
            let delimiter = target.literal().unwrap_or_default();
            self.pending.push((number, delimiter, target.is_quoted(), *text == "<<-"));
            number
        });
        Ok(Some(Redirect { op: *op, target, heredoc }))
    }

    pub(super) fn substitution(&mut self, end: &str) -> Result<Program, ParseFailed> {
        let heredocs = std::mem::take(&mut self.heredocs);
        let pending = std::mem::take(&mut self.pending);
        let result = self.nested_list(if end == "}" { &[BRACE_SUBSTITUTION] } else { &[] });
        if result.is_ok() {
            self.skip_newlines();
        }
        let heredocs = std::mem::replace(&mut self.heredocs, heredocs);
        self.pending = pending;
        let list = result?;
        if self.eat(end) {
            Ok(Program { list, heredocs, error: None, extension: None })
        } else {
            self.error("unmatched bracket")
        }
    }
}
