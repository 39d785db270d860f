//! Walks a command line like a shell and judges every command.
//!
//! Both branches of a condition are walked, a loop over known words once per word, other loops
//! twice.

use std::collections::HashMap;
use std::rc::Rc;

use super::bombs::{is_fork_bomb, is_infinite_loop, prints_endlessly};
use super::container::Container;
use super::message::{excerpt, subject};
use super::rules::{CommandContext, Hit, finding};
use super::shell::{
    CompoundCommand, Connector, ListItem, Program, RedirectOp, ShellCommand, Simple, parse,
};
use super::state::{Function, FunctionBody, ShellState, Value};
use super::value::{Argument, KnownOutput};
use super::{Context, Family, Tier, Verdict};

/// Maximum number of commands and programs.
const MAX_STEPS: usize = 10_000;

const MAX_EXPANDED: usize = 4 << 20;

/// Maximum nesting of `sh -c`, `eval`, functions and wrappers.
const MAX_DEPTH: usize = 30;

const MAX_COMBINATIONS: usize = 64;

pub(super) struct ShellWalker<'c> {
    pub(super) context: &'c Context<'c>,
    pub(super) state: ShellState,
    pub(super) verdict: Verdict,
    /// Owns the here-documents.
    pub(super) program: Rc<Program>,
    steps_left: usize,
    expanded_bytes: usize,
    depth: usize,
    pub(super) container: Option<Rc<Container>>,
    /// Output goes to another command, not to the transcript.
    is_captured: bool,
    /// Name of a variable, index of its value, number of values.
    chosen_values: Vec<(String, usize, usize)>,
    /// Every judged command, for tests.
    trace: Option<Vec<Vec<String>>>,
}

pub(super) fn judge(context: &Context<'_>, command: &str) -> Verdict {
    let mut walk = ShellWalker::new(context);
    walk.script(command);
    walk.verdict
}

/// Judges the valid beginning of a text that may not be shell, and warns about the rest.
pub(super) fn judge_unparsable(context: &Context<'_>, command: &str) -> Verdict {
    let mut walk = ShellWalker::new(context);
    walk.run_program(&Rc::new(parse(command)), None);
    walk.record_finding(excerpt(command), finding("partly_read"));
    walk.verdict
}

pub(super) fn trace(context: &Context<'_>, command: &str) -> Option<Vec<Vec<String>>> {
    let mut walk = ShellWalker { trace: Some(Vec::new()), ..ShellWalker::new(context) };
    walk.script(command);
    walk.trace.filter(|_| walk.steps_left > 0 && parse(command).error.is_none())
}

impl<'c> ShellWalker<'c> {
    fn new(context: &'c Context<'c>) -> Self {
        ShellWalker {
            context,
            state: ShellState::new(context.cwd.to_path_buf()),
            verdict: Verdict::Allow,
            program: Rc::default(),
            steps_left: MAX_STEPS,
            expanded_bytes: 0,
            depth: 0,
            container: None,
            is_captured: false,
            chosen_values: Vec::new(),
            trace: None,
        }
    }
}

