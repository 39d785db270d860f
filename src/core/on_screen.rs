//! What an agent says on a screen of its own, where the prompt that was typed stands, too.

use fancy_regex::Regex;

use super::completion::Rule;

/// So many characters on each side tell an echo of the prompt from words that are also in the prompt.
const CONTEXT: usize = 16;

/// What completes a run, as an expression to look for on a screen.
pub fn expression(rule: &Rule) -> Option<Regex> {
    let tag = |flags: &str, name: &str, text: &str| {
        let text = fancy_regex::escape(text.trim());
        Regex::new(&format!(r"{flags}<{name}>\s*{text}\s*</{name}>")).ok()
    };
    match rule {
        Rule::Response(text) => tag("(?i)", "response", text),
        Rule::Promise(text) => tag("", "promise", text),
        Rule::Pattern(regex) => Some(regex.clone()),
        Rule::Never => None,
    }
}

/// The first match on the screen that is no echo of the prompt.
pub fn said<'s>(regex: &Regex, screen: &'s str, prompt: &str) -> Option<&'s str> {
    let prompt: Vec<char> = letters(prompt).collect();
    // An expression that gives up on this text has not matched it.
    let matches = regex.find_iter(screen).map_while(Result::ok);
    let mut said = matches.filter(|found| {
        let before: Vec<char> = letters_back(&screen[..found.start()]).take(CONTEXT).collect();
        let after: Vec<char> = letters(&screen[found.end()..]).take(CONTEXT).collect();
        let words: Vec<char> = letters(found.as_str()).collect();
        !is_echo(&words, &before, &after, &prompt)
    });
    said.next().map(|found| found.as_str())
}

/// Whether words with these before them (from the last on) and after them stand in the prompt so.
fn is_echo(words: &[char], before: &[char], after: &[char], prompt: &[char]) -> bool {
    if words.is_empty() {
        return false;
    }
    prompt.windows(words.len()).enumerate().filter(|(_, window)| *window == words).any(|(at, _)| {
        let left = prompt.get(..at).unwrap_or_default();
        let right = prompt.get(at + words.len()..).unwrap_or_default();
        // As far as both go: a screen may begin or end in the middle of a prompt. But words that stand
        // alone are nobody's echo, unless they are the whole prompt.
        let alone = before.is_empty() && after.is_empty();
        let agrees =
            left.iter().rev().zip(before).chain(right.iter().zip(after)).all(|(a, b)| a == b);
        agrees && (!alone || left.is_empty() && right.is_empty())
    })
}

/// A text without what differs when it is wrapped and framed.
fn letters(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| is_letter(*c))
}

fn letters_back(text: &str) -> impl Iterator<Item = char> {
    text.chars().rev().filter(|c| is_letter(*c))
}

fn is_letter(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '\u{2500}'..='\u{259f}' | '|' | '>' | '❯' | '›')
}

/// The last lines of a screen, without the empty ones below them and the blanks behind.
pub fn last_lines(screen: &str, count: usize) -> String {
    let lines: Vec<&str> = screen.trim_end().lines().map(str::trim_end).collect();
    let from = lines.len().saturating_sub(count);
    lines.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str =
        "Do the next task.\nWhen nothing is left, say \"All tasks complete\" and stop.";

    fn finds(screen: &str) -> bool {
        said(&Regex::new("All tasks complete").unwrap(), screen, PROMPT).is_some()
    }

    #[test]
    fn the_prompts_own_echo_says_nothing() {
        for screen in [
            PROMPT,
            "> Do the next task.\n  When nothing is left, say \"All tasks complete\" and stop.\n",
            "╭──────╮\n│ > Do the next task.   │\n│   When nothing is left, say \"All tasks complete\" and    │\n│  stop. │",
            // Wrapped, scrolled half away, and shown twice.
            "is left, say \"All tasks complete\"",
            "left, say \"All tasks complete\" and stop.\n\n> When nothing is left, say \"All tasks complete\" and stop.",
            "All tasks are not complete",
        ] {
            assert!(!finds(screen), "{screen}");
        }
    }

    #[test]
    fn what_the_agent_says_is_found_beside_the_echo() {
        for screen in [
            "All tasks complete",
            &format!("> {PROMPT}\n\n● All tasks complete\n\n> "),
            &format!("> {PROMPT}\nWorking on it.\nAll tasks complete."),
            "I am done: All tasks complete, as you asked.",
        ] {
            assert!(finds(screen), "{screen}");
        }
    }

    #[test]
    fn tags_are_found_as_their_rules_say() {
        let response = expression(&Rule::Response("Done".into())).unwrap();
        assert!(said(&response, "● <response> DONE </response>", "x").is_some());
        assert!(
            said(&response, "answer <response>DONE</response>", "answer <response>DONE</response>")
                .is_none()
        );
        assert!(expression(&Rule::Never).is_none());
    }

    #[test]
    fn blanks_below_and_behind_do_not_count() {
        assert_eq!(last_lines("a\nb  \nc\n\n\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
        assert_eq!(last_lines("a", 20), "a");
    }
}
