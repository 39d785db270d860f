//! Questions of agents to a person, and guidance from a person.

use serde::Serialize;

use crate::event::{Event, Stamp};

/// What the agent asked and what a person said, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Steering {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<Guidance>,
}

/// A question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    pub id: String,
    pub text: String,
    /// The story that the iteration worked on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
    pub iteration: u32,
    pub asked_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub text: String,
    pub answered_ms: i64,
    /// The iteration whose prompt carried it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_in: Option<u32>,
    /// That iteration has ended with an answer of its agent.
    #[serde(skip)]
    pub is_used: bool,
}

/// Guidance from a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Guidance {
    /// The number of the request that brought it.
    pub id: u64,
    pub text: String,
    /// Repeated in every prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
    pub received_ms: i64,
    /// The iteration whose prompt carried it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_in: Option<u32>,
    /// That iteration has ended with an answer of its agent.
    #[serde(skip)]
    pub is_used: bool,
    /// Dropped by `ralph tell --clear`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cleared: bool,
}

impl Question {
    pub fn is_open(&self) -> bool {
        self.answer.is_none()
    }

    /// The first line.
    pub fn headline(&self) -> &str {
        self.text.trim().lines().next().unwrap_or_default().trim_end()
    }

    /// Everything after the first line.
    pub fn context(&self) -> &str {
        self.text.trim().split_once('\n').map_or("", |(_, rest)| rest.trim())
    }
}

impl Guidance {
    /// Whether the next prompt carries it. An iteration that failed or was cut off does not use it up.
    pub fn is_due(&self) -> bool {
        !self.cleared && (self.every || !self.is_used)
    }
}

