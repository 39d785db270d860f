//! Judges one command: its program, the shell's builtins, the rules.

use super::rules::{self, CommandInvocation, Hit, finding};
use super::shell::{Octal, decode};
use super::state::Value;
use super::value::{
    Argument, KnownOutput, NEW_TEMP_DIR, TextOrigin, UNKNOWN, UNKNOWN_NAME, glob_match, is_known,
};
use super::variables::read_builtin_values;
use super::walk::ShellWalker;
use super::wrappers::skip_options;
use std::path::Path;
use std::rc::Rc;

/// Programs with a version in their name: `python3.12`, `pip3`.
const VERSIONED_PROGRAMS: &[&str] =
    &["python", "pip", "perl", "ruby", "php", "lua", "node", "nodejs", "pypy", "gem", "psql"];

pub(super) fn program_name(text: &str) -> String {
    // The running program: here the shell.
    if text.starts_with("/proc/") && text.ends_with("/exe") {
        return "bash".to_owned();
    }
    // zsh: `=rm` is the path of rm.
    let text = text.strip_prefix('=').unwrap_or(text);
    let base = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    // An unknown part may be empty: `r${x}m`.
    let name: String = base.chars().filter(|c| *c != UNKNOWN).collect();
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    // `npx prisma@5`
    let name =
        name.split_once('@').filter(|(name, _)| !name.is_empty()).map_or(name, |(name, _)| name);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if VERSIONED_PROGRAMS.contains(&bare) { bare.to_owned() } else { name.to_owned() }
}