impl ShellWalker<'_> {
    pub(super) fn trace(&mut self, argv: &[Argument]) {
        if let Some(trace) = &mut self.trace {
            trace.push(argv.iter().map(|arg| arg.text.clone()).collect());
        }
    }

    pub(super) fn command_context<'s>(
        &'s self,
        stdin: Option<&'s KnownOutput>,
    ) -> CommandContext<'s> {
        let ShellState { cwd, links, .. } = &self.state;
        CommandContext { context: self.context, cwd: cwd.as_deref(), stdin, links }
    }

    /// Records a hit, unless the project allows the command.
    pub(super) fn report(&mut self, argv: &[Argument], mut hit: Hit) {
        // The allow list applies inside the project only.
        let project = self.context.project;
        let in_project = self.state.cwd.as_deref().is_some_and(|cwd| cwd.starts_with(project));
        if (in_project || self.container.is_some()) && self.context.allow.covers(argv) {
            return;
        }
        if hit.family == Family::Databases && self.is_for_tests() {
            hit.tier = Tier::Warn;
        }
        if let Some(container) = self.container.clone() {
            self.report_contained(argv, hit, &container);
            return;
        }
        self.record_finding(subject(argv), hit);
    }

    pub(super) fn report_all(&mut self, argv: &[Argument], hits: Vec<Hit>) {
        for hit in hits {
            self.report(argv, hit);
        }
    }

    pub(super) fn report_write(&mut self, argv: &[Argument], file: &Argument) {
        let hit = self.command_context(None).check_write(file);
        self.report_all(argv, hit.into_iter().collect());
    }

    fn is_for_tests(&self) -> bool {
        ["RAILS_ENV", "RACK_ENV", "MIX_ENV", "APP_ENV", "NODE_ENV"].iter().any(|name| {
            let names = ["test", "testing"];
            let test = |fields: &Rc<[String]>| matches!(&**fields, [only] if names.contains(&only.as_str()));
            match self.state.variables.get(*name) {
                Some(Value::Known(all)) => all.iter().all(test),
                Some(_) => false,
                None => (self.context.variable)(name).is_some_and(|value| names.contains(&value.as_str())),
            }
        })
    }

    pub(super) fn record_finding(&mut self, subject: String, hit: Hit) {
        let before = std::mem::replace(&mut self.verdict, Verdict::Allow);
        self.verdict = before.max_severity(hit.verdict(subject));
    }

    pub(super) fn use_step(&mut self) -> bool {
        if self.steps_left == 1 {
            self.report_too_complex();
        }
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_left > 0
    }

    /// Counts expanded bytes; returns whether more are allowed.
    pub(super) fn expand(&mut self, bytes: usize) -> bool {
        self.expanded_bytes = self.expanded_bytes.saturating_add(bytes);
        if self.expanded_bytes > MAX_EXPANDED && self.steps_left > 0 {
            self.report_too_complex();
        }
        self.steps_left > 0
    }

    pub(super) fn report_too_complex(&mut self) {
        self.steps_left = 0;
        self.record_finding("the command".to_owned(), finding("too_complex"));
    }

    pub(super) fn script(&mut self, text: &str) -> KnownOutput {
        let program = Rc::new(parse(text));
        if let Some(error) = program.error {
            let reason = format!("it cannot be parsed as shell: {error}").into();
            self.record_finding(excerpt(text), Hit { reason, ..finding("unreadable") });
        }
        self.nested(|walk| walk.run_program(&program, None))
    }

    fn run_program(&mut self, program: &Rc<Program>, stdin: Option<&KnownOutput>) -> KnownOutput {
        let outer = std::mem::replace(&mut self.program, Rc::clone(program));
        let output = self.list(&program.list, stdin);
        self.program = outer;
        output
    }

    pub(super) fn run_function(
        &mut self,
        function: &FunctionBody,
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let outer = std::mem::replace(&mut self.program, Rc::clone(&function.program));
        let locals = self.state.locals.replace(HashMap::new());
        let output = self.command(&function.body, stdin);
        self.state.leave_function(locals);
        self.program = outer;
        output
    }

    pub(super) fn substitute(
        &mut self,
        program: &Rc<Program>,
        stdin: Option<&KnownOutput>,
    ) -> KnownOutput {
        let outer = std::mem::replace(&mut self.is_captured, true);
        let output =
            self.with_copied_state(|walk| walk.nested(|walk| walk.run_program(program, stdin)));
        self.is_captured = outer;
        output
    }

    /// Runs `work` in a copy of the shell, like a subshell.
    pub(super) fn with_copied_state<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let state = self.state.clone();
        let choices = std::mem::take(&mut self.chosen_values);
        let result = work(self);
        // Written files persist.
        let files = Rc::clone(&self.state.files);
        let links = Rc::clone(&self.state.links);
        self.state = ShellState { files, links, ..state };
        self.chosen_values = choices;
        result
    }

    pub(super) fn nested(&mut self, work: impl FnOnce(&mut Self) -> KnownOutput) -> KnownOutput {
        if self.depth >= MAX_DEPTH {
            self.report_too_complex();
            return KnownOutput::unknown();
        }
        self.depth += 1;
        let output = work(self);
        self.depth -= 1;
        output
    }

    fn list(&mut self, items: &[ListItem], stdin: Option<&KnownOutput>) -> KnownOutput {
        let mut output = KnownOutput::default();
        let mut rest = items;
        // In `a && b &`, the whole list runs in a copy of the shell.
        while let Some(end) = rest.iter().position(|item| item.background) {
            let start = rest.get(..=end).unwrap_or_default();
            let start =
                start.iter().rposition(|item| item.connector == Connector::Then).unwrap_or(0);
            output.push(&self.foreground(rest.get(..start).unwrap_or_default(), stdin));
            let job = rest.get(start..=end).unwrap_or_default();
            output.push(&self.with_copied_state(|walk| walk.foreground(job, stdin)));
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        output.push(&self.foreground(rest, stdin));
        output
    }

    fn foreground(&mut self, items: &[ListItem], stdin: Option<&KnownOutput>) -> KnownOutput {
        let mut output = KnownOutput::default();
        // The directory if a `cd` before fails.
        let mut cwd_on_failure = self.state.cwd.clone();
        let created = self.state.links.created_dirs.clone();
        for item in items {
            if self.steps_left == 0 {
                return KnownOutput::unknown();
            }
            let cwd_before = self.state.cwd.clone();
            if item.connector == Connector::Then {
                cwd_on_failure.clone_from(&cwd_before);
                output.push(&self.command(&item.command, stdin));
                continue;
            }
            // The second command may or may not run, so both states are joined.
            let state_before = self.state.clone();
            if item.connector == Connector::Or {
                self.state.cwd.clone_from(&cwd_on_failure);
                self.forget_created_since(&created);
            }
            output.push(&self.command(&item.command, stdin));
            let cwd_after = self.state.cwd.clone();
            let created_after = self.state.links.created_dirs.clone();
            self.state.join(state_before);
            // After `&&`, assumes success.
            let (created, cwd) = match item.connector {
                Connector::And => (&created_after, cwd_after),
                Connector::Then | Connector::Or => (&created, cwd_before.clone()),
            };
            self.forget_created_since(created);
            self.state.cwd = cwd;
            if cwd_on_failure != cwd_before {
                cwd_on_failure = None;
            }
        }
        output
    }

    fn command(&mut self, command: &ShellCommand, stdin: Option<&KnownOutput>) -> KnownOutput {
        if self.steps_left == 0 {
            return KnownOutput::unknown();
        }
        match command {
            ShellCommand::Simple(simple) => self.simple(simple, stdin),
            ShellCommand::Pipeline(stages) => {
                let mut input: Option<KnownOutput> = stdin.cloned();
                for (at, stage) in stages.iter().enumerate() {
                    let outer = self.is_captured;
                    self.is_captured |= at + 1 < stages.len();
                    let output = self.with_copied_state(|walk| walk.command(stage, input.as_ref()));
                    self.is_captured = outer;
                    input = Some(output);
                }
                input.unwrap_or_default()
            }
            ShellCommand::Compound { command, redirects } => {
                let input = self.check_redirects(redirects, &[]);
                let output = self.compound(command, input.as_ref().or(stdin));
                if let CompoundCommand::Group { .. } = command {
                    self.record_group_write(redirects, &output);
                }
                output
            }
            ShellCommand::Function { name, body } => {
                if is_fork_bomb(name, body, false) {
                    self.record_finding(format!("{name}()"), finding("fork_bomb"));
                }
                let body =
                    FunctionBody { body: Rc::clone(body), program: Rc::clone(&self.program) };
                let function = Function { bodies: vec![body], may_be_unset: false };
                Rc::make_mut(&mut self.state.functions).insert(name.clone(), function);
                KnownOutput::default()
            }
        }
    }

    fn compound(&mut self, command: &CompoundCommand, input: Option<&KnownOutput>) -> KnownOutput {
        match command {
            CompoundCommand::Group { body, subshell } => match *subshell {
                true => self.with_copied_state(|walk| walk.list(body, input)),
                false => self.list(body, input),
            },
            CompoundCommand::If { branches, otherwise } => {
                let mut output = KnownOutput::default();
                let mut ends: Vec<ShellState> = Vec::new();
                for (condition, body) in branches {
                    let created = self.state.links.created_dirs.clone();
                    output.push(&self.list(condition, input));
                    self.forget_created_since(&created);
                    let state = self.state.clone();
                    output.push(&self.list(body, input));
                    ends.push(std::mem::replace(&mut self.state, state));
                }
                output.push(&self.list(otherwise, input));
                for end in ends {
                    self.state.join(end);
                }
                output
            }
            CompoundCommand::While { condition, body } => {
                if is_infinite_loop(condition) && body.iter().any(|item| item.background) {
                    self.record_finding("while true".to_owned(), finding("endless_processes"));
                }
                let mut output = KnownOutput::default();
                for _ in 0..2 {
                    let without = self.state.clone();
                    output.push(&self.list(condition, input));
                    self.forget_created_since(&without.links.created_dirs);
                    output.push(&self.list(body, input));
                    self.state.join(without);
                }
                output
            }
            CompoundCommand::For { variable, words, body } => {
                let values = match words {
                    Some(words) => self.expand_words(words),
                    None => self.state.positional.iter().map(Argument::known).collect(),
                };
                let without = self.state.clone();
                let mut output = KnownOutput::default();
                for value in &values {
                    self.assign(variable, value.glob_match_of());
                    output.push(&self.list(body, input));
                }
                let cwd = without.cwd.clone();
                self.state.join(without);
                if self.state.cwd != cwd {
                    self.state.cwd = None;
                }
                output
            }
            CompoundCommand::Case { subject, patterns, arms } => {
                self.expand_to_text(subject);
                for pattern in patterns {
                    self.expand_to_text(pattern);
                }
                let start = self.state.clone();
                let mut end = start.clone();
                let mut output = KnownOutput::default();
                for arm in arms {
                    self.state = start.clone();
                    output.push(&self.list(arm, input));
                    end.join(self.state.clone());
                }
                self.state = end;
                output
            }
            CompoundCommand::Test(words) => {
                for word in words {
                    self.expand_to_text(word);
                }
                KnownOutput::default()
            }
        }
    }

    /// Judges a command with every combination of its variables' values.
    fn simple(&mut self, simple: &Simple, stdin: Option<&KnownOutput>) -> KnownOutput {
        if !self.state.may_vary {
            return self.run_simple(simple, stdin);
        }
        let outer = std::mem::take(&mut self.chosen_values);
        let start = self.state.clone();
        let mut end: Option<ShellState> = None;
        let mut output = KnownOutput::default();
        for tries in 0.. {
            let this = self.run_simple(simple, stdin);
            if tries == 0 {
                output = this;
            } else if output != this {
                output = KnownOutput::unknown();
            }
            while self.chosen_values.pop_if(|(_, choice, count)| *choice + 1 >= *count).is_some() {}
            let Some((_, choice, _)) = self.chosen_values.last_mut() else { break };
            *choice += 1;
            if tries > MAX_COMBINATIONS {
                self.report_too_complex();
                break;
            }
            let this = std::mem::replace(&mut self.state, start.clone());
            match &mut end {
                Some(end) => end.join(this),
                None => end = Some(this),
            }
        }
        if let Some(end) = end {
            self.state.join(end);
        }
        self.chosen_values = outer;
        output
    }

    pub(super) fn choose_combination(&mut self, name: &str, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        if let Some((_, choice, _)) = self.chosen_values.iter().find(|(known, ..)| known == name) {
            return *choice;
        }
        self.chosen_values.push((name.to_owned(), 0, count));
        0
    }

    fn run_simple(&mut self, simple: &Simple, stdin: Option<&KnownOutput>) -> KnownOutput {
        if !self.use_step() {
            return KnownOutput::unknown();
        }
        let argv = self.expand_words(&simple.words);
        let saved = match simple.assignments.is_empty() {
            true => HashMap::new(),
            false => self.state.variables.clone(),
        };
        for assignment in &simple.assignments {
            self.assignment(assignment, &argv);
        }
        let input = self.check_redirects(&simple.redirects, &argv);
        if input.is_some() && matches!(argv.as_slice(), [only] if only.text == "exec") {
            self.state.stdin = input;
            return KnownOutput::default();
        }
        let inherited = self.state.stdin.clone();
        let input = input.as_ref().or(stdin).or(inherited.as_ref());
        if argv.is_empty() {
            return match simple.words.is_empty() {
                true if simple.assignments.is_empty() => input.cloned().unwrap_or_default(),
                _ => KnownOutput::default(),
            };
        }
        let declares = argv.first().is_some_and(|arg| {
            matches!(arg.text.as_str(), "export" | "declare" | "local" | "readonly" | "typeset")
        });
        if !self.is_captured && self.prints_secret(simple, &argv) {
            self.report(&argv, finding("secret_printed"));
        }
        if self.leaks_secret_by_dns(simple, &argv) {
            self.report(&argv, finding("secret_in_host_name"));
        }
        let output = self.run_in_shell(&argv, input);
        for redirect in &simple.redirects {
            if matches!(redirect.op, RedirectOp::Write | RedirectOp::Append) {
                let target = self.expand_to_text(&redirect.target);
                self.record_write(&target, &output, redirect.op == RedirectOp::Append);
                if prints_endlessly(&argv) && !target.text.starts_with("/dev/") {
                    self.report(&argv, finding("endless_output"));
                }
            }
        }
        if !declares && !simple.assignments.is_empty() {
            for assignment in &simple.assignments {
                match saved.get(&assignment.name) {
                    Some(value) => {
                        self.state.variables.insert(assignment.name.clone(), value.clone())
                    }
                    None => self.state.variables.remove(&assignment.name),
                };
            }
        }
        output
    }
}