impl Steering {
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| question.is_open())
    }

    pub fn question(&self, id: &str) -> Option<&Question> {
        self.questions.iter().find(|question| question.id == id)
    }

    /// The guidance that belongs into the next prompt.
    pub fn due_guidance(&self) -> impl Iterator<Item = &Guidance> {
        self.guidance.iter().filter(|guidance| guidance.is_due())
    }

    /// Answers and guidance that no prompt has carried.
    pub fn undelivered(&self) -> impl Iterator<Item = &str> {
        let answers = self.due_answers().filter(|(_, answer)| answer.delivered_in.is_none());
        let guidance = self.due_guidance().filter(|guidance| guidance.delivered_in.is_none());
        answers.map(|(_, it)| it.text.as_str()).chain(guidance.map(|it| it.text.as_str()))
    }

    /// The answered questions that belong into the next prompt.
    pub fn due_answers(&self) -> impl Iterator<Item = (&Question, &Answer)> {
        let answered = self.questions.iter().filter_map(|it| Some((it, it.answer.as_ref()?)));
        answered.filter(|(_, answer)| !answer.is_used)
    }

    /// Takes the next event of the run.
    pub fn apply(&mut self, at: Stamp, event: &Event<'_>) {
        match event {
            Event::QuestionAsked { id, text, story } => self.ask(Question {
                id: id.as_ref().to_owned(),
                text: text.as_ref().to_owned(),
                story: story.as_deref().map(str::to_owned),
                iteration: at.iteration,
                asked_ms: at.time_ms,
                answer: None,
            }),
            Event::QuestionAnswered { id, text } => self.answer(id, text, at.time_ms),
            Event::GuidanceReceived { id, text, every } => self.receive(Guidance {
                id: *id,
                text: text.as_ref().to_owned(),
                every: *every,
                received_ms: at.time_ms,
                delivered_in: None,
                is_used: false,
                cleared: false,
            }),
            Event::GuidanceCleared => self.clear_guidance(),
            Event::GuidanceDelivered { guidance, answers } => {
                self.deliver(guidance, answers, at.iteration);
            }
            // Checks follow an answer only.
            Event::IterationEnded { cut_off: false, guardrails_passed: Some(_), .. } => {
                self.use_up(at.iteration);
            }
            _ => {}
        }
    }

    fn ask(&mut self, question: Question) {
        if self.question(&question.id).is_none() {
            self.questions.push(question);
        }
    }

    /// The first answer counts.
    fn answer(&mut self, id: &str, text: &str, now_ms: i64) {
        let question = self.questions.iter_mut().find(|question| question.id == id);
        if let Some(question) = question.filter(|question| question.is_open()) {
            let text = text.to_owned();
            let (delivered_in, is_used) = (None, false);
            question.answer = Some(Answer { text, answered_ms: now_ms, delivered_in, is_used });
        }
    }

    /// A request that was taken before a kill is taken again afterwards.
    fn receive(&mut self, guidance: Guidance) {
        if !self.guidance.iter().any(|known| known.id == guidance.id) {
            self.guidance.push(guidance);
        }
    }

    fn clear_guidance(&mut self) {
        for guidance in self.guidance.iter_mut().filter(|it| it.is_due()) {
            guidance.cleared = true;
        }
    }

    fn deliver(&mut self, guidance: &[u64], answers: &[String], iteration: u32) {
        for delivered in self.guidance.iter_mut().filter(|it| guidance.contains(&it.id)) {
            delivered.delivered_in = Some(iteration);
        }
        let questions = self.questions.iter_mut().filter(|it| answers.contains(&it.id));
        for answer in questions.filter_map(|question| question.answer.as_mut()) {
            (answer.delivered_in, answer.is_used) = (Some(iteration), false);
        }
    }

    fn use_up(&mut self, iteration: u32) {
        let is_carried = |delivered_in: Option<u32>| delivered_in == Some(iteration);
        for guidance in self.guidance.iter_mut().filter(|it| is_carried(it.delivered_in)) {
            guidance.is_used = true;
        }
        let answers = self.questions.iter_mut().filter_map(|question| question.answer.as_mut());
        for answer in answers.filter(|answer| is_carried(answer.delivered_in)) {
            answer.is_used = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guidance(id: u64, every: bool) -> Event<'static> {
        Event::GuidanceReceived { id, text: format!("text {id}").into(), every }
    }

    fn delivered(guidance: &[u64]) -> Event<'static> {
        Event::GuidanceDelivered { guidance: guidance.to_vec(), answers: vec![] }
    }

    fn iteration_ended(cut_off: bool, guardrails_passed: Option<bool>) -> Event<'static> {
        Event::IterationEnded {
            class: crate::event::Class::Answered,
            guardrails_passed,
            complete: false,
            cut_off,
            duration_ms: 1,
            usage: Default::default(),
        }
    }

    fn due_after(events: &[(u32, Event<'static>)]) -> Vec<u64> {
        let mut steering = Steering::default();
        for (iteration, event) in events {
            steering.apply(Stamp { time_ms: 0, iteration: *iteration, attempt: 1 }, event);
        }
        steering.due_guidance().map(|guidance| guidance.id).collect()
    }

    #[test]
    fn guidance_is_due_until_an_iteration_that_carried_it_was_checked() {
        let mut events = vec![
            (0, guidance(1, false)),
            (0, guidance(2, true)),
            (0, guidance(3, false)),
            (0, guidance(1, false)),
        ];
        assert_eq!(due_after(&events), [1, 2, 3], "in order, and none twice");
        events.push((4, delivered(&[1, 2, 3])));
        assert_eq!(due_after(&events), [1, 2, 3], "the iteration may be restarted");
        events.push((4, iteration_ended(true, Some(true))));
        events.push((5, iteration_ended(false, None)));
        assert_eq!(due_after(&events), [1, 2, 3], "cut off, and failed");
        events.push((5, delivered(&[1, 2, 3])));
        events.push((5, guidance(4, false)));
        events.push((5, iteration_ended(false, Some(false))));
        assert_eq!(due_after(&events), [2, 4]);
        events.push((6, Event::GuidanceCleared));
        events.push((6, guidance(5, false)));
        assert_eq!(due_after(&events), [5]);
    }

    #[test]
    fn question_is_asked_once_and_its_first_answer_counts() {
        let mut steering = Steering::default();
        let question = Question {
            id: "q1".into(),
            text: "\n410 or 303?  \n\nThe story does not say.\n".into(),
            story: None,
            iteration: 2,
            asked_ms: 5,
            answer: None,
        };
        steering.ask(question.clone());
        steering.ask(question);
        let [asked] = &steering.questions[..] else { panic!("asked once") };
        assert_eq!((asked.headline(), asked.context()), ("410 or 303?", "The story does not say."));
        assert_eq!(steering.due_answers().count(), 0);
        steering.answer("q1", "410", 9);
        steering.answer("q1", "303", 10);
        let answers: Vec<&str> = steering.due_answers().map(|(_, it)| it.text.as_str()).collect();
        assert_eq!(answers, ["410"]);
        assert_eq!(steering.open_questions().count(), 0);
        steering.deliver(&[], &["q1".into()], 3);
        assert_eq!(steering.due_answers().count(), 1);
        steering.use_up(3);
        assert_eq!(steering.due_answers().count(), 0);
    }
}
