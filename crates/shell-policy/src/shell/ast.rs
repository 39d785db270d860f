//! A command line as a tree.

use std::rc::Rc;

/// What was read. An error ends the reading, not what was read before it: a shell, too, runs the
/// lines before the one that it does not understand.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Program {
    pub(crate) list: Vec<ListItem>,
    /// The bodies of here-documents; redirections refer to them by number.
    pub(crate) heredocs: Vec<Heredoc>,
    pub(crate) error: Option<&'static str>,
    /// A form in it that `bash -n` may judge otherwise: one of another shell, or one that bash reads only
    /// when it runs.
    pub(crate) extension: Option<&'static str>,
}

/// The body of a here-document.
#[derive(Debug, PartialEq)]
pub(crate) enum Heredoc {
    /// As it stands, since the delimiter is quoted.
    Literal(Rc<String>),
    Word(Word),
}

/// A command of a list, and how it hangs together with the one before.
#[derive(Debug, PartialEq)]
pub(crate) struct ListItem {
    pub(crate) connector: Connector,
    pub(crate) command: ShellCommand,
    /// Ended by `&`.
    pub(crate) background: bool,
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
    /// Two or more commands, each reading what the one before writes.
    Pipeline(Vec<ShellCommand>),
    Group {
        body: Vec<ListItem>,
        subshell: bool,
        redirects: Vec<Redirect>,
    },
    If {
        /// Conditions with what each guards.
        branches: Vec<(Vec<ListItem>, Vec<ListItem>)>,
        otherwise: Vec<ListItem>,
        redirects: Vec<Redirect>,
    },
    While {
        condition: Vec<ListItem>,
        body: Vec<ListItem>,
        redirects: Vec<Redirect>,
    },
    For {
        variable: String,
        /// `None`: over the positional parameters.
        words: Option<Vec<Word>>,
        body: Vec<ListItem>,
        redirects: Vec<Redirect>,
    },
    Case {
        subject: Word,
        patterns: Vec<Word>,
        arms: Vec<Vec<ListItem>>,
        redirects: Vec<Redirect>,
    },
    Function {
        name: String,
        body: Rc<ShellCommand>,
    },
    /// `[[ … ]]` and `(( … ))`: nothing runs but what is substituted in its words.
    Test(Vec<Word>, Vec<Redirect>),
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
    /// `name[…]=`: one element of an array. Which one does not matter, but what is substituted in it runs.
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
    /// The file, the descriptor, the here-string, or the delimiter of a here-document.
    pub(crate) target: Word,
    pub(crate) heredoc: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectOp {
    Read,
    Write,
    Append,
    ReadWrite,
    /// `>&` or `<&` with a descriptor.
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
    /// `$(…)`, backquotes, and `${ …; }` of newer shells.
    Command {
        program: Rc<Program>,
        quoted: bool,
    },
    /// `<(…)`, or `>(…)`, which reads what is written to it.
    Process {
        program: Rc<Program>,
        reads: bool,
    },
    /// `$((…))`: a number. What is substituted in it is kept.
    Arithmetic(Vec<WordPart>),
}

/// What `${name…}` does with the value.
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
    /// `${name#pattern}` and the like; `longest` for the doubled operator.
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
    /// Something else: the value is not known, but what is substituted in it runs.
    Other(Word),
}

impl Word {
    /// The text of a word that has nothing but text in it, quoted or not.
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

    /// The text of a word that is one piece of unquoted text: it may be a reserved word.
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
