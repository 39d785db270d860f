//! Driver: guardrails.

use std::ffi::{OsStr, OsString};

use super::{ActiveTask, Driver};
use crate::guardrail::GuardrailRun;
use crate::world::{Part, Started, World};
use ralph_engine::machine::Input;
use ralph_engine::prompt as prompts;
use ralph_events::event::{Event, Exit};
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
        let started_ms = self.world.now().mono_ms;
        let mut run = GuardrailRun::new(index, started_ms, log, self.spec.guardrail_output);
        match self.world.start(Part::Check, &launch) {
            Ok(Started { child, .. }) => self.task = ActiveTask::Guardrail(child, run),
            Err(err) => {
                run.output(format!("sh: {err}").as_bytes());
                self.finish_guardrail(run, None, started_ms);
            }
        }
    }

    pub(super) fn finish_guardrail(&mut self, run: GuardrailRun, exit: Option<Exit>, now_ms: u64) {
        let (specs, limits) = (&self.spec.guardrails, self.spec.guardrail_output);
        let (event, failed) = run.finish(exit, specs, limits, now_ms);
        self.recorder.record(&event);
        self.queue.push_back(Input::GuardrailEnded { failed });
    }
}
