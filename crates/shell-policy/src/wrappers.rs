//! Programs that run other programs. The inner command is judged as if it stood alone.

use serde::Deserialize;

use super::code;
use super::data::{DATA, names_program, words};
use super::find;
use super::rules::{finding, flag_values, valued_options};
use super::run::{program_name, shell_quote};
use super::value::{Argument, KnownOutput, TextOrigin, is_known};
use super::walk::ShellWalker;

/// A program that takes a subcommand, options, operands, then a command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrapperProgram {
    pub(super) programs: &'static str,
    /// One must be present.
    #[serde(default)]
    subcommands: &'static str,
    /// Options whose value is a script in place of a command.
    #[serde(default)]
    script_flags: &'static str,
    #[serde(default)]
    option_values: &'static str,
    #[serde(default)]
    operands: usize,
}

impl WrapperProgram {
    fn inner_args<'a>(&self, args: &'a [Argument]) -> Option<&'a [Argument]> {
        if self.subcommands.is_empty() {
            return Some(args);
        }
        let is_subcommand = |arg: &Argument| words(self.subcommands).any(|word| word == arg.text);
        args.get(args.iter().position(is_subcommand)? + 1..)
    }
}

const SHELLS: &[&str] =
    &["bash", "sh", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "tcsh", "csh"];

/// Subcommands of tmux that run or type a command.
const TMUX_COMMANDS: &str = "new-session, new, new-window, neww, split-window, splitw, send-keys, send, \
    run-shell, run, respawn-pane, respawn-window, display-popup, popup";

pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

