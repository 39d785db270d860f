//! Redirections, and files that the command line wrote.

use std::path::PathBuf;
use std::rc::Rc;

use super::message::{printable, subject};
use super::normalize_path;
use super::shell::{Heredoc, Redirect, RedirectOp};
use super::value::{Argument, KnownOutput};
use super::walk::ShellWalker;

const MAX_FILES: usize = 50;

impl ShellWalker<'_> {
    /// Judges redirections, and returns the input that they provide.
    pub(super) fn check_redirects(
        &mut self,
        redirects: &[Redirect],
        argv: &[Argument],
    ) -> Option<KnownOutput> {
        let mut stdin = None;
        for redirect in redirects {
            if let Some(number) = redirect.heredoc {
                let program = Rc::clone(&self.program);
                stdin = Some(match program.heredocs.get(number) {
                    Some(Heredoc::Literal(text)) => {
                        KnownOutput { text: Rc::clone(text), ..KnownOutput::default() }
                    }
                    Some(Heredoc::Word(word)) => KnownOutput::known(self.expand_to_text(word).text),
                    None => KnownOutput::default(),
                });
                continue;
            }
            let target = self.expand_to_text(&redirect.target);
            let mut hits = Vec::new();
            let command_context = self.command_context(None);
            match redirect.op {
                RedirectOp::HereString => {
                    stdin = Some(KnownOutput::new(target.text + "\n", target.origin));
                    continue;
                }
                RedirectOp::Read => {
                    hits.extend(command_context.check_read(&target));
                    stdin = Some(match target.text.as_str() {
                        "/dev/null" => KnownOutput::default(),
                        _ => self.script_content(&target, None).unwrap_or_else(KnownOutput::file),
                    });
                }
                RedirectOp::Duplicate => {
                    // `>&2` and `>&-` are not files.
                    if !target.text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                        hits.extend(command_context.check_write(&target));
                    }
                }
                RedirectOp::ReadWrite | RedirectOp::Write | RedirectOp::Append => {
                    hits.extend(command_context.check_write(&target));
                }
                RedirectOp::HereDocument => {}
            }
            for hit in hits {
                let subject = format!("{} > {}", subject(argv), printable(&target.text));
                self.record_finding(subject.trim_start().to_owned(), hit);
            }
        }
        stdin
    }

    pub(super) fn record_write(&mut self, target: &Argument, output: &KnownOutput, append: bool) {
        let Some(path) = self.redirect_path(target) else { return };
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

    pub(super) fn record_group_write(&mut self, redirects: &[Redirect], output: &KnownOutput) {
        for redirect in redirects {
            if matches!(redirect.op, RedirectOp::Write | RedirectOp::Append) {
                let target = self.expand_to_text(&redirect.target);
                self.record_write(&target, output, redirect.op == RedirectOp::Append);
            }
        }
    }

    /// Copies the recorded content: `cp`, `mv`, `ln`, `install`.
    pub(super) fn record_copy(&mut self, operands: &[&Argument]) {
        let Some((target, sources)) = operands.split_last() else { return };
        for source in sources {
            let Some(output) = self.file_content(source) else { continue };
            let name = source.text.rsplit('/').next().unwrap_or_default();
            let inside = format!("{}/{name}", target.text.trim_end_matches('/'));
            self.record_write(target, &output, false);
            self.record_write(&Argument::known(inside), &output, false);
        }
    }

    pub(super) fn file_content(&self, file: &Argument) -> Option<KnownOutput> {
        self.state.files.get(&self.redirect_path(file)?).cloned()
    }

    /// The content of a script, which may be the input.
    pub(super) fn script_content(
        &self,
        file: &Argument,
        stdin: Option<&KnownOutput>,
    ) -> Option<KnownOutput> {
        match file.text.as_str() {
            "-" | "/dev/stdin" => stdin.cloned(),
            _ => file.process.as_deref().cloned().or_else(|| self.file_content(file)),
        }
    }

    fn redirect_path(&self, file: &Argument) -> Option<PathBuf> {
        if !file.is_known() || file.text.starts_with("/dev/") || file.text.is_empty() {
            return None;
        }
        normalize_path(&self.state.cwd.as_deref()?.join(&file.text))
    }
}
