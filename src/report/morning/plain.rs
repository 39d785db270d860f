//! The report as text: for the terminal, and as Markdown for whoever wants to keep or send it.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::{Check, Continued, Facts, Iteration, Left, Wait};
use crate::core::event::{Class, WaitReason};
use crate::core::text;
use crate::report::runs::after_words;
use crate::report::visible;

/// In which signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Terminal,
    Markdown,
}

/// Draws the facts.
pub fn draw(facts: &Facts, zone: &TimeZone, form: Form) -> String {
    let mut page = Page { out: String::new(), form };
    page.title(&format!("Run {}", facts.run));
    page.item("Asked", &facts.asked);
    page.item("Outcome", &outcome(facts));
    page.item("Command", &format!("ralph {} with {}", facts.command, facts.agent));
    page.item("Directory", &facts.directory);
    page.item("Started", &moment(facts.started_ms, zone));
    page.item("Took", &format!("{}, {}", text::duration(facts.duration_ms), iterations(facts)));
    page.item("Used", &used(facts));
    page.iterations(facts);
    page.guardrails(facts);
    page.plain_list("Went on", &went_on(facts, zone));
    page.plain_list("Limits waited for", &limits_waited_for(facts, zone));
    let denied = &facts.denied;
    page.list("Denied to the agent", denied.total, &denied.first);
    page.list("Warnings", facts.warnings.total, &facts.warnings.first);
    page.plain_list("Left to do", &left_to_do(&facts.left));
    page.out
}

/// How it came out, with its exit code.
pub(super) fn outcome(facts: &Facts) -> String {
    match facts.exit_code {
        Some(code) => format!("{} (exit code {code})", facts.verdict()),
        None => facts.verdict(),
    }
}

pub(super) fn iterations(facts: &Facts) -> String {
    let done = facts.iterations.len();
    match facts.max_iterations {
        0 => format!("{done} iterations"),
        max => format!("{done} of {max} iterations"),
    }
}

pub(super) fn used(facts: &Facts) -> String {
    let cost = facts.usage.cost_usd.map_or("no cost told".to_owned(), text::dollars);
    match facts.usage.total_tokens() {
        0 => cost,
        tokens => format!("{cost}, {} tokens", text::count(tokens)),
    }
}

pub(super) fn moment(ms: i64, zone: &TimeZone) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| "-".to_owned(),
        |time| zone.to_datetime(time).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// When the run went on after it had been left, a line each.
pub(super) fn went_on(facts: &Facts, zone: &TimeZone) -> Vec<String> {
    let line = |continued: &Continued| {
        let (time, after) = (moment(continued.time_ms, zone), after_words(continued.after));
        let again = continued.cut_off.map(|n| format!("; iteration {n} was begun again"));
        format!("{time}, after {after}{}", again.unwrap_or_default())
    };
    facts.continued.iter().map(line).collect()
}

/// The limits that the run sat out, a line each.
pub(super) fn limits_waited_for(facts: &Facts, zone: &TimeZone) -> Vec<String> {
    let limits = facts.waits.iter().filter(|wait| wait.reason == WaitReason::RateLimit);
    let line = |wait: &Wait| {
        let length = u64::try_from(wait.until_ms - wait.from_ms).unwrap_or(0);
        let (from, length) = (moment(wait.from_ms, zone), text::duration(length));
        format!("iteration {}: from {from} for {length}", wait.iteration)
    };
    limits.map(line).collect()
}

/// What is left, a line each.
pub(super) fn left_to_do(left: &Left) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((done, total)) = left.stories.filter(|(done, total)| done < total) {
        let next = left.story.as_ref().map_or(String::new(), |story| format!(", next {story}"));
        lines.push(format!("stories: {done} of {total} pass{next}"));
    }
    lines.extend(left.feedback.iter().map(|part| format!("the agent was to be told: {part}")));
    lines.extend(left.plan.iter().map(|entry| format!("open in the agent's plan: {entry}")));
    lines
}

/// What became of an iteration, in a word or two.
pub(super) fn state(iteration: &Iteration) -> &'static str {
    let Some(class) = iteration.class else { return "not ended" };
    if iteration.guardrails.iter().any(Check::failed) {
        return "guardrail failed";
    }
    match class {
        Class::Answered if iteration.vetoed.is_some() => "not complete",
        Class::Answered => "answered",
        Class::Empty if iteration.repeats_prompt => "only repeated its prompt",
        Class::Empty => "said nothing",
        Class::Failed => "failed",
        Class::RateLimited => "rate limit",
        Class::Overloaded => "overloaded",
        Class::Credentials => "credentials refused",
        Class::ContextExhausted => "context full",
        Class::Limited => "limit of its own",
        Class::TimedOut => "timed out",
        Class::Interrupted => "interrupted",
        Class::NotStarted => "not started",
    }
}

