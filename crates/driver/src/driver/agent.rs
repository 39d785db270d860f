//! Attempts: starting the agent and recording its end.

use std::ffi::{OsStr, OsString};
use std::io;

use super::{ActiveTask, Driver};
use crate::agent_process::{AgentFiles, AgentProcess, AttemptEnd};
use crate::pty_agent::PtyScreen;
use crate::run_spec::{AgentLaunch, RunSpec, scm_kinds};
use crate::screen_text;
use crate::world::{Part, RunStep, Started, World};
use ralph_agents::PromptVia;
use ralph_engine::completion::{CompletionDetector, CompletionRule, QuestionDetector};
use ralph_engine::machine::{Input, Now};
use ralph_engine::prompt as prompts;
use ralph_engine::rules::ScmTaskKind;
use ralph_events::env_names::{PARKED_STORIES, QUESTIONS_DIR, STOP_CHECK};
use ralph_events::event::{Event, Purpose};
use ralph_process::{ChildEnd, Launch, TerminalSize};

impl<W: World> Driver<'_, W> {
    pub(super) fn start_agent(&mut self, purpose: Purpose) {
        self.commit_message = None;
        if let Some(message) = self.world.obstacle(RunStep::StartAgent) {
            // Without requests or a project the loop must not continue.
            let why = Input::AgentNotStarted { message: message.clone() };
            self.queue.extend([Input::InternalError { message }, why]);
            return;
        }
        let broken = self.queue.iter().find_map(|input| match input {
            Input::InternalError { message } => Some(message.clone()),
            _ => None,
        });
        if let Some(message) = broken {
            // Earlier entries of this step could not be recorded.
            self.queue.push_back(Input::AgentNotStarted { message });
            return;
        }
        let input = match self.try_start_agent(purpose) {
            Ok(()) => Input::AgentStarted,
            Err(input) => input,
        };
        self.queue.push_back(input);
    }

    fn try_start_agent(&mut self, purpose: Purpose) -> Result<(), Input> {
        let spec = self.spec;
        let agent = &spec.agent;
        let prompt = match purpose {
            Purpose::Work => {
                self.compose_prompt().map_err(|message| Input::PromptFailed { message })?
            }
            Purpose::CommitMessage => prompts::COMMIT_MESSAGE_PROMPT.to_owned(),
        };
        let iteration = self.machine.iteration();
        let prompt_file = spec.ralph_dir.join(format!("prompt_{iteration:03}.txt"));
        let side_file = spec.ralph_dir.join(format!("side_{iteration:03}.txt"));
        let invocation = agent.invocation(AgentLaunch {
            purpose,
            prompt: &prompt,
            prompt_file: &prompt_file,
            side_file: &side_file,
        });
        if invocation.prompt_via == PromptVia::Argument && prompt.contains('\0') {
            let message = "the prompt contains a NUL character, which an argument cannot; set \
                           \"agent\": {\"promptVia\": \"stdin\"} or \"file\"";
            return Err(Input::PromptFailed { message: message.to_owned() });
        }
        if invocation.prompt_via == PromptVia::File {
            self.world.write(&prompt_file, prompt.as_bytes()).map_err(|err| {
                Input::PromptFailed {
                    message: format!("cannot write {}: {err}", prompt_file.display()),
                }
            })?;
        }
        let files = AgentFiles {
            prompt: (invocation.prompt_via == PromptVia::File).then(|| prompt_file.clone()),
            side: invocation.side_file.clone(),
        };
        if let Some(path) = &files.side {
            // It may be from an earlier run.
            let _ = self.world.remove(path);
        }
        let mut env = agent.env.clone();
        env.extend(self.run_variables());
        env.push((STOP_CHECK.into(), Some(self.stop_check_id().into())));
        let questions = spec.questions_dir.as_ref().map(|dir| dir.clone().into_os_string());
        env.push((QUESTIONS_DIR.into(), questions));
        let parked = self.gate.as_ref().map(|gate| gate.parked().join("\n"));
        env.push((PARKED_STORIES.into(), parked.filter(|it| !it.is_empty()).map(Into::into)));
        env.extend(
            invocation.env.iter().map(|(name, value)| (OsString::from(*name), Some(value.into()))),
        );
        let stdin = if invocation.prompt_via == PromptVia::Stdin { prompt.as_bytes() } else { b"" };
        // One pipe keeps the order of both streams.
        let merge_stderr =
            agent.stderr_counts_as_output && !invocation.structured && purpose == Purpose::Work;
        let launch = Launch::plain(&spec.directory, &invocation.program, &invocation.args, &env);
        let keep_background = agent.keep_background;
        let launch = Launch { stdin, merge_stderr, keep_background, ..launch };
        self.record_commits(true);
        self.stop_if_obstructed();
        // The journal has the start before the agent does anything.
        self.flush();
        if self.journal_failed {
            let message = "the journal is not writable".to_owned();
            return Err(Input::AgentNotStarted { message });
        }
        let on_terminal = agent.is_on_terminal(purpose);
        let (part, launch) = match on_terminal {
            // The prompt is typed later.
            true => (Part::InteractiveAgent, Launch { stdin: b"", ..launch }),
            false => (Part::Agent, launch),
        };
        if purpose == Purpose::Work && !on_terminal {
            self.start_filter();
        }
        if invocation.structured {
            self.response_filter.spawn(spec, self.world);
        }
        let Started { child, pid, terminal } = self.world.start(part, &launch).map_err(|err| {
            self.finish_filter();
            self.response_filter.end(self.world);
            Input::AgentNotStarted {
                message: not_started_message(spec, &err, invocation.prompt_via, prompt.len()),
            }
        })?;
        let argv = recorded_argv(&invocation.program, &invocation.args, &prompt);
        self.recorder.record(&Event::AgentStarted { purpose, pid, argv });
        let mut detector = match purpose {
            Purpose::Work => CompletionDetector::new(&spec.completion),
            // Its words complete nothing.
            Purpose::CommitMessage => {
                CompletionDetector::new(&CompletionRule::Response(String::new()))
            }
        };
        if invocation.structured {
            detector = detector.for_messages();
        } else if !on_terminal {
            detector = detector.with_prompt_echo(&prompt);
        }
        let questions = (purpose == Purpose::Work && !on_terminal).then(|| {
            let questions = QuestionDetector::new(&prompt);
            if invocation.structured { questions.for_messages() } else { questions }
        });
        let reader = agent.reader(invocation.structured);
        let started_ms = self.world.now().mono_ms;
        let mut task = AgentProcess::new(child, purpose, started_ms, reader, detector, files);
        task.set_question_detector(questions);
        task.completion_is_final = spec.completion_is_final;
        task.is_plain = !invocation.structured && !on_terminal;
        task.screen = on_terminal.then(|| {
            let size = terminal.unwrap_or(TerminalSize::DEFAULT);
            PtyScreen::new(size, &prompt, screen_text::completion_regex(&spec.completion))
        });
        if let Some(judge) = agent.response_filter(invocation.structured) {
            task = task.with_response_filter(judge);
        }
        self.task = ActiveTask::Agent(Box::new(task));
        Ok(())
    }

    /// Makes Claude Code's stop hook look for uncommitted work. Not if the loop commits: the agent must not commit
    /// before the guardrails.
    fn stop_check_id(&self) -> String {
        let has_stop_hook = self.spec.agent.adapter.profile().extras.stop_hook;
        let loop_commits =
            self.spec.scm.as_ref().is_some_and(|scm| scm_kinds(scm).contains(&ScmTaskKind::Commit));
        if has_stop_hook && !loop_commits {
            format!("{}.{}", self.machine.iteration(), self.machine.attempt())
        } else {
            String::new()
        }
    }

    pub(super) fn agent_ended(&mut self, mut task: AgentProcess, ended: ChildEnd, now: Now) {
        let files = std::mem::take(&mut task.files);
        let side_file = files.side.and_then(|path| {
            let content = self.world.read(&path).ok();
            let _ = self.world.remove(&path);
            content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        });
        if let Some(path) = files.prompt {
            let _ = self.world.remove(&path);
        }
        let duration_ms = now.mono_ms.saturating_sub(task.started_ms);
        let side_file = side_file.as_deref();
        let finished = {
            let ask = &mut self.response_filter.query_fn(self.spec, self.world);
            task.finish(ended.exit, side_file, duration_ms, &mut self.recorder, ask)
        };
        self.response_filter.end(self.world);
        self.ask_person(finished.questions.clone());
        self.record_leftovers(ended.leftovers, self.spec.agent.keep_background);
        self.recorder.record(&finished.ended);
        if finished.repeats_prompt {
            let message = "the agent's answer only repeats the prompt; a completion signal in it \
                           does not count";
            self.recorder.warn_once(message.to_owned());
        }
        if finished.gave_up {
            let message = "the done pattern is too slow for this output and was skipped; simplify \
                           it (no nested repetition)";
            self.recorder.warn_once(message.to_owned());
        }
        self.warn_without_tools(&finished);
        let rules = &self.spec.rules;
        let adapter = self.spec.agent.adapter;
        let has_price = rules.budget.cost_usd.or(rules.iteration_budget.cost_usd).is_some();
        if finished.unpriced && has_price && adapter.profile().cost_is_verified {
            let message = format!(
                "{} reports no cost, so the budget in dollars uses an estimate at the price of a \
                 large model; a token limit (--max-tokens, budget.tokens) is exact",
                adapter.name()
            );
            self.recorder.warn_once(message);
        }
        self.commit_message = finished.commit_message;
        self.queue.push_back(Input::AgentEnded(Box::new(finished.report)));
    }

    /// Warns about an agent that answers without using tools: they may not work.
    fn warn_without_tools(&mut self, finished: &AttemptEnd) {
        let Event::AgentEnded { purpose: Purpose::Work, class, tools, .. } = finished.ended else {
            return;
        };
        let agent = &self.spec.agent;
        if !agent.reports_tools() {
            return;
        }
        if tools > 0 {
            self.iterations_without_tools = 0;
        } else if class.finished_normally() {
            self.iterations_without_tools += 1;
        }
        if self.iterations_without_tools != MAX_ITERATIONS_WITHOUT_TOOLS {
            return;
        }
        let name = agent.adapter.name();
        let mut message = format!(
            "{name} used no tools in {MAX_ITERATIONS_WITHOUT_TOOLS} iterations in a row; check \
             that its tools work here"
        );
        if !finished.stderr.is_empty() {
            message.push_str(" Last lines of its stderr: ");
            message.push_str(&finished.stderr.join(" | "));
        }
        self.recorder.warn_once(message);
    }
}

