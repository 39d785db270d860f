//! Driver: the prompt of one attempt.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use super::Driver;
use crate::run_spec::{PromptSource, Variables, not_utf8_message};
use crate::world::{PathKind, World};
use ralph_engine::prompt;
use ralph_events::event::Event;
use ralph_events::text;

impl<W: World> Driver<'_, W> {
    pub(super) fn compose_prompt(&mut self) -> Result<String, String> {
        let spec = self.spec;
        for required in &spec.required {
            if self.world.kind(&required.file) != PathKind::File {
                return Err(required.message.clone());
            }
        }
        let base = match &spec.prompt {
            PromptSource::Text(prompt) | PromptSource::TaskList(prompt) => {
                Cow::Borrowed(prompt.as_str())
            }
            PromptSource::File(path) => Cow::Owned(self.read_prompt(path)?),
            PromptSource::FileOrDefault { path, otherwise } => match self.read_prompt(path) {
                Ok(prompt) => Cow::Owned(prompt),
                Err(message) => {
                    self.recorder.warn_once(format!("{message}; using the built-in prompt"));
                    Cow::Borrowed(otherwise.as_str())
                }
            },
            PromptSource::BuiltIn { text, .. } => Cow::Borrowed(text.as_ref()),
        };
        let (iteration, max) = (self.machine.iteration(), self.machine.max_iterations());
        let base = match &spec.variables {
            None => base,
            Some(variables) => {
                let (filled, unknown) = variables.expand(&base, iteration, max);
                if let Some(message) = Variables::missing_values_warning(&unknown) {
                    self.recorder.warn_once(message);
                }
                filled.into()
            }
        };
        let feedback = self.machine.feedback();
        let line = spec.show_iteration_in_prompt.then_some((iteration, max));
        let prompt = prompt::compose(&base, &feedback, &self.machine.messages(), line);
        let carries_feedback = !feedback.is_empty();
        self.recorder.record(&Event::Prompt {
            bytes: prompt.len() as u64,
            preview: text::truncate(&prompt, 200, "…"),
            feedback: carries_feedback,
        });
        Ok(prompt)
    }

    fn read_prompt(&mut self, path: &Path) -> Result<String, String> {
        let bytes = self.world.read(path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => format!("prompt file not found: {}", path.display()),
            _ => format!("cannot read prompt file: {}: {err}", path.display()),
        })?;
        // An empty prompt costs money, too. A pipe is empty the second time.
        if bytes.trim_ascii().is_empty() && !self.spec.empty_prompt {
            return Err(format!("the prompt file is empty: {}", path.display()));
        }
        String::from_utf8(bytes).or_else(|err| {
            self.recorder.warn_once(not_utf8_message(path));
            Ok(String::from_utf8_lossy(err.as_bytes()).into_owned())
        })
    }
}