impl ShellWalker<'_> {
    /// Judges the inner command; `None` if the program runs no other.
    pub(super) fn wrapper_program(
        &mut self,
        name: &str,
        argv: &[Argument],
        stdin: Option<&KnownOutput>,
    ) -> Option<KnownOutput> {
        let args = argv.get(1..).unwrap_or_default();
        self.check_flag_commands(name, argv);
        if is_shell(name) {
            return Some(self.check_shell(argv, stdin));
        }
        if name == "command" && args.first().is_some_and(|a| a.text == "-v" || a.text == "-V") {
            let found = args.get(1).map(|arg| arg.text.clone()).unwrap_or_default();
            return Some(KnownOutput::known(found));
        }
        let mut wrappers = DATA.wrappers.iter().filter(|it| names_program(it.programs, name));
        if let Some((wrapper, args)) = wrappers.find_map(|it| Some((it, it.inner_args(args)?))) {
            let valued: Vec<&str> = words(wrapper.option_values).collect();
            let flags: Vec<&str> = words(wrapper.script_flags).collect();
            let (options, _) = split_options(args, &[&flags[..], &valued].concat());
            if let Some(script) = value_of(options, &flags) {
                return Some(self.run_separately(argv, &script.text, script.origin));
            }
            let mut rest = skip_options(args, &valued);
            rest = rest.get(wrapper.operands..).unwrap_or_default();
            while let [first, tail @ ..] = rest
                && let Some((name, value)) = assignment(&first.text)
            {
                let value = Argument { text: value.to_owned(), ..first.clone() };
                self.check_exported_variable(argv, name, Some(&value));
                rest = tail;
            }
            // Keywords of the shell may also run functions.
            return Some(match name {
                "noglob" | "nocorrect" | "time" => self.run_in_shell(rest, stdin),
                _ => self.run(rest, stdin),
            });
        }
        match name {
            "env" => Some(self.check_env(args, stdin)),
            "xargs" => Some(self.check_xargs(args, stdin)),
            "parallel" => Some(self.check_parallel(argv, stdin)),
            "find" | "gfind" => Some(find::check_find(self, argv)),
            "fd" | "fdfind" => Some(find::check_fd(self, argv)),
            "watch" | "watchexec" | "hyperfine" | "concurrently" | "entr" | "nodemon" => {
                let valued = ["-n", "--interval", "-w", "-r", "-m", "-M", "--exec", "-p"];
                let rest = skip_options(args, &valued);
                // The arguments are words of one command, or commands.
                if rest.len() > 1 && rest.iter().any(|arg| arg.text.contains(' ')) {
                    for arg in rest {
                        self.run_separately(argv, &arg.text, arg.origin);
                    }
                } else {
                    self.run_joined_words(argv, rest);
                }
                Some(KnownOutput::unknown())
            }
            "script" | "su" | "flock" | "nix-shell" | "vagrant" | "runcon" => {
                let flags = ["-c", "--command", "--run"];
                if let Some(script) = value_of(args, &flags) {
                    self.run_separately(argv, &script.text, script.origin);
                } else if name == "flock" {
                    let rest = skip_options(args, &["-w", "-E", "--timeout"]);
                    self.run(rest.get(1..).unwrap_or_default(), stdin);
                }
                Some(KnownOutput::unknown())
            }
            "dotenv" => Some(self.run(skip_options(args, &["-e", "-f", "-v", "-c", "-p"]), stdin)),
            "start-stop-daemon" => {
                let flags = ["-x", "--exec", "-a", "--startas"];
                let mut command: Vec<Argument> =
                    flag_values(args, &flags).into_iter().take(1).collect();
                let own = args.iter().position(|arg| arg.text == "--").unwrap_or(args.len());
                command.extend_from_slice(args.get(own + 1..).unwrap_or_default());
                Some(self.run(&command, stdin))
            }
            "ansible" => {
                let module = value_of(args, &["-m", "--module-name"]);
                let runs = module.is_none_or(|module| {
                    let name = module.text.rsplit('.').next().unwrap_or_default();
                    ["shell", "command", "raw"].contains(&name)
                });
                if let Some(script) = value_of(args, &["-a", "--args"]).filter(|_| runs) {
                    self.run_elsewhere(argv, &[script]);
                }
                Some(KnownOutput::unknown())
            }
            "just" | "xterm" | "konsole" | "alacritty" | "kitty" | "gnome-terminal" => {
                let flags = ["-c", "--command", "-e", "-x", "--"];
                let at = args.iter().position(|arg| flags.contains(&arg.text.as_str()))?;
                Some(self.run_joined_words(argv, args.get(at + 1..).unwrap_or_default()))
            }
            "pwsh" | "powershell" => self.check_powershell(argv),
            "make" | "gmake" | "bmake" => {
                self.check_make(argv, stdin);
                None
            }
            "ssh" => {
                let rest = skip_options(args, valued_options("ssh"));
                if let Some(command) = rest.get(1..).filter(|command| !command.is_empty()) {
                    self.run_elsewhere(argv, command);
                }
                Some(KnownOutput::unknown_from(TextOrigin::Network))
            }
            "tmux" | "screen" => {
                self.check_terminal(argv);
                Some(KnownOutput::unknown())
            }
            "git" => {
                self.check_git(argv, stdin);
                None
            }
            "docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "docker-compose" => {
                self.check_container(name, args, stdin);
                None
            }
            _ => {
                code::check_code(self, name, argv, stdin);
                None
            }
        }
    }

    pub(super) fn run_joined_words(
        &mut self,
        argv: &[Argument],
        words: &[Argument],
    ) -> KnownOutput {
        let line = KnownOutput::joined(words);
        self.run_separately(argv, &line.text, line.origin)
    }

    /// Runs a script on another machine, or in another directory that is unknown.
    pub(super) fn run_elsewhere(&mut self, argv: &[Argument], words: &[Argument]) {
        self.with_copied_state(|walk| {
            walk.state.cwd = None;
            walk.run_joined_words(argv, words)
        });
    }

    /// `pwsh -Command …`, `powershell "…"`. PowerShell ignores the case of option names and accepts
    /// abbreviations.
    fn check_powershell(&mut self, argv: &[Argument]) -> Option<KnownOutput> {
        let mut rest = argv.get(1..).unwrap_or_default();
        while let [first, tail @ ..] = rest {
            let text = first.text.to_ascii_lowercase();
            let name = text.trim_start_matches(['-', '/']);
            let is_option = name.len() < text.len() && name.chars().all(char::is_alphabetic);
            if !is_option || name.is_empty() {
                break;
            }
            rest = tail;
            let is = |options: &[&str]| {
                options
                    .iter()
                    .filter_map(|option| option.strip_prefix('-'))
                    .any(|option| option == name || (name.len() > 1 && option.starts_with(name)))
            };
            if is(&["-c", "-command", "-cwa", "-commandwithargs"]) {
                break;
            } else if is(&["-f", "-file"]) {
                return None;
            } else if is(&["-e", "-ec", "-encodedcommand"]) {
                self.report(argv, finding("encoded_command"));
                return None;
            } else if is(valued_options("powershell")) {
                rest = tail.get(1..).unwrap_or_default();
            }
        }
        (!rest.is_empty()).then(|| self.run_joined_words(argv, rest))
    }

    /// `bash -c …`, `bash FILE`, `… | bash`.
    fn check_shell(&mut self, argv: &[Argument], stdin: Option<&KnownOutput>) -> KnownOutput {
        let mut rest = argv.get(1..).unwrap_or_default();
        let mut command = false;
        let mut reads = false;
        while let [flag, tail @ ..] = rest {
            let text = flag.text.as_str();
            if text == "--" || text == "-" {
                rest = tail;
                break;
            }
            if !text.starts_with(['-', '+']) {
                break;
            }
            rest = tail;
            if text.starts_with("--") {
                if text == "--command" {
                    command = true;
                } else if ["--rcfile", "--init-file"].contains(&text) {
                    let file = tail.first();
                    if let Some(read) = file.and_then(|file| self.script_content(file, None)) {
                        self.run_separately(argv, &read.text, read.origin);
                    }
                    rest = tail.get(1..).unwrap_or_default();
                }
                continue;
            }
            command |= text.contains('c');
            reads |= text.contains('s');
            if text.ends_with(['o', 'O']) {
                rest = rest.get(1..).unwrap_or_default();
            }
        }
        if command {
            let Some((script, positional)) = rest.split_first() else {
                return KnownOutput::default();
            };
            let mut positional = positional.iter().map(|arg| arg.text.clone());
            return self.with_copied_state(|walk| {
                walk.state.script_name = positional.next().unwrap_or_else(|| "bash".to_owned());
                walk.state.positional = positional.collect();
                // The script reads the same input: `… | sh -c 'sh'`.
                match stdin {
                    Some(input) if ["sh", "bash"].contains(&script.text.trim()) => {
                        walk.run_text(argv, &input.text, input.origin)
                    }
                    _ => walk.run_text(argv, &script.text, script.origin),
                }
            });
        }
        let file = rest.first().filter(|_| !reads);
        if let Some(output) = file.and_then(|file| self.script_content(file, None)) {
            return self.run_separately(argv, &output.text, output.origin);
        }
        let open = |file: &&Argument| {
            file.text == "/dev/stdin"
                || ["/dev/fd/", "/proc/self/fd/"].iter().any(|fd| file.text.starts_with(fd))
        };
        match (file, stdin) {
            (file, Some(input)) if file.is_none() || file.filter(open).is_some() => {
                // The content is unknown, as in `bash FILE`.
                if *input == KnownOutput::file() {
                    return KnownOutput::unknown();
                }
                self.run_separately(argv, &input.text, input.origin)
            }
            _ => KnownOutput::unknown(),
        }
    }

    fn check_env(&mut self, args: &[Argument], stdin: Option<&KnownOutput>) -> KnownOutput {
        let mut rest = args;
        let mut clears = false;
        let outer = self.state.cwd.clone();
        while let [first, tail @ ..] = rest {
            let text = first.text.as_str();
            let flags = text.strip_prefix('-').unwrap_or_default();
            let flags = flags.split(|c| !"i0v".contains(c)).next().unwrap_or_default();
            clears |= flags.contains('i') || ["-", "--ignore-environment"].contains(&text);
            if let Some(script) = split_string(text) {
                // env splits the text into its own arguments, so options may come first.
                let (script, tail) = match (script, tail) {
                    ("", [next, tail @ ..]) => (next.text.as_str(), tail),
                    _ => (script, tail),
                };
                let mut line = format!("env {} {script}", if clears { "-i" } else { "" });
                for arg in tail {
                    line.push(' ');
                    line.push_str(&shell_quote(&arg.text));
                }
                let origin = args.iter().map(|arg| arg.origin).max().unwrap_or_default();
                return self.run_separately(args, &line, origin);
            }
            if ["-u", "--unset"].contains(&text) {
                if let Some(name) = tail.first() {
                    self.check_unset(args, &name.text);
                }
                rest = tail.get(1..).unwrap_or_default();
            } else if ["-C", "--chdir"].contains(&text) || text.starts_with("--chdir=") {
                let (place, next) = match text.split_once('=') {
                    Some((_, place)) => (Some(place), tail),
                    None => (
                        tail.first().map(|arg| arg.text.as_str()),
                        tail.get(1..).unwrap_or_default(),
                    ),
                };
                let place = place.filter(|place| is_known(place));
                self.state.cwd = match (place, &self.state.cwd) {
                    (Some(place), Some(cwd)) => Some(cwd.join(place)),
                    _ => None,
                };
                rest = next;
            } else if text.starts_with('-') {
                rest = tail;
            } else if let Some((name, value)) = assignment(text) {
                let value = Argument { text: value.to_owned(), ..first.clone() };
                self.check_exported_variable(args, name, Some(&value));
                rest = tail;
            } else {
                break;
            }
        }
        let agents = ["claude", "codex", "amp", "cline", "opencode", "gemini", "copilot", "qwen"];
        if let Some(program) = rest.first()
            && clears
            && agents.contains(&program_name(&program.text).as_str())
        {
            self.report(args, finding("unguarded_agent"));
        }
        let output = match rest.is_empty() {
            true => KnownOutput::unknown(),
            false => self.run(rest, stdin),
        };
        self.state.cwd = outer;
        output
    }

    /// Judges commands that tmux and screen run or type.
    fn check_terminal(&mut self, argv: &[Argument]) {
        let args = argv.get(1..).unwrap_or_default();
        let valued = ["-L", "-S", "-f", "-t", "-s", "-n", "-c", "-x", "-y", "-F", "-e", "-X", "-p"];
        let rest = skip_options(args, &valued);
        if argv.first().is_some_and(|arg| program_name(&arg.text) == "screen") {
            // `screen -dmS name command`
            let named = args.iter().position(|arg| arg.text.ends_with('S') && arg.text != "-S");
            let rest = match named {
                Some(at) => skip_options(args.get(at + 2..).unwrap_or_default(), &valued),
                None => rest,
            };
            self.run(rest, None);
        }
        let Some((subcommand, rest)) = rest.split_first() else { return };
        if words(TMUX_COMMANDS).any(|name| name == subcommand.text) {
            let mut keys = skip_options(rest, &valued).to_vec();
            let is_enter = |key: &mut Argument| ["Enter", "C-m", "KPEnter"].contains(&&*key.text);
            while keys.pop_if(is_enter).is_some() {}
            self.run_joined_words(argv, &keys);
        }
        // `screen -X stuff "command\n"`
        if let Some(at) = args.iter().position(|arg| arg.text == "stuff") {
            self.run_joined_words(argv, args.get(at + 1..).unwrap_or_default());
        }
    }
}

