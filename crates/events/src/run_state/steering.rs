//! Questions of agents to a person, and guidance from a person.

use serde::Serialize;

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
    /// Whether the prompt of an iteration carries it. An iteration that is restarted carries it again.
    fn is_due(&self, iteration: u32) -> bool {
        !self.cleared && (self.every || is_due(self.delivered_in, iteration))
    }
}

fn is_due(delivered_in: Option<u32>, iteration: u32) -> bool {
    delivered_in.is_none_or(|delivered| delivered == iteration)
}

impl Steering {
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| question.is_open())
    }

    pub fn question(&self, id: &str) -> Option<&Question> {
        self.questions.iter().find(|question| question.id == id)
    }

    /// The guidance that belongs into the prompt of an iteration.
    pub fn guidance_for(&self, iteration: u32) -> impl Iterator<Item = &Guidance> {
        self.guidance.iter().filter(move |guidance| guidance.is_due(iteration))
    }

    /// The answered questions that belong into the prompt of an iteration.
    pub fn answers_for(&self, iteration: u32) -> impl Iterator<Item = (&Question, &Answer)> {
        self.questions.iter().filter_map(move |question| {
            let answer = question.answer.as_ref()?;
            is_due(answer.delivered_in, iteration).then_some((question, answer))
        })
    }

    pub(super) fn ask(&mut self, question: Question) {
        if self.question(&question.id).is_none() {
            self.questions.push(question);
        }
    }

    /// The first answer counts.
    pub(super) fn answer(&mut self, id: &str, text: &str, now_ms: i64) {
        let question = self.questions.iter_mut().find(|question| question.id == id);
        if let Some(question) = question.filter(|question| question.is_open()) {
            let text = text.to_owned();
            question.answer = Some(Answer { text, answered_ms: now_ms, delivered_in: None });
        }
    }

    /// A request that was taken before a kill is taken again afterwards.
    pub(super) fn receive(&mut self, guidance: Guidance) {
        if !self.guidance.iter().any(|known| known.id == guidance.id) {
            self.guidance.push(guidance);
        }
    }

    pub(super) fn clear_guidance(&mut self) {
        let waiting = self.guidance.iter_mut();
        for guidance in waiting.filter(|it| it.every || it.delivered_in.is_none()) {
            guidance.cleared = true;
        }
    }

    pub(super) fn deliver(&mut self, guidance: &[u64], answers: &[String], iteration: u32) {
        for delivered in self.guidance.iter_mut().filter(|it| guidance.contains(&it.id)) {
            delivered.delivered_in = Some(iteration);
        }
        let questions = self.questions.iter_mut().filter(|it| answers.contains(&it.id));
        for answer in questions.filter_map(|question| question.answer.as_mut()) {
            answer.delivered_in = Some(iteration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guidance(id: u64, every: bool) -> Guidance {
        let text = format!("text {id}");
        Guidance { id, text, every, received_ms: 0, delivered_in: None, cleared: false }
    }

    fn due(steering: &Steering, iteration: u32) -> Vec<u64> {
        steering.guidance_for(iteration).map(|guidance| guidance.id).collect()
    }

    #[test]
    fn guidance_is_delivered_once_or_with_a_restarted_iteration() {
        let mut steering = Steering::default();
        for it in [guidance(1, false), guidance(2, true), guidance(3, false), guidance(1, false)] {
            steering.receive(it);
        }
        assert_eq!(due(&steering, 4), [1, 2, 3], "in order, and none twice");
        steering.deliver(&[1, 2, 3], &[], 4);
        assert_eq!(due(&steering, 4), [1, 2, 3], "the iteration is restarted");
        assert_eq!(due(&steering, 5), [2]);
        steering.clear_guidance();
        assert_eq!(due(&steering, 5), [0_u64; 0]);
        assert_eq!(due(&steering, 4), [1, 3], "those were delivered");
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
        assert_eq!(steering.answers_for(3).count(), 0);
        steering.answer("q1", "410", 9);
        steering.answer("q1", "303", 10);
        let answers = |iteration| -> Vec<String> {
            steering.answers_for(iteration).map(|(_, answer)| answer.text.clone()).collect()
        };
        assert_eq!(answers(3), ["410"]);
        assert_eq!(steering.open_questions().count(), 0);
        let mut steering = steering.clone();
        steering.deliver(&[], &["q1".into()], 3);
        assert_eq!(steering.answers_for(3).count(), 1);
        assert_eq!(steering.answers_for(4).count(), 0);
    }
}
