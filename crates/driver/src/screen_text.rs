//! Searches an agent's screen, which also shows the typed prompt.

use fancy_regex::Regex;

use ralph_engine::completion::CompletionRule;

/// Characters of context that tell an echo of the prompt from the agent's words.
const CONTEXT: usize = 16;

/// The completion rule as a pattern for screens.
pub fn completion_regex(rule: &CompletionRule) -> Option<Regex> {
    let tag = |flags: &str, name: &str, text: &str| {
        let text = fancy_regex::escape(text.trim());
        Regex::new(&format!(r"{flags}<{name}>\s*{text}\s*</{name}>")).ok()
    };
    match rule {
        CompletionRule::Response(text) => tag("(?i)", "response", text),
        CompletionRule::Promise(text) => tag("", "promise", text),
        CompletionRule::Pattern(regex) => Some(regex.clone()),
        CompletionRule::Never => None,
    }
}

/// The first match that is not an echo of the prompt.
pub fn find_completion<'s>(regex: &Regex, screen: &'s str, prompt: &str) -> Option<&'s str> {
    let prompt: Vec<char> = significant_chars(prompt).collect();
    // A pattern that exceeds its limits has no match.
    let matches = regex.find_iter(screen).map_while(Result::ok);
    let mut found = matches.filter(|found| {
        let before: Vec<char> =
            significant_chars_rev(&screen[..found.start()]).take(CONTEXT).collect();
        let after: Vec<char> = significant_chars(&screen[found.end()..]).take(CONTEXT).collect();
        let words: Vec<char> = significant_chars(found.as_str()).collect();
        !is_echo(&words, &before, &after, &prompt)
    });
    found.next().map(|found| found.as_str())
}

/// Returns whether the words with this context (`before` is reversed) stand in the prompt.
fn is_echo(words: &[char], before: &[char], after: &[char], prompt: &[char]) -> bool {
    if words.is_empty() {
        return false;
    }
    prompt.windows(words.len()).enumerate().filter(|(_, window)| *window == words).any(|(at, _)| {
        let left = prompt.get(..at).unwrap_or_default();
        let right = prompt.get(at + words.len()..).unwrap_or_default();
        // Contexts are compared as far as both go: the screen may start or end in the middle of a prompt. Words
        // without context are an echo only if they are the whole prompt.
        let alone = before.is_empty() && after.is_empty();
        let agrees =
            left.iter().rev().zip(before).chain(right.iter().zip(after)).all(|(a, b)| a == b);
        agrees && (!alone || left.is_empty() && right.is_empty())
    })
}

/// Characters at the start or end of a prompt that identify it.
const PROMPT_PART_CHARS: usize = 24;

/// Placeholder for a long paste: `[Pasted text #1 +12 lines]`, `[Paste #1 - 12 lines]`.
const PASTE_PLACEHOLDER: &str = "[paste";

/// Occurrences of the prompt or its placeholder; `None` if none is visible.
pub fn count_prompt(screen: &str, prompt: &str) -> Option<usize> {
    let prompt: Vec<char> = significant_chars(prompt).collect();
    if prompt.is_empty() {
        return None;
    }
    let shown: Vec<char> = significant_chars(screen).collect();
    let count = |part: &[char]| shown.windows(part.len()).filter(|window| *window == part).count();
    let (first, last) = (
        &prompt[..prompt.len().min(PROMPT_PART_CHARS)],
        &prompt[prompt.len().saturating_sub(PROMPT_PART_CHARS)..],
    );
    let pasted = screen.to_ascii_lowercase().matches(PASTE_PLACEHOLDER).count();
    Some(count(first).max(count(last)) + pasted)
}

/// Questions that agents ask before they work (trust, billing, permissions), and short names for them.
const DIALOG_QUESTIONS: [(&str, &str); 14] = [
    ("doyoutrust", "trust this folder"),
    ("oneyoutrust?", "trust this folder"),
    ("trustthisfolder", "trust this folder"),
    ("confirmfoldertrust", "trust this folder"),
    ("doyouwanttousethisapikey", "use this API key"),
    ("bypasspermissionsmode", "accept bypass permissions mode"),
    ("selectloginmethod", "log in"),
    ("howwouldyouliketoauthenticate", "log in"),
    ("selectauthenticationmethod", "log in"),
    ("signinwithchatgpt", "log in"),
    ("pleaseuse/logintosignin", "log in"),
    ("choosethetextstyle", "choose a theme"),
    ("permissionrequired", "grant permission"),
    ("doyouwanttoproceed?", "grant permission"),
];

/// The dialog that waits for a person. A question counts only with its answers below it, because an agent may
/// write such words, too.
pub fn find_dialog(screen: &str) -> Option<String> {
    let lines: Vec<&str> = screen.lines().collect();
    let marked = |is_answer: fn(&str) -> bool| {
        lines.iter().rposition(|line| selected_answer(line).is_some_and(is_answer))
    };
    let below = |answer: usize| lines[answer..].join(" ").to_lowercase();
    let says_how = |answer: usize, how: &[&str]| how.iter().any(|how| below(answer).contains(how));
    let numbered = marked(is_numbered);
    // Without numbers it may be the input line, unless there is a hint how to answer.
    let plain = marked(|_| true).filter(|answer| says_how(*answer, &CONFIRM_HINTS));
    let answer = numbered.or(plain)?;
    let above: String = lines[..=answer].iter().flat_map(|line| significant_chars(line)).collect();
    let above = above.to_lowercase();
    if let Some((_, words)) = DIALOG_QUESTIONS.iter().find(|(question, _)| above.contains(question))
    {
        return Some((*words).to_owned());
    }
    let is_dialog = says_how(answer, &CONFIRM_HINTS)
        || says_how(answer, &["enter/esc confirm", "enter continue", "enter confirm"]);
    is_dialog.then(|| "choose an answer".to_owned())
}

