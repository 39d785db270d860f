//! Where redirections lead, and what was written to files on the way.

use std::path::PathBuf;
use std::rc::Rc;

use super::lexical;
use super::message::{subject, visible};
use super::shell::{Heredoc, Redirect, RedirectOp};
use super::value::{Arg, Output};
use super::walk::Walk;

/// How many files are kept in mind.
const MAX_FILES: usize = 50;

impl Walk<'_> {
    /// Judges where redirections lead, and says what is read by them.
    pub(super) fn redirects(&mut self, redirects: &[Redirect], argv: &[Arg]) -> Option<Output> {
        let mut stdin = None;
        for redirect in redirects {
            if let Some(number) = redirect.heredoc {
                let program = Rc::clone(&self.program);
                stdin = Some(match program.heredocs.get(number) {
                    Some(Heredoc::Literal(text)) => {
                        Output { text: Rc::clone(text), ..Output::default() }
                    }
                    Some(Heredoc::Word(word)) => Output::known(self.text(word).text),
                    None => Output::default(),
                });
                continue;
            }
            let target = self.text(&redirect.target);
            let mut hits = Vec::new();
            let scene = self.scene(None);
            match redirect.op {
                RedirectOp::HereString => {
                    stdin = Some(Output::new(target.text + "\n", target.origin));
                    continue;
                }
                RedirectOp::Read => {
                    hits.extend(scene.reads(&target));
                    let inner = target.process.as_deref().cloned();
                    let inner = inner.or_else(|| self.written(&target));
                    stdin = Some(match target.text.as_str() {
                        "/dev/null" => Output::default(),
                        _ => inner.unwrap_or_else(Output::file),
                    });
                }
                RedirectOp::Duplicate => {
                    // `>&2` and `>&-` are no files.
                    if !target.text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                        hits.extend(scene.writes(&target));
                    }
                }
                RedirectOp::ReadWrite | RedirectOp::Write | RedirectOp::Append => {
                    hits.extend(scene.writes(&target));
                }
                RedirectOp::HereDocument => {}
            }
            for hit in hits {
                let subject = format!("{} > {}", subject(argv), visible(&target.text));
                self.note(subject.trim_start().to_owned(), hit);
            }
        }
        stdin
    }

    /// Keeps in mind what was written to a file.
    pub(super) fn wrote(&mut self, target: &Arg, output: &Output, append: bool) {
        let Some(path) = self.path_of(target) else { return };
        if self.state.files.len() >= MAX_FILES {
            return;
        }
        let files = Rc::make_mut(&mut self.state.files);
        match files.get_mut(&path) {
            Some(before) if append => before.push(output),
            _ => {
                files.insert(path, output.clone());
            }
        }
    }

    /// What a group of commands writes by its redirections.
    pub(super) fn wrote_by(&mut self, redirects: &[Redirect], output: &Output) {
        for redirect in redirects {
            if matches!(redirect.op, RedirectOp::Write | RedirectOp::Append) {
                let target = self.text(&redirect.target);
                self.wrote(&target, output, redirect.op == RedirectOp::Append);
            }
        }
    }

    /// `cp`, `mv`, `ln`, `install`: what was written to one file stands in another, too.
    pub(super) fn carried(&mut self, operands: &[&Arg]) {
        let Some((target, sources)) = operands.split_last() else { return };
        for source in sources {
            let Some(output) = self.written(source) else { continue };
            let name = source.text.rsplit('/').next().unwrap_or_default();
            let inside = format!("{}/{name}", target.text.trim_end_matches('/'));
            self.wrote(target, &output, false);
            self.wrote(&Arg::known(inside), &output, false);
        }
    }

    /// What the same command line has written to a file.
    pub(super) fn written(&self, file: &Arg) -> Option<Output> {
        self.state.files.get(&self.path_of(file)?).cloned()
    }

    fn path_of(&self, file: &Arg) -> Option<PathBuf> {
        if !file.is_known() || file.text.starts_with("/dev/") || file.text.is_empty() {
            return None;
        }
        lexical(&self.state.cwd.as_deref()?.join(&file.text))
    }
}