impl ShellWalker<'_> {
    /// Judges a command that another program starts. Returns its known output.
    pub(super) fn run(&mut self, argv: &[Argument], stdin: Option<&KnownOutput>) -> KnownOutput {
        if !self.use_step() {
            return KnownOutput::unknown();
        }
        self.nested(|walk| walk.run_builtin_or_program(argv, stdin))
    }

    /// Judges a command of the shell, which looks up functions and aliases first.
    pub(super) fn run_in_shell(
        &mut self,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        if let Some((first, args)) = argv.split_first()
            && let Some(output) = self.run_function_named(first, args, stdin)
        {
            self.trace(argv);
            return output;
        }
        self.run(argv, stdin)
    }

    fn run_builtin_or_program(
        &mut self,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let Some((first, args)) = argv.split_first() else { return KnownOutput::default() };
        if first.text.is_empty() {
            return KnownOutput::default();
        }
        self.trace(argv);
        let mut name = program_name(&first.text);
        // `git-push` is `git push`; `hub` extends git.
        let subcommand = name.strip_prefix("git-").filter(|rest| !rest.is_empty());
        if subcommand.is_some() || name == "hub" {
            let mut argv = vec![Argument::known("git")];
            argv.extend(subcommand.map(Argument::known));
            argv.extend_from_slice(args);
            return self.run(&argv, stdin);
        }
        if first.is_unknown() || name.is_empty() {
            let mut hits = vec![unknown_program(first.origin)];
            // An unknown program may be rm.
            let command_context = self.command_context(stdin);
            let rm = CommandInvocation { name: "rm", args, context: &command_context };
            if rm.has(&["-r", "-R", "--recursive"]) && rm.has(&["-f", "--force"]) {
                hits.extend(rules::check_all(&rm));
            }
            self.report_all(argv, hits);
            return KnownOutput::unknown();
        }
        if first.glob {
            match self.pattern_program(&first.text, &name) {
                Some(known) => name = known.to_owned(),
                None => return KnownOutput::unknown(),
            }
        }
        let git_cwd = (name == "git").then(|| self.working_directory(args));
        let mut command_context = self.command_context(stdin);
        if let Some(cwd) = &git_cwd {
            command_context.cwd = cwd.as_deref();
        }
        let invocation = CommandInvocation { name: &name, args, context: &command_context };
        let hits = rules::check_all(&invocation);
        self.report_all(argv, hits);
        if first.text.contains('/')
            && let Some(output) = self.file_content(first)
        {
            return self.run_separately(argv, &output.text, output.origin);
        }
        if let Some(output) = self.builtin(&name, argv, stdin) {
            return output;
        }
        if let Some(output) = self.wrapper_program(&name, argv, stdin) {
            return output;
        }
        self.known_output(&name, args, stdin)
    }

    /// Judges a function; `None` if the name may also be a program.
    fn run_function_named(
        &mut self,
        first: &Argument,
        args: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> Option<KnownOutput> {
        let Some(function) = self.state.functions.get(&first.text).cloned() else {
            // Only interactive shells are certain to expand aliases.
            self.run_alias(first, args);
            return None;
        };
        let positional = self.state.positional.clone();
        let start = self.state.clone();
        let mut end = function.may_be_unset.then(|| start.clone());
        let mut output: Option<KnownOutput> = None;
        for body in &function.bodies {
            self.state = start.clone();
            self.state.positional = args.iter().map(|arg| arg.text.clone()).collect();
            let this = self.nested(|walk| walk.run_function(body, stdin));
            output = Some(match output {
                Some(output) if output != this => KnownOutput::unknown(),
                _ => this,
            });
            match &mut end {
                Some(end) => end.join(self.state.clone()),
                None => end = Some(self.state.clone()),
            }
        }
        self.state = end.unwrap_or(start);
        self.state.positional = positional;
        output.filter(|_| !function.may_be_unset)
    }

    pub(super) fn run_alias(&mut self, first: &Argument, args: &[Argument]) -> Option<KnownOutput> {
        let alias = self.state.aliases.get(&first.text).cloned()?;
        // An alias is parsed again with the arguments, but does not expand itself.
        let mut text = alias;
        for arg in args {
            text.push(' ');
            text.push_str(&shell_quote(&arg.text));
        }
        Some(self.without_alias(&first.text, |walk| walk.script(&text)))
    }

    fn without_alias(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> KnownOutput,
    ) -> KnownOutput {
        let aliases = self.state.aliases.clone();
        Rc::make_mut(&mut self.state.aliases).remove(name);
        let output = work(self);
        self.state.aliases = aliases;
        output
    }

    fn pattern_program(&mut self, path: &str, name: &str) -> Option<&'static str> {
        let directory = path.rsplit_once('/').map(|(directory, _)| directory);
        let found = rules::programs().find(|program| glob_match(name, program));
        let system = match directory {
            None => true,
            Some(directory) => {
                directory.contains(['*', '?', '['])
                    || ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"]
                        .contains(&directory)
            }
        };
        if !system || found.is_none() {
            return None;
        }
        self.report(&[Argument::known(path)], finding("program_by_pattern"));
        found
    }

    /// Judges a script from `eval`, `sh -c` or a pipe.
    pub(super) fn run_text(
        &mut self,
        argv: &[Argument],
        text: &str,
        origin: TextOrigin,
    ) -> KnownOutput {
        self.deny_untrusted(argv, origin, "decoded_text_run");
        if text.trim_matches(|c: char| c == UNKNOWN || c.is_whitespace()).is_empty() {
            if text.contains(UNKNOWN) && origin <= TextOrigin::Computed {
                let hit = finding("unknown_text_run");
                self.report(argv, hit);
            }
            return KnownOutput::unknown();
        }
        self.script(text)
    }

    /// Like [`ShellWalker::run_text`], in a copy of the shell.
    pub(super) fn run_separately(
        &mut self,
        argv: &[Argument],
        text: &str,
        origin: TextOrigin,
    ) -> KnownOutput {
        self.with_copied_state(|walk| walk.run_text(argv, text, origin))
    }

    pub(super) fn deny_untrusted(
        &mut self,
        argv: &[Argument],
        origin: TextOrigin,
        decoded: &'static str,
    ) {
        match origin {
            TextOrigin::Network => self.report(argv, finding("download_run")),
            TextOrigin::Decoded => self.report(argv, finding(decoded)),
            TextOrigin::Literal | TextOrigin::Computed => {}
        }
    }

    /// Judges array indexes: the shell evaluates substitutions in them even if quoted.
    fn check_array_indexes(&mut self, name: &str, argv: &[Argument]) {
        let evaluates_names = match name {
            "unset" | "read" | "declare" | "typeset" | "local" | "export" | "let" => true,
            "test" | "[" | "printf" => argv.iter().any(|arg| arg.text == "-v"),
            _ => false,
        };
        for arg in argv.iter().skip(1).filter(|_| evaluates_names) {
            if let Some((_, rest)) = arg.text.split_once('[')
                && let Some((index, _)) = rest.rsplit_once(']')
                && ["$(", "`", "<(", ">("].iter().any(|start| index.contains(start))
            {
                let script = format!(": {index}");
                self.run_separately(argv, &script, arg.origin);
            }
        }
    }

    fn builtin(
        &mut self,
        name: &str,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> Option<KnownOutput> {
        let args = argv.get(1..).unwrap_or_default();
        let operands = || args.iter().filter(|arg| !arg.text.starts_with('-'));
        self.check_array_indexes(name, argv);
        match name {
            "cd" | "pushd" | "chdir" => {
                let target = operands().next();
                self.state.cwd = match target {
                    None if args.is_empty() && name != "pushd" => {
                        self.context.home.map(Path::to_path_buf)
                    }
                    Some(arg)
                        if (arg.is_known() || is_created_temp_dir(&arg.text)) && !arg.glob =>
                    {
                        let path = Path::new(&arg.text);
                        let resolve = |path: &Path| self.state.links.resolve(self.context, path);
                        match &self.state.cwd {
                            _ if is_created_temp_dir(&arg.text) => Some(path.to_path_buf()),
                            _ if path.is_absolute() => resolve(path),
                            Some(cwd) => resolve(&cwd.join(path)),
                            None => None,
                        }
                    }
                    _ => None,
                };
                if name == "cd" && args.first().is_some_and(|arg| arg.text == "-") {
                    self.state.cwd = None;
                }
            }
            "popd" => self.state.cwd = None,
            "export" | "declare" | "local" | "readonly" | "typeset" => {
                let global = name == "export"
                    || name == "readonly"
                    || args.iter().any(|arg| arg.text.starts_with('-') && arg.text.contains('g'));
                for arg in operands().filter(|_| !global) {
                    let name = arg.text.split_once('=').map_or(&*arg.text, |(name, _)| name);
                    self.state.declare_local(name.trim_end_matches('+'));
                }
                // `-n` makes a reference to another variable.
                let reference = args.iter().any(|arg| arg.text == "-n");
                for arg in operands() {
                    if let Some((name, value)) = arg.text.split_once('=') {
                        if reference {
                            self.set_unknown(name, TextOrigin::Literal);
                            continue;
                        }
                        let value = Argument { text: value.to_owned(), ..arg.clone() };
                        self.check_exported_variable(argv, name, Some(&value));
                        self.assign(name, value);
                    }
                }
            }
            "unset" => {
                let only = |flag: &str| args.iter().any(|arg| arg.text == flag);
                for arg in operands() {
                    if !only("-v") {
                        self.state.unset_function(&arg.text, only("-f"));
                    }
                    if !only("-f") {
                        self.check_unset(argv, &arg.text);
                        self.state.variables.insert(arg.text.clone(), Value::Unset);
                    }
                }
            }
            "set" => {
                let mut rest = args.iter();
                let explicit = rest.any(|arg| arg.text == "--");
                if explicit {
                    self.state.positional = rest.map(|arg| arg.text.clone()).collect();
                } else if args.first().is_some_and(|arg| !arg.text.starts_with(['-', '+'])) {
                    self.state.positional = args.iter().map(|arg| arg.text.clone()).collect();
                }
            }
            "shift" => {
                let count = args.first().and_then(|arg| arg.text.parse().ok()).unwrap_or(1);
                self.state.positional = self.state.positional.iter().skip(count).cloned().collect();
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                self.check_flag_commands(name, argv);
                let text = stdin.filter(|output| is_known(&output.text) && name != "getopts");
                let names: Vec<_> = operands().map(|arg| arg.text.clone()).collect();
                let origin = stdin.map(|output| output.origin).unwrap_or_default();
                for variable in &names {
                    self.set_unknown(variable, origin);
                }
                if let Some(text) = text {
                    for (variable, values) in read_builtin_values(name, args, &text.text) {
                        self.set(&variable, values);
                    }
                }
                if names.is_empty() {
                    self.set_unknown("REPLY", origin);
                }
            }
            "alias" => {
                for arg in operands() {
                    if let Some((name, value)) = arg.text.split_once('=') {
                        Rc::make_mut(&mut self.state.aliases)
                            .insert(name.to_owned(), value.to_owned());
                    }
                }
            }
            "unalias" => self.state.aliases = Rc::default(),
            "eval" => {
                let args = skip_options(args, &[]);
                let line = KnownOutput::joined(args);
                return Some(self.run_text(argv, &line.text, line.origin));
            }
            "source" | "." => {
                let file = skip_options(args, &["-p"]).first();
                let script = file.and_then(|file| self.script_content(file, stdin));
                if let Some(output) = script {
                    return Some(self.run_text(argv, &output.text, output.origin));
                }
                return Some(KnownOutput::unknown());
            }
            "trap" => {
                let args = match args {
                    [first, rest @ ..] if first.text == "--" => rest,
                    _ => args,
                };
                if let [action, _, ..] = args
                    && action.text != "-"
                    && !action.text.is_empty()
                {
                    self.run_separately(argv, &action.text, action.origin);
                }
            }
            "ln" => {
                self.record_links(args);
                return None;
            }
            "mkdir" => {
                self.created_dirs(args);
                return None;
            }
            "printf" => return Some(self.printf(args)),
            "echo" => return Some(echo(args)),
            "pwd" => return Some(KnownOutput::known(self.cwd_text())),
            "true" | "false" | ":" | "test" | "[" | "exit" | "return" | "break" | "continue"
            | "wait" | "jobs" | "shopt" | "setopt" | "umask" | "hash" => {}
            _ => return None,
        }
        Some(KnownOutput::default())
    }

    pub(super) fn check_unset(&mut self, argv: &[Argument], name: &str) {
        if name.starts_with("RALPH_") {
            self.check_exported_variable(argv, name, None);
        }
    }

    fn printf(&mut self, args: &[Argument]) -> KnownOutput {
        let mut args = args;
        let mut variable = None;
        if let [flag, name, rest @ ..] = args
            && flag.text == "-v"
        {
            variable = Some(name.text.clone());
            args = rest;
        }
        if let [flag, rest @ ..] = args
            && flag.text == "--"
        {
            args = rest;
        }
        let Some((format, values)) = args.split_first() else { return KnownOutput::default() };
        let origin = args.iter().map(|arg| arg.origin).max().unwrap_or_default();
        let text = format_text(&format.text, values);
        match variable {
            Some(name) => {
                self.assign(&name, Argument { text, origin, ..Argument::default() });
                KnownOutput::default()
            }
            None => KnownOutput::new(text, origin),
        }
    }
}