struct Page {
    out: String,
    form: Form,
}

impl Page {
    fn title(&mut self, title: &str) {
        let title = clean(title);
        let _ = match self.form {
            Form::Terminal => writeln!(self.out, "{title}\n"),
            Form::Markdown => writeln!(self.out, "# {}\n", escape(&title)),
        };
    }

    fn heading(&mut self, heading: &str) {
        let _ = match self.form {
            Form::Terminal => writeln!(self.out, "\n{heading}"),
            Form::Markdown => writeln!(self.out, "\n## {heading}\n"),
        };
    }

    fn item(&mut self, name: &str, value: &str) {
        let value = clean(value);
        let _ = match self.form {
            Form::Terminal => writeln!(self.out, "{:<10} {value}", format!("{name}:")),
            Form::Markdown => writeln!(self.out, "- **{name}:** {}", escape(&value)),
        };
    }

    fn bullet(&mut self, line: &str) {
        let line = clean(line);
        let _ = match self.form {
            Form::Terminal => writeln!(self.out, "  {line}"),
            Form::Markdown => writeln!(self.out, "- {}", escape(&line)),
        };
    }

    fn list(&mut self, heading: &str, total: u32, first: &[String]) {
        if total == 0 {
            return;
        }
        self.heading(&format!("{heading} ({total})"));
        for entry in first {
            self.bullet(entry);
        }
        let more = (total as usize).saturating_sub(first.len());
        if more > 0 {
            self.bullet(&format!("and {more} more"));
        }
    }

    /// A list that is all there.
    fn plain_list(&mut self, heading: &str, lines: &[String]) {
        if !lines.is_empty() {
            self.heading(heading);
            lines.iter().for_each(|line| self.bullet(line));
        }
    }

    fn iterations(&mut self, facts: &Facts) {
        if facts.iterations.is_empty() {
            return;
        }
        self.heading("Iterations");
        if self.form == Form::Markdown {
            self.out.push_str("| # | outcome | time | cost | tools | commits |\n");
            self.out.push_str("|--:|---|--:|--:|--:|---|\n");
        }
        for iteration in &facts.iterations {
            let cost = iteration.usage.cost_usd.map_or("-".to_owned(), text::dollars);
            let time = text::duration(iteration.duration_ms);
            let (number, state, tools) = (iteration.number, state(iteration), iteration.tools);
            let _ = match self.form {
                Form::Terminal => writeln!(
                    self.out,
                    "  {number:>3}  {state:<19}  {time:>8}  {cost:>8}  {tools:>4} tools"
                ),
                Form::Markdown => {
                    let commits: Vec<String> = iteration
                        .commits
                        .iter()
                        .map(|commit| {
                            format!("`{}` {}", commit.id, escape(&clean(&commit.subject)))
                        })
                        .collect();
                    let commits = commits.join("<br>");
                    writeln!(
                        self.out,
                        "| {number} | {state} | {time} | {cost} | {tools} | {commits} |"
                    )
                }
            };
            if self.form == Form::Terminal {
                for commit in &iteration.commits {
                    let _ = writeln!(self.out, "       {} {}", commit.id, clean(&commit.subject));
                }
                for failure in &iteration.failures {
                    let _ = writeln!(self.out, "       failed: {}", clean(failure));
                }
                if let Some(reason) = &iteration.vetoed {
                    let _ = writeln!(self.out, "       not complete: {}", clean(reason));
                }
            }
        }
    }

    fn guardrails(&mut self, facts: &Facts) {
        let mut commands: Vec<&str> = Vec::new();
        for check in facts.iterations.iter().flat_map(|iteration| &iteration.guardrails) {
            if !commands.contains(&check.command.as_str()) {
                commands.push(&check.command);
            }
        }
        if commands.is_empty() {
            return;
        }
        self.heading("Guardrails, from the first iteration to the last");
        for command in commands {
            let history: String = facts
                .iterations
                .iter()
                .map(|iteration| {
                    let mut own =
                        iteration.guardrails.iter().filter(|check| check.command == command);
                    match own.next_back() {
                        None => '.',
                        Some(check) if check.passed => '+',
                        Some(check) if check.cut_off => '~',
                        Some(_) => '-',
                    }
                })
                .collect();
            self.bullet(&format!("{history}  {command}"));
        }
        self.bullet("(+ passed, - failed, ~ interrupted, . not run)");
    }
}

/// On one line, and nothing in it that steers a terminal.
fn clean(text: &str) -> String {
    let mut out = Vec::new();
    visible::one_line(text, 300, "…", &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// What Markdown would take for more than text.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '|' | '&') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
