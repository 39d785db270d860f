//! Finds questions to a person in an agent's words, which arrive in pieces.

use super::tags::TagScanner;
use ralph_events::control_chars::{ControlCharFilter, strip_control_chars};
use ralph_events::question;

const TAG: &str = "question";

/// Finds `<question>…</question>`. One that the prompt contains is none, wherever the agent repeats it.
#[derive(Debug, Clone)]
pub struct QuestionDetector {
    scanner: TagScanner,
    cleaner: ControlCharFilter,
    /// Text that is not joined is a new message.
    messages: bool,
    /// The letters of each question in the prompt.
    in_prompt: Vec<String>,
    found: Vec<String>,
}

impl QuestionDetector {
    pub fn new(prompt: &str) -> QuestionDetector {
        let mut in_prompt = Vec::new();
        let prompt = strip_control_chars(prompt);
        TagScanner::new(TAG, false).push(&prompt, false, |text| in_prompt.push(letters(text)));
        QuestionDetector {
            scanner: TagScanner::new(TAG, false),
            cleaner: ControlCharFilter::default(),
            messages: false,
            in_prompt,
            found: Vec::new(),
        }
    }

    /// For agents with messages: a tag never spans two of them.
    #[must_use]
    pub fn for_messages(self) -> Self {
        QuestionDetector { messages: true, ..self }
    }

    /// `joined` text continues the line.
    pub fn push_text(&mut self, text: &str, joined: bool) {
        if !joined {
            self.cleaner = ControlCharFilter::default();
        }
        let mut clean = String::new();
        let text = self.cleaner.filter(text, &mut clean);
        if self.messages && !joined {
            self.scanner.reset();
        }
        let QuestionDetector { scanner, in_prompt, found, .. } = self;
        scanner.push(text, joined, |content| {
            if !in_prompt.contains(&letters(content)) {
                found.extend(question::bounded(content));
            }
        });
    }

    /// Discards the text so far: it was not the agent's.
    pub fn retract(&mut self) {
        self.scanner.reset();
        self.cleaner = ControlCharFilter::default();
        self.found.clear();
    }

    /// The questions since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.found)
    }
}

/// Echoes are quoted, wrapped or JSON.
fn letters(text: &str) -> String {
    let text = text.replace("\\n", "\n");
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str =
        "Do it.\nUnsure? Write <question>Your question\nand its context</question>.";

    fn asked(mut detector: QuestionDetector, said: &[(&str, bool)]) -> Vec<String> {
        said.iter().for_each(|(text, joined)| detector.push_text(text, *joined));
        detector.take()
    }

    #[test]
    fn questions_are_found_in_pieces_and_in_order() {
        let said = [
            ("First <ques", false),
            ("tion>410 or \u{1b}[1m303\u{1b}[0m?\n", true),
            ("\nThe story.</QUESTION> and <question>two?</question>", true),
            ("<question>never closed", false),
        ];
        let detector = QuestionDetector::new(PROMPT);
        assert_eq!(asked(detector, &said), ["410 or 303?\n\nThe story.", "two?"]);
    }

    #[test]
    fn question_of_the_prompt_is_none() {
        let quoted = "> Unsure? Write <question>Your question\n> and its context</question>.";
        let json = r#"{"prompt": "<question>Your question\nand its context</question>"}"#;
        let empty = "Use <question>…</question> tags, <question></question>";
        for said in [PROMPT, quoted, json, empty] {
            for detector in
                [QuestionDetector::new(PROMPT), QuestionDetector::new(PROMPT).for_messages()]
            {
                let lines: Vec<(&str, bool)> = said.lines().map(|line| (line, false)).collect();
                assert_eq!(asked(detector.clone(), &lines), [""; 0], "{said}");
                assert_eq!(asked(detector, &[(said, false)]), [""; 0], "{said}");
            }
        }
    }

    #[test]
    fn question_does_not_span_messages_or_retracted_text() {
        let said = [("<question>one", false), ("two?</question>", false)];
        assert_eq!(asked(QuestionDetector::new(""), &said), ["one\ntwo?"]);
        assert_eq!(asked(QuestionDetector::new("").for_messages(), &said), [""; 0]);
        let mut detector = QuestionDetector::new("");
        detector.push_text("<question>echo?</question> <question>", false);
        detector.retract();
        assert_eq!(asked(detector, &[("no?</question>", false)]), [""; 0]);
    }
}