fn is_created_temp_dir(text: &str) -> bool {
    text.strip_prefix(NEW_TEMP_DIR).is_some_and(|rest| {
        is_known(rest) && (rest.is_empty() || rest.starts_with('/')) && !rest.contains("..")
    })
}

fn unknown_program(origin: TextOrigin) -> Hit {
    match origin {
        TextOrigin::Literal => finding("unknown_program"),
        TextOrigin::Computed | TextOrigin::Decoded | TextOrigin::Network => {
            finding("output_run_as_program")
        }
    }
}

fn echo(args: &[Argument]) -> KnownOutput {
    let mut escapes = false;
    let mut newline = true;
    let mut rest = args;
    while let [flag, tail @ ..] = rest {
        let letters = flag.text.strip_prefix('-').unwrap_or_default();
        if letters.is_empty() || !letters.chars().all(|c| "neE".contains(c)) {
            break;
        }
        escapes |= letters.contains('e');
        newline &= !letters.contains('n');
        rest = tail;
    }
    let KnownOutput { text, origin } = KnownOutput::joined(rest);
    let mut text = if escapes { decode(&text, Octal::Zero) } else { text.to_string() };
    if newline {
        text.push('\n');
    }
    KnownOutput::new(text, origin)
}

/// Formats like `printf`, which repeats the format until the values are used up.
fn format_text(format: &str, values: &[Argument]) -> String {
    let format = decode(format, Octal::Bare);
    let mut out = String::new();
    let mut values = values.iter();
    loop {
        let before = values.len();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let conversion = chars.find(|c| c.is_ascii_alphabetic() || *c == '%');
            let value =
                |next: Option<&Argument>| next.map(|arg| arg.text.clone()).unwrap_or_default();
            match conversion {
                Some('%') | None => out.push('%'),
                Some('s' | 'c' | 'q') => out.push_str(&value(values.next())),
                Some('b') => out.push_str(&decode(&value(values.next()), Octal::Zero)),
                Some('d' | 'i' | 'u') => out.push_str(&value(values.next())),
                Some(_) => {
                    values.next();
                    out.push(UNKNOWN_NAME);
                }
            }
        }
        if values.len() == 0 || values.len() == before || out.len() > super::value::MAX_TEXT {
            return out;
        }
    }
}

pub fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