const CONFIRM_HINTS: [&str; 4] =
    ["enter to confirm", "enter to select", "enter to continue", "enter to choose"];

/// Returns whether a notice covers the screen that any key but Enter closes.
pub fn is_any_key_notice(screen: &str) -> bool {
    let shown: String = significant_chars(screen).collect();
    shown.to_lowercase().contains("anyotherkeytoclose")
}

/// The selected answer, as in `❯ 1. Yes`.
fn selected_answer(line: &str) -> Option<&str> {
    let is_frame = |c: char| c.is_whitespace() || matches!(c, '\u{2500}'..='\u{257f}' | '|');
    let answer = line.trim_matches(is_frame).strip_prefix(['❯', '›', '>', '●', '▶', '•'])?;
    Some(answer.trim_start()).filter(|answer| !answer.is_empty())
}

fn is_numbered(answer: &str) -> bool {
    let mut letters = answer.chars();
    letters.next().is_some_and(|c| c.is_ascii_digit()) && matches!(letters.next(), Some('.' | ')'))
}

/// The text without characters that depend on wrapping and frames.
fn significant_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| is_letter(*c))
}

fn significant_chars_rev(text: &str) -> impl Iterator<Item = char> {
    text.chars().rev().filter(|c| is_letter(*c))
}

fn is_letter(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '\u{2500}'..='\u{259f}' | '|' | '>' | '❯' | '›')
}

/// The last lines, without trailing blank lines and spaces.
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
        find_completion(&Regex::new("All tasks complete").unwrap(), screen, PROMPT).is_some()
    }

    #[test]
    fn screen_prompt_echo_does_not_complete() {
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
    fn screen_answer_is_found_beside_prompt_echo() {
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
    fn screen_tags_are_found_by_completion_rule() {
        let response = completion_regex(&CompletionRule::Response("Done".into())).unwrap();
        assert!(find_completion(&response, "● <response> DONE </response>", "x").is_some());
        assert!(
            find_completion(
                &response,
                "answer <response>DONE</response>",
                "answer <response>DONE</response>"
            )
            .is_none()
        );
        assert!(completion_regex(&CompletionRule::Never).is_none());
    }

    #[test]
    fn screen_last_lines_skip_trailing_blanks() {
        assert_eq!(last_lines("a\nb  \nc\n\n\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
        assert_eq!(last_lines("a", 20), "a");
    }

    #[test]
    fn dialogs_of_known_agents_are_recognized() {
        for (screen, expected) in [
            (
                "  Folder access\n  Trust this folder? Codex can read, edit\n› 1. Trust and continue\n  2. Back\n\
                 \n  enter continue · esc back",
                Some("trust this folder"),
            ),
            (
                "  Meet a new model\n› 1. Try new model\n  2. Use existing model\n\n  enter/esc confirm",
                Some("choose an answer"),
            ),
            (
                "│ Confirm folder trust  │\n│ Do you trust the files in\n│ this folder?  │\n│   1. Yes │\n│ ❯ 2. No (Esc) │\n\
                 ╰──────╯",
                Some("trust this folder"),
            ),
            (
                "│ Do you trust this folder? │\n│ ● 1. Trust folder (project) │",
                Some("trust this folder"),
            ),
            (
                "WARNING: Claude Code running in Bypass Permissions mode\n❯ 1. No, exit\n  2. Yes, I accept",
                Some("accept bypass permissions mode"),
            ),
            (
                " Is this a project you created or one you trust? (Like\n❯ No, exit\n  Yes, I trust this folder\n\n\
                 Enter to confirm · Esc to cancel",
                Some("trust this folder"),
            ),
            ("Select login method:\n ❯ 1. Claude account with subscription", Some("log in")),
            // An agent at work, and words that are no question.
            ("› Ask Codex to do anything\n  ? for shortcuts", None),
            ("Do you trust this folder? That is what it asks.\n> 12 files", None),
            (
                "● I will do this:\n  1. Write it\n  2. Test it\n> Type your message, enter to submit",
                None,
            ),
        ] {
            assert_eq!(find_dialog(screen).as_deref(), expected, "{screen}");
        }
    }

    #[test]
    fn screen_prompt_is_counted_when_wrapped_framed_or_pasted() {
        assert_eq!(count_prompt("", " \n"), None);
        assert_eq!(count_prompt("> nothing here", PROMPT), Some(0));
        let framed = "╭──╮\n│ > Do the next task. When not │\n│ hing is left, say \"All tasks complete\" a │\n│ nd stop. │";
        assert_eq!(count_prompt(framed, PROMPT), Some(1));
        assert_eq!(count_prompt("… complete\" and stop.", PROMPT), Some(0), "too little of it");
        assert_eq!(count_prompt("❯ [Pasted text #1 +12 lines]", PROMPT), Some(1));
        assert_eq!(count_prompt("x y x", "x"), Some(2));
    }
}