/// The text in `-STEXT`, `-ivSTEXT` or `--split-string=TEXT`; empty if it is the next word.
pub(super) fn split_string(option: &str) -> Option<&str> {
    if option.starts_with("--s") {
        let (name, text) = option.split_once('=').unwrap_or((option, ""));
        return "--split-string".starts_with(name).then_some(text);
    }
    let letters = option.strip_prefix('-')?;
    letters.trim_start_matches(['i', '0', 'v']).strip_prefix('S')
}

fn assignment(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, _)| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

pub(super) fn skip_options<'a>(args: &'a [Argument], valued: &[&str]) -> &'a [Argument] {
    let mut rest = args;
    while let [first, tail @ ..] = rest {
        let text = first.text.as_str();
        if text == "--" {
            return tail;
        }
        if text == "-" || !text.starts_with('-') {
            break;
        }
        rest = if valued.contains(&text) { tail.get(1..).unwrap_or_default() } else { tail };
    }
    rest
}

/// The options before the first operand, and the rest.
pub(super) fn split_options<'a>(
    args: &'a [Argument],
    valued: &[&str],
) -> (&'a [Argument], &'a [Argument]) {
    let rest = skip_options(args, valued);
    args.split_at(args.len() - rest.len())
}

pub(super) fn value_of(args: &[Argument], flags: &[&str]) -> Option<Argument> {
    flag_values(args, flags).into_iter().next()
}
