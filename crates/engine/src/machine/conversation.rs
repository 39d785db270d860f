//! Guidance and answers of a person, questions of the agent, and parking until they are answered.

use super::super::rules::{QuestionMode, Rules};
use super::{Action, Job, JobEnd, LoopMachine, Phase, Step};
use ralph_events::event::{EndCause, Event, Purpose};
use ralph_events::run_state::Steering;

/// The messages between a person and the agent.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    said: Steering,
    /// Carried by the prompt of the last attempt.
    guidance: Vec<u64>,
    answers: Vec<String>,
    /// Answered questions that an agent asked again: it does not know what an earlier one was told.
    asked_again: Vec<String>,
}

/// The parts of a prompt that a person wrote while the run was working.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonMessages<'m> {
    pub guidance: Vec<&'m str>,
    /// Each question with its answer.
    pub answers: Vec<(&'m str, &'m str)>,
}

impl Conversation {
    pub(super) fn resumed(said: Steering) -> Conversation {
        Conversation { said, ..Conversation::default() }
    }

    /// Chooses what the next prompt carries. What arrives later waits for another one.
    pub(super) fn fill_prompt(&mut self) {
        self.guidance = self.said.due_guidance().map(|guidance| guidance.id).collect();
        let due = self.said.due_answers().map(|(question, _)| question.id.clone());
        self.answers = due.collect();
        let again = self.asked_again.iter().filter(|id| !self.answers.contains(id));
        let again: Vec<String> = again.cloned().collect();
        self.answers.extend(again);
    }

    fn messages(&self) -> PersonMessages<'_> {
        let carried = self.said.guidance.iter().filter(|it| self.guidance.contains(&it.id));
        let answered = self.said.questions.iter().filter(|it| self.answers.contains(&it.id));
        PersonMessages {
            guidance: carried.map(|guidance| guidance.text.as_str()).collect(),
            answers: answered
                .filter_map(|it| Some((it.text.as_str(), it.answer.as_ref()?.text.as_str())))
                .collect(),
        }
    }
}

impl LoopMachine {
    /// The person's messages for the prompt of the agent that is being started.
    pub fn messages(&self) -> PersonMessages<'_> {
        self.conversation.messages()
    }

    /// The stories that wait for an answer, if questions hold up work. `None` in the list stands for all stories.
    pub fn parked_stories(&self) -> Vec<Option<&str>> {
        let open =
            self.conversation.said.open_questions().map(|question| question.story.as_deref());
        open.filter(|_| self.rules.questions == QuestionMode::Wait).collect()
    }

    pub fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Parked { .. })
    }

    /// Emits an event that changes the conversation.
    pub(super) fn say(&mut self, step: &mut Step, event: Event<'static>) {
        self.conversation.said.apply(self.stamp(step.now), &event);
        self.emit(step, event);
    }

    pub(super) fn on_tell(
        &mut self,
        step: &mut Step,
        id: u64,
        text: String,
        now: bool,
        every: bool,
    ) {
        let is_known = self.conversation.said.guidance.iter().any(|known| known.id == id);
        if self.is_finished() || is_known {
            return;
        }
        self.say(step, Event::GuidanceReceived { id, text: text.into(), every });
        // An answer that the agent has just given counts: the guidance is for the next iteration then.
        let works =
            |agent: &super::AgentRun| agent.purpose == Purpose::Work && !agent.has_answered();
        if now && self.agent().is_some_and(works) {
            self.end_job(step, JobEnd::CutOff(EndCause::Guidance));
        }
    }

    /// Guidance with a higher number is newer than the request, which was carried out before a kill.
    pub(super) fn clear_guidance(&mut self, step: &mut Step, id: u64) {
        let said = &self.conversation.said;
        let is_old = said.guidance.iter().any(|guidance| guidance.id > id);
        if !self.is_finished() && !is_old && said.due_guidance().next().is_some() {
            self.say(step, Event::GuidanceCleared);
        }
    }

    /// The agent has started, so its prompt has arrived.
    pub(super) fn record_delivery(&mut self, step: &mut Step) {
        let Phase::Running { job: Job::Agent(agent), .. } = self.phase else { return };
        let Conversation { guidance, answers, .. } = &self.conversation;
        if agent.purpose != Purpose::Work || guidance.is_empty() && answers.is_empty() {
            return;
        }
        let (guidance, answers) = (guidance.clone(), answers.clone());
        self.conversation.asked_again.clear();
        self.say(step, Event::GuidanceDelivered { guidance, answers });
    }

    pub(super) fn on_question(
        &mut self,
        step: &mut Step,
        id: String,
        text: String,
        story: Option<String>,
    ) {
        if self.is_finished() || self.rules.questions == QuestionMode::Off {
            return;
        }
        if let Some(known) = self.conversation.said.question(&id) {
            let again = &mut self.conversation.asked_again;
            if !known.is_open() && !again.contains(&id) {
                again.push(id);
            }
            return;
        }
        self.iteration.questions = self.iteration.questions.saturating_add(1);
        let most = Rules::MAX_QUESTIONS;
        if self.iteration.questions > most {
            if self.iteration.questions == most + 1 {
                let message =
                    format!("the agent asked more than {most} questions; the rest are ignored");
                self.emit(step, Event::Warning { message: message.into() });
            }
            return;
        }
        let story = story.map(Into::into);
        self.say(step, Event::QuestionAsked { id: id.into(), text: text.into(), story });
    }

    pub(super) fn on_answer(&mut self, step: &mut Step, question: String, text: String) {
        let known = self.conversation.said.question(&question);
        if self.is_finished() || known.is_none_or(|known| !known.is_open()) {
            return;
        }
        self.say(step, Event::QuestionAnswered { id: question.into(), text: text.into() });
        if let Phase::Parked { since } = self.phase {
            if self.conversation.said.open_questions().next().is_none() {
                self.unpark(step, since);
            } else if self.rules.gates {
                step.push(Action::FindStory);
            }
        }
    }

    /// Parks the run if nothing can start before a question is answered. Returns whether the next iteration has to
    /// wait.
    pub(super) fn waits_for_answer(&mut self, step: &mut Step) -> bool {
        if self.parked_stories().is_empty() {
            return false;
        }
        if self.rules.gates {
            self.phase = Phase::FindingStory;
            step.push(Action::FindStory);
        } else {
            self.park(step);
        }
        true
    }

    pub(super) fn on_story_found(&mut self, step: &mut Step, found: bool) {
        match (&self.phase, found) {
            (Phase::FindingStory, _) if self.steering.stop.is_some() => self.finish_stopped(step),
            (Phase::FindingStory, _) if self.steering.pause => self.enter_pause(step, false),
            (Phase::FindingStory, true) => self.check_stall_or_start(step),
            (Phase::FindingStory, false) => self.park(step),
            (Phase::Parked { since }, true) => self.unpark(step, *since),
            _ => {}
        }
    }

    fn park(&mut self, step: &mut Step) {
        self.phase = Phase::Parked { since: step.now.mono_ms };
        self.emit(step, Event::Parked);
        step.push(Action::Save);
    }

    pub(super) fn leave_park(&mut self, step: &mut Step, since: u64) {
        self.exclude_pause(step.now, since);
        self.emit(step, Event::Unparked);
    }

    fn unpark(&mut self, step: &mut Step, since: u64) {
        self.leave_park(step, since);
        self.next_iteration(step);
    }
}
