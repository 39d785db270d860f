//! Driver: guardrails.

use std::ffi::{OsStr, OsString};

use super::{ActiveTask, Driver};
use crate::guardrail::{self, GuardrailProcess};
use crate::world::{Part, Started, World};
use ralph_engine::machine::Input;
use ralph_engine::prompt as prompts;
use ralph_engine::prompt::{GuardrailFailure, GuardrailOutput};
use ralph_events::event::Event;
use ralph_process::Launch;

impl<W: World> Driver<'_, W> {
    pub(super) fn run_guardrail(&mut self, index: usize) {
        let spec = &self.spec.guardrails[index];
        let name = prompts::log_name(self.machine.iteration(), &self.log_slugs[index]);
        let log = format!(".ralph/{name}");
        let command = spec.shown_command();
        self.recorder.record(&Event::GuardrailStarted { index: index as u32, command });
        self.flush();
        if let Err(err) = self.world.open_log(&self.spec.ralph_dir.join(name)) {
            self.fail(&log, &err);
        }
        let env = self.run_variables();
        let args = [OsString::from("-c"), OsString::from(&spec.command)];
        let launch = Launch::plain(&self.spec.directory, OsStr::new("sh"), &args, &env);
        let limits = self.spec.guardrail_output;
        match self.world.start(Part::Check, &launch) {
            Ok(Started { child, .. }) => {
                let started = self.world.now().mono_ms;
                let task = GuardrailProcess::new(child, index, started, log, limits);
                self.task = ActiveTask::Guardrail(task);
            }
            Err(err) => {
                let failure = GuardrailFailure::Exit(None);
                let message = format!("sh: {err}");
                let output = GuardrailOutput { start: &message, end: "" };
                let feedback = guardrail::feedback(spec, failure, &log, output, limits);
                self.recorder.record(&Event::GuardrailEnded {
                    index: index as u32,
                    command: spec.shown_command(),
                    exit: None,
                    timed_out: false,
                    cut_off: false,
                    passed: false,
                    fail_action: spec.fail_action,
                    log: log.into(),
                    duration_ms: 0,
                });
                self.queue.push_back(Input::GuardrailEnded { failed: Some(feedback) });
            }
        }
    }
}