const MAX_ITERATIONS_WITHOUT_TOOLS: u32 = 3;

/// The command line for the journal, without the prompt's text.
fn recorded_argv(program: &OsStr, args: &[OsString], prompt: &str) -> Vec<String> {
    let mut argv: Vec<String> = std::iter::once(program)
        .chain(args.iter().map(OsString::as_os_str))
        .map(|arg| {
            let arg = arg.to_string_lossy();
            match arg.strip_suffix(prompt) {
                // Alone, or in a flag such as `--prompt=…`.
                Some(flag) if !prompt.is_empty() && (flag.is_empty() || flag.ends_with('=')) => {
                    format!("{flag}<prompt>")
                }
                _ => arg.into_owned(),
            }
        })
        .collect();
    ralph_events::redact::redact_args(&mut argv);
    argv
}

fn not_started_message(
    spec: &RunSpec,
    err: &io::Error,
    via: PromptVia,
    prompt_len: usize,
) -> String {
    let program = &spec.agent.program;
    let hint = match err.kind() {
        io::ErrorKind::NotFound if !spec.directory.exists() => String::new(),
        io::ErrorKind::NotFound
            if program.contains('/') && spec.directory.join(program).exists() =>
        {
            "; the file exists, so the interpreter named in its first line is missing".to_owned()
        }
        io::ErrorKind::NotFound => "; is it installed and on the PATH?".to_owned(),
        io::ErrorKind::ArgumentListTooLong if via == PromptVia::Argument => format!(
            "; a prompt of {prompt_len} bytes does not fit into an argument: \
             set \"agent\": {{\"promptVia\": \"stdin\"}} or \"file\""
        ),
        _ => String::new(),
    };
    format!("{err}{hint}")
}
