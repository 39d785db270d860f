//! Questions of the agent, and what you told it.

use super::clean_text::clean;
use super::notice::notice_text;
use super::{Item, ItemKind, MAX_TEXT, Transcript};
use ralph_events::event::{Event, Stamp};

impl Transcript {
    pub(super) fn steering_event(
        &mut self,
        id: u64,
        at: Stamp,
        event: &Event<'_>,
        changed: &mut Vec<u64>,
    ) {
        match event {
            Event::QuestionAsked { id: question, text, .. } => {
                let text = clean(text, MAX_TEXT).0;
                let (headline, context) = text.split_once('\n').unwrap_or((&text, ""));
                let question = ItemKind::Question {
                    id: question.as_ref().to_owned(),
                    text: headline.trim().to_owned(),
                    context: context.trim().to_owned(),
                    is_answered: false,
                };
                if self.is_closed {
                    return;
                }
                let emptied = self.cut_out_question(at, &text, changed);
                match emptied {
                    Some(position) => self.put_question(position, question, changed),
                    None => drop(self.add(id, at, question, changed)),
                }
            }
            Event::QuestionAnswered { id: answered, text } => {
                let find = |item: &mut Item| match &mut item.kind {
                    ItemKind::Question { id, is_answered, .. } if **id == **answered => {
                        *is_answered = true;
                        Some(item.id)
                    }
                    _ => None,
                };
                changed.extend(self.items.iter_mut().find_map(find));
                let answer = ItemKind::You {
                    text: clean(text, MAX_TEXT).0,
                    guidance: None,
                    question: Some(answered.as_ref().to_owned()),
                    every: false,
                    delivered_in: None,
                    is_missed: false,
                };
                self.add(id, at, answer, changed);
            }
            Event::GuidanceReceived { id: guidance, text, every } => {
                let you = ItemKind::You {
                    text: clean(text, MAX_TEXT).0,
                    guidance: Some(*guidance),
                    question: None,
                    every: *every,
                    delivered_in: None,
                    is_missed: false,
                };
                self.add(id, at, you, changed);
            }
            Event::GuidanceDelivered { guidance, answers } => {
                for item in &mut self.items {
                    let ItemKind::You { guidance: own, question, delivered_in, is_missed, .. } =
                        &mut item.kind
                    else {
                        continue;
                    };
                    if own.is_some_and(|own| guidance.contains(&own))
                        || question.as_ref().is_some_and(|own| answers.contains(own))
                    {
                        (*delivered_in, *is_missed) = (Some(at.iteration), false);
                        changed.push(item.id);
                    }
                }
            }
            _ => {
                match event {
                    Event::RunEnded { .. } => self.set_missed(true, changed),
                    Event::GuidanceCleared => self.cleared_until = id,
                    _ => {}
                }
                if let Some((level, text)) = notice_text(event) {
                    self.notice(id, at, level, &text, changed);
                }
            }
        }
    }

    pub(super) fn set_missed(&mut self, missed: bool, changed: &mut Vec<u64>) {
        for item in &mut self.items {
            if let ItemKind::You { delivered_in: None, guidance, is_missed, .. } = &mut item.kind
                && (guidance.is_none() || item.id > self.cleared_until)
                && *is_missed != missed
            {
                *is_missed = missed;
                changed.push(item.id);
            }
        }
    }

    /// Puts a question in place of a text that has become empty. Earlier questions of that text follow it, and move up.
    fn put_question(&mut self, position: usize, question: ItemKind, changed: &mut Vec<u64>) {
        let later = self.items.iter().skip(position + 1);
        let earlier = later.take_while(|item| matches!(item.kind, ItemKind::Question { .. }));
        let count = earlier.count();
        let mut kinds: Vec<ItemKind> = self
            .items
            .iter()
            .skip(position + 1)
            .take(count)
            .map(|item| item.kind.clone())
            .collect();
        kinds.push(question);
        for (item, kind) in self.items.iter_mut().skip(position).zip(kinds) {
            item.kind = kind;
            if !changed.contains(&item.id) {
                changed.push(item.id);
            }
        }
    }

    /// Leaves the question out of the text that asked it. Returns whether nothing else was said there.
    fn cut_out_question(
        &mut self,
        at: Stamp,
        asked: &str,
        changed: &mut Vec<u64>,
    ) -> Option<usize> {
        let asked = letters(asked);
        let recent = self.items.iter_mut().enumerate().rev();
        for (position, item) in recent.take_while(|(_, item)| item.iteration == at.iteration) {
            let ItemKind::Text { text, .. } = &mut item.kind else { continue };
            let Some(range) = question_range(text, &asked) else { continue };
            let rest = format!("{}\n{}", text[..range.start].trim_end(), text[range.end..].trim());
            *text = rest.trim().to_owned();
            changed.push(item.id);
            return text.is_empty().then_some(position);
        }
        None
    }
}

/// Where `text` has the tags of a question with these letters.
fn question_range(text: &str, asked: &str) -> Option<std::ops::Range<usize>> {
    const TAGS: (&str, &str) = ("<question>", "</question>");
    let lower = text.to_ascii_lowercase();
    let mut from = 0;
    while let Some(start) = lower[from..].find(TAGS.0).map(|at| from + at) {
        let inside = start + TAGS.0.len();
        let end = inside + lower[inside..].find(TAGS.1)?;
        // A long question was cut when it was asked.
        if !asked.is_empty() && letters(&text[inside..end]).starts_with(asked) {
            return Some(start..end + TAGS.1.len());
        }
        from = inside;
    }
    None
}

/// Questions are asked without the line breaks of the output.
fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}
