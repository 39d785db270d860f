//! Driver: the evaluator of the user's response filter, a process beside the agent. One that does not answer is
//! replaced.

use crate::response_filter;
use crate::run_spec::RunSpec;
use crate::world::{Part, Processes};
use ralph_agents::filter::FilterAnswer;
use ralph_events::env_names;
use ralph_process::{ChildId, Launch};

#[derive(Debug, Default)]
pub(super) struct ResponseFilterProcess {
    child: Option<ChildId>,
    /// After a stop, answers are not awaited.
    is_stopping: bool,
    /// Ended, but not yet reported.
    ending_children: Vec<ChildId>,
}

impl ResponseFilterProcess {
    /// Starts before its agent, because orphans are attributed to the latest child. If it fails, the first query
    /// reports it.
    pub(super) fn spawn<W: Processes>(&mut self, spec: &RunSpec, world: &mut W) {
        self.is_stopping = false;
        self.child = spawn(spec, world).ok().flatten();
    }

    pub(super) fn query_fn<'a, W: Processes>(
        &'a mut self,
        spec: &'a RunSpec,
        world: &'a mut W,
    ) -> impl FnMut(&[u8]) -> Result<FilterAnswer, String> + 'a {
        move |line| self.query(line, spec, world)
    }

    fn query<W: Processes>(
        &mut self,
        line: &[u8],
        spec: &RunSpec,
        world: &mut W,
    ) -> Result<FilterAnswer, String> {
        if self.is_stopping {
            return Ok(FilterAnswer::none());
        }
        let child = match self.child {
            Some(child) => child,
            None => match spawn(spec, world) {
                Ok(Some(child)) => *self.child.insert(child),
                Ok(None) => return Ok(FilterAnswer::default()),
                Err(err) => return Err(format!("could not be started ({err})")),
            },
        };
        let question = [line, b"\n"].concat();
        let patience_ms = response_filter::answer_timeout_ms(&question);
        let printed = world.ask(child, &question, patience_ms);
        if printed.as_ref().is_err_and(|err| err.kind() == std::io::ErrorKind::Interrupted) {
            self.is_stopping = true;
            self.end(world);
            return Ok(FilterAnswer::none());
        }
        response_filter::parse_answer(printed).inspect_err(|_| self.end(world))
    }

    pub(super) fn end<W: Processes>(&mut self, world: &mut W) {
        if let Some(child) = self.child.take() {
            world.end(child, true);
            self.ending_children.push(child);
        }
    }

    pub(super) fn owns_child(&mut self, child: ChildId) -> bool {
        let before = self.ending_children.len();
        self.ending_children.retain(|ended| *ended != child);
        // The next query notices one that has died.
        self.ending_children.len() < before || self.child == Some(child)
    }
}

fn spawn<W: Processes>(spec: &RunSpec, world: &mut W) -> std::io::Result<Option<ChildId>> {
    let Some(filter) = &spec.agent.response_filter else { return Ok(None) };
    let (program, args) = response_filter::command(filter)?;
    let run = [(env_names::RUN_ID.into(), Some(spec.run_id.clone().into()))];
    let launch = Launch::plain(&spec.directory, program.as_os_str(), &args, &run);
    let launch = Launch { merge_stderr: false, ..launch };
    world.start(Part::Filter, &launch).map(|started| Some(started.child))
}
