//! Syntax tree of a command line.

use std::rc::Rc;

/// A parsed command line. Keeps what precedes an error: a shell runs the lines before it, too.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Program {
    pub(crate) list: Vec<ListItem>,
    /// Redirections refer to these by index.
    pub(crate) heredocs: Vec<Heredoc>,
    pub(crate) error: Option<&'static str>,
    /// Syntax that `bash -n` may judge differently: of another shell, or checked at run time.
    pub(crate) extension: Option<&'static str>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Heredoc {
    /// Not expanded, because the delimiter is quoted.
    Literal(Rc<String>),
    Word(Word),
}

#[derive(Debug, PartialEq)]
pub(crate) struct ListItem {
    pub(crate) connector: Connector,
    pub(crate) command: ShellCommand,
    /// Ended by `&`.
    pub(crate) background: bool,
}

impl ListItem {
    pub(crate) fn new(command: ShellCommand) -> Self {
        ListItem { connector: Connector::Then, command, background: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connector {
    Then,
    And,
    Or,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ShellCommand {
    Simple(Simple),
    Pipeline(Vec<ShellCommand>),
    Compound { command: CompoundCommand, redirects: Vec<Redirect> },
    Function { name: String, body: Rc<ShellCommand> },
}

#[derive(Debug, PartialEq)]
pub(crate) enum CompoundCommand {
    Group {
        body: Vec<ListItem>,
        subshell: bool,
    },
    If {
        /// Pairs of condition and body.
        branches: Vec<(Vec<ListItem>, Vec<ListItem>)>,
        otherwise: Vec<ListItem>,
    },
    While {
        condition: Vec<ListItem>,
        body: Vec<ListItem>,
    },
    For {
        variable: String,
        /// `None`: the positional parameters.
        words: Option<Vec<Word>>,
        body: Vec<ListItem>,
    },
    Case {
        subject: Word,
        patterns: Vec<Word>,
        arms: Vec<Vec<ListItem>>,
    },
    /// `[[ … ]]` and `(( … ))`: only substitutions run.
    Test(Vec<Word>),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Simple {
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// `+=`
    pub(crate) append: bool,
    /// `name[…]=`: an element. Only substitutions in the index matter.
    pub(crate) index: Option<Word>,
    pub(crate) value: AssignedValue,
}

#[derive(Debug, PartialEq)]
pub(crate) enum AssignedValue {
    Word(Word),
    Array(Vec<Word>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Redirect {
    pub(crate) op: RedirectOp,
    /// A file, descriptor, here-string, or delimiter of a here-document.
    pub(crate) target: Word,
    pub(crate) heredoc: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectOp {
    Read,
    Write,
    Append,
    ReadWrite,
    /// `>&`, `<&`
    Duplicate,
    HereString,
    HereDocument,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Word {
    pub(crate) parts: Vec<WordPart>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WordPart {
    Text {
        text: String,
        quoted: bool,
    },
    Parameter {
        name: String,
        op: ParameterOp,
        quoted: bool,
    },
    /// `$(…)`, backquotes, `${ …; }`
    Command {
        program: Rc<Program>,
        quoted: bool,
    },
    /// `<(…)`, `>(…)`
    Process {
        program: Rc<Program>,
        reads: bool,
    },
    /// `$((…))`: only its substitutions.
    Arithmetic(Vec<WordPart>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ParameterOp {
    Plain,
    /// `${name:-word}`, `${name:=word}`
    Default {
        word: Word,
        assign: bool,
    },
    /// `${name:+word}`
    Alternative(Word),
    /// `${name:?word}`
    Required(Word),
    Length,
    /// `${!name}`
    Indirect,
    /// `${name:offset:length}`
    Substring(Word),
    /// `${name#pattern}`; `longest` for the doubled operator.
    Strip {
        suffix: bool,
        longest: bool,
        pattern: Word,
    },
    /// `${name/pattern/replacement}`
    Replace {
        all: bool,
        pattern: Word,
        replacement: Word,
    },
    /// `${name^pattern}`, `${name^^pattern}`, `${name,pattern}`, `${name,,pattern}`
    Case {
        upper: bool,
        all: bool,
        pattern: Word,
    },
    /// Any other operator: the value is unknown, but substitutions run.
    Other(Word),
}

impl Word {
    /// The text of a word without expansions.
    pub(crate) fn literal(&self) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                WordPart::Text { text, .. } => out.push_str(text),
                _ => return None,
            }
        }
        Some(out)
    }

    /// The text of an unquoted word, which may be reserved.
    pub(crate) fn unquoted_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [WordPart::Text { text, quoted: false }] => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_quoted(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, WordPart::Text { quoted: true, .. }))
    }
}
